"""A Hugging Face transformer without padding: all texts of a batch as one row, and attention that keeps them apart."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.backends.attention import attend
from sbert.batch import TokenBatch

# Under this name transformers knows our attention.
NAME = "sbert_packed"
# What other models add to the scores, and ``attend`` does not.
_FOREIGN = ("softcap", "s_aux", "position_bias", "head_mask")
# What layers may be: others, such as convolutions, would reach from one text into the next.
_LAYERS = {"full_attention", "sliding_attention"}


@cache
def register() -> None:
    """Make our attention known to transformers, once in each process."""
    huggingface.imported("AttentionInterface").register(NAME, _attention)
    masks = huggingface.imported("sdpa_mask", "transformers.masking_utils")
    huggingface.imported("AttentionMaskInterface").register(NAME, masks)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention within the rows of a batch; that of torch where a caller of the Hugging Face model has his own mask.

    Shape:
        query, key, value: (1, heads, tokens, dim). Output: (1, tokens, heads, dim).
    """
    rows: TokenBatch | None = options.get("sbert_rows")
    if rows is None:
        # The model that calls has imported it long ago.
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return result
    foreign = [name for name in _FOREIGN if options.get(name) is not None]
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
    """A batch that remembers how far attention was told to look, layer by layer."""

    @cached_property
    def windows(self) -> list[int | None]:
        return []


def adopt(model: Any) -> None:
    """Replace a transformer's attention by ours, where that is possible and the caller has not chosen another."""
    register()
    if model.config._attn_implementation == "sdpa" and _foreign(model) is None:
        model.set_attn_implementation(NAME)


def unsupported(model: Any) -> str | None:
    """Why a transformer cannot run without padding, from what it says of itself; None where it may."""
    attention = model.config._attn_implementation
    return _foreign(model) or (None if attention == NAME else f"its attention is set to {attention!r}")


def _foreign(model: Any) -> str | None:
    """Why our attention cannot replace that of a transformer."""
    name = type(model).__name__
    if not getattr(model, "_supports_attention_backend", False):
        return f"{name} brings its own attention"
    layers = sorted(set(getattr(model.config, "layer_types", None) or ()) - _LAYERS)
    if layers:
        return f"{name} has layers of {layers[0]}"
    return None if huggingface.accepts(model, "position_ids") else f"{name} takes no positions"


def hidden_states(model: Any, batch: TokenBatch) -> Tensor:
    """The last layer's vectors of all tokens. Shape: (tokens, dim)."""
    padding = huggingface.position_padding(model)
    # A mask of four dimensions is passed on as it is: no other is built. Where somebody used it, all would be NaN.
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
    """The position of each token in its text, as the model counts. Shape: (tokens,).

    RoBERTa-family models count from ``padding + 1`` on; the padding token in a text has position ``padding``, and is
    not counted.
    """
    places = batch.position_of_token
    if padding is None or not len(batch.ids):
        return places
    counted = (batch.ids != padding).long()
    before = counted.cumsum(0) - counted  # (tokens,)
    return (before - before[batch.offsets[batch.row_of_token]] + 1) * counted + padding
