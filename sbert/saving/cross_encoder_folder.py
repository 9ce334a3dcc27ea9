"""Read and write cross-encoders: a transformer with a classification head, and the activation of its scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.inputs.arguments import warn
from sbert.modules.dense import DENSE_ACTIVATIONS
from sbert.saving.codecs import Arguments
from sbert.saving.codecs.transformer_codec import write_network
from sbert.saving.encoder_folder import read_prompts, write_settings
from sbert.saving.format import MODULES, SETTINGS
from sbert.saving.model_card import cross_encoder_card
from sbert.storage.files import JsonObject, UnreadableError, read_json, read_object, reading, write_json
from sbert.storage.folders import read_whole

_Activation = Callable[[Tensor], Tensor]
_Prompts = tuple[dict[str, str], str | None]  # By name, and the name of the default prompt.

# The key in config.json, the key of the activation inside it, and the key that sentence-transformers used before 4.0.
_KEY, _NAME, _OLD_KEY = "sentence_transformers", "activation_fn", "sbert_ce_default_activation_function"

# What sentence-transformers loads a folder with prompts with.
_MODULE, _TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer", "sentence_bert_config.json"
_TASK = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


def _full_name(kind: type[nn.Module]) -> str:
    return f"{kind.__module__}.{kind.__name__}"


# Names from files are only looked up here. The dimension of Softmax is not saved in folders.
_BY_NAME: dict[str, nn.Module] = {
    **{_full_name(kind): kind() for kind in DENSE_ACTIVATIONS.values()},
    _full_name(nn.Softmax): nn.Softmax(dim=-1),
}


def _read_activation(folder: Path) -> nn.Module | None:
    """The activation of the scores that the folder names; None if it names none.

    Raises:
        ValueError: If it is not a known activation of torch.
    """
    config, settings = read_object(folder / "config.json"), read_object(folder / SETTINGS, missing_ok=True)
    inner = JsonObject(config.field(_KEY, dict, {}), config.path)
    for source, key in ((settings, _NAME), (inner, _NAME), (config, _OLD_KEY)):
        name = source.field(key, str, None)
        if name in _BY_NAME:
            return _BY_NAME[name]
        if name is not None:
            reason = f"names the activation {name!r}, which is not one of {', '.join(_BY_NAME)}"
            raise source.error(reason, "pass activation=")
    return None


def check_activation(activation: Any) -> str:
    """The name of an activation in model folders; raise a ValueError if it has none."""
    name = _full_name(type(activation))
    if name not in _BY_NAME or repr(_BY_NAME[name]) != repr(activation):
        raise ValueError(
            f"the activation {activation!r} cannot be saved by name; set model.activation to one of torch.nn's own,"
            " such as nn.Sigmoid() or nn.Identity(), and pass yours to predict()"
        )
    return name


def _read_prompts(folder: Path) -> _Prompts:
    """The prompts of a cross-encoder and its default; raise a ValueError for modules other than one with a head."""
    settings = read_object(folder / SETTINGS, missing_ok=True)
    if settings.get("model_type") != "CrossEncoder":  # The prompts of a sentence encoder are not meant for pairs.
        return {}, None
    chain = read_json(folder / MODULES) if (folder / MODULES).exists() else []
    kinds = [str(entry.get("type", "")).rpartition(".")[2] for entry in chain]
    if chain and kinds != ["Transformer"]:
        reason = f"lists {', '.join(kinds)}, where only a Transformer with its own head is supported"
        raise UnreadableError(folder / MODULES, reason, "use a model that scores pairs with such a head")
    return read_prompts(settings)


def find_head(config: Any) -> str | None:
    """The class of a model with a head for scores that a configuration names; None if a head would be new."""
    kinds = getattr(config, "architectures", None) or ()
    return next((kind for kind in kinds if kind.endswith("ForSequenceClassification")), None)


def read_cross_encoder(
    folder: Path, classes: int | None, dtype: torch.dtype, activation: _Activation | None, arguments: Arguments
) -> tuple[Any, Any, list[str], _Activation, _Prompts]:
    """The transformer of a folder with its head, its tokenizer, new weights, the activation of scores, and the prompts.

    One warning names the weights of a new head, unless ``classes`` asks for one.

    Args:
        folder: The folder.
        classes: Number of scores of a new head. Default: 1.
        dtype: Dtype of the weights.
        activation: The activation. Default: the one that the folder names, else a sigmoid for one class and the
            identity for several.
        arguments: The caller's arguments for transformers, by the names that folders have for them.

    Raises:
        ValueError: If a file is damaged or not supported; the message names it.
    """

    def read() -> tuple[Any, Any, list[str], _Activation | None, _Prompts]:
        prompts = _read_prompts(folder)
        with reading(folder / "config.json", "the configuration of a cross-encoder"):
            network, new = _read_network(folder, classes, dtype, arguments)
        tokenizer = huggingface.load_tokenizer(folder, arguments["processor_kwargs"])
        return network, tokenizer, new, _read_activation(folder) if activation is None else activation, prompts

    network, tokenizer, new, stated, prompts = read_whole(folder, read)
    if tokenizer.pad_token_id is None:
        raise UnreadableError(folder, "has a tokenizer without a padding token", "set its pad_token, and save it")
    if network.config.pad_token_id is None:  # A decoder looks for its last token by it.
        network.config.pad_token_id = tokenizer.pad_token_id
    if stated is None:
        stated = nn.Sigmoid() if network.config.num_labels == 1 else nn.Identity()
    if new and classes is None:
        more = f" and {len(new) - 3} more" if new[3:] else ""
        what = f"{folder} has no head that scores pairs: {', '.join(new[:3])}{more} are new, with random weights"
        warn(f"{what}, so that scores mean nothing yet; load a cross-encoder, or pass classes=1 and train the new head")
    return network, tokenizer, new, stated, prompts


def _read_network(folder: Path, classes: int | None, dtype: torch.dtype, arguments: Arguments) -> tuple[Any, list[str]]:
    """The transformer with its head, or with a new head of ``classes`` outputs (default 1), and its new weights."""
    config = huggingface.load_config(folder, arguments["config_kwargs"])
    options = arguments["model_kwargs"]
    path, kinds = folder / "config.json", config.architectures or []
    if find_head(config):
        if classes is not None and classes != config.num_labels:
            remedy = "leave classes= out, or start from a model without a head"
            raise UnreadableError(path, f"describes a head of {config.num_labels} scores, not {classes}", remedy)
        return huggingface.load_classifier(folder, config, dtype, options, fresh=False)
    if classes is None and any(kind.endswith("ForCausalLM") for kind in kinds):
        reason = f"describes a generative model ({kinds[0]}) without a classification head"
        raise UnreadableError(path, reason, "pass classes= for a new head, which has to be trained")
    config.num_labels = classes or arguments["config_kwargs"].get("num_labels", 1)
    return huggingface.load_classifier(folder, config, dtype, options, fresh=True)


def write_cross_encoder(folder: Path, name: str | None, path: Path, model: Any) -> None:
    """Write a cross-encoder in the format of transformers.

    Args:
        folder: The folder.
        name: Name of the model, for its card.
        path: Where the folder will be, for its card.
        model: The cross-encoder.

    Raises:
        ValueError: If the activation cannot be saved by name.
    """
    kind = check_activation(model.activation)
    write_network(model.auto_model, model.tokenizer, model.max_seq_length, folder)
    config = read_object(folder / "config.json")
    config.pop(_OLD_KEY, None)
    write_json(folder / "config.json", {**config, _KEY: {_NAME: kind}})
    if model.prompts:  # Without them, sentence-transformers needs none of these files.
        write_settings(folder, "CrossEncoder", model, **{_NAME: kind})
        write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": _MODULE}])
        write_json(folder / _TRANSFORMER, _TASK)
    (folder / "README.md").write_text(cross_encoder_card(name, path, model), encoding="utf-8")
