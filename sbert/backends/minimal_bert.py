"""A minimal BERT and its tokenizer: importing transformers takes longer than importing torch.

The modules have the names, order and weights of the ``BertModel`` of Hugging Face, which can reuse them. Only what
transformers would read in the very same way is loaded here, and converted to its objects on demand; it loads everything
else.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.backends.architectures import ACTIVATIONS
from sbert.storage.files import check_files, is_failure
from sbert.storage.weight_files import check_ids

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedModel

# ---------------------------------------------------------------------------------------------------------- the modules


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
    model_type: str


class Origin(NamedTuple):
    """Folder of a model and the contents of its small files when it was loaded: the folder may not exist later.

    Args:
        folder: Of the model.
        files: Contents by name.
        dtype: Of the weights, as they were loaded.
    """

    folder: Path
    files: dict[str, bytes]
    dtype: torch.dtype


class BertModel(nn.Module):
    """The modules of a ``BertModel``, initially without weights, in eval mode.

    Args:
        config: Configuration.
        origin: Where it was loaded from, for its conversion.

    Shape:
        Input: ids and mask of (rows, tokens). Output: (rows, tokens, dim).
    """

    def __init__(self, config: Config, origin: Origin) -> None:
        super().__init__()
        self.config: Config = config
        self.origin: Origin = origin
        dim = config.hidden_size
        self.embeddings: Any = nn.ModuleDict(
            {
                "word_embeddings": _table(config.vocab_size, dim, config.pad_token_id),
                "position_embeddings": _table(config.max_position_embeddings, dim),
                "token_type_embeddings": _table(config.type_vocab_size, dim),
                "LayerNorm": nn.LayerNorm(dim, config.layer_norm_eps, device="meta"),
                "dropout": nn.Dropout(config.hidden_dropout_prob),
            }
        )
        layers = nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers))
        self.encoder: Any = nn.ModuleDict({"layer": layers})
        self.pooler: nn.ModuleDict = nn.ModuleDict({"dense": nn.Linear(dim, dim, device="meta")})
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        return self.embeddings.word_embeddings.weight.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embeddings.word_embeddings.weight.device  # type: ignore[no-any-return]

    def get_input_embeddings(self) -> nn.Module:
        """The embeddings of the tokens."""
        return self.embeddings.word_embeddings  # type: ignore[no-any-return]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        table = self.embeddings
        x = table.word_embeddings(input_ids) + table.token_type_embeddings(torch.zeros_like(input_ids))
        x = x + table.position_embeddings(torch.arange(input_ids.shape[1], device=input_ids.device))
        x = table.LayerNorm(x)
        seen = None if attention_mask is None else attention_mask.bool()[:, None, None]  # (rows, 1, 1, tokens)
        activate = ACTIVATIONS[self.config.hidden_act].apply
        for layer in self.encoder["layer"]:
            heads, after = layer.attention.self, layer.attention.output
            query, key, value = (
                part(x).unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)
                for part in (heads.query, heads.key, heads.value)
            )  # (rows, heads, tokens, dim / heads)
            mixed = F.scaled_dot_product_attention(query, key, value, seen).transpose(1, 2).flatten(2)
            x = after.LayerNorm(after.dense(mixed) + x)
            x = layer.output.LayerNorm(layer.output.dense(activate(layer.intermediate.dense(x))) + x)
        return SimpleNamespace(last_hidden_state=x)


def _table(rows: int, dim: int, padding: int | None = None) -> nn.Embedding:
    # Without random initialization, whose imports on the device "meta" take a second.
    return nn.Embedding(rows, dim, padding, _weight=torch.empty(rows, dim, device="meta"))


def _layer(config: Config) -> nn.ModuleDict:
    dim, inner = config.hidden_size, config.intermediate_size

    def ending(inputs: int) -> nn.ModuleDict:
        norm = nn.LayerNorm(dim, config.layer_norm_eps, device="meta")
        dense, dropout = nn.Linear(inputs, dim, device="meta"), nn.Dropout(config.hidden_dropout_prob)
        return nn.ModuleDict({"dense": dense, "LayerNorm": norm, "dropout": dropout})

    heads: dict[str, nn.Module] = {name: nn.Linear(dim, dim, device="meta") for name in ("query", "key", "value")}
    heads["dropout"] = nn.Dropout(config.attention_probs_dropout_prob)
    attention = nn.ModuleDict({"self": nn.ModuleDict(heads), "output": ending(dim)})
    intermediate = nn.ModuleDict({"dense": nn.Linear(dim, inner, device="meta")})
    return nn.ModuleDict({"attention": attention, "intermediate": intermediate, "output": ending(inner)})


@dataclass(frozen=True, eq=False)
class PlainTokenizer:
    """The interface of a tokenizer that the library needs, with the names of transformers."""

    backend_tokenizer: tokenizers.Tokenizer
    pad_token_id: int
    model_max_length: Any
    truncation_side: str
    origin: Origin
    is_fast: bool = True

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())


# ------------------------------------------------------------------------------------- to the objects of transformers


def convert_model(network: BertModel) -> PreTrainedModel:
    """The Hugging Face model with the innermost modules of a minimal one: the same weights, the same hooks."""
    origin = network.origin
    model = huggingface.rebuild_bert(json.loads(origin.files["config.json"]), network.state_dict(), origin.dtype)
    model.name_or_path = model.config.name_or_path = str(origin.folder)
    for name, part in network.named_modules(remove_duplicate=False):
        if isinstance(part, (BertModel, nn.ModuleDict, nn.ModuleList)):
            hooks = {key: value for key, value in vars(part).items() if "hook" in key}
            vars(model.get_submodule(name)).update(hooks, training=part.training)
        else:
            model.set_submodule(name, part)
    return model.to(network.device)


def materialize_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer of transformers, from a temporary folder: that of the model may be replaced at any time."""
    if not isinstance(tokenizer, PlainTokenizer):  # Another thread was faster.
        return tokenizer
    origin = tokenizer.origin
    with tempfile.TemporaryDirectory() as folder:
        for name, content in origin.files.items():
            (Path(folder) / name).write_bytes(content)
        result = huggingface.load_tokenizer(Path(folder), {})
    result.name_or_path = result.init_kwargs["name_or_path"] = str(origin.folder)
    return result


# -------------------------------------------------------------------------------------------------------------- loading

_READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_UNUSUAL_FILES = {
    *("adapter_config.json", "added_tokens.json", "chat_template.json", "additional_chat_templates"),
    *(name for name in huggingface.TOKENIZER_FILES if name not in _READ),
}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
# Keys of a config.json: those of BERT, those without effect, and those without effect if they have these values.
_FIELDS: dict[str, type] = get_type_hints(Config)
_KINDS = {**_FIELDS, "_name_or_path": str, "transformers_version": str, "use_cache": bool, "initializer_range": float}
_USUAL: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "architectures": (["BertModel"], ["BertForMaskedLM"]),
    "dtype": ("float32", "float16", "bfloat16"),
    "torch_dtype": ("float32", "float16", "bfloat16"),
    "position_embedding_type": ("absolute",),
    "tie_word_embeddings": (True,),
    **dict.fromkeys(("gradient_checkpointing", "is_decoder", "add_cross_attention"), (False,)),
    **dict.fromkeys(("classifier_dropout", "bos_token_id", "eos_token_id"), (None,)),
    "id2label": ({"0": "LABEL_0"},),
    "label2id": ({"LABEL_0": 0},),
    "tokenizer_class": ("BertTokenizer", "BertTokenizerFast", None),
}
_SPECIAL = {
    name: f"[{name[:-6].upper()}]" for name in ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
}
# For these, transformers builds the steps of BERT from the vocabulary; for others it uses those of the file.
_REBUILT, _TAKEN = ("BertTokenizer", "BertTokenizerFast", None), huggingface.AS_IN_FILE
# What a tokenizer_config.json may say beside the names of special tokens: of BERT's steps, which are compared with
# the file's own; what changes no text's ids; and what changes none while it is empty.
_NOTES = {
    *("tokenizer_class", "name_or_path", "backend", "is_local", "local_files_only", "do_basic_tokenize"),
    *("model_max_length", "padding_side", "truncation_side", "truncation_strategy", "max_length", "stride"),
    *("pad_to_multiple_of", "pad_token_type_id", "clean_up_tokenization_spaces", "added_tokens_decoder"),
    *("special_tokens_map_file", "tokenizer_file", "model_input_names"),
}
_EMPTY = {"never_split", "extra_special_tokens", "additional_special_tokens", "full_tokenizer_file"}


def load_minimal_bert(folder: Path, dtype: torch.dtype) -> tuple[BertModel, PlainTokenizer] | None:
    """The BERT in a folder and its tokenizer; None if anything is unusual, so that transformers loads it.

    Args:
        folder: Of the model.
        dtype: Of the weights.
    """
    try:
        return _load(folder, dtype)
    except BaseException as error:
        if not is_failure(error):
            raise
        return None


def _require(*usual: object) -> None:
    """Raise an error, for which ``load_minimal_bert`` returns None, unless all of these are true."""
    if not all(usual):
        raise ValueError("transformers loads it")


def _load(folder: Path, dtype: torch.dtype) -> tuple[BertModel, PlainTokenizer]:
    check_files(folder)
    names = os.listdir(folder)
    _require(not _UNUSUAL_FILES.intersection(names))
    _require(not any(name.endswith((".jinja", "tokenizer.model")) for name in names))
    origin = Origin(folder, {name: (folder / name).read_bytes() for name in _READ if name in names}, dtype)
    values = json.loads(origin.files["config.json"])
    config = _read_config(values)
    plain = _read_tokenizer(origin, values.get("tokenizer_class"))
    weights = _read_weights(folder / "model.safetensors", config.num_hidden_layers)
    network = BertModel(config, origin)
    network.load_state_dict({name: weight.to(dtype) for name, weight in weights.items()}, assign=True)
    return network, plain


def _read_config(values: dict[str, Any]) -> Config:
    """The configuration of a BERT, complete, and without unknown keys."""
    for key, value in values.items():
        usual = [other for other in _USUAL.get(key, ()) if type(other) is type(value) and other == value]
        _require(usual if key in _USUAL else type(value) is _KINDS.get(key))
    config = Config(**{name: values[name] for name in _FIELDS})
    sizes = [values[name] for name, kind in _FIELDS.items() if kind is int and name != "pad_token_id"]
    # The modules check the rest.
    _require(min(sizes) > 0, config.hidden_size % config.num_attention_heads == 0, config.hidden_act in ACTIVATIONS)
    return config


def _read_weights(path: Path, layers: int) -> dict[str, Tensor]:
    """The tensors of a file whose number fits the number of layers."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        names = set(file.keys()) - {"embeddings.position_ids"}  # In old files; positions from 0.
        _require(len(names) == 16 * layers + 7, (file.metadata() or {}).get("format") == "pt")
        weights = {name: file.get_tensor(name) for name in names}
    _require({weight.dtype for weight in weights.values()} <= _FLOATS)
    return weights


def _read_tokenizer(origin: Origin, named: str | None) -> PlainTokenizer:
    """The tokenizer of a folder with a BERT, which transformers would not modify.

    Args:
        origin: The folder.
        named: The tokenizer's class, as config.json has it.
    """
    from tokenizers import Tokenizer

    files = origin.files
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    kind = config.get("tokenizer_class") or named
    sides = {config.get("padding_side", "right"), config.get("truncation_side", "right")}
    _require(kind in (*_REBUILT, *_TAKEN), set(config) <= {*_SPECIAL, *huggingface.BERT_STEPS, *_NOTES, *_EMPTY})
    _require(not any(map(config.get, _EMPTY)), isinstance(config.get("model_input_names", []), list))
    _require(sides <= {"left", "right"})
    check_ids(origin.folder / "tokenizer.json", files["tokenizer.json"])
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    added = tokenizer.get_added_tokens_decoder()
    stated = {str(number): token.__getstate__() for number, token in added.items()}
    _require(config.get("added_tokens_decoder") in (None, stated))
    special = _special_tokens(config, json.loads(files.get("special_tokens_map.json", b"{}")), kind in _REBUILT)
    special.setdefault("pad_token", (tokenizer.padding or {}).get("pad_token"))
    numbers = {token.content: number for number, token in added.items() if token.special}
    _require(numbers.keys() >= set(special.values()))  # transformers would add it.
    _require(tokenizer.post_processor)
    if kind in _REBUILT:
        _require_steps_of_bert(tokenizer, config, special, numbers)
    side = config.get("truncation_side", (tokenizer.truncation or {}).get("direction", "right"))
    limit = config.get("model_max_length")
    return PlainTokenizer(tokenizer, numbers[special["pad_token"]], 10**30 if limit is None else limit, side, origin)


def _special_tokens(config: dict[str, Any], mapped: dict[str, Any], rebuilt: bool) -> dict[str, Any]:
    """The special tokens by name, as strings."""
    tokens = {**(_SPECIAL if rebuilt else {}), **{name: config[name] for name in _SPECIAL if name in config}}
    if "added_tokens_decoder" not in config:  # Otherwise special_tokens_map.json is not read.
        _require(set(mapped) <= set(_SPECIAL))
        tokens.update({name: value["content"] if isinstance(value, dict) else value for name, value in mapped.items()})
    _require(set(map(type, tokens.values())) <= {str})
    return tokens


def _require_steps_of_bert(
    tokenizer: tokenizers.Tokenizer, config: dict[str, Any], special: dict[str, str], numbers: dict[str, int]
) -> None:
    """The steps of a tokenizer are to be those that the class of BERT would build from its vocabulary."""
    from tokenizers import models, normalizers, pre_tokenizers, processors

    model, added = tokenizer.model, tokenizer.get_added_tokens_decoder()
    _require(type(model) is models.WordPiece, model.unk_token == special["unk_token"])
    _require((model.continuing_subword_prefix, model.max_input_chars_per_word) == ("##", 100))
    _require([model.token_to_id(token.content) for token in added.values()] == list(added))
    first, last = special["cls_token"], special["sep_token"]
    template = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, numbers[first]), (last, numbers[last])],
    )
    options = {theirs: config[ours] for ours, theirs in huggingface.BERT_STEPS.items() if ours in config}
    built: tuple[Any, ...] = (normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer(), template)
    steps: tuple[Any, ...] = (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.post_processor)
    for ours, theirs in zip(steps, built, strict=True):  # Their type stands in their JSON.
        _require(ours and json.loads(ours.__getstate__()) == json.loads(theirs.__getstate__()))
