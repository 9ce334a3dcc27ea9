"""Their ``models``: our modules, made with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from sbert import modules
from sbert.integrations.sentence_transformers.features import Module
from sbert.integrations.sentence_transformers.forms import SignatureAdapter, offer
from sbert.pipeline.model import loading_options

# The modes by their flags, in the order of their vectors.
_MODES = {"cls_token": "cls"} | {f"{mode}_tokens": mode for mode in ("max", "mean", "mean_sqrt_len", "weightedmean")}
_MODES |= {"lasttoken": "lasttoken"}


def add_dim_getters(module: nn.Module, dim: int) -> nn.Module:
    """The module, with their methods that give its dimension; scripts pass that to the next module."""
    for name in ("embedding_dimension", "word_embedding_dimension", "sentence_embedding_dimension"):
        setattr(module, f"get_{name}", partial(int, dim))
    return module


def _transformer(model: Any, options: Mapping[str, Any] | None = None, **more: Any) -> nn.Module:
    dtype, arguments = loading_options("auto", options, None, None)
    if arguments["model_kwargs"]:
        raise ValueError("model_args takes a dtype here; pass the others to SentenceTransformer(model_kwargs=)")
    transformer = modules.Transformer(model, dtype=dtype, **more)
    return add_dim_getters(transformer, transformer.dim)


def _pooling(dim: int, mode: Any = "mean", include_prompt: bool = True, **flags: bool | None) -> nn.Module:
    chosen = [mode for name, mode in _MODES.items() if flags[name]]
    modes = chosen or ([mode] if isinstance(mode, str) else list(mode))
    return add_dim_getters(modules.Pooling(modes if len(modes) > 1 else modes[0], include_prompt), dim * len(modes))


def _dense(in_features: int, out_features: int, **more: Any) -> nn.Module:
    return add_dim_getters(modules.Dense(in_features, out_features, **more), out_features)


def _lstm(in_features: int, hidden: int, layers: int, dropout: float, bidirectional: bool) -> nn.Module:
    lstm = modules.LSTM(in_features, hidden, layers, dropout, bidirectional)
    return add_dim_getters(lstm, hidden * (1 + bidirectional))


def _static(tokenizer: Any, weights: Any = None, dim: int | None = None) -> nn.Module:
    if weights is None:
        weights = nn.EmbeddingBag(tokenizer.get_vocab_size(), dim or 0).weight.detach()
    table = torch.as_tensor(weights)
    fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return add_dim_getters(modules.StaticEmbedding(fast, table), table.shape[1])


def _words(tokenizer: Any, weights: Any, **more: Any) -> nn.Module:
    words = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer
    return add_dim_getters(modules.WordEmbeddings(list(words), torch.as_tensor(weights), **more), len(weights[0]))


def _read_words(path: Any, **options: Any) -> nn.Module:
    module = modules.WordEmbeddings.from_text_file(path, **options)
    return add_dim_getters(module, module.embedding.embedding_dim)


def _router(routes: Mapping[str, Any], default_route: str | None, first: bool) -> nn.Module:
    default = default_route or (next(iter(routes), None) if first else None)
    chains = {name: chain if isinstance(chain, list) else [chain] for name, chain in routes.items()}
    return modules.Router(chains, default)


class InstanceCheckMeta(type):
    """Of a class under their name, ours are instances: a model that is loaded has ours."""

    def __instancecheck__(cls, module: object) -> bool:
        return isinstance(module, getattr(cls, "alike", ())) or super().__instancecheck__(module)


class _NamedModule(metaclass=InstanceCheckMeta):
    def __init__(self, *args: Any, **options: Any) -> None:
        is_bare = isinstance(self, modules.Dense) and not args and not options  # A subclass makes its layer itself.
        (super(modules.Dense, self) if is_bare else super()).__init__(*args, **options)  # type: ignore[misc]


def _module_class(of: str, ours: type[nn.Module], make: Callable[..., nn.Module]) -> Any:
    """The class under their name: it makes a module of ours, and a class that inherits from it is one."""
    adapter = SignatureAdapter(of)

    def create(cls: Any, *args: Any, **options: Any) -> Any:
        return make(**adapter.translate(adapter.bind(args, options))) if cls is new else nn.Module.__new__(cls)

    def inherit(cls: Any) -> None:
        cls.alike = ()

    members = {"__new__": create, "__init_subclass__": classmethod(inherit), "__module__": __name__}
    new = adapter.make_class((_NamedModule, ours), **members)
    new.alike = ours
    return new


_MAKE: dict[str, Any] = {
    "Transformer": _transformer, "Pooling": _pooling, "Dense": _dense, "Normalize": modules.Normalize,
    "Dropout": modules.Dropout, "LayerNorm": modules.LayerNorm, "LSTM": _lstm, "StaticEmbedding": _static,
    "Router": _router, "WordEmbeddings": _words,
}  # fmt: skip
_NAMED = {name: _module_class(f"models.{name}", getattr(modules, name), make) for name, make in _MAKE.items()}
_NAMED["Router"].for_query_document = lambda query, document: _router(
    {"query": query, "document": document}, "document", True
)
_NAMED["WordEmbeddings"].from_text_file = _read_words
_NAMED |= {"Asym": _NAMED["Router"], "InputModule": Module, "Module": Module}
globals().update(_NAMED)
__all__ = list(_NAMED)
offer(__name__)
