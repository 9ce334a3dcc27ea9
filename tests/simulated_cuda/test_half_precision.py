"""What the fused forward does not know runs from half-precision copies of its weights, with the vectors of float32."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from sbert.backends import state
from sbert.backends.fused import Fused
from sbert.backends.half_precision import HalfPrecision
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.simulated_cuda, pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")]
FAMILIES = ["modernbert", "qwen3", "t5-encoder", "deberta-v3", "albert"]
# Without the fused forward, which knows some of them.
not_fused = pytest.mark.usefixtures("not_fused")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {family: build(family, root / family) for family in ("bert", *FAMILIES)}


@pytest.fixture(name="not_fused")
def no_fused_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fused, "supports", staticmethod(lambda *_: "it is not to be used"))


def encoded(model: SentenceEncoder) -> np.ndarray:
    return model.encode(small.TEXTS, on_truncate="ignore")


def copies(model: SentenceEncoder) -> HalfPrecision | None:
    cached = state.state_of(model[0].network, state.ModelState).cached
    backend = cached and cached.backend
    assert backend is None or isinstance(backend, HalfPrecision)
    return backend


@not_fused
@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_where_all_in_half_precision_is_too_far_from_float32(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the linear layers alone has the very vectors of the module under autocast."""
    monkeypatch.setattr(state, "_ERROR_OF_HALF", 0.0)
    with simulated():
        model = SentenceEncoder(folders[family], device="cuda")
        vectors = encoded(model)
        half = copies(model)
        assert half is not None
        assert half._autocast
        monkeypatch.setattr(HalfPrecision, "supports", lambda *_: "not here")
        module = SentenceEncoder(folders[family], device="cuda")
        np.testing.assert_array_equal(vectors, encoded(module))
        assert copies(module) is None


def step(network: torch.nn.Module) -> None:
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(network.parameters(), lr=0.05).step()


def edit(network: torch.nn.Module) -> None:
    for parameter in network.parameters():
        parameter.data.mul_(0.8)


@pytest.mark.parametrize("change", [step, edit])
@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_weights_that_change(family: str, change: Callable[[Any], None], folders: dict[str, Path]) -> None:
    reference = SentenceEncoder(folders[family], device="cpu")
    change(reference[0].network)
    expected = encoded(reference)
    with simulated():
        model = SentenceEncoder(folders[family], device="cuda")
        before = encoded(model)
        known = state.state_of(model[0].network, state.ModelState)
        cached = known.cached
        assert encoded(model).tobytes() == before.tobytes()
        assert known.cached is cached
        change(model[0].network)
        assert (encoded(model) * expected).sum(1).min() >= 0.9998
        assert known.cached.backend is not cached.backend
        assert np.abs(before - expected).max() > 1e-2


@not_fused
@pytest.mark.parametrize("part", ["act_fn", "forward"])
def test_parts_that_are_replaced(part: str, folders: dict[str, Path]) -> None:
    """A copy would not see a part without weights, nor a forward of the caller's own."""
    vectors = {}
    for device in ("cpu", "cuda"):
        with simulated():
            model = SentenceEncoder(folders["qwen3"], device=device)
            before = encoded(model)
            for layer in model[0].materialize().layers:
                new = torch.nn.Tanh() if part == "act_fn" else lambda x, own=layer.mlp.forward: own(x).tanh()
                setattr(layer.mlp, part, new)
            vectors[device] = encoded(model)
            assert device == "cpu" or (copies(model) is None) == (part == "forward")
            assert np.abs(before - vectors[device]).max() > 1e-2
    assert (vectors["cpu"] * vectors["cuda"]).sum(1).min() >= 0.9998


@not_fused
def test_hooks_see_the_module_run(folders: dict[str, Path]) -> None:
    with simulated():
        model = SentenceEncoder(folders["modernbert"], device="cuda")
        before = encoded(model)
        seen: list[torch.dtype] = []
        handle = model[0].network.layers[0].mlp.register_forward_hook(lambda *given: seen.append(given[2].dtype))
        assert (before * encoded(model)).sum(1).min() >= 0.9998
        assert set(seen) == {torch.bfloat16}
        assert copies(model) is None
        handle.remove()
        np.testing.assert_array_equal(encoded(model), before)
        assert copies(model) is not None


@not_fused
def test_the_network_can_be_freed(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        with simulated() as gpu:
            model = SentenceEncoder(folder, device="cuda")
            encoded(model)
            gone, used = weakref.ref(model[0].network), gpu.call("used")
            weights = sum(p.nbytes for p in model.parameters())
            del model
            gc.collect()
            assert gone() is None
            assert used - gpu.call("used") >= 1.1 * weights


@not_fused
def test_what_t5_needs_in_float32(folders: dict[str, Path]) -> None:
    """Values of its feed-forward networks beyond the range of float16 do not overflow."""
    vectors = []
    for device in ("cpu", "cuda"):
        with simulated((7, 5)):
            model = SentenceEncoder(folders["t5-encoder"], device=device)
            with torch.no_grad():
                for block in model[0].network.encoder.block:
                    block.layer[-1].DenseReluDense.wo.weight *= 1e5
            vectors.append(encoded(model))
    assert (vectors[0] * vectors[1]).sum(1).min() >= 0.9998


@not_fused
@pytest.mark.parametrize("memory", [False, True])
def test_without_the_copy_the_module_runs(
    memory: bool, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no memory for it, in silence."""

    def fail(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory") if memory else RuntimeError("a kernel is missing")

    with simulated():
        model = SentenceEncoder(folders["modernbert"], device="cuda")
        if memory:
            monkeypatch.setattr("sbert.backends.half_precision.cast_weights", fail)
            vectors = encoded(model)
        else:
            encoded(model)
            monkeypatch.setattr(copies(model), "_run", fail)
            with pytest.warns(UserWarning, match=r"it fails with weights in half precision \(.*a kernel is missing"):
                vectors = encoded(model)
        assert copies(model) is None
        expected = encoded(SentenceEncoder(folders["modernbert"], device="cpu"))
        assert (expected * vectors).sum(1).min() >= 0.9998
        np.testing.assert_array_equal(encoded(model), vectors)
