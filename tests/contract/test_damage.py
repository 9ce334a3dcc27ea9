"""Damaged files: their content, or an error of one line that names the file; never a crash, a hang or code that runs.

The corruptor of ``damage`` over the table of ``file_formats``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract.damage import FOLDER, MISSING, damages
from tests.contract.file_formats import FORMATS

pytestmark = [
    pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning"),
    pytest.mark.filterwarnings("ignore:max_seq_length=1000000 exceeds:UserWarning"),
    pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing:UserWarning"),
]
# Each of 300 damages of a model of transformers is one load of it: no cheaper test shows that all are answered.
SLOW = ("encoder", "cross-encoder")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FORMATS]
)
def test_each_file_damaged(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    folder, marker, counts = tmp_path / "folder", tmp_path / "marker", {"refused": 0, "same": 0, "other": 0}
    folder.mkdir()
    form.write(folder)
    expected = form.read(folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for what, new in damages(path.name, content, marker, most=8 if name in SLOW else 25):
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
