"""Codecs of Dense, LayerNorm, Dropout and Normalize."""

from __future__ import annotations

from pathlib import Path

from sbert.modules import Dense, Dropout, LayerNorm, Normalize
from sbert.modules.dense import ACTIVATIONS
from sbert.saving.codecs.codec import Codec, ReadOptions, dimension, with_weights, write_weights
from sbert.storage.files import UnreadableError, field, read_object, write_json


def _read_dense(folder: Path, _: ReadOptions) -> Dense:
    path = folder / "config.json"
    config = read_object(path)
    for key in ("module_input_name", "module_output_name"):
        if field(config, path, key, str, "sentence_embedding") != "sentence_embedding":
            raise UnreadableError(path, f"gives {key}={config[key]!r}, which is not supported", "use another model")
    activation = field(config, path, "activation_function", str, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.modules.") or name not in ACTIVATIONS:
        reason = f"names the activation {activation!r}, which is not one of {', '.join(ACTIVATIONS)}"
        raise UnreadableError(path, reason, "use another model")
    return with_weights(
        folder,
        path,
        Dense,
        dimension(config, path, "in_features"),
        dimension(config, path, "out_features"),
        field(config, path, "bias", bool, True),
        name,
        field(config, path, "use_residual", bool, False),
    )


def _write_dense(module: Dense, folder: Path, _: int) -> None:
    activation = type(module.activation_function)
    config = {
        "in_features": module.linear.in_features,
        "out_features": module.linear.out_features,
        "bias": module.linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
        **({"use_residual": True} if module.use_residual else {}),
    }
    write_json(folder / "config.json", config)
    write_weights(module.state_dict(), folder)


def _read_layer_norm(folder: Path, _: ReadOptions) -> LayerNorm:
    path = folder / "config.json"
    return with_weights(folder, path, LayerNorm, dimension(read_object(path), path, "dimension"))


def _write_layer_norm(module: LayerNorm, folder: Path, _: int) -> None:
    write_json(folder / "config.json", {"dimension": module.norm.normalized_shape[0]})
    write_weights(module.state_dict(), folder)


def _read_dropout(folder: Path, _: ReadOptions) -> Dropout:
    path = folder / "config.json"
    p = field(read_object(path), path, "dropout", (int, float), 0.2)
    if not 0 <= p <= 1:
        raise UnreadableError(path, f"gives dropout={p} where 0 to 1 is expected")
    return Dropout(float(p))


def _write_dropout(module: Dropout, folder: Path, _: int) -> None:
    write_json(folder / "config.json", {"dropout": module.p})


def _write_normalize(_: Normalize, folder: Path, __: int) -> None:
    write_json(folder / "config.json", {})


DENSE = Codec(_read_dense, _write_dense)
LAYER_NORM = Codec(_read_layer_norm, _write_layer_norm)
DROPOUT = Codec(_read_dropout, _write_dropout)
NORMALIZE = Codec(lambda *_: Normalize(), _write_normalize)
