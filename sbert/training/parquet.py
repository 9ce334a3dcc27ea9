"""Rows of a folder of Parquet files, read one row group after the other: a stream for data that does not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sbert.inputs.extras import needed


class ParquetRows:
    """The rows of Parquet files as a stream, which a ``Trainer`` reads for ``steps=`` steps, again and again.

    At any time, one row group is in memory, beside the rows of the trainer's shuffle buffer.

    Args:
        path: A file, or a folder, whose ``*.parquet`` files are read in the order of their names, subfolders included.
        columns: The columns to read. Default: all.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If pyarrow is not installed.
        ValueError: If a file is damaged or lacks a column; the message names it.

    Example:
        >>> import tempfile, pyarrow, pyarrow.parquet
        >>> folder = tempfile.mkdtemp()
        >>> table = pyarrow.table({"anchor": ["A cat."], "positive": ["A kitten."], "id": [1]})
        >>> pyarrow.parquet.write_table(table, f"{folder}/0.parquet")
        >>> list(ParquetRows(folder, ["anchor", "positive"]))
        [{'anchor': 'A cat.', 'positive': 'A kitten.'}]
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> None:
        folder = Path(path)
        self.files: list[Path] = sorted(folder.rglob("*.parquet")) if folder.is_dir() else [folder]
        if not self.files or not self.files[0].exists():
            raise FileNotFoundError(f"{path} is no Parquet file and has none; pass another folder")
        self.columns: list[str] | None = None if columns is None else list(columns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with needed("ParquetRows", "pyarrow", "parquet"):
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        for file in self.files:
            try:
                with ParquetFile(os.fspath(file)) as source:
                    lacking = [name for name in self.columns or () if name not in source.schema_arrow.names]
                    if lacking:
                        known = ", ".join(source.schema_arrow.names)
                        raise ValueError(f"{file} has no column {lacking[0]!r}, only {known}")
                    for group in range(source.num_row_groups):
                        yield from source.read_row_group(group, columns=self.columns).to_pylist()
            except (ArrowException, OSError) as error:
                raise ValueError(f"{file}: not a valid Parquet file ({error}); download it again") from error
