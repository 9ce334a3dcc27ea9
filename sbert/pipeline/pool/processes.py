"""A pool of worker processes that share one model, each on a device of its own, which encode windows of texts."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from sbert.backends.network import version
from sbert.inputs.devices import check_device
from sbert.pipeline.pool.workers import Order, Workers

# Windows per worker that are handed out or done and not yet taken: a device may be that many times slower than another.
_AHEAD = 8


class Processes:
    """Worker processes that encode parts of the texts, in place of their model; ``model.pool(devices)`` makes one.

    ``encode``, ``encode_query`` and so on are those of the model, with ``pool=`` set to this; all else is read from the
    model. So evaluators and functions that take a model take this. A context manager that ends the processes.

    Each takes the next window of texts when it is done with one, so that a slow device does not hold up the rest.
    Results come in the order of the texts; an error of a worker is raised here, with its traceback there as its cause;
    warnings are those of one process. A worker that dies is replaced, and its window encoded again. The workers end
    with this process, however it ends, and when the pool is closed or freed. Threads may share a pool. Nothing of the
    caller's script is run again, so neither a notebook nor a script needs ``if __name__ == "__main__":``; modules of
    the caller's own in the model must be importable.

    Args:
        model: What the processes compute with, as it is now.
        devices: A device for each process. Default: each GPU, or else four times the CPU. Processes on the CPU share
            its cores and the number of threads of this process.

    Raises:
        ValueError: If a device cannot be used on this machine.

    Example:
        >>> with model.pool(["cpu", "cpu"]) as pool:
        ...     pool.encode(["One.", "Two."]).shape
        (2, 384)
    """

    def __init__(self, model: Any, devices: Sequence[str | torch.device] | None = None) -> None:
        self.devices: list[torch.device] = list(map(check_device, _all() if devices is None else devices))
        if not self.devices:
            raise ValueError("devices is empty; pass one device per process, or None for all")
        self.model: Any = model
        self._version = version(model)
        folder = tempfile.mkdtemp(prefix="sbert-")
        try:
            _write(model, Path(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._workers = Workers(folder, self.devices)
        weakref.finalize(self, self._workers.close, join=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("devices", "model", "_version", "_workers"):
            raise AttributeError(f"a pool has no {name} of its own; set it on the model")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in ("encode", "encode_query", "encode_document", "predict", "rank"):
            method = getattr(self.model, name)
            return lambda *args, **options: method(*args, pool=self, **options)
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.model, name)

    def check(self, model: Any) -> None:
        """Raise a ``ValueError`` unless the workers have the weights of the model."""
        if self.model is not model:
            raise ValueError("the pool was made for another model; make one with pool() of this model")
        if self._version != version(model):
            raise ValueError("the weights have changed since the pool was made; make a new one")

    def map(self, orders: Iterable[Order]) -> Iterator[Any]:
        """The results of orders, in their order; they are read a bounded number ahead of the result that is asked for.

        Raises:
            RuntimeError: If the pool is closed, belongs to the parent of a forked process, or one order has ended
                several workers.
        """
        waiting: deque[Future[Any]] = deque()
        try:
            for order in orders:
                waiting.append(self._workers.submit(order))
                while waiting and (len(waiting) > _AHEAD * len(self.devices) or waiting[0].done()):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the processes, at once."""
        self._workers.close()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _all() -> list[str]:
    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return found or ["cpu"] * min(4, os.cpu_count() or 1)


def _write(model: Any, folder: Path) -> None:
    """What workers read: the model, whose weights they map into memory, and where modules are found."""
    try:
        (folder / "path.pickle").write_bytes(pickle.dumps([path or os.getcwd() for path in sys.path]))
        torch.save(model, folder / "model.pt")
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ValueError(
            f"the model cannot be copied to other processes ({error}); its hooks, activation and modules must be"
            " functions and classes of modules that can be imported"
        ) from error
    except (OSError, RuntimeError) as error:
        raise OSError(
            f"the model cannot be written to {folder} ({error}); free space there, or set TMPDIR to another folder"
        ) from error
