"""Files of texts by their kind: what is read, and what is refused by name."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sbert.data import read_classes, read_rows, read_sts, read_texts

TEXTS = ["a small boat", "the red fox runs", "one two three"]
COLUMNS = {"id": [1, 2, 3], "text": TEXTS}
PAIRS = {"anchor": TEXTS, "positive": TEXTS[::-1]}


def parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_and_json_arrays_are_read(tmp_path: Path) -> None:
    objects = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    made = {
        "a.parquet": (None, "text"),
        "a.json": (json.dumps(TEXTS, indent=1), None),
        "b.json": ("\n " + json.dumps(objects), "text"),
        "c.json": ("".join(json.dumps(row) + "\n" for row in objects), "text"),  # As many call JSONL.
        "d.JSON": ("\n".join(map(json.dumps, TEXTS)), None),
        "e.tab": ("id\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS), "text"),
        "notes.md": ("\n".join(TEXTS), None),
        "corpus.en": ("\n".join(TEXTS), None),
        "plain": ("\n".join(TEXTS), None),
    }
    parquet(tmp_path / "a.parquet", COLUMNS)
    for name, (content, column) in made.items():
        if content is not None:
            (tmp_path / name).write_text(content, encoding="utf-8")
        assert list(read_texts(tmp_path / name, column)) == TEXTS, name
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert list(read_texts(packed, column)) == TEXTS, packed


def test_rows_for_training_and_evaluation_from_parquet_and_json(tmp_path: Path) -> None:
    columns = {"sentence1": TEXTS, "sentence2": TEXTS[::-1], "score": [0.0, 2.5, 5.0]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    parquet(tmp_path / "a.parquet", columns)
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2), encoding="utf-8")
    expected = [{**row, "label": row["score"]} for row in rows]
    for row in expected:
        del row["score"]
    for name in ("a.parquet", "a.json"):
        assert list(read_rows(tmp_path / name, ["sentence1", "sentence2"], "score")) == expected
        assert read_classes(tmp_path / name, "score") == ["0.0", "2.5", "5.0"]
        assert [row["label"] for row in read_sts(tmp_path / name)] == [0.0, 0.5, 1.0]
        assert [row["first"] for row in read_sts(tmp_path / name)] == TEXTS


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.xlsx", b"PK\x03\x04", None, "ends in .xlsx, which is not supported: sbert reads plain text"),
        ("a.PDF.gz", b"%PDF", None, "ends in .pdf, which is not supported"),
        ("a.npy", b"\x93NUMPY", None, "ends in .npy, which is not supported"),
        ("a.html", b"<p>a</p>", None, "ends in .html, which is not supported"),
        ("a.dat", b"one\ntwo\0\n", None, "a.dat, line 2: a NUL byte; convert the text to UTF-8 (sbert reads"),
        ("plain", "one".encode("utf-16-le"), None, "plain, line 1: a NUL byte"),
        ("plain", b"\x89PNG\r\n", None, "plain, line 1: not UTF-8"),
        ("a.parquet", b"PAR1 and nothing", "text", "a.parquet: not a valid Parquet file"),
        ("a.parquet", b"", "text", "a.parquet: not a valid Parquet file"),
        ("a.json", b'["a", "b"', None, "a.json, line 1: not a JSON array"),
        (
            "a.json",
            b'["a"]\n["b"]\n',
            None,
            "line 2: not a JSON array (Extra data at character 1); fix it, or pass",
        ),
        ("a.json", b'["a", 1]', None, "a.json, element 2: a number where a text is expected; put a string there"),
        ("a.json", b'[{"t": "a"}]', None, "element 1: an object where a text is expected; name the column"),
        ("a.json", b'[{"t": "a"}, {"x": "b"}]', "t", "a.json, element 2: no key 't'; the keys are x"),
        ("a.jsonl", b'["a", "b"]', None, "a.jsonl, line 1: a list where a text is expected; put a string there"),
    ],
)
def test_other_files_are_refused_by_name(
    tmp_path: Path, name: str, content: bytes, column: str | None, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        list(read_texts(path, column))
    assert str(path) in str(error.value)


def test_parquet_names_its_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {**COLUMNS, "note": [None, "a", "b"]})
    with pytest.raises(ValueError, match=r"a.parquet has columns; name the one that holds the texts"):
        read_texts(path)
    with pytest.raises(ValueError, match=r"no columns 'body'; name one that occurs once, of id, text, note"):
        list(read_texts(path, "body"))
    with pytest.raises(ValueError, match=r"a.parquet, row 1: null where a text is expected; put a string there"):
        list(read_texts(path, "note"))
    with pytest.raises(ValueError, match=r"a.parquet, row 1: column 'note' is empty"):
        list(read_rows(path, ["text", "note"]))
