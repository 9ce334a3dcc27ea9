"""Rows: a data set, matched with the columns that a loss takes, and checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.data.file_formats import read_parquet
from sbert.inputs.texts import records_of
from sbert.losses.checks import run_check
from sbert.losses.signature import Loss, Signature
from sbert.training.table import RowData, RowIndices, find_layout, read_columns

_CHUNK = 10_000  # Rows that are read together where all are read.
_HEAD = 1000  # Rows by which a stream is recognized.


@dataclass(frozen=True)
class RowTable:
    """Some rows in memory.

    Args:
        columns: The texts of each column.
        names: For each column, its name in the data, if it has one, and its name in the loss.
        labels: The labels, if the loss takes them.
        row_data: What the loss takes beside the texts and labels, by name.
        form: What the model reads of a row: ``"texts"``; ``"pair"`` of all texts; or ``"lists"``, a query and a list of
            documents, as a pair of the query and each document.

    Shape:
        labels: (rows,), (rows, values) or, for lists, (rows, most documents).
    """

    columns: list[list[Any]]
    names: list[tuple[str, ...]]
    labels: Tensor | None
    row_data: RowData
    form: str

    def __len__(self) -> int:
        return len(self.columns[0])

    def texts(self, rows: Iterable[int]) -> Iterator[tuple[str, ...]]:
        """The texts of rows: one per column; of lists, the query and its documents."""
        chosen = zip(*[map(column.__getitem__, rows) for column in self.columns], strict=True)
        return ((query, *documents) for query, documents in chosen) if self.form == "lists" else chosen

    def inputs(self, rows: Iterable[int]) -> list[tuple[Any, ...]]:
        """The inputs of the model for rows: the texts of each, or pairs of texts."""
        if self.form == "lists":
            return [tuple([(query, document) for document in documents]) for query, *documents in self.texts(rows)]
        return list(zip(self.texts(rows), strict=True) if self.form == "pair" else self.texts(rows))

    def cells(self, count: int) -> list[tuple[str, ...]]:
        """The texts and the label of the first rows, as the table of a model card shows them."""
        cells = []
        for row, texts in enumerate(self.texts(range(len(self.columns[0]))[:count])):
            label, values = "", [] if self.labels is None else self.labels[row].flatten().tolist()
            if self.form == "lists":
                label = ", ".join([f"{value:g}" for value in values[: len(texts) - 1]])
                texts = texts[0], " / ".join(texts[1:])
            elif self.labels is not None:
                label = f"{len(values)} numbers" if self.labels.ndim > 1 else f"{values[0]:g}"
            cells.append(texts if self.labels is None else (*texts, label))
        return cells

    def choose(self, rows: RowIndices, dtype: torch.dtype) -> tuple[list[Any], Tensor | None, dict[str, Any]]:
        """The inputs, labels and row data of some rows; fractions in this dtype."""
        listed, index = rows.tolist(), torch.from_numpy(rows)
        chosen: dict[str, Any] = {}
        for name, column in {**self.row_data, "labels": self.labels}.items():
            if isinstance(column, Tensor):
                part = column[index]
                chosen[name] = part.to(dtype) if part.is_floating_point() else part
            elif column is not None:
                chosen[name] = [column[row] for row in listed]
        labels = chosen.pop("labels", None)
        return self.inputs(listed), labels, chosen

    def digest(self, into: Any) -> None:
        """Add all values to a hash."""
        for texts in self.texts(range(len(self))):
            into.update("\0".join((*texts, "\n")).encode("utf-8", "surrogatepass"))
        for name, values in {"": self.labels, **self.row_data}.items():
            into.update(name.encode() + b"\0")
            into.update(values.numpy().tobytes() if isinstance(values, Tensor) else repr(values).encode())


class TrainingData:
    """The texts and labels of a data set, with the columns in the order in which the loss takes them.

    Rows in memory are checked immediately. A ``datasets.Dataset`` maps its file into memory: each row is read when
    its batch needs it, and all are read and checked once, for the fingerprint. An iterable without a length that can be
    iterated again is a stream: its rows are read in order and shuffled in a buffer, and its first 1,000 rows stand for
    it in the fingerprint.

    Args:
        data: Tuples of texts with the label last; or dicts; or a data frame or table of pandas, polars or pyarrow with
            named columns; or a ``datasets.Dataset``; or a stream, such as a ``datasets.IterableDataset``.
        loss: The loss, whose parameters name the columns.
        columns: The data's columns in the order of the loss's columns, if their names differ.
        label: The data's column of labels, if it is not called label, labels, score or scores.
        name: Name of the data set, for errors.
        pairs: Whether the model is a cross-encoder, which reads the two texts of a row as one input, or a query with
            each of a list of documents, if the loss takes any number of scores. Lists may differ in length if the loss
            takes ``mask``; they have a list of labels each.
        negatives: Number of negatives of each row that ``draw`` leaves; None for all.

    Raises:
        TypeError: If a row is neither a tuple nor a dict, a text is not a str, or a label is not a number; the message
            names the row.
        ValueError: If columns are missing, unknown or ambiguous; the message shows the columns of the data and the
            loss. If there are no rows. If the loss rejects a label; the message names the row.

    Example:
        >>> from sbert.training.training_data import TrainingData
        >>> rows = TrainingData([("A cat.", "A kitten.", 1), ("A cat.", "Taxes.", 0)], lambda first, second, labels: 0)
        >>> len(rows), rows.texts(1), rows.labels.tolist()
        (2, ('A cat.', 'Taxes.'), [1, 0])
        >>> from sbert.losses import ListNetLoss
        >>> rows = TrainingData([("Who naps?", ["A cat.", "Taxes."], [1, 0])], ListNetLoss(), pairs=True)
        >>> rows.head.inputs([0])
        [(('Who naps?', 'A cat.'), ('Who naps?', 'Taxes.'))]
    """

    def __init__(
        self,
        data: Any,
        loss: Loss,
        columns: Sequence[str] | None = None,
        label: str | None = None,
        name: str = "data",
        *,
        pairs: bool = False,
        negatives: int | None = None,
    ) -> None:
        if hasattr(data, "collate_fn"):
            raise TypeError(f"{name} is a {type(data).__name__}, which gives batches, not rows; pass its dataset")
        signature = Signature.of(loss)
        self.negatives: int | None = negatives
        self.name: str = name
        self.loss: Loss = loss
        self.loss_name: str = repr(loss) if isinstance(loss, nn.Module) else signature.name
        self.signature: Signature = signature.of_pairs() if pairs else signature
        self._form = ("lists" if signature.takes_lists else "pair") if pairs else "texts"
        is_dataset = hasattr(data, "features") and hasattr(data, "column_names")  # Of the package datasets.
        self._data = data if is_dataset else records_of(data)
        source = self._data
        if isinstance(source, (str, bytes, Mapping)) or not isinstance(source, Iterable):
            raise TypeError(f"{name} is of type {type(data).__name__}; pass a list or another iterable of rows")
        again = is_dataset or not isinstance(source, Iterator)
        self.is_stream: bool = again and not isinstance(source, Sized) and iter(source) is not source
        self.in_memory: bool = not self.is_stream and not is_dataset
        head = list(source if self.in_memory else islice(source, _HEAD))
        if not head:
            raise ValueError(f"{name} has no rows; pass at least one")
        self._layout = find_layout(head[0], self.signature, columns, label, name)
        self.class_names: list[str] = self._find_class_names(head)
        # The rows, if they are in memory; else the first of them.
        self.head: RowTable = self._read(head, name)
        if self.in_memory:
            self._data = None
        self.names: list[tuple[str, ...]] = self.head.names
        if negatives is not None:
            count = len(self.names) - len(self.signature.columns)
            if self._form != "texts" or not 0 < negatives <= count:
                problem = f"{name} has {count} in a row" if self._form == "texts" else "pairs are read as they are"
                raise ValueError(f"negatives={negatives}, but {problem}; pass at most as many, or leave it out")
            if self.head.labels is not None and self.head.labels.ndim > 1:
                raise ValueError(f"negatives={negatives}, but {signature.name} takes a label of each; leave it out")
            self.names = self.names[: len(self.signature.columns) + negatives]

    def draw(self, texts: list[Any], generator: np.random.Generator) -> list[Any]:
        """Rows of texts with ``negatives`` of their negatives, all different where a row has as many.

        Args:
            texts: The texts of each row.
            generator: Source of the random choice.
        """
        first, drawn = len(self.signature.columns), []
        for row in texts:
            different = list(dict.fromkeys(row[first:]))
            order = generator.permutation(len(different)).tolist()
            negatives = (different[order[k % len(different)]] for k in range(len(self.names) - first))
            drawn.append((*row[:first], *negatives))
        return drawn

    def _find_class_names(self, head: Sequence[Any]) -> list[str]:
        """The names of the classes, if the labels know them: from ``read_rows``, or a column of ``datasets``."""
        label = self._layout.label
        if label is None or not self.signature.labels_are_classes:
            return []
        column = (getattr(self._data, "features", None) or {}).get(label)  # Of a datasets.Dataset.
        return list(getattr(head[0][label], "class_names", ()) or getattr(column, "names", ()))

    def _read(self, rows: Sequence[Any], name: str) -> RowTable:
        about = self._layout, self.signature, self._form, name, self.negatives is not None
        table = RowTable(*read_columns(rows, *about), self._form)
        if table.labels is not None:
            try:
                run_check(self.loss, table.labels)
            except (ValueError, TypeError) as error:
                raise type(error)(f"{name}: {error}") from error
        return table

    def __len__(self) -> int:
        return len(self.head.columns[0]) if self.in_memory or self.is_stream else len(self._data)

    def texts(self, row: int) -> tuple[str, ...]:
        """The texts of a row, one per column; of a stream, of one of its first rows."""
        return self.texts_of(np.array([row]))[0]

    def texts_of(self, rows: RowIndices) -> list[tuple[str, ...]]:
        """The texts of several rows."""
        table, positions = (self.head, rows) if self.is_stream else self.take(rows)
        return list(table.texts(positions.tolist()))

    def take(self, rows: RowIndices, values: Sequence[Any] = ()) -> tuple[RowTable, RowIndices]:
        """Rows in memory that contain these, and their positions there.

        Args:
            rows: Indices of the rows.
            values: The rows of a stream, which ``stream`` has read.
        """
        if self.in_memory:
            return self.head, rows
        if not self.is_stream:
            columns = self._data[rows.tolist()]
            values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        some = ", ".join(map(str, rows[:20].tolist()))
        return self._read(values, f"{self.name}[{some}{', …' * (len(rows) > 20)}]"), np.arange(len(rows))

    def stream(self, size: int, buffer: int, generator: np.random.Generator) -> Iterator[tuple[RowIndices, list[Any]]]:
        """One pass over a stream: for each batch, the positions of its rows in the stream, and the rows.

        Each next row takes the place of one that is chosen at random from a buffer.
        """
        rows = _shuffle(enumerate(self._data), buffer, generator)
        while batch := list(islice(rows, size)):
            yield np.array([number for number, _ in batch]), [row for _, row in batch]

    def _tables(self) -> Iterator[RowTable]:
        """All rows, or the first rows of a stream, one table after the other."""
        if self.in_memory or self.is_stream:
            yield self.head
            return
        for start in range(0, len(self), _CHUNK):
            yield self.take(np.arange(start, min(start + _CHUNK, len(self))))[0]

    @cached_property
    def labels(self) -> Tensor | None:
        """All labels, or those of the first rows of a stream; None if there are none.

        Shape:
            (rows,) or (rows, values).
        """
        if self.head.labels is None or self.in_memory or self.is_stream:
            return self.head.labels
        return torch.cat([table.labels for table in self._tables() if table.labels is not None])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all texts, labels and row data, by which a checkpoint recognizes the data."""
        digest = hashlib.blake2b(digest_size=16)
        for table in self._tables():
            table.digest(digest)
        return digest.hexdigest()


def _shuffle(items: Iterable[Any], size: int, generator: np.random.Generator) -> Iterator[Any]:
    source = iter(items)
    buffer = list(islice(source, size))
    for item in source:
        position = int(generator.integers(len(buffer)))
        yield buffer[position]
        buffer[position] = item
    for position in generator.permutation(len(buffer)).tolist():
        yield buffer[position]


class ParquetRows:
    """The rows of Parquet files as a stream, which a ``Trainer`` reads for ``steps=`` steps, again and again.

    At any time, a few rows are in memory, beside those of the trainer's shuffle buffer.

    Args:
        path: A file, or a folder, whose ``*.parquet`` files are read in the order of their names, subfolders included.
        columns: The columns to read. Default: all.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If pyarrow is not installed.
        ValueError: If a file is damaged or lacks a column; the message names it.

    Example:
        >>> import tempfile, pyarrow, pyarrow.parquet
        >>> from sbert.training import ParquetRows
        >>> table = pyarrow.table({"anchor": ["A cat."], "positive": ["A kitten."], "id": [1]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pyarrow.parquet.write_table(table, f"{folder}/0.parquet")
        ...     list(ParquetRows(folder, ["anchor", "positive"]))
        [{'anchor': 'A cat.', 'positive': 'A kitten.'}]
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> None:
        folder = Path(path)
        self.files: list[Path] = sorted(folder.rglob("*.parquet")) if folder.is_dir() else [folder]
        if not self.files or not self.files[0].exists():
            raise FileNotFoundError(f"{path} is not a Parquet file and has none; pass another folder")
        self.columns: list[str] | None = None if columns is None else list(columns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            yield from (row for _, row in read_parquet(file, self.columns))
