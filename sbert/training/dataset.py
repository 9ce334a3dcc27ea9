"""Rows of a data set: matched with the columns that a loss takes, and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.inputs.texts import records_of
from sbert.losses.module import run_check
from sbert.losses.signature import Loss, Signature
from sbert.training.columns import LABEL_NAMES, as_classes, match, spread
from sbert.training.row_data import RowData, as_row_data, digest
from sbert.training.sampling import Batch


class Rows:
    """The texts and labels of a data set, with the columns in the order in which the loss takes them.

    All rows are read and checked at once, and kept in memory. ``row_data`` holds the data's columns that the loss takes
    by name; ``Signature`` has the rule.

    Args:
        data: Tuples of texts with the label last; or dicts, such as those of ``datasets.Dataset``; or a data frame or
            table of pandas, polars or pyarrow with named columns.
        loss: The loss, whose parameters name the columns.
        columns: The data's columns in the order of the loss's columns, if their names differ.
        label: The data's column of labels, if it is not called label, labels, score or scores.
        name: Name of the data set, for errors.
        pairs: Whether the model is a cross-encoder, which reads the two texts of a row as one input.
        words: The classes, if labels are words; by default those of the labels in alphabetical order.

    Raises:
        TypeError: If a row is neither a tuple nor a dict, a text is not a str, or a label is not a number; the message
            names the row.
        ValueError: If columns are missing, unknown or ambiguous; the message shows the columns of the data and the
            loss. If there are no rows. If the loss rejects a label; the message names the row.

    Example:
        >>> rows = Rows([("A cat.", "A kitten.", 1), ("A cat.", "Taxes.", 0)], lambda first, second, labels: 0)
        >>> len(rows), rows.texts(1), rows.labels.tolist()
        (2, ('A cat.', 'Taxes.'), [1, 0])
    """

    def __init__(
        self,
        data: Iterable[Any],
        loss: Loss,
        columns: Sequence[str] | None = None,
        label: str | None = None,
        name: str = "data",
        *,
        pairs: bool = False,
        words: Sequence[str] | None = None,
    ) -> None:
        signature = Signature.of(loss)
        self.name: str = name
        self.loss: Loss = loss
        self.pairs: bool = pairs
        self.words: Sequence[str] | None = words
        self.signature: Signature = signature.of_pairs() if pairs else signature
        given = records_of(data)
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise TypeError(f"{name} is of type {type(data).__name__}; pass a list or another iterable of rows")
        listed = list(given)
        if not listed:
            raise ValueError(f"{name} has no rows; pass at least one")
        keys: list[str] = []
        self.row_data: RowData = {}
        self.label: str | None = None
        if isinstance(listed[0], Mapping):
            self.label = label = self._find_label(list(listed[0]), columns, label)
            keys = self._find_columns(listed[0], columns, label)
            by_name = self._find_row_data(list(listed[0]), [*keys, label])
            self.row_data = {
                key: as_row_data([self._cell(row, number, key) for number, row in enumerate(listed)]) for key in by_name
            }
            wanted = keys if label is None else [*keys, label]
            listed = [[self._cell(row, number, key) for key in wanted] for number, row in enumerate(listed)]
            listed, places = spread(listed, self.signature, name)
            keys = [wanted[place] for place in places][: len(places) - (label is not None)]
            labelled = label is not None
        elif columns is not None or label is not None:
            raise ValueError(f"{name} has rows without names, so columns= and label= name nothing; leave them out")
        elif self.signature.row_data and not self.signature.collates:
            needed = self.signature.row_data[0]
            raise ValueError(f"{name} has rows without names, but {self.signature.name} takes {needed!r}; pass dicts")
        else:
            listed, _ = spread(listed, self.signature, name) if _are_tuples(listed) else (listed, [])
            labelled = self._check_tuples(listed)
        self._columns = [list(column) for column in zip(*listed, strict=True)]
        labels = self._columns.pop() if labelled else None
        for column, values in enumerate(self._columns):
            self._check_texts(column, values)
        self.labels: Tensor | None = None if labels is None else self._read_labels(labels)
        if self.labels is not None:
            try:
                run_check(loss, self.labels)
            except (ValueError, TypeError) as error:
                raise type(error)(f"{name}: {error}") from error
        self.keys: list[str] = list(dict.fromkeys(keys))
        # For each column, its name in the data, if it has one, and its name in the loss.
        of_loss = self.signature.names(len(self._columns))
        self.names: list[tuple[str, ...]] = [(name,) for name in of_loss]
        if keys:
            self.names = list(zip(map(str, keys), of_loss, strict=True))

    def __len__(self) -> int:
        return len(self._columns[0])

    def texts(self, row: int) -> tuple[str, ...]:
        """The texts of a row, one per column."""
        return tuple(column[row] for column in self._columns)

    def cells(self, row: int) -> tuple[str, ...]:
        """The texts and the label of a row as a table shows them."""
        label = None if self.labels is None else self.labels[row]
        shown = () if label is None else (f"{len(label)} numbers" if label.ndim else f"{label.item():g}",)
        return *self.texts(row), *shown

    def many(self, rows: Batch) -> list[tuple[str, ...]]:
        """The texts of several rows."""
        return [self.texts(row) for row in rows.tolist()]

    def at(self, rows: Batch) -> tuple[Rows, Batch]:
        """Rows in memory that contain these, and their indices there."""
        return self, rows

    def inputs(self, row: int) -> tuple[Any, ...]:
        """The inputs of the model for a row: its texts, or for a cross-encoder one tuple of all texts."""
        texts = self.texts(row)
        return (texts,) if self.pairs else texts

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all texts, labels and row data, by which a checkpoint recognizes the data."""
        found = hashlib.blake2b(digest_size=16)
        for text in self._all_texts():
            found.update(text.encode("utf-8", "surrogatepass") + b"\0")
        if self.labels is not None:
            found.update(self.labels.numpy().tobytes())
        found.update("".join(f"{word}\0" for word in self.words or ()).encode())
        found.update(digest(self.row_data))
        return found.hexdigest()

    def _all_texts(self) -> Iterable[str]:
        return chain.from_iterable(self._columns)

    # ---------------------------------------------------------------------------------------------- rows with names

    def _both(self, keys: Sequence[Any]) -> str:
        """What the loss takes and what the data has, for errors."""
        named = [*(["labels"] if "labels" in self.signature.extras else []), *self.signature.row_data]
        takes = " and ".join([str(self.signature), *named])
        return f"{self.signature.name} takes {takes}; {self.name} has {', '.join(map(str, keys))}"

    def _find_label(self, keys: list[Any], columns: Sequence[str] | None, label: str | None) -> str | None:
        """The key of the labels: the given one, or the only key with a usual name; None if there are no labels."""
        loss = self.signature
        if "labels" not in loss.extras:
            if label is not None:
                raise ValueError(f"label={label!r}, but {loss.name} takes no labels; leave it out")
            return None
        if label is not None:
            return label
        others = {*(columns or ()), *loss.row_data}
        known = [key for key in keys if key in LABEL_NAMES and key not in others]
        if len(known) > 1 or (loss.needs_labels and not known):
            which = "which of them" if known else "none"
            raise ValueError(f"{self._both(keys)}: {which} is the label? pass label=")
        return known[0] if known else None

    def _find_columns(self, row: Mapping[str, Any], columns: Sequence[str] | None, label: str | None) -> list[str]:
        """The keys of the texts, in the order of the loss's columns: the given ones, or those that match."""
        keys = list(row)
        if columns is None:
            by_name = {label, *self.signature.row_data, *self.signature.settings}
            matched = match(self.signature, row, [key for key in keys if key not in by_name], self.name)
            if matched is None:
                raise ValueError(f"{self._both(keys)}: rename them, or pass columns= in the order of the loss")
            return matched
        wanted = [key for key in [*columns, label] if key is not None]
        missing = [key for key in wanted if key not in keys]
        if missing:
            raise ValueError(f"{self._both(keys)}: there is no {missing[0]!r}")
        if len(set(wanted)) < len(wanted):
            raise ValueError(f"{self._both(keys)}: a column is named twice")
        if not self.signature.accepts(len(columns)):
            names = ", ".join(columns)
            raise ValueError(f"{self._both(keys)}; columns= names {names}; name one column for each of the loss's")
        return list(columns)

    def _find_row_data(self, keys: list[Any], others: list[str | None]) -> list[str]:
        """The keys of the row data: those that the loss needs, and those of its settings that the data has."""
        loss = self.signature
        missing = [name for name in loss.row_data if name not in keys]
        if missing and not loss.collates:  # Its ``collate`` may add them.
            raise ValueError(f"{self._both(keys)}: there is no {missing[0]!r}; add this column, or rename the loss's")
        settings = [name for name in loss.settings if name not in others]
        return [name for name in (*loss.row_data, *settings) if name in keys]

    def _cell(self, row: Any, number: int, column: str) -> Any:
        if not isinstance(row, Mapping) or column not in row:
            found = ", ".join(map(str, row)) if isinstance(row, Mapping) else f"a {type(row).__name__}"
            raise ValueError(f"{self.name}, row {number}: no {column!r} in {found}; all rows must have the same keys")
        return row[column]

    # ------------------------------------------------------------------------------------------- rows without names

    def _check_tuples(self, listed: list[Any]) -> bool:
        """Check rows of texts, which may have a label as the last value; return whether they have one."""
        for number, row in enumerate(listed):
            if not isinstance(row, (tuple, list)):
                hint = " (a dict of columns means several data sets by name)" if isinstance(row, str) else ""
                raise TypeError(
                    f"{self.name}, row {number} is of type {type(row).__name__}{hint}; pass tuples of texts, dicts, or"
                    " a data frame"
                )
            if len(row) != len(listed[0]):
                raise ValueError(
                    f"{self.name}, row {number} has {len(row)} values, but row 0 has {len(listed[0])}; pass as many"
                    " values in every row"
                )
        loss, first = self.signature, listed[0]
        labelled = loss.needs_labels or ("labels" in loss.extras and len(first) > 0 and not isinstance(first[-1], str))
        if not loss.accepts(len(first) - labelled):
            types = ", ".join(type(value).__name__ for value in first)
            label = ", label" if labelled else ""
            raise ValueError(
                f"{loss.name} takes rows ({loss}{label}); those of {self.name} have {len(first)}"
                f" value{'s' * (len(first) != 1)} ({types}); pass rows of that form, or use another loss"
            )
        return labelled

    # ------------------------------------------------------------------------------------------------------- values

    def _check_texts(self, column: int, values: list[Any]) -> None:
        for number, text in enumerate(values):
            if not isinstance(text, str):
                raise TypeError(
                    f"{self.name}, row {number}: column {column} holds {text!r} of type {type(text).__name__}, but"
                    f" {self.signature.name} takes text; pass only str"
                )

    def _read_labels(self, values: list[Any]) -> Tensor:
        """Labels (rows,), int64 if all are integers, else float32; or (rows, values) float32 from lists of numbers."""
        read: list[npt.NDArray[Any]] = []
        if isinstance(values[0], str) and self.signature.labels_are_classes:
            values, self.words = as_classes(values, self.words, self.name)
        for number, value in enumerate(values):
            where = f"{self.name}, row {number}: the label"
            try:
                label = np.asarray(value.tolist() if isinstance(value, Tensor) else value)
            except ValueError:  # A list of lists of different lengths.
                label = np.asarray(None)
            if label.dtype.kind not in "biuf" or label.ndim > 2:
                raise TypeError(
                    f"{where} is {value!r:.40} of type {type(value).__name__}; pass a number (the index of a class, a"
                    " score) or a list of numbers"
                )
            read.append(label)
            if label.shape != read[0].shape:
                raise ValueError(
                    f"{where} has the shape {label.shape}, that of row 0 {read[0].shape}; pass as many numbers for each"
                    " row"
                )
        stacked = np.stack(read)
        whole = stacked.ndim == 1 and stacked.dtype.kind in "biu"
        labels = torch.from_numpy(stacked).to(torch.int64 if whole else torch.float32)
        finite = labels.isfinite().view(len(labels), -1).all(1)
        if not finite.all():
            number = int((~finite).nonzero()[0])
            raise ValueError(f"{self.name}, row {number}: the label is missing (NaN) or not finite; remove the row")
        return labels


def _are_tuples(rows: Sequence[Any]) -> bool:
    return all(isinstance(row, (tuple, list)) for row in rows)
