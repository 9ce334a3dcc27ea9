"""Folders at the edges: other families and tokenizers, older files, few keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests import small
from tests.backends.test_families import FAMILIES, QWEN, ROBERTA, SHAPE, T5, build, ours
from tests.saving.layouts import bert_layout, dense, labse, limits, minilm, word_vectors
from tests.small import modules, pooling, write


def change(path: Path, **values: Any) -> Path:
    """Set keys of a JSON file; the folder of the file."""
    return write(path.parent, {path.name: {**json.loads(path.read_text(encoding="utf-8")), **values}})


def changed(layout: Callable[[Path], Path], file: str, **values: Any) -> Callable[[Path], Path]:
    """A layout with other values in one of its files."""

    def make(folder: Path) -> Path:
        change(layout(folder) / file, **values)
        return folder

    return make


def pooled(**config: Any) -> Callable[[Path], Path]:
    """A layout with few keys of its pooling."""
    return lambda folder: bert_layout(folder, ("Pooling",), {"word_embedding_dimension": 16, **config})


def vocabulary_file(folder: Path) -> Path:
    """As the models of 2019: no tokenizer.json."""
    minilm(folder)
    vocabulary = small.wordpiece().get_vocab()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", "utf-8")
    return write(folder, {"tokenizer_config.json": {"do_lower_case": True, "model_max_length": 64}})


def merges_file(folder: Path) -> Path:
    build("roberta", folder)
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "tokenizer.json").unlink()
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    return write(folder, {"vocab.json": model["vocab"], "tokenizer_config.json": {"model_max_length": 64}})


def python_tokenizer(folder: Path, **more: Any) -> Path:
    """ByT5's tokenizer is written in Python."""
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    config = T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=384)
    small.randomized(T5EncoderModel(config)).save_pretrained(folder)
    ByT5Tokenizer(model_max_length=64).save_pretrained(folder)
    files = {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": pooling("mean_tokens")}
    return write(folder, {**files, "sentence_bert_config.json": limits(24, **more)})


def transformer_folder(folder: Path) -> Path:
    """As the first folders had it; ``idx`` counts for nothing, and neither do the names of arguments."""
    minilm(folder)
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        path.rename(folder / "0_Transformer" / path.name)
    listed = modules("Transformer", "Pooling", "Normalize")
    listed[0].update(path="0_Transformer", idx=2, kwargs=["task"])
    return write(folder, {"modules.json": listed})


def links(folder: Path) -> Path:
    """As the cache of the hub: each file is a link out of the folder, which is reached by a link."""
    given, snapshot = minilm(folder.with_name("blobs")), folder.with_name("snapshot")
    for path in [path for path in given.rglob("*") if path.is_file()]:
        link = snapshot / path.relative_to(given)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    folder.symlink_to(snapshot, target_is_directory=True)
    return folder


def shards(folder: Path) -> Path:
    model = ours(minilm(folder))[0].auto_model
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def sentence_t5(folder: Path) -> Path:
    """A whole T5, a Dense without bias or activation, and Normalize."""
    build("t5-whole", folder)
    dense(folder / "2_Dense", 16, 12, bias=False, activation_function="torch.nn.modules.linear.Identity")
    return write(folder, {"modules.json": modules("Transformer", "Pooling", "Dense", "Normalize")})


def residual(folder: Path, out: int) -> Path:
    labse(folder)
    tanh = "torch.nn.modules.activation.Tanh"
    dense(folder / "2_Dense", 16, out, use_residual=True, activation_function=tanh)
    if out != 16:
        weights = load_file(folder / "2_Dense/model.safetensors")
        save_file({**weights, "residual.weight": torch.randn(out, 16)}, folder / "2_Dense/model.safetensors")
    return folder


def decoder(folder: Path, **config: Any) -> Path:
    """A plain decoder, whose last token is the vector unless it looks in both directions."""
    build("qwen3", folder)
    for name in ("modules.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    rmtree(folder / "1_Pooling")
    (folder / "2_Normalize").rmdir()
    return change(folder / "config.json", **config)


def mpnet_wordpiece() -> Tokenizer:
    """WordPiece between <s> and </s>, as MPNet has it."""
    from tokenizers import models, normalizers, pre_tokenizers, processors

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    inner = [f"##{word}" for word in small.words() if len(word) == 1]
    vocabulary = {piece: i for i, piece in enumerate([*special, *small.words(), *inner])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def pieces() -> Tokenizer:
    return small.unigram("$A </s>")


GEMMA = {**QWEN, "sliding_window": 8, "use_bidirectional_attention": True}
MORE: dict[str, tuple[str, str, dict[str, Any], Callable[[], Tokenizer]]] = {
    "mpnet-wordpiece": ("MPNetConfig", "MPNetModel", {**SHAPE, "pad_token_id": 1}, mpnet_wordpiece),
    "camembert": ("CamembertConfig", "CamembertModel", ROBERTA, small.unigram),
    "t5-with-its-head": ("T5Config", "T5ForConditionalGeneration", T5, pieces),
    "mt5-with-its-head": ("MT5Config", "MT5ForConditionalGeneration", T5, pieces),
    "gemma3-bidirectional": ("Gemma3TextConfig", "Gemma3TextModel", GEMMA, small.byte_bpe),
    "gemma3-causal": ("Gemma3TextConfig", "Gemma3TextModel", {**QWEN, "sliding_window": 8}, small.byte_bpe),
    "mistral": ("MistralConfig", "MistralModel", QWEN, small.byte_bpe),
    "bert-with-a-head": ("BertConfig", "BertForMaskedLM", SHAPE, small.wordpiece),
}


def of_family(family: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with pytest.MonkeyPatch.context() as changed:
            changed.setitem(FAMILIES, family, MORE[family])
            return build(family, folder)

    return make


SHORT_DENSE = {"in_features": 16, "out_features": 16}
NAMED = {"bert": "BertTokenizer", "xlm-roberta": "XLMRobertaTokenizerFast", "qwen3": "Qwen2Tokenizer"}
# What few folders have.
RARE: dict[str, Callable[[Path], Path]] = {
    **{family: of_family(family) for family in MORE},
    **{layout.__name__: layout for layout in (vocabulary_file, merges_file, python_tokenizer, transformer_folder)},
    **{layout.__name__: layout for layout in (links, shards, sentence_t5)},
    "short dense": lambda folder: write(
        labse(folder), {"2_Dense/config.json": {"in_features": 16, "out_features": 16}}
    ),
    "residual": partial(residual, out=16),
    "residual of another dimension": partial(residual, out=8),
    "cls flag": pooled(pooling_mode_cls_token=True),
    "max flag": pooled(pooling_mode_max_tokens=True),
    "no flag is true": pooled(pooling_mode_cls_token=False, pooling_mode_mean_tokens=False),
    "pooling mode": pooled(pooling_mode="weightedmean"),
    "pooling modes win": pooled(pooling_mode=["max"], pooling_mode_cls_token=True),
    "decoder": partial(decoder, architectures=["Qwen3ForCausalLM"]),
    "decoder in both directions": partial(decoder, architectures=["Qwen3ForCausalLM"], is_causal=False),
    "body of a decoder": partial(decoder, architectures=["Qwen3Model"]),
    "unknown decoder": partial(decoder, architectures=None),
    "words with a limit": changed(word_vectors, "0_WordEmbeddings/wordembedding_config.json", max_seq_length=3),
    "truncated on the left": changed(
        minilm, "sentence_bert_config.json", max_seq_length=12, tokenizer_args={"truncation_side": "left"}
    ),
    "limit of the tokenizer": changed(
        minilm, "sentence_bert_config.json", max_seq_length=None, processor_kwargs={"model_max_length": 9}
    ),
    **{
        name: changed(partial(build, family), "tokenizer_config.json", tokenizer_class=name)
        for family, name in NAMED.items()
    },
}
