"""What the card of a trained model says of its training."""

from __future__ import annotations

import inspect
import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from sbert.saving.model_card import Training
from sbert.training.batches import Dataset
from sbert.training.config import TrainingConfig
from sbert.training.dataset import Rows
from sbert.training.lazy_rows import StreamedRows

# Rows that are shown of each data set, characters of each value, and lines of the table of losses.
_SHOWN, _CHARACTERS, _POINTS = 3, 120, 12
_HOUSEKEEPING = ("output", "timeout", "log_every", "keep", "evaluate_every", "checkpoint_every")


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
    parts = ["## Training", _data(datasets), _losses(datasets), _settings(config), _curve(history)]
    if results := _results(history):
        parts.append(results)
    parts.append(_environment(device, ranks))
    evaluations = [entry["evaluation"] for entry in history if "evaluation" in entry]
    return Training(base, "\n\n".join(parts), dict(evaluations[-1]) if evaluations else {})


def cell(value: object, limit: int = _CHARACTERS) -> str:
    r"""A value as text in a Markdown table: on one line, without markup, and not longer than the limit.

    Example:
        >>> cell("a | b\n<b>c</b>")
        'a &#124; b &lt;b&gt;c&lt;/b&gt;'
    """
    text = " ".join(str(value).split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    marks = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{mark: f"&#{ord(mark)};" for mark in "|`*_[]\\$"}}
    return "".join(marks.get(character, character) for character in text)


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _data(datasets: Mapping[str, Dataset]) -> str:
    parts = ["### Data"]
    for name, dataset in datasets.items():
        rows = dataset.rows
        head = rows if isinstance(rows, Rows) else rows.head
        count = "a stream of rows" if isinstance(rows, StreamedRows) else f"{len(rows):,} rows"
        lines = [list(map(cell, head.cells(row))) for row in range(min(_SHOWN, len(head)))]
        columns = [cell(names[0]) for names in rows.names]
        columns += [] if head.labels is None else ["label"]
        parts += [f"**{cell(name)}**: {count}, such as", _table(columns, lines)]
        if rows.words:
            parts.append(f"Classes: {', '.join(f'{i} = {cell(word)}' for i, word in enumerate(rows.words))}.")
    return "\n\n".join(parts)


def _losses(datasets: Mapping[str, Dataset]) -> str:
    rows = []
    for name, dataset in datasets.items():
        loss = dataset.rows.loss
        source = re.search(r"References:\n((?:[ ]+.+\n?)+)", inspect.getdoc(loss) or "")
        called = repr(loss) if isinstance(loss, nn.Module) else dataset.rows.signature.name
        called = called.replace("(registered): ModuleList", "of ")  # As nested losses are shown.
        rows.append([cell(name), cell(called, 1000), " ".join(source[1].split()) if source else ""])
    return "### Losses\n\n" + _table(["data", "loss", "source"], rows)


def _settings(config: TrainingConfig) -> str:
    defaults = {field.name: field.default for field in fields(TrainingConfig)}
    always = ("batch_size", "learning_rate", "optimizer", "schedule", "warmup", "seed", "dtype")
    shown = [
        [f"`{name}`", cell(getattr(value, "__name__", value))]
        for name, value in asdict(config).items()
        if name not in _HOUSEKEEPING and (name in always or value != defaults[name])
    ]
    return "### Settings\n\n" + _table(["`TrainingConfig`", ""], shown)


def _curve(history: Sequence[Mapping[str, Any]]) -> str:
    steps = [entry for entry in history if "loss" in entry]
    every = max(1, -(-len(steps) // _POINTS))
    chosen = steps[every - 1 :: every]
    if steps and chosen[-1:] != steps[-1:]:
        chosen.append(steps[-1])
    return "### Loss\n\n" + _table(["step", "mean loss"], [[entry["step"], f"{entry['loss']:.4f}"] for entry in chosen])


def _results(history: Sequence[Mapping[str, Any]]) -> str:
    evaluations = [entry for entry in history if "evaluation" in entry]
    if not evaluations:
        return ""
    first, last = evaluations[0], evaluations[-1]
    head = ["score", *dict.fromkeys(f"step {entry['step']}" for entry in (first, last))]
    several = [first] if first is last else [first, last]
    scores = {name: [entry["evaluation"].get(name, math.nan) for entry in several] for name in last["evaluation"]}
    rows = [[cell(name), *(f"{score:.4f}" for score in listed)] for name, listed in scores.items()]
    return "### Evaluation\n\n" + _table(head[: 1 + len(several)], rows)


def _environment(device: torch.device, ranks: int) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {platform.machine()}"
    packages = ", ".join(f"{package} {version(package)}" for package in ("sbert", "torch", "transformers"))
    return f"### Environment\n\n{ranks} × {cell(name)}; Python {platform.python_version()}, {packages}."
