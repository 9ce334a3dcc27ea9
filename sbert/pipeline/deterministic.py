"""Vectors that are the same to the last bit, whatever else is encoded, in which order, thread or process.

The bits of a matrix product depend on its shape, on the number of threads and on the layout of the weights. Here none
of them depends on anything but the length of the text: a batch has texts of one length, as many as that length alone
says (an incomplete batch repeats its texts), one thread computes it, and the layout is not chosen by timing. Batches
are computed at once by as many threads as OpenMP would have used, so modules run in several threads at the same time.

On a GPU, the shapes are fixed in the same way, and the module runs without copies of its weights.
Whether all kernels then give the same bits depends on torch, and was not measured.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.pipeline.batching import Rows, fixed_plan
from sbert.pipeline.run import Runner
from sbert.storage.processes import Lock, in_child

# Tokens of a batch: few, because a single text costs as much as a batch.
_TOKENS, _TOKENS_ACCELERATOR = 64, 4096

_lock = Lock()


def run_fixed(runner: Runner[Any], done: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, Any]]:
    """Yield the rows of each batch and the output of ``forward``, in batches of fixed shapes.

    Args:
        runner: Runs the batches.
        done: The texts whose output is known; batches of nothing else are left out.

    Raises:
        TextTooLargeError: If a batch does not fit in memory. The message names its first text.
    """
    on_cpu = runner.device.type == "cpu"
    plan = fixed_plan(runner.tokens.lengths, _TOKENS if on_cpu else _TOKENS_ACCELERATOR)
    plan = [(rows, batch) for rows, batch in plan if not done[rows].all()]

    def compute(rows: Rows) -> Any:
        with torch.no_grad():
            return runner.run_single(rows)

    each = _workers(torch.get_num_threads()).map if on_cpu else map
    for rows, output in zip(plan, each(compute, (batch for _, batch in plan)), strict=True):
        yield rows[0], output[: len(rows[0])]


@cache
def own_number_of_threads() -> Callable[[int], object] | None:
    """OpenMP's function that sets the number of threads of the calling thread alone; torch's also sets the default."""
    try:
        change: Callable[[int], object] = ctypes.CDLL(torch._C.__file__).omp_set_num_threads
    except (OSError, AttributeError):
        return None
    return change if sys.platform == "linux" else None


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Threads that compute with one OpenMP thread each."""
    return ThreadPoolExecutor(threads, "sbert-deterministic", _use_one_thread)


def _use_one_thread() -> None:
    """In the calling thread alone, OpenMP and MKL use one thread."""
    with _lock:
        # At the first such call of a thread, and at its first operation, torch sets the number of threads of all.
        before, change = torch.get_num_threads(), own_number_of_threads()
        (change or torch.set_num_threads)(1)
        if change is None:  # The number of all was changed, too.
            restoring = threading.Thread(target=torch.set_num_threads, args=(before,))
            restoring.start()
            restoring.join()
        mkl = getattr(ctypes.CDLL(torch._C.__file__), "MKL_Set_Num_Threads_Local", None)
        if mkl is not None:
            mkl(1)


in_child(_workers.cache_clear)  # There, the threads do not exist.
