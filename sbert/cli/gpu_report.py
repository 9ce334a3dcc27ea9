"""``sbert doctor --gpu``: whether all ways to run a model on this GPU agree, and how fast they are.

A report has four parts, all ready for JSON: the ``model``, ``facts`` in words, ``parity`` by way, and ``figures``. What
fails among these two is there with its reason, so that one fault does not hide the rest.
"""

from __future__ import annotations

import copy
import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.backends.parity import probe_of, tolerance, twin
from sbert.batch import TokenBatch
from sbert.cli.benchmark.tasks import Tasks
from sbert.cli.benchmark.workloads import synthetic
from sbert.cli.doctor import diagnose
from sbert.encoder import SentenceEncoder
from sbert.inputs.devices import inference_dtype
from sbert.modules.transformer import Transformer
from sbert.storage.atomic import write_text
from sbert.storage.files import one_line

Report = dict[str, Any]
# A ceiling is timed for so many seconds, anything else for about the second number.
_CEILING, _SECONDS = 0.05, 1.0
# Rows, inner size and columns of the products: squares, and BERT's largest with the tokens of a batch.
_PRODUCTS = ((4096, 4096, 4096), (8192, 8192, 8192), (32768, 768, 3072))
_COPIED = 1 << 28  # Bytes.
_LEAST, _MOST = 256, 32768  # Texts of one call.
_QUERIES, _CORPUS = 100, 100_000
_PAIRS, _STEPS = 64, 10
_LONGEST = 512  # Tokens of a row, where the model has no limit.


def measure(model: SentenceEncoder, name: str) -> Report:
    """Compare all ways to run a model on its GPU, and measure how fast they are.

    Args:
        model: On a CUDA device.
        name: Of the model; of a folder, only the last part is kept.
    """
    device = model.device
    dtype = inference_dtype(model.dtype, model.automatic_dtype, device)[0]
    tasks = Tasks("sbert", name, str(device))
    tasks.encode, tasks.encoder = model.encode, model
    with torch.cuda.device(device):
        ways = next((parity(module, dtype) for module in model if isinstance(module, Transformer)), {})
        product = _tried(lambda: {"TFLOP/s": max(_product(*shape, dtype, device) for shape in _PRODUCTS)})
        figures = {f"matrix product, {str(dtype).removeprefix('torch.')}": product}
        figures["memory copy"] = _tried(lambda: {"GB/s": _copy(device)})
        for length in (0, 128, 256):
            load = f"encode, {length} tokens" if length else "encode, short texts"
            figures[load] = _tried(partial(_throughput, tasks, length, product.get("TFLOP/s")))
        figures["one text"] = _tried(partial(_latency, tasks))
        figures[f"semantic_search, {_QUERIES} queries in {_CORPUS:,}"] = _tried(partial(_search, tasks))
        figures[f"training step, {_PAIRS} pairs"] = _tried(partial(_training, model, dtype))
    name = Path(name).resolve().name if Path(name).is_dir() else name
    return {"model": name, "facts": {**diagnose(model), "driver": _driver()}, "parity": ways, "figures": figures}


def rows(report: Report) -> dict[str, str]:
    """What a report says, by line of its table."""
    found = {"model": report["model"], **report["facts"]}
    found.update({f"parity: {way}": _verdict(**result) for way, result in report["parity"].items()})
    for name, figures in report["figures"].items():
        found[name] = figures.get("failed") or ", ".join(f"{_short(value)} {unit}" for unit, value in figures.items())
    return found


def write(report: Report, folder: Path) -> None:
    """Write gpu.json, and gpu.md with a table to paste into an issue; each file is complete or not there."""
    cells = [("", "found"), ("---", "---"), *rows(report).items()]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells]
    write_text(folder / "gpu.json", json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    write_text(folder / "gpu.md", "".join(lines))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _verdict(difference: float | None, allowed: float, reason: str | None) -> str:
    """The result of a way in words."""
    if difference is None:
        return str(reason)
    return f"{reason or 'same vectors'}: {difference:.1e} of a row's norm from float32, {allowed:.1e} are allowed"


def _tried(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The figures, all of them finite, or the reason why there are none."""
    try:
        figures = run()
    except Exception as error:
        return {"failed": f"failed: {one_line(error)}"}
    wrong = [unit for unit, value in figures.items() if not math.isfinite(value)]
    return {"failed": f"failed: {wrong[0]} is not finite"} if wrong else figures


def _driver() -> str:
    """The versions of the driver and of CUDA."""
    driver, command = "unknown", ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
        driver = answer.stdout.partition("\n")[0]
    return f"{driver}; torch is built for CUDA {torch.version.cuda}"


# ------------------------------------------------------------------------------------------------------- parity


def parity(transformer: Transformer, dtype: torch.dtype) -> dict[str, dict[str, Any]]:
    """Compare every way to run a transformer with the padded module in float32, row by row.

    A row may be twice as far from float32 as the worst row of the padded module whose weights are in half precision.

    Returns:
        For each way, the largest ``difference`` of a row relative to its norm, what is ``allowed``, and the ``reason``
        if it failed, differs or cannot run.
    """
    network = transformer.materialize()
    exact, half = twin(_copied(network).float()), torch.bfloat16 if dtype == torch.float32 else dtype
    batches = _batches(transformer)
    expected = [_forward(Padded(exact), batch, torch.float32) for batch in batches]
    own, *_ = _compared(lambda: Padded(twin(_copied(network).to(half))), batches, expected, half)
    allowed = 2 * own if own else tolerance(half, network.device)
    fused = partial(Fused, dtype=dtype)
    ways: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "plain padded": (Padded, Padded),
        "packed": (Packed, Packed),
        "fused": (Fused, fused),
        "CUDA graphs": (CudaGraphs, lambda network: CudaGraphs(fused(network))),
    }
    found = {}
    for way, (kind, make) in ways.items():
        why, plain = kind.supports(network, network.device, dtype), partial(make, twin(network))
        difference, row, reason = (None, 0, f"not used: {why}") if why else _compared(plain, batches, expected, dtype)
        if reason is None and (difference or 0.0) > allowed:
            reason = f"DIFFERENT vectors, most in a row of {row} tokens"
        found[way] = {"difference": difference, "allowed": allowed, "reason": reason}
    return found


def _copied(module: Any) -> Any:
    return copy.deepcopy(module, {id(buffer): buffer.detach().clone() for buffer in module.buffers()})


def _batches(transformer: Transformer) -> list[TokenBatch]:
    """Rows of one token, of the longest input, and of none; some batches need filler tokens in a graph.

    A few rows are several times as sensitive to rounding as most, so what is allowed is found on many of all lengths.
    """
    longest = transformer.max_seq_length or _LONGEST
    lengths = [(longest, 1, longest // 3, 0, 1), (1, longest // 2, 0, longest // 4), (longest,), (1,)]
    lengths.append(tuple(range(2, min(longest, _LONGEST), 8)))
    return [probe_of(batch, transformer.vocab_size or 100, transformer.network.device) for batch in lengths]


def _compared(
    make: Callable[[], Any], batches: list[TokenBatch], expected: list[Tensor], dtype: torch.dtype
) -> tuple[float | None, int, str | None]:
    """The largest difference of a row, the number of tokens of that row, and the reason for a failure."""
    try:
        way, worst = make(), (0.0, 0)
        for batch, right in zip(batches, expected, strict=True):
            for _ in range(3):  # A graph is captured at the second use of its size.
                vectors = _forward(way, batch, dtype)
            if not vectors.isfinite().all():
                return None, 0, "DIFFERENT vectors: some are not finite"
            worst = max(worst, *_differences(vectors, right, batch))
    except Exception as error:
        return None, 0, f"failed: {one_line(error)}"
    failure = getattr(way, "failure", None)  # Of the graphs, in whose place the fused forward then runs.
    return *worst, failure and f"not used: {failure}"


def _forward(way: Any, batch: TokenBatch, dtype: torch.dtype) -> Tensor:
    """Vectors of all tokens, as encode computes them: a module in half precision by autocast."""
    casts = isinstance(way, (Padded, Packed)) and dtype != torch.float32
    with torch.no_grad(), torch.autocast("cuda", dtype if casts else None, enabled=casts):
        vectors: Tensor = way.forward(batch)
    return vectors


def _differences(found: Tensor, expected: Tensor, batch: TokenBatch) -> Iterator[tuple[float, int]]:
    """The difference of each row relative to its norm, and its number of tokens."""
    lengths = [length for count, length in batch.groups for _ in range(count)]
    for a, b in zip(torch.split(found.double(), lengths), torch.split(expected.double(), lengths), strict=True):
        yield float((a - b).norm() / b.norm().clamp(min=1e-12)), len(a)


# ------------------------------------------------------------------------------------------------------ figures


def _product(rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device) -> float:
    """TFLOP/s of (rows, inner) by (inner, columns), which has 2 rows inner columns operations."""
    a, b = (torch.randn(shape, dtype=dtype, device=device) for shape in ((rows, inner), (inner, columns)))
    return 2e-12 * rows * inner * columns / _seconds(partial(torch.mm, a, b))


def _copy(device: torch.device) -> float:
    """GB/s that are read and written by a copy."""
    data = torch.zeros(_COPIED, dtype=torch.uint8, device=device)
    return 2e-9 * _COPIED / _seconds(partial(torch.empty_like(data).copy_, data))


def _seconds(run: Callable[[], object]) -> float:
    """Seconds of a call on the device, which is repeated until the calls take long enough."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    count, passed = 1, 0.0
    while passed < _CEILING:
        count *= 2  # The first round is the warm-up.
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        passed = start.elapsed_time(end) / 1e3
    return passed / count


def _texts(count: int, length: int, seed: int) -> list[str]:
    """Texts of about so many tokens, two of them special, the others common words; 0 for short texts."""
    if not length:
        return synthetic(count, seed)
    words = sorted(set(" ".join(synthetic(100, 0)).split()))
    return [" ".join(text) for text in np.random.default_rng(seed).choice(words, (count, length - 2))]


def _throughput(tasks: Tasks, length: int, ceiling: float | None) -> dict[str, float]:
    """Tokens and texts per second, with ever more texts until a call takes long enough."""
    count, seconds = _LEAST, 0.0
    tasks.timed(_texts(count, length, 0), on_truncate="ignore")
    while seconds < _SECONDS / 2 and count < _MOST:
        count = min(4 * count, _MOST)
        texts = _texts(count, length, count)
        seconds, _ = tasks.timed(texts, on_truncate="ignore")
    need = tasks.useful(texts)
    found = {"tokens/s": need["tokens"] / seconds, "texts/s": count / seconds, "tokens a text": need["tokens"] / count}
    if ceiling and need["operations"]:
        found["% of the product's ceiling"] = 1e-10 * need["operations"] / seconds / ceiling
    return found


def _latency(tasks: Tasks) -> dict[str, float]:
    """Milliseconds of one text."""
    texts = iter(synthetic(220, 1))
    return _percentiles(lambda: tasks.timed([next(texts)], on_truncate="ignore"), warm=20, most=200)


def _percentiles(run: Callable[[], object], warm: int, most: int) -> dict[str, float]:
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


def _search(tasks: Tasks) -> dict[str, float]:
    """Milliseconds of a search for the ten nearest vectors on the device; their values do not matter."""
    from sbert.search import semantic_search

    dim, device = tasks.timed(["one text"])[1].shape[-1], tasks.encoder.device
    queries, corpus = (torch.randn(count, dim, device=device) for count in (_QUERIES, _CORPUS))
    return _percentiles(partial(semantic_search, queries, corpus, 10), warm=1, most=50)


def _training(model: SentenceEncoder, dtype: torch.dtype) -> dict[str, float]:
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
