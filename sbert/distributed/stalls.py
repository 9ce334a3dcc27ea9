"""Find out which process does not respond, and at which step, after another one has waited too long."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Seconds within which a running process answers; a separate thread does so.
_GRACE = 5.0
_FOREVER = timedelta(days=365)
# Words in the RuntimeErrors of torch that another process has caused.
_OF_OTHERS = re.compile("gloo|NCCL|TCPStore|pair closure")
_WAITED = re.compile("Timed out|timeout caused")
# Maximum nesting of actions that ranks wait for; each level has its own connections.
_LEVELS = 3


class StallDetector:
    """Finds the rank that blocks the others.

    A rank whose collective operation fails sends a request to all others. In each, a thread answers with its step and
    its number of collective operations. A rank that does not answer is stopped or has ended; a rank with fewer
    operations hangs. The first rank that asks publishes the result.

    Args:
        rank: Rank of this process.
        world: Number of processes.
        limit: Seconds that a rank waits for the others.
        owned: Whether the library has created the process group.
    """

    def __init__(self, rank: int, world: int, limit: float, owned: bool) -> None:
        self.rank: int = rank
        self.world: int = world
        self.owned: bool = owned
        self.step: int = 0
        self.calls: int = 0
        self.depth: int = 0
        self.process_group: dist.ProcessGroup | None = dist.group.WORLD
        self._ended, self._verdict = False, ""
        store: Any = dist.distributed_c10d._get_default_store()
        # Waiting blocks a connection, so the thread that answers has its own.
        self._line, ear = store.clone(), store.clone()
        self._levels = [dist.new_group(backend="gloo") for _ in range(_LEVELS)]
        self.limit_to(limit)
        self._thread = threading.Thread(target=self._answer, args=(ear,), name="sbert-stalls", daemon=True)
        self._thread.start()

    def limit_to(self, limit: float) -> None:
        """Set the timeout for other ranks; in a process group of the caller, for actions only."""
        self.limit: float = limit
        for group in [*self._levels, *([dist.group.WORLD] if self.owned else [])]:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=limit), group)

    def _answer(self, store: Any) -> None:
        try:
            store.wait([f"sbert/ring/{self.rank}"], _FOREVER)
            if not self._ended:
                store.set(f"sbert/answer/{self.rank}", f"{self.step} {self.calls}")
                store.wait(["sbert/verdict"], timedelta(seconds=3 * _GRACE))
                self._verdict = store.get("sbert/verdict").decode()
        except RuntimeError:  # The process with the store has ended.
            return

    @contextmanager
    def call(self) -> Iterator[None]:
        """Context of a collective operation: an error caused by another rank names that rank.

        Raises:
            RuntimeError: If another rank hangs, is stopped or has ended.
        """
        self.calls += 1
        with self.named():
            yield

    @contextmanager
    def named(self) -> Iterator[None]:
        """Context in which errors caused by another rank name that rank."""
        try:
            yield
        except RuntimeError as error:
            if not _OF_OTHERS.search(str(error)):
                raise
            raise RuntimeError(self._who(error)) from error

    def wait_for(self, action: Callable[[], Any]) -> tuple[Any, BaseException | None, bool]:
        """Run an action that may take longer on one rank; the others wait as long as its process runs.

        Returns:
            Its result; its exception, if it failed; whether it failed on any rank.
        """
        result, failure, found = None, None, {}
        done, failed = threading.Event(), torch.zeros((), dtype=torch.int64)
        if self.depth == _LEVELS:
            raise RuntimeError(f"actions that ranks wait for are nested {_LEVELS} deep; call this one outside of them")
        self.calls += 1
        group, interval = self._levels[self.depth], min(self.limit / 4, _GRACE)

        def tick() -> None:
            # In each round, every rank reports whether it is busy; a stopped rank does not, which leads to a timeout.
            busy = 1
            try:
                while busy:
                    done.wait(interval)
                    state = torch.stack([torch.tensor(int(not done.is_set())), failed])  # (busy, failed)
                    dist.all_reduce(state, dist.ReduceOp.MAX, group=group)
                    busy, found["failed"] = state.tolist()
                    if found["failed"]:
                        return
            except RuntimeError as error:
                found["error"] = error

        thread = threading.Thread(target=tick, name="sbert-tick", daemon=True)
        self.depth += 1
        thread.start()
        try:
            result = action()
        except BaseException as error:
            failure = error
            failed.fill_(1)
        finally:
            self.depth -= 1
        done.set()
        thread.join()
        with self.named():
            if "error" in found and failure is None:
                raise found["error"]
        return result, failure, bool(found.get("failed"))

    def _who(self, error: RuntimeError) -> str:
        """The state of the missing rank, as found by the first rank that asked."""
        if not self._verdict:
            # In a thread, because the store blocks if the process that holds it is stopped.
            asking = threading.Thread(target=self._ask, args=(bool(_WAITED.search(str(error))),), daemon=True)
            asking.start()
            asking.join(4 * _GRACE)
        if self._verdict:
            return self._verdict
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host = "torchrun's own process" if agents else "rank 0" if self.rank else "another rank"
        return f"{host} is stopped or has ended while rank {self.rank} waited for it at step {self.step}"

    def _ask(self, waited: bool) -> None:
        line, grace = self._line, timedelta(seconds=_GRACE)
        try:
            if line.add("sbert/asked", 1) > 1:
                line.wait(["sbert/verdict"], 3 * grace)
                self._verdict = line.get("sbert/verdict").decode()
                return
            others = [rank for rank in range(self.world) if rank != self.rank]
            for rank in others:
                line.set(f"sbert/ring/{rank}", "1")
            answers = self._answers(others)
        except RuntimeError:
            return
        furthest = max([self.calls, *(calls for _, calls in answers.values())])
        said = []
        for rank in others:
            if rank not in answers:
                what = "is stopped, or cannot be reached" if waited else "has ended"
                said.append(f"rank {rank} {what}, at step {self.step} or before")
            elif answers[rank][1] < furthest:
                said.append(f"rank {rank} {'hangs' if waited else 'has failed'} at step {answers[rank][0]}")
        verdict = "; ".join(said) or f"a rank is late at step {self.step}, but has come as far as the others"
        if waited:
            verdict += f"; rank {self.rank} has waited for {self.limit:g} seconds, TrainingConfig(timeout=...)"
        line.set("sbert/verdict", verdict)
        self._verdict = verdict

    def _answers(self, others: list[int]) -> dict[int, tuple[int, int]]:
        """Step and number of calls of each rank that answers in time."""
        answers, end = {}, time.monotonic() + _GRACE
        for rank in others:
            key = f"sbert/answer/{rank}"
            try:
                self._line.wait([key], timedelta(seconds=max(0.05, end - time.monotonic())))
            except RuntimeError:
                continue
            step, calls = self._line.get(key).decode().split()
            answers[rank] = int(step), int(calls)
        return answers

    def end(self) -> None:
        """End the thread, which must not outlive the interpreter."""
        self._ended = True

        def ring() -> None:
            with suppress(RuntimeError):
                self._line.set(f"sbert/ring/{self.rank}", "1")

        # In a thread as well: a request to a stopped store never returns.
        threading.Thread(target=ring, daemon=True).start()
        self._thread.join(1)
