"""TranslationEvaluator and MSEEvaluator, for models that learn another language, or from a teacher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metric_checks import check_finite_values, check_lengths, check_text_columns
from sbert.evaluation.model_vectors import Floats, ModelVectors
from sbert.functional import ALL_SIMILARITIES, check_similarity
from sbert.inputs.texts import texts_of
from sbert.search import semantic_search


class TranslationEvaluator(Evaluator):
    """The fraction of sentences whose own translation is the most similar of all translations, in both directions.

        accuracy = mean_i [ argmax_j s(u_i, v_j) = i ]

    If the same translation occurs several times, each of them is correct.

    Args:
        source: The sentences.
        target: The translation of each sentence.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; ``"maxsim"`` of multi-vector encoders.
            Default: that of sparse and multi-vector encoders, else the cosine.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, there are no sentences, or the similarity is unknown.
        TypeError: If a text is not a str.

    References:
        Reimers and Gurevych, 2020, section 4.3. https://arxiv.org/abs/2004.09813

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import TranslationEvaluator
        >>> model = SentenceEncoder()
        >>> TranslationEvaluator(["A cat sleeps.", "Taxes rise."], ["A cat is sleeping.", "Taxes go up."])(model)
        {'mean_accuracy': 1.0, 'source_to_target': 1.0, 'target_to_source': 1.0}
    """

    def __init__(
        self, source: Iterable[str], target: Iterable[str], similarity: str | None = None, *, prompt: str | None = None
    ) -> None:
        self._source, self._target = check_text_columns(1, {"source": source, "target": target})
        self._similarity, self._prompt = similarity and check_similarity(similarity, ALL_SIMILARITIES), prompt

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The accuracy of each direction, and their mean."""
        source, target = np.split(vectors([*self._source, *self._target], prompt=self._prompt), 2)
        similarity = vectors.choose_similarity(self._similarity)
        forward = _find_accuracy(source, target, self._target, similarity)
        backward = _find_accuracy(target, source, self._source, similarity)
        return {"mean_accuracy": (forward + backward) / 2, "source_to_target": forward, "target_to_source": backward}


def _find_accuracy(queries: Floats, corpus: Floats, texts: Sequence[str], similarity: str) -> float:
    """The fraction of queries whose most similar vector of the corpus is that of the right text."""
    nearest = semantic_search(queries, corpus, 1, similarity=similarity).indices[:, 0]
    return float(np.mean([texts[position] == right for position, right in zip(nearest, texts, strict=True)]))


class MSEEvaluator(Evaluator):
    """The mean squared error between a teacher's vectors and the student's, as a negative number: higher is better.

        negative_mse = - mean_(i, d) ( teacher(source_i)_d - student(target_i)_d )^2

    The student reads ``target``: the same texts, or their translations, if it learns another language. The mean cosine
    of the two vectors is given, too, since a small error may only mean short vectors.

    Args:
        source: The texts that the teacher reads.
        teacher: The teacher: any object with ``encode``; or its vectors, an array of (texts, dim).
        target: The texts that the student reads; by default ``source``.
        prompt: The prompt before the student's texts, instead of its default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths or dimensions differ, or a vector is not finite.
        TypeError: If a text is not a str, the teacher has no vectors, or the student gives one vector per token.

    References:
        Reimers and Gurevych, 2020, section 3. https://arxiv.org/abs/2004.09813

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import MSEEvaluator
        >>> model = SentenceEncoder()
        >>> metrics = MSEEvaluator(["A cat sleeps.", "Taxes rise."], model)(model)
        >>> {name: round(value, 6) for name, value in metrics.items()}
        {'negative_mse': 0.0, 'cosine': 1.0}
    """

    def __init__(
        self, source: Iterable[str], teacher: Any, target: Iterable[str] | None = None, *, prompt: str | None = None
    ) -> None:
        read = texts_of(source, "source")
        self._texts, self._prompt = read if target is None else texts_of(target, "target"), prompt
        self._teacher = ModelVectors(teacher)(read) if hasattr(teacher, "encode") else np.asarray(teacher, np.float32)
        if self._teacher.ndim != 2:
            raise ValueError(f"the teacher's vectors have the shape {self._teacher.shape}; pass (texts, dim)")
        check_lengths(1, source=read, target=self._texts, vectors=self._teacher)
        check_finite_values("teacher", self._teacher.ravel())

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The negative error, and the mean cosine."""
        student, teacher = vectors.of_texts(self._texts, self._prompt).astype(float), self._teacher.astype(float)
        if student.shape != teacher.shape:
            dims = f"the student's vectors have dimension {student.shape[1]}, the teacher's {teacher.shape[1]}"
            raise ValueError(f"{dims}; project one of them, as sbert.losses.EmbeddingDistillationLoss does")
        lengths = np.linalg.norm(student, axis=1) * np.linalg.norm(teacher, axis=1)
        cosines = (student * teacher).sum(1) / np.maximum(lengths, 1e-12)
        return {"negative_mse": 0.0 - float(np.mean((student - teacher) ** 2)), "cosine": float(cosines.mean())}
