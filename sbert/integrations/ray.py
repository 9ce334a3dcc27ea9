"""Ray Data: texts of Parquet files to vectors in Parquet files, on all machines of a Ray cluster.

``encode_files`` does all of it. Each actor loads the model once; Ray restarts actors that die, and repeats their file:

>>> from sbert.integrations.ray import Embed, encode_files
>>> encode_files(["corpus/"], "vectors/", "all-MiniLM-L6-v2", column="text", keep=["id"])  # doctest: +SKIP
['vectors/part-0.parquet', 'vectors/part-1.parquet']
>>> encode_files(["s3://corpus/"], "s3://vectors/", gpus_per_actor=1, cpus_per_actor=8)  # doctest: +SKIP

``Embed`` is for a pipeline of your own:

>>> import ray  # doctest: +SKIP
>>> rows = ray.data.read_parquet("corpus/", override_num_blocks=64)  # doctest: +SKIP
>>> rows = rows.map_batches(  # doctest: +SKIP
...     Embed, fn_constructor_args=["all-MiniLM-L6-v2"], batch_size=4096, concurrency=8, num_gpus=1
... )
>>> rows.write_parquet("vectors/")  # doctest: +SKIP

- Set ``override_num_blocks`` in ``read_parquet``: without it, small files become one block, and one actor does all.
- Keep ``batch_size`` there at some thousands: texts are sorted by length within a batch. Leave a CPU to reading and
  writing: if actors have them all, Ray waits forever.
- Ray does not keep the order of rows, so carry an id. In ``encode_files``, each file of the output has the rows of one
  file of the input in their order.
- A file is split between its row groups only: write large files with some row groups (``row_group_size=65_536``).
- Each machine must see the model under its name or folder, and the files. An actor on a CPU has one thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from sbert.inputs.devices import inference_dtype
from sbert.inputs.extras import needed
from sbert.inputs.texts import rows_of
from sbert.integrations.loading import load_encoder
from sbert.saving import verification
from sbert.vector_files.fingerprint import digest_of_model

# Rows that are encoded and written at once.
_WINDOW = 16_384
# How the name of an output ends: with the first row group, if the input is split.
_PART = re.compile(r"(-\d{5})?\.parquet$")


class Embed:
    """A class for ``Dataset.map_batches`` that adds a column of vectors. Each actor loads the model once.

    Args:
        model: A folder or a name on the hub. Default: the model of the library.
        column: The column of texts.
        vectors: The column of vectors.
        threads: Threads of this process. Default: as they are; Ray allows as many as an actor has CPUs.
        device: As in ``SentenceEncoder``.
        dtype: As in ``SentenceEncoder``.
        encode_options: Of ``SentenceEncoder.encode``.

    Raises:
        TypeError: If a text is not a str.

    Example:
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
        return {**batch, self.vectors: self.encode(batch[self.column], self.column)}

    def encode(self, texts: Any, name: str) -> Any:
        """Vectors of texts; errors call them by a name."""
        return self.model.encode(list(rows_of(texts, name)), show_progress_bar=False, **self.options)


class _EncodeFiles(Embed):
    """Encodes parts of Parquet files to files of their own, unless these are finished."""

    def __init__(self, keep: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.columns = list(dict.fromkeys([*keep, self.column]))
        self.keep = list(keep)
        given = {name: repr(value) for name, value in self.options.items() if not (value is None or value is False)}
        self.settings: dict[str, Any] = {"column": self.column, "keep": self.keep, "options": given}
        self.settings |= {"model": digest_of_model(self.model), "prompts": self.model.prompts}
        dtype, _ = inference_dtype(self.model.dtype, self.model.automatic_dtype, self.model.device)
        self.settings |= {"truncate_dim": self.model.truncate_dim, "dtype": str(dtype)}
        self.settings["versions"] = verification.versions()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode the part in each row; an error of the caller is a result, which Ray does not wrap."""
        errors = []
        for source, groups, target in zip(batch["source"], batch["groups"], batch["target"], strict=True):
            try:
                self.write(str(source), list(map(int, groups)), str(target))
                errors.append("")
            except (TypeError, ValueError) as error:
                errors.append(str(error))
        return {"error": np.array(errors)}

    def write(self, source: str, groups: list[int], target: str) -> None:
        """Encode row groups of a file to another file, which has its name once it is finished."""
        from pyarrow import Table, parquet

        system, path = _place(target)
        if system.get_file_info(path).is_file:
            self.check(source, groups, target)
            return
        digest = hashlib.sha256()
        with _opened(source) as file, _replacing(system, path) as stream:
            empty = self.with_vectors(file.schema_arrow.empty_table().select(self.columns), source)
            with parquet.ParquetWriter(stream, empty.schema, use_dictionary=self.keep) as writer:
                for number, batch in enumerate(self.read(file, groups, digest)):
                    where = f"{source}, row group {groups[0]}, rows from {number * _WINDOW}"
                    writer.write_table(self.with_vectors(Table.from_batches([batch]), where))
                about = {**self.settings, "texts": digest.hexdigest()}
                writer.add_key_value_metadata({"sbert": json.dumps(about)})

    def check(self, source: str, groups: list[int], target: str) -> None:
        """Raise an error if a finished file is not the one that this call would write."""
        with _opened(target) as file:
            written = json.loads((file.metadata.metadata or {}).get(b"sbert", b"{}"))
        digest = hashlib.sha256()
        with _opened(source) as file:
            for _ in self.read(file, groups, digest):
                pass
        wanted = {**self.settings, "texts": digest.hexdigest()}
        other = [name for name in wanted if wanted[name] != written.get(name)]
        if other:
            raise ValueError(f"{target} was written with other {', '.join(other)}; delete it, or name another output")

    def read(self, file: Any, groups: list[int], digest: Any) -> Iterator[Any]:
        """The rows of row groups, and the hash of what is carried and encoded."""
        for batch in file.iter_batches(_WINDOW, row_groups=groups, columns=self.columns):
            digest.update(repr(batch.to_pydict()).encode("utf-8", "surrogatepass"))
            yield batch

    def with_vectors(self, table: Any, where: str) -> Any:
        """The columns to keep, and that of the vectors as lists of fixed size."""
        from pyarrow import FixedSizeListArray, array

        vectors = self.encode(table[self.column], f"{where}: {self.column}")
        listed = FixedSizeListArray.from_arrays(array(vectors.reshape(-1)), vectors.shape[1])
        return table.select(self.keep).append_column(self.vectors, listed)


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

    Raises:
        ImportError: If Ray is not installed.
        FileNotFoundError: If an input does not exist, or a folder contains no Parquet file.
        ValueError: If two inputs have the same name, a text is not a str, or the output was written with another model,
            with other settings, with another ``rows_per_file`` or from other texts; or a file is damaged. The message
            names the file.
    """
    with needed("encoding with Ray Data", "ray[data]", "ray"):
        ray, data = import_module("ray"), import_module("ray.data")
    parts = [part for path in inputs for part in _parts(os.fspath(path), output, rows_per_file)]
    targets = [part["target"] for part in parts]
    twice, number = Counter(targets).most_common(1)[0] if targets else ("", 0)
    if number > 1:
        raise ValueError(f"two files of the input would be written to {twice}; encode them to folders of their own")
    _check_others(output, targets)
    if not ray.is_initialized():
        ray.init()
    there = ray.cluster_resources()
    room = there.get("GPU", 0) / gpus_per_actor if gpus_per_actor else there.get("CPU", 1) / cpus_per_actor
    device = device or (None if gpus_per_actor else "cpu")
    options = dict(model=model, column=column, keep=list(keep), device=device, dtype=dtype, **encode_options)
    if parts:
        done = data.from_items(parts, override_num_blocks=len(parts)).map_batches(
            _EncodeFiles,
            fn_constructor_kwargs={**options, "threads": max(1, int(cpus_per_actor))},
            batch_size=1,
            compute=data.ActorPoolStrategy(size=max(1, min(len(parts), actors or int(room)))),
            num_gpus=gpus_per_actor,
            num_cpus=cpus_per_actor,
        )
        for row in done.iter_rows():
            if row["error"]:
                raise ValueError(row["error"])
    return targets


def _parts(path: str, output: str, rows: int) -> Iterator[dict[str, Any]]:
    """The files of a path, each split between row groups into parts of a number of rows, and the output of each."""
    from pyarrow.fs import FileSelector, FileType

    system, place = _place(path)
    if system.get_file_info(place).type == FileType.NotFound:
        raise FileNotFoundError(f"{path} does not exist; name a Parquet file or a folder of such")
    names = [""]
    if not system.get_file_info(place).is_file:
        found = system.get_file_info(FileSelector(place, recursive=True))
        names = sorted(info.path.removeprefix(place) for info in found if _is_input(info))
        if not names:
            raise FileNotFoundError(f"{path} contains no .parquet file; name a Parquet file or a folder of such")
    for name in names:
        file = path.rstrip("/") + name
        target = f"{output.rstrip('/')}/{(name or place.rpartition('/')[2]).lstrip('/').removesuffix('.parquet')}"
        with _opened(file) as opened:
            counts = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
        part_of = (np.cumsum([0, *counts])[:-1] // rows).tolist()  # By its first row, for each row group.
        parts = [list(run) for _, run in groupby(range(len(counts)), part_of.__getitem__)]
        for groups in parts or [[]]:
            number = f"-{groups[0]:05}" if len(parts) > 1 else ""
            yield {"source": file, "groups": groups, "target": f"{target}{number}.parquet"}


def _check_others(output: str, targets: list[str]) -> None:
    """Raise an error if a file of the output holds rows of these inputs, as written with another ``rows_per_file``."""
    from pyarrow.fs import FileSelector

    system, folder = _place(output)
    there = system.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
    names = {target.removeprefix(f"{output.rstrip('/')}/") for target in targets}
    inputs = {_PART.sub("", name) for name in names}
    for info in there:
        name = info.path.removeprefix(folder.rstrip("/")).lstrip("/")
        if _is_input(info) and name not in names and _PART.sub("", name) in inputs:
            raise ValueError(
                f"{output} contains {name}, which was written with another rows_per_file or from a longer file;"
                " pass the same arguments, or delete it"
            )


def _is_input(info: Any) -> bool:
    """Whether this is a Parquet file, and not a hidden one that another program is writing."""
    return bool(info.is_file) and info.path.endswith(".parquet") and info.base_name[0] not in "._"


def _place(path: str) -> Any:
    """The file system of a local path or a URI, and the path there."""
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(path if "://" in path else Path(path).absolute().as_posix())


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    system, place = _place(path)
    try:
        file = ParquetFile(place, filesystem=system)
    except (ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{path} is damaged or not a Parquet file ({error}); delete it, or replace it") from error
    with file:
        yield file


@contextmanager
def _replacing(system: Any, path: str) -> Iterator[Any]:
    """A stream to a file that has its name once it is complete; Ray may repeat a part while another attempt runs."""
    folder, _, name = path.rpartition("/")
    system.create_dir(folder)
    partial = f"{folder}/.{name}.{uuid4().hex}.partial"
    try:
        with system.open_output_stream(partial) as stream:
            yield stream
        system.move(partial, path)
    except BaseException:
        with suppress(OSError):
            system.delete_file(partial)
        raise
