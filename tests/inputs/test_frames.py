"""Frames, tables, columns and containers of texts are read as what they are, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

from sbert import CrossEncoder, SentenceEncoder
from sbert.chunking.chunks import split
from sbert.evaluation import RerankingEvaluator, SimilarityEvaluator
from sbert.losses import MultipleNegativesRankingLoss
from sbert.search import mine_hard_negatives, topic_words
from sbert.training import Trainer
from sbert.training.training_data import TrainingData

TEXTS = ["a small boat", "the red fox runs", "one two three"]
COLUMNS = {"id": [1, 2, 3], "text": TEXTS}
PAIRS = {"anchor": TEXTS, "positive": TEXTS[::-1]}


def frames(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """The same columns in all that has some."""
    table = pyarrow.table(columns)
    return {
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "lazy": polars.LazyFrame(columns),
        "table": table,
        "batch": table.to_batches()[0],
        "dataset": datasets.Dataset.from_dict(columns),
        "stream": datasets.Dataset.from_dict(columns).to_iterable_dataset(),
    }


@pytest.mark.parametrize("kind", [*frames(COLUMNS), "dict", "structured"])
def test_what_has_columns_is_no_list_of_texts(model: SentenceEncoder, kind: str) -> None:
    made = {**frames(COLUMNS), "dict": COLUMNS, "structured": np.array([(1, "a")], [("id", "i4"), ("text", "U9")])}
    for call in (model.encode, model.encode_query, model.tokenize, lambda given: split(model, given, 9)):
        with pytest.raises(TypeError, match=r" (columns|keys) id, text; pass .*(sentences|documents)\[.*'text'\]"):
            call(made[kind])


def test_columns_of_texts_are_read(model: SentenceEncoder, tmp_path: Path) -> None:
    expected = model.encode(TEXTS)
    chunked = pyarrow.chunked_array([TEXTS[:1], TEXTS[1:]])
    for given in (
        pyarrow.array(TEXTS),
        pyarrow.array(TEXTS).dictionary_encode(),
        chunked,
        polars.Series(TEXTS),
        pandas.Series(TEXTS, index=[5, 5, 1]),
        datasets.Dataset.from_dict(COLUMNS)["text"],
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        tuple(TEXTS),
        iter(TEXTS),
    ):
        assert np.array_equal(model.encode(given), expected)
    assert np.array_equal(model.encode(chunked, out=tmp_path / "v.npy"), expected)
    for series in (pandas.Series, polars.Series, pyarrow.array):
        with pytest.raises(TypeError, match=r"sentences\[1\] is of type (NoneType|float)"):
            model.encode(series(["a", None, "b"]))


def test_frames_where_others_take_texts_or_pairs(model: SentenceEncoder, scorer: CrossEncoder) -> None:
    frame = pandas.DataFrame({"query": TEXTS[:2], "answer": TEXTS[1:]})
    two = r"query, answer; pass one of them: documents\['query'\] or documents\['answer'\]"
    with pytest.raises(TypeError, match=two):
        scorer.rank("a small boat", frame)
    for given in frames({"query": TEXTS, "answer": TEXTS}).values():
        with pytest.raises(TypeError, match=r"such as zip\(pairs\['query'\], pairs\['answer'\]\)"):
            scorer.predict(given)
    assert scorer.predict(zip(frame["query"], frame["answer"], strict=True)).shape == (2,)
    samples = [{"query": "a", "positive": frame, "negative": ["b"]}]
    for call, message in (
        (lambda: SimilarityEvaluator(frame, frame, [0.0, 1.0]), "sentences1|first"),
        (lambda: RerankingEvaluator(samples), r"samples\[0\]\['positive'\] is a DataFrame"),
        (lambda: topic_words(frame, [0, 1]), "texts is a DataFrame"),
        (lambda: mine_hard_negatives(model, [("a", "b")], frame), "corpus is a DataFrame"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize("kind", frames(PAIRS))
def test_a_frame_is_training_data(kind: str) -> None:
    rows = TrainingData(frames(PAIRS)[kind], MultipleNegativesRankingLoss())
    assert [rows.texts(row) for row in range(len(rows))] == list(zip(TEXTS, TEXTS[::-1], strict=True))


def test_a_frame_of_training_data_says_what_is_wrong_with_it(model: SentenceEncoder) -> None:
    frame = pandas.DataFrame({"score": [0.5, 1.0], "one": TEXTS[:2], "two": ["a", None]})
    loss = SimilarityLoss()
    assert TrainingData(frame.iloc[:1], loss, columns=["one", "two"]).labels.tolist() == [0.5]  # type: ignore[union-attr]
    with pytest.raises(TypeError, match=r"data, row 1: column 1 holds (nan|None), of type "):
        TrainingData(frame, loss, columns=["one", "two"])
    with pytest.raises(ValueError, match=r"two columns of the DataFrame have the same name: a, a"):
        TrainingData(pandas.DataFrame([["x", "y"]], columns=["a", "a"]), loss)
    with pytest.raises(TypeError, match=r"anchor, row 0 is of type str \(a dict of columns .*data frame"):
        Trainer(model, PAIRS, MultipleNegativesRankingLoss())
    pairs = pandas.DataFrame({"anchor": TEXTS[:1], "positive": TEXTS[1:2]})
    assert mine_hard_negatives(model, pairs, TEXTS)[0]["negative"] == TEXTS[2]


class SimilarityLoss(torch.nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return ((first * second).sum(1) - labels).square().mean()
