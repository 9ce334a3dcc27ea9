"""A minimal BERT and its tokenizer: importing transformers takes longer than importing torch.

The modules have the names, order and weights of the ``BertModel`` of Hugging Face, which can reuse them. Only what
transformers would read in the very same way is loaded here, and converted to its objects on demand; it loads everything
else.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends import huggingface
from sbert.backends.architectures import ACTIVATIONS
from sbert.storage.files import check_files, is_failure
from sbert.storage.weight_files import check_ids

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
    model_type: ClassVar[str] = "bert"


@dataclass(frozen=True)
class Origin:
    """Folder of a model and the contents of its small files when it was loaded: the folder may not exist later.

    Args:
        folder: Of the model.
        files: Contents by name.
        dtype: Of the weights, as they were loaded.
    """

    folder: Path
    files: dict[str, bytes]
    dtype: torch.dtype

    @contextmanager
    def restore(self) -> Iterator[Path]:
        """A temporary folder with these files: the folder of the model may be replaced at any time."""
        with tempfile.TemporaryDirectory() as name:
            for file, content in self.files.items():
                (Path(name) / file).write_bytes(content)
            yield Path(name)


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

    def __init__(self, config: Config, origin: Origin) -> None:
        super().__init__()
        self.config: Config = config
        self.origin: Origin = origin
        dim = config.hidden_size
        self.embeddings: nn.ModuleDict = nn.ModuleDict(
            {
                "word_embeddings": _table(config.vocab_size, dim, config.pad_token_id),
                "position_embeddings": _table(config.max_position_embeddings, dim),
                "token_type_embeddings": _table(config.type_vocab_size, dim),
                "LayerNorm": nn.LayerNorm(dim, config.layer_norm_eps, device="meta"),
                "dropout": nn.Dropout(config.hidden_dropout_prob),
            }
        )
        layers = nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers))
        self.encoder: nn.ModuleDict = nn.ModuleDict({"layer": layers})
        self.pooler: nn.ModuleDict = nn.ModuleDict({"dense": nn.Linear(dim, dim, device="meta")})
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


def _table(rows: int, dim: int, padding: int | None = None) -> nn.Embedding:
    # Without random initialization, whose imports on the device "meta" take a second.
    return nn.Embedding(rows, dim, padding, _weight=torch.empty(rows, dim, device="meta"))


def _layer(config: Config) -> nn.ModuleDict:
    dim, inner = config.hidden_size, config.intermediate_size

    def ending(given: int) -> nn.ModuleDict:
        norm = nn.LayerNorm(dim, config.layer_norm_eps, device="meta")
        dense, dropout = nn.Linear(given, dim, device="meta"), nn.Dropout(config.hidden_dropout_prob)
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
    """The Hugging Face model with the modules of a minimal one."""
    origin = network.origin
    with origin.restore() as folder:
        config = huggingface.load_config(folder, {})
    model = huggingface.rebuild(config, network.state_dict(), origin.dtype)
    model.name_or_path = model.config.name_or_path = str(origin.folder)
    _move(network, model)
    return model.to(network.device)


def convert_tokenizer(plain: PlainTokenizer) -> PreTrainedTokenizerBase:
    """The tokenizer of transformers."""
    with plain.origin.restore() as folder:
        tokenizer = huggingface.load_tokenizer(folder, {})
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = str(plain.origin.folder)
    return tokenizer


def _move(ours: nn.Module, theirs: nn.Module) -> None:
    """Replace the innermost modules of the Hugging Face model by ours: the same weights, the same hooks."""
    vars(theirs).update({name: value for name, value in vars(ours).items() if "hook" in name})
    theirs.training = ours.training
    for name, part in ours._modules.items():
        target = theirs._modules[name]
        if isinstance(part, (nn.ModuleDict, nn.ModuleList)) and target is not None:
            _move(part, target)
        else:
            theirs._modules[name] = part


# -------------------------------------------------------------------------------------------------------------- loading

_READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_UNUSUAL_FILES = {
    *("adapter_config.json", "added_tokens.json", "chat_template.json", "additional_chat_templates"),
    *(name for name in huggingface.TOKENIZER_FILES if name not in _READ),
}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
# Keys of a config.json: those of BERT, those without effect, and those without effect if they have these values.
_FIELDS: dict[str, type] = {name: kind for name, kind in get_type_hints(Config).items() if name != "model_type"}
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
_REBUILT, _TAKEN = ("BertTokenizer", "BertTokenizerFast", None), ("TokenizersBackend", "PreTrainedTokenizerFast")
# What a tokenizer_config.json may say beside the names of special tokens: of BERT's steps, which are compared with
# the file's own; what changes no text's ids; and what changes none while it is empty.
_STEPS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_NOTES = {
    *("tokenizer_class", "name_or_path", "backend", "is_local", "local_files_only", "do_basic_tokenize"),
    *("model_max_length", "padding_side", "truncation_side", "truncation_strategy", "max_length", "stride"),
    *("pad_to_multiple_of", "pad_token_type_id", "clean_up_tokenization_spaces", "added_tokens_decoder"),
    *("special_tokens_map_file", "tokenizer_file", "model_input_names"),
}
_EMPTY = {"never_split", "extra_special_tokens", "additional_special_tokens", "full_tokenizer_file"}


def load(folder: Path, dtype: torch.dtype) -> tuple[BertModel, PlainTokenizer] | None:
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


def _load(folder: Path, dtype: torch.dtype) -> tuple[BertModel, PlainTokenizer] | None:
    check_files(folder)
    names = os.listdir(folder)
    if _UNUSUAL_FILES.intersection(names) or any(name.endswith((".jinja", "tokenizer.model")) for name in names):
        return None
    origin = Origin(folder, {name: (folder / name).read_bytes() for name in _READ if name in names}, dtype)
    values = json.loads(origin.files["config.json"])
    config = _read_config(values)
    plain = None if config is None else _read_tokenizer(origin, values.get("tokenizer_class"))
    weights = None if config is None else _read_weights(folder / "model.safetensors", config.num_hidden_layers)
    if config is None or plain is None or weights is None:
        return None
    network = BertModel(config, origin)
    network.load_state_dict({name: weight.to(dtype) for name, weight in weights.items()}, assign=True)
    return network, plain


def _read_config(given: dict[str, Any]) -> Config | None:
    """The configuration if it is that of a BERT, complete, and without unknown keys; else None."""
    if given.get("model_type") != "bert" or not _FIELDS.keys() <= given.keys():
        return None
    for key, value in given.items():
        usual = [each for each in _USUAL.get(key, ()) if type(each) is type(value) and each == value]
        if not usual and (key in _USUAL or type(value) is not _KINDS.get(key)):
            return None
    config = Config(**{name: given[name] for name in _FIELDS})
    sizes = [given[name] for name, kind in _FIELDS.items() if kind is int and name != "pad_token_id"]
    fits = min(sizes) > 0 and config.hidden_size % config.num_attention_heads == 0  # The modules check the rest.
    return config if fits and config.hidden_act in ACTIVATIONS else None


def _read_weights(path: Path, layers: int) -> dict[str, Tensor] | None:
    """The tensors of a file if their number fits the number of layers."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        if (file.metadata() or {}).get("format") != "pt":
            return None
        names = set(file.keys()) - {"embeddings.position_ids"}  # In old files; positions from 0.
        if len(names) != 16 * layers + 7:
            return None
        weights = {name: file.get_tensor(name) for name in names}
    return weights if {weight.dtype for weight in weights.values()} <= _FLOATS else None


def _read_tokenizer(origin: Origin, named: str | None) -> PlainTokenizer | None:
    """The tokenizer of a folder with a BERT; None if transformers might modify it.

    Args:
        origin: The folder.
        named: The tokenizer's class, as config.json has it.
    """
    from tokenizers import Tokenizer

    files = origin.files
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    kind = config.get("tokenizer_class") or named
    special = _special_tokens(config, json.loads(files.get("special_tokens_map.json", b"{}")), kind in _REBUILT)
    if special is None or kind not in (*_REBUILT, *_TAKEN) or not _is_usual(config):
        return None
    check_ids(origin.folder / "tokenizer.json", files["tokenizer.json"])
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    known = tokenizer.get_added_tokens_decoder()
    stated = config.get("added_tokens_decoder")
    if stated is not None and stated != {str(number): token.__getstate__() for number, token in known.items()}:
        return None
    special.setdefault("pad_token", (tokenizer.padding or {}).get("pad_token"))
    numbers = {token.content: number for number, token in known.items() if token.special}
    if not numbers.keys() >= set(special.values()):  # transformers would add it.
        return None
    if tokenizer.post_processor is None or (kind in _REBUILT and not _is_berts(tokenizer, config, special, numbers)):
        return None
    side = config.get("truncation_side", (tokenizer.truncation or {}).get("direction", "right"))
    limit = config.get("model_max_length")
    return PlainTokenizer(tokenizer, numbers[special["pad_token"]], 10**30 if limit is None else limit, side, origin)


def _is_usual(config: dict[str, Any]) -> bool:
    """Whether all keys of a tokenizer_config.json are known to have no effect."""
    sides = {config.get("padding_side", "right"), config.get("truncation_side", "right")}
    known = set(config) <= {*_SPECIAL, *_STEPS, *_NOTES, *_EMPTY} and sides <= {"left", "right"}
    return known and not any(map(config.get, _EMPTY)) and isinstance(config.get("model_input_names", []), list)


def _special_tokens(config: dict[str, Any], mapped: dict[str, Any], rebuilt: bool) -> dict[str, Any] | None:
    """The special tokens by name, as strings."""
    tokens = {**(_SPECIAL if rebuilt else {}), **{name: config[name] for name in _SPECIAL if name in config}}
    if "added_tokens_decoder" not in config:  # Otherwise special_tokens_map.json is not read.
        if not set(mapped) <= set(_SPECIAL):
            return None
        tokens.update({name: value["content"] if isinstance(value, dict) else value for name, value in mapped.items()})
    return tokens if set(map(type, tokens.values())) <= {str} else None


def _is_berts(
    tokenizer: tokenizers.Tokenizer, config: dict[str, Any], special: dict[str, str], numbers: dict[str, int]
) -> bool:
    """Whether the steps of a tokenizer are those that the class of BERT would build from its vocabulary."""
    from tokenizers import models, normalizers, pre_tokenizers, processors

    model = tokenizer.model
    if type(model) is not models.WordPiece or model.unk_token != special["unk_token"]:
        return False
    added = tokenizer.get_added_tokens_decoder()
    as_in_vocabulary = [model.token_to_id(token.content) for token in added.values()] == list(added)
    if not as_in_vocabulary or (model.continuing_subword_prefix, model.max_input_chars_per_word) != ("##", 100):
        return False
    first, last = special["cls_token"], special["sep_token"]
    template = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, numbers[first]), (last, numbers[last])],
    )
    options = {theirs: config[ours] for ours, theirs in _STEPS.items() if ours in config}
    built: tuple[Any, ...] = (normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer(), template)
    steps: tuple[Any, ...] = (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.post_processor)
    same = (
        a and json.loads(a.__getstate__()) == json.loads(b.__getstate__()) for a, b in zip(steps, built, strict=True)
    )
    return all(same)  # Their type stands in their JSON.
