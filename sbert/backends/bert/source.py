"""Source of a loaded model: its folder and the contents of its small files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def contents(folder: Path) -> dict[str, bytes]:
    """Contents of the small files of a folder, by name."""
    return {name: (folder / name).read_bytes() for name in READ if (folder / name).is_file()}


@dataclass(frozen=True)
class Origin:
    """Folder of a model and the contents of its small files when it was loaded: the folder may not exist later.

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
        """A temporary folder with these files: the folder of the model may be replaced at any time."""
        with tempfile.TemporaryDirectory() as name:
            for file, content in self.files.items():
                (Path(name) / file).write_bytes(content)
            yield Path(name)
