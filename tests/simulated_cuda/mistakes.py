"""Mistakes that only a GPU would show, planted one by one: tests of this folder have to fail for each of them.

``python -m tests.simulated_cuda.mistakes`` prints one line of JSON per mistake: its name, the exit code of the tests,
and what they print. Each runs in a process of its own, on a source that is changed while it is imported.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import pytest

from tests.children import run_in_child
from tests.project.code_lines import PACKAGE


class Mistake(NamedTuple):
    """A text of a source file, what stands there instead, the test that catches it, and words of its error."""

    name: str
    file: str
    old: str
    new: str
    test: str
    words: str


BATCHES, WAITS = (
    "pipeline_simulated.py::test_batches_of_any_size",
    "pipeline_simulated.py::test_one_copy_per_batch_and_no_wait",
)
MANY_ROWS, LONG_ROWS = "pipeline_simulated.py::test_more_rows_than_a_grid", "families_simulated.py::test_a_long_row"
NEIGHBOURS, THREADS = "several_gpus.py::test_each_gpu_has_its_kernels", "several_gpus.py::test_two_threads_on_streams"
CHANGES, OTHER_GPU = "families_simulated.py::test_weights_that_change", "self_check.py::test_another_gpu_has_a_check"
HEADS, PADDED = (
    "training_simulated.py::test_gradient_of_all_rows",
    "training_simulated.py::test_without_the_kernel_rows",
)
DROPOUT, FLOAT16 = "training_simulated.py::test_chunks_computed_twice_drop", "several_gpus.py::test_training_in_float16"
FAMILY = "families_simulated.py::test_vectors_are_those_of_the_cpu and mpnet"
SUMS = "several_gpus.py::test_sums_of_gradients_run_beside_the_backward_pass"
_TO_HOST = "torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)"
_COPY = f"    host = {_TO_HOST}.copy_(tensor, non_blocking=True)\n"
_RECORD = "    done = module.Event()\n    done.record(module.current_stream(tensor.device))\n"

_WAIT = "            wait()\n"
_GARBAGE = "not finite|Mismatched"  # Memory that is read too early.
MISTAKES = [
    Mistake("an event is recorded before the copy that it guards",
            "batch.py", _COPY + _RECORD, _RECORD + _COPY, BATCHES, _GARBAGE),
    Mistake("a copy to the host is not waited for", "batch.py", "done.synchronize", "lambda: None", BATCHES, _GARBAGE),
    Mistake("an event is recorded on the current device, not on that of the data",
            "batch.py", "module.current_stream(tensor.device)", "module.current_stream()", BATCHES, _GARBAGE),

    Mistake("one pinned buffer for two copies", "batch.py", _TO_HOST, "globals().setdefault('one', torch.empty(1 << 16,"
            " pin_memory=True))[: tensor.numel()].view(tensor.shape)", BATCHES, "two copies"),
    Mistake("pinned memory is used again before its copy has happened",
            "batch.py", "split(words)", "split(words)\n    host.zero_()", BATCHES, "pinned memory changes"),
    Mistake("memory that is not pinned is copied",
            "batch.py", "tensor.pin_memory().to(device, non_blocking=True)", "tensor.to(device)", WAITS, "waits"),
    Mistake("the host waits for the longest row of each batch",
            "backends/attention.py", "max_q=rows.longest", "max_q=int(rows.lengths.max())", WAITS, "waits"),
    Mistake("offsets stay on the host", "batch.py", "moved = move_together(tensors | computed, device)",
            "moved = {**move_together(tensors | computed, device), 'offsets': self.offsets}", WAITS, "same device"),

    Mistake("offsets of 64 bits for a kernel that takes 32",
            "backends/attention.py", "cum_seq_q=rows.offsets_int32", "cum_seq_q=rows.offsets", WAITS, "dtype int32"),
    Mistake("queries, keys and values begin two bytes off", "backends/fused.py", "self.qkv(x)\n",
            "F.pad(self.qkv(x).flatten(), (1, 0))[1:].view(len(x), -1)\n", WAITS, "misaligned address"),
    Mistake("heads of any size for a kernel that takes multiples of 8",
            "backends/attention.py", "and dim % _MULTIPLE:", "and False:",
            HEADS, "head_size|misaligned"),
    Mistake("the kernel is chosen for the current device, not for that of the data",
            "backends/attention.py", "get_device_capability(device)", "get_device_capability()",
            NEIGHBOURS, r"\(7, 5\)"),
    Mistake("the dtype is chosen for the current device, not for that of the model",
            "inputs/devices.py", "get_device_capability(device)", "get_device_capability()", NEIGHBOURS, r"\(7, 5\)"),
    Mistake("padding is attended to", "backends/attention.py", "like.new_full((count * length,), -_HIDDEN)",
            "like.new_full((count * length,), 0.0)", PADDED, "assert tensor"),

    Mistake("cuDNN plans each shape",
            "backends/attention.py", "torch.backends.cuda.enable_cudnn_sdp(False)", "pass", FAMILY, "plans of cuDNN"),
    Mistake("casts of weights are shared with a thread that computes on another stream",
            "backends/padded.py", ", cache_enabled=False", "", THREADS, "another stream"),
    Mistake("copies of weights that were edited serve again", "backends/network.py",
            "return bool(self._read().tobytes() == self._before)", "return bool(self._read().tobytes())",
            CHANGES, "0.9998"),
    Mistake("rows above 512 tokens are not attended to",
            "backends/attention.py", "max_q=rows.longest", "max_q=min(rows.longest, 512)",
            LONG_ROWS, "longer than max_q"),
    Mistake("batch_size= beyond the limit of a grid",
            "pipeline/batching.py", "rows = min(batch_size or max(1, rows), _MOST_ROWS)",
            "rows = batch_size or min(max(1, rows), _MOST_ROWS)", MANY_ROWS, "invalid configuration argument"),
    Mistake("a check of one device counts for another",
            "pipeline/self_check.py", "key, dtypes = (device, dtype),", "key, dtypes = (None, dtype),",
            OTHER_GPU, "differ"),
    Mistake("gradients are clipped before they are unscaled", "training/training_run.py",
            "        self.scaler.unscale_(self.optimizer)\n        norm = self._clip()\n",
            "        norm = self._clip()\n        self.scaler.unscale_(self.optimizer)\n", FLOAT16, "assert tensor"),
    Mistake("only the host's random state is restored", "training/backward.py",
            "else module.set_rng_state(state, device)", "else None", DROPOUT, "not close"),
    Mistake("a sum of another stream is used before it is waited for",
            "distributed/buckets.py", _WAIT, "", SUMS, "uses what another stream writes"),
    Mistake("memory is changed while another stream reads it",
            "distributed/buckets.py", _WAIT, "            flat.zero_()\n" + _WAIT, SUMS, "another stream"),
    Mistake("memory is freed while another stream uses it", "distributed/buckets.py",
            "self._sent.append((flat, self._ranks.start_sum(flat)))",
            "self._sent.append((flat.clone(), self._ranks.start_sum(flat)))", SUMS, "memory is freed"),
]  # fmt: skip


def plant(mistake: Mistake) -> None:
    """Let Python read a source file with the mistake in it."""
    target, read, stats = str(PACKAGE / mistake.file), SourceFileLoader.get_data, SourceFileLoader.path_stats

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        data = read(self, path)
        if path != target:
            return data
        assert data.count(mistake.old.encode()) >= 1, f"{mistake.file} has no {mistake.old!r}"
        return data.replace(mistake.old.encode(), mistake.new.encode())

    def path_stats(self: SourceFileLoader, path: str) -> Any:
        if path == target:
            raise OSError  # What was compiled before is not used, and nothing is kept.
        return stats(self, path)

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]
    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def run_test(mistake: Mistake) -> tuple[int, str]:
    """How the test of a process with a mistake ends, and what it prints."""
    file, _, name = mistake.test.partition("::")
    with TemporaryFile("w+") as said:

        def work() -> None:
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            plant(mistake)
            options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--tb=short"]
            os._exit(pytest.main([*options, "-k", name, str(Path(__file__).parent / f"test_{file}")]))

        status = run_in_child(work)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


if __name__ == "__main__":
    assert "sbert" not in sys.modules  # Each process imports its own.
    # Once, for all, with what they import.
    import torch._dynamo  # noqa: F401
    from transformers import BertModel, MPNetModel, Qwen3Model  # noqa: F401

    for row in MISTAKES:
        print(json.dumps([row.name, *run_test(row)]), flush=True)
