"""Tiny random models of each family: the same vectors as sentence-transformers, whichever library saved the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from sbert import SentenceEncoder
from sbert.backends import state
from tests import small

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
LIMIT = 24
SHAPE, TOKENS = small.SHAPE, {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
ROBERTA = {**SHAPE, **TOKENS, "type_vocab_size": 1}
DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64}
ALBERT = {**SHAPE, **TOKENS, "embedding_size": 8}
ELECTRA = {**SHAPE, "embedding_size": 8}
DEBERTA = {
    **SHAPE,
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "type_vocab_size": 0,
    "pad_token_id": 1,
}
MODERN = {**SHAPE, **TOKENS, "cls_token_id": 0, "sep_token_id": 2, "local_attention": 8}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "pad_token_id": 1, "eos_token_id": 2}
QWEN = {**SHAPE, **TOKENS, "num_key_value_heads": 1, "head_dim": 8}

Family = tuple[str, str, dict[str, Any], Callable[[], Tokenizer]]
# Family: class of the configuration and of the model, its settings, its tokenizer.
FAMILIES: dict[str, Family] = {
    "bert": ("BertConfig", "BertModel", SHAPE, small.wordpiece),
    "roberta": ("RobertaConfig", "RobertaModel", ROBERTA, small.byte_bpe),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaModel", ROBERTA, small.unigram),
    "mpnet": ("MPNetConfig", "MPNetModel", {**SHAPE, "pad_token_id": 1}, small.byte_bpe),
    "distilbert": ("DistilBertConfig", "DistilBertModel", DISTIL, small.wordpiece),
    "albert": ("AlbertConfig", "AlbertModel", ALBERT, small.unigram),
    "electra": ("ElectraConfig", "ElectraModel", ELECTRA, small.wordpiece),
    "deberta-v3": ("DebertaV2Config", "DebertaV2Model", DEBERTA, small.unigram),
    "modernbert": ("ModernBertConfig", "ModernBertModel", MODERN, small.byte_bpe),
    "t5-encoder": ("T5Config", "T5EncoderModel", T5, lambda: small.unigram("$A </s>")),
    "t5-whole": ("T5Config", "T5Model", T5, lambda: small.unigram("$A </s>")),
    "qwen3": ("Qwen3Config", "Qwen3Model", QWEN, lambda: small.byte_bpe("$A </s>")),
}


LAYERS = ["sliding_attention", "full_attention"]
GEMMA = {**QWEN, "sliding_window": 8, "query_pre_attn_scalar": 4, "layer_types": LAYERS}
BOTH_WAYS = {**GEMMA, "use_bidirectional_attention": True}  # EmbeddingGemma
MOBILE = {**SHAPE, "embedding_size": 16, "intra_bottleneck_size": 16}
ESM = {**SHAPE, "pad_token_id": 1, "mask_token_id": 4, "position_embedding_type": "rotary"}
# More families, of which no folders are built.
MORE: dict[str, Family] = {
    "camembert": ("CamembertConfig", "CamembertModel", ROBERTA, small.unigram),
    "ernie": ("ErnieConfig", "ErnieModel", SHAPE, small.wordpiece),
    "gte": ("GteConfig", "GteModel", {**ROBERTA, "type_vocab_size": 2}, small.wordpiece),
    "nomic": ("NomicBertConfig", "NomicBertModel", SHAPE, small.wordpiece),
    "mistral": ("MistralConfig", "MistralModel", {**QWEN, "sliding_window": 8}, small.byte_bpe),
    "qwen3-both-ways": ("Qwen3Config", "Qwen3Model", {**QWEN, "is_causal": False}, small.byte_bpe),
    "gemma3": ("Gemma3TextConfig", "Gemma3TextModel", GEMMA, small.byte_bpe),
    "gemma3-both-ways": ("Gemma3TextConfig", "Gemma3TextModel", BOTH_WAYS, small.byte_bpe),
}


def build_network(family: str, dtype: torch.dtype = torch.float32) -> Any:
    """The same weights at each call, and the attention that transformers chooses."""
    whole = build_whole(family).to(dtype)
    return whole.get_encoder() if family == "t5-whole" else whole


def build_whole(family: str) -> Any:
    import transformers

    config, model, settings, tokenizer = {**FAMILIES, **MORE}[family]
    made = getattr(transformers, config)(vocab_size=tokenizer().get_vocab_size(), **settings)
    return small.randomized(getattr(transformers, model)(made))


def build(family: str, folder: Path, limit: int | None = LIMIT, dtype: torch.dtype = torch.float32) -> Path:
    """A folder as sentence-transformers 2 wrote it."""
    build_whole(family).to(dtype).save_pretrained(folder)
    left = {"padding_side": "left"} if family == "qwen3" else {}
    small.wrapped({**FAMILIES, **MORE}[family][3](), 64, **left).save_pretrained(folder)
    mode = "lasttoken" if family == "qwen3" else "mean_tokens"
    small.write(
        folder,
        {
            "modules.json": small.modules("Transformer", "Pooling", "Normalize"),
            "sentence_bert_config.json": {"max_seq_length": limit, "do_lower_case": False},
            "1_Pooling/config.json": small.pooling(mode),
        },
    )
    (folder / "2_Normalize").mkdir()
    return folder


def theirs(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def ours(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


def difference(first: Any, second: Any) -> float:
    """Greatest difference of one number over all texts, in one call each."""
    ignore: dict[type, dict[str, Any]] = {SentenceEncoder: {"on_truncate": "ignore"}}
    vectors = [model.encode(small.TEXTS, **ignore.get(type(model), {})) for model in (first, second)]
    assert np.isfinite(vectors[0]).all()
    # Vectors that were all alike would agree whatever the code does.
    assert np.abs(vectors[0][0] - vectors[0][1]).max() > 1e-2
    return float(np.abs(vectors[0] - vectors[1]).max())


@pytest.mark.slow  # Importing sentence-transformers takes seconds, and it is what is compared with.
@pytest.mark.parametrize("family", FAMILIES)
def test_plain(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vectors of sentence-transformers by the Hugging Face module, which no backend runs."""
    folder, texts = build(family, tmp_path / "given"), small.TEXTS
    expected = theirs(folder).encode(texts)
    with monkeypatch.context() as environment:
        environment.setenv("SBERT_BACKEND", "plain")
        model = ours(folder)
    monkeypatch.setattr(state, "select", None)
    monkeypatch.setattr(state, "cached_backend", None)
    assert np.abs(model.encode(texts, on_truncate="ignore") - expected).max() <= 1e-6
    model.train()(model.tokenize(["a boat"])).sum().backward()
    assert any(weight.grad is not None for weight in model.parameters())


def compare_directions(folder: Path, parent: Path) -> tuple[float, float, float, float]:
    """Differences to the peer of what is read and written, to the model itself, and to the peer's newest dialect."""
    model, peer = ours(folder), theirs(folder)
    read = difference(model, peer)
    model.save(parent / "saved")
    written, again = (difference(model, load(parent / "saved")) for load in (theirs, ours))
    peer.save(str(parent / "theirs"), create_model_card=False)
    return read, written, again, difference(ours(parent / "theirs"), peer)


@pytest.mark.slow  # Importing sentence-transformers and its classes takes seconds, and it is what is compared with.
@pytest.mark.parametrize("family", FAMILIES)
def test_same_vectors_in_both_directions(family: str, tmp_path: Path) -> None:
    read, written, again, newest = compare_directions(build(family, tmp_path / "given"), tmp_path)
    assert ours(tmp_path / "given").max_seq_length == LIMIT
    print(f"\n{family}: read {read:.1e}, written {written:.1e}, again {again:.1e}, newest dialect {newest:.1e}")
    assert max(read, written, newest) <= 1e-5
    assert again == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("inference", [True, False])
def test_neighbours_and_modes_do_not_matter(family: str, inference: bool, tmp_path: Path) -> None:
    """What is kept of a call in torch's inference mode serves one outside of it, the reverse, and training."""
    model = ours(build(family, tmp_path / "given"))
    with torch.inference_mode(inference):
        together = model.encode(small.TEXTS, on_truncate="ignore", batch_size=len(small.TEXTS))
    with torch.inference_mode(not inference):
        alone = np.stack([model.encode(text, on_truncate="ignore") for text in small.TEXTS])
    assert np.abs(together - alone).max() <= 1e-6
    model.train()(model.tokenize(["a boat"])).sum().backward()


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "mpnet"])
def test_positions_behind_the_padding_index(family: str, tmp_path: Path) -> None:
    """Of 64 positions two are lost; a long text must not run over the table."""
    model = ours(build(family, tmp_path / "given", limit=None))
    assert model.max_seq_length == 62
    with pytest.warns(UserWarning, match="1 of 1 sentences were truncated to max_seq_length=62"):
        assert np.isfinite(model.encode(["lake boat " * 100])).all()
    with pytest.raises(ValueError, match="max_seq_length=63 exceeds the 62 positions"):
        model.max_seq_length = 63
    folder = build(family, tmp_path / "too long", limit=64)
    with pytest.warns(UserWarning, match="max_seq_length=64 exceeds the 62 positions of the model; 62 is used"):
        assert ours(folder).max_seq_length == 62
