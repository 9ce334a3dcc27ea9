"""Losses against plain loops and against sentence-transformers, and what every loss keeps to."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert import losses
from sbert.losses import AdaptiveLayerLoss, MatryoshkaLoss, MultipleNegativesRankingLoss, WeightedSum
from sbert.training import Signature
from tests.contract.losses import CLASSES, CONTRASTS, LOSSES, MARGINS, Row, plain, plain_ranking

ROWS, DIM = 9, 8
every = pytest.mark.parametrize("row", LOSSES, ids=str)
# The losses of lists are compared in tests/losses/test_lists.py.
of_vectors = pytest.mark.parametrize("row", [row for row in LOSSES if not row.of_lists], ids=str)


def named(name: str) -> Row:
    return next(row for row in LOSSES if row.name == name)


def sample(
    row: Row, dtype: torch.dtype = torch.float64, rows: int = ROWS
) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
    """The loss in float64, its columns, its labels and row data."""
    torch.manual_seed(0)
    loss = row.make(DIM)
    generator = torch.Generator().manual_seed(1)
    shape = (rows, row.dim or DIM)
    columns = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for _ in range(row.columns)]
    labels = row.labels(rows, DIM, generator)
    extras = {} if labels is None else {"labels": labels}
    return loss.double() if isinstance(loss, nn.Module) else loss, columns, extras | row.row_data(rows, generator)


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
    loss, columns, extras = sample(row, rows=4)
    if getattr(loss, "hardness", 0) or getattr(loss, "kl_weight", 0):
        return  # It has a term without a gradient, and is compared with sentence-transformers.
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
    if row.name.startswith(("ContrastiveTension", "AdaptiveLayer")):
        with pytest.raises(ValueError, match="takes several vectors side by side; put MatryoshkaLoss into it"):
            MatryoshkaLoss(loss, [DIM])
        return
    if row.dim or row.name == "CrossEntropyLoss":  # Scores are no vectors.
        return
    expected = loss(*columns, **extras)
    torch.testing.assert_close(MatryoshkaLoss(loss, [DIM])(*columns, **extras), expected, rtol=0, atol=0)
    half = [column[:, : DIM // 2] for column in columns]
    both = MatryoshkaLoss(loss, [DIM // 2, DIM], [0.25, 2.0])
    if "Softmax" in row.name or "softmax" in row.name or "projection" in row.name:
        with pytest.raises(ValueError, match=r"vectors have dim 4, but \w+ was made with dim=8; pass dim=4"):
            both(*columns, **extras)
        return
    if row.of_lists:  # Documents are not dimensions.
        return
    if row.name.startswith("MatryoshkaLoss") and row.name != "MatryoshkaLoss-plain":
        with pytest.raises(ValueError, match=r"dims contains [84], but the vectors have dim [42]; pass at most [42]"):
            both(*columns, **extras)
        return
    short = {"labels": extras["labels"][:, : DIM // 2]} if Signature.of(loss).labels_are_vectors else extras
    value = 2 * expected + 0.25 * loss(*half, **short)
    torch.testing.assert_close(both(*columns, **extras), value, rtol=0, atol=1e-12)


@every
def test_copies_are_equal_and_their_own(row: Row) -> None:
    loss, columns, extras = sample(row)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(other(*columns, **extras), loss(*columns, **extras))
        assert Signature.of(other) == Signature.of(loss)
        if isinstance(loss, nn.Module):
            for mine, theirs in zip(loss.parameters(), other.parameters(), strict=True):
                assert mine.data_ptr() != theirs.data_ptr()
            for inner in getattr(other, "losses", [other]):
                assert any(inner is module for module in other.modules()) or not isinstance(inner, nn.Module)


@every
@pytest.mark.parametrize("kind", ["equal", "zero"])
def test_equal_vectors_have_finite_gradients(row: Row, kind: str) -> None:
    for dtype in (torch.float32, torch.float64):
        loss, columns, extras = sample(row, dtype)
        fill = torch.ones_like if kind == "equal" else torch.zeros_like
        columns = [fill(column).detach().requires_grad_() for column in columns]
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
    if online:  # Pairs of one kind are compared with their mean distance.
        nearest, farthest = min(different, default=mean(distances)), max(alike, default=mean(distances))
        alike, different = [d for d in alike if d > nearest], [d for d in different if d < farthest]
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


LeftOut = Callable[[int, int, int, int], bool]


def ranking_loss(
    loss: Any, columns: list[list[Vector]], labels: Any, left_out: LeftOut = lambda i, j, q, c: False
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
                if left_out(i, j, q, c) and not (i == j and q + c == 1):  # but a pair stays
                    continue
                found = similarity(loss.similarity, columns[q][i], columns[c][j])
                weighted = {"hard": i == j and c > 1, "in_batch": i != j, "all": i != j or c > 1}[loss.hardness_mode]
                hardness = loss.hardness * (q == 0 and c > 0 and weighted)
                scores.append(found / loss.temperature + hardness * found)
            own = similarity(loss.similarity, columns[0][i], columns[1][i]) / loss.temperature
            values.append(math.log(math.fsum(map(math.exp, scores))) - own)
        return mean(values)

    value = direction([(0, 1), *((0, c) for c in negatives), *(b for name in loss.contrast for b in further[name])])
    return (value + direction([(1, 0)])) / 2 if loss.symmetric else value


def margin_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    errors = []
    for (anchor, positive, *negatives), margins in zip(zip(*columns, strict=True), labels, strict=True):
        for negative, margin in zip(negatives, margins if isinstance(margins, list) else [margins], strict=True):
            scores = [similarity(loss.similarity, anchor, vector) for vector in (positive, negative)]
            errors.append((scores[0] - scores[1] - margin) ** 2)
    return mean(errors)


def divergence(teacher: Vector, student: Vector) -> float:
    return math.fsum(
        math.exp(log_softmax(teacher, k)) * (log_softmax(teacher, k) - log_softmax(student, k))
        for k in range(len(teacher))
    )


def divergence_loss(loss: Any, columns: list[list[Vector]], labels: Any, mask: Any = None) -> float:
    total = 0.0
    for i, ((anchor, *candidates), scores) in enumerate(zip(zip(*columns, strict=True), labels, strict=True)):
        kept = [k for k in range(len(scores)) if mask is None or mask[i][k]]
        student = [similarity(loss.similarity, anchor, candidates[k]) / loss.temperature for k in kept]
        total += divergence([scores[k] / loss.teacher_temperature for k in kept], student)
    return loss.temperature**2 * total / len(labels)


def embedding_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    found = []
    for c, column in enumerate(columns):
        for vector, label in zip(column, labels, strict=True):
            if loss.projection is not None:
                weight, bias = loss.projection.weight.tolist(), loss.projection.bias.tolist()
                vector, label = [dot(w, vector) + b for w, b in zip(weight, bias, strict=True)], label[c]
            mse = loss.distance == "mse"
            found.append(math.dist(vector, label) ** 2 / len(label) if mse else distance(loss.distance, vector, label))
    return mean(found)


def tension_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    half = DIM // 2
    first, second = [vector[:half] for vector in columns[0]], [vector[half:] for vector in columns[0]]
    scores = [[math.exp(loss.log_scale.item()) * similarity("cosine", u, v) for v in second] for u in first]
    both = (scores, [list(column) for column in zip(*scores, strict=True)])
    return mean(-log_softmax(row, i) for matrix in both for i, row in enumerate(matrix))


def mega_batch_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    cosines = [[similarity("cosine", a, p) for p in columns[1]] for a in columns[0]]
    return mean(
        max(loss.positive_margin - row[i], 0) + max(max(row[:i] + row[i + 1 :]) - loss.negative_margin, 0)
        for i, row in enumerate(cosines)
    )


def orthogonal_loss(loss: Any, columns: list[list[Vector]], labels: Any) -> float:
    found = []
    for column in columns:
        cosines = [similarity("cosine", u, v) for u in column for v in column if u is not v]
        spread = max(mean(c * c for c in cosines) - 1 / DIM, 0)
        found.append(loss.mean_weight * mean(cosines) ** 2 + loss.second_moment_weight * spread)
    return mean(found)


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
    "EmbeddingDistillationLoss": embedding_loss,
    "ContrastiveTensionLoss": tension_loss,
    "MegaBatchMarginLoss": mega_batch_loss,
    "GlobalOrthogonalRegularizationLoss": orthogonal_loss,
    "BinaryCrossEntropyLoss": lambda loss, columns, labels: mean(
        math.log(1 + math.exp(-s)) * y + math.log(1 + math.exp(s)) * (1 - y)
        for (s,), y in zip(*columns, labels, strict=True)
    ),
    "SquaredErrorLoss": lambda loss, columns, labels: mean(
        ((1 / (1 + math.exp(-s)) if loss.activation else s) - y) ** 2 for (s,), y in zip(*columns, labels, strict=True)
    ),
    "CrossEntropyLoss": lambda loss, columns, labels: mean(
        -log_softmax(scores, label) for scores, label in zip(*columns, labels, strict=True)
    ),
    "plain": lambda loss, columns, labels: mean(
        (math.dist(u, v) ** 2 - label) ** 2 for u, v, label in zip(*columns, labels, strict=True)
    ),
    "plain_weighted": lambda loss, columns, labels, weight, group: mean(
        2 * (group[i] == group[j]) * weight[j] * (j + 1) * dot(u, v) ** 2
        for i, u in enumerate(columns[0])
        for j, v in enumerate(columns[1])
    ),
    "plain_ranking": lambda loss, columns, labels: (
        -sum(similarity("manhattan", u, v) for u, v in zip(*columns, strict=True))
    ),
}


def reference(loss: Any, columns: list[list[Vector]], labels: Any, **given: Any) -> float:
    if isinstance(loss, WeightedSum):
        parts = zip(loss.losses, loss.weights, strict=True)
        taken = [{name: given[name] for name in given if name in Signature.of(part).by_name} for part in loss.losses]
        return sum(
            weight * reference(part, columns, labels, **own) for (part, weight), own in zip(parts, taken, strict=True)
        )
    if isinstance(loss, AdaptiveLayerLoss):
        dim = len(columns[0][0]) // loss.layers
        blocks = [[[v[k * dim : (k + 1) * dim] for v in column] for column in columns] for k in range(loss.layers)]
        *values, last = (w * reference(loss.losses[0], x, labels) for w, x in zip(loss.weights, blocks, strict=True))
        *logs, target = [[[x / loss.kl_temperature for x in v] for column in block for v in column] for block in blocks]
        far = mean(divergence(y, x) for log in logs for x, y in zip(log, target, strict=True))
        return last + mean(values) + loss.kl_weight * loss.kl_temperature * far
    if isinstance(loss, MatryoshkaLoss):
        total = 0.0
        for dim, weight in zip(loss.dims, loss.weights, strict=True):
            short = [[vector[:dim] for vector in column] for column in columns]
            vectors = isinstance(loss.losses[0], losses.MSELoss)
            shortened = [label[:dim] for label in labels] if vectors else labels
            total += weight * reference(loss.losses[0], short, shortened, **given)
        return total
    return REFERENCES[getattr(loss, "__name__", type(loss).__name__)](loss, columns, labels, **given)


@of_vectors
def test_is_its_formula(row: Row) -> None:
    loss, columns, extras = sample(row)
    given = {name: extra.tolist() for name, extra in extras.items()}
    expected = reference(loss, [column.tolist() for column in columns], given.pop("labels", None), **given)
    assert loss(*columns, **extras).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("distance", list(MARGINS))
def test_online_contrastive_of_one_kind(kind: int, distance: str) -> None:
    loss, columns, extras = sample(named(f"OnlineContrastiveLoss-{distance}"))
    labels = torch.full_like(extras["labels"], kind)
    expected = reference(loss, [column.tolist() for column in columns], labels.tolist())
    assert loss(*columns, labels=labels).item() == pytest.approx(expected, rel=1e-12)
    assert expected > 0


def test_every_public_loss_stands_in_the_table() -> None:
    assert {row.name.split("-")[0] for row in LOSSES} - {"plain"} == set(losses.__all__)


def guide_vectors(columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """(ROWS, columns, 5): some candidates like the anchor more than its positive does."""
    return torch.randn(ROWS, columns, 5, generator=torch.Generator().manual_seed(2), dtype=dtype)


def test_an_odd_dim_has_one_imaginary_part_less() -> None:
    loss, columns, extras = sample(named("AnglELoss"))
    short = [column[:, :-1] for column in columns]
    padded = [torch.cat([column, torch.zeros(ROWS, 1)], 1) for column in short]
    expected = reference(loss, [column.tolist() for column in padded], extras["labels"])
    assert loss(*short, **extras).item() == loss(*padded, **extras).item() == pytest.approx(expected)


def test_a_lone_label_is_no_positive_of_itself() -> None:
    """Here the mean leaves it out; sentence-transformers takes it for its own positive."""
    vectors, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])
    # Rows 0 and 1: 1 - 3 + 4 = 2 and 1 - 2 + 4 = 3.
    assert losses.BatchHardTripletLoss(margin=4.0)(vectors, labels=labels).item() == pytest.approx(5 / 2)


# Candidates that are left out.


def texts_of(columns: int) -> Tensor:
    """(ROWS, columns): some texts equal, within rows and across them, an anchor and its own positive included."""
    texts = torch.randint(4 * ROWS, (ROWS, columns), generator=torch.Generator().manual_seed(3))
    texts[1, 1] = texts[0, 1]  # the same positive
    texts[2, 0] = texts[3, 0]  # the same anchor
    texts[4, 1] = texts[5, 0]  # a positive that is another row's anchor
    texts[6, 1] = texts[6, 0]  # a row's own positive is its anchor
    if columns > 2:
        texts[7, 2] = texts[8, 1]  # a negative that is another row's positive
        texts[0, 2] = texts[0, 0]  # a negative that is its own anchor
    return texts


def left_out(texts: Tensor | None, guide: Tensor | None, margin: Callable[[float], float]) -> LeftOut:
    ids, vectors = [None if given is None else given.tolist() for given in (texts, guide)]

    def decide(i: int, j: int, q: int, c: int) -> bool:
        out = False
        if ids is not None:
            out |= ids[j][c] in ids[i][:2] or (c < 2 and ids[j][1 - c] == ids[i][1 - c])
        if vectors is not None:
            own = similarity("cosine", vectors[i][0], vectors[i][1])
            out |= similarity("cosine", vectors[i][q], vectors[j][c]) > own - margin(own)
        return out

    return decide


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("given", ["texts", "guide", "both"])
@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("contrast", [(), CONTRASTS], ids=["", "contrast"])
@pytest.mark.parametrize("relative", [False, True])
def test_what_is_left_out(columns: int, given: str, symmetric: bool, contrast: tuple[str, ...], relative: bool) -> None:
    """Values as from the plain loop, and no gradient but from those candidates that are kept."""
    _, vectors, _ = sample(named("MultipleNegativesRankingLoss-3"))
    vectors = vectors[:columns]
    settings: dict[str, Any] = {"guide_margin": 0.1, "relative_margin": relative, "contrast": contrast}
    loss = MultipleNegativesRankingLoss(temperature=0.5, symmetric=symmetric, **settings)
    texts = texts_of(columns) if given != "guide" else None
    guide = guide_vectors(columns) if given != "texts" else None
    before = [None if extra is None else extra.clone() for extra in (texts, guide)]
    value = loss(*vectors, texts=texts, guide=guide)
    decide = left_out(texts, guide, lambda own: 0.1 * (abs(own) if relative else 1))
    expected = ranking_loss(loss, [column.tolist() for column in vectors], None, decide)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert value < loss(*vectors), "nothing was left out"
    for extra, old in zip((texts, guide), before, strict=True):
        assert extra is None or torch.equal(extra, old)
    assert torch.autograd.gradcheck(lambda *c: loss(*c, texts=texts, guide=guide), vectors, fast_mode=True)


def test_a_row_keeps_its_own_positive() -> None:
    """With one text everywhere nothing else is left, and the loss is 0, as is its gradient."""
    _, vectors, _ = sample(named("MultipleNegativesRankingLoss-3"))
    for symmetric in (False, True):
        loss = MultipleNegativesRankingLoss(symmetric=symmetric, guide_margin=3.0)
        extras = {"texts": torch.zeros(ROWS, 5, dtype=torch.int64)}
        for given in (extras, {"guide": guide_vectors(5)}):
            assert not any(tensor.any() for tensor in with_gradients(loss, vectors, given))


def test_a_guide_in_half_precision_compares_in_float32() -> None:
    _, vectors, _ = sample(named("MultipleNegativesRankingLoss"))
    guide = guide_vectors(2, torch.bfloat16)
    loss = MultipleNegativesRankingLoss()
    assert loss(*vectors, guide=guide) == loss(*vectors, guide=guide.double())


# Labels, shapes and settings that do not fit.

NAN = math.nan
GROUPS = ["BatchAllTripletLoss", "BatchHardTripletLoss", "BatchSemiHardTripletLoss"]
WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("CosineSimilarityLoss", [0, 1, 0.5, 4.2], ValueError, "[3] is 4.2; CosineSimilarityLoss takes -1 to 1; divide"),
    ("CosineSimilarityLoss", [NAN, 1], ValueError, "labels[0] is nan; CosineSimilarityLoss takes -1 to 1"),
    ("SoftmaxLoss-u,v", [0, -1], ValueError, "labels[1] is -1; SoftmaxLoss takes 0 to 2; leave out rows without"),
    ("SoftmaxLoss-u,v", [0.0, 1.0], TypeError, "labels are torch.float32; SoftmaxLoss takes whole numbers; number"),
    ("SoftmaxLoss-u,v", [True, False], TypeError, "labels are torch.bool; SoftmaxLoss takes whole numbers"),
    ("CoSENTLoss", [1, NAN], ValueError, "labels[1] is nan; CoSENTLoss takes finite numbers; leave out rows"),
    ("AnglELoss", [math.inf, 1], ValueError, "labels[0] is inf; AnglELoss takes finite numbers; leave out rows"),
    ("ContrastiveLoss-cosine", [1, 2], ValueError, "labels[1] is 2; ContrastiveLoss takes 0 (dissimilar) or 1"),
    ("OnlineContrastiveLoss-cosine", [0.5, 1], ValueError, "is 0.5; OnlineContrastiveLoss takes 0 (dissimilar)"),
    *((f"{name}-cosine", [0.0, 0.0], TypeError, f"labels are torch.float32; {name} takes whole") for name in GROUPS),
    (
        "MarginMSELoss",
        [1, NAN],
        ValueError,
        "labels[1] is nan; MarginMSELoss takes finite numbers; check whether the t",
    ),
    ("MarginMSELoss-cosine-2", [[1, 2], [3, NAN]], ValueError, "labels[1, 1] is nan; MarginMSELoss takes finite"),
    ("MSELoss-1", [[0] * DIM, [NAN] * DIM], ValueError, "labels[1, 0] is nan; MSELoss takes finite numbers; check"),
    ("DistillKLDivLoss", [[1, 2], [-math.inf, 0]], ValueError, "labels[1, 0] is -inf; DistillKLDivLoss takes finite"),
    ("BinaryCrossEntropyLoss", [0.0, 0.5, 1.5], ValueError, "labels[2] is 1.5; BinaryCrossEntropyLoss takes 0 to 1"),
    ("BinaryCrossEntropyLoss", [0.0, NAN], ValueError, "labels[1] is nan; BinaryCrossEntropyLoss takes 0 to 1"),
    ("SquaredErrorLoss", [0.0, math.inf], ValueError, "labels[1] is inf; SquaredErrorLoss takes finite"),
    (
        "SquaredErrorLoss-sigmoid",
        [0.0, 5.0],
        ValueError,
        "labels[1] is 5; SquaredErrorLoss takes 0 to 1 with a sigmoid",
    ),
    ("CrossEntropyLoss", [0, DIM], ValueError, "labels[1] is 8; CrossEntropyLoss takes 0 to 7"),
    ("CrossEntropyLoss", [0.0, 1.0], TypeError, "CrossEntropyLoss takes whole numbers"),
    ("MatryoshkaLoss", [0.0, 7.5], ValueError, "labels[1] is 7.5; CosineSimilarityLoss takes -1 to 1"),
    ("WeightedSum-softmax", [0, 7], ValueError, "labels[1] is 7; SoftmaxLoss takes 0 to 2"),
]


@pytest.mark.parametrize(("name", "labels", "kind", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_labels_that_do_not_fit(name: str, labels: Any, kind: type[Exception], message: str) -> None:
    """Said by ``check_labels``, and by the loss itself in a step."""
    row = named(name)
    tensor = torch.tensor(labels)
    loss, columns, _ = sample(row, rows=len(tensor))
    for attempt in (lambda: loss.check_labels(tensor), lambda: loss(*columns, labels=tensor)):
        with pytest.raises(kind) as caught:
            attempt()
        assert message in str(caught.value)


LABELLED = [row for row in LOSSES if row.name in {name for name, *_ in WRONG}]


@pytest.mark.parametrize("row", LABELLED, ids=str)
def test_missing_labels_and_wrong_shapes(row: Row) -> None:
    loss, columns, extras = sample(row)
    with pytest.raises((ValueError, TypeError, AssertionError), match="labels"):
        loss(*columns)
    labels = extras["labels"]
    for wrong in (labels[:-1], labels[..., None, None], labels[None]):
        if row.name == "WeightedSum-softmax":  # the plain function comes first, and checks nothing
            continue
        with pytest.raises(ValueError, match=r"labels"):
            loss(*columns, labels=wrong)
    if not isinstance(loss, (MatryoshkaLoss, WeightedSum)):
        with pytest.raises(ValueError, match=r"needs labels; give the data a column of labels"):
            loss(*columns, labels=None)
        with pytest.raises(TypeError, match=r"takes labels as a tensor, not a list; pass torch\.tensor\(labels\)"):
            loss(*columns, labels=labels.tolist())


@pytest.mark.parametrize(
    "row", [row for row in LOSSES if "plain" not in row.name and row.name != "WeightedSum-softmax"], ids=str
)
def test_columns_that_do_not_fit(row: Row) -> None:
    loss, columns, extras = sample(row)
    name = "|".join([type(loss).__name__, "CosineSimilarityLoss", "AnglELoss"])
    for wrong in (columns[0][0], columns[0][None]):
        with pytest.raises(ValueError, match=rf"({name}) takes columns of one shape \(rows, dim\); found "):
            loss(wrong, *columns[1:], **extras)
    with pytest.raises(TypeError, match=rf"({name}) takes columns of vectors, .* not a torch.int64 tensor"):
        loss(*columns[:-1], columns[-1].long(), **extras)
    with pytest.raises(TypeError, match=rf"({name}) takes columns of vectors, .* not a list"):
        loss(*columns[:-1], columns[-1].tolist(), **extras)
    with pytest.raises(ValueError, match=rf"({name}) was given no rows; pass at least 1"):
        loss(*(column[:0] for column in columns), **{key: label[:0] for key, label in extras.items()})
    if len(columns) > 1:
        for wrong in (columns[-1][:-1], columns[-1][:, :-1]):
            with pytest.raises(ValueError, match=rf"({name}) takes columns of one shape .*; found \(9, 8\), "):
                loss(*columns[:-1], wrong, **extras)


def test_columns_that_are_lacking() -> None:
    vectors = torch.eye(2)
    with pytest.raises(ValueError, match=r"MSELoss takes columns of one shape .*; found none"):
        losses.MSELoss()(labels=vectors)
    with pytest.raises(
        ValueError, match=r"MarginMSELoss was given no negatives; a margin is .*; add a column of negatives"
    ):
        losses.MarginMSELoss()(vectors, vectors, labels=vectors)
    with pytest.raises(ValueError, match=r"DistillKLDivLoss was given no negatives; the distribution over one"):
        losses.DistillKLDivLoss()(vectors, vectors, labels=vectors)
    ranking = MultipleNegativesRankingLoss()
    with pytest.raises(
        ValueError, match=r"texts are torch.int64 of shape \(2, 3\); pass integer ids of shape \(2, 2\)"
    ):
        ranking(vectors, vectors, texts=torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"texts are torch\.float32"):
        ranking(vectors, vectors, texts=torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"guide has shape \(2, 3, 4\); pass .* \(2, 2, 'guide_dim'\)"):
        ranking(vectors, vectors, guide=torch.zeros(2, 3, 4))


def distill_with_mask() -> Tensor:
    columns = [torch.ones(2, 3)] * 3
    return losses.DistillKLDivLoss()(*columns, labels=torch.ones(2, 2), mask=torch.ones(2, 3, dtype=torch.bool))


def scores_of_three(loss: Any) -> Tensor:
    return loss(torch.ones(2, 3), labels=torch.ones(2, dtype=torch.int64))


def adaptive_of_three() -> Tensor:
    return AdaptiveLayerLoss(plain, 2)(torch.ones(2, 3), torch.ones(2, 3), labels=torch.ones(2))


SETTINGS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (losses.SoftmaxLoss, (0, 3), {}, "dim=0, classes=3 leave nothing"),
    (losses.SoftmaxLoss, (8, 1), {}, "dim=8, classes=1 leave nothing"),
    (losses.SoftmaxLoss, (8, 3, ()), {}, "concatenation=(); pass a tuple of one or more of ('u', 'v', '|u-v|', 'u*v')"),
    (losses.SoftmaxLoss, (8, 3, ("u", "u")), {}, "concatenation=('u', 'u'); pass"),
    (losses.SoftmaxLoss, (8, 3, ("u-v",)), {}, "concatenation=('u-v',); pass"),
    (losses.CoSENTLoss, (0,), {}, "temperature=0 is not positive"),
    (losses.AnglELoss, (NAN,), {}, "temperature=nan is not positive"),
    (losses.DistillKLDivLoss, (), {"teacher_temperature": 0.0}, "temperature=0.0 is not positive"),
    (distill_with_mask, (), {}, "takes a mask of shape (2, 2), not (2, 3)"),
    (MultipleNegativesRankingLoss, (math.inf,), {}, "temperature=inf is not positive"),
    (MultipleNegativesRankingLoss, (), {"similarity": "cos"}, "similarity 'cos' is unknown; pass one of cosine, dot"),
    (MultipleNegativesRankingLoss, (), {"guide_margin": NAN}, "guide_margin=nan is not finite"),
    (MultipleNegativesRankingLoss, (), {"hardness": -1.0}, "hardness=-1.0 is negative or not finite"),
    (MultipleNegativesRankingLoss, (), {"hardness_mode": "x"}, "hardness_mode='x' is unknown; pass one of 'all'"),
    (MultipleNegativesRankingLoss, (), {"contrast": ["anchor"]}, "contrast=['anchor']; pass a tuple of some of"),
    (MultipleNegativesRankingLoss, (), {"contrast": "anchor-anchor"}, "contrast='anchor-anchor'; pass a tuple"),
    (losses.TripletLoss, ("dot",), {}, "distance='dot' is unknown; pass one of 'euclidean', 'cosine'"),
    (losses.TripletLoss, (), {"margin": -1.0}, "margin=-1.0 is negative"),
    (losses.ContrastiveLoss, (), {"margin": NAN}, "margin=nan is negative or not finite"),
    (MatryoshkaLoss, (plain, []), {}, "dims=(); pass one or more"),
    (MatryoshkaLoss, (plain, [4, 0]), {}, "dims=(4, 0); pass one or more"),
    (MatryoshkaLoss, (plain, [4, 4]), {}, "dims=(4, 4); pass one or more"),
    (MatryoshkaLoss, (plain, [4, 2], [1.0]), {}, "weights=(1.0,); pass 2 numbers"),
    (MatryoshkaLoss, (plain, [4, 2], [1.0, -1.0]), {}, "weights=(1.0, -1.0); pass 2 numbers of 0 or more"),
    (losses.MegaBatchMarginLoss, (0.3, 0.8), {}, "margins 0.3, 0.8; pass cosines, the first greater"),
    (losses.GlobalOrthogonalRegularizationLoss, (0, 0), {}, "the weights are (0, 0); pass numbers of 0 or more"),
    (losses.ContrastiveTensionLoss().forward, (torch.ones(2, 3),), {}, "dim 3 is odd; pass the vectors of two models"),
    (losses.EmbeddingDistillationLoss, (4,), {}, "dim=4, teacher_dim=None; pass both for a projection"),
    (losses.EmbeddingDistillationLoss, (), {"distance": "l2"}, "distance='l2' is unknown; pass one of 'eucl"),
    (AdaptiveLayerLoss, (plain, 1), {}, "layers=1, kl_weight=1.0; pass 2 layers or more"),
    (
        AdaptiveLayerLoss,
        (plain, 2, None, -1.0),
        {},
        "layers=2, kl_weight=-1.0; pass 2 layers or more, and",
    ),
    (adaptive_of_three, (), {}, "vectors of dim 3 are not those of 2 layers side by side"),
    (scores_of_three, (losses.SquaredErrorLoss(),), {}, "takes 1 score per row, but the model gives 3"),
    (scores_of_three, (losses.CrossEntropyLoss(2),), {}, "takes 2 scores per row, but the model gives 3"),
    (losses.CrossEntropyLoss, (1,), {}, "classes=1 leaves nothing to classify"),
    (WeightedSum, (), {}, "WeightedSum was given no losses"),
    (WeightedSum, ((plain, 0.0),), {}, "weights=(0.0,); pass 1 numbers of 0 or more, not all of them 0"),
]


@pytest.mark.parametrize(("make", "values", "options", "message"), SETTINGS)
def test_settings_that_do_not_fit(
    make: Callable[..., Any], values: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make(*values, **options)
    assert message in str(caught.value)


# Wrappers.


@pytest.mark.parametrize(
    "inner", [plain, plain_ranking, losses.CoSENTLoss(), losses.MSELoss(), MultipleNegativesRankingLoss()]
)
def test_wrappers_bear_the_names_of_what_they_wrap(inner: Any) -> None:
    expected = Signature.of(inner)
    twice = WeightedSum((MatryoshkaLoss(inner, [4, 2]), 1.0), (MatryoshkaLoss(WeightedSum((inner, 1.0)), [4]), 2.0))
    for wrapped in (MatryoshkaLoss(inner, [4]), WeightedSum((inner, 1.0)), twice):
        assert Signature.of(wrapped) == replace(expected, name=type(wrapped).__name__)


def ranking_with_labels(anchor: Tensor, positive: Tensor, *negatives: Tensor, labels: Tensor) -> Tensor:
    return ((anchor - positive).square().sum(1) * labels).mean()


def test_extras_go_to_those_that_ask() -> None:
    ranking = MultipleNegativesRankingLoss()
    _, vectors, _ = sample(named("MultipleNegativesRankingLoss-1"))
    texts, labels = texts_of(3), torch.arange(ROWS)
    both = MatryoshkaLoss(WeightedSum((ranking, 1.0), (ranking_with_labels, 0.5)), [DIM])
    extras = frozenset({"labels", "texts", "guide"})
    assert Signature.of(both) == Signature("MatryoshkaLoss", ("anchor", "positive"), "negatives", extras, True)
    expected = ranking(*vectors, texts=texts) + 0.5 * ranking_with_labels(*vectors, labels=labels)
    torch.testing.assert_close(both(*vectors, texts=texts, labels=labels), expected)
    with pytest.raises(TypeError, match="labels given, which no loss in MatryoshkaLoss takes; leave it out"):
        MatryoshkaLoss(ranking, [DIM])(*vectors, labels=labels)
    with pytest.raises(TypeError, match="guide given, which no loss in WeightedSum takes"):
        WeightedSum((plain, 1.0), (losses.CoSENTLoss(), 1.0))(*vectors[:2], labels=labels, guide=guide_vectors(2))
    with pytest.raises(TypeError, match="the loss is of type int; pass a function or a module"):
        MatryoshkaLoss(3, [4])  # type: ignore[arg-type]


def test_only_labels_that_are_vectors_are_truncated() -> None:
    """Scores of as many candidates as the vectors have entries stay whole."""
    torch.manual_seed(0)
    vectors = [torch.randn(ROWS, 4) for _ in range(5)]
    scores = torch.randn(ROWS, 4)
    loss = losses.DistillKLDivLoss()
    expected = loss(*(column[:, :2] for column in vectors), labels=scores)
    assert MatryoshkaLoss(loss, [2])(*vectors, labels=scores) == expected
    nested = WeightedSum((MatryoshkaLoss(losses.MSELoss(), [2]), 1.0))
    assert nested(*vectors, labels=scores) == losses.MSELoss()(
        *(column[:, :2] for column in vectors), labels=scores[:, :2]
    )
    with pytest.raises(
        ValueError, match="labels are vectors of dim 6, but the columns have dim 4; pass labels of that dim"
    ):
        MatryoshkaLoss(losses.MSELoss(), [2])(*vectors, labels=torch.zeros(ROWS, 6))


def test_a_classifier_in_float32_loses_no_digits_of_float64() -> None:
    torch.manual_seed(0)
    loss, (first, second) = losses.SoftmaxLoss(DIM, CLASSES), torch.randn(2, ROWS, DIM, dtype=torch.float64)
    assert torch.equal(loss.scores(first, second), copy.deepcopy(loss).double().scores(first, second))
    assert loss.scores(first.bfloat16(), second.bfloat16()).dtype == torch.float32
    labels = torch.arange(ROWS) % CLASSES
    expected = -loss.scores(first, second).log_softmax(1)[torch.arange(ROWS), labels].mean()
    torch.testing.assert_close(loss(first, second, labels=labels), expected)


# Devices.

COUNTS_PAIRS = ("BatchAllTripletLoss", "BatchSemiHardTripletLoss")  # as many as the labels make


@pytest.mark.parametrize("row", [row for row in LOSSES if not row.name.startswith(COUNTS_PAIRS)], ids=str)
def test_no_value_is_read_off_the_cpu(row: Row) -> None:
    """Tensors on the meta device have no values: reading one, as a check or a count does, is an error."""
    loss, columns, extras = sample(row)
    loss = loss.to("meta") if isinstance(loss, nn.Module) else loss
    elsewhere = [column.detach().to("meta") for column in columns]
    given = {name: extra.to("meta") for name, extra in extras.items()}
    assert loss(*elsewhere, **given).shape == ()
    if isinstance(loss, MultipleNegativesRankingLoss):
        texts, guide = texts_of(row.columns), guide_vectors(row.columns)
        assert loss(*elsewhere, texts=texts.to("meta"), guide=guide.to("meta")).shape == ()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every
def test_on_a_gpu(row: Row) -> None:
    """Value and gradient as on the CPU."""
    loss, columns, extras = sample(row)
    expected = with_gradients(loss, columns, extras)
    loss = loss.cuda() if isinstance(loss, nn.Module) else loss
    moved = [column.detach().cuda().requires_grad_() for column in columns]
    found = with_gradients(loss, moved, {name: extra.cuda() for name, extra in extras.items()})
    torch.testing.assert_close([tensor.cpu() for tensor in found], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_ranking_in_parts_is_ranking_at_once(similarity: str, symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows of which three are scored at once, with and without what masks candidates."""
    generator = torch.Generator().manual_seed(0)
    count = 2 if symmetric else 4
    columns = [torch.randn(7, 5, generator=generator, dtype=torch.float64) for _ in range(count)]
    extras: dict[str, Tensor] = {
        "texts": torch.randint(6, (7, count), generator=generator),
        "guide": torch.randn(7, count, 3, generator=generator, dtype=torch.float64),
    }
    loss = MultipleNegativesRankingLoss(0.5, similarity, symmetric=symmetric, contrast=CONTRASTS, hardness=0.5)
    for names in ([], ["texts"], ["guide"], ["texts", "guide"]):
        given = {name: extras[name] for name in names}
        found = []
        for rows in (512, 3):
            monkeypatch.setattr("sbert.losses.ranking._ROWS", rows)
            leaves = [column.clone().requires_grad_() for column in columns]
            value = loss(*leaves, **given)
            found.append((value.detach(), *torch.autograd.grad(value, leaves)))
        for whole, parts in zip(*found, strict=True):
            torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


# Signatures.


@every
def test_the_table_is_what_signatures_say(row: Row) -> None:
    signature = Signature.of(row.make(DIM))
    assert len(signature.columns) == row.columns or (signature.more and len(signature.columns) < row.columns)
    labels = row.labels(4, DIM, torch.Generator().manual_seed(0))
    assert labels is None or "labels" in signature.extras
    assert not (labels is None and signature.needs_labels)


def test_what_is_no_loss() -> None:
    """Columns are given by position, and would be taken for the setting before them."""
    cases: list[tuple[Any, str]] = [
        (lambda anchor, positive, margin=0.5, *negatives: 0, "has the column 'negatives' after 'margin'"),
        (lambda first, labels, second: 0, "has the column 'second' after 'labels'"),
        (lambda: 0, "takes no columns; give it parameters"),
        (losses.TripletLoss, "the loss is the class TripletLoss; call it with its settings: TripletLoss"),
        (Model(), r"the loss is a model \(Model\)"),
        ("softmax", "is of type str; pass a function"),
    ]
    for loss, words in cases:
        with pytest.raises(TypeError, match=words):
            Signature.of(loss)


def test_losses_of_pairs_and_of_ranks_add_up() -> None:
    """As AnglELoss says that its paper does; the names are those of the first."""
    columns, labels = torch.randn(2, 4, DIM).unbind(), torch.tensor([0.9, 0.2, 0.5, 0.1])
    parts = [(losses.AnglELoss(), 1.0), (losses.CoSENTLoss(), 0.5), (MultipleNegativesRankingLoss(), 2.0)]
    for given, names in ((parts, ("first", "second")), (parts[::-1], ("anchor", "positive"))):
        loss = WeightedSum(*given)
        assert (Signature.of(loss).columns, Signature.of(loss).more) == (names, None)
        expected = parts[0][0](*columns, labels=labels) + 0.5 * parts[1][0](*columns, labels=labels)
        torch.testing.assert_close(loss(*columns, labels=labels), expected + 2 * parts[2][0](*columns))

    def swapped(anchor: Tensor, negative: Tensor, positive: Tensor) -> Tensor:
        return anchor.sum()

    with pytest.raises(ValueError, match="but swapped takes anchor, negative, positive; pass losses of as many"):
        WeightedSum((losses.TripletLoss(), 1.0), (swapped, 1.0))
    with pytest.raises(ValueError, match="TripletLoss takes anchor, positive, negative, but CoSENTLoss takes first, s"):
        WeightedSum((losses.CoSENTLoss(), 1.0), (losses.TripletLoss(), 1.0))
    three = Signature.of(WeightedSum((MultipleNegativesRankingLoss(), 1.0), (losses.TripletLoss(), 1.0)))
    assert (three.columns, three.more) == (("anchor", "positive", "negative"), None)


class Model(nn.Module):
    """A part of a model of some library, by its tokenizer."""

    tokenizer = None


ARGUMENTS = {"CrossEntropyLoss": "classes", "SoftmaxLoss": "dim, classes", "MatryoshkaLoss": "loss, dims"}
ARGUMENTS |= {"AdaptiveLayerLoss": "loss, layers", "WeightedSum": "*pairs"}


@pytest.mark.parametrize("name", losses.__all__)
def test_a_loss_that_is_given_a_model_shows_the_right_call(name: str) -> None:
    for values, given in (([Model()], {}), ([Model(), plain, [4]], {}), ([], {"model": "a name on the hub"})):
        with pytest.raises(TypeError, match=rf"^{name} was given a model \(\w+\); .* never sees the model") as caught:
            getattr(losses, name)(*values, **given)
        assert str(caught.value).endswith(f"Trainer(model, data, {name}({ARGUMENTS.get(name, '')}))")
    with pytest.raises(TypeError, match=r"the loss is a model \(Model\)"):
        WeightedSum((Model(), 1.0))  # A module that is no model, such as an activation, is taken.
    assert losses.SquaredErrorLoss(nn.Sigmoid()).activation is not None


# What teaches a loss nothing.


@pytest.mark.parametrize("row", [row for row in LOSSES if row.idle], ids=str)
def test_a_batch_that_teaches_nothing_is_worth_nothing(row: Row) -> None:
    for rows, labels in row.idle:
        columns = [torch.randn(rows, DIM).requires_grad_() for _ in range(row.columns)]
        loss, extras = row.make(DIM), {} if labels is None else {"labels": torch.tensor(labels)}
        assert not any(tensor.any() for tensor in with_gradients(loss, columns, extras))
        with pytest.raises(ValueError, match=r"teach(es)? \w+ nothing.*; (add|pass)"):
            loss.check_data(losses.module.Data(rows, row.columns, extras.get("labels")))


@pytest.mark.parametrize("row", [row for row in LOSSES if not row.idle], ids=str)
def test_what_teaches_is_no_error(row: Row) -> None:
    """Three rows of one label, and one row alone, have a gradient; only where one answer would do are they refused."""
    loss, columns, extras = sample(row, torch.float32, rows=3)
    loss = loss.float() if isinstance(loss, nn.Module) else loss
    labels = extras.get("labels")
    if labels is not None:
        ones = labels.new_ones(3) if row.labels.__name__ == "binary" else labels[:1].expand(labels.shape)
        extras["labels"] = ones if row.labels.__name__ in ("classes", "binary") else ones.float()
    value = loss(*columns, **extras)
    assert any(gradient.any() for gradient in torch.autograd.grad(value, columns, allow_unused=True))
    for rows in (1, 3):
        data = losses.module.Data(rows, row.columns, None if labels is None else extras["labels"][:rows])
        if row.one_answer:
            with pytest.raises(ValueError, match="nothing"):
                loss.check_data(data)
        elif hasattr(loss, "check_data"):
            loss.check_data(data)
