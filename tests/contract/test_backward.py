"""Every loss: plain = deduplicated = cached = two ranks = two ranks cached, value and gradients."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert import Dense, LateInteraction, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.distributed.buckets import GradientBuckets
from sbert.distributed.ranks import Ranks
from sbert.losses.signature import Signature
from sbert.training.backward import TrainingBatch, backward
from tests import small
from tests.contract.losses import LOSSES as ALL
from tests.contract.losses import Row
from tests.modules.test_splade import model_of
from tests.training.helpers import run_two_ranks

# One of each loss, its columns and labels: other settings change its formula alone. Those of one score are compared in
# tests/training/test_cross_encoders.py.
LOSSES = [
    *{(row.name.split("-")[0], row.columns, row.labels, row.of_tokens): row for row in ALL if row.dim is None}.values()
]

SPARSE = [row for row in ALL if row.name.startswith("SpladeLoss")]  # Of a sparse encoder, too.

BATCH = 6
# Chunks so small that a batch makes several, and a chunk of one text is among them.
CHUNK = 24


@functools.cache
def encoder(of_tokens: bool = False) -> SentenceEncoder:
    """A BERT of one layer in float64, with dropout in training mode."""
    transformer = Transformer(small.bert_model(layers=1), small.wrapped(small.wordpiece(), 64))
    if of_tokens:  # Some of which are dropped, and others hidden.
        roles = LateInteraction(8, 10, document_prefix="lake", skiplist_words=["a"])
        torch.manual_seed(5)
        return SentenceEncoder(transformer, Dense(16, 8), Normalize(), roles).double().eval()
    return SentenceEncoder(transformer, Pooling("mean")).double().eval()


def token_encoder() -> SentenceEncoder:
    return encoder(of_tokens=True)


CASES = [*((row, token_encoder if row.of_tokens else encoder) for row in LOSSES), *((row, model_of) for row in SPARSE)]


def texts(columns: int) -> list[tuple[str, ...]]:
    """Rows of texts of unlike lengths, some of which stand in two columns, in two rows, or twice in one.

    No two rows have the same texts: rounding would decide which of their distances is the greater.
    """
    words = small.CORPUS[1].split()
    lengths = [[1 + (3 * row + row // 5 + 5 * column) % 10 for column in range(columns)] for row in range(BATCH)]
    rows = [[" ".join(words[:length]) for length in row] for row in lengths]
    rows[2][0], rows[3][columns - 1], rows[4][columns - 1] = rows[0][0], rows[1][0], rows[4][0]
    return [tuple(row) for row in rows]


def labels(row: Row, dim: int = 16) -> Tensor | None:
    found = row.labels(BATCH, dim, torch.Generator().manual_seed(1))
    return found if found is None or found.dtype == torch.int64 else found.double()


def loss_of(row: Row) -> Any:
    torch.manual_seed(2)
    made = row.make(16)
    return made.double() if isinstance(made, nn.Module) else made


def gradients(row: Row, model: SentenceEncoder, deduplicate: bool = True, **options: Any) -> tuple[Tensor, Tensor]:
    """The loss's value, and the gradients of all weights as one vector: the model's, then the loss's."""
    model, loss = copy.deepcopy(model), loss_of(row)
    ranks = options.get("ranks", Ranks())
    row_data = row.row_data(BATCH, torch.Generator().manual_seed(4))
    given: dict[str, Any] = {"deduplicate": deduplicate, "ranks": ranks, "row_data": row_data}
    given |= {"routes": ["query", *["document"] * (row.columns - 1)]} if row.of_tokens else {}
    batch = TrainingBatch.of(model, texts(row.columns), Signature.of(loss), labels(row), **given)
    torch.manual_seed(3)
    value = backward(model, loss, batch, **options)
    GradientBuckets(model.parameters(), ranks).finish(mean=False)
    weights = list(model.parameters())
    if isinstance(loss, nn.Module):
        GradientBuckets(loss.parameters(), ranks).finish(mean=True)
        weights += list(loss.parameters())
    grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
    return value, torch.cat([grad.flatten() for grad in grads])


def same(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(a[0], b[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(a[1], b[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("row", LOSSES[::6], ids=str)  # It is a matter of chunks, whatever the loss.
def test_cached_is_the_same_with_dropout(row: Row) -> None:
    training = copy.deepcopy(encoder(row.of_tokens)).train()
    plain = gradients(row, training, chunk_tokens=CHUNK)
    same(gradients(row, training, chunk_tokens=CHUNK, cached=True), plain)
    without = gradients(row, encoder(row.of_tokens), chunk_tokens=CHUNK)
    assert (without[1] - plain[1]).abs().max() > 1e-6  # There was dropout.


@pytest.fixture(scope="module")
def from_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Of all losses, in one start of two processes; the first writes what came out."""
    path = tmp_path_factory.mktemp("ranks") / "found.pt"
    encoder(), encoder(True)  # Made once, with what they import.

    def work(rank: int) -> None:
        ranks = Ranks.join()
        assert ranks == Ranks(rank, 2)
        found = [
            [gradients(row, make(), chunk_tokens=CHUNK, cached=cached, ranks=ranks) for cached in (False, True)]
            for row, make in CASES
        ]
        if rank == 0:
            torch.save(found, path)

    run_two_ranks(work)
    found: list[Any] = torch.load(path)
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{row}-{make.__name__}" for row, make in CASES])
def test_plain_deduplicated_cached_and_two_ranks_are_the_same(number: int, from_two_ranks: list[Any]) -> None:
    """Plain: no text is shared, and all are in one chunk. Nothing but two processes shows what ranks exchange."""
    row, make = CASES[number]
    plain = gradients(row, make(), deduplicate=False, chunk_tokens=10_000)
    assert plain[1].abs().max() > 1e-4
    for options in ({"chunk_tokens": 10_000}, {"chunk_tokens": CHUNK}, {"chunk_tokens": CHUNK, "cached": True}):
        same(gradients(row, make(), **options), plain)
    for result in from_two_ranks[number]:
        same(result, plain)


def one(anchor: Tensor, positive: Tensor) -> Tensor:
    return (anchor - positive).square().mean()


TWICE = [("a small boat", "a small boat"), ("a small boat", "lake"), ("lake", "lake")]


def test_a_text_twice_in_one_row_is_two_dropout_views() -> None:
    """Across rows, each view is encoded once: two of the boat, two of the lake."""
    training = copy.deepcopy(encoder()).train()
    assert backward(training, one, TrainingBatch.of(training, TWICE[:1], Signature.of(one))) > 1e-4
    batch = TrainingBatch.of(training, TWICE, Signature.of(one))
    assert batch.columns.tolist() == [[0, 1], [0, 2], [2, 3]]
    assert len(batch.tokens.lengths) == 4
    assert TrainingBatch.of(training, TWICE, Signature.of(one), ranks=Ranks(1, 2)).columns.tolist() == [[0, 1]]
    assert TrainingBatch.of(training, TWICE, Signature.of(one), deduplicate=False).columns.max() == 5


@pytest.mark.parametrize("result", [torch.ones(2), 1.0, torch.tensor(1.0)], ids=["vector", "float", "constant"])
def test_what_is_no_loss(result: Any) -> None:
    def loss(anchor: Tensor, positive: Tensor) -> Any:
        return result

    model = copy.deepcopy(encoder())
    with pytest.raises(ValueError, match=r"loss returned .*; return a scalar tensor that is computed from the columns"):
        backward(model, loss, TrainingBatch.of(model, texts(2), Signature.of(loss)))
