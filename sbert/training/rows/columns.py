"""Which values of a row are texts, its label and its row data: matched with what a loss takes, by name or position."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sbert.inputs.arguments import warn
from sbert.losses.signature import Signature

LABEL_NAMES = ("label", "labels", "score", "scores")


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
    columns, and further ones, such as negative_1, those of ``*negatives``. If none has such a name, the keys of texts
    are taken by position, if they are as many as the loss takes. What is taken by position, and what is not used, is
    said in a warning. A label that is not used does not fit: it may say that a text is no positive.

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
        given = f"those of {name} have {len(values)} value{'s' * (len(values) != 1)} ({types})"
        raise ValueError(f"{loss.name} takes rows ({loss}{', label' * labelled}); {given}; pass rows of that form")
    texts = len(row) - labelled
    return Layout(range(texts), texts if labelled else None, width=len(row))


def check_tuple(row: Any, number: int, width: int | None, name: str) -> None:
    """Raise unless a row is a tuple or list of this many values."""
    if not isinstance(row, (tuple, list)):
        hint = " (a dict of columns means several data sets by name)" if isinstance(row, str) else ""
        given = f"{name}, row {number} is of type {type(row).__name__}{hint}"
        raise TypeError(f"{given}; pass tuples of texts, dicts, or a data frame")
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
    known = [key for key in row if key in LABEL_NAMES and key not in (*(columns or ()), *loss.row_data)]
    if len(known) > 1 or (loss.needs_labels and not known):
        raise ValueError(f"{both}: {'which of them' if known else 'none'} is the label? pass label=")
    return known[0] if known else None


def _match(row: Mapping[str, Any], loss: Signature, candidates: Sequence[str], name: str) -> list[str] | None:
    """The candidates that are columns, as ``find_layout`` describes; None if they do not fit."""
    pattern = re.compile(rf"{(loss.more or '').removesuffix('s')}s?[_-]?\d*")
    matched = [column for column in loss.columns if column in candidates]
    further = [key for key in candidates if key not in matched and loss.more and pattern.fullmatch(key)]
    if set(LABEL_NAMES) & (set(candidates) - set(matched)):
        return None
    if not matched and not further:
        matched = [key for key in candidates if isinstance(row[key], str) or is_list(row[key])]
        if not matched or not loss.accepts(len(matched)):
            return None
        meaning = ", ".join(map("{} is {}".format, matched, loss.names(len(matched))))
        warn(f"{name}: columns by position: {meaning}; pass columns= for another order")
    elif len(matched) < len(loss.columns):
        return None
    if unused := [key for key in candidates if key not in (*matched, *further)]:
        warn(f"{name}: {loss.name} does not use {', '.join(unused)}; pass columns= to choose columns yourself")
    return [*matched, *further]
