"""What the layers of a transformer are made of: a new architecture is one entry in ``ARCHITECTURES``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.network import snapshot

# A function of a length: a bias of the attention scores, (heads, length, length), or the cosines and sines of rotary
# positions, (2, length, head dim).
OfLength = Callable[[int], Tensor]


class Pointwise(NamedTuple):
    """An elementwise function.

    Args:
        apply: The function.
        pointwise: What oneDNN calls it: attribute and algorithm.
    """

    apply: Callable[[Tensor], Tensor]
    pointwise: tuple[str, str]


GELU = Pointwise(F.gelu, ("gelu", "none"))
GELU_TANH = Pointwise(partial(F.gelu, approximate="tanh"), ("gelu", "tanh"))
RELU = Pointwise(F.relu, ("relu", ""))
# By the names that configurations give them.
ACTIVATIONS = {
    "gelu": GELU,
    "gelu_new": GELU_TANH,
    "gelu_fast": GELU_TANH,
    "gelu_pytorch_tanh": GELU_TANH,
    "relu": RELU,
    "silu": Pointwise(F.silu, ("swish", "")),
}


@dataclass(frozen=True)
class Layer:
    """Attention and a feed-forward network, each with a residual connection, and a norm after it or before.

        after:   x = attention_norm(x + out(attention(qkv(x))))     x = norm(x + down(activation(up(x))))
        before:  x = x + out(attention(qkv(attention_norm(x))))     x = x + down(activation(up(norm(x))))

    With a gate, ``up`` gives twice what ``down`` takes:  x = down(activation(first half) * second half).

    Args:
        qkv: Queries, keys and values: three products of the same input, or one with their outputs side by side.
        up: The first product of the feed-forward network, or two: the halves of a gated one.
        attention_norm: None if there is none, as in the first layer of some models.
        query_norm: RMS norm of each head's query.
        key_norm: The same of keys.
        out_norm: Norm between ``out`` and the residual connection.
        down_norm: The same after ``down``.
        scale: Of the attention scores; 1 / sqrt(head dim) where it is None.
        causal: Whether a token sees only itself and those before it.
        window: Number of tokens to each side that a token sees, itself included; None for all.
        rotary: Key of the rotary positions of queries and keys in those of the backbone; None without.
    """

    qkv: tuple[nn.Linear, ...]
    out: nn.Linear
    attention_norm: nn.Module | None
    up: tuple[nn.Linear, ...]
    down: nn.Linear
    norm: nn.Module
    query_norm: nn.Module | None = None
    key_norm: nn.Module | None = None
    out_norm: nn.Module | None = None
    down_norm: nn.Module | None = None
    scale: float | None = None
    causal: bool = False
    window: int | None = None
    rotary: str | None = None

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward network has a gate."""
        return sum(linear.out_features for linear in self.up) == 2 * self.down.in_features


@dataclass(frozen=True)
class Backbone:
    """A transformer as its parts, which do not refer to it.

    Args:
        tokens: Embeddings of the tokens.
        layers: The layers, in order.
        architecture: Where its layers have their norms, and the like.
        heads: Number of heads of queries.
        key_heads: Number of heads of keys and values; fewer are each shared by several of the queries.
        activation: Activation of the feed-forward networks.
        positions: Embeddings of absolute positions. With a padding index, positions are counted from it.
        token_types: Embeddings of the two texts of a pair; single texts use the first.
        norm: Norm of the sum of the embeddings.
        embedding_projection: Projection from embeddings of a smaller dimension to that of the layers.
        final_norm: Norm of the output.
        position_bias: Bias of the attention scores.
        rotary: Rotary positions; some models have them for each type of layer.
    """

    tokens: nn.Embedding
    layers: tuple[Layer, ...]
    architecture: Architecture
    heads: int
    key_heads: int
    activation: Pointwise
    positions: nn.Embedding | None = None
    token_types: nn.Embedding | None = None
    norm: nn.Module | None = None
    embedding_projection: nn.Linear | None = None
    final_norm: nn.Module | None = None
    position_bias: OfLength | None = None
    rotary: Mapping[str, OfLength] = field(default_factory=dict)


_EMBEDDINGS = {
    "tokens": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "embedding_projection": "embeddings_project",  # of small ELECTRA models
}
# Types of rotary positions, as configurations name them, that do not depend on the longest row of a batch.
_ROTARY = {"default", "linear", "yarn", "llama3"}
# Parts that some models of an architecture lack.
_OPTIONAL = ("token_types", "embedding_projection")
Names = Mapping[str, str | tuple[str, ...]]
_BERT: Names = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": ("intermediate.dense",),
    "down": "output.dense",
    "norm": "output.LayerNorm",
}


@dataclass(frozen=True)
class Architecture:
    """What the library knows of a model type.

    Args:
        layer: For each field of ``Layer``, its name in a layer of the Hugging Face model, or their names.
        embeddings: For the fields of ``Backbone`` that are modules, their names in the model.
        layers: Name of the list of layers.
        activation: Name of the activation in the configuration.
        classes: Names of its classes of parts, beside those of torch: of RMS norms, and of embeddings that are scaled.
        norm_first: Whether norms stand before attention and feed-forward network, not after them.
        norm_offset: Added to the weights of RMS norms.
        inside: Name of the module that has all others, if there is one.
        position_bias: Name of the method that computes a position bias.
        bias_of_lengths: Whether it takes the numbers of queries and keys, and not the vectors of a batch.
        rotary: Name of the module that computes rotary positions.
        layer_type: Name of the attribute of a layer that says which rotary positions are its own.
    """

    layer: Names = field(default_factory=lambda: _BERT)
    embeddings: Mapping[str, str] = field(default_factory=lambda: _EMBEDDINGS)
    layers: str = "encoder.layer"
    activation: str = "hidden_act"
    classes: tuple[str, ...] = ()
    norm_first: bool = False
    norm_offset: float = 0.0
    inside: str = ""
    position_bias: str | None = None
    bias_of_lengths: bool = False
    rotary: str | None = None
    layer_type: str | None = None


_ATTENTION: Names = {"qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "out": "self_attn.o_proj"}
_GATED: Names = {"up": ("mlp.gate_proj", "mlp.up_proj"), "down": "mlp.down_proj"}
_DECODER: Names = {
    "attention_norm": "input_layernorm",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "causal": "self_attn.is_causal",
    "window": "self_attn.sliding_window",
}
# Layers of most of today's models.
_rotated = partial(Architecture, layers="layers", norm_first=True, rotary="rotary_emb")
_NOMIC = _rotated(
    {**_ATTENTION, **_GATED, "attention_norm": "post_attention_layernorm", "norm": "post_mlp_layernorm"},
    {part: _EMBEDDINGS[part] for part in ("tokens", "token_types", "norm")},
    norm_first=False,
)
_T5 = Architecture(
    {
        "qkv": ("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
        "scale": "layer.0.SelfAttention.scaling",
        "out": "layer.0.SelfAttention.o",
        "attention_norm": "layer.0.layer_norm",
        "up": ("layer.1.DenseReluDense.wi",),
        "down": "layer.1.DenseReluDense.wo",
        "norm": "layer.1.layer_norm",
    },
    {"tokens": "embed_tokens", "final_norm": "final_layer_norm"},
    layers="block",
    activation="dense_act_fn",
    classes=("T5LayerNorm",),
    norm_first=True,
    inside="encoder",
    position_bias="block.0.layer.0.SelfAttention.compute_bias",
    bias_of_lengths=True,
)

# By the model type of the configuration. Types are listed, because others use the same names for parts that work
# differently on long texts.
ARCHITECTURES = {
    **dict.fromkeys(("bert", "electra", "roberta", "xlm-roberta", "camembert"), Architecture()),
    "mpnet": Architecture(
        {
            **_BERT,
            "qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
            "out": "attention.attn.o",
            "attention_norm": "attention.LayerNorm",
        },
        position_bias="encoder.compute_position_bias",
    ),
    "distilbert": Architecture(
        {
            "qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "out": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "up": ("ffn.lin1",),
            "down": "ffn.lin2",
            "norm": "output_layer_norm",
        },
        layers="transformer.layer",
        activation="activation",
    ),
    **dict.fromkeys(("nomic_bert", "gte"), _NOMIC),
    "qwen3": _rotated(
        {**_ATTENTION, **_GATED, **_DECODER, "norm": "post_attention_layernorm"},
        {"tokens": "embed_tokens", "final_norm": "norm"},
        classes=("Qwen3RMSNorm",),
    ),
    "gemma3_text": _rotated(
        {
            **_ATTENTION,
            **_GATED,
            **_DECODER,
            "scale": "self_attn.scaling",
            "out_norm": "post_attention_layernorm",
            "norm": "pre_feedforward_layernorm",
            "down_norm": "post_feedforward_layernorm",
        },
        {"tokens": "embed_tokens", "final_norm": "norm"},
        activation="hidden_activation",
        classes=("Gemma3RMSNorm", "Gemma3TextScaledWordEmbedding"),
        norm_offset=1.0,
        layer_type="self_attn.layer_type",
    ),
    "t5": _T5,
    "t5 with gates": replace(
        _T5, layer={**_T5.layer, "up": ("layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1")}
    ),
    "modernbert": _rotated(
        {
            "qkv": ("attn.Wqkv",),
            "window": "attn.sliding_window",
            "out": "attn.Wo",
            "attention_norm": "attn_norm",
            "up": ("mlp.Wi",),
            "down": "mlp.Wo",
            "norm": "mlp_norm",
        },
        {"tokens": "embeddings.tok_embeddings", "norm": "embeddings.norm", "final_norm": "final_norm"},
        activation="hidden_activation",
        layer_type="attention_type",
    ),
}


def describe(network: Any) -> Backbone | str:
    """The parts of a transformer, or the reason why its layers cannot be run one by one.

    Args:
        network: A Hugging Face model, or a minimal BERT.
    """
    config = network.config
    architecture = ARCHITECTURES.get(config.model_type + " with gates" * getattr(config, "is_gated_act", False))
    if architecture is None:
        return f"{config.model_type} is not a known architecture"
    if snapshot(network).has_own_forward:
        return "parts of it were replaced (forward)"
    if getattr(config, "is_decoder", False):
        return "it is a decoder"
    types = getattr(getattr(network, architecture.rotary or "", None), "rope_type", "default")
    foreign = {*(types.values() if isinstance(types, dict) else [types])} - _ROTARY
    if foreign:
        return f"its rotary positions are {min(foreign)!r}"
    activation = getattr(config, architecture.activation)
    if activation not in ACTIVATIONS:
        return f"its activation is {activation!r}"
    try:
        backbone = _backbone(network, architecture, ACTIVATIONS[activation])
    except AttributeError as error:
        return f"parts of it were replaced ({error})"
    of_torch = (nn.Linear, nn.LayerNorm, nn.Embedding)
    values = chain.from_iterable(vars(part).values() for part in (backbone, *backbone.layers))
    for module in chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values):
        kind = type(module)
        if isinstance(module, nn.Module) and kind not in of_torch and kind.__name__ not in architecture.classes:
            return f"parts of it were replaced ({kind.__name__})"
    return backbone


def _backbone(network: Any, architecture: Architecture, activation: Pointwise) -> Backbone:
    config, network = network.config, getattr(network, architecture.inside, network)
    names = architecture.embeddings.items()
    parts: dict[str, Any] = {part: _part(network, name, part in _OPTIONAL) for part, name in names}
    layers = [_layer(network, layer, architecture) for layer in attrgetter(architecture.layers)(network)]
    rotary: Any = architecture.rotary and getattr(network, architecture.rotary)
    kinds = {layer.rotary for layer in layers if layer.rotary is not None}
    weight = parts["tokens"].weight
    bias = architecture.position_bias and attrgetter(architecture.position_bias)(network)
    return Backbone(
        layers=tuple(layers),
        architecture=architecture,
        heads=config.num_attention_heads,
        key_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        activation=activation,
        position_bias=partial(_position_bias, bias, weight, architecture.bias_of_lengths) if bias else None,
        rotary={kind: partial(_rotary, rotary, weight, kind) for kind in kinds},
        **parts,
    )


def _layer(network: Any, layer: nn.Module, architecture: Architecture) -> Layer:
    parts: dict[str, Any] = {part: _part(layer, names) for part, names in architecture.layer.items()}
    if isinstance(parts["attention_norm"], nn.Identity):
        parts["attention_norm"] = None
    if "causal" in parts and not getattr(network.config, "is_causal", True):
        # The masks of transformers then count one token more to each side.
        parts.update(causal=False, window=parts["window"] and parts["window"] + 1)
    if architecture.rotary is not None:
        parts["rotary"] = _part(layer, architecture.layer_type) if architecture.layer_type else ""
    return Layer(**parts)


def _part(module: Any, names: str | tuple[str, ...], optional: bool = False) -> Any:
    if isinstance(names, tuple):
        return tuple(_part(module, name) for name in names)
    for name in names.split("."):
        module = getattr(module, name, None) if optional else getattr(module, name)
    return module


def _position_bias(compute: Callable[..., Tensor], weight: Tensor, of_lengths: bool, length: int) -> Tensor:
    return compute(*((length, length) if of_lengths else [torch.empty(1, length, 0, device=weight.device)]))[0]


def _rotary(compute: Callable[..., tuple[Tensor, Tensor]], weight: Tensor, kind: str, length: int) -> Tensor:
    x, positions = torch.empty(0, device=weight.device), torch.arange(length, device=weight.device)[None]
    cosines, sines = compute(x, positions, *((kind,) if kind else ()))
    return torch.stack([cosines[0], sines[0]])
