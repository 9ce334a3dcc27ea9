"""Search by words finds what BM25's formula says."""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert.search import BM25
from sbert.search.index import bm25
from sbert.search.index.bm25 import terms_of, words_of

RNG = np.random.default_rng(0)
VOCABULARY = [f"w{number}" for number in range(60)]
TEXTS = [" ".join(RNG.choice(VOCABULARY, size, p=np.arange(60, 0, -1) / 1830)) for size in RNG.integers(0, 30, 200)]
QUERIES = [*(" ".join(RNG.choice([*VOCABULARY, "new"], 4)) for _ in range(20)), "w1 w1 w2", "new", ""]


def formula(texts: list[str], query: str, k1: float = 1.5, b: float = 0.75) -> np.ndarray:
    """Scores of all texts, by plain loops over equation 3.15 of Robertson and Zaragoza."""
    counts = [Counter(text.split()) for text in texts]
    mean = np.mean([count.total() for count in counts])
    scores = np.zeros(len(texts))
    for word in query.split():
        having = sum(word in count for count in counts)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for row, count in enumerate(counts):
            scores[row] += idf * count[word] / (count[word] + k1 * (1 - b + b * count.total() / mean))
    return scores


def compare(lexical: BM25, texts: list[str], names: list[Any]) -> None:
    found = lexical.search(QUERIES, 12)
    for query, scores, ids in zip(QUERIES, found.scores, found.ids, strict=True):
        expected = formula(texts, query)
        np.testing.assert_allclose(scores, -np.sort(-expected)[:12], rtol=1e-5)
        np.testing.assert_allclose(scores, [expected[names.index(name)] for name in ids], rtol=1e-5)
        rows = [names.index(name) for name in ids]
        assert all(a < b for a, b, low in zip(rows, rows[1:], np.diff(scores), strict=False) if low == 0)


@pytest.mark.parametrize("strings", [False, True])
def test_search_is_the_formula(strings: bool) -> None:
    """However the texts were added and removed."""
    names: list[Any] = [f"t{row}\0" for row in range(200)] if strings else list(range(200))
    lexical, low = BM25(), 0
    for size in (1, 0, 120, 79):
        lexical.add(TEXTS[low : low + size], names[low : low + size] if strings else None)
        low += size
        compare(lexical, TEXTS[:low], names[:low])
    lexical.remove(names[5:150:3])
    kept = [row for row in range(200) if row not in range(5, 150, 3)]
    compare(lexical, [TEXTS[row] for row in kept], [names[row] for row in kept])
    assert len(lexical) == len(kept)
    assert (names[4] in lexical, names[5] in lexical, True in lexical) == (True, False, False)
    lexical.add(["w1"], ["new"] if strings else None)
    assert (list(lexical._ids.ids)[-1], len(lexical)) == ("new" if strings else 200, len(kept) + 1)


def test_what_is_empty_or_does_not_fit() -> None:
    lexical = BM25()
    assert lexical.search(["a", ""]).ids.shape == (2, 0)
    lexical.add(["", "?!"])  # Texts without words.
    assert lexical.search("a").scores.tolist() == [[0, 0]]
    lexical.add("One text.")
    assert lexical.search("text", 1).ids.tolist() == [[2]]
    with pytest.raises(TypeError, match=r"texts\[1\] is of type int"):
        lexical.add(["a", 5])  # type: ignore[list-item]
    with pytest.raises(KeyError, match="9 is not an id of the index; nothing was removed"):
        lexical.remove([0, 9])
    assert len(lexical) == 3
    lexical.remove([])
    lexical.remove([0, 1, 2])
    assert (len(lexical), lexical._postings._numbers, lexical.search("text").ids.shape) == (0, {}, (1, 0))
    with pytest.raises(ValueError, match="language='klingon' is unknown; pass one of 'arabic', "):
        BM25(language="klingon")


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    monkeypatch.setattr(bm25, "_CACHED", threading.local())
    with pytest.raises(ImportError, match=r"needs PyStemmer.*; run: pip install .sbert\[search\]"):
        BM25(language="english")
    assert len(BM25()) == 0


def test_words() -> None:
    for text, expected in {
        "Don't snake_case, C++ 3.14 co\xadoperate": "don t snake case c 3 14 cooperate",
        "ΣΊΣΥΦΟΣ Ǆ ﬁn ① e\u0301": "σίσυφος ǆ fin 1 é".replace("ǆ", "dž"),
        "बिल्ली सोती है": "बिल्ली सोती है",
        "แมว หลับ": "แม มว หล ลั ับ",
        "カタカナｶﾅ 人々 猫 abc猫def": "カタ タカ カナ ナカ カナ 人々 猫 abc 猫 def",
        "고양이가 잔다": "고양 양이 이가 잔다",
        "𠀀𠀁𠀂 \ud800 \0 👍": "𠀀𠀁 𠀁𠀂",
        "": "",
    }.items():
        assert words_of(text) == expected.split(), text
    assert terms_of("The cats' cat is cat", "english") == ["cat"] * 3
    assert terms_of("Die Katzen", "german") == ["katz"]
    assert terms_of("Kissat eivät nukkuvat", "finnish") == ["kis", "nukkuv"]
    assert terms_of("de la", "catalan")  # Without a list of stop words.


def test_stop_words_are_lower_case_words_of_known_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bm25s, which has other lists; the scores are the same within a percent of nDCG."""
    monkeypatch.setitem(sys.modules, "bm25s", None)
    monkeypatch.setattr(bm25, "_CACHED", threading.local())
    for line in Path(bm25.__file__).with_name("stop_words.txt").read_text(encoding="utf-8").splitlines():
        language, words = line.split(": ")
        assert len(words.split()) > 70
        assert terms_of(words, language) == []
