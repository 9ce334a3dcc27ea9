"""A pool of worker processes that share one model, each on a device of its own, in place of that model."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from sbert.backends import snapshot
from sbert.inputs.arguments import check_positive, warn
from sbert.inputs.devices import check_device
from sbert.pipeline.batching import Indices, plan
from sbert.pipeline.compute import compute
from sbert.pipeline.progress import Report
from sbert.pipeline.run import Encoding, Results, Window, run_here
from sbert.pipeline.settings import EncodeSettings
from sbert.storage.atomic import temporary_folder

FORKS = sys.platform == "linux"
# Characters of a token in most languages, and batches of a job: an accelerator is done sooner with a batch.
_CHARACTERS, _BATCHES_ACCELERATOR = 4, 4
_TRIES = 2  # Workers that one job may end.
_TOKENIZING = "TOKENIZERS_PARALLELISM"
_starting = threading.Lock()


class WorkerError(Exception):
    """The cause of an error that was raised in a worker: its traceback there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Pool(AbstractContextManager["Pool"]):
    """Worker processes that encode parts of the texts, in place of their model; ``model.pool(devices)`` makes one.

    ``encode``, ``encode_query`` and so on are those of the model, with this as ``pool=``; all else is read from the
    model. So evaluators and functions that take a model take this. A context manager that ends the processes.

    Each takes the next texts when it is done with some, so that a slow device does not hold up the rest. An error of a
    worker is raised here, with its traceback there as its cause; warnings are those of one process. A worker that dies
    is replaced, and its texts are encoded once more. The workers end with this process, however it ends, and when the
    pool is closed or freed. Threads may share a pool.

    On Linux, workers on the CPU are forks of this process, with which they share the weights. Elsewhere, and on an
    accelerator, they are new processes, which map a file of the model into memory. They never run the caller's script,
    so neither a notebook nor a script needs ``if __name__ == "__main__":``; what the model is made of must be
    importable there.

    Args:
        model: What the processes compute with, as it is now.
        devices: A device for each process. Default: each GPU, or else four times the CPU. Workers on the CPU share
            the number of threads of this process.

    Raises:
        ValueError: If a device cannot be used on this machine.
    """

    def __init__(self, model: Any, devices: Sequence[str | torch.device] | None = None) -> None:
        if devices is None:
            gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
            devices = gpus or ["cpu"] * min(4, os.cpu_count() or 1)
        self.devices: list[torch.device] = list(map(check_device, devices))
        if not self.devices:
            raise ValueError("devices is empty; pass one device per process, or None for all")
        self.model: Any = model
        self._version = snapshot(model).version()
        self._workers = _Workers(model, self.devices)
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

    def execute(self, model: Any, chunk_size: int | None) -> Callable[[Encoding, Window, Report], Results]:
        """What computes the windows of a call in the workers, ``chunk_size`` texts at a time.

        Raises:
            ValueError: If the workers do not have the weights of the model.
        """
        # The workers have the whole of a model with routes.
        route = next((name for name in getattr(self.model, "routes", ()) if self.model.route(name) is model), None)
        if self.model is not model and route is None:
            raise ValueError("the pool was made for another model; make one with pool() of this model")
        if self._version != snapshot(self.model).version():
            raise ValueError("the weights have changed since the pool was made; make a new one")
        return partial(self._execute, check_positive("chunk_size", chunk_size), route, set[str]())

    def _execute(
        self, size: int | None, route: str | None, warned: set[str], job: Encoding, window: Window, report: Report
    ) -> Results:
        """Send the texts of a window to the workers, the longest first; what is returned waits for their outputs."""
        settings = replace(job.settings, precision="float32", ranges=None)
        lengths = np.array([len(text) if isinstance(text, str) else sum(map(len, text)) for text in window.texts])
        batches = 1 if job.device.type == "cpu" else _BATCHES_ACCELERATOR
        share = int(lengths.sum()) // (2 * len(self.devices))
        sent = {}
        for indices in plan(lengths, max(1, min(_CHARACTERS * batches * job.batch_tokens, share)), size):
            part = window.select(indices)
            part.texts[:] = map(_plain, part.texts)
            name = f"{report.what}[{part.rows.min()}:{part.rows.max() + 1}]"
            arguments = settings, part, job.model.max_seq_length, report.what, route
            sent[self.submit(encode_part, arguments, name)] = indices
        results = _receive(sent, job.to, window, report, warned)
        weakref.finalize(results, _cancel, list(sent)).atexit = False  # Whether it has begun or not.
        return results

    def submit(self, function: Callable[..., Any], arguments: tuple[Any, ...], name: str) -> Future[Any]:
        """A future of what a worker's function returns; cancelled before a worker has begun, it is not begun.

        Args:
            function: It is called with the model and the arguments.
            arguments: The other arguments.
            name: What they are, for errors.

        Raises:
            RuntimeError: If the pool is closed, or belongs to the parent of a forked process; from the future, if the
                function has ended two workers.
        """
        return self._workers.submit(pickle.dumps((function, arguments), 5), name)

    def close(self) -> None:
        """End the processes immediately."""
        self._workers.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _receive(
    sent: dict[Future[Any], Indices], device: torch.device, window: Window, report: Report, warned: set[str]
) -> Results:
    """The outputs of workers in the order in which they finish; each warning is repeated once."""
    for future in as_completed(sent):
        outputs, counts, messages = future.result()
        report.add(*counts)
        for message in messages:
            if message not in warned:
                warned.add(message)
                warn(message)
        indices = sent[future]
        report.advance(window.counts, indices)
        if isinstance(outputs, list):
            yield indices, [torch.from_numpy(output).to(device) for output in outputs]
        else:
            yield indices, torch.from_numpy(outputs).to(device)


def _cancel(futures: list[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def encode_part(
    model: Any, settings: EncodeSettings, part: Window, limit: int | None, what: str, route: str | None
) -> tuple[Any, Any, list[str]]:
    """What a worker does: outputs of some texts, what its report has counted, and warnings."""
    model = model if route is None else model.route(route)
    if model.max_seq_length != limit:
        model.max_seq_length = limit
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job = Encoding(model, settings)
        report = Report(job, what=what)
        report.rows = int(part.rows.min())
        outputs = compute(job, part, run_here(job, part, report), report, run_here)
    # Tensors as arrays, which are written to the pipe as they are.
    arrays = [output.numpy() for output in outputs] if isinstance(outputs, list) else outputs.numpy()
    counts = report.truncated, report.unreadable, report.beyond
    return arrays, counts, [str(warning.message) for warning in caught]


class _Workers:
    """A thread for each worker, which gives it one job after another; nothing here keeps the pool alive."""

    def __init__(self, model: Any, devices: list[torch.device]) -> None:
        self._parent, self._closed, self._count = os.getpid(), False, len(devices)
        self._jobs = queue.SimpleQueue[Any]()
        self._lock = threading.RLock()  # A pool may be freed, and thereby closed, at any line of its own threads.
        self._processes: dict[int, Any] = {}
        self._pending: set[Future[Any]] = set()
        on_cpu = sum(device.type == "cpu" for device in devices)
        threads = max(1, torch.get_num_threads() // max(1, on_cpu))
        if FORKS and on_cpu == len(devices) and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self._context: Any = multiprocessing.get_context("fork")
            with suppress(Exception), warnings.catch_warnings():  # What fails will fail again, with its job.
                warnings.simplefilter("ignore")
                model.predict(("a", "a")) if model.is_cross_encoder else model.encode("a")  # Lays out the weights.
            source, self._opened = model, ExitStack()
        else:
            self._context = multiprocessing.get_context("spawn")
            with ExitStack() as opened:
                source = _write_model(model, opened.enter_context(temporary_folder("sbert-pool")))
                self._opened = opened.pop_all()
        for number, device in enumerate(devices):
            arguments = (source, str(device), threads)
            threading.Thread(target=self._serve, args=(number, arguments), daemon=True).start()

    def submit(self, content: bytes, name: str) -> Future[Any]:
        if self._parent != os.getpid():
            raise RuntimeError("the pool belongs to the process that made it; make one in this process")
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed; make a new one with model.pool(devices)")
            future = Future[Any]()
            self._pending.add(future)
            self._jobs.put((future, content, name))
        return future

    def _serve(self, number: int, arguments: tuple[Any, ...]) -> None:
        """Give one worker jobs, one after another; replace it when it dies."""
        connection: Any = None
        while True:
            future, content, name = self._jobs.get()
            if self._closed:
                return
            if future.set_running_or_notify_cancel():
                connection, reply = self._run(number, arguments, connection, content, name)
                with self._lock:
                    if future in self._pending:
                        _resolve(future, reply)
            with self._lock:
                self._pending.discard(future)
            del future, content

    def _run(self, number: int, arguments: tuple[Any, ...], connection: Any, content: bytes, name: str) -> Any:
        """The connection to the worker, and its reply to a job."""
        for _ in range(_TRIES):
            try:
                if connection is None or not self._processes[number].is_alive():
                    connection = self._start(number, arguments)
                connection.send_bytes(content)
                return connection, connection.recv_bytes()
            except (EOFError, OSError):
                connection = None
        message = (
            f"{name} ended {_TRIES} workers, each of which was encoding them; if memory ran out, pass a smaller"
            " batch_tokens= or chunk_size=, or fewer devices"
        )
        return None, pickle.dumps((None, RuntimeError(message), ""))

    def _start(self, number: int, arguments: tuple[Any, ...]) -> Any:
        """Start a worker, and return the connection to it."""
        with _starting, self._lock:
            if self._closed:
                raise EOFError
            here, there = self._context.Pipe()
            worker = self._context.Process(target=_work, args=(there, *arguments), daemon=True)
            with _safe_start(self._context.get_start_method()):
                worker.start()
            there.close()
            self._processes[number] = worker
        return here

    def close(self) -> None:
        """End the processes immediately. In a forked process, which has none, nothing happens."""
        if self._parent != os.getpid():
            return
        with self._lock:
            pending, self._pending, self._closed = self._pending, set(), True
            workers = list(self._processes.values())
        for worker in workers:
            worker.kill()
        for future in pending:
            with suppress(InvalidStateError):  # It was cancelled.
                future.set_exception(RuntimeError("the pool was closed while it was in use"))
        for _ in range(self._count):
            self._jobs.put((None, b"", ""))
        for worker in workers:
            worker.join()
        self._opened.close()


def _resolve(future: Future[Any], reply: bytes) -> None:
    try:
        result, error, trace = pickle.loads(reply)  # noqa: S301  # From our own process.
        if error is not None:
            raise error from (WorkerError(trace) if trace else None)
        future.set_result(result)
    except Exception as error:
        future.set_exception(error)


@contextmanager
def _safe_start(method: str) -> Iterator[None]:
    """New processes do not run the script of this one; forks tokenize without threads, which they do not have."""
    main, before = sys.modules["__main__"], os.environ.get(_TOKENIZING)
    if method == "spawn":
        sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ[_TOKENIZING] = "false"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        os.environ.pop(_TOKENIZING)
        os.environ.update({} if before is None else {_TOKENIZING: before})


def _write_model(model: Any, folder: Path) -> str:
    """The file of the model, which workers map into memory."""
    try:
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
    return str(folder / "model.pt")


# ------------------------------------------------------------------------------------------------- in a worker


def _work(connection: Any, model: Any, device: str, threads: int) -> None:
    """Do jobs on a device, until the pool or its process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # An interrupt of the keyboard is for the parent.
    gc.freeze()  # The collector would write to the memory that is shared.
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        if isinstance(model, str):
            with _explain("load the model"):  # The file is one that the parent has just written.
                model = torch.load(model, map_location="cpu", weights_only=False, mmap=True)
        if torch.device(device).type == "cpu":
            torch.set_num_threads(threads)
            os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        elif (index := torch.device(device).index) is not None:
            torch.accelerator.set_device_index(index)  # Else it would take memory of the first one, too.
        model.to(device)
    except Exception as error:
        model = error
    with suppress(EOFError, OSError):
        while True:
            connection.send_bytes(_answer(model, connection.recv_bytes()))


def _end_with_parent(parent: int) -> None:
    """End when the parent has died, even while texts are being encoded."""
    process: Any = multiprocessing.parent_process()
    while process.is_alive() and os.getppid() == parent:
        process.join(0.5)
    os._exit(0)


@contextmanager
def _explain(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(
            f"a worker cannot {what} ({type(error).__name__}: {error}); put classes and functions of your own into a"
            " module that can be imported, not into a notebook or the script itself"
        ) from error


def _answer(model: Any, content: bytes) -> bytes:
    """The pickle of the result of a job, of its error, and of the traceback."""
    try:
        if isinstance(model, Exception):
            raise model
        with _explain("read its texts"):
            function, arguments = pickle.loads(content)  # noqa: S301  # From the parent.
        return pickle.dumps((function(model, *arguments), None, ""), 5)
    except Exception as error:
        return pickle.dumps((None, _picklable(error), traceback.format_exc()))


def _picklable(error: Exception) -> Exception:
    with suppress(Exception):  # Of any kind: it runs code of the error's class.
        if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def _plain(item: Any) -> Any:
    """A text or a pair, as ``str``: a class of the caller's own may be unknown to a worker."""
    return str.__str__(item) if isinstance(item, str) else tuple(map(str.__str__, item))
