"""A pool of worker processes that share one model, each on a device of its own, which encode windows of texts."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.spawn import get_executable
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO, Any, NamedTuple, cast

import torch

from sbert.inputs.devices import check_device
from sbert.pipeline import worker

# Windows per worker that are handed out or done and not yet taken: a device may be that many times slower than another.
_AHEAD = 8
_TRIES = 3  # Workers that one window may end.
_FORKS = sys.platform == "linux"


class WorkerError(Exception):
    """The cause of an error that was raised in a worker: its traceback there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Order(NamedTuple):
    """A function that a worker is to call with the model and some arguments; and what they are, for errors."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    what: str


class _Ended(Exception):  # noqa: N818
    """A worker has ended."""


class _Worker:
    """The parent's end of a worker.

    Args:
        orders: Where to write orders.
        replies: Where to read replies.
        end: Ends the process, from any thread: unlike by closing it, a read in another thread ends, too.
    """

    def __init__(self, orders: IO[bytes], replies: IO[bytes], end: Callable[[], object]) -> None:
        self._orders, self._replies, self.end = orders, replies, end

    def close(self) -> None:
        """End the process; for the one thread that asks."""
        self.end()
        for file in (self._orders, self._replies):
            with suppress(OSError):  # What was not sent is lost with the process.
                file.close()

    def ask(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The result of an order; an error in the worker is raised here."""
        order = pickle.dumps((function, arguments), 5)
        try:
            self._orders.write(order)
            self._orders.flush()
            result, error, trace = pickle.load(self._replies)  # noqa: S301  # From our own process.
        except Exception as broken:  # It has ended before its reply, or in the midst of it.
            raise _Ended from broken
        if error is not None:
            raise error from WorkerError(trace)
        return result


class Processes:
    """Worker processes that encode parts of the texts, in place of their model; ``model.pool(devices)`` makes one.

    ``encode``, ``encode_query`` and so on are those of the model, with ``pool=`` set to this; all else is read from the
    model. So evaluators and functions that take a model take this. A context manager that ends the processes.

    Each takes the next window of texts when it is done with one, so that a slow device does not hold up the rest.
    Results come in the order of the texts; an error of a worker is raised here, with its traceback there as its cause;
    warnings are those of one process. A worker that dies is replaced, and its window encoded again. The workers end
    with this process, however it ends. Threads may share a pool. Nothing of the caller's script is run again, so
    neither a notebook nor a script needs ``if __name__ == "__main__":``; modules of the caller's own in the model must
    be importable.

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
        self._folder = tempfile.TemporaryDirectory(prefix="sbert-", ignore_cleanup_errors=True)
        _write(model, Path(self._folder.name))
        self._lock, self._closed, self._parent = threading.Lock(), False, os.getpid()
        self._starter: tuple[Popen[bytes], socket.socket] | None = None
        self._workers: dict[int, _Worker] = {}
        self._orders: SimpleQueue[tuple[Future[Any], Order] | None] = SimpleQueue()
        self._places = _places(self.devices)
        numbers = range(len(self.devices))
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in numbers]
        for thread in self._threads:
            thread.start()

    def __getattr__(self, name: str) -> Any:
        if name in ("encode", "encode_query", "encode_document", "predict"):
            method = getattr(self.model, name)
            return lambda *args, **options: method(*args, pool=self, **options)
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.model, name)

    def map(self, orders: Iterable[Order]) -> Iterator[Any]:
        """The results of orders, in their order; they are read a bounded number ahead of the result that is asked for.

        Raises:
            RuntimeError: If the pool is closed, belongs to the parent of a forked process, or one order has ended
                several workers.
        """
        waiting: deque[Future[Any]] = deque()
        try:
            for order in orders:
                waiting.append(self._submit(order))
                while waiting and (len(waiting) > _AHEAD * len(self.devices) or waiting[0].done()):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _submit(self, order: Order) -> Future[Any]:
        if self._parent != os.getpid():
            raise RuntimeError("the pool belongs to the process that made it; make one in this process")
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed; make a new one with model.pool(devices)")
            self._orders.put((future, order))
        return future

    def _work(self, number: int) -> None:
        """The thread of one worker."""
        while (next_order := self._orders.get()) is not None:
            future, order = next_order
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._answer(number, order))
                except BaseException as error:
                    future.set_exception(error)
        self._end(number)

    def _answer(self, number: int, order: Order) -> Any:
        for _ in range(_TRIES):
            try:
                return self._worker(number).ask(*order[:2])
            except _Ended:
                self._end(number)
                if self._closed:
                    raise RuntimeError("the pool was closed while it was in use") from None
                if self._starter is not None:
                    with suppress(TimeoutExpired):  # It may be about to end, too.
                        self._starter[0].wait(0.1)
        raise RuntimeError(
            f"{order.what} ended {_TRIES} workers, each of which was encoding them; if memory ran out, pass a smaller"
            " batch_tokens= or chunk_size=, or fewer devices"
        )

    def _worker(self, number: int) -> _Worker:
        if number not in self._workers:
            device, threads, cores = self._places[number]
            with self._lock:
                if self._closed:
                    raise _Ended
                self._workers[number] = self._forked(threads) if threads and _FORKS else self._started()
            try:
                self._workers[number].ask(worker.place, (device, threads, cores))
            except Exception:
                self._end(number)
                raise
        return self._workers[number]

    def _started(self) -> _Worker:
        process = self._run(0, PIPE, PIPE)

        def end() -> None:
            process.kill()
            process.wait()

        return _Worker(cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout), end)

    def _forked(self, threads: int) -> _Worker:
        """A fork of the process that has loaded the model, which is started if there is none."""
        if self._starter is None or self._starter[0].poll() is not None:
            self._end_starter()
            control, theirs = socket.socketpair()
            with theirs:
                self._starter = self._run(threads, theirs.fileno()), control
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._starter[1], [b"1"], [theirs.fileno()])
            except OSError as error:
                raise _Ended from error
        return _Worker(ours.makefile("wb"), ours.makefile("rb"), lambda: _shut(ours))

    def _run(self, threads: int, stdin: int, stdout: int | None = None) -> Popen[bytes]:
        command = [os.fsdecode(get_executable()), "-c", worker.PROGRAM, self._folder.name, str(threads)]
        return Popen(command, stdin=stdin, stdout=stdout)  # noqa: S603  # This interpreter.

    def _end(self, number: int) -> None:
        ended = self._workers.pop(number, None)
        if ended is not None:
            ended.close()

    def _end_starter(self) -> None:
        if self._starter is not None:
            process, control = self._starter
            control.close()
            process.wait()
            self._starter = None

    def close(self) -> None:
        """End the processes, at once."""
        with self._lock:
            self._closed = True
            for running in list(self._workers.values()):
                running.end()
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()
        self._end_starter()
        self._folder.cleanup()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _all() -> list[str]:
    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return found or ["cpu"] * min(4, os.cpu_count() or 1)


def _places(devices: list[torch.device]) -> list[tuple[str, int, list[int]]]:
    """For each device its name, its number of threads, and its cores; 0 threads and no cores for an accelerator."""
    workers = sum(device.type == "cpu" for device in devices)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    own, threads = len(cores) // max(1, workers), max(1, torch.get_num_threads() // max(1, workers))
    places, used = [], 0
    for device in devices:
        is_cpu = device.type == "cpu"
        places.append((str(device), threads * is_cpu, cores[used : used + own] if is_cpu else []))
        used += own * is_cpu
    return places


def _write(model: Any, folder: Path) -> None:
    """What workers read: the model, whose weights they map into memory, and where modules are found."""
    (folder / "path.pickle").write_bytes(pickle.dumps([path or os.getcwd() for path in sys.path]))
    try:
        torch.save(model, folder / "model.pt")
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ValueError(
            f"the model cannot be copied to other processes ({error}); its hooks, activation and modules must be"
            " functions and classes of modules that can be imported"
        ) from error
