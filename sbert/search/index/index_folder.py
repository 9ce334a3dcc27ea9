"""What indexes share: the ids of their rows and rows in blocks; and a folder that is saved as a whole."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.storage.atomic import replacing
from sbert.storage.files import UnreadableError, checksum, write_json
from sbert.storage.folders import check_own, find_foreign

Id = int | str
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# The smallest positive integer that int64 does not hold.
_INT64_END = 2**63
_CHECKSUM = "crc32"
_FORMAT, _VERSION = "sbert.search.Index", 2
VECTORS, _INDEX, _IDS = "vectors.npy", "index.json", "ids.json"


def save_folder(folder: Path, settings: dict[str, Any], ids: Ids, write: Callable[[Path], None]) -> None:
    """Replace a folder atomically: ``write`` fills a new one, to which ids, settings and checksums are added.

    Raises:
        ValueError: If the folder contains anything but an index.
    """
    with replacing(folder, lambda target: check_own(target, "an index", _foreign)) as work:
        write(work)
        # The escapes of JSON can hold strings that UTF-8 cannot encode, such as some file names.
        (work / _IDS).write_text(json.dumps(list(ids.ids)), encoding="utf-8")
        files = {path.name: [path.stat().st_size, checksum(path)] for path in sorted(work.iterdir())}
        described = {"format": _FORMAT, "version": _VERSION, **settings, "following": ids.next_id, "files": files}
        write_json(work / _INDEX, {**described, _CHECKSUM: _checksum(described)})


def verify_folder(folder: Path, noun: str, with_vectors: bool) -> tuple[dict[str, Any], Ids]:
    """The settings and the ids of a saved index, whose files are whole.

    Args:
        folder: The folder of the index.
        noun: What a row is, for messages.
        with_vectors: Whether to verify the checksum of the vectors; otherwise, only their size is.

    Raises:
        FileNotFoundError: If the folder does not exist.
        UnreadableError: If a file is missing, damaged or of another format.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; pass the folder of a saved index")
    if not (folder / _INDEX).is_file():
        raise UnreadableError(folder, f"has no {_INDEX}, so it is not an index", "pass the folder of an index")
    described = _load_json(folder / _INDEX)
    if not isinstance(described, dict) or (described.get("format"), described.get("version")) != (_FORMAT, _VERSION):
        reason = f"is not of format {_FORMAT}, version {_VERSION}"
        raise UnreadableError(folder / _INDEX, reason, "pass the folder of an index")
    if described.pop(_CHECKSUM, None) != _checksum(described):
        raise unreadable(folder, "is not what was saved: its checksum differs")
    for name, (size, expected) in described["files"].items():
        actual = (folder / name).stat().st_size if (folder / name).is_file() else None
        if actual != size:
            reason = f"has {actual} bytes of {size}: it is truncated, or belongs to another index"
            raise unreadable(folder, reason, name)
        if (with_vectors or name != VECTORS) and checksum(folder / name) != expected:
            raise unreadable(folder, "is not what was saved: its checksum differs", name)
    return described, Ids(noun, _load_json(folder / _IDS), described["following"])


def _foreign(folder: Path) -> str | None:
    """A file that is no part of an index."""
    is_index = False
    with suppress(OSError, ValueError, AttributeError):  # There is no index.json, or it is of another program.
        is_index = _load_json(folder / _INDEX).get("format") == _FORMAT
    return find_foreign(folder, lambda name: is_index and name in {VECTORS, _IDS, _INDEX})


def _load_json(path: Path) -> Any:
    """The content of a JSON file, of any size."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise unreadable(path.parent, f"cannot be read as JSON ({type(error).__name__})", path.name) from error


def unreadable(folder: Path, reason: str, name: str = _INDEX) -> UnreadableError:
    """An error that names a file of an index."""
    return UnreadableError(folder / name, reason, "save the index again")


def _checksum(described: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(described, sort_keys=True).encode())


class Ids:
    """The ids of rows.

    Args:
        noun: What a row is, for messages.
        ids: One id per row.
        next_id: The smallest integer greater than all integer ids that were ever in the index.
    """

    def __init__(self, noun: str, ids: Iterable[Id] = (), next_id: int = 0) -> None:
        self._noun = noun
        names = list(ids)
        self.ids: dict[Id, int] = dict(zip(names, range(len(names)), strict=True))  # The row of each id, in order.
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
            if self.next_id + rows > _INT64_END:
                raise ValueError(f"{rows} ids from {self.next_id} on do not fit 64 bits; pass ids=")
            return list(range(self.next_id, self.next_id + rows))
        checked = _check_ids(ids)
        if len(checked) != rows:
            raise ValueError(f"{len(checked)} ids and {rows} {self._noun}s were given; pass one id for each")
        example = next(chain(self.ids, checked), 0)
        seen: set[Id] = set()
        for position, name in enumerate(checked):
            if isinstance(name, str) != isinstance(example, str):
                raise TypeError(f"ids[{position}]={name!r}, but other ids are like {example!r}; pass one type of ids")
            if name in self.ids or name in seen:
                where = "given twice" if name in seen else "in the index already; remove it first"
                raise ValueError(f"ids[{position}]={name!r} is {where}; nothing was added")
            seen.add(name)
        return checked

    def append(self, ids: list[Id], row: int | None = None) -> None:
        """Append ids that ``new_ids`` has checked, those of the rows from ``row`` on; default: of the next rows."""
        first = len(self.ids) if row is None else row
        self.ids.update(zip(ids, range(first, first + len(ids)), strict=True))
        self.next_id = max([self.next_id, *(name + 1 for name in ids if isinstance(name, int))])
        self._array = None

    def rows_of(self, ids: Iterable[Id]) -> Positions:
        """The rows of ids, each once. A KeyError if an id is unknown."""
        names = dict.fromkeys(_check_ids(ids))
        for name in names:
            if name not in self.ids:
                raise KeyError(f"{name!r} is not an id of the index; nothing was removed")
        return np.array([self.ids[name] for name in names], np.int64)

    def remaining(self, ids: Iterable[Id]) -> Mask | None:
        """Which rows remain without these ids; None if all. A KeyError if an id is unknown."""
        remaining = np.ones(len(self.ids), bool)
        remaining[self.rows_of(ids)] = False
        return None if remaining.all() else remaining

    def select(self, rows: Mask) -> None:
        """Remove the ids of all other rows."""
        self.__dict__.update(Ids(self._noun, compress(self.ids, rows), self.next_id).__dict__)

    def array(self) -> npt.NDArray[np.int64] | npt.NDArray[np.object_]:
        """The ids as int64, or as objects if they are strings: NumPy's string dtype drops trailing null characters."""
        if self._array is None:
            strings = isinstance(next(iter(self.ids), None), str)
            self._array = np.array([*self.ids], object) if strings else np.array([*self.ids], np.int64)
        return self._array


def append_block(blocks: list[np.ndarray], block: np.ndarray) -> None:
    """Append rows. Each block stays larger than the next, so their number is logarithmic in the number of calls."""
    blocks.append(block)
    while len(blocks) > 1 and len(blocks[-2]) <= len(blocks[-1]) and not isinstance(blocks[-2], np.memmap):
        blocks[-2:] = [np.concatenate(blocks[-2:])]


def join_blocks(blocks: list[np.ndarray]) -> np.ndarray:
    """All blocks as one, which takes their place."""
    if len(blocks) > 1:
        blocks[:] = [np.concatenate(blocks)]
    return blocks[0]


def _check_ids(ids: Iterable[Id]) -> list[Id]:
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise TypeError(f"ids={ids!r:.60} is of type {type(ids).__name__}; pass a list of ids")
    return [_check_id(name, position) for position, name in enumerate(ids)]


def _check_id(name: object, position: int) -> Id:
    """An id as int or str; an error unless it is a string or an integer of 64 bits.

    bool and float are errors, because True and 1.0 are equal to 1 in Python and would name the same vector.
    """
    if isinstance(name, str):
        return str(name)
    if isinstance(name, (bool, np.bool_)) or not isinstance(name, (int, np.integer)):
        raise TypeError(f"ids[{position}]={name!r} is of type {type(name).__name__}; pass whole numbers or strings")
    if not -_INT64_END <= name < _INT64_END:
        raise ValueError(f"ids[{position}]={name} does not fit 64 bits; pass it as a string")
    return int(name)
