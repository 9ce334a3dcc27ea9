"""Codecs of StaticEmbedding (also in the form of model2vec) and WordEmbeddings."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from sbert.modules import StaticEmbedding, WordEmbeddings
from sbert.saving.codecs.codec import Codec, ReadOptions, write_weights
from sbert.saving.format import THEIRS, WORDS_CONFIG, WORDS_VOCABULARY
from sbert.storage.files import UnreadableError, read_object, reading, write_json
from sbert.storage.weight_files import check_ids, read_header, read_weights, warn_of_unused


def _read_static(folder: Path, options: ReadOptions) -> StaticEmbedding:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    check_ids(path)
    with reading(path, "a tokenizer"):
        tokenizer = Tokenizer.from_file(str(path))
        tokens = tokenizer.get_vocab_size()
    header = read_header(folder)
    weights = read_weights(header, integers=("mapping",))
    table = weights.pop("embedding.weight", weights.pop("embeddings", None))
    if table is None or table.ndim != 2:
        raise UnreadableError(header.path, "contains no table of embeddings")
    mapping, scales = weights.pop("mapping", None), weights.pop("weights", None)  # Of model2vec, for each token.
    if mapping is not None and (mapping.ndim != 1 or len(mapping) > 2 * tokens):
        reason = f"contains a mapping of shape {tuple(mapping.shape)}, where at most {2 * tokens} tokens are expected"
        raise UnreadableError(header.path, reason)
    with reading(header.path, "a table of embeddings"):
        table = table if mapping is None else table[mapping.long()]  # (tokens, dim)
        table = table.to(options.dtype or torch.float32)
        table = table if scales is None else table * scales[:, None].to(table.dtype)
        if len(table) < tokens:
            raise UnreadableError(header.path, f"contains {len(table)} vectors for {tokens} tokens")
        module = StaticEmbedding(tokenizer, table)
    warn_of_unused(header.path, weights)
    return module


def _write_static(module: StaticEmbedding, folder: Path, _: int) -> None:
    # Other libraries apply the truncation in the file; this one does not.
    tokenizer = type(module.tokenizer).from_str(module.tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
    write_weights(module.state_dict(), folder)


def _read_words(folder: Path, _: ReadOptions) -> WordEmbeddings:
    config, vocabulary = read_object(folder / WORDS_CONFIG), read_object(folder / WORDS_VOCABULARY)
    tokenizer = config.require("tokenizer_class", str)
    if tokenizer.rpartition(".")[2] != "WhitespaceTokenizer":
        raise config.error(f"names the tokenizer {tokenizer!r}, which is not supported", "use another model")
    words = vocabulary.require("vocab", list)
    stop_words = vocabulary.field("stop_words", list, [])
    if not all(isinstance(word, str) for word in [*words, *stop_words]):
        raise vocabulary.error("lists words that are not strings")
    header = read_header(folder)
    weights = read_weights(header)
    table = weights.pop("emb_layer.weight", None)
    if table is None or table.ndim != 2 or len(table) != len(words):
        raise UnreadableError(header.path, f"contains no table of {len(words)} word vectors")
    warn_of_unused(header.path, weights)
    return WordEmbeddings(
        words,
        table.float(),
        vocabulary.field("do_lower_case", bool, False),
        stop_words,
        config.field("max_seq_length", int, None),
        config.field("update_embeddings", bool, False),
    )


def _write_words(module: WordEmbeddings, folder: Path, _: int) -> None:
    config = {
        "tokenizer_class": f"{THEIRS}models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer",
        "update_embeddings": module.embedding.weight.requires_grad,
        "max_seq_length": module.max_seq_length or 1_000_000,
    }
    stop_words = sorted(module.stop_words)
    vocabulary = {"vocab": module.words, "stop_words": stop_words, "do_lower_case": module.lower_case}
    write_json(folder / WORDS_CONFIG, config)
    write_json(folder / WORDS_VOCABULARY, vocabulary)
    write_weights({"emb_layer.weight": module.embedding.weight}, folder)


CODECS: dict[type[nn.Module], Codec] = {
    StaticEmbedding: Codec(_read_static, _write_static),
    WordEmbeddings: Codec(_read_words, _write_words),
}
