"""Dask: a function for ``map_partitions`` that adds a column of vectors.

>>> import pandas
>>> from sbert.integrations.dask import embed
>>> frame = pandas.DataFrame({"id": [1, 2], "text": ["A cat sleeps.", "Taxes rise."]})
>>> embed(frame)["vector"].dtype.pyarrow_dtype.list_size  # lists of fixed size in Parquet
256

On a cluster, with one process for each GPU or core, and one thread in each:

>>> import dask.dataframe  # doctest: +SKIP
>>> from distributed import Client  # doctest: +SKIP
>>> client = Client(n_workers=8, threads_per_worker=1)  # or the address of a scheduler  # doctest: +SKIP
>>> frame = dask.dataframe.read_parquet("corpus/", columns=["id", "text"])  # doctest: +SKIP
>>> vectors = frame.map_partitions(embed, "all-MiniLM-L6-v2", device="cpu", meta=embed(frame._meta))  # doctest: +SKIP
>>> vectors.to_parquet("vectors/")  # doctest: +SKIP

- Each worker process loads the model once, and its threads share it. Dask sets ``OMP_NUM_THREADS=1`` in its workers.
- A partition is encoded at once: some thousands of texts at least (``frame.repartition``), sorted by length.
- Rows keep their order and their index. A partition whose worker dies is done again.
- Each machine must see the model under its name or folder.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sbert.integrations.loading import load_encoder_once


def embed(
    frame: Any,
    model: str | None = None,
    *,
    column: str = "text",
    device: str | None = None,
    dtype: str = "auto",
    **encode_options: Any,
) -> Any:
    """A partition, a pandas frame, with the column "vector": lists of fixed size.

    Args:
        frame: The partition.
        model: A folder or a name on the hub. Default: the model of the library.
        column: The column of texts.
        device: As in ``SentenceEncoder``.
        dtype: As in ``SentenceEncoder``.
        encode_options: Of ``SentenceEncoder.encode``.

    Raises:
        TypeError: If a text is not a str.
    """
    from pyarrow import FixedSizeListArray, array

    encoder = load_encoder_once(model, device=device, dtype=dtype)
    vectors = encoder.encode(frame[column], show_progress_bar=False, **encode_options)
    listed = FixedSizeListArray.from_arrays(array(vectors.reshape(-1)), vectors.shape[1])
    return frame.assign(vector=import_module("pandas").arrays.ArrowExtensionArray(listed))
