"""Folders as well-known models have them, and at the edges: other tokenizers, older files, few keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests import small
from tests.backends.test_families import build, ours
from tests.small import modules, pooling, write

OLD = "sentence_transformers.models."
MIDDLE = "sentence_transformers.sentence_transformer.modules.{name}."
NEW = "sentence_transformers.base.modules.{name}."
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
Layout = Callable[[Path], Path]


def change(path: Path, **values: Any) -> Path:
    """Set keys of a JSON file; the folder of the file."""
    return write(path.parent, {path.name: {**json.loads(path.read_text(encoding="utf-8")), **values}})


def as_its_class_writes_it(family: str, kind: str, folder: Path) -> Path:
    """A folder of a family whose tokenizer.json has the steps that transformers builds for a class."""
    from transformers import AutoTokenizer

    change(build(family, folder) / "tokenizer_config.json", tokenizer_class=kind)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    return folder


def replace_files(layout: Layout, **files: Any) -> Layout:
    """A layout with other files, by their names without an ending, and _ for /."""
    return lambda folder: write(layout(folder), {_FILES[name]: value for name, value in files.items()})


_FILES = {
    "settings": "config_sentence_transformers.json",
    "transformer": "sentence_bert_config.json",
    "pooling": "1_Pooling/config.json",
    "dense": "2_Dense/config.json",
    "modules": "modules.json",
}


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


def bert_layout(folder: Path, names: tuple[str, ...], pool: dict[str, Any], length: int = 24) -> Path:
    small.bert(folder)
    files = {"sentence_bert_config.json": limits(length), "1_Pooling/config.json": pool}
    write(folder, {"modules.json": modules("Transformer", *names), **files})
    if "Normalize" in names:
        (folder / f"{names.index('Normalize') + 1}_Normalize").mkdir()
    return folder


def short_pooling(**flags: bool) -> dict[str, Any]:
    """Four keys, as models of 2020 have them."""
    keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {"word_embedding_dimension": 16, **{f"pooling_mode_{key}": flags.get(key, False) for key in keys}}


def layout(*names: str, length: int = 24, **pool: Any) -> Layout:
    return lambda folder: bert_layout(folder, names, pool, length)


nli_mean = layout("Pooling", **short_pooling(mean_tokens=True))
minilm = layout("Pooling", "Normalize", **short_pooling(mean_tokens=True))


def labse(folder: Path) -> Path:
    bert_layout(folder, ("Pooling", "Dense", "Normalize"), short_pooling(cls_token=True))
    dense(folder / "2_Dense", 16, 16, activation_function=TANH)
    return folder


def renamed_settings(folder: Path, name: str) -> Path:
    """As older versions named them, by the kind of transformer."""
    (minilm(folder) / "sentence_bert_config.json").rename(folder / f"sentence_{name}_config.json")
    return folder


def e5(folder: Path) -> Path:
    """Its Normalize has no folder."""
    minilm(folder)
    (folder / "2_Normalize").rmdir()
    return folder


def new_namespace(folder: Path) -> Path:
    """The dialect of sentence-transformers 6."""
    listed = modules("Transformer", "Pooling", "Normalize", namespace=NEW)
    listed[1]["type"] = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    task = {"transformer_task": "feature-extraction", "modality_config": text, "module_output_name": "token_embeddings"}
    pool = {"embedding_dimension": 16, "pooling_mode": ["mean", "max"], "include_prompt": True}
    return replace_files(minilm, modules=listed, transformer=task, pooling=pool)(folder)


def layer_norm(folder: Path) -> Path:
    bert_layout(folder, ("Pooling", "LayerNorm", "Dropout"), pooling("mean_tokens"))
    write(folder, {"2_LayerNorm/config.json": {"dimension": 16}, "3_Dropout/config.json": {"dropout": 0.4}})
    save_file({"norm.weight": torch.rand(16), "norm.bias": torch.rand(16)}, folder / "2_LayerNorm/model.safetensors")
    return folder


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
    names, where = ["WordEmbeddings", *more, "Pooling"], "0_WordEmbeddings"
    config = {"tokenizer_class": tokenizer, "update_embeddings": False, "max_seq_length": 1000}
    vocabulary = {"vocab": ["PADDING_TOKEN", *words], "stop_words": ["the", "a"], "do_lower_case": False}
    listed = [{"idx": i, "name": str(i), "path": f"{i}_{name}", "type": OLD + name} for i, name in enumerate(names)]
    pool = pooling("mean_tokens", dim=8 if more else 6)
    write(folder, {"modules.json": listed, f"{len(more) + 1}_Pooling/config.json": pool})
    write(folder / where, {"wordembedding_config.json": config, "whitespacetokenizer_config.json": vocabulary})
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


def vocabulary_file(folder: Path) -> Path:
    """As the models of 2019: no tokenizer.json."""
    minilm(folder)
    vocabulary = small.wordpiece().get_vocab()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", "utf-8")
    return write(folder, {"tokenizer_config.json": {"do_lower_case": True, "model_max_length": 64}})


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
    blobs, snapshot = minilm(folder.with_name("blobs")), folder.with_name("snapshot")
    for path in [path for path in blobs.rglob("*") if path.is_file()]:
        link = snapshot / path.relative_to(blobs)
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
    dense(folder / "2_Dense", 16, 12, bias=False, activation_function=IDENTITY)
    return write(folder, {"modules.json": modules("Transformer", "Pooling", "Dense", "Normalize")})


def residual(folder: Path, out: int) -> Path:
    labse(folder)
    dense(folder / "2_Dense", 16, out, use_residual=True, activation_function=TANH)
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


PROMPTS = {"prompts": {"fox": "red fox "}, "default_prompt_name": "fox", "similarity_fn_name": "dot", "truncate_dim": 7}
default_prompt = replace_files(minilm, settings=PROMPTS)
# Under the old names.
OLD_ARGUMENTS = {
    "model_args": {"attn_implementation": "eager"},
    "tokenizer_args": {"trust_remote_code": True},
    "config_args": {"trust_remote_code": True},
}
IN_THE_MIDDLE = modules("Transformer", namespace=NEW) + modules("Transformer", "Pooling", namespace=MIDDLE)[1:]
ODD_ORDER = ["mean_sqrt_len_tokens", "lasttoken", "cls"]  # The old keys cannot say it.
NAMED = {"bert": "BertTokenizer", "xlm-roberta": "XLMRobertaTokenizerFast", "qwen3": "Qwen2Tokenizer"}
LAYOUTS: dict[str, Layout] = {
    **{make.__name__: make for make in (labse, e5, new_namespace, layer_norm, baked)},
    **{make.__name__: make for make in (static, model2vec, word_vectors, bilstm, vocabulary_file)},
    **{make.__name__: make for make in (python_tokenizer, transformer_folder, links, shards, sentence_t5)},
    **{family: partial(build, family) for family in ("camembert", "mistral", "gemma3", "gemma3-both-ways")},
    "nli_mean": nli_mean,
    "default_prompt": default_prompt,
    "middle_namespace": replace_files(minilm, modules=IN_THE_MIDDLE),
    "a string beside a boolean": replace_files(minilm, pooling={**pooling("mean_tokens"), "pooling_mode": "cls"}),
    "odd_order": replace_files(minilm, pooling={"embedding_dimension": 16, "pooling_mode": ODD_ORDER}),
    "no_pooling_key": replace_files(minilm, pooling={"word_embedding_dimension": 16}),
    "lower_case": replace_files(partial(build, "roberta"), transformer=limits(24, lower=True)),
    "plain": small.bert,
    **{f"settings of {name}": partial(renamed_settings, name=name) for name in ("roberta", "xlnet")},
    "arguments": replace_files(minilm, transformer=limits(24, **OLD_ARGUMENTS)),
    "static_in_folder": partial(static, path="0_StaticEmbedding"),
    "short dense": replace_files(labse, dense={"in_features": 16, "out_features": 16}),
    "residual": partial(residual, out=16),
    "residual of another dimension": partial(residual, out=8),
    "cls flag": layout("Pooling", word_embedding_dimension=16, pooling_mode_cls_token=True),
    "pooling modes win": layout("Pooling", embedding_dimension=16, pooling_mode=["max"], pooling_mode_cls_token=True),
    "decoder": partial(decoder, architectures=["Qwen3ForCausalLM"]),
    "decoder in both directions": partial(decoder, architectures=["Qwen3ForCausalLM"], is_causal=False),
    "truncated on the left": replace_files(minilm, transformer=limits(12, tokenizer_args={"truncation_side": "left"})),
    "limit of the tokenizer": replace_files(minilm, transformer=limits(None, processor_kwargs={"model_max_length": 9})),
    **{name: partial(as_its_class_writes_it, family, name) for family, name in NAMED.items()},
}
