"""Ray, and frames as Dask and Spark pass them: no row is lost or twice, and the vectors are those of ``encode``."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from sbert import SentenceEncoder
from sbert.integrations import loading
from sbert.integrations.frames import embed_frame, embed_frames
from sbert.integrations.ray import Embed

pytest.importorskip("pyarrow")

pytestmark = pytest.mark.filterwarnings("ignore")  # Of the engines.
TEXTS = [f"A cat sleeps on {number} mats." + " It purrs." * (number % 7) for number in range(90)]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return SentenceEncoder(device="cpu").encode(TEXTS)


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


def test_frames(expected: np.ndarray) -> None:
    """A partition without rows, as Dask makes it to know the types, has those of all others; the index stays."""
    frame = pandas.DataFrame({"id": range(90), "text": TEXTS}, index=range(100, 190))
    found = embed_frame(frame, device="cpu")
    assert list(found.index) == list(frame.index)
    check(found["id"], found["vector"], expected)
    assert embed_frame(frame[:0], device="cpu").dtypes.equals(found.dtypes)
    parts = list(embed_frames([frame[:40], frame[40:]], device="cpu"))
    assert [len(part) for part in parts] == [40, 50]
    check(range(90), [vector for part in parts for vector in part["vector"]], expected)


def note_process(folder: Path) -> None:
    """A file for each process; the first one is killed."""
    (folder / str(os.getpid())).touch()
    if len(list(folder.iterdir())) == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow  # Ray starts its servers.
def test_ray_with_an_actor_killed(tmp_path: Path, expected: np.ndarray) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")

    class Killed(Embed):
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            note_process(tmp_path)
            return super().__call__(batch)

    with ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False):
        rows = ray.data.from_items([{"id": number, "text": text} for number, text in enumerate(TEXTS)])
        found = rows.map_batches(Killed, batch_size=40, compute=ray.data.ActorPoolStrategy(size=1)).to_pandas()
    check(found["id"], found["vector"], expected)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow  # Dask starts a process, and another one.
def test_dask_with_a_worker_killed(tmp_path: Path, expected: np.ndarray) -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    distributed = pytest.importorskip("distributed")

    def embed(frame: Any) -> Any:
        note_process(tmp_path)
        added = embed_frame(frame, device="cpu")
        assert loading._load_once.cache_info().misses == 1
        return added

    rows = dataframe.from_pandas(pandas.DataFrame({"id": range(90), "text": TEXTS}), npartitions=6)
    with distributed.Client(n_workers=1, threads_per_worker=2, dashboard_address=None):
        found = rows.map_partitions(embed, meta=embed_frame(rows._meta, device="cpu")).compute()
    check(found["id"], found["vector"], expected)
    assert len(list(tmp_path.iterdir())) == 2
