"""The columns that go with texts as tables of Arrow, with the types of their source, or else of their values."""

from __future__ import annotations

from typing import Any


class Columns:
    """Makes tables of rows, one after another. All values of a column must fit one type, and keep their values in it.

    Args:
        types: The types of columns whose source knows them.

    Raises:
        ValueError: If Python has no values for one of these types.
    """

    def __init__(self, types: dict[str, Any]) -> None:
        # Values of dictionaries are copied: Parquet makes its own.
        self._given = {name: kind.value_type if hasattr(kind, "index_type") else kind for name, kind in types.items()}
        self._types: dict[str, Any] = {}
        self._large: set[str] = set()  # Columns of integers that a float would round.
        for name, kind in self._given.items():
            if not _is_exact(kind):
                raise ValueError(f"the column {name!r} has the type {kind}, which cannot be copied; convert it first")

    def table(self, rows: list[dict[str, Any]]) -> Any:
        """A table of rows.

        Raises:
            ValueError: If a value does not fit the type of its column here or in the rows before.
        """
        from pyarrow import table

        arrays = {}
        for name in rows[0]:
            try:
                arrays[name] = self._array(name, [row[name] for row in rows])
            except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
                raise ValueError(f"the values of the column {name!r} do not fit one type of Arrow: {error}") from error
        return table(arrays)

    def _array(self, name: str, values: list[Any]) -> Any:
        from pyarrow import array, compute, schema, types, unify_schemas

        if name in self._given:
            return array(values, self._given[name])
        found = array(values)
        if getattr(found.type, "unit", "") == "us":
            lost = [value for value in values if getattr(value, "nanosecond", getattr(value, "nanoseconds", 0))]
            if lost:
                raise ValueError(f"{lost[0]!r} has nanoseconds; pass an array of NumPy")
        kind = self._types.get(name, found.type)
        if name not in self._large:
            schemas = [schema([(name, each)]) for each in (kind, found.type)]
            kind = unify_schemas(schemas, promote_options="permissive").field(name).type
        found = found.cast(kind)
        if types.is_integer(kind):
            limits = compute.min_max(found).as_py().values()
            self._large |= {name} if any(abs(limit or 0) > 1 << 53 for limit in limits) else set()
        self._types[name] = kind
        return found


def _is_exact(kind: Any) -> bool:
    """Whether Python has values for a type of Arrow, and Arrow makes the same of them."""
    from pyarrow import array

    try:
        array([None], kind)
    except NotImplementedError:
        return False
    return "time64[ns]" not in str(kind)
