"""Gradients are summed over ranks while the rest is computed, and are those that are summed afterwards."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.distributed import buckets as module
from sbert.distributed.buckets import GradientBuckets, sort_unused_first
from sbert.distributed.ranks import leave
from sbert.losses import MultipleNegativesRankingLoss
from sbert.training import Ranks, Signature, TrainingBatch, backward
from tests import small
from tests.training.helpers import pairs

ROWS = [(first, second) for first, second, _ in pairs(22)]
TINY = 2000  # Bytes of a bucket, so that there are many.


@functools.cache
def encoder() -> SentenceEncoder:
    torch.manual_seed(0)
    transformer = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    return SentenceEncoder(transformer, Pooling("mean"), device="cpu").train()


def sparse(model: SentenceEncoder) -> None:
    model[0].auto_model.get_input_embeddings().sparse = True


def half(model: SentenceEncoder) -> None:
    model.bfloat16()


def frozen(model: SentenceEncoder) -> None:
    for layer in model[0].auto_model.encoder.layer[:1]:
        layer.requires_grad_(False)


class OnOneRank(Pooling):
    """Multiplies by a weight on the second rank only; another weight has a gradient on none."""

    def __init__(self, rank: int) -> None:
        super().__init__("mean")
        self.rank = rank
        self.some = nn.Parameter(torch.full((16,), 0.5))
        self.none = nn.Parameter(torch.ones(16))

    def forward(self, tokens: Any) -> Tensor:
        pooled: Tensor = super().forward(tokens)
        return pooled * self.some if self.rank else pooled


def cosine(anchor: Tensor, positive: Tensor) -> Tensor:
    return 1 - torch.cosine_similarity(anchor, positive).mean()


# The loss, options of backward, and what is done to the model.
CASES: dict[str, tuple[Any, dict[str, Any], Callable[[SentenceEncoder], None]]] = {
    "plain": (cosine, {}, lambda model: None),
    "cached": (MultipleNegativesRankingLoss(), {"chunk_tokens": 40, "cached": True}, lambda model: None),
    "sparse": (cosine, {"chunk_tokens": 40, "cached": True}, sparse),
    "frozen": (cosine, {}, frozen),
    "on one rank": (cosine, {}, lambda model: None),
    "half": (cosine, {"chunk_tokens": 40}, half),
}


def gradients(name: str, ranks: Ranks, overlapping: bool) -> tuple[list[Tensor | None], list[int]]:
    """The gradients of all parameters, and how many of them the last pass still lacked whenever a bucket was sent."""
    loss, options, change = CASES[name]
    model = copy.deepcopy(encoder())
    if name == "on one rank":
        model = SentenceEncoder(model[0], OnOneRank(ranks.rank), device="cpu").train()
    change(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    tokens = model.tokens(["lake"]).batch(np.arange(1))
    summed, missing = GradientBuckets(sort_unused_first(trained, model(tokens), ranks), ranks), []
    send = summed._send

    def counted() -> None:
        missing.append(sum(map(len, summed._missing)))
        send()

    summed._send = counted  # type: ignore[method-assign]
    torch.manual_seed(ranks.rank)
    batch = TrainingBatch.of(model, ROWS, Signature.of(loss), ranks=ranks)
    for last in (False, True):  # Accumulated over two batches.
        context = summed.overlap() if last and overlapping else None
        backward(model, loss, batch, ranks=ranks, last_pass=context, weight=0.5, **options)
    summed.finish()
    return [parameter.grad for parameter in model.parameters()], missing


def on_a_rank(rank: int, folder: Path) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    ranks, module._BUCKET = Ranks.join(), TINY
    results = {name: [gradients(name, ranks, overlapping) for overlapping in (False, True)] for name in CASES}
    torch.save(results, folder / f"{rank}.pt")
    leave()


@pytest.mark.slow  # Two processes import torch; nothing less shows that they send the same buckets.
def test_two_ranks_have_the_gradients_of_a_sum_afterwards(tmp_path: Path) -> None:
    """Bit for bit, and the same on both ranks."""
    torch.multiprocessing.spawn(on_a_rank, (tmp_path,), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name in CASES:
        (expected, late), (overlapped, early) = first[name]
        others = [each for each, _ in second[name]]
        assert sum(each is not None for each in expected) > 10
        for a, *rest in zip(expected, overlapped, *others, strict=True):
            for b in rest:
                assert (a is None) == (b is None)
                assert a is None or torch.equal(a, b)
                assert b is None or not b.is_sparse
        assert len(early) == len(late)
        if name == "on one rank":
            assert overlapped[-2].abs().max() > 0
            assert overlapped[-1] is None
        else:
            assert early[0] > early[-1] + 5
            assert early[-1] < 5  # The pooler.


class Sums(Ranks):
    """Two ranks of which one is here; records what is sent while the gradient of some parameters is not known yet."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(0, 2)
        object.__setattr__(self, "events", [])
        object.__setattr__(self, "parameters", parameters)

    events: list[tuple[str, int]]
    parameters: list[nn.Parameter]

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        self.events.append(("sent", sum(parameter.grad is None for parameter in self.parameters)))
        tensor *= 2
        return lambda: self.events.append(("waited", 0))


class Layers(nn.Module):
    """Layers of the same size, one of which may be used twice, and one of which is not used."""

    def __init__(self, again: int | None = None, checkpointed: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.unused = nn.Linear(8, 8)
        self.order = [0, 1, 2, 3, 4, *([] if again is None else [again])]
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for number in self.order:
            layer = self.layers[number]
            x = checkpoint(layer, x, use_reentrant=True) if self.checkpointed else layer(x)
        return x


@contextmanager
def size_of_buckets(size: int) -> Iterator[None]:
    module._BUCKET, before = size, module._BUCKET
    try:
        yield
    finally:
        module._BUCKET = before


def one_pass(model: nn.Module, context: Callable[[GradientBuckets], AbstractContextManager[None]]) -> Sums:
    parameters = list(model.parameters())
    ranks = Sums(parameters)
    with size_of_buckets(8 * 8 * 4):
        summed = GradientBuckets(parameters, ranks)
    with context(summed):
        model(torch.ones(2, 8, requires_grad=True)).sum().backward()
    ranks.events.append(("backward", 0))
    summed.finish()
    return ranks


@pytest.mark.parametrize("again", [None, 0, 4])
def test_the_first_bucket_is_sent_before_the_last_gradient_exists(again: int | None) -> None:
    torch.manual_seed(0)
    model = Layers(again)
    del model.unused
    ranks = one_pass(model, GradientBuckets.overlap)
    kinds = [kind for kind, _ in ranks.events]
    sent = kinds.index("backward")
    assert kinds == ["sent"] * sent + ["backward"] + ["waited"] * sent
    assert ranks.events[0][1] > 0 or again == 4  # A layer that is used last and first holds up the buckets behind it.
    assert ranks.events[sent - 1][1] == 0
    expected = copy.deepcopy(model)
    expected.zero_grad()
    one_pass(expected, lambda summed: nullcontext())
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]


def test_a_parameter_without_gradient_holds_up_what_is_behind_it() -> None:
    """The order of the buckets does not depend on it, so that a rank that has the gradient sends the same ones."""
    model = Layers()
    ranks = one_pass(model, GradientBuckets.overlap)
    assert [kind for kind, _ in ranks.events[:1]] == ["backward"]
    assert model.unused.weight.grad is None


def test_no_hooks_are_left_or_made_for_one_process() -> None:
    model = Layers()
    one_pass(model, GradientBuckets.overlap)
    summed = GradientBuckets(model.parameters(), Ranks())
    with summed.overlap():
        assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    summed.finish()


def test_a_gradient_that_is_computed_twice_is_an_error() -> None:
    """Reentrant checkpoints run a backward pass of their own for each use of a layer."""
    model = Layers(again=0, checkpointed=True)
    del model.unused
    model.order = [4, 0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match=r"shape \(8,?.*computed twice.*use_reentrant=False"):
        one_pass(model, GradientBuckets.overlap)


def test_buckets_hold_one_dtype() -> None:
    parameters = [nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float32)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    GradientBuckets(parameters, Sums(parameters)).finish(mean=True)
    for parameter in parameters:
        assert parameter.grad is not None
        assert parameter.grad.dtype == parameter.dtype
        assert parameter.grad.tolist() == [0.5] * 3
