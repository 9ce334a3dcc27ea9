"""Joining the shards of ``encode(out=, shard=)`` to one file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sbert.storage.files import UnreadableError, checksum
from sbert.vector_files.formats import FORMATS, VectorFiles
from sbert.vector_files.manifest import (
    REMEDY,
    Ending,
    Manifest,
    PartEntry,
    beside,
    check_header,
    open_manifest,
    output_of,
    read_manifest,
    shard_of,
)
from sbert.vector_files.reader import rows_of_shard


def _number_of_shards(whole: Path) -> int | None:
    """The number of shards of an output, from the names of those that exist; None if there are none.

    Raises:
        ValueError: If there are shards of two divisions.
    """
    pattern = re.compile(rf"{re.escape(whole.stem)}-\d{{5,}}-of-(\d{{5,}}){re.escape(whole.suffix)}(\.manifest)?")
    matches = (pattern.fullmatch(path.name) for path in whole.parent.glob("*"))
    numbers = sorted({int(match[1]) for match in matches if match and int(match[1])})
    if len(numbers) > 1:
        listed = " and ".join(f"{number} shards" for number in numbers)
        raise ValueError(f"beside {whole} there are files of {listed}; delete those of one division")
    return numbers[0] if numbers else None


def merge(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Join the shards of ``encode(out=path, shard=...)`` to the file ``path``, with the rows in the order of the texts.

    Args:
        path: What was passed as ``out=``, a .npy or .parquet file.
        overwrite: Whether to join them again, whatever is there; else a file that is finished is kept, and any other
            one is an error.

    Returns:
        The file that was written. The shards are kept.

    Raises:
        FileNotFoundError: If there are no shards, or some are missing; the message names them.
        OSError: If the disk is full.
        ValueError: If a shard, or the file that is there, is damaged, or of another model, other settings or texts.

    Example:
        >>> import tempfile
        >>> from sbert import SentenceEncoder
        >>> from sbert.vector_files import VectorFiles, merge
        >>> model = SentenceEncoder()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for index in range(2):
        ...         _ = model.encode(["One.", "Two."], out=f"{folder}/vectors.npy", shard=(index, 2))
        ...     VectorFiles([merge(f"{folder}/vectors.npy")]).shape
        (2, 256)
    """
    whole = output_of(path)
    number = _number_of_shards(whole)
    if number is None:
        raise FileNotFoundError(f"there are no shards of {whole}; make them with shard=(i, n), i from 0 to n - 1")
    shards = [shard_of(whole, (index, number)) for index in range(number)]
    first, end = _check(shards)
    with open_manifest(whole, overwrite) as manifest:
        manifest.begin({**first.header, "shard": [0, 1]})
        old = manifest.ending
        if manifest.parts and (old is None or (old.read, old.input) != (end.read, end.input)):
            raise UnreadableError(whole, "is not of the texts of these shards", f"move it, or {REMEDY}")
        if old and not manifest.is_finished():
            raise manifest.damaged_output()
        if not old:
            FORMATS[whole.suffix].join(shards, whole, first.header["stripe"])
            size, check = whole.stat().st_size, checksum(whole)
            manifest.add(PartEntry(len(VectorFiles(shards)), size, check, end.read, end.input, 0))
            manifest.finish(Ending(end.read, end.input, size, check))
        manifest.clean()
    return whole


def _check(shards: list[Path]) -> tuple[Manifest, Ending]:
    """Raise an error unless all shards are finished and belong together; return the manifest of the first."""
    manifests = [read_manifest(shard) for shard in shards if shard.exists() and beside(shard, "manifest").exists()]
    done = {manifest.output: (manifest, manifest.ending) for manifest in manifests if manifest.ending}
    if missing := [shard.name for shard in shards if shard not in done]:
        listed = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
        raise FileNotFoundError(
            f"{len(missing)} of {len(shards)} shards are missing or not finished: {listed}; encode them first"
        )
    first, end = done[shards[0]]
    for index, (manifest, ending) in enumerate(done.values()):
        if manifest.header["shard"] != [index, len(shards)]:
            reason = f"was written with shard={tuple(manifest.header['shard'])}, and its name says another one"
            raise UnreadableError(manifest.output, reason, "delete it, and encode it again")
        expected = {**first.header, "shard": manifest.header["shard"]}
        check_header(manifest.output, manifest.header, expected, shards[0])
        if (ending.read, ending.input) != (end.read, end.input):
            reason = f"was written from other texts than {shards[0].name} ({ending.read} and {end.read} of them)"
            raise UnreadableError(manifest.output, reason, "encode the older one again, with overwrite=True")
        if manifest.rows != rows_of_shard(ending.read, (index, len(shards)), first.header["stripe"]):
            reason = f"has {manifest.rows} rows, which are not those of its shard"
            raise UnreadableError(manifest.output, reason, "encode it again, with overwrite=True")
        if not manifest.is_finished():
            raise manifest.damaged_output()
    return first, end
