"""What every loss keeps to, and its value by plain loops."""

from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert import TokenEmbeddings, losses
from sbert.losses import MatryoshkaLoss, MultipleNegativesRankingLoss, WeightedSum
from sbert.losses.checks import Data
from sbert.losses.signature import Signature
from tests.contract.loss_formulas import LeftOut, formula, ranking_loss, similarity
from tests.contract.losses import CONTRASTS, LOSSES, MARGINS, Row, plain, plain_ranking

ROWS, DIM = 9, 8
NAMED = {row.name: row for row in LOSSES}


def rows(condition: Callable[[Row], Any] = lambda row: True) -> Any:
    chosen = [row for row in LOSSES if condition(row) and not row.of_tokens]
    return pytest.mark.parametrize("row", chosen, ids=str)


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
    return cast(loss, torch.float64), columns, extras | row.row_data(rows, generator)


def cast(loss: Any, dtype: Any) -> Any:
    return loss.to(dtype) if isinstance(loss, nn.Module) else loss


def with_gradients(loss: Callable[..., Tensor], columns: list[Tensor], extras: dict[str, Tensor]) -> list[Tensor]:
    """The value and the gradient at each column."""
    value = loss(*columns, **extras)
    return [value.detach(), *torch.autograd.grad(value, columns)]


@rows()
def test_value_and_gradient(row: Row) -> None:
    """Its formula in plain loops, the derivative by gradcheck, and float64's value in float32 and bfloat16."""
    loss, columns, extras = sample(row)
    if not row.of_lists and not row.name.startswith("plain"):  # tests/losses/test_lists.py compares those of lists.
        listed = {name: extra.tolist() for name, extra in extras.items()}
        expected = formula(loss, [column.tolist() for column in columns], listed.pop("labels", None), **listed)
        assert loss(*columns, **extras).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for dtype in (torch.float32, torch.bfloat16):
        loss, columns, extras = sample(row, dtype)
        exact = loss(*(column.double() for column in columns), **extras)
        value, *gradients = with_gradients(cast(loss, torch.float32), columns, extras)
        assert value.shape == ()
        assert value > 0, dtype
        assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients), dtype
        if not row.name.startswith(("plain", "MatryoshkaLoss-plain", "WeightedSum-softmax")):  # the users' arithmetic
            assert value.dtype == torch.float32
            torch.testing.assert_close(value.double(), exact.detach(), rtol=1e-5, atol=1e-6)
    loss, columns, extras = sample(row, rows=4)
    if not getattr(loss, "hardness", 0) and not getattr(loss, "kl_weight", 0):  # They have terms without a gradient.
        inputs = [*columns, *(loss.parameters() if isinstance(loss, nn.Module) else ())]
        assert torch.autograd.gradcheck(lambda *some: loss(*some[: row.columns], **extras), inputs, fast_mode=True)


@pytest.mark.parametrize("row", [row for row in LOSSES if row.of_tokens], ids=str)
def test_of_token_vectors(row: Row) -> None:
    """Its formula in plain loops, the derivative by gradcheck, and float64's value in float32 and bfloat16."""
    loss, generator, lengths = row.make(DIM), torch.Generator().manual_seed(1), [3, 1, 4, 2, 4]
    labels = row.labels(len(lengths), DIM, generator)
    extras = {} if labels is None else {"labels": labels}
    values = [torch.randn(sum(lengths), DIM, generator=generator).double().requires_grad_() for _ in range(row.columns)]
    offsets = torch.tensor([0, *lengths]).cumsum(0)

    def compute(*some: Tensor) -> Tensor:
        return loss(*(TokenEmbeddings(value, offsets) for value in some), **extras)

    listed = [[part.tolist() for part in value.split(lengths)] for value in values]
    expected = formula(loss, listed, *(extra.tolist() for extra in extras.values()))
    assert compute(*values).item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(compute, values, fast_mode=True)
    for dtype in (torch.float32, torch.bfloat16):
        rounded = [value.detach().to(dtype) for value in values]
        value, exact = compute(*rounded), compute(*map(Tensor.double, rounded))
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="takes token vectors; use a model without a pooling"):
        loss(*values, **extras)
    with pytest.raises(TypeError, match="not a TokenEmbeddings"):
        losses.MSELoss()(TokenEmbeddings(values[0], offsets), labels=torch.zeros(1))


COUNTS_PAIRS = ("BatchAllTripletLoss", "BatchSemiHardTripletLoss")  # as many as the labels make


@rows()
def test_copies_signatures_equal_vectors_and_devices(row: Row) -> None:
    """Inputs are not changed, and on the meta device, where tensors have no values, no check reads one."""
    loss, columns, extras = sample(row)
    before = [tensor.detach().clone() for tensor in (*columns, *extras.values())]
    loss(*columns, **extras).backward()
    assert all(map(torch.equal, (*columns, *extras.values()), before))
    signature, labels = Signature.of(loss), extras.get("labels")
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(other(*columns, **extras), loss(*columns, **extras))
        assert Signature.of(other) == signature
        if isinstance(loss, nn.Module):
            for first, second in zip(loss.parameters(), other.parameters(), strict=True):
                assert first.data_ptr() != second.data_ptr()
            for inner in getattr(other, "losses", [other]):
                assert any(inner is module for module in other.modules()) or not isinstance(inner, nn.Module)
    assert len(signature.columns) == row.columns or (signature.more and len(signature.columns) < row.columns)
    assert labels is None or "labels" in signature.extras
    assert not (labels is None and signature.needs_labels)
    for dtype in (torch.float32, torch.float64):
        loss, columns, extras = sample(row, dtype)
        for fill in (torch.ones_like, torch.zeros_like):
            same = [fill(column).detach().requires_grad_() for column in columns]
            gradients = with_gradients(cast(loss, dtype), same, extras)
            assert all(tensor.isfinite().all() for tensor in gradients), (dtype, fill)
    loss, columns, extras = sample(row)
    if not row.name.startswith(COUNTS_PAIRS):
        if isinstance(loss, MultipleNegativesRankingLoss):
            extras |= {"texts": text_ids(row.columns), "guide": guide_vectors(row.columns)}
        elsewhere = [column.detach().to("meta") for column in columns]
        assert cast(loss, "meta")(*elsewhere, **{name: extra.to("meta") for name, extra in extras.items()}).shape == ()


# Of those that two dimensions do not fit, by the beginnings of their names.
NOT_TRUNCATED = {
    "ContrastiveTension": "takes several vectors side by side; put MatryoshkaLoss into it",
    "SoftmaxLoss|.*-softmax|.*-projection": r"vectors have dim 4, but \w+ was made with dim=8; pass dim=4",
    "MatryoshkaLoss(?!-plain$)": r"dims contains [84], but the vectors have dim [42]; pass at most [42]",
}


@rows(lambda row: not row.dim and not row.of_lists and row.name != "CrossEntropyLoss")  # Scores are no vectors.
def test_matryoshka(row: Row) -> None:
    loss, columns, extras = sample(row)
    weights = ([DIM // 2, DIM], [0.25, 2.0])
    message = next((words for names, words in NOT_TRUNCATED.items() if re.match(names, row.name)), None)
    if message:
        with pytest.raises(ValueError, match=message):
            MatryoshkaLoss(loss, *weights)(*columns, **extras)
        return
    expected = loss(*columns, **extras)
    torch.testing.assert_close(MatryoshkaLoss(loss, [DIM])(*columns, **extras), expected, rtol=0, atol=0)
    half = [column[:, : DIM // 2] for column in columns]
    short = {"labels": extras["labels"][:, : DIM // 2]} if Signature.of(loss).labels_are_vectors else extras
    value = 2 * expected + 0.25 * loss(*half, **short)
    torch.testing.assert_close(MatryoshkaLoss(loss, *weights)(*columns, **extras), value, rtol=0, atol=1e-12)


def test_every_public_loss_stands_in_the_table() -> None:
    names = {row.name.split("-")[0] for row in LOSSES if not row.name.startswith("plain")}
    assert names == set(losses.__all__)


# ------------------------------------------------------------------------------------------ what only some of them have


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("distance", list(MARGINS))
def test_online_contrastive_of_one_kind(kind: int, distance: str) -> None:
    loss, columns, extras = sample(NAMED[f"OnlineContrastiveLoss-{distance}"])
    labels = torch.full_like(extras["labels"], kind)
    expected = formula(loss, [column.tolist() for column in columns], labels.tolist())
    assert loss(*columns, labels=labels).item() == pytest.approx(expected, rel=1e-12)
    assert expected > 0


def test_an_odd_dim_has_one_imaginary_part_less() -> None:
    loss, columns, extras = sample(NAMED["AnglELoss"])
    short = [column[:, :-1] for column in columns]
    padded = [torch.cat([column, torch.zeros(ROWS, 1)], 1) for column in short]
    expected = formula(loss, [column.tolist() for column in padded], extras["labels"])
    assert loss(*short, **extras).item() == loss(*padded, **extras).item() == pytest.approx(expected)


def test_a_lone_label_is_no_positive_of_itself() -> None:
    """Here the mean leaves it out; sentence-transformers takes it for its own positive."""
    vectors, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])
    # Rows 0 and 1: 1 - 3 + 4 = 2 and 1 - 2 + 4 = 3.
    assert losses.BatchHardTripletLoss(margin=4.0)(vectors, labels=labels).item() == pytest.approx(5 / 2)


# --------------------------------------------------------------------------------------- candidates that are left out


def text_ids(columns: int) -> Tensor:
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


def guide_vectors(columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """(ROWS, columns, 5): some candidates like the anchor more than its positive does."""
    return torch.randn(ROWS, columns, 5, generator=torch.Generator().manual_seed(2), dtype=dtype)


def left_out(texts: Any, guide: Any, margin: Callable[[float], float]) -> LeftOut:
    def decide(i: int, j: int, q: int, c: int) -> bool:
        out = False
        if texts is not None:
            out |= texts[j][c] in texts[i][:2] or (c < 2 and texts[j][1 - c] == texts[i][1 - c])
        if guide is not None:
            own = similarity("cosine", guide[i][0], guide[i][1])
            out |= similarity("cosine", guide[i][q], guide[j][c]) > own - margin(own)
        return out

    return decide


@pytest.mark.parametrize("names", [("texts",), ("guide",), ("texts", "guide")], ids=str)
@pytest.mark.parametrize(("columns", "contrast"), [(2, CONTRASTS), (4, ()), (4, CONTRASTS)], ids=str)
@pytest.mark.parametrize(("symmetric", "relative"), [(False, True), (True, False)])
def test_what_is_left_out(
    columns: int, contrast: tuple[str, ...], names: tuple[str, ...], symmetric: bool, relative: bool
) -> None:
    """Values as from the plain loop, and no gradient but from the other candidates; also three rows at a time."""
    _, vectors, _ = sample(NAMED["MultipleNegativesRankingLoss-3"])
    vectors = vectors[:columns]
    settings: dict[str, Any] = {"guide_margin": 0.1, "relative_margin": relative, "contrast": contrast}
    loss = MultipleNegativesRankingLoss(temperature=0.5, symmetric=symmetric, **settings)
    given = {name: {"texts": text_ids, "guide": guide_vectors}[name](columns) for name in names}
    before = copy.deepcopy(given)
    value = loss(*vectors, **given)
    ids, guide = (given[name].tolist() if name in given else None for name in ("texts", "guide"))
    decide = left_out(ids, guide, lambda own: 0.1 * (abs(own) if relative else 1))
    expected = ranking_loss(loss, [column.tolist() for column in vectors], None, decide)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert value < loss(*vectors), "nothing was left out"
    assert all(torch.equal(given[name], before[name]) for name in names)
    assert torch.autograd.gradcheck(lambda *c: loss(*c, **given), vectors, fast_mode=True)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_ranking_in_parts_is_ranking_at_once(similarity: str, symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rows of which four are scored at once, with and without what masks candidates."""
    _, vectors, _ = sample(NAMED["MultipleNegativesRankingLoss-3"])
    vectors = vectors[: 2 if symmetric else 4]
    extras = {"texts": text_ids(len(vectors)), "guide": guide_vectors(len(vectors))}
    loss = MultipleNegativesRankingLoss(0.5, similarity, symmetric=symmetric, contrast=CONTRASTS, hardness=0.5)
    for given in ({}, {"texts": extras["texts"]}, {"guide": extras["guide"]}, extras):
        whole = with_gradients(loss, vectors, given)
        with monkeypatch.context() as patch:
            patch.setattr("sbert.losses.ranking._ROWS", 4)
            torch.testing.assert_close(with_gradients(loss, vectors, given), whole, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------- labels, columns and settings that do not fit

NAN, INF = math.nan, math.inf
WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("CosineSimilarityLoss", [0, 1, 0.5, 4.2], ValueError, "[3] is 4.2; CosineSimilarityLoss takes -1 to 1; divide"),
    ("SoftmaxLoss-u,v", [0, -1], ValueError, "labels[1] is -1; SoftmaxLoss takes 0 to 2; leave out rows without"),
    ("ContrastiveLoss-cosine", [1, 2], ValueError, "labels[1] is 2; ContrastiveLoss takes 0 (dissimilar) or 1"),
    ("BatchAllTripletLoss-cosine", [0.0, 0.0], TypeError, "are torch.float32; BatchAllTripletLoss takes whole"),
    ("MarginMSELoss-cosine-2", [[1, 2], [3, NAN]], ValueError, "labels[1, 1] is nan; MarginMSELoss takes finite"),
    ("MSELoss-1", [[0] * DIM, [NAN] * DIM], ValueError, "labels[1, 0] is nan; MSELoss takes finite numbers; leave out"),
    ("DistillKLDivLoss", [[1, 2], [-INF, 0]], ValueError, "labels[1, 0] is -inf; DistillKLDivLoss takes finite"),
    ("BinaryCrossEntropyLoss", [0.0, 1.5], ValueError, "labels[1] is 1.5; BinaryCrossEntropyLoss takes 0 to 1"),
    ("CrossEntropyLoss", [0, DIM], ValueError, "labels[1] is 8; CrossEntropyLoss takes 0 to 7"),
    ("MatryoshkaLoss", [0.0, 7.5], ValueError, "labels[1] is 7.5; CosineSimilarityLoss takes -1 to 1"),
    ("WeightedSum-softmax", [0, 7], ValueError, "labels[1] is 7; SoftmaxLoss takes 0 to 2"),
]


@pytest.mark.parametrize(("name", "labels", "kind", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_labels_that_do_not_fit(name: str, labels: Any, kind: type[Exception], message: str) -> None:
    """Said by ``check_labels``, and by the loss itself in a step."""
    tensor = torch.tensor(labels)
    loss, columns, _ = sample(NAMED[name], rows=len(tensor))
    for attempt in (lambda: loss.check_labels(tensor), lambda: loss(*columns, labels=tensor)):
        with pytest.raises(kind, match=re.escape(message)):
            attempt()


# A plain function checks nothing.
@rows(lambda row: "plain" not in row.name and row.name != "WeightedSum-softmax")
def test_columns_and_labels_of_other_shapes_and_types(row: Row) -> None:
    loss, columns, extras = sample(row)
    last = columns[-1]
    inner = "|".join([type(loss).__name__, "CosineSimilarityLoss", "AnglELoss"])
    vectors = "takes columns of vectors, .* not a"
    for wrong, error, message in (
        (last[0], ValueError, r"takes columns of one shape \(rows, dim\); found "),
        (last.long(), TypeError, f"{vectors} torch.int64 tensor"),
        (last.tolist(), TypeError, f"{vectors} list"),
    ):
        with pytest.raises(error, match=f"({inner}) {message}"):
            loss(*columns[:-1], wrong, **extras)
    with pytest.raises(ValueError, match=rf"({inner}) was given no rows; pass at least 1"):
        loss(*(column[:0] for column in columns), **{key: label[:0] for key, label in extras.items()})
    if row.name in {name for name, *_ in WRONG}:
        with pytest.raises(ValueError, match=r"takes labels of shape .* for these columns, not"):
            loss(*columns, labels=extras["labels"][:-1])


class Foreign(nn.Module):
    """A loss of their package, which need not call what it takes sentence_features."""

    __module__ = "sentence_transformers.cross_encoder.losses.foreign"

    def forward(self, inputs: list[list[str]], labels: Tensor) -> Tensor:
        return labels


class Model(nn.Module):
    """A part of a model of some library, by its tokenizer."""

    tokenizer = None


class Encoding(losses.CoSENTLoss):
    """A loss that encodes by itself."""

    def encode(self, model: nn.Module, batch: Any) -> Tensor:
        return model(batch)  # type: ignore[no-any-return]


def three_columns(anchor: Tensor, negative: Tensor, positive: Tensor) -> Tensor:
    return anchor.sum()


Ranking, RankNet, ListNet = MultipleNegativesRankingLoss, losses.RankNetLoss, losses.ListNetLoss()
Triplet, MSE, Distill = losses.TripletLoss, losses.MSELoss, losses.DistillKLDivLoss
TWO, THREE = torch.eye(2), torch.ones(2, 3)
IDS = torch.zeros(2, 3, dtype=torch.int64)
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: losses.SoftmaxLoss(0, 3), ValueError, "dim=0, classes=3 leave nothing"),
    (lambda: losses.CoSENTLoss(0), ValueError, "temperature=0 is not positive"),
    (lambda: Distill()(*[THREE] * 3, labels=TWO, mask=IDS == 0), ValueError, "takes a mask of shape (2, 2), not"),
    (lambda: losses.MarginMSELoss()(TWO, TWO, labels=TWO), ValueError, "was given no negatives; a margin is"),
    (lambda: MSE()(labels=TWO), ValueError, "MSELoss takes columns of one shape (rows, dim); found none"),
    (lambda: Ranking(similarity="cos"), ValueError, "similarity 'cos' is unknown; pass one of cosine, dot"),
    (lambda: Ranking(hardness_mode="x"), ValueError, "hardness_mode='x' is unknown; pass one of 'all'"),
    (lambda: Triplet("dot"), ValueError, "distance='dot' is unknown; pass one of 'euclidean', 'cosine'"),
    (lambda: MatryoshkaLoss(plain, [4, 0]), ValueError, "dims=[4, 0]; pass the loss, then one or more"),
    (lambda: MatryoshkaLoss(3, [4]), TypeError, "the loss is of type int; pass a function or a module"),
    (lambda: MatryoshkaLoss(MSE(), [2])(TWO, labels=THREE), ValueError, "labels are vectors of dim 3, but the columns"),
    (lambda: losses.EmbeddingDistillationLoss(4), ValueError, "dim=4, teacher_dim=None; pass both for a projection"),
    (lambda: losses.CrossEntropyLoss(1), ValueError, "classes=1 leaves nothing to classify"),
    (lambda: MatryoshkaLoss(Encoding(), [2]), TypeError, "Encoding encodes by itself, which MatryoshkaLoss does not"),
    (lambda: WeightedSum((Triplet(), 1.0), (three_columns, 1.0)), ValueError, "but three_columns takes anchor, n"),
    (lambda: WeightedSum((losses.CoSENTLoss(), 1.0), (Triplet(), 1.0)), ValueError, "negative, but CoSENTLoss takes"),
    (lambda: ListNet(THREE, labels=THREE, mask=IDS), TypeError, "given a mask of torch.int64; pass a boolean one"),
    (lambda: ListNet.check_data(Data(2, 2, TWO[:, :1])), ValueError, "one document, which teaches ListNetLoss nothing"),
    (lambda: RankNet().check_data(Data(2, 2, THREE)), ValueError, "equal labels, which teaches RankNetLoss"),
    (lambda: losses.LambdaLoss()(THREE, labels=-THREE), ValueError, "LambdaLoss takes grades of 0 or more; subtract"),
    (lambda: losses.LambdaLoss("ndcg"), ValueError, "weighting='ndcg' is unknown; pass one of 'none', 'ndcg_loss1'"),
    # Columns are given by position, and would be taken for the setting before them.
    (lambda: Signature.of(lambda anchor, positive, margin=0.5, *negatives: 0), TypeError, "has the column 'negatives'"),
    (lambda: Signature.of(lambda: 0), TypeError, "takes no columns; give it parameters"),
    (lambda: Signature.of(Triplet), TypeError, "is the class TripletLoss; call it with its settings: TripletLoss"),
    (lambda: Signature.of(Model()), TypeError, "the loss is a model (Model)"),
    (lambda: Signature.of("softmax"), TypeError, "is of type str; pass a function"),
    (lambda: Signature.of(lambda sentence_features, labels: 0), TypeError, "here it sees vectors: pass a function of"),
    (lambda: Signature.of(Foreign()), TypeError, "Foreign is a loss of sentence-transformers, which runs the model"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), REFUSED, ids=[message[:40] for *_, message in REFUSED])
def test_what_does_not_fit_is_named(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()


ARGUMENTS = {"CrossEntropyLoss": "classes", "SoftmaxLoss": "dim, classes", "MatryoshkaLoss": "loss, dims"}
ARGUMENTS |= {"WeightedSum": "*pairs", "SpladeLoss": "loss"}


@pytest.mark.parametrize("name", losses.__all__)
def test_a_loss_that_is_given_a_model_shows_the_right_call(name: str) -> None:
    for values, given in (([Model()], {}), ([Model(), plain, [4]], {}), ([], {"model": "a name on the hub"})):
        with pytest.raises(TypeError, match=rf"^{name} was given a model \(\w+\); .* never sees the model") as caught:
            getattr(losses, name)(*values, **given)
        assert str(caught.value).endswith(f"Trainer(model, data, {name}({ARGUMENTS.get(name, '')}))")


# ------------------------------------------------------------------------------------------------------------- wrappers


@pytest.mark.parametrize("inner", [plain, plain_ranking, losses.CoSENTLoss(), MSE(), Ranking()])
def test_wrappers_bear_the_names_of_what_they_wrap(inner: Any) -> None:
    expected = Signature.of(inner)
    twice = WeightedSum((MatryoshkaLoss(inner, [4, 2]), 1.0), (MatryoshkaLoss(WeightedSum((inner, 1.0)), [4]), 2.0))
    for wrapped in (MatryoshkaLoss(inner, [4]), WeightedSum((inner, 1.0)), twice):
        assert Signature.of(wrapped) == replace(expected, name=type(wrapped).__name__)


def ranking_with_labels(anchor: Tensor, positive: Tensor, *negatives: Tensor, labels: Tensor) -> Tensor:
    return ((anchor - positive).square().sum(1) * labels).mean()


def test_extras_go_to_those_that_ask() -> None:
    _, vectors, _ = sample(NAMED["MultipleNegativesRankingLoss-1"])
    texts, labels = text_ids(3), torch.arange(ROWS)
    both = MatryoshkaLoss(WeightedSum((Ranking(), 1.0), (ranking_with_labels, 0.5)), [DIM])
    extras = frozenset({"labels", "texts", "guide"})
    assert Signature.of(both) == Signature("MatryoshkaLoss", ("anchor", "positive"), "negatives", extras, True)
    expected = Ranking()(*vectors, texts=texts) + 0.5 * ranking_with_labels(*vectors, labels=labels)
    torch.testing.assert_close(both(*vectors, texts=texts, labels=labels), expected)
    with pytest.raises(TypeError, match="labels given, which no loss in MatryoshkaLoss takes; leave it out"):
        MatryoshkaLoss(Ranking(), [DIM])(*vectors, labels=labels)
    with pytest.raises(TypeError, match="guide given, which no loss in WeightedSum takes"):
        WeightedSum((plain, 1.0), (losses.CoSENTLoss(), 1.0))(*vectors[:2], labels=labels, guide=guide_vectors(2))


def test_only_labels_that_are_vectors_are_truncated() -> None:
    """Scores of as many candidates as the vectors have entries stay whole."""
    *columns, scores = torch.randn(6, ROWS, 4, generator=torch.Generator().manual_seed(0))
    short = [column[:, :2] for column in columns]
    assert MatryoshkaLoss(Distill(), [2])(*columns, labels=scores) == Distill()(*short, labels=scores)
    nested = WeightedSum((MatryoshkaLoss(MSE(), [2]), 1.0))
    assert nested(*columns, labels=scores) == MSE()(*short, labels=scores[:, :2])


# ------------------------------------------------------------------------------------------ what teaches a loss nothing


@rows()
def test_what_teaches_a_loss_nothing(row: Row) -> None:
    """Such batches have the value 0 and no gradient, and data of nothing else is refused; other batches are not.

    Three rows of one label, and one row alone, have a gradient; only where one answer would do are they refused.
    """
    for count, idle in row.idle:
        columns = [torch.randn(count, DIM).requires_grad_() for _ in range(row.columns)]
        loss, extras = row.make(DIM), {} if idle is None else {"labels": torch.tensor(idle)}
        assert not any(tensor.any() for tensor in with_gradients(loss, columns, extras)), (count, idle)
        with pytest.raises(ValueError, match=r"teach(es)? \w+ nothing.*; (add|pass)"):
            loss.check_data(Data(count, row.columns, extras.get("labels")))
    if row.idle:
        return
    loss, columns, extras = sample(row, torch.float32, rows=3)
    labels = extras.get("labels")
    if labels is not None:
        ones = labels.new_ones(3) if row.labels.__name__ == "binary" else labels[:1].expand(labels.shape)
        extras["labels"] = ones if row.labels.__name__ in ("classes", "binary") else ones.float()
    value = cast(loss, torch.float32)(*columns, **extras)
    assert any(gradient.any() for gradient in torch.autograd.grad(value, columns, allow_unused=True))
    for count in (1, 3):
        data = Data(count, row.columns, None if labels is None else extras["labels"][:count])
        if row.one_answer:
            with pytest.raises(ValueError, match="nothing"):
                loss.check_data(data)
        elif hasattr(loss, "check_data"):
            loss.check_data(data)
