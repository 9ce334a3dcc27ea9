"""Ray Data: texts of Parquet files to vectors in Parquet files, on all machines of a Ray cluster.

``encode_files`` does all of it. Each actor loads the model once, and Ray restarts actors that die:

>>> from sbert.integrations.ray import encode_files
>>> encode_files(["corpus/"], "vectors/", "all-MiniLM-L6-v2", column="text", keep=["id"])  # doctest: +SKIP
['vectors/part-0.parquet', 'vectors/part-1.parquet']
>>> encode_files(["s3://corpus/"], "s3://vectors/", gpus_per_actor=1, cpus_per_actor=8)  # doctest: +SKIP

``Embed`` is for a pipeline of your own:

>>> import ray  # doctest: +SKIP
>>> rows = ray.data.read_parquet("corpus/", override_num_blocks=64)  # doctest: +SKIP
>>> rows = rows.map_batches(Embed, fn_constructor_args=["all-MiniLM-L6-v2"], batch_size=4096, concurrency=8,
...     num_gpus=1)  # doctest: +SKIP
>>> rows.write_parquet("vectors/")  # doctest: +SKIP

- Set ``override_num_blocks`` in ``read_parquet``: without it, small files become one block, and one actor does all.
- Keep ``batch_size`` at some thousands: texts are sorted by length within a batch.
- Ray does not keep the order of rows by itself, so carry an id column. The files of ``encode_files`` have the rows and
  the order of the files that they come from.
- The name or folder of the model must be there on each machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def encode_files(
    inputs: Sequence[str],
    output: str,
    model: str | None = None,
    *,
    column: str = "text",
    keep: Sequence[str] = (),
    actors: int | None = None,
    gpus_per_actor: float = 0,
    cpus_per_actor: float = 1,
    rows_per_file: int = 65_536,
    device: str | None = None,
    dtype: str = "auto",
    **encode_options: Any,
) -> list[str]:
    """Encode a column of Parquet files with Ray Data, to Parquet files with the column "vector".

    A file of the output has the rows and the order of one input file, or of some of its row groups. Files that are
    finished are skipped, so the same call continues one that was stopped.

    Args:
        inputs: Parquet files and folders of such: local ones that all machines see, or URIs such as ``s3://…``.
        output: Folder of the output, local or a URI.
        model: A folder or a name on the hub. Default: the model of the library.
        column: The column of texts.
        keep: Columns to copy to the output.
        actors: Number of processes with a model. Default: as many as the cluster has GPUs or CPUs for.
        gpus_per_actor: GPUs for each of them; 0 for the CPU.
        cpus_per_actor: CPUs for each of them, and its number of threads.
        rows_per_file: Rows from which an input file of several row groups is split.
        device: As in ``SentenceEncoder``. Default: the GPU of the actor, or the CPU.
        dtype: As in ``SentenceEncoder``.
        encode_options: Of ``SentenceEncoder.encode``, such as ``batch_size`` and ``precision``.

    Returns:
        The files of the output, in the order of the input.
    """
    raise NotImplementedError
