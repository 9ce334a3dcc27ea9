"""``sbert search`` finds what the library finds, and encodes nothing twice."""

from __future__ import annotations

import io
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from sbert import SentenceEncoder
from sbert.cli.main import main
from sbert.pipeline.batching import unique
from sbert.search import BM25, Index
from sbert.search.index.fusion import hybrid_hits
from tests import small
from tests.cli.conftest import TEXTS, Run, check_refused, records


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Texts in rows 1 to 12, but for an empty row 3."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*TEXTS[:2], " ", *TEXTS[2:]]) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture(name="run")
def run_search(run: Run) -> Run:
    return lambda *words: run("search", "--device", "cpu", *words)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the vectors that are stored."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "sbert" / "vectors"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents are encoded at once; one text alone is a query."""
    counts: list[int] = []

    def counting(texts: list[str]) -> Any:
        counts.extend([len(texts)] if len(texts) > 1 else [])
        return unique(texts)

    monkeypatch.setattr("sbert.pipeline.compute.unique", counting)
    return counts


def scores(model: SentenceEncoder, query: str) -> np.ndarray:
    """Of all texts, by plain arithmetic, prompts written out."""
    left = model.encode([f"seven green hills: {query}"], prompt="").astype(np.float64)[0]
    right = model.encode([f"the lake: {text}" for text in TEXTS], prompt="").astype(np.float64)
    return right @ left / np.linalg.norm(right, axis=1) / np.linalg.norm(left)


# ----------------------------------------------------------------------------------------------------- what is found


def test_the_best_texts_with_their_rows(folder: Path, model: SentenceEncoder, corpus: Path, run: Run) -> None:
    code, out, err = run(folder, corpus, "a small boat", "two foxes", "--top-k", "3", "--json")
    assert (code, err) == (0, "")
    found = records(out)
    for query, three in (("a small boat", found[:3]), ("two foxes", found[3:])):
        expected = scores(model, query)
        order = np.argsort(-expected)[:3]
        shown = [(hit["query"], hit["rank"], hit["text"], hit["row"]) for hit in three]
        rows = [(query, rank, TEXTS[row], row + 1 + (row > 1)) for rank, row in enumerate(order, start=1)]
        assert shown == rows
        np.testing.assert_allclose([hit["score"] for hit in three], expected[order], atol=1e-6)


def test_a_table_for_people_and_a_threshold(folder: Path, corpus: Path, run: Run) -> None:
    every = records(run(folder, corpus, "lake", "--top-k", "99", "--json")[1])
    assert len(every) == len(TEXTS)
    least = every[1]["score"]
    assert records(run(folder, corpus, "lake", "--json", "--threshold", least)[1]) == every[:2]
    table = "".join(f"{hit['score']:8.4f}  {hit['row']}  {hit['text']}\n" for hit in every[:2])
    assert run(folder, corpus, "lake", "lake", "--top-k", "2") == (0, f"lake\n{table}\nlake\n{table}", "")
    assert run(folder, corpus, "lake", "--threshold", "1") == (0, "nothing found\n", "")


def test_columns_and_standard_input(folder: Path, corpus: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def give(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    def found(*words: object) -> list[tuple[str, str, float]]:
        return [(each["query"], each["text"], each["score"]) for each in records(run(folder, *words, "--json")[1])]

    expected, table = found(corpus, "lake"), corpus.with_name("table.tsv")
    table.write_text("id\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS), encoding="utf-8")
    assert found(table, "lake", "--column", "text") == expected
    give("lake\n\na small boat\r\n")
    queries = found(corpus, "-")
    assert [query for query, *_ in queries] == ["lake"] * 10 + ["a small boat"] * 10
    assert queries[:10] == expected
    give("\n".join(TEXTS))
    assert found("-", "lake") == expected
    assert sorted(corpus.parent.iterdir()) == [table, corpus]
    give("")
    check_refused(run(folder, corpus, "-"), "standard input contains no query")


# ----------------------------------------------------------------------------------------------------- what is stored


def test_nothing_is_encoded_twice(folder: Path, corpus: Path, cache: Path, run: Run, encoded: list[int]) -> None:
    first = run(folder, corpus, "lake")
    assert (first[0], encoded) == (0, [len(TEXTS)])
    assert len(list(cache.glob("texts-small-*.npy"))) == 1
    assert list(corpus.parent.iterdir()) == [corpus]
    assert run(folder, corpus, "lake") == first
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")  # Another row without a text changes no vector.
    assert len(run(folder, corpus, "boat")[1].splitlines()) == 10
    assert encoded == [len(TEXTS)]
    run(folder, corpus, "lake", "--no-cache")
    assert encoded == [len(TEXTS)] * 2


def test_each_change_is_encoded(
    folder: Path, corpus: Path, cache: Path, tmp_path: Path, run: Run, encoded: list[int]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)

    def changed(*more: object) -> bool:
        """Whether it encodes now, and not a second time."""
        encoded.clear()
        first, is_changed = run(copy, corpus, "lake", *more), bool(encoded)
        encoded.clear()
        assert run(copy, corpus, "lake", *more) == first == run(copy, corpus, "lake", "--no-cache", *more)
        assert encoded == [len(TEXTS)]  # Without the cache.
        return is_changed

    assert changed()
    corpus.write_text("\n".join([*TEXTS[:-1], TEXTS[-1] + "."]), encoding="utf-8")
    assert changed()
    corpus.write_text("\n".join([*TEXTS[1:], TEXTS[0]]), encoding="utf-8")  # The same texts in another order.
    assert changed()
    assert changed("--dtype", "bfloat16")
    stored = len(list(cache.iterdir()))
    assert not changed()  # The vectors in another dtype have left these alone.
    for path in cache.glob("*.npy"):  # A damaged file.
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    assert changed()
    weights = load_file(copy / "model.safetensors")  # Weights alone, without the reference vectors beside them.
    save_file({name: values * 1.5 for name, values in weights.items()}, copy / "model.safetensors", {"format": "pt"})
    assert changed()
    assert len(list(cache.iterdir())) == stored  # What an older text or model has left was replaced.


def test_a_cache_that_cannot_be_written(folder: Path, corpus: Path, cache: Path, run: Run) -> None:
    expected = run(folder, corpus, "lake", "--no-cache")
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file of the user", encoding="utf-8")
    *answer, said = run(folder, corpus, "lake")
    assert answer == [*expected[:2]]
    assert re.fullmatch(f"sbert: warning: {cache}.* cannot be written .*\n", said)
    assert cache.read_text(encoding="utf-8") == "a file of the user"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "UTF8"])
def test_json_is_json_in_any_encoding(
    folder: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    texts = {"\u00fcber den See", "ein \U0001f98a l\u00e4uft", "\u6587"}
    corpus.write_text("\n".join(texts), encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
    main(["search", str(folder), str(corpus), "lake", "--json", "--device", "cpu"])
    assert {each["text"] for each in records(written.getvalue().decode(encoding))} == texts


def test_words_and_vectors_are_fused(run: Run, folder: Path, model: SentenceEncoder, corpus: Path) -> None:
    """In the language of the model, which its README names."""
    queries = [f"{small.CORPUS[1]} three", "two"]
    named = shutil.copytree(folder, corpus.with_name("english"))
    (named / "README.md").write_text("---\nlanguage: en\n---\n")
    lexical, index = BM25(language="english"), Index()
    lexical.add(TEXTS)
    index.add(model.encode_document(TEXTS))
    both = [lexical.search(queries, 12), index.search(model.encode_query(queries), 12)]
    expected = hybrid_hits(both, queries, lexical._postings, "english", 5)
    out = run(named, corpus, *queries, "--hybrid", "--top-k", 5, "--json")[1]
    assert [each["text"] for each in records(out)] == [TEXTS[row] for row in expected.ids.ravel()]
    assert [each["score"] for each in records(out)] == pytest.approx(expected.scores.ravel().tolist(), abs=1e-6)
    assert records(out)[0]["text"] == f"{small.CORPUS[1]} three"
    for others in ((folder, corpus, "--hybrid"), (named, corpus)):
        assert records(run(*others, *queries, "--top-k", 5, "--json")[1]) != records(out)
