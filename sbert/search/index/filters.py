"""Filters of search: what ``where=`` takes, and which metadata fulfil it."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sbert.inputs.arguments import nearest_argument
from sbert.search.index.documents import DEPTH, is_deep
from sbert.search.index.index_folder import Mask

Metadata = dict[str, Any]
Where = Mapping[str, object] | Callable[[Metadata], bool]
# Which of some metadata fulfil a filter.
Filter = Callable[[list[Metadata]], Mask]

_LOGICAL = {"$and": np.logical_and, "$or": np.logical_or}
_ORDER = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_EQUALITY = ("$eq", "$ne", "$in", "$nin", "$contains")
# Types of JSON. True is a number in Python, but not in JSON, so booleans come first.
_KINDS = {bool: "booleans", int: "numbers", float: "numbers", str: "strings", type(None): "null"}


def parse_where(where: Where) -> Filter:
    """The filter of ``where=``.

    Raises:
        TypeError: If it is neither a dict nor a function, or an operator does not take a value of this type.
        ValueError: If an operator is unknown; the message names the nearest known one. From the filter: if no metadata
            have a field, but one with a similar name; or its values are of other types than what it is compared with.
    """
    if callable(where):
        return lambda metadata: np.array([bool(where(entry)) for entry in metadata], bool)
    if not isinstance(where, Mapping):
        raise TypeError(f"where is of type {type(where).__name__}; pass a dict or a function of the metadata")
    if is_deep(where):
        raise ValueError(f"where={reprlib.repr(where):.60} has more than {DEPTH} levels; put conditions into one $and")
    return _join(np.logical_and, [_parse_entry(name, value) for name, value in where.items()])


def _join(logical: np.ufunc, parts: list[Filter]) -> Filter:
    # The shape is needed where there are no parts, which all rows fulfil.
    return lambda rows: logical.reduce(np.array([part(rows) for part in parts], bool).reshape(len(parts), len(rows)))


def _parse_entry(name: object, value: object) -> Filter:
    """The filter of an entry of a dict: conditions of a field, or ``"$and"`` or ``"$or"`` of several dicts."""
    if isinstance(name, str) and name.startswith("$"):
        _check_known(name, [*_LOGICAL], "operator of dicts")
        if not isinstance(value, (list, tuple)) or not value:
            raise TypeError(f"where[{name!r}] is {value!r:.60}; pass a list of at least one dict")
        return _join(_LOGICAL[name], [parse_where(entry) for entry in value])
    if not isinstance(value, Mapping) or not value:
        value = {"$in" if isinstance(value, (set, frozenset)) else "$eq": value}
    return _join(np.logical_and, [_parse_condition(name, *condition) for condition in value.items()])


def _check_known(name: object, names: list[Any], what: str) -> None:
    if name not in names:
        nearest = nearest_argument(str(name), names)
        meant = f"did you mean {nearest!r}?" if nearest else f"pass one of {', '.join(names[:20])}"
        raise ValueError(f"where: {name!r:.60} is no {what}; {meant}")


def _parse_condition(field: Any, name: str, operand: Any) -> Filter:
    """The filter of one operator of a field."""
    _check_known(name, [*_EQUALITY, *_ORDER], f"operator of the field {field!r}")
    place, is_in = f"where[{field!r}][{name!r}]", name in ("$in", "$nin")
    if is_in != isinstance(operand, (list, tuple, set, frozenset)):
        expected = "a list of values" if is_in else "one value, or {'$in': [...]} for one of several"
        raise TypeError(f"{place} is {operand!r:.60}; pass {expected}")
    operands = {_check_operand(place, wanted) for wanted in (operand if is_in else [operand])}
    kinds, compare = {kind for kind, _ in operands}, _ORDER.get(name)
    bound: Any = next(iter(operands), (None, None))[1]
    if compare and not kinds <= {"numbers", "strings"}:
        raise TypeError(f"{place} is {operand!r:.60}; pass a number or a string")

    def passes(value: Any) -> bool:
        kind = _KINDS.get(type(value))
        return kind in kinds and (compare(value, bound) if compare else (kind, value) in operands)

    def test(value: Any) -> bool:
        return any(map(passes, value)) if type(value) is list else name != "$contains" and passes(value)

    def find(metadata: list[Metadata]) -> Mask:
        values = [entry.get(field, {}) for entry in metadata]  # A dict passes no test.
        passed = np.fromiter(map(test, values), bool, len(values))
        if not passed.any() and len(values):
            _check_field(field, name, operand, kinds, metadata)
        return ~passed if name in ("$ne", "$nin") else passed

    return find


def _check_operand(place: str, value: Any) -> tuple[str, Any]:
    """The kind of a value of JSON, and the value; a TypeError for lists, dicts and NaN."""
    plain = value.item() if isinstance(value, np.generic) else value
    kind = next((kind for python_type, kind in _KINDS.items() if isinstance(plain, python_type)), None)
    if kind is None or plain != plain:
        raise TypeError(f"{place} has {value!r:.60}; pass a string, a number, True, False or None")
    return kind, plain


def _check_field(field: Any, name: str, operand: object, kinds: set[str], metadata: list[Metadata]) -> None:
    """Raise a ValueError if no metadata have a field, or if all its values are of other kinds than the operand."""
    names = list({name: None for entry in metadata for name in entry})
    if nearest_argument(str(field), names):  # Else the last document with it may be gone.
        _check_known(field, names, "field of any document")
    present = set()
    for value in (entry[field] for entry in metadata if field in entry):
        prefix, parts = ("lists of ", value) if isinstance(value, list) else ("", [value])
        present |= {prefix + _KINDS.get(type(part), "lists or dicts") for part in parts if part is not None}
    wanted = {prefix + kind for kind in kinds for prefix in ("", "lists of ")[name == "$contains" :]}
    if present and wanted and "null" not in kinds and not wanted & present:
        listed = " and ".join(sorted(present))
        raise ValueError(
            f"where[{field!r}][{name!r}] is {operand!r:.60}, but the field has {listed}; pass such a value"
        )
