"""Rows of data, laid out as the columns that a loss takes."""

from __future__ import annotations

import hashlib
import inspect
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]

# What a loss may take beside its columns.
EXTRAS = ("labels", "texts", "guide")
_LABEL_NAMES = ("label", "labels", "score", "scores")


@dataclass(frozen=True)
class Signature:
    """What a loss takes: its columns by name, whether more may follow, and which extras.

    Args:
        name: Of the loss.
        columns: Names of the columns.
        optional: How many of them, at the end, may be left out.
        more: Name of the further columns, such as ``negatives``, if there may be any.
        extras: Those of ``labels``, ``texts`` and ``guide`` that it takes.
        needs_labels: Whether it has no default for the labels.
    """

    name: str
    columns: tuple[str, ...]
    optional: int
    more: str | None
    extras: frozenset[str]
    needs_labels: bool

    @classmethod
    def of(cls, loss: Loss) -> Signature:
        """The signature of a module's ``forward``, of a function, or of what either wraps.

        Raises:
            TypeError: If it takes no columns, or something else than columns and the known extras.

        Example:
            >>> Signature.of(lambda anchor, positive, labels: anchor.sum()).columns
            ('anchor', 'positive')
        """
        if not callable(loss):
            raise TypeError(f"the loss is of type {type(loss).__name__}; pass a function or a module")
        function = inspect.unwrap(loss)
        name = getattr(loss, "__name__", type(loss).__name__)
        function = function.forward if isinstance(function, nn.Module) else function
        columns, optional, more, extras, needs_labels = [], 0, None, set(), False
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in EXTRAS:
                extras.add(parameter.name)
                needs_labels |= parameter.name == "labels" and parameter.default is parameter.empty
            elif parameter.kind is parameter.VAR_POSITIONAL:
                more = parameter.name
            elif parameter.default is not parameter.empty and parameter.default is not None:
                continue  # A setting, such as a temperature.
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                columns.append(parameter.name)
                optional += parameter.default is not parameter.empty
            elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
                raise TypeError(f"{name} needs {parameter.name!r}, which no data has; it may take {', '.join(EXTRAS)}")
        if not columns and more is None:
            raise TypeError(f"{name} takes no columns; give it parameters such as anchor and positive")
        return cls(name, tuple(columns), optional, more, frozenset(extras), needs_labels)

    def of_pairs(self) -> Signature:
        """What the data has to have where the one column of the loss holds a model's scores of two texts.

        Raises:
            TypeError: If the loss takes more or less than one column.
            ValueError: If it takes what pairs do not have.

        Example:
            >>> Signature.of(lambda scores, labels: scores.sum()).of_pairs().columns
            ('first', 'second')
        """
        if len(self.columns) - self.optional > 1 or not self.columns:
            raise TypeError(f"{self.name} takes {self}; a model of pairs gives it one column, so take scores alone")
        wanting = sorted(self.extras - {"labels"})
        if wanting:
            raise ValueError(
                f"{self.name} takes {wanting[0]}, which goes with texts' vectors; a model of pairs has none"
            )
        return replace(self, columns=("first", "second"), optional=0, more=None)

    def __str__(self) -> str:
        return ", ".join([*self.columns, *([f"*{self.more}"] if self.more else [])])


class Rows:
    """The texts and labels of a dataset, in the order in which a loss takes them.

    Everything is read and checked at once, and held in memory.

    Args:
        data: Tuples of texts, the label last; or dicts, such as those of ``datasets.Dataset``.
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
        if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
            raise TypeError(f"{name} is of type {type(data).__name__}; pass a list or another iterable of rows")
        listed = list(data)
        if not listed:
            raise ValueError(f"{name} has no rows; pass at least one")
        first = listed[0]
        if isinstance(first, Mapping):
            texts, label = self._match(list(first), columns, label)
            self._columns = [[self._cell(row, i, column) for i, row in enumerate(listed)] for column in texts]
            found = None if label is None else [self._cell(row, i, label) for i, row in enumerate(listed)]
        else:
            if columns is not None or label is not None:
                raise ValueError(f"{name} has rows without names, so columns= and label= name nothing; leave them out")
            self._columns, found = self._split(listed)
        for column, values in enumerate(self._columns):
            self._check_texts(column, values)
        self.labels = None if found is None else self._labels(found)
        if self.labels is not None:
            if self.labels.dtype == torch.int64 and self.labels.ndim == 1 and len(set(self.labels.tolist())) == 1:
                raise ValueError(
                    f"every label of {name} is {self.labels[0]}, and one class teaches nothing; add another"
                )
            check = getattr(loss, "check_labels", None)
            if check is not None:
                try:
                    check(self.labels)
                except (ValueError, TypeError) as error:
                    raise type(error)(f"{name}: {error}") from error

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
            lacking = loss.columns[len(chosen) :] if chosen == list(loss.columns[: len(chosen)]) else loss.columns
            if surplus or len(lacking) > loss.optional or (not chosen and not further):
                raise ValueError(f"{both}: rename them, or pass columns= in the order of the loss, and label=")
            return [*chosen, *further], label
        wanted = [key for key in [*columns, label] if key is not None]
        missing = [key for key in wanted if key not in keys]
        if missing or len(set(wanted)) < len(wanted):
            raise ValueError(f"{both}: {f'there is no {missing[0]!r}' if missing else 'a column is named twice'}")
        self._check_width(len(columns))
        return list(columns), label

    def _check_width(self, width: int) -> None:
        loss = self.signature
        least = max(1, len(loss.columns) - loss.optional)
        if width < least or (loss.more is None and width > len(loss.columns)):
            labelled = ", and a label behind them" if "labels" in loss.extras else ""
            raise ValueError(
                f"{loss.name} takes {loss}{labelled}; {self.name} gives {width} columns of text; pass as many"
            )

    def _cell(self, row: Any, number: int, column: str) -> Any:
        if not isinstance(row, Mapping) or column not in row:
            found = ", ".join(map(str, row)) if isinstance(row, Mapping) else f"a {type(row).__name__}"
            raise ValueError(f"{self.name}, row {number}: no {column!r} in {found}; all rows must be alike")
        return row[column]

    def _split(self, listed: list[Any]) -> tuple[list[list[Any]], list[Any] | None]:
        for number, row in enumerate(listed):
            if not isinstance(row, (tuple, list)):
                raise TypeError(
                    f"{self.name}, row {number} is of type {type(row).__name__}; pass tuples of texts, or dicts"
                )
            if len(row) != len(listed[0]):
                raise ValueError(
                    f"{self.name}, row {number} has {len(row)} values and row 0 {len(listed[0])}; make them alike"
                )
        labelled = self.signature.needs_labels or (
            "labels" in self.signature.extras and len(listed[0]) > 0 and not isinstance(listed[0][-1], str)
        )
        self._check_width(len(listed[0]) - labelled)
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
