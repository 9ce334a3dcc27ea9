"""Damaged files: their content, or an error of one line that names the file; never a crash, a hang or code that runs.

One corruptor over the table of ``file_formats``.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.file_formats import FORMATS

pytestmark = [
    pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning"),
    pytest.mark.filterwarnings("ignore:max_seq_length=1000000 exceeds:UserWarning"),
    pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing:UserWarning"),
]
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


def damages(name: str, content: bytes, marker: Path) -> Iterator[tuple[str, bytes]]:
    """What becomes of a file, and its new content."""
    rng = random.Random(len(content))
    yield from ((MISSING, b""), (FOLDER, b""), ("emptied", b""), ("cut by a byte", content[:-1]))
    for share in (0.1, 0.5, 0.9):
        yield f"cut at {share:.0%}", content[: int(len(content) * share)]
    heads = [rng.randrange(min(200, len(content))) for _ in range(4)]
    for place in (*heads, *(rng.randrange(len(content)) for _ in range(8))):
        yield (
            f"byte {place} changed",
            content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :],
        )
    for other in (b"[]", b"3", b"null", b"{}", b"<html></html>", rng.randbytes(300)):
        yield f"replaced by {other[:10]!r}", other
    yield "replaced by a pickle", pickle.dumps(Marks(marker))
    if name.endswith(".json"):
        value = json.loads(content)
        cases = [(at, new) for at in find_places(value) for new in STRANGE]
        for at, new in rng.sample(cases, min(25, len(cases))):
            yield f"{at} = {new!r}", json.dumps(replace_value(value, at, new)).encode()


# Each of 400 damages of a model of transformers is one load of it: no cheaper test shows that all are answered.
SLOW = ("encoder", "cross-encoder")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FORMATS]
)
def test_each_file_damaged(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    pytest.importorskip(form.package)
    folder, marker, counts = tmp_path / "folder", tmp_path / "marker", {"refused": 0, "same": 0, "other": 0}
    folder.mkdir()
    form.write(folder)
    expected = form.read(folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for what, new in damages(path.name, content, marker):
            path.unlink()
            if what == FOLDER:
                path.mkdir()
            elif what != MISSING:
                path.write_bytes(new)
            try:
                outcome = "same" if form.read(folder) == expected else "other"
            except (ValueError, FileNotFoundError, UserWarning) as error:
                outcome, said = "refused", str(error)
                assert "\n" not in said, f"{path.name} {what}: {said}"
                # Numbers that are none, and tokens, show only when a text is encoded.
                named = path.name in said or str(folder) in said or "not finite" in said or "tokenizer.json" in said
                assert named, f"{path.name} {what}: {said}"
            assert not marker.exists(), f"{path.name} {what}: code ran"
            assert outcome != "other" or not form.has_checksum, f"{path.name} {what} was not noticed"
            counts[outcome] += 1
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            path.write_bytes(content)
    print(f"\n{name}: {counts}")
    assert counts["refused"] > sum(counts.values()) / 3
    assert form.read(folder) == expected
