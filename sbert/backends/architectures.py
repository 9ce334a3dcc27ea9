"""The layers of BERT-family models, by the names in the classes of Hugging Face. New architectures are added here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbert.backends.activations import ACTIVATIONS, Activation


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
    out_dropout: nn.Dropout | None
    down_dropout: nn.Dropout


@dataclass(frozen=True)
class Backbone:
    """An encoder with absolute positions and post-norm layers.

    Args:
        words: Embeddings of the tokens.
        positions: Embeddings of the positions.
        norm: Layer norm of their sum.
        layers: The layers, in order.
        heads: Number of attention heads.
        activation: Activation of the feed-forward networks.
        dropout: Dropout of the embeddings.
        token_types: Embeddings of the two texts of a pair; single texts use the first.
        widen: Projection from embeddings of a smaller dimension to that of the layers.
        padding: Id of the padding token in models that count positions from it.
        position_bias: Function of a length to a bias of the attention scores, (heads, length, length).
        bias_table: Weights of the bias.
    """

    words: nn.Embedding
    positions: nn.Embedding
    norm: nn.LayerNorm
    layers: tuple[Layer, ...]
    heads: int
    activation: Activation
    dropout: nn.Dropout
    token_types: nn.Embedding | None = None
    widen: nn.Linear | None = None
    padding: int | None = None
    position_bias: Callable[[int], Tensor] | None = None
    bias_table: nn.Embedding | None = None

    @property
    def head_dim(self) -> int:
        """Dimension of a head."""
        return self.layers[0].query.out_features // self.heads

    def modules(self) -> Iterator[nn.Module]:
        """All modules with weights."""
        for part in (self, *self.layers):
            yield from (value for value in vars(part).values() if isinstance(value, nn.Module))


def describe(model: Any) -> Backbone | str:
    """The layers of a Hugging Face encoder, or the reason why it is not supported.

    Model types are listed, because others use the same names for parts that work differently on long texts.
    """
    config = model.config
    kind = config.model_type
    if kind not in _ARCHITECTURES:
        return f"{kind} is not a BERT-family model"
    if getattr(config, "is_decoder", False):
        return "it is a decoder"
    activation = getattr(config, "activation" if kind == "distilbert" else "hidden_act")
    if activation not in ACTIVATIONS:
        return f"its activation is {activation!r}"
    try:
        backbone = _ARCHITECTURES[kind].read(model, ACTIVATIONS[activation])
    except AttributeError as error:
        return f"parts of it were replaced ({error})"
    for module in backbone.modules():
        if type(module) not in (nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout):
            return f"parts of it were replaced ({type(module).__name__})"
    return backbone


def _bert(model: Any, activation: Activation) -> Backbone:
    layers = (
        Layer(
            layer.attention.self.query,
            layer.attention.self.key,
            layer.attention.self.value,
            layer.attention.output.dense,
            layer.attention.output.LayerNorm,
            layer.intermediate.dense,
            layer.output.dense,
            layer.output.LayerNorm,
            layer.attention.self.dropout,
            layer.attention.output.dropout,
            layer.output.dropout,
        )
        for layer in model.encoder.layer
    )
    table = model.embeddings
    return Backbone(
        table.word_embeddings,
        table.position_embeddings,
        table.LayerNorm,
        tuple(layers),
        model.config.num_attention_heads,
        activation,
        table.dropout,
        token_types=table.token_type_embeddings,
        widen=getattr(model, "embeddings_project", None),  # of small ELECTRA models
    )


def _roberta(model: Any, activation: Activation) -> Backbone:
    return replace(_bert(model, activation), padding=model.embeddings.padding_idx)


def _mpnet(model: Any, activation: Activation) -> Backbone:
    layers = (
        Layer(
            layer.attention.attn.q,
            layer.attention.attn.k,
            layer.attention.attn.v,
            layer.attention.attn.o,
            layer.attention.LayerNorm,
            layer.intermediate.dense,
            layer.output.dense,
            layer.output.LayerNorm,
            layer.attention.attn.dropout,
            layer.attention.dropout,
            layer.output.dropout,
        )
        for layer in model.encoder.layer
    )
    table, encoder = model.embeddings, model.encoder  # Not the model, which must not be kept alive by this.

    def position_bias(length: int) -> Tensor:
        bias: Tensor = encoder.compute_position_bias(torch.empty(1, length, 0, device=table.LayerNorm.weight.device))
        return bias[0]

    return Backbone(
        table.word_embeddings,
        table.position_embeddings,
        table.LayerNorm,
        tuple(layers),
        model.config.num_attention_heads,
        activation,
        table.dropout,
        padding=table.padding_idx,
        position_bias=position_bias,
        bias_table=encoder.relative_attention_bias,
    )


def _distilbert(model: Any, activation: Activation) -> Backbone:
    layers = (
        Layer(
            layer.attention.q_lin,
            layer.attention.k_lin,
            layer.attention.v_lin,
            layer.attention.out_lin,
            layer.sa_layer_norm,
            layer.ffn.lin1,
            layer.ffn.lin2,
            layer.output_layer_norm,
            layer.attention.dropout,
            None,
            layer.ffn.dropout,
        )
        for layer in model.transformer.layer
    )
    table = model.embeddings
    return Backbone(
        table.word_embeddings,
        table.position_embeddings,
        table.LayerNorm,
        tuple(layers),
        model.config.n_heads,
        activation,
        table.dropout,
    )


def _pooled(model: Any, first: Tensor) -> Tensor:
    scores: Tensor = model.classifier(model.dropout(model.base_model.pooler(first)))
    return scores


def _classified(model: Any, first: Tensor) -> Tensor:
    scores: Tensor = model.classifier(first)
    return scores


def _preclassified(model: Any, first: Tensor) -> Tensor:
    scores: Tensor = model.classifier(model.dropout(model.pre_classifier(first[:, 0]).relu()))
    return scores


class Architecture(NamedTuple):
    """What the library knows of a model type.

    Args:
        read: Function of a model and its activation to its layers.
        head: Function of a model for sequence classification and the vectors of the first tokens, (rows, 1, dim), to
            scores, (rows, classes).
    """

    read: Callable[[Any, Activation], Backbone]
    head: Callable[[Any, Tensor], Tensor]


_ARCHITECTURES = {
    "bert": Architecture(_bert, _pooled),
    "electra": Architecture(_bert, _classified),
    "roberta": Architecture(_roberta, _classified),
    "xlm-roberta": Architecture(_roberta, _classified),
    "camembert": Architecture(_roberta, _classified),
    "mpnet": Architecture(_mpnet, _classified),
    "distilbert": Architecture(_distilbert, _preclassified),
}


def classification_head(model: Any) -> Callable[[Any, Tensor], Tensor] | None:
    """The head of a model for sequence classification if it reads the first token of each row, else None."""
    known = _ARCHITECTURES.get(model.config.model_type)
    return known.head if known and type(model).__name__.endswith("ForSequenceClassification") else None
