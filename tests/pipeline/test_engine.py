"""What the engine does, counted: tokens, calls of the tokenizer, waits for the device."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder, TokenBatch
from sbert.backends.fused import Fused
from sbert.chunking import encode_chunks
from sbert.inputs.devices import inference_dtype
from sbert.modules.tokenizer import FastTokenizer
from sbert.pipeline.batching import plan, prefetch
from sbert.pipeline.tokenize import Tokens, most_characters, tokenize
from tests.backends.test_families import build
from tests.memory import grown


@pytest.fixture
def model(tmp_path: Path) -> SentenceEncoder:
    return SentenceEncoder(build("bert", tmp_path / "bert"), device="cpu")


@pytest.fixture
def texts() -> list[str]:
    rng = np.random.default_rng(0)
    words = "a small boat lies on the quiet lake and nobody rows it home".split()
    return [" ".join(rng.choice(words, length)) for length in rng.integers(1, 20, 300)]


def test_no_token_is_computed_but_the_texts_own(
    model: SentenceEncoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded against useful tokens: no text is padded; each batch is filled up by at most one token in sixteen."""
    model.encode("warm")
    useful = sum(len(model.tokenizer(text).input_ids) for text in set(texts))
    computed = []
    forward = Fused._embed

    def count(self: Fused, batch: TokenBatch) -> torch.Tensor:
        x = forward(self, batch)
        computed.append(len(x))
        return x

    monkeypatch.setattr(Fused, "_embed", count)
    model.encode(texts, batch_tokens=128)
    assert useful <= sum(computed) <= useful * 17 / 16
    assert len(computed) < useful / 90  # Batches are nearly full.


def test_batches_of_one_size() -> None:
    """By the sum of the lengths, batches are full; with padding, none exceeds its own maximum."""
    lengths = np.random.default_rng(0).lognormal(3, 0.8, 5000).astype(np.int64)
    batches = plan(lengths, 2048, padded=2560)
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    tokens = np.array([lengths[rows].sum() for rows in batches])
    assert tokens.max() <= 2048
    assert max(len(rows) * lengths[rows].max() for rows in batches) <= 2560
    assert (tokens > 1920).mean() > 0.9
    assert (np.array([lengths[rows].sum() for rows in plan(lengths, 2048)]) > 1920).mean() < 0.9
    assert [len(rows) for rows in plan(np.zeros(3, np.int64), 2, padded=2)] == [2, 1]  # Of texts without tokens.


@pytest.mark.slow  # Only a process of its own has its own peak of memory.
def test_memory_of_many_texts() -> None:
    before = """
import random
from transformers import BertConfig, BertModel
from sbert import Pooling, SentenceEncoder, Transformer
random.seed(0)
tokenizer = SentenceEncoder(device="cpu").tokenizer
shape = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 640}
bert = BertModel(BertConfig(vocab_size=len(tokenizer), **shape))
model = SentenceEncoder(Transformer(bert, tokenizer), Pooling("mean"), device="cpu")
words = "the river walks under green stone windows".split()
texts = [" ".join(random.choices(words, k=2 + int(random.lognormvariate(2.5, 0.6)))) for _ in range(3000)]
model.encode(texts[:8])
"""
    code = """
model.encode(texts, show_progress_bar=False)
peak = status("VmHWM") - resident
assert peak < 90e6, peak
model.encode(texts, show_progress_bar=False, batch_tokens=8192)
"""
    assert grown(before, code) > 105e6  # What batches take is seen.


@pytest.mark.parametrize("window", [(7, 7), (2, 16), (8192, 8192)])
def test_the_tokenizer_sees_each_text_once(
    window: tuple[int, int], model: SentenceEncoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbert.pipeline.batching._WINDOWS", {"cpu": window})
    expected = model.encode(texts)
    seen: list[str] = []
    tokenize = type(model[0]).tokenize
    monkeypatch.setattr(type(model[0]), "tokenize", lambda self, batch: (seen.extend(batch), tokenize(self, batch))[1])
    vectors = model.encode([*texts, *texts])
    assert sorted(seen) == sorted(set(texts))
    assert np.abs(vectors - np.concatenate([expected, expected])).max() <= 1e-6


def test_a_single_sentence_needs_no_thread(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Any) -> None:
        raise AssertionError("a thread was started")

    model.encode("warm")
    monkeypatch.setattr(threading.Thread, "start", start)
    assert model.encode("a small boat").shape == (16,)
    assert model.encode(["a small boat", "lake"]).shape == (2, 16)


def test_a_vector_is_the_callers_own(model: SentenceEncoder) -> None:
    """Also if a module returns the same tensor each time."""
    kept = torch.ones(1, 4)
    model.append(type("Constant", (torch.nn.Module,), {"forward": lambda self, vectors: kept})())
    model.encode("one")[0] = 5
    assert model.encode("one").tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("depth", [1, 3])
def test_prefetch(depth: int) -> None:
    made: list[int] = []

    def items() -> Any:
        for i in range(5):
            made.append(i)
            yield i
        raise RuntimeError("the end")

    coming = prefetch(items(), depth)
    for taken in range(5):
        assert next(coming) == taken
        assert len(made) <= taken + 1 + depth
    with pytest.raises(RuntimeError, match="the end"):
        next(coming)
    before = threading.active_count()
    half = prefetch(iter(range(100)))
    assert next(half) == 0
    half.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("weights", "auto", "device", "capability", "expected"),
    [
        (torch.float32, True, "cpu", None, torch.float32),
        (torch.float32, True, "cuda", (9, 0), torch.bfloat16),
        (torch.float32, True, "cuda", (7, 5), torch.float16),
        (torch.float32, True, "cuda", (6, 1), torch.float32),
        (torch.float16, False, "cuda", (9, 0), torch.float16),
        (torch.float32, True, "mps", None, torch.float32),
    ],
)
def test_dtype_of_the_arithmetic(
    weights: torch.dtype,
    auto: bool,
    device: str,
    capability: tuple[int, int] | None,
    expected: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert inference_dtype(weights, auto, torch.device(device))[0] == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "modernbert", "t5-encoder"])
def test_on_a_gpu(family: str, tmp_path: Path, texts: list[str]) -> None:
    """float32 as on the CPU; bfloat16 near it; single sentences as in company."""
    folder = build(family, tmp_path / family)
    expected = SentenceEncoder(folder, device="cpu").encode(texts, on_truncate="ignore")
    exact = SentenceEncoder(folder, device="cuda", dtype="float32").encode(texts, on_truncate="ignore")
    assert np.abs(exact - expected).max() <= 1e-4
    model = SentenceEncoder(folder, device="cuda")
    half = model.encode(texts, on_truncate="ignore")
    assert half.dtype == np.float32
    assert (half * expected).sum(1).min() > 0.99
    alone = np.stack([model.encode(text, on_truncate="ignore") for text in texts[:20]])
    assert np.abs(alone - half[:20]).max() <= 2e-2
    tensor = model.encode(texts, convert_to_tensor=True, on_truncate="ignore")
    assert tensor.is_cuda
    assert np.abs(tensor.cpu().numpy() - half).max() <= 1e-6


# ---------------------------------------------------------------------------------------------------- long texts


def tokenized(reader: Any, texts: list[str], prompt: str = "") -> tuple[Tokens, list[int]]:
    """The tokens of texts, and how many characters the tokenizer was given of each."""
    lengths: list[int] = []
    whole = FastTokenizer(reader.tokenizer.backend_tokenizer)
    reader.tokenize = lambda read: lengths.extend(map(len, read)) or whole(read)
    try:
        return tokenize(reader, texts, prompt), lengths
    finally:
        del reader.tokenize


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("part", ["x", "fox-", "湖", "a small boat "])
def test_no_more_is_read_of_any_text_than_may_matter(
    model: SentenceEncoder, part: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer takes up to 500 bytes of memory per character. The ids are those of the whole text."""
    reader, limit = model[0], model[0].max_seq_length
    monkeypatch.setattr(reader.tokenizer, "truncation_side", side)
    long = part * (50 * most_characters(limit) // len(part))
    tokens, lengths = tokenized(reader, [long, "a fox"])
    assert max(lengths) == most_characters(limit)
    assert tokens.truncated.tolist() == [True, False], "what was not read is said"
    ids, (leading, trailing) = reader.tokenize([long])[0], reader.special_tokens
    if len(ids) > limit:
        ids = ids[: limit - trailing] + ids[-trailing:] if side == "right" else ids[:leading] + ids[leading - limit :]
    assert tokens.ids[: tokens.offsets[1]].tolist() == ids


@pytest.mark.parametrize("prompt", ["a fox " * 1_400_000, "x" * 8_000_000])
def test_a_long_prompt_is_not_read_before_each_text(model: SentenceEncoder, prompt: str) -> None:
    tokens, lengths = tokenized(model[0], ["lake " * number for number in range(1, 10)], prompt)
    assert tokens.truncated.all()
    assert max(lengths) == most_characters(model.max_seq_length)
    for late in (False, True):
        with pytest.raises(ValueError, match=r"pass .*a shorter prompt"):
            encode_chunks(model, ["A lake."], chunks=[(0, 0, 3)] if late else None, late=late, prompt=prompt)


def test_texts_are_tokenized_in_groups(
    model: SentenceEncoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a tokenizer is that of a group."""
    whole = tokenize(model[0], texts, "one ")
    monkeypatch.setattr("sbert.pipeline.tokenize._TOGETHER", 100)
    calls = []
    rust = model[0].tokenize
    monkeypatch.setattr(model[0], "tokenize", lambda read: calls.append(len(read)) or rust(read))
    parts = tokenize(model[0], texts, "one ")
    assert len(calls) > 100
    for name in ("ids", "offsets", "truncated", "prompt_tokens", "unreadable"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
