"""Their ``models``: our modules, made with their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from sbert import modules
from sbert.integrations.sentence_transformers.forms import Form, absent, factories
from sbert.pipeline.model import loading_options

_MODES = {"cls_token": "cls", "lasttoken": "lasttoken"}
_MODES |= {f"{mode}_tokens": mode for mode in ("mean", "max", "mean_sqrt_len", "weightedmean")}


def _note_dim(module: nn.Module, dim: int) -> nn.Module:
    """The module, with their methods that give its dimension; scripts pass that to the next module."""
    for name in ("embedding_dimension", "word_embedding_dimension", "sentence_embedding_dimension"):
        setattr(module, f"get_{name}", partial(int, dim))
    return module


def _transformer(model: Any, options: Mapping[str, Any] | None = None, **more: Any) -> nn.Module:
    dtype, arguments = loading_options("auto", options, None, None)
    if arguments["model_kwargs"]:
        raise ValueError("model_args takes a dtype here; pass the others to SentenceTransformer(model_kwargs=)")
    transformer = modules.Transformer(model, dtype=dtype, **more)
    return _note_dim(transformer, transformer.dim)


def _pooling(dim: int, mode: str | Sequence[str] = "mean", include_prompt: bool = True, **flags: bool) -> nn.Module:
    chosen = [
        _MODES[name] for name in _MODES if flags.get(name, name == "mean_tokens" and mode == "mean" and not flags)
    ]
    modes = chosen or ([mode] if isinstance(mode, str) else list(mode))
    return _note_dim(modules.Pooling(modes if len(modes) > 1 else modes[0], include_prompt), dim * len(modes))


def _dense(in_features: int, out_features: int, **more: Any) -> nn.Module:
    return _note_dim(modules.Dense(in_features, out_features, **more), out_features)


def _lstm(
    in_features: int, hidden: int, layers: int = 1, dropout: float = 0.0, bidirectional: bool = True
) -> nn.Module:
    return _note_dim(modules.LSTM(in_features, hidden, layers, dropout, bidirectional), hidden * (1 + bidirectional))


def _static(tokenizer: Any, weights: Any = None, dim: int | None = None) -> nn.Module:
    if weights is None:
        weights = nn.EmbeddingBag(tokenizer.get_vocab_size(), dim or 0).weight.detach()
    table = torch.as_tensor(weights)
    fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return _note_dim(modules.StaticEmbedding(fast, table), table.shape[1])


FORMS = {
    "Transformer": Form(
        _transformer,
        "model_name_or_path=model max_seq_length model_args=options model_kwargs=options do_lower_case=lower_case"
        " cache_dir=cache_folder tokenizer_args! config_args! processor_kwargs! config_kwargs! tokenizer_name_or_path!"
        " backend!",
    ),
    "Pooling": Form(
        _pooling,
        f"word_embedding_dimension=dim pooling_mode=mode {' '.join(f'pooling_mode_{name}={name}' for name in _MODES)}"
        " include_prompt embedding_dimension=dim",
    ),
    "Dense": Form(
        _dense,
        "in_features out_features bias activation_function=activation init_weight! init_bias! use_residual=residual",
    ),
    "Normalize": Form(modules.Normalize),
    "Dropout": Form(modules.Dropout, "dropout=p"),
    "LayerNorm": Form(modules.LayerNorm, "dimension=dim"),
    "LSTM": Form(
        _lstm,
        "word_embedding_dimension=in_features hidden_dim=hidden num_layers=layers dropout bidirectional"
        " embedding_dimension=in_features",
    ),
    "StaticEmbedding": Form(_static, "tokenizer embedding_weights=weights embedding_dim=dim"),
}

WordEmbeddings = modules.WordEmbeddings
globals().update(factories(FORMS))
__all__ = [*FORMS, "WordEmbeddings"]
__getattr__ = absent(__name__, "models")
