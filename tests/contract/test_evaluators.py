"""Every evaluator keeps the contract, and refuses what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, SentenceEncoder
from sbert.evaluation import (
    Evaluator,
    LabelEvaluator,
    ModelVectors,
    MSEEvaluator,
    PairClassificationEvaluator,
    ParaphraseMiningEvaluator,
    RerankingEvaluator,
    RetrievalEvaluator,
    SimilarityEvaluator,
    TripletEvaluator,
)
from sbert.evaluation.pair_evaluators import compare_pairs
from sbert.losses import SoftmaxLoss
from tests.contract.evaluators import (
    CORPUS,
    EVALUATORS,
    FIRST,
    QUERIES,
    SAME,
    SECOND,
    Collapsed,
    Meanings,
    models,
)
from tests.evaluation import evaluate
from tests.training.helpers import run_two_ranks

Make = Callable[[], Evaluator]
ROWS = pytest.mark.parametrize(("make", "first"), EVALUATORS.values(), ids=EVALUATORS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder / "encoder", device="cpu")


@pytest.fixture(scope="module")
def scorer(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder / "scorer", device="cpu")


# ------------------------------------------------------------------------------------------------------ contract


class Diverged(Meanings):
    """A model that gives NaN for one text."""

    def vector(self, sentence: str) -> np.ndarray:
        return super().vector(sentence) * np.float32(math.nan if sentence == FIRST[0] else 1)


@ROWS
def test_metrics_are_flat_and_the_first_decides(make: Make, first: str, model: SentenceEncoder) -> None:
    """A perfect model has the best; each text is encoded once for each kind, and NaN is an error."""
    metrics = make()(model)
    assert next(iter(metrics)) == first
    assert {(type(name), type(value)) for name, value in metrics.items()} == {(str, float)}
    assert all(name == name.lower() and math.isfinite(value) for name, value in metrics.items())
    assert metrics == make()(model)
    perfect = Meanings()
    best = make()(perfect)
    assert len(perfect.calls) == len(set(perfect.calls)) > 2
    assert best[first] == pytest.approx(0 if first == "negative_mse" else 1)
    assert all(value <= 1 + 1e-6 for value in best.values())
    collapsed = make()(Collapsed())
    assert list(collapsed) == list(best)
    assert not collapsed[first] > 0.9  # NaN, where all scores are the same.
    with pytest.raises(ValueError, match=f"the model gives NaN or infinity for '{FIRST[0]}'"):
        make()(Diverged())


def test_pairs_of_one_text_share_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their cosines are 1, not 1 give or take rounding, by which chance would order them."""
    table = np.random.default_rng(0).standard_normal((12, 96)).astype(np.float32)
    monkeypatch.setattr(Meanings, "encode", lambda self, texts, **_: table[[FIRST.index(text) for text in texts]])
    same = compare_pairs(ModelVectors(Meanings()), FIRST, FIRST, "cosine", None)
    assert (same.dtype, same.tolist()) == (np.float32, [1.0] * 12)


@pytest.mark.slow  # Processes that talk to each other; all evaluators in one start of them.
def test_two_ranks_find_what_one_does(folder: Path, tmp_path: Path) -> None:
    words = [str(folder / "encoder"), str(folder / "scorer")]
    for ranks in "12":
        (tmp_path / ranks).mkdir()
    evaluate.main(*words, str(tmp_path / "1"))
    run_two_ranks(lambda _: evaluate.main(*words, str(tmp_path / "2")))
    one, first, second = (
        json.loads((tmp_path / name).read_text()) for name in ("1/0-of-1.json", "2/0-of-2.json", "2/1-of-2.json")
    )
    failures = [found.pop("failure") for found in (one, first, second)]
    assert failures == ["IsADirectoryError", "IsADirectoryError", "RuntimeError"]
    assert set(one) > set(EVALUATORS)
    np.testing.assert_equal(first, second)
    for name, figures in one.items():
        # The scores of a tiny cross-encoder differ by 0.004, and by 6e-8 with the shape of the batch.
        rounding = 2e-5 if name == "scores" else 1e-6
        assert first[name] == pytest.approx(figures, abs=rounding, nan_ok=True), name
    # Of several, only the first rank writes.
    assert len((tmp_path / "2" / "results.jsonl").read_text().splitlines()) == len(EVALUATORS)


# ------------------------------------------------------------------------------------------- models of pairs


def test_a_cross_encoder_is_measured_by_its_scores(scorer: CrossEncoder) -> None:
    scores = scorer.predict(list(zip(FIRST, SECOND, strict=True)))
    found = PairClassificationEvaluator(FIRST, SECOND, SAME)(scorer)
    assert found["accuracy"] == np.mean((scores >= found["accuracy_threshold"]) == SAME)
    near, far = (scorer.predict(list(zip(FIRST, other, strict=True))) for other in (SECOND, FIRST[::-1]))
    expected = {"accuracy": np.mean(near > far + 0.01)}
    assert TripletEvaluator(FIRST, SECOND, FIRST[::-1], margin=0.01)(scorer) == expected


def test_what_a_cross_encoder_cannot_be_asked(folder: Path, scorer: CrossEncoder) -> None:
    several = CrossEncoder(folder / "classes", device="cpu")
    labels = [lambda numbers=numbers: LabelEvaluator(FIRST, SECOND, numbers) for numbers in (SAME, [3] * 12)]
    for make, model, error, message in (
        *((EVALUATORS[name][0], scorer, TypeError, "gives scores of pairs, but this evaluator needs vectors")
          for name in ("retrieval", "paraphrase mining", "translation")),
        *((EVALUATORS[name][0], several, ValueError, "gives 3 scores per pair, but one is needed")
          for name in ("similarity", "pair classification", "triplet", "reranking")),
        (labels[0], scorer, ValueError, "gives one score per pair, not classes"),
        (EVALUATORS["label"][0], several, ValueError, "has its own classifier; leave loss= out"),
        (labels[1], several, ValueError, r"labels\[0\] is 3, but the classifier has the classes 0 to 2"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            make()(model)
    predicted = several.predict(list(zip(FIRST, SECOND, strict=True))).argmax(1)
    assert LabelEvaluator(FIRST, SECOND, predicted.tolist())(several) == {"accuracy": 1, "macro_f1": 1}


# -------------------------------------------------------------------------------------------------------- labels


def test_labels_by_the_head_of_a_loss(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, and by all that the classifier may see."""
    monkeypatch.setattr("sbert.evaluation.pair_evaluators._ROWS", 5)
    torch.manual_seed(0)
    loss = SoftmaxLoss(16, 3, concatenation=("u", "v", "|u-v|", "u*v"))
    u, v = torch.from_numpy(model.encode(FIRST)), torch.from_numpy(model.encode(SECOND))
    features = torch.cat([u, v, (u - v).abs(), u * v], 1)
    predicted = (features @ loss.classifier.weight.T + loss.classifier.bias).argmax(1)
    labels = [int(label) if i % 4 else (int(label) + 1) % 3 for i, label in enumerate(predicted)]
    assert LabelEvaluator(FIRST, SECOND, labels, loss)(model)["accuracy"] == 0.75
    assert all(parameter.grad is None for parameter in loss.parameters())
    with pytest.raises(ValueError, match="pass loss=, the SoftmaxLoss"):
        LabelEvaluator(FIRST, SECOND, labels)(model)


# ------------------------------------------------------------------------------------------------------ refusals


def candidates(**ids: Any) -> Evaluator:
    return RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"0-1"}}, candidates=ids)


LABELLED = [{"first": a, "second": b, "label": c} for a, b, c in zip(FIRST, SECOND, SAME, strict=True)]
TRIPLETS = [{"negative": c, "anchor": a, "positive": b} for a, b, c in zip(FIRST, SECOND, SECOND[1:], strict=False)]


def test_rows_of_the_readers_are_columns_by_name(model: SentenceEncoder) -> None:
    for kind in (SimilarityEvaluator, PairClassificationEvaluator):
        expected = kind(FIRST, SECOND, SAME, "dot")(model)
        for rows in (LABELLED, [tuple(row.values()) for row in LABELLED]):
            assert kind.from_rows(rows, similarity="dot")(model) == expected
    loss = SoftmaxLoss(16, 2)
    assert LabelEvaluator.from_rows(LABELLED, loss=loss)(model) == LabelEvaluator(FIRST, SECOND, SAME, loss)(model)
    assert TripletEvaluator.from_rows(TRIPLETS)(model) == TripletEvaluator(FIRST[:11], SECOND[:11], SECOND[1:])(model)


SAMPLE = {"query": "a", "positive": ["b"], "negative": ["c"]}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SimilarityEvaluator("ab", ["a", "b"], [1, 2]), TypeError, "first is of type str; pass a list"),
        (lambda: SimilarityEvaluator(["a", "b"], ["a", "b"], [1, 2], "cos"), ValueError, "similarity 'cos' is unknown"),
        (lambda: SimilarityEvaluator(*zip(*LABELLED, strict=True)), TypeError, "keys of dicts; pass rows of"),
        (lambda: TripletEvaluator(*zip(*TRIPLETS, strict=True)), TypeError, "keys of dicts; pass rows of"),
        (lambda: SimilarityEvaluator.from_rows([("a", "b")]), ValueError, r"rows\[0\] has first, second; pass rows of"),
        (lambda: SimilarityEvaluator.from_rows([(1, 2, 3, 4)]), ValueError, r"\[0\] has first, second, label, more"),
        (lambda: TripletEvaluator.from_rows(LABELLED), ValueError, "pass rows of anchor, positive, negative"),
        (lambda: SimilarityEvaluator(FIRST, SECOND[:3], SAME), ValueError, "12 first, 3 second, 12 scores"),
        (lambda: SimilarityEvaluator(["a", "b"], ["a", "b"], [1, math.nan]), ValueError, r"scores\[1\] is nan; pass"),
        (lambda: SimilarityEvaluator(["a", "b"], ["a", "b"], [2, 2]), ValueError, "every score is 2, so there is no"),
        (lambda: LabelEvaluator(["a"], ["b"], ["neutral"]), ValueError, r"labels\[0\] is 'neutral'; number the"),
        (lambda: LabelEvaluator(["a"], ["b"], [2], SoftmaxLoss(4, 2)), ValueError, "has the classes 0 to 1"),
        (lambda: PairClassificationEvaluator(["a", "b"], ["a", "b"], [1, 1]), ValueError, r"the labels are \[1\]"),
        (lambda: TripletEvaluator(["a"], ["b"], ["c"], margin=math.nan), ValueError, "margin=nan is not finite"),
        (lambda: RetrievalEvaluator({}, CORPUS, {"q": {"0-1"}}), ValueError, "names the query 'q', which has no text"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": "0-1"}), TypeError, "is '0-1'; pass a set of ids"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"0-1": math.inf}}), ValueError, "=inf is not finite"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"0-1": 0}, "q2": set()}), ValueError, "no query has"),
        (lambda: candidates(q1=["x"]), ValueError, r"candidates\['q1'\] is \['x'\]; pass a list of one or more"),
        (lambda: MSEEvaluator(["a", "b"], [[1.0]]), ValueError, "2 source, 2 target, 1 vectors"),
        (lambda: MSEEvaluator(["a"], [[1.0, math.nan]]), ValueError, r"teacher\[1\] is nan"),
        (lambda: RerankingEvaluator([]), ValueError, "there are no samples"),
        (lambda: RerankingEvaluator([SAMPLE, {"query": "a", "positive": ["b"]}]), ValueError, r"\[1\] has the keys"),
        (lambda: RerankingEvaluator([{**SAMPLE, "negative": []}]), ValueError, r"samples\[0\] has no negative text"),
        (lambda: RerankingEvaluator([{**SAMPLE, "positive": "b"}]), TypeError, r"\['positive'\] is of type str"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(0, 1), (1, 1)]), ValueError, r"duplicates\[1\] is \(1, 1\)"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], []), ValueError, "there are no duplicates"),
    ],
)  # fmt: skip
def test_refuses(make: Make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# ----------------------------------------------------------------------------------------- candidates of a search


def test_candidates_are_reranked_and_what_they_lack_is_not_found(scorer: CrossEncoder) -> None:
    """By the model's own scores; a second relevant document, which the search missed, halves the recall."""
    found = ["1-2", "0-1", "2-4", "0-3"]
    options: dict[str, Any] = {"candidates": {"q1": found}, "mrr_at": (4,), "ndcg_at": (4,)}
    relevant = {"q1": {"0-1": 1, "2-9": 1}}
    figures = RetrievalEvaluator(QUERIES, CORPUS, relevant, **options)(scorer)
    scores = scorer.predict([(QUERIES["q1"], CORPUS[name]) for name in found])
    rank = 1 + int((scores > scores[1]).sum())
    assert figures["mrr@4"] == pytest.approx(1 / rank)
    assert figures["ndcg@4"] == pytest.approx(1 / math.log2(rank + 1) / (1 + 1 / math.log2(3)))
    assert figures["recall@10"] == figures["base_recall@10"] == 0.5
    assert (figures["base_mrr@4"], figures["base_accuracy@1"]) == (0.5, 0)
    one = RetrievalEvaluator(QUERIES, CORPUS, relevant, rerank=1, **options)(scorer)
    assert one["recall@10"] == one["base_ndcg@4"] == 0


# --------------------------------------------------------------------------------------------- teacher and student


def test_the_error_of_a_student_is_that_of_numpy(model: SentenceEncoder) -> None:
    """Also of translations, and with a teacher that is a model."""
    teacher = Meanings()
    one, two = (np.stack([teacher.vector(text) for text in FIRST]), model.encode(SECOND))
    found = MSEEvaluator(FIRST, teacher, SECOND)(model)
    assert found["negative_mse"] == pytest.approx(-((one - two) ** 2).mean())
    assert found["cosine"] == pytest.approx(float(np.mean((one * two).sum(1) / np.linalg.norm(two, axis=1))))
    assert MSEEvaluator(FIRST, one, SECOND)(model) == found
    with pytest.raises(ValueError, match="student's vectors have dimension 16, the teacher's 3"):
        MSEEvaluator(FIRST, one[:, :3])(model)
