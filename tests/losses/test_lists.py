"""Losses of lists, against sentence-transformers and plain loops; and their masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert.losses import LambdaLoss, ListMLELoss, ListNetLoss, LocalizedContrastiveLoss, RankNetLoss, ScoreMarginMSELoss
from sbert.losses.checks import Data

COUNTS = [5, 1, 3, 4]  # Documents of each query.
MASK = torch.arange(5) < torch.tensor(COUNTS)[:, None]


def sample(binary: bool = False) -> tuple[Tensor, Tensor]:
    """Scores and grades, some of them equal, in no order; padding holds senseless numbers."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(2 if binary else 4, (4, 5), generator=generator).double()
    return scores.masked_fill(~MASK, 1e6).requires_grad_(), labels.masked_fill(~MASK, -7.0)


class Reader:
    """Stands for a cross-encoder of sentence-transformers: the score of a pair is known."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores

    def preprocess(self, pairs: list[tuple[str, str]], **options: Any) -> dict[str, Any]:
        return {"pairs": pairs}

    def __call__(self, features: dict[str, Any]) -> dict[str, Tensor]:
        scores = [self.scores[int(query), int(document)] for query, document in features["pairs"]]
        return {"scores": torch.stack(scores)[:, None]}


def theirs(make: Callable[[Any, Any], Any], scores: Tensor, labels: Tensor) -> Tensor:
    from sentence_transformers.cross_encoder import losses as peer

    documents = [[str(place) for place in range(count)] for count in COUNTS]
    ragged = [row[:count] for row, count in zip(labels, COUNTS, strict=True)]
    value: Tensor = make(peer, Reader(scores))([[str(row) for row in range(4)], documents], ragged)
    return value


PEERS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "ListNet": (ListNetLoss(), lambda peer, model: peer.ListNetLoss(model)),
    "ListMLE": (ListMLELoss(), lambda peer, model: peer.ListMLELoss(model, respect_input_order=False)),
    "PListMLE": (ListMLELoss(True), lambda peer, model: peer.PListMLELoss(model, respect_input_order=False)),
    "RankNet": (RankNetLoss(2.0), lambda peer, model: peer.RankNetLoss(model, sigma=2.0, reduction_log="natural")),
    "RankNet@2": (RankNetLoss(k=2), lambda peer, model: peer.RankNetLoss(model, k=2, reduction_log="natural")),
    **{
        f"{name}@{k}": (
            LambdaLoss(name, 1.5, k),
            lambda peer, model, k=k, theirs=theirs: peer.LambdaLoss(model, getattr(peer, theirs)(), k, 1.5),
        )
        for name, theirs in {
            "none": "NoWeightingScheme",
            "ndcg_loss1": "NDCGLoss1Scheme",
            "ndcg_loss2": "NDCGLoss2Scheme",
            "ndcg_loss2++": "NDCGLoss2PPScheme",
            "lambda_rank": "LambdaRankScheme",
        }.items()
        for k in (None, 2)
    },
}


@pytest.mark.parametrize("name", PEERS)
def test_agrees_with_sentence_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Value and gradient to 1e-9, in float64, to which its losses are held by force."""
    loss, make = PEERS[name]
    scores, labels = sample()
    value = loss(scores, labels=labels, mask=MASK)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            expected = theirs(make, scores, labels)
        finally:
            torch.set_default_dtype(torch.float32)
    found = [value, *torch.autograd.grad(value, scores)]
    torch.testing.assert_close(found, [expected, *torch.autograd.grad(expected, scores)], rtol=1e-9, atol=1e-9)
    assert found[1][~MASK].eq(0).all()


def loops(loss: Any, scores: list[list[float]], labels: list[list[float]]) -> float:
    """The losses that sentence-transformers lacks, or has for its own models only."""
    total, count = 0.0, 0
    for s, y in zip(scores, labels, strict=True):
        if isinstance(loss, LocalizedContrastiveLoss):
            total += math.log(math.fsum(math.exp((other - s[0]) / loss.temperature) for other in s))
            count += 1
        elif isinstance(loss, ScoreMarginMSELoss):
            total += math.fsum(((s[0] - a) - (y[0] - b)) ** 2 for a, b in zip(s[1:], y[1:], strict=True))
            count += len(s) - 1
        else:  # By a weighting of one's own, the difference of the labels.
            for i, j in [(i, j) for i in range(len(s)) for j in range(len(s)) if y[i] > y[j]]:
                total += (y[i] - y[j]) * math.log2(1 + math.exp(s[j] - s[i]))
                count += 1
    return total / count


OWN = LambdaLoss(lambda ranking: (ranking.labels[:, :, None] - ranking.labels[:, None]).abs())


@pytest.mark.parametrize("loss", [OWN, LocalizedContrastiveLoss(0.5), ScoreMarginMSELoss()], ids=repr)
@pytest.mark.parametrize("binary", [False, True])
def test_is_its_formula(loss: Any, binary: bool) -> None:
    scores, labels = sample(binary)
    given = {"mask": MASK} if isinstance(loss, LocalizedContrastiveLoss) else {"mask": MASK, "labels": labels}
    ragged = [[row[:count] for row, count in zip(m.tolist(), COUNTS, strict=True)] for m in (scores, labels)]
    assert loss(scores, **given).item() == pytest.approx(loops(loss, *ragged), rel=1e-12)
    inside = scores.detach().masked_fill(~MASK, 0).requires_grad_()
    assert torch.autograd.gradcheck(lambda matrix: loss(matrix, **given), inside)


@pytest.mark.parametrize("loss", [ListNetLoss(), ListMLELoss(True), RankNetLoss(), LambdaLoss(), ScoreMarginMSELoss()])
def test_a_query_without_documents_is_worth_nothing(loss: Any) -> None:
    scores, labels = torch.randn(2, 3).requires_grad_(), torch.tensor([[1.0, 0.0, 2.0]] * 2)
    mask = torch.tensor([[True] * 3, [False] * 3])
    value = loss(scores, labels=labels, mask=mask)
    share = 2 if isinstance(loss, (ListNetLoss, ListMLELoss)) else 1  # A mean over queries, or over pairs.
    torch.testing.assert_close(value, loss(scores[:1], labels=labels[:1]) / share)
    assert not torch.autograd.grad(value, scores)[0][1].any()
    assert LocalizedContrastiveLoss()(scores, mask=mask) == LocalizedContrastiveLoss()(scores[:1]) / 2


def test_long_lists_are_finite() -> None:
    """The powers of position-aware weights exceed what float32 holds."""
    scores = torch.randn(2, 2000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(2000.0).repeat(2, 1)
    value = ListMLELoss(True)(scores, labels=labels)
    assert value.isfinite()
    assert torch.autograd.grad(value, scores)[0].isfinite().all()
    torch.testing.assert_close(value.double(), ListMLELoss(True)(scores.double(), labels=labels), rtol=1e-5, atol=0)


@pytest.mark.parametrize("weighting", ["ndcg_loss1", "ndcg_loss2++"])
def test_great_grades_are_finite(weighting: str) -> None:
    """Powers of two of the grades, too, of which only quotients count."""
    scores, labels = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([[200, 40, 3]])
    value = LambdaLoss(weighting)(scores, labels=labels)
    torch.testing.assert_close(value.double(), LambdaLoss(weighting)(scores.double(), labels=labels), rtol=1e-5, atol=0)


def test_one_document_has_no_margin_and_other_labels_teach() -> None:
    assert ScoreMarginMSELoss()(torch.zeros(2, 1), labels=torch.zeros(2, 1)) == 0
    RankNetLoss().check_data(Data(2, 2, torch.eye(2)))
