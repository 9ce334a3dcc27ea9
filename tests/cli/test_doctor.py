"""What ``sbert doctor`` says of a model."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from sbert import SentenceEncoder, StaticEmbedding, Trainer, TrainingConfig
from sbert.cli.diagnosis import diagnose
from sbert.cli.main import main
from sbert.inputs import devices
from sbert.losses import CosineSimilarityLoss
from tests import small
from tests.backends.test_families import build


def test_what_runs_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build("bert", tmp_path / "bert")
    assert main(["doctor", str(folder), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    for word in ("cpu", "float32", "fused", "without padding", "2048 tokens", f"{torch.get_num_threads()} of torch"):
        assert word in said
    assert main(["doctor", str(folder), "--device", "cpu", "--dtype", "bfloat16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "bfloat16: that of the weights"


# What processors answer: AVX-512, its bfloat16, AMX, and what oneDNN runs; and whether they multiply bfloat16.
PROCESSORS = {"AVX-512 alone": (True, False, False, True, False), "ARM": (False, False, False, True, True)}
PROCESSORS |= {"AVX2": (False,) * 5, "AVX512_BF16": (True, True, False, True, True)}
PROCESSORS |= {"AMX": (True, False, True, True, True)}


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
    model = SentenceEncoder(folder, device="cpu")
    uses = [
        lambda: SentenceEncoder(folder, device="cpu", dtype="bfloat16"),
        lambda: SentenceEncoder(folder, device="cpu").to(torch.bfloat16).encode(["a", "b"]),
        lambda: Trainer(model, [("a", "b", 1.0)] * 4, CosineSimilarityLoss(), TrainingConfig(dtype="bfloat16")),
    ]
    for use in uses:  # Each of them warns in a new process, and none again in the same one.
        devices.warn_of_slow.cache_clear()
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


def test_other_models() -> None:
    words = SentenceEncoder(StaticEmbedding(small.wordpiece(), torch.eye(200)), device="cpu")
    assert diagnose(words)["forward"] == "no transformer"


def test_every_refusal_is_said(tmp_path: Path) -> None:
    """By the backends that would be preferred to the one that runs, in encode or in training."""
    own_attention = "Model has its own attention"
    for family, expected in {
        "bert": {},
        "mpnet": {"no packed": f"MPNet{own_attention}"},
        "deberta-v3": {"no fused": "deberta-v2 is not a known architecture", "no packed": f"DebertaV2{own_attention}"},
    }.items():
        facts = diagnose(SentenceEncoder(build(family, tmp_path / family), device="cpu"))
        assert {name: reason for name, reason in facts.items() if name.startswith("no ")} == expected
