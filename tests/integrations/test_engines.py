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
from sbert.integrations.ray import Embed, _EncodeFiles, encode_files

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


@pytest.mark.slow  # Engines of other libraries start.
def test_a_file(corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    out, source = tmp_path / "out", str(corpus / "part-1.parquet")
    _EncodeFiles(device="cpu").write(source, str(out / "part.parquet"), ["id"])
    target = out / "part-00000-of-00001.parquet"
    found, before = pq.read_table(target), target.stat().st_mtime_ns
    assert found["id"].to_pylist() == list(range(30, 60))
    np.testing.assert_allclose(found["vector"].to_pylist(), expected[30:60], atol=1e-6)
    _EncodeFiles(device="cpu").write(source, str(out / "part.parquet"), ["id"])
    for other, message in (({"truncate_dim": 8}, "truncate_dim=None"), ({"dtype": "bfloat16"}, "model=")):
        with pytest.raises(ValueError, match=f"was written with {message}"):
            _EncodeFiles(device="cpu", **other).write(source, str(out / "part.parquet"), ["id"])
    with pytest.raises(ValueError, match="was written from other texts"):
        _EncodeFiles(device="cpu").write(str(corpus / "part-0.parquet"), str(out / "part.parquet"), ["id"])
    assert sorted(os.listdir(out)) == [target.name, f"{target.name}.manifest"]
    assert target.stat().st_mtime_ns == before


@pytest.fixture(scope="module")
def ray() -> Any:
    found = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    found.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    yield found
    found.shutdown()


@pytest.mark.slow  # Ray starts its servers.
def test_ray_files(ray: Any, corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    call = partial(encode_files, [str(corpus)], str(tmp_path / "out"), keep=["id"], actors=2)
    (corpus / ".hidden.parquet").write_bytes(b"of another program")
    files = call()
    assert [Path(file).name for file in files] == [f"part-{number}-00000-of-00001.parquet" for number in range(3)]
    found = pa.concat_tables([pq.read_table(file) for file in files])
    assert found["id"].to_pylist() == list(range(90))
    assert found.schema.field("vector").type == pa.list_(pa.float32(), 256)
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)

    before = [os.stat(file).st_mtime_ns for file in files]
    os.unlink(files[1])
    os.unlink(f"{files[1]}.manifest")
    assert call() == files
    after = [os.stat(file).st_mtime_ns for file in files]
    assert [row for row in range(3) if after[row] != before[row]] == [1]
    with pytest.raises(ValueError, match=r"was written with truncate_dim=None"):
        call(truncate_dim=8)
    pq.write_table(pa.table({"id": [1], "text": pa.array([None], pa.string())}), corpus / "part-3.parquet")
    with pytest.raises(ValueError, match=r"part-3.parquet, row 1: null where a text is expected"):
        call()


@pytest.mark.slow  # Ray starts its servers, and an actor anew.
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
        killed.append(processes("ray::_EncodeFiles")[0])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    files = encode_files([str(corpus)], str(tmp_path / "out"), keep=["id"], actors=1)
    thread.join()
    found = pa.concat_tables([pq.read_table(file) for file in files])
    assert len(killed) == 1
    assert found["id"].to_pylist() == list(range(90))
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)


def test_ray_inputs(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty"):
        with pytest.raises(FileNotFoundError, match=rf"{name} does not exist or contains no \.parquet file"):
            encode_files([str(tmp_path / name)], str(tmp_path / "out"))
    with pytest.raises(ValueError, match="two files of inputs have the same name"):
        encode_files([str(corpus), str(corpus / "part-0.parquet")], str(tmp_path / "out"))
    with pytest.raises(ValueError, match=r"s3://out is a URI; pass local or shared folders, or use Embed"):
        encode_files([str(corpus)], "s3://out")


@pytest.mark.slow  # Dask starts its workers.
def test_dask(corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    distributed = pytest.importorskip("distributed")
    frames = pytest.importorskip("dask.dataframe")
    from sbert.integrations.frames import embed_frame

    frame = frames.read_parquet(corpus)
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        meta = embed_frame(frame._meta, device="cpu")
        frame.map_partitions(embed_frame, device="cpu", meta=meta).to_parquet(tmp_path / "out")
        assert len(client.scheduler_info()["workers"]) == 2
    found = pq.read_table(tmp_path / "out")
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)


@pytest.mark.slow  # Spark starts a JVM.
def test_spark(corpus: Path, tmp_path: Path, expected: np.ndarray) -> None:
    sql = pytest.importorskip("pyspark.sql")
    from sbert.integrations.frames import embed_frames

    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = session.read.parquet(str(corpus))
        function = partial(embed_frames, device="cpu")
        rows.mapInPandas(function, "id long, text string, vector array<float>").write.parquet(str(tmp_path / "out"))
    finally:
        session.stop()
    found = pq.read_table(tmp_path / "out")
    check(found["id"].to_pylist(), found["vector"].to_pylist(), expected)
