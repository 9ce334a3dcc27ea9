"""Defaults of device, dtype and batch size."""

from __future__ import annotations

import torch

# Large enough for efficient matrix products, small enough for the caches of a CPU.
_BATCH_TOKENS = {"cpu": 4096}
_BATCH_TOKENS_ACCELERATOR = 32768

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def default_device() -> torch.device:
    """The first available accelerator, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def default_batch_tokens(device: torch.device) -> int:
    """Default of the maximum number of tokens per batch."""
    return _BATCH_TOKENS.get(device.type, _BATCH_TOKENS_ACCELERATOR)


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """A dtype by name; None for ``"auto"``.

    Raises:
        ValueError: If it is not auto, float32, bfloat16 or float16.
    """
    if dtype == "auto":
        return None
    if dtype in _DTYPES.values():
        return dtype  # type: ignore[return-value]
    if dtype not in _DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; pass one of auto, {', '.join(_DTYPES)}")
    return _DTYPES[str(dtype)]


def inference_dtype(weights: torch.dtype, auto: bool, device: torch.device) -> tuple[torch.dtype, str]:
    """Dtype in which a transformer computes while it encodes, and the reason.

    Args:
        weights: Dtype of its weights.
        auto: Whether the library chooses: bfloat16 on a GPU that supports it, where it is many times faster.
        device: Device of the transformer.
    """
    if auto and device.type == "cuda" and weights == torch.float32:
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16, "dtype='auto' on a GPU; weights and vectors are float32"
        return weights, "this GPU does not compute in bfloat16"
    return weights, "that of the weights"
