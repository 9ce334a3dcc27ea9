"""The trainer: its steps are those of a plain loop; prompts, lengths, settings, the best model, what it refuses."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.distributed.ranks import Ranks
from sbert.losses import (
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
    SoftmaxLoss,
)
from sbert.losses.signature import Signature
from sbert.training import weights as weights_of_training
from sbert.training.backward import TrainingBatch
from sbert.training.sampling import in_order
from sbert.training.training_data import TrainingData
from sbert.training.weights import Weights
from tests import small
from tests.terminal import final_lines, terminal
from tests.training.helpers import fit, load, pairs, ranking, regression, same_weights, tiny, triples, weights
from tests.training.helpers import without_dropout as plain


@pytest.fixture
def model() -> SentenceEncoder:
    return tiny()


# -------------------------------------------------------------------------------------------------------- steps


def test_training_is_that_of_a_plain_loop(model: SentenceEncoder) -> None:
    """Three steps by hand with torch alone, dropout off."""
    by_hand, head = copy.deepcopy(plain(model)), SoftmaxLoss(16, 3)
    same_head, data = copy.deepcopy(head), triples(12)
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


@pytest.mark.parametrize(("count", "parts"), [(8, 2), (13, 4)])
def test_accumulated_batches_are_one_large_batch(model: SentenceEncoder, count: int, parts: int) -> None:
    """Weighted by rows: the last one may be short."""
    twin = copy.deepcopy(plain(model))
    settings: dict[str, Any] = {"learning_rate": 1e-3, "sampler": in_order}
    one = fit(model, pairs(count), regression, batch_size=4, accumulation=parts, **settings)
    other = fit(twin, pairs(count), regression, batch_size=count, **settings)
    for key in ("loss", "gradient_norm"):
        assert one[0][key] == pytest.approx(other[0][key], rel=1e-5)
    same_weights(model, twin)


def test_a_loss_falls_and_modes_and_randomness_are_given_back(model: SentenceEncoder) -> None:
    model[1].train()
    model[0].eval()
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    history = fit(model, pairs(64), CosineSimilarityLoss(), epochs=16, learning_rate=3e-3, log_every=16)
    assert (torch.rand(1), np.random.rand(), random.random()) == expected
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert [entry["step"] for entry in history] == [16, 32, 48, 64]
    assert model[1].training
    assert not model[0].training


def test_checkpointing_gives_the_same_gradients() -> None:
    models, calls = [tiny(), tiny()], []
    for twice, model in enumerate(models):
        layer = model[0].auto_model.encoder.layer[0].intermediate
        layer.register_forward_pre_hook(lambda *_, twice=twice: calls.append(twice))
        fit(model, pairs(12, False), ranking, steps=3, gradient_checkpointing=bool(twice))
        assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert [calls.count(twice) for twice in (0, 1)] == [3, 6], "the layer runs twice in each of three steps"


def test_frozen_weights_stay_and_others_have_rates_of_their_own(model: SentenceEncoder) -> None:
    table = model[0].auto_model.embeddings.word_embeddings.weight
    slow = model[0].auto_model.encoder.layer[0].output.dense.weight
    before, was = table.clone(), slow.clone()
    rates = {"*": 1e-3, "0.auto_model.encoder.layer.0.output.*": 1e-9}
    fit(model, pairs(12, False), ranking, steps=2, freeze=["*embeddings*"], learning_rates=rates, weight_decay=0.0)
    assert torch.equal(table, before)
    assert table.requires_grad, "freezing ends with the run"
    assert 0 < (slow - was).abs().max() < 1e-7
    loss = SoftmaxLoss(16, 3)
    before = weights(loss)
    fit(model, triples(8), loss, steps=np.int64(1), learning_rate=np.float32(0.1), freeze=["loss.*"])
    assert torch.equal(weights(loss), before)
    assert loss.classifier.weight.requires_grad


def test_weights_of_losses_whose_names_are_alike(model: SentenceEncoder) -> None:
    losses = {name: SoftmaxLoss(16, 3) for name in ("a.b", "a_b", "a__b", "a_.b", "a._b")}
    trained = {id(weight) for weight in Weights(model, losses).select_changing().values()}
    assert {id(weight) for loss in losses.values() for weight in loss.parameters()} <= trained


def test_several_datasets_each_with_its_loss(model: SentenceEncoder) -> None:
    seen: list[str] = []

    def first_loss(anchor: Tensor, positive: Tensor) -> Tensor:
        seen.append("first")
        return ranking(anchor, positive)

    def second_loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
        seen.append("second")
        return regression(first, second, labels)

    data = {"a": pairs(12, labelled=False), "b": [dict(zip(("x", "y", "z"), row, strict=True)) for row in pairs(30)]}
    options: dict[str, Any] = {"batch_size": 4, "columns": {"b": ["x", "y"]}, "label": {"b": "z"}}
    losses = {"a": first_loss, "b": second_loss}
    fit(model, data, losses, **options)
    assert seen == ["first", "second"] * 3
    seen.clear()
    fit(model, data, losses, mix="proportional", **options)
    assert (seen.count("first"), seen.count("second")) == (3, 8)
    with pytest.raises(ValueError, match="there is no loss for 'b', only for 'a'"):
        Trainer(model, data, {"a": first_loss})


def test_a_guide_and_numbers_of_texts_reach_the_loss(model: SentenceEncoder) -> None:
    guide, rows = tiny(), [("a small boat", "lake"), ("lake", "lake"), ("the red fox", "a small boat")]
    seen: list[Tensor] = []

    def loss(anchor: Tensor, positive: Tensor, texts: Tensor, guide: Tensor) -> Tensor:
        seen.extend([texts, guide])
        return ranking(anchor, positive)

    guide.prompts = {"query": "ten ", "document": "a "}
    prompts = {"anchor": "query: ", "positive": "document"}
    model.prompts = {"document": ""}
    trainer = Trainer(model, rows, loss, TrainingConfig(prompts={**prompts, "anchor": ""}), guide=guide)
    trainer.fit(show_progress_bar=False)
    texts, vectors = seen
    said, numbers = [text for row in trainer.epoch(0)[0][1] for text in rows[row]], texts.flatten().tolist()
    assert texts.shape == (3, 2)
    assert [*map(numbers.index, numbers)] == [*map(said.index, said)], "a text has one number"
    for column, prompt in enumerate(("", "a ")):  # A guide uses its own prompts of these names.
        expected = guide.encode([rows[row][column] for row in trainer.epoch(0)[0][1]], prompt=prompt)
        np.testing.assert_allclose(vectors[:, column].numpy(), expected, atol=1e-6)
    with pytest.raises(ValueError, match="no loss takes a guide"):
        Trainer(model, rows, ranking, guide=guide)


def test_not_a_number_stops_at_once(model: SentenceEncoder, tmp_path: Path) -> None:
    def loss(anchor: Tensor, positive: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return ranking(anchor, positive) * (float("nan") if calls == 3 else 1)

    calls, before = 0, weights(model)
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 3 \(data, rows [\d, ]+\).*step-00000002"):
        fit(model, pairs(64, False), loss, output=tmp_path / "out", checkpoint_every=1, learning_rate=1e-3)
    assert torch.equal(weights(load(tmp_path / "out" / "checkpoints" / "step-00000002")), weights(model))
    assert not torch.equal(before, weights(model))


@pytest.mark.parametrize(("chunk_tokens", "proposed"), [(None, 4096), (1000, 500)])
def test_a_step_that_exceeds_the_memory_names_chunk_tokens(chunk_tokens: int | None, proposed: int) -> None:
    def loss(anchor: Tensor, positive: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    words = rf"step 1 does not fit into the memory of cpu \(.*CUDA out of memory.*; pass chunk_tokens={proposed}:"
    with pytest.raises(torch.OutOfMemoryError, match=words):
        fit(tiny(), pairs(8, False), loss, chunk_tokens=chunk_tokens)


# --------------------------------------------------------------------------------------------- prompts and lengths


PROMPTS = {"query": "the red fox ", "document": "seven "}
ROWS = [("runs", "over"), ("lake", "runs"), ("runs over", "lake")]
LONG = "one two three four five six seven eight nine ten boat lake fox"
NAMED = [{"anchor": f"{word} {LONG}", "positive": LONG} for word in ("red", "green", "seven", "quiet")]


def prompted(**pooling: Any) -> SentenceEncoder:
    """A model whose prompt for queries is the default one."""
    reader = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    options: dict[str, Any] = {"prompts": PROMPTS, "default_prompt_name": None if pooling else "query"}
    return plain(SentenceEncoder(reader, Pooling("mean", **pooling), device="cpu", **options))


def test_each_column_is_trained_behind_its_own_prompt() -> None:
    """By name or text, the data's or the loss's name of the column: as with texts that have it written in them."""
    first, second, third = prompted(), prompted(), plain(tiny())
    written = [(PROMPTS["query"] + a, PROMPTS["document"] + b) for a, b in ROWS]
    named = [{"question": a, "positive": b} for a, b in ROWS]
    prompts = {"question": "query", "positive": "seven "}
    fit(first, named, ranking, prompts=prompts, columns=["question", "positive"], learning_rate=1e-3)
    fit(second, ROWS, ranking, prompts={"anchor": "query", "positive": "document"}, learning_rate=1e-3)
    fit(third, written, ranking, learning_rate=1e-3)
    same_weights(first, third)
    assert torch.equal(weights(first), weights(second))


@pytest.mark.parametrize("deduplicate", [True, False])
def test_prompts_are_kept_apart_from_texts(deduplicate: bool) -> None:
    """For a pooling that leaves them out; and a text is another behind another prompt."""
    encoder, rows = prompted(include_prompt=False), [("runs", "runs"), ("over", "runs")]
    options: dict[str, Any] = {"prompts": list(PROMPTS.values()), "deduplicate": deduplicate}
    batch = TrainingBatch.of(encoder, rows, Signature.of(ranking), **options)
    assert len(batch.tokens.lengths) == (3 if deduplicate else 4)
    with torch.no_grad():
        vectors = encoder(batch.tokens.batch(np.arange(len(batch.tokens.lengths))))[batch.columns]
    for column, name in enumerate(PROMPTS):
        expected = encoder.encode([row[column] for row in rows], prompt_name=name)
        np.testing.assert_allclose(vectors[:, column].numpy(), expected, atol=1e-6)


def test_a_default_prompt_is_never_dropped(model: SentenceEncoder) -> None:
    with pytest.raises(ValueError, match=r"default prompt 'query' .*pass prompts=\{'anchor': ..., 'positive': ...\}"):
        Trainer(prompted(), ROWS, ranking)
    with pytest.raises(ValueError, match="default prompt 'query'"):
        TrainingBatch.of(prompted(), ROWS, Signature.of(ranking))
    with pytest.raises(ValueError, match=r"the guide has the default prompt"):
        Trainer(model, ROWS, MultipleNegativesRankingLoss(), guide=prompted())
    for encoder, given, expected in ((model, None, ""), (model, "query: ", "query: "), (prompted(), "", "")):
        trainer = Trainer(encoder, ROWS, ranking, TrainingConfig(prompts=given))
        assert trainer.batches.datasets["data"].prompts == [expected] * 2


def read(settings: dict[str, Any]) -> list[list[str]]:
    """The texts of the columns of the first row of a batch of each data set, as the model reads them."""
    model = tiny()
    trainer = Trainer(model, {"a": NAMED, "b": NAMED}, ranking, TrainingConfig(steps=2, batch_size=2, **settings))
    result = []
    for batch in trainer.batches.prepare(0, 2, Ranks()):
        tokens = batch.inputs.tokens
        rows = [tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]] for row in batch.inputs.columns[0].tolist()]
        result.append([model.tokenizer.decode(row, skip_special_tokens=True) for row in rows])
    return result


def test_each_column_and_data_set_has_a_length_and_a_prompt() -> None:
    for one, two in read({"max_lengths": {"anchor": 4, "positive": 8}}):
        assert (len(one.split()), len(two.split())) == (2, 6)  # And two special tokens.
    for one, two in read({"max_lengths": 5, "prompts": {"anchor": "seven: ", "positive": ""}}):
        assert (one.split()[0], len(two.split())) == ("seven", 3)
    prompts = {"a": {"anchor": "red ", "positive": ""}, "b": "green "}
    first, second = read({"prompts": prompts, "max_lengths": {"a": {}, "b": 4}})
    assert (first[0].startswith("red"), first[1]) == (True, LONG)
    assert [text.split()[0] for text in second] == ["green"] * 2
    assert [len(text.split()) for text in second] == [2, 2]


def test_texts_that_are_truncated_are_said(model: SentenceEncoder) -> None:
    model.max_seq_length = 6
    rows = [("one two three four five six seven eight", "lake"), ("lake", "boat")]
    with pytest.warns(UserWarning, match="1 of 3 texts were truncated to max_seq_length=6"):
        fit(model, rows, ranking)


# ------------------------------------------------------------------------------------------------------ evaluation


@pytest.mark.parametrize("writes", [True, False])
def test_the_best_model_is_written_and_comes_back_at_the_end(
    model: SentenceEncoder, tmp_path: Path, writes: bool
) -> None:
    scores, states = iter([float("nan"), 0.9, 0.3]), []

    def evaluator(given: SentenceEncoder) -> dict[str, float]:
        assert not any(part.training for part in given.modules())
        states.append(weights(given).clone())
        return {"loss": 5.0, "spearman": next(scores)}

    settings: dict[str, Any] = {"evaluate_every": 1, "checkpoint_every": 1, "log_every": 1, "metric": "spearman"}
    settings |= {"output": tmp_path / "out" if writes else None, "evaluator": evaluator, "learning_rate": 1e-3}
    with pytest.warns(UserWarning, match="the evaluator returned spearman=nan; such a score never decides"):
        history = fit(model, pairs(48), regression, load_best=True, **settings)
    assert str([entry["evaluation"]["spearman"] for entry in history if "evaluation" in entry]) == "[nan, 0.9, 0.3]"
    assert torch.equal(weights(model), states[1])
    if writes:
        assert torch.equal(weights(load(tmp_path / "out" / "best")), states[1])
        assert torch.equal(weights(load(tmp_path / "out" / "final")), states[2])
        names = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
        assert names == ["step-00000002", "step-00000003"]
        lines = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
        assert str(lines) == str(history)  # NaN is not equal to itself.
    with pytest.warns(UserWarning, match="without an evaluator, load_best changes nothing"):
        fit(model, pairs(16), regression, load_best=True)


def test_the_loss_of_held_out_rows_is_a_score(model: SentenceEncoder) -> None:
    rows = pairs(22)
    config = TrainingConfig(steps=2, batch_size={"a": 4}, evaluate_every=1, learning_rate=1e-2)
    with pytest.raises(ValueError, match="pass evaluation_data by such names, too: 'a'"):
        Trainer(model, {"a": pairs(8)}, regression, config, evaluation_data={"b": rows})
    # Evaluation data without a name is that of the only data set.
    trainer = Trainer(model, {"a": pairs(8)}, {"a": regression}, config, evaluation_data=rows)
    history = trainer.fit(show_progress_bar=False)
    losses = [entry["evaluation"]["evaluation_loss"] for entry in history if "evaluation" in entry]
    vectors = [model.encode([row[column] for row in rows], convert_to_tensor=True) for column in (0, 1)]
    expected = regression(*vectors, torch.tensor([row[2] for row in rows]))
    assert losses[-1] == pytest.approx(float(expected), abs=1e-5)


def test_each_evaluation_is_a_line_above_the_bar(model: SentenceEncoder) -> None:
    """Three metrics, in percent; a loss has four digits."""
    scores, losses = iter((0.125, 0.5, 0.25)), iter((0.5, 0.25, float("nan")))
    config = TrainingConfig(batch_size=2, evaluate_every=1, metric="spearman", evaluate_first=True)
    options: dict[str, Any] = {"evaluator": lambda _: {"a_loss": next(losses), "spearman": next(scores), "b": 17.5}}
    trainer = Trainer(model, pairs(4, False), ranking, config, **options)
    with terminal(100, "ascii") as shown, pytest.warns(UserWarning, match="the evaluator returned a_loss=nan"):
        trainer.fit()
    (written,) = shown
    assert re.search(r"Training: +\d+%\|. *\| [0-1]/2", written.replace("#", " "))
    *evaluations, steps = [line for line in final_lines(written) if "Training:" not in line]
    assert evaluations == [
        "step 0 | spearman 12.5 | a_loss 0.5000 | b 17.5000 | best",
        "step 1 | spearman 50.0 | a_loss 0.2500 | b 17.5000 | best",
        "step 2 | spearman 25.0 | a_loss nan | b 17.5000",
    ]
    assert re.fullmatch(r"2 steps \| 0:00:\d\d \| [\d,]+ sentences/s \| loss \d\.\d{4}", steps)


# ------------------------------------------------------------------------------------------ what does not fit


def nothing(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    return []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size=0 is too small; pass at least 1"),
        ({"epochs": 2, "steps": 10}, "epochs and steps both say how long"),
        ({"warmup": 2.0}, "warmup=2.0 is not a fraction of the steps; pass 0.0 to 1.0, or an int of steps"),
        (
            {"freeze": ["bert.*"]},
            r"freeze: the pattern 'bert\.\*' matches none of the \d+ weights, such as 0",
        ),
        ({"freeze": "embeddings"}, r"the pattern 'embeddings' matches none of .*; for parts .* pass '\*embeddings\*'"),
        ({"freeze": ["*"]}, "nothing is trained"),
        ({"learning_rates": {"*": 0}}, r"learning_rates\['\*'\]=0 is not positive; pass a number above 0"),
        ({"warmup": 0, "schedule": lambda _: None}, "what schedule returned is None; pass a number"),
        ({"drop_last": True}, r"makes no batch of batch_size rows \(drop_last=True\) of data"),
        ({"sampler": nothing}, "sampler='nothing' makes no batch of data"),
        ({"metric": "f1", "evaluator": lambda _: {"loss": 1.0}}, "metric='f1' is not among the evaluator's loss"),
        ({"evaluator": {"evaluation": len}, "evaluation_data": pairs(8, False)}, "an evaluator is called 'evaluation'"),
        ({"optimizer": lambda _: None}, "optimizer= returned NoneType"),
        ({"prompts": {"anchor": "qeury", "positive": ""}}, "'qeury' is not a prompt of the model, .* mean 'query'"),
        ({"prompts": {"ancor": "query", "positive": ""}}, "the column 'ancor', which no data has.*mean 'anchor'"),
        ({"max_lengths": {"a": {"anchor": 3}}}, "max_lengths names 'a', but the data sets are 'data'"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str, model: SentenceEncoder) -> None:
    model.prompts = {"query": ""}
    with pytest.raises((ValueError, TypeError), match=words):
        fit(model, pairs(8, False), ranking, **settings)
    assert all(parameter.requires_grad for parameter in model.parameters()), "the model is as it was"


TWO = [("a small boat", "lake"), ("red fox", "green hills")]


def test_what_trains_nothing_is_refused_or_said(model: SentenceEncoder) -> None:
    half, chosen = tiny().bfloat16(), tiny().bfloat16()
    chosen.automatic_dtype = False
    with pytest.raises(ValueError, match=r"weights are torch\.bfloat16, too imprecise"):
        Trainer(chosen, pairs(16), regression)
    Trainer(half, pairs(16), regression)
    assert half.dtype == torch.float32, "a model whose dtype was not chosen trains in float32"
    alone = [("one", 0), ("two", 0), ("three", 1)]
    with pytest.raises(ValueError, match="sampler='group_by_label' makes no batch of data"):
        fit(model, alone, lambda sentence, labels: sentence.sum(), sampler="group_by_label")
    with pytest.raises(TypeError, match=r"model is of type str; pass a model: SentenceEncoder\('bert'\)"):
        Trainer("bert", TWO, ranking)
    with pytest.raises(TypeError, match=r"the loss is a model \(SentenceEncoder\)"):
        Trainer(model, TWO, model)


def test_a_data_set_without_a_gradient_is_said_beside_others() -> None:
    data: dict[str, Any] = {"good": pairs(8, False), "bad": [("a", "b"), ("c", "d")]}
    losses: dict[str, Any] = {"good": ranking, "bad": lambda first, second: (first - first).sum()}
    with pytest.warns(UserWarning, match="^bad: the gradient was 0 in each of its steps so far") as caught:
        fit(tiny(), data, losses, batch_size=4)
    assert len(caught) == 1


class Times(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.factor * vectors


def test_a_module_that_cannot_be_saved_is_said_before_the_training(tmp_path: Path) -> None:
    model = SentenceEncoder(*tiny(), Times(2.0), device="cpu")
    with pytest.raises(ValueError, match="Times cannot be saved without its argument 'factor'"):
        Trainer(model, TWO, ranking, TrainingConfig(output=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_unknown_argument_names_the_nearest(model: SentenceEncoder) -> None:
    calls: list[tuple[Any, dict[str, Any], str]] = [
        (TrainingConfig, {"lr": 1e-3}, r"TrainingConfig\(\) takes no argument 'lr'; did you mean 'learning_rate'"),
        (TrainingConfig, {"x": 8}, "takes no argument 'x', only output, epochs"),
        (Trainer, {"lr": 1e-3}, r"Trainer\(\) takes no argument 'lr'; pass config=TrainingConfig\(learning_rate="),
    ]
    for function, options, words in calls:
        with pytest.raises(TypeError, match=words):
            function(**options)


class Muonlike(torch.optim.SGD):
    """In place of an optimizer that computes in bfloat16."""


def test_an_optimizer_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so where the processor has no such arithmetic."""
    monkeypatch.setattr(weights_of_training, "multiplies_bfloat16", lambda: False)
    with pytest.warns(UserWarning, match="no bfloat16 arithmetic.*, in which Muonlike computes; use AdamW here"):
        fit(tiny(), pairs(8), regression, steps=1, optimizer=Muonlike)
