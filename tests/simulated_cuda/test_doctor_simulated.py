"""The reports of ``sbert doctor --gpu``: of simulated devices that work, are wrong, and die; and without any."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert.cli import gpu_doctor
from sbert.cli.main import main
from tests import small
from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
STAGES = [*list(gpu_doctor.STAGES)[:-1], "vectors, cuda:1"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if torch.cuda.is_available():
        pytest.skip("these are of simulated devices")
    folder = tmp_path_factory.mktemp("reports")
    command = [sys.executable, "-m", "tests.simulated_cuda.doctor_reports", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    return folder


def read(reports: Path, name: str) -> tuple[dict[str, Any], str]:
    """What is known of each stage, and the page; the line of a stage was printed before the next one started."""
    lines = (reports / name / "gpu.jsonl").read_text(encoding="utf-8").splitlines()
    records = list(map(json.loads, lines))
    assert [record["stage"] for record in records] == [stage for stage in STAGES for _ in range(2)]
    assert [set(record) for record in records[::2]] == [{"stage"}] * len(STAGES)
    page = (reports / name / "gpu.md").read_text(encoding="utf-8")
    assert page.splitlines()[:2] == ["| stage | result |", "| --- | --- |"]
    printed = (reports / name / "printed").read_text(encoding="utf-8").splitlines()
    assert [line[:21].rstrip() for line in printed] == [stage[:20] for stage in STAGES]
    for line in printed:  # The same words in the table.
        assert line[21:].strip() in page
    return {record["stage"]: record for record in records[1::2]}, page


def failed(stages: dict[str, Any]) -> set[str]:
    return {name for name, record in stages.items() if "reason" in record}


def test_a_healthy_machine(reports: Path) -> None:
    stages, page = read(reports, "healthy")
    assert failed(stages) == set()
    assert (reports / "healthy" / "code").read_text() == "0"
    assert "cuda:1 Simulated, capability 8.0" in page
    assert "ok; float32 error" in page
    assert stages["vectors"]["facts"]["forward"] == "fused: F.linear"
    assert stages["environment"]["facts"]["model"] == "bert"
    assert stages["speed"]["facts"]["short texts/s"] > 0


def test_a_machine_with_wrong_vectors(reports: Path) -> None:
    """Its plain way is right, and so is all that falls back to it."""
    stages, page = read(reports, "wrong")
    assert failed(stages) == {"vectors", "fine-tuning", "vectors, cuda:1"}
    assert (reports / "wrong" / "code").read_text() == "1"
    words = "FAILED: DIFFERENT vectors in torch.float32 from float32 on the CPU; SBERT_BACKEND=plain avoids it"
    assert f"| vectors | {words}" in page
    assert any("runs as its Hugging Face module alone" in warning for warning in stages["speed"]["warnings"])


def test_a_machine_that_dies(reports: Path) -> None:
    """The stages after the one whose context is dead are examined all the same; what failed was tried twice."""
    stages, page = read(reports, "dying")
    assert failed(stages) == {"vectors", "attention", "threads", "vectors, cuda:1"}
    error = "AcceleratorError: CUDA error: an illegal memory access (blocking: {})"
    assert stages["vectors"]["reason"] == error.format(None)
    assert stages["vectors"]["again"] == error.format(1)
    assert "in _compare\n" in stages["vectors"]["traceback"]
    assert stages["vectors"]["traceback"] in page
    assert stages["attention"]["reason"] == stages["attention"]["again"] == "the process ended with -9"
    assert stages["threads"]["reason"] == "it did not end within 600 seconds"


def test_a_machine_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a process as users have it."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    folder = str(small.bert(tmp_path / "bert"))
    assert main(["doctor", folder, "--gpu", "--report", str(tmp_path / "new" / "report"), "--json"]) == 1
    start, environment = map(json.loads, capsys.readouterr().out.splitlines())
    assert start == {"stage": "environment"}
    reason = "a driver is missing" if torch.version.cuda else "this build of torch has no CUDA"
    assert environment["reason"].startswith(f"there is no cuda:0: {reason}")
    assert environment["facts"]["torch"] == torch.__version__
    assert environment["remedy"].startswith("install a driver, and the build of torch for it")
    page = (tmp_path / "new" / "report" / "gpu.md").read_text(encoding="utf-8")
    assert f"| environment | FAILED: there is no cuda:0: {reason}" in page


def test_what_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_doctor, "_LIMIT", 0.01)
    record = gpu_doctor._run("environment", gpu_doctor.Subject(str(tmp_path), "cuda:0", "auto"))
    assert record["reason"] == "it did not end within 0.01 seconds"


def test_a_machine_that_stops_in_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name stands in the table."""
    monkeypatch.setattr(gpu_doctor, "_run", lambda *_, **__: sys.exit())
    with pytest.raises(SystemExit):
        gpu_doctor.examine(gpu_doctor.Subject("m", "cuda:0", "auto"), tmp_path, as_json=False)
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert page.splitlines()[-1] == "| environment | it runs, or has ended this program |"


def test_what_does_not_fit_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(gpu_doctor.STAGES, "search", (full, ""))
    gpu_doctor.main("search", json.dumps(["m", "cuda:0", "auto"]), str(tmp_path / "result"))
    facts = {"not examined": "OutOfMemoryError: CUDA out of memory"}
    assert json.loads((tmp_path / "result").read_text(encoding="utf-8")) == {"facts": facts, "warnings": []}


def test_a_report_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are printed all the same."""
    monkeypatch.setattr(gpu_doctor, "_run", lambda *_, **__: {"reason": "no", "facts": {}, "warnings": []})
    with pytest.warns(UserWarning, match="the report is not complete"):
        assert gpu_doctor.examine(gpu_doctor.Subject("m", "cuda:0", "auto"), tmp_path / "missing", as_json=False) == 1


def test_what_cannot_be_examined(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(folder), "--report", str(tmp_path / "report")]) == 2
    assert "pass --gpu as well" in capsys.readouterr().err
    with simulated():
        assert main(["doctor", str(folder), "--gpu", "--device", "cpu"]) == 2
    assert "pass --device cuda" in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "misspelt"), "--gpu"]) == 2
    assert "misspelt" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
