"""Folders as well-known models have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests import small
from tests.backends.test_families import build
from tests.small import modules, pooling, write

OLD = "sentence_transformers.models."
MIDDLE = "sentence_transformers.sentence_transformer.modules.{name}."
NEW = "sentence_transformers.base.modules.{name}."


def dense(folder: Path, width: int, out: int, **config: Any) -> None:
    """A Dense module's folder."""
    torch.manual_seed(width + out)
    weights = {"linear.weight": torch.randn(out, width) * 0.3}
    if config.get("bias", True):
        weights["linear.bias"] = torch.randn(out) * 0.1
    write(folder, {"config.json": {"in_features": width, "out_features": out, "bias": True, **config}})
    save_file(weights, folder / "model.safetensors")


def limits(length: int | None, lower: bool = False, **more: Any) -> dict[str, Any]:
    return {"max_seq_length": length, "do_lower_case": lower, **more}


def bert_layout(folder: Path, names: tuple[str, ...], pool: dict[str, Any], length: int = 24, **files: Any) -> Path:
    small.bert(folder)
    write(
        folder,
        {
            "modules.json": modules("Transformer", *names),
            "sentence_bert_config.json": limits(length),
            "1_Pooling/config.json": pool,
            **files,
        },
    )
    if "Normalize" in names:
        (folder / f"{names.index('Normalize') + 1}_Normalize").mkdir()
    return folder


def short_pooling(**flags: bool) -> dict[str, Any]:
    """Four keys, as models of 2020 have them."""
    keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {"word_embedding_dimension": 16, **{f"pooling_mode_{key}": flags.get(key, False) for key in keys}}


def nli_mean(folder: Path) -> Path:
    return bert_layout(folder, ("Pooling",), short_pooling(mean_tokens=True))


def minilm(folder: Path) -> Path:
    return bert_layout(folder, ("Pooling", "Normalize"), short_pooling(mean_tokens=True))


def mpnet(folder: Path) -> Path:
    return build("mpnet", folder)


def roberta(folder: Path) -> Path:
    return build("roberta", folder)


def multilingual(folder: Path) -> Path:
    build("xlm-roberta", folder)
    return write(folder, {"modules.json": modules("Transformer", "Pooling")})


def labse(folder: Path) -> Path:
    bert_layout(folder, ("Pooling", "Dense", "Normalize"), short_pooling(cls_token=True))
    dense(folder / "2_Dense", 16, 16, activation_function="torch.nn.modules.activation.Tanh")
    return folder


def labse_pickled(folder: Path) -> Path:
    """Its weights in the old format, tensors only."""
    labse(folder)

    torch.save(load_file(folder / "2_Dense/model.safetensors"), folder / "2_Dense/pytorch_model.bin")
    (folder / "2_Dense/model.safetensors").unlink()
    return folder


def bge(folder: Path) -> Path:
    return bert_layout(folder, ("Pooling", "Normalize"), pooling("cls_token"))


def e5(folder: Path) -> Path:
    """Its Normalize has no folder."""
    minilm(folder)
    (folder / "2_Normalize").rmdir()
    return folder


def gte_modernbert(folder: Path) -> Path:
    build("modernbert", folder)
    return write(folder, {"1_Pooling/config.json": pooling("cls_token")})


def embeddinggemma(folder: Path) -> Path:
    """Two Dense layers without bias or activation."""
    bert_layout(folder, ("Pooling", "Dense", "Dense", "Normalize"), pooling("mean_tokens"))
    plain = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    dense(folder / "2_Dense", 16, 48, **plain)
    dense(folder / "3_Dense", 48, 16, **plain)
    return folder


def qwen3(folder: Path) -> Path:
    build("qwen3", folder)
    prompts = {"query": "one two: ", "document": ""}
    settings = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    return write(folder, {"config_sentence_transformers.json": settings})


def default_prompt(folder: Path) -> Path:
    minilm(folder)
    settings = {"prompts": {"fox": "red fox "}, "default_prompt_name": "fox", "similarity_fn_name": "dot"}
    return write(folder, {"config_sentence_transformers.json": {**settings, "truncate_dim": 7}})


def middle_namespace(folder: Path) -> Path:
    minilm(folder)
    listed = modules("Transformer", namespace=NEW) + modules("Transformer", "Pooling", namespace=MIDDLE)[1:]
    return write(folder, {"modules.json": listed})


def new_namespace(folder: Path) -> Path:
    """The dialect of sentence-transformers 6."""
    minilm(folder)
    listed = modules("Transformer", "Pooling", "Normalize", namespace=NEW)
    listed[1]["type"] = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    task = {"transformer_task": "feature-extraction", "modality_config": text, "module_output_name": "token_embeddings"}
    pool = {"embedding_dimension": 16, "pooling_mode": ["mean", "max"], "include_prompt": True}
    return write(folder, {"modules.json": listed, "sentence_bert_config.json": task, "1_Pooling/config.json": pool})


def pooling_mode_wins(folder: Path) -> Path:
    """A string, beside a boolean that says otherwise."""
    minilm(folder)
    return write(folder, {"1_Pooling/config.json": {**pooling("mean_tokens"), "pooling_mode": "cls"}})


def odd_order(folder: Path) -> Path:
    """An order that the old keys cannot say."""
    minilm(folder)
    config = {"embedding_dimension": 16, "pooling_mode": ["mean_sqrt_len_tokens", "lasttoken", "cls"]}
    return write(folder, {"1_Pooling/config.json": config})


def no_pooling_key(folder: Path) -> Path:
    minilm(folder)
    return write(folder, {"1_Pooling/config.json": {"word_embedding_dimension": 16}})


def layer_norm(folder: Path) -> Path:
    bert_layout(folder, ("Pooling", "LayerNorm", "Dropout"), pooling("mean_tokens"))
    write(folder, {"2_LayerNorm/config.json": {"dimension": 16}, "3_Dropout/config.json": {"dropout": 0.4}})
    save_file({"norm.weight": torch.rand(16), "norm.bias": torch.rand(16)}, folder / "2_LayerNorm/model.safetensors")
    return folder


def lower_case(folder: Path) -> Path:
    build("roberta", folder)
    return write(folder, {"sentence_bert_config.json": limits(24, lower=True)})


def baked(folder: Path) -> Path:
    """A tokenizer whose file truncates at 5 and pads to 9, as all-MiniLM-L6-v2's does at 128."""
    minilm(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    pad = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    tokenizer["padding"] = {"strategy": {"Fixed": 9}, **pad}
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def plain(folder: Path) -> Path:
    """A Hugging Face model and no more."""
    return small.bert(folder)


def arguments(folder: Path) -> Path:
    """Arguments for transformers, under the old names."""
    minilm(folder)
    more = {"model_args": {"attn_implementation": "eager"}, "tokenizer_args": {"trust_remote_code": True}}
    more["config_args"] = {"trust_remote_code": True}
    return write(folder, {"sentence_bert_config.json": limits(24, **more)})


def static_table() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(small.wordpiece().get_vocab_size(), 12)


def static(folder: Path, path: str = "") -> Path:
    where = folder / path
    where.mkdir(parents=True, exist_ok=True)
    small.wordpiece().save(str(where / "tokenizer.json"))
    save_file({"embedding.weight": static_table()}, where / "model.safetensors")
    entry = {"idx": 0, "name": "0", "path": path, "type": OLD + "StaticEmbedding"}
    return write(folder, {"modules.json": [entry]})


def static_in_folder(folder: Path) -> Path:
    return static(folder, "0_StaticEmbedding")


def model2vec(folder: Path) -> Path:
    """Few vectors, a mapping from tokens to them, and a weight a token."""
    static(folder)
    table = static_table()
    mapping = torch.arange(len(table)) % 40
    weights = torch.linspace(0.5, 1.5, len(table), dtype=torch.float64)
    save_file({"embeddings": table[:40].half(), "mapping": mapping, "weights": weights}, folder / "model.safetensors")
    return folder


def word_vectors(folder: Path, *more: str) -> Path:
    words = sorted({word for text in small.CORPUS for word in text.lower().split()})
    torch.manual_seed(0)
    tokenizer = "sentence_transformers.models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer"
    write(
        folder,
        {
            "modules.json": [
                {"idx": i, "name": str(i), "path": f"{i}_{name}", "type": OLD + name}
                for i, name in enumerate(["WordEmbeddings", *more, "Pooling"])
            ],
            "0_WordEmbeddings/wordembedding_config.json": {
                "tokenizer_class": tokenizer,
                "update_embeddings": False,
                "max_seq_length": 1000,
            },
            "0_WordEmbeddings/whitespacetokenizer_config.json": {
                "vocab": ["PADDING_TOKEN", *words],
                "stop_words": ["the", "a"],
                "do_lower_case": False,
            },
            f"{len(more) + 1}_Pooling/config.json": pooling("mean_tokens", dim=8 if more else 6),
        },
    )
    save_file({"emb_layer.weight": torch.randn(len(words) + 1, 6)}, folder / "0_WordEmbeddings/model.safetensors")
    return folder


def bilstm(folder: Path) -> Path:
    word_vectors(folder, "LSTM")
    config = {"word_embedding_dimension": 6, "hidden_dim": 4, "num_layers": 1, "dropout": 0, "bidirectional": True}
    write(folder, {"1_LSTM/lstm_config.json": config})
    torch.manual_seed(1)
    layers = torch.nn.LSTM(6, 4, bidirectional=True)
    save_file({f"encoder.{name}": p.data for name, p in layers.named_parameters()}, folder / "1_LSTM/model.safetensors")
    return folder


LAYOUTS = [
    nli_mean,
    minilm,
    mpnet,
    roberta,
    multilingual,
    labse,
    labse_pickled,
    bge,
    e5,
    gte_modernbert,
    embeddinggemma,
    qwen3,
    default_prompt,
    middle_namespace,
    new_namespace,
    pooling_mode_wins,
    odd_order,
    no_pooling_key,
    layer_norm,
    lower_case,
    baked,
    plain,
    arguments,
    static,
    static_in_folder,
    model2vec,
    word_vectors,
    bilstm,
]
