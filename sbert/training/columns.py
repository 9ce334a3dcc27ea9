"""Columns of rows: matched with those of a loss by name, else by position; lists of texts; words as classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sbert.data.rows import make_converter
from sbert.inputs.arguments import warn
from sbert.losses.signature import Signature

LABEL_NAMES = ("label", "labels", "score", "scores")


def match(loss: Signature, row: Mapping[str, Any], candidates: Sequence[str], name: str) -> list[str] | None:
    """The candidates in the order of the loss's columns, followed by further ones, such as negative_1.

    Candidates without the name of any column of the loss are taken by position, if they hold as many texts as the loss
    takes. What is taken by position, and what is not used, is said in a warning. A label that is not used does not fit:
    it may say that a text is no positive.

    Args:
        loss: The signature of the loss.
        row: A row of the data.
        candidates: The data's columns that may be texts.
        name: Name of the data set.

    Returns:
        The columns; None if they do not fit.

    Example:
        >>> loss = Signature.of(lambda anchor, positive, *negatives: 0)
        >>> match(loss, {}, ["positive", "anchor", "negative_1"], "data")
        ['anchor', 'positive', 'negative_1']
    """
    pattern = re.compile(rf"{(loss.more or '').removesuffix('s')}s?[_-]?\d*")
    matched = [column for column in loss.columns if column in candidates]
    further = [key for key in candidates if key not in matched and loss.more and pattern.fullmatch(key)]
    if set(LABEL_NAMES) & (set(candidates) - set(matched)):
        return None
    if not matched and not further:
        matched = [key for key in candidates if isinstance(row[key], str) or _is_list(row[key])]
        if not matched or not loss.accepts(len(matched)):
            return None
        pairs = zip(matched, loss.names(len(matched)), strict=True)
        told = ", ".join(f"{own} is {other}" for own, other in pairs)
        warn(f"{name}: columns by position: {told}; pass columns= for another order")
    elif len(matched) < len(loss.columns):
        return None
    unused = [key for key in candidates if key not in (*matched, *further)]
    if unused:
        warn(f"{name}: {loss.name} does not use {', '.join(unused)}; pass columns= to choose columns yourself")
    return [*matched, *further]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(text, str) for text in value)


def spread(rows: list[Any], loss: Signature, name: str) -> tuple[list[Any], list[int]]:
    """Lists of texts, such as negatives, as columns of their own.

    Returns:
        The rows, and the place that each of their columns had before.

    Raises:
        ValueError: If a row has a list of another length than the first row's.

    Example:
        >>> loss = Signature.of(lambda anchor, positive, *negatives: 0)
        >>> spread([("A cat.", "A kitten.", ["Taxes.", "Rain."])], loss, "data")
        ([['A cat.', 'A kitten.', 'Taxes.', 'Rain.']], [0, 1, 2, 2])
    """
    first = rows[0]
    lists = [place for place, value in enumerate(first) if _is_list(value)]
    if loss.more is None or not lists:
        return rows, list(range(len(first)))
    for number, row in enumerate(rows):
        for place in lists:
            if len(row) != len(first) or not isinstance(row[place], (list, tuple)):
                continue  # An error of its own.
            if len(row[place]) != len(first[place]):
                raise ValueError(
                    f"{name}, row {number} has a list of {len(row[place])} texts, row 0 of {len(first[place])}; pass"
                    " as many in every row"
                )
    places = [place for place, value in enumerate(first) for _ in range(len(value) if place in lists else 1)]
    return [
        [part for i, value in enumerate(row) for part in (value if i in lists else [value])] for row in rows
    ], places


def as_classes(labels: Sequence[Any], words: Sequence[str] | None, name: str) -> tuple[list[int], list[str]]:
    """Words as classes: their places among all words in alphabetical order.

    Args:
        labels: A word for each row.
        words: All classes; by default those of the labels.
        name: Name of the data set.

    Raises:
        ValueError: If a label is not one of the classes.

    Example:
        >>> as_classes(["no", "yes", "no"], ["no", "yes"], "data")
        ([0, 1, 0], ['no', 'yes'])
    """
    if words is None:
        words = sorted({label for label in labels if isinstance(label, str)})
    convert = make_converter(words, None)
    return [convert(f"{name}, row {number}", label) for number, label in enumerate(labels)], list(words)
