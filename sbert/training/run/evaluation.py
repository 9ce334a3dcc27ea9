"""The evaluations of a run: one evaluator or several, and which of the scores is the best so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate, Evaluator
from sbert.pipeline.encode import evaluating
from sbert.training.config import TrainingConfig


@dataclass(eq=False)
class Evaluation:
    """Measures the model of a run.

    Args:
        evaluator: A function of the model, or several by name; None for none.
        config: Names the score that decides which model is the best.
        ranks: The processes that train together.
        best: The name and the value of the best score so far.
    """

    evaluator: Evaluate | Mapping[str, Evaluate] | None
    config: TrainingConfig
    ranks: Ranks
    best: list[Any] | None

    def __bool__(self) -> bool:
        return self.evaluator is not None

    def measure(self, model: Any) -> dict[str, float]:
        """The scores by name; those of one of several evaluators are called ``name_score``."""
        scores: dict[str, float] = {}
        by_name = self.evaluator if isinstance(self.evaluator, Mapping) else {"": self.evaluator}
        for name, evaluator in by_name.items():
            result = self.ranks.together(partial(self._call, evaluator, model))
            named = dict(result) if isinstance(result, Mapping) else {"score": float(result)}
            own = {f"{name}_{metric}" if name else metric: float(score) for metric, score in named.items()}
            if twice := scores.keys() & own.keys():
                raise ValueError(f"several evaluators give {', '.join(sorted(twice))}; give them other names")
            scores |= own
        return scores

    def _call(self, evaluator: Any, model: Any) -> float | Mapping[str, float]:
        with evaluating(model):
            options = {"ranks": self.ranks} if isinstance(evaluator, Evaluator) else {}
            # A plain function knows nothing of ranks.
            return evaluator(model, **options) if options or self.ranks.first else {}

    def rank(self, scores: Mapping[str, float]) -> bool:
        """Whether these scores are the best so far, which they then are for the next ones.

        Raises:
            ValueError: If the score that decides is not among them.
        """
        metric = self.config.metric or next(iter(scores), "")
        if metric not in scores:
            raise ValueError(f"metric={metric!r} is not among the evaluator's {', '.join(scores) or 'scores: none'}")
        sign = -1 if self.config.lower_is_better(metric) else 1
        best = sign * self.best[1] if self.best is not None and self.best[0] == metric else -math.inf
        improved = sign * scores[metric] > best  # False for NaN.
        if improved:
            self.best = [metric, scores[metric]]
        return improved
