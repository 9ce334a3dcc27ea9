"""The files that belong to a model folder: a save may replace these, and no others."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from sbert.backends import huggingface
from sbert.saving.format import (
    LSTM_CONFIG,
    MODULES,
    REFERENCE,
    SETTINGS,
    TRANSFORMER_CONFIGS,
    WORDS_CONFIG,
    WORDS_VOCABULARY,
)
from sbert.storage.files import UnreadableError, read_json, read_object
from sbert.storage.folders import check_own, foreign

_CONFIG, _CARD = "config.json", "README.md"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_INDEXES = tuple(f"{name}.index.json" for name in _WEIGHTS)
_TEMPLATES = "additional_chat_templates"
# Files that this library, transformers and peft write for one module, at the top or in the module's folder.
_OF_MODULES = {
    *(_CONFIG, "generation_config.json", *_WEIGHTS, *_INDEXES),
    *("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"),
    *(*huggingface.TOKENIZER_FILES, "tokenizer.model", "spm.model", "sentencepiece.model", "bpe.codes"),
    *("chat_template.jinja", "chat_template.json"),
    *(*TRANSFORMER_CONFIGS, WORDS_CONFIG, WORDS_VOCABULARY, LSTM_CONFIG),
}
_OF_MODELS = {_CARD, MODULES, SETTINGS, REFERENCE}


def check_replaceable(target: Path, also: Collection[str] = ()) -> None:
    """Raise a ValueError if saving a model to ``target`` would delete files that do not belong to a model.

    A folder is a model folder if its modules.json lists modules or its config.json describes a model. It may contain
    files with the names that a save writes, the weight files in its index, and module folders with such files. Links
    are refused, because they may lead to other data.

    Args:
        target: The folder, which may be empty or missing.
        also: Paths of further files that may be replaced, relative to ``target``, with slashes.

    Raises:
        ValueError: If there is another file, with its name.
    """
    check_own(target, "a model", lambda folder: foreign_file(folder, also))


def foreign_file(folder: Path, also: Collection[str] = ()) -> str | None:
    """The first file or folder that ``check_replaceable`` refuses, relative to ``folder``; None if all are allowed."""
    modules = _find_modules(folder)
    if modules is None:
        return foreign(folder, lambda _: False)
    known = {*_OF_MODELS, *also}
    for module in modules:
        known.update(str(module / name) for name in (*_OF_MODULES, *_list_shards(folder / module)))
    templates = {module / _TEMPLATES for module in modules}
    folders = {*modules, *templates, *(PurePosixPath(name).parent for name in also)}

    def is_known(name: str) -> bool:
        path = PurePosixPath(name)
        return name in known or (path.parent in templates and path.suffix == ".jinja")

    return foreign(folder, is_known, {str(path) for each in folders for path in (each, *each.parents)})


def _find_modules(folder: Path) -> set[PurePosixPath] | None:
    """The folders of a model's modules, relative to ``folder``; None if it is not a model folder."""
    try:
        if (folder / MODULES).is_file():
            listed = read_json(folder / MODULES)
            return {PurePosixPath(), *map(_path, listed)} if isinstance(listed, list) and listed else None
        config = read_object(folder / _CONFIG)
    except (UnreadableError, TypeError):
        return None
    described = isinstance(config.get("model_type"), str) or isinstance(config.get("architectures"), list)
    return {PurePosixPath()} if described else None


def _path(entry: Any) -> PurePosixPath:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise TypeError("not an entry of a module")
    return PurePosixPath(entry.get("path") or "")


def _list_shards(folder: Path) -> set[str]:
    """The weight files that an index lists."""
    shards: set[str] = set()
    for name in _INDEXES:
        with suppress(UnreadableError):
            listed = read_object(folder / name, missing_ok=True).field("weight_map", dict, {}).values()
            shards.update(str(file) for file in listed if str(file).endswith((".safetensors", ".bin")))
    return shards
