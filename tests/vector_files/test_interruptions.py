"""Calls of ``encode(out=)`` that are killed and made again, full disks, two writers, changed and damaged files."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Pooling, SentenceEncoder
from sbert.data import Texts
from sbert.modules import WordEmbeddings
from sbert.training.checkpoint import lock_output
from sbert.vector_files.manifest import read_manifest
from tests.children import in_child
from tests.vector_files.samples import ROWS, TEXTS, contents, encode, fill_disk, stop

RANGES = np.array([[-1.0], [1.0]], np.float32).repeat(6, 1)


def without_manifests(folder: Path) -> dict[str, bytes]:
    """Manifests that stay say how long it took."""
    return {name: content for name, content in contents(folder).items() if not name.endswith(".manifest")}


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Whether a process that does this was killed at its n-th change of the disk; else it came to its end."""

    def dying() -> None:
        left = [step]

        def before(function: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)

            return counted

        for name in ("fsync", "replace", "unlink", "ftruncate"):
            setattr(os, name, before(getattr(os, name)))
        work()

    _, ended = os.waitpid(in_child(dying), 0)
    assert ended in (0, signal.SIGKILL)
    return ended == signal.SIGKILL


@pytest.mark.slow  # A fork for each change of the disk: only all of them show that none is wrong.
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vectors.npy", {}),
        ("vectors.npy", {"precision": "int8", "ranges": RANGES, "shard": (1, 2)}),
        ("vectors.parquet", {"precision": "float16"}),
    ],
)
def test_killed_at_each_change_of_the_disk(
    words: SentenceEncoder, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """The file is the same to the last byte, and nothing else is left; of two full windows and a part of one."""
    folder, step = tmp_path / "killed", 0

    def make(folder: Path = folder) -> None:
        texts: Any = TEXTS[:35]
        texts = Texts.of(texts, id=range(35)) if name.endswith("parquet") else iter(texts)
        encode(words, f"{folder}/{name}", texts, **options)

    for each in ("whole", "killed"):
        (tmp_path / each).mkdir()
    make(tmp_path / "whole")
    expected = without_manifests(tmp_path / "whole")
    while killed_at(step, make):
        for _ in range(step % 2):
            killed_at(step // 2, make)
        make()
        assert without_manifests(folder) == expected, step
        for path in contents(folder):
            (folder / path).unlink()
        step += 1
    assert step > 8


def test_the_old_file_stands_until_the_new_one_is_complete(
    words: SentenceEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode(words, tmp_path / "v.npy", TEXTS[:3])
    stop(words, tmp_path / "v.npy", overwrite=True)
    with pytest.raises(TypeError, match=r"sentences\[40\] is of type int"):
        encode(words, tmp_path / "v.npy", [*TEXTS[:40], 3])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), words.encode(TEXTS[:3]))
    vectors = encode(words, tmp_path / "v.npy", list(TEXTS), show_progress_bar=True)
    np.testing.assert_array_equal(vectors, words.encode(TEXTS))
    shown = capsys.readouterr().err
    assert "83/83" in shown
    assert "32/83" in shown, "the bar goes on"


@pytest.mark.parametrize("address", ["s3://bucket/v.npy", "file:///v.npy", "https://host/v.parquet"])
def test_an_address_is_no_folder(
    words: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (lambda: encode(words, Path(address)), lambda: words.encode(TEXTS, out=address)):
        with pytest.raises(ValueError, match=r"is an address, not a path on this machine; pass .* Ray, Dask or Spark"):
            write()
    with pytest.raises(ValueError, match="is an address"):
        words.save(address)
    with pytest.raises(ValueError, match="output='s3://bucket/run' is an address"), lock_output("s3://bucket/run"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "float16"}, "was written with precision='float32', and this call has 'float16'"),
        ({"normalize_embeddings": True}, "was written with normalize=False"),
        ({"prompt": "red "}, "was written with prompt=''"),
        ({"model": torch.ones(3, 6)}, "was written with model="),
        ({"texts": ["sea", *TEXTS[1:]]}, r"from sentences\[0\] on, these are not the texts"),
        ({"texts": [*TEXTS[:31], "sea"]}, r"from sentences\[16\] on"),
        ({"texts": TEXTS[:20]}, r"from sentences\[16\] on"),
    ],
)
def test_another_call(words: SentenceEncoder, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    stop(words, tmp_path / "v.npy")
    before, vectors = contents(tmp_path), change.pop("model", words[0].embedding.weight.detach())
    model = SentenceEncoder(WordEmbeddings(["red", "fox", "sea"], vectors), Pooling(), device="cpu")
    with pytest.raises(ValueError, match=message) as error:
        encode(model, tmp_path / "v.npy", **change)
    assert "overwrite=True" in str(error.value)
    assert contents(tmp_path) == before
    np.testing.assert_array_equal(encode(words, tmp_path / "v.npy"), words.encode(TEXTS))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"v.npy ({message}|was written from other texts).*overwrite=True"):
        encode(model, tmp_path / "v.npy", **change)  # What is finished is not replaced either.
    assert contents(tmp_path) == before
    np.testing.assert_array_equal(
        encode(model, tmp_path / "v.npy", overwrite=True, **change), model.encode(change.pop("texts", TEXTS), **change)
    )


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_a_full_disk(words: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """At each of the moments at which something is written for good."""
    encode(words, tmp_path / f"whole-{name}")
    for room in count():
        with monkeypatch.context() as patch:
            fill_disk(patch, room)
            try:
                encode(words, tmp_path / name)
                break
            except OSError as error:
                assert "is full; what was encoded is kept: free some space" in str(error)
        encode(words, tmp_path / name)
        assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
        assert sorted(without_manifests(tmp_path)) == [name, f"whole-{name}"]
        (tmp_path / name).unlink()
    assert room > 10


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("way", ["truncate", "flip", "remove"])
def test_what_others_do_to_a_part_is_an_error(words: SentenceEncoder, tmp_path: Path, name: str, way: str) -> None:
    """While later ones are written; none of it becomes rows of zeros."""
    partial = tmp_path / f"{name}.partial"

    def texts() -> Iterator[str]:
        for row, text in enumerate(TEXTS):
            if row == 70:
                content = partial.read_bytes()
                if way == "truncate":
                    os.truncate(partial, len(content) // 2)
                elif way == "flip":
                    partial.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
                else:
                    partial.unlink()
            yield text

    source: Any = Texts.of(texts(), id=range(ROWS)) if name == "v.parquet" else texts()
    with pytest.raises(
        ValueError, match=rf"{name}\.partial (was changed|is damaged|is truncated|is missing).*overwrite="
    ):
        encode(words, tmp_path / name, source)
    assert not (tmp_path / name).exists()
    encode(words, tmp_path / name, overwrite=True)
    assert list(without_manifests(tmp_path)) == [name]


def test_two_writers(words: SentenceEncoder, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def waiting() -> Iterator[str]:
        yield from TEXTS[:40]
        begun.set()
        go_on.wait(20)
        yield from TEXTS[40:]

    first = threading.Thread(target=lambda: encode(words, tmp_path / "v.npy", waiting()))
    first.start()
    assert begun.wait(20)
    with pytest.raises(RuntimeError, match="is being written by another process; wait"):
        encode(words, tmp_path / "v.npy")
    go_on.set()
    first.join()
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), words.encode(TEXTS))


@pytest.mark.slow  # A pool of processes.
def test_a_failing_source_of_a_pool_loses_no_window(words: SentenceEncoder, tmp_path: Path) -> None:
    with words.pool(["cpu"]) as pool:
        stop(pool, tmp_path / "v.npy")
        assert read_manifest(tmp_path / "v.npy").rows == 32
        np.testing.assert_allclose(encode(pool, tmp_path / "v.npy"), words.encode(TEXTS), atol=1e-6)
