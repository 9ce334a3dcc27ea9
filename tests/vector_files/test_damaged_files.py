"""Damaged journals, partial files, shards and manifests: no crash, nothing overwritten, no wrong row."""

from __future__ import annotations

from tests.benchmarks.damaged_files import run


def test_damaged_files() -> None:
    outcomes, failures = run(63, seed=1)
    assert not failures, "\n".join(failures)
    assert outcomes["refused"] > 10
    assert outcomes["right"] > 10
