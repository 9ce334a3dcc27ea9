"""Names of the files of an output in several files, and the manifest beside each that says what it holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from sbert.pipeline.journal import DamagedError, Header, sealed, unsealed
from sbert.pipeline.stream import Reader, Shard
from sbert.storage.atomic import replacing_file
from sbert.storage.files import checksum


def shard_of(path: Path, shard: Shard) -> Path:
    """The file of a shard.

    Example:
        >>> shard_of(Path("vectors.npy"), (3, 16)).name
        'vectors-00003-of-00016.npy'
    """
    return path.with_name(f"{path.stem}-{shard[0]:05d}-of-{shard[1]:05d}{path.suffix}")


def file_of(path: Path, number: int) -> Path:
    """A file of a folder of files."""
    return path.with_name(f"{path.stem}-{number:05d}{path.suffix}")


@dataclass(frozen=True)
class Manifest:
    """What a finished file holds.

    Args:
        header: The model and the settings.
        rows: Number of rows.
        read: Number of texts that were read, those of other shards included.
        input: Hash of these texts.
        size: Number of bytes of the file.
        crc32: Check sum of the file.
    """

    header: Header
    rows: int
    read: int = 0
    input: str = ""
    size: int = 0
    crc32: int = 0

    @classmethod
    def of(cls, path: Path, header: Header, rows: int, reader: Reader) -> Manifest:
        """The manifest of a file that was just written."""
        return cls(header, rows, reader.read, reader.digest, path.stat().st_size, checksum(path))

    def check(self, path: Path) -> None:
        """Raise an error if the file is not the one that was written."""
        right = path.exists() and path.stat().st_size == self.size and checksum(path) == self.crc32
        if not right:
            remedy = f"delete it and {path.name}.json, and make the call again that wrote them"
            raise DamagedError(path, "is missing or damaged: it is not what was written", remedy)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest."""
    with replacing_file(path) as file:
        file.write(json.dumps(sealed(asdict(manifest)), indent=1).encode())


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; an error if it is damaged."""
    line, _ = unsealed(path, path.read_bytes(), "the manifest")
    try:
        return Manifest(**line)
    except TypeError as error:
        raise DamagedError(path, "is damaged: it is no manifest", "delete it") from error
