"""Everything that users do on a GPU runs through the simulated one, from end to end."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from sbert import CrossEncoder, Normalize, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.backends.state import Inference, cached_backend
from sbert.chunking import encode_chunks
from sbert.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss, SoftmaxLoss
from sbert.pipeline.encode import Encoding
from sbert.pipeline.progress import Report
from tests import pairs, small
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
TEXTS = [f"{a} {b} {c}" for a in ("one", "two", "red") for b in ("fox", "boat", "") for c in ("lake", "hills " * 7, "")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


def encoder(folder: Path, device: str, dtype: str = "float32") -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean"), Normalize(), device=device, dtype=dtype)


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return encoder(folder, "cpu").encode(TEXTS)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("batch_tokens", [16, 100, None])
def test_batches_of_any_size(device: str, batch_tokens: int | None, folder: Path, expected: np.ndarray) -> None:
    with simulated():
        model = encoder(folder, device)
        vectors = model.encode(TEXTS, batch_tokens=batch_tokens)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_the_host_does_not_wait_for_each_batch(folder: Path) -> None:
    """It waits for the vectors of one batch while the next one runs, and for nothing else."""
    with simulated() as gpu:
        model = encoder(folder, "cuda", "auto")
        for batch_tokens in (16, 1000):
            for _ in range(3):  # The first uses of a size are compared with the plain way.
                model.encode(TEXTS, batch_tokens=batch_tokens)
            gpu.forget()
            model.encode(TEXTS, batch_tokens=batch_tokens)
            counts = gpu.counts()
            waits = {name: number for name, number in counts.items() if name.startswith("kernel waits")}
            assert waits.keys() == {"kernel waits: event"}
            assert waits["kernel waits: event"] <= counts["copies to the host"]


@pytest.mark.parametrize("options", [
    {"convert_to_tensor": True}, {"normalize_embeddings": True}, {"truncate_dim": 8}, {"prompt": "one "},
    {"precision": "ubinary"}, {"precision": "int8", "ranges": np.array([[-1.0] * 16, [1.0] * 16], np.float32)},
    {"output_value": "token_embeddings"},
], ids=lambda options: next(iter(options)))  # fmt: skip
def test_options_of_encode(options: dict[str, Any], folder: Path) -> None:
    reference = encoder(folder, "cpu").encode(TEXTS, **options)
    with simulated():
        vectors = encoder(folder, "cuda").encode(TEXTS, **options)
        if options.get("convert_to_tensor"):
            assert vectors.device == torch.device("cuda:0")
        if options.get("precision") == "int8":
            assert np.abs(vectors.astype(int) - reference.astype(int)).max() <= 1
            return
        for ours, theirs in zip(vectors, reference, strict=True):
            ours, theirs = (torch.as_tensor(x).cpu().float() for x in (ours, theirs))
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_without_the_prompt_in_the_pooling(folder: Path) -> None:
    vectors = {}
    for device in ("cpu", "cuda"):
        with simulated() as gpu:
            model = SentenceEncoder(
                Transformer(folder), Pooling("mean", include_prompt=False), device=device, dtype="float32"
            )
            model.encode(TEXTS, prompt="one two ")
            gpu.forget()
            vectors[device] = model.encode(TEXTS, prompt="one two ")
            if device == "cuda":
                waits = {name for name in gpu.counts() if name.startswith("kernel waits")}
                assert waits == {"kernel waits: event"}
    np.testing.assert_allclose(vectors["cuda"], vectors["cpu"], atol=1e-6)


def test_old_gpus_compute_in_float16(folder: Path, expected: np.ndarray) -> None:
    with simulated((7, 5)):
        model = encoder(folder, "cuda", "auto")
        for _ in range(3):
            vector = model.encode(TEXTS[1])
            assert vector @ expected[1] > 0.9998
            assert np.abs(vector - expected[1]).max() > 1e-6


def overflowing(folder: Path, device: str, scale: float) -> SentenceEncoder:
    """Hidden values of a layer are so large that float16 has infinities for them; the vectors are those of before."""
    model = encoder(folder, device, "auto")
    layer = model[0].auto_model.encoder.layer[0]
    with torch.no_grad():
        layer.intermediate.dense.weight *= scale
        layer.intermediate.dense.bias *= scale
        layer.output.dense.weight /= scale
    return model


def test_what_leaves_the_range_of_float16_is_computed_again(folder: Path) -> None:
    texts = [*TEXTS, *TEXTS[:3]]
    reference = overflowing(folder, "cpu", 1e6).encode(texts)
    with simulated((7, 5)):
        model = overflowing(folder, "cuda", 1e6)
        with pytest.warns(UserWarning, match="left the range of float16 and were computed again in float32"):
            vectors = model.encode(texts)
        np.testing.assert_allclose(vectors, reference, atol=1e-5)
        copies = cached_backend(model[0].network, Inference(torch.float16)).backend
        with pytest.warns(UserWarning, match="computed again in float32"):
            model.encode(texts)
        assert (
            cached_backend(model[0].network, Inference(torch.float16)).backend is copies
        )  # It is kept for the next call.
        with pytest.warns(UserWarning, match="computed again in float32"):
            tokens = model.encode(texts[:3], output_value="token_embeddings")
        assert all(part.isfinite().all() for part in tokens)
        with pytest.warns(UserWarning, match="computed again in float32"):
            _, passages = encode_chunks(model, texts[:3], late=True)
        assert np.isfinite(passages).all()
    with simulated((9, 0)):  # bfloat16 has the range of float32.
        vectors = overflowing(folder, "cuda", 1e6).encode(texts)
        assert (vectors * reference).sum(1).min() > 0.999


def test_what_is_not_finite_in_float32_is_an_error(folder: Path) -> None:
    with simulated((7, 5)):
        model = encoder(folder, "cuda", "auto")
        with torch.no_grad():
            model[0].auto_model.encoder.layer[0].output.dense.bias[0] = torch.nan
        with (
            pytest.warns(UserWarning, match="computed again"),
            pytest.raises(ValueError, match=r"the vector of sentences\[0\] is not finite"),
        ):
            model.encode(TEXTS)


def test_weights_that_change_are_noticed(folder: Path) -> None:
    with simulated():
        model = encoder(folder, "cuda")
        before = model.encode(TEXTS)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.data.mul_(0.9)
        other = copy.deepcopy(model)
        for _ in range(3):  # A sample of the weights is compared without waiting for it.
            vectors = model.encode(TEXTS)
        np.testing.assert_allclose(vectors, other.to("cpu").encode(TEXTS), atol=1e-5)
        assert np.abs(vectors - before).max() > 1e-3


def test_threads_share_a_model(folder: Path, expected: np.ndarray) -> None:
    with simulated():
        model = encoder(folder, "cuda", "auto")
        wrong: list[str] = []

        def work() -> None:
            for _ in range(2):
                for text, vector in zip(TEXTS[::3], expected[::3], strict=True):
                    if model.encode(text) @ vector < 0.9998:
                        wrong.append(text)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_memory_that_is_short_makes_batches_smaller(folder: Path, expected: np.ndarray) -> None:
    with simulated() as gpu:
        model = encoder(folder, "cuda")
        model.encode(TEXTS[:2])
        gpu.memory(limit=gpu.call("used") + 30_000)
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("number", [1, 5, 21, 89])
def test_memory_that_fails_once(number: int, folder: Path, expected: np.ndarray) -> None:
    with simulated() as gpu:
        model = encoder(folder, "cuda")
        model.encode(TEXTS[:2])
        gpu.memory(failing=number)
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_a_cross_encoder(dtype: str, tmp_path: Path) -> None:
    path = pairs.folder(tmp_path / "cross")
    rows = [("a small boat", "the quiet lake"), ("one", "two three four"), ("red fox", "")] * 5
    reference = CrossEncoder(path, device="cpu").predict(rows)
    with simulated():
        scores = CrossEncoder(path, device="cuda", dtype=dtype).predict(rows)
        np.testing.assert_allclose(scores, reference, atol=1e-6 if dtype == "float32" else 2e-2)


LOSSES = {
    "ranking": (MultipleNegativesRankingLoss, [(f"one {text}", f"two {text}") for text in TEXTS]),
    "cosine": (CosineSimilarityLoss, [(text, "a boat", i % 5 / 4) for i, text in enumerate(TEXTS)]),
    "softmax": (lambda: SoftmaxLoss(16, 3), [(text, "a boat", i % 3) for i, text in enumerate(TEXTS)]),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("chunk_tokens", [None, 64])
def test_training_has_the_steps_of_the_cpu(name: str, chunk_tokens: int | None, folder: Path, tmp_path: Path) -> None:
    histories = {}
    make, rows = LOSSES[name]
    for device in ("cpu", "cuda"):
        with simulated():
            model = encoder(folder, device)
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
            torch.manual_seed(0)
            config = TrainingConfig(batch_size=8, log_every=1, chunk_tokens=chunk_tokens, learning_rate=1e-3)
            history = Trainer(model, rows, make(), config).fit(show_progress_bar=False)
            histories[device] = [row["loss"] for row in history if "loss" in row]
    np.testing.assert_allclose(histories["cuda"], histories["cpu"], rtol=1e-4, atol=1e-6)


def test_what_left_the_range_is_reported_once(folder: Path, tmp_path: Path) -> None:
    """Of a single text, of windows, and of codes; duplicates count as often as they occur."""
    texts = [*TEXTS, *TEXTS[:3]]
    reference = overflowing(folder, "cpu", 1e6).encode(texts)
    with simulated((7, 5)):
        model = overflowing(folder, "cuda", 1e6)
        job, report = Encoding(model), Report(None, False, "warn", None)
        with pytest.warns(UserWarning, match="30 of 30 sentences left the range of float16 and were ") as told, report:
            found = torch.cat([job.vectors(texts[start : start + 4], report) for start in range(0, len(texts), 4)])
        assert len(told) == 1
        np.testing.assert_allclose(found, reference, atol=1e-5)
        with pytest.warns(UserWarning, match="1 of 1 sentences left the range"):
            np.testing.assert_allclose(model.encode(texts[0]), reference[0], atol=1e-5)
        with pytest.warns(UserWarning, match="30 of 30 sentences left the range"):
            bits = model.encode(texts, precision="ubinary")
        np.testing.assert_array_equal(bits, np.packbits(reference > 0, 1))
        with pytest.warns(UserWarning, match="30 of 30 sentences left the range") as told:
            model.encode(iter(texts), out=tmp_path / "vectors.npy")
        assert len(told) == 1
        with pytest.warns(UserWarning, match="30 of 30 sentences left the range"):
            vectors = model.encode(texts, deterministic=True)
        np.testing.assert_allclose(vectors, reference, atol=1e-5)


def test_heads_of_a_size_that_the_kernel_does_not_take(tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=small.wordpiece().get_vocab_size(), hidden_size=52, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    small.randomized(BertModel(config)).save_pretrained(tmp_path)
    small.wrapped(small.wordpiece(), 64).save_pretrained(tmp_path)
    expected = encoder(tmp_path, "cpu").encode(TEXTS)
    with simulated():
        vectors = encoder(tmp_path, "cuda", "auto").encode(TEXTS)
    assert (vectors * expected).sum(1).min() >= 0.9998


def test_the_model_runs_while_texts_are_tokenized(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second call of the tokenizer on, it waits here until the model has begun."""
    begun, in_time, calls = threading.Event(), [], []
    texts = [f"{number} boats" for number in range(8000)]
    with simulated():
        model = encoder(folder, "cuda")
        model.encode(TEXTS)
        tokenize, forward = model[0].tokenize, model[1].forward

        def slowly(texts: Any) -> Any:
            calls.append(len(texts))
            if len(calls) > 1:
                in_time.append(begun.wait(5))
            return tokenize(texts)

        def noted(*arguments: Any) -> Any:
            begun.set()
            return forward(*arguments)

        monkeypatch.setattr(model[0], "tokenize", slowly)
        monkeypatch.setattr(model[1], "forward", noted)
        model.encode(texts)
    assert sum(calls) == 8000
    assert in_time
    assert all(in_time)
