"""Ray, Dask and Spark, where they are installed: no row is lost or twice, and the vectors are those of ``encode``."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.integrations.ray import Embed, _check_others, _EncodeFiles, _parts, encode_files

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.filterwarnings("ignore")  # Of the engines.
TEXTS = [f"A cat sleeps on {number} mats." + " It purrs." * (number % 7) for number in range(90)]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return SentenceEncoder(device="cpu").encode(TEXTS)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files of 30 rows in row groups of 10."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(3):
        rows = range(number * 30, number * 30 + 30)
        table = pa.table({"id": rows, "text": [TEXTS[row] for row in rows]})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=10)
    return folder


def check(ids: Any, vectors: Any, expected: np.ndarray) -> None:
    assert sorted(ids) == list(range(len(TEXTS)))
    assert np.abs(np.stack([np.asarray(vector) for vector in vectors]) - expected[list(ids)]).max() < 1e-6


def test_a_class_for_map_batches(expected: np.ndarray) -> None:
    embed = Embed(device="cpu", column="words", vectors="of", normalize_embeddings=True)
    batch = embed({"words": np.array(TEXTS, object), "id": np.arange(90)})
    assert list(batch) == ["words", "id", "of"]
    check(batch["id"], batch["of"], expected)
    with pytest.raises(TypeError, match=r"words\[1\] is of type float"):
        embed({"words": np.array(["a", float("nan")], object)})


def encode_part(corpus: Path, target: Path, groups: list[int], **options: Any) -> str:
    """The error of one part, as an actor of Ray gives it."""
    actor = _EncodeFiles(**{"keep": ["id"], "device": "cpu", **options})
    batch = {"source": [str(corpus / "part-1.parquet")], "groups": [groups], "target": [str(target)]}
    return str(actor(batch)["error"][0])


def test_a_part(corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    target = tmp_path / "out" / "part.parquet"
    assert not encode_part(corpus, target, [1, 2])
    found, before = pq.read_table(target), target.stat().st_mtime_ns
    assert found["id"].to_pylist() == list(range(40, 60))
    np.testing.assert_allclose(found["vector"].to_pylist(), expected[40:60], atol=1e-6)
    assert not encode_part(corpus, target, [1, 2])
    for other, name in (
        ({"truncate_dim": 8}, "options"),
        ({"dtype": "bfloat16"}, "model, dtype"),
        ({"keep": []}, "keep, texts"),
        ({"column": "id", "keep": ["text"]}, "column, keep, texts"),
    ):
        message = f"{target} was written with other {name}; delete it, or name another output"
        assert encode_part(corpus, target, [1, 2], **other) == message
    assert "was written with other texts; delete it" in encode_part(corpus, target, [0])
    assert os.listdir(target.parent) == [target.name]
    assert target.stat().st_mtime_ns == before
    whole = target.read_bytes()
    for damaged in (whole[:-9], whole[:-800] + bytes(792) + whole[-8:], b""):
        target.write_bytes(damaged)
        assert encode_part(corpus, target, [1, 2]).startswith(f"{target} is damaged or not a Parquet file (")


def test_attempts_of_a_part_do_not_meet(corpus: Path, tmp_path: Path) -> None:
    """A second attempt begins and ends while the first one encodes, then the first one fails."""
    target, first = tmp_path / "part.parquet", _EncodeFiles(keep=["id"], device="cpu")
    encode = first.encode

    def slow(texts: Any, name: str) -> Any:
        if len(texts):
            assert not encode_part(corpus, target, [0, 1, 2])
            raise ValueError("no memory")
        return encode(texts, name)

    first.encode = slow  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no memory"):
        first.write(str(corpus / "part-1.parquet"), [0, 1, 2], str(target))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["part.parquet"]
    assert pq.read_table(target)["id"].to_pylist() == list(range(30, 60))


def test_files_of_another_split(corpus: Path, tmp_path: Path) -> None:
    """They would be left, and rows would be twice in the folder."""
    output = str(tmp_path / "out")
    splits = [[part["target"] for part in _parts(str(corpus), output, rows)] for rows in (30, 20, 10)]
    assert list(map(len, splits)) == [3, 6, 9]
    for targets in splits:
        _check_others(output, targets)  # The folder does not exist.
    (tmp_path / "out").mkdir()
    for name in ("of-another-input.parquet", ".part-0.parquet.partial", "part-2.txt"):
        (tmp_path / "out" / name).touch()
    for targets in splits:
        for other in splits:
            Path(targets[-1]).touch()
            if targets[-1] in other:
                _check_others(output, other)
            else:
                with pytest.raises(ValueError, match=r"out contains part-2.*\.parquet, .* another rows_per_file"):
                    _check_others(output, other)
            Path(targets[-1]).unlink()


@pytest.fixture(scope="module")
def ray() -> Any:
    found = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    found.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    yield found
    found.shutdown()


@pytest.mark.slow
def test_ray_files(ray: Any, corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    call = partial(encode_files, [str(corpus)], str(tmp_path / "out"), keep=["id"], rows_per_file=20, actors=2)
    (corpus / ".hidden.parquet").write_bytes(b"of another program")
    files = call()
    assert [Path(file).name for file in files] == [
        f"part-{number}-{group:05}.parquet" for number in range(3) for group in (0, 2)
    ]
    found = pa.concat_tables([pq.read_table(file) for file in files])
    assert found["id"].to_pylist() == list(range(90))
    assert found.schema.field("vector").type == pa.list_(pa.float32(), 256)
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)

    before = [os.stat(file).st_mtime_ns for file in files]
    os.unlink(files[3])
    assert call() == files
    after = [os.stat(file).st_mtime_ns for file in files]
    assert [row for row in range(6) if after[row] != before[row]] == [3]
    with pytest.raises(ValueError, match=r"parquet was written with other options; delete it"):
        call(truncate_dim=8)
    with pytest.raises(ValueError, match=r"out contains part-\d-0000\d\.parquet, .* another rows_per_file"):
        call(rows_per_file=30)
    pq.write_table(pa.table({"id": [1], "text": pa.array([None], pa.string())}), corpus / "part-3.parquet")
    with pytest.raises(ValueError, match=r"part-3.parquet, row group 0, rows from 0: text\[0\] is of type NoneType"):
        call()


@pytest.mark.slow
def test_ray_with_an_actor_killed(ray: Any, corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    import psutil

    def processes(word: str) -> list[int]:
        """Those of ours that have a word in their command line and no processes of their own."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if word in " ".join(process.cmdline()) and not process.children():
                    found.append(process.pid)
        return found

    killed = []

    def kill() -> None:
        while not list((tmp_path / "out").glob("*")):
            time.sleep(0.01)
        killed.append(processes("ray::MapWorker")[0])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    files = encode_files([str(corpus)], str(tmp_path / "out"), keep=["id"], rows_per_file=1, actors=1)
    thread.join()
    found = pa.concat_tables([pq.read_table(file) for file in files])
    assert len(killed) == 1
    assert found["id"].to_pylist() == list(range(90))
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)


def test_ray_inputs(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray.data")
    with pytest.raises(FileNotFoundError, match=r"none does not exist; name a Parquet file or a folder of such"):
        encode_files([str(tmp_path / "none")], str(tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"contains no \.parquet file"):
        encode_files([str(tmp_path / "empty")], str(tmp_path / "out"))
    with pytest.raises(ValueError, match=r"two files of the input would be written to .*out/part-0\.parquet"):
        encode_files([str(corpus), str(corpus / "part-0.parquet")], str(tmp_path / "out"))


@pytest.mark.slow
def test_dask(corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    distributed = pytest.importorskip("distributed")
    frames = pytest.importorskip("dask.dataframe")
    from sbert.integrations.dask import embed

    frame = frames.read_parquet(corpus)
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        frame.map_partitions(embed, device="cpu", meta=embed(frame._meta, device="cpu")).to_parquet(tmp_path / "out")
        assert len(client.scheduler_info()["workers"]) == 2
    found = pq.read_table(tmp_path / "out")
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)


@pytest.mark.slow
def test_spark(corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    sql = pytest.importorskip("pyspark.sql")
    from sbert.integrations.spark import embed

    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = session.read.parquet(str(corpus))
        function = partial(embed, device="cpu")
        rows.mapInPandas(function, "id long, text string, vector array<float>").write.parquet(str(tmp_path / "out"))
    finally:
        session.stop()
    found = pq.read_table(tmp_path / "out")
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)
