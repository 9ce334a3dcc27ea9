"""paired_bootstrap against the normal approximation, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from sbert.evaluation import paired_bootstrap


def test_the_interval_is_that_of_the_mean_of_many_queries() -> None:
    rng = np.random.default_rng(0)
    shared = rng.random(800)
    a, b = shared + 0.05 * rng.standard_normal(800), shared + 0.05 * rng.standard_normal(800)
    found, deviation = paired_bootstrap(a, b), 1.96 * np.std(a - b) / np.sqrt(800)
    assert found.mean == pytest.approx(np.mean(a - b))
    assert (found.low, found.high) == pytest.approx(
        (found.mean - deviation, found.mean + deviation), abs=0.1 * deviation
    )
    assert paired_bootstrap(a, b) == found
    narrower = paired_bootstrap(a, b, confidence=0.5)
    assert found.low < narrower.low < narrower.high < found.high


def test_what_all_queries_have_in_common_does_not_count() -> None:
    """Queries differ much, systems little: only pairs show it."""
    shared = np.random.default_rng(1).random(50)
    assert paired_bootstrap(shared + 0.01, shared).visible
    assert paired_bootstrap(shared, shared + 0.01).visible
    assert not paired_bootstrap(shared, shared).visible
    assert not paired_bootstrap(shared + 0.01, np.random.default_rng(2).random(50)).visible


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0], [0.0]), {}, "2"),
        (([1.0, 0.5], [0.0]), {}, "2"),
        (([1.0, float("inf")], [0.0, 1.0]), {}, r"a\[1\] is inf"),
        (([1.0, 0.5], [0.0, 1.0]), {"confidence": 95}, "confidence=95 is not possible"),
        (([1.0, 0.5], [0.0, 1.0]), {"resamples": 0}, "resamples=0"),
    ],
)
def test_refuses(arguments: tuple[list[float], list[float]], options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(*arguments, **options)
