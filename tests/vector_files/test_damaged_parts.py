"""Partial files, shards and manifests that are damaged: no crash, nothing overwritten, no wrong row.

Allowed are the right result, to the last byte, and an error that names a file or an argument and leaves all files as
they are, after which its remedy gives the right result.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from sbert import SentenceEncoder
from sbert.vector_files import merge
from tests.contract.damage import FOLDER, MISSING, damages
from tests.vector_files.samples import contents, encode, stop

NOTE = b"what was there before"


class Scene(NamedTuple):
    """What is passed as ``out=``, the shards that are complete or stopped after some texts, and what is done then."""

    out: str
    shards: dict[tuple[int, int] | None, int]
    action: str

    def build(self, words: SentenceEncoder, folder: Path) -> None:
        for shard, after in self.shards.items():
            if after:
                stop(words, f"{folder}/{self.out}", after, shard=shard)
            else:
                encode(words, f"{folder}/{self.out}", shard=shard)

    def go_on(self, words: SentenceEncoder, folder: Path, overwrite: bool = False) -> None:
        for shard in self.shards if self.action == "encode" or overwrite else ():
            encode(words, f"{folder}/{self.out}", shard=shard, overwrite=overwrite)
        if self.action == "merge":
            merge(folder / self.out, overwrite)


SCENES = [
    Scene("v.npy", {None: 50}, "encode"),
    Scene("v.parquet", {(0, 2): 0, (1, 2): 0}, "encode"),
    Scene("v.npy", {(0, 3): 0, (1, 3): 20, (2, 3): 0}, "encode"),
    Scene("v.npy", {(0, 3): 0, (1, 3): 0, (2, 3): 0}, "merge"),
    Scene("v.parquet", {(0, 2): 0, (1, 2): 0}, "merge"),
]


def damage(rng: random.Random, folder: Path) -> Path:
    """Damage one of the files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes() != NOTE]
    path, other = rng.choice(files), rng.choice(files)
    content = path.read_bytes()
    options = [*damages(path.name, content, folder / "marker", rng.randrange(1000))] if content else [("longer", b"0")]
    what, new = rng.choice([*options, ("a link to nothing", b""), ("another file", other.read_bytes())])
    path.unlink()
    if what == FOLDER:
        path.mkdir()
    elif what == "a link to nothing":
        path.symlink_to(folder / "nothing")
    elif what != MISSING:
        path.write_bytes(new)
    return path


def vectors_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if not name.endswith(".manifest")}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene.action} {scene.out} {len(scene.shards)}")
def test_damaged_parts(scene: Scene, words: SentenceEncoder, tmp_path: Path) -> None:
    source, clean, folder = tmp_path / "source", tmp_path / "clean", tmp_path / "damaged"
    source.mkdir()
    scene.build(words, source)
    shutil.copytree(source, clean)
    scene.go_on(words, clean)
    expected = vectors_of(contents(clean))
    (source / "notes.npy").write_bytes(NOTE)
    outcomes: Counter[str] = Counter()
    for seed in range(6):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        path = damage(random.Random(seed), folder)
        before = contents(folder)
        try:
            scene.go_on(words, folder)
            outcomes["right"] += 1
        except (ValueError, OSError, RuntimeError) as error:
            outcomes["refused"] += 1
            assert re.search(r"v(-[-\w]+)?\.(npy|parquet)|vectors|\w=", str(error)), (seed, error)
            after = contents(folder)
            # A shard may have been completed before the error; the damaged manifest itself may be written again.
            changed = {name for name, content in before.items() if after.get(name) != content} - {str(path)}
            names = {name.removesuffix(".manifest").removesuffix(".partial") for name in changed - {path.name}}
            assert all(after.get(name) == expected.get(name) is not None for name in names), (seed, error)
            if path.is_symlink():
                path.unlink()
            elif path.is_dir():
                path.rmdir()
            scene.go_on(words, folder, overwrite=True)
        assert contents(folder)["notes.npy"] == NOTE, (seed, path)
        assert not (folder / "marker").exists(), "code of a pickle ran"
        assert expected.items() <= contents(folder).items(), (seed, path)
    assert outcomes["refused"], outcomes
