"""The evaluations of a run: one evaluator or several, and which of the scores is the best so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate, Evaluator
from sbert.pipeline.eval_mode import evaluating
from sbert.training.config import TrainingConfig


class Evaluation:
    """Measures the model of a run.

    Args:
        evaluator: A function of the model, or several by name; None for none.
        config: Names the score that decides which model is the best.
        ranks: The processes that train together.
        best: The name and the value of the best score so far.
    """

    def __init__(
        self,
        evaluator: Evaluate | Mapping[str, Evaluate] | None,
        config: TrainingConfig,
        ranks: Ranks,
        best: list[Any] | None,
    ) -> None:
        self._given = {} if evaluator is None else evaluator if isinstance(evaluator, Mapping) else {"": evaluator}
        self._exists = evaluator is not None
        self._config, self._ranks = config, ranks
        self.best: list[Any] | None = best

    def __bool__(self) -> bool:
        return self._exists

    def measure(self, model: Any) -> dict[str, float]:
        """The scores by name; those of one of several evaluators are called ``name_score``."""
        scores: dict[str, float] = {}
        for name, evaluator in self._given.items():
            result = self._ranks.together(partial(self._call, evaluator, model))
            named = dict(result) if isinstance(result, Mapping) else {"score": float(result)}
            own = {f"{name}_{metric}" if name else metric: float(score) for metric, score in named.items()}
            if twice := scores.keys() & own.keys():
                raise ValueError(f"several evaluators give {', '.join(sorted(twice))}; give them other names")
            scores |= own
        return scores

    def _call(self, evaluator: Evaluate, model: Any) -> float | Mapping[str, float]:
        with evaluating(model):
            if isinstance(evaluator, Evaluator):
                return evaluator(model, ranks=self._ranks)
            return evaluator(model) if self._ranks.first else {}  # A plain function knows nothing of ranks.

    def rank(self, scores: Mapping[str, float]) -> bool:
        """Whether these scores are the best so far, which they then are for the next ones.

        Raises:
            ValueError: If the score that decides is not among them.
        """
        metric = self._config.metric or next(iter(scores), "")
        if metric not in scores:
            raise ValueError(f"metric={metric!r} is not among the evaluator's {', '.join(scores) or 'scores: none'}")
        sign = -1 if self._config.lower_is_better(metric) else 1
        best = sign * self.best[1] if self.best is not None and self.best[0] == metric else -math.inf
        improved = sign * scores[metric] > best  # False for NaN.
        if improved:
            self.best = [metric, scores[metric]]
        return improved
