"""The process that a pool starts: it loads the model, and has a thread for each worker that gives it orders.

It is a program of its own, so it never imports the caller's script: neither scripts without
``if __name__ == "__main__":`` nor notebooks are run again. What the model is made of must be importable.

On Linux, workers on the CPU are forks of this process, which has prepared the weights for this CPU. They share its
memory, weights in every layout included. Elsewhere, and on an accelerator, each worker maps the file of the model into
memory. A worker that dies is replaced, and gets its order again. All end when the pool's process ends in any way, and
what it has left of files goes with them.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import torch

# What the interpreter runs; an interrupt of the keyboard is for the parent, which ends the workers. At first, modules
# of the standard library are not to be looked for in the working folder.
PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path);"
    " import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import pickle;"
    " sys.path[:] = pickle.load(open(sys.argv[1] + '/path.pickle', 'rb'));"
    " from sbert.pipeline.pool.broker import main; main()"
)
Place = tuple[str, int, list[int]]  # Of a worker: its device, its number of threads, and its cores.
_TRIES = 3  # Workers that one order may end.
_TOKENIZING = "TOKENIZERS_PARALLELISM"


def main() -> NoReturn:
    """Have the orders done that arrive at standard input, until that ends: ``PROGRAM FOLDER PLACES METHOD``."""
    folder, placements, method = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    orders, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What modules print is no reply.
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Of the threads.
    broker = _Broker(folder, placements, method, replies)
    threading.Thread(target=broker.begin, daemon=True).start()
    try:
        while True:
            broker.put(*pickle.load(orders))  # noqa: S301  # From the parent.
    finally:  # The pool's process has ended in any way. The model may still be loaded meanwhile.
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


class _Broker:
    """The orders that wait, and the workers, each of which has a thread that waits for it."""

    def __init__(self, folder: Path, placements: list[Place], method: str, replies: BinaryIO) -> None:
        self._folder, self._placements, self._replies = folder, placements, replies
        self._context: Any = multiprocessing.get_context(method)
        self._model: Any = None
        self._waiting: dict[int, tuple[bytes, str]] = {}
        self._changed = threading.Condition()
        self._lock = threading.Lock()  # For one fork or one reply at a time.

    def begin(self) -> None:
        """Load the model, if workers are forks, and let each worker take orders."""
        if self._context.get_start_method() == "fork":
            torch.set_num_threads(max(threads for _, threads, _ in self._placements))
            self._model = _load(self._folder)
            _prepare(self._model)
            gc.collect()
            gc.freeze()  # The collector would write to the memory that is shared.
        for place in self._placements:
            threading.Thread(target=self._serve, args=(place,), daemon=True).start()

    def put(self, number: int, order: bytes | None, what: str) -> None:
        """Add an order, or remove one that was cancelled."""
        with self._changed:
            if order is None:
                self._waiting.pop(number, None)
            else:
                self._waiting[number] = order, what
                self._changed.notify()

    def _serve(self, place: Place) -> NoReturn:
        """Give one worker orders, one after another; replace it when it dies."""
        worker: Any = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                number = next(iter(self._waiting))
                order, what = self._waiting.pop(number)
            for _ in range(_TRIES):
                try:
                    if worker is None or not worker.is_alive():
                        worker, connection = self._start(place)
                    connection.send_bytes(order)
                    reply = connection.recv_bytes()
                    break
                except (EOFError, OSError):
                    if worker is not None:
                        worker.kill()
                        worker.join()
            else:
                message = (
                    f"{what} ended {_TRIES} workers, each of which was encoding them; if memory ran out, pass a smaller"
                    " batch_tokens= or chunk_size=, or fewer devices"
                )
                reply = pickle.dumps((None, RuntimeError(message), ""))
            with self._lock:
                pickle.dump((number, reply), self._replies, 5)
                self._replies.flush()

    def _start(self, place: Place) -> tuple[Any, Any]:
        """A worker, and the connection to it."""
        with self._lock:
            ours, theirs = self._context.Pipe()
            replies = None if self._model is None else self._replies.fileno()
            worker = self._context.Process(target=_work, args=(theirs, str(self._folder), self._model, replies, place))
            worker.start()
            theirs.close()
        return worker, ours


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


def _work(connection: Any, folder: str, model: Any, replies: int | None, place: Place) -> None:
    """Do orders on a device, until the broker ends."""
    if replies is not None:
        os.close(replies)  # Else the pool would not notice the end of the broker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        model = _load(Path(folder)) if model is None else model
        if not isinstance(model, Exception):
            _move(model, *place)
    except Exception as error:
        model = error
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send_bytes(_answer(model, connection.recv_bytes()))


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(0)  # Even while texts are being encoded.


def _move(model: Any, device: str, threads: int, cores: list[int]) -> None:
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


def _answer(model: Any, order: bytes) -> bytes:
    """The pickle of the result of an order, of its error, and of the traceback."""
    try:
        if isinstance(model, Exception):
            raise model
        with _explain("read its texts"):
            function, arguments = pickle.loads(order)  # noqa: S301  # From the parent.
        return pickle.dumps((function(model, *arguments), None, ""), 5)
    except Exception as error:
        return pickle.dumps((None, _picklable(error), traceback.format_exc()))


def _picklable(error: Exception) -> Exception:
    with contextlib.suppress(Exception):  # Of any kind: it runs code of the error's class.
        if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
