"""TripletEvaluator: whether anchors are more similar to their positives than to their negatives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.checks import check_columns
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.pairs import score_pairs
from sbert.evaluation.vectors import Vectors
from sbert.functional import check_similarity, pairwise_similarity
from sbert.inputs.arguments import check_number


class TripletEvaluator(Evaluator):
    """The fraction of triplets whose anchor is more similar to its positive than to its negative.

        accuracy = mean_i [ s(a_i, p_i) > s(a_i, n_i) + margin ]

    Anchors are encoded with the model's prompt for queries, the other texts with its prompt for documents, if it has
    these. For a ``CrossEncoder``, the similarities are the model's scores of the two pairs.

    Args:
        anchors: The anchors.
        positives: One text for each anchor.
        negatives: One text for each anchor.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
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
        similarity: str = "cosine",
        margin: float = 0.0,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self._anchors, self._positives, self._negatives = check_columns(
            1, {"anchors": anchors, "positives": positives, "negatives": negatives}
        )
        self._prompts = query_prompt, document_prompt
        self._similarity, self._margin = check_similarity(similarity), check_number("margin", margin)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The accuracy."""
        others, half = [*self._positives, *self._negatives], len(self._anchors)
        if vectors.is_cross_encoder:
            scores = score_pairs(vectors, [*self._anchors, *self._anchors], others)
        else:
            anchors = vectors(self._anchors, "query", self._prompts[0])
            pairs = np.concatenate([anchors, anchors]), vectors(others, "document", self._prompts[1])
            scores = pairwise_similarity(*pairs, self._similarity)
        return {"accuracy": float(np.mean(scores[:half] > scores[half:] + self._margin))}
