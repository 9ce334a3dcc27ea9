"""What cannot run without padding is found out, says why, and gives the vectors that it gives with padding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from sbert import Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.backends.packed import Packed
from sbert.backends.parity import max_relative_error, probe_of
from sbert.backends.state import refusal
from tests import small
from tests.backends.test_families import ESM, MOBILE, QWEN, build
from tests.backends.test_packed import ROWS, apart, hugging_face, plain, transformer

CPU = torch.device("cpu")
WINDOW = {**QWEN, "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 2, "moe_intermediate_size": 16}
CONV = {**QWEN, "layer_types": ["conv", "full_attention"]}


def of(kind: str, settings: dict[str, Any], **options: Any) -> Transformer:
    """A transformer of one of Hugging Face's classes."""
    config = getattr(transformers, kind.replace("Model", "Config"))(vocab_size=300, **settings)
    model = small.randomized(getattr(transformers, kind)(config, **options))
    return Transformer(model, small.wrapped(small.wordpiece(), 64))


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        ("EsmModel", ESM, "it fails without padding (RuntimeError: The size of tensor a"),
        ("Lfm2Model", CONV, "Lfm2Model has layers of conv"),
        (
            "Qwen2MoeModel",
            WINDOW,
            "it fails without padding (NotImplementedError: it does not tell its attention how far",
        ),
        # The second reason is that of transformers 5.20, which Python 3.10 has.
        (
            "Gemma2Model",
            QWEN,
            ("its attention is set to 'eager'", "it fails without padding (NotImplementedError: attention"),
        ),
    ],
)
def test_others_pad_and_say_why(kind: str, settings: dict[str, Any], reason: str | tuple[str, str]) -> None:
    module = of(kind, settings)
    with torch.no_grad():
        expected = plain(module.auto_model, ROWS)
        assert apart(module(TokenBatch.from_rows(ROWS)).values, expected) <= 1e-5
    assert str(module.padding_reason).startswith(reason)
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
    with pytest.warns(UserWarning, match="MobileBertModel runs by its plain, slower forward: without padding"):
        module(TokenBatch.from_rows(ROWS))
    assert "differ by" in str(module.padding_reason)


@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_nothing_is_disturbed(family: str) -> None:
    """Not the modes, random numbers, gradients or hooks of a model in training."""
    module = transformer(family).train()
    small.enable_checkpointing(module.auto_model, {})
    seen: list[object] = []
    for part in module.modules():
        part.register_forward_hook(lambda part, given, made: seen.append(part))
        part.register_full_backward_hook(lambda part, given, made: seen.append(part))
    state, before = torch.random.get_rng_state(), {key: dict(vars(x)) for key, x in module.named_modules()}
    assert refusal(Packed, module.network, CPU, module.network.dtype) is None
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {key: dict(vars(x)) for key, x in module.named_modules()} == before
    assert all(x.training for x in module.modules())
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert not seen


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
