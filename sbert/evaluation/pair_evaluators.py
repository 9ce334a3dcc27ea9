"""Evaluators of pairs: SimilarityEvaluator, TripletEvaluator, LabelEvaluator and PairClassificationEvaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch

from sbert.evaluation import metrics
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metric_checks import check_finite_values, check_labels, check_text_columns
from sbert.evaluation.model_vectors import Floats, ModelVectors
from sbert.functional import ALL_SIMILARITIES, check_similarity, pairwise_similarity
from sbert.inputs.arguments import check_number
from sbert.inputs.texts import records_of
from sbert.losses import SoftmaxLoss

# Pairs compared at a time, of which there are float64 copies, and pairs whose features are in memory together.
_STEP, _ROWS = 4096, 16_384


class _OfRows(Evaluator):
    """An evaluator that can be made of rows."""

    _names: ClassVar[tuple[str, ...]] = ("first", "second", "label")  # Of the readers, in the order of the arguments.

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any] | Sequence[Any]], **options: Any) -> Self:
        """An evaluator of the rows of a reader, such as ``read_sts``, or of tuples.

        Args:
            rows: Dicts with the names that the readers give (first, second and label; or anchor, positive and
                negative), or tuples with these values in this order; or a data frame with these columns.
            options: The other arguments of the class.

        Raises:
            ValueError: If a row has other names, or another number of values.

        Example:
            >>> from sbert import SentenceEncoder
            >>> from sbert.evaluation import SimilarityEvaluator
            >>> model = SentenceEncoder()
            >>> rows = [{"first": "A cat.", "second": "A kitten.", "label": 1}, ("A cat.", "Taxes rise.", 0)]
            >>> SimilarityEvaluator.from_rows(rows)(model)["spearman"]
            1.0
        """
        wanted, named = ", ".join(cls._names), []
        for number, row in enumerate(records_of(rows)):
            if not isinstance(row, (Mapping, tuple, list)):
                raise TypeError(f"rows[{number}] is {row!r:.60}; pass dicts or tuples of {wanted}")
            named.append(row if isinstance(row, Mapping) else dict(zip((*cls._names, "more"), row, strict=False)))
            if set(named[-1]) != set(cls._names):
                raise ValueError(f"rows[{number}] has {', '.join(named[-1])}; pass rows of {wanted}")
        return cls(*([row[name] for row in named] for name in cls._names), **options)


class SimilarityEvaluator(_OfRows):
    """Spearman's and Pearson's correlation between the similarity of two texts and a reference score.

        metrics.spearman( cos(u_i, v_i), score_i )

    For a ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        scores: The reference score of each pair, on any scale; higher means more similar.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; ``"maxsim"`` of multi-vector encoders.
            Default: that of sparse and multi-vector encoders, else the cosine.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, there are fewer than two pairs, a score is not finite, all scores are equal,
            or the similarity is unknown.
        TypeError: If a text is not a str.

    References:
        Reimers and Gurevych, 2019, section 4. https://arxiv.org/abs/1908.10084

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import SimilarityEvaluator
        >>> model = SentenceEncoder()
        >>> evaluator = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> evaluator(model)["spearman"]
        1.0
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        scores: Iterable[float],
        similarity: str | None = None,
        *,
        prompt: str | None = None,
    ) -> None:
        listed = list(scores)
        self._first, self._second = check_text_columns(2, {"first": first, "second": second}, scores=listed)
        self._scores = np.array(listed, float)
        self._similarity, self._prompt = similarity and check_similarity(similarity, ALL_SIMILARITIES), prompt
        check_finite_values("scores", self._scores)
        if np.all(self._scores == self._scores[0]):
            raise ValueError(f"every score is {self._scores[0]:g}, so there is no correlation; pass different scores")

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """Both correlations."""
        similarities = compare_pairs(vectors, self._first, self._second, self._similarity, self._prompt)
        return {
            "spearman": metrics.spearman(similarities, self._scores),
            "pearson": metrics.pearson(similarities, self._scores),
        }


class TripletEvaluator(_OfRows):
    """The fraction of triplets whose anchor is more similar to its positive than to its negative.

        accuracy = mean_i [ s(a_i, p_i) > s(a_i, n_i) + margin ]

    Anchors are encoded with the model's prompt for queries, the other texts with its prompt for documents, if it has
    these. For a ``CrossEncoder``, the similarities are the model's scores of the two pairs.

    Args:
        anchors: The anchors.
        positives: One text for each anchor.
        negatives: One text for each anchor.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; ``"maxsim"`` of multi-vector encoders.
            Default: that of sparse and multi-vector encoders, else the cosine.
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
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import TripletEvaluator
        >>> model = SentenceEncoder()
        >>> TripletEvaluator(["A cat."], ["A kitten."], ["Taxes rise."])(model)
        {'accuracy': 1.0}
    """

    _names = ("anchor", "positive", "negative")

    def __init__(
        self,
        anchors: Iterable[str],
        positives: Iterable[str],
        negatives: Iterable[str],
        similarity: str | None = None,
        margin: float = 0.0,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self._anchors, self._positives, self._negatives = check_text_columns(
            1, {"anchors": anchors, "positives": positives, "negatives": negatives}
        )
        self._prompts, self._margin = (query_prompt, document_prompt), check_number("margin", margin)
        self._similarity = similarity and check_similarity(similarity, ALL_SIMILARITIES)

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The accuracy."""
        others, half = [*self._positives, *self._negatives], len(self._anchors)
        if vectors.is_cross_encoder:
            scores = score_pairs(vectors, [*self._anchors, *self._anchors], others)
        else:
            anchors = vectors(self._anchors, "query", self._prompts[0])
            pairs = np.concatenate([anchors, anchors]), vectors(others, "document", self._prompts[1])
            scores = pairwise_similarity(*pairs, vectors.choose_similarity(self._similarity))
        return {"accuracy": float(np.mean(scores[:half] > scores[half:] + self._margin))}


class LabelEvaluator(_OfRows):
    """Accuracy and macro F1 of the classes of pairs, predicted by the classifier of a ``SoftmaxLoss``.

        accuracy = mean_i [ argmax_c (W [u_i; v_i; |u_i - v_i|] + b)_c = label_i ]

    A ``CrossEncoder`` with several classes has its own classifier.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        labels: The class of each pair, from 0.
        loss: The loss that was trained with the model, which has the classifier; None for a ``CrossEncoder``.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, a label is not a valid class, or there is no classifier.
        TypeError: If a text is not a str, or the model gives one vector per token.

    References:
        Conneau et al., 2017, section 3.1. https://arxiv.org/abs/1705.02364

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import LabelEvaluator
        >>> from sbert.losses import SoftmaxLoss
        >>> model = SentenceEncoder()
        >>> loss = SoftmaxLoss(dim=256, classes=2)
        >>> values = LabelEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [0, 1], loss)(model)
        >>> list(values)
        ['accuracy', 'macro_f1']
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        labels: Iterable[int],
        loss: SoftmaxLoss | None = None,
        *,
        prompt: str | None = None,
    ) -> None:
        self._labels, self._prompt = check_labels("labels", labels), prompt
        self.loss: SoftmaxLoss | None = loss
        self._first, self._second = check_text_columns(1, {"first": first, "second": second}, labels=self._labels)
        if loss is not None:
            self._check(loss.classes)

    def _check(self, classes: int) -> None:
        row = int(self._labels.argmax())
        if (label := self._labels[row]) >= classes:
            raise ValueError(f"labels[{row}] is {label}, but the classifier has the classes 0 to {classes - 1}")

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """Accuracy and macro F1."""
        scores = self._score_pairs(vectors) if vectors.is_cross_encoder else self._score_vectors(vectors)
        predicted = scores.argmax(1)
        return {
            "accuracy": metrics.accuracy(predicted, self._labels),
            "macro_f1": metrics.macro_f1(predicted, self._labels),
        }

    def _score_pairs(self, vectors: ModelVectors) -> Floats:
        if self.loss is not None:
            raise ValueError("a CrossEncoder has its own classifier; leave loss= out")
        scores = vectors.score_pairs(self._first, self._second)
        if scores.ndim < 2:
            raise ValueError("the model gives one score per pair, not classes; use PairClassificationEvaluator")
        self._check(scores.shape[1])
        return scores

    def _score_vectors(self, vectors: ModelVectors) -> Floats:
        """The classifier's scores, (pairs, classes)."""
        if self.loss is None:
            raise ValueError("vectors have no classes; pass loss=, the SoftmaxLoss that was trained with the model")
        table = torch.from_numpy(vectors.of_texts([*self._first, *self._second], self._prompt))
        table = table.reshape(2, len(self._first), -1)  # (2, pairs, dim)
        device = self.loss.classifier.weight.device
        with torch.no_grad():
            parts = [self.loss.scores(*part.to(device)).cpu() for part in torch.split(table, _ROWS, 1)]
            return torch.cat(parts).numpy()


class PairClassificationEvaluator(_OfRows):
    """Binary classification of pairs by a threshold on their similarity, such as paraphrase or not.

    Average precision needs no threshold. Accuracy and F1 are each at the threshold that is best on these same pairs;
    precision and recall are at the threshold of F1. Pairs at the threshold or above are predicted positive. For a
    ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        labels: 1 for positive pairs, 0 for negative pairs.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; ``"maxsim"`` of multi-vector encoders.
            Default: that of sparse and multi-vector encoders, else the cosine.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, a label is not 0 or 1, all labels are equal, or the similarity is unknown.
        TypeError: If a text is not a str.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import PairClassificationEvaluator
        >>> model = SentenceEncoder()
        >>> evaluator = PairClassificationEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [1, 0])
        >>> evaluator(model)["average_precision"]
        1.0
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        labels: Iterable[int],
        similarity: str | None = None,
        *,
        prompt: str | None = None,
    ) -> None:
        self._labels = check_labels("labels", labels)
        self._first, self._second = check_text_columns(2, {"first": first, "second": second}, labels=self._labels)
        self._similarity, self._prompt = similarity and check_similarity(similarity, ALL_SIMILARITIES), prompt
        if (classes := set(self._labels.tolist())) != {0, 1}:
            raise ValueError(f"the labels are {sorted(classes)[:5]}; pass 1 for some pairs and 0 for others")

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """Average precision, and accuracy and F1 at their best thresholds."""
        similarities = compare_pairs(vectors, self._first, self._second, self._similarity, self._prompt)
        accuracy_threshold, best_accuracy = metrics.best_threshold(similarities, self._labels, "accuracy")
        f1_threshold, best_f1 = metrics.best_threshold(similarities, self._labels, "f1")
        predicted = similarities >= f1_threshold
        return {
            "average_precision": metrics.average_precision(similarities, self._labels),
            "accuracy": best_accuracy,
            "accuracy_threshold": accuracy_threshold,
            "f1": best_f1,
            "f1_threshold": f1_threshold,
            "precision": metrics.precision(predicted, self._labels),
            "recall": metrics.recall(predicted, self._labels),
        }


def score_pairs(vectors: ModelVectors, first: Sequence[str], second: Sequence[str]) -> Floats:
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


def compare_pairs(
    vectors: ModelVectors, first: Sequence[str], second: Sequence[str], similarity: str | None, prompt: str | None
) -> Floats:
    """The similarities of pairs; for a cross-encoder, its scores.

    Similarities are computed in float64, so that equal vectors have a cosine of exactly 1 and the same rank. In
    float32, their cosines would differ by about 1e-7, and their ranks would be random.

    Shape:
        Output: (pairs,).
    """
    if vectors.is_cross_encoder:
        return score_pairs(vectors, first, second)
    halves, name = np.split(vectors([*first, *second], prompt=prompt), 2), vectors.choose_similarity(similarity)
    scores = []
    for low in range(0, len(first), _STEP):
        u, v = ([vector.astype(float) for vector in half[low : low + _STEP]] for half in halves)
        scores.append(pairwise_similarity(u, v, name))
    return np.concatenate(scores).astype(np.float32)


def score_candidates(
    vectors: ModelVectors,
    queries: Sequence[str],
    candidates: Sequence[Sequence[str]],
    similarity: str | None,
    prompts: tuple[str | None, str | None],
) -> list[Floats]:
    """The similarities of each query and its own candidates; for a cross-encoder, its scores.

    Shape:
        Output: (candidates of the query,) for each query.
    """
    texts = [text for listed in candidates for text in listed]
    if vectors.is_cross_encoder:
        first = [query for query, listed in zip(queries, candidates, strict=True) for _ in listed]
        return np.split(score_pairs(vectors, first, texts), np.cumsum(list(map(len, candidates)))[:-1])
    asked = vectors(queries, "query", prompts[0])  # (queries, dim)
    vectors(texts, "document", prompts[1])  # One call that encodes all texts; later calls read those of one query.
    documents = (vectors(listed, "document", prompts[1]) for listed in candidates)
    compare = ALL_SIMILARITIES[vectors.choose_similarity(similarity)]
    return [compare(*pair)[0] for pair in zip(asked, documents, strict=True)]
