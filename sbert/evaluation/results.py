"""Files of results: one line for each evaluation."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sbert.storage.atomic import write_text


def write_line(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    r"""Add a record to a file of results, which is created if it does not exist.

    In a CSV file, missing columns are added. In a JSONL file, an incomplete last line, left by a killed process, is
    ended first.

    Args:
        path: The file: CSV if it ends in ``.csv``, else JSONL.
        record: Values by name.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If it is a CSV file that is not a header with rows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "results.csv"
        ...     write_line(file, {"model": "a", "spearman": 0.5})
        ...     write_line(file, {"model": "b", "spearman": 0.6, "pearson": 0.7})
        ...     file.read_text().splitlines()
        ['model,spearman,pearson', 'a,0.5,', 'b,0.6,0.7']
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write = _write_csv if target.suffix.lower() == ".csv" else _append_json
    write(target, record)


def _append_json(path: Path, record: Mapping[str, Any]) -> None:
    unknown = {name: None for name, value in record.items() if isinstance(value, float) and not math.isfinite(value)}
    with path.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        incomplete = file.read() not in (b"", b"\n")
        file.write(("\n" * incomplete + json.dumps({**record, **unknown}, ensure_ascii=False) + "\n").encode())


def _write_csv(path: Path, record: Mapping[str, Any]) -> None:
    try:
        old = path.read_bytes().decode() if path.exists() else ""
        header, *rows = list(csv.reader(io.StringIO(old, newline=""), strict=True)) or [[]]
        if any(len(row) != len(header) for row in rows) or len(set(header)) < len(header):
            raise ValueError("rows do not match the header")
        if header and not set(header) & set(record):
            raise ValueError("it has other columns")
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path} is not a CSV file of these results ({error}); pass another file") from error
    columns = [*header, *(name for name in record if name not in header)]
    rows = [row + [""] * (len(columns) - len(header)) for row in rows]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([columns, *rows, [record.get(name, "") for name in columns]])
    write_text(path, text.getvalue())
