"""Worker processes that answer orders, and a thread for each, which starts it anew where it has died."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.spawn import get_executable
from queue import SimpleQueue
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO, Any, NamedTuple, cast

import torch

from sbert.pipeline.pool import worker

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
            pickle.dump(order, self._orders)
            self._orders.flush()
            result, error, trace = pickle.load(self._replies)  # noqa: S301  # From our own process.
        except (EOFError, OSError, pickle.UnpicklingError) as broken:  # It has ended before or in its reply.
            raise _Ended from broken
        except Exception:  # The rest of a reply that cannot be read would be taken for the next one.
            self.end()
            raise
        if error is not None:
            raise error from WorkerError(trace)
        return result


class Workers:
    """Worker processes, and the threads that hand orders to them; nothing here keeps the pool alive.

    Args:
        folder: What the workers read; it is removed with them.
        devices: A device for each.
    """

    def __init__(self, folder: str, devices: list[torch.device]) -> None:
        self._folder, self._parent, self._closed = folder, os.getpid(), False
        self._lock = threading.RLock()  # A pool may be freed, and thereby closed, at any line of its own threads.
        self.starter: tuple[Popen[bytes], socket.socket] | None = None
        self._workers: dict[int, _Worker] = {}
        self._orders: SimpleQueue[tuple[Future[Any], Order] | None] = SimpleQueue()
        self._places = _places(devices)
        numbers = range(len(devices))
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in numbers]
        for thread in self._threads:
            thread.start()

    def submit(self, order: Order) -> Future[Any]:
        """A future of the result of an order."""
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
                if (starter := self.starter) is not None:
                    with suppress(TimeoutExpired):  # It may be about to end, too.
                        starter[0].wait(0.1)
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
        if self.starter is None or self.starter[0].poll() is not None:
            self._end_starter()
            control, theirs = socket.socketpair()
            with theirs:
                self.starter = self._run(threads, theirs.fileno()), control
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.starter[1], [b"1"], [theirs.fileno()])
            except OSError as error:
                raise _Ended from error
        return _Worker(ours.makefile("wb"), ours.makefile("rb"), lambda: _shut(ours))

    def _run(self, threads: int, stdin: int, stdout: int | None = None) -> Popen[bytes]:
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [os.fsdecode(get_executable()), *flags, "-c", worker.PROGRAM, self._folder, str(threads)]
        return Popen(command, stdin=stdin, stdout=stdout)  # noqa: S603  # This interpreter.

    def _end(self, number: int) -> None:
        ended = self._workers.pop(number, None)
        if ended is not None:
            ended.close()

    def _end_starter(self) -> None:
        if self.starter is not None:
            process, control = self.starter
            control.close()
            process.kill()  # It may be loading the model.
            process.wait()
            self.starter = None

    def close(self, join: bool = True) -> None:
        """End the processes, at once. In a forked process, which has none, nothing happens."""
        if self._parent != os.getpid():
            return
        with self._lock:
            self._closed = True
            for running in list(self._workers.values()):
                running.end()
            self._end_starter()
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads if join else ():
            thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _places(devices: list[torch.device]) -> list[tuple[str, int, list[int]]]:
    """For each device its name, its number of threads, and its cores; 0 threads and no cores for an accelerator."""
    workers, threads = sum(device.type == "cpu" for device in devices), torch.get_num_threads()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    places: list[tuple[str, int, list[int]]] = []
    number = 0
    for device in devices:
        if device.type != "cpu":
            places.append((str(device), 0, []))
            continue
        first, last = ([whole * at // workers for whole in (threads, len(cores))] for at in (number, number + 1))
        own = cores[first[1] : last[1]] if len(cores) >= workers else []
        places.append((str(device), max(1, last[0] - first[0]), own))
        number += 1
    return places
