"""Where a model was read, and what stood there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def contents(folder: Path) -> dict[str, bytes]:
    """What the small files of a folder hold, by name."""
    return {name: (folder / name).read_bytes() for name in READ if (folder / name).is_file()}


@dataclass(frozen=True)
class Origin:
    """Where a model was read, and what its small files held then, as the folder may be gone when they are needed.

    Args:
        folder: Of the model.
        files: Contents by name.
        dtype: Of the weights, as they were loaded.
    """

    folder: Path
    files: dict[str, bytes]
    dtype: torch.dtype

    @contextmanager
    def restored(self) -> Iterator[Path]:
        """A folder with the files as they were: never the model's own, which others may replace at any moment."""
        with tempfile.TemporaryDirectory() as name:
            for file, content in self.files.items():
                (Path(name) / file).write_bytes(content)
            yield Path(name)
