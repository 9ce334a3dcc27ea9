"""The layers of BERT-family models: a new architecture is one entry in ``ARCHITECTURES``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbert.backends.activations import ACTIVATIONS, Activation

# What some layers have beyond those of BERT. A backend names those that it knows, and refuses others.
POSITION_BIAS = "a position bias"


@dataclass(frozen=True)
class Layer:
    """Attention and a feed-forward network, each followed by a residual connection and a layer norm.

    x = attention_norm(x + out_dropout(out(attention(query(x), key(x), value(x)))))
    x = norm(x + down_dropout(down(activation(up(x)))))

    ``dropout`` applies to attention weights; None means no dropout.
    """

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    norm: nn.LayerNorm
    dropout: nn.Dropout
    down_dropout: nn.Dropout
    out_dropout: nn.Dropout | None = None


@dataclass(frozen=True)
class Backbone:
    """An encoder with absolute positions and post-norm layers.

    Args:
        words: Embeddings of the tokens.
        positions: Embeddings of the positions. With a padding index, positions are counted from it.
        norm: Layer norm of their sum.
        dropout: Dropout of the embeddings.
        layers: The layers, in order.
        heads: Number of attention heads.
        activation: Activation of the feed-forward networks.
        token_types: Embeddings of the two texts of a pair; single texts use the first.
        widen: Projection from embeddings of a smaller dimension to that of the layers.
        position_bias: Function of a length to a bias of the attention scores, (heads, length, length).
    """

    words: nn.Embedding
    positions: nn.Embedding
    norm: nn.LayerNorm
    dropout: nn.Dropout
    layers: tuple[Layer, ...]
    heads: int
    activation: Activation
    token_types: nn.Embedding | None = None
    widen: nn.Linear | None = None
    position_bias: Callable[[int], Tensor] | None = None

    @property
    def head_dim(self) -> int:
        """Dimension of a head."""
        return self.layers[0].query.out_features // self.heads

    def modules(self) -> Iterator[nn.Module]:
        """All modules with weights."""
        for part in (self, *self.layers):
            yield from (value for value in vars(part).values() if isinstance(value, nn.Module))


class Architecture(NamedTuple):
    """What the library knows of a model type.

    Args:
        layer: For each field of ``Layer``, its name in a layer of the Hugging Face model.
        layers: Name of the list of layers.
        activation: Name of the activation in the configuration.
        extras: What its layers have beyond those of BERT.
    """

    layer: Mapping[str, str]
    layers: str = "encoder.layer"
    activation: str = "hidden_act"
    extras: Set[str] = frozenset()


def describe(network: Any, known: Set[str] = frozenset()) -> Backbone | str:
    """The layers of an encoder, or the reason why they cannot be run one by one.

    Model types are listed, because others use the same names for parts that work differently on long texts.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        known: What the caller can compute beyond the layers of BERT.
    """
    config = network.config
    architecture = ARCHITECTURES.get(config.model_type)
    if architecture is None:
        return f"{config.model_type} is not a BERT-family model"
    if architecture.extras - known:
        return f"its layers have {', '.join(architecture.extras - known)}"
    if getattr(config, "is_decoder", False):
        return "it is a decoder"
    activation = getattr(config, architecture.activation)
    if activation not in ACTIVATIONS:
        return f"its activation is {activation!r}"
    try:
        backbone = _backbone(network, architecture, ACTIVATIONS[activation])
    except AttributeError as error:
        return f"parts of it were replaced ({error})"
    for module in backbone.modules():
        if type(module) not in (nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout):
            return f"parts of it were replaced ({type(module).__name__})"
    return backbone


def _backbone(network: Any, architecture: Architecture, activation: Activation) -> Backbone:
    table = network.embeddings
    getters = {field: attrgetter(name) for field, name in architecture.layer.items()}
    layers = attrgetter(architecture.layers)(network)
    return Backbone(
        table.word_embeddings,
        table.position_embeddings,
        table.LayerNorm,
        table.dropout,
        tuple(Layer(**{field: get(layer) for field, get in getters.items()}) for layer in layers),
        network.config.num_attention_heads,
        activation,
        token_types=getattr(table, "token_type_embeddings", None),
        widen=getattr(network, "embeddings_project", None),  # of small ELECTRA models
        position_bias=_position_bias(network) if POSITION_BIAS in architecture.extras else None,
    )


def _position_bias(network: Any) -> Callable[[int], Tensor]:
    encoder, weight = network.encoder, network.embeddings.LayerNorm.weight  # Not the network, to keep it not alive.

    def bias(length: int) -> Tensor:
        made: Tensor = encoder.compute_position_bias(torch.empty(1, length, 0, device=weight.device))
        return made[0]

    return bias


_BERT = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "dropout": "attention.self.dropout",
    "out": "attention.output.dense",
    "out_dropout": "attention.output.dropout",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "down_dropout": "output.dropout",
    "norm": "output.LayerNorm",
}
_MPNET = {
    **_BERT,
    "query": "attention.attn.q",
    "key": "attention.attn.k",
    "value": "attention.attn.v",
    "dropout": "attention.attn.dropout",
    "out": "attention.attn.o",
    "out_dropout": "attention.dropout",
    "attention_norm": "attention.LayerNorm",
}
_DISTILBERT = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "dropout": "attention.dropout",
    "out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "down_dropout": "ffn.dropout",
    "norm": "output_layer_norm",
}

# By the model type of the configuration.
ARCHITECTURES = {
    "bert": Architecture(_BERT),
    "electra": Architecture(_BERT),
    "roberta": Architecture(_BERT),
    "xlm-roberta": Architecture(_BERT),
    "camembert": Architecture(_BERT),
    "mpnet": Architecture(_MPNET, extras={POSITION_BIAS}),
    "distilbert": Architecture(_DISTILBERT, layers="transformer.layer", activation="activation"),
}
