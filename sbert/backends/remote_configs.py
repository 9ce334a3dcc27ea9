"""Configurations of models whose folders name code of their own, in the terms of transformers, which has them now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbert.storage.files import UnreadableError

# The names of Nomic AI's code, and those of transformers.
_NOMIC = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "max_trained_positions": "max_position_embeddings",
    "rotary_emb_base": "rope_theta",
}
# What the code of a folder could do and transformers cannot: it would compute something else without a word.
_ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "nomic_bert": {
        "activation_function": ("swiglu",),
        "prenorm": (False,),
        "qkv_proj_bias": (False,),
        "rotary_emb_fraction": (1.0,),
        "rotary_emb_interleaved": (False,),
        "rotary_scaling_factor": (None,),
    },
    "gte": {"position_embedding_type": ("rope",), "layer_norm_type": ("layer_norm",), "logn_attention_scale": (False,)},
    **{name: {"position_embedding_type": ("absolute",)} for name in ("bert", "roberta", "xlm-roberta", "electra")},
}


def native(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The values of a ``config.json`` as transformers has them; the same values for most models.

    Args:
        values: Its values.
        path: Its path, for errors.

    Raises:
        UnreadableError: If the model needs code from its folder.

    Example:
        >>> found = native({"model_type": "nomic_bert", "n_embd": 8, "auto_map": {}}, Path("config.json"))
        >>> found["hidden_size"]
        8
    """
    kind = "gte" if values.get("model_type") == "new" and "auto_map" in values else values.get("model_type")
    for key, supported in _ONLY.get(str(kind), {}).items():
        if values.get(key, supported[0]) not in supported:
            reason = f"gives {key}={values[key]!r}, which needs code from its folder, and that is never run"
            raise UnreadableError(path, reason, "use another model; the guide of sbert.integrations lists some")
    if kind == "nomic_bert":
        return {**{_NOMIC[key]: values[key] for key in _NOMIC if values.get(key) is not None}, **values}
    return _gte(values) if kind == "gte" else values


def _gte(values: dict[str, Any]) -> dict[str, Any]:
    """NTK scaling by a factor f, which raises the base to f * base and divides frequencies by f^(2 / head_dim)."""
    found = {**values, "model_type": "gte"}
    scaling = values.get("rope_scaling") or {}
    if scaling.get("type") == "ntk":
        factor, heads = scaling["factor"], values["num_attention_heads"]
        found["rope_theta"] = float(values["rope_theta"]) * factor
        found["rope_scaling"] = {"rope_type": "linear", "factor": factor ** (2 * heads / values["hidden_size"])}
    return found
