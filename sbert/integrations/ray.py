"""Ray Data: texts of Parquet files to vectors in Parquet files, on all machines of a Ray cluster.

``encode_files`` does all of it. Each actor loads the model once; Ray restarts actors that die, and repeats their file:

>>> from sbert.integrations.ray import Embed, encode_files
>>> encode_files(["corpus/"], "vectors/", "all-MiniLM-L6-v2", column="text", keep=["id"])  # doctest: +SKIP
['/data/vectors/part-0-00000-of-00001.parquet', '/data/vectors/part-1-00000-of-00001.parquet']
>>> encode_files(["corpus/"], "vectors/", gpus_per_actor=1, cpus_per_actor=8)  # doctest: +SKIP

``Embed`` is for a pipeline of your own, and for files that are not in a folder, such as ``s3://corpus/``:

>>> import ray  # doctest: +SKIP
>>> rows = ray.data.read_parquet("s3://corpus/", override_num_blocks=64)  # doctest: +SKIP
>>> rows = rows.map_batches(  # doctest: +SKIP
...     Embed, fn_constructor_args=["all-MiniLM-L6-v2"], batch_size=4096, concurrency=8, num_gpus=1
... )
>>> rows.write_parquet("s3://vectors/")  # doctest: +SKIP

- Set ``override_num_blocks`` in ``read_parquet``: without it, small files become one block, and one actor does all.
- Keep ``batch_size`` there at some thousands: texts are sorted by length within a batch. Leave a CPU to reading and
  writing: if actors have them all, Ray waits forever.
- Ray does not keep the order of rows, so carry an id. In ``encode_files``, each file of the output has the rows of one
  file of the input in their order: write at least as many files as there are actors.
- Beside each file of ``encode_files`` is its manifest, so read ``vectors/*.parquet`` rather than the folder.
- Each machine must see the model under its name or folder, and the files. An actor on a CPU has one thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from sbert.data import Texts
from sbert.inputs.extras import require
from sbert.inputs.texts import rows_of
from sbert.integrations.loading import load_encoder
from sbert.vector_files.manifest import shard_of

# The whole input as one shard, whose manifest is kept: a call that is repeated skips it.
_WHOLE = 0, 1
_RETRIES = 3  # Of a file whose actor has died; each goes on where the one before was.


class Embed:
    """A class for ``Dataset.map_batches`` that adds a column of vectors. Each actor loads the model once.

    Args:
        model: A folder or a name on the hub. Default: the bundled model.
        column: The column of texts.
        vectors: The column of vectors.
        threads: Threads of this process. Default: as they are; Ray allows as many as an actor has CPUs.
        device: As in ``SentenceEncoder``.
        dtype: As in ``SentenceEncoder``.
        encode_options: Of ``SentenceEncoder.encode``.

    Raises:
        TypeError: If a text is not a str.

    Example:
        >>> import numpy as np
        >>> batch = {"id": np.array([7]), "text": np.array(["A cat sleeps."], object)}
        >>> Embed()(batch)["vector"].shape
        (1, 256)
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        column: str = "text",
        vectors: str = "vector",
        threads: int | None = None,
        device: str | None = None,
        dtype: str = "auto",
        **encode_options: Any,
    ) -> None:
        if threads is not None:
            os.environ["RAYON_NUM_THREADS"] = str(threads)  # Of the tokenizer.
            torch.set_num_threads(threads)
        self.model = load_encoder(model, device=device, dtype=dtype)
        self.column = column
        self.vectors = vectors
        self.options = encode_options

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with the vectors. Shape: (rows, dim)."""
        texts = list(rows_of(batch[self.column], self.column))
        return {**batch, self.vectors: self.model.encode(texts, show_progress_bar=False, **self.options)}


class _EncodeFiles(Embed):
    """An actor that encodes Parquet files to files of their own, unless these are finished."""

    def write(self, source: str, target: str, keep: Sequence[str]) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        texts = Texts(source, self.column, keep=keep)
        self.model.encode(texts, out=target, shard=_WHOLE, show_progress_bar=False, **self.options)


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
    device: str | None = None,
    **encode_options: Any,
) -> list[str]:
    """Encode a column of Parquet files with Ray Data, to Parquet files with the column "vector".

    Each file is encoded by one actor, as ``encode(Texts(file, column, keep=keep), out=…, shard=(0, 1))`` does: files
    that are finished are skipped, and the same call continues one that was stopped.

    Args:
        inputs: Parquet files and folders of such, that all machines see. For URIs such as ``s3://…``, use ``Embed``.
        output: Folder of the output, that all machines see.
        model: A folder or a name on the hub. Default: the bundled model.
        column: The column of texts.
        keep: Columns to copy to the output.
        actors: Number of processes with a model. Default: as many as the cluster has GPUs or CPUs for.
        gpus_per_actor: GPUs for each of them; 0 for the CPU.
        cpus_per_actor: CPUs for each of them, and its number of threads.
        device: As in ``SentenceEncoder``. Default: the GPU of the actor, or the CPU.
        encode_options: Of ``SentenceEncoder.encode``, such as ``batch_size`` and ``precision``; and ``dtype``, as in
            ``SentenceEncoder``.

    Returns:
        The files of the output, in the order of the input.

    Raises:
        ImportError: If Ray is not installed.
        FileNotFoundError: If an input does not exist, or a folder contains no Parquet file.
        ValueError: If two inputs have the same name, a path is a URI, a text is not a str, or the output was written
            with another model, with other settings or from other texts; or a file is damaged. The message names it.
    """
    with require("encoding with Ray", "ray[data]", "ray"):
        ray, util = import_module("ray"), import_module("ray.util")
    files = [file for path in inputs for file in _list_files(os.fspath(path), output)]
    targets = [target for _, target in files]
    if len(set(targets)) < len(targets):
        raise ValueError(f"two files of inputs have the same name, which {output} cannot hold; encode one elsewhere")
    if not ray.is_initialized():
        ray.init()
    there = ray.cluster_resources()
    room = there.get("GPU", 0) / gpus_per_actor if gpus_per_actor else there.get("CPU", 1) / cpus_per_actor
    device = device or (None if gpus_per_actor else "cpu")
    threads = max(1, int(cpus_per_actor))
    actor = ray.remote(num_gpus=gpus_per_actor, num_cpus=cpus_per_actor, max_restarts=-1, max_task_retries=_RETRIES)
    start = partial(actor(_EncodeFiles).remote, model, column=column, threads=threads, device=device, **encode_options)
    pool = util.ActorPool([start() for _ in range(max(1, min(len(files), actors or int(room))))])
    try:
        list(pool.map(lambda actor, file: actor.write.remote(*file, keep), files))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    return [str(shard_of(Path(target), _WHOLE)) for target in targets]


def _list_files(name: str, output: str) -> list[tuple[str, str]]:
    """The Parquet files of a path, and the ``out=`` of each."""
    path = Path(name).absolute()
    if "://" in name + output:
        raise ValueError(f"{name} or {output} is a URI; pass local or shared folders, or use Embed")
    files = [path] if path.is_file() else sorted(path.rglob("[!._]*.parquet"))
    if not files:
        raise FileNotFoundError(f"{name} does not exist or contains no .parquet file; name such a file or a folder")
    base = path.parent if path.is_file() else path
    return [(str(file), str(Path(output).absolute() / file.relative_to(base))) for file in files]
