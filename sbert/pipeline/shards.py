"""Files of vectors that several jobs write: names and manifests of shards, what is done of an output, and joining."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


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
    """

    path: Path
    state: Literal["done", "running", "stopped", "missing", "damaged"]
    rows: int = 0
    rate: float = 0.0
    note: str = ""


def status(path: str | os.PathLike[str]) -> list[Part]:
    """The files of an output of ``encode(out=path)``, with or without ``shard=``, and what is done of each.

    Args:
        path: What was passed as ``out=``: of a shard, too, the name without the number of the shard.
    """
    raise NotImplementedError(os.fspath(path))


def merge(path: str | os.PathLike[str]) -> Path:
    """Join the shards of ``encode(out=path, shard=...)`` to the file ``path``, with the rows in the order of the texts.

    Args:
        path: What was passed as ``out=``, a .npy or .parquet file; for a folder, the folder.

    Returns:
        The file that was written. The shards are kept.

    Raises:
        FileNotFoundError: If there are no shards, or some are missing; the message names them.
        ValueError: If a shard is damaged, or belongs to another model, other settings or other texts.
    """
    raise NotImplementedError(os.fspath(path))
