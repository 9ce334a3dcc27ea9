"""Models that people ask for, as tiny random ones in the layout of their folders on the hub: plain transformers agrees.

Configurations have the keys of the real ones, also ``auto_map``, and weights the names that the real files have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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

pytestmark = [
    pytest.mark.slow,  # Each model is built, loaded, saved and loaded again, and transformers imports its classes.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning"),
]
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
BERT = {**SHAPE, "max_position_embeddings": 130}
ROBERTA = {**BERT, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
DECODER = {**SHAPE, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 1, "eos_token_id": 2}
GEMMA = {
    **DECODER,
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "use_bidirectional_attention": True,
    "query_pre_attn_scalar": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
}
MODERN = {**BERT, "pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "local_attention": 8}
NOMIC = {
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 32,
    "n_positions": 64,
    "max_trained_positions": 64,
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "qkv_proj_bias": False,
    "prenorm": False,
    "type_vocab_size": 2,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "use_flash_attn": True,
}
GTE = {
    **ROBERTA,
    "rope_theta": 20000,
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}
ALIBI = {"position_embedding_type": "alibi", "feed_forward_type": "geglu", "emb_pooler": "mean"}
MOE = {**NOMIC, "activation_function": "gelu", "qkv_proj_bias": True, "num_experts": 8, "moe_every_n_layers": 2}
ROTARY = {**ROBERTA, "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "lora_rank": 4}


def fused(weights: dict[str, Tensor], name: str, *parts: str) -> dict[str, Tensor]:
    """Weights with some of a layer in one matrix, as before transformers knew the model."""
    found = dict(weights)
    for first in [key for key in weights if f".{parts[0]}." in key]:
        stack = [found.pop(first.replace(parts[0], part)) for part in parts]
        found[first.replace(parts[0], name)] = torch.cat(stack)
    return found


def renamed(weights: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    found = {}
    for key, weight in weights.items():
        for ours, theirs in names.items():
            key = re.sub(ours, theirs, key)
        found[key] = weight
    return found


def nomic_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    attention = {r"self_attn\.o_proj": "attn.out_proj", "self_attn": "attn", "embeddings.LayerNorm": "emb_ln"}
    mlp = {"up_proj": "fc11", "gate_proj": "fc12", "down_proj": "fc2"}
    norms = {"post_attention_layernorm": "norm1", "post_mlp_layernorm": "norm2", r"^layers": "encoder.layers"}
    packed = fused(weights, "Wqkv", "q_proj", "k_proj", "v_proj")
    return renamed(packed, {**attention, **mlp, **norms})


def gte_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    packed = fused(fused(weights, "qkv_proj", "q_proj", "k_proj", "v_proj"), "up_gate_proj", "up_proj", "gate_proj")
    norms = {"post_attention_layernorm": "attn_ln", "post_mlp_layernorm": "mlp_ln", r"^layers": "encoder.layer"}
    return renamed(packed, {"self_attn": "attention", **norms, "^": "new."})


class Asked(NamedTuple):
    """A model: its type and configuration on the hub, and what transformers is to make of it."""

    kind: str
    config: dict[str, Any]
    tokenizer: Callable[[], Tokenizer]
    pooling: str = "mean_tokens"
    native: tuple[str, dict[str, Any]] | None = None
    names: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
    remote: bool = False
    modules: tuple[str, ...] = ("Transformer", "Pooling", "Normalize")


def last(template: str = "$A </s>") -> Tokenizer:
    return small.byte_bpe(template)


NOMIC_NATIVE = {**SHAPE, "max_position_embeddings": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 1e3}}
GTE_NATIVE = {**ROBERTA, "rope_parameters": {"rope_type": "default", "rope_theta": 2e4}}
ASKED = {
    "nomic-embed-text-v1.5": Asked(
        "nomic_bert", NOMIC, small.wordpiece, native=("nomic_bert", NOMIC_NATIVE), names=nomic_names, remote=True
    ),
    "gte-base-en-v1.5": Asked(  # It has no types of tokens.
        *("new", {**GTE, "type_vocab_size": 0}, small.wordpiece, "cls_token"),
        *(("gte", {**GTE_NATIVE, "type_vocab_size": 0}), gte_names, True, ("Transformer", "Pooling")),
    ),
    "snowflake-arctic-embed-m-v2.0": Asked(
        *("gte", GTE, small.unigram, "cls_token", ("gte", GTE_NATIVE)),
        names=lambda weights: renamed(gte_names(weights), {r"^new\.": ""}),
        remote=True,
    ),
    "modernbert-embed-base": Asked("modernbert", MODERN, small.byte_bpe),
    "embeddinggemma-300m": Asked(
        "gemma3_text", GEMMA, small.unigram, modules=("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    ),
    "Qwen3-Embedding-0.6B": Asked("qwen3", DECODER, last, "lasttoken"),
    "bge-m3": Asked("xlm-roberta", ROBERTA, small.unigram, "cls_token"),
    "LaBSE": Asked(
        "bert", BERT, small.wordpiece, "cls_token", modules=("Transformer", "Pooling", "Dense", "Normalize")
    ),
}
REFUSED = {
    "jina-embeddings-v2-base-en": ("bert", {**BERT, **ALIBI}, "position_embedding_type='alibi'"),
    "jina-embeddings-v3": ("xlm-roberta", ROTARY, "position_embedding_type='rotary'"),
    "nomic-embed-text-v2-moe": ("nomic_bert", MOE, "activation_function='gelu'"),
    "nomic-embed-text-v1, scaled": ("nomic_bert", {**NOMIC, "rotary_scaling_factor": 2}, "rotary_scaling_factor=2"),
    "gte with another attention": ("new", {**GTE, "logn_attention_scale": True}, "logn_attention_scale=True"),
}


def network(asked: Asked, vocab_size: int, **more: Any) -> torch.nn.Module:
    """The random model, by transformers alone."""
    from transformers import AutoConfig, AutoModel

    kind, config = asked.native or (asked.kind, asked.config)
    made = AutoConfig.for_model(kind, **{**config, **more, "vocab_size": vocab_size})
    return small.randomized(AutoModel.from_config(made))


def build(name: str, folder: Path, **more: Any) -> tuple[torch.nn.Module, Path]:
    """The random model and its folder; ``more`` is of its ``config.json``."""
    asked = ASKED[name]
    tokenizer = asked.tokenizer()
    left = {"padding_side": "left"} if asked.pooling == "lasttoken" else {}
    small.wrapped(tokenizer, 128, **left).save_pretrained(folder)
    model = network(asked, tokenizer.get_vocab_size())
    weights = {key: weight.contiguous() for key, weight in asked.names(model.state_dict()).items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    code = {"AutoConfig": f"{name}--configuration.Config", "AutoModel": f"{name}--modeling.Model"}
    small.write(
        folder,
        {
            "config.json": {
                "model_type": asked.kind,
                **asked.config,
                "vocab_size": tokenizer.get_vocab_size(),
                **more,
                **({"auto_map": code} if asked.remote else {}),
            },
            "modules.json": small.modules(*asked.modules),
            "sentence_bert_config.json": {"max_seq_length": 120, "do_lower_case": False},
            "1_Pooling/config.json": small.pooling(asked.pooling, include_prompt=True),
            "config_sentence_transformers.json": {"prompts": {"query": "one "}, "default_prompt_name": None},
        },
    )
    torch.manual_seed(1)
    shape = {
        "in_features": 16,
        "out_features": 16,
        "bias": False,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    for index, kind in enumerate(asked.modules):
        (folder / f"{index}_{kind}").mkdir(exist_ok=True)
        if kind == "Dense":
            small.write(folder, {f"{index}_Dense/config.json": shape})
            save_file({"linear.weight": torch.randn(16, 16)}, folder / f"{index}_Dense/model.safetensors")
    return model, folder


@torch.no_grad()
def expected(name: str, model: torch.nn.Module, folder: Path, texts: list[str]) -> np.ndarray:
    """Each text alone through the plain forward pass of transformers, then pooled and projected by hand."""
    asked, tokenizer, rows = ASKED[name], small.wrapped(ASKED[name].tokenizer(), 128), []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]  # (tokens, dim)
        vector = {"cls_token": states[0], "lasttoken": states[-1]}.get(asked.pooling, states.mean(0))
        for index, kind in enumerate(asked.modules):
            if kind == "Dense":
                from safetensors.torch import load_file

                vector = torch.tanh(load_file(folder / f"{index}_Dense/model.safetensors")["linear.weight"] @ vector)
        rows.append(vector / vector.norm() if "Normalize" in asked.modules else vector)
    return np.stack(rows)


TEXTS = [text for text in small.TEXTS if text.strip()] + ["one two three four five six seven eight nine " * 2]


@pytest.mark.parametrize("name", ASKED)
def test_same_vectors_as_transformers(name: str, tmp_path: Path) -> None:
    plain, folder = build(name, tmp_path / "hub")
    model = SentenceEncoder(folder, device="cpu")
    vectors = expected(name, plain, folder, TEXTS)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-2
    assert np.abs(model.encode(TEXTS) - vectors).max() < 1e-5
    query = expected(name, plain, folder, ["one lake"])[0]
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
    given = SentenceEncoder(folder, device="cpu").encode(TEXTS)
    assert np.abs(given - expected(name, model, folder, TEXTS)).max() < 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_other_computations_need_code_that_is_not_run(name: str, tmp_path: Path) -> None:
    kind, config, key = REFUSED[name]
    small.bert(tmp_path)
    code = {"AutoConfig": "configuration.Config", "AutoModel": "modeling.Model"}
    small.write(tmp_path, {"config.json": {"model_type": kind, **config, "vocab_size": 99, "auto_map": code}})
    with pytest.raises(ValueError, match=f"{key}, which needs code from its folder, and that is never run"):
        SentenceEncoder(tmp_path, device="cpu")
