"""The first use of a model on an accelerator in a process: its vectors are compared with those of the CPU in float32.

A model that passes runs as it is, also in later processes: a file in the user's cache says so. For one that does not,
there is one warning, and the Hugging Face module runs in its place until the process ends.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.backends import PLAIN_REMEDY, CallSettings, InferenceCall, state_of
from sbert.batch import TokenBatch
from sbert.inputs.arguments import warn
from sbert.inputs.devices import driver_version
from sbert.saving.verification import versions
from sbert.storage.files import is_failure, is_out_of_memory, one_line
from sbert.storage.folders import user_cache
from sbert.storage.processes import Lock

# Words of the texts that are compared, whose numbers of tokens are about these; the last exceeds 512.
_WORDS = "the cat sees two red boats on a lake while old men read news about trade and music of north".split()
_LENGTHS, _SHORT, _ROWS = (1, 15, 2, 63, 600), 3, 256
# Error of a vector relative to its norm: cosine 0.9995 in half precision. In float32, kernels differ in rounding.
_HALF, _FLOAT32 = 0.0316, 1e-4
# A model of more weights is compared with its plain way on the same device: a copy in float32 takes 4 bytes per weight
# of the host's memory, and a process that exceeds that is killed.
_LARGE = 10**9
RunModel = Callable[[TokenBatch, torch.dtype], Any]
_lock = Lock()


class _Checked:
    """In which dtype a model runs, by device and the dtype that was asked for."""

    def __init__(self) -> None:
        self.dtypes: dict[tuple[torch.device, torch.dtype], torch.dtype] = {}


def check_once(model: Any, device: torch.device, dtype: torch.dtype, run: RunModel | None = None) -> torch.dtype:
    """The dtype in which a model runs on a device, after a check at its first use; other threads wait for that.

    Args:
        model: An encoder, or a cross-encoder.
        device: Its device.
        dtype: Of the arithmetic. If float16 overflows, the model runs in the dtype of its weights from then on.
        run: The output of the model for a batch, in eval mode without gradient, in a dtype. Default: as in a call of
            ``encode``.
    """
    key, dtypes = (device, dtype), state_of(model, _Checked).dtypes
    if device.type != "cpu" and key not in dtypes:
        with _lock:
            if key not in dtypes:
                try:
                    dtypes[key] = _check(model, device, dtype, run)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    # Nothing is known: smaller batches may fit, and the next call checks again.
    return dtypes.get(key, dtype)


def use_weights_dtype(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Run a model in the dtype of its weights from now on, since this one overflows in it; with one warning."""
    state_of(model, _Checked).dtypes[device, dtype] = model.dtype
    half, full = (str(name).removeprefix("torch.") for name in (dtype, model.dtype))
    warn(f"this model exceeds the range of {half}, and runs in {full} from now on; pass dtype={full!r} instead of auto")


def _check(model: Any, device: torch.device, dtype: torch.dtype, run: RunModel | None) -> torch.dtype:
    parts = [part for part in model.modules() if getattr(part, "backend", "plain") == "auto"]
    if not parts or (passed := _file(model, device, dtype)).exists():
        return dtype
    limit = vector_tolerance(dtype)
    try:
        error = compare(model, device, dtype, run)
    except Exception as failure:
        if not is_failure(failure) or isinstance(failure, torch.AcceleratorError):
            raise
        reason = f"the first use of this model fails ({one_line(failure)})"
    else:
        if error is None:
            return dtype
        if not math.isfinite(error) and dtype == torch.float16 != model.dtype:
            use_weights_dtype(model, device, dtype)
            return _check(model, device, model.dtype, run)
        if error <= limit:
            with suppress(OSError):  # Where nothing can be stored, each process checks.
                passed.parent.mkdir(parents=True, exist_ok=True)
                passed.touch()
            return dtype
        reason = f"vectors in {dtype} differ by {error:.1e} of their norm from float32 on the CPU, not by {limit:.1e}"
    warn(f"on {device}, {reason}; there, the Hugging Face module runs alone in this process; {PLAIN_REMEDY}")
    for part in parts:
        part.plain_devices.add(device)
    return dtype


def vector_tolerance(dtype: torch.dtype) -> float:
    """The largest error of a vector on an accelerator in a dtype, relative to its norm."""
    tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"  # The older setting raises where the newer was used.
    return _FLOAT32 if dtype in (torch.float32, torch.float64) and not tf32 else _HALF


def _file(model: Any, device: torch.device, dtype: torch.dtype) -> Path:
    """The file that is there if a model of this kind has passed on a device of this kind, with these versions."""
    weights = [(name, *weight.shape) for name, weight in model.named_parameters()]
    samples = torch.stack([weight.detach().flatten()[:1].float().sum() for weight in model.parameters()]).tolist()
    facts: list[Any] = [
        repr(model),
        weights,
        samples,
        str(model.dtype),
        str(dtype),
        device.type,
        torch.__version__,
        versions(),
    ]
    if device.type == "cuda":
        facts += [torch.cuda.get_device_capability(device), driver_version(), torch.version.cuda]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return user_cache() / "gpu" / f"{name}.passed"


def compare(model: Any, device: torch.device, dtype: torch.dtype, run: RunModel | None = None) -> float | None:
    """The largest error of a text's vector on a device; None if the model has parts that cannot be copied to the CPU.

    In float32 on the CPU, each text is computed alone, without padding.
    """
    large = sum(weight.numel() for weight in model.parameters()) > _LARGE
    texts = [" ".join((_WORDS * 40)[start : start + length]) for start, length in enumerate(_LENGTHS)]
    texts = texts[:_SHORT] if large else texts
    tokens = model.tokens([(text, "a cat") for text in texts] if model.is_cross_encoder else texts)
    every = np.arange(len(texts))
    run = run or (lambda batch, dtype: InferenceCall(CallSettings(dtype)).run(model, batch))
    try:
        reference, place = _reference(model, device if large else torch.device("cpu"))
        call = InferenceCall(CallSettings(dtype if large else torch.float32, copies=False))
        with torch.no_grad():
            outputs = [call.run(reference, tokens.batch(every[row : row + 1]).to(place)) for row in every]
    except Exception as failure:  # Of modules that cannot be copied, or run on one device alone.
        if not is_failure(failure) or isinstance(failure, torch.AcceleratorError):
            raise
        return None
    expected = torch.cat(list(map(_vectors, outputs)))  # (texts, dim)
    errors = [0.0]
    for rows in (every[:1], every, np.resize(every[:_SHORT], _SHORT if large else _ROWS)):
        with torch.no_grad():
            vectors = _vectors(run(tokens.batch(rows).to(device), dtype))
        errors += ((vectors - expected[rows]).norm(dim=1) / expected.norm(dim=1).max()).tolist()
    return max(errors, key=lambda error: (error != error, error))  # NaN is the largest.


def _vectors(output: Any) -> Tensor:
    """One vector per text, of a model without a pooling the mean of its tokens, on the CPU. Shape: (texts, dim)."""
    if not isinstance(output, Tensor):
        output = torch.stack([tokens.mean(0) for tokens in output.values.float().split(output.lengths.tolist())])
    vectors: Tensor = output.detach().float().cpu()
    return vectors


def _reference(model: Any, device: torch.device) -> tuple[Any, torch.device]:
    """A copy of the model in float32 on the CPU, or on a GPU with its own weights and plain; and its device."""
    copies: dict[int, Any] = {}
    for old in [*model.parameters(), *model.buffers()]:
        new = old.detach()
        if device.type == "cpu":
            new = new.to("cpu", torch.float32 if old.is_floating_point() else None)
        copies[id(old)] = nn.Parameter(new, False) if isinstance(old, nn.Parameter) else new
    reference = copy.deepcopy(model, copies).eval()
    for part in reference.modules():
        if device.type != "cpu" and getattr(part, "backend", "plain") == "auto":
            part.backend = "plain"
    return reference, device
