"""Heads of masked language models, and ``Pooling("splade")`` of their logits: the formula, in little memory."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sbert import Pooling, SentenceEncoder, SparseStaticEmbedding, TokenBatch, Transformer
from sbert.modules import pooling
from tests import small

TOKENIZER = small.wrapped(small.wordpiece(), 64)
COMMON: dict[str, Any] = {**small.SHAPE, "vocab_size": len(TOKENIZER), "pad_token_id": 0}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64}
# The architectures, whose heads differ in their names and activations.
NETWORKS: dict[str, dict[str, Any]] = {
    "Bert": COMMON,
    "DistilBert": {**DISTILBERT, "vocab_size": len(TOKENIZER)},
    "Electra": {**COMMON, "embedding_size": 8},
    "MPNet": COMMON,
    "ModernBert": {**COMMON, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
    "Roberta": {**COMMON, "max_position_embeddings": 66},
}


def masked_lm(name: str = "Bert") -> Any:
    """A masked language model of two layers, in float64."""
    config = getattr(transformers, f"{name}Config")(**NETWORKS[name])
    network = small.randomized(getattr(transformers, f"{name}ForMaskedLM")(config))
    network.tie_weights()
    return network.double()


def model_of(name: str = "Bert", mode: str = "splade") -> SentenceEncoder:
    return SentenceEncoder(Transformer(masked_lm(name), TOKENIZER), Pooling(mode)).eval()


def by_formula(network: Any, batch: TokenBatch) -> Tensor:
    """log(1 + relu(logits)) of each text alone, and the maximum of its tokens."""
    parts = zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True)
    logits = [network(input_ids=batch.ids[None, start:end]).logits[0] for start, end in parts]
    return torch.stack([torch.log1p(part.relu()).amax(0) for part in logits])


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_its_formula_and_so_is_the_gradient_of_each_weight(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "_TOKENS", 5)
    model, expected = model_of(name), masked_lm(name).eval()
    batch = model.tokenize([*small.TEXTS, *small.TEXTS[:2]])
    vectors, formula = model(batch), by_formula(expected, batch)
    torch.testing.assert_close(vectors, formula, rtol=0, atol=1e-12)
    assert 0 < (formula > 0).double().mean() < 1
    weights = torch.randn(formula.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for output in (vectors, formula):
        (output * weights).sum().backward()
    for weight, reference in zip(model[0].auto_model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, reference.grad, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(model(batch), formula, rtol=0, atol=1e-12)


@pytest.mark.parametrize("learns", [False, True])
def test_logits_are_never_those_of_all_tokens(learns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at a time, nor kept for the gradient: there, only a vector and its indices for each row."""
    monkeypatch.setattr(pooling, "_TOKENS", 8)
    model, sizes, kept = model_of(), [], []
    batch = model.tokenize(small.TEXTS * 3)
    tokens = model[0](batch)
    head = tokens.head
    counted = dataclasses.replace(tokens, head=lambda states: (sizes.append(len(states)), head(states))[1])

    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x.shape), x)[1], lambda x: x)
    with torch.set_grad_enabled(learns), hooks:
        model[1](counted)
    assert sum(sizes) == len(batch.ids)
    assert max(sizes) <= max(8, batch.longest)
    assert bool(kept) == learns
    assert all(len(TOKENIZER) not in shape[-1:] or len(shape) == 1 or shape[0] <= 24 for shape in kept)


def test_rows_without_tokens_are_zero() -> None:
    model = model_of()
    batch = TokenBatch.from_rows([[], [2, 9, 3], [], [2, 3]])
    vectors = model(batch)
    assert (vectors.detach() > 0).any(1).tolist() == [False, True, False, True]
    torch.testing.assert_close(vectors[1:2], model(TokenBatch.from_rows([[2, 9, 3]])))
    assert model(TokenBatch.from_rows([[], []])).shape == (2, len(TOKENIZER))


def test_a_new_head_begins_with_the_token_embeddings() -> None:
    """A text is then its own words and those like them; the table and the decoder stay one."""
    network, state = small.bert_model(), torch.get_rng_state()
    transformer = Transformer(network, TOKENIZER, head="new")
    assert torch.equal(torch.get_rng_state(), state)
    table = network.get_input_embeddings()
    states = torch.randn(5, 16)
    norm = torch.nn.functional.layer_norm(torch.nn.functional.gelu(states), (16,), eps=network.config.layer_norm_eps)
    torch.testing.assert_close(transformer.logits(states), norm @ table.weight.T)
    model = copy.deepcopy(SentenceEncoder(transformer, Pooling("splade"))).to(torch.float64)
    assert model[0].auto_model.get_output_embeddings().weight is model[0].network.get_input_embeddings().weight
    with pytest.raises(ValueError, match="head='old' is unknown"):
        Transformer(network, TOKENIZER, head="old")


def test_weights_of_words() -> None:
    """Of each word that a text has, once, however often; their gradient is that of the texts that have it."""
    weights = torch.rand(len(TOKENIZER), dtype=torch.float64)
    module = SparseStaticEmbedding(TOKENIZER, weights)
    batch = SentenceEncoder(module).tokenize(["a lake a lake", "", "red lake"])
    a, lake, red = TOKENIZER.convert_tokens_to_ids(["a", "lake", "red"])
    expected = torch.zeros(3, len(TOKENIZER), dtype=torch.float64)
    expected[[0, 0, 2, 2], [a, lake, red, lake]] = weights[[a, lake, red, lake]]
    assert torch.equal(module(batch), expected)
    module(batch).sum().backward()
    assert module.embedding.weight.grad[[a, lake, red], 0].tolist() == [1, 2, 1]
