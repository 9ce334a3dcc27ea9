"""The first use of a model on a GPU: are its vectors those of float32 on the CPU? The answer is kept on disk.

An error of CUDA ends all use of the device in its process, so that nothing can be repaired there. Before the check, a
marker is written in the user's cache; a process that dies leaves it, and the next one takes the plain way.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sbert.backends.network import state_of
from sbert.backends.padded import REMEDY
from sbert.inputs.arguments import warn
from sbert.saving.verification import versions
from sbert.storage.files import is_failure, is_out_of_memory, one_line, read_object, write_json
from sbert.storage.folders import user_cache

# Words of the texts that are compared, whose numbers of tokens are about these; and the texts of each batch. Of the
# largest batch, texts are the first three, so that all takes no more than two seconds.
_WORDS = "the cat sees two red boats on a lake while old men read news about trade and music of north".split()
_LENGTHS, _COUNTS, _MANY = (1, 15, 2, 63, 130, 509), (1, 2, 32, 2000), 100
# Error of a row relative to its norm: cosine 0.9995 in half precision.
_HALF, _EXACT = 0.0316, 1e-5
# A larger model is compared with its plain way on the same device, as the CPU would take too long.
_LARGE = 10**9


class _Checked:
    """Devices and dtypes in which a model was checked."""

    def __init__(self) -> None:
        self.known: set[tuple[torch.device, torch.dtype]] = set()


def is_checked(job: Any) -> bool:
    """Whether the model of a call of ``encode`` was checked on its device; asked once, it counts as checked."""
    key, known = (job.device, job.inference.dtype), state_of(job.model, _Checked).known
    checked = key in known
    known.add(key)
    return checked


def check(job: Any) -> None:
    """Let a model run as Hugging Face modules alone on a GPU where its vectors are wrong, with one warning.

    Args:
        job: The ``Encoding`` of a call, whose model is in eval mode.
    """
    parts = [part for part in job.model.modules() if getattr(part, "backend", "plain") == "auto"]
    reason = _verdict(job, path := _path(job)) if parts else None
    if reason is not None:
        plain = "there, the model runs as its Hugging Face module alone"
        warn(f"on {job.device}, {reason}; {plain}; {REMEDY}; to check it again, remove {path}")
        for part in parts:
            part.plain_devices.add(job.device)


def _path(job: Any) -> Path:
    """The file of the verdict on a kind of model, a device and versions."""
    model = repr(job.model), [(name, *weight.shape) for name, weight in job.model.named_parameters()]
    properties = str(torch.cuda.get_device_properties(job.device)), torch.version.cuda, platform.node()
    facts = json.dumps([model, str(job.inference.dtype), properties, versions()])
    return user_cache() / "gpu" / f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"


def _verdict(job: Any, path: Path) -> str | None:
    """Why a model must run plain on a device; None if it need not."""
    state: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        state = read_object(path)
    reason: str | None = state.get("verdict")
    if "verdict" in state:
        return reason
    if "pid" in state and not _is_running(state["pid"]):
        reason = "a process died when it used this model for the first time"
        _write(path, {"verdict": reason})
        return reason
    _write(path, {"pid": os.getpid()})
    try:
        reason = _compare(job)
    except BaseException as error:
        if not is_failure(error):
            path.unlink(missing_ok=True)
            if is_out_of_memory(error):  # Smaller batches may fit; the next process checks again.
                return None
            raise
        reason = f"the first use of this model fails ({one_line(error)})"
    _write(path, {"verdict": reason})
    return reason


def _write(path: Path, state: dict[str, Any]) -> None:
    with suppress(OSError):  # Where nothing can be kept, each process checks.
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, state)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It belongs to another user.
        pass
    return True


def _compare(job: Any) -> str | None:
    """Why the vectors of a model on a device cannot be trusted; None if they are those of float32."""
    texts = [" ".join((_WORDS * 40)[start : start + length]) for start, length in enumerate(_LENGTHS)]
    tokens = job.model.tokens([(text, "a cat") for text in texts] if job.model.is_cross_encoder else texts)
    every, error = np.arange(len(texts)), 0.0
    with torch.no_grad():
        try:
            reference = _reference(job)
            expected = job.finish(reference(tokens.batch(every).to(reference.device))).cpu()  # (texts, dim)
        except Exception as failure:  # Of modules that cannot be copied, or run on one device alone.
            if not is_failure(failure):
                raise
            return None
        for count in _COUNTS:
            rows = np.resize(every if count < _MANY else every[:3], count)
            vectors = job.finish(job.inference.run(job.model, tokens.batch(rows).to(job.device))).cpu()
            # What leaves the range of float16 is computed again by encode.
            seen = vectors.isfinite().all(1) | (job.inference.dtype != torch.float16)
            errors = (vectors - expected[rows]).norm(dim=1)[seen] / expected.norm(dim=1).max()
            error = max([error, *errors.tolist()], key=lambda each: (each != each, each))  # NaN is the largest.
    exact = job.inference.dtype in (torch.float32, torch.float64) and not torch.backends.cuda.matmul.allow_tf32
    limit = _EXACT if exact else _HALF
    return None if error <= limit else f"vectors differ by {error:.1e} of their norm from float32, not by {limit:.1e}"


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
