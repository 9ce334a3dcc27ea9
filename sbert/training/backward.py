"""The only place between encoder and loss: encodes the unique texts, computes the loss, and adds the gradients."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.batch import TokenEmbeddings, move
from sbert.distributed.ranks import ALONE, Ranks
from sbert.inputs.devices import default_batch_tokens
from sbert.inputs.prompts import column_prompts
from sbert.losses.module import sum_parts
from sbert.losses.signature import Signature
from sbert.pipeline.batching import plan
from sbert.pipeline.progress import warn_of_unreadable
from sbert.pipeline.tokenize import Tokens

_Head = tuple[str, int | None, str]  # The prompt, the maximum length and the route of a column, if it has one.


@dataclass(frozen=True)
class TrainingBatch:
    """A tokenized batch: the unique texts of this rank's rows, and the labels of the rows of all ranks.

    Args:
        tokens: Tokens of the unique texts, those of one route after those of another.
        columns: For each row of this rank and each column, the index of its text among the unique texts.
        rows: Number of rows of all ranks.
        routes: The route of texts and their number, for each; empty for the model itself.
        extras: What the loss takes beside its columns, for the rows of all ranks: ``labels``, ``texts`` (an id for
            each text, equal for equal texts), ``guide`` (vectors of another model) and row data, by name.

    Shape:
        columns: (own rows, columns). labels: (rows,) or (rows, values). texts: (rows, columns).
        guide: (rows, columns, guide_dim).
    """

    tokens: Tokens
    columns: Tensor
    rows: int
    routes: list[tuple[str, int]]
    extras: dict[str, Any]

    @classmethod
    def of(
        cls,
        model: Any,
        texts: Sequence[tuple[Any, ...]],
        signature: Signature,
        labels: Tensor | None = None,
        *,
        deduplicate: bool = True,
        ranks: Ranks = ALONE,
        prompts: Sequence[str] | None = None,
        max_lengths: Sequence[int | None] | None = None,
        routes: Sequence[str] | None = None,
        row_data: Mapping[str, Tensor | list[Any]] = MappingProxyType({}),
    ) -> TrainingBatch:
        """Tokenize rows of texts.

        Args:
            model: The model, whose method ``tokens`` tokenizes texts.
            texts: One tuple per row, of texts or, for a cross-encoder, of pairs of texts; all of the same length,
                unless the loss takes ``mask``, which is then False where a row ends before the longest one.
            signature: The signature of the loss.
            labels: Labels of the rows, if the loss takes them.
            deduplicate: Whether to encode a text that occurs in several rows only once. A text that occurs twice in
                one row is always encoded twice, for two dropout views (SimCSE); the second views are shared, too.
            ranks: The processes that share the batch; this one encodes its own rows.
            prompts: The text before each column, or one for all columns; by default none.
            max_lengths: The maximum number of tokens of each column; None for that of the model.
            routes: The route of each column, of a model with a ``Router``; by default, its default route.
            row_data: What the loss takes beside the texts and labels: the data of the rows of all ranks, by name.

        Raises:
            ValueError: If row data is missing; or if the model has a default prompt, and ``prompts`` does not say which
                columns use it.
        """
        if prompts is None:
            names = signature.names(1 if model.is_cross_encoder else len(texts[0]))
            prompts = column_prompts(model, None, [(name,) for name in names])
        counts = np.fromiter(map(len, texts), np.int64, len(texts))
        mask = np.arange(counts.max()) < counts[:, None]  # (rows, columns)
        if not mask.all() and "mask" not in signature.extras:
            raise ValueError(f"rows have {counts.min()} to {counts.max()} texts, and {signature.name} takes no mask")
        if missing := set(signature.row_data).difference(row_data):
            raise ValueError(f"{signature.name} takes {min(missing)!r}, which is missing in row_data={list(row_data)}")
        # A rank without rows encodes a row as well, so that all ranks take the same steps.
        rows = texts[ranks.rank :: ranks.world] or texts[:1]
        none = [None] * len(prompts)
        heads = list(zip(prompts, max_lengths or none, routes or [""] * len(prompts), strict=True))
        tokens, positions, parts = _tokenize(model, rows, heads, deduplicate)
        if unreadable := int(tokens.unreadable.sum()):
            warn_of_unreadable(unreadable, len(tokens.unreadable), model._warned, "training texts")
        extras: dict[str, Any] = dict(row_data)
        if labels is not None:
            extras["labels"] = labels
        if "mask" in signature.extras:
            extras["mask"] = torch.from_numpy(mask)
            extras |= {} if labels is None else {"labels": labels[:, : len(mask[0])]}
        if "texts" in signature.extras:
            extras["texts"] = torch.tensor([[_text_id(text) for text in row] for row in texts])
        of_rank = mask[ranks.rank :: ranks.world]
        columns = np.zeros_like(of_rank, np.int64)  # Padding is the first text.
        columns[of_rank] = positions[: of_rank.sum()]
        return cls(tokens, torch.from_numpy(columns), len(texts), parts, extras)

    def to(self, device: torch.device) -> TrainingBatch:
        """Move the columns and extras to a device; the tokens are moved later, chunk by chunk."""
        if self.columns.device == device:
            return self
        extras = {
            name: move(value, device) if isinstance(value, Tensor) else value for name, value in self.extras.items()
        }
        return replace(self, columns=move(self.columns, device), extras=extras)


def _tokenize(
    model: Any, rows: Sequence[tuple[Any, ...]], heads: list[_Head], deduplicate: bool
) -> tuple[Tokens, npt.NDArray[np.int64], list[tuple[str, int]]]:
    """The tokens of the unique texts of rows, for each text of the rows its index among them, and their routes.

    Texts are tokenized together that have the same prompt, maximum length and route, their head.
    """
    # By head, each unique text, how often it has occurred in its row before, and its index.
    groups: dict[_Head, dict[tuple[Any, int], int]] = {}
    slots: list[tuple[_Head, int]] = []
    for row in rows:
        seen: list[tuple[Any, Any]] = []
        for head, text in zip(heads * len(row) if len(heads) == 1 else heads, row, strict=True):
            group = groups.setdefault(head, {})
            number = seen.count((head, text)) if deduplicate else len(group)
            seen.append((head, text))
            slots.append((head, group.setdefault((text, number), len(group))))
    parts, starts, start, counts = [], {}, 0, dict[str, int]()
    for head in sorted(groups, key=itemgetter(2)):
        (prompt, length, route), group = head, groups[head]
        encoder = model.route(route) if route else model
        more = {} if length is None else {"max_length": length}  # A cross-encoder takes none.
        parts.append(encoder.tokens(list(map(itemgetter(0), group)), prompt, **more))
        starts[head] = start
        start += len(group)
        counts[route] = counts.get(route, 0) + len(group)
    positions = np.array([starts[head] + place for head, place in slots])
    return parts[0] if len(parts) == 1 else Tokens.join(parts), positions, list(counts.items())


def _text_id(text: str) -> int:
    """An id of 64 bits, the same for the same text in every process."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def backward(
    model: nn.Module,
    loss: Callable[..., Tensor],
    batch: TrainingBatch,
    *,
    chunk_tokens: int | None = None,
    cached: bool = False,
    dtype: torch.dtype = torch.float32,
    weight: float = 1.0,
    scaler: torch.amp.GradScaler | None = None,
    ranks: Ranks = ALONE,
    last_pass: AbstractContextManager[object] | None = None,
    parts: dict[str, float] | None = None,
) -> Tensor:
    """Compute the loss of a batch, and add its gradient to the gradient of every parameter.

    Each unique text is encoded once. Its vector is a leaf of the graph of the loss, so autograd adds up the gradients
    from all rows with this text. With gradient caching, chunks of texts are encoded without a graph first, and again
    with a graph once the gradient at their vectors is known: the result is the same, in the memory of one chunk. With
    several ranks, the loss sees the rows of all ranks, and the vectors of other ranks are constants; the sum of the
    gradients of all ranks (``GradientBuckets(parameters, ranks).finish()``) is the gradient of the whole batch.

    Args:
        model: A model from a ``TokenBatch`` to vectors.
        loss: A function of the columns' vectors and the batch's extras.
        batch: The batch, on the model's device.
        chunk_tokens: Maximum number of tokens in one forward pass; by default a value that suits the device.
        cached: Whether to use gradient caching, which encodes each chunk twice to save memory.
        dtype: Autocast dtype of the model.
        weight: Factor of this batch's gradient, for gradient accumulation.
        scaler: Scales the gradients, for float16; its ``unscale_`` is called before they are clipped.
        ranks: The processes that share this batch.
        last_pass: Context of the last backward pass, after which the gradients are complete.
        parts: Where the values of the parts go, by name, if the loss returns a dict of them; its value is their sum.

    Returns:
        The value of the loss, detached, the same on all ranks. Shape: ().

    Raises:
        ValueError: If the loss does not return a scalar tensor that depends on the vectors.

    References:
        Gao et al., 2021, Scaling deep contrastive learning batch size, section 3 (caching).
        https://arxiv.org/abs/2101.06983

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.losses.signature import Signature
        >>> from sbert.training.backward import TrainingBatch, backward
        >>> def loss(anchor, positive): return (anchor - positive).square().sum()
        >>> encoder = SentenceEncoder()
        >>> batch = TrainingBatch.of(encoder, [("A cat.", "A kitten.")], Signature.of(loss))
        >>> backward(encoder, loss, batch).shape
        torch.Size([])
    """
    device = batch.columns.device
    chunks, encoders, position = _plan(model, loss, batch, chunk_tokens)
    cached = cached and len(chunks) > 1
    autocast = torch.autocast(device.type, dtype) if dtype != torch.float32 else nullcontext()

    def encode(run: Callable[..., Any], rows: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor | None]:
        with autocast:
            vectors, lengths = _vectors(run(batch.tokens.batch(rows).to(device)))
        return vectors.float() if vectors.dtype.itemsize < 4 else vectors, lengths

    sizes: list[int] = []
    states: list[list[Tensor]] = []
    outputs: list[Tensor | None] = []
    lengths: list[Tensor] = []
    leaf = torch.empty(0)
    with torch.set_grad_enabled(not cached):
        for run, rows in zip(encoders, chunks, strict=True):
            states.append(get_random_state(device) if cached else [])
            part, of_texts = encode(run, rows)
            if not sizes:  # One tensor for all chunks, since many small ones would fragment memory.
                most = len(position) if of_texts is None else len(batch.tokens.ids)
                leaf = part.detach().new_empty(most, part.shape[1])  # (texts or tokens, dim)
            lengths += [] if of_texts is None else [of_texts]
            leaf[sum(sizes) : sum(sizes) + len(part)] = part.detach()
            sizes.append(len(part))
            outputs.append(None if cached else part)
    leaf = leaf[: sum(sizes)].requires_grad_()
    columns = _columns(leaf, lengths, position[batch.columns], ranks, batch.rows)
    value = sum_parts(loss(*columns, **batch.extras), parts)
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        name, kind = getattr(loss, "__name__", type(loss).__name__), repr(value)[:60]
        raise ValueError(f"{name} returned {kind}; return a scalar tensor that is computed from the columns' vectors")
    torch.autograd.backward(value * weight if scaler is None else scaler.scale(value * weight))

    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    passes: list[AbstractContextManager[object]] = [*[nullcontext()] * (len(chunks) - 1), last_pass or nullcontext()]
    of_chunks = torch.split(gradient, sizes)
    for run, rows, state, output, of_chunk, context in zip(
        encoders, chunks, states, outputs, of_chunks, passes, strict=True
    ):
        if output is None:
            present = get_random_state(device)
            set_random_state(state, device)
            output, _ = encode(run, rows)
            set_random_state(present, device)
        if output.requires_grad:
            with context:
                torch.autograd.backward(output, of_chunk)
    return value.detach()


def _vectors(output: Tensor | TokenEmbeddings) -> tuple[Tensor, Tensor | None]:
    """The vectors that a model gives, and of those of tokens the number in each text."""
    return (output, None) if isinstance(output, Tensor) else (output.values, output.lengths)


def _columns(vectors: Tensor, lengths: list[Tensor], texts: Tensor, ranks: Ranks, rows: int) -> Sequence[Any]:
    """The columns of the rows of all ranks.

    Args:
        vectors: Those of the unique texts, or of their tokens.
        lengths: The number of tokens of the texts; empty for vectors of texts.
        texts: The text of each row of this rank and each column.
        ranks: The processes that share the batch.
        rows: Number of rows of all ranks.

    Shape:
        vectors: (texts or tokens, dim). texts: (own rows, columns). Output: (rows, dim) or TokenEmbeddings for each.
    """
    if not lengths:
        columns = vectors[texts]  # (own rows, columns, dim)
        return (ranks.gather(columns, rows) if ranks.world > 1 else columns).unbind(1)
    tokens = TokenEmbeddings(vectors, F.pad(torch.cat(lengths).cumsum(0), (1, 0)))
    if ranks.world == 1:
        return list(map(tokens.select, texts.unbind(1)))
    # With padding, as all ranks send tensors of one shape.
    longest = ranks.all_max(tokens.longest, vectors.device)
    padded = tokens.select(texts.flatten()).padded(longest=longest)[0].view(*texts.shape, longest, -1)
    values, counts = ranks.gather(padded, rows), ranks.gather(tokens.lengths[texts], rows)  # (rows, columns, ...)
    mask = torch.arange(longest, device=vectors.device) < counts[..., None]  # (rows, columns, longest)
    offsets = F.pad(counts.cumsum(0), (0, 0, 1, 0)).unbind(1)
    return [TokenEmbeddings(values[:, i][mask[:, i]], start) for i, start in enumerate(offsets)]


def _plan(
    model: Any, loss: Any, batch: TrainingBatch, chunk_tokens: int | None
) -> tuple[list[npt.NDArray[np.int64]], list[Callable[..., Tensor]], Tensor]:
    """The texts of each chunk, what encodes it, and the position of each text in all chunks together, (texts,).

    A chunk is encoded by the model, by the encoder of its route, or by the ``encode(model, batch)`` of the loss.
    """
    device, lengths = batch.columns.device, batch.tokens.lengths
    chunks: list[npt.NDArray[np.int64]] = []
    encoders: list[Callable[..., Tensor]] = []
    start = 0
    for route, count in batch.routes:
        encoder = model.route(route) if route else model
        parts = plan(lengths[start : start + count], chunk_tokens or default_batch_tokens(device))
        chunks += [start + rows for rows in parts]
        encoders += [partial(loss.encode, encoder) if hasattr(loss, "encode") else encoder] * len(parts)
        start += count
    return chunks, encoders, torch.from_numpy(np.argsort(np.concatenate(chunks))).to(device)


@torch.no_grad()
def compute_loss(
    model: nn.Module, loss: Callable[..., Tensor], batch: TrainingBatch, chunk_tokens: int | None
) -> float:
    """The loss of a batch on one rank, without a gradient; the arguments are those of ``backward``."""
    chunks, encoders, position = _plan(model, loss, batch, chunk_tokens)
    inputs = (batch.tokens.batch(rows).to(batch.columns.device) for rows in chunks)
    parts = [_vectors(encoder(tokens)) for encoder, tokens in zip(encoders, inputs, strict=True)]
    vectors, lengths = torch.cat([part.float() for part, _ in parts]), [size for _, size in parts if size is not None]
    columns = _columns(vectors, lengths, position[batch.columns], ALONE, batch.rows)
    return float(sum_parts(loss(*columns, **batch.extras)))


@contextmanager
def preserve_random_state(device: torch.device) -> Iterator[None]:
    """Restore the generators of Python, NumPy and torch at the end, so that the caller's numbers do not change."""
    python, numpy, states = random.getstate(), np.random.get_state(), get_random_state(device)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        set_random_state(states, device)


def get_random_state(device: torch.device) -> list[Tensor]:
    """The state of torch's generator on the host and, if there is another device, on that device."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        module: Any = torch.get_device_module(device)
        states.append(module.get_rng_state() if device.type == "mps" else module.get_rng_state(device))
    return states


def set_random_state(states: list[Tensor], device: torch.device) -> None:
    """Restore the states that ``get_random_state`` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        module: Any = torch.get_device_module(device)
        module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)
