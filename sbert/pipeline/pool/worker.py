"""The program of a worker process of ``Processes``: it loads a model, and answers one order after the other.

It is started as a program of its own, so it never imports the caller's script: neither scripts without
``if __name__ == "__main__":`` nor notebooks are run again. What the model is made of must be importable.

On Linux, workers on the CPU are forks of one process that has loaded the model and prepared its weights for this CPU.
They share its memory, weights in every layout included, and a new one starts in milliseconds. Elsewhere, and on an
accelerator, each worker is a process that maps the file of the model into memory.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
import warnings
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

import torch

from sbert.inputs.devices import leave_float16

# What the interpreter of a worker runs; an interrupt of the keyboard is for the parent, which ends the workers. At
# first, modules of the standard library are not to be looked for in the working folder.
PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path);"
    " import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import pickle;"
    " sys.path[:] = pickle.load(open(sys.argv[1] + '/path.pickle', 'rb'));"
    " from sbert.pipeline.pool.worker import main; main()"
)
_REMEDY = (
    "put classes and functions of your own into a module that can be imported, not into a notebook or the script itself"
)
_TOKENIZING = "TOKENIZERS_PARALLELISM"


def main() -> NoReturn:
    """Run a worker, or the process whose forks are workers: ``PROGRAM FOLDER THREADS``, with 0 threads for a worker."""
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    model: Any
    try:
        # The file is one that the parent has just written.
        model = torch.load(folder / "model.pt", map_location="cpu", weights_only=False, mmap=True)
    except Exception as error:
        model = RuntimeError(f"a worker cannot load the model ({type(error).__name__}: {error}); {_REMEDY}")
        model.__cause__ = error
    if threads:
        _fork_on_request(model, threads)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What modules print is no reply.
    serve(model, sys.stdin.buffer, replies)


def _fork_on_request(model: Any, threads: int) -> NoReturn:
    """Fork a worker for each socket that arrives at the socket that is standard input."""
    torch.set_num_threads(threads)
    if not isinstance(model, Exception):
        _prepare(model)
    gc.collect()
    gc.freeze()  # The collector would write to the memory that is shared.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nothing waits for the workers.
    control = socket.socket(fileno=0)
    while True:
        message, files, *_ = socket.recv_fds(control, 1, 1)
        if not message:
            os._exit(0)  # The parent has ended.
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection = socket.socket(fileno=files[0])
            serve(model, connection.makefile("rb"), connection.makefile("wb"))
        os.close(files[0])


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


def serve(model: Any, orders: BinaryIO, replies: BinaryIO) -> NoReturn:
    """Answer orders until their source ends, as it does when the parent ends in any way.

    Args:
        model: The model, or the error that kept it from being loaded.
        orders: Pickles of pickles of a function and its arguments; it is called with the model and these.
        replies: Where a pickle goes for each order: the result, the error, and its traceback.
    """
    waiting: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(orders, waiting), daemon=True).start()
    while True:
        reply = _reply(model, waiting.get())
        try:
            replies.write(reply)
            replies.flush()
        except OSError:
            os._exit(0)


def _read(orders: BinaryIO, waiting: SimpleQueue[bytes]) -> None:
    try:
        while True:
            waiting.put(pickle.load(orders))  # noqa: S301  # From the parent.
    finally:
        os._exit(0)  # Even while a window is being encoded.


def _reply(model: Any, order: bytes) -> bytes:
    try:
        if isinstance(model, Exception):
            raise model
        function, arguments = _loaded(order)
        return pickle.dumps((function(model, *arguments), None, ""), 5)
    except Exception as error:
        return pickle.dumps((None, _picklable(error), traceback.format_exc()))


def _loaded(order: bytes) -> Any:
    try:
        return pickle.loads(order)  # noqa: S301  # From the parent.
    except Exception as error:
        raise RuntimeError(f"a worker cannot read its texts ({type(error).__name__}: {error}); {_REMEDY}") from error


def _picklable(error: Exception) -> Exception:
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301
            return error
    except Exception:  # noqa: S110  # Of any kind: it runs code of the error's class.
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def place(model: Any, device: str, threads: int, cores: list[int]) -> None:
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
