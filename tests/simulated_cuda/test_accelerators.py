"""Accelerators that are not CUDA: everything runs on them the plain way, with the vectors of the CPU.

XPU has streams and pinned memory; MPS compiles for each shape, and its copies are waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sbert import Normalize, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.batch import TokenBatch, start_to_host
from sbert.distributed.ranks import Ranks
from sbert.inputs.devices import check_device, default_device
from sbert.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss
from sbert.storage.files import is_failure, is_out_of_memory
from tests import small
from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = [
    pytest.mark.simulated_cuda,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
]
KINDS = ("xpu", "mps")
TEXTS = [f"{a} {b} {c}" for a in ("one", "two", "red") for b in ("fox", "boat", "") for c in ("lake", "hills " * 7, "")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def accelerator(kind: str) -> Iterator[Simulator]:
    with simulated(kind=kind) as device:
        yield device


def encoder(folder: Path, device: str | None) -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean"), Normalize(), device=device)


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return encoder(folder, "cpu").encode(TEXTS)


@pytest.mark.parametrize("batch_tokens", [16, None])
def test_batches_of_any_size(
    batch_tokens: int | None, kind: str, accelerator: Simulator, folder: Path, expected: np.ndarray
) -> None:
    model = encoder(folder, kind)
    np.testing.assert_allclose(model.encode(TEXTS, batch_tokens=batch_tokens), expected, atol=1e-6)
    tensor = model.encode(TEXTS, batch_tokens=batch_tokens, convert_to_tensor=True)
    assert tensor.device == torch.device(kind, 0)
    np.testing.assert_allclose(tensor.cpu(), expected, atol=1e-6)


def test_the_default_device(kind: str, accelerator: Simulator, folder: Path) -> None:
    assert default_device() == torch.device(kind)
    assert encoder(folder, None).device.type == kind
    with pytest.raises(ValueError, match=f"pass .cpu. or .{kind}"):
        check_device("cuda:7")


def test_short_memory_makes_batches_smaller(
    kind: str, accelerator: Simulator, folder: Path, expected: np.ndarray
) -> None:
    model = encoder(folder, kind)
    model.encode(TEXTS[:2])
    accelerator.memory(limit=accelerator.call("used") + (100_000 if kind == "mps" else 30_000))
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize(("error", "full"), [
    (torch.OutOfMemoryError("HIP out of memory"), True), (RuntimeError("MPS backend out of memory"), True),
    (RuntimeError("CUDA error: out of memory"), True), (RuntimeError("Invalid buffer size: 40 GB"), True),
    (RuntimeError("shapes do not match"), False), (ValueError("out of memory"), False),
], ids=str)  # fmt: skip
def test_words_for_full_memory(error: Exception, full: bool) -> None:
    assert is_out_of_memory(error) is full
    assert is_failure(error) is not full


LOSSES = {
    "ranking": (MultipleNegativesRankingLoss, [(f"one {text}", f"two {text}") for text in TEXTS]),
    "cosine": (CosineSimilarityLoss, [(text, "a boat", i % 5 / 4) for i, text in enumerate(TEXTS)]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_training_has_the_steps_of_the_cpu(name: str, kind: str, accelerator: Simulator, folder: Path) -> None:
    histories = []
    make, rows = LOSSES[name]
    for device in ("cpu", kind):
        model = encoder(folder, device)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        config = TrainingConfig(batch_size=8, log_every=1, learning_rate=1e-3)
        history = Trainer(model, rows, make(), config).fit(show_progress_bar=False)
        histories.append([row["loss"] for row in history if "loss" in row])
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", ["xpu", "mps", "cuda"])
def test_copies_have_their_values_when_they_are_read(device: str) -> None:
    batch = TokenBatch.from_rows([[101, 7, 102], [101, 102]])
    with simulated(kind=device):
        moved = batch.to(device)
        assert moved.ids.device.type == device
        assert moved.to("cpu").ids.tolist() == batch.ids.tolist()  # Without waiting in between.
        copy, wait = start_to_host(moved.ids)
        wait()
        assert copy.tolist() == batch.ids.tolist()


@pytest.mark.parametrize("kind", ["xpu", "cuda"])
def test_each_rank_has_a_device(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with simulated(kind=kind):
        Ranks.join(kind)
        model = encoder(folder, kind)
        model.to(torch.device(kind, 0))
        Ranks(1, 2).place(model)
        assert model.device == torch.device(kind, 1)
