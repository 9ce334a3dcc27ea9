"""Whether two ways to run a transformer give the same vectors: tried out once, on three short rows."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from typing import Any, TypeVar

import torch
from torch import Tensor

from sbert.backends.architectures import describe
from sbert.backends.backend import PLAIN_REMEDY, Backend
from sbert.backends.network import position_limit, vocab_size
from sbert.backends.padded import Padded
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
AnyBackend = TypeVar("AnyBackend", bound=Backend)
# The largest difference of a row's vectors, relative to their norm. On a GPU: cosine 0.9995 in half precision, and in
# float32 what TF32 gives, in which it may be told to multiply.
_CPU, _HALF_ON_CPU = {torch.float32: 1e-4, torch.float64: 1e-8, torch.int8: 0.5}, 0.1
_GPU, _HALF_ON_GPU = {torch.float32: 1e-2, torch.float64: 1e-2}, 0.0316


def parity(
    kind: type[AnyBackend], network: Any, device: torch.device, dtype: torch.dtype, /, remedy: str = "", **options: Any
) -> AnyBackend | str:
    """A backend that has given the vectors of the padded module, or the reason why it cannot run.

    On an accelerator, ``encode`` compares final vectors: what a known architecture runs by is not compared here.

    Modes, hooks, gradients and random numbers stay as they are, whatever other threads do with the network.

    Args:
        kind: The class of the backend.
        network: A Hugging Face model, or a minimal BERT.
        device: Of the network.
        dtype: Of the backend's arithmetic.
        remedy: For a warning, if it cannot run. Default: to report it.
        options: What the backend is made with, beside a copy of the network.
    """
    is_known, copied = not isinstance(describe(network), str), copy_without_hooks(network)
    if is_known and device.type != "cpu":
        return kind(copied, **options)
    try:
        batch = probe(network, device)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            expected = Padded(copied).forward(batch)
            backend = kind(copied, **options)
            vectors = backend.forward(batch)
            error = max_relative_error(vectors, expected, batch)
    except Exception as failure:
        if not is_failure(failure) or isinstance(failure, torch.AcceleratorError):
            raise
        reason = f"it fails {kind.how} ({one_line(failure)})"
        # A model that the library does not know may need padding; of others, it is a fault.
        return warn_slower(network, reason, remedy) if is_known else reason
    # From vectors that are not finite nothing can be concluded; encode repeats what leaves the range of float16.
    finite = expected.isfinite().all() and (dtype != torch.float16 or vectors.isfinite().all())
    if error <= parity_limit(dtype, device) or not finite:
        return backend
    return warn_slower(network, f"{kind.how} its vectors differ by {error:.1e} of their norm", remedy)


def warn_slower(network: Any, reason: str, remedy: str) -> str:
    """Warn that a network runs by a plainer backend than it should, and return the reason."""
    warnings.warn(f"{type(network).__name__} runs by a slower way: {reason}; {remedy or PLAIN_REMEDY}", stacklevel=2)
    return reason


def parity_limit(dtype: torch.dtype, device: torch.device) -> float:
    """The largest error by which two ways to compute in a dtype may differ on a device."""
    return _CPU.get(dtype, _HALF_ON_CPU) if device.type == "cpu" else _GPU.get(dtype, _HALF_ON_GPU)


def probe(network: Any, device: torch.device) -> TokenBatch:
    """Rows of different lengths, most of whose tokens come after others that they must not attend to."""
    longest, vocab = min(40, position_limit(network) or 40), vocab_size(network) or 100
    return probe_of((max(1, longest // 4), 1, longest), vocab, device)


def probe_of(lengths: tuple[int, ...], vocab: int, device: torch.device, start: int = 3) -> TokenBatch:
    """Rows of these lengths; other tokens for another start."""
    return TokenBatch.from_rows([[(7 * i + start) % vocab for i in range(length)] for length in lengths]).to(device)


def max_relative_error(vectors: Tensor, expected: Tensor, batch: TokenBatch) -> float:
    """The largest difference of a row's vectors from the expected ones, relative to their norm.

    Shape:
        vectors, expected: (tokens, dim).
    """
    vectors, expected = vectors.double(), expected.double()
    squares = torch.stack([(vectors - expected).square().sum(1), expected.square().sum(1)], 1)  # (tokens, 2)
    norms = squares.new_zeros(batch.rows, 2).index_add_(0, batch.row_of_token, squares).sqrt()  # (rows, 2)
    return float((norms[:, 0] / norms[:, 1].clamp(min=1e-12)).max())


def copy_without_hooks(module: Any, copies: dict[Any, Any] | None = None) -> Any:
    """The module in eval mode and without hooks, on the same weights; the module itself stays as it is."""
    copies = {} if copies is None else copies
    if module not in copies:
        copied = copies[module] = copy.copy(module)
        attributes = vars(copied)
        attributes.update({name: OrderedDict() for name in _HOOKS}, training=False, _buffers=dict(module._buffers))
        parts = module._modules.items()
        attributes["_modules"] = {n: None if part is None else copy_without_hooks(part, copies) for n, part in parts}
    return copies[module]
