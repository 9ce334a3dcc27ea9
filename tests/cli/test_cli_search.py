"""``sbert search`` finds what the library finds, and encodes nothing twice."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.cli import search
from sbert.cli.main import main
from sbert.pipeline.encode import Encoding
from sbert.search import BM25, Index, fuse
from sbert.search.index.fusion import WEIGHTS
from tests import small

TEXTS = [f"{text} {number}" for number in ("one", "two", "three") for text in small.CORPUS]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with prompts."""
    folder = tmp_path_factory.mktemp("search") / "model"
    reader = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    prompts = {"query": "seven green hills: ", "document": "the lake: "}
    SentenceEncoder(reader, Pooling("mean"), prompts=prompts, device="cpu").save(folder)
    return folder


@pytest.fixture(scope="module")
def model(saved: Path) -> SentenceEncoder:
    return SentenceEncoder(saved, device="cpu")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Texts in rows 1 to 12, but for an empty row 3."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*TEXTS[:2], " ", *TEXTS[2:]]) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``sbert search`` on a CPU; gives its exit code and what it wrote to stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main(["search", "--device", "cpu", *map(str, words)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the vectors that are stored."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "sbert" / "vectors"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents are encoded at once."""
    counts: list[int] = []
    real = Encoding._outputs

    def counting(self: Encoding, texts: list[str], *more: Any) -> Any:
        counts.extend([len(texts)] if len(texts) > 1 else [])  # A query is one text.
        return real(self, texts, *more)

    monkeypatch.setattr(Encoding, "_outputs", counting)
    return counts


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def scores(model: SentenceEncoder, query: str) -> np.ndarray:
    """Of all texts, by plain arithmetic, prompts written out."""
    left = model.encode([f"seven green hills: {query}"], prompt="").astype(np.float64)[0]
    right = model.encode([f"the lake: {text}" for text in TEXTS], prompt="").astype(np.float64)
    return right @ left / np.linalg.norm(right, axis=1) / np.linalg.norm(left)


# ----------------------------------------------------------------------------------------------------- what is found


def test_the_best_texts_with_their_rows(saved: Path, model: SentenceEncoder, corpus: Path, run: Run) -> None:
    code, out, err = run(saved, corpus, "a small boat", "two foxes", "--top-k", "3", "--json")
    assert (code, err) == (0, "")
    found = records(out)
    assert [(each["query"], each["rank"]) for each in found] == [
        (query, rank) for query in ("a small boat", "two foxes") for rank in (1, 2, 3)
    ]
    rows = {text: row + 1 + (row > 1) for row, text in enumerate(TEXTS)}
    for query, three in (("a small boat", found[:3]), ("two foxes", found[3:])):
        expected = scores(model, query)
        order = np.argsort(-expected)[:3]
        assert [each["text"] for each in three] == [TEXTS[row] for row in order]
        assert [each["row"] for each in three] == [rows[TEXTS[row]] for row in order]
        np.testing.assert_allclose([each["score"] for each in three], expected[order], atol=1e-6)


def test_a_table_for_people(saved: Path, corpus: Path, run: Run) -> None:
    found = records(run(saved, corpus, "lake", "--top-k", "2", "--json")[1])
    table = "".join(f"{each['score']:8.4f}  {each['row']}  {each['text']}\n" for each in found)
    assert run(saved, corpus, "lake", "--top-k", "2") == (0, table, "")
    both = run(saved, corpus, "lake", "lake", "--top-k", "2")[1]
    assert both == f"lake\n{table}\nlake\n{table}"


def test_a_threshold(saved: Path, corpus: Path, run: Run) -> None:
    every = records(run(saved, corpus, "lake", "--top-k", "99", "--json")[1])
    assert len(every) == len(TEXTS)
    least = every[4]["score"]
    assert records(run(saved, corpus, "lake", "--top-k", "99", "--json", "--threshold", least)[1]) == every[:5]
    assert run(saved, corpus, "lake", "--threshold", "1.5") == (0, "nothing found\n", "")
    assert run(saved, corpus, "lake", "--threshold", "1.5", "--json") == (0, "", "")


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_fewer_bits(
    saved: Path, model: SentenceEncoder, corpus: Path, run: Run, encoded: list[int], precision: str
) -> None:
    """Scores are those of the codes that ``encode`` and ``semantic_search`` give from Python."""
    from sbert.pipeline.quantization import calibrate
    from sbert.search import semantic_search

    documents = model.encode_document(TEXTS)
    ranges = calibrate(documents) if precision == "int8" else None
    kind = {"int8": "int8", "binary": "ubinary"}[precision]
    codes = model.encode_document(TEXTS, precision=kind, ranges=ranges)
    hits = semantic_search(model.encode_query(["lake"]), codes, 4, precision=kind, ranges=ranges)
    encoded.clear()
    first = run(saved, corpus, "lake", "--top-k", "4", "--json", "--precision", precision)
    np.testing.assert_allclose([each["score"] for each in records(first[1])], hits.scores[0], atol=1e-6)
    assert [each["text"] for each in records(first[1])] == [TEXTS[row] for row in hits.indices[0]]
    assert sum(encoded) == len(TEXTS) * (2 if precision == "int8" else 1)
    assert run(saved, corpus, "lake", "--top-k", "4", "--json", "--precision", precision) == first
    assert run(saved, corpus, "lake", "--top-k", "4", "--json", "--precision", precision, "--no-cache") == first
    one = corpus.parent / "one.txt"
    one.write_text("lake", encoding="utf-8")
    assert len(records(run(saved, one, "boat", "--json", "--precision", precision)[1])) == 1


def test_columns_and_standard_input(
    saved: Path, corpus: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [(each["text"], each["score"]) for each in records(run(saved, corpus, "lake", "--json")[1])]
    table = tmp_path / "table.tsv"
    table.write_text("id\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS), encoding="utf-8")
    found = records(run(saved, table, "lake", "--json", "--column", "text")[1])
    assert [(each["text"], each["score"]) for each in found] == expected
    assert [TEXTS[each["row"] - 1] for each in found] == [text for text, _ in expected]
    queries = io.TextIOWrapper(io.BytesIO(b"lake\n\na small boat\r\n"))
    monkeypatch.setattr("sys.stdin", queries)
    found = records(run(saved, corpus, "-", "--json")[1])
    assert [each["query"] for each in found] == ["lake"] * 10 + ["a small boat"] * 10
    assert [(each["text"], each["score"]) for each in found[:10]] == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS).encode())))
    before = sorted(tmp_path.iterdir())
    found = records(run(saved, "-", "lake", "--json")[1])
    assert [(each["text"], each["score"]) for each in found] == expected
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    code, said, error = run(saved, corpus, "-")
    assert (code, said) == (2, "")
    assert "standard input contains no query" in error


# ----------------------------------------------------------------------------------------------------- what is stored


def test_nothing_is_encoded_twice(saved: Path, corpus: Path, cache: Path, run: Run, encoded: list[int]) -> None:
    first = run(saved, corpus, "lake")
    assert (first[0], encoded) == (0, [len(TEXTS)])
    assert len(list(cache.glob("texts-model-*-00000-of-00001.npy"))) == 1
    assert list(corpus.parent.iterdir()) == [corpus]
    assert run(saved, corpus, "lake") == first
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")  # Another row without a text changes no vector.
    assert len(run(saved, corpus, "boat")[1].splitlines()) == 10
    assert encoded == [len(TEXTS)]
    run(saved, corpus, "lake", "--no-cache")
    assert encoded == [len(TEXTS)] * 2


def test_each_change_encodes_anew(
    saved: Path, corpus: Path, cache: Path, tmp_path: Path, run: Run, encoded: list[int]
) -> None:
    own = tmp_path / "own"
    shutil.copytree(saved, own)

    def changed(*more: object) -> bool:
        """Whether it encodes now, and not once more."""
        encoded.clear()
        first = run(own, corpus, "lake", *more)
        again = bool(encoded)
        encoded.clear()
        assert run(own, corpus, "lake", *more) == first
        assert first[0] == 0
        assert not encoded
        assert run(own, corpus, "lake", "--no-cache", *more) == first
        return again

    assert changed()
    corpus.write_text("\n".join([*TEXTS[:-1], TEXTS[-1] + "."]), encoding="utf-8")
    assert changed()
    corpus.write_text("\n".join([*TEXTS[1:], TEXTS[0]]), encoding="utf-8")  # The same texts in another order.
    assert changed()
    assert changed("--precision", "binary")
    assert changed("--precision", "int8")
    assert changed("--dtype", "bfloat16")
    stored = len(list(cache.iterdir()))
    assert not changed()  # Others' vectors have left these alone.
    # Weights alone, without the reference vectors beside them.
    weights = load_file(own / "model.safetensors")
    save_file({name: values * 1.5 for name, values in weights.items()}, own / "model.safetensors", {"format": "pt"})
    assert changed()
    trained = SentenceEncoder(own, device="cpu")
    trained.prompts["document"] = "a hill: "
    trained.save(own)
    assert changed()
    assert len(list(cache.iterdir())) == stored  # What an older text or model has left was replaced.


def test_damaged_vectors_are_encoded_anew(saved: Path, corpus: Path, cache: Path, run: Run, encoded: list[int]) -> None:
    words = saved, corpus, "lake", "--precision", "int8"
    first = run(*words)
    for path in sorted(cache.iterdir()):
        whole = path.read_bytes()
        for damaged in (whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], whole[:-1], b"", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            encoded.clear()
            assert run(*words) == first
            assert len(TEXTS) in encoded or damaged is None
            assert path.suffix == ".manifest" or path.read_bytes() == whole


def test_a_cache_that_cannot_be_written(saved: Path, corpus: Path, cache: Path, run: Run) -> None:
    expected = run(saved, corpus, "lake", "--no-cache")
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file of the user", encoding="utf-8")
    code, out, err = run(saved, corpus, "lake")
    assert (code, out) == expected[:2]
    assert err.startswith(f"sbert: warning: {cache}")
    assert "cannot be written" in err
    assert err.count("\n") == 1
    assert cache.read_text(encoding="utf-8") == "a file of the user"


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("MODEL none.txt lake", "error: 'none.txt': file not found; pass [MODEL] FILE QUERY"),
        ("MODEL texts.txt", "there is no query after texts.txt"),
        ("MODEL texts.txt - lake", "pass it once"),
        ("MODEL empty.txt lake", "empty.txt contains no text"),
        ("MODEL texts.txt lake --column a", "has no column 'a'"),
        ("MODEL texts.txt lake --top-k 0", "argument --top-k: '0' is not possible; pass a whole number of at least 1"),
        ("MODEL texts.txt lake --threshold nan", "'nan' is not a finite number"),
        ("MODEL texts.txt lake --precision int3", "invalid choice: 'int3'"),
        ("MODEL texts.txt lake -o no/out.txt", "the folder no does not exist; create it"),
        ("./none texts.txt lake", "none does not exist; pass a model's folder"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    saved: Path, corpus: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    here = corpus.parent
    monkeypatch.chdir(here)
    (here / "empty.txt").write_text("\n  \n", encoding="utf-8")
    before = sorted(here.iterdir())
    code, out, err = run(*(saved if word == "MODEL" else word for word in words.split()))
    assert (code, out) == (2, "")
    assert err.startswith("sbert: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(here.iterdir()) == before


def test_json_is_json_in_any_encoding(saved: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["\u00fcber den See", "ein \U0001f98a l\u00e4uft", "\u6587"]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    for encoding in ("ascii", "cp1252", "utf-8", "UTF8"):
        written = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
            main(["search", str(saved), str(tmp_path / "texts.txt"), "lake", "--json", "--device", "cpu"])
            found = records(written.getvalue().decode(encoding))
        assert {each["text"] for each in found} == {*texts}


def test_words_and_vectors_are_fused(run: Run, saved: Path, model: SentenceEncoder, corpus: Path) -> None:
    queries = [f"{small.CORPUS[1]} three", "two"]
    lexical, index = BM25(language="english"), Index()
    lexical.add(TEXTS)
    index.add(model.encode_document(TEXTS))
    both = lexical.search(queries, 12), index.search(model.encode_query(queries), 12)
    expected = fuse(*both, top_k=5, method="weighted", weights=WEIGHTS)
    out = run(saved, corpus, *queries, "--hybrid", "--language", "english", "--top-k", 5, "--json")[1]
    assert [each["text"] for each in records(out)] == [TEXTS[row] for row in expected.ids.ravel()]
    assert [each["score"] for each in records(out)] == pytest.approx(expected.scores.ravel().tolist(), abs=1e-6)
    assert records(out)[0]["text"] == f"{small.CORPUS[1]} three"
    assert records(run(saved, corpus, *queries, "--top-k", 5, "--json")[1]) != records(out)


def test_words_alone(run: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model; texts without a word of the query are not found."""
    monkeypatch.setattr(search, "load", None)
    found = records(run(corpus, "three", "--words", "--json")[1])
    assert {each["text"] for each in found} == {text for text in TEXTS if "three" in text.split()}
    assert run(corpus, "unheard", "--words")[1] == "nothing found\n"
    for options, message in (
        (["--language", "english"], "--language is for words; pass --hybrid or --words, too"),
        (["--words", "--language", "x"], "language='x' is unknown; pass one of 'arabic'"),
        (["--words", "--hybrid"], "argument --hybrid: not allowed with argument --words"),
    ):
        code, _, err = run(corpus, "three", *options)
        assert (code, message in err) == (2, True)
    assert "leave out the model" in run(corpus.parent, corpus, "three", "--words")[2]
    monkeypatch.setitem(sys.modules, "bm25s", None)
    code, _, err = run(corpus, "three", "--words", "--language", "english")
    assert code == 2
    assert """language='english' needs bm25s and PyStemmer; run: pip install "sbert[search]", or""" in err
