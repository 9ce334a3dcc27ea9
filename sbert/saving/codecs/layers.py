"""Codecs of Dense, LayerNorm, Dropout, Normalize and LSTM."""

from __future__ import annotations

from typing import Any

from sbert.modules import LSTM, Dense, Dropout, LayerNorm, Normalize
from sbert.modules.dense import ACTIVATIONS
from sbert.saving.codecs.codec import Codec, configured
from sbert.saving.format import LSTM_CONFIG
from sbert.storage.files import JsonObject, write_json


def _dense_arguments(config: JsonObject) -> dict[str, Any]:
    for key in ("module_input_name", "module_output_name"):
        if config.field(key, str, "sentence_embedding") != "sentence_embedding":
            raise config.error(f"gives {key}={config[key]!r}, which is not supported", "use another model")
    activation = config.field("activation_function", str, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.modules.") or name not in ACTIVATIONS:
        reason = f"names the activation {activation!r}, which is not one of {', '.join(ACTIVATIONS)}"
        raise config.error(reason, "use another model")
    return {
        "in_features": config.dimension("in_features"),
        "out_features": config.dimension("out_features"),
        "bias": config.field("bias", bool, True),
        "activation": name,
        "residual": config.field("use_residual", bool, False),
    }


def _dense_settings(module: Dense, _: int) -> dict[str, Any]:
    activation = type(module.activation_function)
    return {
        "in_features": module.linear.in_features,
        "out_features": module.linear.out_features,
        "bias": module.linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
        **({"use_residual": True} if module.use_residual else {}),
    }


def _dropout_arguments(config: JsonObject) -> dict[str, Any]:
    p = config.field("dropout", (int, float), 0.2)
    if not 0 <= p <= 1:
        raise config.error(f"gives dropout={p} where 0 to 1 is expected")
    return {"p": float(p)}


def _lstm_arguments(config: JsonObject) -> dict[str, Any]:
    key = "word_embedding_dimension" if "word_embedding_dimension" in config else "embedding_dimension"
    return {
        "in_features": config.dimension(key),
        "hidden": config.dimension("hidden_dim"),
        "layers": config.field("num_layers", int, 1),
        "dropout": float(config.field("dropout", (int, float), 0.0)),
        "bidirectional": config.field("bidirectional", bool, True),
    }


def _lstm_settings(module: LSTM, _: int) -> dict[str, Any]:
    return {
        "word_embedding_dimension": module.encoder.input_size,
        "hidden_dim": module.encoder.hidden_size,
        "num_layers": module.encoder.num_layers,
        "dropout": module.encoder.dropout,
        "bidirectional": module.encoder.bidirectional,
    }


DENSE = configured(Dense, _dense_arguments, _dense_settings)
LAYER_NORM = configured(
    LayerNorm,
    lambda config: {"dim": config.dimension("dimension")},
    lambda module, _: {"dimension": module.norm.normalized_shape[0]},
)
DROPOUT = configured(Dropout, _dropout_arguments, lambda module, _: {"dropout": module.p})
NORMALIZE = Codec(lambda *_: Normalize(), lambda _, folder, __: write_json(folder / "config.json", {}))
LSTM_CODEC = configured(LSTM, _lstm_arguments, _lstm_settings, LSTM_CONFIG)
