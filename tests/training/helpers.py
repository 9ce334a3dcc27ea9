"""A tiny model, rows and runs that the tests of training share."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.distributed.ranks import leave
from sbert.training import Callback
from sbert.training.callbacks import Progress
from tests import small
from tests.children import in_child

WORDS = " ".join(small.CORPUS[:2]).split()


def tiny() -> SentenceEncoder:
    """A BERT of two layers with dropout, always with the same weights."""
    transformer = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    return SentenceEncoder(transformer, Pooling("mean"), device="cpu")


def load(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


def without_dropout(model: SentenceEncoder) -> SentenceEncoder:
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    model[0].auto_model.config.attention_probs_dropout_prob = 0.0
    return model


def pairs(count: int, labelled: bool = True) -> list[tuple[Any, ...]]:
    """Pairs of sentences of one to six words; labels 0, 0.5 and 1."""
    chance = random.Random(0)
    rows = []
    for i in range(count):
        first, second = (" ".join(chance.choices(WORDS, k=chance.randint(1, 6))) for _ in range(2))
        rows.append((first, second, i % 3 / 2) if labelled else (first, second))
    return rows


def triples(count: int) -> list[tuple[str, str, int]]:
    """The same pairs with classes 0, 1 and 2."""
    return [(first, second, i % 3) for i, (first, second, _) in enumerate(pairs(count))]


def records(count: int) -> list[dict[str, Any]]:
    return [{"first": a, "second": b, "label": label} for a, b, label in pairs(count)]


def ranking(anchor: Tensor, positive: Tensor, *negatives: Tensor) -> Tensor:
    return (anchor - positive).square().mean()


def regression(first: Tensor, second: Tensor, labels: Tensor | None = None) -> Tensor:
    return (torch.cosine_similarity(first, second) - (1 if labels is None else labels)).square().mean()


def fit(model: SentenceEncoder, data: Any, loss: Any, resume: bool = False, **settings: Any) -> list[dict[str, Any]]:
    """The history of a training with these settings of ``TrainingConfig`` and ``Trainer``."""
    names = ("evaluator", "evaluation_data", "callbacks", "columns", "label", "guide")
    others = {name: settings.pop(name) for name in names if name in settings}
    trainer = Trainer(model, data, loss, TrainingConfig(**settings), **others)
    return trainer.fit(resume=resume, show_progress_bar=False)


def weights(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> None:
    """All but the biases of keys, whose gradient is 0 but for rounding, which Adam blows up."""
    for (name, one), two in zip(a.named_parameters(), b.parameters(), strict=True):
        if "key.bias" not in name:
            torch.testing.assert_close(one, two, rtol=0, atol=2e-5, msg=lambda words, name=name: f"{name}: {words}")


class Kill(Callback):
    """Ends the process at a step, as kill -9 does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, progress: Progress) -> None:
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def start_two_ranks(run: Callable[[int], object]) -> list[int]:
    """Run in two forked children, with the environment that torchrun gives them; their numbers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]

    def work(rank: int) -> None:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        run(rank)
        leave()

    return [in_child(partial(work, rank)) for rank in range(2)]


def run_two_ranks(run: Callable[[int], object]) -> None:
    """Run in two forked children, which end well."""
    assert [os.waitpid(child, 0)[1] for child in start_two_ranks(run)] == [0, 0]
