"""The kernel for rows of variable length, under the signatures that it has in torch 2.10 to 2.13."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from sbert import TokenBatch
from sbert.backends import varlen_training
from sbert.backends.attention import attend
from tests.varlen import VERSIONS, kernel, of_2_10

ROWS = [[3, 9, 4, 7], [5, 1, 1, 6, 8, 20, 11], [2], [8, 9, 4]]


def test_06_the_signature_is_that_of_torch() -> None:
    """Of the version that is installed."""
    known = {function.__name__[3:]: function for function in VERSIONS}
    version = "_".join(torch.__version__.split(".")[:2])
    if version not in known:
        pytest.skip(f"torch {torch.__version__} is not one of those")

    def shown(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    assert shown(varlen.varlen_attn) == shown(known[version])


OPTIONS: list[dict[str, Any]] = [
    {}, {"scale": 0.7}, {"causal": True}, {"window": (1, 1)}, {"window": (2, 0)}, {"causal": True, "window": (2, -1)},
    {"causal": True, "scale": 0.3},
]  # fmt: skip


def inputs(dim: int) -> tuple[TokenBatch, list[Tensor]]:
    torch.manual_seed(0)
    rows = TokenBatch.from_rows(ROWS)
    return rows, [torch.randn(len(rows.ids), heads, dim).bfloat16() for heads in (4, 2, 2)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dim", [8, 26, 300])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_06_attention_by_the_signature_that_is_there(
    version: Callable[..., Tensor], dim: int, options: dict[str, Any], stand_in: Callable[..., list[int]]
) -> None:
    """For heads that the kernel takes and others, as by the calls for each length."""
    rows, values = inputs(dim)
    expected = attend(*(x.double() for x in values), rows, **options)
    calls = stand_in(version)
    found = attend(*values, rows, **options)
    assert (found - expected).abs().max() <= 0.02 * expected.abs().max()
    assert found.shape == values[0].shape
    unknown = version is of_2_10 and "window" in options
    assert len(calls) == (0 if dim > 256 else 1 if unknown else 2)  # The first tries the kernel out.


# The operator behind it, in torch 2.10 and, with two more arguments, in 2.12 and 2.13.
OPERATOR = """_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k,
SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale=None,
SymInt? window_size_left=None, SymInt? window_size_right=None, Tensor? seqused_k=None, Tensor? alibi_slopes=None{more})
-> (Tensor output, Tensor softmax_logsumexp, Tensor rng_state, Tensor unused, Tensor debug_attn_mask)"""


@pytest.mark.parametrize("more", ["", ", Tensor? block_table=None, int? num_splits=None"], ids=["2.10", "2.13"])
@pytest.mark.parametrize("dim", [8, 26])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_06_attention_by_the_operator_behind_it(
    more: str, dim: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = torch._C.parse_schema("aten::" + " ".join(OPERATOR.format(more=more).split()))
    required = {argument.name for argument in schema.arguments if not argument.has_default_value()}

    def operator(**given: Any) -> tuple[Tensor, ...]:
        assert required <= given.keys() <= {argument.name for argument in schema.arguments}
        left, right = given["window_size_left"], 0 if given["is_causal"] else given["window_size_right"]
        out = kernel(*(given[name] for name in ("query", "key", "value", "cum_seq_q", "scale")), left, right)
        return (out, *[torch.empty(0)] * 4)

    operator.default = SimpleNamespace(_schema=schema)  # type: ignore[attr-defined]
    rows, values = inputs(dim)
    expected = attend(*(x.double() for x in values), rows, **options)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", operator)
    causal, window = options.get("causal", False), options.get("window", (-1, -1))
    sees = (window[0], 0) if causal else window
    found = varlen_training.training_call(*values, rows, dropout=0.0, scale=options.get("scale"), sees=sees)
    assert (found - expected).abs().max() <= 0.02 * expected.abs().max()
