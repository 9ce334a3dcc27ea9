"""What to run on, and how much at a time."""

from __future__ import annotations

import torch

# Enough rows to fill the arithmetic, few enough to stay in the caches of a CPU.
_BATCH_TOKENS = {"cpu": 4096}
_BATCH_TOKENS_ACCELERATOR = 32768

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def default_device() -> torch.device:
    """The first accelerator there is, or else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def default_batch_tokens(device: torch.device) -> int:
    """Tokens in a batch at most, where the caller does not say."""
    return _BATCH_TOKENS.get(device.type, _BATCH_TOKENS_ACCELERATOR)


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """A dtype by name; None for ``"auto"``.

    Raises:
        ValueError: If it is none of auto, float32, bfloat16 and float16.
    """
    if dtype == "auto":
        return None
    if dtype in _DTYPES.values():
        return dtype  # type: ignore[return-value]
    if dtype not in _DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; pass one of auto, {', '.join(_DTYPES)}")
    return _DTYPES[str(dtype)]


def inference_dtype(weights: torch.dtype, auto: bool, device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype of a transformer's arithmetic while it encodes, and why.

    Args:
        weights: Of its weights.
        auto: Whether the choice is ours: bfloat16 on a GPU that computes in it, which is many times faster.
        device: Where it runs.
    """
    if auto and device.type == "cuda" and weights == torch.float32:
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16, "dtype='auto' on a GPU; weights and vectors are float32"
        return weights, "this GPU does not compute in bfloat16"
    return weights, "that of the weights"
