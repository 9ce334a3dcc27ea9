"""A training program for tests of processes: python -m tests.training.program MODEL OUTPUT [name=value …]."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import torch

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import SoftmaxLoss
from sbert.training import Ranks
from tests.training.test_training import pairs, weights


def main(model_folder: str, output: str, *settings: str) -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 8, "log_every": 1, "steps": 26}
    options.update({name: json.loads(value) for name, value in (setting.split("=") for setting in settings)})
    if (tokens := options.pop("tokens", None)) is not None:  # At once, without caching.
        module: Any = importlib.import_module("sbert.training.backward")
        module.default_batch_tokens = lambda device: tokens
    evaluator: Any = SimilarityEvaluator(*zip(*pairs(30), strict=True)) if options.pop("similarity", False) else total
    model = SentenceEncoder(model_folder, device="cpu")
    torch.manual_seed(0)
    loss = SoftmaxLoss(16, 3)
    data = [(first, second, row % 3) for row, (first, second, _) in enumerate(pairs(101))]
    trainer = Trainer(model, data, loss, TrainingConfig(output=output, **options), evaluator=evaluator)
    trainer.fit(resume=True, show_progress_bar=False)
    if Ranks.join().first:
        torch.save(weights(loss), f"{output}/loss.pt")


def total(model: SentenceEncoder) -> float:
    """Some figure of the vectors."""
    return float(model.encode(["a small boat", "lake"]).sum())


if __name__ == "__main__":
    main(*sys.argv[1:])
