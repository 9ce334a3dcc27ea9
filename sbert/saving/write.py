"""Writing model folders in the oldest dialect of sentence-transformers, which all tools of the field read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.modules import (
    LSTM,
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
    WordEmbeddings,
)
from sbert.modules.registry import check_name
from sbert.saving.format import (
    LSTM_CONFIG,
    MODULES,
    OURS,
    POOLING_KEYS,
    POOLING_NAMES,
    SETTINGS,
    THEIRS,
    WORDS_CONFIG,
    WORDS_VOCABULARY,
    Settings,
)
from sbert.storage.files import write_json


def write_folder(folder: Path, modules: Sequence[nn.Module], widths: Sequence[int], settings: Settings) -> None:
    """Write an encoder's modules and settings into an empty folder.

    Args:
        folder: Where to.
        modules: The encoder's modules.
        widths: Width of each module's output.
        settings: The rest.
    """
    entries, before = [], 0
    for index, (module, width) in enumerate(zip(modules, widths, strict=True)):
        name = type(module).__name__
        path = "" if type(module) is Transformer and index == 0 else f"{index}_{name}"
        where = folder / path
        where.mkdir(exist_ok=True)
        known = type(module) in _WRITERS
        if known:
            _WRITERS[type(module)](module, where, before)
        else:
            _write_own(module, where)
        kind = f"{THEIRS}models.{name}" if known else f"{OURS}{name}"
        entries.append({"idx": index, "name": str(index), "path": path, "type": kind})
        before = width
    write_json(folder / MODULES, entries)
    write_json(
        folder / SETTINGS,
        {
            # A low version, so that no version of sentence-transformers warns that the model is newer.
            "__version__": {"sentence_transformers": "2.3.0"},
            "model_type": "SentenceTransformer",
            "prompts": settings.prompts,
            "default_prompt_name": settings.default_prompt_name,
            "similarity_fn_name": settings.similarity_fn_name,
            **({} if settings.truncate_dim is None else {"truncate_dim": settings.truncate_dim}),
        },
    )


def _write_transformer(module: Any, folder: Path, before: int) -> None:
    limit = module.max_seq_length
    with huggingface.quiet():
        huggingface.merged(module.auto_model).save_pretrained(folder, safe_serialization=True)
        tokenizer = module.tokenizer
        stated = tokenizer.model_max_length
        tokenizer.model_max_length = limit or stated
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = stated
    # text-embeddings-inference reads the limit as a number, and refuses a file in which it is missing or null.
    values = {"max_seq_length": limit, "do_lower_case": module.lower_case}
    if limit is None:
        del values["max_seq_length"]
    if limit is not None or module.lower_case:
        write_json(folder / "sentence_bert_config.json", values)


def _write_pooling(module: Any, folder: Path, before: int) -> None:
    # The old keys know neither an order nor modes of the user's; the new one is read since sentence-transformers 5.4.
    ordered = [mode for mode in POOLING_KEYS.values() if mode in module.modes]
    modes = [_names_of(mode) for mode in module.modes]
    config = {
        "word_embedding_dimension": before,
        **{key: mode in module.modes for key, mode in POOLING_KEYS.items()},
        **({} if list(module.modes) == ordered else {"pooling_mode": modes}),
        "include_prompt": module.include_prompt,
    }
    write_json(folder / "config.json", config)


def _names_of(mode: str) -> str:
    return {ours: theirs for theirs, ours in POOLING_NAMES.items()}.get(mode, mode)


def _write_normalize(module: Any, folder: Path, before: int) -> None:
    write_json(folder / "config.json", {})


def _write_dense(module: Any, folder: Path, before: int) -> None:
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


def _write_layer_norm(module: Any, folder: Path, before: int) -> None:
    write_json(folder / "config.json", {"dimension": module.norm.normalized_shape[0]})
    write_weights(module.state_dict(), folder)


def _write_dropout(module: Any, folder: Path, before: int) -> None:
    write_json(folder / "config.json", {"dropout": module.p})


def _write_static(module: Any, folder: Path, before: int) -> None:
    # Others heed truncation that stands in the file, and this library does not.
    tokenizer = type(module.tokenizer).from_str(module.tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
    write_weights(module.state_dict(), folder)


def _write_words(module: Any, folder: Path, before: int) -> None:
    write_json(
        folder / WORDS_CONFIG,
        {
            "tokenizer_class": f"{THEIRS}models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer",
            "update_embeddings": module.embedding.weight.requires_grad,
            "max_seq_length": module.max_seq_length or 1_000_000,
        },
    )
    write_json(
        folder / WORDS_VOCABULARY,
        {
            "vocab": module.words,
            "stop_words": sorted(module.stop_words),
            "do_lower_case": module.lower_case,
        },
    )
    write_weights({"emb_layer.weight": module.embedding.weight}, folder)


def _write_lstm(module: Any, folder: Path, before: int) -> None:
    layers = module.encoder
    config = {
        "word_embedding_dimension": layers.input_size,
        "hidden_dim": layers.hidden_size,
        "num_layers": layers.num_layers,
        "dropout": layers.dropout,
        "bidirectional": layers.bidirectional,
    }
    write_json(folder / LSTM_CONFIG, config)
    write_weights(module.state_dict(), folder)


_WRITERS: dict[type[nn.Module], Callable[[Any, Path, int], None]] = {
    Transformer: _write_transformer,
    Pooling: _write_pooling,
    Normalize: _write_normalize,
    Dense: _write_dense,
    LayerNorm: _write_layer_norm,
    Dropout: _write_dropout,
    StaticEmbedding: _write_static,
    WordEmbeddings: _write_words,
    LSTM: _write_lstm,
}


def _write_own(module: nn.Module, folder: Path) -> None:
    """A module of the user's: the arguments in its attribute ``config``, if it takes any, and its weights."""
    kind = type(module)
    check_name(kind)
    parameters = inspect.signature(kind).parameters.values()
    config = getattr(module, "config", {})
    # Those with a default, too: the module may have been made with another value.
    needed = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    lacking = [name for name in needed if name not in config]
    if lacking:
        raise ValueError(
            f"{kind.__name__} cannot be saved without its argument {lacking[0]!r};"
            " give it an attribute `config`, a dict of all the arguments it was made with"
        )
    try:
        write_json(folder / "config.json", config)
    except TypeError as error:
        raise ValueError(f"the attribute `config` of {kind.__name__} cannot be kept as JSON: {error}") from error
    if module.state_dict():
        write_weights(module.state_dict(), folder)


def write_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """Write tensors to ``model.safetensors``."""
    from safetensors.torch import save_file

    own = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
