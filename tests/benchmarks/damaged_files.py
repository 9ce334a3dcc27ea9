"""Damages journals, partial files, shards and manifests, and checks that nothing crashes and no row becomes wrong.

python -m tests.benchmarks.damaged_files [--files 1000] [--seed 0] [--only encode]

Each case takes the files of an interrupted or finished ``encode(out=)``, damages one of them, and goes on: the same
call again, ``merge`` or ``status``. Allowed are the right result, to the last byte, and a ValueError or an OSError that
names a file or an argument and leaves all files as they are, after which the remedy of the message gives the right
result. All else is printed and counted, and the program fails.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

import sbert.vector_files as shards
from sbert import Pooling, SentenceEncoder, WordEmbeddings
from sbert.data import Texts
from tests.contract.damage import FOLDER, MISSING, damages

WORDS = "a small boat lies on the quiet lake and nobody rows it home one two three four five six seven".split()
TEXTS = [" ".join(WORDS[(7 * i + k * k) % len(WORDS)] for k in range(1 + i % 9)) + f" {i}" for i in range(150)]
OLDER = b"what was there before"
# An error names a file or an argument.
_NAMED = re.compile(r"(v|vectors)(-[-\w]+)?\.(npy|parquet)|\w=")


def damage(rng: random.Random, folder: Path, files: list[Path]) -> str:
    """Damage one of the files; say what was done."""
    path, other = rng.choice(files), rng.choice(files)
    raw = path.read_bytes()
    ways = [*damages(path.name, raw, folder / "marker", rng.randrange(1000))] if raw else [("longer", b"\0")]
    what, new = rng.choice([*ways, ("a link to nothing", b""), (f"like {other.name}", other.read_bytes())])
    path.unlink()
    if what == FOLDER:
        (path / "within").mkdir(parents=True)
    elif what == "a link to nothing":
        path.symlink_to(folder / "nothing")
    elif what != MISSING:
        path.write_bytes(new)
    return f"{what}: {path.relative_to(folder)}"


# ------------------------------------------------------------------------------------------------------- scenes


class Stopped(Texts):
    """Texts after which Ctrl-C is pressed."""

    def __init__(self, texts: Texts, after: int) -> None:
        self.texts, self.after, self.keep = texts, after, texts.keep

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, row in enumerate(self.texts.rows()):
            if number == self.after:
                raise KeyboardInterrupt
            yield row

    def types(self) -> dict[str, Any]:
        return self.texts.types()

    def __len__(self) -> int:
        raise TypeError


class Scene(NamedTuple):
    """Files, what is done with them, and what must come out.

    Args:
        out: What is passed as ``out=``.
        before: Shards that are finished or, with a number of texts, interrupted; None is the whole.
        after: What is done then: "encode", "merge" or "status".
    """

    out: str
    before: dict[tuple[int, int] | None, int]
    after: str

    @property
    def texts(self) -> Texts:
        return Texts.of(TEXTS, id=range(len(TEXTS)), text=TEXTS) if self.out.endswith(".parquet") else Texts.of(TEXTS)

    def build(self, model: SentenceEncoder, folder: Path) -> None:
        for shard, after in self.before.items():
            self.encode(model, folder, shard, after)

    def encode(
        self,
        model: SentenceEncoder,
        folder: Path,
        shard: tuple[int, int] | None,
        after: int = 0,
        overwrite: bool = False,
    ) -> None:
        texts = Stopped(self.texts, after) if after else self.texts
        try:
            model.encode(texts, out=f"{folder}/{self.out}", shard=shard, overwrite=overwrite, show_progress_bar=False)
        except KeyboardInterrupt:
            assert after, "nobody pressed Ctrl-C"

    def go_on(self, model: SentenceEncoder, folder: Path, overwrite: bool = False) -> None:
        if self.after == "status":
            for part in shards.status(folder / self.out):
                assert part.state in ("done", "running", "stopped", "missing", "damaged"), part
            return
        if self.after == "encode" or overwrite:
            for shard in self.before:
                self.encode(model, folder, shard, overwrite=overwrite)
        if self.after == "merge":
            shards.merge(folder / self.out, overwrite)


SCENES = [
    Scene("v.npy", {None: 100}, "encode"),
    Scene("v.npy", {None: 100}, "status"),
    Scene("v.parquet", {None: 100}, "encode"),
    Scene("parts/", {None: 100}, "encode"),
    Scene("v.npy", {(0, 3): 0, (1, 3): 100, (2, 3): 0}, "encode"),
    Scene("v.npy", {(0, 3): 0, (1, 3): 0, (2, 3): 0}, "encode"),
    Scene("v.npy", {(0, 3): 0, (1, 3): 0, (2, 3): 0}, "merge"),
    Scene("v.npy", {(0, 3): 0, (1, 3): 100}, "status"),
    Scene("v.parquet", {(0, 2): 0, (1, 2): 0}, "merge"),
]


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder and what is in them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def wrong_files(folder: Path, expected: dict[str, bytes]) -> list[str]:
    """The files of vectors that are not as they must be."""
    there = content(folder)
    return [name for name, raw in expected.items() if not name.endswith(".manifest") and there.get(name) != raw]


# -------------------------------------------------------------------------------------------------------- cases


class Prepared(NamedTuple):
    """A scene, its files in a folder, and the files that must come out."""

    scene: Scene
    folder: Path
    expected: dict[str, bytes]


def prepare(model: SentenceEncoder, root: Path) -> list[Prepared]:
    made = []
    for number, scene in enumerate(SCENES):
        folder = root / f"scene-{number}"
        folder.mkdir()
        scene.build(model, folder)
        clean = root / "clean"
        shutil.copytree(folder, clean)
        scene.go_on(model, clean)
        # What else stands in the folder must stay as it is.
        (folder / "notes.npy").write_bytes(OLDER)
        if scene.after == "encode" and None in scene.before and scene.out != "parts/":
            (folder / scene.out).write_bytes(OLDER)
        expected = {} if scene.after == "status" else content(clean)
        if scene.after == "merge":
            expected = {scene.out: expected[scene.out]}
        made.append(Prepared(scene, folder, expected))
        shutil.rmtree(clean)
    return made


def case(model: SentenceEncoder, prepared: Prepared, rng: random.Random, folder: Path) -> tuple[str, str]:
    """Damage one file and go on: what came out, and what was done."""
    scene, source, expected = prepared
    shutil.copytree(source, folder, symlinks=True)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes() != OLDER]
    done = f"{scene.after} {scene.out} {list(scene.before)}: {damage(rng, folder, files)}"
    before = content(folder)
    try:
        scene.go_on(model, folder)
    except (ValueError, OSError, RuntimeError) as error:
        changed = lost(before, content(folder), expected, done)
        done += f": {type(error).__name__}: {error}"
        if not _NAMED.search(str(error)):
            return "NAMELESS", done
        if changed:
            return "OVERWRITTEN", f"{done}: {changed}"
        return after_remedy(model, prepared, folder, done)
    except Exception:
        return "CRASH", f"{done}: {traceback.format_exc()}"
    if content(folder).get("notes.npy") != OLDER:
        return "OVERWRITTEN", done
    wrong = wrong_files(folder, expected)
    return ("WRONG", f"{done}: {wrong}") if wrong else ("right", done)


def lost(before: dict[str, bytes], after: dict[str, bytes], expected: dict[str, bytes], done: str) -> list[str]:
    """The files that an error has changed: not those of a shard that is finished, nor the damaged journal itself."""
    changed = [name for name, raw in before.items() if after.get(name) != raw and not done.endswith(name)]
    names = {name: name.removesuffix(".manifest").removesuffix(".partial") for name in changed}
    return [
        name for name in changed if expected.get(names[name]) is None or after.get(names[name]) != expected[names[name]]
    ]


def after_remedy(model: SentenceEncoder, prepared: Prepared, folder: Path, done: str) -> tuple[str, str]:
    """Start anew, as the messages say: with overwrite=True, and without what is no file."""
    if prepared.scene.after == "status":
        return "refused", done
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_symlink():
            path.unlink()
        elif path.is_dir() and path.name == "within":
            shutil.rmtree(path.parent)
    try:
        prepared.scene.go_on(model, folder, overwrite=True)
    except Exception:
        return "NO REMEDY", f"{done}: {traceback.format_exc()}"
    wrong = wrong_files(folder, prepared.expected)
    return ("WRONG", f"{done}: after the remedy {wrong}") if wrong else ("refused", done)


def run(files: int, seed: int = 0, only: str = "") -> tuple[Counter[str], list[str]]:
    """Outcomes of as many cases, and a line for each that must not be."""
    rng, outcomes, failures = random.Random(seed), Counter[str](), []
    model = small_model()
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # Where nobody waits for a disk.
    with tempfile.TemporaryDirectory(dir=in_memory) as root, small_windows():
        ready = [each for each in prepare(model, Path(root)) if only in each.scene.after]
        for number in range(files):
            prepared = ready[number % len(ready)]
            outcome, done = case(model, prepared, rng, Path(root) / f"case-{number}")
            outcomes[outcome] += 1
            if outcome.isupper():
                failures.append(f"{outcome}: {done.replace(root, '')}")
            shutil.rmtree(Path(root) / f"case-{number}", ignore_errors=True)
    return outcomes, failures


def small_model() -> SentenceEncoder:
    """Vectors of words, summed up: encoding takes no time."""
    words = sorted(set(WORDS))
    weights = torch.randn(len(words), 8, generator=torch.Generator().manual_seed(0))
    return SentenceEncoder(WordEmbeddings(words, weights), Pooling("mean"), device="cpu")


@contextmanager
def small_windows() -> Iterator[None]:
    """Stripes of 16 texts, windows of 32, files of 64."""
    sizes = {"_WINDOW": 32, "_FILE_ROWS": 64}
    with patch("sbert.vector_files.reader.STRIPE", 16), patch.multiple("sbert.vector_files.write", **sizes):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="number of damaged files (1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="encode, merge or status")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "unknown tokens")
    outcomes, failures = run(given.files, given.seed, given.only)
    for line in failures:
        print(line)
    print("".join(f"| {name} | {count:,} |\n" for name, count in outcomes.most_common()), end="")
    if failures:
        sys.exit(f"{len(failures)} of {given.files} cases came out as they must not")


if __name__ == "__main__":
    main()
