"""CrossEncoder in the trainer: its losses, its rows, exact resume, and gradients however they are computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.distributed.ranks import leave
from sbert.losses import BinaryCrossEntropyLoss, CrossEntropyLoss, SquaredErrorLoss
from sbert.training import GradientBuckets, Ranks, Rows, Signature, TrainingBatch, backward
from tests import small
from tests.pairs import PAIRS, folder, rows

SCORES = torch.tensor([[0.3], [-1.2], [2.0]], dtype=torch.float64)
GRADES = torch.tensor([1.0, 0.25, 0.0], dtype=torch.float64)
LOGITS = torch.tensor([[0.3, 0.1, -2.0], [-1.2, 0.4, 1.1]], dtype=torch.float64)


def sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("models") / "bert", classes=3)


def config(**options: Any) -> TrainingConfig:
    return TrainingConfig(**{"batch_size": 8, "learning_rate": 3e-3, "log_every": 1, **options})


# ------------------------------------------------------------------------------------------------------ losses


def test_losses_are_their_formulas() -> None:
    pairs = list(zip(SCORES.flatten().tolist(), GRADES.tolist(), strict=True))
    expected = -sum(y * math.log(sigmoid(s)) + (1 - y) * math.log(1 - sigmoid(s)) for s, y in pairs) / 3
    assert BinaryCrossEntropyLoss()(SCORES, labels=GRADES).item() == pytest.approx(expected, rel=1e-12)
    expected = sum((s - y) ** 2 for s, y in pairs) / 3
    assert SquaredErrorLoss()(SCORES, labels=GRADES).item() == pytest.approx(expected, rel=1e-12)
    expected = sum((sigmoid(s) - y) ** 2 for s, y in pairs) / 3
    assert SquaredErrorLoss(nn.Sigmoid())(SCORES, labels=GRADES).item() == pytest.approx(expected, rel=1e-12)
    expected = -sum(
        math.log(math.exp(row[label]) / sum(map(math.exp, row)))
        for row, label in zip(LOGITS.tolist(), [2, 0], strict=True)
    )
    found = CrossEntropyLoss(3)(LOGITS, labels=torch.tensor([2, 0])).item()
    assert found == pytest.approx(expected / 2, rel=1e-12)


EACH = [
    (BinaryCrossEntropyLoss(), SCORES, GRADES),
    (SquaredErrorLoss(), SCORES, GRADES),
    (SquaredErrorLoss(nn.Sigmoid()), SCORES, GRADES),
    (CrossEntropyLoss(3), LOGITS, torch.tensor([2, 0])),
]


@pytest.mark.parametrize(("loss", "scores", "labels"), EACH, ids=str)
def test_losses_have_gradients_and_change_nothing(loss: Any, scores: Tensor, labels: Tensor) -> None:
    live, before = scores.clone().requires_grad_(), scores.clone()
    assert torch.autograd.gradcheck(lambda x: loss(x, labels=labels), (live,))
    assert torch.equal(live, before)
    half = loss(scores.bfloat16(), labels=labels)
    assert (half.dtype, half.shape) == (torch.float32, ())
    assert half.item() == pytest.approx(loss(scores, labels=labels).item(), rel=0.02)


@pytest.mark.parametrize(
    ("loss", "scores", "labels", "message"),
    [
        (BinaryCrossEntropyLoss(), SCORES, [0.0, 0.5, 1.5], r"labels\[2\] is 1.5; BinaryCrossEntropyLoss takes 0 to 1"),
        (BinaryCrossEntropyLoss(), SCORES, [0.0, -0.1, 1.0], r"labels\[1\] is -0.1"),
        (BinaryCrossEntropyLoss(), SCORES, [0.0, math.nan, 1.0], r"labels\[1\] is nan"),
        (BinaryCrossEntropyLoss(), LOGITS, [0.0, 1.0], "takes 1 score per row, but the model gives 3"),
        (BinaryCrossEntropyLoss(), SCORES, [0.0, 1.0], r"labels of shape \(3,\)"),
        (SquaredErrorLoss(), SCORES, [0.0, math.inf, 1.0], r"labels\[1\] is inf"),
        (SquaredErrorLoss(nn.Sigmoid()), SCORES, [0.0, 5.0, 1.0], r"labels\[1\] is 5; .*0 to 1 with a sigmoid"),
        (SquaredErrorLoss(), LOGITS, [0.0, 1.0], "takes 1 score per row"),
        (CrossEntropyLoss(3), LOGITS, [0, 3], r"labels\[1\] is 3; CrossEntropyLoss takes 0 to 2"),
        (CrossEntropyLoss(3), LOGITS, [-1, 0], r"labels\[0\] is -1"),
        (CrossEntropyLoss(2), LOGITS, [1, 0], "takes 2 scores per row, but the model gives 3"),
    ],
)
def test_labels_and_scores_that_do_not_fit(loss: Any, scores: Tensor, labels: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss(scores, labels=torch.tensor(labels))


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="classes=1 leaves nothing to classify"):
        CrossEntropyLoss(1)
    with pytest.raises(TypeError, match="activation is 'sigmoid'"):
        SquaredErrorLoss("sigmoid")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="CrossEntropyLoss takes whole numbers"):
        CrossEntropyLoss(3)(LOGITS, labels=torch.tensor([0.0, 1.0]))


# -------------------------------------------------------------------------------------------------------- rows


def squares(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.squeeze(1) - labels).square().mean()


def test_rows_of_pairs() -> None:
    made = Rows([("a", "b", 0.5), ("a", "c", 1.0)], squares, pairs=True)
    assert (made.texts(1), made.head.inputs(1)) == (("a", "c"), (("a", "c"),))
    assert made.labels is not None
    assert made.labels.tolist() == [0.5, 1.0]
    assert Rows([("a", "b", 0.5)], lambda first, second, labels: 0).head.inputs(0) == ("a", "b")  # type: ignore[arg-type,return-value]
    listed = [{"score": 0.5, "second": "b", "first": "a"}, {"score": 1.0, "second": "d", "first": "c"}]
    assert Rows(listed, squares, pairs=True).head.inputs(1) == (("c", "d"),)
    named = [{"question": "a", "gold": 0.5, "answer": "b"}]
    assert Rows(named, squares, ["answer", "question"], "gold", pairs=True).head.inputs(0) == (("b", "a"),)


@pytest.mark.parametrize(
    ("data", "loss", "kind", "message"),
    [
        ([{"a": "x", "label": 1.0}], squares, ValueError, "squares takes first, second and labels; data has"),
        (
            [("a", "b", "c", 0.5)],
            squares,
            ValueError,
            r"takes rows \(first, second, label\); those of data have 4 values",
        ),
        ([("a", 0.5)], squares, ValueError, r"those of data have 2 values \(str, float\)"),
        ([("a", "b", 0.5), ("a", 3, 0.5)], squares, TypeError, "data, row 1: column 1 holds 3 of type int"),
        ([("a", "b", 0.5)], lambda first, second, labels: first, TypeError, "takes first, second; a cross-encoder"),
        ([("a", "b")], lambda scores, texts: scores, ValueError, "takes texts, which belongs to the vectors of texts"),
        ([("a", "b", 0.5), ("a", "b", 2)], BinaryCrossEntropyLoss(), ValueError, r"data: labels\[1\] is 2"),
        ([("a", "b", 0), ("a", "b", 3)], CrossEntropyLoss(3), ValueError, r"data: labels\[1\] is 3"),
        ([("a", "b", 0.5), ("a", "b", 1)], CrossEntropyLoss(3), TypeError, "data: labels are torch.float32"),
        ([("a", "b", 0), ("a", "b", "entailment")], CrossEntropyLoss(3), TypeError, "data, row 1: the label is"),
    ],
)
def test_rows_that_do_not_fit(bert: Path, data: Any, loss: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Trainer(CrossEncoder(bert, device="cpu"), data, loss)


def test_a_guide_is_refused(bert: Path) -> None:
    model = CrossEncoder(bert, device="cpu")
    with pytest.raises(ValueError, match="takes guide, which belongs to the vectors of texts"):
        Trainer(model, rows(), lambda scores, guide, labels: scores.mean(), guide=model)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampler", ["random", "no_duplicates", "group_by_label", "length"])
def test_samplers(bert: Path, sampler: str) -> None:
    data = [(first, second, int(label)) for first, second, label in rows()]
    trainer = Trainer(CrossEncoder(bert, device="cpu"), data, squares, config(sampler=sampler, batch_size=5))
    batches = [batch.tolist() for _, batch in trainer.epoch(0)]
    assert len({row for batch in batches for row in batch}) == sum(map(len, batches)) == len(data)
    if sampler == "length":
        sizes = [sum(map(len, data[row][:2])) for batch in batches for row in batch]
        spans = [max(sizes[i : i + 5]) - min(sizes[i : i + 5]) for i in range(0, len(data), 5)]
        assert sum(spans) <= 2 * (max(sizes) - min(sizes))
    if sampler == "no_duplicates":
        for batch in batches:
            texts = [text for row in batch for text in data[row][:2]]
            assert len(set(texts)) == len(texts)


# --------------------------------------------------------------------------------------------------- gradients


def gradients(
    path: Path, cached: bool, deduplicate: bool = True, train: bool = False, rows: int | None = None, **options: Any
) -> list[Tensor]:
    """The value of ``squares`` and its gradient at each weight."""
    model = CrossEncoder(path, device="cpu").double().train(train)
    signature, ranks = Signature.of(squares).of_pairs(), options.get("ranks", Ranks())
    units = [(pair,) for pair in [*PAIRS, PAIRS[1], PAIRS[1]]][:rows]
    labels = torch.linspace(0, 1, len(units), dtype=torch.float64)
    batch = TrainingBatch.of(model, units, signature, labels, deduplicate=deduplicate, ranks=ranks)
    if ranks.world == 1 and rows is None:
        assert len(batch.tokens.lengths) == (len(set(PAIRS)) if deduplicate else len(units))
    torch.manual_seed(5)
    value = backward(model, squares, batch, cached=cached, **options)
    GradientBuckets(model.parameters(), ranks).finish(mean=False)
    return [value, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("train", [False, True], ids=["eval", "dropout"])
def test_cached_is_plain(bert: Path, train: bool) -> None:
    plain = gradients(bert, cached=False, chunk_tokens=40, train=train)
    cached = gradients(bert, cached=True, chunk_tokens=40, train=train)
    assert max(float(gradient.abs().max()) for gradient in plain[1:]) > 1e-3
    for one, other in zip(plain, cached, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_gradients_are_those_of_a_plain_forward(bert: Path) -> None:
    model = CrossEncoder(bert, device="cpu").double()
    pairs = [*PAIRS, PAIRS[1], PAIRS[1]]
    labels = torch.linspace(0, 1, len(pairs), dtype=torch.float64)
    total: Any = 0
    for pair, label in zip(pairs, labels, strict=True):
        made = model.tokenizer([pair[0]], [pair[1]], return_tensors="pt")  # A lone call takes "" for no second text.
        total = total + (model.auto_model(**made).logits.flatten()[0] - label).square()
    (total / len(pairs)).backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    for options in ({"cached": False}, {"cached": True, "chunk_tokens": 40}, {"cached": False, "deduplicate": False}):
        found = gradients(bert, **options)  # type: ignore[arg-type]
        torch.testing.assert_close(found[0], total.detach() / len(pairs), rtol=0, atol=1e-10)
        for one, other in zip(found[1:], expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def on_a_rank(rank: int, where: Path, model: Path) -> None:
    """Gradients of a batch of all rows and of a batch of one, which leaves the second rank without any."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{where}/meeting", rank=rank, world_size=2)
    found = [
        gradients(model, cached, ranks=Ranks.join(), rows=count, chunk_tokens=40)
        for count in (None, 1)
        for cached in (False, True)
    ]
    if rank == 0:
        torch.save(found, where / "found.pt")
    leave()


@pytest.mark.slow
def test_two_ranks_are_one(bert: Path, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(on_a_rank, (tmp_path, bert), nprocs=2)
    found = torch.load(tmp_path / "found.pt")
    for count, results in ((None, found[:2]), (1, found[2:])):
        expected = gradients(bert, cached=False, rows=count)
        for result in results:
            assert len(result) == len(expected)
            for one, other in zip(result, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_a_rank_without_rows_encodes_a_pair(bert: Path) -> None:
    model = CrossEncoder(bert, device="cpu")
    units = [(PAIRS[1],)]
    batch = TrainingBatch.of(model, units, Signature.of(squares).of_pairs(), torch.ones(1), ranks=Ranks(1, 2))
    assert batch.columns.shape == (0, 1)
    assert model(batch.tokens.batch(torch.zeros(1, dtype=torch.int64).numpy())).shape == (1, 1)


# ---------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize(
    ("classes", "loss"),
    [
        (1, None),
        (1, "bce"),
        (1, "mse"),
        (1, squares),
        (1, SquaredErrorLoss()),
        (3, None),
        (3, "cross_entropy"),
        (3, lambda scores, labels: F.cross_entropy(scores, labels, label_smoothing=0.1)),
    ],
)
def test_each_loss_falls(bert: Path, classifier: Path, classes: int, loss: Any) -> None:
    model = CrossEncoder(bert if classes == 1 else classifier, device="cpu")
    history = model.fit(rows(max(2, classes)), loss, config(epochs=12), show_progress_bar=False)
    losses = [entry["loss"] for entry in history]
    assert len(losses) == 60
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert not model.training


def test_what_mse_fits_is_what_predict_returns(bert: Path) -> None:
    data = [(first, second, 0.25 + label / 2) for first, second, label in rows()]
    model = CrossEncoder(bert, device="cpu")
    before = model.predict([row[:2] for row in data])
    model.fit(data, "mse", config(epochs=12), show_progress_bar=False)
    found = model.predict([row[:2] for row in data])
    labels = torch.tensor([row[2] for row in data]).numpy()
    assert ((found - labels) ** 2).mean() < 0.5 * ((before - labels) ** 2).mean()
    wide = CrossEncoder(bert, device="cpu", activation=nn.Identity())
    graded = [(first, second, 5 * label) for first, second, label in rows()]
    with pytest.raises(ValueError, match="0 to 1 with a sigmoid"):
        model.fit(graded, "mse")
    history = wide.fit(graded, "mse", config(epochs=12), show_progress_bar=False)
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]


def test_fit_by_names_is_the_trainer_with_losses(bert: Path, classifier: Path) -> None:
    def fitted(path: Path, classes: int, loss: Any) -> dict[str, Tensor]:
        model = CrossEncoder(path, device="cpu")
        model.fit(rows(max(2, classes)), loss, config(steps=2), show_progress_bar=False)
        return model.state_dict()

    def same(path: Path, classes: int, *losses: Any) -> None:
        first, *others = (fitted(path, classes, loss) for loss in losses)
        for other in others:
            assert all(torch.equal(value, other[name]) for name, value in first.items())

    same(bert, 1, None, "bce", BinaryCrossEntropyLoss(), {"data": "bce"})
    same(bert, 1, "mse", SquaredErrorLoss(nn.Sigmoid()))
    same(classifier, 3, None, "cross_entropy", CrossEntropyLoss(3))


def test_names_that_do_not_fit(bert: Path, classifier: Path) -> None:
    one, three = CrossEncoder(bert, device="cpu"), CrossEncoder(classifier, device="cpu")
    with pytest.raises(ValueError, match="loss='hinge' is unknown; pass one of 'bce', 'mse', 'cross_entropy'"):
        one.fit(rows(), "hinge")
    with pytest.raises(ValueError, match="loss='cross_entropy' does not fit a model of 1 scores per pair; pass bce or"):
        one.fit(rows(), "cross_entropy")
    with pytest.raises(ValueError, match="loss='bce' does not fit a model of 3 scores per pair; pass cross_entropy"):
        three.fit(rows(3), "bce")
    one.activation = torch.sigmoid
    with pytest.raises(ValueError, match="cannot be saved by name"):
        one.fit(rows(), config=config(output="nowhere"))
    assert not Path("nowhere").exists()


def test_several_datasets_and_columns(bert: Path) -> None:
    listed = [{"q": first, "a": second, "gold": label} for first, second, label in rows()]
    model = CrossEncoder(bert, device="cpu")
    history = model.fit(
        {"one": rows(), "two": listed},
        {"one": "bce", "two": squares},
        config(steps=4),
        columns={"two": ["q", "a"]},
        label={"two": "gold"},
        evaluator=lambda model: float(model.predict(PAIRS).mean()),
        show_progress_bar=False,
    )
    assert [entry["step"] for entry in history if "loss" in entry] == [1, 2, 3, 4]
    assert any("evaluation" in entry for entry in history)


def run(path: Path, output: Path, stop_after: int | None = None, **options: Any) -> CrossEncoder:
    """Train for six steps; or be stopped by an error after some of them, and go on."""

    class Stop(Exception):
        pass

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        loss.calls += 1  # type: ignore[attr-defined]
        if loss.calls == stop_after:  # type: ignore[attr-defined]
            raise Stop
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), labels)

    loss.calls = 0  # type: ignore[attr-defined]
    model = CrossEncoder(path, device="cpu")
    settings = config(steps=6, checkpoint_every=3, output=output, **options)
    if stop_after is None:
        model.fit(rows(), loss, settings, show_progress_bar=False)
        return model
    with pytest.raises(Stop):
        model.fit(rows(), loss, settings, show_progress_bar=False)
    again = CrossEncoder(folder(output.parent / "other", seed=9), device="cpu")  # All that counts is the checkpoint.
    again.fit(rows(), loss, settings, resume=True, show_progress_bar=False)
    return again


@pytest.mark.parametrize("options", [{}, {"chunk_tokens": 60}], ids=["plain", "cached"])
def test_resumed_is_as_never_stopped(bert: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    whole = run(bert, tmp_path / "whole", **options)
    parts = run(bert, tmp_path / "parts", stop_after=5, **options)
    weights = parts.state_dict()
    before = CrossEncoder(bert, device="cpu").state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in weights.items())
    assert all(torch.equal(value, weights[name]) for name, value in whole.state_dict().items())
    final = CrossEncoder(tmp_path / "parts" / "final", device="cpu").state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in final.items())


def test_a_checkpoint_of_a_sentence_encoder_is_refused(bert: Path, classifier: Path, tmp_path: Path) -> None:
    """With a loss of the same name, columns and rows, so that nothing but the weights tells them apart."""

    def of_vectors() -> Callable[..., Tensor]:
        def loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
            return (torch.cosine_similarity(first, second) - labels).square().mean()

        return loss

    def of_scores() -> Callable[..., Tensor]:
        def loss(scores: Tensor, labels: Tensor) -> Tensor:
            return (scores[:, 0] - labels).square().mean()

        return loss

    settings = config(steps=2, output=tmp_path / "out")
    encoder = SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling("mean"), device="cpu")
    Trainer(encoder, rows(), of_vectors(), settings).fit(show_progress_bar=False)
    model = CrossEncoder(bert, device="cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(
        ValueError, match=r"(?s)a different training: model was .*SentenceEncoder.*but is now .*CrossEncoder"
    ):
        Trainer(model, rows(), of_scores(), settings).fit(resume=True, show_progress_bar=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    settings = config(steps=2, output=tmp_path / "several")
    several = CrossEncoder(classifier, device="cpu")
    Trainer(several, rows(), of_scores(), settings).fit(show_progress_bar=False)
    with pytest.raises(ValueError, match=r"a different training: model was .*classes=3.*, but is now .*classes=1"):
        Trainer(model, rows(), of_scores(), settings).fit(resume=True, show_progress_bar=False)


def test_half_weights_are_refused(bert: Path) -> None:
    with pytest.raises(ValueError, match="too imprecise for small steps"):
        CrossEncoder(bert, device="cpu", dtype="bfloat16").fit(rows())
    model = CrossEncoder(bert, device="cpu")
    history = model.fit(rows(), config=config(steps=60, dtype="bfloat16"), show_progress_bar=False)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert model.dtype == torch.float32


def test_long_pairs_are_counted_in_training(bert: Path) -> None:
    model = CrossEncoder(bert, device="cpu", max_seq_length=11)
    data = rows()
    lengths = np.array([len(model.tokenizer(*row[:2])["input_ids"]) for row in data])
    batch = TrainingBatch.of(model, [(row[:2],) for row in data], Signature.of(squares).of_pairs())
    assert batch.tokens.truncated.tolist() == (lengths > 11).tolist()
    assert 0 < batch.tokens.truncated.sum() < len(data)
