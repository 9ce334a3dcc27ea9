"""Safe reading of untrusted folders: errors name the file, sizes are limited, and paths stay inside the folder."""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_REMEDY = "download or save the model again"
# Bytes per read when a checksum is computed.
_BLOCK = 1 << 20


class UnreadableError(ValueError):
    """A file of a folder is missing, damaged or not supported."""

    def __init__(self, path: Path, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"{path} {reason}; {remedy}")


def one_line(error: BaseException) -> str:
    """The type and message of an error on one line, shortened. Often, the first line alone is only a heading."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__


def is_failure(error: BaseException) -> bool:
    """Whether an error is caused by the input, not by lack of memory or a keyboard interrupt.

    For some damaged files, Rust libraries raise a ``PanicException``, which is not a subclass of ``Exception``.
    """
    known = isinstance(error, Exception) and not is_out_of_memory(error)
    return known or type(error).__name__ == "PanicException"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory is full; torch on CPUs, MPS and libraries of CUDA say so in words alone.

    Where other programs fill a GPU, cuBLAS cannot be initialized, which needs memory as well.
    """
    words = ["out of memory", "Invalid buffer size", "not enough memory", "DefaultCPUAllocator"]
    words += ["CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"]
    said = isinstance(error, RuntimeError) and any(some in str(error) for some in words)
    return said or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # Of torch.


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Convert every error inside the block to an ``UnreadableError`` that names ``path``."""
    try:
        yield
    except BaseException as error:
        # A damaged file may ask for more memory than any machine has.
        is_known = is_failure(error) or "you tried to allocate" in str(error)
        if isinstance(error, UnreadableError) or not is_known:
            raise
        raise UnreadableError(path, f"cannot be read as {what} ({one_line(error)})") from error


# Maximum file sizes in bytes. The largest known vocabularies have 35 MB, the longest indexes of weights 9 MB.
_VOCABULARY, _SETTINGS = 50_000_000, 10_000_000
_VOCABULARIES = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|merges\.txt|added_tokens\.json|.*\.model|whitespacetokenizer_config\.json"
)


def _longest(name: str) -> int | None:
    """Maximum size in bytes of a file of this name; None for no limit."""
    if _VOCABULARIES.fullmatch(name):
        return _VOCABULARY
    return _SETTINGS if name.endswith((".json", ".jinja")) else None


def check_file(path: Path) -> None:
    """Raise a ValueError if this is not a regular file or is too large. Does not open it: a pipe could block forever.

    A link to a regular file is allowed: the cache of the hub consists of links.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise
    except OSError as error:  # For example, a link to itself.
        raise UnreadableError(path, f"cannot be read ({one_line(error)})") from error
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError(path, "is a folder, a pipe or a device, and no regular file", "do not trust the folder")
    limit = _longest(path.name)
    if limit is not None and status.st_size > limit:
        raise UnreadableError(path, f"is {status.st_size} bytes long, where at most {limit} are expected")


# Files that transformers opens, in addition to the weights. Other files of the user are not limited in size.
_OPENED = re.compile(r".*config\.json|.*\.index\.json|special_tokens_map\.json|.*chat_template.*|.*\.jinja")


def check_files(folder: Path) -> None:
    """Raise a ValueError if a file that another library may open is not a regular file, or is too large."""
    paths = list(folder.iterdir())
    if (templates := folder / "additional_chat_templates").is_dir():
        paths += templates.iterdir()
    for path in paths:
        opened = _OPENED.fullmatch(path.name) or _VOCABULARIES.fullmatch(path.name)
        with suppress(FileNotFoundError):  # A broken link counts as a missing file.
            if not path.is_dir() and (opened or not path.is_file()):
                check_file(path)


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    with reading(path, "JSON"):
        check_file(path)
        with path.open("rb") as file:  # Files in /proc may be longer than their reported size.
            content = file.read((_longest(path.name) or _SETTINGS) + 1)
        return json.loads(content.decode("utf-8"))


class JsonObject(dict[str, Any]):
    """An object of a JSON file, which checks the types of its values.

    Args:
        values: The object.
        path: The file, for errors.
    """

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path: Path = path

    def field(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """The value of a key, which must be of type ``kind``; ``default`` if it is missing or null."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            names = kind.__name__ if isinstance(kind, type) else " or ".join(k.__name__ for k in kind)
            raise self.error(f"gives {key}={value!r} where {names} is expected")
        return value

    def require(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """The value of a key, which must exist and be of type ``kind``."""
        value = self.field(key, kind, None)
        if value is None:
            raise self.error(f"lacks {key!r}")
        return value

    def dimension(self, key: str) -> int:
        """The dimension of a key, which must be between 1 and 2^20."""
        dim: int = self.require(key, int)
        if not 1 <= dim <= 2**20:
            raise self.error(f"gives {key}={dim} where 1 to {2**20} is expected")
        return dim

    def error(self, reason: str, remedy: str = _REMEDY) -> UnreadableError:
        """The error that names the file."""
        return UnreadableError(self.path, reason, remedy)


def read_object(path: Path, missing_ok: bool = False) -> JsonObject:
    """The object in a JSON file; with ``missing_ok``, empty if the file does not exist."""
    if missing_ok and not os.path.lexists(path):
        return JsonObject({}, path)
    value = read_json(path)
    if not isinstance(value, dict):
        raise UnreadableError(path, f"contains a {type(value).__name__} where an object is expected")
    return JsonObject(value, path)


def checksum(path: Path) -> int:
    """CRC-32 of a file, computed block by block."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def inside(folder: Path, relative: str, source: Path) -> Path:
    """The path ``relative`` below ``folder``; ``source`` is the file that names it.

    Raises:
        ValueError: If the path leads outside the folder.
    """
    path = folder / relative
    leaves = os.path.isabs(relative) or ".." in Path(relative).parts or "\\" in relative or "\0" in relative
    # Longer than any file system allows. Files in the hub's cache are links that lead outside, which is allowed; a
    # folder that is such a link is not.
    if leaves or len(relative) > 1000 or not path.resolve().is_relative_to(folder.resolve()):
        raise UnreadableError(source, f"names the path {relative[:200]!r}, which leaves the folder", "do not trust it")
    return path


def load_error(folder: Path, names: list[str], error: BaseException) -> UnreadableError:
    """The error that names the file of a folder on which a library failed."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    present = [folder / name for name in names if os.path.lexists(folder / name)]
    for path in present:
        if path.suffix == ".json":
            read_object(path)
        if path.name == "tokenizer.json":
            with reading(path, "a tokenizer"):
                Tokenizer.from_file(str(path))
        elif path.suffix == ".safetensors":
            with reading(path, "safetensors weights"), safe_open(path, "pt"):
                pass
    listed = " with ".join(path.name for path in present) or names[0]
    return UnreadableError(folder, f"cannot be loaded: {listed} failed ({one_line(error)})")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
