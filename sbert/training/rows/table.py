"""Rows in memory, checked: the texts of each column, the labels and the row data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.data.rows import make_converter
from sbert.losses.signature import Signature
from sbert.training.rows.columns import Layout, check_tuple, is_list

Batch = npt.NDArray[np.int64]  # Indices of rows.
RowData: TypeAlias = Mapping[str, Tensor | list[Any]]


@dataclass(frozen=True)
class Table:
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
                label = ", ".join([f"{each:g}" for each in values[: len(texts) - 1]])
                texts = texts[0], " / ".join(texts[1:])
            elif self.labels is not None:
                label = f"{len(values)} numbers" if self.labels.ndim > 1 else f"{values[0]:g}"
            cells.append(texts if self.labels is None else (*texts, label))
        return cells

    def choose(self, rows: Batch, dtype: torch.dtype) -> tuple[list[Any], Tensor | None, dict[str, Any]]:
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


def read_table(
    rows: Sequence[Any],
    layout: Layout,
    loss: Signature,
    form: str,
    name: str,
    class_names: Sequence[str] | None,
    uneven: bool = False,
) -> Table:
    """Check rows, and take what a loss needs of them.

    Args:
        rows: Tuples or dicts.
        layout: Where the values are.
        loss: The signature of the loss.
        form: As in ``Table``.
        name: Name of the rows, for errors.
        class_names: The classes, if labels are words.
        uneven: Whether rows may have lists of negatives of different lengths; the shorter ones are repeated.

    Raises:
        TypeError: If a row, a text or a label has the wrong type; the message names it.
        ValueError: If rows differ in what they have.

    Example:
        >>> loss = Signature.of(lambda anchor, *negatives: 0)
        >>> table = read_table([("A cat.", ["Taxes.", "Rain."])], Layout((0, 1), width=2), loss, "texts", "data", None)
        >>> table.columns
        [['A cat.'], ['Taxes.'], ['Rain.']]
    """
    keys = [*layout.columns, *([] if layout.label is None else [layout.label]), *layout.row_data]
    for number, row in enumerate(rows):
        if layout.width is not None:
            check_tuple(row, number, layout.width, name)
        elif not isinstance(row, Mapping) or not all(key in row for key in keys):
            given = ", ".join(map(str, row)) if isinstance(row, Mapping) else f"a {type(row).__name__}"
            missing = next(key for key in keys if not isinstance(row, Mapping) or key not in row)
            raise ValueError(f"{name}, row {number}: no {missing!r} in {given}; all rows must have the same keys")
    columns, own_names = [], []
    for key in layout.columns:
        values = [row[key] for row in rows]
        spread = _spread(values, name, uneven) if loss.more is not None and is_list(values[0]) else [values]
        columns += spread
        own_names += [key] * len(spread)
    names = [(each,) for each in loss.names(len(columns))]
    if layout.width is None:
        names = [(str(key), *of_loss) for key, of_loss in zip(own_names, names, strict=True)]  # type: ignore[misc]
    for number, column in enumerate(columns):
        if form == "lists" and number == 1:
            _check_documents(column, loss, name)
        else:
            _check_texts(column, number, loss, name)
    labels = None
    if layout.label is not None:
        values = [row[layout.label] for row in rows]
        if form == "lists":
            values = _pad_labels(values, columns[1], name)
        labels = _read_labels(values, class_names, name)
    row_data = {key: as_row_data([row[key] for row in rows]) for key in layout.row_data}
    return Table(columns, names, labels, row_data, form)  # type: ignore[arg-type]


def _spread(values: list[Any], name: str, uneven: bool) -> list[list[Any]]:
    """Lists of texts, such as negatives, as columns of their own."""
    for number, value in enumerate(values):
        if not isinstance(value, (list, tuple)) or not value or (len(value) != len(values[0]) and not uneven):
            given = f"a list of {len(value)} texts" if isinstance(value, (list, tuple)) else repr(value)
            wanted = "pass at least one" if uneven else "pass as many in every row, or set negatives="
            raise ValueError(f"{name}, row {number} has {given}, row 0 of {len(values[0])}; {wanted}")
    return [[value[column % len(value)] for value in values] for column in range(max(map(len, values)))]


def _check_texts(values: Iterable[Any], column: int, loss: Signature, name: str) -> None:
    for number, text in enumerate(values):
        if not isinstance(text, str):
            given = f"{name}, row {number}: column {column} holds {text!r:.40} of type {type(text).__name__}"
            raise TypeError(f"{given}, but {loss.name} takes text; pass only str")


def _check_documents(values: list[Any], loss: Signature, name: str) -> None:
    for number, documents in enumerate(values):
        where = f"{name}, row {number}"
        if isinstance(documents, str) or not isinstance(documents, (Sequence, np.ndarray)):
            given = f"{documents!r:.40} of type {type(documents).__name__}"
            raise TypeError(f"{where}: documents is {given}; pass a list of texts")
        if not all(isinstance(text, str) for text in documents):
            position, text = next((i, each) for i, each in enumerate(documents) if not isinstance(each, str))
            given = f"document {position} is {text!r:.40} of type {type(text).__name__}"
            raise TypeError(f"{where}: {given}; pass only str")
        if not len(documents):
            raise ValueError(f"{where} has no documents; pass at least one, or leave the row out")
        if len(documents) != len(values[0]) and "mask" not in loss.extras:
            given = f"{where} has {len(documents)} documents, row 0 {len(values[0])}"
            raise ValueError(f"{given}; {loss.name} takes no mask: pass as many for each, or give it mask=None")


def _pad_labels(values: list[Any], documents: list[Any], name: str) -> list[list[Any]]:
    """Labels of the documents, with each row's first label repeated at padding."""
    values = [value.tolist() if isinstance(value, (Tensor, np.ndarray)) else value for value in values]
    for number, (labels, texts) in enumerate(zip(values, documents, strict=True)):
        if not isinstance(labels, (list, tuple)) or len(labels) != len(texts):
            given = f"{len(labels)} labels" if isinstance(labels, (list, tuple)) else f"{labels!r:.40}"
            documents_of_row = f"{len(texts)} document{'s' * (len(texts) != 1)}"
            raise ValueError(f"{name}, row {number} has {documents_of_row} and {given}; pass a list of as many numbers")
    width = max(map(len, documents))
    return [[*labels, *labels[:1] * (width - len(labels))] for labels in values]


def _read_labels(values: list[Any], class_names: Sequence[str] | None, name: str) -> Tensor:
    """Labels (rows,), int64 if all are integers, else float32; or (rows, values) float32 from lists of numbers."""
    if class_names is not None and isinstance(values[0], str):
        convert = make_converter(class_names, None)
        values = [convert(f"{name}, row {number}", value) for number, value in enumerate(values)]
    read: list[npt.NDArray[Any]] = []
    for number, value in enumerate(values):
        where = f"{name}, row {number}: the label"
        try:
            label = np.asarray(value.tolist() if isinstance(value, Tensor) else value)
        except ValueError:  # A list of lists of different lengths.
            label = np.asarray(None)
        if label.dtype.kind not in "biuf" or label.ndim > 2:
            given = f"{where} is {value!r:.40} of type {type(value).__name__}"
            raise TypeError(f"{given}; pass a number (the index of a class, a score) or a list of numbers")
        read.append(label)
        if label.shape != read[0].shape:
            given = f"{where} has the shape {label.shape}, that of row 0 {read[0].shape}"
            raise ValueError(f"{given}; pass as many numbers")
    stacked = np.stack(read)
    whole = stacked.ndim == 1 and stacked.dtype.kind in "biu"
    labels = torch.from_numpy(stacked).to(torch.int64 if whole else torch.float32)
    finite = labels.isfinite().view(len(labels), -1).all(1)
    if not finite.all():
        number = int((~finite).nonzero()[0])
        raise ValueError(f"{name}, row {number}: the label is missing (NaN) or not finite; remove the row")
    return labels


def as_row_data(values: Sequence[Any]) -> Tensor | list[Any]:
    """One tensor of numbers, or of lists with as many numbers in each row; else the values themselves, as a list.

    Shape:
        Output: (rows,) or (rows, ...), int64 or bool if no number is a fraction; or a list of the rows' values.

    Example:
        >>> as_row_data([[0.5, 1], [2, 3]]).shape
        torch.Size([2, 2])
        >>> as_row_data(["q1", "q7"]), as_row_data([[1], [1, 2]])
        (['q1', 'q7'], [[1], [1, 2]])
    """
    try:
        array = np.asarray([value.tolist() if isinstance(value, Tensor) else value for value in values])
    except ValueError:  # Lists of different lengths.
        return list(values)
    if array.dtype.kind not in "biuf":
        return list(values)
    return torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)
