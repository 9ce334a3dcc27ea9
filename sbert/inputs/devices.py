"""Every rule about devices: which one is used, in which dtype it computes, and how much it reads at once."""

from __future__ import annotations

import re
import shutil
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

SLOW_BFLOAT16 = "this CPU has no bfloat16 arithmetic, and takes 3 to 4 times as long with it as with float32"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def default_device() -> torch.device:
    """The first available accelerator, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def driver_version() -> str:
    """The version of NVIDIA's driver; on other systems than Linux, the CUDA that it is for."""
    path = Path("/proc/driver/nvidia/version")
    version = re.search(r" (\d+\.[\d.]+) ", path.read_text(encoding="utf-8") if path.exists() else "")
    return version[1] if version else str(getattr(torch._C, "_cuda_getDriverVersion", lambda: "not found")())


def missing_kernels(device: torch.device) -> str | None:
    """Why this build of torch cannot use an NVIDIA GPU, and which build can; None if it has kernels for the GPU."""
    kinds = torch.cuda.get_arch_list() if device.type == "cuda" else []
    capability = torch.cuda.get_device_capability(device) if kinds else (0, 0)
    if not kinds or any(_runs_on(kind, capability) for kind in kinds):
        return None
    build = "torch 2.10 for CUDA 12.6 (pip install torch==2.10.0 --index-url https://download.pytorch.org/whl/cu126)"
    if capability > (8, 0):  # torch has dropped no GPU as new as that.
        build = "a later version of torch (pytorch.org/get-started)"
    name = f"{torch.cuda.get_device_name(device)} (compute capability {'.'.join(map(str, capability))})"
    return f"torch {torch.__version__} has kernels for {' '.join(kinds)}, but none for {name}; install {build}"


def _runs_on(kind: str, capability: tuple[int, int]) -> bool:
    """Whether kernels of a kind run on a GPU: in later minor versions; as ``compute_XY``, which is compiled at their
    first use, in all later versions; with an ``a`` in this version alone. ROCm has other names for its kinds.
    """
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", kind)
    if match is None:
        return True
    compiled = int(match[2]), int(match[3])
    if match[4] == "a":
        return compiled == capability
    return compiled <= capability and (compiled[0] == capability[0] or (match[1] == "compute" and not match[4]))


def build_hint() -> str | None:
    """What to install where an NVIDIA GPU stands beside a build of torch without CUDA; None elsewhere."""
    if torch.version.cuda or torch.version.hip or torch.accelerator.is_available():
        return None
    if Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        return "this machine has an NVIDIA GPU, but this torch is built without CUDA; see pytorch.org/get-started"
    return None


def explain_device_error(error: torch.AcceleratorError) -> None:
    """Add the remedy to an error after which this process cannot use the GPU any more, such as an illegal access."""
    remedy = "the GPU cannot be used any more by this process; start it again, with SBERT_BACKEND=plain"
    if remedy not in str(error) and "out of memory" not in str(error):
        error.args = (f"{error}\n{remedy}",)


def default_batch_tokens(device: torch.device, dtype: torch.dtype | None = None) -> int:
    """Default of the maximum number of tokens per batch.

    Args:
        device: Of the model.
        dtype: Of inference. On a CPU, float32 has half as many tokens as bfloat16: as many bytes, at the same speed.
    """
    if device.type != "cpu":
        return _BATCH_TOKENS_ACCELERATOR
    return _BATCH_TOKENS // 2 if dtype == torch.float32 else _BATCH_TOKENS


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
        ValueError: If there is no such device, or this build of torch has no kernels for it.

    Example:
        >>> from sbert.inputs.devices import check_device
        >>> check_device("cpu")
        device(type='cpu')
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device={device!r} is of type {type(device).__name__}; pass one device, such as {_usable()}")
    try:
        checked = torch.device(device)
        torch.empty(0, device=checked)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        hint = build_hint() if str(device).startswith("cuda") else None
        reason = hint or str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"device={str(device)!r} cannot be used ({reason}); pass {_usable()}") from error
    if (missing := missing_kernels(checked)) is not None:
        raise ValueError(f"device={str(device)!r} cannot be used: {missing}, or pass device='cpu'")
    return checked


def _usable() -> str:
    """The devices of this machine, for error messages."""
    kind = default_device().type
    count = 0 if kind == "cpu" else torch.accelerator.device_count()
    return " or ".join(map(repr, ["cpu", *(f"{kind}:{number}" for number in range(count))]))


def adapt_half_precision(model: nn.Module, device: torch.device) -> None:
    """Convert a float16 model on a CPU to float32: CPUs emulate float16, about 1000 times slower. Warn of bfloat16."""
    if device.type == "cpu" and model.dtype == torch.float16:
        warn(
            "this CPU has no float16 arithmetic, so the weights are converted to float32; pass dtype='bfloat16' to"
            " halve their memory"
        )
        model.float()
    warn_of_slow(cast("torch.dtype", model.dtype), device)


@cache  # Once in a process.
def warn_of_slow(dtype: torch.dtype | None, device: torch.device) -> None:
    """Warn once if this CPU has to emulate bfloat16, in which a caller wants to compute."""
    if dtype == torch.bfloat16 and device.type == "cpu" and not multiplies_bfloat16():
        warn(f"{SLOW_BFLOAT16}; pass dtype='float32', unless memory matters more")


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for products of bfloat16.

    oneDNN supports bfloat16 on all CPUs with AVX-512, also on those that have to convert each number.
    """
    converts = torch.cpu._is_avx512_supported() and not (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )
    return not converts and torch._C._has_mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
