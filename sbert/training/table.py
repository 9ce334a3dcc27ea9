"""Rows in memory, checked, and which of their values are texts, labels and row data: matched by name or position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.inputs.arguments import warn
from sbert.losses.signature import Signature

RowIndices = npt.NDArray[np.int64]  # Indices of rows.
RowData: TypeAlias = Mapping[str, Tensor | list[Any]]
LABEL_NAMES = ("label", "labels", "score", "scores")


def read_columns(
    rows: Sequence[Any], layout: Layout, loss: Signature, form: str, name: str, uneven: bool = False
) -> tuple[list[list[Any]], list[tuple[str, ...]], Tensor | None, RowData]:
    """Check rows, and take what a loss needs of them: the first four arguments of a ``RowTable``.

    Args:
        rows: Tuples or dicts.
        layout: Where the values are.
        loss: The signature of the loss.
        form: As in ``RowTable``.
        name: Name of the rows, for errors.
        uneven: Whether rows may have lists of negatives of different lengths; the shorter ones are repeated.

    Raises:
        TypeError: If a row, a text or a label has the wrong type; the message names it.
        ValueError: If rows differ in what they have.

    Example:
        >>> from sbert.losses.signature import Signature
        >>> from sbert.training.table import Layout, read_columns
        >>> loss = Signature.of(lambda anchor, *negatives: 0)
        >>> read_columns([("A cat.", ["Taxes.", "Rain."])], Layout((0, 1), width=2), loss, "texts", "data")[0]
        [['A cat.'], ['Taxes.'], ['Rain.']]
    """
    keys = [*layout.columns, *([] if layout.label is None else [layout.label]), *layout.row_data]
    for number, row in enumerate(rows):
        if layout.width is not None:
            check_tuple(row, number, layout.width, name)
        elif not isinstance(row, Mapping) or not all(key in row for key in keys):
            problem = ", ".join(map(str, row)) if isinstance(row, Mapping) else f"a {type(row).__name__}"
            missing = next(key for key in keys if not isinstance(row, Mapping) or key not in row)
            raise ValueError(f"{name}, row {number}: no {missing!r} in {problem}; all rows must have the same keys")
    columns, own_names = list[Any](), list[Any]()
    for key in layout.columns:
        values = [row[key] for row in rows]
        # The first text of a row is one text: what has lists there are batches.
        is_spread = columns and loss.more is not None and is_list(values[0])
        spread = _spread(values, name, uneven) if is_spread else [values]
        columns += spread
        own_names += [key] * len(spread)
    names = [(name_in_loss,) for name_in_loss in loss.names(len(columns))]
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
        labels = _read_labels(values, name)
    row_data = {key: as_row_data([row[key] for row in rows]) for key in layout.row_data}
    return columns, names, labels, row_data  # type: ignore[return-value]


def _spread(values: list[Any], name: str, uneven: bool) -> list[list[Any]]:
    """Lists of texts, such as negatives, as columns of their own."""
    for number, value in enumerate(values):
        if not isinstance(value, (list, tuple)) or not value or (len(value) != len(values[0]) and not uneven):
            problem = f"a list of {len(value)} texts" if isinstance(value, (list, tuple)) else repr(value)
            wanted = "pass at least one" if uneven else "pass as many in every row, or set negatives="
            raise ValueError(f"{name}, row {number} has {problem}, row 0 of {len(values[0])}; {wanted}")
    return [[value[column % len(value)] for value in values] for column in range(max(map(len, values)))]


def _check_texts(values: Iterable[Any], column: int, loss: Signature, name: str) -> None:
    for number, text in enumerate(values):
        if not isinstance(text, str):
            problem = f"{name}, row {number}: column {column} holds {text!r:.40}, of type {type(text).__name__}"
            remedy = "pass a row for each text: of a DataLoader, its dataset" if is_list(text) else "pass only str"
            raise TypeError(f"{problem}, but {loss.name} takes text; {remedy}")


def _check_documents(values: list[Any], loss: Signature, name: str) -> None:
    for number, documents in enumerate(values):
        where = f"{name}, row {number}"
        if isinstance(documents, str) or not isinstance(documents, (Sequence, np.ndarray)):
            problem = f"{documents!r:.40} of type {type(documents).__name__}"
            raise TypeError(f"{where}: documents is {problem}; pass a list of texts")
        for position, text in enumerate(documents):
            if not isinstance(text, str):
                problem = f"document {position} is {text!r:.40} of type {type(text).__name__}"
                raise TypeError(f"{where}: {problem}; pass only str")
        if not len(documents):
            raise ValueError(f"{where} has no documents; pass at least one, or leave the row out")
        if len(documents) != len(values[0]) and "mask" not in loss.extras:
            problem = f"{where} has {len(documents)} documents, row 0 {len(values[0])}"
            raise ValueError(f"{problem}; {loss.name} takes no mask: pass as many for each, or give it mask=None")


def _pad_labels(values: list[Any], documents: list[Any], name: str) -> list[list[Any]]:
    """Labels of the documents, with each row's first label repeated at padding."""
    values = [value.tolist() if isinstance(value, (Tensor, np.ndarray)) else value for value in values]
    for number, (labels, texts) in enumerate(zip(values, documents, strict=True)):
        if not isinstance(labels, (list, tuple)) or len(labels) != len(texts):
            problem = f"{len(labels)} labels" if isinstance(labels, (list, tuple)) else f"{labels!r:.40}"
            documents_of_row = f"{len(texts)} document{'s' * (len(texts) != 1)}"
            raise ValueError(
                f"{name}, row {number} has {documents_of_row} and {problem}; pass a list of as many numbers"
            )
    width = max(map(len, documents))
    return [[*labels, *labels[:1] * (width - len(labels))] for labels in values]


def _read_labels(values: list[Any], name: str) -> Tensor:
    """Labels (rows,), int64 if all are integers, else float32; or (rows, values) float32 from lists of numbers."""
    read: list[npt.NDArray[Any]] = []
    for number, value in enumerate(values):
        where = f"{name}, row {number}: the label"
        try:
            label = np.asarray(value.tolist() if isinstance(value, Tensor) else value)
        except ValueError:  # A list of lists of different lengths.
            label = np.asarray(None)
        if label.dtype.kind not in "biuf" or label.ndim > 2:
            problem = f"{where} is {value!r:.40} of type {type(value).__name__}"
            raise TypeError(f"{problem}; pass a number: a score, or the index of a class (read_rows(classes=...))")
        read.append(label)
        if label.shape != read[0].shape:
            problem = f"{where} has the shape {label.shape}, that of row 0 {read[0].shape}"
            raise ValueError(f"{problem}; pass as many numbers")
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
        >>> from sbert.training.table import as_row_data
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


@dataclass(frozen=True)
class Layout:
    """Where the values of a row are: under keys of a dict, or at positions of a tuple.

    Args:
        columns: Those of the texts, in the order of the loss's columns.
        label: That of the label; None if there is none.
        row_data: Those of the row data.
        width: Number of values of a tuple; None for dicts.
    """

    columns: Sequence[Any]
    label: Any = None
    row_data: Sequence[str] = ()
    width: int | None = None


def find_layout(
    row: Any, loss: Signature, columns: Sequence[str] | None, label: str | None, name: str = "data"
) -> Layout:
    """The layout of rows such as this one.

    Keys that a loss takes by name are row data. Of the others, those with the names of the loss's columns are its
    columns, and further ones, such as negative_1, those of ``*negatives``. If a column is missing, the keys of texts
    are taken by position, if they are as many as the loss takes, and each with one of these names stands at its place.
    What is taken by position, and what is not used, is said in a warning. A label that is not used does not fit: it
    may say that a text is not a positive.

    Args:
        row: The first row, a dict or a tuple.
        loss: The signature of the loss.
        columns: The keys of the columns, if their names differ.
        label: The key of the label, if it has no usual name.
        name: Name of the data set, for errors.

    Raises:
        TypeError: If the row is neither a dict nor a tuple.
        ValueError: If the row does not fit the loss; the message shows the columns of both.

    Example:
        >>> from sbert.losses.signature import Signature
        >>> from sbert.training.table import find_layout
        >>> loss = Signature.of(lambda anchor, positive, *negatives: 0)
        >>> find_layout({"positive": "a", "anchor": "b", "negative_1": "c"}, loss, None, None).columns
        ['anchor', 'positive', 'negative_1']
    """
    if isinstance(row, Mapping):
        return _find_in_dict(row, loss, columns, label, name)
    if columns is not None or label is not None:
        raise ValueError(f"{name} has rows without names, so columns= and label= name nothing; leave them out")
    if loss.row_data and not loss.collates:
        raise ValueError(f"{name} has rows without names, but {loss.name} takes {loss.row_data[0]!r}; pass dicts")
    check_tuple(row, 0, None, name)
    values = [part for value in row for part in (value if loss.more is not None and is_list(value) else [value])]
    labelled = loss.needs_labels or ("labels" in loss.extras and len(values) > 0 and not isinstance(values[-1], str))
    if not loss.accepts(len(values) - labelled):
        types = ", ".join(type(value).__name__ for value in values)
        problem = f"those of {name} have {len(values)} value{'s' * (len(values) != 1)} ({types})"
        raise ValueError(f"{loss.name} takes rows ({loss}{', label' * labelled}); {problem}; pass rows of that form")
    texts = len(row) - labelled
    return Layout(range(texts), texts if labelled else None, width=len(row))


def check_tuple(row: Any, number: int, width: int | None, name: str) -> None:
    """Raise unless a row is a tuple or list of this many values."""
    if not isinstance(row, (tuple, list)):
        hint = " (a dict of columns means several data sets by name)" if isinstance(row, str) else ""
        problem = f"{name}, row {number} is of type {type(row).__name__}{hint}"
        raise TypeError(f"{problem}; pass tuples of texts, dicts, or a data frame")
    if width is not None and len(row) != width:
        raise ValueError(f"{name}, row {number} has {len(row)} values, but row 0 has {width}; pass as many in each")


def is_list(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(text, str) for text in value)


def _find_in_dict(
    row: Mapping[str, Any], loss: Signature, columns: Sequence[str] | None, label: str | None, name: str
) -> Layout:
    takes = " and ".join([str(loss), *(["labels"] if "labels" in loss.extras else []), *loss.row_data])
    both = f"{loss.name} takes {takes}; {name} has {', '.join(map(str, row))}"
    label = _find_label(row, loss, columns, label, both)
    by_name = {*loss.row_data, *loss.settings}
    if columns is None:
        candidates = [key for key in row if key != label and key not in by_name]
        matched = _match(row, loss, candidates, name)
        if matched is None:
            raise ValueError(f"{both}: rename them, or pass columns= in the order of the loss")
    else:
        matched = list(columns)
        wanted = matched if label is None else [*matched, label]
        if missing := [key for key in wanted if key not in row]:
            raise ValueError(f"{both}: there is no {missing[0]!r}")
        if len(set(wanted)) < len(wanted):
            raise ValueError(f"{both}: a column is named twice")
        if not loss.accepts(len(matched)):
            raise ValueError(f"{both}; columns= names {', '.join(matched)}; name one column for each of the loss's")
    missing = [key for key in loss.row_data if key not in row]
    if missing and not loss.collates:  # Its ``collate`` may add them.
        raise ValueError(f"{both}: there is no {missing[0]!r}; add this column, or rename the loss's")
    settings = [key for key in loss.settings if key not in (*matched, label)]
    return Layout(matched, label, [key for key in (*loss.row_data, *settings) if key in row])


def _find_label(
    row: Mapping[str, Any], loss: Signature, columns: Sequence[str] | None, label: str | None, both: str
) -> str | None:
    """The key of the labels: the given one, or the only key with a usual name; None if there are no labels."""
    if "labels" not in loss.extras:
        if label is not None:
            raise ValueError(f"label={label!r}, but {loss.name} takes no labels; leave it out")
        return None
    if label is not None:
        return label
    matches = [key for key in row if key in LABEL_NAMES and key not in (*(columns or ()), *loss.row_data)]
    if len(matches) > 1 or (loss.needs_labels and not matches):
        raise ValueError(f"{both}: {'which of them' if matches else 'none'} is the label? pass label=")
    return matches[0] if matches else None


def _match(row: Mapping[str, Any], loss: Signature, candidates: Sequence[str], name: str) -> list[str] | None:
    """The candidates that are columns, as ``find_layout`` describes; None if they do not fit."""
    pattern = re.compile(rf"{(loss.more or '').removesuffix('s')}s?[_-]?\d*")
    matched = [column for column in loss.columns if column in candidates]
    further = [key for key in candidates if key not in matched and loss.more and pattern.fullmatch(key)]
    if set(LABEL_NAMES) & (set(candidates) - set(matched)):
        return None
    if len(matched) < len(loss.columns) or not (matched or further):
        known = {*matched, *further}
        texts = [key for key in candidates if isinstance(row[key], str) or is_list(row[key])]
        misplaced = [key for key, column in zip(texts, loss.columns, strict=False) if key in known and key != column]
        matched, others = texts[: len(loss.columns)], texts[len(loss.columns) :]
        if not texts or not loss.accepts(len(texts)) or misplaced or (known and others != further):
            return None
        further, meaning = others, ", ".join(map("{} is {}".format, texts, loss.names(len(texts))))
        warn(f"{name}: columns by position: {meaning}; pass columns= for another order")
    if unused := [key for key in candidates if key not in (*matched, *further)]:
        warn(f"{name}: {loss.name} does not use {', '.join(unused)}; pass columns= to choose columns yourself")
    return [*matched, *further]
