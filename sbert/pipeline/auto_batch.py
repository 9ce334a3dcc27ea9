"""``batch_tokens="auto"``: the size of batches that is the fastest here and fits in memory, measured once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from sbert.batch import TokenBatch
from sbert.pipeline.run import within_memory
from sbert.pipeline.tokenize import Tokens
from sbert.storage import user_cache
from sbert.storage.processes import Lock

if TYPE_CHECKING:
    from sbert.pipeline.encode import Encoding

_SIZES = {"cpu": (1024, 2048, 4096, 8192)}
_SIZES_ACCELERATOR = tuple(8192 << power for power in range(8))
# Tokens of the generated texts: those of a sentence, and of a passage if the model reads as many.
_SHORT, _LONG = 32, 256
# A larger batch has to be faster by this, because it takes more memory.
_GAIN = 1.03
_FILE = "batch_tokens.json"

_lock = Lock()
_known: WeakKeyDictionary[nn.Module, dict[str, int]] = WeakKeyDictionary()
_jobs: WeakKeyDictionary[Encoding, int] = WeakKeyDictionary()


def measured(job: Encoding) -> int:
    """The size for the model, device, dtype and number of threads of a call; kept in memory and in the user's cache.

    If a size did not fit in memory, which another process may have taken for a moment, it is kept in memory alone.

    Args:
        job: The call, whose windows all have the size of the first one.
    """
    if job not in _jobs:
        _jobs[job] = _of_model(job)
    return _jobs[job]


def _of_model(job: Encoding) -> int:
    place = torch.cuda.get_device_name(job.device) if job.device.type == "cuda" else job.device.type
    weights = sum(parameter.numel() for parameter in job.model.parameters())
    threads = f"{torch.get_num_threads()} threads"
    key = ", ".join([f"{weights} weights", str(job.inference.dtype), place, threads, f"torch {torch.__version__}"])
    known = _known.get(job.model, {})
    with nullcontext() if key in known else _lock:  # Who measures is not waited for without need.
        known = _known.setdefault(job.model, {})
        if key not in known:
            stored = user_cache.load(_FILE, lambda sizes: {name: int(size) for name, size in sizes.items()}) or {}
            known[key], all_fit = (stored[key], False) if stored.get(key, 0) > 0 else _fastest(job)
            if all_fit:
                user_cache.store(_FILE, {**stored, key: known[key]})
        return known[key]


def _fastest(job: Encoding) -> tuple[int, bool]:
    """The smallest size that no larger one beats by much, and whether all fit; one that does not ends it."""
    sizes = _SIZES.get(job.device.type, _SIZES_ACCELERATOR)
    best, rate = sizes[0], 0.0
    for size in sizes:
        seconds = _seconds(job, size)
        if seconds is None:
            return best, False
        if size / seconds > _GAIN * rate:
            best, rate = size, size / seconds
    return best, True


def _seconds(job: Encoding, size: int) -> float | None:
    """Seconds for a batch of short and one of long texts, the best of three; None if one does not fit in memory."""
    found = []
    for length in (_SHORT, min(_LONG, job.model.max_seq_length or _LONG)):
        tokens, times = _texts(job, max(1, size // length), length), []
        forward, rows = job.inference.running(_computed(job)), np.arange(len(tokens.lengths))
        for _ in range(3):
            start = time.perf_counter()
            if within_memory(forward, tokens, rows, job.device) is None:
                return None
            times.append(time.perf_counter() - start)
        found.append(min(times))
    return sum(found)


def _computed(job: Encoding) -> Callable[[TokenBatch], Tensor]:
    return lambda batch: job.rows_of(batch).cpu()  # So that the time is that of the device.


def _texts(job: Encoding, texts: int, length: int) -> Tokens:
    """Texts of a number of tokens, all of them those of the shortest text."""
    given = job.tokens([job.probe])
    ids = np.tile(np.resize(given.ids, length), texts)
    types = None if given.types is None else np.tile(np.resize(given.types, length), texts)
    prompts = None if given.prompt_tokens is None else np.resize(given.prompt_tokens, texts)
    return Tokens(ids, np.arange(texts + 1) * length, np.zeros(texts, bool), prompts, types)
