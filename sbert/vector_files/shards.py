"""Files of vectors that several jobs write: names and manifests of shards, what is done of an output, and joining."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sbert.storage.atomic import replacing_file
from sbert.storage.file_locks import locked
from sbert.storage.files import one_line
from sbert.vector_files.files import VectorFiles, npy_file
from sbert.vector_files.formats import write_parquet
from sbert.vector_files.journal import DamagedError, beside, check_header, read_lines, telling_a_full_disk
from sbert.vector_files.manifests import Manifest, file_of, manifest_of, place_of, read_manifest, shard_of
from sbert.vector_files.stream import rows_of_shard

# Stripes of a row group of Parquet.
_STRIPES = 32
_ENDINGS = r"(\.manifest|\.journal|\.partial)?"


@dataclass(frozen=True)
class Part:
    """What is known of one file of an output.

    Args:
        path: The file.
        state: ``"done"``; ``"running"`` in another process; ``"stopped"``: the same call of ``encode`` goes on;
            ``"missing"``; ``"damaged"``: ``note`` says what is wrong, and the remedy.
        rows: Number of rows that are on the disk.
        rate: Rows per second, while encoding; 0 if unknown.
        note: What is wrong, for ``"damaged"``.
        last: Whether it is known that a folder has no more files.
    """

    path: Path
    state: Literal["done", "running", "stopped", "missing", "damaged"]
    rows: int = 0
    rate: float = 0.0
    note: str = ""
    last: bool = False


def status(path: str | os.PathLike[str]) -> list[Part]:
    """The files of an output of ``encode(out=path)``, with or without ``shard=``, and what is done of each.

    Args:
        path: What was passed as ``out=``: of a shard, too, the name without the number of the shard.

    Example:
        >>> [part.state for part in status("no/such/vectors.npy")]
        ['missing']
    """
    whole, in_files = place_of(path)
    number = _number_of_shards(whole)
    if number:
        parts = [_part(shard_of(whole, (index, number)), with_manifest=True) for index in range(number)]
        return parts + ([_part(whole)] if whole.exists() else [])
    if not in_files:
        return [_part(whole)]
    parts = []
    while not parts or (parts[-1].state != "missing" and not parts[-1].last):
        parts.append(_part(file_of(whole, len(parts)), with_manifest=True))
    return parts


def _number_of_shards(whole: Path) -> int | None:
    """The number of shards of an output, from the names of those that exist; None if there are none.

    Raises:
        ValueError: If there are shards of two divisions.
    """
    pattern = re.compile(rf"{re.escape(whole.stem)}-(\d{{5,}})-of-(\d{{5,}}){re.escape(whole.suffix)}{_ENDINGS}")
    names = os.listdir(whole.parent) if whole.parent.is_dir() else []
    numbers = sorted({int(match[2]) for name in names if (match := pattern.fullmatch(name)) and int(match[2])})
    if len(numbers) > 1:
        listed = " and ".join(f"{number} shards" for number in numbers)
        raise ValueError(f"beside {whole} there are files of {listed}; delete those of one division")
    return numbers[0] if numbers else None


def _part(path: Path, with_manifest: bool = False) -> Part:
    journal = beside(path, "journal")
    for _ in range(2):  # Once more where a file vanishes: another process has just finished this part.
        try:
            if journal.exists():
                return _begun(path, journal)
            if path.exists() and (not with_manifest or manifest_of(path).exists()):
                found = read_manifest(path) if with_manifest else None
                if found and path.stat().st_size != found.size:
                    raise DamagedError(path, "is damaged: it has another size than was written", "delete it")
                return Part(path, "done", len(VectorFiles([path])), last=found is not None and found.last)
        except FileNotFoundError:
            continue
        except (ValueError, OSError, ImportError) as error:
            return Part(path, "damaged", note=one_line(error))
    return Part(path, "missing")


def _begun(path: Path, journal: Path) -> Part:
    """What a journal says."""
    with locked(journal) as held, journal.open("rb") as file:
        _, windows, *_ = read_lines(journal, file)
    seconds = sum(window.seconds for window in windows)
    rows = windows[-1].rows if windows else 0
    return Part(path, "running" if held is False else "stopped", rows, rows / seconds if seconds else 0.0)


def merge(path: str | os.PathLike[str]) -> Path:
    """Join the shards of ``encode(out=path, shard=...)`` to the file ``path``, with the rows in the order of the texts.

    Args:
        path: What was passed as ``out=``, a .npy or .parquet file; for a folder, the folder.

    Returns:
        The file that was written. The shards are kept.

    Raises:
        FileNotFoundError: If there are no shards, or some are missing; the message names them.
        OSError: If the disk is full.
        ValueError: If a shard is damaged, or belongs to another model, other settings or other texts.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for index in range(2):
        ...         _ = model.encode(["One.", "Two."], out=f"{folder}/vectors.npy", shard=(index, 2))
        ...     VectorFiles([merge(f"{folder}/vectors.npy")]).shape
        (2, 384)
    """
    whole, _ = place_of(path)
    number = _number_of_shards(whole)
    if number is None:
        raise FileNotFoundError(f"there are no shards of {whole}; make them with shard=(0, n) to (n - 1, n)")
    shards = [shard_of(whole, (index, number)) for index in range(number)]
    first = _checked(shards)
    with telling_a_full_disk(whole, "the shards are kept: free as much space as they take, and merge again"):
        (_join_parquet if whole.suffix == ".parquet" else _join_npy)(shards, whole, first)
    return whole


def _join_npy(shards: list[Path], whole: Path, first: Manifest) -> None:
    stripe = first.header["stripe"]
    vectors = VectorFiles(shards)
    sources = [
        np.load(shard, mmap_mode="r") if rows else None for shard, rows in zip(shards, vectors.rows, strict=True)
    ]
    with npy_file(whole, vectors.shape[1], vectors.dtype) as file:
        for number_of_stripe in range(-(-first.read // stripe)):
            turn, index = divmod(number_of_stripe, len(shards))
            source = sources[index]
            if source is not None:
                file.append(source[turn * stripe : (turn + 1) * stripe])


def _checked(shards: list[Path]) -> Manifest:
    """The manifest of the first shard, after a check of all."""
    missing = [shard.name for shard in shards if not (shard.exists() and manifest_of(shard).exists())]
    if missing:
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise FileNotFoundError(
            f"{len(missing)} of {len(shards)} shards are missing or not finished: {', '.join(missing[:8])}{more};"
            " encode them first"
        )
    first = read_manifest(shards[0])
    for index, shard in enumerate(shards):
        found = read_manifest(shard)
        check_header(shard, found.header, {**first.header, "shard": [index, len(shards)]})
        if (found.read, found.input) != (first.read, first.input):
            raise ValueError(
                f"{shard.name} was written from other texts than {shards[0].name} ({found.read} and {first.read} of"
                " them); delete the older one, and encode it again"
            )
        if found.rows != rows_of_shard(found.read, (index, len(shards)), found.header["stripe"]):
            raise DamagedError(shard, f"has {found.rows} rows, which are not those of its part", "encode it again")
        found.check(shard)
    return first


def _join_parquet(shards: list[Path], whole: Path, first: Manifest) -> None:
    from pyarrow import unify_schemas
    from pyarrow.parquet import ParquetFile

    with ExitStack() as opened:
        files = [opened.enter_context(ParquetFile(shard, buffer_size=1 << 20, pre_buffer=False)) for shard in shards]
        schema = unify_schemas([file.schema_arrow for file in files], promote_options="permissive")
        with replacing_file(whole) as output:
            stripes = [_stripes(file, first.header["stripe"], schema) for file in files]
            write_parquet(output, schema, _grouped(stripes, schema))


def _grouped(shards: list[Iterator[Any]], schema: Any) -> Iterator[Any]:
    """The stripes of shards in turn, joined to tables that are worth a row group."""
    from pyarrow import concat_tables

    found = [schema.empty_table()]
    for table in chain.from_iterable(zip_longest(*shards)):
        found += [] if table is None else [table]
        if len(found) > _STRIPES:
            yield concat_tables(found).combine_chunks()
            found = []
    if found:
        yield concat_tables(found).combine_chunks()


def _stripes(file: Any, stripe: int, schema: Any) -> Iterator[Any]:
    """The rows of a Parquet file, a stripe at a time."""
    from pyarrow import Table, concat_tables

    waiting = schema.empty_table()
    for batch in file.iter_batches(batch_size=stripe):
        waiting = concat_tables([waiting, Table.from_batches([batch]).cast(schema)])
        while waiting.num_rows >= stripe:
            yield waiting.slice(0, stripe)
            waiting = waiting.slice(stripe)
    if waiting.num_rows:
        yield waiting
