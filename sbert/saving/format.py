"""Model folders in the format of sentence-transformers: files, keys, settings, and what a save may replace."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sbert.backends import huggingface
from sbert.storage.files import JsonObject, UnreadableError, read_json, read_object
from sbert.storage.folders import check_own, find_foreign

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
REFERENCE = "sbert_reference.json"
CARD = "README.md"
WORDS_CONFIG = "wordembedding_config.json"
WORDS_VOCABULARY = "whitespacetokenizer_config.json"
LSTM_CONFIG = "lstm_config.json"
ROUTER_CONFIG = "router_config.json"
THEIRS, PYLATE = "sentence_transformers.", "pylate.models."
OURS = "sbert."
# What PyLate and sentence-transformers call encoders with one vector per token.
MULTI_VECTOR = ("ColBERT", "MultiVectorEncoder")

# The file names that sentence-transformers has used for the settings of a transformer.
TRANSFORMER_CONFIGS = [
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
# The flags of poolings, in the order in which their vectors are concatenated, and the names of the modes.
POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_NAMES = {"mean_sqrt_len_tokens": "mean_sqrt_len"}

_CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_INDEXES = tuple(f"{name}.index.json" for name in _WEIGHTS)
_TEMPLATES = "additional_chat_templates"
# Files that this library, transformers and peft write for one module, at the top or in the module's folder.
_OF_MODULES = {
    *(_CONFIG, "generation_config.json", *_WEIGHTS, *_INDEXES),
    *("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"),
    *(*huggingface.TOKENIZER_FILES, "tokenizer.model", "spm.model", "sentencepiece.model", "bpe.codes"),
    *("chat_template.jinja", "chat_template.json"),
    *(*TRANSFORMER_CONFIGS, WORDS_CONFIG, WORDS_VOCABULARY, LSTM_CONFIG, ROUTER_CONFIG),
}
_OF_MODELS = {CARD, MODULES, SETTINGS, REFERENCE}


@dataclass
class EncoderSettings:
    """The settings of an encoder, in addition to its modules."""

    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = None
    language: str | None = None
    max_active_dims: int | None = None


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
    check_own(target, "a model", lambda folder: find_foreign_file(folder, also))


def find_foreign_file(folder: Path, also: Collection[str] = ()) -> str | None:
    """The first file or folder that ``check_replaceable`` refuses, relative to ``folder``; None if all are allowed."""
    modules = _find_modules(folder)
    if modules is None:
        return find_foreign(folder, lambda _: False)
    known = {*_OF_MODELS, *also}
    for module in modules:
        known.update(str(module / name) for name in (*_OF_MODULES, *_list_shards(folder / module)))
    templates = {module / _TEMPLATES for module in modules}
    folders = {*modules, *templates, *(PurePosixPath(name).parent for name in also)}

    def is_known(name: str) -> bool:
        path = PurePosixPath(name)
        return name in known or (path.parent in templates and path.suffix == ".jinja")

    return find_foreign(folder, is_known, {str(path) for inner in folders for path in (inner, *inner.parents)})


def _find_modules(folder: Path) -> set[PurePosixPath] | None:
    """The folders of a model's modules, relative to ``folder``; None if it is not a model folder."""
    try:
        if (folder / MODULES).is_file():
            entries = [JsonObject(entry, folder / MODULES) for entry in read_json(folder / MODULES)]
            paths = {PurePosixPath(entry.field("path", str, "")) for entry in entries if entry.require("type", str)}
            for path in list(paths):  # The modules of a Router have folders in its own.
                types = read_object(folder / path / ROUTER_CONFIG, missing_ok=True).field("types", dict, {})
                paths |= {path / name for name in types}
            return paths and {PurePosixPath(), *paths}
        config = read_object(folder / _CONFIG)
    except (ValueError, TypeError):  # Also of what is no list of objects.
        return None
    described = isinstance(config.get("model_type"), str) or isinstance(config.get("architectures"), list)
    return {PurePosixPath()} if described else None


def _list_shards(folder: Path) -> set[str]:
    """The weight files that an index lists."""
    shards: set[str] = set()
    for name in _INDEXES:
        with suppress(UnreadableError):
            listed = read_object(folder / name, missing_ok=True).field("weight_map", dict, {}).values()
            shards.update(str(file) for file in listed if str(file).endswith((".safetensors", ".bin")))
    return shards
