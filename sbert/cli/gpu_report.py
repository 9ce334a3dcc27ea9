"""``sbert doctor --gpu``: whether all backends agree on this GPU, and how fast it and ``encode`` are.

A report has four parts, all ready for JSON: the ``model``, ``facts`` in words, ``parity`` by backend, and ``figures``.
What fails is there with its reason, so that one fault does not hide the rest.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.backends.backend import Backend
from sbert.backends.fused import Fused
from sbert.backends.half_precision import HalfPrecision, cast_weights
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.backends.parity import copy_without_hooks, max_relative_error, probe_of, tolerance
from sbert.batch import TokenBatch
from sbert.cli.diagnosis import diagnose
from sbert.encoder import SentenceEncoder
from sbert.inputs.devices import inference_dtype
from sbert.modules.transformer import Transformer
from sbert.storage.atomic import write_text
from sbert.storage.files import one_line

Report = dict[str, Any]
_DIFFERENT = "DIFFERENT vectors"
_BACKENDS: tuple[type[Backend], ...] = (Padded, Packed, Fused)
_LONGEST = 512  # Tokens of a row, where the model has no limit.
_SIDE, _REPEATS = 8192, 10  # Of the matrix products.
_TEXTS, _SECONDS = 4096, 1.0  # Of a measurement of encode, and how long one text is encoded again and again.
_WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


def measure(model: SentenceEncoder, name: str) -> Report:
    """Compare all backends of a model on its GPU, and measure how fast it is.

    Args:
        model: On a CUDA device.
        name: Of the model; of a folder, only the last part is kept.
    """
    device = model.device
    dtype = inference_dtype(model.dtype, model.automatic_dtype, device)[0]
    name = Path(name).resolve().name if Path(name).is_dir() else name
    facts = {**_attempt(lambda: diagnose(model)), "cuda": f"torch is built for CUDA {torch.version.cuda}"}
    transformer = next((module for module in model if isinstance(module, Transformer)), None)
    with torch.cuda.device(device):
        compared = {} if transformer is None else _attempt(partial(parity, transformer, dtype))
        if "failed" in compared:
            compared = {"all backends": {"reason": compared["failed"]}}
        tasks: dict[str, Callable[[], dict[str, float]]] = {
            "matrix product": partial(_product, dtype, device),
            "encode, 17 tokens": partial(_throughput, model, 15),
            "encode, 256 tokens": partial(_throughput, model, 254),
            "one text": partial(_latency, model),
        }
        figures = {task: _attempt(run) for task, run in tasks.items()}
    return {"model": name, "facts": facts, "parity": compared, "figures": figures}


def rows(report: Report) -> dict[str, str]:
    """What a report says, by line of its table."""
    lines = {"model": report["model"], **report["facts"]}
    for backend, result in report["parity"].items():
        words = result["reason"] or "same vectors"
        if result.get("error") is not None:
            words += f": {result['error']:.1e} of a row's norm from float32, {result['allowed']:.1e} are allowed"
        lines[f"parity: {backend}"] = words
    for name, figures in report["figures"].items():
        values = (
            f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in figures.values() if "failed" not in figures
        )
        lines[name] = figures.get("failed") or ", ".join(map(" ".join, zip(values, figures, strict=True)))
    return lines


def write(report: Report, folder: Path) -> None:
    """Write gpu.json, and gpu.md with a table to paste into an issue; each file is complete or not there."""
    cells = [("", "found"), ("---", "---"), *rows(report).items()]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells]
    write_text(folder / "gpu.json", json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    write_text(folder / "gpu.md", "".join(lines))


def _attempt(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``run`` returns, or the reason as ``failed`` if it raises, or if a figure is not finite."""
    try:
        result = run()
        wrong = [name for name, value in result.items() if isinstance(value, float) and not math.isfinite(value)]
        if not wrong:
            return result
        reason = f"{wrong[0]} is not finite"
    except Exception as error:
        reason = one_line(error)
    torch.cuda.empty_cache()  # Outside of the except clause, whose traceback holds memory.
    return {"failed": f"failed: {reason}"}


# ------------------------------------------------------------------------------------------------------- parity


def parity(transformer: Transformer, dtype: torch.dtype) -> dict[str, dict[str, Any]]:
    """Compare every backend of a transformer with the padded module in float32, row by row.

    A row may be twice as far from float32 as the worst row of the padded module whose weights are in half precision.
    A few sequences of tokens depend on every rounding, so a backend is wrong if it is so for three.

    Returns:
        For each backend, the largest ``error`` of a row relative to its norm, what is ``allowed``, and the ``reason``
        if it failed, differs or cannot run.
    """
    results: dict[str, dict[str, Any]] = {}
    for start in (3, 4, 5):
        wrong = [name for name, result in results.items() if str(result["reason"]).startswith(_DIFFERENT)]
        if start == 3 or wrong:
            compared = _compare_all(transformer, dtype, start)
            results.update({name: compared[name] for name in (wrong or compared)})
    return results


def _compare_all(transformer: Transformer, dtype: torch.dtype, start: int) -> dict[str, dict[str, Any]]:
    network = transformer.materialize()
    device, half = network.device, torch.bfloat16 if dtype == torch.float32 else dtype
    batches = _batches(transformer, start)
    exact = Padded(cast_weights(network, torch.float32))
    expected = [_forward(exact, batch, torch.float32) for batch in batches]
    own, _ = _compare(lambda: Padded(cast_weights(network, half)), batches, expected, torch.float32)
    allowed = 2 * own if own else tolerance(half, device)
    results = {}
    for kind in _BACKENDS:
        refusal = kind.supports(network, device, dtype)
        if refusal is None:
            error, reason = _compare(partial(_made, kind, network, dtype), batches, expected, dtype)
        else:
            error, reason = None, f"not used: {refusal}"
        if error is not None and error > allowed:
            reason = _DIFFERENT
        results[kind.name] = {"error": error, "allowed": allowed, "reason": reason}
    return results


def _made(kind: type[Backend], network: Any, dtype: torch.dtype) -> Backend:
    """The backend as ``encode`` runs it, from copies of the weights where they are converted."""
    copied = copy_without_hooks(network)
    if kind is Fused:
        return Fused(copied, dtype)
    if HalfPrecision.supports(network, network.device, dtype) is None:
        return HalfPrecision(copied, kind, dtype)
    return kind(copied)


def _batches(transformer: Transformer, start: int) -> list[TokenBatch]:
    """Rows of one token, of the longest input, and of none.

    A few rows are several times as sensitive to rounding as most, so what is allowed is found on many of all lengths.
    """
    longest = transformer.max_seq_length or _LONGEST
    lengths = [(longest, 1, longest // 3, 0, 1), (1, longest // 2, 0, longest // 4), (longest,), (1,)]
    lengths.append(tuple(range(2, min(longest, _LONGEST), 8)))
    return [probe_of(each, transformer.vocab_size or 100, transformer.network.device, start) for each in lengths]


def _compare(
    make: Callable[[], Any], batches: list[TokenBatch], expected: list[Tensor], dtype: torch.dtype
) -> tuple[float | None, str | None]:
    """The largest error of a row, or the reason why there is none."""
    try:
        backend, worst = make(), 0.0
        for batch, right in zip(batches, expected, strict=True):
            vectors = _forward(backend, batch, dtype)
            if not vectors.isfinite().all():
                return None, f"{_DIFFERENT}: some are not finite"
            worst = max(worst, max_relative_error(vectors, right, batch))
    except Exception as error:
        return None, f"failed: {one_line(error)}"
    return worst, None


def _forward(backend: Any, batch: TokenBatch, dtype: torch.dtype) -> Tensor:
    """Vectors of all tokens; a module whose weights are not converted runs under autocast."""
    casts = isinstance(backend, (Padded, Packed)) and dtype != torch.float32
    with torch.no_grad(), torch.autocast("cuda", dtype if casts else None, enabled=casts):
        vectors: Tensor = backend.forward(batch)
    return vectors


# ------------------------------------------------------------------------------------------------------ figures


def _product(dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """TFLOP/s of a product of squares, which has 2 side^3 operations."""
    a, b = (torch.randn(_SIDE, _SIDE, device=device).to(dtype) for _ in range(2))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.mm(a, b)  # The first call loads the libraries.
    start.record()
    for _ in range(_REPEATS):
        torch.mm(a, b)
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end) / _REPEATS
    return {"TFLOP/s": 2e-9 * _SIDE**3 / milliseconds}


def _texts(count: int, words: int, seed: int) -> list[str]:
    return [" ".join(text) for text in np.random.default_rng(seed).choice(_WORDS, (count, words))]


def _throughput(model: SentenceEncoder, words: int) -> dict[str, float]:
    """Texts per second, of new texts in a second call."""
    for seed in range(2):
        texts = _texts(_TEXTS, words, seed)
        start = time.perf_counter()
        model.encode(texts, on_truncate="ignore", prompt="")
        seconds = time.perf_counter() - start
    return {"texts/s": _TEXTS / seconds}


def _latency(model: SentenceEncoder) -> dict[str, float]:
    """Milliseconds of one text: the median and the 95th percentile."""
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    for text in _texts(_TEXTS, 15, 2):
        start = time.perf_counter()
        model.encode(text, on_truncate="ignore", prompt="")
        times.append(1e3 * (time.perf_counter() - start))
        if time.perf_counter() > end:
            break
    warm: Sequence[float] = times[len(times) // 10 :]
    return {f"ms p{part}": float(np.percentile(warm, part)) for part in (50, 95)}
