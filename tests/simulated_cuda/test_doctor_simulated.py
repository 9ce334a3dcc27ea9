"""``sbert doctor --gpu`` on the simulated device, whose speed means nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert.backends.fused import Fused
from sbert.backends.packed import Packed
from sbert.batch import TokenBatch
from sbert.cli import diagnosis
from sbert.cli.main import main
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
BACKENDS = ["padded", "packed", "fused"]
FIGURES = {
    "matrix product": {"TFLOP/s"},
    "encode, 17 tokens": {"texts/s"},
    "encode, 256 tokens": {"texts/s"},
    "one text": {"ms p50", "ms p95"},
}


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"_SIDE": 64, "_TEXTS": 8, "_SINGLES": 8}.items():
        monkeypatch.setattr(diagnosis, name, size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


def measure(folder: Path, report: Path, *options: str) -> dict[str, Any]:
    assert main(["doctor", str(folder), "--gpu", "--report", str(report), *options]) == 0
    assert sorted(path.name for path in report.iterdir()) == ["gpu.json", "gpu.md"]  # And nothing unfinished.
    return dict(json.loads((report / "gpu.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize(("device", "capability"), [("cuda:1", (9, 0)), ("cuda", (7, 5))])
def test_all_is_measured(
    device: str, capability: tuple[int, int], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated(capability):
        result = measure(folder, tmp_path / "new" / "report", "--device", device)
    assert result["model"] == "bert"
    assert list(result["parity"]) == BACKENDS
    for each in result["parity"].values():
        assert 0 <= each["error"] <= each["allowed"] < 0.1
    assert {name: set(figures) for name, figures in result["figures"].items()} == FIGURES
    values = [value for figures in result["figures"].values() for value in figures.values()]
    assert all(math.isfinite(value) and value > 0 for value in values)
    said, page = capsys.readouterr().out, (tmp_path / "new" / "report" / "gpu.md").read_text(encoding="utf-8")
    assert page.splitlines()[:2] == ["|  | result |", "| --- | --- |"]
    assert {line.count("|") for line in page.splitlines()} == {3}
    for name in ("model", "device", "cuda", "versions", "forward", *(f"parity: {way}" for way in BACKENDS), *FIGURES):
        assert f"\n| {name} | " in page
        assert f"{name}  " in said


def test_models_without_faster_backends(tmp_path: Path) -> None:
    folder = build("t5-encoder", tmp_path / "t5")
    with simulated():
        parity = measure(folder, tmp_path / "report")["parity"]
        facts = diagnosis.diagnose(diagnosis.SentenceEncoder(folder, device="cuda"))
    assert {name: result.get("reason") for name, result in parity.items()} == {
        "padded": None,
        "packed": "not used: T5EncoderModel has its own attention",
        "fused": "not used: t5 is not a BERT-family model",
    }
    assert facts["forward"] == "plain, with copies of its weights in half precision: t5 is not a BERT-family model"


@pytest.mark.parametrize("factor", [1.5, math.nan])
@pytest.mark.parametrize("broken", [Packed, Fused])
def test_wrong_vectors_are_reported(
    broken: Any, factor: float, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if only rows of the longest input are wrong, which the comparison at the first use does not see."""
    right = broken.forward

    def wrong(self: Any, batch: TokenBatch) -> torch.Tensor:
        vectors = right(self, batch)
        return vectors * factor if batch.longest == 64 else vectors

    monkeypatch.setattr(broken, "forward", wrong)
    with simulated():
        found = measure(folder, tmp_path)
    [(name, reason)] = [(name, result["reason"]) for name, result in found["parity"].items() if "reason" in result]
    assert name == broken.name
    assert reason.startswith("DIFFERENT vectors: nan of" if math.isnan(factor) else "DIFFERENT vectors: 5.0e-01 of")
    assert "DIFFERENT" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_what_fails_does_not_hide_the_rest(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("an illegal | access")

    monkeypatch.setattr(diagnosis, "_multiply", fail)
    monkeypatch.setattr(Fused, "__init__", fail)
    with simulated(), pytest.warns(UserWarning, match="runs by its plain, slower forward"):
        found = diagnosis.measure(diagnosis.SentenceEncoder(folder, device="cuda", dtype="float32"), "some/name")
    error = "failed: RuntimeError: an illegal | access"
    reasons = {name: figures.get("reason") for name, figures in {**found["figures"], **found["parity"]}.items()}
    assert {name for name, reason in reasons.items() if reason == error} == {"matrix product", "fused"}
    assert list(reasons.values()).count(None) == len(reasons) - 2
    diagnosis.write(found, tmp_path)
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "\n| matrix product | failed: RuntimeError: an illegal \\| access |\n" in page


@pytest.mark.filterwarnings("ignore:.*runs by its plain, slower forward:UserWarning")
@pytest.mark.filterwarnings("ignore:attention runs slower than it could:UserWarning")
@pytest.mark.parametrize("flash", [False, True])
def test_little_memory_and_no_flash_attention(flash: bool, folder: Path) -> None:
    """Nothing raises, however early the memory ends; without the kernel, as on Windows, the reasons are there."""
    with simulated() as gpu:
        model = diagnosis.SentenceEncoder(folder, device="cuda")
        if flash:
            gpu.memory(limit=gpu.call("used"))
        else:
            gpu.without_flash()
        result = diagnosis.measure(model, "name")
    assert any("out of memory" in line for line in diagnosis.rows(result).values()) == flash
    if not flash:
        assert "as torch's kernel for any length fails (" in result["facts"]["attention"]
        assert result["facts"]["no training kernel"].startswith("torch's _flash_attention_forward fails (")


def test_what_cannot_be_measured(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ["--report", str(tmp_path / "report")]
    for options, reason in {("--gpu", *report): "--gpu needs a CUDA device", (*report,): "pass --gpu as well"}.items():
        assert main(["doctor", str(folder), *options]) == 2
        assert reason in capsys.readouterr().err
    with simulated():
        assert main(["doctor", str(folder), "--gpu", "--device", "cpu"]) == 2
        assert "pass --device cuda" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
