"""A pool of worker processes that share one model, each on a device of its own, in place of that model."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from itertools import count
from multiprocessing.spawn import get_executable
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NoReturn

import numpy as np
import torch

from sbert.backends import snapshot
from sbert.inputs.devices import check_device
from sbert.pipeline.pool.broker import PROGRAM, Place
from sbert.pipeline.pool.encoding import PooledEncoding
from sbert.storage.atomic import temporary_folder

FORKS = sys.platform == "linux"


class WorkerError(Exception):
    """The cause of an error that was raised in a worker: its traceback there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Pool(AbstractContextManager["Pool"]):
    """Worker processes that encode parts of the texts, in place of their model; ``model.pool(devices)`` makes one.

    ``encode``, ``encode_query`` and so on are those of the model, with this as ``pool=``; all else is read from the
    model. So evaluators and functions that take a model take this. A context manager that ends the processes.

    Each takes the next texts when it is done with some, so that a slow device does not hold up the rest. An error of a
    worker is raised here, with its traceback there as its cause; warnings are those of one process. Workers that die
    are replaced, and their texts encoded again. The workers end with this process, however it ends, and when the pool
    is closed or freed. Threads may share a pool. Nothing of the caller's script is run again, so neither a notebook nor
    a script needs ``if __name__ == "__main__":``; modules of the caller's own in the model must be importable.

    Args:
        model: What the processes compute with, as it is now.
        devices: A device for each process. Default: each GPU, or else four times the CPU. Workers on the CPU share
            its cores and the number of threads of this process.

    Raises:
        ValueError: If a device cannot be used on this machine.
    """

    def __init__(self, model: Any, devices: Sequence[str | torch.device] | None = None) -> None:
        self.devices: list[torch.device] = list(map(check_device, _all_devices() if devices is None else devices))
        if not self.devices:
            raise ValueError("devices is empty; pass one device per process, or None for all")
        self.model: Any = model
        self._version = snapshot(model).version()
        with ExitStack() as opened:
            folder = opened.enter_context(temporary_folder("sbert-pool"))
            _write_model(model, folder)
            self._workers = _Workers(folder, _assign_cores(self.devices), opened.pop_all())
        weakref.finalize(self, self._workers.close)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("devices", "model", "_version", "_workers"):
            raise AttributeError(f"a pool has no {name} of its own; set it on the model")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in ("encode", "encode_query", "encode_document", "predict", "rank"):
            method = getattr(self.model, name)
            return lambda *args, **options: method(*args, **{**options, "pool": options.get("pool") or self})
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.model, name)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pool cannot be pickled or copied; pass the model, and call its pool() where it arrives")

    def check(self, model: Any) -> None:
        """Raise a ``ValueError`` unless the workers have the weights of the model."""
        if self.model is not model:
            raise ValueError("the pool was made for another model; make one with pool() of this model")
        if self._version != snapshot(model).version():
            raise ValueError("the weights have changed since the pool was made; make a new one")

    def encoding(self, chunk_size: int | None) -> Callable[..., PooledEncoding]:
        """What makes the ``Encoding`` of a call whose texts the workers take, ``chunk_size`` at a time."""
        return partial(PooledEncoding, self, chunk_size)

    def submit(self, function: Callable[..., Any], arguments: tuple[Any, ...], what: str) -> Future[Any]:
        """A future of what a worker's function returns.

        Args:
            function: It is called with the model and the arguments.
            arguments: The other arguments.
            what: What they are, for errors.

        Raises:
            RuntimeError: If the pool is closed, or belongs to the parent of a forked process; from the future, if the
                function has ended several workers.
        """
        return self._workers.submit(pickle.dumps((function, arguments), 5), what)

    def cancel(self, futures: Iterable[Future[Any]]) -> None:
        """Forget orders: those that no worker has begun are not begun."""
        self._workers.cancel(set(futures))

    def close(self) -> None:
        """End the processes, at once."""
        self._workers.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _Workers:
    """The broker of the workers, and the orders that it has; nothing here keeps the pool alive.

    Args:
        folder: What the broker reads.
        placements: For each worker its device, its number of threads, and its cores.
        opened: What is closed with the workers.
    """

    def __init__(self, folder: Path, placements: list[Place], opened: ExitStack) -> None:
        self._folder, self._opened, self._parent = folder, opened, os.getpid()
        self._lock = threading.RLock()  # A pool may be freed, and thereby closed, at any line of its own threads.
        self._numbers = count()
        self._pending: dict[int, Future[Any]] = {}
        self._ended = False
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        flags += ["-W", "ignore:resource_tracker"]  # Semaphores of workers that were ended at once.
        method = "fork" if FORKS and all(threads for _, threads, _ in placements) else "spawn"
        command = [os.fsdecode(get_executable()), *flags, "-c", PROGRAM, str(folder), json.dumps(placements), method]
        self.broker: Popen[bytes] = Popen(command, stdin=PIPE, stdout=PIPE)  # noqa: S603  # This interpreter.
        threading.Thread(target=self._read, daemon=True).start()

    def submit(self, content: bytes, what: str) -> Future[Any]:
        if self._parent != os.getpid():
            raise RuntimeError("the pool belongs to the process that made it; make one in this process")
        with self._lock:
            if self._ended:
                raise RuntimeError("the pool is closed, or was ended; make a new one with model.pool(devices)")
            number, future = next(self._numbers), Future[Any]()
            self._pending[number] = future
            self._send(number, content, what)
        return future

    def cancel(self, futures: set[Future[Any]]) -> None:
        with self._lock:
            for number in [number for number, future in self._pending.items() if future in futures]:
                self._pending.pop(number).cancel()
                self._send(number, None, "")

    def _send(self, *message: Any) -> None:
        with suppress(OSError, ValueError):  # If it has ended, the thread that reads says so.
            pickle.dump(message, self.broker.stdin)  # type: ignore[arg-type]
            self.broker.stdin.flush()  # type: ignore[union-attr]

    def _read(self) -> None:
        """Give replies to those who wait for them, until the broker ends."""
        with suppress(EOFError, OSError, pickle.UnpicklingError), self.broker:
            while True:
                number, reply = pickle.load(self.broker.stdout)  # type: ignore[arg-type]  # noqa: S301  # Our own process.
                with self._lock:
                    future = self._pending.pop(number, None)
                if future is not None:
                    _resolve(future, reply)
        self._end("the process of the pool was ended; if memory ran out, pass fewer devices")

    def _end(self, error: str) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
            self._ended = True
        for future in pending.values():
            future.set_exception(RuntimeError(error))

    def close(self) -> None:
        """End the processes, at once. In a forked process, which has none, nothing happens."""
        if self._parent == os.getpid():
            self._end("the pool was closed while it was in use")
            self.broker.kill()  # It may be loading the model. The workers end with it.
            self.broker.wait()
            self._opened.close()


def _resolve(future: Future[Any], reply: bytes) -> None:
    try:
        result, error, trace = pickle.loads(reply)  # noqa: S301  # From our own process.
        if error is not None:
            raise error from (WorkerError(trace) if trace else None)
        future.set_result(result)
    except Exception as error:
        future.set_exception(error)


def _all_devices() -> list[str]:
    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return devices or ["cpu"] * min(4, os.cpu_count() or 1)


def _write_model(model: Any, folder: Path) -> None:
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


def _assign_cores(devices: list[torch.device]) -> list[Place]:
    """For each device its name, its number of threads, and its cores; 0 threads and no cores for an accelerator."""
    workers, threads = sum(device.type == "cpu" for device in devices), torch.get_num_threads()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cores = cores if len(cores) >= workers else []
    each = [np.array_split(given, max(1, workers)) for given in (np.arange(threads), np.array(cores, int))]
    on_cpu = ((max(1, len(share)), own.tolist()) for share, own in zip(*each, strict=True))
    return [(str(device), *(next(on_cpu) if device.type == "cpu" else (0, []))) for device in devices]
