"""Reports of ``sbert doctor --gpu`` on simulated devices: one machine is healthy, the other one is not.

``python -m tests.simulated_cuda.doctor_reports FOLDER`` makes a small model and writes ``FOLDER/MACHINE.report``,
``.printed`` and ``.code`` for each. Its stages are forks of this process, in which everything is imported.
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

from sbert import SentenceEncoder
from sbert.backends import attention, fused
from sbert.cli import benchmark, gpu_doctor
from sbert.cli.main import main
from tests import small
from tests.simulated_cuda.simulator import simulated


def attend(q: Any, k: Any, v: Any, rows: Any, **options: Any) -> Any:
    """Wrong for more than nine rows."""
    return attention.attend(q, k, v, rows, **options) * (1 + (q.is_cuda and rows.rows > 9))


def break_stage(stage: str) -> None:
    """The vectors of the fused forward are wrong; one context is dead, and one process is killed."""
    if stage.startswith("vectors"):
        fused.attend = attend
    elif stage == "attention":
        error = torch.AcceleratorError("CUDA error: an illegal memory access")
        gpu_doctor.attend = mock.Mock(side_effect=error)
    elif stage == "speed":
        benchmark.load = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def run_on(machine: str, stage: str, subject: gpu_doctor.Subject) -> str:
    """The result of a stage, in its process."""
    if machine == "broken":
        break_stage(stage)
    torch.set_num_threads(1)  # Else each of autograd's threads would replace the pool of before the fork.
    with simulated([(9, 0), (8, 0)]):
        return gpu_doctor.run(stage, subject)


def write_report(folder: Path, model: Path, machine: str) -> None:
    @contextmanager
    def start_process() -> Iterator[Any]:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
            yield SimpleNamespace(submit=lambda _, *given: executor.submit(run_on, machine, *given))

    stages = [name for name in gpu_doctor.STAGES if machine == "healthy" or not name.startswith(("t", "search"))]
    with (
        mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / machine)),
        mock.patch.object(gpu_doctor, "STAGES", {name: gpu_doctor.STAGES[name] for name in stages}),
        mock.patch.object(benchmark, "start_process", start_process),
        mock.patch("torch.cuda.device_count", return_value=2),
        (folder / f"{machine}.printed").open("w", encoding="utf-8") as printed,
        redirect_stdout(printed),
    ):
        code = main(["doctor", str(model), "--gpu", "--report", str(folder / f"{machine}.report")])
    (folder / f"{machine}.code").write_text(str(code), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
    gpu_doctor._TEXTS, gpu_doctor._CORPUS = 32, 2000
    bert = small.bert(Path(sys.argv[1]) / "bert")
    SentenceEncoder(bert, device="cpu", backend="plain")  # Imports transformers, once for all.
    for name in ("healthy", "broken"):
        write_report(Path(sys.argv[1]), bert, name)
