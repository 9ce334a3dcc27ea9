"""Which of several processes does not answer, and at which step: asked when one has waited too long for the others."""

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

# Seconds in which a process that runs gives a sign; each does so in a thread that has nothing else to do.
_GRACE = 5.0
_FOREVER = timedelta(days=365)
# What torch says of another process, in errors that are otherwise plain RuntimeErrors.
_OF_OTHERS = re.compile("gloo|NCCL|TCPStore")
# How deep actions that some ranks wait for may stand in one another; each level has connections of its own.
_LEVELS = 3


class RollCall:
    """The place of this process in a program of several, and how it finds out who holds up the others.

    A rank whose collective operation fails rings at all others. In each, a thread answers with the step and the number
    of collective operations that its rank has come to: who does not answer is stopped or has ended, and who has come
    less far hangs. The first that rings says so to all.

    Args:
        rank: Of this process.
        world: How many there are.
        limit: Seconds that a rank waits for the others.
        owned: Whether the process group is this library's.
    """

    def __init__(self, rank: int, world: int, limit: float, owned: bool) -> None:
        self.rank, self.world, self.owned = rank, world, owned
        self.step = self.calls = self.depth = 0
        self.process_group = dist.group.WORLD
        self._ended, self._verdict = False, ""
        store: Any = dist.distributed_c10d._get_default_store()
        # A connection is blocked while one waits on it, so that the thread that answers has its own.
        self._line, ear = store.clone(), store.clone()
        self._levels = [dist.new_group(backend="gloo") for _ in range(_LEVELS)]
        self.limit_to(limit)
        self._thread = threading.Thread(target=self._answer, args=(ear,), name="sbert-roll-call", daemon=True)
        self._thread.start()

    def limit_to(self, limit: float) -> None:
        """Wait for other ranks for so many seconds; in a process group that the caller has made, in actions alone."""
        self.limit = limit
        for group in [*self._levels, *([dist.group.WORLD] if self.owned else [])]:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=limit), group)

    def _answer(self, store: Any) -> None:
        try:
            store.wait([f"sbert/ring/{self.rank}"], _FOREVER)
            if not self._ended:
                store.set(f"sbert/answer/{self.rank}", f"{self.step} {self.calls}")
                store.wait(["sbert/verdict"], timedelta(seconds=3 * _GRACE))
                self._verdict = store.get("sbert/verdict").decode()
        except RuntimeError:  # The store has gone, with the process that held it.
            return

    @contextmanager
    def call(self) -> Iterator[None]:
        """A collective operation: if it fails because of another rank, the error says which.

        Raises:
            RuntimeError: If another rank hangs, is stopped or has ended.
        """
        self.calls += 1
        with self.named():
            yield

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors that another rank is the cause of name it."""
        try:
            yield
        except RuntimeError as error:
            if not _OF_OTHERS.search(str(error)):
                raise
            raise RuntimeError(self._who(error)) from error

    def wait_for(self, action: Callable[[], Any]) -> tuple[Any, BaseException | None, bool]:
        """Do something that may take longer on one rank than on others, which wait as long as its process runs.

        Returns:
            Its result; its failure, if it has failed; and whether it has on any rank.
        """
        result, failure, found = None, None, {}
        done, failed = threading.Event(), torch.zeros((), dtype=torch.int64)
        if self.depth == _LEVELS:
            raise RuntimeError(
                f"what all ranks wait for stands {_LEVELS} deep in itself; call it outside of the others"
            )
        self.calls += 1
        group, interval = self._levels[self.depth], min(self.limit / 4, _GRACE)

        def tick() -> None:
            # Rounds in which every rank says whether it is busy: a stopped one says nothing, and the limit is met.
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
        """What has become of the rank that is not there, as the first that asked has found out."""
        if not self._verdict:
            # In a thread, as the store does not answer where the process that holds it is stopped.
            asking = threading.Thread(target=self._ask, args=("Timed out" in str(error),), daemon=True)
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
        """The step and the number of calls of each rank that answers in time."""
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
        """Let the thread end, which must not outlive the interpreter."""
        self._ended = True

        def ring() -> None:
            with suppress(RuntimeError):
                self._line.set(f"sbert/ring/{self.rank}", "1")

        # In a thread, too: where the store has been stopped, what asks it never returns.
        threading.Thread(target=ring, daemon=True).start()
        self._thread.join(1)
