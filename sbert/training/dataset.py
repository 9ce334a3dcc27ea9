"""Rows of data, laid out as the columns that a loss takes."""

from __future__ import annotations

import hashlib
import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.inputs.texts import records_of
from sbert.losses.signature import Loss, Signature

_LABEL_NAMES = ("label", "labels", "score", "scores")


class Rows:
    """The texts and labels of a dataset, in the order in which a loss takes them.

    Everything is read and checked at once, and held in memory.

    Args:
        data: Tuples of texts, the label last; or dicts, such as those of ``datasets.Dataset``; or a data frame or table
            of pandas, polars or pyarrow, whose columns have the names.
        loss: What the rows are for: its parameters name the columns.
        columns: The data's columns in the order of the loss's, where the names differ.
        label: The data's column of labels, where it is not one of label, labels, score and scores.
        name: Of the dataset, for errors.
        pairs: Whether the model reads the two texts of a row as one input, and the loss takes their scores.

    Raises:
        TypeError: If a row is neither tuple nor dict, a text is no str or a label no number, naming the row.
        ValueError: If columns are missing, left over or ambiguous, printing both sides; if there are no rows; if a
            label does not fit the loss, naming the row.

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
    ) -> None:
        signature = Signature.of(loss)
        self.name, self.pairs, self.signature = name, pairs, signature.of_pairs() if pairs else signature
        given = records_of(data)
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise TypeError(f"{name} is of type {type(data).__name__}; pass a list or another iterable of rows")
        listed = list(given)
        if not listed:
            raise ValueError(f"{name} has no rows; pass at least one")
        first = listed[0]
        if isinstance(first, Mapping):
            texts, label = self._match(list(first), columns, label)
            named: list[tuple[str, ...]] = [(str(column),) for column in texts]
            self._columns = [[self._cell(row, i, column) for i, row in enumerate(listed)] for column in texts]
            found = None if label is None else [self._cell(row, i, label) for i, row in enumerate(listed)]
        else:
            if columns is not None or label is not None:
                raise ValueError(f"{name} has rows without names, so columns= and label= name nothing; leave them out")
            self._columns, found = self._split(listed)
            named = [()] * len(self._columns)
        for column, values in enumerate(self._columns):
            self._check_texts(column, values)
        self.labels = None if found is None else self._labels(found)
        if self.labels is not None:
            check = getattr(loss, "check_labels", None)
            if check is not None:
                try:
                    check(self.labels)
                except (ValueError, TypeError) as error:
                    raise type(error)(f"{name}: {error}") from error

        # Of each column, its name in the data, where it has one, and the loss's.
        self.names = [(*own, loss) for own, loss in zip(named, self.signature.names(len(named)), strict=True)]

    def __len__(self) -> int:
        return len(self._columns[0])

    def texts(self, row: int) -> tuple[str, ...]:
        """The texts of a row, one a column."""
        return tuple(column[row] for column in self._columns)

    def inputs(self, row: int) -> tuple[Any, ...]:
        """What a model reads of a row: its texts, or all of them as one."""
        texts = self.texts(row)
        return (texts,) if self.pairs else texts

    @cached_property
    def fingerprint(self) -> str:
        """Another for other rows."""
        digest = hashlib.blake2b(digest_size=16)
        for column in self._columns:
            for text in column:
                digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        if self.labels is not None:
            digest.update(self.labels.numpy().tobytes())
        return digest.hexdigest()

    def _match(self, keys: list[Any], columns: Sequence[str] | None, label: str | None) -> tuple[list[str], str | None]:
        """Which keys hold the loss's columns, in its order, and which the labels."""
        loss, given = self.signature, ", ".join(map(str, keys))
        both = f"{loss.name} takes {loss}{' and labels' if 'labels' in loss.extras else ''}; {self.name} has {given}"
        if "labels" not in loss.extras and label is not None:
            raise ValueError(f"label={label!r}, but {loss.name} takes no labels; leave it out")
        if "labels" in loss.extras and label is None:
            known = [key for key in keys if key in _LABEL_NAMES and key not in (columns or ())]
            if len(known) > 1 or (loss.needs_labels and not known):
                raise ValueError(f"{both}: {'which of them' if known else 'none'} is the label? pass label=")
            label = known[0] if known else None
        if columns is None:
            rest = [key for key in keys if key != label]
            chosen = [name for name in loss.columns if name in rest]
            further = [key for key in rest if key not in chosen]
            pattern = re.compile(rf"{(loss.more or '').removesuffix('s')}s?[_-]?\d*")
            surplus = [key for key in further if loss.more is None or not pattern.fullmatch(str(key))]
            settings = [key for key in surplus if key in loss.settings]
            if settings:
                raise ValueError(
                    f"{both}: {settings[0]!r} has a default and is a setting of the loss; take the default away for it"
                    " to be a column, or leave the column out of the data"
                )
            if surplus or len(chosen) < len(loss.columns) or (not chosen and not further):
                texts = [key for key in further if key not in _LABEL_NAMES]
                fits = not chosen and len(texts) == len(loss.columns)
                columns_there = f"columns={texts}" if fits else "columns= in the order of the loss, and label="
                raise ValueError(f"{both}: rename them, or pass {columns_there}")
            return [*chosen, *further], label
        wanted = [key for key in [*columns, label] if key is not None]
        missing = [key for key in wanted if key not in keys]
        if missing or len(set(wanted)) < len(wanted):
            raise ValueError(f"{both}: {f'there is no {missing[0]!r}' if missing else 'a column is named twice'}")
        if not self._fits(len(columns)):
            raise ValueError(f"{both}; columns= names {', '.join(columns)}; name a column for each of the loss's")
        return list(columns), label

    def _fits(self, width: int) -> bool:
        """Whether the loss takes so many columns of text."""
        least, loss = max(1, len(self.signature.columns)), self.signature
        return width >= least and (loss.more is not None or width == least)

    def _cell(self, row: Any, number: int, column: str) -> Any:
        if not isinstance(row, Mapping) or column not in row:
            found = ", ".join(map(str, row)) if isinstance(row, Mapping) else f"a {type(row).__name__}"
            raise ValueError(f"{self.name}, row {number}: no {column!r} in {found}; all rows must be alike")
        return row[column]

    def _split(self, listed: list[Any]) -> tuple[list[list[Any]], list[Any] | None]:
        for number, row in enumerate(listed):
            if not isinstance(row, (tuple, list)):
                hint = " (a dict of columns is several datasets by name)" if isinstance(row, str) else ""
                raise TypeError(
                    f"{self.name}, row {number} is of type {type(row).__name__}{hint}; pass tuples of texts, dicts, or"
                    " a data frame"
                )
            if len(row) != len(listed[0]):
                raise ValueError(
                    f"{self.name}, row {number} has {len(row)} values and row 0 {len(listed[0])}; make them alike"
                )
        loss = self.signature
        labelled = loss.needs_labels or (
            "labels" in loss.extras and len(listed[0]) > 0 and not isinstance(listed[0][-1], str)
        )
        if not self._fits(len(listed[0]) - labelled):
            found = ", ".join(type(value).__name__ for value in listed[0])
            label = ", label" if labelled else ""
            raise ValueError(
                f"{loss.name} takes rows ({loss}{label}); those of {self.name} have {len(listed[0])}"
                f" value{'s' * (len(listed[0]) != 1)} ({found}); pass rows of that form, or take another loss"
            )
        columns = [list(column) for column in zip(*listed, strict=True)]
        return (columns[:-1], columns[-1]) if labelled else (columns, None)

    def _check_texts(self, column: int, values: list[Any]) -> None:
        for number, text in enumerate(values):
            if not isinstance(text, str):
                raise TypeError(
                    f"{self.name}, row {number}: column {column} holds {text!r} of type {type(text).__name__} where"
                    f" {self.signature.name} takes text; pass only str"
                )

    def _labels(self, values: list[Any]) -> Tensor:
        """All labels, (rows,) or (rows, numbers): int64 where all are whole numbers, float32 otherwise."""
        if isinstance(values[0], (numbers.Number, np.generic)) or (
            isinstance(values[0], Tensor) and values[0].ndim == 0
        ):
            for number, value in enumerate(values):
                if isinstance(value, (Tensor, np.generic)):
                    value = values[number] = value.item()
                if not isinstance(value, numbers.Real):
                    raise self._bad_label(number, value)
                if math.isnan(value):
                    raise ValueError(f"{self.name}, row {number}: the label is missing (NaN); drop the row")
            whole = all(isinstance(value, numbers.Integral) for value in values)
            return torch.tensor(values, dtype=torch.int64 if whole else torch.float32)
        vectors = []
        for number, value in enumerate(values):
            try:
                vectors.append(torch.as_tensor(value, dtype=torch.float32))
            except (TypeError, ValueError, RuntimeError) as error:
                raise self._bad_label(number, value) from error
            if vectors[-1].ndim != 1 or vectors[-1].shape != vectors[0].shape:
                raise ValueError(
                    f"{self.name}, row {number}: the label has the shape {tuple(vectors[-1].shape)}, that of row 0"
                    f" {tuple(vectors[0].shape)}; pass as many numbers for each row"
                )
            if not vectors[-1].isfinite().all():
                raise ValueError(f"{self.name}, row {number}: the label is not finite; drop the row")
        return torch.stack(vectors)

    def _bad_label(self, number: int, value: Any) -> TypeError:
        short = repr(value)[:40]
        return TypeError(
            f"{self.name}, row {number}: the label is {short} of type {type(value).__name__}; pass a number (a class's"
            " index, a score) or a list of numbers"
        )
