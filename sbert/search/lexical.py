"""Search by words: BM25 over texts with ids, to add, remove, search, save and load."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_count, known_arguments
from sbert.inputs.texts import rows_of
from sbert.search.index import IndexHits
from sbert.search.index_files import Kind, describe, read_described, read_unique, unreadable, write_strings
from sbert.search.store import Id, Ids, append_block, joined
from sbert.search.top_k import top_columns
from sbert.search.words import terms_of
from sbert.storage.atomic import replacing
from sbert.storage.files import reading
from sbert.storage.folders import read_whole
from sbert.storage.processes import Lock

_TERMS, _TOKENS, _LENGTHS = "terms.json", "tokens.npy", "lengths.npy"
_KIND = Kind("sbert.search.Lexical", 1, (_TERMS, _TOKENS, _LENGTHS))
# Without it, each of several threads that search for the first time would compute the scores.
_BUILDING = Lock()
# How much repeated words and long texts count.
_K1, _B = 1.5, 0.75


class Lexical:
    """Texts with ids of your choice, found by their words: BM25, with the scores of bm25s.

    Words are compared in lower case. Chinese, Japanese, Thai and other scripts without spaces between words, and
    Korean, are compared by pairs of adjacent characters, as in Lucene's CJKAnalyzer.

    Scores are computed at the first search after a change, in time proportional to the number of all words.

    Args:
        language: Language of the texts, such as ``"english"``: its stop words are left out, and words are stemmed, so
            that "cats" finds "cat". Default: words as they are, for any language.

    Raises:
        ImportError: If a language is given, and bm25s, which has the stop words, or PyStemmer is not installed.
        ValueError: If the language is unknown.

    References:
        Robertson and Zaragoza, 2009, The probabilistic relevance framework: BM25 and beyond.
        https://doi.org/10.1561/1500000019

        Lù, 2024, BM25S. https://arxiv.org/abs/2407.03618

    Example:
        >>> from sbert.search import Lexical
        >>> lexical = Lexical(language="english")
        >>> lexical.add(["A cat sleeps.", "Taxes rise."], ids=["cat", "tax"])
        >>> lexical.search("Which tax is rising?", top_k=1).ids.tolist()
        [['tax']]
    """

    @known_arguments
    def __init__(self, *, language: str | None = None) -> None:
        terms_of((), language)
        self.language: str | None = language
        self._store = Ids("text")
        self._numbers: dict[str, int] = {}  # Of each term.
        # The numbers of the terms of all texts, one after another, and how many each text has.
        self._tokens: list[np.ndarray] = [np.empty(0, np.int32)]
        self._lengths: list[np.ndarray] = [np.empty(0, np.int32)]
        self._matrix: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, identity: object) -> bool:
        return identity in self._store

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
        new = self._store.new_ids(ids, len(checked))
        numbers, self._matrix = self._numbers, None
        tokens = [
            np.array([numbers.setdefault(term, len(numbers)) for term in terms], np.int32)
            for terms in terms_of(checked, self.language)
        ]
        if tokens:
            append_block(self._tokens, np.concatenate(tokens))
            append_block(self._lengths, np.array([*map(len, tokens)], np.int32))
            self._store.append(new)

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove texts, in time proportional to the number of all words.

        Raises:
            KeyError: If an id is not there; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        remaining = self._store.remaining(ids)
        if remaining is None:
            return
        lengths = joined(self._lengths)
        tokens = joined(self._tokens)[np.repeat(remaining, lengths)]
        # The words of removed texts are forgotten.
        used = np.bincount(tokens, minlength=len(self._numbers)) > 0
        kept = [term for term, is_used in zip(self._numbers, used.tolist(), strict=True) if is_used]
        numbers = {term: number for number, term in enumerate(kept)}
        self._tokens, self._lengths = [(np.cumsum(used, dtype=np.int32) - 1)[tokens]], [lengths[remaining]]
        self._numbers, self._matrix = numbers, None
        self._store.keep(remaining)

    @known_arguments
    def search(
        self, queries: str | Sequence[str], top_k: int = 10, *, allowed: npt.NDArray[np.bool_] | None = None
    ) -> IndexHits:
        """The ``top_k`` best texts for each query.

        A text with a word of the query has a score above 0. If there are fewer than ``top_k`` of them, others follow
        with a score of 0. Texts with equal scores are in the order of addition.

        Args:
            queries: A query, or several.
            top_k: Number of texts per query; all texts if there are fewer.
            allowed: Which texts may be found; default: all. Scores do not depend on it.

        Shape:
            allowed: (texts,) in the order of addition. Each output: (queries, min(top_k, number of allowed texts)).

        Raises:
            TypeError: If a query is not a str.
            ValueError: If ``allowed`` has another shape or dtype.
        """
        k = check_count("top_k", top_k)
        asked = list(rows_of(queries, "queries"))
        rows = np.arange(len(self)) if allowed is None else self._rows(allowed)
        scores, places = np.empty((len(asked), min(k, len(rows))), np.float32), []
        for query, terms in enumerate(terms_of(asked, self.language)):
            found = self._scores(terms)[None, rows]  # (1, rows)
            top = top_columns(found, k)[0]
            scores[query] = found[0, top]
            places.append(rows[top])
        indices = np.array(places, np.int64).reshape(scores.shape)
        return IndexHits(scores, self._store.id_array()[indices])

    def _rows(self, allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        mask = np.asarray(allowed)
        if mask.shape != (len(self),) or mask.dtype != bool:
            raise ValueError(
                f"allowed is an array of {mask.dtype} of shape {mask.shape}; pass one of bool of shape ({len(self)},)"
            )
        return mask.nonzero()[0]

    def _scores(self, terms: list[str]) -> npt.NDArray[np.float32]:
        """The score of each text. Shape: (texts,)."""
        with _BUILDING:
            matrix = self._matrix = self._matrix or self._built()
        scores = np.zeros(len(self), np.float32)
        for term, count in Counter(terms).items():
            if matrix is not None and (number := self._numbers.get(term)) is not None:
                part = slice(*matrix["indptr"][number : number + 2])
                scores[matrix["indices"][part]] += count * matrix["data"][part]
        return scores

    def _built(self) -> dict[str, npt.NDArray[Any]] | None:
        """The score of each term in each text, as the arrays of a sparse matrix; None if there is no term."""
        if not self._numbers:
            return None
        tokens, lengths, count = joined(self._tokens), joined(self._lengths), len(self)
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
        return {"data": times, "indices": texts, "indptr": starts}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save to a folder. An existing one is replaced atomically: after a crash, the folder is the old or the new.

        Args:
            folder: A new folder, or the folder of a ``Lexical``.

        Raises:
            OSError: If the folder cannot be written; an existing one is unchanged.
            ValueError: If the folder exists and contains anything else.
        """
        with replacing(Path(folder), _KIND.check_replaceable) as work:
            write_strings(work / _TERMS, self._numbers)
            np.save(work / _TOKENS, joined(self._tokens))
            np.save(work / _LENGTHS, joined(self._lengths))
            describe(work, _KIND, {"language": self.language}, self._store)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Lexical:
        """Load from a folder. Checksums detect damage, not attacks; no file of the folder can execute code.

        Raises:
            FileNotFoundError: If the folder does not exist.
            ImportError: If bm25s or PyStemmer is needed, and not installed.
            ValueError: If a file is missing, damaged or of another format; the message names it.
        """
        return read_whole(Path(folder), lambda: cls._read(Path(folder)))

    @classmethod
    def _read(cls, folder: Path) -> Lexical:
        described, ids, next_id = read_described(folder, _KIND)
        try:
            lexical = cls(language=described.field("language", str, None))
        except (ValueError, TypeError) as error:
            raise unreadable(folder, f"has invalid settings: {error}") from error
        terms = read_unique(folder, _TERMS, "terms", str)
        tokens, lengths = (
            _read_numbers(folder, name, high) for name, high in ((_TOKENS, len(terms)), (_LENGTHS, 2**31))
        )
        if len(lengths) != len(ids) or lengths.sum(dtype=np.int64) != len(tokens):
            reason = f"has {len(lengths)} texts of {lengths.sum(dtype=np.int64)} words, not {len(ids)} of {len(tokens)}"
            raise unreadable(folder, reason, _LENGTHS)
        lexical._store = Ids("text", ids, next_id)
        lexical._numbers = {term: number for number, term in enumerate(terms)}
        lexical._tokens, lexical._lengths = [tokens], [lengths]
        return lexical


def _read_numbers(folder: Path, name: str, end: int) -> npt.NDArray[np.int32]:
    with reading(folder / name, "an array"):
        numbers: npt.NDArray[np.int32] = np.load(folder / name, allow_pickle=False)
    if numbers.dtype != np.int32 or numbers.ndim != 1 or (numbers < 0).any() or (numbers >= end).any():
        raise unreadable(folder, f"is not a list of int32 from 0 to {end - 1}", name)
    return numbers
