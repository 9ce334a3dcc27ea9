"""Search by words: BM25 over texts with ids, to add, remove and search."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import chain, compress, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_choice, check_count, known_arguments
from sbert.inputs.extras import require
from sbert.inputs.texts import rows_of
from sbert.search.exact.comparison import Hits
from sbert.search.index.index_folder import Id, Ids, Mask, Positions

# The bits of the key of a posting that are the position of a text.
_TEXT = (1 << 32) - 1
# How much repeated words and long texts count.
_K1, _B = 1.5, 0.75
_END = np.int32(-1).tobytes()  # Behind the terms of a text.


class WeightedPostings:
    """The texts of each term, by position, and the weight that a term has in each.

    Each block has the postings of some texts, in the order of their terms. It is larger than the next, so that an
    appended text takes little time.
    """

    def __init__(self) -> None:
        # Keys, the number of a term and in the lower 32 bits the position of a text; and the weights.
        self._blocks: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]] = []

    def append(self, terms: npt.NDArray[np.int32], texts: Positions, weights: npt.NDArray[np.float32]) -> None:
        """Append postings of texts that follow all others, in any order."""
        keys = terms.astype(np.int64) << 32 | texts
        order = keys.argsort(kind="stable")
        self._blocks.append((keys[order], weights[order]))
        while len(self._blocks) > 1 and len(self._blocks[-2][0]) <= len(self._blocks[-1][0]):
            keys, weights = map(np.concatenate, zip(*self._blocks[-2:], strict=True))
            order = keys.argsort(kind="stable")  # Which takes linear time, as two parts are in order.
            self._blocks[-2:] = [(keys[order], weights[order])]

    def select(self, remaining: Mask) -> None:
        """Give up the positions and the postings of all other texts."""
        positions = remaining.cumsum() - 1
        for number, (keys, weights) in enumerate(self._blocks):
            chosen = remaining[keys & _TEXT]
            self._blocks[number] = keys[chosen] & ~_TEXT | positions[keys[chosen] & _TEXT], weights[chosen]

    def scores(self, term: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The texts that have a term, and its weight in each."""
        bounds = np.array([0, 1]) + term << 32
        parts = [(keys, weights, slice(*keys.searchsorted(bounds))) for keys, weights in self._blocks]
        texts = np.concatenate([np.empty(0, np.int64), *(keys[part] & _TEXT for keys, _, part in parts)])
        return texts, np.concatenate([np.empty(0, np.float32), *(weights[part] for _, weights, part in parts)])


class Postings:
    """The terms of texts, by position, and the scores of a term in all texts.

    Removed texts keep their positions, and their postings, until ``select``.
    """

    def __init__(self) -> None:
        self.next_number: int = 0  # Greater than those of all terms so far.
        self.uses = np.empty(0, np.int64)  # How often each term is in all texts.
        self._numbers: dict[str, int] = {}  # Of each term, and of some that no text has any more.
        self._texts: list[bytes] = []  # The numbers of the terms of each text, int32.
        self._lengths = np.empty(0, np.int64)  # How many these are; 0 for removed texts.
        self._remaining: int = 0  # Texts, without removed ones.
        self._times = WeightedPostings()  # How often each text has each term.
        self._norms: npt.NDArray[np.float32] | None = None  # Of each text, what its scores take from its length.

    def number(self, texts: list[list[str]]) -> tuple[list[bytes], dict[str, int]]:
        """The numbers of the terms of new texts, as int32, and those of new terms among them."""
        numbers = {term: self._number_of(term) for term in dict.fromkeys(chain.from_iterable(texts))}
        new = {term: number for number, term in enumerate((t for t in numbers if numbers[t] < 0), self.next_number)}
        numbers |= new
        return [np.array([numbers[term] for term in terms], "<i4").tobytes() for terms in texts], new

    def _number_of(self, term: str) -> int:
        """The number of a term; -1 if no text has it."""
        number = self._numbers.get(term, -1)
        return number if number >= 0 and self.uses[number] else -1

    def append(self, texts: list[bytes], new: dict[str, int], next_number: int) -> None:
        """Append texts, whose terms have numbers that are less than ``next_number``, some of them new."""
        self._numbers.update(new)
        self.next_number, lengths = next_number, np.array([len(text) // 4 for text in texts], np.int64)
        positions = np.repeat(np.arange(len(lengths)) + len(self._texts), lengths)
        keys, times = np.unique(_join(texts).astype(np.int64) << 32 | positions, return_counts=True)
        self._times.append(keys >> 32, keys & _TEXT, times.astype(np.float32))
        self._texts += texts
        self._lengths = np.append(self._lengths, lengths)
        self._count(texts, 1)

    def _count(self, texts: list[bytes], sign: int) -> None:
        uses = sign * np.bincount(_join(texts), minlength=self.next_number)
        uses[: len(self.uses)] += self.uses
        self.uses, self._remaining, self._norms = uses, self._remaining + sign * len(texts), None

    def unused_without(self, positions: Positions, new: list[bytes]) -> set[int]:
        """The numbers of the terms that only some texts have, and none of the new ones."""
        times = np.bincount(_join(self._texts[position] for position in positions), minlength=len(self.uses))
        return set(((times > 0) & (times == self.uses)).nonzero()[0].tolist()) - set(_join(new).tolist())

    def remove(self, positions: Positions) -> None:
        """Remove texts."""
        self._count([self._texts[position] for position in positions], -1)
        self._lengths[positions] = 0

    def select(self, remaining: Mask) -> None:
        """Give up the positions of all other texts, removed or not, and the terms that no text has."""
        texts, numbers, next_number = compress(self._texts, remaining), self._numbers, self.next_number
        vars(self).update(vars(Postings()))
        self.append(list(texts), {}, next_number)
        self._numbers = {term: number for term, number in numbers.items() if self.uses[number]}

    @property
    def mean_length(self) -> float:
        """The mean number of terms of a text."""
        return float(self._lengths.sum() / max(self._remaining, 1))

    def scores(self, term: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The texts that have a term, and its score in each; some may be removed, with a score of 0."""
        if self._norms is None:
            lengths = np.where(self._lengths == 0, np.inf, self._lengths)
            self._norms = (_K1 * (1 - _B + _B * lengths / self.mean_length)).astype(np.float32)
        texts, times = self._times.scores(self._number_of(term))
        values: Any = times / (times + self._norms[texts])
        having = len(texts) if self._remaining == len(self._texts) else np.count_nonzero(values)
        values *= np.float32(np.log1p((self._remaining - having + 0.5) / (having + 0.5)))
        return texts, values

    def side_by_side(self, terms: Sequence[str], texts: Positions) -> npt.NDArray[np.float32]:
        """The sum of the scores of each two terms side by side in a query and in a text, for texts not removed."""
        numbers = _join(self._texts[text] + _END for text in texts).astype(np.int64)
        owners, keys = np.arange(len(texts)).repeat(self._lengths[texts] + 1)[1:], numbers[:-1] << 32 | numbers[1:]
        wanted = {self._number_of(one) << 32 | self._number_of(next_): (one, next_) for one, next_ in pairwise(terms)}
        known = np.isin(keys, [*wanted]) & (keys >= 0)  # An unknown term has the number of the end of a text.
        owners, keys, sums = owners[known], keys[known], np.zeros(len(texts), np.float32)
        for key, pair in wanted.items():
            beside = np.unique(owners[keys == key])
            for having, scores in map(self.scores, pair if beside.size else ()):
                sums[beside] += scores[having.searchsorted(texts[beside])]
        return sums


def _join(texts: Iterable[bytes]) -> npt.NDArray[np.int32]:
    """The numbers of the terms of several texts, one after another."""
    return np.frombuffer(b"".join(texts), "<i4")


class InvertedIndex:
    """What ``BM25`` and ``SparseIndex`` have in common: ids, and postings by the positions of these."""

    _ids: Ids
    _postings: Any

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, identity: object) -> bool:
        return identity in self._ids

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove some, in time proportional to the number of all postings.

        Raises:
            KeyError: If an id is not there; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        remaining = self._ids.remaining(ids)
        if remaining is not None:
            self._postings.select(remaining)
            self._ids.select(remaining)

    def _search(self, queries: Sequence[Mapping[Any, float]], top_k: int) -> Hits:
        """The best for the weights of terms, with ids."""
        hits = search_postings(self._postings, queries, check_count("top_k", top_k), np.ones(len(self), bool))
        return Hits(hits.scores, self._ids.array()[hits.ids])


class BM25(InvertedIndex):
    """Texts with ids of your choice, searched by their words: BM25, with the scores of bm25s.

    Words are compared in lower case. Chinese, Japanese, Thai and other scripts without spaces between words, and
    Korean, are compared by pairs of adjacent characters, as in Lucene's CJKAnalyzer.

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
        self._postings = Postings()

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
        numbered, new_terms = self._postings.number([terms_of(text, self.language) for text in checked])
        self._postings.append(numbered, new_terms, self._postings.next_number + len(new_terms))
        self._ids.append(new)

    @known_arguments
    def search(self, queries: str | Sequence[str], top_k: int = 10) -> Hits:
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
        terms = [Counter(terms_of(query, self.language)) for query in rows_of(queries, "queries")]
        return self._search(terms, top_k)


def search_postings(postings: Any, queries: Sequence[Mapping[Any, float]], k: int, allowed: Mask) -> Hits:
    """The best texts for queries, by the sums of the scores of their terms, times the weight of each in the query.

    Args:
        postings: ``Postings`` or ``WeightedPostings``.
        queries: The weights of terms.
        k: Number of texts per query.
        allowed: Which texts are searched. The ids of the result are positions of texts.

    Shape:
        allowed: (texts,), without removed ones. Scores do not depend on it.
    """
    rows = allowed.nonzero()[0]
    shape = len(queries), min(k, len(rows))
    scores, texts = np.empty(shape, np.float32), np.empty(shape, np.int64)
    for query, terms in enumerate(queries):
        of_texts = np.zeros(len(allowed), np.float32)
        for term, weight in terms.items():
            having, values = postings.scores(term)
            of_texts[having] += weight * values
        of_texts = of_texts if len(rows) == len(of_texts) else of_texts[rows]
        top = _top_positions(of_texts, k)
        scores[query], texts[query] = of_texts[top], rows[top]
    return Hits(scores, texts)


def _top_positions(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """The positions of the k greatest scores, in decreasing order; of equal scores, the first.

    Example:
        >>> import numpy as np
        >>> from sbert.search.index.bm25 import _top_positions
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
        >>> from sbert.search.index.bm25 import words_of
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
        >>> from sbert import SentenceEncoder
        >>> from sbert.search.index.bm25 import choose_language
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
        >>> from sbert.search.index.bm25 import terms_of
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
