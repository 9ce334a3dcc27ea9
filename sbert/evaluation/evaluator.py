"""The interface of evaluators: they measure a model by the vectors of texts."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from sbert.distributed.ranks import ALONE, Ranks
from sbert.evaluation.results import write_line
from sbert.evaluation.vectors import Vectors

# What a ``Trainer`` takes as its evaluator: a function of a model that returns one score, or several by name.
Evaluate = Callable[[Any], "float | Mapping[str, float]"]


class Evaluator(ABC):
    """Computes the metrics of a model, by name; call it with a model, or pass it to a ``Trainer``.

    To write your own, implement ``measure``. A ``Trainer`` also takes any function of a model, but only an Evaluator
    can run in several processes and share vectors with other evaluators.

    Example:
        >>> class MeanLength(Evaluator):
        ...     def measure(self, vectors):
        ...         return {"length": float(np.linalg.norm(vectors(["A cat.", "A dog."]), axis=1).mean())}
        >>> round(MeanLength()(model)["length"], 3)
        1.0
    """

    @abstractmethod
    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The metrics by name. The first decides which model is the best; higher is better."""

    def __call__(
        self,
        model: Any,
        *,
        output: str | os.PathLike[str] | None = None,
        ranks: Ranks = ALONE,
        show_progress_bar: bool | None = False,
    ) -> dict[str, float]:
        """Measure a model, and return its metrics by name.

        Args:
            model: A ``SentenceEncoder``, its ``pool``, or any object with ``encode(list of str)``; for evaluators of
                pairs also a ``CrossEncoder``, or any object with ``predict(list of pairs)``.
            output: A file to which one line is added: CSV if it ends in ``.csv``, else JSONL.
            ranks: The processes that share the work, all of which must call this; a ``Trainer`` passes its own.
            show_progress_bar: As in ``encode``.

        Raises:
            OSError: If ``output`` cannot be written.
            ValueError: If the model returns NaN or infinity, or ``output`` is a CSV file with other columns.
        """
        values = self.measure(Vectors(model, ranks, show_progress_bar))
        metrics = {name: float(value) for name, value in values.items()}
        if output is not None:
            when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            name = getattr(model, "name_or_path", type(model).__name__)
            about = {"time": when, "model": name, "evaluator": type(self).__name__}
            # An error here is raised on all ranks, so that none of them continues alone.
            ranks.run_on_main(lambda: write_line(output, {**about, **metrics}))
        return metrics


class SequentialEvaluator(Evaluator):
    """Runs several evaluators in sequence; texts that they have in common are encoded once.

    Args:
        evaluators: The evaluators by name; each metric is called ``name_metric``. The first metric of the first
            evaluator decides which model is the best.

    Raises:
        TypeError: If ``evaluators`` is not a dict of one or more ``Evaluator``.

    Example:
        >>> from sbert.evaluation import SimilarityEvaluator
        >>> first = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> second = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "A dog."], [4.5, 3])
        >>> SequentialEvaluator({"far": first, "near": second})(model)["far_spearman"]
        1.0
    """

    def __init__(self, evaluators: Mapping[str, Evaluator]) -> None:
        if not isinstance(evaluators, Mapping) or not evaluators:
            raise TypeError(f"evaluators is {evaluators!r:.60}; pass a dict of one or more by name")
        for name, evaluator in evaluators.items():
            if not isinstance(evaluator, Evaluator):
                raise TypeError(f"evaluators[{name!r}] is {evaluator!r:.60}; pass an instance of Evaluator")
        self._evaluators = dict(evaluators)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The metrics of all evaluators."""
        return {
            f"{name}_{metric}": value
            for name, evaluator in self._evaluators.items()
            for metric, value in evaluator.measure(vectors).items()
        }
