"""The bar of a training shows the last evaluation, and its units per second."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.pipeline.progress import progress_bar
from tests import small


def test_the_training_bar_shows_the_last_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = iter((0.125, 0.5, 0.25))

    def evaluator(model: Any) -> dict[str, float]:
        return {"accuracy": 0.75, "spearman": next(figures)}

    def loss(anchor: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
        return (anchor - positive).square().mean()

    model = SentenceEncoder(small.bert(tmp_path / "bert"), device="cpu")
    rows = [("a small boat", "the lake"), ("the red fox", "a hill")] * 3
    config = TrainingConfig(
        output=tmp_path / "out", batch_size=2, steps=3, evaluate_every=1, log_every=1, metric="spearman"
    )
    Trainer(model, rows, loss, config, evaluator=evaluator).fit(show_progress_bar=True)
    said = capsys.readouterr().err.replace("\n", "\r").split("\r")
    for step, figure in ((1, "0.1250"), (2, "0.5000"), (3, "0.2500")):
        assert any(f"spearman {figure} at step {step}" in line for line in said)
    last = [line for line in said if line.strip()][-1]
    assert "| 3/3 [" in last
    assert "spearman 0.2500 at step 3" in last
    assert re.search(r"[\d.]+ steps/s, loss \d", last)


def test_a_slow_bar_counts_units_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    for unit, options in ((" steps", {"total": 10}), (" sentences", {"total": None})):
        bar = progress_bar(True, unit=unit, desc="Training", **options)
        line = bar.format_meter(**{**bar.format_dict, "n": 3, "elapsed": 3.36, "rate": 1 / 1.12})
        bar.close()
        assert f" 0.89{unit}/s" in line
        assert "s/ " not in line
    assert "s/ " not in capsys.readouterr().err
