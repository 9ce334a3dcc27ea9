"""Whether two ways to run a transformer give the same vectors: tried out once, on three short rows."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from sbert.backends import limits
from sbert.backends.architectures import describe
from sbert.backends.hooks import ALL
from sbert.backends.padded import Padded
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line

if TYPE_CHECKING:
    from sbert.backends.select import Backend

Made = TypeVar("Made", bound="Backend")
# The largest difference of a row's vectors, relative to their norm. Devices other than CPUs may be told to multiply
# float32 in TF32.
_HALF, _TF32 = 0.1, 1e-2
_CPU = {torch.float32: 1e-4, torch.float64: 1e-8}


def parity(
    make: Callable[[Any], Made],
    how: str,
    network: Any,
    device: torch.device,
    dtype: torch.dtype,
    limit: float | None = None,
) -> Made | str:
    """A backend that has given the vectors of the padded module, or the reason why it cannot run.

    Modes, hooks, gradients and random numbers stay as they are, whatever other threads do with the network.

    Args:
        make: Makes the backend of a network.
        how: How it runs, in words that follow "it fails".
        network: A Hugging Face model, or a minimal BERT.
        device: Of the network.
        dtype: Of the backend's arithmetic.
        limit: The largest gap, below the ``tolerance`` that is the default; there is no warning if it is exceeded, or
            if the vectors are not finite.
    """
    try:
        copied, batch = twin(network), probe(network, device)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            expected = Padded(copied).forward(batch)
            made = make(copied)
            found = made.forward(batch)
            difference = gap(found, expected, batch)
    except Exception as error:
        if not is_failure(error):
            raise
        reason = f"it fails {how} ({one_line(error)})"
        # A model that the library does not know may need padding; of others, it is a fault.
        return reason if isinstance(describe(network), str) else slower(network, reason)
    # From vectors that are not finite nothing can be concluded; encode repeats what leaves the range of float16.
    repeated = dtype == torch.float16 and limit is None
    finite = expected.isfinite().all() and (not repeated or found.isfinite().all())
    if difference <= (tolerance(dtype, device) if limit is None else limit) or not finite:
        return made
    reason = f"{how} its vectors differ by {difference:.1e} of their norm"
    return slower(network, reason) if limit is None else reason


def slower(network: Any, reason: str) -> str:
    """Warn that a network runs by a plainer backend than it should, and return the reason."""
    name = type(network).__name__
    warnings.warn(f"{name} runs by its plain, slower forward: {reason}; please report it", stacklevel=2)
    return reason


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """The largest gap by which two ways to compute in a dtype may differ on a device."""
    exact = _CPU.get(dtype, _HALF)
    return exact if device.type == "cpu" else max(exact, _TF32)


def probe(network: Any, device: torch.device) -> TokenBatch:
    """Rows of different lengths, most of whose tokens stand behind others that they must not attend to."""
    longest, vocab = min(40, limits.position_limit(network) or 40), limits.vocab_size(network) or 100
    return probe_of((max(1, longest // 4), 1, longest), vocab, device)


def probe_of(lengths: tuple[int, ...], vocab: int, device: torch.device, start: int = 3) -> TokenBatch:
    """Rows of these lengths; other tokens for another start."""
    return TokenBatch.from_rows([[(7 * i + start) % vocab for i in range(length)] for length in lengths]).to(device)


def gap(found: Tensor, expected: Tensor, batch: TokenBatch) -> float:
    """The largest difference of a row's vectors from the expected ones, relative to their norm.

    Shape:
        found, expected: (tokens, dim).
    """
    found, expected = found.double(), expected.double()
    squares = torch.stack([(found - expected).square().sum(1), expected.square().sum(1)], 1)  # (tokens, 2)
    norms = squares.new_zeros(batch.rows, 2).index_add_(0, batch.row_of_token, squares).sqrt()  # (rows, 2)
    return float((norms[:, 0] / norms[:, 1].clamp(min=1e-12)).max())


def twin(module: Any, made: dict[Any, Any] | None = None) -> Any:
    """The module in eval mode and without hooks, on the same weights; the module itself stays as it is."""
    made = {} if made is None else made
    if module not in made:
        copied = made[module] = copy.copy(module)
        state = vars(copied)
        state.update({name: OrderedDict() for name in ALL}, training=False, _buffers=dict(module._buffers))
        parts = module._modules.items()
        state["_modules"] = {name: None if part is None else twin(part, made) for name, part in parts}
    return made[module]
