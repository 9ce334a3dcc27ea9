"""Shards: rows dealt in stripes, files with manifests, and joining them in order."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.data import Texts
from sbert.vector_files import VectorFiles, merge
from tests.vector_files.samples import ROWS, TEXTS, contents, encode, stop


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("shards", [1, 3, 20])  # There are 11 stripes.
def test_merge(words: SentenceEncoder, tmp_path: Path, name: str, shards: int) -> None:
    out = f"{tmp_path}/{name}"
    for index in reversed(range(shards)):
        encode(words, out, shard=(index, shards))
    merged = VectorFiles([merge(out)])
    np.testing.assert_array_equal(np.asarray(merged), words.encode(TEXTS))
    if name == "v.parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(out)["id"].to_pylist() == list(range(ROWS))


def test_no_texts(words: SentenceEncoder, tmp_path: Path) -> None:
    for name in ("v.npy", "v.parquet"):
        out = f"{tmp_path}/{name}"
        assert encode(words, out, []).shape == (0, 6)
        for index in range(2):
            assert encode(words, out, [], shard=(index, 2)).shape == (0, 6)
        assert VectorFiles([merge(out)]).shape == (0, 6)


@pytest.mark.parametrize(
    ("name", "shard", "rows"),
    [("v.npy", (0, 2), 43), ("v.npy", None, ROWS), ("v.parquet", None, ROWS)],
)
def test_what_is_finished_is_kept(
    words: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shard: Any, rows: int
) -> None:
    out = f"{tmp_path}/{name}"
    encode(words, out, shard=shard)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr("sbert.vector_files.write.encode_windows", lambda *_: pytest.fail("encoded again"))
        assert encode(words, out, shard=shard and (np.int64(0), 2)).shape == (rows, 6)
        texts = [*TEXTS[:-1], "sea"]
        with pytest.raises(ValueError, match="was written from other texts; write elsewhere, or pass overwrite=True"):
            encode(words, out, Texts.of(texts, id=range(ROWS)) if name == "v.parquet" else texts, shard=shard)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times
    for path in tmp_path.rglob(f"*{Path(name).suffix}"):  # What the user has deleted is made again.
        path.unlink()
    assert encode(words, out, shard=shard).shape == (rows, 6)


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("ours", [True, False], ids=["changed", "without a manifest"])
def test_a_file_of_the_user_is_not_replaced(words: SentenceEncoder, tmp_path: Path, name: str, ours: bool) -> None:
    if ours:
        encode(words, tmp_path / name)
    (tmp_path / name).write_bytes(b"mine")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{name} (is missing or damaged|has no manifest, and may be yours)"):
        encode(words, tmp_path / name)
    assert contents(tmp_path) == before
    assert len(encode(words, tmp_path / name, overwrite=True)) == ROWS


def test_merge_replaces_no_other_file(words: SentenceEncoder, tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    for index in range(2):
        encode(words, out, shard=(index, 2))
    np.save(out, np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"v\.npy has no manifest, and may be yours; move it, or pass overwrite=True"):
        merge(out)
    encode(words, out, TEXTS[:9], overwrite=True)
    with pytest.raises(
        ValueError, match=r"v\.npy is not of the texts of these shards; move it, or pass overwrite=True"
    ):
        merge(out)
    assert np.load(out).shape == (9, 6)
    merge(out, overwrite=True)
    before = contents(tmp_path)
    merge(out)
    assert encode(words, out).shape == (ROWS, 6)  # It is what this call would write.
    assert contents(tmp_path) == before
    out.write_bytes(b"mine")
    with pytest.raises(ValueError, match="is missing or damaged"):
        merge(out)
    out.unlink()
    np.testing.assert_array_equal(np.load(merge(out)), words.encode(TEXTS))


def test_what_merge_refuses(words: SentenceEncoder, tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    with pytest.raises(FileNotFoundError, match="there are no shards"):
        merge(out)
    for index in (0, 2):
        encode(words, out, shard=(index, 3))
    with pytest.raises(FileNotFoundError, match=r"1 of 3 shards are missing or not finished: v-00001-of-00003\.npy"):
        merge(out)
    stop(words, out, 49, shard=(1, 3))
    encode(words, out, shard=(1, 3))
    whole = contents(tmp_path)
    assert "json" not in " ".join(whole)  # Else a later call would read a folder's manifests as texts.

    def flip(name: str) -> None:
        content = bytearray(whole[name])
        content[len(content) // 2] ^= 4
        (tmp_path / name).write_bytes(content)

    for change, message in (
        (lambda: encode(words, out, [*TEXTS, "sea"], shard=(1, 3), overwrite=True), "was written from other texts"),
        (lambda: encode(words, out, shard=(2, 3), overwrite=True, prompt="red "), "was written with prompt='red '"),
        *((partial(flip, name), "is damaged|missing or damaged") for name in whole),
        (lambda: shutil.copy(tmp_path / "v-00002-of-00003.npy", tmp_path / "v-00001-of-00003.npy"), "missing or dama"),
        (lambda: (tmp_path / "v-00001-of-00004.npy").touch(), "files of 3 shards and 4 shards"),
    ):
        change()
        with pytest.raises(ValueError, match=message):
            merge(out)
        assert not out.exists()
        for name, content in whole.items():
            (tmp_path / name).write_bytes(content)
