"""Models whose folders on the hub name code of their own, as tiny random ones in their layout: transformers agrees.

Configurations have those keys of the real ones that change what is computed, and ``auto_map``; weights have the names
that the real files have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from sbert import SentenceEncoder
from tests import small
from tests.backends import test_families

pytestmark = [
    pytest.mark.slow,  # Each model is built, loaded, saved and loaded again, and transformers imports its classes.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning"),
]
ROBERTA = {**test_families.ROBERTA, "max_position_embeddings": 130}
NOMIC = {
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 32,
    "max_trained_positions": 64,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "qkv_proj_bias": False,
    "prenorm": False,
    "type_vocab_size": 2,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
}
GTE = {
    **ROBERTA,
    "rope_theta": 20000,
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
}
ALIBI = {"position_embedding_type": "alibi", "feed_forward_type": "geglu", "emb_pooler": "mean"}
MOE = {**NOMIC, "activation_function": "gelu", "qkv_proj_bias": True, "num_experts": 8, "moe_every_n_layers": 2}
ROTARY = {**ROBERTA, "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "lora_rank": 4}


def rename(weights: dict[str, Tensor], names: dict[str, str], **stacked: tuple[str, ...]) -> dict[str, Tensor]:
    """Weights with other names, after some of each layer were put into one matrix: as before transformers had them."""
    for name, parts in stacked.items():
        for first in [key for key in weights if f".{parts[0]}." in key]:
            stack = [weights.pop(first.replace(parts[0], part)) for part in parts]
            weights[first.replace(parts[0], name)] = torch.cat(stack)
    result = {}
    for key, weight in weights.items():
        for ours, theirs in names.items():
            key = re.sub(ours, theirs, key)
        result[key] = weight.contiguous()
    return result


QKV = ("q_proj", "k_proj", "v_proj")
NOMIC_NAMES = {
    r"self_attn\.o_proj": "attn.out_proj",
    "self_attn": "attn",
    "embeddings.LayerNorm": "emb_ln",
    "up_proj": "fc11",
    "gate_proj": "fc12",
    "down_proj": "fc2",
    "post_attention_layernorm": "norm1",
    "post_mlp_layernorm": "norm2",
    r"^layers": "encoder.layers",
}
GTE_NAMES = {
    "self_attn": "attention",
    "post_attention_layernorm": "attn_ln",
    "post_mlp_layernorm": "mlp_ln",
    r"^layers": "encoder.layer",
}


def nomic_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return rename(weights, NOMIC_NAMES, Wqkv=QKV)


def gte_names(weights: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    return rename(weights, {**GTE_NAMES, "^": prefix}, qkv_proj=QKV, up_gate_proj=("up_proj", "gate_proj"))


class Asked(NamedTuple):
    """A model: its type and configuration on the hub, and what transformers is to make of it."""

    kind: str
    config: dict[str, Any]
    tokenizer: Callable[[], Tokenizer]
    native: tuple[str, dict[str, Any]]
    names: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    pooling: str = "cls_token"


NOMIC_NATIVE = {**small.SHAPE, "rope_parameters": {"rope_type": "default", "rope_theta": 1e3}}
GTE_NATIVE = {**ROBERTA, "rope_parameters": {"rope_type": "default", "rope_theta": 2e4}}
WITHOUT_TYPES = {"type_vocab_size": 0}
# modernbert, qwen3, gemma3, xlm-roberta and BERT are in test_families.py and the contract of the backends.
ASKED = {
    "nomic-embed-text-v1.5": Asked(
        "nomic_bert", NOMIC, small.wordpiece, ("nomic_bert", NOMIC_NATIVE), nomic_names, "mean_tokens"
    ),
    "gte-base-en-v1.5": Asked(
        *("new", {**GTE, **WITHOUT_TYPES}, small.wordpiece, ("gte", {**GTE_NATIVE, **WITHOUT_TYPES})),
        names=partial(gte_names, prefix="new."),
    ),
    "snowflake-arctic-embed-m-v2.0": Asked("gte", GTE, small.unigram, ("gte", GTE_NATIVE), gte_names),
}
REFUSED = {
    "jina-embeddings-v2-base-en": ("bert", {**ROBERTA, **ALIBI}, "position_embedding_type='alibi'"),
    "jina-embeddings-v3": ("xlm-roberta", ROTARY, "position_embedding_type='rotary'"),
    "nomic-embed-text-v2-moe": ("nomic_bert", MOE, "activation_function='gelu'"),
    "nomic-embed-text-v1, scaled": ("nomic_bert", {**NOMIC, "rotary_scaling_factor": 2}, "rotary_scaling_factor=2"),
    "gte with another attention": ("new", {**GTE, "logn_attention_scale": True}, "logn_attention_scale=True"),
}


def build(name: str, folder: Path, **more: Any) -> tuple[torch.nn.Module, Path]:
    """The random model, by transformers alone, and its folder; ``more`` is of its ``config.json``."""
    from transformers import AutoConfig, AutoModel

    asked, tokenizer = ASKED[name], ASKED[name].tokenizer()
    small.wrapped(tokenizer, 128).save_pretrained(folder)
    kind, config = asked.native
    vocab = {"vocab_size": tokenizer.get_vocab_size()}
    model: Any = small.randomized(AutoModel.from_config(AutoConfig.for_model(kind, **config, **vocab)))
    save_file(asked.names(model.state_dict()), folder / "model.safetensors", {"format": "pt"})
    code = {"AutoConfig": f"{name}--configuration.Config", "AutoModel": f"{name}--modeling.Model"}
    small.write(
        folder,
        {
            "config.json": {"model_type": asked.kind, **asked.config, **vocab, **more, "auto_map": code},
            "modules.json": small.modules("Transformer", "Pooling", "Normalize"),
            "sentence_bert_config.json": {"max_seq_length": 120, "do_lower_case": False},
            "1_Pooling/config.json": small.pooling(asked.pooling, include_prompt=True),
            "config_sentence_transformers.json": {"prompts": {"query": "one "}, "default_prompt_name": None},
        },
    )
    (folder / "2_Normalize").mkdir()
    return model, folder


@torch.no_grad()
def expected(name: str, model: torch.nn.Module, texts: list[str]) -> np.ndarray:
    """Each text alone through the plain forward pass of transformers, then pooled by hand."""
    tokenizer, rows = small.wrapped(ASKED[name].tokenizer(), 128), []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]  # (tokens, dim)
        vector = states[0] if ASKED[name].pooling == "cls_token" else states.mean(0)
        rows.append(vector / vector.norm())
    return np.stack(rows)


TEXTS = [text for text in small.TEXTS if text.strip()] + ["one two three four five six seven eight nine " * 2]


@pytest.mark.parametrize("name", ASKED)
def test_same_vectors_as_transformers(name: str, tmp_path: Path) -> None:
    plain, folder = build(name, tmp_path / "hub")
    model = SentenceEncoder(folder, device="cpu")
    vectors = expected(name, plain, TEXTS)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-2
    assert np.abs(model.encode(TEXTS) - vectors).max() < 1e-5
    query = expected(name, plain, ["one lake"])[0]
    assert np.abs(model.encode_query("lake") - query).max() < 1e-5

    model.save(tmp_path / "saved")
    assert "auto_map" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    again = SentenceEncoder(tmp_path / "saved", device="cpu")
    assert np.abs(again.encode(TEXTS) - vectors).max() < 1e-5


def test_scaled_rotary_positions_of_gte(tmp_path: Path) -> None:
    """gte-large-en-v1.5 and gte-multilingual-base: NTK scaling by a fixed factor (https://kexue.fm/archives/9706)."""
    name, factor = "gte-base-en-v1.5", 8.0
    model, folder = build(name, tmp_path, rope_scaling={"type": "ntk", "factor": factor})
    exponents = torch.arange(0, 8, 2) / 8
    frequencies = (20000 * factor) ** -exponents / factor ** (2 / 8)
    model.rotary_emb.inv_freq.copy_(frequencies)
    vectors = SentenceEncoder(folder, device="cpu").encode(TEXTS)
    assert np.abs(vectors - expected(name, model, TEXTS)).max() < 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_other_computations_need_code_that_is_not_run(name: str, tmp_path: Path) -> None:
    kind, config, key = REFUSED[name]
    small.bert(tmp_path)
    code = {"AutoConfig": "configuration.Config", "AutoModel": "modeling.Model"}
    small.write(tmp_path, {"config.json": {"model_type": kind, **config, "vocab_size": 99, "auto_map": code}})
    with pytest.raises(ValueError, match=f"{key}, which needs code from its folder, and that is never run"):
        SentenceEncoder(tmp_path, device="cpu")
