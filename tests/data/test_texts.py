"""Texts of files of every format, of data sets and in memory: each at its position, with the columns beside it."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
import subprocess
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from sbert.data import Texts, read_texts
from sbert.inputs.texts import rows_of

# White space, quotes, separators, and what Unicode counts as a line break.
LINES = "one\x0btwo\x0c\x1c\x85\u2028three"
TEXTS = ["plain", "", "  spaces kept  ", 'a 5" nail', LINES, "문장 🙂", "a, b; c", "\ufeff"]
ROWS = [{"id": i, "body": f"text {i}", "title": f"title {i}"} for i in range(7)]
COLUMNS = [(row["body"], {"id": row["id"], "title": row["title"]}) for row in ROWS]


def compress_zstd(raw: bytes) -> bytes:
    buffer = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(buffer, "zstd") as file:
        file.write(raw)
    return buffer.getvalue().to_pybytes()


def put(path: Path, content: str | bytes) -> Path:
    """Write a file, compressed as its suffix says."""
    raw = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes({".gz": gzip.compress, ".zst": compress_zstd}.get(path.suffix, bytes)(raw))
    return path


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows in the format that the path's suffix says."""
    kind = path.name.removesuffix(".gz").removesuffix(".zst").rsplit(".", 1)[1]
    if kind == "parquet":
        options = {"row_group_size": 2, "write_page_checksum": True}
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer := io.BytesIO(), **options)
        return put(path, buffer.getvalue())
    if kind == "json":
        return put(path, json.dumps(rows))
    mark = {"csv": ",", "tsv": "\t", "jsonl": ""}[kind]
    lines = [json.dumps(row) if not mark else mark.join(map(str, row.values())) for row in rows]
    return put(path, "\n".join([*([mark.join(rows[0])] if mark else []), *lines]) + "\n")


# ------------------------------------------------------------------------------------------------------- one file


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False], ids=["ending", "no ending"])
def test_text_lines(tmp_path: Path, zipped: str, end: str, last: bool) -> None:
    path = put(tmp_path / f"a.txt{zipped}", end.join(TEXTS) + (end if last else ""))
    assert list(read_texts(path)) == TEXTS


@pytest.mark.parametrize(
    ("name", "content", "column", "expected"),
    [
        ("a.txt", "\n\n", None, ["", ""]),
        ("a.txt", "a\rb\n\r\r\nc\r", None, ["a\rb", "\r", "c\r"]),  # A carriage return within a line is text.
        ("a.txt", b"\xef\xbb\xbfone\ntwo", None, ["one", "two"]),  # A byte order mark is none.
        ("a.jsonl", '{"text": "a"}\n\n\n', "text", ["a"]),  # Empty lines at the end are none.
        ("a.tsv", "text\tn\na\t1\n\n\n", "text", ["a"]),
        ("a.json", '\n [{"id": 1, "text": "one"}, {"text": "two"}]', "text", ["one", "two"]),
        ("a.json", '{"text": "one"}\n{"text": "two"}\n', "text", ["one", "two"]),  # As many call JSONL.
        ("notes.md", "one\ntwo", None, ["one", "two"]),
    ],
)
def test_small_files(tmp_path: Path, name: str, content: str | bytes, column: str | None, expected: list[str]) -> None:
    assert list(read_texts(put(tmp_path / name, content), column)) == expected


def test_any_text_in_any_format(tmp_path: Path) -> None:
    import csv

    texts = [*TEXTS, "two\nlines", "two\r\nlines", 'say "so"', "x" * 200_000]
    assert list(read_texts(put(tmp_path / "a.jsonl", "".join(json.dumps(text) + "\n" for text in texts)))) == texts
    objects = "".join(json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\r\n" for i, text in enumerate(texts))
    assert list(read_texts(put(tmp_path / "b.jsonl", objects), column="text")) == texts
    lines = ["id\ttext\tlabel", *(f'{i}\t{text}\t"' for i, text in enumerate(TEXTS))]  # TSV has no quotes.
    assert list(read_texts(put(tmp_path / "a.tsv", "\n".join(lines)), column="text")) == TEXTS
    for end in ("\n", "\r\n"):
        writer = csv.writer(buffer := io.StringIO(newline=""), lineterminator=end)
        writer.writerows([["id", "the text"], *enumerate(texts)])
        assert list(read_texts(put(tmp_path / "a.csv", buffer.getvalue() + end), column="the text")) == texts


def test_standard_input_and_a_format_that_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "id": range(len(TEXTS))}), buffer := io.BytesIO())
    for content, column, file_format, expected in (
        (b'"one"\n', None, None, ['"one"']),  # Text, unless another is given.
        (b'"one"\n', None, "jsonl", ["one"]),
        (b"a\tb\n1\t2\n", "b", "tsv", ["2"]),
        (buffer.getvalue(), "text", "parquet", TEXTS),
    ):
        stdin = SimpleNamespace(buffer=io.BytesIO(content))
        monkeypatch.setattr("sys.stdin", stdin)
        texts = Texts("-", column, format=file_format)
        assert list(texts) == expected
        assert not stdin.buffer.closed
        with pytest.raises(ValueError, match="standard input can be read only once"):
            list(texts)
    path = put(tmp_path / "a.csv", '"one"\n')
    assert list(read_texts(path, file_format="jsonl")) == ["one"]
    assert list(read_texts(path, file_format="text")) == ['"one"']


def test_nothing_is_read_ahead(tmp_path: Path) -> None:
    """From a pipe that never ends, as much as is asked for."""
    os.mkfifo(tmp_path / "pipe")
    endless = ["sh", "-c", 'exec seq 0 999999999 > "$1"', "sh", str(tmp_path / "pipe")]
    with subprocess.Popen(endless, stderr=subprocess.DEVNULL) as writer:
        texts = read_texts(tmp_path / "pipe")
        assert list(itertools.islice(texts, 50_000)) == [str(number) for number in range(50_000)]
        texts.close()  # type: ignore[attr-defined]
        assert writer.wait(10) != 0


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.txt", b"one\ntw\xffo\n", None, r"a\.txt, line 2: not UTF-8 .*convert"),
        ("a.xlsx", b"PK\x03\x04", None, r"a\.xlsx ends in .xlsx, which is not supported: sbert reads text, jsonl"),
        ("a.json", b'["a"]\n["b"]\n', None, r"line 2: not valid JSON \(Extra data at character 1\); fix or remove"),
        ("a.jsonl", "[" * 200_000, None, r"a\.jsonl, line 1: not valid JSON"),
        ("a.jsonl", '"one"\n{"text": "two"}', None, r"line 2: an object where a text is expected; name the column"),
        ("a.jsonl", '{"id": 1, "body": "one"}', "text", r"line 1: no key 'text'; the keys are id, body"),
        ("a.csv", "text,text\none,two\n", "text", r"a\.csv: 2 columns 'text'; name one that occurs once"),
        ("a.tsv", "id\ttext\n1\tone\n2\n", "text", r"line 3: 1 cells where the header has 2; fix or remove"),
        ("a.csv", 'id,text\n1,"one\n2,two\n', "text", r"a\.csv, line 3: unexpected end of data; fix the quotes"),
        ("a.csv", "id,text\n1,one\n", None, r"a\.csv has columns; pass column=, the one"),
    ],
)
def test_wrong_content(tmp_path: Path, name: str, content: str | bytes, column: str | None, message: str) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        list(read_texts(path, column))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.tsv.gz", "a.csv.zst", "a.parquet"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    """A file that is cut short, whose bytes changed, or that is not compressed; zstd's bytes have no checksum."""
    draw = random.Random(0)
    rows = [{"id": i, "body": f"text {i} {'x' * draw.randrange(30)}", "title": "a"} for i in range(600)]
    path = write(tmp_path / name, rows)
    raw, expected = path.read_bytes(), [row["body"] for row in rows]
    damaged = [raw[: draw.randrange(len(raw))] for _ in range(10)] + [b"one\ntwo\n"]
    for _ in range(0 if name.endswith(".zst") else 20):
        start = draw.randrange(12, len(raw) - 12)
        wrong = bytes(byte ^ 1 << draw.randrange(8) for byte in raw[start : start + 8])
        damaged.append(raw[:start] + wrong + raw[start + 8 :])
    errors = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert list(Texts(path, "body")) == expected
        except ValueError as error:
            assert name in str(error)
            errors += 1
    assert errors >= 11
    if name.endswith(".zst"):  # Several frames are one file.
        path.write_bytes(compress_zstd(b"one\n") + compress_zstd(b"two\n"))
        assert list(Texts(path, format="text")) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "start", "part", "message"),
    [
        ("a.txt.gz", "text\n", "x", r"a\.txt\.gz, line 2: longer than 64 MB, the most of a line; put each text"),
        ("a.jsonl.gz", '{"text": "a"}\n{"text": "', "x", r"a\.jsonl\.gz, line 2: longer than 64 MB"),
        ("a.parquet.gz", "", "x", r"a\.parquet\.gz: more than 1024 MB to read into memory; pass an uncomp"),
        ("a.json", "\n [\n", '{"text": "a"},\n', r"a\.json: an array of more than 1024 MB.* save it as JSONL"),
        ("a.csv", 'text\nfox\n"', "x\n", r"a\.csv, line \d+: a row of more than 64 MB; fix the quotes there or before"),
        ("a.tsv", "text\nfox\n", "\n", None),  # Empty lines at the end are skipped, not collected.
        ("a.jsonl", '{"text": "fox"}\n', "\n", None),
        ("a.json", '{"text": "fox"}\n', f'{{"text": "fox"}}{" " * 300}\n', None),  # JSONL: nothing is collected.
    ],
)
def test_of_a_long_line_no_more_is_read_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, start: str, part: str, message: str | None
) -> None:
    """A small compressed file may have a line of gigabytes; here megabytes are kilobytes."""
    monkeypatch.setattr("sbert.data.file_formats._MEGA", 1 << 10)
    path = put(tmp_path / name, start + part * ((9 << 17) // max(len(part), 1 if message else 64)))
    texts = read_texts(path, None if ".txt" in name else "text")
    tracemalloc.start()
    try:
        if message is None:
            assert set(texts) == {"fox"}
        else:
            with pytest.raises(ValueError, match=message):
                list(texts)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20 or (message and "1024 MB" in message)
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------------------------------------- files and columns


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_texts_and_the_columns_beside_them(tmp_path: Path, kind: str, packed: str) -> None:
    texts = Texts(write(tmp_path / f"a.{kind}{packed}", ROWS), "body", keep=["id", "title"])
    assert texts.keep == ("id", "title")
    for _ in range(2):  # A second time, too.
        assert list(texts) == [text for text, _ in COLUMNS]
        assert [(text, {**row, "id": int(row["id"])}) for text, row in texts.rows()] == COLUMNS  # CSV has text.
    lines = put(tmp_path / "lines.txt", "one\n\n")
    assert list(Texts(lines, keep=["text"]).rows()) == [("one", {"text": "one"}), ("", {"text": ""})]


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


def test_parquet_has_a_length_and_names_its_columns(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [*ROWS, {"body": None}]) for name in ("a.parquet", "b.parquet")]
    assert len(Texts(tmp_path, "body")) == 16
    for column, message in (
        ("text", "no columns 'text'; name one that occurs once, of id, body, title"),
        ("body", "a.parquet, row 8: null where a text is expected; put a string there"),
    ):
        with pytest.raises(ValueError, match=message):
            list(read_texts(paths[0], column))
    assert len(Texts.of(["one"], id=[1])) == 1
    assert len(Texts(datasets.Dataset.from_list(ROWS), "body")) == 7
    with pytest.raises(TypeError, match="the number of these texts is unknown"):
        len(Texts(write(tmp_path / "a.csv", ROWS), "body"))


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("*.csv", FileNotFoundError, r"no file matches .*\*\.csv; pass another pattern"),
        ("", FileNotFoundError, r"the folder .* has no file with a known ending"),
        ("none.txt", FileNotFoundError, r"none\.txt does not exist; name a file, or -"),
        ({"text": ["one"]}, TypeError, r"source is of type dict; pass a file, .* Texts\.of"),
        ([], ValueError, "source is an empty list"),
        (["s3://bucket/a.jsonl"], ValueError, "source='s3://bucket/a.jsonl' is an address, not a path on this machine"),
        (Path("gs://bucket/*.csv"), ValueError, r"is an address, not .* mounted drive, .* with Ray, Dask or Spark"),
    ],
)
def test_wrong_sources(tmp_path: Path, source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Texts(f"{tmp_path}/{source}" if isinstance(source, str) else source)


# -------------------------------------------------------------------------------------------- memory and data sets


def test_memory_has_columns_of_one_length() -> None:
    array = pyarrow.chunked_array([["one"], ["two", "three"]])
    texts = Texts.of(array, id=pyarrow.array([1, 2, 3]), title=["a", "b", "c"])
    assert list(texts.rows())[2] == ("three", {"id": 3, "title": "c"})
    with pytest.raises(ValueError, match="texts has 2 rows and id has 1"):
        Texts.of(["one", "two"], id=[1])
    with pytest.raises(ValueError, match="shorter"):
        list(Texts.of(["one", "two"], id=iter([1])))
    once = Texts.of(text for text in ["one"])
    assert list(once) == ["one"]
    with pytest.raises(ValueError, match="the generator can be read only once"):
        list(once)


def test_datasets(tmp_path: Path) -> None:
    data = datasets.Dataset.from_list(ROWS)
    for source in (data, data.with_format("numpy"), data.to_iterable_dataset()):
        assert list(Texts(source, "body", keep=["id", "title"]).rows()) == COLUMNS
        assert list(Texts(source, "body")) == [text for text, _ in COLUMNS]
        with pytest.raises(ValueError, match=r"the (Iterable)?Dataset: no columns 'url'; .* of id, body, title"):
            list(Texts(source, "body", keep=["url"]))
    write(tmp_path / "a.parquet", ROWS)
    files = str(tmp_path / "a.parquet")
    streamed = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, cache_dir=tmp_path)
    assert list(Texts(streamed, "body", keep=["id", "title"]).rows()) == COLUMNS
    with pytest.raises(ValueError, match="the Dataset has columns; name the one"):
        Texts(data)
    with pytest.raises(ValueError, match=r"has a transform, .* map\(\)"):
        list(Texts(data.with_transform(dict), "body"))
    with pytest.raises(TypeError, match="source is of type DatasetDict"):
        Texts(datasets.DatasetDict(train=data))


def measure_peak(source: Any) -> float:
    """Megabytes of Arrow's memory while the texts of a source are read."""
    before = pyarrow.total_allocated_bytes()
    return max(pyarrow.total_allocated_bytes() - before for _ in source) / 1e6


def test_arrow_and_parquet_are_read_piece_by_piece(tmp_path: Path) -> None:
    table = pyarrow.table({"body": [f"{i} {'x' * 1000}" for i in range(30_000)]})  # 30 MB in one row group.
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=30_000, use_dictionary=False)
    assert measure_peak(Texts(tmp_path / "a.parquet", "body")) < 12
    assert measure_peak(rows_of(table["body"])) < 12
    assert list(rows_of(table["body"])) == table["body"].to_pylist()
    assert list(rows_of(table["body"].chunk(0))) == table["body"].to_pylist()
