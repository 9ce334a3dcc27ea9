"""``sbert doctor --gpu`` on the simulated device, whose speed means nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert.backends import attention, choice
from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.packed import Packed
from sbert.batch import TokenBatch
from sbert.cli import gpu_figures, gpu_report
from sbert.cli.doctor import diagnose
from sbert.cli.main import main
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
WAYS = ["plain padded", "packed", "fused", "CUDA graphs"]
THROUGHPUT = {"tokens/s", "texts/s", "tokens a text", "% of the product's ceiling"}
FIGURES = {
    "matrix product, bfloat16": {"TFLOP/s"},
    "matrix product, float16": {"TFLOP/s"},
    "matrix product, float32": {"TFLOP/s"},
    "copy to the device": {"GB/s"},
    "copy to the host": {"GB/s"},
    "copy on the device": {"GB/s"},
    "encode, short texts": THROUGHPUT,
    "encode, 128 tokens": THROUGHPUT,
    "encode, 256 tokens": THROUGHPUT,
    "one text, with CUDA graphs": {"ms p50", "ms p95"},
    "one text, without CUDA graphs": {"ms p50", "ms p95"},
    "semantic_search, 10 queries in 500": {"queries/s", "ms p50", "ms p95"},
    "training step, 4 pairs": {"ms"},
}


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"_CEILING": 1e-4, "_SECONDS": 0.02, "_PRODUCTS": ((64, 64, 64),), "_COPIED": 4096}
    sizes |= {"_LEAST": 8, "_MOST": 32, "_QUERIES": 10, "_CORPUS": 500, "_PAIRS": 4, "_STEPS": 4}
    for name, size in sizes.items():
        monkeypatch.setattr(gpu_figures, name, size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


def measured(folder: Path, report: Path, *options: str) -> dict[str, Any]:
    assert main(["doctor", str(folder), "--gpu", "--report", str(report), *options]) == 0
    found = json.loads((report / "gpu.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in report.iterdir()) == ["gpu.json", "gpu.md"]  # And nothing unfinished.
    return dict(found)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_all_is_measured(device: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with simulated() as gpu:
        found = measured(folder, tmp_path / "new" / "report", "--device", device)
        assert gpu.count("graph replays") > 8
    assert found["model"] == "bert"
    assert list(found["parity"]) == WAYS
    ways = {way: result for way, result in found["self-check"].items() if not way.startswith("kernel")}
    assert list(ways)[:2] == ["plain", "fused"]
    for result in ways.values():
        assert 0 < result["difference"] <= result["allowed"] == 2 * ways["plain"]["difference"]
        assert len(result["milliseconds"]) == 2
        assert result["reason"] is None
    assert found["self-check"]["kernel add_norm"] == {"reason": "not used: it runs on NVIDIA GPUs only"}
    for result in found["parity"].values():
        assert result["reason"] is None
        assert 0 < result["difference"] <= result["allowed"] < 0.1
    assert {name: set(figures) for name, figures in found["figures"].items()} == FIGURES
    values = [value for figures in found["figures"].values() for value in figures.values()]
    assert all(math.isfinite(value) and value > 0 for value in values)
    said, page = capsys.readouterr().out, (tmp_path / "new" / "report" / "gpu.md").read_text(encoding="utf-8")
    lines = page.splitlines()
    assert lines[:2] == ["|  | found |", "| --- | --- |"]
    for line in lines:
        assert line.count("|") == 3
    for name in ("model", "device", "driver", "versions", "forward", *(f"parity: {way}" for way in WAYS), *FIGURES):
        assert f"\n| {name} | " in page
        assert f"{name}  " in said
    assert "compute capability 9.0" in page
    assert "same vectors" in page


@pytest.mark.parametrize(("capability", "dtype"), [((9, 0), "float32"), ((7, 5), "float16"), ((6, 1), "float32")])
def test_other_arithmetic(capability: tuple[int, int], dtype: str, folder: Path, tmp_path: Path) -> None:
    with simulated(capability):
        found = measured(folder, tmp_path, "--dtype", "float32" if dtype == "float32" else "auto")
    assert f"matrix product, {dtype}" in found["figures"]
    graphs = found["figures"].pop("one text, with CUDA graphs")
    assert graphs["failed"].startswith("not used: attention is not one kernel")
    assert not [figures for figures in found["figures"].values() if "failed" in figures]
    reasons = {way: result["reason"] for way, result in found["parity"].items()}
    assert reasons.pop("CUDA graphs").startswith("not used: attention is not one kernel")
    assert set(reasons.values()) == {None}


def test_half_weights_are_compared_with_float32(folder: Path, tmp_path: Path) -> None:
    with simulated():
        parity = measured(folder, tmp_path, "--dtype", "bfloat16")["parity"]
    assert all(0 < result["difference"] <= result["allowed"] for result in parity.values())


def test_the_default_model_raises_no_alarm() -> None:
    with simulated():
        parity = gpu_report.parity(gpu_report.SentenceEncoder(device="cuda")[0], torch.bfloat16)  # type: ignore[arg-type]
    assert {way: result["reason"] for way, result in parity.items()} == dict.fromkeys(WAYS)


def test_models_without_faster_ways(tmp_path: Path) -> None:
    folder = build("t5-encoder", tmp_path / "t5")
    with simulated():
        parity = measured(folder, tmp_path / "report")["parity"]
    assert parity["plain padded"]["reason"] is None
    assert parity["packed"]["reason"] == "not used: T5EncoderModel has its own attention"
    for way in ("fused", "CUDA graphs"):
        assert parity[way] == {**parity[way], "difference": None, "reason": "not used: t5 is not a BERT-family model"}


@pytest.mark.parametrize("factor", [1.5, math.nan])
@pytest.mark.parametrize("broken", [Packed, Fused, CudaGraphs])
def test_wrong_vectors_are_reported(
    broken: Any, factor: float, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if only rows of the longest input are wrong, which the check at the first use does not see."""
    right = broken.forward

    def wrong(self: Any, batch: TokenBatch) -> torch.Tensor:
        vectors = right(self, batch)
        return vectors * factor if batch.longest == 64 else vectors

    monkeypatch.setattr(broken, "forward", wrong)
    with simulated():
        found = measured(folder, tmp_path)
    named = {way: result["reason"] for way, result in found["parity"].items() if result["reason"]}
    # In the fused forward, it is also what graphs are made of.
    ways = {Packed: ["packed"], Fused: ["fused", "CUDA graphs"], CudaGraphs: ["CUDA graphs"]}[broken]
    assert list(named) == ways
    reason = "some are not finite" if math.isnan(factor) else "most in a row of"
    assert f"DIFFERENT vectors{':' if math.isnan(factor) else ','} {reason}" in named[ways[0]]
    assert "DIFFERENT" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:.*truncated to max_seq_length:UserWarning")
def test_what_fails_does_not_hide_the_rest(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("an illegal | access")

    def infinite(*_: object) -> dict[str, float]:
        return {"ms": math.nan}

    monkeypatch.setattr(gpu_figures, "_copy", fails)
    monkeypatch.setattr(gpu_figures, "_search", infinite)
    monkeypatch.setattr(CudaGraphs, "__init__", fails)
    with simulated():
        model = gpu_report.SentenceEncoder(folder, device="cuda", dtype="float32")
        found = gpu_report.measure(model, "some/name")
        ways = gpu_report.parity(model[0], torch.bfloat16)  # type: ignore[arg-type]
    failed = {name: figures["failed"] for name, figures in found["figures"].items() if "failed" in figures}
    error = "failed: RuntimeError: an illegal | access"
    assert failed.pop("one text, with CUDA graphs").startswith("not used: attention is not one kernel")
    copies = {f"copy {way}": error for way in ("to the device", "to the host", "on the device")}
    assert failed == {**copies, "semantic_search, 10 queries in 500": "failed: ms is not finite"}
    assert ways["CUDA graphs"]["reason"] == error
    assert found["model"] == "some/name"
    gpu_report.write(found, tmp_path)
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "\n| copy on the device | failed: RuntimeError: an illegal \\| access |\n" in page


def out_of_memory(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")


def test_out_of_memory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, parts = ["_throughput", "_latency", "_training", "_product", "_search"], ["parity", "checked", "diagnose"]
    for module, names in ((gpu_figures, figures), (gpu_report, parts)):
        for name in names:
            monkeypatch.setattr(module, name, out_of_memory)
    with simulated():
        measured(folder, tmp_path)
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    reason = "failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    named = [line.split(" | ")[0].strip("| ") for line in page.splitlines() if line.endswith(f" | {reason} |")]
    assert named[:3] == ["failed", "parity: all ways", "self-check: all ways"]
    assert named[3:] == [name for name in FIGURES if not name.startswith("copy")]
    assert "copy on the device" in page


@pytest.mark.filterwarnings("ignore:.*runs by its plain, slower forward:UserWarning")
@pytest.mark.parametrize("beyond", [0, 30_000, 300_000])
def test_little_memory(beyond: int, folder: Path) -> None:
    """Nothing raises, however early the memory ends."""
    with simulated() as gpu:
        model = gpu_report.SentenceEncoder(folder, device="cuda")
        gpu.memory(limit=gpu.call("used") + beyond)
        found = gpu_report.rows(gpu_report.measure(model, "name"))
    assert len([line for line in found.values() if "out of memory" in line]) >= (beyond < 300_000)


@pytest.mark.filterwarnings("ignore:attention runs slower than it could:UserWarning")
def test_without_flash_attention(folder: Path, tmp_path: Path) -> None:
    """As on Windows: the reasons are there, and all else is measured."""
    attention.kernel_failures.clear()
    attention.training_failures.clear()
    try:
        with simulated() as gpu:
            gpu.without_flash()
            found = measured(folder, tmp_path)
    finally:
        attention.kernel_failures.clear()
        attention.training_failures.clear()
    assert "varlen_attn fails (" in found["facts"]["attention"]
    assert found["facts"]["no training kernel"].startswith("torch's _flash_attention_forward fails (")
    failed = {name: figures["failed"] for name, figures in found["figures"].items() if "failed" in figures}
    assert list(failed) == ["one text, with CUDA graphs"]
    assert failed["one text, with CUDA graphs"].startswith("not used: attention is not one kernel: varlen_attn fails (")


@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_copies_in_half_precision_are_named(limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_DIFFERENCE_OF_HALF", limit)
    with simulated():
        facts = diagnose(gpu_report.SentenceEncoder(build("t5-encoder", tmp_path / "t5"), device="cuda"))
    under = " of linear layers, under autocast" if limit == 0 else ""
    assert facts["forward"].startswith(f"plain, with copies of its weights{under}, in half precision: t5 is not a BERT")


def test_what_cannot_be_measured(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(folder), "--gpu", "--report", str(tmp_path / "report")]) == 2
    said = capsys.readouterr().err
    assert "--gpu needs a CUDA device" in said
    assert "install the driver" in said
    assert main(["doctor", str(folder), "--report", str(tmp_path / "report")]) == 2
    assert "pass --gpu as well" in capsys.readouterr().err
    with simulated():
        assert main(["doctor", str(folder), "--gpu", "--device", "cpu"]) == 2
        assert "pass --device cuda" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
