"""The most similar ones of all pairs of vectors, which are not held."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from sbert.functional import check_similarity
from sbert.inputs.arguments import check_count, check_model, check_number, check_positive, is_model, known_arguments
from sbert.search.corpus import ALIGNED, held
from sbert.search.scoring import Queries, Rows, rows
from sbert.search.semantic import Best

# Vectors that are compared with others at once, and the others.
_FEW, _BLOCK = 512, 4096
# Vectors whose pairs say how similar the wanted pairs may be, and how many more are wanted to be safe.
_SAMPLE, _SAFETY = 128, 1.25


class Pair(NamedTuple):
    """Two rows and their score, ``first < second``."""

    score: float
    first: int
    second: int


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows, the most similar first; of equal scores, the first rows.

    A sequence of ``Pair``, so that a loop goes over pairs; the three arrays are attributes. Slices, masks and arrays of
    places give the pairs there.

    Args:
        scores: (pairs,) float32.
        first: (pairs,) int64.
        second: (pairs,) int64, each greater than its ``first``.

    Example:
        >>> found = paraphrase_mining(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), max_pairs=2)
        >>> for score, first, second in found:
        ...     print(f"{score:.1f} {first} {second}")
        0.8 1 2
        0.6 0 2
        >>> len(found), found[0].second, found[1:].first
        (2, 2, array([0]))
    """

    scores: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    @overload
    def __getitem__(self, places: int) -> Pair: ...
    @overload
    def __getitem__(self, places: slice | np.ndarray) -> Pairs: ...
    def __getitem__(self, places: int | slice | np.ndarray) -> Pair | Pairs:
        if isinstance(places, (int, np.integer)):
            return Pair(float(self.scores[places]), int(self.first[places]), int(self.second[places]))
        return Pairs(self.scores[places], self.first[places], self.second[places])

    def __iter__(self) -> Iterator[Pair]:
        return map(Pair, self.scores.tolist(), self.first.tolist(), self.second.tolist())


_NONE = Pairs(np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64))


@known_arguments
def most_similar_pair(vectors: Any, *, similarity: str = "cosine") -> Pair:
    """The most similar two of many vectors, out of all pairs.

    Args:
        vectors: Array or tensor.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.

    Shape:
        vectors: (rows, dim), two rows or more.

    Raises:
        ValueError: If there are fewer, or a number is NaN or infinite, naming its row.

    Example:
        >>> most_similar_pair(np.array([[1.0, 0.0], [0.0, 1.0], [1.2, 1.6]], np.float32))
        Pair(score=0.800000011920929, first=1, second=2)
    """
    check_similarity(similarity)
    values = held("vectors", vectors)
    if len(values) < 2:
        raise ValueError(f"there are {len(values)} vectors; pass at least 2 to compare")
    found = _Top(rows(values, "vectors", similarity, exact=True), similarity, 1).found(-np.inf, sampled=True)
    return found[0] if len(found) else Pair(-math.inf, 0, 1)  # float32 holds none of the scores, so all are equal.


@known_arguments
def paraphrase_mining(
    vectors_or_model: Any,
    sentences: Any = None,
    *,
    top_k: int | None = 100,
    max_pairs: int = 500_000,
    threshold: float | None = None,
    similarity: str | None = None,
) -> Pairs:
    """The most similar ones of all n (n - 1) / 2 pairs of vectors or sentences.

    Args:
        vectors_or_model: Array or tensor; or a ``SentenceEncoder``, where sentences are given.
        sentences: To be encoded.
        top_k: A pair counts only if one of its rows is among the ``top_k`` that are most similar to the other; None
            for no such limit.
        max_pairs: How many pairs to find.
        threshold: The least score of a pair.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.
            Where it is not given, the model's, and ``"cosine"`` for vectors.

    Returns:
        ``Pairs``, a sequence of (score, first, second), with the arrays ``scores``, ``first`` and ``second``.

    Shape:
        vectors: (rows, dim). Each array of the output: (pairs,).

    Raises:
        TypeError: If these are no vectors, or no model and sentences, in this order.
        ValueError: If a number is NaN or infinite, naming its row, or an argument does not fit.

    Example:
        >>> found = paraphrase_mining(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), max_pairs=2)
        >>> found.scores.round(4), found.first.tolist(), found.second.tolist()
        (array([0.8, 0.6], dtype=float32), [1, 0], [2, 2])
        >>> found = paraphrase_mining(model, ["A cat sleeps.", "Taxes rise.", "A cat is sleeping."], threshold=0.5)
        >>> found.first.tolist(), found.second.tolist()
        ([0], [2])
    """
    _check_sentences(vectors_or_model, sentences)
    if similarity is None:
        similarity = "cosine" if sentences is None else vectors_or_model.similarity_fn_name
    check_similarity(similarity)
    limit, wanted = check_positive("top_k", top_k), check_count("max_pairs", max_pairs)
    if threshold is not None:
        check_number("threshold", threshold)
    if sentences is not None:
        vectors_or_model = vectors_or_model.encode(sentences, convert_to_tensor=True)
    values = held("vectors", vectors_or_model)
    # Pairs that are just as good as the threshold count, too.
    least = -np.inf if threshold is None else float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
    if len(values) < 2:
        return _NONE
    block = rows(values, "vectors", similarity, exact=True)
    if limit is None or limit >= len(values) - 1:
        return _Top(block, similarity, wanted).found(least, sampled=True)
    if limit * len(values) > wanted:
        # All pairs above a score hold, of each row, the most similar ones, if they are enough.
        guess = max(least, _guess(block, similarity, wanted))
        above = _Top(block, similarity, 4 * wanted, all_or_none=True)
        found = _nearest_of_each(above.found(guess), limit, len(values))
        if not above.full and (len(found) >= wanted or guess == least):
            return found[:wanted]
    return _by_rows(block, similarity, limit, wanted, least)


def _check_sentences(vectors_or_model: Any, sentences: Any) -> None:
    """Raise a TypeError where the model and its sentences are no such, or where one is there alone."""
    if sentences is None and is_model(vectors_or_model):
        raise TypeError("the model has no sentences to encode; pass paraphrase_mining(model, sentences)")
    if sentences is None:
        return
    if isinstance(vectors_or_model, (np.ndarray, Tensor)):
        raise TypeError("vectors and sentences were both given; pass the vectors alone, or a model and the sentences")
    check_model("vectors_or_model", vectors_or_model, "sentences")
    if isinstance(sentences, (str, bytes)):
        raise TypeError(f"sentences={sentences!r:.60} is one sentence; pass a list of two or more")


def tiles(block: Rows, similarity: str) -> Iterator[tuple[Queries, int, Rows, int]]:
    """Queries with the place of the first, and rows with theirs, such that every pair comes once; some come twice."""
    for low in range(0, len(block.values), _FEW):
        queries = Queries(block.values[low : low + _FEW], similarity)
        start = low
        while start < len(block.values):
            high = min(start + _BLOCK, len(block.values))
            if high - start > ALIGNED:
                high -= (high - start) % ALIGNED
            yield queries, low, block.part(start, high), start
            start = high


def pairs_above(
    queries: Queries, low: int, part: Rows, start: int, limit: float, group: int = ALIGNED
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores above a limit, and the two rows of each pair, the smaller first."""
    scores, at, of = queries.above(part, limit, group, behind=low - start)
    return scores, of + low, at + start


class _Top:
    """The best of all pairs.

    Args:
        block: All vectors.
        similarity: How they are compared.
        wanted: How many pairs.
        all_or_none: Whether to give up as soon as pairs above the limit must be left out.
    """

    def __init__(self, block: Rows, similarity: str, wanted: int, all_or_none: bool = False) -> None:
        self.block, self.similarity, self.wanted = block, similarity, wanted
        self.all_or_none = all_or_none
        self.full = False  # Whether pairs above the limit were left out.

    def found(self, least: float, sampled: bool = False) -> Pairs:
        """The best pairs whose score is more than ``least``; ``sampled`` to find a better start by a sample."""
        guess = max(least, _guess(self.block, self.similarity, self.wanted)) if sampled else least
        found = self._search(guess)
        return found if guess == least or len(found) >= self.wanted else self._search(least)

    def _search(self, limit: float) -> Pairs:
        parts, count, total = [_NONE], 0, len(self.block.values)
        # The larger the part of pairs that is wanted, the smaller a group none of which is.
        group = 8 if self.wanted > total**2 / 2000 else ALIGNED
        for queries, low, part, start in tiles(self.block, self.similarity):
            scores, first, second = pairs_above(queries, low, part, start, limit, group)
            if len(scores):
                parts.append(Pairs(*(each.cpu().numpy() for each in (scores, first, second))))
                count += len(scores)
            if count > max(2 * self.wanted, 1 << 16):
                self.full = True
                if self.all_or_none:
                    return _NONE
                parts = [_cut(_joined(parts), self.wanted)]
                count = self.wanted
                # Those that are just as good may come before those that are kept.
                limit = float(np.nextafter(parts[0].scores[-1], np.float32(-np.inf)))
        joined = _joined(parts)
        self.full |= len(joined) > self.wanted
        return _cut(joined, self.wanted)


def _joined(parts: list[Pairs]) -> Pairs:
    names = ("scores", "first", "second")
    return Pairs(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _cut(found: Pairs, count: int) -> Pairs:
    """The first pairs in order."""
    scores = found.scores
    if len(scores) > count:
        kept = scores >= np.partition(scores, len(scores) - count)[len(scores) - count]
        found = found[kept]
    order = np.argsort(-found.scores)
    ranked = found.scores[order]
    # Sorting by several keys takes long, and few scores are equal.
    same = np.zeros(len(order), bool)
    same[1:] = ranked[1:] == ranked[:-1]
    same[:-1] |= same[1:]
    places = np.flatnonzero(same)
    equal = order[places]
    equal = equal[np.argsort(found.first[equal] * (found.second.max(initial=0) + 1) + found.second[equal])]
    order[places] = equal[np.argsort(-found.scores[equal], kind="stable")]
    return found[order[:count]]


def _guess(block: Rows, similarity: str, wanted: int) -> float:
    """A score that somewhat more pairs than are wanted may exceed, seen by a few rows; or minus infinity."""
    total = len(block.values)
    sample = torch.arange(0, total, -(-total // _SAMPLE), device=block.values.device)
    part = wanted * _SAFETY / (total * (total - 1) / 2)  # Of all pairs.
    if part > 1 / 4:
        return -np.inf
    queries = Queries(block.values[sample], similarity)
    seen: list[Tensor] = []
    kept = int(part * len(sample) * (total - 1)) + 1
    for start in range(0, total, _BLOCK):
        scores = queries.about(block.part(start, start + _BLOCK)).float()  # (sample, rows)
        own = ((start <= sample) & (sample < start + scores.shape[1])).nonzero()[:, 0]
        scores[own, sample[own] - start] = -torch.inf
        seen = [torch.cat([*seen, scores.flatten()]).topk(min(kept, scores.numel())).values]
    return float(np.nextafter(np.float32(seen[0][-1].item()), np.float32(-np.inf)))


def _nearest_of_each(found: Pairs, limit: int, total: int) -> Pairs:
    """Of pairs in order, those one of whose rows is among the ``limit`` that are nearest to the other."""
    ends = np.stack([found.first, found.second], 1).ravel()  # (2 pairs,), as one meets them from the best pair on
    counts = np.bincount(ends, minlength=total)
    if not len(ends) or counts.max() <= limit:
        return found
    order = np.argsort(ends.astype(np.min_scalar_type(total)), kind="stable")
    ranks = np.arange(len(ends)) - np.repeat(np.cumsum(counts) - counts, counts)
    near = np.zeros(len(ends), bool)
    near[order[ranks < limit]] = True
    kept = np.flatnonzero(near[::2] | near[1::2])
    return found[kept]


def _by_rows(block: Rows, similarity: str, limit: int, wanted: int, least: float) -> Pairs:
    """The best pairs among those of each row with the ``limit`` that are nearest to it."""
    total, parts, count = len(block.values), [_NONE], 0
    for low in range(0, total, _FEW):
        best = Best(Queries(block.values[low : low + _FEW], similarity), limit + 1)
        for start in range(0, total, _BLOCK):
            best.see(block.part(start, start + _BLOCK), start)
        scores, indices = best.flush()
        own = np.arange(low, low + len(scores))[:, None]
        others = indices != own
        # A row that is not among its own nearest has one other too many.
        others &= np.cumsum(others, 1) <= limit
        others &= scores > least
        first, second = np.minimum(indices, own)[others], np.maximum(indices, own)[others]
        parts.append(Pairs(scores[others], first, second))
        count += len(first)
        if count > 4 * wanted + (1 << 16):  # Each pair is there twice at most.
            parts = [_once(_joined(parts), total, wanted)]
            count = len(parts[0])
    return _once(_joined(parts), total, wanted)


def _once(found: Pairs, total: int, wanted: int) -> Pairs:
    """The best pairs, each once."""
    different = np.unique(found.first * total + found.second, return_index=True)[1]
    return _cut(found[different], wanted)
