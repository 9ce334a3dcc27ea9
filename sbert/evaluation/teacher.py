"""MSEEvaluator: how near a student's vectors are to a teacher's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.evaluation.checks import check_finite, check_lengths
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.vectors import Vectors
from sbert.inputs.texts import texts_of


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
        TypeError: If a text is not a str, or the teacher has no vectors.

    References:
        Reimers and Gurevych, 2020, section 3. https://arxiv.org/abs/2004.09813

    Example:
        >>> figures = MSEEvaluator(["A cat sleeps.", "Taxes rise."], model)(model)
        >>> {name: round(figure, 6) for name, figure in figures.items()}
        {'negative_mse': 0.0, 'cosine': 1.0}
    """

    def __init__(
        self,
        source: Iterable[str],
        teacher: Any | npt.ArrayLike,
        target: Iterable[str] | None = None,
        *,
        prompt: str | None = None,
    ) -> None:
        read = texts_of(source, "source")
        self._texts, self._prompt = read if target is None else texts_of(target, "target"), prompt
        self._teacher = Vectors(teacher)(read) if hasattr(teacher, "encode") else np.asarray(teacher, np.float32)
        if self._teacher.ndim != 2:
            raise ValueError(f"the teacher's vectors have the shape {self._teacher.shape}; pass (texts, dim)")
        check_lengths(1, source=read, target=self._texts, vectors=self._teacher)
        check_finite("teacher", self._teacher.ravel())

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The negative error, and the mean cosine."""
        student, teacher = vectors(self._texts, prompt=self._prompt).astype(float), self._teacher.astype(float)
        if student.shape != teacher.shape:
            dims = f"the student's vectors have dimension {student.shape[1]}, the teacher's {teacher.shape[1]}"
            raise ValueError(f"{dims}; project one of them, as sbert.losses.EmbeddingDistillationLoss does")
        lengths = np.linalg.norm(student, axis=1) * np.linalg.norm(teacher, axis=1)
        cosines = (student * teacher).sum(1) / np.maximum(lengths, 1e-12)
        return {"negative_mse": 0.0 - float(np.mean((student - teacher) ** 2)), "cosine": float(cosines.mean())}
