"""What users do on an accelerator runs through simulated ones, from end to end, with the vectors of the CPU.

CUDA has forwards of its own; XPU has streams and pinned memory; MPS compiles for each shape, and its copies are waited
for.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sbert import Normalize, Pooling, SentenceEncoder, TokenBatch, Trainer, TrainingConfig, Transformer
from sbert.batch import start_to_host
from sbert.distributed.ranks import Ranks
from sbert.inputs.devices import check_device, default_device
from sbert.losses import SoftmaxLoss
from sbert.pipeline import self_check
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
DEVICES = ("cuda:0", "cuda:1", "xpu:0", "mps:0")
TEXTS = [f"{a} {b} {c}" for a in ("one", "two", "red") for b in ("fox", "boat", "") for c in ("lake", "hills " * 7, "")]


def encoder(folder: Path, device: str | None, dtype: str = "float32", **pooling: Any) -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean", **pooling), Normalize(), device=device, dtype=dtype)


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return encoder(folder, "cpu").encode(TEXTS)


@pytest.mark.parametrize("device", DEVICES)
def test_batches_of_any_size(device: str, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are copied to the host while those of the next batch are computed."""
    monkeypatch.setattr("sbert.pipeline.compute._GATHERED", 1)
    with simulated(kind=device[:-2]):
        model = encoder(folder, device)
        for batch_tokens in (16, 100, None):
            np.testing.assert_allclose(model.encode(TEXTS, batch_tokens=batch_tokens), expected, atol=1e-6)
        tensor = model.encode(TEXTS, convert_to_tensor=True)
        assert tensor.device == torch.device(device)
        np.testing.assert_allclose(tensor.cpu(), expected, atol=1e-6)


def test_more_rows_than_a_grid(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel are two batches, whatever ``batch_size`` says."""
    monkeypatch.setattr("sbert.pipeline.batching._MOST_ROWS", 256)
    with simulated() as gpu:
        gpu.call("grid", 256)
        texts = [f"{'one ' * (number % 20)}{'two ' * (number // 20)}" for number in range(300)]
        assert encoder(folder, "cuda", "auto").encode(texts, batch_size=300).shape == (300, 16)


@pytest.mark.parametrize(("batch_tokens", "batches"), [(16, 14), (1000, 1)])
def test_one_copy_per_batch_and_no_wait(batch_tokens: int, batches: int, folder: Path) -> None:
    """The host waits for samples of the weights before the first batch, and for all vectors after the last one."""
    with simulated() as gpu:
        model = encoder(folder, "cuda", "auto")
        model.encode(TEXTS, batch_tokens=batch_tokens)  # The first use of a model is compared with the plain way.
        for as_tensor in (False, True):
            before = Counter(gpu.counts())
            model.encode(TEXTS, batch_tokens=batch_tokens, convert_to_tensor=as_tensor)
            new = Counter(gpu.counts()) - before
            assert new["kernel _flash_attention_forward"] == 2 * batches, new
            assert new["kernel copies to the device"] == batches * (1 + as_tensor), new  # Where rows go in a tensor.
            assert sum(count for name, count in new.items() if name.startswith("kernel waits")) == 2, new


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_the_default_device_and_its_memory(kind: str, folder: Path, expected: np.ndarray) -> None:
    """Where it is short, batches are smaller."""
    with simulated(kind=kind) as gpu:
        assert default_device() == torch.device(kind)
        with pytest.raises(ValueError, match="cannot be used"):
            check_device("xpu:7" if kind == "cuda" else "cuda:7")
        model = encoder(folder, None)
        assert model.device.type == kind
        model.encode(TEXTS[:2])
        gpu.memory(limit=gpu.call("used") + (100_000 if kind == "mps" else 30_000))
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [[[101, 7, 8, 102], [101, 102], [], [5]], [[3]], [[]], []], ids=str)
@pytest.mark.parametrize("prompt_tokens", [None, 2])
def test_a_batch_arrives_as_it_was(rows: list[list[int]], prompt_tokens: int | None, device: str) -> None:
    """With or without prompts and types; what is computed from the lengths comes with it."""
    made = TokenBatch.from_rows(rows, prompt_tokens)
    types = None if prompt_tokens is None else torch.arange(len(made.ids)) % 2
    given = TokenBatch(made.ids, made.offsets, made.longest, made.prompt_tokens, types)
    with simulated(kind=device[:-2]):
        moved = given.to(device)
        for name in (*(field.name for field in fields(given)), "offsets_int32", "position_of_token"):
            value, expected = getattr(moved, name), getattr(given, name)
            if not isinstance(expected, Tensor):
                assert value == expected
                continue
            assert (value.device, value.dtype) == (torch.device(device), expected.dtype)
            assert torch.equal(value.cpu(), expected)
        assert (moved.groups, moved.text_size) == (given.groups, given.text_size)
        copy, wait = start_to_host(moved.ids)
        wait()
        assert torch.equal(copy, given.ids)


@pytest.mark.parametrize("kind", ["xpu", "cuda"])
def test_each_rank_has_a_device(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with simulated(kind=kind):
        Ranks.join(kind)
        model = encoder(folder, kind)
        model.to(torch.device(kind, 0))
        Ranks(1, 2).place(model)
        assert model.device == torch.device(kind, 1)


@pytest.mark.parametrize("options", [
    {"truncate_dim": 8, "normalize_embeddings": True}, {"prompt": "one "}, {"precision": "ubinary"},
    {"output_value": "token_embeddings"},
], ids=lambda options: next(iter(options)))  # fmt: skip
def test_options_of_encode(options: dict[str, Any], folder: Path) -> None:
    without_prompt = {"include_prompt": False} if "prompt" in options else {}
    reference = encoder(folder, "cpu", **without_prompt).encode(TEXTS, **options)
    with simulated():
        vectors = encoder(folder, "cuda", **without_prompt).encode(TEXTS, **options)
        for ours, theirs in zip(vectors, reference, strict=True):
            ours, theirs = (torch.as_tensor(x).cpu().float() for x in (ours, theirs))
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


# --------------------------------------------------------------------------------------------------------- float16


def overflowing(folder: Path, device: str) -> SentenceEncoder:
    """Hidden values of a layer are so large that float16 has infinities for them; the vectors are those of before."""
    model, scale = encoder(folder, device, "auto"), 1e6
    layer = model[0].auto_model.encoder.layer[0]
    with torch.no_grad():
        layer.intermediate.dense.weight *= scale
        layer.intermediate.dense.bias *= scale
        layer.output.dense.weight /= scale
    return model


def test_what_leaves_the_range_of_float16_is_computed_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And reported once, of a text, of windows and of codes; duplicates count as often as they occur."""
    monkeypatch.setattr(self_check, "compare", lambda *_: 0.0)  # As if its texts did not leave it.
    texts = [*TEXTS, *TEXTS[:3]]
    reference = overflowing(folder, "cpu").encode(texts)
    again = "{0} of {0} sentences left the range of float16 and were computed again in float32"
    with simulated((7, 5)):
        model = overflowing(folder, "cuda")
        with pytest.warns(UserWarning, match=again.format(1)):
            np.testing.assert_allclose(model.encode(texts[0]), reference[0], atol=1e-5)
        for options in ({}, {"out": tmp_path / "vectors.npy"}):
            with pytest.warns(UserWarning, match=again.format(30)) as warned:
                np.testing.assert_allclose(model.encode(iter(texts), **options), reference, atol=1e-5)
            assert len(warned) == 1
        with pytest.warns(UserWarning, match=again.format(30)):
            bits = model.encode(texts, precision="ubinary")
        np.testing.assert_array_equal(bits, np.packbits(reference > 0, 1))
        with pytest.warns(UserWarning, match="computed again in float32"):
            tokens = model.encode(texts[:3], output_value="token_embeddings")
        assert all(part.isfinite().all() for part in tokens)


def test_what_is_not_finite_in_float32_is_an_error(folder: Path) -> None:
    with simulated((7, 5)):
        model = encoder(folder, "cuda", "auto")
        with torch.no_grad():
            model[0].auto_model.encoder.layer[0].output.dense.bias[0] = torch.nan
        with (
            pytest.warns(UserWarning, match="exceeds the range of float16|vectors in torch.float32 differ by nan"),
            pytest.raises(ValueError, match=r"the vector of sentences\[0\] is not finite"),
        ):
            model.encode(TEXTS)


# ----------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(("kind", "chunk_tokens"), [("cuda", 64), ("cuda", None), ("xpu", None), ("mps", None)])
def test_training_has_the_steps_of_the_cpu(kind: str, chunk_tokens: int | None, folder: Path) -> None:
    """Of a loss with weights of its own."""
    rows, histories = [(text, "a boat", i % 3) for i, text in enumerate(TEXTS)], []
    for device in ("cpu", kind):
        with simulated(kind=kind):
            model = encoder(folder, device)
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
            torch.manual_seed(0)
            options = {"chunk_tokens": chunk_tokens, "learning_rate": 1e-3, "dtype": "float32"}
            config = TrainingConfig(batch_size=8, log_every=1, **options)
            history = Trainer(model, rows, SoftmaxLoss(16, 3), config).fit(show_progress_bar=False)
            histories.append([row["loss"] for row in history if "loss" in row])
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-4, atol=1e-6)


def test_the_model_runs_while_texts_are_tokenized(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second call of the tokenizer on, it waits here until the model has begun."""
    begun, in_time = threading.Event(), []
    with simulated():
        model = encoder(folder, "cuda")
        tokenize, forward = model[0].tokenize, model[1].forward

        def wait_for_model(texts: Any) -> Any:
            in_time.append(not in_time or begun.wait(5))
            return tokenize(texts)

        monkeypatch.setattr(model[0], "tokenize", wait_for_model)
        monkeypatch.setattr(model[1], "forward", lambda *given: (begun.set(), forward(*given))[1])
        model.encode([f"{number} boats" for number in range(8000)])
    assert len(in_time) > 1
    assert all(in_time)
