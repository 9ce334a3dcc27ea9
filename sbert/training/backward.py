"""The one place between encoder and loss: unique texts forward, the loss on their vectors, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.inputs.prompts import column_prompts
from sbert.losses.signature import Signature
from sbert.pipeline.batching import plan, unique
from sbert.pipeline.devices import default_batch_tokens
from sbert.pipeline.ranks import ALONE, Ranks
from sbert.pipeline.tokenize import PromptedTokens, Tokens


@dataclass(frozen=True)
class TrainingBatch:
    """A batch of rows: the texts of this rank's rows, each once, and what all ranks know of the batch.

    Args:
        tokens: Of the unique texts.
        columns: Which of them stands where in this rank's rows.
        rows: Of all ranks.
        extras: What the loss takes beside columns: ``labels``, ``texts`` (a number for each text, the same for the
            same text), ``guide`` (vectors of another model), for the rows of all ranks.

    Shape:
        columns: (own rows, columns). labels: (rows,) or (rows, numbers). texts: (rows, columns).
        guide: (rows, columns, dim).
    """

    tokens: Tokens
    columns: Tensor
    rows: int
    extras: dict[str, Tensor]

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
    ) -> TrainingBatch:
        """Lay out rows of texts.

        Args:
            model: Makes tokens of texts, with its method ``tokens``.
            texts: One tuple a row, all of one length, of texts or of pairs of them, as the model reads.
            signature: Of the loss.
            labels: Of the rows.
            deduplicate: Whether a text that stands in several rows is encoded once. One that stands twice in a row is
                encoded twice, for two dropout views of it: its second place in any row is that of its second view.
            ranks: Which of the rows this process encodes.
            prompts: The text that stands before the texts of each column; none where it is not given.

        Raises:
            ValueError: If the model has a default prompt, and ``prompts`` does not say which columns it is for.
        """
        if prompts is None:
            prompts = column_prompts(model, None, [(name,) for name in signature.names(len(texts[0]))])
        own = texts[ranks.rank :: ranks.world]
        encoded = own or texts[:1]  # A rank without rows encodes something all the same.
        rows = [list(zip(prompts, row, strict=True)) for row in encoded]
        # Each text with its prompt, and how often both stand before it in its row.
        flat = [(pair, row[:place].count(pair)) for row in rows for place, pair in enumerate(row)]
        places = np.arange(len(flat))
        if deduplicate:
            flat, _, places = unique(flat)
        tokens, places = _tokens(model, [pair for pair, _ in flat], places)
        tokens.unknown.tell(model._told, "training texts")
        extras: dict[str, Tensor] = {}
        if labels is not None:
            extras["labels"] = labels
        if "texts" in signature.extras:
            extras["texts"] = torch.tensor([[_number(text) for text in row] for row in texts])
        columns = torch.from_numpy(places[: len(own) * len(texts[0])]).view(len(own), len(texts[0]))
        return cls(tokens, columns, len(texts), extras)

    def to(self, device: torch.device) -> TrainingBatch:
        """The same batch with the columns and extras on a device; tokens follow chunk by chunk."""
        extras = {name: value.to(device, non_blocking=True) for name, value in self.extras.items()}
        return TrainingBatch(self.tokens, self.columns.to(device, non_blocking=True), self.rows, extras)


def _tokens(model: Any, flat: list[tuple[str, Any]], places: np.ndarray) -> tuple[Tokens, np.ndarray]:
    """Tokens of texts with their prompts, and where what stood at a place stands among them."""
    different = list(dict.fromkeys(prompt for prompt, _ in flat))
    if different == [""]:  # Also for a model of pairs, which has no prompts.
        return model.tokens([text for _, text in flat]), places
    rows = [[row for row, (own, _) in enumerate(flat) if own == prompt] for prompt in different]
    parts = [model.tokens([flat[row][1] for row in of], prompt) for prompt, of in zip(different, rows, strict=True)]
    moved = np.argsort(np.concatenate(rows))
    return parts[0] if len(parts) == 1 else PromptedTokens.joined(parts), moved[places]


def _number(text: str) -> int:
    """The same for the same text in every process."""
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
    ranks: Ranks = ALONE,
    replicated: bool = True,
) -> Tensor:
    """The value of a loss on a batch, its gradient added to every parameter's.

    The vectors of the unique texts are leaves that the columns index into, so that autograd adds up the gradients
    of a text that stands in several rows. Cached, chunks of texts go forward without a graph, and once more with
    one when the gradient at their vectors is known: the same gradient, in the memory of one chunk. On several
    ranks the loss sees the rows of all, of which others' are constants; the sum of all ranks' gradients, which
    ``Ranks.reduce`` makes, is that of the whole batch.

    Args:
        model: From a ``TokenBatch`` to vectors.
        loss: Of the columns' vectors and the batch's extras.
        batch: The rows, on the model's device.
        chunk_tokens: Tokens that go through the model at once; by default what suits the device.
        cached: Whether chunks are encoded twice, to save memory.
        dtype: Of the arithmetic in the model.
        weight: Of this batch's gradient, among others that are added up.
        ranks: The processes that encode this batch together.
        replicated: False if the model's weights are spread over the ranks: its own hooks then take the mean of the
            gradients, and every rank must take as many chunks as the others.

    Returns:
        The loss's value without gradient, the same on all ranks. Shape: ().

    Raises:
        TypeError: If the loss returns no scalar tensor.
        ValueError: If its value does not depend on anything that is trained.

    References:
        Gao et al., 2021, Scaling deep contrastive learning batch size, section 3 (caching).
        https://arxiv.org/abs/2101.06983

    Example:
        >>> def loss(anchor, positive): return (anchor - positive).square().sum()
        >>> encoder = SentenceEncoder(minilm)
        >>> batch = TrainingBatch.of(encoder, [("A cat.", "A kitten.")], Signature.of(loss))
        >>> backward(encoder, loss, batch).shape
        torch.Size([])
    """
    device = batch.columns.device
    chunks = plan(batch.tokens.lengths, chunk_tokens or default_batch_tokens(device))
    place = torch.from_numpy(np.argsort(np.concatenate(chunks))).to(device)  # Of each text among the chunks'.
    if not replicated:
        # A rank with fewer chunks takes part in the others' with a text whose vector is not used.
        chunks += [np.zeros(1, np.int64)] * (ranks.all_max(len(chunks), device) - len(chunks))
    cached = cached and len(chunks) > 1
    autocast = torch.autocast(device.type, dtype) if dtype != torch.float32 else nullcontext()

    def vectors(rows: np.ndarray) -> Tensor:
        with autocast:
            result: Tensor = model(batch.tokens.batch(rows).to(device))
        return result.float() if result.dtype.itemsize < 4 else result

    sizes = [len(rows) for rows in chunks]
    outputs, states, leaf = [], [], torch.empty(0)
    with torch.set_grad_enabled(not cached):
        for start, rows in zip(np.cumsum([0, *sizes]).tolist(), chunks, strict=False):
            states.append(random_state(device) if cached else [])
            output = vectors(rows)
            if start == 0:  # One block for all: small ones among those that come and go would break memory up.
                leaf = output.detach().new_empty(sum(sizes), output.shape[1])
            leaf[start : start + len(output)] = output.detach()
            if not cached:
                outputs.append(output)
    leaf.requires_grad_()  # In the order of the chunks.
    columns = ranks.gather(leaf[place[batch.columns]], batch.rows)  # (rows, columns, dim)
    value = loss(*columns.unbind(1), **batch.extras)
    _check(value, loss)
    torch.autograd.backward(value * weight)

    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    if not replicated:
        gradient *= ranks.world
    pieces = torch.split(gradient, sizes)
    if not cached:
        live = [output.requires_grad for output in outputs]
        torch.autograd.backward(list(compress(outputs, live)), list(compress(pieces, live)))
        return value.detach()
    for rows, state, piece in zip(chunks, states, pieces, strict=True):
        with _replayed(state, device):
            again = vectors(rows)
        if again.requires_grad:
            torch.autograd.backward(again, piece)
    return value.detach()


def _check(value: object, loss: object) -> None:
    name = getattr(loss, "__name__", type(loss).__name__)
    if not isinstance(value, Tensor) or value.ndim:
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{name} returns {found}; return a scalar tensor, such as a mean")
    if not value.requires_grad:
        raise ValueError(f"the value of {name} does not depend on the columns' vectors; compute it from them")


def random_state(device: torch.device) -> list[Tensor]:
    """Where torch's random numbers stand, on the host and on a device."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        module: Any = torch.get_device_module(device)
        states.append(module.get_rng_state() if device.type == "mps" else module.get_rng_state(device))
    return states


def set_random_state(states: list[Tensor], device: torch.device) -> None:
    """Put back what ``random_state`` gave."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        module: Any = torch.get_device_module(device)
        module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


@contextmanager
def _replayed(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Random numbers from a state on; afterwards they go on as if nothing had happened."""
    now = random_state(device)
    set_random_state(states, device)
    try:
        yield
    finally:
        set_random_state(now, device)
