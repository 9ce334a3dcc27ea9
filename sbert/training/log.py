"""What training says: a history, line by line on the disk, and a bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sbert.pipeline.progress import progress_bar
from sbert.storage.atomic import write_text

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
        metric: The figure of an evaluation that the bar shows; its first one where it is not given.
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
        self._newest: dict[str, dict[str, Any]] = {}  # Of each kind: a step, an evaluation.
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
                except ValueError:  # Half a line: the process was killed while it wrote.
                    break
                if entry["step"] > start:
                    break
                self._keep(entry)
        write_text(path, "".join(map(_line, self.history)))

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
        self.waiting, self._sentences, self._seconds = [], 0, 0.0

    def add(self, entry: dict[str, Any]) -> None:
        """Put an entry into the history and on the disk."""
        self._keep(entry)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(entry))
        self._show(refresh="evaluation" in entry)

    def _keep(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        self._newest["evaluation" if "evaluation" in entry else "step"] = entry

    def _show(self, refresh: bool = False) -> None:
        """Write the newest step and the newest evaluation beside the bar."""
        if self._bar is None:
            return
        said = []
        if "step" in self._newest:
            step = self._newest["step"]
            said += [f"loss {step['loss']:.4f}", f"learning rate {step['learning_rate']:.2g}"]
            said += [f"{step['sentences_per_second']:,.0f} sentences/s"]
        if "evaluation" in self._newest:
            scores, at = self._newest["evaluation"]["evaluation"], self._newest["evaluation"]["step"]
            name = self.metric if self.metric in scores else next(iter(scores))
            said += [f"{name} {scores[name]:.4f} at step {at}"]
        self._bar.set_postfix_str(", ".join(said), refresh=refresh)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"
