"""Ray, and frames as Dask and Spark pass them: no row is lost or twice, and the vectors are those of ``encode``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from sbert import SentenceEncoder
from sbert.integrations.frames import embed_frame, embed_frames
from sbert.integrations.ray import Embed

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

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


@pytest.mark.slow  # Ray starts its servers.
def test_ray(tmp_path: Path, expected: np.ndarray) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    pq.write_table(pa.table({"id": range(90), "text": TEXTS}), tmp_path / "corpus.parquet")
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    try:
        rows = ray.data.read_parquet(str(tmp_path)).map_batches(
            Embed, fn_constructor_kwargs={"device": "cpu"}, batch_size=40, concurrency=1
        )
        found = rows.to_pandas()
    finally:
        ray.shutdown()
    check(found["id"], found["vector"], expected)
