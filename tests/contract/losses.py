"""One row per loss and variant: how to make it, how many columns it takes, and labels that fit it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sbert import losses

Labels = Callable[[int, int, Generator], Tensor | None]  # of rows, dim and a generator

CLASSES = 3
CONCATENATIONS = [
    ("u", "v"),
    ("|u-v|",),
    ("u*v",),
    ("|u-v|", "u*v"),
    ("u", "v", "u*v"),
    ("u", "v", "|u-v|"),
    ("u", "v", "|u-v|", "u*v"),
]  # table 6 of Reimers and Gurevych, 2019


@dataclass(frozen=True)
class Row:
    """A loss for vectors of a given width.

    The vectors of a row are scores of a query's documents for the losses ``of_lists``.

    ``labels`` are whole numbers or float64, whose values float32 holds exactly; None for a loss without. ``idle`` are
    batches that teach it nothing, by their rows and labels; ``one_answer`` is a loss that one label teaches nothing,
    though a batch of it has a gradient. ``row_data`` is what else it takes of each row. ``dim`` is the dimension of the
    columns, if the loss takes but one.
    """

    name: str
    make: Callable[[int], Any]
    columns: int
    labels: Labels
    idle: tuple[tuple[int, list[int] | None], ...] = ()
    one_answer: bool = False
    of_lists: bool = False
    row_data: Callable[[int, Generator], dict[str, Tensor]] = lambda rows, generator: {}
    dim: int | None = None

    def __str__(self) -> str:
        return self.name


def none(rows: int, dim: int, generator: Generator) -> None:
    return None


def _exact(values: Tensor) -> Tensor:
    return values.float().double()


def classes(rows: int, dim: int, generator: Generator) -> Tensor:
    return torch.randint(CLASSES, (rows,), generator=generator)


def binary(rows: int, dim: int, generator: Generator) -> Tensor:
    """Both kinds wherever there are two rows."""
    return torch.arange(rows) % 2


def groups(rows: int, dim: int, generator: Generator) -> Tensor:
    """Two labels or more, each at least twice, wherever there are four rows."""
    return torch.arange(rows) % max(2, rows // 3)


def cosines(rows: int, dim: int, generator: Generator) -> Tensor:
    return _exact(torch.rand(rows, generator=generator) * 2 - 1)


def shares(rows: int, dim: int, generator: Generator) -> Tensor:
    return _exact(torch.rand(rows, generator=generator))


def several_vectors(rows: int, dim: int, generator: Generator) -> Tensor:
    """Vectors of a teacher for each of two columns, of another dimension."""
    return _exact(torch.randn(rows, 2, dim - 3, generator=generator))


def grades(rows: int, dim: int, generator: Generator) -> Tensor:
    """0 to 5 by halves, so that some are equal."""
    return torch.randint(11, (rows,), generator=generator).double() / 2


def vectors(rows: int, dim: int, generator: Generator) -> Tensor:
    return _exact(torch.randn(rows, dim, generator=generator))


def relevance(rows: int, dim: int, generator: Generator) -> Tensor:
    """0 to 3 for each document; the first document is relevant, the last is not."""
    labels = torch.randint(4, (rows, dim), generator=generator)
    labels[:, 0], labels[:, -1] = 3, 0
    return labels


def scores(count: int | None) -> Labels:
    """(rows, count), or (rows,) for None."""

    def labels(rows: int, dim: int, generator: Generator) -> Tensor:
        shape = (rows,) if count is None else (rows, count)
        return _exact(torch.randn(shape, generator=generator))

    return labels


def plain(first: Tensor, second: Tensor, labels: Tensor | None = None) -> Tensor:
    """A loss that is a function."""
    assert labels is not None, "no labels"
    return ((first - second).square().sum(1) - labels.to(first.dtype)).square().mean()


def plain_ranking(anchor: Tensor, positive: Tensor) -> Tensor:
    return (anchor - positive).abs().sum()


def plain_weighted(anchor: Tensor, positive: Tensor, *, weight: Tensor, group: Tensor, scale: float = 2.0) -> Tensor:
    """A function of row data: pairs of rows of one group are weighted, and the order of the rows matters."""
    same = group[:, None] == group
    order = torch.arange(1, len(weight) + 1, dtype=anchor.dtype, device=anchor.device)
    return scale * (same * weight * order * ((anchor @ positive.T) ** 2)).mean()


def weights_and_groups(rows: int, generator: Generator) -> dict[str, Tensor]:
    return {"weight": _exact(torch.rand(rows, generator=generator)), "group": torch.arange(rows) % max(1, rows // 2)}


def masks(rows: int, generator: Generator) -> dict[str, Tensor]:
    """Which of three candidates count: at least one."""
    return {"mask": torch.rand(rows, 3, generator=generator) < torch.tensor([2, 0.5, 0.7])}


def _softmax(pieces: tuple[str, ...]) -> Callable[[int], losses.SoftmaxLoss]:
    return lambda dim: losses.SoftmaxLoss(dim, CLASSES, pieces)


# A margin for each distance that some standard normal vectors of dim 8 keep, and some do not.
MARGINS = {"euclidean": 4.0, "cosine": 1.0, "manhattan": 9.0}


ALONE = ((1, None),)
ONE_PAIR = ((1, [0]), (1, [1]))
NO_ORDER = ((1, [3]), (4, [3, 3, 3, 3]))
NO_TRIPLET = ((1, [0]), (2, [0, 0]), (2, [0, 1]), (4, [5, 5, 5, 5]), (4, [2, 0, 1, 3]))


def _all(loss: type, columns: int, labels: Labels, margins: dict[str, float], idle: Any = ()) -> list[Row]:
    """A row per distance."""

    def make(distance: str) -> Callable[[int], Any]:
        return lambda dim: loss(distance, margins[distance])

    return [Row(f"{loss.__name__}-{distance}", make(distance), columns, labels, idle) for distance in margins]


NARROW = {"euclidean": 1.0, "cosine": 0.5, "manhattan": 2.0}
CONTRASTS = ("anchor-anchor", "positive-anchor", "positive-positive", "positive-negative")
_Ranking = losses.MultipleNegativesRankingLoss

LOSSES = [
    *(
        Row(f"SoftmaxLoss-{','.join(pieces)}", _softmax(pieces), 2, classes, one_answer=True)
        for pieces in CONCATENATIONS
    ),
    Row("CosineSimilarityLoss", lambda dim: losses.CosineSimilarityLoss(), 2, cosines),
    Row("CoSENTLoss", lambda dim: losses.CoSENTLoss(), 2, grades, NO_ORDER),
    Row("AnglELoss", lambda dim: losses.AnglELoss(), 2, grades, NO_ORDER),
    *_all(losses.TripletLoss, 3, none, NARROW),
    *_all(losses.ContrastiveLoss, 2, binary, MARGINS),
    *_all(losses.OnlineContrastiveLoss, 2, binary, MARGINS, ONE_PAIR),
    *_all(losses.BatchAllTripletLoss, 1, groups, NARROW, NO_TRIPLET),
    *_all(losses.BatchHardTripletLoss, 1, groups, NARROW, NO_TRIPLET),
    Row("BatchHardTripletLoss-soft", lambda dim: losses.BatchHardTripletLoss(margin=None), 1, groups, NO_TRIPLET),
    *_all(losses.BatchSemiHardTripletLoss, 1, groups, NARROW, NO_TRIPLET),
    Row("MultipleNegativesRankingLoss", lambda dim: _Ranking(), 2, none, ALONE),
    Row("MultipleNegativesRankingLoss-1", lambda dim: _Ranking(), 3, none),
    Row("MultipleNegativesRankingLoss-3", lambda dim: _Ranking(), 5, none),
    Row("MultipleNegativesRankingLoss-dot", lambda dim: _Ranking(1.0, "dot"), 3, none),
    Row("MultipleNegativesRankingLoss-euclidean", lambda dim: _Ranking(1.0, "euclidean"), 3, none),
    Row("MultipleNegativesRankingLoss-manhattan", lambda dim: _Ranking(1.0, "manhattan"), 3, none),
    Row("MultipleNegativesRankingLoss-symmetric", lambda dim: _Ranking(symmetric=True), 2, none, ALONE),
    Row("MultipleNegativesRankingLoss-symmetric-1", lambda dim: _Ranking(symmetric=True), 3, none),
    Row("MultipleNegativesRankingLoss-contrast-anchors", lambda dim: _Ranking(contrast=CONTRASTS[:1]), 2, none, ALONE),
    Row("MultipleNegativesRankingLoss-contrast-2", lambda dim: _Ranking(contrast=CONTRASTS), 4, none),
    *(
        Row(
            f"MultipleNegativesRankingLoss-{mode}",
            lambda dim, mode=mode: _Ranking(hardness=5, hardness_mode=mode),
            4,
            none,
        )
        for mode in ("all", "in_batch", "hard")
    ),
    Row("MarginMSELoss", lambda dim: losses.MarginMSELoss(), 3, scores(None)),
    Row("MarginMSELoss-cosine-2", lambda dim: losses.MarginMSELoss("cosine"), 4, scores(2)),
    Row("MSELoss-1", lambda dim: losses.MSELoss(), 1, vectors),
    Row("MSELoss-2", lambda dim: losses.MSELoss(), 2, vectors),
    Row("DistillKLDivLoss", lambda dim: losses.DistillKLDivLoss(), 3, scores(2)),
    Row("DistillKLDivLoss-cosine-2", lambda dim: losses.DistillKLDivLoss(0.5, "cosine"), 4, scores(3)),
    Row(
        "MatryoshkaLoss", lambda dim: losses.MatryoshkaLoss(losses.CosineSimilarityLoss(), [dim, dim // 2]), 2, cosines
    ),
    Row("MatryoshkaLoss-ranking", lambda dim: losses.MatryoshkaLoss(_Ranking(), [dim, dim // 2], [1.0, 0.3]), 3, none),
    Row("MatryoshkaLoss-MSE", lambda dim: losses.MatryoshkaLoss(losses.MSELoss(), [dim, dim // 2]), 2, vectors),
    Row("MatryoshkaLoss-plain", lambda dim: losses.MatryoshkaLoss(plain, [dim // 2]), 2, grades),
    Row(
        "WeightedSum",
        lambda dim: losses.WeightedSum((losses.CosineSimilarityLoss(), 2.0), (losses.CoSENTLoss(), 0.5)),
        2,
        cosines,
        one_answer=True,
    ),
    Row(
        "WeightedSum-softmax",
        lambda dim: losses.WeightedSum((plain, 1.0), (losses.SoftmaxLoss(dim, CLASSES), 2.0)),
        2,
        classes,
        one_answer=True,
    ),
    Row("MatryoshkaLoss-alone", lambda dim: losses.MatryoshkaLoss(_Ranking(), [dim, dim // 2]), 2, none, ALONE),
    Row(
        "WeightedSum-ranking",
        lambda dim: losses.WeightedSum((losses.AnglELoss(), 1.0), (_Ranking(), 1.0)),
        2,
        grades,
        ((1, [3]),),
    ),
    Row("DistillKLDivLoss-2", lambda dim: losses.DistillKLDivLoss(0.5, "cosine", 2.0), 4, scores(3)),
    Row("DistillKLDivLoss-mask", lambda dim: losses.DistillKLDivLoss(), 4, scores(3), row_data=masks),
    *(
        Row(
            f"EmbeddingDistillationLoss-{name}",
            lambda dim, n=name: losses.EmbeddingDistillationLoss(distance=n),
            2,
            vectors,
        )
        for name in ("cosine", "mse")
    ),
    Row(
        "EmbeddingDistillationLoss-projection",
        lambda dim: losses.EmbeddingDistillationLoss(dim, dim - 3, "euclidean"),
        2,
        several_vectors,
    ),
    Row("ContrastiveTensionLoss", lambda dim: losses.ContrastiveTensionLoss(), 1, none, ALONE),
    Row("MegaBatchMarginLoss", lambda dim: losses.MegaBatchMarginLoss(), 2, none),
    Row(
        "GlobalOrthogonalRegularizationLoss",
        lambda dim: losses.GlobalOrthogonalRegularizationLoss(2.0, 0.5),
        2,
        none,
        ALONE,
    ),
    Row("AdaptiveLayerLoss", lambda dim: losses.AdaptiveLayerLoss(_Ranking(), 2, [0.5, 2.0], 0), 3, none),
    Row(
        "AdaptiveLayerLoss-divergence",
        lambda dim: losses.AdaptiveLayerLoss(losses.CosineSimilarityLoss(), 4, None, 0.1),
        2,
        cosines,
    ),
    Row(
        "AdaptiveLayerLoss-2d",
        lambda dim: losses.AdaptiveLayerLoss(losses.MatryoshkaLoss(_Ranking(), [dim // 2, dim // 4]), 2, None, 0.1),
        3,
        none,
    ),
    *(
        Row(f"{type(loss).__name__}-{name}", lambda dim, loss=loss: copy.deepcopy(loss), 1, relevance, of_lists=True)
        for name, loss in {
            "": losses.ListNetLoss(),
            "mle": losses.ListMLELoss(),
            "position-aware": losses.ListMLELoss(True),
            "margins": losses.ScoreMarginMSELoss(),
            "pairs": losses.RankNetLoss(),
            **{name: losses.LambdaLoss(name) for name in ("ndcg_loss1", "ndcg_loss2++", "lambda_mrr")},
        }.items()
    ),
    Row("LocalizedContrastiveLoss", lambda dim: losses.LocalizedContrastiveLoss(), 1, none, of_lists=True),
    Row("BinaryCrossEntropyLoss", lambda dim: losses.BinaryCrossEntropyLoss(), 1, shares, one_answer=True, dim=1),
    Row("SquaredErrorLoss", lambda dim: losses.SquaredErrorLoss(), 1, cosines, one_answer=True, dim=1),
    Row(
        "SquaredErrorLoss-sigmoid", lambda dim: losses.SquaredErrorLoss(nn.Sigmoid()), 1, shares, one_answer=True, dim=1
    ),
    Row("CrossEntropyLoss", lambda dim: losses.CrossEntropyLoss(dim), 1, classes, one_answer=True),
    Row("plain", lambda dim: plain, 2, grades),
    Row("plain-ranking", lambda dim: plain_ranking, 2, none),
    Row("plain-weighted", lambda dim: plain_weighted, 2, none, row_data=weights_and_groups),
    Row(
        "MatryoshkaLoss-plain-weighted",
        lambda dim: losses.MatryoshkaLoss(
            losses.WeightedSum((plain_weighted, 1.0), (plain_ranking, 0.5)), [dim // 2, dim]
        ),
        2,
        none,
        row_data=weights_and_groups,
    ),
]
