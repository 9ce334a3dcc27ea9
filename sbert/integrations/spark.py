"""Spark: a function for ``mapInPandas`` that adds a column of vectors.

>>> import pandas
>>> from sbert.integrations.spark import embed
>>> frames = [pandas.DataFrame({"id": [1, 2], "text": ["A cat sleeps.", "Taxes rise."]})]
>>> [len(frame["vector"][0]) for frame in embed(frames)]
[256]

>>> from functools import partial
>>> rows = spark.read.parquet("corpus/").select("id", "text")  # doctest: +SKIP
>>> function = partial(embed, model="all-MiniLM-L6-v2", device="cpu")
>>> rows.mapInPandas(function, "id long, text string, vector array<float>").write.parquet("vectors/")  # doctest: +SKIP

- Each Python worker loads the model once. Spark keeps workers from task to task (``spark.python.worker.reuse``).
- ``spark.task.cpus`` is the number of threads of a worker: Spark sets ``OMP_NUM_THREADS`` to it.
- 10,000 rows at once (``spark.sql.execution.arrow.maxRecordsPerBatch``) are sorted by length and encoded.
- A task that fails is done again, except in local mode, where the job ends. Spark keeps no order of rows: carry an id.
- Each machine must see the model under its name or folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sbert.integrations.loading import load_encoder_once


def embed(
    frames: Iterable[Any],
    model: str | None = None,
    *,
    column: str = "text",
    device: str | None = None,
    dtype: str = "auto",
    **encode_options: Any,
) -> Iterator[Any]:
    """Pandas frames with the column "vector", one array per row.

    Args:
        frames: The frames of a task.
        model: A folder or a name on the hub. Default: the model of the library.
        column: The column of texts.
        device: As in ``SentenceEncoder``.
        dtype: As in ``SentenceEncoder``.
        encode_options: Of ``SentenceEncoder.encode``.

    Raises:
        TypeError: If a text is not a str.
    """
    encoder = load_encoder_once(model, device=device, dtype=dtype)
    for frame in frames:
        yield frame.assign(vector=list(encoder.encode(frame[column], show_progress_bar=False, **encode_options)))
