"""Texts, pairs and rows from the caller: lists, generators, arrays, data frames and tables, checked one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain
from typing import Any, TypeGuard, cast

import numpy as np

from sbert.inputs.arguments import is_model

Pair = tuple[str, str]

# Number of columns that an error lists.
_LISTED = 8
# Values of an Arrow array that are converted at once.
_CONVERTED = 4096


def rows_of(sentences: Any, name: str = "sentences") -> Iterator[str]:
    """Iterate over the sentences in order; a single str is one sentence.

    Args:
        sentences: A str; or an ordered iterable of str: list, array, Series, Arrow array, column, generator.
        name: Name of the caller's argument, for errors.

    Raises:
        TypeError: If an item is not a str, naming the row; or if this is a table, where iterating would give the
            column names.
    """
    if isinstance(sentences, str):
        sentences = [sentences]
    columns = columns_of(sentences)
    if columns is not None:
        choices = " or ".join(f"{name}[{column!r}]" for column in columns[:_LISTED]) or "a list of str"
        raise TypeError(
            f"{name} is a {type(sentences).__name__} with the columns {_show(columns)}; pass one of them: {choices}"
        )
    if not _is_ordered(sentences):
        remedy = "pass a str, an ordered iterable of str, or for the texts of a file sbert.data.Texts(path)"
        raise TypeError(f"{name} is of type {type(sentences).__name__}; {remedy}")
    if isinstance(sentences, np.ndarray) and sentences.ndim != 1:
        raise TypeError(f"{name} is an array of shape {sentences.shape}; pass an array of one dimension")
    return _check_texts(values_of(sentences), name)


def values_of(column: Any) -> Iterable[Any]:
    """The values of a column, one after another: Arrow arrays hold Arrow scalars, which are converted piece by piece.

    Example:
        >>> import pyarrow
        >>> from sbert.inputs.texts import values_of
        >>> list(values_of(pyarrow.chunked_array([["A cat."], ["Taxes."]])))
        ['A cat.', 'Taxes.']
    """
    if not hasattr(column, "to_pylist"):
        return cast("Iterable[Any]", column)
    starts = range(0, len(column), _CONVERTED)  # To convert them one by one takes six times as long.
    return chain.from_iterable(column[start : start + _CONVERTED].to_pylist() for start in starts)


def _check_texts(sentences: Iterable[Any], name: str) -> Iterator[str]:
    for row, text in enumerate(sentences):
        if isinstance(text, Mapping):
            keys = _show(list(text))
            raise TypeError(f"{name}[{row}] is a dict with the keys {keys}; pass [row[key] for row in {name}]")
        if not isinstance(text, str):
            raise TypeError(f"{name}[{row}] is of type {type(text).__name__} ({text!r:.40}); pass only str")
        yield text


def texts_of(texts: Any, name: str) -> list[str]:
    """The texts as a list.

    Raises:
        TypeError: As ``rows_of``, and for a single str.
    """
    if isinstance(texts, str):
        raise TypeError(f"{name} is of type str; pass a list of str")
    return list(rows_of(texts, name))


# ------------------------------------------------------------------------------------------------ pairs


def is_pair(value: Any) -> TypeGuard[Pair]:
    """Whether a value is one pair of texts."""
    listed = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return listed and len(value) == 2 and all(isinstance(text, str) for text in value)


def pairs_of(pairs: Any) -> Iterator[Pair]:
    """Iterate over pairs; a single pair is an iterable of one.

    Raises:
        TypeError: If a row is not a pair of str (the message names it), or the input is not an iterable of pairs.
    """
    if is_pair(pairs):
        pairs = [pairs]
    columns = columns_of(pairs)
    if columns is not None or not _is_ordered(pairs):
        two = f", such as zip(pairs[{columns[0]!r}], pairs[{columns[1]!r}])" if columns and len(columns) > 1 else ""
        raise TypeError(f"pairs is of type {type(pairs).__name__}; pass tuples of two str{two}")
    for row, pair in enumerate(pairs):
        if not is_pair(pair):
            raise TypeError(f"pairs[{row}] is {pair!r:.60}, of type {type(pair).__name__}; pass a tuple of two str")
        yield (str(pair[0]), str(pair[1]))


def _is_ordered(value: object) -> bool:
    """Whether a value is an iterable of several things in an order; a str is one thing, and so is a model."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Set)) and not is_model(value)


# ---------------------------------------------------------------------------------------------- columns


def columns_of(data: Any) -> list[Any] | None:
    """Column names of a dict, data frame, table or structured array; None for anything else.

    Example:
        >>> from sbert.inputs.texts import columns_of
        >>> columns_of({"id": [1], "text": ["A cat."]}), columns_of(["A cat."])
        (['id', 'text'], None)
    """
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, np.ndarray):
        return None if data.dtype.names is None else list(data.dtype.names)
    if hasattr(data, "collect_schema"):  # polars; for lazy frames this is the only cheap way.
        return list(data.collect_schema().names())
    for attribute in ("column_names", "columns"):  # In pyarrow, ``columns`` holds the data, so it comes second.
        names = getattr(data, attribute, None)
        if isinstance(names, Iterable) and not isinstance(names, str):
            return list(names)
    return None


def records_of(data: Any) -> Any:
    """The rows of a data frame or table as dicts; anything else is returned unchanged.

    Example:
        >>> import pandas
        >>> from sbert.inputs.texts import records_of
        >>> records_of(pandas.DataFrame({"anchor": ["A cat."], "positive": ["A kitten."]}))
        [{'anchor': 'A cat.', 'positive': 'A kitten.'}]
    """
    if isinstance(data, (Mapping, np.ndarray)):
        return data
    columns = columns_of(data) or []
    if len(set(columns)) < len(columns):
        raise ValueError(f"two columns of the {type(data).__name__} have the same name: {_show(columns)}; rename one")
    if hasattr(data, "to_pylist"):  # Arrow
        return data.to_pylist()
    if hasattr(data, "collect_schema"):  # polars, also its lazy frames
        return (data.collect() if hasattr(data, "collect") else data).to_dicts()
    return data.to_dict("records") if hasattr(data, "to_dict") and hasattr(data, "columns") else data  # pandas


def _show(names: list[Any]) -> str:
    return ", ".join(map(str, names[:_LISTED])) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
