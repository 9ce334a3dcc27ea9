"""Each defect that the first version of the library had on a GPU, through the public interface alone.

Every case fails on that version (commit fe26152), if it is copied there with the simulated device.
"""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertConfig, BertModel, Qwen3Config, Qwen3Model

from sbert import Normalize, Pooling, SentenceEncoder, Transformer
from tests import small
from tests.simulated_cuda.simulator import simulated

pytestmark = [
    pytest.mark.simulated_cuda,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
]
TEXTS = """one boat, two red hills, a small boat lies on the quiet lake, lake, the fox runs over seven hills, ten,
nobody rows it home, three four, five six seven, the long winter, eight nine, a fox""".replace("\n", " ").split(", ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


def encoder(folder: Path, device: str = "cuda", dtype: str = "auto", **pooling: Any) -> SentenceEncoder:
    modules = (Transformer(folder), Pooling("mean", **pooling), Normalize())
    return SentenceEncoder(*modules, device=device, dtype=dtype)


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return encoder(folder, "cpu", "float32").encode(TEXTS)


def singly(model: SentenceEncoder, rounds: int = 4) -> np.ndarray:
    """The vectors of texts that are encoded alone, as queries are, at the last of some rounds."""
    for _ in range(rounds):
        vectors = np.stack([model.encode(text) for text in TEXTS])
    return vectors


def are_close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool((found * expected).sum(1).min() >= 0.9998)


def test_03_heads_of_26(tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=small.wordpiece().get_vocab_size(), hidden_size=52, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    small.randomized(BertModel(config)).save_pretrained(tmp_path)
    small.wrapped(small.wordpiece(), 64).save_pretrained(tmp_path)
    expected = encoder(tmp_path, "cpu", "float32").encode(TEXTS)
    with simulated():
        assert are_close(encoder(tmp_path).encode(TEXTS), expected)


def test_04_a_kernel_that_torch_is_built_without(folder: Path, expected: np.ndarray) -> None:
    """The vectors come another way, with one warning."""
    with simulated() as gpu, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gpu.without_flash()
        model = encoder(folder)
        assert are_close(model.encode(TEXTS), expected)
        assert are_close(singly(model), expected)
    messages = {str(warning.message) for warning in said if warning.category is UserWarning}
    assert len(messages) <= 1, messages


def test_07_a_gpu_without_bfloat16_computes_in_half_precision(folder: Path, expected: np.ndarray) -> None:
    moved = {}
    with simulated((7, 5)) as gpu:
        for dtype in ("auto", "float32"):
            model = encoder(folder, dtype=dtype)
            assert are_close(model.encode(TEXTS), expected)
            gpu.forget()
            model.encode(TEXTS)
            moved[dtype] = gpu.count("bytes of products")
    assert moved["auto"] < 0.7 * moved["float32"]


def test_08_weights_are_not_cast_at_each_batch(tmp_path: Path) -> None:
    """A model without a fused forward of ours; its norms of heads computed in float32, for which there is no kernel."""
    config = Qwen3Config(
        vocab_size=small.wordpiece().get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, intermediate_size=256, max_position_embeddings=64,
    )  # fmt: skip
    small.randomized(Qwen3Model(config)).save_pretrained(tmp_path)
    small.wrapped(small.wordpiece(), 64).save_pretrained(tmp_path)
    with simulated() as gpu:
        model = encoder(tmp_path)
        model.encode(TEXTS)
        gpu.forget()
        model.encode(TEXTS)
        assert gpu.count("kernel _flash_attention_forward") == 2
        model.encode(TEXTS[0])
        gpu.forget()
        model.encode(TEXTS[0])
        others = gpu.count("bytes of kernels") - gpu.count("bytes of products")
        assert others < sum(weight.nbytes for weight in model[0].auto_model.layers.parameters())


def test_09_prompts_that_are_not_pooled_make_nobody_wait(folder: Path) -> None:
    waits = {}
    with simulated() as gpu:
        for included in (True, False):
            model = encoder(folder, include_prompt=included)
            for _ in range(3):
                model.encode(TEXTS, prompt="one two ", batch_size=4)
            gpu.forget()
            model.encode(TEXTS, prompt="one two ", batch_size=4)
            waits[included] = gpu.count("synchronizations")
    assert waits[False] == waits[True]


def test_10_the_model_runs_while_texts_are_tokenized(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second call of the tokenizer on, it waits here until the model has begun."""
    begun, in_time, calls = threading.Event(), [], []
    texts = [f"{number} boats" for number in range(8000)]
    with simulated():
        model = encoder(folder)
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
