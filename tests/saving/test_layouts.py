"""Folders of each layout are read, and written so that sentence-transformers reads them, with equal vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sbert import SentenceEncoder
from sbert.vector_files.fingerprint import digest_of_model
from tests.backends.test_families import build, compare_directions, difference, ours, theirs
from tests.saving.layouts import LAYOUTS, baked, labse, layout, limits, minilm, static
from tests.small import modules, pooling, write

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")

# Those of every day; the others are read in the same way, and cost a load of four models each.
QUICK = ("nli_mean", "labse", "new_namespace", "word_vectors")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in LAYOUTS]
)
def test_both_directions(name: str, tmp_path: Path) -> None:
    """Equal vectors of the folder, of what we write of it, and of what the peer writes of it."""
    read, written, again, newest = compare_directions(LAYOUTS[name](tmp_path / "given"), tmp_path)
    assert max(read, written, newest) <= 1e-5
    # How attention is computed is not written.
    assert again <= (1e-6 if name in ("arguments", "links") else 0)


def test_old_keys_are_concatenated_in_their_order(tmp_path: Path) -> None:
    """All are written, as text-embeddings-inference refuses a folder without them."""
    config = pooling("lasttoken", "mean_tokens", "max_tokens", "cls_token", "weightedmean_tokens")
    folder = layout("Pooling", **config)(tmp_path / "given")
    model = ours(folder)
    assert difference(model, theirs(folder)) <= 1e-5
    assert model.get_sentence_embedding_dimension() == 80
    model.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/1_Pooling/config.json").read_text()) == {**config, "include_prompt": True}


CARDS = {
    "---\r\nlanguage:\r\n- de\r\n---\r\n": "de",
    '---\nlanguage: ["pt-BR"]\n---\n': "pt-br",
    "---\nlanguage:\n  - en\n  - de\n---\n": None,
    "---\ntags:\n- a\n---\nlanguage: en\n": None,
}


def test_the_language_stands_in_the_card(tmp_path: Path) -> None:
    folder = static(tmp_path / "given")
    for card, language in CARDS.items():
        (folder / "README.md").write_bytes(card.encode())
        model = ours(folder)
        model.save(tmp_path / "saved")
        assert model.language == ours(tmp_path / "saved").language == language
    other = digest_of_model(model)
    model.language = "ko"
    assert digest_of_model(model) == other  # It says nothing about the vectors.


def test_unknown_keys_are_named(tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    write(folder, {"sentence_bert_config.json": limits(24, fancy=1)})
    with pytest.warns(UserWarning, match="sentence_bert_config.json: unknown keys fancy ignored"):
        ours(folder)
    write(folder, {"sentence_bert_config.json": limits(24, model_args={"attn_implementation": "me/kernel"})})
    with pytest.warns(UserWarning, match="model_kwargs attn_implementation='me/kernel' ignored"):
        ours(folder)


@pytest.mark.filterwarnings("ignore:this CPU has no float16 arithmetic:UserWarning")
def test_half_precision_weights_are_read_as_float32(tmp_path: Path) -> None:
    """As they would be slow, or worse, where transformers takes the dtype of the file."""
    model = ours(minilm(tmp_path / "given"))
    SentenceEncoder(*model, device="cpu").half().save(tmp_path / "half")
    assert {p.dtype for p in ours(tmp_path / "half").parameters()} == {torch.float32}
    assert {p.dtype for p in SentenceEncoder(tmp_path / "half", dtype="bfloat16").parameters()} == {torch.bfloat16}


STRANGE = [
    *(" lake ", "\tlake\n", "[SEP] lake [MASK]", "</s> lake <s> boat <pad>", "ΟΔΥΣΣΕΥΣ İstanbul ẞ", "a\u0000b"),
    *("e\u0301 é ﬁ", "😀 lake 👩‍👩‍👧", "lake " * 30, "a" * 400, "\u200b", "lake\u00a0boat…", "\ufffd"),
]


def gap(first: Any, second: Any, texts: list[str], **options: Any) -> float:
    """Greatest difference of one number between our vectors and the peer's, which must not all be alike."""
    mine, others = first.encode(texts, on_truncate="ignore", **options), second.encode(texts, **options)
    assert mine.shape == others.shape
    assert np.isfinite(mine).all()
    assert np.abs(mine - mine[:1]).max() > 1e-2
    return float(np.abs(mine - others).max())


@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_limit_where_none_is_given(family: str, tmp_path: Path) -> None:
    folder = build(family, tmp_path / "given", limit=None)
    model, peer = ours(folder), theirs(folder)
    assert model.max_seq_length == peer.max_seq_length
    assert gap(model, peer, ["lake boat " * 100, "boat " * 59, "lake"]) <= 1e-5


@pytest.mark.parametrize(("family", "lower"), [("bert", False), ("roberta", True), ("t5-encoder", False)])
def test_strange_strings(family: str, lower: bool, tmp_path: Path) -> None:
    folder = write(build(family, tmp_path / "given"), {"sentence_bert_config.json": limits(24, lower=lower)})
    model = ours(folder)
    assert gap(model, theirs(folder), STRANGE) <= 1e-5
    model.save(tmp_path / "saved")
    assert gap(model, theirs(tmp_path / "saved"), STRANGE) <= 1e-5


@pytest.mark.slow  # Every way to pad and every pooling: each has token positions of its own.
@pytest.mark.parametrize("family", ["qwen3", "t5-encoder", "roberta"])
def test_prompt_left_out(family: str, tmp_path: Path) -> None:
    """Padding on either side, special tokens before, behind or on both sides; all poolings beside each other."""
    modes = ["cls_token", "mean_tokens", "max_tokens", "weightedmean_tokens", "lasttoken"]
    files = {"1_Pooling/config.json": pooling(*modes, include_prompt=False)}
    folder = write(build(family, tmp_path / "given"), {**files, "modules.json": modules("Transformer", "Pooling")})
    texts = ["a small boat", "the red fox runs over seven green hills", "lake", ""]
    model, peer = ours(folder), theirs(folder)
    assert gap(model, peer, texts, prompt="one two: ") <= 1e-5
    model.save(tmp_path / "saved")
    assert gap(model, theirs(tmp_path / "saved"), texts, prompt="one two: ") <= 1e-5


def test_exact_contents_of_modules(tmp_path: Path) -> None:
    ours(labse(tmp_path / "given")).save(tmp_path / "saved")
    plain = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    version = {"__version__": {"sentence_transformers": "2.3.0"}, "model_type": "SentenceTransformer"}
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    for name, expected in {
        "modules.json": modules("Transformer", "Pooling", "Dense", "Normalize"),
        "2_Dense/config.json": {"in_features": 16, "out_features": 16, "bias": True, **activation},
        "config_sentence_transformers.json": {**version, **plain},
    }.items():
        assert json.loads((tmp_path / "saved" / name).read_text(encoding="utf-8")) == expected
    assert set(load_file(tmp_path / "saved/2_Dense/model.safetensors")) == {"linear.weight", "linear.bias"}
    assert (tmp_path / "saved/3_Normalize").is_dir()


def test_baked_settings_are_not_written(tmp_path: Path) -> None:
    """Servers that read tokenizer.json and nothing else would cut texts there."""
    folder = baked(tmp_path / "given")
    ours(folder).save(tmp_path / "saved")
    for path, bare in ((folder, False), (tmp_path / "saved", True)):
        tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
        assert (tokenizer["truncation"] is None) == (tokenizer["padding"] is None) == bare
    assert json.loads((tmp_path / "saved/tokenizer_config.json").read_text())["model_max_length"] == 24
