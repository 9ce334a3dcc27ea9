"""Filters of search: what ``where=`` takes, and which metadata fulfil it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Where = Mapping[str, object] | Callable[[dict[str, Any]], bool]

# Equal to no value.
_MISSING = object()


def check_where(where: object) -> None:
    """Raise a TypeError unless this is a filter."""
    if not (callable(where) or isinstance(where, Mapping)):
        raise TypeError(f"where is of type {type(where).__name__}; pass a dict or a function of the metadata")


def fulfils(metadata: dict[str, Any], where: Where) -> bool:
    """Whether the metadata of a document fulfil a filter."""
    if callable(where):
        return bool(where(metadata))
    return all(_has(metadata, *each) for each in where.items())


def _has(metadata: dict[str, Any], field: str, wanted: object) -> bool:
    """Whether a field has the value, or one of the values of a set."""
    value = metadata.get(field, _MISSING)
    if isinstance(wanted, (set, frozenset)):
        return not isinstance(value, (list, dict)) and value in wanted
    return bool(value == wanted)
