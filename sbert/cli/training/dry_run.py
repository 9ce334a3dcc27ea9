"""``sbert train --dry-run``: what a run would do, and how long it would take, from a few steps of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from sbert.training import Callback, Progress, Trainer
from sbert.training.lazy_rows import StreamedRows

_MEASURED = 3


class _Clock(Callback):
    """Ends a run after a first step and those that are measured."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.total = 0

    def on_step(self, progress: Progress) -> None:
        self.times.append(time.perf_counter())
        self.total = progress.total
        if len(self.times) > _MEASURED:
            progress.stop()


def plan(trainer: Trainer) -> Iterator[str]:
    """The lines of the plan; takes up to four steps with the trainer, whose config must have no output."""
    config = trainer.config
    for name, dataset in trainer.batches.datasets.items():
        rows = "a stream" if isinstance(dataset.rows, StreamedRows) else f"{len(dataset.rows):,} rows"
        loss = " ".join(repr(dataset.rows.loss).split())[:200]
        columns = ", ".join(names[0] for names in dataset.rows.names)
        yield (
            f"{name}: {rows} of {columns}; {loss}; batches of {config.size_of(name)}, sampler {config.sampler_of(name)}"
        )
    parameters = list(trainer.model.parameters())
    weights = sum(weight.numel() for weight in parameters)
    trained = sum(weight.numel() for weight in parameters if weight.requires_grad)
    yield f"model: {weights:,} weights, {trained:,} trained, on {trainer.model.device}"
    measured = _evaluation(trainer)
    evaluator, trainer.evaluator = trainer.evaluator, None
    clock = _Clock()
    trainer.callbacks = [clock]
    trainer.fit(show_progress_bar=False)
    steps = [after - before for before, after in zip(clock.times, clock.times[1:], strict=False)]
    if not steps:
        yield "1 step; too few to estimate the time"
        return
    each = statistics.median(steps)
    every = config.evaluate_every or trainer.batches.epoch_steps
    count = 0 if evaluator is None else -(-clock.total // every) + config.evaluate_first
    yield (
        f"{clock.total:,} steps of {each:.3f} s (median of {len(steps)}): {_duration(each * clock.total)}; {count}"
        f" evaluations of {measured:.1f} s: {_duration(count * measured)}"
    )
    yield f"memory: {_peak(trainer):.1f} GiB at most in these steps"


def _evaluation(trainer: Trainer) -> float:
    """Seconds of one evaluation."""
    given = trainer.evaluator
    started = time.perf_counter()
    for evaluate in given.values() if isinstance(given, Mapping) else filter(None, [given]):
        evaluate(trainer.model)
    return time.perf_counter() - started


def _peak(trainer: Trainer) -> float:
    """Maximum memory so far, in GiB: that of the device, or of the process."""
    import torch

    device: Any = trainer.model.device
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _duration(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> _duration(3.2), _duration(190), _duration(9000)
        ('3 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
