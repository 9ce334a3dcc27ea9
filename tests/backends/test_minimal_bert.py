"""A BERT is read without transformers: the same model in all that can be seen, and sooner there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sbert import SentenceEncoder, TokenBatch, Transformer
from sbert.backends import BertModel, PlainTokenizer
from sbert.backends import minimal_bert as light
from tests import small
from tests.backends.test_families import SHAPE

ROWS = [[3, 9, 4, 7], [5, 7, 6, 8, 20, 11], [2], [], list(range(3, 40))]


def bert(folder: Path, dtype: torch.dtype = torch.float32, **shape: Any) -> Path:
    """A plain folder of Hugging Face's."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=small.wordpiece().get_vocab_size(), **{**SHAPE, **shape})
    small.randomized(BertModel(config)).to(dtype).save_pretrained(folder)
    small.wrapped(small.wordpiece(), 64).save_pretrained(folder)
    return folder


def encoder(folder: Path, **options: Any) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu", **options)


def full(folder: Path, **options: Any) -> SentenceEncoder:
    """Loaded as it is where anything is out of the ordinary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbert.saving.codecs.transformer_codec.load_minimal_bert", lambda folder, dtype: None)
        model = encoder(folder, **options)
    assert not is_light(model)
    return model


def is_light(model: SentenceEncoder) -> bool:
    """Whether the objects of transformers have not been asked for yet."""
    lights = isinstance(model[0].network, BertModel), isinstance(model[0]._tokenizer, PlainTokenizer)
    assert len(set(lights)) == 1
    return lights[0]


@pytest.mark.slow  # What is imported shows in a process of its own alone.
def test_transformers_is_not_imported(tmp_path: Path) -> None:
    """By nothing that needs no more than the weights and the token ids; nor are the slow parts of torch."""
    encoder(bert(tmp_path / "model")).save(tmp_path / "saved")
    code = f"""
import copy, pickle, sys, torch
from sbert import SentenceEncoder
SentenceEncoder(device="cpu").encode("A cat sleeps.")
heavy = {{"transformers", "torch._dynamo", "huggingface_hub", "sympy"}} & set(sys.modules)
assert not heavy, heavy
model = SentenceEncoder({str(tmp_path / "saved")!r}, device="cpu").eval()
assert model.verify()
model.to(torch.bfloat16).encode("a small boat")
texts = ["a small boat", "", "the red fox runs over seven green hills before the long winter"]
vectors = model.to(torch.float32).encode(texts, normalize_embeddings=True, batch_size=2, prompt="lake ")
model.encode(texts[0], output_value="token_embeddings"), model.encode(texts, precision="ubinary")
model.max_seq_length = 20
model.similarity(vectors, vectors), str(model), model[0].special_tokens, model.state_dict(), model.share_memory()
for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
    assert abs(other.encode(texts) - model.encode(texts)).max() <= 1e-6
assert "transformers" not in sys.modules
"""
    slow = "ignore:this CPU has no bfloat16:UserWarning"  # Whatever this machine is.
    command = [sys.executable, "-W", "error", "-W", slow, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SHAPES: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {},
    torch.float16: {"num_attention_heads": 1, "num_hidden_layers": 3, "pad_token_id": 4},
    torch.bfloat16: {"num_attention_heads": 4, "hidden_act": "gelu_new", "type_vocab_size": 1, "layer_norm_eps": 1e-3},
}


@pytest.mark.parametrize("dtype", ["float32", "auto", "bfloat16"])
@pytest.mark.parametrize("stored", SHAPES, ids=str)
def test_vectors_and_all_that_can_be_seen(stored: torch.dtype, dtype: str, tmp_path: Path) -> None:
    bert(tmp_path, stored, **SHAPES[stored])
    ours, theirs = encoder(tmp_path, dtype=dtype), full(tmp_path, dtype=dtype)
    assert is_light(ours)
    assert ours.dtype == theirs.dtype
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(weight, ours.state_dict()[name]) for name, weight in theirs.state_dict().items())
    assert np.abs(ours.encode(small.TEXTS) - theirs.encode(small.TEXTS)).max() <= 1e-6
    for name in ("dim", "vocab_size", "max_seq_length", "special_tokens", "truncation_side", "training"):
        assert getattr(ours[0], name) == getattr(theirs[0], name), name
    assert repr(ours) == repr(theirs)
    assert is_light(ours)
    assert ours[0].padding_reason == theirs[0].padding_reason is None
    ours[0].materialize()
    assert torch.equal(hidden(ours[0]), hidden(theirs[0]))


def hidden(module: Transformer) -> Tensor:
    module.eval()
    with torch.no_grad():
        return module(TokenBatch.from_rows(ROWS)).values


def test_the_objects_of_transformers(tmp_path: Path) -> None:
    """Weights stay the same objects, and so do parts that have hooks or were replaced."""
    model, plain = encoder(bert(tmp_path)), full(tmp_path)
    before = model.encode(small.TEXTS)
    weights, part = dict(model.named_parameters()), model[0].network.encoder.layer[1].output.LayerNorm
    weights["0.auto_model.pooler.dense.bias"].requires_grad_(False)
    random = torch.random.get_rng_state()
    auto, tokenizer = model[0].auto_model, model.tokenizer
    assert torch.equal(random, torch.random.get_rng_state())
    assert not is_light(model)
    assert all(weight is weights[name] for name, weight in model.named_parameters())
    assert auto.encoder.layer[1].output.LayerNorm is part
    assert not auto.pooler.dense.bias.requires_grad
    assert np.array_equal(model.encode(small.TEXTS), before)
    expected = plain[0].auto_model
    assert auto.config.to_dict() == expected.config.to_dict()
    assert (auto.name_or_path, tokenizer.name_or_path) == (expected.name_or_path, plain.tokenizer.name_or_path)
    for (name, ours), (other, theirs) in zip(auto.named_modules(), expected.named_modules(), strict=True):
        assert (name, type(ours), ours.training, repr(ours)) == (other, type(theirs), theirs.training, repr(theirs))
    for ours, theirs in zip(auto.buffers(), expected.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    assert tokenizer.init_kwargs == plain.tokenizer.init_kwargs
    assert tokenizer.backend_tokenizer.to_str() == plain.tokenizer.backend_tokenizer.to_str()
    saved = []
    for model in (encoder(tmp_path), full(tmp_path)):  # Byte by byte the same is saved.
        folder = tmp_path / f"saved-{len(saved)}" / "model"
        model.save(folder)
        saved.append({str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert saved[0] == saved[1]


def test_when_the_folder_is_gone_or_another(tmp_path: Path) -> None:
    """Both objects are those of the folder as it was read."""
    expected = full(bert(tmp_path / "model"))
    gone, other = encoder(tmp_path / "model"), encoder(tmp_path / "model")
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "model", moved)
    for model in (gone, other):
        assert is_light(model)
        assert model.tokenizer.backend_tokenizer.to_str() == expected.tokenizer.backend_tokenizer.to_str()
        assert model[0].auto_model.config.to_dict() == expected[0].auto_model.config.to_dict()
        assert np.abs(model.encode(small.TEXTS) - expected.encode(small.TEXTS)).max() <= 1e-6
        bert(tmp_path / "model", num_hidden_layers=1)
        small.wrapped(small.byte_bpe(), 32).save_pretrained(tmp_path / "model")
    gone.save(tmp_path / "saved")
    assert bool(encoder(tmp_path / "saved").verify())


Edit = Callable[[Path], object]


def edited(name: str, **values: Any) -> Edit:
    """Other values in a JSON file; ... takes one away, and a dict changes values within another."""

    def edit(folder: Path) -> None:
        content = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else {}
        for key, value in values.items():
            merge = isinstance(value, dict) and isinstance(content.get(key), dict)
            content[key] = {**content[key], **value} if merge else value
        small.write(folder, {name: {key: value for key, value in content.items() if value is not ...}})

    return edit


def rewritten(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Edit:
    """Other weights."""

    def edit(folder: Path) -> None:
        weights = {name: weight.clone() for name, weight in change(load_file(folder / "model.safetensors")).items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return edit


CONFIG, TOKENS, STEPS = "config.json", "tokenizer_config.json", "tokenizer.json"
SBERT, MAP = "sentence_bert_config.json", "special_tokens_map.json"
BERTS = edited(TOKENS, tokenizer_class="BertTokenizer")


UNUSUAL: dict[str, list[Edit]] = {
    "decoder": [edited(CONFIG, is_decoder=True)],
    "relative positions": [edited(CONFIG, position_embedding_type="relative_key")],
    "an activation": [edited(CONFIG, hidden_act="mish")],
    "an unknown key": [edited(CONFIG, language="en")],
    "labels": [edited(CONFIG, id2label={"0": "no", "1": "yes"})],
    "no size": [edited(CONFIG, type_vocab_size=...)],
    "old names": [rewritten(lambda weights: {n.replace("Norm.weight", "Norm.gamma"): w for n, w in weights.items()})],
    "no pooler": [rewritten(lambda weights: {n: w for n, w in weights.items() if not n.startswith("pooler")})],
    "arguments": [edited(SBERT, model_args={"attn_implementation": "eager"})],
    "arguments for the tokenizer": [edited(SBERT, tokenizer_args={"truncation_side": "left"})],
    "cased by the configuration": [BERTS, edited(TOKENS, do_lower_case=False)],
    "a prefix": [BERTS, edited(STEPS, model={"continuing_subword_prefix": ""})],
    "short words": [BERTS, edited(STEPS, model={"max_input_chars_per_word": 5})],
    "no template": [edited(STEPS, post_processor=None)],
    "another unknown": [BERTS, edited(STEPS, model={"unk_token": "lake"})],
    "another class": [edited(TOKENS, tokenizer_class="ElectraTokenizer")],
    "a token more": [edited(TOKENS, additional_special_tokens=["<more>"])],
    "a first token that stands in the vocabulary": [BERTS, edited(TOKENS, cls_token="lake")],
    "added tokens": [edited("added_tokens.json", **{"<more>": 119})],
    "a chat": [lambda folder: (folder / "chat_template.jinja").write_text("{{ messages }}")],
}


@pytest.mark.filterwarnings("ignore:BertTokenizer of transformers reads:UserWarning")
@pytest.mark.parametrize("name", UNUSUAL)
def test_transformers_judges_what_is_unusual(name: str, tmp_path: Path) -> None:
    bert(tmp_path)
    assert light.load_minimal_bert(tmp_path, torch.float32) is not None
    small.write(tmp_path, {SBERT: {"max_seq_length": 24}})
    for edit in UNUSUAL[name]:
        edit(tmp_path)
    outcomes = []
    for load in (encoder, full):
        torch.manual_seed(0)
        try:
            model = load(tmp_path)
        except ValueError as error:
            outcomes.append(str(error))
        else:
            assert not is_light(model)
            outcomes.append(model.encode(small.TEXTS, on_truncate="ignore").tolist())
    assert outcomes[0] == outcomes[1]


PLAIN = {"content": "[CLS]", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
DECODER = {
    str(number): {**PLAIN, "content": token, "special": True}
    for number, token in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
}
USUAL: dict[str, list[Edit]] = {
    "as BERT's class saves it": [BERTS],
    "fast": [edited(TOKENS, tokenizer_class="BertTokenizerFast", do_lower_case=True, strip_accents=None)],
    "by no class": [edited(TOKENS, tokenizer_class=..., backend=...)],
    "by the configuration": [edited(TOKENS, tokenizer_class=...), edited(CONFIG, tokenizer_class="BertTokenizer")],
    "cased": [BERTS, edited(TOKENS, do_lower_case=False), edited(STEPS, normalizer={"lowercase": False})],
    "no configuration": [lambda folder: (folder / TOKENS).unlink()],
    "tokens by number": [BERTS, edited(TOKENS, added_tokens_decoder=DECODER, clean_up_tokenization_spaces=True)],
    "a map that is not read": [edited(TOKENS, added_tokens_decoder=DECODER), edited(MAP, cls_token="lake")],
    "cut by the file": [
        edited(STEPS, truncation={"direction": "Left", "max_length": 5, "strategy": "LongestFirst", "stride": 0})
    ],
    "a low limit": [edited(TOKENS, model_max_length=9)],
    "another padding token": [edited(TOKENS, pad_token="[MASK]")],
    "positions of old": [rewritten(lambda w: {**w, "embeddings.position_ids": torch.arange(64)[None]})],
    "notes": [BERTS, edited(TOKENS, full_tokenizer_file=None, model_input_names=["input_ids"], stride=0)],
    "lower case": [edited(SBERT, do_lower_case=True)],
}


@pytest.mark.parametrize("name", USUAL)
def test_tokenizers(name: str, tmp_path: Path) -> None:
    """Ids, limits and sides as transformers has them, in folders that many have."""
    bert(tmp_path)
    for edit in USUAL[name]:
        edit(tmp_path)
    ours, theirs = encoder(tmp_path), full(tmp_path)
    assert is_light(ours)
    for attribute in ("max_seq_length", "special_tokens", "truncation_side"):
        assert getattr(ours[0], attribute) == getattr(theirs[0], attribute), attribute
    assert ours[0]._tokenizer.pad_token_id == theirs.tokenizer.pad_token_id
    assert len(ours[0]._tokenizer) == len(theirs.tokenizer)
    texts = [*small.TEXTS, "[CLS] Café [MASK] NAÏVE", "[SEP]lake[PAD]", "文small장", "x" * 120, "\x00 a\ufffd\u200db"]
    assert ours[0].tokenize(texts) == theirs[0].tokenize(texts)
    vectors = [model.encode(texts, on_truncate="ignore") for model in (ours, theirs)]
    assert np.abs(vectors[0] - vectors[1]).max() <= 1e-6
    assert ours.tokenizer(texts).data == theirs.tokenizer(texts).data
