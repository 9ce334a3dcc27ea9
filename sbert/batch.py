"""Rows of tokens stored end to end, without padding: the data that flows between the modules of an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

# What is computed from the lengths of the rows, and stays the same for other values in the same rows.
_OF_ROWS = frozenset(("rows", "groups", "text_size", "offsets_int32", "position_of_token", "row_of_token"))
# What is computed in inference mode serves gradients, too, later.
_in_any_mode = torch.inference_mode(False)
# Bytes to a multiple of which the parts of one copy are aligned, for kernels that read several numbers at once.
_ALIGNED = 16
# Marks of tokens: the vector of one is left out; to another, no other token attends.
DROPPED, HIDDEN = 1, 2
# Devices with streams: copies from and to pinned memory need not be waited for. Elsewhere they might be read too early.
_STREAMS = ("cuda", "xpu")


def move(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a tensor to a device. Copies from CPU to GPU are asynchronous, through pinned memory."""
    if torch.device(device).type in _STREAMS and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def move_together(tensors: Mapping[str, Tensor], device: torch.device | str) -> dict[str, Tensor]:
    """Copy vectors of integers to a device with streams: one asynchronous copy through one piece of pinned memory.

    torch keeps pinned memory for reuse, and does not reuse it before its copy has happened.
    """
    words = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED // 8 for tensor in tensors.values()]
    host = torch.empty(sum(words), dtype=torch.int64, pin_memory=True)
    array, start = host.numpy(), 0
    for tensor, size in zip(tensors.values(), words, strict=True):
        source = tensor.numpy()
        array[start : start + size].view(source.dtype)[: len(source)] = source
        start += size
    moved: tuple[Tensor, ...] = host.to(device, non_blocking=True).split(words)  # type: ignore[no-untyped-call]
    return {
        name: (part if tensor.dtype == part.dtype else part.view(tensor.dtype))[: len(tensor)]
        for (name, tensor), part in zip(tensors.items(), moved, strict=True)
    }


def start_to_host(tensor: Tensor) -> tuple[Tensor, Callable[[], object]]:
    """Start to copy a tensor to the host. The copy has its values after the function was called."""
    if tensor.device.type not in _STREAMS:
        return tensor.cpu(), lambda: None
    module: Any = torch.get_device_module(tensor.device)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    done = module.Event()
    done.record(module.current_stream(tensor.device))
    return host, done.synchronize


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths, stored end to end without padding.

    Row i is ``values[offsets[i] : offsets[i + 1]]``.

    Args:
        values: One entry per token.
        offsets: Index of the first token of each row, then the number of tokens.
        longest: Number of tokens of the longest row. Default: computed from ``offsets``.
        prompt_tokens: Number of leading tokens of each row that belong to a prompt; None without a prompt.

    Shape:
        values: (tokens, ...). offsets: (rows + 1,). prompt_tokens: (rows,).
    """

    values: Tensor
    offsets: Tensor
    longest: int = -1
    prompt_tokens: Tensor | None = None

    def __post_init__(self) -> None:
        if self.longest < 0:
            object.__setattr__(self, "longest", int(self.lengths.max()) if self.rows else 0)

    @cached_property  # Read by each layer.
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Number of tokens in each row. Shape: (rows,)."""
        return self.offsets.diff()

    @cached_property
    def groups(self) -> list[tuple[int, int]]:
        """Runs of consecutive rows of equal length, as (rows, tokens per row). Empty rows are left out."""
        if self.rows == 1:
            return [(1, len(self.values))] if len(self.values) else []
        runs = groupby(self.lengths.tolist())
        return [(len(list(run)), length) for length, run in runs if length]

    @cached_property
    def text_size(self) -> tuple[int, int]:
        """Number of tokens after the prompts, in all rows and in the longest of them."""
        if self.prompt_tokens is None:
            return len(self.values), self.longest
        behind = self.lengths - self.prompt_tokens
        return int(behind.sum()), int(behind.max()) if self.rows else 0

    @cached_property
    @_in_any_mode
    def offsets_int32(self) -> Tensor:
        """The offsets as kernels for rows of variable length take them. Shape: (rows + 1,)."""
        return self.offsets.to(torch.int32)

    @cached_property
    @_in_any_mode
    def row_of_token(self) -> Tensor:
        """Index of each token's row. Shape: (tokens,)."""
        rows = torch.arange(self.rows, device=self.offsets.device)
        return rows.repeat_interleave(self.lengths, output_size=len(self.values))

    @cached_property
    @_in_any_mode
    def position_of_token(self) -> Tensor:
        """Position of each token in its row, from 0. Shape: (tokens,)."""
        tokens = torch.arange(len(self.values), device=self.offsets.device)
        if self.rows == 1:
            return tokens
        return tokens - self.offsets[:-1].repeat_interleave(self.lengths, output_size=len(self.values))

    @property
    def slot_of_token(self) -> Tensor:
        """Index of each token in the flattened padded matrix. Shape: (tokens,)."""
        return self.row_of_token * self.longest + self.position_of_token

    def select(self, rows: Tensor) -> TokenEmbeddings:
        """Rows in another order; one may be selected several times. Shape of ``rows``: (selected rows,)."""
        return self._cut(self.offsets[:-1][rows], self.lengths[rows])

    def _cut(self, starts: Tensor, lengths: Tensor, tokens: int | None = None, longest: int = -1) -> TokenEmbeddings:
        """Rows of so many tokens each, from so many tokens on. Shape of both: (rows,)."""
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        moved = (starts - offsets[:-1]).repeat_interleave(lengths, output_size=tokens)
        positions = torch.arange(len(moved), device=offsets.device) + moved  # (tokens,)
        return TokenEmbeddings(self.values[positions], offsets, longest)

    def padded(self, fill: float = 0, *, rows: int | None = None, longest: int | None = None) -> tuple[Tensor, Tensor]:
        """The rows as one matrix, padded on the right.

        Args:
            fill: Value at padding.
            rows: Number of rows of the matrix. Default: the number of rows.
            longest: Number of columns of the matrix. Default: the length of the longest row.

        Returns:
            The values, (rows, longest, ...), and a boolean mask, (rows, longest), true at tokens.
        """
        shape = (self.rows if rows is None else rows, self.longest if longest is None else longest)
        slots = self.row_of_token * shape[1] + self.position_of_token
        size = shape[0] * shape[1]
        values = self.values.new_full((size, *self.values.shape[1:]), fill)
        mask = torch.zeros(size, dtype=torch.bool, device=self.values.device)
        values = values.index_copy(0, slots, self.values)
        mask[slots] = True
        return values.view(*shape, *self.values.shape[1:]), mask.view(shape)

    def to(self, device: torch.device | str) -> Self:
        """The same rows on another device."""
        if torch.device(device) == self.values.device == self.offsets.device:
            return self
        contents = {field.name: vars(self)[field.name] for field in fields(self)}
        tensors = {name: value for name, value in contents.items() if isinstance(value, Tensor)}
        if torch.device(device).type not in _STREAMS or self.offsets.device.type != "cpu" or self.values.ndim > 1:
            moved = {name: move(tensor, device) for name, tensor in tensors.items()}
        else:
            computed = {name: getattr(self, name) for name in ("offsets_int32", "position_of_token")}
            moved = move_together(tensors | computed, device)
        # Computed where the rows were: of the copy it would take kernels, and a synchronization with the GPU.
        return self._replace({**moved, "groups": self.groups, "text_size": self.text_size})

    def _replace(self, values: Mapping[str, Any]) -> Self:
        """The same rows with other tensors, and cached properties that are known already."""
        names = {field.name for field in fields(self)}
        rows = replace(self, **{name: value for name, value in values.items() if name in names})
        vars(rows).update(values)
        return rows


@dataclass(frozen=True, eq=False)
class TokenBatch(Ragged):
    """Token ids of several texts, or pairs of texts: the input of the first module of an encoder.

    Args:
        types: Which text of its pair each token belongs to, 0 or 1; None for single texts, and for models that do
            not ask for it.
        marks: ``DROPPED``, ``HIDDEN`` or 0 for each token; None if there are none.

    Shape:
        ids, types, marks: (tokens,) int64. offsets: (rows + 1,). prompt_tokens: (rows,).

    Example:
        >>> from sbert import TokenBatch
        >>> batch = TokenBatch.from_rows([[101, 7592, 102], [101, 102]])
        >>> batch.ids.tolist(), batch.offsets.tolist(), batch.longest
        ([101, 7592, 102, 101, 102], [0, 3, 5], 3)
        >>> ids, mask = batch.padded(fill=0)
        >>> ids.tolist()
        [[101, 7592, 102], [101, 102, 0]]
    """

    types: Tensor | None = None
    marks: Tensor | None = None

    @property
    def ids(self) -> Tensor:
        """Token ids. Shape: (tokens,)."""
        return self.values

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], prompt_tokens: int | None = None) -> TokenBatch:
        """Concatenate rows of token ids.

        Args:
            rows: Token ids, one sequence per text.
            prompt_tokens: Number of leading tokens of every row that belong to the prompt.
        """
        lengths = torch.tensor(list(map(len, rows)), dtype=torch.int64)
        ids = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.int64)
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        prompt = None if prompt_tokens is None else lengths.clamp(max=prompt_tokens)
        return cls(ids, offsets, max(map(len, rows), default=0), prompt)

    def embeddings(self, values: Tensor, head: Any = None) -> TokenEmbeddings:
        """Combine token vectors, (tokens, dim), with the row structure of this batch; ``DROPPED`` ones are left out."""
        if self.marks is not None:
            chosen = self.marks != DROPPED
            return TokenEmbeddings(values[chosen], F.pad(chosen.cumsum(0), (1, 0))[self.offsets])
        tokens = TokenEmbeddings(values, self.offsets, self.longest, self.prompt_tokens, head=head)
        known = _OF_ROWS & vars(self).keys()
        vars(tokens).update(zip(known, map(vars(self).get, known), strict=True))
        return tokens


@dataclass(frozen=True, eq=False)
class TokenEmbeddings(Ragged):
    """One vector per token: the input of a pooling.

    Args:
        skipped: Number of leading tokens removed from each row; None if none were removed.
        head: Maps vectors to the logits of a language model, (tokens, dim) to (tokens, vocabulary), if the model has
            such a head: ``Pooling("splade")`` calls it for some tokens at a time.

    Shape:
        values: (tokens, dim). offsets: (rows + 1,). prompt_tokens, skipped: (rows,).

    Example:
        >>> import torch
        >>> from sbert import TokenEmbeddings
        >>> tokens = TokenEmbeddings(torch.eye(3), torch.tensor([0, 2, 3]))
        >>> tokens.rows, tokens.lengths.tolist()
        (2, [2, 1])
    """

    skipped: Tensor | None = None
    head: Any = None

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, rows: slice) -> TokenEmbeddings:
        return self.select(torch.arange(self.rows, device=self.device)[rows])

    @property
    def device(self) -> torch.device:
        """Device of the vectors."""
        return self.values.device

    def without_prompt(self) -> TokenEmbeddings:
        """The tokens after the prompt of each row."""
        if self.prompt_tokens is None:
            return self
        starts, lengths = self.offsets[:-1] + self.prompt_tokens, self.lengths - self.prompt_tokens
        return replace(self._cut(starts, lengths, *self.text_size), skipped=self.prompt_tokens, head=self.head)
