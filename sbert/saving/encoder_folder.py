"""Read encoders of sentence-transformers 2 to 6, transformers and model2vec; write them in the oldest format of these.

All tools in the field can read that format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sbert.functional import SIMILARITIES
from sbert.modules import Dense, Normalize, Pooling, Router, StaticEmbedding, Transformer
from sbert.saving.codecs import Arguments, ReadOptions, find_class, find_codec, type_name
from sbert.saving.format import CARD, MODULES, MULTI_VECTOR, POOLING_KEYS, REFERENCE, SETTINGS, EncoderSettings
from sbert.saving.late_interaction_folder import add_roles, read_original, role_settings
from sbert.saving.model_card import encoder_card
from sbert.saving.verification import Reference
from sbert.storage.files import JsonObject, UnreadableError, inside, read_json, read_object, write_json

_MAX_MODULES, _MODES = 100, set(POOLING_KEYS.values())
# The line of a card that names its languages, or the list below it; and the bytes in which it is searched.
_LANGUAGES, _HEAD = re.compile(r"^language:(.*(?:\n *- .*)*)", re.MULTILINE), 1 << 16


def read_folder(
    folder: Path,
    dtype: torch.dtype | None,
    resolve: Callable[[str], Path],
    arguments: Arguments,
    keep_half: bool = False,
) -> tuple[EncoderSettings, list[nn.Module], Reference | None]:
    """The settings, modules and reference vectors of the encoder in ``folder``.

    Args:
        folder: The folder of the model.
        dtype: Dtype of the weights. Default: float32.
        resolve: Returns the folder of a model by its name; an adapter's files name their base model.
        arguments: The caller's arguments for transformers, by the names that folders have for them.
        keep_half: Whether weights stay in half precision where a file has them so, unless there is a dtype.

    Raises:
        ValueError: If a file is damaged or names an unknown module; the message names the file.
    """
    config = read_object(folder / SETTINGS, missing_ok=True)
    settings = _read_settings(folder, config)
    options = ReadOptions(dtype, resolve, arguments, keep_half, config.get("model_type") in MULTI_VECTOR)
    # A broken link is an error, not a model without modules.json.
    read = _read_modules if os.path.lexists(folder / MODULES) else _read_plain_model
    modules = read(folder, options)
    if config.get("model_type") == "ColBERT":
        modules = add_roles(modules, config)
    return settings, modules, read_reference(folder / REFERENCE)


def _read_settings(folder: Path, config: JsonObject) -> EncoderSettings:
    """Prompts, similarity, truncation and language of the encoder in ``folder``."""
    kind = config.get("model_type") or "SentenceTransformer"
    if kind not in ("SentenceTransformer", "SparseEncoder", *MULTI_VECTOR):
        remedy = "load it with CrossEncoder" if kind == "CrossEncoder" else "load it with another library"
        raise config.error(f"describes a {kind}, not a sentence encoder", remedy)
    prompts, default = read_prompts(config)
    similarity = config.field("similarity_fn_name", str, None)
    if kind in MULTI_VECTOR and similarity != "meanmaxsim":
        similarity = None  # MaxSim; PyLate may name that of the model that was trained.
    elif similarity is not None and similarity not in SIMILARITIES:
        raise config.error(f"gives similarity_fn_name={similarity!r}, not one of {', '.join(SIMILARITIES)}")
    dims = {name: config.field(name, int, None) for name in ("truncate_dim", "max_active_dims")}
    for name, dim in dims.items():
        if dim is not None and dim < 1:
            raise config.error(f"gives {name}={dim} where at least 1 is expected")
    return EncoderSettings(prompts, default, similarity, language=_read_language(folder / CARD), **dims)


def _read_language(card: Path) -> str | None:
    """The language that the metadata of a card name, such as ``"en"``; None if they name none or several."""
    names = []
    with suppress(OSError):
        if card.is_file():  # A pipe could block forever.
            with card.open("rb") as file:
                metadata = file.read(_HEAD).decode("utf-8", "replace").replace("\r\n", "\n").partition("\n---")[0]
            lines = _LANGUAGES.search(metadata) if metadata.startswith("---\n") else None
            names = re.findall(r"[A-Za-z][\w-]*", lines[1]) if lines else []
    return names[0].lower() if len(names) == 1 else None


def read_prompts(config: JsonObject) -> tuple[dict[str, str], str | None]:
    """The prompts of a model by name, and the name of its default prompt."""
    prompts = config.field("prompts", dict, {})
    if set(map(type, prompts.values())) - {str}:
        raise config.error("gives prompts that are not strings")
    default = config.field("default_prompt_name", str, None)
    if default is not None and default not in prompts:
        raise config.error(f"gives default_prompt_name={default!r}, which is not among its prompts")
    return prompts, default


def write_settings(folder: Path, kind: str, model: Any, **more: Any) -> None:
    """Write the prompts of a model and more settings."""
    # A low version, so that no version of sentence-transformers warns that the model is newer.
    version = {"__version__": {"sentence_transformers": "2.3.0"}}
    prompts = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
    write_json(folder / SETTINGS, {**version, "model_type": kind, **prompts, **more})


def _read_modules(folder: Path, options: ReadOptions) -> list[nn.Module]:
    """The modules that modules.json lists."""
    path = folder / MODULES
    entries = read_json(path)
    if not isinstance(entries, list) or not 1 <= len(entries) <= _MAX_MODULES or set(map(type, entries)) != {dict}:
        raise UnreadableError(path, f"contains no list of 1 to {_MAX_MODULES} modules")
    modules: list[nn.Module] = []
    with_weights = set()
    for values in entries:
        entry = JsonObject(values, path)
        kind, where = entry.require("type", str), inside(folder, entry.field("path", str, ""), path)
        module = find_codec(find_class(kind, path)).read(where, options)
        if module.state_dict():
            if where.resolve() in with_weights:
                raise UnreadableError(path, f"names the weights in {where} twice")
            with_weights.add(where.resolve())
        modules.append(module if options.dtype is None else module.to(options.dtype))
    return modules


def _read_plain_model(folder: Path, options: ReadOptions) -> list[nn.Module]:
    """A model2vec model, or a Hugging Face model with mean pooling (decoders: the last token)."""
    config = read_object(folder / "config.json", missing_ok=True)
    if config.get("model_type") == "model2vec":
        static = find_codec(StaticEmbedding).read(folder, options)
        return [static, Normalize()] if config.get("normalize") else [static]
    transformer = find_codec(Transformer).read(folder, options)
    architectures = config.field("architectures", list, None) or [""]
    if "HF_ColBERT" in architectures:
        return read_original(folder, transformer, options.dtype)
    is_decoder = str(architectures[0]).endswith("ForCausalLM") and config.get("is_causal") is not False
    return [transformer, Pooling("lasttoken" if is_decoder else "mean")]


def read_reference(path: Path) -> Reference | None:
    """The reference texts and vectors in a file; None if the file does not exist."""
    if not path.exists():
        return None
    recorded = read_object(path)
    texts, rows = recorded.require("texts", list), recorded.require("vectors", list)
    try:
        vectors = np.array(rows, dtype=np.float32)
    except (TypeError, ValueError):
        vectors = np.empty(0, np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not all(isinstance(text, str) for text in texts):
        raise recorded.error("does not contain one vector per text")
    return {"texts": texts, "vectors": vectors, "versions": recorded.field("versions", dict, {})}


def fit_together(modules: Sequence[nn.Module]) -> bool:
    """Whether a transformer and built-in modules after it fit by their dimensions; False if a trial has to tell."""
    first, *rest = modules
    if type(first) is not Transformer or not rest or type(rest[0]) is not Pooling or set(rest[0].modes) - _MODES:
        return False
    dim = getattr(first, "dim", 0) * len(rest[0].modes)
    for module in rest[1:]:
        if isinstance(module, Dense) and module.linear.in_features == dim:
            dim = module.linear.out_features
        elif type(module) is not Normalize:
            return False
    return dim > 0


def write_folder(
    folder: Path, model: Any, input_dims: Mapping[nn.Module, int], name: str | None, path: Path, reference: Reference
) -> None:
    """Write the modules, settings, reference vectors and card of an encoder to an empty folder.

    Args:
        folder: The folder, which must exist.
        model: The encoder.
        input_dims: Dimension of the input of each module after the first, also of those of a Router.
        name: Name of the model, for its card.
        path: Where the folder will be, for its card.
        reference: Texts with their vectors, for ``verify``.
    """
    entries = []
    roles = role_settings(list(model), model.max_seq_length) if model.is_multi_vector else {}
    for index, module in enumerate(model):
        kind = type(module)
        if roles and kind not in (Transformer, Dense):  # Implied by the settings.
            continue
        where = "" if kind in (Transformer, Router) and index == 0 else f"{index}_{kind.__name__}"
        (folder / where).mkdir(exist_ok=True)
        find_codec(kind).write(module, folder / where, input_dims)
        entries.append({"idx": index, "name": str(index), "path": where, "type": type_name(module)})
    write_json(folder / MODULES, entries)
    truncation = {} if model.truncate_dim is None else {"truncate_dim": model.truncate_dim}
    truncation |= {} if model.max_active_dims is None else {"max_active_dims": model.max_active_dims}
    described = "ColBERT" if roles else "SparseEncoder" if model.is_sparse else "SentenceTransformer"
    write_settings(folder, described, model, **{"similarity_fn_name": model.similarity_fn_name, **truncation, **roles})
    vectors = [[float(x) for x in row] for row in reference["vectors"]]
    write_json(folder / REFERENCE, {**reference, "vectors": vectors})
    (folder / CARD).write_text(encoder_card(name, path, model), encoding="utf-8")
