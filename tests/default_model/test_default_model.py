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

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import BertTokenizerFast

import sbert
from examples.default_model import imitation, texts
from examples.default_model.texts import COLLECTIONS
from sbert import Pooling, SentenceEncoder, Transformer
from sbert.cli.benchmark.contenders import PEERS
from sbert.data import read_retrieval
from sbert.evaluation import RetrievalEvaluator, STSSuite
from tests import small

FOLDER = Path(sbert.__file__).parent / "default_model"
ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples" / "default_model"
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


def test_it_is_small() -> None:
    size = sum(path.stat().st_size for path in FOLDER.rglob("*"))
    print(f"\n{size / 1e6:.1f} MB")
    assert size <= 22e6


def test_without_a_name_and_by_its_own(own: SentenceEncoder) -> None:
    expected = own.encode(TEXTS, on_truncate="ignore")
    named = SentenceEncoder("sbert-mini", device="cpu")
    assert own.name_or_path == named.name_or_path == "sbert-mini"
    assert np.array_equal(named.encode(TEXTS, on_truncate="ignore"), expected)
    assert np.array_equal(SentenceEncoder(FOLDER, device="cpu").encode(TEXTS, on_truncate="ignore"), expected)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    assert own.verify().ok


def test_a_folder_of_its_name_does_not_stand_before_it(
    own: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling(), device="cpu")
    other.save(tmp_path / "sbert-mini")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"pass \./sbert-mini for the folder"):
        found = SentenceEncoder(device="cpu")
    assert np.array_equal(found.encode(TEXTS[0]), own.encode(TEXTS[0]))
    for folder in ("./sbert-mini", Path("sbert-mini")):
        assert np.array_equal(SentenceEncoder(folder, device="cpu").encode("lake"), other.encode("lake"))


def test_without_a_network_and_a_hub(own: SentenceEncoder, tmp_path: Path) -> None:
    hidden = {**os.environ, "HF_HOME": str(tmp_path / "none"), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", OFFLINE], cwd=tmp_path, env=hidden, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.array(done.stdout.split(), float), own.encode(TEXTS[0]), atol=1e-6)


def test_it_tells_meanings_apart(own: SentenceEncoder) -> None:
    vectors = own.encode(["A kitten naps on the couch.", TEXTS[0], "The government raises taxes.", TEXTS[1]])
    scores = own.similarity(vectors, vectors)
    assert min(scores[0, 1], scores[2, 3]) > 0.5 > 0.25 > scores[:2, 2:].max()


def test_sentence_transformers_reads_it(own: SentenceEncoder) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(FOLDER), device="cpu", local_files_only=True)
    difference = np.abs(theirs.encode(TEXTS) - own.encode(TEXTS, on_truncate="ignore")).max()
    print(f"\nmax difference from sentence-transformers: {difference:.1e}")
    assert difference <= 1e-5


def test_peers_of_a_benchmark_know_its_name(own: SentenceEncoder) -> None:
    encode, _ = PEERS["sentence-transformers"]("sbert-mini", "cpu")
    np.testing.assert_allclose(encode(TEXTS[:2]), own.encode(TEXTS[:2]), atol=1e-5)


def test_the_command_line_needs_no_name(own: SentenceEncoder, tmp_path: Path) -> None:
    def run(*words: str, given: str = "") -> str:
        command = [sys.executable, "-m", "sbert", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("encode", "-", "-o", "v.npy", "--device", "cpu", given="\n".join(TEXTS[:2]))
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), own.encode(TEXTS[:2]), atol=1e-6)
    vectors = own.encode(TEXTS[:2])
    score = float(own.similarity(vectors, vectors)[0, 1])
    assert float(run("similarity", *TEXTS[:2], "--device", "cpu")) == pytest.approx(score, abs=1e-4)


def test_log_and_curve_are_there() -> None:
    entries = [json.loads(line) for line in (EXAMPLES / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert losses[-1] < losses[0]
    assert (EXAMPLES / "training.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* sentences were truncated to max_seq_length")
def test_figures(own: SentenceEncoder, data: Path) -> None:
    collections = {name: read_retrieval(data / place) for name, place in COLLECTIONS.items()}
    found = {name: RetrievalEvaluator(*given)(own)["ndcg@10"] for name, given in collections.items()}
    found |= STSSuite(data)(own)
    print("\n" + ", ".join(f"{name} {100 * figure:.2f}" for name, figure in found.items()))
    assert found["STSb"] >= 0.81
    assert found["SICK-R"] >= 0.75
    assert np.mean([found[name] for name in ("STS12", "STS14", "STS15")]) >= 0.77
    assert found["Cranfield"] >= 0.45
    assert found["CACM"] >= 0.40
    assert found["TIME"] >= 0.54
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("|  | STS12"))
    names, figures = (lines[line].strip("| ").split(" | ") for line in (head, head + 2))
    said = dict(zip(names, figures[1:], strict=True))
    assert said == {name: f"{100 * found[name]:.1f}" for name in said}


# -------------------------------------------------------------------------------------------------------- training


def test_nothing_is_learned_of_what_is_measured(training: ModuleType, tmp_path: Path) -> None:
    def put(name: str, *lines: tuple[str, ...]) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = "".join("\t".join(line) + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(table) if path.suffix == ".gz" else table)

    pairs = ("sentence1", "sentence2")
    put("stsb/dev.tsv", pairs, ("Prices fall again this year", "A child waves at me"))
    put("stsb/test.tsv", pairs, ("A cat sleeps here now.", 'Some "dog" runs, it seems.'))
    put("sts/STS12/a.tsv", pairs, ("Taxes rise all the time", "Taxes fall in the end"))
    put("sick/SICK_test.tsv", pairs, ("A boat is on the lake", "There is no boat here"))
    put("nli/snli_dev.tsv", ("premise", "hypothesis"), ("A man plays the flute", "Nobody plays anything today"))
    put("nli/snli_test.tsv", ("premise", "hypothesis"), ("Two women row a boat", "Nobody rows any boat"))
    put(
        "nli/snli_train_subset.tsv.gz",
        ("premise", "hypothesis", "label"),
        ("A dog barks outside loudly", "An animal makes some noise", "entailment"),
        ("A dog barks outside loudly", "Nobody plays anything today!", "contradiction"),
        ("two women row a boat", "Some people are on water", "entailment"),
    )
    put("text_imdb/unsup.tsv.gz", ("text",), ("I saw this film. Prices fall again this year. A boat is on the lake.",))
    put(
        "qqp/dev.tsv",
        ("is_duplicate", "question1", "question2"),
        ("1", "a CAT sleeps  here, now", "Is a cat asleep here?"),
        ("1", "Is a cat asleep here?", "Does a cat sleep here?"),
        ("0", "some dog runs it seems!", "taxes rise all the time."),
        ("0", "A boat is on the lake .", "Nobody plays anything today?"),
    )
    asleep = ("Is a cat asleep here?", "Does a cat sleep here?")
    barks = ("A dog barks outside loudly", "An animal makes some noise")
    for name in texts.COLLECTIONS.values():
        put(f"{name}/queries.tsv", ("query_id", "text"), ("1", "What makes a wing rise?"))
        put(f"{name}/corpus.tsv", ("doc_id", "title", "text"), ("1", "Lift", " ".join(map(str, range(30)))))
        put(f"{name}/qrels.tsv", ("query_id", "doc_id", "grade"), ("1", "1", "1"))
    passage = "A cell divides. Its parts are shared out."
    put(
        "passages/biology/passages.tsv.gz",
        ("query", "text"),
        ("", passage),
        ("", "Leaves are green. They take up light."),
        ("How do cells divide?", passage),
        ("what makes a wing rise", "Air that is pushed down pushes back."),
        ("Taxes", "Taxes rise all the time!"),
        ("Numbers", " ".join(map(str, range(5, 5 + texts.SHARED)))),
        ("Others", " ".join(map(str, range(20, 20 + texts.SHARED)))),
    )
    found = sorted(texts.read_sentences(tmp_path))
    assert set(found) == {*asleep, *barks, "Some people are on water", "I saw this film."}
    rows = [(text, np.zeros(1)) for text in 2 * found]
    described = 2 * sorted([*barks, "Some people are on water"])
    assert [text for text, _ in training.once_more(rows, tmp_path)] == [*described, min(*asleep, "I saw this film.")]
    assert list(texts.read_pairs(tmp_path)) == [
        ("How do cells divide?", passage),
        ("Others", " ".join(map(str, range(20, 20 + texts.SHARED)))),
        ("Leaves are green.", "Leaves are green. They take up light."),
    ]
    shutil.rmtree(tmp_path / "retrieval_dev" / "time")
    (tmp_path / "sick" / "SICK_test.tsv").unlink()
    with pytest.raises(SystemExit, match=r"lacks sick/\*\.tsv:sentence1,sentence2, retrieval_dev/time; without"):
        next(texts.read_pairs(tmp_path))


def test_of_a_source_few_passages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MOST_OF_A_SOURCE", 2)
    monkeypatch.setattr(texts, "sentences_of_evaluation", lambda _: set())
    monkeypatch.setattr(texts, "runs_of_evaluation", lambda _: set())
    for source in "ab":
        file = tmp_path / "passages" / source / "passages.tsv.gz"
        file.parent.mkdir(parents=True)
        rows = "".join(f"{query}\t{source} {number}\n" for number, query in enumerate(["", "", "?"]))
        file.write_bytes(gzip.compress(f"query\ttext\n{rows}".encode()))
    assert list(texts.read_pairs(tmp_path)) == [("?", "a 2"), ("a 0", "a 0"), ("?", "b 2"), ("b 0", "b 0")]


def test_batches_hold_each_text_once_and_similar_passages_together() -> None:
    generator = np.random.default_rng(0)
    centres = np.eye(16)[np.repeat(np.arange(16), 20)]
    vectors = centres + 0.01 * generator.standard_normal(centres.shape)
    groups = imitation.neighbours(vectors, seed=0)
    assert sorted(np.concatenate(groups)) == list(range(320))
    assert max(map(len, groups)) <= imitation.NEIGHBOURS
    near = np.mean([(vectors[group] @ vectors[group].T).mean() for group in groups])
    assert near > 0.5 > 5 * (vectors @ vectors.T).mean()
    batches = imitation.Together(100, groups)(None, 64, generator)
    assert sorted(np.concatenate(batches)) == list(range(740))
    for batch in batches:
        asked = batch[(batch >= 100) & (batch % 2 == 0)]
        assert 60 <= len(batch) <= 64
        assert set(asked + 1) == {*batch[batch >= 100]} - {*asked}


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


def test_a_larger_vocabulary_keeps_what_was_learned(own: SentenceEncoder, tmp_path: Path) -> None:
    pieces = own.tokenizer.convert_ids_to_tokens(list(range(len(own.tokenizer))))
    tokenizer = BertTokenizerFast(vocab={piece: i for i, piece in enumerate([*pieces, "catsofa", "##sofacat"])})
    before = own[0].auto_model.get_input_embeddings().weight.detach().clone()
    other = imitation.with_vocabulary(SentenceEncoder(FOLDER, device="cpu"), tokenizer)
    np.testing.assert_allclose(other.encode(TEXTS[:3]), own.encode(TEXTS[:3]), atol=1e-5)
    table = other[0].auto_model.get_input_embeddings().weight
    assert torch.equal(table[: len(pieces)], before)
    for row, name in zip(table[-2:], ("catsofa", "sofacat"), strict=True):
        torch.testing.assert_close(
            row, before[own.tokenizer.convert_tokens_to_ids(own.tokenizer.tokenize(name))].mean(0)
        )
    other.save(tmp_path)
    assert np.array_equal(SentenceEncoder(tmp_path, device="cpu").encode(TEXTS[:3]), other.encode(TEXTS[:3]))


def test_its_card_shows_a_program_that_runs(training: ModuleType) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", training.card.__globals__["_CARD"], re.DOTALL)
    program = program.format(least=64)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_does_not_go_on_with_what_other_settings_made(training: ModuleType, tmp_path: Path) -> None:
    training.check_same(tmp_path, training.SMOKE, "a teacher")
    training.check_same(tmp_path, training.SMOKE, "a teacher")
    for settings, teacher in ((training.SMOKE._replace(rate=1.0), "a teacher"), (training.SMOKE, "another")):
        with pytest.raises(SystemExit, match=r"was created with .* or another folder"):
            training.check_same(tmp_path, settings, teacher)


@pytest.fixture
def few(data: Path, tmp_path: Path) -> Path:
    """The data, with few rows in each file."""
    for path in data.rglob("*.tsv*"):
        name = path.relative_to(data)
        zipped = path.suffix == ".gz"
        copy = tmp_path / "data" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if name.parts[0] in ("cranfield", "retrieval_dev"):
            continue
        with (gzip.open if zipped else open)(path, "rt", encoding="utf-8", newline="\n") as file:
            some = "".join(islice(file, 40 if name.parts[0] in ("sts", "sick", "passages", "text_imdb") else 400))
        copy.write_bytes(gzip.compress(some.encode()) if zipped else some.encode())
    for folder in COLLECTIONS.values():
        made = tmp_path / "data" / folder
        (made / "corpus.tsv").write_text("doc_id\ttitle\ttext\n1\tlift\twings\n2\tdrag\ta body\n", encoding="utf-8")
        (made / "queries.tsv").write_text("query_id\ttext\n1\twhat lifts a wing\n", encoding="utf-8")
        (made / "qrels.tsv").write_text("query_id\tdoc_id\tgrade\n1\t1\t3\n", encoding="utf-8")
    return tmp_path / "data"


@pytest.mark.slow
def test_a_short_run_learns(few: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.default_model.train", "--smoke", "--data", str(few)]
    command += ["--output", str(tmp_path), "--set", "most=4000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    figures = [entry["evaluation"]["STSb"] for entry in entries if "evaluation" in entry]
    print(f"\nSTSb dev {[f'{100 * figure:.1f}' for figure in figures]}")
    assert figures[-1] >= figures[0] + 0.05
    for part, least in (("all", 0.25), ("passages", 1)):
        lines = (tmp_path / part / "history.jsonl").read_text(encoding="utf-8").splitlines()
        losses = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
        assert losses[-1] < least * losses[0]
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
