"""A Hugging Face transformer without padding: a batch is one row, and attention separates the texts."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.backends.attention import attend
from sbert.batch import TokenBatch

# Name of this attention in transformers.
NAME = "sbert_packed"
# Modifications of the scores that ``attend`` does not support.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias", "head_mask")
# Supported types of layers: others, such as convolutions, would mix neighbouring texts.
_LAYERS = {"full_attention", "sliding_attention"}


@cache
def register() -> None:
    """Register this attention in transformers, once per process."""
    huggingface.imported("AttentionInterface").register(NAME, _attention)
    masks = huggingface.imported("sdpa_mask", "transformers.masking_utils")
    huggingface.imported("AttentionMaskInterface").register(NAME, masks)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention within the rows of a batch; that of torch if the Hugging Face model was called with another mask.

    Shape:
        query, key, value: (1, heads, tokens, dim). Output: (1, tokens, heads, dim).
    """
    rows: TokenBatch | None = options.get("sbert_rows")
    if rows is None:
        # Already imported by the model.
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return result
    foreign = [name for name in _UNSUPPORTED if options.get(name) is not None]
    if foreign:
        raise NotImplementedError(f"attention with {foreign[0]} needs padding")
    causal = options.get("is_causal")
    size = options.get("sliding_window")  # Both sides count the token itself.
    if isinstance(rows, Probe):
        rows.windows.append(size)
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))  # (tokens, heads, dim)
    mixed = attend(
        query,
        key,
        value,
        rows,
        scale=options.get("scaling"),
        dropout=options.get("dropout", 0.0),
        causal=getattr(module, "is_causal", True) if causal is None else causal,
        window=(-1, -1) if size is None else (size - 1, size - 1),
    )
    return mixed[None], None


class Probe(TokenBatch):
    """A batch that records the attention window of each layer."""

    @cached_property
    def windows(self) -> list[int | None]:
        return []


def adopt(model: Any) -> None:
    """Set the attention of a transformer to this one, unless it is not supported or the caller has chosen another."""
    register()
    if model.config._attn_implementation == "sdpa" and _foreign(model) is None:
        model.set_attn_implementation(NAME)


def unsupported(model: Any) -> str | None:
    """Why a transformer cannot run without padding, from its class and configuration; None if it may."""
    attention = model.config._attn_implementation
    return _foreign(model) or (None if attention == NAME else f"its attention is set to {attention!r}")


def _foreign(model: Any) -> str | None:
    """Why this attention cannot replace that of a transformer."""
    name = type(model).__name__
    if not getattr(model, "_supports_attention_backend", False):
        return f"{name} has its own attention"
    layers = sorted(set(getattr(model.config, "layer_types", None) or ()) - _LAYERS)
    if layers:
        return f"{name} has layers of {layers[0]}"
    return None if huggingface.accepts(model, "position_ids") else f"{name} takes no positions"


def hidden_states(model: Any, batch: TokenBatch) -> Tensor:
    """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
    padding = huggingface.position_padding(model)
    # A mask with four dimensions is passed on unchanged. It is not used: if it were, all outputs would be NaN.
    unused = torch.full((1, 1, 1, 1), torch.nan, dtype=model.dtype, device=batch.ids.device)
    types = {} if batch.types is None else {"token_type_ids": batch.types[None]}
    output = model(
        input_ids=batch.ids[None],
        attention_mask=unused,
        position_ids=positions(batch, padding)[None],
        sbert_rows=batch,
        **types,
        **huggingface.without_cache(model),
    )
    states: Tensor = output.last_hidden_state[0]
    return states


def positions(batch: TokenBatch, padding: int | None) -> Tensor:
    """Position of each token in its text, as the model counts. Shape: (tokens,).

    RoBERTa-family models count from ``padding + 1`` on; the padding token in a text has position ``padding``, and is
    not counted.
    """
    places = batch.position_of_token
    if padding is None or not len(batch.ids):
        return places
    counted = (batch.ids != padding).long()
    before = counted.cumsum(0) - counted  # (tokens,)
    return (before - before[batch.offsets[batch.row_of_token]] + 1) * counted + padding
