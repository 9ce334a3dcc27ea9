"""A Hugging Face transformer without padding: a batch is one row, and attention separates the texts."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.backends.attention import attend
from sbert.backends.backend import Backend
from sbert.backends.minimal_bert import BertModel
from sbert.backends.network import accepts, position_table, without_cache
from sbert.batch import TokenBatch

# Name of this attention in transformers.
NAME = "sbert_packed"
# Modifications of the scores that ``attend`` does not support.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias", "head_mask")
# Supported types of layers: others, such as convolutions, would mix neighbouring texts.
_LAYERS = {"full_attention", "sliding_attention"}


class Packed(Backend):
    """The Hugging Face module, with an attention that keeps to the texts of the batch.

    Args:
        network: A Hugging Face model that was given this attention by ``adopt``.
    """

    name: ClassVar[str] = "packed"
    how: ClassVar[str] = "without padding"

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why a transformer needs padding, from its class and configuration; None if it may do without."""
        if device.type == "mps":
            return "MPS compiles for each shape, so batches are padded to few shapes"
        reason = _foreign(network)
        attention = None if reason else network.config._attn_implementation
        return reason or (None if attention == NAME else f"its attention is set to {attention!r}")

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        network = self._network
        table = position_table(network)
        windows: list[int | None] = []  # Of each layer.
        # A mask with four dimensions is passed on unchanged. It is not used: if it were, all outputs would be NaN.
        unused = torch.full((1, 1, 1, 1), torch.nan, dtype=network.dtype, device=batch.ids.device)
        output = network(
            input_ids=batch.ids[None],
            attention_mask=unused,
            position_ids=positions(batch, None if table is None else table.padding_idx)[None],
            sbert_rows=batch,
            sbert_windows=windows,
            **({} if batch.types is None else {"token_type_ids": batch.types[None]}),
            **without_cache(network),
        )
        if not any(windows) and _has_windows(network.config):  # Short texts do not show it.
            raise NotImplementedError("it does not tell its attention how far to look")
        states: Tensor = output.last_hidden_state[0]
        return states


@cache
def register() -> None:
    """Register this attention in transformers, once per process."""
    huggingface.import_from("AttentionInterface").register(NAME, _attention)
    masks = huggingface.import_from("sdpa_mask", "transformers.masking_utils")
    huggingface.import_from("AttentionMaskInterface").register(NAME, masks)


def adopt(network: Any, backend: str = "auto") -> None:
    """Set the attention of a transformer to this one, unless it is not supported or the caller has chosen another.

    Args:
        network: A Hugging Face model, which may come from another process; a minimal BERT has no need of it.
        backend: ``"plain"`` to set it back to that of torch.
    """
    if isinstance(network, BertModel):
        return
    register()
    before, after = (NAME, "sdpa") if backend == "plain" else ("sdpa", NAME)
    if network.config._attn_implementation == before and (backend == "plain" or _foreign(network) is None):
        network.set_attn_implementation(after)


def _foreign(network: Any) -> str | None:
    """Why this attention cannot replace that of a transformer."""
    name = type(network).__name__
    if not getattr(network, "_supports_attention_backend", False):
        return f"{name} has its own attention"
    layers = sorted(set(getattr(network.config, "layer_types", None) or ()) - _LAYERS)
    if layers:
        return f"{name} has layers of {layers[0]}"
    return None if accepts(network, "position_ids") else f"{name} takes no positions"


def _has_windows(config: Any) -> bool:
    """Whether a configuration promises layers that attend within a window."""
    layers = getattr(config, "layer_types", None)
    return "sliding_attention" in layers if layers else bool(getattr(config, "sliding_window", None))


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

        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    foreign = [name for name in _UNSUPPORTED if options.get(name) is not None]
    if foreign:
        raise NotImplementedError(f"attention with {foreign[0]} needs padding")
    causal, window = options.get("is_causal"), options.get("sliding_window")
    if causal is False and window:  # Where a decoder is told to see both sides, the masks count one token more.
        window += 1
    options["sbert_windows"].append(window)
    # Under autocast, models that normalize queries and keys do so in float32.
    query, key, value = (x[0].transpose(0, 1).to(value.dtype) for x in (query, key, value))  # (tokens, heads, dim)
    causal = getattr(module, "is_causal", True) if causal is None else causal
    scale, dropout = options.get("scaling"), options.get("dropout", 0.0)
    return attend(query, key, value, rows, scale=scale, dropout=dropout, causal=causal, window=window)[None], None


def positions(batch: TokenBatch, padding: int | None) -> Tensor:
    """Position of each token in its text, as the model counts. Shape: (tokens,).

    RoBERTa-family models count from ``padding + 1`` on; the padding token in a text has position ``padding``, and is
    not counted.
    """
    if padding is None or not len(batch.ids):
        return batch.position_of_token
    counted = (batch.ids != padding).long()
    before = counted.cumsum(0) - counted  # (tokens,)
    return (before - before[batch.offsets[batch.row_of_token]] + 1) * counted + padding
