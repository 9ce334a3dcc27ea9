"""Every rule about devices: which one is used, in which dtype it computes, and how much it reads at once."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from functools import cache
from pathlib import Path
from typing import cast

import torch
from torch import nn

from sbert.inputs.arguments import warn

# Large enough for efficient matrix products, small enough for the caches of a CPU.
_BATCH_TOKENS, _BATCH_TOKENS_ACCELERATOR = 4096, 32768

# Compute capabilities from which NVIDIA's GPUs have matrix units for a dtype; ROCm reports capabilities above these.
_BFLOAT16, _FLOAT16 = (8, 0), (7, 0)

# Texts that are tokenized and sorted together, at first and at most: enough for batches of equal length, and little
# beside the vectors. An accelerator waits for the first of them, and is faster than the tokenizer.
_WINDOWS = {"cpu": (8192, 8192)}
_WINDOWS_ACCELERATOR = (1024, 65536)

SLOW_BFLOAT16 = "this CPU has no bfloat16 arithmetic, and takes 3 to 4 times as long with it as with float32"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def default_device() -> torch.device:
    """The first available accelerator, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def driver_version() -> str:
    """The version of NVIDIA's driver; on other systems than Linux, the CUDA that it is for."""
    try:
        lines = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        return str(re.findall(r" (\d+\.[\d.]+) ", lines)[0])
    except (OSError, IndexError):
        return str(getattr(torch._C, "_cuda_getDriverVersion", lambda: "not found")())


def name_of_use(device: torch.device, *facts: object) -> str:
    """The name of a file about a use of a GPU, which is another one for other facts, GPUs, drivers and versions."""
    properties = str(torch.cuda.get_device_properties(device)), torch.__version__, torch.version.cuda
    known = json.dumps([facts, properties, driver_version(), platform.node()], default=str)
    return f"{hashlib.sha256(known.encode()).hexdigest()[:16]}.json"


def default_batch_tokens(device: torch.device, dtype: torch.dtype | None = None) -> int:
    """Default of the maximum number of tokens per batch.

    Args:
        device: Of the model.
        dtype: Of inference. On a CPU, float32 has half as many tokens as bfloat16: as many bytes, at the same speed.
    """
    if device.type != "cpu":
        return _BATCH_TOKENS_ACCELERATOR
    return _BATCH_TOKENS // 2 if dtype == torch.float32 else _BATCH_TOKENS


def default_windows(device: torch.device) -> tuple[int, int]:
    """Number of texts that are tokenized together, at first and at most."""
    return _WINDOWS.get(device.type, _WINDOWS_ACCELERATOR)


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """A dtype by name; None for ``"auto"``.

    Raises:
        ValueError: If it is not auto, float32, bfloat16 or float16.
    """
    if dtype == "auto":
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; pass one of auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def inference_dtype(weights: torch.dtype, auto: bool, device: torch.device) -> tuple[torch.dtype, str]:
    """Dtype in which a transformer computes while it encodes, and the reason.

    Args:
        weights: Dtype of its weights.
        auto: Whether the library chooses: the half precision of a GPU, in which it is many times faster.
        device: Device of the transformer.
    """
    if auto and device.type == "cuda" and weights == torch.float32:
        capability = torch.cuda.get_device_capability(device)  # Of this device, not of the current one.
        if capability >= _BFLOAT16:
            return torch.bfloat16, "dtype='auto' on a GPU; weights and vectors are float32"
        if capability >= _FLOAT16:
            return torch.float16, "dtype='auto' on a GPU without bfloat16; what exceeds its range runs in float32 again"
        return weights, "this GPU computes neither in bfloat16 nor fast in float16"
    return weights, "that of the weights"


def check_device(device: object) -> torch.device:
    """Return the device if torch can use it on this machine.

    Raises:
        TypeError: If it is not a device, such as a list of devices.
        ValueError: If there is no such device.

    Example:
        >>> check_device("cpu")
        device(type='cpu')
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device={device!r} is of type {type(device).__name__}; pass one device, such as {_usable()}")
    try:
        checked = torch.device(device)
        torch.empty(0, device=checked)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"device={str(device)!r} cannot be used ({reason}); pass {_usable()}") from error
    return checked


def _usable() -> str:
    """The devices of this machine, for error messages."""
    kind = default_device().type
    count = 0 if kind == "cpu" else torch.accelerator.device_count()
    numbered = [kind] if kind == "mps" else [f"{kind}:{number}" for number in range(count)]
    return " or ".join(map(repr, ["cpu", *numbered]))


def adapt_half_precision(model: nn.Module, device: torch.device) -> None:
    """Convert a float16 model on a CPU to float32: CPUs emulate float16, about 1000 times slower. Warn of bfloat16."""
    if device.type == "cpu" and model.dtype == torch.float16:
        warn(
            "this CPU has no float16 arithmetic, so the weights are converted to float32; pass dtype='bfloat16' to"
            " halve their memory"
        )
        model.float()
    warn_of_slow(cast("torch.dtype", model.dtype), device)


def warn_of_slow(dtype: torch.dtype | None, device: torch.device) -> None:
    """Warn once if this CPU has to emulate bfloat16, in which a caller wants to compute."""
    if dtype == torch.bfloat16 and device.type == "cpu" and not multiplies_bfloat16():
        _warn_of_bfloat16()


@cache  # Once in a process.
def _warn_of_bfloat16() -> None:
    warn(f"{SLOW_BFLOAT16}; pass dtype='float32', unless memory matters more")


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for products of bfloat16.

    oneDNN supports bfloat16 on all CPUs with AVX-512, also on those that have to convert each number.
    """
    converts = torch.cpu._is_avx512_supported() and not (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )
    return not converts and torch._C._has_mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
