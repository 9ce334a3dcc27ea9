"""TripletEvaluator: whether anchors are nearer to their positives than to their negatives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.checks import as_many, texts
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.pair_scores import scores_of
from sbert.functional import check_similarity, pairwise_similarity


class TripletEvaluator(Evaluator):
    """The part of the triplets whose anchor is more like its positive than like its negative.

        accuracy = mean_i [ s(a_i, p_i) > s(a_i, n_i) + margin ]

    Anchors are encoded with the model's prompt of queries, the others with that of documents, if it has them. Of a
    ``CrossEncoder``, it is the model's scores of the two pairs that are compared.

    Args:
        anchors: Texts.
        positives: One for each anchor.
        negatives: One for each anchor.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        margin: By how much the positive must be more similar.
        query_prompt: Before every anchor, in place of the model's for queries: the name of one of its prompts, or a
            text; ``""`` for none.
        document_prompt: Before every other text, in place of the model's for documents.

    Raises:
        ValueError: If there are not as many of each, the margin is not finite, or the similarity is unknown.
        TypeError: If a text is no str.

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
