"""What a network takes: positions, token ids and arguments, of a Hugging Face model or a minimal BERT."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn


def position_table(network: nn.Module) -> nn.Embedding | None:
    """The table of positions of a network, which are counted from its padding index if it has one."""
    for name, part in network.named_children():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            return part
        # Read for every batch; the table precedes the list of layers.
        table = None if isinstance(part, nn.ModuleList) else position_table(part)
        if table is not None:
            return table
    return None


def position_limit(network: nn.Module) -> int | None:
    """Maximum number of tokens of a network with a table of positions; None without a table.

    RoBERTa-family models count positions from padding_idx + 1 and cannot use the rows before.
    """
    table = position_table(network)
    if table is None:
        return None
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def vocab_size(network: Any) -> int | None:
    """Number of tokens in the embedding table of a network; None without a table."""
    try:
        table = network.get_input_embeddings()
    except NotImplementedError:
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


def default_limit(network: Any, tokenizer: Any) -> int | None:
    """Longest input in tokens: the minimum of the tokenizer, the configuration and the positions."""
    configured = getattr(network.config, "max_position_embeddings", None)
    stated = (tokenizer.model_max_length, configured, position_limit(network))
    # Without a limit, tokenizers have 10**30 and configurations -1.
    return min((limit for limit in stated if isinstance(limit, int) and 0 < limit < 10**9), default=None)


def check_limit(network: nn.Module, length: int | None, least: int) -> int | None:
    """The length, if the network supports inputs of so many tokens; for None, the maximum.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than ``least``, or exceeds the positions of the network.
    """
    positions = position_limit(network)
    if length is None:
        return positions
    if isinstance(length, bool) or not isinstance(length, int):
        raise TypeError(f"max_seq_length is {length!r}; pass a number of tokens or None")
    if length < least:
        raise ValueError(f"max_seq_length={length} leaves no room for text; pass at least {least}")
    if positions is not None and length > positions:
        raise ValueError(
            f"max_seq_length={length} exceeds the {positions} positions of the model; pass at most {positions}"
        )
    return length


def accepts(network: nn.Module, name: str) -> bool:
    """Whether the forward of a network has an argument of this name."""
    return name in inspect.signature(network.forward).parameters


def without_cache(network: nn.Module) -> dict[str, Any]:
    """Options of a forward that does not return keys and values for a next token."""
    return {"use_cache": False} if accepts(network, "use_cache") else {}
