"""Texts, and a model that encodes them in no time, for tests of files of vectors."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbert import SentenceEncoder
from sbert.data import Texts

STRIPE, ROWS = 8, 83
TEXTS = [" ".join(random.Random(row).choices(["red", "fox", "sea"], k=1 + row % 5)) + " red" for row in range(ROWS)]


def encode(model: SentenceEncoder, out: Path | str, texts: Any = None, **options: Any) -> Any:
    if texts is None:
        texts = Texts.of(TEXTS, id=range(ROWS)) if str(out).endswith(".parquet") else iter(TEXTS)
    return model.encode(texts, out=out, on_truncate="ignore", **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stop(words: SentenceEncoder, path: Path | str, after: int = 40, **options: Any) -> None:
    """Leave a manifest of the windows before a text."""

    def failing() -> Iterator[str]:
        yield from TEXTS[:after]
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        encode(words, path, failing(), **options)


def fill_disk(patch: pytest.MonkeyPatch, room: int) -> None:
    """Let so many more calls of ``fsync`` succeed, and no others."""
    left, sync = iter(range(room)), os.fsync

    def full(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    patch.setattr(os, "fsync", full)
