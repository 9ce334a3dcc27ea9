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
from sbert.backends.half_precision import HalfPrecision
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = [
    pytest.mark.simulated_cuda,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
]
FAMILIES = ["modernbert", "qwen3", "t5-encoder", "deberta-v3", "albert"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {family: build(family, root / family) for family in FAMILIES}


def encoded(model: SentenceEncoder) -> np.ndarray:
    return model.encode(small.TEXTS, on_truncate="ignore")


def copies(model: SentenceEncoder) -> HalfPrecision | None:
    backend = state.state_of(model[0].network, state.ModelState).cached.backend
    assert backend is None or isinstance(backend, HalfPrecision)
    return backend


def counted(model: SentenceEncoder, gpu: Simulator) -> dict[str, int]:
    encoded(model)
    gpu.forget()
    encoded(model)
    return gpu.counts()


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)], ids=["7.5", "9.0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_weight_is_cast_at_a_batch(
    family: str, capability: tuple[int, int], folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = encoded(SentenceEncoder(folders[family], device="cpu"))
    with simulated(capability) as gpu:
        model = SentenceEncoder(folders[family], device="cuda")
        after = counted(model, gpu)
        assert copies(model) is not None
        assert (encoded(model) * expected).sum(1).min() >= 0.9998
        monkeypatch.setattr(HalfPrecision, "supports", lambda *_: "not here")
        before = counted(SentenceEncoder(folders[family], device="cuda"), gpu)
    for name in ("kernel copy_", "kernels", "bytes of kernels"):
        assert after[name] < before[name]
    flash = after.get("kernel _flash_attention_forward", 0)
    assert flash == (2 if capability >= (8, 0) and family in ("modernbert", "qwen3", "albert") else 0)  # One a layer.


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


def stepped(network: torch.nn.Module) -> None:
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(network.parameters(), lr=0.05).step()


def edited(network: torch.nn.Module) -> None:
    for parameter in network.parameters():
        parameter.data.mul_(0.8)


@pytest.mark.parametrize("change", [stepped, edited])
@pytest.mark.parametrize("family", ["modernbert", "qwen3"])
def test_weights_that_change(family: str, change: Callable[[Any], None], folders: dict[str, Path]) -> None:
    reference = SentenceEncoder(folders[family], device="cpu")
    change(reference[0].network)
    expected = encoded(reference)
    with simulated():
        model = SentenceEncoder(folders[family], device="cuda")
        before = encoded(model)
        half = copies(model)
        assert encoded(model).tobytes() == before.tobytes()
        assert copies(model) is half
        change(model[0].network)
        assert (encoded(model) * expected).sum(1).min() >= 0.9998
        assert copies(model) is not half
        assert np.abs(before - expected).max() > 1e-2


def test_settings_of_modules_that_change(folders: dict[str, Path]) -> None:
    """A copy would not see that a part without weights was replaced."""
    vectors = {}
    for device in ("cpu", "cuda"):
        with simulated():
            model = SentenceEncoder(folders["qwen3"], device=device)
            before = encoded(model)
            for layer in model[0].materialize().layers:
                layer.mlp.act_fn = torch.nn.Tanh()
            vectors[device] = encoded(model)
            assert np.abs(before - vectors[device]).max() > 1e-2
    assert (vectors["cpu"] * vectors["cuda"]).sum(1).min() >= 0.9998


def test_hooks_see_the_module_run(folders: dict[str, Path]) -> None:
    with simulated():
        model = SentenceEncoder(folders["modernbert"], device="cuda")
        before = encoded(model)
        seen: list[torch.dtype] = []
        layer = model[0].network.layers[0]
        handle = layer.mlp.register_forward_hook(lambda module, given, output: seen.append(output.dtype))
        with_hook = encoded(model)
        assert set(seen) == {torch.bfloat16}
        assert copies(model) is None
        handle.remove()
        np.testing.assert_array_equal(encoded(model), before)
        assert copies(model) is not None
        assert (before * with_hook).sum(1).min() >= 0.9998


@pytest.mark.parametrize("family", FAMILIES)
def test_the_network_can_be_freed(family: str, folders: dict[str, Path]) -> None:
    with simulated() as gpu:
        model = SentenceEncoder(folders[family], device="cuda")
        encoded(model)
        network, half = weakref.ref(model[0].network), weakref.ref(copies(model))
        weights = sum(p.nbytes for p in model[0].network.parameters())
        used = gpu.call("used")
        assert half() is not None
        del model
        gc.collect()
        assert network() is None
        assert half() is None
        assert used - gpu.call("used") >= 1.1 * weights


def test_what_t5_needs_in_float32(folders: dict[str, Path]) -> None:
    """Values of its feed-forward networks beyond the range of float16 do not overflow."""
    vectors = {}
    for device in ("cpu", "cuda"):
        with simulated((7, 5)):
            model = SentenceEncoder(folders["t5-encoder"], device=device)
            with torch.no_grad():
                for block in model[0].network.encoder.block:
                    block.layer[-1].DenseReluDense.wo.weight *= 1e5
            vectors[device] = encoded(model)
    assert (vectors["cpu"] * vectors["cuda"]).sum(1).min() >= 0.9998


def test_a_failure_of_the_copy_leaves_the_module(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated():
        model = SentenceEncoder(folders["modernbert"], device="cuda")
        before = encoded(model)
        half = copies(model)
        assert half is not None

        def fail(batch: Any) -> Any:
            raise RuntimeError("a kernel is missing")

        monkeypatch.setattr(half, "_run", fail)
        with pytest.warns(UserWarning, match=r"it fails with weights in half precision \(.*a kernel is missing"):
            vectors = encoded(model)
        assert (before * vectors).sum(1).min() >= 0.9998
        np.testing.assert_array_equal(encoded(model), vectors)


def test_without_memory_for_a_copy_the_module_runs(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate a copy")

    with simulated():
        model = SentenceEncoder(folders["modernbert"], device="cuda")
        monkeypatch.setattr("sbert.backends.half_precision.cast_weights", refuse)
        assert np.isfinite(model.encode(["a", "b"])).all()
        assert copies(model) is None
