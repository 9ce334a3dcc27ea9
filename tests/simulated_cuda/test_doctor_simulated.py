"""The reports of ``sbert doctor --gpu``: of simulated devices that work, are wrong, and die; and without any."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert.cli import benchmark, gpu_doctor
from sbert.cli.main import main
from tests import small
from tests.cli.test_benchmark import start_thread
from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
SUBJECT = gpu_doctor.Subject("m", "cuda:0", "auto")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if torch.cuda.is_available():
        pytest.skip("these are of simulated devices")
    folder = tmp_path_factory.mktemp("reports")
    command = [sys.executable, "-m", "tests.simulated_cuda.doctor_reports", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    return folder


def read(reports: Path, machine: str) -> tuple[dict[str, str], str]:
    """The line of each stage, as it was printed; the same lines stand in the report."""
    printed = (reports / f"{machine}.printed").read_text(encoding="utf-8")
    report = (reports / f"{machine}.report").read_text(encoding="utf-8")
    lines = {line[:20].rstrip(): line[21:] for line in printed.splitlines()}
    assert [line for line in report.splitlines() if line in printed.splitlines()] == printed.splitlines()
    return lines, report


def failed(lines: dict[str, str]) -> set[str]:
    assert all(line.startswith(("ok", "FAILED: ")) for line in lines.values())
    return {stage for stage, line in lines.items() if line.startswith("FAILED")}


def test_a_healthy_machine(reports: Path) -> None:
    lines, _ = read(reports, "healthy")
    assert failed(lines) == set()
    assert list(lines) == [*gpu_doctor.STAGES, "vectors, cuda:1"]
    assert (reports / "healthy.code").read_text() == "0"
    assert "cuda:1 namespace(name='Simulated', major=8" in lines["environment"]
    assert "forward fused: F.linear" in lines["vectors"]
    for stage in ("vectors", "plain vectors", "vectors, cuda:1", "train in float32"):
        errors = re.findall(r"error in torch\.(\w+) ([\d.e-]+)", lines[stage])
        assert {dtype: float(error) < (1e-5 if dtype == "float32" else 0.02) for dtype, error in errors} == {
            "float32": True, "bfloat16": True,
        }  # fmt: skip
    assert re.search(r"short texts/s [1-9]", lines["speed"])


def test_a_machine_with_wrong_vectors(reports: Path) -> None:
    """Its plain way is right, and so is what the check of the first use leads to it."""
    lines, report = read(reports, "wrong")
    assert failed(lines) == {"vectors", "vectors, cuda:1"}
    assert (reports / "wrong.code").read_text() == "1"
    assert re.match(
        r"FAILED: AssertionError: DIFFERENT vectors: error .*; SBERT_BACKEND=plain avoids", lines["vectors"]
    )
    assert "in _compare\n" in report


def test_a_machine_that_dies(reports: Path) -> None:
    """The stages after the one whose context is dead are examined all the same."""
    lines, report = read(reports, "dying")
    assert failed(lines) == {"vectors", "attention", "vectors, cuda:1"}
    assert lines["vectors"].startswith("FAILED: AcceleratorError: CUDA error: an illegal memory access the GPU cannot")
    assert "terminated abruptly" in lines["attention"]
    assert "in _compare\n" in report


def test_a_machine_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a process as users have it."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    folder = str(small.bert(tmp_path / "bert"))
    assert main(["doctor", folder, "--gpu", "--report", str(tmp_path / "report")]) == 1
    line = capsys.readouterr().out
    assert re.match(r"environment +FAILED: RuntimeError: no cuda:0: a driver is missing .*; install a driver", line)
    assert line.strip() in (tmp_path / "report").read_text(encoding="utf-8")


def examine(stages: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code and the report, of stages in a thread of this process."""
    monkeypatch.setattr(gpu_doctor, "STAGES", stages)
    monkeypatch.setattr(benchmark, "start_process", start_thread)
    report = io.StringIO()
    return gpu_doctor.examine(SUBJECT, report), report.getvalue()


def raises(error: BaseException) -> Any:
    def stage(_: Any) -> Any:
        raise error

    return stage


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_doctor, "_LIMIT", 0.01)
    report = io.StringIO()
    assert gpu_doctor.examine(SUBJECT, report) == 1
    assert report.getvalue().startswith("environment          FAILED: TimeoutError; install")


def test_a_machine_that_stops_in_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is the end of the report."""
    report = io.StringIO()
    monkeypatch.setattr(benchmark, "start_process", sys.exit)
    with pytest.raises(SystemExit):
        gpu_doctor.examine(SUBJECT, report)
    assert report.getvalue() == "environment          "


def test_what_does_not_fit_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {"search": (raises(torch.OutOfMemoryError("CUDA out of memory")), "")}
    code, report = examine(stages, monkeypatch)
    assert code == 0
    assert report.startswith("search               not examined: OutOfMemoryError: CUDA out of memory\n")


def test_a_card_without_kernels_is_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated((7, 0)):
        monkeypatch.setattr(torch.cuda, "get_arch_list", "sm_75 sm_80".split)
        code, report = examine(dict(gpu_doctor.STAGES), monkeypatch)
    assert code == 1
    assert re.match(r"environment +FAILED: RuntimeError: torch .* has kernels for sm_75 sm_80, but none for", report)
    assert "vectors" not in report


def test_what_cannot_be_examined(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["--report", str(tmp_path / "report")], "pass --gpu as well"),
        (["--gpu", "--device", "cpu"], "pass --device cuda"),
        (["--gpu", "--json"], "leave --json out"),
        (["--gpu", "--report", str(tmp_path / "no" / "report")], "No such file"),
    ):
        assert main(["doctor", str(folder), *arguments]) == 2
        assert words in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "misspelt"), "--gpu"]) == 2
    assert "misspelt" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
