"""Tiny random models, built in a moment and thrown away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "a small boat lies on the quiet lake and nobody rows it home",
    "the red fox runs over seven green hills before the long winter",
    "Unicode: café, naïve, 문장, 文, 3.14 × 2!",
    "zero one two three four five six seven eight nine ten",
]
TEXTS = [
    "a small boat",
    "The red fox runs over the hills.",
    "",
    "   ",
    "café 문장 !?",
    "one two three four five six seven eight nine ten " * 3,
    "lake",
    "A SMALL Boat lies — on the quiet lake; nobody rows it home",
]


SHAPE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SHAPE["max_position_embeddings"] = 64


def words() -> list[str]:
    """The words of the corpus and the characters that they are made of, always in one order.

    Trained tokenizers differ from run to run, since the trainers break ties by chance.
    """
    split = {word for text in CORPUS for word in re.findall(r"\w+|[^\w\s]", text.lower())}
    return sorted({character for word in split for character in word}) + sorted(w for w in split if len(w) > 1)


def wordpiece(more: Iterable[str] = ()) -> Tokenizer:
    """As BERT's: lower case, [CLS] … [SEP]; with more pieces."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner = [f"##{word}" for word in words() if len(word) == 1]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*special, *words(), *inner, "##er", *more]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # As RoBERTa's, the padding token at 1.


def add_template(tokenizer: Tokenizer, template: str) -> None:
    tokens = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, pair=f"{template} $B", special_tokens=[t for t in tokens if t[0] in template]
    )


def byte_bpe(template: str = "<s> $A </s>") -> Tokenizer:
    """As RoBERTa's: bytes, <s> … </s>, the padding token at 1."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    add_template(tokenizer, template)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def unigram(template: str = "<s> $A </s>") -> Tokenizer:
    """As XLM-R's and T5's: pieces of sentences, spaces kept as ▁."""
    scores = {"▁": -3.0, **{word: -8.0 if len(word) == 1 else -5.0 for word in words()}}
    scores.update({f"▁{word}": -4.0 for word in words()})
    pieces = [*((piece, 0.0) for piece in SPECIAL), *scores.items()]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(SPECIAL)
    add_template(tokenizer, template)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def wrapped(tokenizer: Tokenizer, limit: int, **options: Any) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers has it."""
    bert = tokenizer.token_to_id("[CLS]") is not None
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if bert else ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    keys = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=limit, **dict(zip(keys, names, strict=True)), **options
    )


def randomized(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """The model with weights large enough that vectors of different texts differ."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.2 if parameter.ndim > 1 else 0.05
            base = 1.0 if parameter.ndim == 1 and "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.copy_(base + scale * torch.randn_like(parameter))
    return model.eval()


def bert_model(seed: int = 0, layers: int = 2) -> Any:
    """A BERT for the tokenizer ``wordpiece``."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=wordpiece().get_vocab_size(), **{**SHAPE, "num_hidden_layers": layers})
    return randomized(BertModel(config), seed)


def bert(folder: Path, seed: int = 0) -> Path:
    """A BERT of two layers, as a plain Hugging Face folder."""
    bert_model(seed).save_pretrained(folder)
    wrapped(wordpiece(), 64).save_pretrained(folder)
    return folder


def write(folder: Path, files: dict[str, Any]) -> Path:
    """JSON files at their paths."""
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
    return folder


def modules(*names: str, namespace: str = "sentence_transformers.models.") -> list[dict[str, Any]]:
    """The entries of modules.json: the first at the top, the others in folders of their own."""
    return [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{name}",
            "type": namespace.format(name=name.lower()) + name,
        }
        for i, name in enumerate(names)
    ]


def pooling(*modes: str, dim: int = 16, **more: Any) -> dict[str, Any]:
    """A pooling's old config; modes by the names of its keys."""
    keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    flags = {f"pooling_mode_{key}": key in modes for key in keys}
    return {"word_embedding_dimension": dim, **flags, **more}


def enable_checkpointing(network: Any, options: dict[str, Any]) -> None:
    """Compute activations again in the backward pass; transformers before 5.21 have another name for it."""
    name = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
    getattr(network, f"{name}_checkpointing_enable")(options)
