"""Two devices in one process, of which the first is the current one: nothing depends on which one that is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
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
from sbert.losses import MultipleNegativesRankingLoss
from sbert.losses.signature import Signature
from sbert.training import Ranks, TrainingBatch, backward
from sbert.training.backward import get_random_state
from sbert.training.run import preserve_random_state, seed_step
from tests import small
from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = pytest.mark.simulated_cuda
OTHER = torch.device("cuda:1")
TEXTS = [f"{a} {b} {c}" for a in ("one", "two", "red") for b in ("fox", "boat", "") for c in ("lake", "hills " * 7, "")]
ROWS = [(f"one {text}", f"two {text}") for text in TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


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


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_encode(dtype: str, folder: Path, gpu: Simulator) -> None:
    expected = encoder(folder, "cpu").encode(TEXTS)
    model = encoder(folder, OTHER, dtype)
    with OnlyOn(OTHER):
        for _ in range(3):
            vectors = [
                model.encode(TEXTS),
                model.encode(TEXTS, batch_tokens=40),
                np.stack(list(map(model.encode, TEXTS))),
            ]
        kept = model.encode(TEXTS, convert_to_tensor=True)
    assert kept.device == OTHER
    for found in [*vectors, kept.cpu().numpy()]:
        np.testing.assert_allclose(found, expected[: len(found)], atol=1e-6 if dtype == "float32" else 0.02)


def trained(folder: Path, device: torch.device | str, output: Path | None = None, **options: Any) -> list[Tensor]:
    """The weights after some steps with gradient caching."""
    resume = options.pop("resume", False)
    model = encoder(folder, device, dropout=options.pop("dropout", False))
    settings: dict[str, Any] = {"batch_size": 8, "chunk_tokens": 64, "learning_rate": 1e-3, "steps": 4, **options}
    trainer = Trainer(model, ROWS, MultipleNegativesRankingLoss(), TrainingConfig(output=output, **settings))
    trainer.fit(show_progress_bar=False, resume=resume)
    return [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training(dtype: str, folder: Path, gpu: Simulator) -> None:
    expected = trained(folder, "cuda:0", dtype=dtype)
    with OnlyOn(OTHER):
        found = trained(folder, OTHER, dtype=dtype)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_training_resumes_where_it_was(folder: Path, gpu: Simulator, tmp_path: Path) -> None:
    """With dropout and mixed precision; a checkpoint of one device is that of the other."""
    options: dict[str, Any] = {"dropout": True, "dtype": "bfloat16", "keep": 9, "checkpoint_every": 1}
    expected = trained(folder, "cuda:0", tmp_path / "whole", **options)
    for late in (tmp_path / "whole" / "checkpoints").glob("step-0000000[34]"):
        for file in sorted(late.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        late.rmdir()
    with OnlyOn(OTHER):
        found = trained(folder, OTHER, tmp_path / "whole", resume=True, **options)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


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
    expected, weights = encoder(folder, "cpu").encode(TEXTS), trained(folder, "cuda:0")
    models = [encoder(folder, device, "auto") for device in ("cuda:0", OTHER)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(2):  # The second time, single texts are replayed.
                for text, vector in zip(TEXTS[::3], expected[::3], strict=True):
                    assert models[number].encode(text) @ vector > 0.9998
                np.testing.assert_allclose(models[number].encode(TEXTS, batch_tokens=60), expected, atol=0.02)
            found = trained(folder, torch.device("cuda", number))
            assert all(torch.equal(a, b) for a, b in zip(found, weights, strict=True))
            assert torch.cuda.current_device() == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class OnAStream(Ranks):
    """Two ranks with the same gradients; sums are computed on a stream of their own, as NCCL does."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        object.__setattr__(self, "stream", torch.cuda.Stream(OTHER))
        object.__setattr__(self, "events", [])

    def broadcast(self, tensors: Any) -> None:
        pass

    def gather(self, columns: Tensor, rows: int) -> Tensor:
        return columns

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        stream, events = vars(self)["stream"], vars(self)["events"]
        stream.wait_stream(torch.cuda.current_stream(OTHER))
        with torch.cuda.stream(stream):
            tensor *= 2
        events.append("sum")

        def wait() -> None:
            events.append("wait")
            torch.cuda.current_stream(OTHER).wait_stream(stream)

        return wait


@pytest.mark.parametrize("cached", [False, True])
def test_sums_of_gradients_run_beside_the_backward_pass(
    cached: bool, folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another stream, before the last gradient exists, without a wait of the host, and with the same result."""
    monkeypatch.setattr(buckets, "_BUCKET", 2000)
    loss, ranks = MultipleNegativesRankingLoss(), OnAStream()
    events: list[str] = vars(ranks)["events"]
    gradients, waits = [], []
    for overlapping in (False, True):
        model = encoder(folder, OTHER).train()
        batch = TrainingBatch.of(model, ROWS, Signature.of(loss)).to(OTHER)
        output = model(model.tokens(["lake"]).batch(np.arange(1)).to(OTHER))
        summed = GradientBuckets(sort_unused_first(model.parameters(), output, ranks), ranks)
        first = model[0].auto_model.embeddings.word_embeddings.weight
        first.register_post_accumulate_grad_hook(lambda parameter: events.append("last gradient"))
        events.clear()
        gpu.forget()
        context = summed.overlap() if overlapping else None
        backward(model, loss, batch, ranks=ranks, chunk_tokens=100, cached=cached, last_pass=context)
        summed.finish()
        waits.append(gpu.count("synchronizations"))
        gradients.append([None if p.grad is None else p.grad.cpu() for p in model.parameters()])
        last = len(events) - 1 - events[::-1].index("last gradient")
        assert (events[:last].count("sum") > 5) == overlapping
        assert events.index("wait") > max(last, len(events) - 1 - events[::-1].index("sum"))
    assert waits[0] == waits[1]
    for a, b in zip(*gradients, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)
