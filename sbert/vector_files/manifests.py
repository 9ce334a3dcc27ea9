"""Names of the files of an output in several files, and the manifest beside each that says what it holds."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from sbert.storage.atomic import replacing_file
from sbert.storage.files import checksum
from sbert.vector_files.journal import DamagedError, Header, beside, sealed, unsealed
from sbert.vector_files.stream import Reader, Shard


def place_of(out: str | os.PathLike[str]) -> tuple[Path, bool]:
    """The file that an output is named after, where links lead to; and whether the output is a folder.

    Example:
        >>> place_of("/no/such/folder/")
        (PosixPath('/no/such/folder/vectors.npy'), True)
    """
    name = os.fspath(out)
    path, folder = Path(os.path.realpath(name)), name.endswith(("/", os.sep)) or os.path.isdir(name)
    return (path / "vectors.npy" if folder else path), folder


def manifest_of(path: Path) -> Path:
    """The manifest of a file."""
    return beside(path, "manifest")


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


def files_of(path: Path) -> list[Path]:
    """The files of a folder that have a manifest or a journal, or had one that was deleted, in order."""
    pattern = re.compile(rf"({re.escape(path.stem)}-\d{{5,}}{re.escape(path.suffix)})\.(manifest|journal)")
    return sorted({path.with_name(match[1]) for name in os.listdir(path.parent) if (match := pattern.fullmatch(name))})


@dataclass(frozen=True)
class Manifest:
    """What a finished file holds.

    Args:
        header: The model and the settings.
        rows: Number of rows.
        read: Number of texts that were read, those of other shards included.
        input: Hash of these texts.
        size: Number of bytes of the file.
        crc32: Checksum of the file.
        last: Whether no text is behind these: a folder has no more files.
    """

    header: Header
    rows: int
    read: int = 0
    input: str = ""
    size: int = 0
    crc32: int = 0
    last: bool = True

    @classmethod
    def of(cls, path: Path, header: Header, rows: int, reader: Reader) -> Manifest:
        """The manifest of a file that was just written."""
        return cls(header, rows, reader.read, reader.digest, path.stat().st_size, checksum(path), reader.ended)

    def check(self, path: Path) -> None:
        """Raise an error if the file is not the one that was written."""
        right = path.exists() and path.stat().st_size == self.size and checksum(path) == self.crc32
        if not right:
            remedy = f"delete it and {manifest_of(path).name}, and make the call again that wrote them"
            raise DamagedError(path, "is missing or damaged: it is not what was written", remedy)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest of a file."""
    with replacing_file(manifest_of(path)) as file:
        file.write(json.dumps(sealed(asdict(manifest)), indent=1).encode())


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a file; an error if it is damaged."""
    path = manifest_of(path)
    line, _ = unsealed(path, path.read_bytes(), "the manifest")
    try:
        return Manifest(**line)
    except TypeError as error:
        raise DamagedError(path, "is damaged: it is no manifest", "delete it") from error
