"""What ``sbert doctor`` says of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sbert import SentenceEncoder, StaticEmbedding
from sbert.cli.diagnosis import diagnose
from sbert.cli.main import main
from tests import small
from tests.backends.test_families import build


def test_what_runs_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build("bert", tmp_path / "bert")
    assert main(["doctor", str(folder), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    for word in ("cpu", "float32", "fused", "without padding", "4096 tokens", f"{torch.get_num_threads()} of torch"):
        assert word in said
    assert main(["doctor", str(folder), "--device", "cpu", "--dtype", "bfloat16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "bfloat16: that of the weights"


def test_other_models(tmp_path: Path) -> None:
    facts = diagnose(SentenceEncoder(build("t5-encoder", tmp_path / "t5"), device="cpu"))
    assert facts["forward"] == "plain: t5 is not a BERT-family model"
    words = SentenceEncoder(StaticEmbedding(small.wordpiece(), torch.eye(200)), device="cpu")
    assert diagnose(words)["forward"] == "no transformer"


def test_every_refusal_is_said(tmp_path: Path) -> None:
    """By the backends that would be preferred to the one that runs, in encode or in training."""
    said = {}
    for family in ("bert", "mpnet", "t5-encoder", "modernbert"):
        facts = diagnose(SentenceEncoder(build(family, tmp_path / family), device="cpu"))
        said[family] = {name: reason for name, reason in facts.items() if name.startswith("no ")}
    bias = "its layers have a position bias"
    assert said["bert"] == {}
    assert said["mpnet"] == {"no cpu_training": bias, "no packed": "MPNetModel has its own attention"}
    foreign = "t5 is not a BERT-family model"
    assert said["t5-encoder"] == {
        **dict.fromkeys(("no fused", "no cpu_training"), foreign),
        "no packed": "T5EncoderModel has its own attention",
    }
    foreign = "modernbert is not a BERT-family model"
    assert said["modernbert"] == dict.fromkeys(("no fused", "no cpu_training"), foreign)
