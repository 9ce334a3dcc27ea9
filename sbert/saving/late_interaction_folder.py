"""Folders of encoders with one vector per token: PyLate's, which are written; sentence-transformers'; ColBERT's own."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sbert.backends import position_limit
from sbert.modules import Dense, LateInteraction, Normalize, Transformer
from sbert.saving.format import TRANSFORMER_CONFIGS
from sbert.storage.files import JsonObject, read_object, reading
from sbert.storage.weight_files import read_header, read_weights

# What PyLate takes where a folder leaves it out, beside the defaults of LateInteraction.
_DEFAULTS = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "skiplist_words": list(string.punctuation)}


def read_original(folder: Path, transformer: nn.Module, dtype: torch.dtype | None) -> list[nn.Module]:
    """The modules of an original checkpoint, whose settings may stand in ``artifact.metadata``."""
    header = read_header(folder)
    with reading(header.path, "the projection of ColBERT"):
        weight = read_weights(header)["linear.weight"]
        dense = Dense(weight.shape[1], weight.shape[0], bias=False, activation="Identity")
        dense.linear.load_state_dict({"weight": weight})
    metadata = read_object(folder / "artifact.metadata", missing_ok=True)
    values: dict[str, Any] = {
        "query_length": metadata.get("query_maxlen"),
        "document_length": metadata.get("doc_maxlen"),
        "query_prefix": metadata.get("query_token_id") or "[unused0]",
        "document_prefix": metadata.get("doc_token_id") or "[unused1]",
        "attend_to_expansion_tokens": metadata.get("attend_to_mask_tokens"),
        "skiplist_words": [] if metadata.get("mask_punctuation") is False else None,
    }
    return add_roles([transformer, dense.to(dtype or torch.float32)], JsonObject(values, metadata.path))


def add_roles(modules: list[Any], config: JsonObject) -> list[nn.Module]:
    """The modules of a folder of PyLate, with the normalization and the roles that its settings imply."""
    defaults = LateInteraction().settings | _DEFAULTS
    settings = {name: config.field(name, type(default), default) for name, default in defaults.items()}
    with reading(config.path, "settings of queries and documents"):
        roles = LateInteraction(**settings)
    # PyLate writes the limit of its last call.
    longest = max(roles.settings["query_length"], roles.settings["document_length"])
    modules[0].max_seq_length = min(longest, position_limit(modules[0].network) or longest)
    return [*modules, Normalize(), roles]


def read_mask(folder: Path, _: object) -> LateInteraction:
    """The roles that the settings of ``MultiVectorMask`` and of the transformer beside it state."""
    mask = read_object(folder / "config.json")
    config = read_object(folder.parent / TRANSFORMER_CONFIGS[0], missing_ok=True)
    expansion = JsonObject(config.field("query_expansion", dict, {}), config.path)
    is_usual = expansion.get("strategy", "fixed") == "fixed" and expansion.get("token") in (None, "[MASK]")
    tasks, chosen = mask.get("skiplist_tasks") or ["document"], mask.get("keep_only_token_ids")
    if not is_usual or tasks not in ("document", ["document"]) or chosen:
        raise mask.error(f"and {config.path.name} have settings that are not supported", "use another model")
    return LateInteraction(
        expansion.field("length", int, None) or config.field("query_length", int, None),
        config.field("document_length", int, None),
        do_query_expansion=bool(expansion),
        attend_to_expansion_tokens=expansion.field("attend", bool, False),
        skiplist_words=map(str, mask.field("skiplist_words", list, [])),
    )


def role_settings(model: Sequence[nn.Module], limit: int | None) -> dict[str, Any]:
    """The settings of an encoder with one vector per token as PyLate has them; sentence-transformers reads these.

    Raises:
        ValueError: If its modules are not those that PyLate implies.
    """
    roles = [module for module in model if isinstance(module, LateInteraction)]
    kinds = [type(module) for module in model if module not in roles]
    if kinds[0] is not Transformer or kinds[-1] is not Normalize or set(kinds[1:-1]) != {Dense}:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"vectors per token of {names} have no format; pass Transformer, Dense, Normalize")
    chosen = roles[0] if roles else LateInteraction(None, None, do_query_expansion=False)
    settings = {name: limit if value is None else value for name, value in chosen.settings.items()}
    return {"similarity_fn_name": "MaxSim", **settings}
