"""Reports of ``sbert doctor --gpu`` on simulated devices: one is healthy, one gives wrong vectors, one dies.

``python -m tests.simulated_cuda.doctor_reports FOLDER`` makes a small model and writes ``FOLDER/NAME.report``,
``NAME.printed`` and ``NAME.code`` for each. Its stages are forks of this process, in which everything is imported.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from sbert import SentenceEncoder
from sbert.backends import attention, fused
from sbert.cli import benchmark, gpu_doctor
from sbert.cli.main import main
from tests import small
from tests.simulated_cuda.simulator import simulated

STAGES = ["environment", "plain vectors", "vectors", "attention", "speed"]  # Of machines that are not healthy.


def healthy(stage: str) -> None:
    """All works."""


def wrong(stage: str) -> None:
    """The fused forward gives other vectors for more than nine rows."""
    attend = attention.attend
    fused.attend = lambda q, k, v, rows, **o: attend(q, k, v, rows, **o) * (1 + (q.is_cuda and rows.rows > 9))


def dying(stage: str) -> None:
    """A context is dead from its first use by the fused forward on; one process is killed."""
    dead = list[bool]()

    def dies(function: Any, first: bool) -> Any:
        def call(query: Any, *others: Any, **options: Any) -> Any:
            if query.is_cuda and (first or dead):
                dead.append(True)
                raise torch.AcceleratorError("CUDA error: an illegal memory access")
            return function(query, *others, **options)

        return call

    if stage == "vectors":
        fused.attend, F.linear = dies(attention.attend, first=True), dies(F.linear, first=False)
    elif stage == "attention":
        gpu_doctor.attend = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)


MACHINES = {machine.__name__: machine for machine in (healthy, wrong, dying)}


def run_on(machine: str, stage: str, subject: gpu_doctor.Subject) -> str:
    """The result of a stage, in its process."""
    MACHINES[machine](stage)
    torch.set_num_threads(1)  # Else each of autograd's threads would replace the pool of before the fork.
    with simulated([(9, 0), (8, 0)]):
        return gpu_doctor.run(stage, subject)


def write_report(folder: Path, model: Path, machine: str) -> None:
    @contextmanager
    def start_process() -> Iterator[Any]:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
            yield SimpleNamespace(submit=lambda _, *given: executor.submit(run_on, machine, *given))

    stages = {name: value for name, value in gpu_doctor.STAGES.items() if machine == "healthy" or name in STAGES}
    patches = [
        mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / machine)),
        mock.patch.object(gpu_doctor, "STAGES", stages),
        mock.patch.object(benchmark, "start_process", start_process),
        mock.patch("torch.cuda.device_count", return_value=2),
    ]
    for patch in patches:
        patch.start()
    with (folder / f"{machine}.printed").open("w", encoding="utf-8") as printed, redirect_stdout(printed):
        code = main(["doctor", str(model), "--gpu", "--report", str(folder / f"{machine}.report")])
    (folder / f"{machine}.code").write_text(str(code), encoding="utf-8")
    mock.patch.stopall()


if __name__ == "__main__":
    torch.set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
    gpu_doctor._TEXTS, gpu_doctor._CORPUS = 32, 2000
    bert = small.bert(Path(sys.argv[1]) / "bert")
    SentenceEncoder(bert, device="cpu", backend="plain")  # Imports transformers, once for all.
    for name in MACHINES:
        write_report(Path(sys.argv[1]), bert, name)
