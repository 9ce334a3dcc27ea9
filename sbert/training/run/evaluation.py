"""The evaluations of a run: one evaluator or several, and which of the scores is the best so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate, Evaluator
from sbert.pipeline.encode import evaluating
from sbert.training.config import TrainingConfig


def measure(evaluators: Evaluate | Mapping[str, Evaluate], model: Any, ranks: Ranks) -> dict[str, float]:
    """The scores by name, on all ranks together; those of one of several evaluators are called ``name_score``."""
    scores: dict[str, float] = {}
    for name, evaluator in (evaluators if isinstance(evaluators, Mapping) else {"": evaluators}).items():
        result = ranks.together(partial(_call, evaluator, model, ranks))
        named = dict(result) if isinstance(result, Mapping) else {"score": float(result)}
        own = {f"{name}_{metric}" if name else metric: float(score) for metric, score in named.items()}
        if twice := scores.keys() & own.keys():
            raise ValueError(f"several evaluators give {', '.join(sorted(twice))}; give them other names")
        scores |= own
    return scores


def _call(evaluator: Any, model: Any, ranks: Ranks) -> float | Mapping[str, float]:
    with evaluating(model):
        if isinstance(evaluator, Evaluator):
            return evaluator(model, ranks=ranks)
        result: float | Mapping[str, float] = evaluator(model) if ranks.first else {}  # It knows nothing of ranks.
        return result


def find_best(scores: Mapping[str, float], best: list[Any] | None, config: TrainingConfig) -> list[Any] | None:
    """The name and the value of the score that decides, if it is better than the best one so far; else None.

    Raises:
        ValueError: If the score that decides is not among them.
    """
    metric = config.metric or next(iter(scores), "")
    if metric not in scores:
        raise ValueError(f"metric={metric!r} is not among the evaluator's {', '.join(scores) or 'scores: none'}")
    sign = -1 if config.lower_is_better(metric) else 1
    before = sign * best[1] if best is not None and best[0] == metric else -math.inf
    return [metric, scores[metric]] if sign * scores[metric] > before else None  # Not for NaN.
