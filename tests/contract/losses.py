"""One row per loss and variant: how to make it, how many columns it takes, and labels that fit it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
    ("u", "v", "u-v"),
    ("u", "v", "|u-v|", "u*v"),
]  # table 6 of Reimers and Gurevych, 2019


@dataclass(frozen=True)
class Row:
    """A loss, or what makes it for vectors of a given dimension.

    The vectors of a row are scores of a query's documents for the losses ``of_lists``.

    ``labels`` are whole numbers or float64, whose values float32 holds exactly; None for a loss without. ``idle`` are
    batches that teach it nothing, by their rows and labels; ``one_answer`` is a loss that one label teaches nothing,
    though a batch of it has a gradient. ``row_data`` is what else it takes of each row. ``dim`` is the dimension of the
    columns, if the loss takes but one.
    """

    loss: Any
    columns: int
    labels: Labels
    variant: str = ""
    idle: tuple[tuple[int, list[int] | None], ...] = ()
    one_answer: bool = False
    of_lists: bool = False
    row_data: Callable[[int, Generator], dict[str, Tensor]] = lambda rows, generator: {}
    dim: int | None = None

    @property
    def of_tokens(self) -> bool:
        """Whether its columns are the vectors of tokens."""
        return getattr(self.loss, "similarity", None) == "maxsim"

    def make(self, dim: int) -> Any:
        return copy.deepcopy(self.loss) if isinstance(self.loss, nn.Module) else self.loss(dim)

    @cached_property
    def name(self) -> str:
        loss = self.make(8)
        return f"{getattr(loss, '__name__', type(loss).__name__)}-{self.variant}".rstrip("-")

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


# A margin for each distance that some standard normal vectors of dim 8 keep, and some do not.
MARGINS = {"euclidean": 4.0, "cosine": 1.0, "manhattan": 9.0}


ALONE = ((1, None),)
ONE_PAIR = ((1, [0]), (1, [1]))
NO_ORDER = ((1, [3]), (4, [3, 3, 3, 3]))
NO_TRIPLET = ((1, [0]), (2, [0, 0]), (2, [0, 1]), (4, [5, 5, 5, 5]), (4, [2, 0, 1, 3]))


def each_distance(loss: type, columns: int, labels: Labels, margins: dict[str, float], idle: Any = ()) -> list[Row]:
    return [Row(loss(distance, margin), columns, labels, distance, idle) for distance, margin in margins.items()]


NARROW = {"euclidean": 1.0, "cosine": 0.5, "manhattan": 2.0}
CONTRASTS = ("anchor-anchor", "positive-anchor", "positive-positive", "positive-negative")
Ranking, Matryoshka = losses.MultipleNegativesRankingLoss, losses.MatryoshkaLoss


def half_too(loss: Any, weights: list[float] | None = None) -> Callable[[int], losses.MatryoshkaLoss]:
    return lambda dim: Matryoshka(loss, [dim, dim // 2], weights)


LOSSES = [
    *(
        Row(lambda dim, p=pieces: losses.SoftmaxLoss(dim, CLASSES, p), 2, classes, ",".join(pieces), one_answer=True)
        for pieces in CONCATENATIONS
    ),
    Row(losses.CosineSimilarityLoss(), 2, cosines),
    Row(losses.CoSENTLoss(), 2, grades, "", NO_ORDER),
    Row(losses.AnglELoss(), 2, grades, "", NO_ORDER),
    *each_distance(losses.TripletLoss, 3, none, NARROW),
    *each_distance(losses.ContrastiveLoss, 2, binary, MARGINS),
    *each_distance(losses.OnlineContrastiveLoss, 2, binary, MARGINS, ONE_PAIR),
    *each_distance(losses.BatchAllTripletLoss, 1, groups, NARROW, NO_TRIPLET),
    *each_distance(losses.BatchHardTripletLoss, 1, groups, NARROW, NO_TRIPLET),
    Row(losses.BatchHardTripletLoss(margin=None), 1, groups, "soft", NO_TRIPLET),
    *each_distance(losses.BatchSemiHardTripletLoss, 1, groups, NARROW, NO_TRIPLET),
    Row(Ranking(), 2, none, "", ALONE),
    Row(Ranking(), 3, none, "1"),
    Row(Ranking(), 5, none, "3"),
    *(Row(Ranking(1.0, similarity), 3, none, similarity) for similarity in ("dot", "euclidean", "manhattan")),
    Row(Ranking(symmetric=True), 2, none, "symmetric", ALONE),
    Row(Ranking(symmetric=True), 3, none, "symmetric-1"),
    Row(Ranking(contrast=CONTRASTS[:1]), 2, none, "contrast-anchors", ALONE),
    *(Row(Ranking(hardness=5, hardness_mode=mode), 4, none, mode) for mode in ("all", "in_batch", "hard")),
    Row(Ranking(contrast=CONTRASTS), 4, none, "contrast-2"),
    Row(Ranking(in_batch=False), 3, none, "own-1"),
    Row(Ranking(in_batch=False, hardness=5), 5, none, "own-3"),
    Row(losses.MarginMSELoss(), 3, scores(None)),
    Row(losses.MarginMSELoss("cosine"), 4, scores(2), "cosine-2"),
    Row(Ranking(1.0, "maxsim"), 3, none, "maxsim"),
    Row(losses.MarginMSELoss("maxsim"), 4, scores(2), "maxsim"),
    Row(losses.DistillKLDivLoss(2.0, "maxsim"), 3, scores(2), "maxsim"),
    Row(losses.MSELoss(), 1, vectors, "1"),
    Row(losses.MSELoss(), 2, vectors, "2"),
    Row(losses.DistillKLDivLoss(), 3, scores(2)),
    Row(losses.DistillKLDivLoss(0.5, "cosine"), 4, scores(3), "cosine-2"),
    Row(losses.DistillKLDivLoss(0.5, "cosine", 2.0), 4, scores(3), "2"),
    Row(losses.DistillKLDivLoss(), 4, scores(3), "mask", row_data=masks),
    Row(half_too(losses.CosineSimilarityLoss()), 2, cosines),
    Row(half_too(Ranking(), [1.0, 0.3]), 3, none, "ranking"),
    Row(half_too(Ranking()), 2, none, "alone", ALONE),
    Row(half_too(losses.MSELoss()), 2, vectors, "MSE"),
    Row(lambda dim: Matryoshka(plain, [dim // 2]), 2, grades, "plain"),
    Row(
        half_too(losses.WeightedSum((plain_weighted, 1.0), (plain_ranking, 0.5))),
        *(2, none, "plain-weighted"),
        row_data=weights_and_groups,
    ),
    Row(
        losses.WeightedSum((losses.CosineSimilarityLoss(), 2.0), (losses.CoSENTLoss(), 0.5)),
        *(2, cosines, ""),
        one_answer=True,
    ),
    Row(
        lambda dim: losses.WeightedSum((plain, 1.0), (losses.SoftmaxLoss(dim, CLASSES), 2.0)),
        *(2, classes, "softmax"),
        one_answer=True,
    ),
    Row(losses.WeightedSum((losses.AnglELoss(), 1.0), (Ranking(), 1.0)), 2, grades, "ranking", ((1, [3]),)),
    Row(losses.SpladeLoss(losses.MarginMSELoss(), 0.2, 0.3), 3, scores(None)),
    Row(losses.SpladeLoss(losses.DistillKLDivLoss(), 0.2, 0.0), 4, scores(3), "KL"),
    Row(losses.SpladeLoss(Ranking(1.0, "dot"), 0.2, 0.3, "l1"), 3, none, "l1"),
    *(Row(losses.EmbeddingDistillationLoss(distance=name), 2, vectors, name) for name in ("cosine", "mse")),
    Row(lambda dim: losses.EmbeddingDistillationLoss(dim, dim - 3, "euclidean"), 2, several_vectors, "projection"),
    Row(losses.ContrastiveTensionLoss(), 1, none, "", ALONE),
    Row(losses.MegaBatchMarginLoss(), 2, none),
    Row(losses.GlobalOrthogonalRegularizationLoss(2.0, 0.5), 2, none, "", ALONE),
    *(
        Row(loss, 1, relevance, str(number), of_lists=True)
        for number, loss in enumerate(
            [
                *(losses.ListNetLoss(), losses.ListMLELoss(), losses.ListMLELoss(True), losses.ScoreMarginMSELoss()),
                *(losses.RankNetLoss(), *map(losses.LambdaLoss, ("ndcg_loss1", "ndcg_loss2++", "lambda_rank"))),
            ]
        )
    ),
    Row(losses.LocalizedContrastiveLoss(), 1, none, of_lists=True),
    Row(losses.BinaryCrossEntropyLoss(), 1, shares, one_answer=True, dim=1),
    Row(losses.SquaredErrorLoss(), 1, cosines, one_answer=True, dim=1),
    Row(losses.SquaredErrorLoss(nn.Sigmoid()), 1, shares, "sigmoid", one_answer=True, dim=1),
    Row(losses.CrossEntropyLoss, 1, classes, one_answer=True),
    Row(lambda dim: plain, 2, grades),
    Row(lambda dim: plain_ranking, 2, none),
    Row(lambda dim: plain_weighted, 2, none, row_data=weights_and_groups),
]
