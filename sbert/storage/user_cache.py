"""The folder of files that can be computed again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder() -> Path:
    """``sbert`` in XDG_CACHE_HOME or, if that is not set, ~/.cache; on Windows, in LOCALAPPDATA."""
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sbert"
