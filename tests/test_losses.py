"""Losses against plain loops and against sentence-transformers, and what every loss keeps to."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert import losses
from sbert.losses import MatryoshkaLoss, WeightedSum
from sbert.losses.wrappers import _columns
from tests.losses import LOSSES, Row

ROWS, DIM = 9, 8
every = pytest.mark.parametrize("row", LOSSES, ids=str)


def sample(
    row: Row, dtype: torch.dtype = torch.float64, rows: int = ROWS
) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
    """The loss in float64, its columns, its labels."""
    torch.manual_seed(0)
    loss = row.make(DIM)
    generator = torch.Generator().manual_seed(1)
    columns = [torch.randn(rows, DIM, generator=generator).to(dtype).requires_grad_() for _ in range(row.columns)]
    labels = row.labels(rows, DIM, generator)
    return loss.double() if isinstance(loss, nn.Module) else loss, columns, {} if labels is None else {"labels": labels}


def with_gradients(loss: Callable[..., Tensor], columns: list[Tensor], extras: dict[str, Tensor]) -> list[Tensor]:
    """The value and the gradient at each column."""
    value = loss(*columns, **extras)
    return [value.detach(), *torch.autograd.grad(value, columns)]


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_scalar_and_finite(row: Row, dtype: torch.dtype) -> None:
    """In float32 and bfloat16 the value is that of the same numbers in float64, but for what float32 rounds."""
    loss, columns, extras = sample(row, dtype)
    exact = loss(*(column.double() for column in columns), **extras)
    if isinstance(loss, nn.Module):
        loss = loss.float()
    value, *gradients = with_gradients(loss, columns, extras)
    assert value.shape == ()
    assert value > 0
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)
    if not row.name.startswith(("plain", "MatryoshkaLoss-plain", "WeightedSum-softmax")):  # the users' own arithmetic
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact.detach(), rtol=1e-5, atol=1e-6)


@every
def test_gradcheck(row: Row) -> None:
    loss, columns, extras = sample(row)
    parameters = list(loss.parameters()) if isinstance(loss, nn.Module) else []
    assert torch.autograd.gradcheck(lambda *inputs: loss(*inputs[: row.columns], **extras), [*columns, *parameters])


@every
def test_inputs_are_not_mutated(row: Row) -> None:
    loss, columns, extras = sample(row)
    before = [tensor.detach().clone() for tensor in (*columns, *extras.values())]
    loss(*columns, **extras).backward()
    for tensor, old in zip((*columns, *extras.values()), before, strict=True):
        assert torch.equal(tensor, old)


@every
def test_matryoshka(row: Row) -> None:
    loss, columns, extras = sample(row)
    expected = loss(*columns, **extras)
    torch.testing.assert_close(MatryoshkaLoss(loss, [DIM])(*columns, **extras), expected, rtol=0, atol=0)
    half = [column[:, : DIM // 2] for column in columns]
    both = MatryoshkaLoss(loss, [DIM // 2, DIM], [0.25, 2.0])
    if "Softmax" in row.name or "softmax" in row.name:
        with pytest.raises(ValueError, match=r"vectors have dim 4, but SoftmaxLoss was made with dim=8; pass dim=4"):
            both(*columns, **extras)
        return
    if row.name.startswith("MatryoshkaLoss") and row.name != "MatryoshkaLoss-plain":
        with pytest.raises(ValueError, match="dims hold 8, but the vectors have dim 4; pass at most 4"):
            both(*columns, **extras)
        return
    short = (
        {"labels": extras["labels"][:, : DIM // 2]} if "MSELoss-" in row.name and "Margin" not in row.name else extras
    )
    value = 2 * expected + 0.25 * loss(*half, **short)
    torch.testing.assert_close(both(*columns, **extras), value, rtol=0, atol=1e-12)


@every
def test_copies_are_equal_and_their_own(row: Row) -> None:
    loss, columns, extras = sample(row)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(other(*columns, **extras), loss(*columns, **extras))
        assert _columns(other) == _columns(loss)
        if isinstance(loss, nn.Module):
            for mine, theirs in zip(loss.parameters(), other.parameters(), strict=True):
                assert mine.data_ptr() != theirs.data_ptr()
            inner = getattr(inspect.unwrap(other), "__self__", other)
            assert any(inner is module for module in other.modules()) or isinstance(loss, WeightedSum)


@every
@pytest.mark.parametrize("kind", ["equal", "zero"])
def test_equal_vectors_have_finite_gradients(row: Row, kind: str) -> None:
    for dtype in (torch.float32, torch.float64):
        loss, columns, extras = sample(row, dtype)
        vector = torch.ones(DIM) if kind == "equal" else torch.zeros(DIM)
        columns = [vector.to(dtype).repeat(ROWS, 1).requires_grad_() for _ in columns]
        if isinstance(loss, nn.Module):
            loss = loss.to(dtype)
        assert all(tensor.isfinite().all() for tensor in with_gradients(loss, columns, extras))


# Plain loops, over Python's own floats.

Vector = list[float]


def dot(u: Vector, v: Vector) -> float:
    return math.fsum(a * b for a, b in zip(u, v, strict=True))


def similarity(name: str, u: Vector, v: Vector) -> float:
    if name in ("dot", "cosine"):
        return dot(u, v) / (1 if name == "dot" else math.hypot(*u) * math.hypot(*v))
    return -math.dist(u, v) if name == "euclidean" else -math.fsum(abs(a - b) for a, b in zip(u, v, strict=True))


def distance(name: str, u: Vector, v: Vector) -> float:
    return (name == "cosine") - similarity(name, u, v)


def mean(values: Any) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def log_softmax(scores: Vector, index: int) -> float:
    return scores[index] - math.log(math.fsum(map(math.exp, scores)))


def softmax_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    weight, bias = loss.classifier.weight.tolist(), loss.classifier.bias.tolist()
    total = 0.0
    for u, v, label in zip(*columns, labels, strict=True):
        pieces = {
            "u": u,
            "v": v,
            "|u-v|": [abs(a - b) for a, b in zip(u, v, strict=True)],
            "u*v": [a * b for a, b in zip(u, v, strict=True)],
        }
        features = [number for name in loss.concatenation for number in pieces[name]]
        total -= log_softmax([dot(w, features) + b for w, b in zip(weight, bias, strict=True)], label)
    return total / len(labels)


def order_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    def score(u: Vector, v: Vector) -> float:
        if isinstance(loss, losses.CoSENTLoss):
            return similarity("cosine", u, v)
        half = DIM // 2
        z = sum(complex(u[k], u[k + half]) * complex(v[k], v[k + half]).conjugate() for k in range(half))
        return abs(z.real + z.imag) / (math.hypot(*u) * math.hypot(*v))

    scores = [score(u, v) / loss.temperature for u, v in zip(*columns, strict=True)]
    pairs = [(i, j) for i in range(ROWS) for j in range(ROWS) if labels[i] > labels[j]]
    return math.log(1 + math.fsum(math.exp(scores[j] - scores[i]) for i, j in pairs))


def contrastive_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    distances = [distance(loss.distance, u, v) for u, v in zip(*columns, strict=True)]
    alike = [d for d, label in zip(distances, labels, strict=True) if label]
    different = [d for d, label in zip(distances, labels, strict=True) if not label]
    online = isinstance(loss, losses.OnlineContrastiveLoss)
    if online:
        alike, different = [d for d in alike if d > min(different)], [d for d in different if d < max(alike)]
    total = math.fsum(d**2 for d in alike) + math.fsum(max(loss.margin - d, 0) ** 2 for d in different)
    return total if online else total / 2 / len(labels)


def batch_triplet_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    matrix = [[distance(loss.distance, u, v) for v in columns[0]] for u in columns[0]]
    rows = range(len(labels))
    terms = []
    for a in rows:
        near = [matrix[a][p] for p in rows if p != a and labels[p] == labels[a]]
        far = [matrix[a][n] for n in rows if labels[n] != labels[a]]
        if isinstance(loss, losses.BatchAllTripletLoss):
            terms += [x for d in near for e in far if (x := d - e + loss.margin) > 0]
        elif isinstance(loss, losses.BatchSemiHardTripletLoss):
            terms += [max(d - min([e for e in far if e > d], default=max(far)) + loss.margin, 0) for d in near]
        elif near:
            x = max(near) - min(far)
            terms.append(math.log(1 + math.exp(x)) if loss.margin is None else max(x + loss.margin, 0))
    return mean(terms)


def ranking_loss(
    loss: Any, columns: list[list[Vector]], labels: Any, left_out: Any = lambda i, j, swap: False
) -> float:
    """``left_out`` says whether candidate j is left out for row i, in the other direction with ``swap``."""

    def direction(anchors: list[Vector], candidates: list[Vector], swap: bool) -> float:
        values = []
        for i, anchor in enumerate(anchors):
            kept = [j for j in range(len(candidates)) if j == i or not left_out(i, j, swap)]
            scores = [similarity(loss.similarity, anchor, candidates[j]) / loss.temperature for j in kept]
            values.append(-log_softmax(scores, kept.index(i)))
        return mean(values)

    value = direction(columns[0], [vector for column in columns[1:] for vector in column], False)
    return (value + direction(columns[1], columns[0], True)) / 2 if loss.symmetric else value


def margin_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    errors = []
    for (anchor, positive, *negatives), margins in zip(zip(*columns, strict=True), labels, strict=True):
        for negative, margin in zip(negatives, margins if isinstance(margins, list) else [margins], strict=True):
            scores = [similarity(loss.similarity, anchor, vector) for vector in (positive, negative)]
            errors.append((scores[0] - scores[1] - margin) ** 2)
    return mean(errors)


def divergence_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    total = 0.0
    for (anchor, *candidates), teacher in zip(zip(*columns, strict=True), labels, strict=True):
        student = [similarity(loss.similarity, anchor, vector) / loss.temperature for vector in candidates]
        teacher = [score / loss.temperature for score in teacher]
        for k in range(len(candidates)):
            total += math.exp(log_softmax(teacher, k)) * (log_softmax(teacher, k) - log_softmax(student, k))
    return loss.temperature**2 * total / len(labels)


REFERENCES: dict[str, Callable[[Any, list[list[Vector]], Any], float]] = {
    "SoftmaxLoss": softmax_loss,
    "CosineSimilarityLoss": lambda loss, columns, labels: mean(
        (similarity("cosine", u, v) - label) ** 2 for u, v, label in zip(*columns, labels, strict=True)
    ),
    "CoSENTLoss": order_loss,
    "AnglELoss": order_loss,
    "TripletLoss": lambda loss, columns, labels: mean(
        max(distance(loss.distance, a, p) - distance(loss.distance, a, n) + loss.margin, 0)
        for a, p, n in zip(*columns, strict=True)
    ),
    "ContrastiveLoss": contrastive_loss,
    "OnlineContrastiveLoss": contrastive_loss,
    "BatchAllTripletLoss": batch_triplet_loss,
    "BatchHardTripletLoss": batch_triplet_loss,
    "BatchSemiHardTripletLoss": batch_triplet_loss,
    "MultipleNegativesRankingLoss": ranking_loss,
    "MarginMSELoss": margin_loss,
    "MSELoss": lambda loss, columns, labels: mean(
        (x - y) ** 2
        for column in columns
        for u, v in zip(column, labels, strict=True)
        for x, y in zip(u, v, strict=True)
    ),
    "DistillKLDivLoss": divergence_loss,
    "plain": lambda loss, columns, labels: mean(
        (math.dist(u, v) ** 2 - label) ** 2 for u, v, label in zip(*columns, labels, strict=True)
    ),
    "plain_ranking": lambda loss, columns, labels: (
        -sum(similarity("manhattan", u, v) for u, v in zip(*columns, strict=True))
    ),
}


def reference(loss: Any, columns: list[list[Vector]], labels: Any, **given: Any) -> float:
    if isinstance(loss, WeightedSum):
        parts = zip(loss.losses, loss.weights, strict=True)
        return sum(weight * reference(part, columns, labels, **given) for part, weight in parts)
    if isinstance(loss, MatryoshkaLoss):
        total = 0.0
        for dim, weight in zip(loss.dims, loss.weights, strict=True):
            short = [[vector[:dim] for vector in column] for column in columns]
            vectors = isinstance(loss.loss, losses.MSELoss)
            total += weight * reference(loss.loss, short, [label[:dim] for label in labels] if vectors else labels)
        return total
    return REFERENCES[getattr(loss, "__name__", type(loss).__name__)](loss, columns, labels, **given)


@every
def test_is_its_formula(row: Row) -> None:
    loss, columns, extras = sample(row)
    labels = extras["labels"].tolist() if extras else None
    expected = reference(loss, [column.tolist() for column in columns], labels)
    assert loss(*columns, **extras).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_every_public_loss_stands_in_the_table() -> None:
    assert {row.name.split("-")[0] for row in LOSSES} - {"plain"} == set(losses.__all__)
