"""CUDA graphs on the simulated device: what is replayed equals the forward, and what fails is left."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Normalize, Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.backends import choose
from sbert.backends.cuda_graphs import CudaGraphs, capturing
from sbert.backends.fused import Fused
from sbert.cli.doctor import diagnose
from tests import small
from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = pytest.mark.simulated_cuda
TEXT = "a small boat lies on the quiet lake"
OTHER = "nobody rows it home"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture
def gpu() -> Iterator[Simulator]:
    with simulated() as device:
        yield device


def encoder(folder: Path, device: str = "cuda") -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean"), Normalize(), device=device)


def graphs_of(model: SentenceEncoder) -> CudaGraphs:
    made = choose(model[0].network, torch.bfloat16)
    assert isinstance(made, CudaGraphs)
    return made


def batch_of(lengths: list[int], device: str = "cuda:0", first: int = 3) -> TokenBatch:
    return TokenBatch.from_rows([[(first + 7 * i + 5 * n) % 60 for i in range(n)] for n in lengths]).to(device)


def check_equal(graphs: CudaGraphs, batch: TokenBatch) -> None:
    with torch.no_grad():
        found, expected = graphs.forward(batch).float().cpu(), graphs._fused.forward(batch).float().cpu()
    assert found.shape == expected.shape
    assert (found - expected).norm(dim=1).max() <= 0.02 * expected.norm(dim=1).max()


def check_current(model: SentenceEncoder, gpu: Simulator, folder: Path) -> None:
    """A replay gives the vectors of the weights that the model has now."""
    reference = encoder(folder, "cpu")
    reference[0].materialize()
    reference.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    expected = reference.encode(TEXT)
    for _ in range(4):
        assert model.encode(TEXT) @ expected > 0.9995
    gpu.forget()
    assert model.encode(TEXT) @ expected > 0.9995
    assert gpu.count("graph replays") == 1


# -------------------------------------------------------------------------------------------------------- sizes


SIZES = {
    "1 token": ([1], (16, 1)), "15 tokens": ([15], (16, 1)), "16 tokens": ([16], (16, 1)), "17 tokens": ([17], (32, 1)),
    "64 tokens": ([64], (64, 1)), "65 tokens": ([64, 1], (128, 8)), "8 rows": ([2] * 8, (16, 8)),
    "9 rows": ([2] * 9, (32, 64)), "32 rows": ([1, 3] * 16, (64, 64)), "33 rows": ([2] * 33, (128, 64)),
    "64 rows": ([15] * 64, (1024, 64)), "1024 tokens": ([64] * 16, (1024, 64)),
    "empty rows": ([0, 3, 0, 0, 5, 0], (16, 8)),
}  # fmt: skip


@pytest.mark.parametrize(("lengths", "size"), SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_replay_has_the_vectors_of_the_forward(
    device: str, lengths: list[int], size: tuple[int, int], folder: Path, gpu: Simulator
) -> None:
    graphs = graphs_of(encoder(folder, device))
    for first in range(5):  # Other tokens, and other rows of the same size, each time.
        check_equal(graphs, batch_of(lengths, device, first))
        check_equal(graphs, batch_of(lengths[::-1], device, first))
    assert list(graphs._captured) == [size]
    assert gpu.count("graph replays") == 9  # One of them to compare it; all but the first two uses.
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("lengths", [[64] * 17, [1] * 65, [64] * 9], ids=["1025 tokens", "65 rows", "much filler"])
def test_what_fits_no_graph_runs_without(lengths: list[int], folder: Path, gpu: Simulator) -> None:
    """The filler of the last is longer than the model's longest row."""
    graphs = graphs_of(encoder(folder))
    for _ in range(3):
        check_equal(graphs, batch_of(lengths))
    assert gpu.count("graph replays") == 0
    assert graphs.failure is None


def test_a_size_is_captured_at_its_second_use(folder: Path, gpu: Simulator) -> None:
    model = encoder(folder)
    counts = []
    for text in (TEXT, OTHER, TEXT, OTHER):
        gpu.forget()
        model.encode(text)
        counts.append(gpu.count("graph replays"))
    assert counts == [0, 1, 1, 1]  # The second compares; its vectors are those of the forward.


def test_sizes_share_their_memory(folder: Path, gpu: Simulator) -> None:
    """Whatever the order in which they are replayed."""
    graphs = graphs_of(encoder(folder))
    batches = [batch_of(lengths) for lengths in ([5], [3] * 8, [40, 9], [30])]
    for i in (0, 0, 1, 1, 2, 2, 3, 3, 0, 2, 1, 3, 0, 1):
        check_equal(graphs, batches[i])
    assert len(graphs._captured) == 4
    assert len({captured.graph.of for captured in graphs._captured.values()}) == 1  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------- threads


def together(*calls: Callable[[], None]) -> None:
    failures = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_and_streams_share_the_graphs_of_a_model(folder: Path, gpu: Simulator) -> None:
    model = encoder(folder)
    graphs = graphs_of(model)

    def work(lengths: list[int]) -> None:
        with torch.cuda.stream(torch.cuda.Stream("cuda:0")):
            for first in range(8):
                check_equal(graphs, batch_of(lengths, first=first))

    together(lambda: work([9]), lambda: work([12, 1]), lambda: work([7]), lambda: work([30, 20]))
    assert graphs.failure is None
    for _ in range(3):
        work([9])
    assert gpu.count("graph replays") >= 20


def test_models_on_two_devices_capture_at_the_same_time(folder: Path, gpu: Simulator) -> None:
    made = {device: graphs_of(encoder(folder, device)) for device in ("cuda:0", "cuda:1")}

    def work(device: str) -> None:
        for first in range(4):
            for lengths in ([9], [12, 1], [40]):
                check_equal(made[device], batch_of(lengths, device, first))

    together(lambda: work("cuda:0"), lambda: work("cuda:1"))
    assert [graphs.failure for graphs in made.values()] == [None, None]
    assert [len(graphs._captured) for graphs in made.values()] == [3, 3]


def test_other_threads_do_not_wait_for_a_capture(folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is in the midst of a capture until another has its vectors."""
    graphs, right, replays = graphs_of(encoder(folder)), CudaGraphs._capture, []
    check_equal(graphs, batch_of([9]))

    def capture(self: CudaGraphs, *arguments: Any) -> Any:
        gpu.forget()
        together(lambda: check_equal(graphs, batch_of([9])), lambda: check_equal(graphs, batch_of([3, 4])))
        replays.append(gpu.count("graph replays"))
        return right(self, *arguments)

    monkeypatch.setattr(CudaGraphs, "_capture", capture)
    check_equal(graphs, batch_of([8]))
    assert replays == [0]
    assert list(graphs._captured) == [(16, 1)]


def test_a_thread_without_memory_waits_for_a_capture(
    folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To give memory back would fail meanwhile. The capture is in its midst until the other thread has come so far."""
    model, graphs, came = encoder(folder), graphs_of(encoder(folder)), threading.Event()
    texts = [f"{TEXT} {number}" for number in ("one", "two", "three", "four")]
    expected, right, found = model.encode(texts), Fused.forward, []

    class Lock:
        def __enter__(self) -> None:
            came.set()
            capturing.__enter__()

        def __exit__(self, *error: Any) -> None:
            capturing.__exit__(*error)

    def encode() -> None:
        found.append(model.encode(texts))

    def forward(self: Fused, batch: TokenBatch) -> torch.Tensor:
        if self is not graphs._fused and batch.rows == len(texts):
            raise torch.OutOfMemoryError("CUDA out of memory")
        if self is graphs._fused and torch.cuda.is_current_stream_capturing():
            other.start()
            assert came.wait(60)
        return right(self, batch)

    other = threading.Thread(target=encode)
    monkeypatch.setattr("sbert.pipeline.run.capturing", Lock())
    monkeypatch.setattr(Fused, "forward", forward)
    check_equal(graphs, batch_of([9]))
    check_equal(graphs, batch_of([9]))
    other.join()
    assert graphs.failure is None
    assert (found[0] * expected).sum(1).min() > 0.9995


# ------------------------------------------------------------------------------------------------ weights, devices


def by_data(model: SentenceEncoder) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.9)


def by_a_step(model: SentenceEncoder) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.train()
    model(model.tokenize([TEXT, OTHER]).to(model.device))[:, :3].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()


def by_other_weights(model: SentenceEncoder) -> None:
    model.load_state_dict({name: value.flip(-1) for name, value in model.state_dict().items()})


@pytest.mark.parametrize("change", [by_data, by_a_step, by_other_weights])
def test_graphs_have_the_weights_of_the_call(
    change: Callable[[SentenceEncoder], None], folder: Path, gpu: Simulator
) -> None:
    model = encoder(folder)
    before = model.encode(TEXT)
    check_current(model, gpu, folder)
    change(model)
    check_current(model, gpu, folder)
    assert np.abs(model.encode(TEXT) - before).max() > 1e-2


def test_a_model_that_moves(folder: Path, gpu: Simulator) -> None:
    model = encoder(folder)
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        model.to(device)
        check_current(model, gpu, folder)


def test_device_moves_all_of_a_model(folder: Path, gpu: Simulator) -> None:
    """Nothing is moved if all of it is there; a part that is elsewhere is found, and so is another current device."""
    model, expected = encoder(folder, "cpu"), encoder(folder, "cpu").encode(TEXT)
    model.append(torch.nn.Identity()).register_buffer("scale", torch.ones(1))
    for device, found in (
        ("cuda:1", "cuda:1"),
        ("cuda:1", "cuda:1"),
        ("cuda", "cuda:0"),
        ("cpu", "cpu"),
        (1, "cuda:1"),
    ):
        assert model.encode(TEXT, device=device) @ expected > 0.9995
        assert {tensor.device for tensor in model.state_dict().values()} == {torch.device(found)}
    for part in (model[0].network.encoder.layer[1].attention, model):
        part._buffers["scale"] = torch.ones(1)
        part.to("cuda:0")
        assert model.encode(TEXT, device="cuda:1") @ expected > 0.9995
        assert {tensor.device for tensor in model.state_dict().values()} == {torch.device("cuda:1")}


def test_a_model_that_goes_leaves_no_memory(folder: Path, gpu: Simulator) -> None:
    for _ in range(3):
        encoder(folder).encode([TEXT, OTHER])  # The kernels are tried at the first.
    gc.collect()
    before, model = gpu.call("used"), encoder(folder)
    for text in (TEXT, OTHER) * 3:
        model.encode(text)
    gone = weakref.ref(graphs_of(model))
    del model
    gc.collect()
    assert gone() is None
    assert gpu.call("used") <= before


# ------------------------------------------------------------------------------------------------------ failures


def check_left(model: SentenceEncoder, gpu: Simulator, reason: str) -> None:
    """One warning, the vectors of the forward, no second try, and the reason in doctor."""
    expected = copy.deepcopy(model).to("cpu").encode([TEXT, OTHER])
    with pytest.warns(UserWarning, match="without CUDA graphs") as said:
        vectors = np.stack([model.encode(text) for text in (TEXT, OTHER) * 3])[:2]
    assert (vectors * expected).sum(1).min() > 0.9995
    assert len(said) == 1
    assert reason in str(said[0].message)
    assert reason in diagnose(model)["no cuda_graphs"]
    assert reason in diagnose(model)["forward"]
    assert torch.cuda.current_stream("cuda:0").stream_id == 0  # The caller's stream is the current one again.
    torch.cuda.empty_cache()  # And torch's allocator can return memory.
    gpu.forget()
    model.encode(TEXT)
    assert gpu.count("graph replays") == 0


@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_capture_that_fails(when: str, folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(torch.cuda.CUDAGraph, f"capture_{when}")

    def fails(self: Any, *arguments: Any, **options: Any) -> None:
        if when == "begin":
            raise RuntimeError("CUDA error: operation not permitted")
        self.broken = True
        right(self)

    class Generator(torch.Generator):
        """One that a broken capture has left in a state in which nothing can be random."""

        def clone_state(self) -> Any:
            return "as it was, outside of a capture"

        def graphsafe_set_state(self, state: Any) -> None:
            states.append(state)

    states: list[str] = []
    monkeypatch.setattr(torch.cuda, "default_generators", (Generator(), Generator()))
    monkeypatch.setattr(torch.cuda.CUDAGraph, f"capture_{when}", fails)
    check_left(encoder(folder), gpu, "a capture failed")
    assert states == ["as it was, outside of a capture"]


def test_a_forward_that_waits_for_the_device(folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    model = encoder(folder)
    fused = graphs_of(model)._fused
    right = fused.forward

    def waits(batch: TokenBatch) -> torch.Tensor:
        vectors = right(batch)
        float(vectors.sum())
        return vectors

    monkeypatch.setattr(fused, "forward", waits)
    check_left(model, gpu, "not permitted when stream is capturing")


def test_a_thread_that_synchronizes_the_device(folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks the capture, and has an error itself: the reason why captures are not made in the background."""
    model = encoder(folder)
    fused, errors = graphs_of(model)._fused, []
    right = fused.forward

    def synchronize() -> None:
        with pytest.raises(RuntimeError, match="capturing") as error:
            torch.cuda.synchronize()
        errors.append(error)

    def forward(batch: TokenBatch) -> torch.Tensor:
        if torch.cuda.current_stream(batch.ids.device).stream_id and not errors and batch.rows > 1:
            calls.append(1)
            if len(calls) == 2:  # The first is the run before the capture.
                together(synchronize)
        return right(batch)

    calls: list[int] = []
    monkeypatch.setattr(fused, "forward", forward)
    check_left(model, gpu, "operation failed due to a previous error during capture")
    assert len(errors) == 1


@pytest.mark.parametrize("number", [1, 5, 20, 50])
def test_memory_that_runs_out_in_a_capture(
    number: int, folder: Path, gpu: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left like one that fails: to try again costs as much as several forwards, and would fail again."""
    right = CudaGraphs._capture

    def capture(self: CudaGraphs, *arguments: Any) -> Any:
        gpu.memory(failing=number)
        try:
            return right(self, *arguments)
        finally:
            gpu.memory()

    monkeypatch.setattr(CudaGraphs, "_capture", capture)
    check_left(encoder(folder), gpu, "out of memory")


def test_vectors_that_are_not_finite_are_no_reason(folder: Path, gpu: Simulator) -> None:
    model = encoder(folder)
    with torch.no_grad():
        model[0].network.embeddings.LayerNorm.bias[0] = torch.inf
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*were computed again")
        for _ in range(3):
            with pytest.raises(ValueError, match="not finite"):
                model.encode(TEXT)
    assert graphs_of(model).failure is None
