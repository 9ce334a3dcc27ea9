"""Search by words: BM25 over texts with ids, to add, remove and search."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_choice, check_count, known_arguments
from sbert.inputs.extras import require
from sbert.inputs.texts import rows_of
from sbert.search.index.index import IndexHits
from sbert.search.index.index_folder import Id, Ids, Mask, append_block, join_blocks
from sbert.storage.processes import Lock

# Without it, each of several threads that search for the first time would compute the scores.
_BUILDING = Lock()
# How much repeated words and long texts count.
_K1, _B = 1.5, 0.75


class _Scores(NamedTuple):
    """The score of each term in each text: those of term i are ``values[starts[i]:starts[i + 1]]``."""

    starts: npt.NDArray[np.int64]
    texts: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


class BM25:
    """Texts with ids of your choice, searched by their words: BM25, with the scores of bm25s.

    Words are compared in lower case. Chinese, Japanese, Thai and other scripts without spaces between words, and
    Korean, are compared by pairs of adjacent characters, as in Lucene's CJKAnalyzer.

    Scores are computed at the first search after a change, in time proportional to the number of all words.

    Args:
        language: Language of the texts, such as ``"english"``: its stop words are left out, and words are stemmed, so
            that "cats" finds "cat". Default: words as they are, for any language.

    Raises:
        ImportError: If a language is given, and PyStemmer is not installed.
        ValueError: If the language is unknown.

    References:
        Robertson and Zaragoza, 2009, The probabilistic relevance framework: BM25 and beyond.
        https://doi.org/10.1561/1500000019

        Lù, 2024, BM25S. https://arxiv.org/abs/2407.03618

    Example:
        >>> from sbert.search import BM25
        >>> bm25 = BM25(language="english")
        >>> bm25.add(["A cat sleeps.", "Taxes rise."], ids=["cat", "tax"])
        >>> bm25.search("Which tax is rising?", top_k=1).ids.tolist()
        [['tax']]
    """

    @known_arguments
    def __init__(self, *, language: str | None = None) -> None:
        terms_of("", language)
        self.language: str | None = language
        self._ids = Ids("text")
        self._numbers: dict[str, int] = {}  # Of each term.
        # The numbers of the terms of all texts, one after another, and how many each text has.
        self._tokens: list[np.ndarray] = [np.empty(0, np.int32)]
        self._lengths: list[np.ndarray] = [np.empty(0, np.int32)]
        self._scores: _Scores | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, identity: object) -> bool:
        return identity in self._ids

    @known_arguments
    def add(self, texts: Iterable[str], ids: Iterable[Id] | None = None) -> None:
        """Add texts. After an error, none of them was added.

        Args:
            texts: A text, or several; one without words is never found.
            ids: As of ``Index.add``: one unique id per text, all integers or all strings. Default: integers that
                continue after the greatest id so far, from 0.

        Raises:
            TypeError: If a text is not a str, or an id is neither an integer nor a string, or of another type than
                those before.
            ValueError: If an id is there already, given twice or does not fit 64 bits, or if there are more or fewer
                ids than texts.
        """
        checked = list(rows_of(texts, "texts"))
        new = self._ids.new_ids(ids, len(checked))
        numbers, self._scores = self._numbers, None
        tokens = [
            np.array([numbers.setdefault(term, len(numbers)) for term in terms_of(text, self.language)], np.int32)
            for text in checked
        ]
        append_block(self._tokens, np.concatenate([np.empty(0, np.int32), *tokens]))
        append_block(self._lengths, np.array([*map(len, tokens)], np.int32))
        self._ids.append(new)

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove texts, in time proportional to the number of all words.

        Raises:
            KeyError: If an id is not there; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        remaining = self._ids.remaining(ids)
        if remaining is None:
            return
        lengths = join_blocks(self._lengths)
        tokens = join_blocks(self._tokens)[np.repeat(remaining, lengths)]
        # The words of removed texts are forgotten.
        used = np.bincount(tokens, minlength=len(self._numbers)) > 0
        terms = (term for term, is_used in zip(self._numbers, used.tolist(), strict=True) if is_used)
        numbers = {term: number for number, term in enumerate(terms)}
        self._tokens, self._lengths = [(np.cumsum(used, dtype=np.int32) - 1)[tokens]], [lengths[remaining]]
        self._numbers, self._scores = numbers, None
        self._ids.select(remaining)

    @known_arguments
    def search(self, queries: str | Sequence[str], top_k: int = 10) -> IndexHits:
        """The ``top_k`` best texts for each query.

        A text with a word of the query has a score above 0. If there are fewer than ``top_k`` of them, others follow
        with a score of 0. Texts with equal scores are in the order of addition.

        Args:
            queries: A query, or several.
            top_k: Number of texts per query; all texts if there are fewer.

        Shape:
            Each output: (queries, min(top_k, number of texts)).

        Raises:
            TypeError: If a query is not a str.
        """
        hits = self.search_positions(list(rows_of(queries, "queries")), check_count("top_k", top_k), None)
        return IndexHits(hits.scores, self._ids.array()[hits.ids])

    def search_positions(self, queries: list[str], k: int, allowed: Mask | None) -> IndexHits:
        """``search`` of some texts, whose positions in the order of addition are the ids of the result.

        Shape:
            allowed: (texts,); default: all. Scores do not depend on it.
        """
        rows = np.arange(len(self._ids.ids)) if allowed is None else allowed.nonzero()[0]
        shape = len(queries), min(k, len(rows))
        scores, texts = np.empty(shape, np.float32), np.empty(shape, np.int64)
        if (of_terms := self._scores) is None and self._numbers:
            with _BUILDING:
                of_terms = self._scores = self._scores or self._build()
        for query, text in enumerate(queries):
            of_texts = np.zeros(len(self._ids.ids), np.float32)
            for term, count in Counter(terms_of(text, self.language)).items():
                if of_terms is not None and (number := self._numbers.get(term)) is not None:
                    part = slice(*of_terms.starts[number : number + 2])
                    of_texts[of_terms.texts[part]] += count * of_terms.values[part]
            of_texts = of_texts if allowed is None else of_texts[rows]
            top = _top_positions(of_texts, k)
            scores[query], texts[query] = of_texts[top], rows[top]
        return IndexHits(scores, texts)

    def _build(self) -> _Scores:
        """The scores of all terms."""
        tokens, lengths, count = join_blocks(self._tokens), join_blocks(self._lengths), len(self)
        pairs = tokens * np.int64(count)  # Of a term and a text, one per word.
        pairs += np.repeat(np.arange(count, dtype=np.int32), lengths)
        pairs.sort()
        first = np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)].nonzero()[0]
        times = np.diff(first, append=len(pairs)).astype(np.float32)  # How often the term is in the text.
        pairs = pairs[first]
        del first
        starts = np.searchsorted(pairs, np.arange(len(self._numbers) + 1) * count)
        pairs %= count
        texts, having = pairs.astype(np.int32), np.diff(starts)
        norms = _K1 * (1 - _B + _B * lengths / lengths.mean())
        times /= times + norms.astype(np.float32)[texts]
        times *= np.repeat(np.log1p((count - having + 0.5) / (having + 0.5)).astype(np.float32), having)
        return _Scores(starts, texts, times)


def _top_positions(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """The positions of the k greatest scores, in decreasing order; of equal scores, the first.

    Example:
        >>> _top_positions(np.array([1, 3, 2, 3, 3], np.float32), 2).tolist()
        [1, 3]
    """
    positions = np.flatnonzero(scores)  # Few texts have a word of the query.
    if len(positions) > k:
        least = np.partition(scores[positions], len(positions) - k)[len(positions) - k]
        positions = np.flatnonzero(scores >= least)
    else:
        positions = np.append(positions, np.flatnonzero(scores == 0)[: k - len(positions)])
    return positions[np.argsort(-scores[positions], kind="stable")[:k]]


# ---------------------------------------------------------------------------------------------- the terms of texts

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, ideographs; and Hangul, where particles follow
# a word without a space.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]+"
)


class _Separators(dict[int, str]):
    """For ``str.translate``: replaces characters that are no part of a word by spaces.

    Words contain combining marks, such as the vowel signs of Hindi, which a regular expression would split at.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = char if char.isalnum() or unicodedata.category(char)[0] == "M" else " "
        return self[code]


_SEPARATORS = _Separators({0xAD: ""})  # A soft hyphen is inside a word.


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; of scripts without spaces, all pairs of adjacent characters.

    Example:
        >>> words_of("Naïve café, ＡＢＣ-12: हिन्दी")
        ['naïve', 'café', 'abc', '12', 'हिन्दी']
        >>> words_of("猫 東京都 고양이")
        ['猫', '東京', '京都', '고양', '양이']
    """
    text = unicodedata.normalize("NFKC", text).lower().translate(_SEPARATORS)
    return (text if text.isascii() else _UNSPACED.sub(_pairs, text)).split()


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join(run[start : start + 2] for start in range(max(1, len(run) - 1)))} "


# The languages of stemmers, each behind its code in cards of models.
_CODES = (
    "ar arabic ca catalan da danish de german el greek en english es spanish et estonian eu basque fi finnish fr french"
    " ga irish hi hindi hu hungarian hy armenian id indonesian it italian lt lithuanian ne nepali nl dutch no norwegian"
    " pt portuguese ro romanian ru russian sr serbian sv swedish ta tamil tr turkish"
).split()


def choose_language(language: str | None, model: Any) -> str | None:
    """The language for ``BM25`` beside a model.

    Args:
        language: The caller's; ``"auto"`` for that of the model, if BM25 knows it and what it needs is installed.
        model: The encoder; None without one.

    Raises:
        ImportError: As of ``BM25``.
        ValueError: As of ``BM25``.

    Example:
        >>> choose_language("auto", SentenceEncoder()), choose_language(None, SentenceEncoder())
        ('english', None)
    """
    if language != "auto":
        terms_of("", language)
        return language
    with suppress(ImportError, ValueError):
        codes = dict(zip(_CODES[::2], _CODES[1::2], strict=True))
        name = codes.get((getattr(model, "language", None) or "").partition("-")[0])
        terms_of("", name)
        return name
    return None


# The terms of words in each language, which each thread looks up for itself: two must not use the same stemmer.
_CACHED, _MOST_CACHED = threading.local(), 1_000_000


class _Terms(dict[str, str]):
    """The term of each word: the word or its stem, or an empty string for a stop word."""

    def __init__(self, stop_words: Iterable[str], stem: Callable[[str], str] | None) -> None:
        super().__init__(dict.fromkeys(stop_words, ""))
        self._stem = stem

    def __missing__(self, word: str) -> str:
        self[word] = term = word if self._stem is None else self._stem(word)
        return term


def terms_of(text: str, language: str | None) -> list[str]:
    """The terms of a text. With a language, its stop words are left out and its words are stemmed.

    Raises:
        ImportError: If PyStemmer is not installed.
        ValueError: If the language is unknown.

    Example:
        >>> terms_of("The cats are sleeping.", "english")
        ['cat', 'sleep']
    """
    if language is None:
        return words_of(text)
    terms: _Terms | None = getattr(_CACHED, language, None)
    if terms is None or len(terms) > _MOST_CACHED:
        setattr(_CACHED, language, terms := _new_terms(language))
    return list(filter(None, map(terms.__getitem__, words_of(text))))


def _new_terms(language: str) -> _Terms:
    with require(f"language={language!r}", "PyStemmer", "search", "pass language=None"):
        import Stemmer
    lines = (files("sbert.search.index") / "stop_words.txt").read_text(encoding="utf-8").splitlines()
    stop_words, stemmed = dict(line.split(": ") for line in lines), Stemmer.algorithms()
    check_choice("language", language, sorted({*stop_words, *stemmed}))
    stem = Stemmer.Stemmer(language).stemWord if language in stemmed else None
    return _Terms(stop_words.get(language, "").split(), stem)
