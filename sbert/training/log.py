"""What training says: a history, line by line on the disk, and a bar."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sbert.report import progress_bar

_EVERY = 0.2  # Seconds between two looks of the bar.


class Log:
    """The history of a training run: a dict every few steps, and one for each evaluation.

    Args:
        path: Of a JSONL file that grows with the history; None for none.
        total: Steps in all.
        start: The step that comes first; a file's lines behind it are dropped, as they will come again.
        every: Steps between two lines.
        waiting: Losses of the steps before ``start`` that no line has yet.
        show: Whether there is a bar; where it is None, if somebody looks on.
    """

    def __init__(
        self, path: Path | None, total: int, start: int, every: int, waiting: list[float], show: bool | None
    ) -> None:
        self.path, self.every, self.waiting = path, every, list(waiting)
        self.history: list[dict[str, Any]] = []
        self._sentences, self._seconds = 0, 0.0
        if path is not None:
            self._reopen(path, start)
        self._bar = progress_bar(show, total=total, initial=start, unit=" steps", desc="Training", mininterval=_EVERY)

    def _reopen(self, path: Path, start: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if start and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # Half a line: the process was killed while it wrote.
                    break
                if entry["step"] > start:
                    break
                self.history.append(entry)
        work = path.with_name(f".{path.name}.new")
        work.write_text("".join(map(_line, self.history)), encoding="utf-8")
        os.replace(work, path)

    def step(
        self, step: int, loss: float, rate: float, norm: float, sentences: int, seconds: float, last: bool
    ) -> None:
        """Count a step that is done."""
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
        if self._bar is not None:
            loss = self.history[-1]["loss"]
            self._bar.set_postfix_str(
                f"loss {loss:.4f}, learning rate {rate:.2g}, {speed:,.0f} sentences/s",
                refresh=False,
            )
        self.waiting, self._sentences, self._seconds = [], 0, 0.0

    def add(self, entry: dict[str, Any]) -> None:
        """Put an entry into the history and on the disk."""
        self.history.append(entry)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(entry))

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"
