"""Data that does not fit in memory: rows that are read when their batch needs them, by index or one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Sized
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from sbert.losses.signature import Loss, Signature
from sbert.training.dataset import Rows
from sbert.training.list_rows import ListRows
from sbert.training.sampling import Batch

_CHUNK = 10_000  # Rows that are read together where all are read.
_HEAD = 1000  # Rows by which a stream is recognized.


class _Lazy:
    """What rows in memory and rows that are read later have in common; see ``Rows`` for the arguments."""

    def __init__(
        self,
        data: Any,
        loss: Loss,
        columns: Sequence[str] | None = None,
        label: str | None = None,
        name: str = "data",
        *,
        pairs: bool = False,
        words: Sequence[str] | None = None,
    ) -> None:
        self.name: str = name
        self.loss: Loss = loss
        self._data = data
        self._options: dict[str, Any] = {"columns": columns, "label": label, "pairs": pairs, "words": words}
        head = self.loaded(islice(data, _HEAD), name)
        self._options |= {"columns": head.keys or None, "words": words or self._words(head)}
        if head.words != self._options["words"]:
            head = self.loaded(islice(data, _HEAD), name)
        self.words: Sequence[str] | None = head.words
        self.pairs: bool = pairs
        self.signature: Signature = head.signature
        self.names: list[tuple[str, ...]] = head.names
        self.head: Rows = head

    def _words(self, head: Rows) -> Sequence[str] | None:
        """The classes, if labels are words: those of the first rows of a stream."""
        return head.words

    def loaded(self, rows: Iterable[Any], name: str) -> Rows:
        """Some rows in memory, matched and checked."""
        return _in_memory(list(rows), self.loss, name=name, **self._options)

    def inputs(self, row: int) -> tuple[Any, ...]:
        """As ``Rows.inputs``, of one of the first rows."""
        return self.head.inputs(row)

    def _part(self, rows: Batch, values: Iterable[Any]) -> tuple[Rows, Batch]:
        some = ", ".join(map(str, rows[:20].tolist()))
        return self.loaded(values, f"{self.name}[{some}{', …' * (len(rows) > 20)}]"), np.arange(len(rows))


class IndexedRows(_Lazy):
    """The rows of a ``datasets.Dataset``, which maps its file into memory: each is read when its batch needs it.

    Labels are checked batch by batch, not before the first step.
    """

    def _words(self, head: Rows) -> Sequence[str] | None:
        return None if head.words is None else sorted(filter(None, self._data.unique(head.label)))

    def __len__(self) -> int:
        return len(self._data)

    def at(self, rows: Batch) -> tuple[Rows, Batch]:
        """Some rows in memory, and their indices there."""
        return self._part(rows, _records(self._data[rows.tolist()]))

    def texts(self, row: int) -> tuple[str, ...]:
        """The texts of a row, one per column."""
        return self.many(np.array([row]))[0]

    def many(self, rows: Batch) -> list[tuple[str, ...]]:
        """The texts of several rows."""
        loaded, places = self.at(rows)
        return loaded.many(places)

    @cached_property
    def labels(self) -> Any:
        """All labels, for samplers that need them; None if the loss takes none. Shape: (rows,) or (rows, values)."""
        import torch

        starts = range(0, len(self), _CHUNK)
        parts = [self.at(np.arange(start, min(start + _CHUNK, len(self))))[0].labels for start in starts]
        return None if parts[0] is None else torch.cat([part for part in parts if part is not None])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all rows, by which a checkpoint recognizes the data."""
        found = hashlib.blake2b(digest_size=16)
        for start in range(0, len(self), _CHUNK):
            loaded, _ = self.at(np.arange(start, min(start + _CHUNK, len(self))))
            found.update(loaded.fingerprint.encode())
        return found.hexdigest()


class StreamedRows(_Lazy):
    """Rows without a known number, such as a ``datasets.IterableDataset``, read in order and shuffled in a buffer."""

    @property
    def labels(self) -> Any:
        """The labels of the first rows."""
        return self.head.labels

    @property
    def fingerprint(self) -> str:
        """A digest of the first 1,000 rows."""
        return self.head.fingerprint

    def texts(self, row: int) -> tuple[str, ...]:
        """The texts of one of the first rows."""
        return self.head.texts(row)

    def __len__(self) -> int:
        return len(self.head)

    def at(self, rows: Batch, values: list[Any]) -> tuple[Rows, Batch]:
        """The rows of a batch in memory, and their indices there."""
        return self._part(rows, values)

    def batches(self, size: int, buffer: int, generator: np.random.Generator) -> Iterator[tuple[Batch, list[Any]]]:
        """One pass: for each batch, the places of its rows in the stream, and the rows.

        Each next row takes the place of one that is chosen at random from a buffer.
        """
        rows = _shuffled(enumerate(self._data), buffer, generator)
        while batch := list(islice(rows, size)):
            yield np.array([number for number, _ in batch]), [row for _, row in batch]


def _shuffled(items: Iterable[Any], size: int, generator: np.random.Generator) -> Iterator[Any]:
    source = iter(items)
    buffer = list(islice(source, size))
    for item in source:
        place = int(generator.integers(len(buffer)))
        yield buffer[place]
        buffer[place] = item
    for place in generator.permutation(len(buffer)).tolist():
        yield buffer[place]


def _in_memory(data: Any, loss: Loss, *args: Any, pairs: bool, **options: Any) -> Rows:
    return (ListRows if pairs and Signature.of(loss).takes_lists else Rows)(data, loss, *args, pairs=pairs, **options)


def _records(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


AnyRows = Rows | IndexedRows | StreamedRows


def rows_of_data(data: Any, *args: Any, **options: Any) -> AnyRows:
    """The rows of data in the form that needs the least memory.

    Args:
        data: As in ``Rows``; or a ``datasets.Dataset``, which stays on the disk; or an iterable without a length that
            can be iterated again, such as a ``datasets.IterableDataset``, which is streamed.
        args: The other arguments of ``Rows``.
        options: Its keyword arguments.
    """
    if hasattr(data, "features") and hasattr(data, "column_names"):  # Of the package datasets.
        return (IndexedRows if isinstance(data, Sized) else StreamedRows)(data, *args, **options)
    is_stream = isinstance(data, Iterable) and not isinstance(data, (Sized, Iterator)) and iter(data) is not data
    return (StreamedRows if is_stream and not hasattr(data, "collect_schema") else _in_memory)(data, *args, **options)
