"""A minimal BERT for inference: importing transformers takes longer than importing torch.

The modules have the names, order and weights of the ``BertModel`` of Hugging Face, which can reuse them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.layers import ACTIVATIONS

# Keys of a config.json without effect, and keys without effect if they have these values.
_NOTES = {"_name_or_path": str, "transformers_version": str, "use_cache": bool, "initializer_range": float}
_USUAL: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "architectures": (["BertModel"], ["BertForMaskedLM"]),
    "dtype": ("float32", "float16", "bfloat16"),
    "torch_dtype": ("float32", "float16", "bfloat16"),
    "position_embedding_type": ("absolute",),
    "gradient_checkpointing": (False,),
    "classifier_dropout": (None,),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "bos_token_id": (None,),
    "eos_token_id": (None,),
    "id2label": ({"0": "LABEL_0"},),
    "label2id": ({"LABEL_0": 0},),
    "tokenizer_class": ("BertTokenizer", "BertTokenizerFast", None),
}


@dataclass(frozen=True)
class Config:
    """Values of a config.json that BERT depends on, under their names in Hugging Face."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    pad_token_id: int
    hidden_act: str
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    layer_norm_eps: float
    model_type: ClassVar[str] = "bert"


# Types that the JSON values must have.
_FIELDS: dict[str, type] = {name: kind for name, kind in get_type_hints(Config).items() if name != "model_type"}


def read_config(given: dict[str, Any]) -> Config | None:
    """The configuration if it is that of a BERT, complete, and without unknown keys; else None."""
    if given.get("model_type") != "bert":
        return None
    kinds = {**_FIELDS, **_NOTES}
    for key, value in given.items():
        usual = [each for each in _USUAL.get(key, ()) if type(each) is type(value) and each == value]
        if not usual and (key in _USUAL or type(value) is not kinds.get(key)):
            return None
    if not _FIELDS.keys() <= given.keys():
        return None
    config = Config(**{name: given[name] for name in _FIELDS})
    sizes = [getattr(config, name) for name, kind in _FIELDS.items() if kind is int and name != "pad_token_id"]
    fits = min(sizes) > 0 and config.hidden_size % config.num_attention_heads == 0  # The modules check the rest.
    return config if fits and config.hidden_act in ACTIVATIONS else None


class Output(NamedTuple):
    """Output of the forward, with its name in Hugging Face. Shape: (rows, tokens, dim)."""

    last_hidden_state: Tensor


class BertModel(nn.Module):
    """The modules of a ``BertModel``, initially without weights, in eval mode.

    Args:
        config: Configuration.
        origin: Where it was loaded from, for its conversion.

    Shape:
        Input: ids and mask of (rows, tokens). Output: (rows, tokens, dim).
    """

    def __init__(self, config: Config, origin: Any) -> None:
        super().__init__()
        self.config: Config = config
        self.origin: Any = origin
        width, eps = config.hidden_size, config.layer_norm_eps
        self.embeddings: nn.ModuleDict = nn.ModuleDict(
            {
                "word_embeddings": _table(config.vocab_size, width, config.pad_token_id),
                "position_embeddings": _table(config.max_position_embeddings, width),
                "token_type_embeddings": _table(config.type_vocab_size, width),
                "LayerNorm": nn.LayerNorm(width, eps, device="meta"),
                "dropout": nn.Dropout(config.hidden_dropout_prob),
            }
        )
        layers = nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers))
        self.encoder: nn.ModuleDict = nn.ModuleDict({"layer": layers})
        self.pooler: nn.ModuleDict = nn.ModuleDict({"dense": nn.Linear(width, width, device="meta")})
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        return self.embeddings.word_embeddings.weight.dtype  # type: ignore[return-value, union-attr]

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embeddings.word_embeddings.weight.device  # type: ignore[return-value, union-attr]

    def get_input_embeddings(self) -> nn.Module:
        """The embeddings of the tokens."""
        return self.embeddings["word_embeddings"]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        table: Any = self.embeddings
        x = table.word_embeddings(input_ids) + table.token_type_embeddings(torch.zeros_like(input_ids))
        x = x + table.position_embeddings(torch.arange(input_ids.shape[1], device=input_ids.device))
        x = table.LayerNorm(x)
        seen = None if attention_mask is None else attention_mask.bool()[:, None, None]  # (rows, 1, 1, tokens)
        activate = ACTIVATIONS[self.config.hidden_act].apply
        layers: Any = self.encoder["layer"]
        for layer in layers:
            own, after = layer.attention.self, layer.attention.output
            query, key, value = (
                part(x).unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)
                for part in (own.query, own.key, own.value)
            )  # (rows, heads, tokens, dim / heads)
            mixed = F.scaled_dot_product_attention(query, key, value, seen).transpose(1, 2).flatten(2)
            x = after.LayerNorm(after.dense(mixed) + x)
            x = layer.output.LayerNorm(layer.output.dense(activate(layer.intermediate.dense(x))) + x)
        return Output(x)


def _table(rows: int, width: int, padding: int | None = None) -> nn.Embedding:
    # Without random initialization, whose imports on the device "meta" take a second.
    return nn.Embedding(rows, width, padding, _weight=torch.empty(rows, width, device="meta"))


def _layer(config: Config) -> nn.ModuleDict:
    width, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps

    def ending(given: int) -> dict[str, nn.Module]:
        return {
            "dense": nn.Linear(given, width, device="meta"),
            "LayerNorm": nn.LayerNorm(width, eps, device="meta"),
            "dropout": nn.Dropout(config.hidden_dropout_prob),
        }

    heads: dict[str, nn.Module] = {name: nn.Linear(width, width, device="meta") for name in ("query", "key", "value")}
    heads["dropout"] = nn.Dropout(config.attention_probs_dropout_prob)
    attention = nn.ModuleDict({"self": nn.ModuleDict(heads), "output": nn.ModuleDict(ending(width))})
    intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner, device="meta")})
    return nn.ModuleDict({"attention": attention, "intermediate": intermediate, "output": nn.ModuleDict(ending(inner))})


def move(ours: nn.Module, theirs: nn.Module) -> None:
    """Replace the innermost modules of the Hugging Face model by ours: the same weights, the same hooks."""
    vars(theirs).update({name: value for name, value in vars(ours).items() if "hook" in name})
    theirs.training = ours.training
    for name, part in ours._modules.items():
        target = theirs._modules[name]
        if isinstance(part, (nn.ModuleDict, nn.ModuleList)) and target is not None:
            move(part, target)
        else:
            theirs._modules[name] = part
