"""The similarity of pairs of texts, by a model's vectors or by its scores; SimilarityEvaluator, TripletEvaluator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.checks import check_columns, check_finite
from sbert.evaluation.evaluator import Similarity, SimilarityBased, check_similarities
from sbert.evaluation.metrics import pearson, spearman
from sbert.evaluation.vectors import Floats, Vectors
from sbert.functional import SIMILARITIES, pairwise_similarity
from sbert.inputs.arguments import check_number

# Pairs compared at a time: float64 copies of all of them would take much memory.
_STEP = 4096


class SimilarityEvaluator(SimilarityBased):
    """Spearman's and Pearson's correlation between the similarity of two texts and a reference score.

        spearman( cos(u_i, v_i), score_i )

    For a ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        scores: The reference score of each pair, on any scale; higher means more similar.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with a list, metrics are called
            ``cosine_spearman`` and so on.
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
        similarity: Similarity = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self._scores = np.array(list(scores), float)
        self._first, self._second = check_columns(2, {"first": first, "second": second}, scores=self._scores)
        self._similarities, self._prompt = check_similarities(similarity), prompt
        check_finite("scores", self._scores)
        if np.all(self._scores == self._scores[0]):
            raise ValueError(f"every score is {self._scores[0]:g}, so there is no correlation; pass different scores")

    def measure_by(self, vectors: Vectors, similarity: str) -> dict[str, float]:
        """Both correlations."""
        similarities = compare(vectors, self._first, self._second, similarity, self._prompt)
        return {"spearman": spearman(similarities, self._scores), "pearson": pearson(similarities, self._scores)}


class TripletEvaluator(SimilarityBased):
    """The fraction of triplets whose anchor is more similar to its positive than to its negative.

        accuracy = mean_i [ s(a_i, p_i) > s(a_i, n_i) + margin ]

    Anchors are encoded with the model's prompt for queries, the other texts with its prompt for documents, if it has
    these. For a ``CrossEncoder``, the similarities are the model's scores of the two pairs.

    Args:
        anchors: The anchors.
        positives: One text for each anchor.
        negatives: One text for each anchor.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with a list, metrics are called
            ``cosine_accuracy`` and so on.
        margin: Minimum difference between the two similarities.
        query_prompt: The prompt before every anchor, instead of the model's prompt for queries: the name of a prompt,
            a text, or ``""`` for none.
        document_prompt: The prompt before every other text, instead of the model's prompt for documents.

    Raises:
        ValueError: If the lengths differ, the margin is not finite, or the similarity is unknown.
        TypeError: If a text is not a str.

    References:
        Reimers and Gurevych, 2019, section 4.4. https://arxiv.org/abs/1908.10084

    Example:
        >>> TripletEvaluator(["A cat."], ["A kitten."], ["Taxes rise."])(model)
        {'accuracy': 1.0}
    """

    def __init__(
        self,
        anchors: Iterable[str],
        positives: Iterable[str],
        negatives: Iterable[str],
        similarity: Similarity = "cosine",
        margin: float = 0.0,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self._anchors, self._positives, self._negatives = check_columns(
            1, {"anchors": anchors, "positives": positives, "negatives": negatives}
        )
        self._prompts = query_prompt, document_prompt
        self._similarities, self._margin = check_similarities(similarity), check_number("margin", margin)

    def measure_by(self, vectors: Vectors, similarity: str) -> dict[str, float]:
        """The accuracy."""
        others, half = [*self._positives, *self._negatives], len(self._anchors)
        if vectors.is_cross_encoder:
            scores = score_pairs(vectors, [*self._anchors, *self._anchors], others)
        else:
            anchors = vectors(self._anchors, "query", self._prompts[0])
            pairs = np.concatenate([anchors, anchors]), vectors(others, "document", self._prompts[1])
            scores = pairwise_similarity(*pairs, similarity)
        return {"accuracy": float(np.mean(scores[:half] > scores[half:] + self._margin))}


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
    table = vectors([*first, *second], prompt=prompt).reshape(2, len(first), -1)  # (2, pairs, dim)
    parts = np.split(table, range(_STEP, len(first), _STEP), axis=1)
    scores = [pairwise_similarity(u, v, similarity) for u, v in (part.astype(float) for part in parts)]
    return np.concatenate(scores).astype(np.float32)


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
    documents = (vectors(own, "document", prompts[1]) for own in candidates)
    return [SIMILARITIES[similarity](query, own)[0] for query, own in zip(asked, documents, strict=True)]
