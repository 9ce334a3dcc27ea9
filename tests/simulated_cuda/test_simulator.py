"""The simulated device enforces what a GPU enforces, and counts what a GPU does."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = pytest.mark.simulated_cuda


def test_tensors_are_on_the_device_and_compute() -> None:
    with simulated():
        left = torch.arange(6.0).reshape(2, 3).to("cuda")
        assert (left.device, left.is_cuda) == (torch.device("cuda:0"), True)
        assert (left @ left.T).tolist() == [[5.0, 14.0], [14.0, 50.0]]
        view = left[1:]
        view += 1
        assert left.cpu().tolist() == [[0, 1, 2], [4, 5, 6]]
        with pytest.raises(TypeError, match="cuda:0 device type tensor to numpy"):
            left.numpy()
        layer = torch.nn.Linear(3, 2).to("cuda:1")
        assert {parameter.device for parameter in layer.parameters()} == {torch.device("cuda:1")}
        left.resize_(1, 3)
        assert left.tolist() == [[0, 1, 2]]


def test_devices_are_not_mixed() -> None:
    with simulated(devices=2):
        first, second, host = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"), torch.ones(3)
        for other in (second, host):
            with pytest.raises(RuntimeError, match="same device"):
                first + other
        assert (first + torch.tensor(1.0)).tolist() == [2, 2, 2]  # A number may come from the host.
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(3, device="cuda:2")


def synchronizations(gpu: Simulator) -> int:
    number = gpu.count("synchronizations")
    gpu.forget()
    return number


def test_what_waits_is_counted() -> None:
    with simulated() as gpu:
        tensor = torch.arange(4.0, device="cuda")
        mask = tensor > 1
        gpu.forget()
        tensor.add(1), tensor[1:], tensor.to(torch.bfloat16), tensor.repeat_interleave(tensor.long(), output_size=6)
        assert (gpu.count("kernels"), synchronizations(gpu)) == (5, 0)
        for wait in (
            lambda: tensor.sum().item(),
            lambda: tensor.cpu(),
            lambda: tensor.nonzero(),
            lambda: tensor[mask],
            lambda: tensor.repeat_interleave(tensor.long()),
            lambda: torch.ones(3).to("cuda"),
            lambda: torch.ones(3).to("cuda", non_blocking=True),  # not pinned
            lambda: torch.cuda.synchronize(),
        ):
            wait()
            assert synchronizations(gpu) >= 1
        kept = torch.ones(3).pin_memory()
        kept.to("cuda", non_blocking=True)
        assert synchronizations(gpu) == 0


def test_a_copy_to_the_host_arrives_when_it_is_waited_for() -> None:
    with simulated():
        source, target = torch.ones(4, device="cuda"), torch.zeros(4, pin_memory=True)
        target.copy_(source, non_blocking=True)
        assert not torch.equal(target, torch.ones(4))
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        assert torch.equal(target, torch.ones(4))


def test_pinned_memory_must_not_change_before_its_copy_has_happened() -> None:
    def changed() -> None:
        with simulated():
            source = torch.ones(4, pin_memory=True)
            source.to("cuda", non_blocking=True)
            source.zero_()

    with pytest.raises(AssertionError, match="pinned memory changes"):
        changed()
    with simulated():
        source = torch.ones(4, pin_memory=True)
        copied = source.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        source.zero_()
        assert copied.tolist() == [1, 1, 1, 1]


def test_streams_wait_for_each_other() -> None:
    def used(waiting: bool) -> list[float]:
        with simulated():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                made = torch.ones(4, device="cuda") + 1
            if waiting:
                torch.cuda.current_stream().wait_stream(stream)
            return (made + 1).tolist()

    assert used(waiting=True) == [3] * 4
    with pytest.raises(AssertionError, match="uses what another stream writes"):
        used(waiting=False)


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


def attention(dtype: torch.dtype = torch.bfloat16, dim: int = 8, longest: int = 3) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query = torch.linspace(-1, 1, 5 * 2 * dim, device="cuda").reshape(5, 2, dim).to(dtype)
    offsets = torch.tensor([0, 2, 5], dtype=torch.int32, device="cuda")
    return varlen_attn(query, query, query, offsets, offsets, longest, longest)


def test_flash_attention_takes_what_its_kernel_takes() -> None:
    with simulated():
        out = attention().float().cpu()
        rows = torch.linspace(-1, 1, 80).reshape(5, 2, 8).bfloat16().float()
        for start, end in ((0, 2), (2, 5)):
            part = rows[start:end].transpose(0, 1)
            expected = F.scaled_dot_product_attention(part, part, part).transpose(0, 1)
            np.testing.assert_allclose(out[start:end], expected, atol=1e-2)
        with pytest.raises(RuntimeError, match="fp16 and bf16"):
            attention(torch.float32)
        with pytest.raises(RuntimeError, match="multiple of 8"):
            attention(dim=6)
        with pytest.raises(RuntimeError, match="at most 256"):
            attention(dim=264)
        with pytest.raises(RuntimeError, match="longer than max_q"):
            attention(longest=2)


def test_afterwards_there_is_no_device() -> None:
    with simulated():
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|cuda"):
        torch.ones(3).to("cuda")


def test_the_work_of_kernels_is_counted() -> None:
    with simulated() as gpu:
        left, right = torch.ones(4, 8, device="cuda"), torch.ones(8, 16, device="cuda")
        table, rows = torch.ones(1000, 8, device="cuda"), torch.zeros(2, dtype=torch.int64, device="cuda")
        gpu.forget()
        left @ right
        work = {"operations of products": 2 * 4 * 8 * 16, "bytes of products": 4 * (4 * 8 + 8 * 16 + 4 * 16)}
        assert {name: gpu.count(name) for name in work} == work
        torch.mm(left, right, out=torch.empty(4, 16, device="cuda"))
        assert gpu.count("operations of products") == 2 * work["operations of products"]
        gpu.forget()
        table[rows]
        assert gpu.count("bytes of kernels") == 2 * 2 * 8 * 4 + 16  # The rows that it selects, and their numbers.
        gpu.forget()
        attention()  # Rows of 2 and 3 tokens, 2 heads of 8.
        assert gpu.count("operations of attention") == 4 * 2 * 8 * (2 * 2 + 3 * 3)
        assert gpu.count("operations of attention's tiles") == 2 * 4 * 2 * 8 * 128 * 128
