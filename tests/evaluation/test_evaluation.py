"""What every evaluator does: vectors shared, figures in one, lines in files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.evaluation import ModelVectors, SequentialEvaluator, SimilarityEvaluator, write_line

FIRST = ["a small boat", "the red fox runs", "one two three", "a small boat"]
SECOND = ["the red fox runs", "the red fox runs over hills", "zero one", "nobody rows it home"]


# ------------------------------------------------------------------------------------------------------- vectors


def test_vectors_are_shared_and_kept_apart_by_kind(model: SentenceEncoder) -> None:
    prompted = SentenceEncoder(*model, prompts={"query": "zero one ", "document": "seven "}, device="cpu")
    vectors = ModelVectors(prompted)
    for _ in range(2):
        ways = {"text": prompted.encode, "query": prompted.encode_query, "document": prompted.encode_document}
        for kind, encode in ways.items():
            np.testing.assert_allclose(vectors(FIRST, kind), encode(FIRST), atol=1e-6)
            np.testing.assert_allclose(vectors(SECOND[::-1], kind), encode(SECOND[::-1]), atol=1e-6)
            np.testing.assert_allclose(vectors.encode_uncached(FIRST, kind), encode(FIRST), atol=1e-6)
            assert vectors([], kind).shape == (0, 16)
    assert vectors(FIRST).dtype == np.float32


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


# ------------------------------------------------------------------------------------------------- lines in files


def test_lines_of_json(tmp_path: Path) -> None:
    """Each run is a line; half a line, of a process that was killed, stays alone."""
    path = tmp_path / "no" / "such" / "folder" / "results.jsonl"
    write_line(path, {"model": 'a "b", ü', "f1": 0.1, "best": math.nan})
    with path.open("a") as file:
        file.write('{"f1": 0.')
    write_line(path, {"model": "c", "f1": 1.0, "most": math.inf})
    first, half, second = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {"model": 'a "b", ü', "f1": 0.1, "best": None}
    assert "ü" in first
    assert half == '{"f1": 0.'
    assert json.loads(second) == {"model": "c", "f1": 1.0, "most": None}


def test_lines_of_csv_get_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "results.CSV"
    path.touch()
    write_line(path, {"model": 'a "b", ü\nc', "f1": 0.1})
    write_line(path, {"f1": math.nan, "model": "d", "recall": 1 / 3})
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["model", "f1", "recall"], ['a "b", ü\nc', "0.1", ""], ["d", "nan", str(1 / 3)]]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"model,f1\na,0.1,7\n", "rows do not match the header"),
        (b"model,f1,f1\na,1,2\n", "rows do not match the header"),
        (b"Dear diary\n", "other columns"),
        (b'model\n"a\n', "is not a CSV file of these results"),
    ],
)
def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        write_line(path, {"model": "b", "f1": 0.2})
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
