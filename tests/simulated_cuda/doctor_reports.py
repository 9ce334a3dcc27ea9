"""Reports of ``sbert doctor --gpu`` on simulated devices: one is healthy, one gives wrong vectors, one dies.

``python -m tests.simulated_cuda.doctor_reports FOLDER`` makes a small model and writes ``FOLDER/NAME/gpu.jsonl``,
``gpu.md`` and ``printed`` for each. Its stages are forks of this process, in which everything is imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.nn.functional as F

from sbert import SentenceEncoder
from sbert.backends import attention, fused
from sbert.cli import gpu_doctor
from sbert.cli.main import main
from sbert.pipeline import self_check
from tests import small
from tests.simulated_cuda.simulator import simulated

ATTEND = attention.attend


def healthy(stage: str) -> None:
    """All works."""


def wrong(stage: str) -> None:
    """The fused forward gives other vectors for more than nine rows."""
    fused.attend = lambda q, k, v, rows, **options: ATTEND(q, k, v, rows, **options) * (1 + (rows.rows > 9))


def dying(stage: str) -> None:
    """A context is dead from its first use by the fused forward on; one process is killed, and one hangs."""
    if stage == "vectors":
        dead: list[bool] = []

        def dies(function: Callable[..., Any], first: bool) -> Callable[..., Any]:
            def call(query: Any, *others: Any, **options: Any) -> Any:
                if query.is_cuda and (first or dead):
                    dead.append(True)
                    blocking = os.environ.get("CUDA_LAUNCH_BLOCKING")
                    raise torch.AcceleratorError(f"CUDA error: an illegal memory access (blocking: {blocking})")
                return function(query, *others, **options)

            return call

        fused.attend, F.linear = dies(ATTEND, first=True), dies(F.linear, first=False)
    elif stage == "attention":
        gpu_doctor.attend = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    elif stage == "threads":
        gpu_doctor.ThreadPoolExecutor = lambda _: time.sleep(600)


MACHINES = {each.__name__: each for each in (healthy, wrong, dying)}


def start_by(machine: Callable[[str], None]) -> Callable[..., int]:
    """In the place of ``gpu_doctor.start``: a fork with simulated devices."""

    def start(arguments: list[str], environment: Mapping[str, str], log: BinaryIO) -> int:
        child = os.fork()
        if child == 0:
            try:
                for name in environment.keys() - os.environ.keys():  # What a fork has changed stays.
                    os.environ[name] = environment[name]
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                machine(arguments[0])
                torch.set_num_threads(1)  # Else each of autograd's threads would replace the pool of before the fork.
                with simulated([(9, 0), (8, 0)]):
                    torch.cuda.get_arch_list = lambda: ["sm_80", "sm_90"]
                    gpu_doctor.main(*arguments)
                os._exit(0)
            except BaseException:
                os.write(log.fileno(), traceback.format_exc().encode())
                os._exit(1)
        limit = time.monotonic() + (1 if "threads" in arguments and machine is dying else 60)
        while time.monotonic() < limit:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise subprocess.TimeoutExpired(arguments, 600)

    return start


def reports(folder: Path) -> None:
    """Write the report of each machine, and what it prints."""
    gpu_doctor._TEXTS, gpu_doctor._CORPUS, gpu_doctor._LENGTHS = 32, 2000, ((17,) * 32, (1, 40, 17, 2))
    self_check._COUNTS = (1, 10)  # Its own tests have all.
    gpu_doctor.find_spec = lambda _: None  # type: ignore[assignment]
    model = small.bert(folder / "bert")
    SentenceEncoder(model, device="cpu", backend="plain")  # Imports transformers, once for all.
    for name, machine in MACHINES.items():
        os.environ["XDG_CACHE_HOME"] = str(folder / name / "cache")
        gpu_doctor.start = start_by(machine)
        (folder / name).mkdir()
        with (folder / name / "printed").open("w", encoding="utf-8") as printed, redirect_stdout(printed):
            code = main(["doctor", str(model), "--gpu", "--report", str(folder / name)])
        (folder / name / "code").write_text(str(code), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
    reports(Path(sys.argv[1]))
