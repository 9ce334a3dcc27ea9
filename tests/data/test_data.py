"""Texts from files: every line at its place, nothing read ahead, and errors that name the line."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from sbert.data import read_texts

# White space, quotes, separators, and what Unicode counts as a line break.
TEXTS = [
    "plain",
    "",
    "  spaces kept  ",
    'a 5" nail',
    "one\x0btwo\x0c\x1c\x85\u2028three",
    "문장 🙂",
    "a, b; c",
    "\ufeff",
]


def put(path: Path, content: str | bytes) -> Path:
    raw = content.encode("utf-8") if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False], ids=["ending", "no ending"])
def test_text_lines(tmp_path: Path, zipped: str, end: str, last: bool) -> None:
    path = put(tmp_path / f"a.txt{zipped}", end.join(TEXTS) + (end if last else ""))
    assert list(read_texts(path)) == TEXTS


def test_no_lines(tmp_path: Path) -> None:
    assert list(read_texts(put(tmp_path / "a.txt", ""))) == []
    assert list(read_texts(put(tmp_path / "b.txt", "\n\n"))) == ["", ""]
    assert list(read_texts(put(tmp_path / "c.jsonl", ""))) == []


def test_a_carriage_return_within_a_line_is_text(tmp_path: Path) -> None:
    assert list(read_texts(put(tmp_path / "a.txt", "a\rb\n\r\r\nc\r"))) == ["a\rb", "\r", "c\r"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "A.JSONL", "a.jsonl.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    texts = [*TEXTS, "two\nlines"]
    path = put(tmp_path / name, "".join(json.dumps(text) + "\n" for text in texts))
    assert list(read_texts(path)) == texts
    objects = "".join(json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\r\n" for i, text in enumerate(texts))
    assert list(read_texts(put(path, objects), column="text")) == texts


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv_knows_no_quotes(tmp_path: Path, name: str) -> None:
    lines = ["id\ttext\tlabel", *(f'{i}\t{text}\t"' for i, text in enumerate(TEXTS))]
    assert list(read_texts(put(tmp_path / name, "\n".join(lines)), column="text")) == TEXTS


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv(tmp_path: Path, name: str, end: str) -> None:
    import csv

    texts = [*TEXTS, "two\nlines", "two\r\nlines", 'say "so"', "x" * 200_000]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=end)
    writer.writerow(["id", "the text"])
    writer.writerows(enumerate(texts))
    path = put(tmp_path / name, buffer.getvalue() + end)
    assert list(read_texts(path, column="the text")) == texts


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", '{"text": "a"}\n'), ("a.tsv", "text\tn\na\t1\n")])
def test_empty_lines_at_the_end_are_none(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content + "\n\n", encoding="utf-8")
    assert list(read_texts(path, column="text")) == ["a"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert list(read_texts(put(tmp_path / "a.txt", b"\xef\xbb\xbfone\ntwo"))) == ["one", "two"]
    assert list(read_texts(put(tmp_path / "a.csv", b"\xef\xbb\xbftext\none"), column="text")) == ["one"]


class Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


def test_stdin_is_text_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin := Stdin(b'"one"\n'))
    assert list(read_texts("-")) == ['"one"']
    assert not stdin.buffer.closed
    monkeypatch.setattr("sys.stdin", Stdin(b'"one"\n'))
    assert list(read_texts("-", file_format="jsonl")) == ["one"]
    monkeypatch.setattr("sys.stdin", Stdin(b"a\tb\n1\t2\n"))
    assert list(read_texts("-", "b", "tsv")) == ["2"]


def test_parquet_from_stdin_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "id": range(len(TEXTS))}), buffer := io.BytesIO())
    monkeypatch.setattr("sys.stdin", Stdin(buffer.getvalue()))
    assert list(read_texts("-", "text", "parquet")) == TEXTS


def test_the_format_given_counts_and_not_the_ending(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", '"one"\n')
    assert list(read_texts(path, file_format="jsonl")) == ["one"]
    assert list(read_texts(path, file_format="text")) == ['"one"']


def test_nothing_is_read_ahead(tmp_path: Path) -> None:
    """From a pipe that never ends, as much as is asked for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stop = threading.Event()

    def write() -> None:
        try:
            with pipe.open("wb") as file:
                for number in itertools.count():
                    file.write(b"%d\n" % number)
        except BrokenPipeError:
            stop.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    texts = read_texts(pipe)
    assert list(itertools.islice(texts, 50_000)) == [str(number) for number in range(50_000)]
    texts.close()  # type: ignore[attr-defined]
    assert stop.wait(10)


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.txt", b"one\ntw\xffo\n", None, r"a\.txt, line 2: not UTF-8 .*convert"),
        ("a.txt", "one\ntwo".encode("utf-16"), None, r"a\.txt, line 1: not UTF-8 .*convert"),
        ("a.jsonl", '"one"\n"two\n', None, r"a\.jsonl, line 2: not valid JSON \(.* at character 5\).*fix or remove"),
        ("a.jsonl", '"one"\n\n"two"\n', None, r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", "9" * 5000, None, r"a\.jsonl, line 1: "),
        ("a.jsonl", "[" * 200_000, None, r"a\.jsonl, line 1: not valid JSON"),
        ("a.jsonl", '"one"\n{"text": "two"}', None, r"line 2: an object where a text is expected; name the column"),
        ("a.jsonl", '{"text": "one"}\n"two"', "text", r"line 2: a string, not an object with the key 'text'"),
        ("a.jsonl", '{"id": 1, "body": "one"}', "text", r"line 1: no key 'text'; the keys are id, body"),
        ("a.jsonl", '{"text": "one"}\n{"text": null}', "text", r"line 2: null where a text is expected; put a string"),
        ("a.jsonl", '{"text": 1.5}', "text", r"line 1: a number where a text is expected"),
        ("a.jsonl", '{"text": true}', "text", r"line 1: true or false where"),
        ("a.jsonl", '{"text": ["one"]}', "text", r"line 1: a list where"),
        ("a.tsv", "id\ttext\n1\tone\n", "body", r"a\.tsv: no columns 'body'; name one .* of id, text"),
        ("a.tsv", "", "body", r"a\.tsv: no columns 'body'; .* of none"),
        ("a.csv", "text,text\none,two\n", "text", r"a\.csv: 2 columns 'text'; name one that occurs once"),
        ("a.tsv", "id\ttext\n1\tone\n2\n", "text", r"line 3: 1 cells where the header has 2; fix or remove"),
        ("a.tsv", "id\ttext\n1\tone\ttwo\n", "text", r"line 2: 3 cells where the header has 2"),
        ("a.csv", 'id,text\n1,"one\n2,two\n', "text", r"a\.csv, line 3: unexpected end of data; fix the quotes"),
        ("a.csv", 'id,text\n1,"a"b\n', "text", r"a\.csv, line 2: .*fix the quotes"),
        ("a.csv", "id,text\n1,one\n", None, r"a\.csv has columns; name the one"),
        ("a.tsv", "id\ttext\n1\tone\n", None, r"a\.tsv has columns; name the one"),
        ("a.txt", "one\n", "text", r"a\.txt is plain text and has no column 'text'"),
    ],
)
def test_wrong_content(tmp_path: Path, name: str, content: str | bytes, column: str | None, message: str) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        list(read_texts(path, column))


def test_good_lines_come_before_the_error(tmp_path: Path) -> None:
    texts = read_texts(put(tmp_path / "a.txt", b"one\ntwo\n\xff\n"))
    assert [next(texts), next(texts)] == ["one", "two"]
    with pytest.raises(ValueError, match="line 3"):
        next(texts)


def _zipped() -> bytes:
    rng = random.Random(0)
    return gzip.compress("".join(f"{rng.random()}\n" for _ in range(20_000)).encode())


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain", "checksum"])
def test_damaged_gzip(tmp_path: Path, damage: str) -> None:
    raw = _zipped()
    half = len(raw) // 2
    damaged = {
        "cut": raw[:half],
        "flipped": raw[:half] + bytes(byte ^ 255 for byte in raw[half : half + 64]) + raw[half + 64 :],
        "plain": b"one\ntwo\n",
        "checksum": raw[:-8] + b"\0" * 8,
    }[damage]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.txt\.gz, (after )?line \d+: "):
        list(read_texts(path))


def test_what_cannot_be_opened_is_said_before_the_first_text(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist; name a file, or -"):
        read_texts(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="file format 'xml' is unknown; pass one of text, jsonl, csv, tsv"):
        read_texts(tmp_path / "none.txt", file_format="xml")
    with pytest.raises(FileNotFoundError, match="has no file with a known ending"):
        read_texts(tmp_path)


def test_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    real = Path.open

    def remember(self: Path, *args: Any, **options: Any) -> Any:
        opened.append(real(self, *args, **options))
        return opened[-1]

    monkeypatch.setattr(Path, "open", remember)
    path = put(tmp_path / "a.tsv", "id\ttext\n1\tone\n")
    assert list(read_texts(path, "text")) == ["one"]
    with pytest.raises(ValueError, match="no columns"):
        list(read_texts(path, "body"))
    reading = [file for file in opened if "r" in file.mode]
    assert len(reading) == 2
    assert all(file.closed for file in reading)
