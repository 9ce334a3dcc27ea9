"""Training rows from files: columns by name, labels as numbers, and errors that name the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbert.data import read_classes, read_rows, read_sts
from tests.data.test_texts import put, write

NLI = ("contradiction", "entailment", "neutral")


# ------------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize("ending", ["tsv", "csv.gz", "jsonl", "json", "parquet"])
def test_named_columns_in_the_order_asked_for(tmp_path: Path, ending: str) -> None:
    rows = [{"sentence1": "A", "sentence2": "B", "score": score} for score in (0.0, 2.5, 5.0)]
    path = write(tmp_path / f"a.{ending}", rows)
    expected = [{"sentence2": "B", "sentence1": "A", "label": score} for score in (0.0, 2.5, 5.0)]
    found = read_rows(path, ["sentence2", "sentence1"], "score")
    assert [[*row.items()] for row in found] == [[*row.items()] for row in expected]
    assert list(read_rows(path, ["sentence2"])) == [{"sentence2": "B"}] * 3
    assert read_classes(path, "score") == ["0.0", "2.5", "5.0"]
    assert [row["label"] for row in read_sts(path)] == [0.0, 0.5, 1.0]


def test_json_labels_may_be_numbers_lists_and_truths_and_labels_have_a_scale(tmp_path: Path) -> None:
    lines = '{"t": "a", "y": 2}\n{"t": "a", "y": 0.5}\n{"t": "a", "y": true}\n{"t": "a", "y": [1, 0.25]}\n'
    labels = [row["label"] for row in read_rows(put(tmp_path / "a.jsonl", lines), ["t"], "y")]
    assert labels == [2, 0.5, 1, [1, 0.25]]
    assert [type(label) for label in labels] == [int, float, int, list]
    written = put(tmp_path / "b.tsv", "t\ty\na\t+2\na\t5.000\na\t1e-3\na\t 4 \n")
    assert repr([row["label"] for row in read_rows(written, ["t"], "y")]) == "[2, 5.0, 0.001, 4]"
    path = put(tmp_path / "a.tsv", "t\ty\na\t1\nb\t5.0\nc\t2\n")
    assert [row["label"] for row in read_rows(path, ["t"], "y", scale=(1, 5))] == [0.0, 1.0, 0.25]
    assert [row["label"] for row in read_rows(path, ["t"], "y", scale=(-5, 5))] == [0.6, 1.0, 0.7]


def test_classes_are_indices_in_the_given_order(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", "t\ty\na\tneutral\nb\tcontradiction\nc\tentailment\n")
    assert [row["label"] for row in read_rows(path, ["t"], "y", classes=NLI)] == [2, 0, 1]
    assert [row["label"] for row in read_rows(path, ["t"], "y", classes=NLI[::-1])] == [0, 2, 1]
    mixed = put(tmp_path / "a.jsonl", '{"t": "a", "y": 7}\n{"t": "b", "y": "9"}\n{"t": "c", "y": false}\n')
    assert [row["label"] for row in read_rows(mixed, ["t"], "y", classes=["9", "7", "false"])] == [1, 0, 2]


def test_rows_of_dropped_labels_are_left_out(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", "t\ty\na\t-\nb\tneutral\nc\t\n\t-\nd\tentailment\n")
    rows = list(read_rows(path, ["t"], "y", classes=NLI, drop={"-", ""}))
    assert rows == [{"t": "b", "label": 2}, {"t": "d", "label": 1}]
    numbers = put(tmp_path / "a.jsonl", '{"t": "a", "y": -1}\n{"t": "b", "y": null}\n{"t": "c", "y": 0}\n')
    assert list(read_rows(numbers, ["t"], "y", drop=[-1, ""])) == [{"t": "c", "label": 0}]


def test_classes_of_a_file(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", "t\ty\na\tneutral\nb\t-\nc\tentailment\nd\tneutral\n")
    assert read_classes(path, "y", drop=["-"]) == ["entailment", "neutral"]
    assert read_classes(path, "y") == ["-", "entailment", "neutral"]
    # Text order would put 10 before 9.
    assert read_classes(put(tmp_path / "b.csv", "y\n10\n9\n-1\n10\n"), "y") == ["-1", "9", "10"]
    with pytest.raises(ValueError, match=r"c\.csv, line 3: the label is empty"):
        read_classes(put(tmp_path / "c.csv", 'y\n1\n""\n'), "y")
    with pytest.raises(ValueError, match="no columns 'gold'; name one that occurs once, of y"):
        read_classes(tmp_path / "b.csv", "gold")


# -------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", "t\ty\na\tneutral\n", {}, r"a\.tsv, line 2: .* not a number; if labels are words, list them as cla"),
        ("a.tsv", "t\ty\na\t99999999999999999999\n", {}, "line 2: the label '99999999999999999999' is .* too large"),
        ("a.tsv", "t\ty\na\t1\nb\t\n", {}, r"a\.tsv, line 3: the label is empty; fill it in, or remove the line"),
        ("a.csv", "t,y\n,1\na,\nb,1\n,\n", {}, "line 2: column 't' is empty; fill it in, or remove the line"),
        ("a.jsonl", '{"t": 3, "y": 1}\n', {}, "line 1: a number where column 't' has a text; put a string"),
        ("a.jsonl", '{"t": "a", "y": [1, "2"]}\n', {}, "line 1: the label's list contains '2'"),
        ("a.tsv", "t\ty\na\t5.1\n", {"scale": (0, 5)}, r"line 2: the label 5\.1 is not within the scale, 0 to 5"),
        ("a.jsonl", '{"t": "a", "y": [1]}\n', {"scale": (0, 5)}, "line 1: the label is a list, which has no scale"),
    ],
)
def test_wrong_content(tmp_path: Path, name: str, content: str, options: dict[str, Any], message: str) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        list(read_rows(path, ["t"], "y", **options))


@pytest.mark.parametrize(
    ("columns", "label", "options", "error", "message"),
    [
        ("t", None, {}, TypeError, "columns='t' is one string; pass a list"),
        (["t"], "y", {"classes": "abc"}, TypeError, "classes='abc' is one string"),
        ([], None, {}, ValueError, "name at least one column, and none twice"),
        (["t"], None, {"classes": NLI}, ValueError, "name their column as label"),
        (["t"], "y", {"classes": NLI, "scale": (0, 5)}, ValueError, "pass one of them"),
        (["t"], "y", {}, FileNotFoundError, r"none\.tsv does not exist"),
    ],
)
def test_arguments_are_checked_before_the_first_row(
    tmp_path: Path, columns: Any, label: str | None, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_rows(tmp_path / "none.tsv", columns, label, **options)
