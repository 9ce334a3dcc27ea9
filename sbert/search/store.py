"""What an index holds: vectors, and the ids of their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

Id = int | str

# Whole numbers that int64 does not hold, from here on.
END = 2**63


class IndexHits(NamedTuple):
    """What was found for each query, the best first.

    Args:
        scores: (queries, k) float32.
        ids: (queries, k), int64 where the ids are whole numbers; or else of dtype object, which hold the very strings.
    """

    scores: np.ndarray
    ids: np.ndarray


class VectorStore:
    """Vectors in blocks, and the ids of their rows.

    Args:
        vectors: Array or memory map.
        ids: Of the rows.
        following: The least number that was never given as an id.
    """

    def __init__(self, vectors: np.ndarray | None = None, ids: Iterable[Id] = (), following: int = 0) -> None:
        self.blocks = [] if vectors is None else [vectors]
        self.ids, self.following = list(ids), following
        self.known = set(self.ids)
        self._array: np.ndarray | None = None

    def add(self, vectors: np.ndarray, ids: list[Id]) -> None:
        """Add rows that were checked."""
        self.blocks.append(vectors)
        # Blocks grow at least twice as large with each that comes before, so there are few however rows are added.
        while len(self.blocks) > 1 and len(self.blocks[-2]) <= len(self.blocks[-1]) and not self._mapped(-2):
            self.blocks[-2:] = [np.concatenate(self.blocks[-2:])]
        self.ids += ids
        self.known.update(ids)
        self.following = max([self.following, *(each + 1 for each in ids if isinstance(each, int))])
        self._array = None

    def remove(self, ids: Iterable[Id]) -> bool:
        """Take rows out; whether there were any to take."""
        ids = [id_of(each, place) for place, each in enumerate(ids)]
        missing = [each for each in ids if each not in self.known]
        if missing:
            raise KeyError(f"{missing[0]!r} is no id of the index; nothing was removed")
        gone = set(ids)
        if gone:
            kept = np.array([each not in gone for each in self.ids])
            self.blocks = [self.whole()[kept]] if kept.any() else []
            self.ids = [each for each in self.ids if each not in gone]
            self.known -= gone
            self._array = None
        return bool(gone)

    def whole(self) -> np.ndarray:
        """All vectors as one array."""
        if len(self.blocks) > 1:
            self.blocks = [np.concatenate(self.blocks)]
        return self.blocks[0]

    def array(self) -> np.ndarray:
        """The ids: int64, or objects where they are strings, since arrays of strings lose zeros at their ends."""
        if self._array is None:
            self._array = np.array(self.ids, object if self.ids and isinstance(self.ids[0], str) else np.int64)
        return self._array

    def _mapped(self, place: int) -> bool:
        return isinstance(self.blocks[place], np.memmap)


def id_of(given: object, place: int) -> Id:
    """An id as it is kept; an error unless it is a whole number of 64 bits, or a string.

    Python takes True and 1.0 for equal to 1, which nobody means who names a vector.
    """
    if isinstance(given, str):
        return str(given)
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
        raise TypeError(f"ids[{place}]={given!r} is of type {type(given).__name__}; pass whole numbers or strings")
    if not -END <= given < END:
        raise ValueError(f"ids[{place}]={given} does not fit 64 bits; pass it as a string")
    return int(given)


def ids_of(ids: Iterable[Id] | None, rows: int, kept: VectorStore) -> list[Id]:
    """The ids of new rows; an error unless they are new, different, and of the kind that is there."""
    if ids is None:
        if kept.ids and isinstance(kept.ids[0], str):
            raise ValueError("the ids of this index are strings; pass ids=, one for each vector")
        if kept.following + rows > END:
            raise ValueError(f"{rows} ids from {kept.following} on do not fit 64 bits; pass ids=, one for each vector")
        return list(range(kept.following, kept.following + rows))
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        what = "one string" if isinstance(ids, (str, bytes)) else f"of type {type(ids).__name__}"
        raise TypeError(f"ids={ids!r:.60} is {what}; pass a list, one for each vector")
    names = [id_of(each, place) for place, each in enumerate(ids)]
    if len(names) != rows:
        raise ValueError(f"{len(names)} ids and {rows} vectors were given; pass one id for each vector")
    first = next(iter(kept.ids), names[0] if names else 0)
    seen: set[Id] = set()
    for place, name in enumerate(names):
        if isinstance(name, str) != isinstance(first, str):
            raise TypeError(f"ids[{place}]={name!r}, but other ids are like {first!r}; pass all as one or the other")
        if name in kept.known or name in seen:
            where = "given twice" if name in seen else "in the index already; remove it first"
            raise ValueError(f"ids[{place}]={name!r} is {where}; nothing was added")
        seen.add(name)
    return names
