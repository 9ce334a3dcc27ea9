"""``sbert doctor --gpu``: whether all ways to run a model on this GPU agree, and how fast they are.

A report has four parts, all ready for JSON: the ``model``, ``facts`` in words, ``parity`` by way, and ``figures``. What
fails among these two is there with its reason, so that one fault does not hide the rest.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sbert.backends.architectures import POSITION_BIAS, describe
from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.half_precision import HalfPrecision, cast
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.backends.parity import probe_of, tolerance, twin
from sbert.backends.self_check import check
from sbert.backends.triton import PARTS
from sbert.batch import TokenBatch
from sbert.cli.doctor import diagnose
from sbert.cli.gpu_figures import measured, tried
from sbert.encoder import SentenceEncoder
from sbert.inputs.devices import inference_dtype
from sbert.modules.transformer import Transformer
from sbert.storage.atomic import write_text
from sbert.storage.files import one_line

Report = dict[str, Any]
_DIFFERENT = "DIFFERENT vectors"
_LONGEST = 512  # Tokens of a row, where the model has no limit.


def measure(model: SentenceEncoder, name: str) -> Report:
    """Compare all ways to run a model on its GPU, and measure how fast they are.

    Args:
        model: On a CUDA device.
        name: Of the model; of a folder, only the last part is kept.
    """
    device = model.device
    dtype = inference_dtype(model.dtype, model.automatic_dtype, device)[0]
    name = Path(name).resolve().name if Path(name).is_dir() else name
    found: Report = {"model": name, "facts": {**tried(lambda: diagnose(model)), "driver": _driver()}}
    transformer = next((module for module in model if isinstance(module, Transformer)), None)
    with torch.cuda.device(device):
        for part, run in (("parity", parity), ("self-check", checked)):
            ways = {} if transformer is None else tried(partial(run, transformer, dtype))
            found[part] = {"all ways": {"reason": ways["failed"]}} if "failed" in ways else ways
        found["figures"] = measured(model, name, dtype)
    return found


def rows(report: Report) -> dict[str, str]:
    """What a report says, by line of its table."""
    found = {"model": report["model"], **report["facts"]}
    for part in ("parity", "self-check"):
        found.update({f"{part}: {way}": _verdict(**result) for way, result in report[part].items()})
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


def _verdict(
    difference: float | None = None,
    allowed: float = 0.0,
    reason: str | None = None,
    milliseconds: Sequence[float] = (),
) -> str:
    """The result of a way in words."""
    if difference is None:
        return str(reason)
    times = f"; {' and '.join(map(_short, milliseconds))} ms for short and for long rows" if milliseconds else ""
    same = f"{difference:.1e} of a row's norm from float32, {allowed:.1e} are allowed{times}"
    return f"{reason or 'same vectors'}: {same}"


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
    A few sequences of tokens depend on every rounding, so a way is wrong if it is so for three.

    Returns:
        For each way, the largest ``difference`` of a row relative to its norm, what is ``allowed``, and the ``reason``
        if it failed, differs or cannot run.
    """
    found: dict[str, dict[str, Any]] = {}
    for start in (3, 4, 5):
        wrong = [way for way, result in found.items() if str(result["reason"]).startswith(_DIFFERENT)]
        if start == 3 or wrong:
            compared = _parity(transformer, dtype, start)
            found.update({way: compared[way] for way in (wrong or compared)})
    return found


def _parity(transformer: Transformer, dtype: torch.dtype, start: int) -> dict[str, dict[str, Any]]:
    network = transformer.materialize()
    exact, half = Padded(cast(network, torch.float32)), torch.bfloat16 if dtype == torch.float32 else dtype
    batches = _batches(transformer, start)
    expected = [_forward(exact, batch, torch.float32) for batch in batches]
    own, *_ = _compared(lambda: Padded(cast(network, half)), batches, expected, torch.float32)
    allowed = 2 * own if own else tolerance(half, network.device)
    kernels = None if Fused.supports(network, network.device, dtype) else check(network, dtype).parts
    fused = partial(Fused, dtype=dtype, parts=kernels)
    ways: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "plain padded": (Padded, partial(_module, kind=Padded, dtype=dtype)),
        "packed": (Packed, partial(_module, kind=Packed, dtype=dtype)),
        "fused": (Fused, fused),
        "CUDA graphs": (CudaGraphs, lambda network: CudaGraphs(fused(network))),
    }
    found = {}
    for way, (kind, make) in ways.items():
        why, plain = kind.supports(network, network.device, dtype), partial(make, twin(network))
        difference, row, reason = (None, 0, f"not used: {why}") if why else _compared(plain, batches, expected, dtype)
        if reason is None and (difference or 0.0) > allowed:
            reason = f"{_DIFFERENT}, most in a row of {row} tokens"
        found[way] = {"difference": difference, "allowed": allowed, "reason": reason}
    return found


def _batches(transformer: Transformer, start: int) -> list[TokenBatch]:
    """Rows of one token, of the longest input, and of none; some batches need filler tokens in a graph.

    A few rows are several times as sensitive to rounding as most, so what is allowed is found on many of all lengths.
    """
    longest = transformer.max_seq_length or _LONGEST
    lengths = [(longest, 1, longest // 3, 0, 1), (1, longest // 2, 0, longest // 4), (longest,), (1,)]
    lengths.append(tuple(range(2, min(longest, _LONGEST), 8)))
    vocab, device = transformer.vocab_size or 100, transformer.network.device
    return [probe_of(batch, vocab, device, start) for batch in lengths]


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
                return None, 0, f"{_DIFFERENT}: some are not finite"
            worst = max(worst, *_differences(vectors, right, batch))
    except Exception as error:
        return None, 0, f"failed: {one_line(error)}"
    failure = getattr(way, "failure", None)  # Of the graphs, in whose place the fused forward then runs.
    return *worst, failure and f"not used: {failure}"


def _module(network: Any, kind: Any, dtype: torch.dtype) -> Any:
    """The module as encode runs it, from copies of its weights where they are converted."""
    copies = HalfPrecision.supports(network, network.device, dtype) is None
    return HalfPrecision(network, kind, dtype) if copies else kind(network)


def _forward(way: Any, batch: TokenBatch, dtype: torch.dtype) -> Tensor:
    """Vectors of all tokens; a module whose weights are not converted runs under autocast."""
    casts = isinstance(way, (Padded, Packed)) and dtype != torch.float32
    with torch.no_grad(), torch.autocast("cuda", dtype if casts else None, enabled=casts):
        vectors: Tensor = way.forward(batch)
    return vectors


def _differences(found: Tensor, expected: Tensor, batch: TokenBatch) -> Iterator[tuple[float, int]]:
    """The difference of each row relative to its norm, and its number of tokens."""
    lengths = [length for count, length in batch.groups for _ in range(count)]
    for a, b in zip(torch.split(found.double(), lengths), torch.split(expected.double(), lengths), strict=True):
        yield float((a - b).norm() / b.norm().clamp(min=1e-12)), len(a)


def checked(transformer: Transformer, dtype: torch.dtype) -> dict[str, dict[str, Any]]:
    """What the check at the first use has found about each way: difference, limit, reason, and milliseconds.

    Optional kernels that this GPU or model cannot use have only a reason.
    """
    network = transformer.network
    backbone = describe(network, known={POSITION_BIAS})
    if isinstance(backbone, str):
        return {}
    check_of = check(network, dtype)
    found: dict[str, dict[str, Any]] = {}
    for way, result in check_of.results.items():
        times = [1e3 * x for x in check_of.seconds.get(way, ())]
        finite = math.isfinite((result.gap or 0.0) + check_of.allowed)
        figures = {"difference": result.gap, "allowed": check_of.allowed} if finite else {}
        found[way] = {**figures, "reason": result.reason, "milliseconds": times}
    refused = {part: refuses(network.device, dtype, backbone) for part, refuses in PARTS.items()}
    return found | {f"kernel {part}": {"reason": f"not used: {why}"} for part, why in refused.items() if why}
