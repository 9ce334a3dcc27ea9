"""The process that a pool starts: it loads the model, and has orders done by a ``ProcessPoolExecutor``.

It is a program of its own, so it never imports the caller's script: neither scripts without
``if __name__ == "__main__":`` nor notebooks are run again. What the model is made of must be importable.

On Linux, workers on the CPU are forks of this process, which has prepared the weights for this CPU. They share its
memory, weights in every layout included. Elsewhere, and on an accelerator, each worker maps the file of the model into
memory. The executor ends all its workers when one of them dies; then there is a new one, and the orders in work are
given to it again. All end when the pool's process ends in any way, and what it has left of files goes with them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

import torch

from sbert.inputs.devices import leave_float16

# What the interpreter runs; an interrupt of the keyboard is for the parent, which ends the workers. At first, modules
# of the standard library are not to be looked for in the working folder.
PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path);"
    " import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import pickle;"
    " sys.path[:] = pickle.load(open(sys.argv[1] + '/path.pickle', 'rb'));"
    " from sbert.pipeline.pool.broker import main; main()"
)
TRIES = 3  # Workers that one order may end.
_TOKENIZING = "TOKENIZERS_PARALLELISM"

_model: Any = None  # That of this worker, or the error that kept it from being loaded.


@dataclass
class _Task:
    """An order, and the number of workers that may have ended because of it."""

    number: int
    order: bytes
    what: str
    deaths: int = 0


def main() -> NoReturn:
    """Do the orders that arrive at standard input: ``PROGRAM FOLDER PLACES METHOD``."""
    global _model
    folder, places, method = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    orders, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What modules print is no reply.
    events: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(orders, events, folder), daemon=True).start()
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Of the thread that reads.
    if method == "fork":
        torch.set_num_threads(max(threads for _, threads, _ in places))
        _model = _load(folder)
        _prepare(_model)
        gc.collect()
        gc.freeze()  # The collector would write to the memory that is shared.
    _Broker(folder, places, method, events, replies).run()


def _read(orders: BinaryIO, events: SimpleQueue[Any], folder: Path) -> None:
    """Pass orders on, until the pool's process has ended in any way; then end, even while the model is loaded."""
    try:
        while True:
            events.put(pickle.load(orders))  # noqa: S301  # From the parent.
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


class _Broker:
    """Hands out as many orders at a time as there are workers, so that it is known which of them were in work."""

    def __init__(
        self, folder: Path, places: list[Any], method: str, events: SimpleQueue[Any], replies: BinaryIO
    ) -> None:
        self._folder, self._places, self._events, self._replies = folder, places, events, replies
        self._context: Any = multiprocessing.get_context(method)
        self._executor: ProcessPoolExecutor | None = None
        self._waiting: deque[_Task] = deque()
        self._running: dict[Future[bytes], tuple[_Task, ProcessPoolExecutor]] = {}

    def run(self) -> NoReturn:
        while True:
            event = self._events.get()
            if isinstance(event, Future):
                self._finish(event)
            elif event[1] is None:  # It was cancelled.
                self._waiting = deque(task for task in self._waiting if task.number != event[0])
            else:
                self._waiting.append(_Task(*event))
            while self._waiting and self._has_room():
                self._begin(self._waiting.popleft())

    def _has_room(self) -> bool:
        """Whether a worker is free. What may end workers is done alone, so that no other order is blamed."""
        suspects = [self._waiting[0], *(task for task, _ in self._running.values())]
        alone = any(task.deaths >= TRIES - 1 for task in suspects)
        return len(self._running) < (1 if alone else len(self._places))

    def _begin(self, task: _Task) -> None:
        if self._executor is None:
            places = self._context.SimpleQueue()
            for place in self._places:
                places.put(place)
            arguments = str(self._folder), places, self._replies.fileno() if _model is not None else None
            self._executor = ProcessPoolExecutor(len(self._places), self._context, _start_worker, arguments)
        try:
            future = self._executor.submit(_answer, task.order)
        except BrokenProcessPool:  # While nothing was in work.
            self._executor = None
            self._begin(task)
            return
        self._running[future] = task, self._executor
        future.add_done_callback(self._events.put)

    def _finish(self, future: Future[bytes]) -> None:
        task, executor = self._running.pop(future)
        try:
            reply = future.result()
        except BrokenProcessPool:
            if self._executor is executor:
                self._executor = None
            task.deaths += 1
            if task.deaths < TRIES:
                self._waiting.appendleft(task)
                return
            message = (
                f"{task.what} ended {TRIES} workers, each of which was encoding them; if memory ran out, pass a smaller"
                " batch_tokens= or chunk_size=, or fewer devices"
            )
            reply = pickle.dumps((None, RuntimeError(message), ""))
        pickle.dump((task.number, reply), self._replies, 5)
        self._replies.flush()


def _load(folder: Path) -> Any:
    """The model, or the error that keeps it from being loaded."""
    try:
        with _explain("load the model"):  # The file is one that the parent has just written.
            return torch.load(folder / "model.pt", map_location="cpu", weights_only=False, mmap=True)
    except RuntimeError as error:
        return error


@contextlib.contextmanager
def _explain(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(
            f"a worker cannot {what} ({type(error).__name__}: {error}); put classes and functions of your own into a"
            " module that can be imported, not into a notebook or the script itself"
        ) from error


def _prepare(model: Any) -> None:
    """Encode something, which lays out the weights for this CPU. Threads of the tokenizer would not survive a fork."""
    before = os.environ.get(_TOKENIZING)
    os.environ[_TOKENIZING] = "false"
    with contextlib.suppress(Exception), warnings.catch_warnings():  # What fails will fail again, with its order.
        warnings.simplefilter("ignore")
        model.predict(("a", "a")) if model.is_cross_encoder else model.encode("a")
    os.environ.pop(_TOKENIZING)
    if before is not None:
        os.environ[_TOKENIZING] = before


# ------------------------------------------------------------------------------------------------- in a worker


def _start_worker(folder: str, places: Any, replies: int | None) -> None:
    """Take a place, and put the model there."""
    global _model
    if replies is not None:
        os.close(replies)  # Else the pool would not notice the end of the broker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if _model is None:
            _model = _load(Path(folder))
        if not isinstance(_model, Exception):
            _place(_model, *places.get())
    except Exception as error:
        _model = error


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(0)  # Even while texts are being encoded.


def _place(model: Any, device: str, threads: int, cores: list[int]) -> None:
    """Put the model on a device; a worker on the CPU gets its own number of threads and, if there are any, cores."""
    if threads:
        if cores:
            os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        if threads == 1:
            os.environ[_TOKENIZING] = "false"
    elif (index := torch.device(device).index) is not None:
        torch.accelerator.set_device_index(index)  # Else it would take memory of the first one, too.
    model.to(device)
    leave_float16(model, model.device)


def _answer(order: bytes) -> bytes:
    """The pickle of the result of an order, of its error, and of the traceback."""
    try:
        if isinstance(_model, Exception):
            raise _model
        with _explain("read its texts"):
            function, arguments = pickle.loads(order)  # noqa: S301  # From the parent.
        return pickle.dumps((function(_model, *arguments), None, ""), 5)
    except Exception as error:
        return pickle.dumps((None, _picklable(error), traceback.format_exc()))


def _picklable(error: Exception) -> Exception:
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301
            return error
    except Exception:  # noqa: S110  # Of any kind: it runs code of the error's class.
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")
