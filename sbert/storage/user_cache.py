"""Small JSON files in the user's cache folder, which may be damaged, deleted or unwritable: nothing depends on them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sbert.storage.atomic import write_text
from sbert.storage.files import read_object

Value = TypeVar("Value")


def folder() -> Path:
    """``sbert`` in XDG_CACHE_HOME or, if that is not set, ~/.cache; on Windows, in LOCALAPPDATA."""
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sbert"


def load(name: str, parse: Callable[[dict[str, Any]], Value]) -> Value | None:
    """What ``parse`` makes of the object in a file; None if there is no such file, or if ``parse`` fails."""
    with suppress(Exception):
        return parse(read_object(folder() / name))
    return None


def store(name: str, value: dict[str, Any]) -> None:
    """Write an object to a file atomically; without effect if that is not possible, or if numbers are not finite."""
    with suppress(Exception):
        text = json.dumps(value, allow_nan=False) + "\n"
        folder().mkdir(parents=True, exist_ok=True)
        write_text(folder() / name, text)
