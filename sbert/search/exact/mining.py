"""Mining: the most similar of all pairs of vectors, without storing all scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.functional import Vectors, check_similarity, check_threshold
from sbert.inputs.arguments import check_count, check_model, is_model, known_arguments
from sbert.search.exact.comparison import PreparedVectors, all_scores, just_below, pairs_above, prepare
from sbert.search.exact.semantic_search import in_memory

# Rows that are compared with the sample in one step.
_BLOCK = 4096
# Vectors in the sample that estimates the score of the last requested pair, and a safety factor for their number.
_SAMPLE, _SAFETY = 128, 1.2


class SimilarPair(NamedTuple):
    """Two rows and their score, ``first < second``."""

    score: float
    first: int
    second: int


@dataclass(frozen=True, eq=False)
class SimilarPairs:
    """Pairs of rows in the order of decreasing score; equal scores in the order of their rows.

    A sequence of ``SimilarPair``; the scores and the rows are also available as three arrays. Indexing with a slice, a
    mask or an array of positions gives ``SimilarPairs``.

    Args:
        scores: (pairs,) float32.
        first: (pairs,) int64.
        second: (pairs,) int64; ``second[i] > first[i]``.

    Example:
        >>> import numpy as np
        >>> from sbert.search import paraphrase_mining
        >>> pairs = paraphrase_mining(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), max_pairs=2)
        >>> for score, first, second in pairs:
        ...     print(f"{score:.1f} {first} {second}")
        0.8 1 2
        0.6 0 2
        >>> len(pairs), pairs[0].second, pairs[1:].first
        (2, 2, array([0]))
    """

    scores: npt.NDArray[np.float32]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    @overload
    def __getitem__(self, positions: int) -> SimilarPair: ...
    @overload
    def __getitem__(self, positions: slice | np.ndarray) -> SimilarPairs: ...
    def __getitem__(self, positions: int | slice | np.ndarray) -> SimilarPair | SimilarPairs:
        if isinstance(positions, (int, np.integer)):
            return SimilarPair(float(self.scores[positions]), int(self.first[positions]), int(self.second[positions]))
        return SimilarPairs(self.scores[positions], self.first[positions], self.second[positions])

    def __iter__(self) -> Iterator[SimilarPair]:
        return map(SimilarPair, self.scores.tolist(), self.first.tolist(), self.second.tolist())


_NONE = SimilarPairs(np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64))


@known_arguments
def most_similar_pair(vectors: Vectors, *, similarity: str = "cosine") -> SimilarPair:
    """The pair of vectors with the greatest similarity, out of all pairs.

    Args:
        vectors: Array or tensor.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.

    Shape:
        vectors: (rows, dim), at least two rows.

    Raises:
        ValueError: If there are fewer than two vectors, or a value is NaN or infinite; the message names its row.

    Example:
        >>> import numpy as np
        >>> from sbert.search import most_similar_pair
        >>> most_similar_pair(np.array([[1.0, 0.0], [0.0, 1.0], [1.2, 1.6]], np.float32))
        SimilarPair(score=0.800000011920929, first=1, second=2)
    """
    check_similarity(similarity)
    values = in_memory("vectors", vectors)
    if len(values) < 2:
        raise ValueError(f"there are {len(values)} vectors; pass at least 2")
    pairs = _best_of_all(prepare(values, "vectors", similarity, exact=True), 1, -np.inf)
    return pairs[0] if len(pairs) else SimilarPair(-math.inf, 0, 1)  # All scores are minus infinity in float32.


@known_arguments
def paraphrase_mining(
    vectors_or_model: Any,
    sentences: Any = None,
    *,
    max_pairs: int = 500_000,
    threshold: float | None = None,
    similarity: str | None = None,
) -> SimilarPairs:
    """The most similar of all n (n - 1) / 2 pairs of vectors or sentences.

    Args:
        vectors_or_model: Array or tensor; or a ``SentenceEncoder`` if sentences are given.
        sentences: Sentences to encode with the model.
        max_pairs: Maximum number of pairs to return.
        threshold: Minimum score of a pair: -1 to 1 for cosines, at most 0 for negative distances.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.
            Default: that of the model, or ``"cosine"`` for vectors.

    Returns:
        ``SimilarPairs``: a sequence of (score, first, second), with the arrays ``scores``, ``first`` and ``second``.

    Shape:
        vectors: (rows, dim). Each array of the output: (pairs,).

    Raises:
        TypeError: If the arguments are neither vectors alone nor a model and sentences, in this order.
        ValueError: If a value is NaN or infinite (the message names its row), or an argument is out of range.

    Example:
        >>> import numpy as np
        >>> from sbert import SentenceEncoder
        >>> from sbert.search import paraphrase_mining
        >>> model = SentenceEncoder()
        >>> pairs = paraphrase_mining(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), max_pairs=2)
        >>> pairs.scores.round(4), pairs.first.tolist(), pairs.second.tolist()
        (array([0.8, 0.6], dtype=float32), [1, 0], [2, 2])
        >>> pairs = paraphrase_mining(model, ["A cat sleeps.", "Taxes rise.", "A cat is sleeping."], threshold=0.5)
        >>> pairs.first.tolist(), pairs.second.tolist()
        ([0], [2])
    """
    if sentences is not None:
        check_model("vectors_or_model", vectors_or_model, "sentences")
        if isinstance(sentences, (str, bytes)):
            raise TypeError(f"sentences={sentences!r:.60} is one sentence; pass a list of two or more")
    elif is_model(vectors_or_model):
        raise TypeError("the model has no sentences to encode; pass paraphrase_mining(model, sentences)")
    if similarity is None:
        similarity = "cosine" if sentences is None else vectors_or_model.similarity_fn_name
    check_similarity(similarity)
    count = check_count("max_pairs", max_pairs)
    if threshold is not None:
        check_threshold(threshold, similarity)
    if sentences is not None:
        vectors_or_model = vectors_or_model.encode(sentences, convert_to_tensor=True)
    values = in_memory("vectors", vectors_or_model)
    limit = -np.inf if threshold is None else just_below(threshold)
    if len(values) < 2:
        return _NONE
    return _best_of_all(prepare(values, "vectors", similarity, exact=True), count, limit)


def _best_of_all(rows: PreparedVectors, count: int, limit: float) -> SimilarPairs:
    """The top pairs of all with a score above a limit; a higher limit, from a sample, is tried first."""
    estimate = max(limit, _estimate_limit(rows, count))
    pairs = _search(rows, count, estimate)
    return pairs if estimate == limit or len(pairs) >= count else _search(rows, count, limit)


def _search(rows: PreparedVectors, count: int, limit: float) -> SimilarPairs:
    """The top pairs with a score above a limit."""
    parts, collected = [_NONE], 0
    for above in pairs_above(rows, lambda: limit):  # noqa: B023, as it is that of now
        if len(above[0]):
            parts.append(SimilarPairs(*(column.cpu().numpy() for column in above)))
            collected += len(parts[-1])
        if collected > max(2 * count, 1 << 16):
            parts = [_top(parts, count)]
            collected = count
            # Later pairs with an equal score may come first in the order of rows.
            limit = just_below(parts[0].scores[-1])
    return _top(parts, count)


def _top(parts: list[SimilarPairs], count: int) -> SimilarPairs:
    """The first ``count`` of all pairs, sorted."""
    names = ("scores", "first", "second")
    pairs = SimilarPairs(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    scores = pairs.scores
    if len(scores) > count:
        pairs = pairs[scores >= np.partition(scores, len(scores) - count)[len(scores) - count]]
    order = np.argsort(-pairs.scores)
    ranked = pairs.scores[order]
    # Few scores are equal, so only those are sorted by their rows as well: sorting all by three keys is slow.
    tied = np.zeros(len(order), bool)
    tied[1:] = ranked[1:] == ranked[:-1]
    tied[:-1] |= tied[1:]
    ties = order[tied]
    order[tied] = ties[np.lexsort((pairs.second[ties], pairs.first[ties], -pairs.scores[ties]))]
    return pairs[order[:count]]


def _estimate_limit(rows: PreparedVectors, count: int) -> float:
    """A score that slightly more than ``count`` pairs exceed, estimated from a sample; or minus infinity."""
    total = len(rows.values)
    sample = torch.arange(0, total, -(-total // _SAMPLE), device=rows.values.device)
    fraction = count * _SAFETY / (total * (total - 1) / 2)  # Of all pairs.
    if fraction > 1 / 4:
        return -np.inf
    queries = rows.part(sample)
    top: list[Tensor] = []
    sample_count = int(fraction * len(sample) * (total - 1)) + 1
    for start in range(0, total, _BLOCK):
        scores = all_scores(queries, rows.part(slice(start, start + _BLOCK)))  # (sample, rows)
        in_block = ((start <= sample) & (sample < start + scores.shape[1])).nonzero()[:, 0]
        scores[in_block, sample[in_block] - start] = -torch.inf  # Pairs of a row with itself.
        top = [torch.cat([*top, scores.flatten()]).topk(min(sample_count, scores.numel())).values]
    return just_below(top[0][-1].item())
