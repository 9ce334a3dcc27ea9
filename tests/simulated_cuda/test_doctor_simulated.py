"""The reports of ``sbert doctor --gpu``: of simulated devices that work, or do not; and without any."""

from __future__ import annotations

import io
import re
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from sbert.backends import attention, fused
from sbert.cli import benchmark, gpu_doctor
from sbert.cli.main import main
from tests.cli.test_benchmark import start_thread
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda


@pytest.fixture
def examine(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command on two devices: its exit code, the line of each stage, and the report with the same lines."""
    if torch.cuda.is_available():
        pytest.skip("these are of simulated devices")
    monkeypatch.setattr(benchmark, "start_process", start_thread)
    monkeypatch.setattr(gpu_doctor, "_TEXTS", 32)
    monkeypatch.setattr(gpu_doctor, "_CORPUS", 2000)

    def run() -> tuple[int, dict[str, str], str]:
        with simulated([(9, 0), (8, 0)]):
            code = main(["doctor", str(folder), "--gpu", "--report", str(tmp_path / "report")])
        printed, report = capsys.readouterr().out.splitlines(), (tmp_path / "report").read_text(encoding="utf-8")
        assert [line for line in report.splitlines() if line in printed] == printed
        return code, {line[:20].rstrip(): line[21:] for line in printed}, report

    return run


def test_a_healthy_machine(examine: Any) -> None:
    code, lines, _ = examine()
    assert code == 0, lines
    assert list(lines) == [*gpu_doctor.STAGES, "vectors, cuda:1"]
    assert all(line.startswith("ok; ") for line in lines.values())
    assert "cuda:1 namespace(name='Simulated', major=8" in lines["environment"]
    assert "forward fused: F.linear" in lines["vectors"]
    assert re.search(r"short texts/s [1-9]", lines["speed"])
    for stage in ("vectors", "plain vectors", "vectors, cuda:1", "train in float32"):
        errors = dict(re.findall(r"error in torch\.(\w+) ([\d.e-]+)", lines[stage]))
        assert float(errors["float32"]) < 1e-5
        assert float(errors["bfloat16"]) < 0.02


def test_a_broken_machine(examine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of many rows are wrong, a context is dead, and a process dies: no other stage ends with them."""

    def attend(q: Any, k: Any, v: Any, rows: Any, **options: Any) -> Any:
        return attention.attend(q, k, v, rows, **options) * (1 + (q.is_cuda and rows.rows > 9))

    stages = ("environment", "plain vectors", "vectors", "attention", "speed")
    error = torch.AcceleratorError("CUDA error: an illegal memory access")
    monkeypatch.setattr(gpu_doctor, "STAGES", {name: gpu_doctor.STAGES[name] for name in stages})
    monkeypatch.setattr(fused, "attend", attend)
    monkeypatch.setattr(gpu_doctor, "attend", mock.Mock(side_effect=error))
    monkeypatch.setattr(benchmark, "load", mock.Mock(side_effect=BrokenProcessPool("terminated abruptly")))
    code, lines, report = examine()
    assert code == 1
    assert {stage for stage, line in lines.items() if line.startswith("ok; ")} == {"environment", "plain vectors"}
    for stage, words in {
        "vectors": "AssertionError: DIFFERENT vectors: error .*; SBERT_BACKEND=plain avoids",
        "vectors, cuda:1": "AssertionError: DIFFERENT vectors",
        "attention": "AcceleratorError: CUDA error: an illegal memory access; SBERT_BACKEND",
        "speed": "BrokenProcessPool: terminated abruptly",
    }.items():
        assert re.match(f"FAILED: {words}", lines[stage])
    assert "in _compare\n" in report


def test_a_machine_without_a_gpu(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a process as users have it."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["doctor", str(folder), "--gpu", "--report", str(tmp_path / "report")]) == 1
    line = capsys.readouterr().out
    assert re.match(r"environment +FAILED: RuntimeError: no cuda:0: a driver is missing .*; install a driver", line)
    assert line.strip() in (tmp_path / "report").read_text(encoding="utf-8")


@pytest.mark.parametrize(("error", "line", "code"), [
    (TimeoutError(), "FAILED: TimeoutError; install a driver", 1),
    (torch.OutOfMemoryError("CUDA out of memory"), "not examined: OutOfMemoryError: CUDA out of memory", 0),
    (SystemExit(), "", None),
], ids=repr)  # fmt: skip
def test_the_end_of_a_stage(error: BaseException, line: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine stops in it, its name is the end of the report."""
    monkeypatch.setattr(benchmark, "start_process", mock.Mock(side_effect=error))
    monkeypatch.setattr(gpu_doctor, "STAGES", {"environment": gpu_doctor.STAGES["environment"]})
    report, subject = io.StringIO(), gpu_doctor.Subject("m", "cuda:0", "auto")
    try:
        assert gpu_doctor.examine(subject, report) == code
    except SystemExit:
        assert code is None
    assert report.getvalue().startswith(f"{'environment':<21}{line}")


def test_a_card_without_kernels_is_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    report = io.StringIO()
    monkeypatch.setattr(benchmark, "start_process", start_thread)
    with simulated((7, 0)):
        monkeypatch.setattr(torch.cuda, "get_arch_list", "sm_75 sm_80".split)
        assert gpu_doctor.examine(gpu_doctor.Subject("m", "cuda:0", "auto"), report) == 1
    assert re.match(r"environment +FAILED: RuntimeError: torch .* has kernels for sm_75 sm_80, but", report.getvalue())
    assert "vectors" not in report.getvalue()


def test_what_cannot_be_examined(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        ([str(folder), "--report", str(tmp_path / "report")], "pass --gpu as well"),
        ([str(folder), "--gpu", "--device", "cpu"], "pass --device cuda"),
        ([str(folder), "--gpu", "--json"], "leave --json out"),
        ([str(folder), "--gpu", "--report", str(tmp_path / "no" / "report")], "No such file"),
        ([str(tmp_path / "misspelt"), "--gpu"], "misspelt"),
    ):
        assert main(["doctor", *arguments]) == 2
        assert words in capsys.readouterr().err
