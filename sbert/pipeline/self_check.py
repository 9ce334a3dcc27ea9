"""The first use of a model on a GPU: are its vectors those of float32 on the CPU? The answer is stored on disk.

An error of CUDA ends all use of the device in its process, so that nothing can be repaired there. Before the check, a
marker is written in the user's cache; a process that dies leaves it, and the next one takes the plain way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sbert.backends import PLAIN_REMEDY, state_of
from sbert.inputs.arguments import warn
from sbert.inputs.devices import name_of_use
from sbert.saving.verification import versions
from sbert.storage.files import is_failure, is_out_of_memory, one_line, read_object, write_json
from sbert.storage.folders import user_cache
from sbert.storage.processes import Lock, has_died, mark_running

# Words of the texts that are compared, whose numbers of tokens are about these; and the texts of each batch. Of the
# largest batch, texts are the first three, so that all takes no more than two seconds.
_WORDS = "the cat sees two red boats on a lake while old men read news about trade and music of north".split()
_LENGTHS, _COUNTS, _MANY = (1, 15, 2, 63, 130, 509), (1, 2, 32, 2000), 100
# Error of a row relative to its norm: cosine 0.9995 in half precision.
_HALF, _EXACT = 0.0316, 1e-5
# A larger model is compared with its plain way on the same device, as the CPU would take too long.
_LARGE = 10**9
_lock = Lock()


class _Checked:
    """Devices and dtypes in which a model was checked."""

    def __init__(self) -> None:
        self.known: set[tuple[torch.device, torch.dtype]] = set()


def check_once(job: Any, evaluating: Callable[[Any], AbstractContextManager[None]]) -> None:
    """Check the model of a call of ``encode`` on its device, unless it was checked; other threads wait for it.

    Args:
        job: The ``Encoding`` of the call.
        evaluating: The context of a model in eval mode.
    """
    key, known = (job.device, job.inference.settings.dtype), state_of(job.model, _Checked).known
    if key not in known:
        with _lock:
            if key not in known:
                with evaluating(job.model):
                    check(job)
                known.add(key)


def check(job: Any) -> None:
    """Let a model run as Hugging Face modules alone on a GPU where its vectors are wrong, with one warning.

    Args:
        job: The ``Encoding`` of a call, whose model is in eval mode.
    """
    parts = [part for part in job.model.modules() if getattr(part, "backend", "plain") == "auto"]
    reason = _verdict(job, parts, path := _path(job)) if parts else None
    if reason is not None:
        plain = "there, the model runs as its Hugging Face module alone"
        warn(f"on {job.device}, {reason}; {plain}; {PLAIN_REMEDY}; to check it again, remove {path}")
        _run_plain(parts, job.device)


def _run_plain(parts: list[Any], device: torch.device, plain: bool = True) -> None:
    for part in parts:
        (part.plain_devices.add if plain else part.plain_devices.discard)(device)


def _path(job: Any) -> Path:
    """The file of the verdict on a kind of model, a device and versions."""
    model = repr(job.model), [(name, *weight.shape) for name, weight in job.model.named_parameters()]
    return user_cache() / "gpu" / name_of_use(job.device, model, job.inference.settings.dtype, versions())


def _verdict(job: Any, parts: list[Any], path: Path) -> str | None:
    """Why a model must run plain on a device; None if it need not."""
    with suppress(OSError, ValueError, KeyError):
        known: str | None = read_object(path)["verdict"]
        return known
    reason: str | None = "a process died when it used this model for the first time"
    if not has_died(path):
        try:
            with mark_running(path):
                reason = _find_reason(job, parts)
        except BaseException as error:
            if is_out_of_memory(error):  # Smaller batches may fit; the next process checks again.
                return None
            if not is_failure(error):
                raise
            reason = f"the first use of this model fails ({one_line(error)})"
    with suppress(OSError):  # Where nothing can be stored, each process checks.
        write_json(path, {"verdict": reason})
    return reason


def _find_reason(job: Any, parts: list[Any]) -> str | None:
    """Why a model must run plain: its vectors are not those of float32, and would be nearer to them."""
    error, limit = compare(job) or (0.0, 0.0)
    if error <= limit:
        return None
    _run_plain(parts, job.device)
    plain, _ = compare(job) or (0.0, 0.0)
    _run_plain(parts, job.device, False)
    if not (plain > error / 2 or plain != plain):
        return f"vectors differ by {error:.1e} of their norm from float32, not by {limit:.1e}"
    dtype = str(job.inference.settings.dtype).removeprefix("torch.")
    remedy = "" if dtype == "float32" else "; pass dtype='float32'"
    warn(f"in {dtype} on {job.device}, vectors differ by {error:.1e} of their norm from float32 on a CPU{remedy}")
    return None


def compare(job: Any) -> tuple[float, float] | None:
    """How far the vectors of a call on a GPU are from those in float32 on the CPU: the error, and its limit.

    Both are relative to the norm of the vectors; None if the model has parts that cannot be copied to the CPU.
    """
    texts = [" ".join((_WORDS * 40)[start : start + length]) for start, length in enumerate(_LENGTHS)]
    tokens = job.model.tokens([(text, "a cat") for text in texts] if job.model.is_cross_encoder else texts)
    every, error = np.arange(len(texts)), 0.0
    with torch.no_grad():
        try:
            reference = _reference(job)
            expected = job.finish(reference(tokens.batch(every).to(reference.device))).cpu()  # (texts, dim)
        except Exception as failure:  # Of modules that cannot be copied, or run on one device alone.
            if not is_failure(failure) or isinstance(failure, torch.AcceleratorError):
                raise
            return None
        for count in _COUNTS:
            rows = np.resize(every if count < _MANY else every[:3], count)
            vectors = job.finish(job.inference.run(job.model, tokens.batch(rows).to(job.device))).cpu()
            # What leaves the range of float16 is computed again by encode.
            seen = vectors.isfinite().all(1) | (job.inference.settings.dtype != torch.float16)
            errors = (vectors - expected[rows]).norm(dim=1)[seen] / expected.norm(dim=1).max()
            error = max([error, *errors.tolist()], key=lambda each: (each != each, each))  # NaN is the largest.
    tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"  # The older setting raises where the newer was used.
    exact = job.inference.settings.dtype in (torch.float32, torch.float64) and not tf32
    return error, _EXACT if exact else _HALF


def _reference(job: Any) -> Any:
    """A copy of the model that runs plain: in float32 on the CPU, or, of a large one, on its own weights."""
    weights = [*job.model.parameters(), *job.model.buffers()]
    small = sum(weight.numel() for weight in weights) <= _LARGE
    copies: dict[int, Any] = {}
    for old in weights:
        new = old.detach()
        if small:
            new = new.to("cpu", torch.float32 if old.is_floating_point() else None)
        copies[id(old)] = nn.Parameter(new, False) if isinstance(old, nn.Parameter) else new
    reference = copy.deepcopy(job.model, copies).eval()
    for part in reference.modules():
        if getattr(part, "backend", "plain") == "auto":
            part.backend = "plain"
    return reference
