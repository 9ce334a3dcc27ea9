"""An index of documents finds what its parts find, and its folder is whole at any moment."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from functools import partial, reduce
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import Dense, Pooling, SentenceEncoder
from sbert.chunking import encode_chunks, split
from sbert.search import BM25, Hits, HybridIndex, Index, Result
from sbert.search.index import bm25, documents, hybrid_index, passages
from sbert.search.index.documents import Documents
from sbert.search.index.filters import parse_where
from sbert.search.index.fusion import hybrid_hits
from tests.children import in_child, run_in_child

RNG = np.random.default_rng(0)
WORDS = "cat dog lake boat tax law river winter fox hill bread moon train music paper stone".split()
TEXTS = [" ".join(RNG.choice(WORDS, size)) for size in RNG.integers(1, 12, 120)]
METADATA = [{"year": 2000 + row % 5, "tags": ["a", "b"][: row % 3], "url": f"u{row}"} for row in range(120)]
QUERIES = ["the cat on the lake", "tax law", "moon", "nothing of this"]


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    """Without the Dense module, which gives a few texts other last bits than many."""
    return SentenceEncoder(*(part for part in SentenceEncoder() if not isinstance(part, Dense)), device="cpu")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the hash of all weights."""
    monkeypatch.setattr(hybrid_index, "digest_of_model", lambda model: model[0].__class__.__name__)


def search_parts(model: SentenceEncoder, texts: list[str], names: Any, language: str | None) -> dict[str, Hits]:
    """What the parts of the index find together."""
    index, lexical = Index(), BM25(language=language)
    known = np.array(range(len(texts)) if names is None else names, object)
    index.add(model.encode_document(texts))
    lexical.add(texts)
    by_terms, dense = lexical.search(QUERIES, 1000), index.search(model.encode_query(QUERIES), 1000)
    both = hybrid_hits([by_terms, dense], QUERIES, lexical._postings, language, 1000)
    found = {"lexical": by_terms, "dense": dense, "hybrid": both}
    return {by: Hits(hits.scores, known[hits.ids]) for by, hits in found.items()}


def compare(index: HybridIndex, expected: dict[str, Hits], where: Any = None, allowed: Any = None) -> None:
    """The results are the best of ``expected`` that are allowed."""
    for by, hits in expected.items():
        for row, found in zip(index.search(QUERIES, 7, by=by, where=where), hits, strict=True):
            pairs = [hit for hit in found if hit.score or by != "lexical"]
            wanted = [(name, score) for name, score in pairs if allowed is None or name in allowed]
            assert [(result.id, result.score) for result in row] == wanted[:7]


@pytest.mark.parametrize("strings", [False, True])
def test_search_is_that_of_its_parts(model: SentenceEncoder, strings: bool, tmp_path: Path) -> None:
    """However documents were added, updated and removed, by this index or another one of the same folder."""
    names: list[Any] = [f"d{row}\0" for row in range(120)] if strings else list(range(120))
    folder, low = tmp_path / "new" / "index", 0
    index, other = HybridIndex(model, folder, language="english"), HybridIndex(model, folder)
    for writer, size in ((index, 1), (other, 0), (other, 60), (index, 59)):
        part = slice(low, low + size)
        writer.add(TEXTS[part], names[part] if strings else None, METADATA[part])
        low += size
        other.search("a query")  # Follows every change.
    expected = search_parts(model, TEXTS, names, "english")
    for opened in (index, other):
        compare(opened, expected)
    index.remove(names[10:40])
    other.update(["a new text", "moon"], [names[3], names[2]])
    assert other.search("a new text", 1)[0][0].metadata == METADATA[3]
    texts = [*TEXTS[:2], *TEXTS[4:10], *TEXTS[40:], "a new text", "moon"]
    remaining = [*names[:2], *names[4:10], *names[40:], names[3], names[2]]
    again, expected = HybridIndex(model, str(folder)), search_parts(model, texts, remaining, "english")
    for opened in (index, other, again):
        assert (len(opened), names[2] in opened, names[10] in opened, True in opened) == (90, True, False, False)
        compare(opened, expected)
    again.remove(names[40:])
    if not strings:
        again.add("one more")
        assert 120 in index  # Ids are not used again.


@pytest.mark.parametrize("seed", range(3))
def test_changes_leave_what_a_new_index_has(
    model: SentenceEncoder, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """All scores, bit for bit: after any changes, by any of several indexes, some of which follow many at a time."""
    for module, name in ((passages, "_MOST_REMOVED"), (passages, "RECENT_REMOVALS"), (documents, "RECENT_REMOVALS")):
        monkeypatch.setattr(module, name, 9)
    chance, texts = random.Random(seed), dict[int, str]()
    opened = [HybridIndex(model, tmp_path, language="english") for _ in range(3)]
    for step in range(60):
        index, some = chance.choice(opened), chance.sample(sorted(texts), min(len(texts), chance.randint(0, 7)))
        new = {name: chance.choice(TEXTS) for name in [range(10 * step, 10 * step + 4), some, ()][step % 3]}
        getattr(index, ("add", "update", "remove")[step % 3])(*([*new.values()], [*new]) if step % 3 < 2 else (some,))
        texts = {name: text for name, text in texts.items() if name not in some or not step % 3} | new
        if step % 4 == 0:
            opened[chance.randrange(3)] = HybridIndex(model, tmp_path)
        if step % 5 == 0:
            compare(chance.choice(opened), search_parts(model, list(texts.values()), list(texts), "english"))


def test_a_folder_of_another_version_is_refused(
    model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_VERSION", 2)
    HybridIndex(model, tmp_path).add(TEXTS[:2])
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"of version 2, where .* of 3 is read; add the documents"):
        HybridIndex(model, tmp_path)


def test_filters(model: SentenceEncoder) -> None:
    index = HybridIndex(model)
    index.add(TEXTS, metadata=METADATA)
    expected = search_parts(model, TEXTS, None, None)
    del expected["hybrid"]  # It fuses others after a filter.
    for where, years in (
        ({"year": {2001, 2002, "x"}}, {2001, 2002}),
        (lambda entry: entry["year"] > 2002, {2003, 2004}),
        ({}, set(range(2000, 2005))),
    ):
        allowed = {row for row, entry in enumerate(METADATA) if entry["year"] in years}
        compare(index, expected, where, allowed)
        found = index.search(QUERIES, 200, where=where)
        assert {result.id for row in found for result in row} == allowed
        assert all(result.metadata == METADATA[result.id] for row in found for result in row)
    found[0][0].metadata["tags"].append("changed by the caller")
    assert index.search(QUERIES, 200)[0][0].metadata == METADATA[found[0][0].id]
    index.remove([5])
    index.add("no metadata")
    assert [len(row) for row in index.search(QUERIES, 9, where=lambda entry: entry.get("url") in ("u5", "u6"))] == [
        1
    ] * 4


VALUES: list[Any] = [None, True, False, 0, 1, 1.0, 2.5, -3, 10**20, "", "a", "b", "1", "2031-05"]


def fulfils(entry: dict[str, Any], where: Any) -> bool:
    """What ``where`` means, as a plain loop."""

    def equal(value: Any, wanted: Any) -> bool:
        return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted

    def ordered(value: Any, wanted: Any) -> bool:
        numbers = all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in (value, wanted))
        return numbers or (isinstance(value, str) and isinstance(wanted, str))

    def holds(field: str, name: str, wanted: Any) -> bool:
        if name in ("$ne", "$nin"):
            return not holds(field, {"$ne": "$eq", "$nin": "$in"}[name], wanted)
        if field not in entry or (name == "$contains" and not isinstance(entry[field], list)):
            return False
        for value in entry[field] if isinstance(entry[field], list) else [entry[field]]:
            if name in ("$eq", "$contains") and equal(value, wanted):
                return True
            if name == "$in" and any(equal(value, choice) for choice in wanted):
                return True
            if name in ("$gt", "$gte", "$lt", "$lte") and ordered(value, wanted):
                sign = (value > wanted) - (value < wanted)
                if sign in {"$gt": (1,), "$gte": (0, 1), "$lt": (-1,), "$lte": (-1, 0)}[name]:
                    return True
        return False

    for field, value in where.items():
        if field == "$and" and not all(fulfils(entry, part) for part in value):
            return False
        if field == "$or" and not any(fulfils(entry, part) for part in value):
            return False
        if not field.startswith("$"):
            simple = "$in" if isinstance(value, set) else "$eq"
            conditions = value if isinstance(value, dict) else {simple: value}
            if not all(holds(field, name, wanted) for name, wanted in conditions.items()):
                return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_filters_are_those_of_a_plain_loop(seed: int) -> None:
    chance = random.Random(seed)

    def value() -> Any:
        return chance.choice(VALUES)

    def metadata() -> dict[str, Any]:
        several = [chance.choices(VALUES, k=chance.randrange(4)), {"inner": 1}, [["a"]]]
        return {field: chance.choice([value(), value(), *several]) for field in "xyz" if chance.random() < 0.8}

    def condition() -> Any:
        order = [{name: chance.choice([0, 1, 2.5, "a", "b", "2031"])} for name in ("$gt", "$gte", "$lt", "$lte")]
        some = chance.choices(VALUES, k=chance.randrange(4))
        several = [{"$in": some}, {"$nin": tuple(some)}, set(some), {"$nin": set(some)}]
        single = [{"$eq": value()}, {"$ne": value()}, {"$contains": value()}, value()]
        first, second = chance.choice([order, several, single]), chance.choice(order)
        one = chance.choice(first)
        return {**second, **one} if isinstance(one, dict) and chance.random() < 0.3 else one

    def where(depth: int = 0) -> dict[str, Any]:
        if depth < 3 and chance.random() < 0.4:
            parts = [where(depth + 1) for _ in range(chance.randint(1, 3))]
            return {chance.choice(["$and", "$or"]): parts, chance.choice("xyz"): condition()}
        return {field: condition() for field in chance.sample("xyz", chance.randrange(3))}

    # Each field has values of each kind, so that nothing is unknown.
    all_kinds: dict[str, Any] = dict.fromkeys("xyz", VALUES)
    documents = [all_kinds, *(metadata() for _ in range(60))]
    counts = set()
    for _ in range(400):
        filter_ = where()
        expected = [fulfils(entry, filter_) for entry in documents]
        assert parse_where(filter_)(documents).tolist() == expected, filter_
        counts.add(sum(expected))
    assert len(counts) > 15


REFUSED: list[tuple[Any, type[Exception], str]] = [
    ({"num": {"$gt": "5"}}, ValueError, "where['num']['$gt'] is '5', but the field has numbers; pass such a value"),
    ({"inner": "a"}, ValueError, "where['inner']['$eq'] is 'a', but the field has lists or dicts; pass such"),
    ({"nmu": 1}, ValueError, "where: 'nmu' is no field of any document; did you mean 'num'?"),
    ({"num": {"$gtt": 5}}, ValueError, "where: '$gtt' is no operator of the field 'num'; did you mean '$gt'?"),
    ({"$not": {"num": 5}}, ValueError, "where: '$not' is no operator of dicts; pass one of $and, $or"),
    ({"$and": {"num": 5}}, TypeError, "where['$and'] is {'num': 5}; pass a list of at least one dict"),
    ({"tags": ["a", "b"]}, TypeError, "where['tags']['$eq'] is ['a', 'b']; pass one value, or {'$in': [...]}"),
    (["x"], TypeError, "where is of type list; pass a dict or a function"),
    ({"num": np.array([1, 2])}, TypeError, "pass a string, a number"),
    ({"num": {"$in": np.array([1, 2])}}, TypeError, "pass a list of values"),
    (reduce(lambda inner, _: {"$and": [inner]}, range(400), {"num": 1}), ValueError, "has more than 100 levels"),
]


def test_filters_that_nothing_fulfils_and_that_are_refused() -> None:
    """No document has the value: an error, unless it could be of that type."""
    documents = [{"num": 1, "tags": ["a"]}, {"num": 7, "inner": {"num": 1}, "tags": [], "null": None}, {}]
    for where, error, message in REFUSED:
        with pytest.raises(error, match=re.escape(message)):
            parse_where(where)(documents)
    assert parse_where({"lang": "de"})(documents).tolist() == [False] * 3
    for where in ({"num": {"$gt": 9}}, {"num": None}, {"tags": "b"}, {"null": {"$lt": "a"}}, {"num": set()}):
        assert parse_where(where)(documents).tolist() == [False] * 3
        assert parse_where({"anything": 1, **where})([]).tolist() == []
    assert parse_where({"num": {"$ne": 1}})(documents).tolist() == [False, True, True]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("prompt", ["", "a small passage: "])
def test_passages(model: SentenceEncoder, late: bool, prompt: str) -> None:
    """Each belongs to the characters that it is said to come from, and documents are compared by them."""
    model = SentenceEncoder(*model, device="cpu", prompts={"passage": prompt})
    long = [". ".join(TEXTS[low : low + 10]) + "." for low in range(0, 60, 10)]
    texts = [*long, "cat", "", " \n "]
    index = HybridIndex(model)
    index.add(texts[:4], chunk=16, late=late)
    index.add(texts[4:], chunk=16, late=late)
    chunks = [*split(model, texts, 16, prompt=prompt), (7, 0, 0), (8, 0, 3)]
    assert len(chunks) > 12
    _, passages = encode_chunks(model, texts, chunks=chunks, late=late, prompt=prompt)
    for k in (1, 3, 20):
        scores = model.similarity(model.encode_query(QUERIES), passages)
        for results, row in zip(index.search(QUERIES, k, by="dense"), scores, strict=True):
            of = [[pair for pair in zip(row, chunks, strict=True) if pair[1][0] == number] for number in range(9)]
            wanted = np.array([max(score for score, _ in pairs) for pairs in of])
            np.testing.assert_allclose([result.score for result in results], -np.sort(-wanted)[:k], atol=1e-6)
            np.testing.assert_allclose(
                [wanted[result.id] for result in results], [result.score for result in results], atol=1e-6
            )
            for result in results:
                assert (result.start, result.end) == max(of[result.id])[1][1:]
                assert result.text == texts[result.id][result.start : result.end]
    [[first, *_]] = index.search(TEXTS[34], by="lexical")
    assert (first.text, first.start, first.end) == (texts[first.id], 0, len(texts[first.id]))
    index.update([long[0]], [0], chunk=16, late=not late)
    _, passages = encode_chunks(model, long[:1], 16, late=not late, prompt=prompt)
    best = float(model.similarity(model.encode_query(QUERIES[0]), passages).max())
    scores = {result.id: result.score for result in index.search(QUERIES[0], 20, by="dense")[0]}
    assert scores[0] == pytest.approx(best, abs=1e-6)
    index.update([long[0]], [0], chunk=None)
    assert next(result for result in index.search(QUERIES[0])[0] if result.id == 0).end == len(long[0])
    index = HybridIndex(SentenceEncoder(model[0], Pooling("cls"), device="cpu"))
    with pytest.raises(ValueError, match="pass late=False"):
        index.add(texts, chunk=16, late=True)
    assert len(index) == 0


def test_reranking(model: SentenceEncoder) -> None:
    class Longest:
        pairs: list[tuple[str, str]]

        def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
            self.pairs = pairs
            return np.array([len(text) for _, text in pairs], np.float32)

    index, longest = HybridIndex(model), Longest()
    assert index.search(QUERIES, rerank=longest) == [[]] * 4
    index.add(TEXTS)
    before, found = index.search(QUERIES, 30), index.search(QUERIES, 5, rerank=longest, candidates=30)
    assert longest.pairs == [(query, result.text) for query, row in zip(QUERIES, before, strict=True) for result in row]
    for old, new in zip(before, found, strict=True):
        wanted = sorted(old, key=lambda result: -len(result.text))[:5]
        assert new == [result._replace(score=len(result.text)) for result in wanted]
    longest.predict = lambda pairs: np.ones((len(pairs), 2))  # type: ignore[method-assign, assignment]
    with pytest.raises(ValueError, match=r"rerank gives scores of shape \(\d+, 2\)"):
        index.search("cat", rerank=longest)


def nest(levels: int) -> dict[str, Any]:
    """Lists and dicts alternately."""
    inner: Any = 5
    for level in range(levels):
        inner = {"x": inner} if level % 2 == (levels - 1) % 2 else [inner]
    return dict(inner)


@pytest.mark.parametrize("folder", [None, "index"])
def test_what_is_empty_or_does_not_fit(model: SentenceEncoder, tmp_path: Path, quick: None, folder: str | None) -> None:
    index = HybridIndex(model, folder and tmp_path / folder)
    for by in ("lexical", "dense", "hybrid"):
        assert index.search(["a", ""], by=by) == [[], []]
    assert (index.search([]), len(index), 0 in index) == ([], 0, False)
    index.add([])
    index.add(["\udcff half of a pair \0", "b"], ["\udcff", "b\0"], [{"\udcff": "\udcff"}, {"x": None}])
    assert index.search("half", 1, where={"\udcff": "\udcff"})[0][0][2] == "\udcff half of a pair \0"
    assert index.search("c", by="lexical") == [[]]
    cycle: dict[str, Any] = {}
    cycle["itself"] = cycle
    for wrong in ({1: 2}, {"x": (1,)}, {"x": float("nan")}, {"x": 1, 2: 3}, None, cycle, nest(101), nest(5000)):
        with pytest.raises(ValueError, match=r"metadata\[0\]=.* is not a dict that JSON can hold"):
            index.add(["a"], ["c"], [wrong])  # type: ignore[list-item]
    for method, arguments, error, message in (
        (index.add, (["a"], ["c"], {"x": 1}), TypeError, "metadata is of type dict; pass a list"),
        (index.add, (["a"], ["c"], []), ValueError, "0 metadata and 1 documents were given"),
        (index.update, (["a", "c"], ["b\0", "c"]), KeyError, "'c' is not an id of the index"),
        (index.update, (["a"], None), TypeError, "ids is None"),
    ):
        with pytest.raises(error, match=message):
            method(*arguments)
        assert len(index) == 2
    with pytest.raises(TypeError, match="rerank is of type Transformer, without predict; pass a Cro"):
        index.search("a", rerank=model[0])
    index.update(["b"], ["b\0"], [nest(100)])
    assert index.search("b", 1, by="lexical")[0][0].metadata == nest(100)
    index.remove(["b\0", "\udcff"])
    assert index.search(["a", ""]) == [[], []]
    index.close()
    with pytest.raises(ValueError, match="is closed; open it again"):
        len(index)
    with pytest.raises(ValueError, match="language='klingon' is unknown"):
        HybridIndex(model, tmp_path / "klingon", language="klingon")
    assert not (tmp_path / "klingon").exists()


def test_folders_of_others(model: SentenceEncoder, tmp_path: Path) -> None:
    HybridIndex(model, tmp_path / "index", language="english")
    shorter, changed = deepcopy(model), deepcopy(model)
    shorter.truncate_dim = 64
    next(iter(changed.parameters())).data[0, 0] += 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for other, folder, language, message in (
        (shorter, "index", "auto", "was created with truncate_dim=None, not 64; pass the same model"),
        (changed, "index", "auto", r"was created with model='\w+, not '\w+; pass the same model"),
        (model, "index", "german", "was created with language='english', not 'german'"),
        (model, "index", None, "was created with language='english', not None"),
        (model, "mine", "auto", r"contains 'notes\.txt', which is not part of an index"),
        (model, "mine/notes.txt", "auto", "is a file"),
    ):
        with pytest.raises(ValueError, match=message):
            HybridIndex(other, tmp_path / folder, language=language)
    index = HybridIndex(shorter)
    index.add("text")
    shorter.truncate_dim = 32
    with pytest.raises(ValueError, match="the vectors have dim 32, those in the index 64; set truncate_dim"):
        index.add("text")
    assert len(index) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "mine"]


def test_the_default_language_is_that_of_the_model(
    model: SentenceEncoder, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where stemmer and stop words are installed. An index keeps the language it was created with, and shows it."""
    for language, options, missing, expected in (
        ("en", {}, None, "english"),
        ("de-AT", {}, None, "german"),
        ("en", {"language": None}, None, None),
        ("en", {"language": "german"}, None, "german"),
        ("ko", {}, None, None),
        ("en", {}, "Stemmer", None),
    ):
        folder = tmp_path / f"{language} {options} {missing}"
        monkeypatch.setattr(model, "language", language)
        with monkeypatch.context() as patch:
            if missing:
                patch.setitem(sys.modules, missing, None)
                patch.setattr(bm25, "_CACHED", threading.local())
            index = HybridIndex(model, folder, **options)  # type: ignore[arg-type]
            index.add("The cats are sleeping.")
            assert len(index.search("a cat sleeps", by="lexical")[0]) == (expected is not None)
        assert repr(index) == f"HybridIndex(folder={str(folder)!r}, language={expected!r})"
        monkeypatch.setattr(model, "language", "fr")
        assert HybridIndex(model, folder).language == expected


def test_removed_texts_are_gone(model: SentenceEncoder, tmp_path: Path, quick: None) -> None:
    index = HybridIndex(model, tmp_path / "a folder?#%41\udcff")
    index.add([*TEXTS, "secret"], metadata=[*METADATA, {"also": "hidden"}])
    file = tmp_path / "a folder?#%41\udcff" / "documents.sqlite"
    assert all(word in file.read_bytes() for word in (b"secret", b"hidden"))
    index.remove([120])
    assert not any(word in file.read_bytes() for word in (b"secret", b"hidden"))
    file.rename(tmp_path / "moved")
    for change in (lambda: index.add("text"), lambda: index.search("text")):
        with pytest.raises(FileNotFoundError, match="was deleted or replaced since it was opened; open the index aga"):
            change()


def test_a_full_disk(model: SentenceEncoder, tmp_path: Path, quick: None) -> None:
    index = HybridIndex(model, tmp_path / "index")
    index.add(TEXTS)
    before = index.search(QUERIES)
    index._documents._connection.execute("PRAGMA max_page_count = 1")  # No more than there are.
    for change in (
        lambda: index.add([f"long {'text ' * 50}"] * 900),
        lambda: index.update(["text " * 50] * 120, range(120)),
    ):
        with pytest.raises(OSError, match=r"documents\.sqlite: database or disk is full; nothing was changed"):
            change()
        for opened in (index, HybridIndex(model, tmp_path / "index")):
            assert opened.search(QUERIES) == before
    index._documents._connection.execute("PRAGMA max_page_count = 99999")
    index.add("one more")
    assert len(HybridIndex(model, tmp_path / "index")) == 121


def test_another_process_is_busy(
    model: SentenceEncoder, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_PATIENCE", 0.05)
    index = HybridIndex(model, tmp_path / "index")
    connection = sqlite3.connect(tmp_path / "index" / "documents.sqlite", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(OSError, match="database is locked; nothing was changed"):
        index.add("text")
    assert index.search("text") == [[]]  # What is there can be read.
    connection.execute("ROLLBACK")
    connection.close()
    index.add("text")
    assert len(index) == 1


def test_damage_is_never_a_wrong_result(model: SentenceEncoder, tmp_path: Path, quick: None) -> None:
    index, path = HybridIndex(model, tmp_path / "index"), tmp_path / "index" / "documents.sqlite"
    index.add(TEXTS[:40], metadata=METADATA[:40])
    index.remove([1, 2])
    expected, vectors, refused = index.search(QUERIES), model.encode_query(QUERIES), 0
    index.close()
    model.encode_query = lambda texts: vectors  # type: ignore[method-assign, assignment]
    whole = path.read_bytes()
    places = np.random.default_rng(1).choice(len(whole), 60, replace=False).tolist()
    flipped = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in places]
    for damaged in [*flipped, *(whole[:size] for size in (0, 1, 100, len(whole) // 2, len(whole) - 1))]:
        path.write_bytes(damaged)
        try:
            assert HybridIndex(model, tmp_path / "index").search(QUERIES) == expected
        except (ValueError, OSError) as error:
            assert "documents.sqlite" in str(error)
            refused += 1
    del model.encode_query
    assert refused > 15


# Only killed processes show what a crash leaves.
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to kill")
def test_killed_during_changes(tmp_path: Path, quick: None) -> None:
    """Each process replaces all documents again and again."""
    model, ids, versions, chance = SentenceEncoder(device="cpu"), list(range(200)), set(), random.Random(0)
    model.encode_query = lambda texts: np.ones((len(texts), 256), np.float32)  # type: ignore
    model.encode_document = lambda texts: np.full((len(texts), 256), float(texts[0].split()[1]))  # type: ignore
    HybridIndex(model, tmp_path / "index").add(["version 1"] * 200, ids)

    def change(output: int) -> None:
        index = HybridIndex(model, tmp_path / "index")
        for version in count(2):
            os.write(output, b".")
            index.update([f"version {version}"] * 200, ids)

    for _ in range(8):
        source, output = os.pipe()
        child = in_child(partial(change, output))
        for _ in range(chance.randint(1, 4)):
            os.read(source, 1)
        time.sleep(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(source), os.close(output)
        index = HybridIndex(model, tmp_path / "index")
        [found] = index.search("version", 200)
        versions.add(found[0].text)
        assert {result.text for result in found} == {found[0].text}
        assert sorted(result.id for result in found) == ids
        assert (index._loaded.vectors == float(found[0].text.split()[1])).all()
    assert len(versions) > 1


def test_threads_and_children(model: SentenceEncoder, tmp_path: Path, quick: None) -> None:
    index = HybridIndex(model, tmp_path / "index")
    index.add(TEXTS[:100])
    expected = index.search(QUERIES)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda row: (index.add(f"zebra {row}"), index.search(QUERIES, where={}))[1], range(8)))
    assert len(index) == 108
    assert {result.id for result in index.search("zebra", 8)[0]} == set(range(100, 108))
    assert len(found) == 8
    index.remove(range(100, 108))
    assert index.search(QUERIES) == expected
    if hasattr(os, "fork"):
        child = os.fork()
        if not child:
            signal.alarm(60)  # As above.
            index.add("of the child")
            os._exit(0 if index.search("child", 1)[0][0].text == "of the child" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert index.search("child", 1)[0] == [Result(108, 1.0, "of the child", 0, 12, {})]


def test_where_takes_what_numpy_gives(model: SentenceEncoder, quick: None) -> None:
    third = float(np.float32(1 / 3))
    index = HybridIndex(model)
    index.add(TEXTS[:3], metadata=[{"x": third}, {"x": 2}, {}])
    for operator, found in (("$gte", {0, 1}), ("$gt", {1}), ("$eq", {0}), ("$lte", {0}), ("$lt", set())):
        rows = index.search(QUERIES[0], by="dense", where={"x": {operator: np.float32(1 / 3)}})[0]
        assert {result.id for result in rows} == found
    assert [result.id for result in index.search(QUERIES[0], by="dense", where={"x": np.int64(2)})[0]] == [1]
    with pytest.raises(ValueError, match="which where= reads as an operator"):
        index.add("text", metadata=[{"$x": 1}])


def test_metadata_go_with_their_documents(model: SentenceEncoder, quick: None) -> None:
    index = HybridIndex(model)
    index.add(TEXTS[:10], metadata=[{"version": 0}] * 10)
    for version in range(1, 40):
        index.update([TEXTS[version]], [version % 10], [{"version": version}])
    assert len(index.search(QUERIES[0], 10, by="dense")[0]) == 10
    assert index.search(QUERIES[0], where={"version": {"$lt": 30}}) == [[]]
    for result in index.search(QUERIES[0], by="dense", where={"version": {"$gte": 35}})[0]:
        assert result.metadata == {"version": 30 + result.id}
    index.remove(range(10))
    assert index.search(QUERIES[0], where={"version": 1}) == [[]]  # No error: the last document with it is gone.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
def test_a_fork_during_a_change(
    model: SentenceEncoder, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the change, so that the child, which would else inherit the locks of SQLite, can use the folder."""
    index, written = HybridIndex(model, tmp_path / "index"), threading.Event()
    index.add(["before"] * 20)
    write = Documents.write

    def write_slowly(documents: Documents, *given: Any) -> None:
        documents._connection.execute("PRAGMA cache_size = 4")  # Pages are written before the end.
        write(documents, *given)
        written.set()
        time.sleep(0.5)

    def use() -> None:
        index.add(["child"])
        assert index.search("child", 1)[0][0].text == "child"
        index.close()

    monkeypatch.setattr(Documents, "write", write_slowly)
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(index.update, ["after"] * 20, range(20), [{"note": "x" * 50_000}] * 20)
        assert written.wait(60)
        assert run_in_child(use) == 0
        change.result()
    assert len(index) == 21
    with closing(sqlite3.connect(tmp_path / "index" / "documents.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM documents").fetchone() == (21,)


def test_what_is_too_long_is_said(model: SentenceEncoder, quick: None) -> None:
    with pytest.warns(UserWarning, match="1 of 2 sentences were truncated to .*chunk= of an index"):
        HybridIndex(model).add(["cat " * 600, "dog"])
    for chunk, late in ((100, False), (100, True), (None, True)):
        HybridIndex(model).add(["cat " * 600, "dog"], chunk=chunk, late=late)
