"""An encoder as one module from padded tensors to vectors, which exporters can trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sbert.backends import accepts, huggingface, without_cache
from sbert.modules import Dense, Dropout, LayerNorm, Normalize, Pooling, Transformer
from sbert.saving.format import POOLING_KEYS


def _pool(tokens: Tensor, mask: Tensor, mode: str) -> Tensor:
    """One vector per text, as ``Pooling`` gives: (rows, dim) from (rows, longest, dim) and a mask of 0.0 and 1.0."""
    if mode == "max":
        return tokens.masked_fill(mask[:, :, None] == 0, -torch.inf).amax(1)
    positions = mask.cumsum(1) * mask  # (rows, longest): from 1 on, and 0 at padding.
    counts = mask.sum(1, keepdim=True).clamp(min=1)
    weights = {
        "cls": (positions == 1).to(mask.dtype),
        "mean": mask / counts,
        "mean_sqrt_len": mask / counts.sqrt(),
        "weightedmean": positions / positions.sum(1, keepdim=True).clamp(min=1),
        "lasttoken": (positions == counts).to(mask.dtype),
    }
    return (tokens * weights[mode][:, :, None]).sum(1)


class PaddedEncoder(nn.Module):
    """All modules of an encoder as one: from padded token ids to vectors.

    Args:
        model: An encoder that ``why_not`` has no reason against, on the CPU and in float32. Its transformer is used,
            and its attention set to the plain one, whose mask is finite: rows that see nothing give no NaN.

    Shape:
        Input: input_ids, attention_mask, and token_type_ids if ``inputs`` names them: (rows, longest) int64, padded on
        the right. Output: (rows, dim).
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        transformer, pooling, *rest = list[Any](model)
        self.network: Any = huggingface.merge_adapters(transformer.materialize())
        self.network.set_attn_implementation("eager")
        self.modes: tuple[str, ...] = pooling.modes
        self.rest: nn.Sequential = nn.Sequential(*rest)
        self.truncate_dim: int | None = model.truncate_dim
        typed = (getattr(self.network.config, "type_vocab_size", 0) or 0) > 1
        typed = typed and accepts(self.network, "token_type_ids")
        self.inputs: tuple[str, ...] = ("input_ids", "attention_mask", *(["token_type_ids"] if typed else []))
        self.eval().requires_grad_(False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        options = {**types, **without_cache(self.network)}
        tokens = self.network(input_ids=input_ids, attention_mask=attention_mask, **options).last_hidden_state
        tokens = tokens.masked_fill(attention_mask[:, :, None] == 0, 0)  # (rows, longest, dim)
        mask = attention_mask.to(tokens.dtype)
        pooled = torch.cat([_pool(tokens, mask, mode) for mode in self.modes], dim=1)  # (rows, modes * dim)
        pooled = pooled.masked_fill(attention_mask.sum(1, keepdim=True) == 0, 0)
        vectors: Tensor = self.rest(pooled)
        return vectors[:, : self.truncate_dim]


def why_not(model: Any) -> str | None:
    """Why an encoder cannot be exported, as far as its modules show; None if it can."""
    transformer, *rest = list[Any](model)
    if model.routes:
        return f"a Router is exported one route at a time; pass model.route({model.routes[-1]!r})"
    if type(transformer) is not Transformer:
        return f"{type(transformer).__name__} has a tokenization of its own; begin with a Transformer"
    if not transformer.tokenizer.is_fast:
        return f"{type(transformer.tokenizer).__name__} cannot be written to a tokenizer.json"
    kinds = [type(module) for module in rest]
    if kinds[:1] != [Pooling]:
        return f"a Pooling is expected after the Transformer, not {kinds[0].__name__ if kinds else 'the end'}"
    unknown = [kind.__name__ for kind in kinds[1:] if kind not in (Normalize, Dense, LayerNorm, Dropout)]
    unknown += [f"the pooling mode {mode!r}" for mode in rest[0].modes if mode not in POOLING_KEYS.values()]
    if unknown:
        return f"{unknown[0]} has no padded form"
    if not rest[0].include_prompt and any(model.prompts.values()):
        return "its pooling leaves the prompt out, and the exported model does not know where a prompt ends"
    return None
