"""Reading and writing model folders safely: named errors, no way out of a folder, no half-written ones."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

REMEDY = "download or save the model again"


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


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    with reading(path, "JSON"):
        return json.loads(path.read_text(encoding="utf-8"))


def read_object(path: Path, missing_ok: bool = False) -> dict[str, Any]:
    """The object in a JSON file; empty where ``missing_ok`` and there is no such file."""
    if missing_ok and not os.path.lexists(path):
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise UnreadableError(path, f"holds a {type(value).__name__} where an object is expected")
    return value


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
    # A file of the hub's cache is a link out of its folder, which is fine; a folder that is one is not.
    if leaves or not path.resolve().is_relative_to(folder.resolve()):
        raise UnreadableError(source, f"names the path {relative!r}, which leaves the folder", "do not trust it")
    return path


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of ``model.safetensors``, or else of ``pytorch_model.bin`` (never running its code)."""
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    if path.exists():
        with reading(path, "safetensors weights"):
            return dict(load_file(path))
    path = folder / "pytorch_model.bin"
    if not path.exists():
        raise UnreadableError(folder, "holds neither model.safetensors nor pytorch_model.bin")
    with reading(path, "weights"):
        weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(weights, dict) or not all(isinstance(x, Tensor) for x in weights.values()):
            raise UnreadableError(path, "holds something else than named tensors")
    return weights


def weights_file(folder: Path) -> Path:
    """The file that holds a folder's weights."""
    for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"):
        if (folder / name).exists():
            return folder / name
    shards = folder / "pytorch_model.bin.index.json"
    if shards.exists():
        return shards
    raise UnreadableError(folder, "holds neither model.safetensors nor pytorch_model.bin")


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


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears under its name once it is complete; one that is there is replaced whole.

    What is no plain file, such as a device or a pipe, is written to as it is.
    """
    if os.path.lexists(path) and not _is_plain(path):
        with path.open("a", encoding="utf-8", newline="\n") as file:  # Standard output may be a file with a beginning.
            file.write(text)
        return
    descriptor, work = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _publish(Path(work))
        os.replace(work, path)
    finally:
        with suppress(FileNotFoundError):  # It bears its own name now.
            os.unlink(work)


def _is_plain(path: Path) -> bool:
    """Whether this is a file on a disk; /dev/stdout is none, even where it leads to one."""
    names = [os.path.abspath(path), os.path.realpath(path.parent)]
    return path.is_file() and not any(Path(name).parts[1:2] in (("dev",), ("proc",)) for name in names)


def flush(folder: Path) -> None:
    """Have the disk hold every file below ``folder``, and the folders themselves."""
    for root, _, names in os.walk(folder):
        for path in [*(Path(root) / name for name in names), Path(root)]:
            with suppress(PermissionError):  # Windows opens no folders.
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; false where the system cannot."""
    here, swap = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of linux/fs.h; RENAME_SWAP of macOS is 2, too.
    paths = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform == "linux":
            return bool(ctypes.CDLL(None).renameat2(here, paths[0], here, paths[1], swap) == 0)
        if sys.platform == "darwin":
            return bool(ctypes.CDLL(None).renamex_np(*paths, swap) == 0)
    except AttributeError:  # A C library from before 2018.
        pass
    return False


def _put(work: Path, target: Path) -> None:
    """Give ``work`` the name ``target``; what bore it before is left under the name ``work``."""
    if not target.exists():
        os.replace(work, target)
    elif not _exchange(work, target):
        old = work.with_name(work.name + ".old")
        os.replace(target, old)
        try:
            os.replace(work, target)
        except BaseException:
            os.replace(old, target)
            raise
        os.replace(old, work)


# What a model folder may hold. Anything else is somebody's own, and no save may take it away.
_MODEL_FILES = re.compile(r".*\.(json|safetensors|bin|txt|model|md|jinja)|\.gitattributes|\d+_\w+|onnx|openvino")


def check_replaceable(target: Path) -> None:
    """Raise a ValueError where saving to ``target`` would take away something that is no model."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ValueError(f"{target} is a file; name a folder to save to")
    names = sorted(path.name for path in target.iterdir())
    known = {"modules.json", "config.json"} & set(names)
    foreign = [name for name in names if not known or not _MODEL_FILES.fullmatch(name)]
    if foreign:
        raise ValueError(
            f"{target} holds {foreign[0]!r}, which is no part of a model, and saving would delete it;"
            " save to another folder"
        )


@contextmanager
def replacing(target: Path, check: Callable[[Path], None] = check_replaceable) -> Iterator[Path]:
    """A new folder to write to, which takes the place of ``target`` when the block ends without an error.

    Whoever looks, or a crash at any moment, finds the old folder or the new one. What a killed process has left of
    such a new folder is removed with the next one of the same name.

    ``check`` raises an error where ``target`` is there and must stay.

    Raises:
        ValueError: If ``target`` is there and holds something else than a model.
    """
    target = Path(os.path.realpath(target))
    check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.saving-"
    _remove_left(target.parent, prefix)
    with _new_folder(target.parent, prefix) as work:
        try:
            yield work
            _publish(work)
            flush(work)
            _put(work, target)
            with suppress(OSError):
                flush_entry(target.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


# A folder that is being written to is locked by its writer, and the lock ends with the writer, however that ends.


@contextmanager
def _new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder, locked where the system has locks."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with _locked(work) as held:
            if held or held is None:
                yield work
                return
        # Another process took it for one that was left, before it was locked.


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove the folders of writers that were killed."""
    for path in sorted(parent.glob(".*")):
        if re.fullmatch(re.escape(prefix) + r"\w{8}", path.name):
            with _locked(path) as held:
                if held:
                    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Whether this process holds the lock of a folder; None where the system has no such locks."""
    try:
        import fcntl
    except ImportError:  # Windows.
        yield None
        return
    descriptor: int | None = None
    held: bool | None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.path.samestat(os.fstat(descriptor), os.lstat(folder))
    except (BlockingIOError, FileNotFoundError):
        held = False
    except OSError:  # Some network drives.
        held = None
    try:
        yield held
    finally:
        if descriptor is not None:
            os.close(descriptor)


def flush_entry(folder: Path) -> None:
    """Have the disk hold the names in ``folder``."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(folder: Path) -> None:
    """Give a file, or a folder and what is in it, ordinary modes: safetensors leaves weights to their owner alone."""
    mask = os.umask(0o022)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
