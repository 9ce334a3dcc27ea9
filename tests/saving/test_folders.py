"""Folders at the edges: other families and tokenizers, older file names, strange strings, files that must not run."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from sbert.modules.dense import ACTIVATIONS
from tests import small
from tests.backends.test_families import FAMILIES, QWEN, ROBERTA, SHAPE, T5, build, difference, ours, theirs
from tests.saving.test_layouts import (
    OLD,
    Marks,
    baked,
    bert_layout,
    bilstm,
    dense,
    labse,
    limits,
    minilm,
    refused,
    static,
)
from tests.saving.test_layouts import word_vectors as words
from tests.small import modules, pooling, write

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:transformers", "ignore:not every program reads this model:UserWarning"
)
STRANGE = [
    " lake ",
    "\tlake\n",
    "[SEP] lake [MASK]",
    "</s> lake <s> boat <pad>",
    "ΟΔΥΣΣΕΥΣ İstanbul ẞ",
    "a\u0000b",
    "e\u0301 é ﬁ",
    "😀 lake 👩‍👩‍👧",
    "lake " * 30,
    "a" * 400,
    "\u200b",
    "lake\u00a0boat…",
    "\ufffd",
]


def gap(first: Any, second: Any, texts: list[str], **options: Any) -> float:
    """Greatest difference of one number between our vectors and the peer's, which must not all be alike."""
    mine, others = first.encode(texts, on_truncate="ignore", **options), second.encode(texts, **options)
    assert mine.shape == others.shape
    assert np.isfinite(mine).all()
    assert np.abs(mine - mine[:1]).max() > 1e-2
    return float(np.abs(mine - others).max())


def check_directions(folder: Path) -> None:
    """Equal vectors of the folder, of what we write of it, and of what the peer writes of it."""
    model, peer = ours(folder), theirs(folder)
    gaps = {"read": difference(model, peer)}
    mine, others = folder.with_name("ours"), folder.with_name("theirs")
    model.save(mine)
    gaps["written"] = difference(model, theirs(mine))
    gaps["again"] = difference(model, ours(mine))
    peer.save(str(others))
    gaps["newest dialect"] = difference(ours(others), peer)
    print({name: f"{value:.1e}" for name, value in gaps.items()})
    assert max(gaps.values()) <= 1e-5


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    write(path.parent, {path.name: {**json.loads(path.read_text(encoding="utf-8")), **values}})


# --------------------------------------------------------------------------------- families and tokenizers


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


@pytest.mark.parametrize("family", MORE)
def test_more_families(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, family, MORE[family])
    check_directions(build(family, tmp_path / "given"))


@pytest.mark.parametrize("family", FAMILIES)
def test_limit_where_none_is_given(family: str, tmp_path: Path) -> None:
    """The peer's, except that RoBERTa's kin lose padding_idx + 1 positions, on which the peer's model fails."""
    folder = build(family, tmp_path / "given", limit=None)
    model, peer = ours(folder), theirs(folder)
    lost = 2 if family in ("roberta", "xlm-roberta", "mpnet") else 0
    assert model.max_seq_length == peer.max_seq_length - lost
    long = ["lake boat " * 100, "boat " * 59, "lake"]
    if lost:
        with pytest.raises((IndexError, RuntimeError), match=r"index.* out of "):
            peer.encode(long)
        peer.max_seq_length = model.max_seq_length
    assert gap(model, peer, long) <= 1e-5


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("bert", "BertTokenizer"),
        ("bert", "BertTokenizerFast"),
        ("roberta", "RobertaTokenizer"),
        ("xlm-roberta", "XLMRobertaTokenizerFast"),
        ("t5-whole", "T5TokenizerFast"),
        ("deberta-v3", "DebertaV2Tokenizer"),
        ("albert", "AlbertTokenizer"),
        ("qwen3", "Qwen2Tokenizer"),
    ],
)
def test_named_tokenizers(family: str, name: str, tmp_path: Path) -> None:
    """The class that the family's own folders name, which may build its parts anew."""
    folder = build(family, tmp_path / "given")
    change(folder / "tokenizer_config.json", tokenizer_class=name)
    check_directions(folder)


def test_vocabulary_without_tokenizer_file(tmp_path: Path) -> None:
    """As the models of 2019."""
    folder = minilm(tmp_path / "given")
    vocabulary = small.wordpiece().get_vocab()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", "utf-8")
    write(folder, {"tokenizer_config.json": {"do_lower_case": True, "model_max_length": 64}})
    check_directions(folder)


def test_merges_without_tokenizer_file(tmp_path: Path) -> None:
    folder = build("roberta", tmp_path / "given")
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "tokenizer.json").unlink()
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    write(folder, {"vocab.json": model["vocab"], "tokenizer_config.json": {"model_max_length": 64}})
    check_directions(folder)


def byt5(folder: Path, **more: Any) -> Path:
    """A tokenizer written in Python."""
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    config = T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=384)
    small.randomized(T5EncoderModel(config)).save_pretrained(folder)
    ByT5Tokenizer(model_max_length=64).save_pretrained(folder)
    files = {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": pooling("mean_tokens")}
    return write(folder, {**files, "sentence_bert_config.json": limits(24, **more)})


def test_tokenizer_in_python(tmp_path: Path) -> None:
    folder = byt5(tmp_path / "given")
    assert not ours(folder).tokenizer.is_fast
    check_directions(folder)


def test_lower_case_of_a_tokenizer_in_python(tmp_path: Path) -> None:
    """The peer of version 6 passes over the setting, with which versions 2 to 5 lowered the text."""
    model = ours(byt5(tmp_path / "given", lower=True))
    peer = theirs(byt5(tmp_path / "plain"))
    texts = ["LAKE", "A Small BOAT"]
    assert np.abs(model.encode(texts) - peer.encode([text.lower() for text in texts])).max() <= 1e-5
    assert np.abs(model.encode(texts) - peer.encode(texts)).max() > 1e-2


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "t5-encoder", "qwen3"])
def test_strange_strings(family: str, lower: bool, tmp_path: Path) -> None:
    folder = write(build(family, tmp_path / "given"), {"sentence_bert_config.json": limits(24, lower=lower)})
    model = ours(folder)
    assert gap(model, theirs(folder), STRANGE) <= 1e-5
    model.save(tmp_path / "saved")
    assert gap(model, theirs(tmp_path / "saved"), STRANGE) <= 1e-5


# ------------------------------------------------------------------------------------- names and arguments


def test_transformer_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """As the first folders had it; ``idx`` counts for nothing, and neither do the names of arguments."""
    folder = minilm(tmp_path / "given")
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        path.rename(folder / "0_Transformer" / path.name)
    listed = modules("Transformer", "Pooling", "Normalize")
    listed[0].update(path="0_Transformer", idx=2, kwargs=["task"])
    check_directions(write(folder, {"modules.json": listed}))


@pytest.mark.parametrize("name", ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"])
def test_older_names_of_the_settings(name: str, tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    (folder / "sentence_bert_config.json").rename(folder / f"sentence_{name}_config.json")
    model = ours(folder)
    assert model.max_seq_length == 24
    assert difference(model, theirs(folder)) <= 1e-5


@pytest.mark.filterwarnings("ignore:.* contains weights that the model does not use:UserWarning")
def test_arguments_for_transformers(tmp_path: Path) -> None:
    """Under the older and the newer names: a side to cut, a limit, and fewer layers."""
    folder = minilm(tmp_path / "given")
    whole = ours(folder)
    write(folder, {"sentence_bert_config.json": limits(12, tokenizer_args={"truncation_side": "left"})})
    left = ours(folder)
    assert difference(left, theirs(folder)) <= 1e-5
    assert difference(left, whole) > 1e-2
    write(folder, {"sentence_bert_config.json": limits(None, processor_kwargs={"model_max_length": 9})})
    assert ours(folder).max_seq_length == 9
    assert difference(ours(folder), theirs(folder)) <= 1e-5
    write(folder, {"sentence_bert_config.json": limits(24, config_args={"num_hidden_layers": 1})})
    assert difference(ours(folder), whole) > 1e-2
    check_directions(folder)


@pytest.mark.parametrize(
    ("keys", "mode"),
    [
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}, "mean"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": ["max"], "pooling_mode_cls_token": True}, "max"),
    ],
)
def test_missing_pooling_keys(keys: dict[str, Any], mode: str, tmp_path: Path) -> None:
    folder = bert_layout(tmp_path / "given", ("Pooling",), {"word_embedding_dimension": 16, **keys})
    assert ours(folder)[1].modes == (mode,)
    check_directions(folder)


def test_links_as_the_hub_cache_has_them(tmp_path: Path) -> None:
    """Each file is a link out of the folder, and the folder is reached by a link."""
    given = minilm(tmp_path / "given")
    for path in [path for path in given.rglob("*") if path.is_file()]:
        link = tmp_path / "snapshot" / path.relative_to(given)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    (tmp_path / "name").symlink_to(tmp_path / "snapshot", target_is_directory=True)
    assert difference(ours(tmp_path / "name"), theirs(given)) <= 1e-5


@pytest.mark.parametrize("form", ["shards", "pickle"])
def test_weights_in_other_files(form: str, tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    model = ours(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if form == "shards":
        model[0].auto_model.save_pretrained(folder, max_shard_size="10KB")
        assert len(list(folder.glob("*.safetensors"))) > 1
    else:
        torch.save(weights, folder / "pytorch_model.bin")
    assert difference(ours(folder), model) == 0
    assert difference(ours(folder), theirs(folder)) <= 1e-5


# ----------------------------------------------------------------------------------------- modules at edges


def test_sentence_t5(tmp_path: Path) -> None:
    """A whole T5, a Dense without bias or activation, and Normalize."""
    folder = build("t5-whole", tmp_path / "given")
    dense(folder / "2_Dense", 16, 12, bias=False, activation_function="torch.nn.modules.linear.Identity")
    write(folder, {"modules.json": modules("Transformer", "Pooling", "Dense", "Normalize")})
    check_directions(folder)


def test_every_activation_of_dense(tmp_path: Path) -> None:
    folder = labse(tmp_path / "given")
    seen = []
    for name in ACTIVATIONS:
        kind = getattr(torch.nn, name)
        change(folder / "2_Dense/config.json", activation_function=f"{kind.__module__}.{name}")
        model = ours(folder)
        assert gap(model, theirs(folder), ["lake", "a small boat"]) <= 1e-5, name
        model.save(tmp_path / "saved")
        written = json.loads((tmp_path / "saved/2_Dense/config.json").read_text(encoding="utf-8"))
        assert written == json.loads((folder / "2_Dense/config.json").read_text(encoding="utf-8"))
        seen.append(model.encode("lake"))
    assert len(np.unique(np.round(seen, 5), axis=0)) >= len(ACTIVATIONS) - 2


def test_dense_without_its_optional_keys(tmp_path: Path) -> None:
    folder = write(labse(tmp_path / "given"), {"2_Dense/config.json": {"in_features": 16, "out_features": 16}})
    assert ours(folder)[2].activation == "Tanh"
    check_directions(folder)


@pytest.mark.parametrize("out", [16, 8])
def test_residual_dense(out: int, tmp_path: Path) -> None:
    folder = labse(tmp_path / "given")
    tanh = "torch.nn.modules.activation.Tanh"
    dense(folder / "2_Dense", 16, out, use_residual=True, activation_function=tanh)
    if out != 16:
        weights = load_file(folder / "2_Dense/model.safetensors")
        save_file({**weights, "residual.weight": torch.randn(out, 16)}, folder / "2_Dense/model.safetensors")
    check_directions(folder)


def test_static_embedding_with_a_baked_limit(tmp_path: Path) -> None:
    """Static models have no limit; the peer heeds the file's, so what we write has none."""
    folder = static(tmp_path / "given")
    plain = ours(folder)
    path = folder / "tokenizer.json"
    baked = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    change(path, truncation=baked)
    model = ours(folder)
    assert difference(model, plain) == 0
    model.save(tmp_path / "saved")
    assert difference(model, theirs(tmp_path / "saved")) <= 1e-5
    assert model.tokenizer.truncation is not None, "saving changed the tokenizer of the model"


def test_words_with_a_limit_in_lower_case(tmp_path: Path) -> None:
    folder = words(tmp_path / "given")
    change(folder / "0_WordEmbeddings/wordembedding_config.json", max_seq_length=3)
    model = ours(folder)
    assert model.max_seq_length == 3
    check_directions(folder)
    change(folder / "0_WordEmbeddings/whitespacetokenizer_config.json", do_lower_case=True, stop_words=["lake"])
    assert gap(ours(folder), theirs(folder), [*small.TEXTS, *STRANGE]) <= 1e-5
    assert np.abs(ours(folder).encode("LAKE")).max() == 0


@pytest.mark.parametrize(
    "mode", ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
)
@pytest.mark.parametrize("family", ["qwen3", "t5-encoder", "roberta"])
def test_prompt_left_out(family: str, mode: str, tmp_path: Path) -> None:
    """Padding on either side, special tokens before, behind or on both sides."""
    folder = write(build(family, tmp_path / "given"), {"1_Pooling/config.json": pooling(mode, include_prompt=False)})
    texts = ["a small boat", "the red fox runs over seven green hills", "lake", ""]
    model, peer = ours(folder), theirs(folder)
    assert gap(model, peer, texts, prompt="one two: ") <= 1e-5
    model.save(tmp_path / "saved")
    assert gap(model, theirs(tmp_path / "saved"), texts, prompt="one two: ") <= 1e-5


def test_prompt_that_fills_the_limit(tmp_path: Path) -> None:
    """The trailing special token is what remains to be pooled."""
    folder = bert_layout(tmp_path / "given", ("Pooling",), pooling("mean_tokens", include_prompt=False))
    model, peer, prompt = ours(folder), theirs(folder), "one two three four " * 20
    vectors = model.encode(["lake", "boat"], prompt=prompt, on_truncate="ignore")
    assert np.abs(vectors).max() > 0.1
    assert np.abs(vectors - peer.encode(["lake", "boat"], prompt=prompt)).max() <= 1e-5


def plain_decoder(folder: Path, **config: Any) -> Path:
    from shutil import rmtree

    build("qwen3", folder)
    for name in ("modules.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    rmtree(folder / "1_Pooling")
    (folder / "2_Normalize").rmdir()
    change(folder / "config.json", **config)
    return folder


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["Qwen3ForCausalLM"]},
        {"architectures": ["Qwen3ForCausalLM"], "is_causal": False},
        {"architectures": ["Qwen3Model"]},
        {"architectures": None},
    ],
    ids=["decoder", "bidirectional", "body", "unknown"],
)
def test_plain_decoder_as_the_peer_reads_it(config: dict[str, Any], tmp_path: Path) -> None:
    check_directions(plain_decoder(tmp_path / "given", **config))


# ------------------------------------------------------------------------------------- what we write exactly


def test_exact_contents_of_modules(tmp_path: Path) -> None:
    ours(labse(tmp_path / "given")).save(tmp_path / "saved")

    def read(name: str) -> Any:
        return json.loads((tmp_path / "saved" / name).read_text(encoding="utf-8"))

    names = ["Transformer", "Pooling", "Dense", "Normalize"]
    assert read("modules.json") == [
        {"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{name}", "type": OLD + name}
        for i, name in enumerate(names)
    ]
    assert read("2_Dense/config.json") == {
        "in_features": 16,
        "out_features": 16,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    assert set(load_file(tmp_path / "saved/2_Dense/model.safetensors")) == {"linear.weight", "linear.bias"}
    assert (tmp_path / "saved/3_Normalize").is_dir()
    assert read("config_sentence_transformers.json") == {
        "__version__": {"sentence_transformers": "2.3.0"},
        "model_type": "SentenceTransformer",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    tokenizer = read("tokenizer.json")
    assert tokenizer["truncation"] is None
    assert tokenizer["padding"] is None
    assert read("tokenizer_config.json")["model_max_length"] == 24


def test_baked_settings_are_not_written(tmp_path: Path) -> None:
    """Servers that read tokenizer.json and nothing else would cut texts there."""
    folder = baked(tmp_path / "given")
    ours(folder).save(tmp_path / "saved")
    for path, bare in ((folder, False), (tmp_path / "saved", True)):
        tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
        assert (tokenizer["truncation"] is None) == (tokenizer["padding"] is None) == bare


def test_exact_contents_of_a_static_model(tmp_path: Path) -> None:
    ours(static(tmp_path / "given")).save(tmp_path / "saved")
    (entry,) = json.loads((tmp_path / "saved/modules.json").read_text(encoding="utf-8"))
    assert entry == {"idx": 0, "name": "0", "path": "0_StaticEmbedding", "type": OLD + "StaticEmbedding"}
    assert set(load_file(tmp_path / "saved/0_StaticEmbedding/model.safetensors")) == {"embedding.weight"}


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", ["trap.Pooling", "trap", "sentence_transformersx.trap.Pooling", OLD + "trap"])
def test_no_name_from_a_file_is_imported(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name would be found, here and in the folder, and would leave a mark."""
    folder = minilm(tmp_path / "given")
    code = f"import os\nos.mkdir({str(tmp_path / 'marker')!r})\nclass Pooling: pass\n"
    for where in (folder, tmp_path):
        (where / "trap.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    listed = modules("Transformer", "Pooling")
    listed[1]["type"] = kind
    refused(write(folder, {"modules.json": listed}), "names the module type")
    assert "trap" not in sys.modules
    assert not (tmp_path / "marker").exists()


def test_a_known_name_is_looked_up_and_not_imported(tmp_path: Path) -> None:
    """What stands between prefix and class is not followed."""
    folder = minilm(tmp_path / "given")
    usual = ours(folder)
    listed = modules("Transformer", "Pooling", "Normalize")
    listed[1]["type"] = "sentence_transformers.no.such.place.Pooling"
    assert difference(ours(write(folder, {"modules.json": listed})), usual) == 0


@pytest.mark.parametrize("name", ["WeightedLayerPooling", "WordWeights", "Asym", "SpladePooling", "MLMTransformer"])
def test_modules_that_are_not_supported(name: str, tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    listed = modules("Transformer", "Pooling", name)
    refused(write(folder, {"modules.json": listed}), f"modules.json names the module type '{OLD}{name}'")


def test_chat_models_are_refused(tmp_path: Path) -> None:
    """The peer puts each text into the chat template of such a folder, so reading it plainly would be wrong."""
    folder = plain_decoder(tmp_path / "given", architectures=["Qwen3ForCausalLM"])
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    theirs(folder).save(str(tmp_path / "theirs"))
    refused(tmp_path / "theirs", "sentence_bert_config.json gives modality_config=.*'message'.*use a text model")


def test_adapters_of_no_model_are_refused(tmp_path: Path) -> None:
    """Without the adapter the vectors would be others."""
    folder = write(minilm(tmp_path / "given"), {"adapter_config.json": {"base_model_name_or_path": "../elsewhere"}})
    refused(folder, "adapter_config.json names the base model '../elsewhere', which depends on the working")
    change(folder / "adapter_config.json", base_model_name_or_path=str(tmp_path / "gone"))
    refused(folder, "adapter_config.json cannot be read as an adapter of an available model .*gone does not exist")
    change(folder / "adapter_config.json", base_model_name_or_path=7)
    refused(folder, "adapter_config.json gives base_model_name_or_path=7 where str is expected")


def test_phrases_are_refused(tmp_path: Path) -> None:
    folder = words(tmp_path / "given")
    name = "sentence_transformers.models.tokenizer.PhraseTokenizer.PhraseTokenizer"
    change(folder / "0_WordEmbeddings/wordembedding_config.json", tokenizer_class=name)
    refused(folder, f"wordembedding_config.json names the tokenizer '{name}', which is not supported")


@pytest.mark.parametrize("layout", ["static", "words", "lstm", "shard"])
def test_no_pickle_runs(layout: str, tmp_path: Path) -> None:
    folder = {"static": static, "words": words, "lstm": bilstm, "shard": minilm}[layout](tmp_path / "given")
    where = folder / {"static": "", "words": "0_WordEmbeddings", "lstm": "1_LSTM", "shard": ""}[layout]
    names = load_file(where / "model.safetensors")
    (where / "model.safetensors").unlink()
    path = where / ("one.bin" if layout == "shard" else "pytorch_model.bin")
    path.write_bytes(pickle.dumps(Marks(tmp_path / "marker")))
    if layout == "shard":
        index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, path.name)}
        write(folder, {"pytorch_model.bin.index.json": index})
    refused(folder, path.name)
    assert not (tmp_path / "marker").exists()


def test_files_beside_the_model_are_left_alone(tmp_path: Path) -> None:
    """Training state, and code that a configuration names although transformers knows the model without it."""
    folder = minilm(tmp_path / "given")
    expected = ours(folder)
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
        (folder / name).write_bytes(pickle.dumps(Marks(tmp_path / "marker")))
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'marker')!r})\n", encoding="utf-8")
    change(folder / "config.json", auto_map={"AutoConfig": "own.C", "AutoModel": "own.M"})
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.T", "own.T"]})
    assert difference(ours(folder), expected) == 0
    assert not (tmp_path / "marker").exists()


def test_shards_stay_in_the_folder(tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    (folder / "model.safetensors").rename(tmp_path / "model-1.safetensors")
    keys = load_file(tmp_path / "model-1.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(keys, "../model-1.safetensors")}
    refused(write(folder, {"model.safetensors.index.json": index}), "index.json names the path .* leaves the folder")
    (tmp_path / "model-1.safetensors").rename(folder / "model-1.safetensors")
    index["weight_map"] = dict.fromkeys(keys, "model-1.safetensors")
    assert len(ours(write(folder, {"model.safetensors.index.json": index}))) == 3
