"""Any transformer on padded batches: the plain way to run one, by which all other ways are judged."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sbert.backends import huggingface
from sbert.batch import TokenBatch


def hidden_states(network: Any, batch: TokenBatch) -> Tensor:
    """The last layer's vectors of all tokens. Shape: (tokens, dim)."""
    padding, vocab = getattr(network.config, "pad_token_id", None) or 0, huggingface.vocab_size(network)
    if vocab is not None and padding >= vocab:
        padding = 0  # No token attends to it.
    rows, longest = batch.rows, batch.longest
    if batch.ids.device.type == "mps":
        rows, longest = bucket(rows, longest, huggingface.position_limit(network))
    ids, mask = batch.padded(fill=padding, rows=rows, longest=longest)
    full = len(batch.ids) == mask.numel()
    if not full:
        # Attention over nothing is NaN, which would reach the gradients: an empty row attends to its padding.
        mask[:, 0] = True
    attention_mask = None if full else mask.long()
    hidden: Tensor = network(
        input_ids=ids, attention_mask=attention_mask, **huggingface.without_cache(network)
    ).last_hidden_state  # (rows, longest, dim)
    return hidden.flatten(0, 1)[batch.row_of_token * longest + batch.position_of_token]


def bucket(rows: int, longest: int, limit: int | None) -> tuple[int, int]:
    """A batch's shape rounded up, for devices that compile for each shape anew: few shapes, and little padding.

    Example:
        >>> bucket(rows=5, longest=33, limit=512)
        (8, 64)
    """
    multiple = -(-longest // 32) * 32
    return 1 << (rows - 1).bit_length(), multiple if limit is None else max(longest, min(multiple, limit))
