"""Texts of several files and of data sets: their order, the columns beside them, and how much of them is in memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from sbert.data import Texts
from sbert.inputs.texts import rows_of

ROWS = [{"id": i, "body": f"text {i}", "title": f"title {i}"} for i in range(7)]
KEPT = [(row["body"], {"id": row["id"], "title": row["title"]}) for row in ROWS]


def zstd(raw: bytes) -> bytes:
    buffer = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(buffer, "zstd") as file:
        file.write(raw)
    return buffer.getvalue().to_pybytes()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows in the format and the compression of the path's endings."""
    kind = path.name.removesuffix(".gz").removesuffix(".zst").rsplit(".", 1)[1]
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer := io.BytesIO(), row_group_size=2)
        raw = buffer.getvalue()
    elif kind == "jsonl":
        raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    elif kind == "json":
        raw = json.dumps(rows).encode()
    else:
        mark = {"csv": ",", "tsv": "\t"}[kind]
        lines = [list(rows[0]), *(map(str, row.values()) for row in rows)]
        raw = "".join(mark.join(line) + "\n" for line in lines).encode()
    compress = {".gz": gzip.compress, ".zst": zstd}.get(path.suffix, bytes)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(compress(raw))
    return path


def typed(found: Any) -> list[tuple[str, dict[str, Any]]]:
    """Rows with numbers for the ids, which CSV has as text."""
    return [(text, {**row, "id": int(row["id"])}) for text, row in found]


# ---------------------------------------------------------------------------------------------- files and columns


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_texts_and_the_columns_beside_them(tmp_path: Path, kind: str, packed: str) -> None:
    texts = Texts(write(tmp_path / f"a.{kind}{packed}", ROWS), "body", keep=["id", "title"])
    assert texts.keep == ("id", "title")
    for _ in range(2):  # A second time, too.
        assert list(texts) == [text for text, _ in KEPT]
        assert typed(texts.rows()) == KEPT


def test_the_text_itself_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[:1])
    assert list(Texts(path, "body", keep=["body"]).rows()) == [("text 0", {"body": "text 0"})]
    (tmp_path / "a.txt").write_text("one\n\n", encoding="utf-8")
    assert list(Texts(tmp_path / "a.txt", keep=["text"]).rows()) == [("one", {"text": "one"}), ("", {"text": ""})]
    (tmp_path / "b.jsonl").write_text('"one"\n', encoding="utf-8")
    assert list(Texts(tmp_path / "b.jsonl", keep=["text"]).rows()) == [("one", {"text": "one"})]


def test_several_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for place, name in enumerate(["b.csv", "a.jsonl", "c/d.tsv.gz"]):
        write(tmp_path / name, ROWS[2 * place : 2 * place + 2])
    for name in ("_SUCCESS.csv", ".hidden.csv", "c/_part.csv", "notes.md"):
        (tmp_path / name).write_text("nothing of this kind")
    expected = ["text 2", "text 3", "text 0", "text 1", "text 4", "text 5"]
    assert list(Texts(tmp_path, "body")) == expected
    assert list(Texts(f"{tmp_path}/[ab].*", "body")) == expected[:4]
    assert list(Texts(f"{tmp_path}/**/*.tsv.gz", "body")) == expected[4:]
    # A list is read in its order.
    assert list(Texts([tmp_path / "b.csv", f"{tmp_path}/a*", tmp_path / "c"], "body")) == [
        *expected[2:4], *expected[:2], *expected[4:],
    ]  # fmt: skip
    (tmp_path / "a[1].txt").write_text("a name, not a pattern\n")
    assert list(Texts(tmp_path / "a[1].txt")) == ["a name, not a pattern"]


def test_length_where_it_is_cheap(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        write(tmp_path / name, ROWS)
    assert len(Texts(tmp_path, "body")) == 14
    assert len(Texts.of(["one"], id=[1])) == 1
    assert len(Texts(datasets.Dataset.from_list(ROWS), "body")) == 7
    with pytest.raises(TypeError, match="the number of these texts is unknown"):
        len(Texts(write(tmp_path / "a.csv", ROWS), "body"))


@pytest.mark.parametrize(
    ("name", "column", "keep", "message"),
    [
        ("a.csv", "text", (), r"a\.csv: no columns 'text'; name one that occurs once, of id, body, title"),
        ("a.parquet", "body", ("url",), r"a\.parquet: no columns 'url'; name one .* of id, body, title"),
        ("a.jsonl", "body", ("url",), r"a\.jsonl, line 1: no key 'url'; the keys are id, body, title"),
        (
            "a.jsonl",
            None,
            ("id",),
            r"without a column of texts, .*a\.jsonl has the column 'text' alone, no 'id' to keep",
        ),
        ("a.jsonl", "id", (), r"a\.jsonl, line 1: a number where a text is expected"),
        ("a.parquet", "id", (), r"a\.parquet, row 1: a number where a text is expected"),
        ("a.parquet", None, (), r"a\.parquet has columns; name the one"),
    ],
)
def test_columns_that_are_missing(tmp_path: Path, name: str, column: str | None, keep: Any, message: str) -> None:
    path = write(tmp_path / name, ROWS)
    with pytest.raises(ValueError, match=message):
        list(Texts(path, column, keep=keep))


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches .*\*\.csv; pass another pattern"):
        Texts(f"{tmp_path}/*.csv")
    with pytest.raises(FileNotFoundError, match=r"the folder .* has no file with a known ending"):
        Texts(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist"):
        Texts([tmp_path / "none.txt"])
    with pytest.raises(TypeError, match=r"source is of type dict; pass a file, .* Texts\.of"):
        Texts({"text": ["one"]})
    with pytest.raises(TypeError, match="keep='id' is one string; pass a list"):
        Texts([], keep="id")
    with pytest.raises(ValueError, match="source is an empty list"):
        Texts([])
    with pytest.raises(TypeError, match="texts is of type str; pass a list"):
        Texts.of("one")


@pytest.mark.parametrize("damage", ["cut", "junk", "plain", "two frames"])
def test_damaged_zstd(tmp_path: Path, damage: str) -> None:
    lines = "".join(f"{i * 7919 % 1013}\n" for i in range(50_000)).encode()
    raw = zstd(lines)
    path = tmp_path / "a.txt.zst"
    path.write_bytes({"cut": raw[:-2], "junk": raw + b"junk", "plain": lines, "two frames": raw + raw}[damage])
    if damage == "two frames":
        assert sum(1 for _ in Texts(path)) == 100_000
        return
    with pytest.raises(ValueError, match=r"a\.txt\.zst, after line \d+: .*; the file is damaged"):
        list(Texts(path))


def test_damaged_parquet(tmp_path: Path) -> None:
    """Damage is an error that names the file; where the writer stored checksums of pages, always."""
    rng = random.Random(0)
    table = pyarrow.table({"id": range(3000), "body": [f"text {i} {'x' * rng.randrange(30)}" for i in range(3000)]})
    pyarrow.parquet.write_table(table, buffer := io.BytesIO(), row_group_size=700, write_page_checksum=True)
    path, expected = tmp_path / "a.parquet", [(row["body"], {"id": row["id"]}) for row in table.to_pylist()]
    for number in range(60):
        raw = bytearray(buffer.getvalue())
        if number % 3 == 0:
            del raw[rng.randrange(len(raw)) :]
        else:
            place = rng.randrange(8, len(raw) - 8)
            raw[place : place + 8] = bytes(byte ^ 1 << rng.randrange(8) for byte in raw[place : place + 8])
        path.write_bytes(raw)
        try:
            assert list(Texts(path, "body", keep=["id"]).rows()) == expected, number
        except ValueError as error:
            assert "a.parquet" in str(error), number


def test_zstd_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv.zst", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'a\.csv\.zst needs pyarrow; run: pip install "sbert\[parquet\]"'):
        list(Texts(path, "body"))


# ---------------------------------------------------------------------------------------------- what is read once


def test_what_can_be_read_only_once_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"one\ntwo\n")))
    texts = Texts("-")
    assert list(texts) == ["one", "two"]
    with pytest.raises(ValueError, match="standard input can be read only once"):
        list(texts)
    made = Texts.of(text for text in ["one"])
    assert list(made) == ["one"]
    with pytest.raises(ValueError, match="the generator can be read only once"):
        list(made)


def test_memory_has_columns_of_one_length() -> None:
    array = pyarrow.chunked_array([["one"], ["two", "three"]])
    texts = Texts.of(array, id=pyarrow.array([1, 2, 3]), title=["a", "b", "c"])
    assert list(texts.rows())[2] == ("three", {"id": 3, "title": "c"})
    with pytest.raises(ValueError, match="texts has 2 rows and id has 1"):
        Texts.of(["one", "two"], id=[1])
    with pytest.raises(ValueError, match="shorter"):
        list(Texts.of(["one", "two"], id=iter([1])))
    with pytest.raises(TypeError, match=r"texts\[1\] is of type int"):
        list(Texts.of(["one", 2]))  # type: ignore[list-item]


# -------------------------------------------------------------------------------------------------- lazy sources


def test_datasets(tmp_path: Path) -> None:
    data = datasets.Dataset.from_list(ROWS)
    for source in (data, data.with_format("numpy"), data.to_iterable_dataset()):
        assert list(Texts(source, "body", keep=["id", "title"]).rows()) == KEPT
        assert list(Texts(source, "body")) == [text for text, _ in KEPT]
        with pytest.raises(ValueError, match=r"the (Iterable)?Dataset: no columns 'url'; .* of id, body, title"):
            list(Texts(source, "body", keep=["url"]))
    write(tmp_path / "a.parquet", ROWS)
    files = str(tmp_path / "a.parquet")
    streamed = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, cache_dir=tmp_path)
    assert list(Texts(streamed, "body", keep=["id", "title"]).rows()) == KEPT
    with pytest.raises(ValueError, match="the Dataset has columns; name the one"):
        Texts(data)
    with pytest.raises(ValueError, match=r"has a transform, .* map\(\)"):
        list(Texts(data.with_transform(dict), "body"))
    with pytest.raises(TypeError, match="source is of type DatasetDict"):
        Texts(datasets.DatasetDict(train=data))


def test_a_data_set_is_read_as_it_is_asked_for() -> None:
    seen = []

    def generate() -> Iterator[dict[str, str]]:
        for number in range(100_000):
            seen.append(number)
            yield {"body": str(number)}

    texts = iter(Texts(datasets.IterableDataset.from_generator(generate), "body"))
    assert [next(texts) for _ in range(10)] == list(map(str, range(10)))
    assert len(seen) < 5000


def peak(source: Any) -> float:
    """Megabytes of Python's and Arrow's memory while the texts of a source are read."""
    list(zip(range(10), source, strict=False))
    before = pyarrow.total_allocated_bytes()
    tracemalloc.start()
    most = 0
    for number, _ in enumerate(source):
        if number % 500 == 0:
            most = max(most, pyarrow.total_allocated_bytes() - before)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (most + python) / 1e6


def test_arrow_and_parquet_are_read_piece_by_piece(tmp_path: Path) -> None:
    table = pyarrow.table({"body": [f"{i} {'x' * 1000}" for i in range(30_000)]})  # 30 MB in one row group.
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=30_000, use_dictionary=False)
    assert peak(Texts(tmp_path / "a.parquet", "body")) < 12
    assert peak(rows_of(table["body"])) < 12
    assert list(rows_of(table["body"])) == table["body"].to_pylist()
    assert list(rows_of(table["body"].chunk(0))) == table["body"].to_pylist()
