"""What losses, rows and readers must not do in silence: two equal views, settings taken for columns, idle training."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer, losses
from sbert.data import read_nli, read_retrieval, read_rows, read_sick, read_sts, read_sts_year, read_triplets
from sbert.losses import (
    AnglELoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    BatchSemiHardTripletLoss,
    BinaryCrossEntropyLoss,
    ContrastiveLoss,
    CoSENTLoss,
    CosineSimilarityLoss,
    CrossEntropyLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    OnlineContrastiveLoss,
    SoftmaxLoss,
    SquaredErrorLoss,
    TripletLoss,
    WeightedSum,
)
from sbert.training import Ranks, Rows, Signature, TrainingBatch, backward
from tests import pairs, small
from tests.contract.losses import LOSSES, Row
from tests.data.test_datasets import OFFICIAL, lines, objects, put

DIM = 8


@functools.cache
def shared() -> SentenceEncoder:
    """A BERT of two layers; copy it before training."""
    return SentenceEncoder(Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64)), Pooling("mean"))


def model() -> SentenceEncoder:
    return copy.deepcopy(shared())


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], CrossEncoder]:
    folder = tmp_path_factory.mktemp("scorers")
    return lambda classes: CrossEncoder(pairs.folder(folder / str(classes), classes=classes), device="cpu")


def fit(encoder: Any, data: Any, loss: Any, **settings: Any) -> list[dict[str, Any]]:
    """One step of at most four rows, with nothing said about columns and labels."""
    config = TrainingConfig(**{"steps": 1, "batch_size": 4, "log_every": 1, **settings})
    if isinstance(encoder, CrossEncoder):
        return encoder.fit(data, loss, config, show_progress_bar=False)
    return Trainer(encoder, data, loss, config).fit(show_progress_bar=False)


def apart(first: Tensor, second: Tensor) -> Tensor:
    return (first - second).square().sum(1).mean()


# ------------------------------------------------------------------------------- 8: two dropout views of one text


TWICE = [("a small boat", "a small boat"), ("a small boat", "lake"), ("lake", "lake")]


def test_08_a_text_twice_in_one_row_is_two_dropout_views() -> None:
    training = model().train()
    batch = TrainingBatch.of(training, TWICE[:1], Signature.of(apart))
    assert backward(training, apart, batch) > 1e-3
    # Across rows, each view is encoded once: two of the boat, two of the lake.
    batch = TrainingBatch.of(training, TWICE, Signature.of(apart))
    assert batch.columns.tolist() == [[0, 1], [0, 2], [2, 3]]
    assert len(batch.tokens.lengths) == 4
    other = TrainingBatch.of(training, TWICE, Signature.of(apart), ranks=Ranks(1, 2))
    assert other.columns.tolist() == [[0, 1]]
    assert TrainingBatch.of(training, TWICE, Signature.of(apart), deduplicate=False).columns.max() == 5


def test_08_views_differ_in_a_trainer_and_negatives_share_them() -> None:
    seen: list[list[Tensor]] = []

    def watching(anchor: Tensor, positive: Tensor) -> Tensor:
        seen.append([anchor.detach(), positive.detach()])
        return MultipleNegativesRankingLoss()(anchor, positive)

    fit(model(), [("a small boat",) * 2, ("red fox",) * 2, ("quiet lake",) * 2], watching)
    fit(model(), TWICE, watching, sampler=lambda rows, size, generator: [[0, 1, 2]])
    for anchor, positive in seen:
        views = (anchor - positive).abs().amax(1)
        assert views[0] > 1e-3
        assert views[2] > 1e-3
    anchor, positive = seen[1]
    assert torch.equal(anchor[0], anchor[1])  # The first view of a text is the same in all rows.
    assert torch.equal(positive[1], anchor[2])


def test_08_without_dropout_nothing_changes() -> None:
    ranking = MultipleNegativesRankingLoss()
    found = []
    for deduplicate in (True, False):
        encoder = model().double().eval()
        batch = TrainingBatch.of(encoder, TWICE, Signature.of(ranking), deduplicate=deduplicate)
        value = backward(encoder, ranking, batch)
        found.append([value, *(torch.zeros(1) if p.grad is None else p.grad for p in encoder.parameters())])
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------------------------ 18: what a loss takes


def tempered(anchor: Tensor, positive: Tensor, temperature: float = 0.5) -> Tensor:
    return apart(anchor, positive) / temperature


def gated(anchor: Tensor, positive: Tensor, *negatives: Tensor, margin: float | None = None) -> Tensor:
    return apart(anchor, positive) + sum((apart(anchor, one) for one in negatives), torch.zeros(())) + (margin or 0)


RANKING = [("a small boat", "lake"), ("red fox", "green hills"), ("one two", "three four")]


@pytest.mark.parametrize("loss", [tempered, gated], ids=["number", "none"])
def test_18_a_default_makes_a_setting_everywhere(loss: Any) -> None:
    wrapped = WeightedSum((MultipleNegativesRankingLoss(), 1.0), (loss, 2.0))
    assert Signature.of(loss).columns == Signature.of(wrapped).columns == ("anchor", "positive")
    assert Signature.of(MatryoshkaLoss(loss, [4])).columns == ("anchor", "positive")
    columns = torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(0)).unbind()
    expected = MultipleNegativesRankingLoss()(*columns) + 2 * loss(*columns)
    torch.testing.assert_close(wrapped(*columns), expected)
    for made in (loss, wrapped, MatryoshkaLoss(loss, [4]), WeightedSum((MatryoshkaLoss(loss, [4, 8]), 1.0))):
        assert fit(model(), RANKING, made)[-1]["loss"] > 0
    setting = Signature.of(loss).settings[0]
    named = [{"anchor": "a boat", "positive": "lake", setting: "fox"}]
    assert Rows(named, loss).head.row_data == {setting: ["fox"]}  # Not text for the model.


def test_18_columns_behind_what_is_no_column_are_refused() -> None:
    """They are given by position, and would be taken for the setting."""
    with pytest.raises(TypeError, match="has the column 'negatives' after 'margin'"):
        Signature.of(lambda anchor, positive, margin=0.5, *negatives: 0)
    with pytest.raises(TypeError, match="has the column 'second' after 'labels'"):
        Signature.of(lambda first, labels, second: 0)
    with pytest.raises(TypeError, match=r"the loss is the class TripletLoss; call it with its settings: TripletLoss\("):
        Trainer(model(), RANKING, TripletLoss)
    with pytest.raises(TypeError, match=r"the loss is a model \(SentenceEncoder\)"):
        Trainer(model(), RANKING, model())


@pytest.mark.parametrize("row", LOSSES, ids=str)
def test_18_the_table_is_what_signatures_say(row: Row) -> None:
    found = Signature.of(row.make(DIM))
    assert len(found.columns) == row.columns or (found.more and len(found.columns) < row.columns)
    labels = row.labels(4, DIM, torch.Generator().manual_seed(0))
    assert labels is None or "labels" in found.extras
    assert not (labels is None and found.needs_labels)


ORDERED = [("a small boat", "lake", 0.9), ("red fox", "hills", 0.2), ("one two", "three", 0.5), ("home", "lake", 0.1)]


@pytest.mark.parametrize("ranking_first", [False, True])
def test_18_losses_of_pairs_and_of_ranks_add_up(ranking_first: bool) -> None:
    """As AnglELoss says that its paper does."""
    parts = [(AnglELoss(), 1.0), (CoSENTLoss(), 0.5), (MultipleNegativesRankingLoss(), 2.0)]
    loss = WeightedSum(*(parts[::-1] if ranking_first else parts))
    names = ("anchor", "positive") if ranking_first else ("first", "second")
    assert (Signature.of(loss).columns, Signature.of(loss).more) == (names, None)
    columns = torch.randn(2, 4, DIM, generator=torch.Generator().manual_seed(0)).unbind()
    labels = torch.tensor([0.9, 0.2, 0.5, 0.1])
    expected = AnglELoss()(*columns, labels=labels) + 0.5 * CoSENTLoss()(*columns, labels=labels)
    expected = expected + 2 * MultipleNegativesRankingLoss()(*columns)
    torch.testing.assert_close(loss(*columns, labels=labels), expected)
    named = [dict(zip((*names, "label"), row, strict=True)) for row in ORDERED]
    for data in (ORDERED, named):
        assert fit(model(), data, loss)[-1]["loss"] > 0


def test_18_losses_of_other_columns_do_not_add_up() -> None:
    def swapped(anchor: Tensor, negative: Tensor, positive: Tensor) -> Tensor:
        return anchor.sum()

    with pytest.raises(ValueError, match="but swapped takes anchor, negative, positive; pass losses of as many"):
        WeightedSum((TripletLoss(), 1.0), (swapped, 1.0))
    with pytest.raises(ValueError, match="TripletLoss takes anchor, positive, negative, but CoSENTLoss takes first, s"):
        WeightedSum((CoSENTLoss(), 1.0), (TripletLoss(), 1.0))
    three = Signature.of(WeightedSum((MultipleNegativesRankingLoss(), 1.0), (TripletLoss(), 1.0)))
    assert (three.columns, three.more) == (("anchor", "positive", "negative"), None)


# ------------------------------------------------------------------------------- 19: a loss that is given a model


NEEDED = {"CrossEntropyLoss": "classes", "SoftmaxLoss": "dim, classes", "MatryoshkaLoss": "loss, dims"}
NEEDED["AdaptiveLayerLoss"] = "loss, layers"


@pytest.mark.parametrize("name", losses.__all__)
def test_19_a_loss_that_is_given_a_model_shows_the_right_call(name: str) -> None:
    made = getattr(losses, name)
    right = f"{name}({'*pairs' if name == 'WeightedSum' else NEEDED.get(name, '')})"
    for values, named in (([model()], {}), ([model(), TripletLoss(), [4]], {}), ([], {"model": "a name on the hub"})):
        with pytest.raises(TypeError, match=rf"^{name} was given a model \(\w+\); .* never sees the model") as caught:
            made(*values, **named)
        assert str(caught.value).endswith(f"Trainer(model, data, {right})")


def test_19_modules_that_are_no_models_are_taken() -> None:
    assert SquaredErrorLoss(nn.Sigmoid()).activation is not None
    assert MatryoshkaLoss(SoftmaxLoss(4, 2), [4]).dims == (4,)
    assert list(inspect.signature(TripletLoss).parameters) == ["distance", "margin"]
    with pytest.raises(TypeError, match=r"the loss is a model \(SentenceEncoder\)"):
        WeightedSum((model(), 1.0))


def test_19_rows_of_a_wrong_form_are_counted_as_the_caller_does() -> None:
    with pytest.raises(
        ValueError, match=r"takes rows \(first, second, label\); those of data have 2 values \(str, str\)"
    ):
        Trainer(model(), [("a boat", "lake"), ("fox", "hill")], CosineSimilarityLoss())
    with pytest.raises(
        ValueError, match=r"takes rows \(anchor, positive, \*negatives\); those of data have 1 value \("
    ):
        Trainer(model(), [("a boat",), ("fox",)], MultipleNegativesRankingLoss())


# -------------------------------------------------------------------------------- 19: what teaches a loss nothing


IDLE = [row for row in LOSSES if row.idle]


def sample(row: Row, rows: int, labels: Sequence[int] | None) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
    """The loss, its columns, and labels in float where the loss takes numbers."""
    torch.manual_seed(0)
    columns = [torch.randn(rows, DIM).requires_grad_() for _ in range(row.columns)]
    return row.make(DIM), columns, {} if labels is None else {"labels": torch.tensor(labels)}


@pytest.mark.parametrize("row", IDLE, ids=str)
def test_19_a_batch_that_teaches_nothing_is_worth_nothing(row: Row) -> None:
    for rows, labels in row.idle:
        loss, columns, extras = sample(row, rows, labels)
        value = loss(*columns, **extras)
        gradients = torch.autograd.grad(value, columns)
        assert value == 0
        assert not any(gradient.any() for gradient in gradients)
        with pytest.raises(ValueError, match=r"teach(es)? \w+ nothing.*; (add|pass)"):
            loss.check_data(losses.module.Data(rows, row.columns, extras.get("labels")))


@pytest.mark.parametrize("row", [row for row in LOSSES if not row.idle], ids=str)
def test_19_what_teaches_is_no_error(row: Row) -> None:
    """Three rows of one label, and one row alone, have a gradient; only where one answer would do are they refused."""
    loss, columns, _ = sample(row, 3, None)
    labels = row.labels(3, DIM, torch.Generator().manual_seed(1))
    extras = {} if labels is None else {"labels": labels[:1].expand(labels.shape).float()}
    if row.labels.__name__ in ("classes", "binary"):
        extras = {"labels": labels[:1].expand(3) + (row.labels.__name__ == "binary")}
    value = loss(*columns, **extras, **row.row_data(3, torch.Generator().manual_seed(2)))
    assert any(gradient.any() for gradient in torch.autograd.grad(value, columns, allow_unused=True))
    check = getattr(loss, "check_data", lambda data: None)
    for rows in (1, 3):
        data = losses.module.Data(rows, row.columns, extras.get("labels", [None])[:rows] if extras else None)
        if row.one_answer:
            with pytest.raises(ValueError, match="nothing"):
                check(data)
        else:
            check(data)


def test_08_two_views_without_dropout_draw_a_warning() -> None:
    """The model that comes with the library has none."""
    rows = [(text, text) for text in ("a boat", "lake", "fox")]
    with pytest.warns(UserWarning, match="the model has no dropout, so both get the same vector"):
        Trainer(SentenceEncoder(device="cpu"), rows, MultipleNegativesRankingLoss())
    Trainer(model(), rows, MultipleNegativesRankingLoss())  # With dropout, without a warning.


ONES = [("a boat", "lake", 1), ("fox", "hill", 1), ("one", "two", 1)]


@pytest.mark.parametrize(
    ("loss", "data", "settings", "words"),
    [
        (CoSENTLoss(), [(*row[:2], 0.5) for row in ONES], {}, "every label is 0.5, which teaches CoSENTLoss nothing"),
        (AnglELoss(), ONES, {}, "every label is 1, which teaches AnglELoss nothing: only the order of labels matters"),
        (SoftmaxLoss(16, 3), ONES, {}, "every label is 1, which teaches SoftmaxLoss nothing: the same class"),
        (MultipleNegativesRankingLoss(), RANKING[:1], {}, "at most 1 row teach MultipleNegativesRankingLoss nothing"),
        (
            MultipleNegativesRankingLoss(),
            RANKING,
            {"batch_size": 1},
            "pass at least 2 rows and a batch_size of at least 2",
        ),
        (CoSENTLoss(), ORDERED, {"batch_size": 1}, "at most 1 row teach CoSENTLoss nothing"),
        (OnlineContrastiveLoss(), ONES[:1], {}, "at most 1 row teach OnlineContrastiveLoss nothing"),
        (MatryoshkaLoss(CoSENTLoss(), [4]), ONES, {}, "every label is 1, which teaches CoSENTLoss nothing"),
        (WeightedSum((CosineSimilarityLoss(), 1.0), (CoSENTLoss(), 1.0)), ONES, {}, "teaches CoSENTLoss nothing"),
        *(
            (loss(), [(row[0], row[2]) for row in ONES], {}, "nothing: a negative has another label than the anchor")
            for loss in (BatchAllTripletLoss, BatchHardTripletLoss, BatchSemiHardTripletLoss)
        ),
        (BatchHardTripletLoss(), [("a", -1), ("b", 2), ("c", 3)], {}, "the 3 labels are all different, which teaches"),
    ],
)
def test_19_data_that_teaches_nothing_is_refused_before_the_first_step(
    loss: Any, data: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=f"^data: .*{words}"):
        Trainer(model(), data, loss, TrainingConfig(**settings))


def test_19_scores_of_one_label_are_refused(scorers: Callable[[int], CrossEncoder]) -> None:
    cases: list[tuple[int, Any]] = [(1, BinaryCrossEntropyLoss()), (1, SquaredErrorLoss()), (3, CrossEntropyLoss(3))]
    for classes, loss in cases:
        name = type(loss).__name__
        for label in (1, 1.0) if classes == 1 else (1,):
            with pytest.raises(ValueError, match=f"data: every label is 1, which teaches {name} nothing: the same"):
                fit(scorers(classes), [(*row[:2], label) for row in ONES], loss)


@pytest.mark.parametrize("loss", [CosineSimilarityLoss(), ContrastiveLoss(), OnlineContrastiveLoss()], ids=repr)
@pytest.mark.parametrize("one", [1, 1.0])
def test_19_targets_that_are_all_1_teach_as_whole_numbers_too(loss: Any, one: float) -> None:
    encoder = model()
    before = [p.detach().clone() for p in encoder.parameters()]
    assert fit(encoder, [(*row[:2], one) for row in ONES], loss)[-1]["loss"] > 0
    assert any(not torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))


# ---------------------------------------------------------------------------------- 23: what readers give, trains


SENTENCES = ["a small boat", "the quiet lake", "red fox", "green hills", "long winter", "nobody rows"]
PAIRS = [(SENTENCES[i], SENTENCES[(i + 2) % 6], 2.5 * (i % 3)) for i in range(6)]


TABLE = lines(["score", "sentence1", "sentence2"], *([score, first, second] for first, second, score in PAIRS))


def scored(folder: Path) -> Any:
    return read_sts(put(folder / "sts-train.tsv", TABLE))


def released(folder: Path) -> Any:
    rows = (["genre", "file", "year", 1, score, first, second] for first, second, score in PAIRS)
    return read_sts(put(folder / "sts-dev.csv", lines(*rows)))


def of_a_year(folder: Path) -> Any:
    for name in ("one", "two"):
        put(folder / "STS12" / f"{name}.tsv", TABLE)
    return read_sts_year(folder / "STS12")


def sick(folder: Path) -> Path:
    words = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
    rows = [[i, a, b, 1 + s * 0.8, words[i % 3]] for i, (a, b, s) in enumerate(PAIRS)]
    return put(folder / "SICK_train.txt", lines(OFFICIAL, *rows))


def related(folder: Path) -> Any:
    return read_sick(sick(folder))


def entailed(folder: Path) -> Any:
    return read_sick(sick(folder), "entailment")


def inferred(folder: Path) -> Any:
    words = ("neutral", "entailment", "contradiction")
    rows = ({"gold_label": words[i % 3], "sentence1": a, "sentence2": b} for i, (a, b, _) in enumerate(PAIRS))
    return read_nli(put(folder / "snli.jsonl", objects(*rows)))


def triples(folder: Path) -> Any:
    rows = [["sent0", "sent1", "hard_neg"], *([first, second, SENTENCES[0]] for first, second, _ in PAIRS)]
    return read_triplets(put(folder / "nli_for_simcse.csv", "".join(",".join(row) + "\n" for row in rows)))


def films(folder: Path) -> Any:
    path = put(folder / "MR.tsv", lines(["label", "text"], *([i % 2, text] for i, text in enumerate(SENTENCES))))
    return [{"sentence": row["text"], "label": row["label"]} for row in read_rows(path, ["text"], "label")]


def paraphrases(folder: Path) -> Any:
    rows = [["label", "first", "second"], *([i % 2, *row[:2]] for i, row in enumerate(PAIRS))]
    return list(read_rows(put(folder / "MRPC.tsv", lines(*rows)), ["first", "second"], "label"))


def angle_and_ranking(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    return WeightedSum((AnglELoss(), 1.0), (MultipleNegativesRankingLoss(), 1.0))(first, second, labels=labels)


GRADED = [
    CosineSimilarityLoss(),
    CoSENTLoss(),
    AnglELoss(),
    MatryoshkaLoss(CosineSimilarityLoss(), [16, 8]),
    "bce",
    "mse",
]
CLASSED = [SoftmaxLoss(16, 3), "cross_entropy"]
BINARY = [ContrastiveLoss(), OnlineContrastiveLoss(), SoftmaxLoss(16, 2), CosineSimilarityLoss(), "bce"]
BELONG: dict[Callable[[Path], Any], list[Any]] = {
    scored: [*GRADED, angle_and_ranking],
    released: [CosineSimilarityLoss()],
    of_a_year: [CosineSimilarityLoss(), CoSENTLoss()],
    related: GRADED,
    entailed: CLASSED,
    inferred: CLASSED,
    triples: [TripletLoss(), MultipleNegativesRankingLoss(), MatryoshkaLoss(TripletLoss(), [8])],
    films: [BatchAllTripletLoss(), BatchHardTripletLoss(), BatchSemiHardTripletLoss()],
    paraphrases: BINARY,
}


@pytest.mark.parametrize(
    ("read", "loss"),
    [(read, loss) for read, fitting in BELONG.items() for loss in fitting],
    ids=lambda value: getattr(value, "__name__", str(value).split("(")[0]),
)
def test_23_what_a_reader_gives_trains(
    read: Callable[[Path], Any], loss: Any, tmp_path: Path, scorers: Callable[[int], CrossEncoder]
) -> None:
    data = read(tmp_path)
    encoder: Any = model() if not isinstance(loss, str) else scorers(3 if loss == "cross_entropy" else 1)
    history = fit(encoder, data, copy.deepcopy(loss), sampler="random", batch_size=6)
    assert torch.isfinite(torch.tensor(history[-1]["loss"]))
    rows = data if isinstance(data, list) else data["one"]
    if read in (scored, released, of_a_year, related):
        assert {row["label"] for row in rows} == {0.0, 0.5, 1.0}


def test_23_inference_is_no_pairs_of_like_meaning(tmp_path: Path) -> None:
    """Contradictions would be positives: names and labels still decide, and not the places of columns."""
    with pytest.raises(ValueError, match=r"takes anchor, positive, \*negatives; data has first, second, label"):
        Trainer(model(), inferred(tmp_path), MultipleNegativesRankingLoss())


@pytest.mark.parametrize(
    "header",
    [
        ["Sentence1", "Sentence2", "Score"],
        ["sentence_1", "sentence_2", "similarity-score"],
        ["Sentence 1", "SENTENCE 2", "Similarity Score"],
        ["sentence-a", "Sentence B", "LABEL"],
        ["S1", "S2", "Similarity_score"],
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_23_headers_in_any_writing(tmp_path: Path, header: list[str], kind: str) -> None:
    content = {
        "tsv": lines(header, *PAIRS),
        "csv": ", ".join(header) + "\n" + "".join(f"{a},{b},{s}\n" for a, b, s in PAIRS),
        "jsonl": objects(*(dict(zip(header, row, strict=True)) for row in PAIRS)),
    }[kind]
    rows = read_sts(put(tmp_path / f"a.{kind}", content))
    assert rows == [{"first": a, "second": b, "label": s / 5} for a, b, s in PAIRS]


def test_23_headers_of_other_readers(tmp_path: Path) -> None:
    nli = put(tmp_path / "a.tsv", lines(["Premise", "HYPOTHESIS", "Gold Label"], ["a cat", "a dog", "neutral"]))
    assert read_nli(nli) == [{"first": "a cat", "second": "a dog", "label": 2}]
    triplets = put(tmp_path / "b.tsv", lines(["Anchor", "Positive", "Hard-Neg"], ["a", "b", "c"]))
    assert read_triplets(triplets) == [{"anchor": "a", "positive": "b", "negative": "c"}]
    put(
        tmp_path / "corpus.jsonl",
        objects({"_ID": "d1", "Title": "Cats", "Text": "They sleep."}, {"_ID": "d2", "Text": ""}),
    )
    put(tmp_path / "queries.tsv", lines(["Query ID", "Text"], ["q1", "Who sleeps?"]))
    put(tmp_path / "qrels.tsv", lines(["QueryID", "DocID", "Grade"], ["q1", "d1", 2]))
    assert read_retrieval(tmp_path).corpus == {"d1": "Cats They sleep.", "d2": ""}
    with pytest.raises(ValueError, match=r"'Score' and 'SCORE' may both be 'score'; rename one of them"):
        read_sts(put(tmp_path / "c.tsv", lines(["s1", "s2", "Score", "SCORE"], ["a", "b", 1, 2])))


def test_23_scores_that_may_be_fractions_already_are_asked_about(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", lines(["s1", "s2", "score"], ["a", "b", 1], ["c", "d", 0.25]))
    with pytest.raises(ValueError, match=r"a.tsv has no score above 1; pass scale=\(0, 1\) .* or else scale=\(0, 5\)"):
        read_sts(path)
    assert [row["label"] for row in read_sts(path, (0, 1))] == [1.0, 0.25]
    assert [row["label"] for row in read_sts(path, (0, 5))] == [0.2, 0.05]
    assert [row["label"] for row in read_sts(path, None)] == [1.0, 0.25]
    with pytest.raises(ValueError, match="scale='unit' is unknown; pass 'auto', two numbers"):
        read_sts(path, "unit")  # type: ignore[arg-type]
