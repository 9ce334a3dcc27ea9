"""Pooling: from one vector per token to one vector per text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from sbert.batch import TokenEmbeddings
from sbert.functional import accumulation_dtype, segment_sum
from sbert.inputs.arguments import known_arguments
from sbert.modules.registry import check_free

# Tokens whose logits are computed at a time, at most, unless one row has more: 30 MB of a vocabulary of 30,000 words.
_TOKENS = 256
_Function = TypeVar("_Function", bound=Callable[[TokenEmbeddings], Tensor])


def _mean(tokens: TokenEmbeddings) -> Tensor:
    return segment_sum(tokens.values, tokens.offsets, mean=True)


def _mean_sqrt_len(tokens: TokenEmbeddings) -> Tensor:
    lengths = tokens.lengths.clamp(min=1)[:, None]  # (rows, 1), so that an empty row gives zeros and not NaN.
    return segment_sum(tokens.values, tokens.offsets) / lengths.to(accumulation_dtype(tokens.values.dtype)).sqrt()


def _weighted_mean(tokens: TokenEmbeddings) -> Tensor:
    # Weights are 1, 2, … from the first token of the text, including the tokens of a prompt that is left out.
    weights = tokens.position_of_token + 1  # (tokens,)
    if tokens.skipped is not None:
        weights = weights + tokens.skipped[tokens.row_of_token]
    weights = weights.to(accumulation_dtype(tokens.values.dtype))
    total = segment_sum(weights[:, None], tokens.offsets)  # (rows, 1)
    return segment_sum(tokens.values, tokens.offsets, weights) / total.clamp(min=1)


def _max(tokens: TokenEmbeddings) -> Tensor:
    values, _ = tokens.padded(fill=-torch.inf)  # (rows, longest, dim)
    if tokens.longest == 0:
        return values.new_zeros(tokens.rows, values.shape[2])
    return values.amax(1).masked_fill(tokens.lengths[:, None] == 0, 0)


def _splade(tokens: TokenEmbeddings) -> Tensor:
    """The maximum comes first, as log(1 + relu(x)) grows with x. Logits are computed for some rows at a time."""
    if tokens.head is None:
        largest = _max(tokens)
    else:
        lengths = [length for rows, length in tokens.groups for _ in range(rows)]
        step = max(1, _TOKENS // max(1, tokens.longest))
        blocks = [lengths[start : start + step] for start in range(0, len(lengths), step)]
        parts = []
        for sizes, states in zip(blocks, torch.split(tokens.values, list(map(sum, blocks))), strict=True):
            # Of each x, (tokens of the row, vocabulary); autograd would keep it for the gradient of amax.
            parts += [x.max(0).values if x.requires_grad else x.amax(0) for x in tokens.head(states).split(sizes)]
        largest = torch.stack(parts) if parts else tokens.head(tokens.values)
        zeros = largest.new_zeros(tokens.rows, largest.shape[1])  # Of rows without tokens.
        largest = zeros.index_copy(0, tokens.lengths.nonzero()[:, 0], largest)
    return largest.to(accumulation_dtype(largest.dtype)).relu().log1p()


def _at(tokens: TokenEmbeddings, positions: Tensor) -> Tensor:
    """The tokens at ``positions`` (rows,); zeros for an empty row."""
    if len(tokens.values) == 0:
        return tokens.values.new_zeros(tokens.rows, tokens.values.shape[1])
    chosen = tokens.values[positions.clamp(0, len(tokens.values) - 1)]  # (rows, dim)
    return chosen.masked_fill(tokens.lengths[:, None] == 0, 0)


POOLINGS: dict[str, Callable[[TokenEmbeddings], Tensor]] = {
    "cls": lambda tokens: _at(tokens, tokens.offsets[:-1]),
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda tokens: _at(tokens, tokens.offsets[1:] - 1),
    "splade": _splade,
    "splade_log1p": lambda tokens: _splade(tokens).log1p(),
}


def register_pooling(name: str) -> Callable[[_Function], _Function]:
    """Register a pooling function under a name, by which ``Pooling`` finds it and folders save it.

    The function has to be registered before a model with it is loaded: import the file that defines it.

    Args:
        name: Name of the mode.

    Shape:
        Input of the function: TokenEmbeddings of (tokens, dim). Output: (rows, dim).

    Raises:
        ValueError: If another mode has this name.

    Example:
        >>> import torch
        >>> from torch import Tensor
        >>> from sbert import Pooling, TokenEmbeddings, register_pooling
        >>> from sbert.functional import segment_sum
        >>> from sbert.modules.pooling import POOLINGS
        >>> @register_pooling("sum")
        ... def total(tokens: TokenEmbeddings) -> Tensor:
        ...     return segment_sum(tokens.values, tokens.offsets)
        >>> tokens = TokenEmbeddings(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3]))
        >>> Pooling("sum")(tokens)
        tensor([[4.],
                [5.]])
        >>> _ = POOLINGS.pop("sum")  # Only this example needs it.
    """

    def register(function: _Function) -> _Function:
        check_free("pooling mode", name, function, POOLINGS)
        POOLINGS[name] = function
        return function

    return register


class Pooling(nn.Module):
    """Compute one vector per text from the vectors x_1 … x_n of its tokens.

        mean           (x_1 + … + x_n) / n
        max            the maximum of each dimension
        cls            x_1
        mean_sqrt_len  (x_1 + … + x_n) / sqrt(n)
        weightedmean   (1 x_1 + 2 x_2 + … + n x_n) / (1 + 2 + … + n)
        lasttoken      x_n
        splade         log(1 + max(0, l_1, …, l_n)), where l are the logits of a language model's head
        splade_log1p   log(1 + splade)

    The last two give sparse vectors, and take a ``Transformer`` with a head: a dimension is a word of its vocabulary.
    Several modes are concatenated in the order of their list. A text without tokens gets zeros. ``register_pooling``
    adds modes.

    Args:
        mode: One of the names above, or a list of them.
        include_prompt: Whether to include the tokens of the prompt.

    Shape:
        Input: TokenEmbeddings of (tokens, dim). Output: (rows, modes * dim), float32 or better.

    Raises:
        ValueError: If a mode is unknown.

    References:
        Reimers and Gurevych, 2019, section 3 (mean, max, cls). https://arxiv.org/abs/1908.10084
        Muennighoff, 2022, section 4.1 (weightedmean). https://arxiv.org/abs/2202.08904
        Formal et al., 2021, SPLADE v2, equation 5 (splade). https://arxiv.org/abs/2109.10086
        Geng et al., 2025, section 3 (splade_log1p). https://arxiv.org/abs/2504.14839

    Example:
        >>> import torch
        >>> from sbert import Pooling, TokenEmbeddings
        >>> tokens = TokenEmbeddings(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3]))
        >>> Pooling(["mean", "max"])(tokens)
        tensor([[2., 3.],
                [5., 5.]])
    """

    @known_arguments
    def __init__(self, mode: str | Sequence[str] = "mean", include_prompt: bool = True) -> None:
        super().__init__()
        if isinstance(mode, int):
            raise TypeError(f"Pooling({mode}) takes its dimension from the vectors; pass the mode, as Pooling('mean')")
        self.modes: tuple[str, ...] = (mode,) if isinstance(mode, str) else tuple(mode)
        if not self.modes or not POOLINGS.keys() >= set(self.modes):
            known = ", ".join(POOLINGS)
            raise ValueError(f"pooling mode {mode!r} is unknown; pass one or more of {known}, or use register_pooling")
        self.include_prompt: bool = include_prompt

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are sparse."""
        return len(self.modes) == 1 and self.modes[0].startswith("splade")

    def forward(self, tokens: TokenEmbeddings) -> Tensor:
        if not self.include_prompt:
            tokens = tokens.without_prompt()
        pooled = POOLINGS[self.modes[0]](tokens)  # (rows, dim)
        if len(self.modes) > 1:
            pooled = torch.cat([pooled, *(POOLINGS[mode](tokens) for mode in self.modes[1:])], dim=1)
        return pooled.to(torch.promote_types(tokens.values.dtype, torch.float32))  # (rows, modes * dim)

    def extra_repr(self) -> str:
        return f"{'+'.join(self.modes)}, include_prompt={self.include_prompt}"
