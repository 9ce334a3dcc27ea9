"""The history of a training run, as a JSONL file, and the progress bar."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert.pipeline.progress import progress_bar
from sbert.storage.atomic import write_text

_EVERY = 0.2  # Seconds between two updates of the bar.


@dataclass(eq=False, repr=False)
class Log:
    """The history of a training run: one dict every few steps, and one for each evaluation.

    Args:
        path: JSONL file to which every entry is added; None for no file.
        total: Total number of steps.
        start: Number of steps already done. Lines of the file after this step are removed: those steps run again.
        every: Steps between two lines.
        waiting: Losses of steps before ``start`` that are not in a line yet.
        show: Whether to show a progress bar; None to decide by the terminal.
        metric: Name of the score that the bar shows; None for the first score.
    """

    path: Path | None
    total: int
    start: int
    every: int
    waiting: list[float]
    show: bool | None
    metric: str | None = None

    def __post_init__(self) -> None:
        self.history: list[dict[str, Any]] = [] if self.path is None else _reopened(self.path, self.start)
        self._newest = {"loss" in entry: entry for entry in self.history}  # Of the steps, and of the evaluations.
        self._sentences, self._seconds = 0, 0.0
        self._last: dict[str, Any] | None = None
        count = {"total": self.total, "initial": self.start, "unit": " steps", "mininterval": _EVERY}
        self._bar = progress_bar(self.show, desc="Training", **count)
        self._show()

    def step(
        self, step: int, loss: float, rate: float, norm: float, sentences: int, seconds: float, last: bool
    ) -> None:
        """Count a finished step, and add an entry every ``every`` steps."""
        self.waiting.append(loss)
        self._last = {"step": step, "learning_rate": rate, "gradient_norm": norm}
        self._sentences += sentences
        self._seconds += seconds
        if self._bar is not None:
            self._bar.update(1)
        if step % self.every == 0 or last:
            self.flush()

    def flush(self) -> None:
        """Add an entry for the steps that have none, such as the last ones of a run that a callback has ended."""
        if not self.waiting or self._last is None:
            return
        mean, speed = sum(self.waiting) / len(self.waiting), round(self._sentences / self._seconds, 1)
        entry = {**self._last, "sentences_per_second": speed}
        self.add({"step": entry.pop("step"), "loss": mean, **entry})
        self.waiting, self._sentences, self._seconds = [], 0, 0.0

    def add(self, entry: dict[str, Any]) -> None:
        """Add an entry to the history and to the file."""
        self.history.append(entry)
        self._newest["loss" in entry] = entry
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(entry))
        self._show(refresh="evaluation" in entry)

    def _show(self, refresh: bool = False) -> None:
        """Show the newest step and the newest evaluation beside the bar."""
        if self._bar is None:
            return
        parts = []
        step, evaluation = self._newest.get(True), self._newest.get(False)
        if step:
            parts += [f"loss {step['loss']:.4f}"]
        if evaluation:
            scores = evaluation["evaluation"]
            name = self.metric if self.metric in scores else next(iter(scores))
            parts += [f"{name} {scores[name]:.4f} at step {evaluation['step']}"]
        if step:  # Last, since a narrow terminal cuts the end off.
            parts += [f"{step['sentences_per_second']:,.0f} sentences/s"]
        self._bar.set_postfix_str(", ".join(parts), refresh=refresh)

    def close(self) -> None:
        """Stop the progress bar."""
        if self._bar is not None:
            self._bar.close()


def _reopened(path: Path, start: int) -> list[dict[str, Any]]:
    """The entries of a history up to a step; the file then ends with them."""
    history: list[dict[str, Any]] = []
    path.parent.mkdir(parents=True, exist_ok=True)
    for line in path.read_text(encoding="utf-8").splitlines() if start and path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # An incomplete line: the process was killed while it wrote.
            break
        if entry["step"] > start:
            break
        history.append(entry)
    write_text(path, "".join(map(_line, history)))
    return history


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"
