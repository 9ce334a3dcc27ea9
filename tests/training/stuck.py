"""Training on several ranks of which one is lost: python -m tests.training.stuck OUTPUT.

For each case a file OUTPUT/CASE-RANK for what the rank says, whose last line is its exit code, or that it had to be
ended. The ranks are forked from a process that has imported and built everything, so that all cases take no longer
than the slowest of them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.distributed import stalls
from sbert.distributed.ranks import leave
from tests import small

LIMIT = 5.0
STEP = 3
# How many ranks there are, and which of them is lost.
CASES = {
    "hangs": (2, 1),
    "stopped": (3, 1),
    "killed": (3, 1),
    "raises": (2, 1),
    "evaluates": (2, None),
    "stopped while it evaluates": (2, 0),
}


def lose(how: str) -> None:
    if how.startswith("stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raises":
        raise ValueError("this loss fails")
    time.sleep(600)


def train(model: SentenceEncoder, how: str, lost: bool) -> None:
    calls = 0

    def loss(anchor: Tensor, positive: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if lost and calls == STEP and "evaluates" not in how:
            lose(how)
        return (anchor - positive).square().mean()

    def evaluator(model: SentenceEncoder) -> float:
        if lost:
            lose(how)
        time.sleep(1.5 * LIMIT)  # On the first rank alone, and longer than others wait in a step.
        return 1.0

    config = TrainingConfig(steps=4, batch_size=4, log_every=1, timeout=LIMIT)
    rows = [(f"a small boat {i}", f"the lake {i}") for i in range(16)]
    chosen = evaluator if "evaluates" in how else None
    Trainer(model, rows, loss, config, evaluator=chosen).fit(show_progress_bar=False)
    print("trained", flush=True)


def rank(model: SentenceEncoder, how: str, number: int, port: int, output: Path) -> None:
    """One rank of a case, which ends as a program would."""
    world, lost = CASES[how]
    os.environ.update(RANK=str(number), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    said = os.open(output / f"{how}-{number}", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 0
    try:
        train(model, how, number == lost)
    except BaseException:
        code = 1
        traceback.print_exc()
    leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def main(output: Path) -> None:
    torch.set_num_threads(1)
    stalls._GRACE = 2.0
    model = SentenceEncoder(Transformer(small.bert(output / "bert")), Pooling("mean"), device="cpu")
    running: dict[int, Path] = {}
    for how, (world, _) in CASES.items():
        port = free_port()
        for number in range(world):
            if not (child := os.fork()):
                rank(model, how, number, port, output)
            running[child] = output / f"{how}-{number}"
    lost = {output / f"{how}-{number}" for how, (_, number) in CASES.items()}
    end = time.monotonic() + 90
    while any(path not in lost for path in running.values()) and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            running.pop(pid).open("a").write(f"\nexit {os.waitstatus_to_exitcode(status)}")
        time.sleep(0.05)
    for child, path in running.items():
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        path.open("a").write("\nended")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
