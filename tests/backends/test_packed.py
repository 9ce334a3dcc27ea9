"""Hugging Face transformers without padding: the same vectors, gradients and scores; what needs padding says why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sbert import Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.backends import packed, scores
from sbert.backends.attention import attend
from sbert.backends.network import state_of
from sbert.backends.padded import Padded
from sbert.backends.parity import max_relative_error, probe_of
from sbert.backends.state import ModelState
from tests import small
from tests.backends.test_families import (
    DISTIL,
    ELECTRA,
    ESM,
    FAMILIES,
    MOBILE,
    MODERN,
    MORE,
    QWEN,
    ROBERTA,
    SHAPE,
    build,
)
from tests.backends.test_families import build_network as hugging_face

# Out of order, with an empty row; longer than local windows.
ROWS = [[3, 9, 4, 7], [5, 7, 6, 8, 20, 11], [2], [], list(range(3, 40)), [8, 9, 4]]


def transformer(family: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Transformer:
    tokenizer = {**FAMILIES, **MORE}[family][3]()
    return Transformer(hugging_face(family, dtype), small.wrapped(tokenizer, 64), **settings)


def plain(model: Any, rows: list[list[int]]) -> Tensor:
    """Token embeddings from a padded batch, given to the Hugging Face module."""
    batch = TokenBatch.from_rows([row for row in rows if row])
    ids, mask = batch.padded(fill=1)
    states: Tensor = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    return states[mask]


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": 3}, {"bias": torch.randn(2, 400, 400, dtype=torch.float64)}]
)
def test_rows_that_share_a_call_for_dropout(options: dict[str, Any]) -> None:
    """With a probability that drops nothing: outputs and gradients are those of the calls without dropout."""
    rows, results = TokenBatch.from_rows([*ROWS, *[[5] * length for length in (7, 8, 9, 400)]]), []
    for dropout in (0.0, 1e-15):
        torch.manual_seed(0)
        qkv = [torch.randn(len(rows.ids), heads, 8, dtype=torch.float64, requires_grad=True) for heads in (2, 1, 1)]
        output = attend(qkv[0], *qkv[1:], rows, dropout=dropout, **options)
        output.square().sum().backward()
        results.append([output, *(x.grad for x in qkv)])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
    assert 1 < len(vars(rows)["_bands"]) < len(rows.groups)


@pytest.mark.parametrize("family", ["bert", "qwen3", "mpnet"])
def test_hardly_any_tokens(family: str) -> None:
    module = transformer(family)
    for rows in ([], [[]], [[], []], [[4]], [[], [4, 5], []]):
        values = module(TokenBatch.from_rows(rows)).values
        assert values.shape == (sum(map(len, rows)), 16)
        assert values.isfinite().all()


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_the_users_own_calls_are_as_ever(family: str) -> None:
    """A padded batch with a mask, given to the Hugging Face module itself; a decoder's keys and values, kept."""
    module, model = transformer(family), hugging_face(family)
    assert module.auto_model.config._attn_implementation == packed.NAME
    assert model.config._attn_implementation == "sdpa"
    with torch.no_grad():
        assert torch.equal(plain(module.auto_model, ROWS), plain(model, ROWS))
        for left in (torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]), torch.ones(2, 4, dtype=torch.long), None):
            inputs = {"input_ids": torch.tensor([[1, 1, 5, 6], [7, 8, 9, 4]]), "attention_mask": left}
            found, expected = (x(**inputs).last_hidden_state for x in (module.auto_model, model))
            assert torch.equal(found, expected)
        if family == "qwen3":
            ids, cache = torch.tensor([[5, 6, 7, 8]]), []
            for x in (module.auto_model, model):
                first = x(input_ids=ids, use_cache=True)
                cache.append(x(input_ids=ids[:, :1], past_key_values=first.past_key_values).last_hidden_state)
            assert torch.equal(*cache)


def test_where_our_attention_is_not_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was pickled runs where transformers has not heard of our attention."""
    from transformers import AttentionInterface, AttentionMaskInterface

    module = transformer("bert")
    expected = module(TokenBatch.from_rows(ROWS)).values
    torch.save(module, tmp_path / "saved.pt")
    for interface in (AttentionInterface, AttentionMaskInterface):
        monkeypatch.delitem(interface._global_mapping, packed.NAME)
    packed.register.cache_clear()
    again = torch.load(tmp_path / "saved.pt", weights_only=False)
    assert again.padding_reason is None
    assert apart(again(TokenBatch.from_rows(ROWS)).values, expected) <= 1e-5


# -------------------------------------------------------------------------------------------- what needs padding


CPU = torch.device("cpu")
WINDOW = {**QWEN, "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 2, "moe_intermediate_size": 16}
CONV = {**QWEN, "layer_types": ["conv", "full_attention"]}


def of(kind: str, settings: dict[str, Any], **options: Any) -> Transformer:
    """A transformer of one of Hugging Face's classes."""
    config = getattr(transformers, kind.replace("Model", "Config"))(vocab_size=300, **settings)
    model = small.randomized(getattr(transformers, kind)(config, **options))
    return Transformer(model, small.wrapped(small.wordpiece(), 64))


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "EsmModel": (ESM, r"it fails without padding \(RuntimeError: The size of tensor a"),
    "Lfm2Model": (CONV, "Lfm2Model has layers of conv"),
    "Qwen2MoeModel": (WINDOW, r"it fails without padding \(NotImplementedError: it does not tell its attention how"),
    # The second reason is that of transformers before 5.21.
    "Gemma2Model": (QWEN, r"its attention is set to 'eager'|it fails without padding \(NotImplementedError: attention"),
}


@pytest.mark.parametrize("kind", REASONS)
def test_others_pad_and_say_why(kind: str) -> None:
    settings, reason = REASONS[kind]
    module = of(kind, settings)
    with torch.no_grad():
        expected = plain(module.auto_model, ROWS)
        assert apart(module(TokenBatch.from_rows(ROWS)).values, expected) <= 1e-5
    assert re.match(reason, str(module.padding_reason))
    assert SentenceEncoder(module, Pooling(), device="cpu").encode("lake").shape == (16,)


def test_the_gap_is_that_of_the_worst_row() -> None:
    batch = probe_of((3, 0, 1, 5), 7, CPU, start=2)
    assert batch.ids.tolist()[:3] == [2, 2, 2]
    expected = torch.randn(9, 4, dtype=torch.float64)
    found = expected + 0.1 * torch.randn(9, 4, dtype=torch.float64)
    rows = [(found[a:b] - expected[a:b]).norm() / expected[a:b].norm() for a, b in ((0, 3), (3, 4), (4, 9))]
    assert max_relative_error(found, expected, batch) == pytest.approx(float(max(rows)), rel=1e-12)
    assert max_relative_error(expected, expected, batch) == 0
    assert not max_relative_error(found.where(found < 0, torch.nan), expected, batch) <= 1e9


def test_neighbouring_tokens() -> None:
    """MobileBERT looks at the tokens beside each, which would be another text's."""
    module = of("MobileBertModel", MOBILE)
    module.train()
    with pytest.warns(UserWarning, match="MobileBertModel runs by a slower way: without padding"):
        module(TokenBatch.from_rows(ROWS))
    assert "differ by" in str(module.padding_reason)


def test_another_attention_later() -> None:
    """By the user, or with another model in the first one's place."""
    module, batch = transformer("bert"), TokenBatch.from_rows(ROWS)
    expected = module(batch).values
    module.auto_model.set_attn_implementation("eager")
    assert apart(module(batch).values, expected) <= 1e-5
    assert module.padding_reason == "its attention is set to 'eager'"
    module.auto_model = hugging_face("bert")
    assert apart(module(batch).values, expected) <= 1e-5


def test_a_configuration_without_a_direction(tmp_path: Path) -> None:
    """With "is_causal": null transformers looks both ways where there is padding, and elsewhere back alone."""
    folder = build("qwen3", tmp_path / "qwen3")
    expected = SentenceEncoder(folder, device="cpu").encode(small.TEXTS, on_truncate="ignore")
    config = json.loads((folder / "config.json").read_text())
    small.write(folder, {"config.json": {**config, "is_causal": None}})
    model = SentenceEncoder(folder, device="cpu")
    assert abs(model.encode(small.TEXTS, on_truncate="ignore") - expected).max() == 0
    assert model[0].padding_reason is None


# ------------------------------------------------------------------------------ heads for sequence classification

# Each with tokens: the first one's vector is what heads read.
TEXTS = [row for row in ROWS if row]
MPNET = {**SHAPE, "pad_token_id": 1}
MEAN = {**MODERN, "classifier_pooling": "mean"}


def classifier(kind: str, settings: dict[str, Any]) -> Any:
    config = getattr(transformers, f"{kind}Config")(vocab_size=300, num_labels=3, **settings)
    made = small.randomized(getattr(transformers, f"{kind}ForSequenceClassification")(config))
    packed.adopt(made.base_model)
    return made


CLASSIFIERS = [("Bert", SHAPE), ("Roberta", ROBERTA), ("Electra", ELECTRA), ("MPNet", MPNET), ("DistilBert", DISTIL)]
CLASSIFIERS += [("ModernBert", MODERN), ("ModernBert", MEAN), ("Qwen3", QWEN)]


@pytest.mark.parametrize(("kind", "settings"), CLASSIFIERS)
def test_scores_of_the_module(kind: str, settings: dict[str, Any]) -> None:
    made, batch = classifier(kind, settings), TokenBatch.from_rows(TEXTS)
    with torch.no_grad():
        found, expected = scores(made, batch), Padded(made).scores(batch)
    assert state_of(made, ModelState).reads_first == (settings not in (MEAN, QWEN))
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (expected[0] - expected[1]).abs().max() > 1e-3


def test_gradients_of_the_module() -> None:
    gradients = []
    for way in (scores, lambda made, batch: Padded(made).scores(batch)):
        made = classifier("Bert", SHAPE).double()
        way(made, TokenBatch.from_rows(TEXTS)).square().sum().backward()
        gradients.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
