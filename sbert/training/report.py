"""What a training run reports: its history, as a JSONL file and beside the progress bar, and the card of the model."""

from __future__ import annotations

import inspect
import json
import math
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from importlib.metadata import version
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from sbert.pipeline.progress import progress_bar
from sbert.saving.model_card import Training
from sbert.storage.atomic import write_text
from sbert.training.batches import Dataset
from sbert.training.checkpoint import explain_failure
from sbert.training.config import TrainingConfig

_FILE = "history.jsonl"
_EVERY = 0.2  # Seconds between two updates of the bar.
# Rows that are shown of each data set, characters of each value, and lines of the table of losses.
_SHOWN, _CHARACTERS, _POINTS = 3, 120, 12
_HOUSEKEEPING = ("output", "timeout", "log_every", "keep", "evaluate_every", "checkpoint_every")
_ALWAYS = ("batch_size", "learning_rate", "optimizer", "schedule", "warmup", "seed", "dtype")


class Log:
    """The history of a training run: one dict every few steps, and one for each evaluation.

    Args:
        output: Folder of the file ``history.jsonl``, to which every entry is added; None for no file.
        total: Total number of steps.
        done: Number of steps already done. Lines of the file after this step are removed: those steps run again.
        losses: Those of steps before ``done`` that are not in a line yet, dicts by name.
        show: Whether to show a progress bar; None to decide by the terminal.
        config: The settings of the training, for the score that decides.
    """

    def __init__(
        self, output: Path | None, total: int, done: int, losses: list[Any], show: bool | None, config: TrainingConfig
    ) -> None:
        self.output, self.waiting, self.config = output, losses, config
        self.history: list[dict[str, Any]] = [] if output is None else _reopen(output / _FILE, done)
        self._last: dict[str, Any] = {}
        self._sentences, self._seconds = 0, 0.0
        self._all = [0.0, 0.0]  # Sentences and seconds of all steps.
        options: dict[str, Any] = {"total": total, "initial": done, "unit": " steps", "mininterval": _EVERY}
        # In a file, a bar would be one line per update.
        self._bar: Any = None if show is False else progress_bar(None, desc="Training", **options)
        self._prints = show or not (self._bar is None or self._bar.disable)

    def count_step(self, step: int, metrics: dict[str, float], sentences: int, seconds: float) -> None:
        """Count a finished step."""
        self.waiting.append({name: value for name, value in metrics.items() if name.startswith("loss")})
        self._last = {"step": step, **metrics}
        self._sentences += sentences
        self._seconds += seconds
        self._all = [self._all[0] + sentences, self._all[1] + seconds]
        if self._bar is not None:
            self._bar.update(1)

    def add_steps(self) -> None:
        """Add an entry for the steps that have none, if there are any."""
        if self.waiting and self._last:
            names = sorted(set().union(*self.waiting))  # A data set may have no batch in a step.
            means = {name: fmean(losses[name] for losses in self.waiting if name in losses) for name in names}
            self._mean, speed = means["loss"], round(self._sentences / self._seconds, 1)
            self.add({**self._last, **means, "sentences_per_second": speed})
            self.waiting, self._sentences, self._seconds = [], 0, 0.0

    def add(self, entry: dict[str, Any], is_best: bool = False) -> None:
        """Add an entry to the history and to the file; an evaluation is printed, the loss is shown beside the bar."""
        self.history.append(entry)
        if self.output is not None:
            with explain_failure(self.output, _FILE), (self.output / _FILE).open("a", encoding="utf-8") as file:
                file.write(_as_line(entry))
        if "evaluation" in entry:
            self._print_evaluation(entry, is_best)
        elif self._bar is not None:
            losses = [f"{name} {value:.4f}" for name, value in entry.items() if name.startswith("loss")]
            self._bar.set_postfix_str(", ".join(losses), refresh=False)

    def _print_evaluation(self, entry: dict[str, Any], is_best: bool) -> None:
        """Print some scores, that which decides first: in percent, but for losses and what is no share of 1."""
        scores, parts = entry["evaluation"], [f"step {entry['step']:,}"]
        for name in sorted(scores, key=lambda name: name != self.config.metric)[:_SHOWN]:
            is_share = abs(scores[name]) <= 1 and not name.endswith(("loss", "mse"))
            parts.append(f"{name} {100 * scores[name]:.1f}" if is_share else f"{name} {scores[name]:.4f}")
        self._print([*parts, *["best"] * is_best])

    def _print(self, parts: Iterable[str]) -> None:
        """Print a line above the bar, or where it would be."""
        if self._prints:
            self._bar.write(" | ".join(parts), file=getattr(self._bar, "fp", sys.stderr))

    def close(self) -> None:
        """Stop the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def summarize(self, seconds: float) -> None:
        """Print the steps, time and speed of this run, and the last loss."""
        if not self._last:
            return
        spent, rate = timedelta(seconds=round(seconds)), self._all[0] / self._all[1]
        self._print((f"{self._last['step']:,} steps", str(spent), f"{rate:,.0f} sentences/s", f"loss {self._mean:.4f}"))


def _reopen(path: Path, start: int) -> list[dict[str, Any]]:
    """The entries of a history up to a step; the file then ends with them."""
    history: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if start and path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # An incomplete line: the process was killed while it wrote.
            break
        if entry["step"] > start:
            break
        history.append(entry)
    write_text(path, "".join(map(_as_line, history)))
    return history


def _as_line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def training_card(
    base: str,
    datasets: Mapping[str, Dataset],
    config: TrainingConfig,
    history: Sequence[Mapping[str, Any]],
    device: torch.device,
    ranks: int,
) -> Training:
    """The sections about training for the card of a model, and the results for its header.

    Args:
        base: Name or folder of the model at the start; empty if it was made in memory.
        datasets: The data sets by name.
        config: The settings.
        history: What ``fit`` returns.
        device: Device of the training.
        ranks: Number of processes.
    """
    parts, losses = ["## Training", "### Data"], []
    for name, dataset in datasets.items():
        rows, head = dataset.rows, dataset.rows.head
        count, examples = "a stream of rows" if rows.is_stream else f"{len(rows):,} rows", head.cells(_SHOWN)
        columns = [*map(itemgetter(0), rows.names), *["label"] * (head.labels is not None)]
        parts += [f"**{cell(name)}**: {count}, such as", _show_table(columns, examples)]
        if rows.class_names:
            parts.append(f"Classes: {', '.join(f'{i} = {cell(label)}' for i, label in enumerate(rows.class_names))}.")
        source = re.search(r"References:\n((?:[ ]+.+\n?)+)", inspect.getdoc(rows.loss) or "")
        loss = rows.loss_name.replace("(registered): ModuleList", "of ")  # As nested losses are shown.
        losses.append((name, loss, " ".join(source[1].split()) if source else ""))
    parts += ["### Losses", _show_table(("data", "loss", "source"), losses, 1000)]
    settings = []
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in _HOUSEKEEPING and (field.name in _ALWAYS or value != field.default):
            settings.append((field.name, getattr(value, "__name__", value)))
    parts += ["### Settings", _show_table(("TrainingConfig", ""), settings)]
    evaluations = [entry for entry in history if "evaluation" in entry]
    last: Mapping[str, float] = evaluations[-1]["evaluation"] if evaluations else {}
    if last:
        both = [evaluations[0], *evaluations[1:][-1:]]  # The first and the last.
        scores = [(name, *(f"{entry['evaluation'].get(name, math.nan):.4f}" for entry in both)) for name in last]
        parts += ["### Evaluation", _show_table(("score", *(f"step {entry['step']}" for entry in both)), scores)]
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {platform.machine()}"
    packages = "sbert {}, torch {}, transformers {}".format(*map(version, ("sbert", "torch", "transformers")))
    parts += ["### Environment", f"{ranks} × {cell(processor)}; Python {platform.python_version()}, {packages}."]
    return Training(base, "\n\n".join(parts), dict(last))


def cell(value: object, limit: int = _CHARACTERS) -> str:
    r"""A value as text in a Markdown table: on one line, without markup, and not longer than the limit.

    Example:
        >>> from sbert.training.report import cell
        >>> cell("a | b\n<b>c</b>")
        'a &#124; b &lt;b&gt;c&lt;/b&gt;'
    """
    text = " ".join(str(value).split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.translate(_ESCAPES)


_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", **{mark: f"&#{ord(mark)};" for mark in "|`*_[]\\$"}})


def _show_table(head: Sequence[object], rows: Iterable[Sequence[object]], limit: int = _CHARACTERS) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join([f"| {' | '.join(map(cell, line, repeat(limit)))} |" for line in lines])
