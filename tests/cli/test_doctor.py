"""What ``sbert doctor`` says of a model."""

from __future__ import annotations

import json
import warnings
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from sbert import CrossEncoder, SentenceEncoder, StaticEmbedding, Trainer, TrainingConfig
from sbert.cli import benchmark
from sbert.cli.diagnosis import diagnose
from sbert.cli.main import main
from sbert.inputs import devices
from sbert.losses import CosineSimilarityLoss
from tests import small
from tests.backends.test_families import build
from tests.cli.test_benchmark import start_thread


def test_what_runs_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build("bert", tmp_path / "bert")
    assert main(["doctor", str(folder), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    for word in ("cpu", "float32", "fused", "without padding", "2048 tokens", f"{torch.get_num_threads()} of torch"):
        assert word in said
    assert main(["doctor", str(folder), "--device", "cpu", "--dtype", "bfloat16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "bfloat16: that of the weights"


BENCHMARK = {"device": "cpu", "texts": None, "sample": 4, "rounds": 1, "json": True}
# What processors answer: AVX-512, its bfloat16, AMX, and what oneDNN runs; and whether they multiply bfloat16.
PROCESSORS = {
    "AVX2": (False, False, False, False, False),
    "AVX-512 alone": (True, False, False, True, False),
    "AVX512_BF16": (True, True, False, True, True),
    "AMX": (True, False, True, True, True),
    "ARM": (False, False, False, True, True),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_bfloat16_on_a_processor_without_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    *answers, multiplies = PROCESSORS[name]
    asked = ("cpu._is_avx512_supported", "cpu._is_avx512_bf16_supported", "cpu._is_amx_tile_supported")
    asked += ("ops.mkldnn._is_mkldnn_bf16_supported",)
    for function, answer in zip(asked, answers, strict=True):
        monkeypatch.setattr(f"torch.{function}", lambda answer=answer: answer)
    folder = build("bert", tmp_path / "bert")
    uses = [
        lambda: SentenceEncoder(folder, device="cpu", dtype="bfloat16"),
        lambda: CrossEncoder(folder, device="cpu", dtype="bfloat16", num_labels=1),
        lambda: SentenceEncoder(folder, device="cpu").to(torch.bfloat16).encode(["a", "b"]),
        lambda: Trainer(
            SentenceEncoder(folder, device="cpu"),
            [("a", "b", 1.0)] * 4,
            CosineSimilarityLoss(),
            TrainingConfig(dtype="bfloat16"),
        ),
        lambda: benchmark.run(Namespace(**BENCHMARK, model=str(folder), dtype=["bfloat16"])),
    ]
    monkeypatch.setattr(benchmark, "start_process", start_thread)
    monkeypatch.setattr(benchmark, "find_spec", lambda _: None)
    for use in uses:  # Each of them warns in a new process, and none again in the same one.
        devices._warn_of_bfloat16.cache_clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            use()
            use()
        slow = [str(each.message) for each in caught if "bfloat16" in str(each.message)]
        assert len(slow) == (not multiplies)
        assert all("3 to 4 times as long with it as with float32; pass dtype='float32'" in said for said in slow)
    capsys.readouterr()
    assert main(["doctor", str(folder), "--device", "cpu"]) == 0
    said = "bfloat16 is fast" if multiplies else "this CPU has no bfloat16 arithmetic, and takes 3 to 4 times as long"
    assert said in capsys.readouterr().out


def test_other_models(tmp_path: Path) -> None:
    facts = diagnose(SentenceEncoder(build("deberta-v3", tmp_path / "deberta"), device="cpu"))
    assert facts["forward"] == "plain: deberta-v2 is not a known architecture"
    words = SentenceEncoder(StaticEmbedding(small.wordpiece(), torch.eye(200)), device="cpu")
    assert diagnose(words)["forward"] == "no transformer"


def test_every_refusal_is_said(tmp_path: Path) -> None:
    """By the backends that would be preferred to the one that runs, in encode or in training."""
    said = {}
    for family in ("bert", "mpnet", "deberta-v3", "modernbert"):
        facts = diagnose(SentenceEncoder(build(family, tmp_path / family), device="cpu"))
        said[family] = {name: reason for name, reason in facts.items() if name.startswith("no ")}
    assert said["bert"] == {}
    assert said["mpnet"] == {"no packed": "MPNetModel has its own attention"}
    assert said["deberta-v3"] == {
        "no fused": "deberta-v2 is not a known architecture",
        "no packed": "DebertaV2Model has its own attention",
    }
    assert said["modernbert"] == {}
