"""Training and evaluation do what was asked for, or say that they do not."""

from __future__ import annotations

import copy
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.cli.main import main
from sbert.evaluation import RerankingEvaluator, RetrievalEvaluator, SimilarityEvaluator, TripletEvaluator
from sbert.inputs.prompts import chosen_prompt
from sbert.losses import BinaryCrossEntropyLoss, MultipleNegativesRankingLoss
from sbert.training import Rows, Signature, TrainingBatch
from sbert.training.rows.sampling import group_by_label
from tests import small
from tests.contract.evaluators import EVALUATORS, Meanings
from tests.training.test_training import fit, pairs, ranking, regression, same_weights, weights

ROOT = Path(__file__).parent.parent.parent
PROMPTS = {"query": "the red fox ", "document": "seven "}
ROWS = [("runs", "over"), ("lake", "runs"), ("runs over", "lake")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("silent") / "bert")


@pytest.fixture
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean"), device="cpu")


@pytest.fixture
def prompted(folder: Path) -> SentenceEncoder:
    """A model whose prompt for queries is the default one."""
    modules = Transformer(folder), Pooling("mean")
    return SentenceEncoder(*modules, prompts=PROMPTS, default_prompt_name="query", device="cpu")


def without_dropout(model: SentenceEncoder) -> SentenceEncoder:
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    model[0].auto_model.config.attention_probs_dropout_prob = 0.0
    return model


# ------------------------------------------------------------------------------------------------ prompts, by column


def test_07_each_column_is_trained_behind_its_own_prompt(prompted: SentenceEncoder, model: SentenceEncoder) -> None:
    """By name or text, the data's or the loss's name of the column: as with texts that have it written in them."""
    written = [(PROMPTS["query"] + a, PROMPTS["document"] + b) for a, b in ROWS]
    for part in (prompted, model):
        without_dropout(part)
    twin = copy.deepcopy(prompted)
    named = [{"question": a, "positive": b} for a, b in ROWS]
    prompts = {"question": "query", "positive": "seven "}
    fit(prompted, named, ranking, prompts=prompts, columns=["question", "positive"], learning_rate=1e-3)
    fit(model, written, ranking, learning_rate=1e-3)
    same_weights(prompted, model)
    fit(twin, ROWS, ranking, prompts={"anchor": "query", "positive": "document"}, learning_rate=1e-3)
    assert torch.equal(weights(twin), weights(prompted))


@pytest.mark.parametrize("deduplicate", [True, False])
def test_07_prompts_are_kept_apart_from_texts(folder: Path, deduplicate: bool) -> None:
    """For a pooling that leaves them out; and a text is another behind another prompt."""
    encoder = SentenceEncoder(Transformer(folder), Pooling("mean", include_prompt=False), prompts=PROMPTS, device="cpu")
    rows = [("runs", "runs"), ("over", "runs")]
    signature = Signature.of(ranking)
    batch = TrainingBatch.of(encoder, rows, signature, prompts=["the red fox ", "seven "], deduplicate=deduplicate)
    assert len(batch.tokens.lengths) == (3 if deduplicate else 4)
    with torch.no_grad():
        vectors = encoder(batch.tokens.batch(np.arange(len(batch.tokens.lengths))))[batch.columns]
    for column, name in enumerate(PROMPTS):
        expected = encoder.encode([row[column] for row in rows], prompt_name=name)
        np.testing.assert_allclose(vectors[:, column].numpy(), expected, atol=1e-6)


def test_07_a_default_prompt_without_columns_is_an_error(prompted: SentenceEncoder, model: SentenceEncoder) -> None:
    with pytest.raises(ValueError, match=r"default prompt 'query' .*pass prompts=\{'anchor': ..., 'positive': ...\}"):
        Trainer(prompted, ROWS, ranking)
    with pytest.raises(ValueError, match="default prompt 'query'"):
        TrainingBatch.of(prompted, ROWS, Signature.of(ranking))
    with pytest.raises(ValueError, match=r"the guide has the default prompt"):
        Trainer(model, ROWS, MultipleNegativesRankingLoss(), guide=prompted)
    for given, found in ((None, ["", ""]), ("", ["", ""]), ("query: ", ["query: ", "query: "])):
        assert Trainer(model, ROWS, ranking, TrainingConfig(prompts=given)).batches.datasets["data"].prompts == found
    assert Trainer(prompted, ROWS, ranking, TrainingConfig(prompts="")).batches.datasets["data"].prompts == ["", ""]


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ({"anchor": "query"}, "no entry for the column 'positive'"),
        ({}, "no entry for the column 'anchor'"),
        ({"anchor": "qeury", "positive": ""}, "'qeury' is not a prompt of the model, .* did you mean 'query'"),
        ({"ancor": "query", "positive": ""}, "the column 'ancor', which no data has.*did you mean 'anchor'"),
    ],
)
def test_07_prompts_that_do_not_fit(prompted: SentenceEncoder, prompts: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Trainer(prompted, ROWS, ranking, TrainingConfig(prompts=prompts))


def test_07_a_checkpoint_of_other_prompts_is_refused(prompted: SentenceEncoder, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"output": tmp_path / "out", "steps": 1}
    fit(prompted, ROWS, ranking, prompts={"anchor": "query", "positive": "document"}, **settings)
    with pytest.raises(ValueError, match=r"belongs to a different training: prompts data was \['the"):
        fit(prompted, ROWS, ranking, resume=True, prompts="query", **settings)


def test_07_a_guide_reads_columns_behind_its_own_prompts(prompted: SentenceEncoder, model: SentenceEncoder) -> None:
    seen: list[Tensor] = []

    def loss(anchor: Tensor, positive: Tensor, guide: Tensor) -> Tensor:
        seen.append(guide)
        return ranking(anchor, positive)

    model.prompts = {"query": "ten ", "document": "a "}
    prompts = {"anchor": "query", "positive": "document"}
    trainer = Trainer(prompted, ROWS, loss, TrainingConfig(steps=1, prompts=prompts), guide=model)
    order = trainer.epoch(0)[0][1]
    trainer.fit(show_progress_bar=False)
    for column, name in enumerate(prompts.values()):
        expected = model.encode([ROWS[row][column] for row in order], prompt_name=name)
        np.testing.assert_allclose(seen[0][:, column].numpy(), expected, atol=1e-6)


def test_07_evaluators_know_queries_from_documents(prompted: SentenceEncoder) -> None:
    """The default prompt is one for queries here, and stands before no document unless it is asked for."""
    made: dict[str, Any] = {
        "retrieval": lambda **prompts: RetrievalEvaluator(
            {"q": "lake"}, {"a": "boat", "b": "fox"}, {"q": ["a"]}, **prompts
        ),
        "reranking": lambda **prompts: RerankingEvaluator(
            [{"query": "lake", "positive": ["boat"], "negative": ["fox"]}], **prompts
        ),
        "triplet": lambda **prompts: TripletEvaluator(["lake"], ["boat"], ["fox"], **prompts),
    }
    calls: list[tuple[str, ...]] = []

    class Watched(SentenceEncoder):
        def encode(self, sentences: Any, **options: Any) -> Any:
            prompt = chosen_prompt(self, options.get("prompt_name"), options.get("prompt"))
            calls.extend((prompt, text) for text in sentences)
            return super().encode(sentences, **options)

    plain = Watched(*prompted, prompts={"query": PROMPTS["query"]}, default_prompt_name="query", device="cpu")
    for make in made.values():
        with pytest.raises(ValueError, match=r"no prompt 'document' or 'passage' .*pass document_prompt="):
            make()(plain)
        calls.clear()
        make(document_prompt="")(plain)
        assert sorted(calls) == [("", "boat"), ("", "fox"), ("the red fox ", "lake")]
        calls.clear()
        make(query_prompt="ten ", document_prompt="query")(plain)
        assert sorted(calls) == [("ten ", "lake"), ("the red fox ", "boat"), ("the red fox ", "fox")]
    calls.clear()
    for prompt in (None, "", "ten "):
        SimilarityEvaluator(["lake", "lake"], ["boat", "fox"], [1, 0], prompt=prompt)(plain)
    assert {prompt for prompt, _ in calls} == {"the red fox ", "", "ten "}


def test_07_a_default_prompt_of_a_cross_encoder_is_never_dropped(folder: Path, tmp_path: Path) -> None:
    CrossEncoder(folder, device="cpu").save(tmp_path / "scorer")
    settings = {"model_type": "CrossEncoder", "default_prompt_name": "q", "prompts": {"q": "query: "}}
    small.write(tmp_path / "scorer", {"config_sentence_transformers.json": settings})
    scorer = CrossEncoder(tmp_path / "scorer", device="cpu")
    assert scorer.predict(("fox", "boat")) == scorer.predict(("query: fox", "boat"), prompt="")
    trainer = Trainer(scorer, [("a", "b", 1.0), ("a", "c", 0.0)], BinaryCrossEntropyLoss())
    assert trainer.batches.datasets["data"].prompts == ["query: "]


def test_07_the_command_line_takes_prompts(
    prompted: SentenceEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompted.prompts.pop("document")
    prompted.save(tmp_path / "model")
    (tmp_path / "rows.tsv").write_text("question\tanswer\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS))
    command = f"train --model {tmp_path}/model --data {tmp_path}/rows.tsv --columns question,answer --loss ranking"
    words = [*command.split(), "--output", str(tmp_path / "out"), "--steps", "1", "--quiet"]
    assert main(words) == 2
    assert "pass prompts={'question': ..., 'answer': ...}" in capsys.readouterr().err
    assert main([*words, "--prompt", "question=query", "--prompt", "answer=lake "]) == 0
    kept = (tmp_path / "out" / "checkpoints" / "step-00000001" / "training" / "state.json").read_text()
    assert '"the red fox "' in kept and '"lake "' in kept  # noqa: PT018
    data = tmp_path / "beir"
    small.write(data, {"corpus.jsonl": {"_id": "d", "text": "boat"}, "queries.jsonl": {"_id": "q", "text": "lake"}})
    (data / "qrels").mkdir()
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    words = ["evaluate", str(tmp_path / "model"), "--suite", "retrieval", "--data", str(data), "--quiet"]
    assert main(words) == 2
    assert "pass document_prompt=" in capsys.readouterr().err
    assert main([*words, "--document-prompt", ""]) == 0
    assert main([*words, "--prompt", "query"]) == 2
    assert "none of the suites retrieval uses --prompt" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- evaluators and samplers


class Foreign:
    """A model of which nothing is known but that it encodes a list of texts, and as what."""

    def __init__(self, form: str) -> None:
        self.form, self.known = form, Meanings()

    def encode(self, sentences: list[str]) -> Any:
        assert type(sentences) is list
        vectors = self.known.encode(sentences)
        forms: dict[str, Any] = {
            "array": lambda: vectors.astype(np.float64),
            "tensor": lambda: torch.tensor(vectors, requires_grad=True).bfloat16(),
            "tensors": lambda: list(torch.from_numpy(vectors)),
            "lists": lambda: vectors.tolist(),
        }
        return forms[self.form]()


@pytest.mark.parametrize("form", ["array", "tensor", "tensors", "lists"])
def test_17_evaluators_take_anything_that_encodes(form: str, tmp_path: Path) -> None:
    for make, first in EVALUATORS.values():
        assert make()(Foreign(form), output=tmp_path / "results.jsonl")[first] == make()(Meanings())[first]


def test_17_evaluators_take_a_model_of_sentence_transformers(prompted: SentenceEncoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    prompted.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for make, _ in EVALUATORS.values():
        assert make()(theirs) == pytest.approx(make()(prompted), abs=1e-5)


def test_17_what_does_not_encode_is_refused() -> None:
    for model, words in (
        (lambda texts: texts, "is of type function; pass a SentenceEncoder, or any object with a method encode"),
        (type("Wrong", (), {"encode": lambda self, texts: np.zeros(3)})(), r"Wrong.encode returns the shape \(3,\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            TripletEvaluator(["a"], ["b"], ["c"])(model)


@pytest.mark.parametrize("batch_size", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("labels", [2, 13])
def test_17_group_by_label_keeps_to_the_batch_size(batch_size: int, labels: int) -> None:
    made = random.Random(0)
    data = [(f"text {i}", made.randrange(labels)) for i in range(101)] + [("alone", 99)]
    rows = Rows(data, lambda sentence, labels: 0)
    with pytest.warns(UserWarning, match=r"leaves \d+ of 102 rows out of an epoch: 1 of them") as told:
        batches = group_by_label(rows, batch_size, np.random.default_rng(0))
    assert max(map(len, batches)) <= batch_size
    used = np.concatenate(batches)
    assert len(set(used.tolist())) == len(used)
    assert f"leaves {102 - len(used)} of 102 rows" in str(told[0].message)
    for batch in batches:
        assert np.unique(rows.labels[batch].numpy(), return_counts=True)[1].min() >= 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # It has been said once.
        group_by_label(rows, batch_size, np.random.default_rng(1))


# ----------------------------------------------------------------------------------------- schedule and accumulation


def test_18_the_warm_up_is_that_of_transformers_but_one_step_ahead() -> None:
    assert "get_linear_schedule_with_warmup" in str(TrainingConfig.__doc__)
    for total, part in ((10, 0.3), (7, 0.0), (100, 0.1)):
        config, optimizer = TrainingConfig(learning_rate=1.0, warmup=part), torch.optim.SGD([torch.zeros(1)], 1.0)
        warm = int(np.ceil(part * total))
        schedule, theirs = get_linear_schedule_with_warmup(optimizer, warm, total), []
        for _ in range(total + 1):
            theirs.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        ours = [config.rate(step, total) for step in range(total)]
        assert ours == pytest.approx(theirs[1 : warm + 1] + theirs[warm:total])
        assert min(ours) > 0
    assert TrainingConfig(warmup=0.1).rate(0, 1) > 0  # Where theirs would train nothing at all.


def test_18_accumulation_weighs_rows(model: SentenceEncoder) -> None:
    """Four batches, the last of which is short, are one batch of all rows."""
    without_dropout(model)
    twin = copy.deepcopy(model)

    def in_order(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
        return [np.arange(start, min(start + batch_size, len(rows))) for start in range(0, len(rows), batch_size)]

    parts = fit(model, pairs(13), regression, batch_size=4, accumulation=4, learning_rate=1e-3, sampler=in_order)
    whole = fit(twin, pairs(13), regression, batch_size=13, learning_rate=1e-3, sampler=in_order)
    for key in ("loss", "gradient_norm"):
        assert parts[0][key] == pytest.approx(whole[0][key], rel=1e-5)
    same_weights(model, twin)


# ------------------------------------------------------------------------------------------------- unknown arguments


def test_19_an_unknown_argument_names_the_nearest(model: SentenceEncoder, folder: Path) -> None:
    calls: list[tuple[Any, dict[str, Any], str]] = [
        (TrainingConfig, {"lr": 1e-3}, r"TrainingConfig\(\) takes no argument 'lr'; did you mean 'learning_rate'"),
        (TrainingConfig, {"batchsize": 8}, "did you mean 'batch_size'"),
        (TrainingConfig, {"x": 8}, "takes no argument 'x', only output, epochs"),
        (Trainer, {"lr": 1e-3}, r"Trainer\(\) takes no argument 'lr'; pass config=TrainingConfig\(learning_rate="),
        (Trainer, {"evaluators": None}, "did you mean 'evaluator'"),
        (Trainer(model, ROWS, ranking).fit, {"epochs": 3}, r"pass config=TrainingConfig\(epochs="),
        (CrossEncoder(folder, device="cpu").fit, {"epochs": 3}, r"pass config=TrainingConfig\(epochs="),
    ]
    for function, options, words in calls:
        with pytest.raises(TypeError, match=words):
            function(**options)
