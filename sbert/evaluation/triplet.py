"""TripletEvaluator: whether anchors are more similar to their positives than to their negatives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.checks import as_many, texts
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.pair_scores import scores_of
from sbert.evaluation.vectors import Vectors
from sbert.functional import check_similarity, pairwise_similarity


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
        self.query_prompt, self.document_prompt = query_prompt, document_prompt
        self.anchors, self.positives = texts("anchors", anchors), texts("positives", positives)
        self.negatives = texts("negatives", negatives)
        as_many(1, anchors=self.anchors, positives=self.positives, negatives=self.negatives)
        self.similarity, self.margin = check_similarity(similarity), float(margin)
        if not np.isfinite(self.margin):
            raise ValueError(f"margin={margin} is not finite; pass a number such as 0 or 0.1")

    def measure(self, vectors: Vectors) -> dict[str, float]:
        others, half = [*self.positives, *self.negatives], len(self.anchors)
        if vectors.is_cross_encoder:
            scores = scores_of(vectors, [*self.anchors, *self.anchors], others)
            near, far = scores[:half], scores[half:]
        else:
            anchors = vectors(self.anchors, "query", self.query_prompt)
            documents = vectors(others, "document", self.document_prompt)
            near, far = (pairwise_similarity(anchors, d, self.similarity) for d in (documents[:half], documents[half:]))
        return {"accuracy": float(np.mean(near > far + self.margin))}
