"""The ways to run a model on a GPU are compared and timed at its first use, and what does not work is switched off."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from sbert.backends import fused, self_check
from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.inference import choose
from sbert.backends.padded import Padded
from sbert.backends.self_check import check
from sbert.batch import TokenBatch
from sbert.cli.doctor import diagnose
from sbert.storage import user_cache
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = [
    pytest.mark.simulated_cuda,
    pytest.mark.filterwarnings("ignore:unknown tokens:UserWarning"),
]
BFLOAT16 = torch.bfloat16
PARTS = frozenset({"one", "two", "three"})
ALL = "fused + one + three + two"
really = self_check.seconds  # In here, replaced.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture
def gpu(tmp_path: Path) -> Iterator[Simulator]:
    """A device with a cache, and three kernels that change nothing."""
    with simulated() as simulator, pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_cache, "folder", lambda: tmp_path / "cache")
        for module in (fused, self_check):
            patch.setattr(module, "supported", lambda *_: PARTS)
        yield simulator


@pytest.fixture
def patch(gpu: Simulator) -> Iterator[pytest.MonkeyPatch]:
    """Undone before the device is gone, which restores what it has replaced."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def loaded(folder: Path, network: Callable[[Any], None] = lambda network: None) -> SentenceEncoder:
    """A model as another process has it: nothing is known of it."""
    self_check._of_weights.clear()
    model = SentenceEncoder(folder, device="cuda")
    network(model[0].network)
    return model


def timed(patch: pytest.MonkeyPatch, **seconds: float) -> list[str]:
    """Times by way; the list of ways that were timed."""
    names: list[str] = []

    def take(run: Any) -> float:
        way = run.func.__self__
        name = "plain" if isinstance(way, Padded) else "with" if way.parts else "fused"
        names.append(name)
        return seconds[name]

    patch.setattr(self_check, "seconds", take)
    return names


def breaking(patch: pytest.MonkeyPatch, wrong: Callable[[Fused], bool], how: Any) -> None:
    """Let the fused forward give other vectors, or raise, with some kernels."""
    right = Fused.forward

    def forward(self: Fused, batch: TokenBatch) -> torch.Tensor:
        if batch.ids.device.type == "cpu" or not wrong(self):
            return right(self, batch)
        if isinstance(how, Exception):
            raise how
        return right(self, batch) * how

    patch.setattr(Fused, "forward", forward)


def used(model: SentenceEncoder) -> frozenset[str] | str:
    """The kernels of the chosen forward, or why there is none."""
    chosen = choose(model[0].network, BFLOAT16)
    chosen = chosen._fused if isinstance(chosen, CudaGraphs) else chosen
    return chosen.parts if isinstance(chosen, Fused) else chosen


def similarity(model: SentenceEncoder, folder: Path) -> float:
    expected = SentenceEncoder(folder, device="cpu").encode(small.TEXTS, on_truncate="ignore")
    return float((model.encode(small.TEXTS, on_truncate="ignore") * expected).sum(1).min())


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_all_ways_are_compared(device: str, gpu: Simulator, folder: Path) -> None:
    self_check._of_weights.clear()
    model = SentenceEncoder(folder, device=device)
    found = check(model[0].network, BFLOAT16)
    assert list(found.results) == list(dict.fromkeys(["plain", "fused", ALL]))
    for result in found.results.values():
        assert result.reason is None
        assert 0 < result.gap <= found.allowed < 0.1
    assert found.allowed == 2 * found.results["plain"].gap
    assert used(model) == PARTS
    assert similarity(model, folder) >= 0.9998


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"with": 1.0, "fused": 2.0, "plain": 3.0}, PARTS),
        ({"with": 2.0, "fused": 1.0, "plain": 3.0}, frozenset()),
        ({"with": 1.05, "fused": 1.0, "plain": 1.0}, PARTS),  # Not clearly slower.
        ({"with": 2.0, "fused": 2.0, "plain": 1.0}, None),
    ],
)
def test_the_fastest_is_used(
    seconds: dict[str, float], expected: Any, gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    assert sorted(set(timed(patch, **seconds))) == []
    model = loaded(folder)
    found = check(model[0].network, BFLOAT16)
    assert found.parts == expected
    if expected is None:
        assert str(used(model)).startswith("the plain forward is faster on this GPU: plain (")
        assert diagnose(model)["forward"].startswith("plain, with copies of its weights, in half")
    else:
        assert used(model) == expected
    assert similarity(model, folder) >= 0.9998


def test_later_processes_know_the_times_and_the_gaps(
    gpu: Simulator, folder: Path, tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    names = timed(patch, **{"with": 2.0, "fused": 1.0, "plain": 3.0})
    first = loaded(folder)
    first.encode("lake")
    assert names == ["with", "with", "fused", "fused", "plain", "plain"]
    files = {path: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    assert len(files) == 2
    second = loaded(folder)
    gpu.forget()
    found = check(second[0].network, BFLOAT16)
    assert gpu.counts()["kernels"] <= 2
    assert gpu.count("synchronizations") == 1
    assert found == check(first[0].network, BFLOAT16)
    assert used(second) == frozenset()
    # Other weights of this shape are compared, and have its times; those that change later keep the choice.
    other = loaded(folder, lambda network: network.get_input_embeddings().weight.data.mul_(1.5))
    gpu.forget()
    check(other[0].network, BFLOAT16)
    assert gpu.count("kernels") > 100
    assert len(list((tmp_path / "cache").iterdir())) == 3
    gpu.forget()
    first[0].network.get_input_embeddings().weight.data.mul_(1.5)
    assert check(first[0].network, BFLOAT16) == found
    assert not gpu.count("kernels add")
    assert len(names) == 6
    assert {path: path.read_bytes() for path in files} == files


def test_what_it_costs(gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Each way runs twice to be compared, and no more than three times for each length if a call takes long."""
    runs: list[str] = []
    for kind in (Padded, Fused):
        right = kind.forward

        def forward(self: Any, batch: TokenBatch, kind: Any = kind, right: Any = right) -> torch.Tensor:
            runs.append(kind.name)
            return right(self, batch)

        patch.setattr(kind, "forward", forward)
    patch.setattr(self_check, "seconds", lambda run: really(run, 1e-9))
    patch.setattr(self_check, "LONGEST", 512)
    model = loaded(folder)
    runs.clear()
    gpu.forget()
    found = check(model[0].network, BFLOAT16)
    assert runs.count("padded") == 2 * 2 + 6
    assert runs.count("fused") == 2 * (2 + 6)
    print(gpu.count("kernels"), "kernels,", gpu.count("synchronizations"), "synchronizations")
    assert gpu.count("synchronizations") <= 36  # Three for each of six times.
    assert gpu.count("kernels") <= 1700
    assert all(0 < second < 10 for both in found.seconds.values() for second in both)
    assert gpu.count("copies to the host") <= 1


def test_kernels_that_only_this_process_cannot_compile(gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Another process has found them right, on a machine that shares the cache and has a compiler."""
    timed(patch, **{"with": 1.0, "fused": 2.0, "plain": 3.0})
    assert used(loaded(folder))
    breaking(patch, lambda way: bool(way.parts), RuntimeError("Failed to find C compiler"))
    model = loaded(folder)
    with pytest.warns(UserWarning, match="without its kernels .* C compiler.*; install gcc, or set CC") as said:
        assert used(model) == frozenset()
    assert len(said) == 1
    assert similarity(model, folder) >= 0.9998


def test_time_of_a_call(gpu: Simulator) -> None:
    """A call is repeated until the time is over."""
    count: list[int] = []
    data = torch.zeros(4, device="cuda")
    assert 0 < really(lambda: count.append(int(data.add_(1).numel())), 0.02) < 0.02
    assert len(count) > 5


@pytest.mark.parametrize("how", [1.5, math.nan, RuntimeError("a kernel\nis missing")])
def test_a_kernel_that_does_not_work(
    how: Any, gpu: Simulator, folder: Path, tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    breaking(patch, lambda way: "two" in way.parts, how)
    reason = r"it fails \(RuntimeError: a kernel is missing\)" if isinstance(how, Exception) else "its vectors differ"
    for process in range(2):
        model = loaded(folder)
        with pytest.warns(
            UserWarning, match=rf"BertModel does without .*GPU: fused \+ two: {reason}.*report it"
        ) as said:
            assert used(model) == {"one", "three"}
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*please report it")
            assert similarity(model, folder) >= 0.9998
            facts = diagnose(model)
        assert "fused + one + three" in facts["chosen on this GPU"]
        assert facts["no fused + two"].startswith(reason[:8])
        # What raised is tried again by the next process, and so is what has no gap that can be stored.
        files = [json.loads(path.read_text()) for path in (tmp_path / "cache").iterdir()]
        assert len([content for content in files if "results" in content]) == (how == 1.5), process


@pytest.mark.parametrize("how", [1.5, RuntimeError("no kernel image")])
def test_a_fused_forward_that_does_not_work(how: Any, gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch) -> None:
    breaking(patch, lambda way: True, how)
    model = loaded(folder)
    with pytest.warns(UserWarning, match=r"does without what does not work on this GPU: fused: ") as said:
        assert similarity(model, folder) >= 0.9998
    assert len([warning for warning in said if "please report it" in str(warning.message)]) == 1
    assert "differ" in str(used(model)) or "no kernel image" in str(used(model))
    assert diagnose(model)["no fused"] == used(model)


def test_a_sequence_that_depends_on_every_rounding(gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """One set of tokens whose vectors are far from float32 is no reason, three are; the limit is measured."""
    right, odd = Fused.forward, [3]

    def forward(self: Fused, batch: TokenBatch) -> torch.Tensor:
        wrong = batch.ids.device.type != "cpu" and batch.rows > 20 and int(batch.ids[0]) in odd
        return right(self, batch) * (1.2 if wrong else 1.0)

    patch.setattr(Fused, "forward", forward)
    found = check(loaded(folder)[0].network, BFLOAT16)
    assert found.parts == PARTS
    assert not found.refusals
    odd += self_check._STARTS
    other = loaded(folder, lambda network: network.get_input_embeddings().weight.data.mul_(1.5))
    with pytest.warns(UserWarning, match="fused: its vectors differ"):
        assert check(other[0].network, BFLOAT16).parts is None


@pytest.mark.parametrize("factor", [1.5, 2.5])
def test_the_limit_is_twice_the_distance_of_plain_half_precision(
    factor: float, gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    """Vectors between those of float32 and of plain half precision, and beyond."""
    right = Fused.forward
    network = loaded(folder)[0].network
    exact, plain = (Padded(self_check.cast(network, dtype)) for dtype in (torch.float32, BFLOAT16))

    def forward(self: Fused, batch: TokenBatch) -> torch.Tensor:
        if batch.ids.device.type == "cpu":
            return right(self, batch)
        expected = exact.forward(batch)
        return expected + factor * (plain.forward(batch) - expected)

    patch.setattr(Fused, "forward", forward)
    self_check._of_weights.clear()
    if factor < 2:
        assert not check(network, BFLOAT16).refusals
    else:
        with pytest.warns(UserWarning, match=r"its vectors differ from float32 by .* are allowed"):
            assert list(check(network, BFLOAT16).refusals) == ["fused"]


def test_kernels_that_only_fail_together(gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch) -> None:
    breaking(patch, lambda way: len(way.parts) > 1, 1.5)
    model = loaded(folder)
    assert len(check(model[0].network, BFLOAT16).parts or "") == 1
    assert similarity(model, folder) >= 0.9998


@pytest.mark.parametrize(
    "content", ["", "[1]", "{}", '{"seconds": {"plain": [0, -1]}}', '{"allowed": 1, "results": 3}']
)
def test_a_damaged_cache(content: str, gpu: Simulator, folder: Path, tmp_path: Path) -> None:
    first = check(loaded(folder)[0].network, BFLOAT16)
    files = {path: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    for path in files:
        path.write_text(content)
    model = loaded(folder)
    assert check(model[0].network, BFLOAT16) == first
    assert {path: path.read_bytes() for path in files} == files  # Written again.
    assert used(model) == PARTS


def test_kernels_that_are_installed_later(gpu: Simulator, folder: Path, patch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as before:
        for module in (fused, self_check):
            before.setattr(module, "supported", lambda *_: frozenset())
        assert used(loaded(folder)) == frozenset()
    assert used(loaded(folder)) == PARTS


def test_an_unwritable_cache(gpu: Simulator, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    model = loaded(folder)
    assert similarity(model, folder) >= 0.9998
    assert used(model) == PARTS


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache.folder() == tmp_path / "sbert"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache.folder() == Path.home() / ".cache" / "sbert"
    monkeypatch.setattr(user_cache.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert user_cache.folder() == tmp_path / "local" / "sbert"


def test_too_little_memory(gpu: Simulator, folder: Path) -> None:
    """Without memory to compare, the fused forward runs without optional kernels."""
    model = loaded(folder)
    gpu.memory(limit=gpu.call("used") + 20_000)
    assert check(model[0].network, BFLOAT16).parts == frozenset()
    gpu.memory()
    assert used(model) == frozenset()
    assert similarity(model, folder) >= 0.9998


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "distilbert", "electra"])
@pytest.mark.parametrize("capability", [(6, 1), (7, 5), (8, 0)], ids=["6.1", "7.5", "8.0"])
def test_no_false_alarm(family: str, capability: tuple[int, int], tmp_path: Path) -> None:
    folder = build(family, tmp_path / family)
    with simulated(capability):
        model = SentenceEncoder(folder, device="cuda")
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*please report it")
            assert similarity(model, folder) >= 0.9998
        dtype = {6: torch.float32, 7: torch.float16, 8: BFLOAT16}[capability[0]]
        found = check(model[0].network, dtype)
        assert not found.refusals
        assert np.isfinite([result.gap for result in found.results.values()]).all()
