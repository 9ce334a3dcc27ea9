"""The CUDA path, as far as it can be shown without a GPU: with stand-ins for the kernel, for graphs and for streams."""

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import BertConfig, BertModel

from sbert import Normalize, Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.backends import inference
from sbert.backends import weight_changes as samples
from sbert.backends.cuda_graphs import CudaGraphs, capture_stream
from sbert.backends.fused import Fused
from sbert.cli.doctor import diagnose
from sbert.pipeline.eval_mode import evaluating
from tests import small
from tests.varlen import of_2_13

TEXTS = ["a small boat", "the quiet lake", "zero one two three", "nobody rows it home", "seven green hills"]


@pytest.fixture
def model(tmp_path: Path) -> SentenceEncoder:
    return SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling("mean"), Normalize(), device="cpu")


# ------------------------------------------------------------------------------------------------- the kernel


def test_06_torch_without_the_kernel(
    model: SentenceEncoder, stand_in: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for Windows: attention goes on by calls for each length, and doctor says why."""

    def missing(*arguments: Any) -> Tensor:
        raise RuntimeError("USE_FLASH_ATTENTION was not enabled for build.")

    model.bfloat16()
    expected = model.encode(TEXTS)
    calls = stand_in(missing)
    inference._kept.clear()
    with pytest.warns(UserWarning, match="attention runs slower than it could: torch's varlen_attn fails"):
        assert np.abs(model.encode(TEXTS) - expected).max() <= 0.02
    assert np.abs(model.encode(TEXTS) - expected).max() <= 0.02  # It is said once.
    assert "USE_FLASH_ATTENTION was not enabled" in diagnose(model)["attention"]
    assert calls == [1]


# ------------------------------------------------------------------------------------------------------ graphs


class Recorder(TorchDispatchMode):
    """What a graph captures: operations with what they read and write."""

    def __init__(self, operations: list[Any]) -> None:
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, made))
        return made


class Stream:
    """Of a device; what is done on it is noted."""

    def __init__(self, gpu: Gpu, device: int) -> None:
        self.gpu, self.device = gpu, device

    def wait_stream(self, other: Stream) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        self.gpu.log.append((self, "waits for", event.recorded_on))


class Gpu:
    """Stand-ins for torch.cuda: tensors, which lie on the CPU, count as on device 1, and device 0 is the current one.

    Operations on tensors of another device than the stream's are not captured: that graph is empty.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self.capturing, self.captures, self.log = 0, False, 0, []  # type: ignore[var-annotated]
        self.stream = Stream(self, 1)
        self.default: Stream | None = None
        self.failure: Exception | None = None
        self.on_capture: Callable[[], None] = lambda: None
        gpu = self

        class Graph:
            def __init__(self) -> None:
                self.operations: list[Any] = []

            def replay(self) -> None:
                gpu.log.append((gpu.stream, "replays", None))
                for func, args, kwargs, made in self.operations:
                    for old, new in zip(tree_leaves(made), tree_leaves(func(*args, **kwargs)), strict=True):
                        if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                            old.copy_(new)

        class Event:
            recorded_on: Stream | None = None

            def record(self, stream: Stream) -> None:
                self.recorded_on = stream

        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "device", self.device)
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "stream", self.use)
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(gpu, 1))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: gpu.stream)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "Event", Event)

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, 1
        yield
        self.current = before

    @contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    @contextmanager
    def graph(
        self, graph: Any, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        self.captures += 1
        if self.capturing:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if self.failure is not None:
            raise self.failure
        self.capturing = True
        try:
            self.on_capture()
            self.default = self.default or Stream(self, self.current)
            with Recorder(graph.operations if (stream or self.default).device == 1 else []):
                yield
        finally:
            self.capturing = False


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, stand_in: Callable[..., list[int]]) -> Gpu:
    stand_in(of_2_13)
    capture_stream.cache_clear()
    return Gpu(monkeypatch)


@pytest.fixture
def fused(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> Fused:
    monkeypatch.setattr("sbert.backends.fused.packing", lambda dtype, threads: (False, "F.linear"))
    with evaluating(model):
        return Fused(model.bfloat16()[0].auto_model, torch.bfloat16)


def wrong(graphs: CudaGraphs, fused: Fused, queries: int = 12) -> int:
    """How many of some different queries get other vectors by graphs than without."""
    found = 0
    with torch.no_grad():
        for i in range(queries):
            batch = TokenBatch.from_rows([[(5 * i + 7 * j) % 90 for j in range(3 + i)]])
            found += int(
                (graphs.forward(batch) - fused.forward(batch)).float().norm()
                > 0.1 * fused.forward(batch).float().norm()
            )
    return found


def test_06_graphs_on_a_device_that_is_not_the_current_one(gpu: Gpu, fused: Fused) -> None:
    graphs = CudaGraphs(fused)
    assert wrong(graphs, fused) == 0
    assert graphs.failure is None
    assert [what for _, what, _ in gpu.log].count("replays") >= 9  # Two graphs, and the queries after the second.
    assert gpu.current == 0


def test_06_a_replay_that_differs_is_not_used(gpu: Gpu, fused: Fused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cause; here, the graph is empty after all."""
    monkeypatch.setattr("torch.cuda.Stream", lambda device: Stream(gpu, 0))
    graphs = CudaGraphs(fused)
    with pytest.warns(UserWarning, match="short texts are encoded without CUDA graphs: its output differs by") as said:
        assert wrong(graphs, fused) == 0
    assert len(said) == gpu.captures == 1
    assert graphs.why.startswith("F.linear, CUDA graphs for short texts, which are not used: its output differs")


@pytest.mark.parametrize(
    "failure", [RuntimeError("CUDA error: capture failed"), torch.OutOfMemoryError("full")], ids=str
)
def test_06_a_capture_that_fails_is_not_repeated(gpu: Gpu, fused: Fused, failure: Exception) -> None:
    gpu.failure, graphs = failure, CudaGraphs(fused)
    with pytest.warns(UserWarning, match="without CUDA graphs: a capture failed") as said:
        assert wrong(graphs, fused) == 0
    assert len(said) == gpu.captures == 1
    assert graphs.failure is not None
    assert str(failure) in graphs.failure


def test_06_one_capture_at_a_time(gpu: Gpu, fused: Fused) -> None:
    """Of two models in two threads."""
    gpu.on_capture = lambda: time.sleep(0.05)
    models, failures = [CudaGraphs(fused), CudaGraphs(fused)], []

    def call(graphs: CudaGraphs) -> None:
        try:
            assert wrong(graphs, fused, queries=4) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(graphs,)) for graphs in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [graphs.failure for graphs in models] == [None, None]


def test_06_streams_that_share_a_graph_wait_for_each_other(gpu: Gpu, fused: Fused) -> None:
    graphs = CudaGraphs(fused)
    assert wrong(graphs, fused, queries=4) == 0
    first, second = gpu.stream, Stream(gpu, 1)
    gpu.log.clear()
    batch = TokenBatch.from_rows([[3, 4, 5]])
    with torch.no_grad(), gpu.use(second):
        graphs.forward(batch)
        graphs.forward(batch)
    assert gpu.log == [
        (second, "waits for", first),
        (second, "replays", None),
        (second, "waits for", second),
        (second, "replays", None),
    ]


def test_06_small_heads_encode(tmp_path: Path, gpu: Gpu) -> None:
    """Heads of 26, as small Russian and Chinese models have them, through the whole of encode, graphs included."""
    config = BertConfig(
        vocab_size=small.wordpiece().get_vocab_size(), hidden_size=52, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    tokenizer = small.wrapped(small.wordpiece(), 64)
    model = SentenceEncoder(Transformer(small.randomized(BertModel(config)), tokenizer), Pooling(), device="cpu")
    expected = model.encode(TEXTS)
    model.bfloat16()
    for found in (model.encode(TEXTS * 2)[: len(TEXTS)], np.stack([model.encode(text) for text in TEXTS])):
        cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
        assert cosines.min() > 0.999
    assert "replays" in [what for _, what, _ in gpu.log]
    assert "one kernel" in diagnose(model)["attention"]
    assert "CUDA graphs for short texts" in diagnose(model)["forward"]


# ---------------------------------------------------------------------------------- a forward that fails, stale weights


@pytest.mark.parametrize("when", ["at first", "later"])
def test_06_a_fused_forward_that_fails_is_left(
    model: SentenceEncoder, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain one gives the vectors, there is one warning, and doctor says why."""
    expected, right = model.encode(TEXTS), Fused.forward

    def broken(self: Fused, batch: TokenBatch) -> Tensor:
        raise RuntimeError("no kernel image is available")

    if when == "at first":
        inference._kept.clear()
    monkeypatch.setattr(Fused, "forward", broken)
    with pytest.warns(UserWarning, match="plain, slower forward: it fails in the fused forward.*no kernel image"):
        assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6  # It is said once.
    assert diagnose(model)["forward"].startswith("plain: it fails in the fused forward (RuntimeError: no kernel")
    monkeypatch.setattr(Fused, "forward", right)
    model[0].auto_model.embeddings.LayerNorm.weight.data.mul_(1.5)
    model.encode(TEXTS)
    assert diagnose(model)["forward"].startswith("fused")  # Other weights are another try.


def test_06_memory_that_runs_out_is_no_reason(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is halved, and the forward stays; where the plain one fails, too, its error is the user's."""
    expected, right = model.encode(TEXTS), Fused.forward

    def scarce(self: Fused, batch: TokenBatch) -> Tensor:
        if batch.rows > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, batch)

    monkeypatch.setattr(Fused, "forward", scarce)
    assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    assert diagnose(model)["forward"].startswith("fused")
    # A batch that no forward takes.
    monkeypatch.undo()
    model[0]._fast()
    monkeypatch.setattr(type(model[0]), "tokenize", lambda self, texts: [[10**6] for _ in texts])
    monkeypatch.setattr(type(model[0]), "vocab_size", None)
    with pytest.raises(IndexError):
        model.encode("lake")
    monkeypatch.undo()
    assert diagnose(model)["forward"].startswith("fused")


def merge(model: SentenceEncoder) -> None:
    """As merged adapters and moving averages write."""
    model[0].auto_model.encoder.layer[1].output.dense.weight.data.mul_(1.5)


def test_06_weights_edited_through_data_on_a_gpu(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked for while the first batch is under way, which is then made anew; the host waits for nothing else."""
    monkeypatch.setattr(samples, "_is_deferred", lambda device: True)
    before, order = model.encode(TEXTS, batch_size=2), []
    read, forward = samples._array, Fused.forward
    monkeypatch.setattr(samples, "_array", lambda numbers: (order.append("read"), read(numbers))[1])
    monkeypatch.setattr(Fused, "forward", lambda self, b: (order.append("forward"), forward(self, b))[1])
    assert np.array_equal(model.encode(TEXTS, batch_size=2), before)
    assert order == ["forward", "read", "forward", "forward"]
    merge(model)
    order.clear()
    after = model.encode(TEXTS, batch_size=2)
    # After the first batch: a new sample, the comparison of the new copy with the plain forward, and that batch again.
    assert order == ["forward", "read", "read", "forward", "forward", "forward", "forward"]
    with evaluating(model):
        expected = model(model.tokenize(TEXTS)).numpy()
    assert np.abs(after - expected).max() <= 1e-6
    assert np.abs(after - before).max() > 1e-4


@pytest.mark.parametrize("deferred", [False, True])
def test_06_a_change_of_some_rows_or_of_a_transposed_weight_is_seen(
    deferred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_is_deferred", lambda device: deferred)
    layer = torch.nn.Linear(640, 256)
    layer.weight.data = layer.weight.data.T.contiguous().T  # Read from a file that keeps it the other way round.
    table = torch.nn.Embedding(2, 64)
    for weight, rows in ((layer.weight, slice(1, 60)), (table.weight, slice(1, 2)), (layer.bias, slice(0, 32))):
        found = samples.Samples(torch.nn.ModuleList([layer, table]))
        assert found.start()()
        weight.data[rows] *= -3
        assert not found.start()()


def test_06_samples_hold_no_model(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_is_deferred", lambda device: True)
    known, other = len(inference._kept), copy.deepcopy(model)
    other.encode("lake")
    gone = weakref.ref(other[0]), weakref.ref(other[0].network.embeddings.word_embeddings.weight)
    assert len(inference._kept) == known + 1
    del other
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


# ------------------------------------------------------------------------------------------------------- 17: hooks

PLACES: dict[str, Callable[[SentenceEncoder], nn.Module]] = {
    "the model": lambda model: model,
    "its transformer": lambda model: model[0],
    "its pooling": lambda model: model[1],
    "its normalisation": lambda model: model[2],
    "an inner layer": lambda model: model[0].auto_model.encoder.layer[0].output.dense,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("compiled", [False, True])
def test_17_forward_hooks_fire_in_encode(place: str, compiled: bool, model: SentenceEncoder) -> None:
    """Once a batch, before and after, with what goes in and comes out; and no longer once they are removed."""
    expected = model.encode(TEXTS)
    if compiled:
        model.compile(backend="eager")
    seen: list[tuple[str, type]] = []
    module = PLACES[place](model)
    handles = [
        module.register_forward_pre_hook(lambda module, given: seen.append(("before", type(given[0])))),
        module.register_forward_hook(lambda module, given, made: seen.append(("after", type(made)))),
    ]
    assert np.abs(model.encode(TEXTS, batch_size=3) - expected).max() <= 1e-6
    in_encode = seen.copy()
    seen.clear()
    with evaluating(model):
        model(model.tokenize(TEXTS[:3]))
        model(model.tokenize(TEXTS[3:]))
    assert in_encode == seen
    assert [when for when, _ in seen] == ["before", "after"] * 2
    for handle in handles:
        handle.remove()
    seen.clear()
    assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    assert seen == []


@pytest.mark.parametrize("place", ["the model", "its pooling", "its normalisation"])
def test_17_what_a_hook_returns_counts(place: str, model: SentenceEncoder) -> None:
    expected = model.encode(TEXTS)
    PLACES[place](model).register_forward_hook(lambda module, given, made: -made)
    assert np.abs(model.encode(TEXTS) + expected).max() <= 1e-6


def test_17_what_a_hook_of_the_transformer_returns_counts(model: SentenceEncoder) -> None:
    expected = model.encode(TEXTS)
    model[0].register_forward_hook(lambda module, given, made: replace(made, values=-made.values))
    assert np.abs(model.encode(TEXTS) + expected).max() <= 1e-6


def test_17_hooks_on_all_modules_fire(model: SentenceEncoder) -> None:
    """As profilers register them."""
    model.encode(TEXTS)
    seen: list[Any] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, made: seen.append(module))
    try:
        model.encode(TEXTS)
    finally:
        handle.remove()
    assert {model, *model, model[0].auto_model.encoder.layer[1].output.dense} <= set(seen)
