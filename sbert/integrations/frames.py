"""Dask and Spark: functions that add a column of vectors to pandas frames.

>>> import pandas
>>> from sbert.integrations.frames import embed_frame, embed_frames
>>> frame = pandas.DataFrame({"id": [1, 2], "text": ["A cat sleeps.", "Taxes rise."]})
>>> embed_frame(frame)["vector"].dtype.pyarrow_dtype.list_size  # Dask: lists of fixed size in Parquet
256
>>> [len(added["vector"][0]) for added in embed_frames([frame])]  # Spark: one array per row
[256]

A Dask cluster, with one process for each GPU or core, and one thread in each:

>>> import dask.dataframe  # doctest: +SKIP
>>> from distributed import Client  # doctest: +SKIP
>>> client = Client(n_workers=8, threads_per_worker=1)  # or the address of a scheduler  # doctest: +SKIP
>>> rows = dask.dataframe.read_parquet("corpus/", columns=["id", "text"])  # doctest: +SKIP
>>> meta = embed_frame(rows._meta)  # doctest: +SKIP
>>> vectors = rows.map_partitions(embed_frame, "all-MiniLM-L6-v2", device="cpu", meta=meta)  # doctest: +SKIP
>>> vectors.to_parquet("vectors/")  # doctest: +SKIP

Spark:

>>> from functools import partial
>>> rows = spark.read.parquet("corpus/").select("id", "text")  # doctest: +SKIP
>>> function = partial(embed_frames, model="all-MiniLM-L6-v2", device="cpu")
>>> rows.mapInPandas(function, "id long, text string, vector array<float>").write.parquet("vectors/")  # doctest: +SKIP

- Each worker process loads the model once, and its threads share it. Each machine must see the model under its name or
  folder.
- The texts of a frame are sorted by length and encoded in one call: some thousands at least. For Dask, see
  ``frame.repartition``; Spark's frames have ``spark.sql.execution.arrow.maxRecordsPerBatch`` rows, 10,000.
- Dask keeps the order of rows and their index; Spark does not, so carry an id. What a worker that dies was doing is
  repeated, except in Spark's local mode.
- Dask sets ``OMP_NUM_THREADS=1`` in its workers, Spark sets it to ``spark.task.cpus``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from sbert.integrations.loading import load_encoder_once


def embed_frame(frame: Any, model: str | None = None, **options: Any) -> Any:
    """A pandas frame with the column "vector", lists of fixed size, for Dask's ``map_partitions``.

    Args:
        frame: The partition.
        model: A folder or a name on the hub. Default: the bundled model.
        options: ``column``, that of the texts ("text"); ``device`` and ``dtype`` of ``SentenceEncoder``; and those of
            ``SentenceEncoder.encode``.

    Raises:
        TypeError: If a text is not a str.
    """
    from pyarrow import FixedSizeListArray, array

    vectors = _encode(frame, model, **options)
    lists = FixedSizeListArray.from_arrays(array(vectors.reshape(-1)), vectors.shape[1])
    return frame.assign(vector=import_module("pandas").arrays.ArrowExtensionArray(lists))


def embed_frames(frames: Iterable[Any], model: str | None = None, **options: Any) -> Iterator[Any]:
    """Pandas frames with the column "vector", one array per row, for Spark's ``mapInPandas``.

    Args:
        frames: The frames of a task.
        model: A folder or a name on the hub. Default: the bundled model.
        options: As in ``embed_frame``.

    Raises:
        TypeError: If a text is not a str.
    """
    for frame in frames:
        yield frame.assign(vector=list(_encode(frame, model, **options)))


def _encode(
    frame: Any, model: str | None, column: str = "text", device: str | None = None, dtype: str = "auto", **options: Any
) -> Any:
    """The vectors of a frame's texts. Shape: (rows, dim)."""
    encoder = load_encoder_once(model, device=device, dtype=dtype)
    return encoder.encode(frame[column], show_progress_bar=False, **options)
