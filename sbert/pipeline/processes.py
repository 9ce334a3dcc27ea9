"""Encoding in several processes, each with a copy of the model on a device of its own."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert.inputs.arguments import check_positive, warn
from sbert.inputs.devices import check_device
from sbert.inputs.texts import rows_of

# Parts of the texts per process, so that a fast one takes more of them; and the most texts of a part.
_PARTS, _MOST = 10, 5000

_model: Any = None  # Of a process of the pool.


class Processes:
    """Processes that encode parts of the texts, for ``encode(pool=)``; a context manager that ends them.

    The processes are started at the first call. Results come in the order of the texts, the errors of a process are
    raised here, and the caller's model stays as it is. Threads may share it.

    Args:
        model: What to copy to each process, as it is now.
        devices: A device for each process. Default: each GPU, or else four times the CPU, whose cores they share.

    Raises:
        ValueError: If a device cannot be used on this machine.

    Example:
        >>> with Processes(model, ["cpu", "cpu"]) as pool:
        ...     model.encode(["One.", "Two."], pool=pool).shape
        (2, 384)
    """

    def __init__(self, model: Any, devices: Sequence[str | torch.device] | None = None) -> None:
        self.devices: list[torch.device] = list(map(check_device, _all() if devices is None else devices))
        if not self.devices:
            raise ValueError("devices is empty; pass one device per process, or None for all")
        self._open = ExitStack()
        file = Path(self._open.enter_context(tempfile.TemporaryDirectory())) / "model.pt"
        torch.save(model, file)
        context = get_context("spawn")
        waiting = context.SimpleQueue()
        for device in self.devices:
            waiting.put(str(device))
        threads = max(1, torch.get_num_threads() // len(self.devices))
        self._pool = ProcessPoolExecutor(len(self.devices), context, _start, (str(file), waiting, threads))

    def encode(self, texts: Any, part: int | None = None, **options: Any) -> Any:
        """What ``encode`` of the model returns for several texts.

        Args:
            texts: As in ``encode``.
            part: Number of texts that a process encodes at once. Default: a tenth of its share, at most 5,000.
            options: Of ``encode``.

        Raises:
            RuntimeError: If a process has ended, as when memory ran out.
        """
        check_positive("chunk_size", part)
        listed = list(rows_of(texts))
        size = part or max(1, min(_MOST, -(-len(listed) // (_PARTS * len(self.devices)))))
        parts = [listed[start : start + size] for start in range(0, len(listed), size)] or [[]]
        try:
            done = list(self._pool.map(_encode, parts, [options] * len(parts)))
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a process of the pool has ended; in a script, put the calls under 'if __name__ == \"__main__\":',"
                " because each process imports the script; or memory ran out"
            ) from error
        for message in dict.fromkeys(message for _, messages in done for message in messages):
            warn(message)
        found = [vectors for vectors, _ in done]
        return np.concatenate(found) if isinstance(found[0], np.ndarray) else [row for rows in found for row in rows]

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()
        self._open.close()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _all() -> list[str]:
    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return found or ["cpu"] * min(4, os.cpu_count() or 1)


def _start(file: str, waiting: Any, threads: int) -> None:
    global _model
    device = waiting.get()
    if device == "cpu":
        torch.set_num_threads(threads)
    # The file is one of this program's own.
    _model = torch.load(file, map_location=device, weights_only=False)


def _encode(texts: list[str], options: dict[str, Any]) -> tuple[Any, list[str]]:
    """Arrays, or tensors in the memory of the host, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = _model.encode(texts, show_progress_bar=False, **options)
    if isinstance(found, list):
        found = [row.cpu() for row in found]
    return found, [str(warning.message) for warning in caught]
