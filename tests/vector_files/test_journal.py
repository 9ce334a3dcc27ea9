"""Long calls of ``encode(out=)``: killed anywhere and made again, full disks, two writers, damaged journals."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Pooling, SentenceEncoder
from sbert.data import Texts
from sbert.modules import WordEmbeddings
from sbert.pipeline.encode import Encoding
from sbert.vector_files import stream, writing
from sbert.vector_files.files import VectorFiles
from sbert.vector_files.shards import status

STRIPE, ROWS = 8, 83
TEXTS = [" ".join(random.Random(row).choices(["red", "fox", "sea"], k=1 + row % 5)) + " red" for row in range(ROWS)]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STRIPE", STRIPE)
    monkeypatch.setattr(writing, "_WINDOW", 2 * STRIPE)
    monkeypatch.setattr(writing, "_FILE_ROWS", 4 * STRIPE)


@pytest.fixture(scope="module")
def words() -> SentenceEncoder:
    vectors = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    return SentenceEncoder(WordEmbeddings(["red", "fox", "sea"], vectors), Pooling(), device="cpu")


def encode(model: SentenceEncoder, out: Path | str, texts: Any = None, **options: Any) -> Any:
    if texts is None:
        texts = Texts.of(TEXTS, id=range(ROWS)) if str(out).endswith(".parquet") else iter(TEXTS)
    return model.encode(texts, out=out, on_truncate="ignore", **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def in_child(work: Callable[[], object]) -> int:
    """The id of a forked process that does this; it ends with 0 if that went well."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(130)
        finally:
            os._exit(1)
    return child


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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vectors.npy", {}),
        ("vectors.npy", {"precision": "ubinary", "shard": (1, 3)}),
        ("vectors.parquet", {"precision": "float16"}),
        ("folder/", {"texts": TEXTS[:40]}),
    ],
)
def test_killed_at_each_change_of_the_disk(
    words: SentenceEncoder, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """The file is the same to the last byte, and nothing else is left."""
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    encode(words, f"{tmp_path}/whole/{name}", **options)
    expected = contents(tmp_path / "whole")
    folder, step = tmp_path / "killed", 0
    while killed_at(step, lambda: encode(words, f"{folder}/{name}", **options)):
        for _ in range(step % 2):
            killed_at(step // 2, lambda: encode(words, f"{folder}/{name}", **options))
        encode(words, f"{folder}/{name}", **options)
        assert contents(folder) == expected, step
        for path in contents(folder):
            (folder / path).unlink()
        step += 1
    assert step > 8


def test_killed_at_random_moments(words: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No window is encoded more than twice, but for those in work at a kill."""
    log = tmp_path / "log"
    computed = Encoding.vectors

    def logged(self: Encoding, texts: list[str], report: Any, *more: Any) -> Any:
        with log.open("a") as file:
            file.write(f"{len(texts)}\n")
        time.sleep(0.01)
        return computed(self, texts, report, *more)

    expected = np.asarray(encode(words, tmp_path / "whole.npy"))
    monkeypatch.setattr(Encoding, "vectors", logged)
    chance, kills = random.Random(1), 0
    while True:
        child = in_child(lambda: encode(words, tmp_path / "vectors.npy"))
        time.sleep(chance.uniform(0.02, 0.1))
        os.kill(child, chance.choice([signal.SIGKILL, signal.SIGINT]))
        if not os.waitpid(child, 0)[1]:
            break
        kills += 1
        assert kills < 200
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), expected)
    assert sum(map(int, log.read_text().split())) <= ROWS + (kills + 1) * 2 * 2 * STRIPE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "vectors.npy", "whole.npy"]


def test_an_interrupt_leaves_a_journal(words: SentenceEncoder, tmp_path: Path) -> None:
    def interrupted() -> Iterator[str]:
        yield from TEXTS[:40]
        raise KeyboardInterrupt
        yield from TEXTS[40:]

    with pytest.raises(KeyboardInterrupt):
        encode(words, tmp_path / "v.npy", interrupted())
    (part,) = status(tmp_path / "v.npy")
    assert (part.state, part.rows) == ("stopped", 32)
    encode(words, tmp_path / "v.npy")
    assert [(part.state, part.rows) for part in status(tmp_path / "v.npy")] == [("done", ROWS)]


def stopped(words: SentenceEncoder, path: Path, after: int = 40, **options: Any) -> None:
    """Leave a journal of the windows before a text."""

    def failing() -> Iterator[str]:
        yield from TEXTS[:after]
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        encode(words, path, failing(), **options)


def test_the_old_file_stands_until_the_new_one_is_complete(words: SentenceEncoder, tmp_path: Path) -> None:
    encode(words, tmp_path / "v.npy", TEXTS[:3])
    stopped(words, tmp_path / "v.npy")
    with pytest.raises(TypeError, match=r"sentences\[40\] is of type int"):
        encode(words, tmp_path / "v.npy", [*TEXTS[:40], 3])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), words.encode(TEXTS[:3]))
    np.testing.assert_array_equal(encode(words, tmp_path / "v.npy"), words.encode(TEXTS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "float16"}, "was written with precision='float32', and this call has 'float16'"),
        ({"normalize_embeddings": True}, "was written with normalize=False"),
        ({"prompt": "red "}, "was written with prompt=''"),
        ({"texts": ["sea", *TEXTS[1:]]}, r"from sentences\[0\] on, these are not the texts"),
        ({"texts": [*TEXTS[:31], "sea"]}, r"from sentences\[16\] on"),
        ({"texts": TEXTS[:20]}, r"from sentences\[16\] on"),
    ],
)
def test_another_call(words: SentenceEncoder, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    stopped(words, tmp_path / "v.npy")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        encode(words, tmp_path / "v.npy", **change)
    assert "resume=False" in str(error.value)
    assert contents(tmp_path) == before
    found = encode(words, tmp_path / "v.npy", resume=False, **change)
    np.testing.assert_array_equal(found, words.encode(change.pop("texts", TEXTS), **change))


def test_another_model(words: SentenceEncoder, tmp_path: Path) -> None:
    stopped(words, tmp_path / "v.npy")
    other = SentenceEncoder(WordEmbeddings(["red", "fox", "sea"], torch.ones(3, 6)), Pooling(), device="cpu")
    with pytest.raises(ValueError, match="was written with model="):
        encode(other, tmp_path / "v.npy")
    same = SentenceEncoder(
        WordEmbeddings(["red", "fox", "sea"], words[0].embedding.weight.detach()), Pooling(), device="cpu"
    )
    np.testing.assert_array_equal(encode(same, tmp_path / "v.npy"), words.encode(TEXTS))


def test_damage(words: SentenceEncoder, tmp_path: Path) -> None:
    """A journal or a partial file that was changed or cut: an error, or what was lost is encoded again."""
    path, chance = tmp_path / "v.npy", random.Random(2)
    stopped(words, path)
    whole, expected = contents(tmp_path), words.encode(TEXTS)
    refused = 0
    for _ in range(120):
        name = chance.choice(sorted(whole))
        damaged = bytearray(whole[name])
        place = chance.randrange(len(damaged))
        if chance.random() < 0.5:
            damaged[place] ^= 1 << chance.randrange(8)
        else:
            del damaged[place:]
        (tmp_path / name).write_bytes(damaged)
        try:
            np.testing.assert_array_equal(encode(words, path), expected)
            path.unlink()
        except ValueError as error:
            assert "resume=False" in str(error)
            assert (tmp_path / name).read_bytes() == damaged
            refused += 1
        for other, content in whole.items():
            (tmp_path / other).write_bytes(content)
    assert refused > 60
    (tmp_path / "v.npy.partial").unlink()
    with pytest.raises(ValueError, match="partial is missing"):
        encode(words, path)
    (tmp_path / "v.npy.partial").write_bytes(whole["v.npy.partial"])
    (tmp_path / "v.npy.journal").unlink()
    with pytest.raises(ValueError, match="has no journal"):
        encode(words, path)
    assert contents(tmp_path) == {"v.npy.partial": whole["v.npy.partial"]}


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_a_full_disk(words: SentenceEncoder, tmp_path: Path, name: str) -> None:
    texts = [*TEXTS * 40, "sea"]
    rows = Texts.of(texts, id=range(len(texts)))
    whole = np.asarray(encode(words, tmp_path / "whole.npy", texts))
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        for room in (64, 88, 400):
            subprocess.run([*mount[:4], f"remount,size={room}k", *mount[5:]], check=True, capture_output=True)
            if room == 400:
                break
            with pytest.raises(OSError, match="is full; what was encoded is kept: free some space") as error:
                encode(words, small / name, rows if name == "v.parquet" else texts)
            assert error.value.errno == 28
        assert status(small / name)[0].rows > 0
        found = encode(words, small / name, rows if name == "v.parquet" else texts)
        np.testing.assert_array_equal(np.asarray(found), whole)
        assert os.listdir(small) == [name]
        del found
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_parquet_file_that_was_lost_is_written_again(
    words: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was killed when all was joined, before the journal was deleted; then the output was damaged."""
    path = tmp_path / "v.parquet"

    def remove(journal: Any) -> None:
        journal.partial.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sbert.vector_files.journal.Journal.remove", remove)
        with pytest.raises(KeyboardInterrupt):
            encode(words, path)
    path.write_bytes(path.read_bytes()[:99])
    np.testing.assert_array_equal(np.asarray(encode(words, path)), words.encode(TEXTS))
    assert os.listdir(tmp_path) == ["v.parquet"]


def test_a_failing_source_of_a_pool_loses_no_window(words: SentenceEncoder, tmp_path: Path) -> None:
    with words.pool(["cpu"]) as pool:
        stopped(pool, tmp_path / "v.npy")
        assert status(tmp_path / "v.npy")[0].rows == 32
        np.testing.assert_allclose(encode(pool, tmp_path / "v.npy"), words.encode(TEXTS), atol=1e-6)


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
    assert status(tmp_path / "v.npy")[0].state == "running"
    go_on.set()
    first.join()
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), words.encode(TEXTS))


def test_parquet(words: SentenceEncoder, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    numbers = [None] * 40 + [row / 2 for row in range(43)]
    found = encode(words, tmp_path / "v.parquet", Texts.of(TEXTS, text=TEXTS, number=numbers))
    assert isinstance(found, VectorFiles)
    assert (found.shape, found.dtype, len(found)) == ((ROWS, 6), np.float32, ROWS)
    np.testing.assert_array_equal(np.asarray(found), words.encode(TEXTS))
    table = parquet.read_table(tmp_path / "v.parquet")
    assert (table["text"].to_pylist(), table["number"].to_pylist()) == (TEXTS, numbers)
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), words.encode(TEXTS))
    with pytest.raises(ValueError, match="the column 'number' do not fit one type"):
        encode(words, tmp_path / "w.parquet", Texts.of(TEXTS, number=["a"] * 40 + [1] * 43))
    with pytest.raises(ValueError, match="has no room for the columns number"):
        encode(words, tmp_path / "v.npy", Texts.of(TEXTS, number=numbers))
    with pytest.raises(ValueError, match="'vector' is that of the vectors"):
        encode(words, tmp_path / "v.parquet", Texts.of(TEXTS, vector=numbers))


def test_very_long_texts_end_windows(words: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_PIECE_CHARACTERS", 40)
    monkeypatch.setattr(stream, "_WINDOW_CHARACTERS", 60)
    sizes = [len(window.texts) for window in stream.Reader(stream.rows_with_columns(TEXTS), 16).windows()]
    assert sum(sizes) == ROWS
    assert max(sizes) < 12
    for index in range(3):
        encode(words, tmp_path / "v.npy", shard=(index, 3))
    from sbert.vector_files.shards import merge

    np.testing.assert_array_equal(np.load(merge(tmp_path / "v.npy")), words.encode(TEXTS))


def test_the_bar_goes_on(words: SentenceEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(words, tmp_path / "v.npy")
    encode(words, tmp_path / "v.npy", list(TEXTS), show_progress_bar=True)
    shown = capsys.readouterr().err
    assert f"{ROWS}/{ROWS}" in shown
    assert "32/83" in shown


def test_the_hash_of_a_model_is_the_same_in_each_process_and_another_for_another_model() -> None:
    """Of the library's model, whose folder has no pooler: that is random in each process."""
    from sbert.vector_files.fingerprint import digest_of_model

    program = (
        "from sbert import SentenceEncoder; from sbert.vector_files.fingerprint import digest_of_model;"
        " print(digest_of_model(SentenceEncoder(device='cpu')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    model = SentenceEncoder(device="cpu")
    before = digest_of_model(model)
    assert done.stdout.strip() == before
    with torch.no_grad():
        model[0].network.embeddings.word_embeddings.weight[7, 7] += 1e-3
    assert digest_of_model(model) != before
    model = SentenceEncoder(device="cpu")
    model.max_seq_length = 64
    assert digest_of_model(model) != before
