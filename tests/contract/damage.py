"""What becomes of a file: the one corruptor of all formats."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What stands in for a value of a JSON file; ... takes it away.
STRANGE: list[Any] = [None, -1, 0, 1.5, True, "text", [], {}, [1], {"a": 1}, 10**6, ...]
MISSING, FOLDER = "missing", "a folder in its place"


class Marks:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def find_places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value inside a JSON value; of a list, to its first ones."""
    if at:
        yield at
    entries = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from find_places(inner, (*at, key))


def replace_value(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value with another value in one place."""
    changed = copy.deepcopy(value)
    parent = changed
    for key in at[:-1]:
        parent = parent[key]
    if new is ...:
        del parent[at[-1]]
    else:
        parent[at[-1]] = new
    return changed


def read_values(content: bytes) -> list[tuple[bytes, Any, bytes]]:
    """The JSON of a file, or of each of its lines, with what stands before and behind it."""
    lines, values = content.splitlines(keepends=True), []
    for place in range(len(lines)):
        with contextlib.suppress(ValueError):
            values.append((b"".join(lines[:place]), json.loads(lines[place]), b"\n" + b"".join(lines[place + 1 :])))
    return [(b"", json.loads(content), b"")] if len(values) < len(lines) else values


def damages(name: str, content: bytes, marker: Path, seed: int = 0, most: int = 25) -> Iterator[tuple[str, bytes]]:
    """What becomes of a file, and its new content; of a JSON file, at most so many values are others."""
    rng = random.Random(len(content) + seed)
    yield from ((MISSING, b""), (FOLDER, b""), ("emptied", b""), ("cut by a byte", content[:-1]))
    for share in (0.1, 0.5, 0.9):
        yield f"cut at {share:.0%}", content[: int(len(content) * share)]
    heads = [rng.randrange(min(200, len(content))) for _ in range(4)]
    for place in (*heads, *(rng.randrange(len(content)) for _ in range(8))):
        changed = bytes([content[place] ^ (1 << place % 8)])
        yield f"byte {place} changed", content[:place] + changed + content[place + 1 :]
    middle = rng.randrange(len(content))
    yield f"zeros from {middle}", content[:middle] + bytes(len(content) - middle)  # As after a power failure.
    yield "longer", content + rng.randbytes(100)
    yield f"begins at {middle}", content[middle:] + content[:middle]
    for other in (b"[]", b"3", b"null", b"{}", b"<html></html>", rng.randbytes(300)):
        yield f"replaced by {other[:10]!r}", other
    yield "replaced by a pickle", pickle.dumps(Marks(marker))
    if name.endswith((".json", ".manifest")):
        values = read_values(content)
        cases = [(value, at, new) for value in values for at in find_places(value[1]) for new in STRANGE]
        for (before, value, after), at, new in rng.sample(cases, min(most, len(cases))):
            yield f"{at} = {new!r}", before + json.dumps(replace_value(value, at, new)).encode() + after
