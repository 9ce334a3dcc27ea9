"""The head of a masked language model, and the largest logit of each text, of which sparse vectors are made."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.batch import TokenEmbeddings

# Logits that are computed at a time: those of all tokens of a batch, (tokens, vocabulary), take gigabytes.
_LOGITS = 1 << 23
# Runs of rows of equal length, as (rows, tokens per row).
_Runs = list[tuple[int, int]]


class LanguageModelHead(nn.Module):
    """What maps the token vectors of a masked language model to the logits of its vocabulary.

        logits = W norm(f(V x + c)) + b

    Args:
        dense: V and c.
        activation: f.
        norm: The layer normalization.
        decoder: W and b. W is the table of token embeddings, in most models.

    Shape:
        Input: (tokens, dim). Output: (tokens, vocabulary).

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from sbert.modules.language_model import LanguageModelHead
        >>> head = LanguageModelHead(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 100))
        >>> head(torch.zeros(2, 4)).shape
        torch.Size([2, 100])
    """

    def __init__(self, dense: nn.Module, activation: nn.Module, norm: nn.Module, decoder: nn.Linear) -> None:
        super().__init__()
        self.dense: nn.Module = dense
        self.activation: nn.Module = activation
        self.norm: nn.Module = norm
        self.decoder: nn.Linear = decoder

    def forward(self, states: Tensor) -> Tensor:
        return self.decoder(self._transform(states))  # type: ignore[no-any-return]

    def _transform(self, states: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(states)))  # type: ignore[no-any-return]

    def max_logits(self, tokens: TokenEmbeddings) -> Tensor:
        """The largest logit of each row and word, without those of all tokens in memory; 0 for a row without tokens.

        Shape:
            Output: (rows, vocabulary).
        """
        weight, bias = self.decoder.weight, self.decoder.bias
        if not len(tokens.values):
            return weight.new_zeros(tokens.rows, len(weight))
        states = self._transform(tokens.values)
        if torch.is_grad_enabled() and (states.requires_grad or weight.requires_grad):
            best: Tensor = _MaxLogits.apply(states, weight, bias, tokens.groups)
        else:
            best = torch.cat([part.amax(1) for part, _ in _logits(states, weight, bias, tokens.groups)])
        if len(best) == tokens.rows:
            return best
        return best.new_zeros(tokens.rows, len(weight)).index_copy(0, tokens.lengths.nonzero()[:, 0], best)


class _MaxLogits(torch.autograd.Function):
    """The largest logits of each row, with a gradient of as many products as there are words of which it is not zero.

    The gradient of a largest logit reaches the vector of one token alone, and relu passes that of positive ones: a
    sparse matrix (tokens, vocabulary), whose products take a small part of the time of dense ones.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, groups: _Runs) -> Tensor:
        values, tokens = [], []
        for part, start in _logits(states, weight, bias, groups):
            largest = part.max(1)  # (rows, vocabulary)
            first = start + part.shape[1] * torch.arange(len(part), device=part.device)
            values.append(largest.values)
            tokens.append(largest.indices + first[:, None])
        ctx.save_for_backward(states, weight, torch.cat(tokens))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        states, weight, tokens = ctx.saved_tensors
        gradient = gradients[0].to(weight.dtype)  # (rows, vocabulary)
        rows, words = gradient.nonzero(as_tuple=True)
        values = gradient[rows, words]
        places = torch.stack([tokens[rows, words], words])
        matrix = torch.sparse_coo_tensor(places, values, (len(states), len(weight))).coalesce()
        of_states = torch.sparse.mm(matrix, weight).to(states.dtype)
        of_weight = torch.sparse.mm(matrix.t(), states.to(weight.dtype))
        of_bias = values.new_zeros(len(weight)).index_add(0, words, values) if ctx.needs_input_grad[2] else None
        return of_states, of_weight, of_bias, None


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None, groups: _Runs) -> Iterator[tuple[Tensor, int]]:
    """The logits of some rows of equal length, (rows, tokens per row, vocabulary), and the number of tokens before."""
    start = 0
    for block in _blocks(groups, max(1, _LOGITS // len(weight))):
        sizes = [rows * length for rows, length in block]
        logits = F.linear(states[start : start + sum(sizes)], weight, bias)  # (tokens of the block, vocabulary)
        for (rows, length), part in zip(block, logits.split(sizes), strict=True):
            yield part.view(rows, length, -1), start
            start += rows * length


def _blocks(groups: _Runs, size: int) -> Iterator[_Runs]:
    """Runs of rows, divided into blocks of about so many tokens.

    Example:
        >>> from sbert.modules.language_model import _blocks
        >>> list(_blocks([(3, 4), (1, 20), (1, 2)], 8))
        [[(2, 4)], [(1, 4)], [(1, 20)], [(1, 2)]]
    """
    lengths = np.repeat([length for _, length in groups], [rows for rows, _ in groups]).astype(np.int64)
    numbers = (lengths.cumsum() - 1) // size
    for _, block in groupby(zip(numbers.tolist(), lengths.tolist(), strict=True), itemgetter(0)):
        yield [(len(list(run)), length) for length, run in groupby(map(itemgetter(1), block))]
