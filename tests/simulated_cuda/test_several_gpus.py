"""Two devices in one process, of which the first is the current one: nothing depends on which one that is."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sbert import Normalize, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.distributed import buckets
from sbert.distributed.buckets import GradientBuckets, sort_unused_first
from sbert.distributed.ranks import Ranks
from sbert.losses import MultipleNegativesRankingLoss
from sbert.losses.signature import Signature
from sbert.pipeline.run import Encoding
from sbert.training.backward import TrainingBatch, backward, get_random_state, preserve_random_state
from sbert.training.training_run import seed_step
from tests.simulated_cuda.simulator import Simulator, simulated
from tests.simulated_cuda.test_pipeline_simulated import TEXTS

pytestmark = pytest.mark.simulated_cuda
OTHER = torch.device("cuda:1")
ROWS = [(f"one {text}", f"two {text}") for text in TEXTS]


@pytest.fixture
def gpu() -> Iterator[Simulator]:
    with simulated() as device:
        yield device
        assert torch.cuda.current_device() == 0


def encoder(folder: Path, device: str | torch.device, dtype: str = "float32", dropout: bool = False) -> SentenceEncoder:
    model = SentenceEncoder(Transformer(folder), Pooling("mean"), Normalize(), device=device, dtype=dtype)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and not dropout:
            module.p = 0.0
    return model


class OnlyOn(TorchDispatchMode):
    """An error for each operation of this thread that makes a tensor on another simulated device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, Tensor):
                assert each.device in (self.device, torch.device("cpu"), torch.device("meta")), function
        return made


def train(folder: Path, device: torch.device | str, output: Path | None = None, **options: Any) -> list[Tensor]:
    """The weights after some steps with gradient caching."""
    resume = options.pop("resume", False)
    model = encoder(folder, device, dropout=options.pop("dropout", False))
    settings: dict[str, Any] = {"batch_size": 8, "chunk_tokens": 64, "learning_rate": 1e-3, "steps": 4, **options}
    trainer = Trainer(model, ROWS, MultipleNegativesRankingLoss(), TrainingConfig(output=output, **settings))
    trainer.fit(show_progress_bar=False, resume=resume)
    return [parameter.detach().cpu() for parameter in model.parameters()]


def test_training_resumes_where_it_was(folder: Path, gpu: Simulator, tmp_path: Path) -> None:
    """With dropout and mixed precision; a checkpoint of one device is that of the other."""
    options: dict[str, Any] = {"dropout": True, "dtype": "bfloat16", "keep": 9, "checkpoint_every": 1}
    expected = train(folder, "cuda:0", tmp_path / "whole", **options)
    for late in (tmp_path / "whole" / "checkpoints").glob("step-0000000[34]"):
        shutil.rmtree(late)
    with OnlyOn(OTHER):
        found = train(folder, OTHER, tmp_path / "whole", resume=True, **options)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("first", "steps"), [(2.0**16, 4), (2.0**20, 8)])
def test_training_in_float16(
    first: float, steps: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU without bfloat16: steps as those of float32, and a resumed run has the same bits, its scale included."""
    monkeypatch.setattr(torch.amp, "GradScaler", partial(torch.amp.GradScaler, init_scale=first, growth_interval=3))
    options: dict[str, Any] = {"dtype": "float16", "keep": 9, "checkpoint_every": 1, "steps": steps}
    options |= {"optimizer": "SGD", "learning_rate": 1.0, "max_gradient_norm": 0.1}
    with simulated((7, 5)):
        whole = train(folder, "cuda", tmp_path / "whole", **options)
        paths = sorted((tmp_path / "whole" / "checkpoints").glob("step-*"))
        states = [json.loads((path / "training/state.json").read_text(encoding="utf-8")) for path in paths]
        scales = [first, *(state["scaler"]["scale"] for state in states)]
        saved = [(path / "model.safetensors").read_bytes() for path in paths]
        if first == 2.0**16:
            assert scales[1:] == [2.0**16, 2.0**16, 2.0**17, 2.0**17]
            start = [parameter.detach() for parameter in encoder(folder, "cpu").parameters()]
            changes = [
                torch.cat([(after - before).flatten() for before, after in zip(start, weights, strict=True)])
                for weights in (whole, train(folder, "cuda", **options | {"dtype": "float32"}))
            ]
            assert (changes[0] - changes[1]).norm() < 0.1 * changes[1].norm()  # Gradients were clipped to their norm.
        else:  # A step whose gradients overflow is left out, and the next one has half the scale.
            assert scales[1] == first / 2
            for step in range(1, steps):
                assert (saved[step] == saved[step - 1]) == (scales[step + 1] < scales[step])
            assert len(set(saved)) > 2
        for path in paths[-2:]:
            shutil.rmtree(path)
        resumed = train(folder, "cuda", tmp_path / "whole", resume=True, **options)
        assert all(torch.equal(a, b) for a, b in zip(resumed, whole, strict=True))
    with pytest.raises(ValueError, match="dtype='float16' is emulated by CPUs"):
        train(folder, "cpu", dtype="float16")


@pytest.mark.parametrize(("capability", "dtype"), [((8, 0), "bfloat16"), ((7, 5), "float32")])
def test_by_default_a_gpu_with_bfloat16_trains_in_it(capability: tuple[int, int], dtype: str, folder: Path) -> None:
    with simulated(capability):
        by_default, chosen = (train(folder, "cuda", steps=2, dtype=name) for name in ("auto", dtype))
        other = train(folder, "cuda", steps=2, dtype="float32" if dtype == "bfloat16" else "bfloat16")
    assert all(torch.equal(a, b) for a, b in zip(by_default, chosen, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(by_default, other, strict=True))


def test_generators_are_those_of_the_device(gpu: Simulator) -> None:
    generators = torch.cuda.default_generators
    for number, generator in enumerate(generators):
        generator.manual_seed(number)
    before = [generator.get_state() for generator in generators]
    with preserve_random_state(OTHER):
        seed_step(seed=1, step=2, rank=0, device=OTHER)
        assert torch.equal(generators[0].get_state(), before[0])  # Another thread may train there.
        assert torch.equal(generators[1].get_state(), torch.get_rng_state())
        assert torch.equal(get_random_state(OTHER)[1], generators[1].get_state())
    assert all(torch.equal(a.get_state(), b) for a, b in zip(generators, before, strict=True))


def test_two_models_on_two_devices_in_two_threads(folder: Path, gpu: Simulator) -> None:
    expected, weights = encoder(folder, "cpu").encode(TEXTS), train(folder, "cuda:0", steps=2)
    models = [encoder(folder, device, "auto") for device in ("cuda:0", OTHER)]

    def work(number: int) -> None:
        with OnlyOn(torch.device("cuda", number)):
            assert models[number].encode(TEXTS, convert_to_tensor=True).device == torch.device("cuda", number)
        for text, vector in zip(TEXTS[::3], expected[::3], strict=True):
            assert models[number].encode(text) @ vector > 0.9998
        np.testing.assert_allclose(models[number].encode(TEXTS, batch_tokens=60), expected, atol=0.02)
        result = train(folder, torch.device("cuda", number), steps=2)
        assert all(torch.equal(a, b) for a, b in zip(result, weights, strict=True))
        assert torch.cuda.current_device() == 0

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [None, None]


@pytest.mark.parametrize("capabilities", [[(7, 5), (9, 0)], [(9, 0), (7, 5)]], ids=str)
def test_each_gpu_has_its_kernels(capabilities: list[tuple[int, int]], folder: Path) -> None:
    """A model on the second of two different GPUs; the first is the current one."""
    dtype = torch.bfloat16 if capabilities[1] == (9, 0) else torch.float16
    with simulated(capabilities) as gpu:
        model = encoder(folder, OTHER, "auto")
        assert Encoding(model).inference.settings.dtype == dtype, capabilities
        model.encode(TEXTS[:9])
        assert (gpu.count("kernel _flash_attention_forward") > 0) == (dtype == torch.bfloat16), capabilities


def test_two_threads_on_streams(folder: Path, gpu: Simulator) -> None:
    """The Hugging Face module under autocast; neither thread ends before the other."""
    expected, both = encoder(folder, "cpu").encode(TEXTS[:9]), threading.Barrier(2)
    network = Transformer(folder, backend="plain")
    model = SentenceEncoder(network, Pooling("mean"), Normalize(), device="cuda")
    network.auto_model.encoder.layer[1].register_forward_pre_hook(lambda *_: (both.wait(60), None)[1])

    def work(_: int) -> Any:
        with torch.cuda.stream(torch.cuda.Stream("cuda")):
            return model.encode(TEXTS[:9])

    with ThreadPoolExecutor(2) as pool:
        for vectors in pool.map(work, range(2)):
            np.testing.assert_allclose(vectors, expected, atol=0.02)


class OnAStream(Ranks):
    """Two ranks with the same gradients; sums are computed on a stream of their own, as NCCL does."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        object.__setattr__(self, "stream", torch.cuda.Stream(OTHER))

    def broadcast(self, tensors: Any) -> None:
        pass

    def gather(self, columns: Tensor, rows: int) -> Tensor:
        return columns

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        stream = vars(self)["stream"]
        stream.wait_stream(torch.cuda.current_stream(OTHER))
        with torch.cuda.stream(stream):
            tensor *= 2
        return lambda: torch.cuda.current_stream(OTHER).wait_stream(stream)


@pytest.mark.parametrize("cached", [False, True])
def test_sums_of_gradients_run_beside_the_backward_pass(
    cached: bool, folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another stream, with the same result: the simulator notices what does not wait for it."""
    monkeypatch.setattr(buckets, "_BUCKET", 2000)
    loss, ranks = MultipleNegativesRankingLoss(), OnAStream()
    gradients = []
    for overlapping in (False, True):
        model = encoder(folder, OTHER).train()
        batch = TrainingBatch.of(model, ROWS, Signature.of(loss)).to(OTHER)
        output = model(model.tokens(["lake"]).batch(np.arange(1)).to(OTHER))
        summed = GradientBuckets(sort_unused_first(model.parameters(), output, ranks), ranks)
        context = summed.overlap() if overlapping else None
        backward(model, loss, batch, ranks=ranks, chunk_tokens=100, cached=cached, last_pass=context)
        summed.finish()
        gradients.append({name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None})
    assert len(gradients[0]) > 10
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
