"""The reports of ``sbert doctor --gpu``: of simulated devices that work, or do not; and without any."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from sbert.cli import benchmark, gpu_doctor
from sbert.cli.main import main
from tests.cli.test_benchmark import start_thread
from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if torch.cuda.is_available():
        pytest.skip("these are of simulated devices")
    folder = tmp_path_factory.mktemp("reports")
    command = [sys.executable, "-m", "tests.simulated_cuda.doctor_reports", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    return folder


def read(reports: Path, machine: str) -> tuple[dict[str, str], str, str]:
    """The line of each stage, as it was printed; the report, which has the same lines; and the exit code."""
    printed, report, code = ((reports / f"{machine}.{kind}").read_text() for kind in ("printed", "report", "code"))
    assert [line for line in report.splitlines() if line in printed.splitlines()] == printed.splitlines()
    return {line[:20].rstrip(): line[21:] for line in printed.splitlines()}, report, code


def test_a_healthy_machine(reports: Path) -> None:
    lines, _, code = read(reports, "healthy")
    assert code == "0"
    assert list(lines) == [*gpu_doctor.STAGES, "vectors, cuda:1"]
    assert all(line.startswith("ok; ") for line in lines.values())
    assert "cuda:1 namespace(name='Simulated', major=8" in lines["environment"]
    assert "forward fused: F.linear" in lines["vectors"]
    assert re.search(r"short texts/s [1-9]", lines["speed"])
    for stage in ("vectors", "plain vectors", "vectors, cuda:1", "train in float32"):
        errors = dict(re.findall(r"error in torch\.(\w+) ([\d.e-]+)", lines[stage]))
        assert float(errors["float32"]) < 1e-5
        assert float(errors["bfloat16"]) < 0.02


def test_a_broken_machine(reports: Path) -> None:
    """What fails or dies ends no other stage."""
    lines, report, code = read(reports, "broken")
    assert code == "1"
    assert {stage for stage, line in lines.items() if not line.startswith("ok; ")} == {
        "vectors", "vectors, cuda:1", "attention", "speed",
    }  # fmt: skip
    assert re.match(
        r"FAILED: AssertionError: DIFFERENT vectors: error .*; SBERT_BACKEND=plain avoids", lines["vectors"]
    )
    assert lines["attention"].startswith(
        "FAILED: AcceleratorError: CUDA error: an illegal memory access; SBERT_BACKEND"
    )
    assert "terminated abruptly" in lines["speed"]
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
