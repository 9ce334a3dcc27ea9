"""What ``sbert doctor --gpu`` measures: the fastest product and copies, and what encode, search and training reach."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from sbert.backends import choose
from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.self_check import seconds
from sbert.cli.gpu_tasks import Tasks, synthetic
from sbert.encoder import SentenceEncoder
from sbert.modules.transformer import Transformer
from sbert.storage.files import one_line

Figures = dict[str, Any]
# A ceiling is timed for so many seconds, anything else for about the second number.
_CEILING, _SECONDS = 0.05, 1.0
# Rows, inner size and columns of the products: squares, and BERT's largest with the tokens of a batch.
_PRODUCTS = ((4096, 4096, 4096), (8192, 8192, 8192), (32768, 768, 3072))
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_COPIED = 1 << 28  # Bytes.
_LEAST, _MOST = 256, 32768  # Texts of one call.
_QUERIES, _CORPUS = 100, 100_000
_PAIRS, _STEPS = 64, 10


def measured(model: SentenceEncoder, name: str, dtype: torch.dtype) -> dict[str, Figures]:
    """Figures by what was measured; where something fails, the reason is there instead.

    Args:
        model: On the current CUDA device.
        name: Of the model.
        dtype: Of the arithmetic of ``encode``.
    """
    tasks = Tasks(model)
    products = {x: tried(partial(_product, x, model.device)) for x in _DTYPES}
    found = {f"matrix product, {str(x).removeprefix('torch.')}": figures for x, figures in products.items()}
    for way, on_host in (("to the device", 0), ("to the host", 1), ("on the device", None)):
        found[f"copy {way}"] = tried(partial(_copy, model.device, on_host))
    for length in (0, 128, 256):
        load = f"encode, {length} tokens" if length else "encode, short texts"
        found[load] = tried(partial(_throughput, tasks, length, products.get(dtype, {}).get("TFLOP/s")))
    for graphs in (True, False):
        found[f"one text, {'with' if graphs else 'without'} CUDA graphs"] = tried(
            partial(_latency, tasks, dtype, graphs)
        )
    found[f"semantic_search, {_QUERIES} queries in {_CORPUS:,}"] = tried(partial(_search, tasks))
    found[f"training step, {_PAIRS} pairs"] = tried(partial(_training, model, dtype))
    return found


def tried(run: Callable[[], Figures]) -> Figures:
    """What ``run`` returns, or the reason as ``failed`` if it raises, or if a figure is not finite."""
    try:
        found = run()
        wrong = [name for name, value in found.items() if isinstance(value, float) and not math.isfinite(value)]
        if not wrong:
            return found
        reason = f"{wrong[0]} is not finite"
    except Exception as error:
        reason = one_line(error)
    torch.cuda.empty_cache()  # Outside of the except clause, whose traceback holds memory.
    return {"failed": f"failed: {reason}"}


def _copied(module: Any) -> Any:
    return copy.deepcopy(module, {id(buffer): buffer.detach().clone() for buffer in module.buffers()})


def _product(dtype: torch.dtype, device: torch.device) -> Figures:
    """TFLOP/s of (rows, inner) by (inner, columns), which has 2 rows inner columns operations."""
    speeds = []
    for rows, inner, columns in _PRODUCTS:
        a, b = (torch.randn(shape, device=device).to(dtype) for shape in ((rows, inner), (inner, columns)))
        speeds.append(2e-12 * rows * inner * columns / seconds(partial(torch.mm, a, b), _CEILING))
    return {"TFLOP/s": max(speeds)}


def _copy(device: torch.device, on_host: int | None) -> Figures:
    """GB/s of a copy from (0) or to (1) pinned memory, or on the device, where bytes are both read and written."""
    pair = [torch.zeros(_COPIED, dtype=torch.uint8, device=device) for _ in range(2)]
    if on_host is not None:
        pair[on_host] = torch.zeros(_COPIED, dtype=torch.uint8, pin_memory=True)
    source, target = pair
    time_of_copy = seconds(lambda: target.copy_(source, non_blocking=True), _CEILING)
    return {"GB/s": 1e-9 * _COPIED * (2 if on_host is None else 1) / time_of_copy}


def _texts(count: int, length: int, seed: int) -> list[str]:
    """Texts of about so many tokens, two of them special, the others common words; 0 for short texts."""
    if not length:
        return synthetic(count, seed)
    words = sorted(set(" ".join(synthetic(100, 0)).split()))
    return [" ".join(text) for text in np.random.default_rng(seed).choice(words, (count, length - 2))]


def _throughput(tasks: Tasks, length: int, ceiling: float | None) -> Figures:
    """Tokens and texts per second, with ever more texts until a call takes long enough."""
    count, taken = _LEAST, 0.0
    tasks.timed(_texts(count, length, 0), on_truncate="ignore")
    while taken < _SECONDS / 2 and count < _MOST:
        count = min(4 * count, _MOST)
        texts = _texts(count, length, count)
        taken, _ = tasks.timed(texts, on_truncate="ignore")
    need = tasks.useful(texts)
    found = {"tokens/s": need["tokens"] / taken, "texts/s": count / taken, "tokens a text": need["tokens"] / count}
    if ceiling and need["operations"]:
        found["% of the product's ceiling"] = 1e-10 * need["operations"] / taken / ceiling
    return found


def _latency(tasks: Tasks, dtype: torch.dtype, with_graphs: bool) -> Figures:
    """Milliseconds of one text, with CUDA graphs or without."""
    network = next((module.network for module in tasks.encoder if isinstance(module, Transformer)), None)
    chosen = None if network is None else choose(network, dtype)
    graphs = chosen if isinstance(chosen, CudaGraphs) else None
    texts = iter(synthetic(220, 1))
    measure = partial(_percentiles, lambda: tasks.timed([next(texts)], on_truncate="ignore"), warm=20, most=200)
    if graphs is None and with_graphs:
        why = CudaGraphs.supports(network, network.device, dtype) if network is not None else "there is no transformer"
        return {"failed": f"not used: {why or chosen}"}
    if graphs is None or with_graphs:
        found = measure()
        return {"failed": f"not used: {graphs.failure}"} if graphs and graphs.failure else found
    failure, graphs.failure = graphs.failure, "they are switched off for a measurement"
    try:
        return measure()
    finally:
        graphs.failure = failure


def _percentiles(run: Callable[[], object], warm: int, most: int) -> Figures:
    """Milliseconds of a call that waits for the device, after some that are not counted."""
    for _ in range(warm):
        run()
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while not times or (len(times) < most and time.perf_counter() < end):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return {f"ms p{part}": float(np.percentile(times, part)) for part in (50, 95)}


def _search(tasks: Tasks) -> Figures:
    """A search for the ten nearest vectors on the device; their values do not matter."""
    from sbert.search import semantic_search

    dim, device = tasks.timed(["one text"])[1].shape[-1], tasks.encoder.device
    queries, corpus = (torch.randn(count, dim, device=device) for count in (_QUERIES, _CORPUS))
    found = _percentiles(partial(semantic_search, queries, corpus, 10), warm=1, most=50)
    return {"queries/s": 1e3 * _QUERIES / found["ms p50"], **found}


def _training(model: SentenceEncoder, dtype: torch.dtype) -> Figures:
    """Milliseconds of a step on short pairs, the median of the later steps; a copy of the model is trained."""
    from sbert.losses import MultipleNegativesRankingLoss
    from sbert.training import Trainer, TrainingConfig

    texts = synthetic(2 * _PAIRS * _STEPS, 3)
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    kind = "bfloat16" if dtype == torch.bfloat16 else "float32"
    config = TrainingConfig(batch_size=_PAIRS, steps=_STEPS, log_every=1, dtype=kind, prompts="")
    trainer = Trainer(_copied(model), pairs, MultipleNegativesRankingLoss(), config)
    speeds = [entry["sentences_per_second"] for entry in trainer.fit(show_progress_bar=False)[_STEPS // 2 :]]
    return {"ms": 2e3 * _PAIRS / float(np.median(speeds))}
