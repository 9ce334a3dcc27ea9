"""The contract of every backend: the vectors of the Hugging Face module, for all families, dtypes and lengths of rows.

A new backend is one row of ``BACKENDS``, a new architecture one name in ``FUSED``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert import TokenBatch
from sbert.backends import packed, state
from sbert.backends.fused import Fused
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.backends.parity import max_relative_error
from tests import small
from tests.backends.test_families import FAMILIES, MORE, build_network

CPU = torch.device("cpu")
BATCHES = {
    "rows of all lengths, out of order, one of them empty": [[3, 9, 4, 7], [5, 7, 6, 8], [2], [], [*range(3, 40)], [8]],
    "a row": [[3, 4, 5, 6, 7, 8, 9, 10, 11]],
    "a token": [[5]],
    # As a text may hold it; models that count positions from it leave it out.
    "with the padding token among others": [[5, 1, 1, 6, 8, 20, 11], [], [1, 1, 5], [3, 4, 1]],
}
ROWS = next(iter(BATCHES.values()))
FUSED = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "mpnet", "modernbert", "nomic", "gte")
FUSED += ("qwen3", "qwen3-both-ways", "gemma3", "gemma3-both-ways", "t5-encoder", "t5-whole")
PADDED = ("mpnet", "deberta-v3", "t5-encoder", "t5-whole")  # Their attention needs it.
ALL = tuple({**FAMILIES, **MORE})
PACKED = tuple(family for family in ALL if family not in PADDED)
# Each backend as it is made of a network for a dtype, and the families that it supports.
BACKENDS: dict[str, tuple[Callable[[Any, torch.dtype], Any], tuple[str, ...]]] = {
    "padded": (lambda network, dtype: Padded(network), ALL),
    "packed": (lambda network, dtype: Packed(network), PACKED),
    "fused": (Fused, FUSED),
}
# The norms or rotary positions of these compute in float32 at most.
IN_FLOAT32 = ("gemma3", "t5", "qwen", "mistral", "modernbert")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.05}
_KINDS: tuple[Any, ...] = (Padded, Packed, Fused)


@cache
def network(family: str, dtype: torch.dtype) -> Any:
    made = build_network(family, dtype).eval()
    packed.adopt(made)
    return made


@cache
def expected(family: str, batch: str) -> Tensor:
    """Vectors of the tokens of each row alone, in float64."""
    model = build_network(family, torch.float64).eval()
    with torch.no_grad():
        return torch.cat([model(torch.tensor([row])).last_hidden_state[0] for row in BATCHES[batch] if row])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("name", "family"), [(name, family) for name, row in BACKENDS.items() for family in row[1]])
def test_vectors_of_the_hugging_face_module(name: str, family: str, dtype: torch.dtype) -> None:
    make, _ = BACKENDS[name]
    limit = max(TOLERANCE[dtype], 2e-6) if family.startswith(IN_FLOAT32) else TOLERANCE[dtype]
    with torch.no_grad():
        backend = make(network(family, dtype), dtype)
        for batch, rows in BATCHES.items():
            tokens = TokenBatch.from_rows(rows)
            vectors = backend.forward(tokens)
            assert max_relative_error(vectors, expected(family, batch), tokens) <= limit, batch


@pytest.mark.parametrize("family", ALL)
def test_a_backend_says_what_it_does_not_support(family: str) -> None:
    model = network(family, torch.float32)
    supported = {kind.name for kind in _KINDS if kind.supports(model, CPU, torch.float32) is None}
    listed = {name for name, (_, families) in BACKENDS.items() if family in families}
    assert supported == listed & {kind.name for kind in _KINDS}


@pytest.mark.parametrize("family", ALL)
def test_gradients_of_the_hugging_face_module(family: str) -> None:
    """Of every weight, in training: without padding, or with it."""
    rows = [row for row in next(iter(BATCHES.values())) if row]
    ids, mask = TokenBatch.from_rows(rows).padded(fill=1)
    model, plain = network(family, torch.float64), build_network(family, torch.float64).eval()
    with torch.enable_grad():
        model.zero_grad()
        state.forward(model, TokenBatch.from_rows(rows)).square().sum().backward()
        plain(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask].square().sum().backward()
    gradients = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    assert len(gradients) > 10
    limit = 1e-6 if family.startswith(("gemma3", "t5")) else 1e-10
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (name not in gradients)
        if parameter.grad is not None:
            gradient = gradients[name]
            assert (parameter.grad - gradient).abs().max() <= limit * max(1.0, float(gradient.abs().max())), name


def variant(family: str, **settings: Any) -> Any:
    """A network of other settings, and the same weights at each call."""
    import transformers

    config, model, shape, _ = {**FAMILIES, **MORE}[family]
    made = getattr(transformers, config)(vocab_size=60, **{**shape, **settings})
    return small.randomized(getattr(transformers, model)(made))


SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 5}
GROWING = {**SCALED, "rope_type": "dynamic"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "without token types": ("gte", {"type_vocab_size": 0}),
    "scaled positions": ("nomic", {"rope_parameters": SCALED}),
    "biases": ("modernbert", {"attention_bias": True, "mlp_bias": True, "norm_bias": True}),
    "local layers alone": ("modernbert", {"layer_types": ["sliding_attention"] * 2}),
    "another activation": ("modernbert", {"hidden_activation": "silu"}),
    "as many key heads": ("qwen3", {"num_key_value_heads": 2, "attention_bias": True}),
    "windows, causal": ("qwen3", WINDOWS),
    "windows, to both sides": ("qwen3", {**WINDOWS, "is_causal": False}),
    "windows of Gemma, to both sides": ("gemma3", {"is_causal": False}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_settings_of_an_architecture(name: str) -> None:
    model, tokens = variant(VARIANTS[name][0], **VARIANTS[name][1]), TokenBatch.from_rows(ROWS)
    assert Fused.supports(model, CPU, torch.float32) is None
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([row])).last_hidden_state[0] for row in ROWS if row])
        assert max_relative_error(Fused(model, torch.float32).forward(tokens), alone, tokens) <= 2e-6
        packed.adopt(model)
        assert max_relative_error(Packed(model).forward(tokens), alone, tokens) <= 2e-6


@pytest.mark.parametrize("family", ["bert", "nomic", "gte"])
def test_token_types(family: str) -> None:
    """The second text of a pair."""
    tokens = TokenBatch.from_rows([[3, 9, 4, 7], [5, 7]])
    tokens = replace(tokens, types=torch.tensor([0, 0, 1, 1, 0, 1]))
    model = variant(family, type_vocab_size=2)
    with torch.no_grad():
        vectors, expected = (backend.forward(tokens) for backend in (Fused(model, torch.float32), Padded(model)))
    assert max_relative_error(vectors, expected, tokens) <= 1e-6


LOCAL = {"rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), GROWING)}


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        ("nomic", {"rope_parameters": GROWING}, "its rotary positions are 'dynamic'"),
        ("modernbert", LOCAL, "'dynamic'"),
        ("gte", {"hidden_act": "mish"}, "its activation is 'mish'"),
        ("mistral", {}, "mistral is not a known architecture"),
    ],
)
def test_settings_that_are_refused(family: str, settings: dict[str, Any], reason: str) -> None:
    """Frequencies that depend on the longest row of a batch are not those of other batches."""
    assert reason in str(Fused.supports(variant(family, **settings), CPU, torch.float32))
