"""The content of an index: rows in blocks, and their ids."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import numpy.typing as npt

Id = int | str

# The smallest positive integer that int64 does not hold.
INT64_END = 2**63


class Ids:
    """The ids of rows.

    Args:
        noun: What a row is, for messages.
        ids: One id per row.
        next_id: The smallest integer greater than all integer ids that were ever in the index.
    """

    def __init__(self, noun: str, ids: Iterable[Id] = (), next_id: int = 0) -> None:
        self._noun = noun
        self.ids: dict[Id, None] = dict.fromkeys(ids)  # In the order of the rows; a dict finds an id at once.
        self.next_id: int = next_id
        self._array: npt.NDArray[np.int64] | npt.NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, identity: object) -> bool:
        # True and 1.0 are equal to 1 in Python, but they are not ids.
        is_integer = isinstance(identity, (int, np.integer)) and not isinstance(identity, bool)
        return (is_integer or isinstance(identity, str)) and identity in self.ids

    def new_ids(self, ids: Iterable[Id] | None, rows: int) -> list[Id]:
        """The ids of new rows; an error unless they are new, unique and of the same type as those in the store."""
        if ids is None:
            if isinstance(next(iter(self.ids), None), str):
                raise ValueError(f"the ids of this index are strings; pass ids=, one for each {self._noun}")
            if self.next_id + rows > INT64_END:
                raise ValueError(
                    f"{rows} ids from {self.next_id} on do not fit 64 bits; pass ids=, one for each {self._noun}"
                )
            return list(range(self.next_id, self.next_id + rows))
        checked = _checked_ids(ids)
        if len(checked) != rows:
            raise ValueError(
                f"{len(checked)} ids and {rows} {self._noun}s were given; pass one id for each {self._noun}"
            )
        example = next(chain(self.ids, checked), 0)
        seen: set[Id] = set()
        for position, name in enumerate(checked):
            if isinstance(name, str) != isinstance(example, str):
                raise TypeError(
                    f"ids[{position}]={name!r}, but other ids are like {example!r}; pass only one type of ids"
                )
            if name in self.ids or name in seen:
                where = "given twice" if name in seen else "in the index already; remove it first"
                raise ValueError(f"ids[{position}]={name!r} is {where}; nothing was added")
            seen.add(name)
        return checked

    def append(self, ids: list[Id]) -> None:
        """Append ids that ``new_ids`` has checked."""
        self.ids.update(dict.fromkeys(ids))
        self.next_id = max([self.next_id, *(each + 1 for each in ids if isinstance(each, int))])
        self._array = None

    def remaining(self, ids: Iterable[Id]) -> npt.NDArray[np.bool_] | None:
        """Which rows remain without these ids; None if all. A KeyError if an id is unknown."""
        removed = dict.fromkeys(_checked_ids(ids))
        for each in removed:
            if each not in self.ids:
                raise KeyError(f"{each!r} is not an id of the index; nothing was removed")
        return np.array([each not in removed for each in self.ids]) if removed else None

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Remove the ids of all other rows."""
        self.ids = {each: None for each, is_kept in zip(self.ids, rows.tolist(), strict=True) if is_kept}
        self._array = None

    def id_array(self) -> npt.NDArray[np.int64] | npt.NDArray[np.object_]:
        """The ids as int64, or as objects if they are strings: NumPy's string dtype drops trailing null characters."""
        if self._array is None:
            strings = isinstance(next(iter(self.ids), None), str)
            self._array = np.array([*self.ids], object) if strings else np.array([*self.ids], np.int64)
        return self._array


class VectorStore(Ids):
    """Vectors in blocks, and the ids of their rows.

    Args:
        vectors: Array or memory map, (rows, dim).
        ids: One id per row.
        next_id: As of ``Ids``.
    """

    def __init__(self, vectors: np.ndarray | None = None, ids: Iterable[Id] = (), next_id: int = 0) -> None:
        super().__init__("vector", ids, next_id)
        self.blocks: list[np.ndarray] = [] if vectors is None else [vectors]

    def add(self, vectors: np.ndarray, ids: list[Id]) -> None:
        """Append rows with ids that ``new_ids`` has checked."""
        append_block(self.blocks, vectors)
        self.append(ids)

    def remove(self, ids: Iterable[Id]) -> bool:
        """Remove rows; returns whether ``ids`` named any. A KeyError, and no change, if an id is unknown."""
        remaining = self.remaining(ids)
        if remaining is not None:
            self.blocks = [self.vectors()[remaining]] if remaining.any() else []
            self.keep(remaining)
        return remaining is not None

    def vectors(self) -> np.ndarray:
        """All vectors as one array, (rows, dim)."""
        return joined(self.blocks)


def append_block(blocks: list[np.ndarray], block: np.ndarray) -> None:
    """Append rows. Each block stays larger than the next, so their number is logarithmic in the number of calls."""
    blocks.append(block)
    while len(blocks) > 1 and len(blocks[-2]) <= len(blocks[-1]) and not isinstance(blocks[-2], np.memmap):
        blocks[-2:] = [np.concatenate(blocks[-2:])]


def joined(blocks: list[np.ndarray]) -> np.ndarray:
    """All blocks as one, which takes their place."""
    if len(blocks) > 1:
        blocks[:] = [np.concatenate(blocks)]
    return blocks[0]


def _checked_ids(ids: Iterable[Id]) -> list[Id]:
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise TypeError(f"ids={ids!r:.60} is of type {type(ids).__name__}; pass a list of ids")
    return [_checked_id(each, position) for position, each in enumerate(ids)]


def _checked_id(given: object, position: int) -> Id:
    """An id as int or str; an error unless it is a string or an integer of 64 bits.

    bool and float are errors, because True and 1.0 are equal to 1 in Python and would name the same vector.
    """
    if isinstance(given, str):
        return str(given)
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
        raise TypeError(f"ids[{position}]={given!r} is of type {type(given).__name__}; pass whole numbers or strings")
    if not -INT64_END <= given < INT64_END:
        raise ValueError(f"ids[{position}]={given} does not fit 64 bits; pass it as a string")
    return int(given)
