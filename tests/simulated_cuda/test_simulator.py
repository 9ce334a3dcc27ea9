"""The simulated device enforces what a GPU enforces."""

from __future__ import annotations

import gc
from contextlib import nullcontext

import pytest
import torch

from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.gate, pytest.mark.simulated_cuda]


def test_tensors_are_on_the_device_and_compute() -> None:
    with simulated():
        left = torch.arange(6.0).reshape(2, 3).to("cuda")
        assert (left.device, left.is_cuda) == (torch.device("cuda:0"), True)
        assert (left @ left.T).tolist() == [[5.0, 14.0], [14.0, 50.0]]
        with pytest.raises(TypeError, match="cuda:0 device type tensor to numpy"):
            left.numpy()
        left.resize_(1, 3)
        assert left.tolist() == [[0, 1, 2]]
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|cuda"):
        torch.ones(3).to("cuda")


def test_devices_are_not_mixed() -> None:
    with simulated(devices=2):
        first, second, host = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"), torch.ones(3)
        for other in (second, host):
            with pytest.raises(RuntimeError, match="same device"):
                first + other
        assert (first + torch.tensor(1.0)).tolist() == [2, 2, 2]  # A number may come from the host.
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(3, device="cuda:2")


def test_a_copy_to_the_host_arrives_when_it_is_waited_for() -> None:
    with simulated():
        source, target = torch.ones(4, device="cuda"), torch.zeros(4, pin_memory=True)
        target.copy_(source, non_blocking=True)
        assert not torch.equal(target, torch.ones(4))
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        assert torch.equal(target, torch.ones(4))


@pytest.mark.parametrize("waits", [False, True])
def test_what_must_be_waited_for(waits: bool) -> None:
    """Pinned memory must not change before its copy has happened, and streams wait for each other."""
    with nullcontext() if waits else pytest.raises(AssertionError, match="pinned memory changes"), simulated():
        source = torch.ones(4, pin_memory=True)
        copied = source.to("cuda", non_blocking=True)
        if waits:
            torch.cuda.synchronize()
        source.zero_()
        assert copied.tolist() == [1, 1, 1, 1]
    error = pytest.raises(AssertionError, match="uses what another stream writes")
    with nullcontext() if waits else error, simulated():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            made = torch.ones(4, device="cuda") + 1
        if waits:
            torch.cuda.current_stream().wait_stream(stream)
        assert (made + 1).tolist() == [3] * 4


def test_memory_is_refused_and_given_back() -> None:
    with simulated() as gpu:
        gc.collect()
        before = torch.cuda.memory_allocated()
        tensor = torch.ones(1000, device="cuda")
        assert torch.cuda.memory_allocated() == before + 4000
        gpu.memory(limit=before + 6000)
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            torch.ones(1000, device="cuda")
        del tensor
        gc.collect()
        assert torch.cuda.memory_allocated() == before
        torch.ones(1000, device="cuda")
        gpu.memory(failing=2)
        torch.empty(1, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1, device="cuda")
        torch.empty(1, device="cuda")


def test_where_there_is_a_gpu_nothing_is_simulated() -> None:
    """Vectors are compared there; what counts, or needs another device, is skipped."""
    with simulated((8, 6), devices=1) as there:
        before = there.counts()
        with simulated() as gpu:
            assert (torch.ones(3, device="cuda") + 1).tolist() == [2] * 3
            with pytest.raises(pytest.skip.Exception, match="only simulated devices count"):
                gpu.count("kernel mm")
        assert there.counts() != before
        for capability, device in (((7, 5), "cuda"), ((9, 0), "cuda:1")):
            with pytest.raises(pytest.skip.Exception, match=r"capability|ordinal"), simulated(capability):
                torch.ones(3, device=device)
