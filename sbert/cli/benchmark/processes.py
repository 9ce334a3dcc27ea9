"""Contenders in processes of their own, so that they share neither memory nor threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from sbert.cli.benchmark.tasks import Tasks
from sbert.storage.files import one_line


class Process:
    """A contender in a separate process, which ends with the block.

    Args:
        contender: Name, model and device, as in ``Tasks``.
        threads: Number of threads of torch.
    """

    def __init__(self, contender: tuple[str, str, str | None], threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(contender, threads, there), daemon=True)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Only this process handles Ctrl-C, and ends the other.
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        there.close()

    def ask(self, task: str, *arguments: Any, **options: Any) -> Any:
        """The result of a method of ``Tasks``.

        Raises:
            RuntimeError: If the contender failed; the message is its reason.
        """
        try:
            self._connection.send((task, arguments, options))
            result, failure = self._connection.recv()
        except (EOFError, OSError):
            raise RuntimeError("its process has ended, perhaps for lack of memory") from None
        if failure is not None:
            raise RuntimeError(failure)
        return result

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # After an error or Ctrl-C its answer is not needed.
            self._process.terminate()
        self._connection.close()
        self._process.join(10)
        self._process.kill()
        self._process.join()


def _serve(contender: tuple[str, str, str | None], threads: int, connection: Connection) -> None:
    """Answer requests, each with a result or the reason of a failure, until the other end is closed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Exit normally: otherwise semaphores leak.
    torch.set_num_threads(threads)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # Weights that no contender uses may be missing.
    tasks = Tasks(*contender)
    with suppress(EOFError, ConnectionError):
        while True:
            task, arguments, options = connection.recv()
            try:
                connection.send((getattr(tasks, task)(*arguments, **options), None))
            except Exception as error:
                connection.send((None, one_line(error)))


@dataclass
class Field:
    """The contenders that run, the seconds of their start, and the reasons why others do not run."""

    running: dict[str, Process] = field(default_factory=dict)
    start: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def turns(self, number: int) -> list[str]:
        """The names in the order of a round; each round starts with another contender."""
        names = list(self.running)
        return names[number % len(names) :] + names[: number % len(names)]

    def ask(self, name: str, task: str, *arguments: Any, **options: Any) -> Any:
        """The result of a method of ``Tasks``; None if the contender fails, and it is then removed.

        Raises:
            RuntimeError: If ``"sbert"`` fails.
        """
        try:
            return self.running[name].ask(task, *arguments, **options)
        except RuntimeError as error:
            if name == "sbert":
                raise
            self.skipped[name] = str(error)
            del self.running[name]
            return None


@contextmanager
def started(names: Iterable[str], model: str, device: str | None, threads: int) -> Iterator[Field]:
    """Start contenders, ``"sbert"`` among them, and end them after the block.

    Raises:
        RuntimeError: If ``"sbert"`` cannot run.
    """
    found = Field()
    with ExitStack() as stack:
        for name in names:
            found.running[name] = stack.enter_context(Process((name, model, device), threads))
            found.start[name] = found.ask(name, "load")
        yield found
