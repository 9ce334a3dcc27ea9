"""Rows, samplers, settings and the trainer, with a tiny model."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.losses import (
    BatchAllTripletLoss,
    CosineSimilarityLoss,
    MatryoshkaLoss,
    MSELoss,
    MultipleNegativesRankingLoss,
    SoftmaxLoss,
    TripletLoss,
)
from sbert.training import Rows, Signature
from sbert.training import optimizers as tables
from sbert.training.rows.sampling import group_by_label, length, no_duplicates, turns
from sbert.training.run.weights import Weights
from tests import small
from tests.backends.test_packed import transformer

WORDS = " ".join(small.CORPUS[:2]).split()


@pytest.fixture
def model(tmp_path: Path) -> SentenceEncoder:
    return SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling("mean"))


def pairs(count: int, labelled: bool = True) -> list[tuple[Any, ...]]:
    """Pairs of sentences of one to six words; labels 0, 0.5 and 1."""
    made = random.Random(0)
    rows = []
    for i in range(count):
        first, second = (" ".join(made.choices(WORDS, k=made.randint(1, 6))) for _ in range(2))
        rows.append((first, second, i % 3 / 2) if labelled else (first, second))
    return rows


def ranking(anchor: Tensor, positive: Tensor, *negatives: Tensor) -> Tensor:
    return (anchor - positive).square().mean()


def regression(first: Tensor, second: Tensor, labels: Tensor | None = None) -> Tensor:
    return (torch.cosine_similarity(first, second) - (1 if labels is None else labels)).square().mean()


def fit(model: SentenceEncoder, data: Any, loss: Any, resume: bool = False, **settings: Any) -> list[dict[str, Any]]:
    others = {name: settings.pop(name) for name in ("evaluator", "columns", "label", "guide") if name in settings}
    trainer = Trainer(model, data, loss, TrainingConfig(**settings), **others)
    return trainer.fit(resume=resume, show_progress_bar=False)


# -------------------------------------------------------------------------------------------------------- signatures


def test_signatures() -> None:
    found = Signature.of(MultipleNegativesRankingLoss())
    assert (found.columns, found.more, found.extras) == (("anchor", "positive"), "negatives", {"texts", "guide"})
    assert Signature.of(MatryoshkaLoss(TripletLoss(), [8])).columns == ("anchor", "positive", "negative")
    assert Signature.of(regression).extras == {"labels"}
    assert not Signature.of(regression).needs_labels
    assert Signature.of(CosineSimilarityLoss()).needs_labels
    assert Signature.of(lambda anchor, *, epoch: anchor.sum()).row_data == ("epoch",)
    assert Signature.of(lambda anchor, positive, temperature=0.05: 0).columns == ("anchor", "positive")
    with pytest.raises(TypeError, match="takes no columns"):
        Signature.of(lambda: torch.zeros(()))
    with pytest.raises(TypeError, match="is of type str; pass a function"):
        Signature.of("softmax")  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------------- rows


def test_names_decide_the_order() -> None:
    rows = Rows([{"negative": "n", "positive": "p", "anchor": "a"}], TripletLoss())
    assert rows.texts(0) == ("a", "p", "n")
    rows = Rows([{"negative_2": "n2", "negative_1": "n1", "positive": "p", "anchor": "a"}], ranking)
    assert rows.texts(0) == ("a", "p", "n2", "n1")
    rows = Rows([{"score": 0.5, "second": "b", "first": "a"}], CosineSimilarityLoss())
    assert (rows.texts(0), rows.labels.tolist()) == (("a", "b"), [0.5])
    rows = Rows([{"x": "a", "y": "b", "z": "c", "w": 1.0}], CosineSimilarityLoss(), columns=["z", "x"], label="w")
    assert (rows.texts(0), rows.labels.tolist()) == (("c", "a"), [1.0])
    rows = Rows([("a", "b", "c")], MultipleNegativesRankingLoss())
    assert rows.texts(0) == ("a", "b", "c")
    rows = Rows([("a", "b"), ("c", "d")], regression)
    assert rows.labels is None
    assert Rows([("a", "b", 1.0), ("c", "d", 0.0)], regression).labels.tolist() == [1.0, 0.0]
    vectors = Rows([("a", [1.0, 2.0]), ("b", np.array([3.0, 4.0]))], MSELoss())
    assert vectors.labels.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_dataset_of_the_datasets_package() -> None:
    import datasets

    table = datasets.Dataset.from_dict({"second": ["b", "d"], "first": ["a", "c"], "label": [1.0, 0.0]})
    rows = Rows(table, CosineSimilarityLoss())
    assert (rows.texts(1), rows.labels.tolist()) == (("c", "d"), [1.0, 0.0])


PREMISES = [{"premise": "a", "hypothesis": "b", "label": 1}, {"premise": "c", "hypothesis": "d", "label": 0}]


@pytest.mark.parametrize(
    ("data", "loss", "options", "error", "words"),
    [
        ([{**PREMISES[0], "id": "x"}], SoftmaxLoss(8, 3), {}, ValueError, "takes first, second and labels; data has p"),
        (
            PREMISES,
            ranking,
            {},
            ValueError,
            r"takes anchor, positive, \*negatives; data has premise, hypothesis, label",
        ),
        (PREMISES, ranking, {"columns": ["premise", "text"]}, ValueError, "there is no 'text'"),
        (PREMISES, ranking, {"columns": ["premise", "premise"]}, ValueError, "a column is named twice"),
        (PREMISES, ranking, {"columns": ["premise"]}, ValueError, "columns= names premise; name one column for each"),
        (PREMISES, ranking, {"columns": ["premise", "hypothesis"], "label": "label"}, ValueError, "takes no labels"),
        ([{"anchor": "a", "positive": "b", "label": 1}], ranking, {}, ValueError, "has anchor, positive, label"),
        ([{"anchor": "a"}], ranking, {}, ValueError, "takes anchor, positive, \\*negatives; data has anchor"),
        ([{"first": "a", "second": "b"}], CosineSimilarityLoss(), {}, ValueError, "none is the label"),
        (
            [{"first": "a", "second": "b", "label": 1, "score": 2}],
            CosineSimilarityLoss(),
            {},
            ValueError,
            "which of them",
        ),
        ([{"first": "a", "second": "b", "label": 1}, {"first": "a"}], regression, {}, ValueError, "row 1: no 'second'"),
        ([("a", "b"), ("a", None)], ranking, {}, TypeError, "row 1: column 1 holds None"),
        ([("a", "b"), ("a",)], ranking, {}, ValueError, "row 1 has 1 values"),
        ([("a", "b"), "ab"], ranking, {}, TypeError, "row 1 is of type str"),
        (["ab"], ranking, {}, TypeError, "row 0 is of type str .a dict of columns .*; pass tuples"),
        ([("a", "b", "c", "d")], TripletLoss(), {}, ValueError, "those of data have 4 values"),
        ([("a", "b")], TripletLoss(), {}, ValueError, r"takes rows \(anchor, positive, negative\)"),
        ([], ranking, {}, ValueError, "has no rows"),
        ("ab", ranking, {}, TypeError, "is of type str"),
        ([("a", "b")], ranking, {"columns": ["a", "b"]}, ValueError, "rows without names"),
        ([("a", "b", 0.5), ("a", "b", 4.2)], CosineSimilarityLoss(), {}, ValueError, r"data: labels\[1\] is 4.2"),
        ([("a", "b", 0.5), ("a", "b", None)], CosineSimilarityLoss(), {}, TypeError, "row 1: the label is None"),
        (
            [("a", "b", 0.5), ("a", "b", float("nan"))],
            CosineSimilarityLoss(),
            {},
            ValueError,
            "row 1: the label is missing",
        ),
        ([("a", "b", "yes")], CosineSimilarityLoss(), {}, TypeError, "row 0: the label is 'yes'"),
        ([("a", "b", "x"), ("a", "b", 1)], SoftmaxLoss(8, 3), {}, ValueError, "row 1: the label 1 is not one of the c"),
        ([("a", "b", ["c", "d"]), ("a", "b", ["c"])], ranking, {}, ValueError, "row 1 has a list of 1 texts, row 0 of"),
        ([("a", "b", 1), ("a", "b", 3)], SoftmaxLoss(8, 3), {}, ValueError, r"labels\[1\] is 3"),
        ([("a", [1.0, 2.0]), ("b", [1.0])], MSELoss(), {}, ValueError, "row 1: the label has the shape"),
        (
            [("a", [1.0]), ("b", [float("inf")])],
            MSELoss(),
            {},
            ValueError,
            "row 1: the label is missing .NaN. or not finite",
        ),
    ],
)
def test_rows_that_do_not_fit(data: Any, loss: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Rows(data, loss, **options)


# ---------------------------------------------------------------------------------------------------------- samplers


def every(batches: list[np.ndarray]) -> list[int]:
    return sorted(np.concatenate(batches).tolist())


def test_no_text_stands_twice_in_a_batch() -> None:
    made = random.Random(1)
    data = [(f"premise {made.randint(0, 60)}", f"hypothesis {made.randint(0, 200)}") for _ in range(400)]
    rows = Rows(data, ranking)
    batches = no_duplicates(rows, 16, np.random.default_rng(0))
    assert every(batches) == list(range(400))
    for batch in batches:
        texts = [text for row in batch for text in set(rows.texts(row))]
        assert len(texts) == len(set(texts))
    assert max(map(len, batches)) == 16
    assert len(batches) <= 28
    assert [b.tolist() for b in no_duplicates(rows, 16, np.random.default_rng(0))] == [b.tolist() for b in batches]


def test_a_text_that_is_everywhere_is_told_of() -> None:
    rows = Rows([("the same", f"{i}") for i in range(40)], ranking)
    with pytest.warns(UserWarning, match="40 batches are needed instead of 5"):
        assert len(no_duplicates(rows, 8, np.random.default_rng(0))) == 40


def test_each_label_of_a_batch_stands_there_twice() -> None:
    made = random.Random(2)
    data = [(f"text {i}", made.randint(0, 12)) for i in range(101)] + [("alone", 99)]
    rows = Rows(data, BatchAllTripletLoss())
    with pytest.warns(UserWarning, match="1 of them because their label occurs in one row only"):
        batches = group_by_label(rows, 8, np.random.default_rng(0))
    assert len(set(every(batches))) == len(every(batches))
    assert 95 <= len(every(batches)) <= 101
    for batch in batches:
        assert len(batch) <= 8
        assert len(np.unique(rows.labels[batch].numpy())) >= 2
        assert np.unique(rows.labels[batch].numpy(), return_counts=True)[1].min() >= 2
    two = Rows([(f"text {i}", i % 2) for i in range(200)], BatchAllTripletLoss())
    batches = group_by_label(two, 4, np.random.default_rng(0))
    assert 40 <= len(batches) <= 50
    assert all(len(np.unique(two.labels[batch].numpy())) == 2 for batch in batches)
    with pytest.raises(ValueError, match="no label occurs in two rows"):
        group_by_label(Rows([("a", 0), ("b", 1)], lambda sentence, labels: 0), 8, np.random.default_rng(0))
    with pytest.raises(ValueError, match="needs rows with one label each"):
        group_by_label(Rows([("a", "b")], ranking), 8, np.random.default_rng(0))
    with pytest.raises(ValueError, match="two rows of two labels"):
        group_by_label(rows, 3, np.random.default_rng(0))


def test_rows_of_like_length() -> None:
    rows = Rows([("x" * (i % 90), "y") for i in range(900)], ranking)
    batches = length(rows, 10, np.random.default_rng(0))
    assert every(batches) == list(range(900))
    spread = [max(len(rows.texts(r)[0]) for r in b) - min(len(rows.texts(r)[0]) for r in b) for b in batches]
    assert np.mean(spread) < 5
    firsts = [len(rows.texts(b[0])[0]) for b in batches]
    assert firsts != sorted(firsts)


def test_mixes() -> None:
    generator = np.random.default_rng(0)
    assert list(turns([2, 5, 3], "round_robin", generator)) == [0, 1, 2, 0, 1, 2]
    mixed = np.array(list(turns([20, 50], "proportional", generator)))
    assert np.bincount(mixed).tolist() == [20, 50]
    assert 0 < mixed[:35].sum() < 35


def test_several_datasets_each_with_its_loss(model: SentenceEncoder) -> None:
    seen: list[str] = []

    def first_loss(anchor: Tensor, positive: Tensor) -> Tensor:
        seen.append("first")
        return ranking(anchor, positive)

    def second_loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
        seen.append("second")
        return regression(first, second, labels)

    data = {"a": pairs(12, labelled=False), "b": [dict(zip(("x", "y", "z"), row, strict=True)) for row in pairs(30)]}
    options: dict[str, Any] = {"columns": {"b": ["x", "y"]}, "label": {"b": "z"}}
    losses = {"a": first_loss, "b": second_loss}
    fit(model, data, losses, batch_size=4, **options)
    assert seen == ["first", "second"] * 3
    seen.clear()
    fit(model, data, losses, batch_size=4, mix="proportional", **options)
    assert (seen.count("first"), seen.count("second")) == (3, 8)
    with pytest.raises(ValueError, match="there is no loss for 'b', only for 'a'"):
        Trainer(model, data, {"a": first_loss})


def test_a_sampler_of_ones_own(model: SentenceEncoder) -> None:
    asked = []

    def backwards(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[list[int]]:
        asked.append(len(rows))
        return [list(range(len(rows)))[::-1]]

    assert len(fit(model, pairs(5), regression, sampler=backwards, log_every=1)) == 1
    assert asked


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size=0 is too small; pass at least 1"),
        ({"batch_size": 2.5}, "batch_size is 2.5; pass a whole number"),
        ({"steps": -1}, "steps=-1"),
        ({"epochs": 0}, "epochs=0 is not positive; pass a number above 0"),
        ({"epochs": 2, "steps": 10}, "epochs and steps both say how long"),
        ({"sharded": True}, "pass output= to save it"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"warmup": 2.0}, "warmup=2.0 is not a fraction of the steps; pass 0.0 to 1.0, or an int of steps"),
        ({"mix": "random"}, "mix='random' is unknown"),
        ({"dtype": "float16"}, "dtype='float16' is unknown; pass one of 'float32', 'bfloat16'"),
        ({"dtype": "half"}, "dtype='half' is unknown"),
        ({"seed": -1}, "seed=-1"),
        ({"max_gradient_norm": 0}, "max_gradient_norm=0"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        TrainingConfig(**settings)


def test_the_learning_rate_rises_and_falls() -> None:
    config = TrainingConfig(learning_rate=1.0, warmup=0.2)
    rates = [config.rate(step, 10) for step in range(10)]
    assert rates == [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert TrainingConfig(warmup=0).rate(0, 1) == 2e-5


# ----------------------------------------------------------------------------------------------------------- trainer


def weights(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> None:
    """All but the biases of keys, whose gradient is 0 but for rounding, which Adam blows up."""
    for (name, one), two in zip(a.named_parameters(), b.parameters(), strict=True):
        if "key.bias" not in name:
            torch.testing.assert_close(one, two, rtol=0, atol=2e-5, msg=lambda words, name=name: f"{name}: {words}")


@pytest.fixture(params=[1, 1 << 30], ids=["rows of tables", "whole tables"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many numbers on the gradients of a table are kept and written by rows."""
    monkeypatch.setattr(tables, "_LARGE", request.param)


@pytest.mark.usefixtures("large")
def test_training_is_that_of_a_plain_loop(model: SentenceEncoder) -> None:
    """Three steps by hand with torch alone, dropout off."""
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    model[0].auto_model.config.attention_probs_dropout_prob = 0.0
    for layer in model[0].auto_model.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    by_hand, head = copy.deepcopy(model), SoftmaxLoss(16, 3)
    same_head = copy.deepcopy(head)
    data = [(a, b, i % 3) for i, (a, b, _) in enumerate(pairs(12))]
    settings: dict[str, Any] = {"batch_size": 4, "learning_rate": 1e-2, "weight_decay": 0.1, "max_gradient_norm": 0.5}
    trainer = Trainer(model, data, head, TrainingConfig(**settings))
    trainer.fit(show_progress_bar=False)

    by_hand.train()
    parameters = [*by_hand.parameters(), *same_head.parameters()]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups)
    for step, (_, batch) in enumerate(trainer.epoch(0)):
        first, second = (by_hand(by_hand.tokenize([data[row][column] for row in batch])) for column in (0, 1))
        same_head(first, second, labels=torch.tensor([data[row][2] for row in batch])).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * [1, 1, 0.5][step]  # One step of warm-up, then down to 0 in two.
        optimizer.step()
        optimizer.zero_grad()
    same_weights(model, by_hand)
    same_weights(head, same_head)


def test_a_loss_falls_and_modes_and_randomness_are_given_back(model: SentenceEncoder) -> None:
    model[1].train()
    model[0].eval()
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    history = fit(model, pairs(64), CosineSimilarityLoss(), epochs=24, learning_rate=3e-3, log_every=16)
    assert (torch.rand(1), np.random.rand(), random.random()) == expected
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert [entry["step"] for entry in history] == [16, 32, 48, 64, 80, 96]
    assert model[1].training
    assert not model[0].training


@pytest.mark.usefixtures("large")
def test_accumulated_batches_are_one_large_batch(model: SentenceEncoder) -> None:
    model[0].auto_model.config.attention_probs_dropout_prob = 0.0
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    twin = copy.deepcopy(model)

    def in_order(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
        return np.split(np.arange(len(rows)), len(rows) // batch_size)

    fit(model, pairs(16), regression, batch_size=4, accumulation=2, learning_rate=1e-3, sampler=in_order)
    fit(twin, pairs(16), regression, batch_size=8, learning_rate=1e-3, sampler=in_order)
    same_weights(model, twin)


def test_the_seed_decides(model: SentenceEncoder) -> None:
    start, runs = copy.deepcopy(model), []
    for seed in (0, 0, 1):
        twin = copy.deepcopy(start)
        fit(twin, pairs(32), regression, seed=seed, learning_rate=1e-3)
        runs.append(weights(twin))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_best_model_and_the_last_are_written(model: SentenceEncoder, tmp_path: Path) -> None:
    scores = iter([float("nan"), 0.9, 0.3])
    kept: list[Tensor] = []

    def evaluator(given: SentenceEncoder) -> dict[str, float]:
        kept.append(weights(given).clone())
        return {"loss": 5.0, "spearman": next(scores)}

    output = tmp_path / "out"
    history = fit(
        model, pairs(48), regression, output=output, evaluator=evaluator, metric="spearman", learning_rate=1e-3,
        evaluate_every=1, checkpoint_every=1, log_every=1,
    )  # fmt: skip
    evaluations = [entry["evaluation"]["spearman"] for entry in history if "evaluation" in entry]
    assert np.isnan(evaluations[0])
    assert evaluations[1:] == [0.9, 0.3]
    assert torch.equal(weights(SentenceEncoder(output / "best")), kept[1])
    assert torch.equal(weights(SentenceEncoder(output / "final")), weights(model))
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["step-00000002", "step-00000003"]
    assert torch.equal(weights(SentenceEncoder(output / "checkpoints" / "step-00000002")), kept[1])
    lines = [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()]
    assert str(lines) == str(history)  # NaN is not equal to itself.
    with pytest.raises(ValueError, match="metric='f1' is not among the evaluator's loss, spearman"):
        fit(model, pairs(16), regression, evaluator=lambda m: {"loss": 1.0, "spearman": 2.0}, metric="f1")


def test_a_guide_and_numbers_of_texts_reach_the_loss(model: SentenceEncoder) -> None:
    guide = copy.deepcopy(model)
    rows = [("a small boat", "lake"), ("the red fox", "seven hills")]

    def loss(anchor: Tensor, positive: Tensor, texts: Tensor, guide: Tensor) -> Tensor:
        seen.extend([texts, guide])
        return ranking(anchor, positive)

    seen: list[Tensor] = []
    trainer = Trainer(model, rows, loss, TrainingConfig(batch_size=2), guide=guide)
    trainer.fit(show_progress_bar=False)
    order = trainer.epoch(0)[0][1]
    texts, vectors = seen
    assert texts.shape == (2, 2)
    for place, row in enumerate(order):
        np.testing.assert_allclose(vectors[place].numpy(), guide.encode(list(rows[row])), atol=1e-6)
    with pytest.raises(ValueError, match="no loss takes a guide"):
        Trainer(model, rows, ranking, guide=guide)


def test_texts_that_are_cut_are_told_of(model: SentenceEncoder) -> None:
    model.max_seq_length = 6
    rows = [("one two three four five six seven eight", "lake"), ("lake", "boat")]
    with pytest.warns(UserWarning, match="1 of 3 texts were truncated to max_seq_length=6"):
        fit(model, rows, ranking)


def test_not_a_number_stops_at_once(model: SentenceEncoder, tmp_path: Path) -> None:
    def loss(anchor: Tensor, positive: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return ranking(anchor, positive) * (float("nan") if calls == 3 else 1)

    calls = 0
    before = copy.deepcopy(model)
    output = tmp_path / "out"
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 3 \(data, rows [\d, ]+\).*step-00000002"):
        fit(model, pairs(64, labelled=False), loss, output=output, checkpoint_every=1, learning_rate=1e-3)
    assert torch.equal(weights(SentenceEncoder(output / "checkpoints" / "step-00000002")), weights(model))
    assert not torch.equal(weights(before), weights(model))

    def steep(anchor: Tensor, positive: Tensor) -> Tensor:
        value = (anchor - positive).square().sum()
        return value + (value - value.detach()) * torch.tensor(float("inf"))

    with pytest.raises(FloatingPointError, match=r"the gradient norm is inf|the loss is nan"):
        fit(model, pairs(16, labelled=False), steep)


@pytest.mark.usefixtures("large")
def test_norms_and_gradients_of_tables(model: SentenceEncoder) -> None:
    kept = tables.EmbeddingGradients(model.modules())
    parameters = list(model.parameters())
    for texts in (["a small boat", "lake lake"], ["seven hills"], []):
        with kept.sparse():
            if texts:
                model(model.tokenize(texts)).square().sum().backward()
                model(model.tokenize(texts[:1])).square().sum().backward()
        assert not any(part.sparse for part in model.modules() if isinstance(part, torch.nn.Embedding))
        found = [p.grad for p in parameters]
        norm = kept.norm(parameters)
        model.zero_grad()
        if texts:
            model(model.tokenize(texts)).square().sum().backward()
            model(model.tokenize(texts[:1])).square().sum().backward()
        expected = [p.grad for p in parameters]
        for a, b in zip(found, expected, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        whole = torch.nn.utils.get_total_norm([grad for grad in expected if grad is not None])
        assert norm == pytest.approx(float(whole), rel=1e-5)
        model.zero_grad()


def nothing(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    return []


def test_nothing_to_train(model: SentenceEncoder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is trained"):
        fit(model.requires_grad_(False), pairs(16), regression)
    with pytest.raises(ValueError, match=r"weights are torch\.bfloat16, too imprecise"):
        Trainer(model.bfloat16(), pairs(16), regression)
    with pytest.raises(ValueError, match="sampler='none' is unknown; pass one of 'random'"):
        Trainer(model.float(), pairs(16), regression, TrainingConfig(sampler="none"))
    with pytest.raises(ValueError, match="start the program with torchrun"):
        fit(model.requires_grad_(True), pairs(16), regression, sharded=True, output=tmp_path / "out")
    with pytest.raises(ValueError, match="sampler='nothing' makes no batch of data"):
        fit(model, pairs(16), regression, sampler=nothing)
    alone = [("one", 0), ("two", 0), ("three", 1)]
    with pytest.raises(ValueError, match="sampler='group_by_label' makes no batch of data"):
        fit(model, alone, lambda sentence, labels: sentence.sum(), sampler="group_by_label")


# ------------------------------------------------------------------------------------------------------- checkpoints


def test_going_on_is_bit_identical(model: SentenceEncoder, tmp_path: Path) -> None:
    """With dropout, a head, several epochs, accumulation, and losses that wait for their line."""
    start = copy.deepcopy(model)
    data = [(a, b, i % 3) for i, (a, b, _) in enumerate(pairs(50))]
    settings: dict[str, Any] = {
        "epochs": 3, "batch_size": 8, "accumulation": 2, "learning_rate": 1e-3, "log_every": 4, "checkpoint_every": 3,
    }  # fmt: skip
    torch.manual_seed(0)
    head = SoftmaxLoss(16, 3)
    same_head = copy.deepcopy(head)
    whole = fit(model, data, head, output=tmp_path / "whole", **settings)

    class StopError(Exception):
        pass

    class Stopping(SoftmaxLoss):
        calls = 0

        def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
            self.calls += 1
            if self.calls == 11:
                raise StopError
            return super().forward(first, second, labels=labels)

    stopping = Stopping(16, 3)
    stopping.load_state_dict(same_head.state_dict())
    Stopping.__name__ = "SoftmaxLoss"
    with pytest.raises(StopError):
        fit(copy.deepcopy(start), data, stopping, output=tmp_path / "parts", **settings)
    torch.manual_seed(99)
    twin, other_head = copy.deepcopy(start), SoftmaxLoss(16, 3)  # Another head, which the checkpoint overwrites.
    parts = fit(twin, data, other_head, resume=True, output=tmp_path / "parts", **settings)
    assert torch.equal(weights(twin), weights(model))
    assert torch.equal(weights(other_head), weights(head))
    keys = ("step", "loss", "learning_rate", "gradient_norm")
    assert [[entry[key] for key in keys] for entry in parts] == [[entry[key] for key in keys] for entry in whole]
    assert fit(copy.deepcopy(start), data, other_head, resume=True, output=tmp_path / "parts", **settings) == parts


def test_a_checkpoint_of_other_training_is_refused(model: SentenceEncoder, tmp_path: Path) -> None:
    output = tmp_path / "out"
    settings: dict[str, Any] = {"output": output, "learning_rate": 1e-3}
    fit(model, pairs(16), regression, **settings)
    with pytest.raises(ValueError, match="step-00000001 exists already; pass resume=True"):
        fit(model, pairs(16), regression, **settings)
    with pytest.raises(ValueError, match=r"model was .*Pooling\(mean.*but is now .*Pooling\(cls"):
        fit(SentenceEncoder(model[0], Pooling("cls")), pairs(16), regression, resume=True, **settings)
    for data, loss, changed, words in [
        (pairs(17), regression, {}, r"data was \[16"),
        ([(a, b, 1 - c) for a, b, c in pairs(16)], regression, {}, "data data was"),
        (pairs(16), CosineSimilarityLoss(), {}, "losses data was 'regression|loss"),
        (pairs(16), regression, {"learning_rate": 1e-4}, "learning_rate was 0.001, but is now 0.0001"),
    ]:
        with pytest.raises(ValueError, match=f"belongs to a different training: .*{words}"):
            fit(model, data, loss, resume=True, **{**settings, **changed})
    from transformers import BertConfig, BertModel

    tokenizer = small.wordpiece()
    wide = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    other = SentenceEncoder(Transformer(BertModel(wide), small.wrapped(tokenizer, 64)), Pooling("mean"))
    with pytest.raises(ValueError, match=r"model was .*dim=16.*, but is now .*dim=32"):
        fit(other, pairs(16), regression, resume=True, **settings)
    (output / "checkpoints" / "step-00000001" / "training" / "state.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"state\.safetensors cannot be read"):
        fit(model, pairs(16), regression, resume=True, **settings)
    with pytest.raises(ValueError, match="has no output"):
        fit(model, pairs(16), regression, resume=True)


FULL_DISK = """
import resource, signal, sys
from sbert import SentenceEncoder, Trainer, TrainingConfig
from tests.training.test_training import pairs, regression

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def evaluator(model):
    global calls
    calls += 1
    if calls == 2:  # From here on no file may grow beyond so much.
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    return calls * float(sys.argv[3])

calls = 0
config = TrainingConfig(output=sys.argv[2], checkpoint_every=1, evaluate_every=1, learning_rate=1e-3)
try:
    Trainer(SentenceEncoder(sys.argv[1]), pairs(64), regression, config, evaluator=evaluator).fit()
except OSError as error:
    print("OSError:", error)
"""


def test_a_head_with_other_settings_is_refused(model: SentenceEncoder, tmp_path: Path) -> None:
    data, settings = pairs(16, labelled=False), {"output": tmp_path / "out", "learning_rate": 1e-3}
    triplets = [(a, b, a) for a, b in data]
    fit(model, triplets, TripletLoss(margin=1.0), **settings)
    with pytest.raises(ValueError, match=r"losses data was .*margin=1\.0.*, but is now .*margin=5\.0"):
        fit(model, triplets, TripletLoss(margin=5.0), resume=True, **settings)


def test_weights_that_are_tied_are_saved_once(tmp_path: Path) -> None:
    model = SentenceEncoder(transformer("t5-encoder"), Pooling("mean"))  # Its table of words has two names.
    settings: dict[str, Any] = {"learning_rate": 1e-3, "checkpoint_every": 1, "output": tmp_path / "out"}
    twin = copy.deepcopy(model)
    fit(model, pairs(32), regression, **settings)
    (tmp_path / "out" / "checkpoints" / "step-00000002").rename(tmp_path / "gone")
    fit(twin, pairs(32), regression, resume=True, **settings)
    assert torch.equal(weights(twin), weights(model))


def test_the_best_of_another_metric_is_forgotten(model: SentenceEncoder, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"output": tmp_path / "out", "checkpoint_every": 1, "evaluate_every": 1, "keep": 9}

    def evaluator(given: SentenceEncoder) -> dict[str, float]:
        assert not any(part.training for part in given.modules())
        return {"a": 0.9, "b": 0.1}

    fit(model, pairs(48), regression, evaluator=evaluator, metric="a", **settings)
    best = weights(SentenceEncoder(tmp_path / "out" / "best"))
    (tmp_path / "out" / "checkpoints" / "step-00000003").rename(tmp_path / "gone")
    (tmp_path / "out" / "checkpoints" / "step-00000002").rename(tmp_path / "gone2")
    fit(model, pairs(48), regression, evaluator=evaluator, metric="b", resume=True, learning_rate=2e-5, **settings)
    assert not torch.equal(best, weights(SentenceEncoder(tmp_path / "out" / "best")))


@pytest.mark.slow
@pytest.mark.parametrize(("better", "what"), [("1", "best"), ("-1", "step-00000002")])
def test_a_full_disk_leaves_the_last_checkpoint(better: str, what: str, model: SentenceEncoder, tmp_path: Path) -> None:
    """Whether the model that is better than those before, or the checkpoint, is the first that cannot be written."""
    model.save(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "model", tmp_path / "out", better],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip
    assert f"{what} cannot be written" in done.stdout, done.stdout + done.stderr
    assert "the last good checkpoint is" in done.stdout
    assert "step-00000001; free some disk space, and resume" in done.stdout
    assert [path.name for path in (tmp_path / "out" / "checkpoints").iterdir()] == ["step-00000001"]
    assert SentenceEncoder(tmp_path / "out" / "best").dtype == torch.float32  # The one before is whole.
    settings: dict[str, Any] = {"checkpoint_every": 1, "evaluate_every": 1, "learning_rate": 1e-3}
    again = fit(model, pairs(64), regression, resume=True, output=tmp_path / "out", **settings)
    assert again[-1]["step"] == 4


def test_half_a_line_of_history_is_dropped(model: SentenceEncoder, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"output": tmp_path / "out", "checkpoint_every": 2, "log_every": 1, "keep": 9}
    history = fit(model, pairs(64), regression, **settings)
    checkpoints = tmp_path / "out" / "checkpoints"
    (checkpoints / "step-00000004").rename(tmp_path / "gone")
    (checkpoints / ".step-00000004.saving-abcd1234").mkdir()
    file = tmp_path / "out" / "history.jsonl"
    file.write_text(file.read_text()[:-20])
    again = fit(model, pairs(64), regression, resume=True, **settings)
    assert [entry["loss"] for entry in again] == [entry["loss"] for entry in history]
    assert [json.loads(line) for line in file.read_text().splitlines()] == again
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000002", "step-00000004"]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers for it.
def test_adapters_are_trained_and_saved_as_an_ordinary_model(model: SentenceEncoder, tmp_path: Path) -> None:
    import peft

    config = peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)
    data = [(a, b, i % 3) for i, (a, b, _) in enumerate(pairs(50))]
    start = copy.deepcopy(model)
    for whole in (False, True):  # peft's model around the transformer, and adapters put into the transformer
        model, output = copy.deepcopy(start), tmp_path / f"out{whole}"
        if whole:
            model[0].auto_model = peft.get_peft_model(model[0].auto_model, config)
        else:
            model[0].auto_model.add_adapter(config)
        before = copy.deepcopy(model)
        settings: dict[str, Any] = {"learning_rate": 1e-2, "checkpoint_every": 2}
        head = SoftmaxLoss(16, 3)
        twin, twin_head = copy.deepcopy(model), copy.deepcopy(head)
        fit(model, data, head, output=output, **settings)
        changed = [n for (n, a), b in zip(model.named_parameters(), before.parameters(), strict=True) if (a != b).any()]
        assert changed
        assert all("lora" in name for name in changed)
        loaded = SentenceEncoder(output / "final")
        assert not any("lora" in name for name, _ in loaded.named_parameters())
        np.testing.assert_allclose(loaded.encode(small.TEXTS), model.encode(small.TEXTS), atol=2e-6)
        assert np.abs(loaded.encode(small.TEXTS) - before.encode(small.TEXTS)).max() > 1e-3

        (output / "checkpoints" / "step-00000004").rename(tmp_path / f"gone{whole}")
        fit(twin, data, twin_head, resume=True, output=output, **settings)
        assert torch.equal(weights(twin), weights(model))


def test_an_adapter_is_loaded_with_its_model(model: SentenceEncoder, tmp_path: Path) -> None:
    """As sentence-transformers leaves it."""
    import peft
    from sentence_transformers import SentenceTransformer

    model.save(tmp_path / "base")
    peer = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    peer.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False))
    peer.save(str(tmp_path / "adapter"))
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    loaded = SentenceEncoder(tmp_path / "adapter")
    np.testing.assert_allclose(loaded.encode(small.TEXTS), peer.encode(small.TEXTS), atol=2e-6)
    assert np.abs(loaded.encode(small.TEXTS) - model.encode(small.TEXTS)).max() > 1e-3
    before = copy.deepcopy(loaded)
    fit(loaded, pairs(16), regression, learning_rate=1e-2)
    changed = [n for (n, a), b in zip(loaded.named_parameters(), before.parameters(), strict=True) if (a != b).any()]
    assert changed
    assert all("lora" in name for name in changed)
    loaded = before
    loaded.save(tmp_path / "merged")
    np.testing.assert_allclose(
        SentenceEncoder(tmp_path / "merged").encode(small.TEXTS), peer.encode(small.TEXTS), atol=2e-6
    )


def test_weights_of_losses_whose_names_are_alike(model: SentenceEncoder) -> None:
    losses = {name: SoftmaxLoss(16, 3) for name in ("a.b", "a_b", "a__b", "a_.b", "a._b")}
    trained = {id(weight) for weight in Weights(model, losses).changing().values()}
    assert {id(weight) for loss in losses.values() for weight in loss.parameters()} <= trained
