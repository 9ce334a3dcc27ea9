"""The formulas of the losses as plain loops over Python's own floats."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from statistics import fmean as mean
from typing import Any

import torch

from sbert import losses
from sbert.losses.signature import Signature
from tests.contract.losses import CONTRASTS

Vector = list[float]
Columns = list[list[Vector]]


def dot(u: Vector, v: Vector) -> float:
    return math.fsum(a * b for a, b in zip(u, v, strict=True))


def apply(layer: Any, vector: Vector) -> Vector:
    """A linear layer."""
    return [dot(row, vector) + bias for row, bias in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)]


def similarity(name: str, u: Any, v: Any) -> float:
    if name == "maxsim":  # Of lists of vectors.
        return math.fsum(max(dot(x, y) for y in v) for x in u)
    if name in ("dot", "cosine"):
        return dot(u, v) / (1 if name == "dot" else math.hypot(*u) * math.hypot(*v))
    return -math.dist(u, v) if name == "euclidean" else -math.fsum(abs(a - b) for a, b in zip(u, v, strict=True))


def distance(name: str, u: Vector, v: Vector) -> float:
    return (name == "cosine") - similarity(name, u, v)


def log_softmax(scores: Vector, index: int) -> float:
    return scores[index] - math.log(math.fsum(map(math.exp, scores)))


def divergence(teacher: Vector, student: Vector) -> float:
    logs = [(log_softmax(teacher, k), log_softmax(student, k)) for k in range(len(teacher))]
    return math.fsum(math.exp(a) * (a - b) for a, b in logs)


def softmax_loss(loss: Any, columns: Columns, labels: Any) -> float:
    values = []
    for u, v, label in zip(*columns, labels, strict=True):
        pieces = {"u": u, "v": v, "|u-v|": [abs(a - b) for a, b in zip(u, v, strict=True)]}
        pieces["u*v"] = [a * b for a, b in zip(u, v, strict=True)]
        pieces["u-v"] = [a - b for a, b in zip(u, v, strict=True)]
        features = [number for name in loss.concatenation for number in pieces[name]]
        values.append(-log_softmax(apply(loss.classifier, features), label))
    return mean(values)


def angle(u: Vector, v: Vector) -> float:
    half = len(u) // 2
    z = sum(complex(u[k], u[k + half]) * complex(v[k], v[k + half]).conjugate() for k in range(half))
    return abs(z.real + z.imag) / (math.hypot(*u) * math.hypot(*v))


def order_loss(loss: Any, columns: Columns, labels: Any) -> float:
    cosines = isinstance(loss, losses.CoSENTLoss)
    pairs = zip(*columns, strict=True)
    scores = [(similarity("cosine", u, v) if cosines else angle(u, v)) / loss.temperature for u, v in pairs]
    rows = range(len(labels))
    return math.log(1 + math.fsum(math.exp(scores[j] - scores[i]) for i in rows for j in rows if labels[i] > labels[j]))


def contrastive_loss(loss: Any, columns: Columns, labels: Any) -> float:
    distances = [distance(loss.distance, u, v) for u, v in zip(*columns, strict=True)]
    alike = [d for d, label in zip(distances, labels, strict=True) if label]
    different = [d for d, label in zip(distances, labels, strict=True) if not label]
    online = isinstance(loss, losses.OnlineContrastiveLoss)
    if online:  # Pairs of one kind are compared with their mean distance.
        nearest, farthest = min(different, default=mean(distances)), max(alike, default=mean(distances))
        alike, different = [d for d in alike if d > nearest], [d for d in different if d < farthest]
    total = math.fsum(d**2 for d in alike) + math.fsum(max(loss.margin - d, 0) ** 2 for d in different)
    return total if online else total / 2 / len(labels)


def batch_triplet_loss(loss: Any, columns: Columns, labels: Any) -> float:
    rows, terms = range(len(labels)), []
    for a in rows:
        distances = [distance(loss.distance, columns[0][a], v) for v in columns[0]]
        near = [distances[p] for p in rows if p != a and labels[p] == labels[a]]
        far = [distances[n] for n in rows if labels[n] != labels[a]]
        if isinstance(loss, losses.BatchAllTripletLoss):
            terms += [x for d in near for e in far if (x := d - e + loss.margin) > 0]
        elif isinstance(loss, losses.BatchSemiHardTripletLoss):
            terms += [max(d - min([e for e in far if e > d], default=max(far)) + loss.margin, 0) for d in near]
        elif near:
            x = max(near) - min(far)
            terms.append(math.log(1 + math.exp(x)) if loss.margin is None else max(x + loss.margin, 0))
    return mean(terms)


LeftOut = Callable[[int, int, int, int], bool]


def ranking_loss(
    loss: Any, columns: Columns, labels: Any = None, left_out: LeftOut = lambda i, j, q, c: False
) -> float:
    """``left_out`` says whether row j of column c is left out for row i of column q."""
    rows, negatives = range(len(columns[0])), range(2, len(columns))
    further = dict(zip(CONTRASTS, ([(0, 0)], [(1, 0)], [(1, 1)], [(1, c) for c in negatives]), strict=True))

    def direction(blocks: list[tuple[int, int]]) -> float:
        values = []
        for i in rows:
            scores = []
            for (q, c), j in [(block, j) for block in blocks for j in rows]:
                if i == j and (q == c or (q == 1 and c > 1)):  # other rows only
                    continue
                if i != j and not loss.in_batch:
                    continue
                if left_out(i, j, q, c) and not (i == j and q + c == 1):  # but a pair stays
                    continue
                score = similarity(loss.similarity, columns[q][i], columns[c][j])
                weighted = {"hard": i == j and c > 1, "in_batch": i != j, "all": i != j or c > 1}[loss.hardness_mode]
                scores.append(score / loss.temperature + loss.hardness * (q == 0 and c > 0 and weighted) * score)
            own = similarity(loss.similarity, columns[0][i], columns[1][i]) / loss.temperature
            values.append(math.log(math.fsum(map(math.exp, scores))) - own)
        return mean(values)

    value = direction([(0, 1), *((0, c) for c in negatives), *(b for name in loss.contrast for b in further[name])])
    return (value + direction([(1, 0)])) / 2 if loss.symmetric else value


def margin_loss(loss: Any, columns: Columns, labels: Any) -> float:
    errors = []
    for (anchor, positive, *negatives), margins in zip(zip(*columns, strict=True), labels, strict=True):
        for negative, margin in zip(negatives, margins if isinstance(margins, list) else [margins], strict=True):
            scores = [similarity(loss.similarity, anchor, vector) for vector in (positive, negative)]
            errors.append((scores[0] - scores[1] - margin) ** 2)
    return mean(errors)


def divergence_loss(loss: Any, columns: Columns, labels: Any, mask: Any = None) -> float:
    values = []
    for i, ((anchor, *candidates), scores) in enumerate(zip(zip(*columns, strict=True), labels, strict=True)):
        chosen = [k for k in range(len(scores)) if mask is None or mask[i][k]]
        student = [similarity(loss.similarity, anchor, candidates[k]) / loss.temperature for k in chosen]
        values.append(divergence([scores[k] / loss.teacher_temperature for k in chosen], student))
    return loss.temperature**2 * mean(values)


def embedding_loss(loss: Any, columns: Columns, labels: Any) -> float:
    values = []
    for c, column in enumerate(columns):
        for vector, label in zip(column, labels, strict=True):
            if loss.projection is not None:
                vector, label = apply(loss.projection, vector), label[c]
            mse = loss.distance == "mse"
            values.append(math.dist(vector, label) ** 2 / len(label) if mse else distance(loss.distance, vector, label))
    return mean(values)


def tension_loss(loss: Any, columns: Columns, labels: Any) -> float:
    half = len(columns[0][0]) // 2
    first, second = [vector[:half] for vector in columns[0]], [vector[half:] for vector in columns[0]]
    scores = [[math.exp(loss.log_scale.item()) * similarity("cosine", u, v) for v in second] for u in first]
    both = (scores, [list(column) for column in zip(*scores, strict=True)])
    return mean(-log_softmax(row, i) for matrix in both for i, row in enumerate(matrix))


def mega_batch_loss(loss: Any, columns: Columns, labels: Any) -> float:
    cosines = [[similarity("cosine", a, p) for p in columns[1]] for a in columns[0]]
    return mean(
        max(loss.positive_margin - row[i], 0) + max(max(row[:i] + row[i + 1 :]) - loss.negative_margin, 0)
        for i, row in enumerate(cosines)
    )


def orthogonal_loss(loss: Any, columns: Columns, labels: Any) -> float:
    values = []
    for column in columns:
        cosines = [similarity("cosine", u, v) for u in column for v in column if u is not v]
        spread = max(mean(c * c for c in cosines) - 1 / len(column[0]), 0)
        values.append(loss.mean_weight * mean(cosines) ** 2 + loss.second_moment_weight * spread)
    return mean(values)


def matryoshka_loss(loss: Any, columns: Columns, labels: Any, **row_data: Any) -> float:
    (inner,) = loss.losses
    total = 0.0
    for dim, weight in zip(loss.dims, loss.weights, strict=True):
        short = [[vector[:dim] for vector in column] for column in columns]
        vectors = isinstance(inner, losses.MSELoss)
        total += weight * formula(inner, short, [label[:dim] for label in labels] if vectors else labels, **row_data)
    return total


def sum_loss(loss: Any, columns: Columns, labels: Any, **row_data: Any) -> float:
    taken = [{name: row_data[name] for name in row_data if name in Signature.of(each).by_name} for each in loss.losses]
    parts = zip(loss.losses, loss.weights, taken, strict=True)
    return math.fsum(weight * formula(part, columns, labels, **own) for part, weight, own in parts)


def of_rows(value: Callable[..., float]) -> Callable[..., float]:
    """The mean over rows, of whose vectors and label ``value`` is the loss."""

    def loss_of_rows(loss: Any, columns: Columns, labels: Any) -> float:
        given = columns if labels is None else [*columns, labels]
        return mean(value(loss, *row) for row in zip(*given, strict=True))

    return loss_of_rows


def splade_loss(loss: Any, columns: Columns, labels: Any, **row_data: Any) -> float:
    """The whole weight of its terms, as after the warmup."""

    def measure(vectors: list[Vector]) -> float:
        means = [mean(map(abs, dimension)) for dimension in zip(*vectors, strict=True)]
        return math.fsum(x * x if loss.kind == "flops" else x for x in means)

    documents = [vector for column in columns[1:] for vector in column]
    terms = loss.queries * measure(columns[0]) + loss.documents * measure(documents)
    return formula(loss.losses[0], columns, labels, **row_data) + terms


FORMULAS: dict[str, Callable[..., float]] = {
    "SoftmaxLoss": softmax_loss,
    "CosineSimilarityLoss": of_rows(lambda loss, u, v, label: (similarity("cosine", u, v) - label) ** 2),
    "CoSENTLoss": order_loss,
    "AnglELoss": order_loss,
    "TripletLoss": of_rows(
        lambda loss, a, p, n: max(distance(loss.distance, a, p) - distance(loss.distance, a, n) + loss.margin, 0)
    ),
    "ContrastiveLoss": contrastive_loss,
    "OnlineContrastiveLoss": contrastive_loss,
    "BatchAllTripletLoss": batch_triplet_loss,
    "BatchHardTripletLoss": batch_triplet_loss,
    "BatchSemiHardTripletLoss": batch_triplet_loss,
    "MultipleNegativesRankingLoss": ranking_loss,
    "MarginMSELoss": margin_loss,
    "MSELoss": of_rows(lambda loss, *vectors: mean(math.dist(u, vectors[-1]) ** 2 / len(u) for u in vectors[:-1])),
    "DistillKLDivLoss": divergence_loss,
    "EmbeddingDistillationLoss": embedding_loss,
    "ContrastiveTensionLoss": tension_loss,
    "MegaBatchMarginLoss": mega_batch_loss,
    "GlobalOrthogonalRegularizationLoss": orthogonal_loss,
    "BinaryCrossEntropyLoss": of_rows(
        lambda loss, s, y: math.log(1 + math.exp(-s[0])) * y + math.log(1 + math.exp(s[0])) * (1 - y)
    ),
    "SquaredErrorLoss": of_rows(lambda loss, s, y: ((1 / (1 + math.exp(-s[0])) if loss.activation else s[0]) - y) ** 2),
    "CrossEntropyLoss": of_rows(lambda loss, scores, label: -log_softmax(scores, label)),
    "MatryoshkaLoss": matryoshka_loss,
    "WeightedSum": sum_loss,
    "SpladeLoss": splade_loss,
}


def formula(loss: Any, columns: Columns, labels: Any = None, **row_data: Any) -> float:
    """The value of a loss by its formula; a function of a test is its own."""
    if inspect.isfunction(loss):
        given = row_data if labels is None else {**row_data, "labels": labels}
        vectors = [torch.tensor(column, dtype=torch.float64) for column in columns]
        return float(loss(*vectors, **{name: torch.tensor(value) for name, value in given.items()}))
    return FORMULAS[type(loss).__name__](loss, columns, labels, **row_data)
