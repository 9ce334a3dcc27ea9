"""Hugging Face transformers without padding: the same vectors and gradients as with it."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert import TokenBatch, Transformer
from sbert.backends import packed, state
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.pipeline.run import evaluating
from tests import small
from tests.backends.test_families import FAMILIES, MORE
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


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", ["bert", "qwen3"])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_gradient_checkpointing(family: str, reentrant: bool) -> None:
    gradients = []
    for checkpointing in (False, True):
        module = transformer(family, torch.float64)
        if checkpointing:
            small.enable_checkpointing(module.auto_model, {"use_reentrant": reentrant})
        assert any(getattr(part, "gradient_checkpointing", False) for part in module.modules()) == checkpointing
        module.train()
        for part in module.modules():
            for name in ("p", "attention_dropout"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
        module(TokenBatch.from_rows(ROWS)).values.square().sum().backward()
        gradients.append({name: p.grad for name, p in module.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_only_the_texts_own_tokens_are_computed() -> None:
    """Nor does the comparison before the first batch reach a hook."""
    module = transformer("albert")
    seen: list[int] = []
    module.auto_model.encoder.embedding_hidden_mapping_in.register_forward_hook(
        lambda part, given, made: seen.append(made.shape[:-1].numel())
    )
    with torch.no_grad():
        module(TokenBatch.from_rows(ROWS))
        Padded(module.network).forward(TokenBatch.from_rows(ROWS))
    assert seen == [sum(map(len, ROWS)), len(ROWS) * max(map(len, ROWS))]


@pytest.mark.parametrize("family", ["roberta", "modernbert", "qwen3"])
def test_no_waiting_for_a_gpu(family: str) -> None:
    """Tensors on the device "meta" have no values, so whatever asks for one on the host fails."""
    network = transformer(family).to("meta").network
    assert Packed(network).forward(TokenBatch.from_rows(ROWS).to("meta")).shape == (51, 16)


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
            given = {"input_ids": torch.tensor([[1, 1, 5, 6], [7, 8, 9, 4]]), "attention_mask": left}
            found, expected = (x(**given).last_hidden_state for x in (module.auto_model, model))
            assert torch.equal(found, expected)
        if family == "qwen3":
            ids, cache = torch.tensor([[5, 6, 7, 8]]), []
            for x in (module.auto_model, model):
                first = x(input_ids=ids, use_cache=True)
                cache.append(x(input_ids=ids[:, :1], past_key_values=first.past_key_values).last_hidden_state)
            assert torch.equal(*cache)


@pytest.mark.parametrize("whole", [True, False])
def test_where_our_attention_is_not_registered(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was pickled runs where transformers has not heard of our attention."""
    from transformers import AttentionInterface, AttentionMaskInterface

    module = transformer("bert")
    expected = module(TokenBatch.from_rows(ROWS)).values
    torch.save(module if whole else (module.auto_model, module.tokenizer), tmp_path / "saved.pt")
    for interface in (AttentionInterface, AttentionMaskInterface):
        monkeypatch.delitem(interface._global_mapping, packed.NAME)
    packed.register.cache_clear()
    saved = torch.load(tmp_path / "saved.pt", weights_only=False)
    again = saved if whole else Transformer(*saved)
    assert again.padding_reason is None
    assert apart(again(TokenBatch.from_rows(ROWS)).values, expected) <= 1e-5


@pytest.mark.parametrize("family", ["modernbert", "qwen3"])
def test_copies_and_threads(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches of several threads at once: one of them compares, the others wait."""
    module, batch = transformer(family), TokenBatch.from_rows(ROWS)
    expected = plain(hugging_face(family), ROWS).detach()
    compare, compared, results = state.parity, [], []

    def counted(*arguments: Any) -> Any:
        compared.append(arguments)
        return compare(*arguments)

    monkeypatch.setattr(state, "parity", counted)
    ready = threading.Barrier(4)

    def work(_: int) -> None:
        ready.wait()
        with torch.no_grad():
            results.extend(module(batch).values for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (len(results), len(compared)) == (20, 1)
    assert all(torch.equal(found, results[0]) for found in results)
    assert apart(results[0], expected) <= 1e-5
    twin = copy.deepcopy(module)
    with evaluating(twin):
        assert torch.equal(twin(batch).values, results[0])
