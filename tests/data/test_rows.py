"""Training rows from files: columns by name, labels as numbers, and errors that name the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sbert.data import read_classes, read_rows, read_sts

NLI = ("contradiction", "entailment", "neutral")


def put(path: Path, content: str) -> Path:
    raw = content.encode("utf-8")
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def table(path: Path, rows: list[list[str]]) -> Path:
    """Rows in the format that the path's ending says; JSON's values are all strings."""
    kind = path.name.removesuffix(".gz").rsplit(".", 1)[1]
    if kind == "tsv":
        return put(path, "".join("\t".join(row) + "\n" for row in rows))
    if kind == "csv":
        return put(path, "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    return put(path, "".join(json.dumps(dict(zip(rows[0], row, strict=True))) + "\n" for row in rows[1:]))


# ------------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_named_columns_in_the_order_asked_for(tmp_path: Path, kind: str, zipped: str) -> None:
    path = table(tmp_path / f"a.{kind}{zipped}", [["id", "b", "a", "gold"], ["1", "B", "A", "2"], ["2", "D", "C", "3"]])
    rows = list(read_rows(path, ["a", "b"], "gold"))
    assert rows == [{"a": "A", "b": "B", "label": 2}, {"a": "C", "b": "D", "label": 3}]
    assert [list(row) for row in rows] == [["a", "b", "label"]] * 2
    assert list(read_rows(path, ["b"])) == [{"b": "B"}, {"b": "D"}]


def test_parquet_and_json_arrays(tmp_path: Path) -> None:
    import pyarrow.parquet

    rows = [{"sentence1": "a", "sentence2": "b", "score": score} for score in (0.0, 2.5, 5.0)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    put(tmp_path / "a.json", json.dumps(rows, indent=2))
    for path in (tmp_path / "a.parquet", tmp_path / "a.json"):
        assert [row["label"] for row in read_rows(path, ["sentence1"], "score")] == [0.0, 2.5, 5.0]
        assert read_classes(path, "score") == ["0.0", "2.5", "5.0"]
        assert [row["label"] for row in read_sts(path)] == [0.0, 0.5, 1.0]


def test_tsv_knows_no_quotes_and_csv_does(tmp_path: Path) -> None:
    tsv = put(tmp_path / "a.tsv", 'text\tscore\n"An open quote\t1\nnext "one"\t2\n')
    assert [row["text"] for row in read_rows(tsv, ["text"], "score")] == ['"An open quote', 'next "one"']
    csv = put(tmp_path / "a.csv", 'text,score\n"one, two\nthree",1\n')
    assert list(read_rows(csv, ["text"], "score")) == [{"text": "one, two\nthree", "label": 1}]


@pytest.mark.parametrize(
    ("written", "expected"),
    [("3", 3), ("-1", -1), ("+2", 2), ("3.0", 3.0), ("5.000", 5.0), ("1e-3", 0.001), (" 4 ", 4), (".5", 0.5)],
)
def test_labels_are_numbers_as_written(tmp_path: Path, written: str, expected: float) -> None:
    (row,) = read_rows(put(tmp_path / "a.tsv", f"text\tscore\none\t{written}\n"), ["text"], "score")
    assert row["label"] == expected
    assert type(row["label"]) is type(expected)


def test_json_labels_may_be_numbers_lists_and_truths(tmp_path: Path) -> None:
    lines = '{"t": "a", "y": 2}\n{"t": "a", "y": 0.5}\n{"t": "a", "y": true}\n{"t": "a", "y": [1, 0.25]}\n'
    labels = [row["label"] for row in read_rows(put(tmp_path / "a.jsonl", lines), ["t"], "y")]
    assert labels == [2, 0.5, 1, [1, 0.25]]
    assert [type(label) for label in labels] == [int, float, int, list]


def test_scale(tmp_path: Path) -> None:
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
        (
            "a.tsv",
            "t\ty\na\tneutral\n",
            {},
            r"a\.tsv, line 2: the label 'neutral' is not a number; if labels are words, list them as classes",
        ),
        ("a.tsv", "t\ty\na\t1_0\n", {}, "line 2: the label '1_0' is not a number"),
        ("a.tsv", f"t\ty\na\t{'9' * 5000}\n", {}, "line 2: the label '9999.* is not a number"),
        ("a.tsv", "t\ty\na\t1\nb\tnan\n", {}, "line 3: the label 'nan' is not finite"),
        ("a.tsv", "t\ty\na\t99999999999999999999\n", {}, "line 2: the label '99999999999999999999' is .* too large"),
        ("a.tsv", "t\ty\na\t1\nb\t\n", {}, r"a\.tsv, line 3: the label is empty; fill it in, or remove the line"),
        ("a.tsv", "t\ty\n\t1\n", {}, "line 2: column 't' is empty"),
        ("a.tsv", "t\tz\na\t1\n", {}, "no columns 'y'; name one that occurs once, of t, z"),
        ("a.csv", 't,y\n"a\nb",1\nc,maybe\n', {}, "line 4: the label 'maybe' is not a number"),
        ("a.jsonl", '{"t": "a", "y": 1}\n{"t": "a"}\n', {}, "line 2: no key 'y'; the keys are t"),
        ("a.jsonl", '{"t": "a", "y": null}\n', {}, "line 1: the label is empty"),
        ("a.jsonl", '{"t": 3, "y": 1}\n', {}, "line 1: a number where column 't' has a text; put a string"),
        ("a.jsonl", '{"t": "a", "y": {}}\n', {}, "line 1: the label {} is not a number"),
        ("a.jsonl", '{"t": "a", "y": [1, "2"]}\n', {}, "line 1: the label's list contains '2'"),
        ("a.jsonl", '{"t": "a", "y": [true]}\n', {}, "line 1: the label's list contains True"),
        (
            "a.tsv",
            "t\ty\na\tneutral\nb\t-\n",
            {"classes": NLI},
            "line 3: the label '-' is not one of the classes contradiction, entailment, neutral; add or drop it",
        ),
        ("a.tsv", "t\ty\na\t1\n", {"classes": map(str, range(100, 130))}, "the classes 100, 101, .*; add or drop it"),
        ("a.tsv", "t\ty\na\t5.1\n", {"scale": (0, 5)}, r"line 2: the label 5\.1 is not within scale=0 to 5"),
        ("a.jsonl", '{"t": "a", "y": [1]}\n', {"scale": (0, 5)}, "line 1: the label is a list, which scale="),
    ],
)
def test_wrong_content(tmp_path: Path, name: str, content: str, options: dict[str, Any], message: str) -> None:
    if "classes" in options:
        options = {"classes": list(options["classes"])}
    path = put(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        list(read_rows(path, ["t"], "y", **options))


@pytest.mark.parametrize(
    ("columns", "label", "options", "error", "message"),
    [
        ("t", None, {}, TypeError, "columns='t' is one string; pass a list"),
        (["t"], "y", {"classes": "abc"}, TypeError, "classes='abc' is one string"),
        ([], None, {}, ValueError, "name at least one column, and none twice"),
        (["t", "y"], "y", {}, ValueError, "none twice"),
        (["t", "label"], "y", {}, ValueError, "none twice or 'label'"),
        (["t"], None, {"classes": NLI}, ValueError, "name their column as label"),
        (["t"], "y", {"classes": NLI, "scale": (0, 5)}, ValueError, "pass one of them"),
        (["t"], "y", {"classes": []}, ValueError, "one or more words, each once"),
        (["t"], "y", {"scale": (5, 5)}, ValueError, "lowest and the highest"),
        (["t"], "y", {"file_format": "text"}, ValueError, "plain text and has no column 't'"),
        (["t"], "y", {"file_format": "xml"}, ValueError, "file format 'xml' is unknown"),
        (["t"], "y", {}, FileNotFoundError, r"none\.tsv does not exist"),
    ],
)
def test_arguments_are_checked_before_the_first_row(
    tmp_path: Path, columns: Any, label: str | None, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_rows(tmp_path / "none.tsv", columns, label, **options)


def test_the_real_files(data: Path) -> None:
    rows = list(read_rows(data / "stsb" / "test.tsv", ["sentence1", "sentence2"], "score", scale=(0, 5)))
    assert (len(rows), rows[0]["label"]) == (1379, 0.5)
    assert read_classes(data / "nli" / "snli_dev.tsv", "label") == list(NLI)
