"""Filters of search: what ``where=`` takes, and which metadata fulfil it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from sbert.inputs.arguments import nearest_argument
from sbert.search.index.files import Mask

Metadata = dict[str, Any]
Where = Mapping[str, object] | Callable[[Metadata], bool]
# Which of some metadata fulfil a filter.
Filter = Callable[[list[Metadata]], Mask]

_LOGICAL = {"$and": np.logical_and, "$or": np.logical_or}
_ORDER = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_NEGATIONS = {"$ne": "$eq", "$nin": "$in"}
_OPERATORS = ("$eq", "$ne", *_ORDER, "$in", "$nin", "$contains")
# Types of JSON. True is a number in Python, but not in JSON, so booleans come first.
_KINDS = {bool: "booleans", int: "numbers", float: "numbers", str: "strings", type(None): "null", dict: "dicts"}
# What a field of any kind may hold, as well.
_ANY = {"null", "lists of null"}
_MISSING = object()


def parse_where(where: Where) -> Filter:
    """The filter of ``where=``.

    Raises:
        TypeError: If it is neither a dict nor a function, or an operator does not take a value of this type.
        ValueError: If an operator is unknown; the message names the nearest known one. From the filter: if no metadata
            have a field, or its values are of other types than what it is compared with.
    """
    if callable(where):
        return lambda metadata: np.array([bool(where(each)) for each in metadata], bool)
    if not isinstance(where, Mapping):
        raise TypeError(f"where is of type {type(where).__name__}; pass a dict or a function of the metadata")
    return _join(np.logical_and, [_parse_entry(*each) for each in where.items()])


def _join(logical: np.ufunc, filters: list[Filter]) -> Filter:
    return lambda metadata: logical.reduce(
        np.array([each(metadata) for each in filters], bool).reshape(len(filters), len(metadata))  # There may be none.
    )


def _parse_entry(name: object, value: object) -> Filter:
    """The filter of an entry of a dict: conditions of a field, or ``"$and"`` or ``"$or"`` of several dicts."""
    if isinstance(name, str) and name.startswith("$"):
        _check_operators("where", [name], _LOGICAL)
        if not isinstance(value, (list, tuple)) or not value:
            raise TypeError(f"where[{name!r}] is {value!r:.60}; pass a list of at least one dict")
        return _join(_LOGICAL[name], [parse_where(each) for each in value])
    if not isinstance(value, Mapping):
        value = {"$in" if isinstance(value, (set, frozenset)) else "$eq": value}
    _check_operators(f"where[{name!r}]", value or ["{}"], _OPERATORS)
    return _join(np.logical_and, [_parse_condition(name, *each) for each in value.items()])


def _check_operators(place: str, given: Iterable[object], known: Collection[Any]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{place} has the operator {name!r:.60}, which is unknown; {_hint(name, known)}")


def _hint(name: object, known: Iterable[Any]) -> str:
    nearest = nearest_argument(str(name), known)
    return f"did you mean {nearest!r}?" if nearest else f"pass one of {', '.join(islice(known, 20)) or 'none'}"


def _parse_condition(field: Any, name: str, operand: Any) -> Filter:
    """The filter of one operator of a field."""
    place, positive = f"where[{field!r}][{name!r}]", _NEGATIONS.get(name, name)
    if positive == "$eq" and isinstance(operand, list):
        lists = {f"lists of {each}" for each in ("lists", *_KINDS.values())} - _ANY
        return _condition(field, name, operand, lists, lambda value: bool(value == operand))
    if (positive == "$in") != isinstance(operand, (list, tuple, set, frozenset)):
        raise TypeError(f"{place} is {operand!r:.60}; pass {'a list of values' if positive == '$in' else 'one value'}")
    operands = {_check_operand(place, each) for each in (operand if positive == "$in" else [operand])}
    kinds, compare = {kind for kind, _ in operands}, _ORDER.get(name)
    if compare and not kinds <= {"numbers", "strings"}:
        raise TypeError(f"{place} is {operand!r:.60}; pass a number or a string")

    def passes(value: Any) -> bool:
        kind = _KINDS.get(type(value))
        return kind in kinds and (compare(value, operand) if compare else (kind, value) in operands)

    def test(value: Any) -> bool:
        return any(map(passes, value)) if type(value) is list else name != "$contains" and passes(value)

    lists = {f"lists of {kind}" for kind in kinds}
    return _condition(field, name, operand, lists if name == "$contains" else lists | kinds, test)


def _check_operand(place: str, value: Any) -> tuple[str, Any]:
    """The kind of a value of JSON, and the value; a TypeError for lists, dicts and NaN."""
    plain = value.item() if isinstance(value, np.generic) else value
    kind = next((kind for known, kind in _KINDS.items() if known is not dict and isinstance(plain, known)), None)
    if kind is None or plain != plain:
        raise TypeError(f"{place} has {value!r:.60}; pass a string, a number, True, False or None")
    return kind, plain


def _condition(field: Any, name: str, operand: object, kinds: set[str], test: Callable[[Any], bool]) -> Filter:
    """The filter of metadata whose value in a field, which may be missing, passes a test; of all others for ``"$ne"``.

    It raises a ValueError if no value can pass: the field is unknown, or none of its values is of these kinds.
    """

    def find(metadata: list[Metadata]) -> Mask:
        values = [each.get(field, _MISSING) for each in metadata]
        passed = np.fromiter(map(test, values), bool, len(values))
        if not passed.any() and len(values):
            present = set[str]().union(*(_kinds_of(value) for value in values if value is not _MISSING)) - _ANY
            if all(value is _MISSING for value in values):
                known = {name: None for each in metadata for name in each}
                raise ValueError(f"where: no document has the field {field!r}; {_hint(field, known)}")
            if present and kinds and not kinds & (present | _ANY):
                raise ValueError(
                    f"where[{field!r}] looks for {operand!r:.60} with {name!r}, and the values of the field are"
                    f" {' and '.join(sorted(present))}; pass a value like these, or a set of values"
                )
        return ~passed if name in _NEGATIONS else passed

    return find


def _kinds_of(value: Any) -> set[str]:
    """The kind of a value, or those of the values of a list, none for an empty one."""
    if isinstance(value, list):
        return {f"lists of {_KINDS.get(type(each), 'lists')}" for each in value}
    return {_KINDS[type(value)]}
