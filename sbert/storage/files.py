"""Reading model folders safely: named errors, and no way out of a folder."""

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

import torch

REMEDY = "download or save the model again"
# Bytes of a file that are read at once for its checksum.
_PART = 1 << 20


class UnreadableError(ValueError):
    """A file of a model folder cannot be used."""

    def __init__(self, path: Path, reason: str, remedy: str = REMEDY) -> None:
        super().__init__(f"{path} {reason}; {remedy}")


def one_line(error: BaseException) -> str:
    """What an error says, shortened to one line; the first of its own lines is often a mere heading."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__


def is_failure(error: BaseException) -> bool:
    """Whether a library failed at what it was given, and not the machine or the user at the keyboard.

    The Rust libraries below panic on some damaged files, with an exception that is no ``Exception``.
    """
    known = isinstance(error, Exception) and not isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or type(error).__name__ == "PanicException"


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn every failure inside the block into one that names ``path``."""
    try:
        yield
    except UnreadableError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise UnreadableError(path, f"cannot be read as {what} ({one_line(error)})") from error


# The longest files that are read, in bytes. The largest vocabularies take 35 MB, the longest lists of weights 9 MB.
_VOCABULARY, _SETTINGS = 50_000_000, 10_000_000
_VOCABULARIES = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|merges\.txt|added_tokens\.json|.*\.model|whitespacetokenizer_config\.json"
)
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def _longest(name: str) -> int | None:
    """How many bytes a file of this name may have; None where its length says nothing."""
    if _VOCABULARIES.fullmatch(name):
        return _VOCABULARY
    return _SETTINGS if name.endswith((".json", ".jinja")) else None


def check_file(path: Path) -> None:
    """Raise a ValueError for what is no regular file, or is too long, without opening it: a pipe may never answer.

    A link to a regular file is one, too: the hub's cache is made of them.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise
    except OSError as error:  # Such as a link to itself.
        raise UnreadableError(path, f"cannot be read ({one_line(error)})") from error
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise UnreadableError(path, f"is {kind}, where a regular file is expected", "do not trust the folder")
    limit = _longest(path.name)
    if limit is not None and status.st_size > limit:
        raise UnreadableError(path, f"is {status.st_size} bytes long, where at most {limit} are expected")


# What transformers opens, beside the weights. A user's own data.json may be as long as it likes.
_OPENED = re.compile(r".*config\.json|.*\.index\.json|special_tokens_map\.json|.*chat_template.*|.*\.jinja")


def check_files(folder: Path) -> None:
    """Raise a ValueError if a file that another library may open is no regular file, or is too long."""
    paths = list(folder.iterdir())
    if (templates := folder / "additional_chat_templates").is_dir():
        paths += templates.iterdir()
    for path in paths:
        opened = _OPENED.fullmatch(path.name) or _VOCABULARIES.fullmatch(path.name)
        with suppress(FileNotFoundError):  # A link that leads nowhere is a file that is missing.
            if not path.is_dir() and (opened or not path.is_file()):
                check_file(path)


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    with reading(path, "JSON"):
        check_file(path)
        with path.open("rb") as file:  # What lies in /proc may be longer than it says.
            content = file.read((_longest(path.name) or _SETTINGS) + 1)
        return json.loads(content.decode("utf-8"))


def read_object(path: Path, missing_ok: bool = False) -> dict[str, Any]:
    """The object in a JSON file; empty where ``missing_ok`` and there is no such file."""
    if missing_ok and not os.path.lexists(path):
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise UnreadableError(path, f"holds a {type(value).__name__} where an object is expected")
    return value


def checksum(path: Path, start: int = 0) -> int:
    """CRC-32 of a file, which is read in parts: it may be larger than memory.

    Args:
        path: The file.
        start: The checksum of what comes before it.
    """
    found = start
    with path.open("rb") as file:
        while part := file.read(_PART):
            found = zlib.crc32(part, found)
    return found


def field(config: dict[str, Any], path: Path, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
    """``config[key]``, checked to be of ``kind``; ``default`` where it is missing or null."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = kind.__name__ if isinstance(kind, type) else " or ".join(k.__name__ for k in kind)
        raise UnreadableError(path, f"gives {key}={value!r} where {names} is expected")
    return value


def required(config: dict[str, Any], path: Path, key: str, kind: type | tuple[type, ...]) -> Any:
    """``config[key]``, checked to be there and of ``kind``."""
    value = field(config, path, key, kind, None)
    if value is None:
        raise UnreadableError(path, f"lacks {key!r}")
    return value


def inside(folder: Path, relative: str, source: Path) -> Path:
    """The path ``relative`` below ``folder``, which a file ``source`` has named.

    Raises:
        ValueError: If it leaves the folder.
    """
    path = folder / relative
    parts = Path(relative).parts
    leaves = os.path.isabs(relative) or ".." in parts or "\\" in relative or "\0" in relative
    if len(relative) > 1000:  # No file system has such names.
        raise UnreadableError(source, f"names a path of {len(relative)} characters, {relative[:40]!r}…")
    # A file of the hub's cache is a link out of its folder, which is fine; a folder that is one is not.
    if leaves or not path.resolve().is_relative_to(folder.resolve()):
        raise UnreadableError(source, f"names the path {relative!r}, which leaves the folder", "do not trust it")
    return path


def blame(folder: Path, names: list[str], error: BaseException) -> UnreadableError:
    """Find which of a folder's files made a library fail, and say so."""
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
    """Write a value as readable JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
