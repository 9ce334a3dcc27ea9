"""Hugging Face transformers without padding: the same vectors and gradients as with it."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.engine.mode import evaluating
from sbert.modules import packed
from sbert.modules.transformer import bucket
from tests import small
from tests.test_families import FAMILIES, SHAPE, build

PACKED = ["bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "modernbert", "qwen3"]
PADDED = ["mpnet", "deberta-v3", "t5-encoder", "t5-whole"]
# Out of order, with an empty row and with RoBERTa's padding token (1) among the others; longer than local windows.
ROWS = [[3, 9, 4, 7], [5, 1, 1, 6, 8, 20, 11], [2], [], list(range(3, 40)), [8, 9, 4], [1, 1, 5]]


def transformer(family: str, folder: Path) -> Transformer:
    return SentenceEncoder(build(family, folder / family), device="cpu")[0]


def alone(module: Transformer, rows: list[list[int]]) -> Tensor:
    """Token embeddings from the Hugging Face module as transformers has it, a row at a time."""
    plain = copy.deepcopy(module.auto_model)
    plain.set_attn_implementation("eager")
    return torch.cat([plain(torch.tensor([row])).last_hidden_state[0] for row in rows if row])


def test_every_family_is_in_one_list() -> None:
    assert {*PACKED, *PADDED} == set(FAMILIES)


@pytest.mark.parametrize("family", PACKED)
def test_the_vectors_of_each_row_alone(family: str, tmp_path: Path) -> None:
    module = transformer(family, tmp_path)
    assert module.padded_because is None
    with evaluating(module):
        expected = alone(module, ROWS)
        found = module(TokenBatch.from_rows(ROWS)).values
        padded = module.padded_forward(TokenBatch.from_rows([row for row in ROWS if 1 not in row]))
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    without = torch.cat([expected[:4], expected[11:-3]])
    assert (padded - without).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("family", PADDED)
def test_others_pad_and_say_why(family: str, tmp_path: Path) -> None:
    module = transformer(family, tmp_path)
    assert "its own attention" in str(module.padded_because)
    rows = [row for row in ROWS if 1 not in row]
    with evaluating(module):
        expected = torch.cat([module.auto_model(torch.tensor([row])).last_hidden_state[0] for row in rows if row])
        found = module(TokenBatch.from_rows(rows)).values
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "qwen3"])
def test_gradients(family: str, tmp_path: Path) -> None:
    """In double precision, of every weight."""
    module = transformer(family, tmp_path).double()
    rows = [row for row in ROWS if 1 not in row]
    gradients = []
    for forward in (lambda batch: module(batch).values, module.padded_forward):
        module.zero_grad()
        forward(TokenBatch.from_rows(rows)).square().sum().backward()
        gradients.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 10
    # The padding token's own vector is not trained by one way or the other.
    assert (
        max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in zip(*gradients, strict=True)) <= 1e-10
    )


def test_gradient_checkpointing(tmp_path: Path) -> None:
    module = transformer("bert", tmp_path)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            module.auto_model.activation_checkpointing_enable()
        module.train()
        for part in module.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        module.zero_grad()
        module(TokenBatch.from_rows(ROWS)).values.square().sum().backward()
        gradients.append(module.auto_model.encoder.layer[0].attention.self.query.weight.grad.clone())
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-4 * gradients[0].abs().max()


def test_dropout(tmp_path: Path) -> None:
    module = transformer("bert", tmp_path)
    batch = TokenBatch.from_rows(ROWS)
    plain = module.eval()(batch).values
    module.train()
    torch.manual_seed(0)
    first = module(batch).values
    torch.manual_seed(0)
    assert torch.equal(first, module(batch).values)
    assert not torch.allclose(first, plain)
    assert not torch.equal(first, module(batch).values)


def test_only_the_texts_own_tokens_are_computed(tmp_path: Path) -> None:
    module = transformer("albert", tmp_path)
    seen: list[int] = []
    module.auto_model.encoder.embedding_hidden_mapping_in.register_forward_hook(
        lambda part, given, made: seen.append(made.shape[:-1].numel())
    )
    with evaluating(module):
        module(TokenBatch.from_rows(ROWS))
        module.padded_forward(TokenBatch.from_rows(ROWS))
    assert seen == [sum(map(len, ROWS)), len(ROWS) * max(map(len, ROWS))]


def test_positions_behind_the_padding_token() -> None:
    batch = TokenBatch.from_rows([[0, 5, 1, 1, 6], [], [1, 7]])
    assert packed.positions(batch, None).tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert packed.positions(batch, 1).tolist() == [2, 3, 1, 1, 4, 1, 2]


def test_the_users_own_calls_are_as_ever(tmp_path: Path) -> None:
    """A padded batch with a mask, given to the Hugging Face module itself."""
    module = transformer("bert", tmp_path)
    ids, mask = TokenBatch.from_rows(ROWS[:3]).padded()
    with evaluating(module):
        found = module.auto_model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        expected = alone(module, ROWS[:3])
    assert (found[mask] - expected).abs().max() <= 1e-5


def test_what_is_saved_does_not_know(tmp_path: Path) -> None:
    model = SentenceEncoder(build("bert", tmp_path / "bert"), device="cpu")
    assert model[0].padded_because is None
    model.save(tmp_path / "saved")
    model[0].auto_model.save_pretrained(tmp_path / "plain")
    for file in [*tmp_path.glob("saved/**/*.json"), *tmp_path.glob("plain/*.json")]:
        assert packed.NAME not in file.read_text()
        json.loads(file.read_text())


def test_another_process(tmp_path: Path) -> None:
    """A model that was pickled runs where transformers has not heard of our attention."""
    module = transformer("bert", tmp_path)
    torch.save(module, tmp_path / "module.pt")
    code = f"""
import torch
from sbert import TokenBatch
module = torch.load({str(tmp_path / "module.pt")!r}, weights_only=False)
print(module(TokenBatch.from_rows({ROWS})).values.abs().sum().item())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    expected = float(module(TokenBatch.from_rows(ROWS)).values.detach().abs().sum())
    assert abs(float(found.stdout) - expected) <= 1e-4 * expected


def test_copies_and_threads(tmp_path: Path) -> None:
    module = transformer("modernbert", tmp_path)
    batch = TokenBatch.from_rows(ROWS)
    with evaluating(module):
        expected = module(batch).values
        assert torch.equal(copy.deepcopy(module)(batch).values, expected)
        results: list[Tensor] = []

        def work() -> None:
            with torch.no_grad():
                results.extend(module(batch).values for _ in range(10))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 40
    assert all(torch.equal(found, expected) for found in results)


def test_a_model_set_to_eager_stays_so(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=200, **SHAPE, attn_implementation="eager")
    module = Transformer(small.randomized(BertModel(config)), small.wrapped(small.wordpiece(), 64))
    assert module.padded_because == "its attention is set to 'eager'"
    assert module.auto_model.config._attn_implementation == "eager"
    assert SentenceEncoder(module, Pooling(), device="cpu").encode("lake").shape == (16,)


def test_one_that_differs_is_padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SentenceEncoder(build("albert", tmp_path / "albert"), device="cpu")
    expected = model.encode(small.TEXTS, on_truncate="ignore")
    other = SentenceEncoder(tmp_path / "albert", device="cpu")
    right = packed.hidden_states

    def wrong(*arguments: Any) -> Tensor:
        return right(*arguments) + 0.1

    monkeypatch.setattr(packed, "hidden_states", wrong)
    with pytest.warns(UserWarning, match="AlbertModel runs slower than it could: without padding its vectors differ"):
        vectors = other.encode(small.TEXTS, on_truncate="ignore")
    assert abs(vectors - expected).max() <= 1e-6


def test_buckets() -> None:
    assert bucket(1, 1, None) == (1, 32)
    assert bucket(9, 64, 512) == (16, 64)
    assert bucket(3, 500, 510) == (4, 510)
    batch = TokenBatch.from_rows([[4, 5], [6]])
    ids, mask = batch.padded(fill=9, rows=4, longest=3)
    assert ids.tolist() == [[4, 5, 9], [6, 9, 9], [9] * 3, [9] * 3]
    assert mask.sum() == 3
