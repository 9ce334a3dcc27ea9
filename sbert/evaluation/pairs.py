"""The similarity of pairs of texts, by a model's vectors or by its scores; and SimilarityEvaluator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.checks import check_columns, check_finite
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metrics import pearson, spearman
from sbert.evaluation.vectors import Floats, Vectors
from sbert.functional import SIMILARITIES, check_similarity, pairwise_similarity

# Pairs compared at a time: float64 copies of all of them would take much memory.
_STEP = 4096


class SimilarityEvaluator(Evaluator):
    """Spearman's and Pearson's correlation between the similarity of two texts and a reference score.

        spearman( cos(u_i, v_i), score_i )

    For a ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        scores: The reference score of each pair, on any scale; higher means more similar.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, there are fewer than two pairs, a score is not finite, all scores are equal,
            or the similarity is unknown.
        TypeError: If a text is not a str.

    References:
        Reimers and Gurevych, 2019, section 4. https://arxiv.org/abs/1908.10084

    Example:
        >>> evaluator = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> evaluator(model)["spearman"]
        1.0
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        scores: Iterable[float],
        similarity: str = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self._scores = np.array(list(scores), float)
        self._first, self._second = check_columns(2, {"first": first, "second": second}, scores=self._scores)
        self._similarity, self._prompt = check_similarity(similarity), prompt
        check_finite("scores", self._scores)
        if np.all(self._scores == self._scores[0]):
            raise ValueError(f"every score is {self._scores[0]:g}, so there is no correlation; pass different scores")

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """Both correlations."""
        similarities = compare(vectors, self._first, self._second, self._similarity, self._prompt)
        return {"spearman": spearman(similarities, self._scores), "pearson": pearson(similarities, self._scores)}


def score_pairs(vectors: Vectors, first: Sequence[str], second: Sequence[str]) -> Floats:
    """A cross-encoder's scores of pairs.

    Shape:
        Output: (pairs,).

    Raises:
        ValueError: If the model gives several scores per pair.
    """
    scores = vectors.score_pairs(first, second)
    if scores.ndim > 1:
        raise ValueError(f"the model gives {scores.shape[1]} scores per pair, but one is needed; use LabelEvaluator")
    return scores


def compare(
    vectors: Vectors, first: Sequence[str], second: Sequence[str], similarity: str, prompt: str | None = None
) -> Floats:
    """The similarities of pairs; for a cross-encoder, its scores.

    Similarities are computed in float64, so that equal vectors have a cosine of exactly 1 and the same rank. In
    float32, their cosines would differ by about 1e-7, and their ranks would be random.

    Shape:
        Output: (pairs,).
    """
    if vectors.is_cross_encoder:
        return score_pairs(vectors, first, second)
    table = vectors([*first, *second], prompt=prompt)  # (2 * pairs, dim)
    scores = np.empty(len(first), np.float32)
    for start in range(0, len(first), _STEP):
        rows = slice(start, start + _STEP)
        u, v = (half[rows].astype(float) for half in (table[: len(first)], table[len(first) :]))
        scores[rows] = pairwise_similarity(u, v, similarity)
    return scores


def score_candidates(
    vectors: Vectors,
    queries: Sequence[str],
    candidates: Sequence[Sequence[str]],
    similarity: str,
    prompts: tuple[str | None, str | None],
) -> list[Floats]:
    """The similarities of each query and its own candidates; for a cross-encoder, its scores.

    Shape:
        Output: (candidates of the query,) for each query.
    """
    texts = [text for own in candidates for text in own]
    if vectors.is_cross_encoder:
        first = [query for query, own in zip(queries, candidates, strict=True) for _ in own]
        return np.split(score_pairs(vectors, first, texts), np.cumsum([len(own) for own in candidates])[:-1])
    asked = vectors(queries, "query", prompts[0])  # (queries, dim)
    vectors(texts, "document", prompts[1])  # One call that encodes all texts; later calls read those of one query.
    compute = SIMILARITIES[similarity]
    return [
        compute(query, vectors(own, "document", prompts[1]))[0] for query, own in zip(asked, candidates, strict=True)
    ]
