"""The history of a training run, as a JSONL file, and the progress bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sbert.pipeline.progress import progress_bar
from sbert.storage.atomic import write_text

_EVERY = 0.2  # Seconds between two updates of the bar.


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

    def __init__(
        self,
        path: Path | None,
        total: int,
        start: int,
        every: int,
        waiting: list[float],
        show: bool | None,
        metric: str | None = None,
    ) -> None:
        self.path, self.every, self.waiting, self.metric = path, every, list(waiting), metric
        self.history: list[dict[str, Any]] = []
        self._newest: dict[str, dict[str, Any]] = {}  # The newest entry of each kind: "step", "evaluation".
        self._sentences, self._seconds = 0, 0.0
        if path is not None:
            self._reopen(path, start)
        self._bar = progress_bar(show, total=total, initial=start, unit=" steps", desc="Training", mininterval=_EVERY)
        self._show()

    def _reopen(self, path: Path, start: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if start and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # An incomplete line: the process was killed while it wrote.
                    break
                if entry["step"] > start:
                    break
                self._keep(entry)
        write_text(path, "".join(map(_line, self.history)))

    def step(
        self, step: int, loss: float, rate: float, norm: float, sentences: int, seconds: float, last: bool
    ) -> None:
        """Count a finished step, and add an entry every ``every`` steps."""
        self.waiting.append(loss)
        self._sentences += sentences
        self._seconds += seconds
        if self._bar is not None:
            self._bar.update(1)
        if step % self.every and not last:
            return
        speed = self._sentences / self._seconds
        self.add(
            {
                "step": step,
                "loss": sum(self.waiting) / len(self.waiting),
                "learning_rate": rate,
                "gradient_norm": norm,
                "sentences_per_second": round(speed, 1),
            }
        )
        self.waiting, self._sentences, self._seconds = [], 0, 0.0

    def add(self, entry: dict[str, Any]) -> None:
        """Add an entry to the history and to the file."""
        self._keep(entry)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(entry))
        self._show(refresh="evaluation" in entry)

    def _keep(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        self._newest["evaluation" if "evaluation" in entry else "step"] = entry

    def _show(self, refresh: bool = False) -> None:
        """Show the newest step and the newest evaluation beside the bar."""
        if self._bar is None:
            return
        parts = []
        if "step" in self._newest:
            step = self._newest["step"]
            parts += [f"loss {step['loss']:.4f}", f"learning rate {step['learning_rate']:.2g}"]
            parts += [f"{step['sentences_per_second']:,.0f} sentences/s"]
        if "evaluation" in self._newest:
            scores, at = self._newest["evaluation"]["evaluation"], self._newest["evaluation"]["step"]
            name = self.metric if self.metric in scores else next(iter(scores))
            parts += [f"{name} {scores[name]:.4f} at step {at}"]
        self._bar.set_postfix_str(", ".join(parts), refresh=refresh)

    def close(self) -> None:
        """Stop the progress bar."""
        if self._bar is not None:
            self._bar.close()


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"
