"""The optional kernels: where they are used, and that Triton compiles them for GPUs. They run in simulated_cuda/."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert.backends import triton as optional
from sbert.backends.architectures import Backbone, describe
from sbert.backends.fused import Fused

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
HALF = ["bf16", "fp16"]
INT = "i32"


def compiled(name: str, types: dict[str, str], constants: dict[str, Any], capability: int, warps: int = 4) -> Any:
    """A kernel for a GPU of this capability; parameters without a type in ``types`` are numbers."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from sbert.backends.triton import kernels

    kernel = getattr(kernels, name)
    floats = {"eps": "fp32", "scale": "fp32"}
    signature = {x: "constexpr" if x in constants else types.get(x, floats.get(x, INT)) for x in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set.


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 89, 90])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("length", [16, 32, 64])
def test_attention_is_compiled_for_tensor_cores(length: int, dtype: str, capability: int) -> None:
    types = dict.fromkeys(("query", "key", "value", "bias", "out"), f"*{dtype}") | {"offsets": "*i64"}
    for block, biased in ((32, False), (128, True)):
        constants = {"biased": biased, "group": 64 // length, "length": length, "block": block}
        made = compiled("short_attention", types, constants, capability, length // 16)
        assert made.asm["cubin"]
        assert "mma" in made.asm["ptx"]
        assert made.metadata.shared <= 48 << 10  # What every GPU has.


@needs_triton
@pytest.mark.parametrize("capability", [80, 89, 90])
@pytest.mark.parametrize("dtype", [*HALF, "fp32"])
def test_other_kernels_are_compiled(dtype: str, capability: int) -> None:
    names = ("x", "x_bias", "residual", "weight", "bias")
    made = [compiled("add_norm", dict.fromkeys((*names, "out"), f"*{dtype}"), {"block": 1024}, capability)]
    types = dict.fromkeys(("words", "positions", "weight", "bias"), "*fp32") | {"out": f"*{dtype}"}
    types |= dict.fromkeys(("ids", "types", "offsets"), "*i64")
    for padding in ({}, {"padding": 1}):  # Triton compiles a number 1 in.
        constants = {"typed": True, "counted": True, "length": 64, "block": 1024, **padding}
        made.append(compiled("embed_norm", types, constants, capability))
    types = {"x": f"*{dtype}", "offsets": "*i64", "out": "*fp32"}
    made.append(compiled("mean_rows", types, {"chunk": 16, "block": 128}, capability))
    assert all(one.asm["cubin"] for one in made)


def backbone(heads: int = 3, activation: str = "gelu") -> Backbone:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=9, hidden_size=288, num_hidden_layers=1, num_attention_heads=heads, hidden_act=activation
    )
    described = describe(BertModel(config))
    assert not isinstance(described, str)
    return described


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A GPU of capability 8.0, with Triton."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(optional, "_installed", lambda: True)
    return monkeypatch


def test_parts_say_why_they_are_not_used(card: pytest.MonkeyPatch) -> None:
    device, half = torch.device("cuda"), torch.bfloat16
    everything = {"activation", "add_norm", "embed_norm", "short_attention"}
    assert set(optional.PARTS) == everything == optional.supported(device, half, backbone())
    assert optional.supported(device, torch.float32, backbone()) == {"add_norm", "embed_norm"}
    assert optional.supported(device, torch.float16, backbone()) == everything - {"activation"}
    assert optional.supported(device, torch.float16, backbone(activation="gelu_new")) == everything
    assert optional.supported(device, half, backbone(heads=1)) == everything - {"short_attention"}
    assert (
        optional.PARTS["short_attention"](device, half, backbone(heads=1)) == "its heads are too large (288 dimensions)"
    )
    assert optional.PARTS["add_norm"](device, torch.float64, backbone()) == "it does not compute in torch.float64"
    card.setattr(optional, "_installed", lambda: False)
    assert optional.refusal(device, half) == "triton is not installed"
    assert optional.supported(device, half, backbone()) == {"activation"}
    card.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert optional.refusal(device, half) == "it is for GPUs of capability 8.0 and higher"
    assert optional.refusal(torch.device("cpu"), half) == "it runs on NVIDIA GPUs only"
    assert not optional.supported(torch.device("cpu"), half, backbone())


def test_a_cpu_does_without_triton() -> None:
    code = """
import sys, torch
from sbert import SentenceEncoder
SentenceEncoder(device="cpu").encode(["a", "b c"])
assert not {"triton", "sbert.backends.triton.kernels"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_parts_can_be_left_out() -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    assert Fused(BertModel(config), torch.float32).parts == frozenset()
