"""``batch_tokens="auto"`` measures once, and keeps what it has found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.pipeline import auto_batch
from sbert.pipeline.encode import SentenceEncoding
from tests import pairs, small

TEXTS = ["one two", "three", "red fox " * 20]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SentenceEncoder:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    transformer = Transformer(small.bert(tmp_path / "bert"))
    return SentenceEncoder(transformer, Pooling("mean"), Normalize(), device="cpu")


def test_it_measures_once(model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.encode(TEXTS)
    np.testing.assert_allclose(model.encode(TEXTS, batch_tokens="auto"), expected, atol=1e-6)
    size = SentenceEncoding(model, batch_tokens="auto").batch_tokens
    assert size in (1024, 2048, 4096, 8192)
    (stored,) = json.loads((tmp_path / "sbert" / "batch_tokens.json").read_text()).values()
    assert stored == size

    monkeypatch.setattr(auto_batch, "_fastest", lambda _: pytest.fail("measured again"))
    model.encode(TEXTS, batch_tokens="auto")
    auto_batch._known.clear()  # As in another process.
    assert SentenceEncoding(model, batch_tokens="auto").batch_tokens == size


def test_what_is_stored_may_be_damaged(model: SentenceEncoder, tmp_path: Path) -> None:
    file = tmp_path / "sbert" / "batch_tokens.json"
    file.parent.mkdir()
    for text in ("{", '{"a": "b"}', "[]"):
        file.write_text(text)
        auto_batch._known.clear()
        assert SentenceEncoding(model, batch_tokens="auto").batch_tokens >= 1024


def test_the_fastest_that_fits(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    for times, best in {
        (1.0, 1.5, 2.0, 5.0): 4096,  # Seconds for 1024, 2048, 4096 and 8192 tokens.
        (1.0, 2.0, 4.0, 8.0): 1024,
        (1.0, 1.5, 2.0, None): 4096,
        (1.0, None, 0.1, 0.1): 1024,
    }.items():
        seconds = dict(zip((1024, 2048, 4096, 8192), times, strict=True))
        monkeypatch.setattr(auto_batch, "_seconds", lambda _, size, seconds=seconds: seconds[size])
        assert auto_batch._fastest(SentenceEncoding(model)) == (best, None not in times)


def test_what_did_not_fit_is_not_stored(
    model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_batch, "_fastest", lambda _: (1024, False))
    assert SentenceEncoding(model, batch_tokens="auto").batch_tokens == 1024
    assert not (tmp_path / "sbert" / "batch_tokens.json").exists()


def test_a_size_that_does_not_fit_is_seen(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Pooling, tokens: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(Pooling, "forward", full)
    assert auto_batch._seconds(SentenceEncoding(model), 1024) is None


def test_pairs_and_wrong_words(model: SentenceEncoder, tmp_path: Path) -> None:
    scorer = CrossEncoder(pairs.folder(tmp_path / "scorer"), device="cpu")
    given = [("one", "two"), ("red fox", "a boat")]
    np.testing.assert_allclose(scorer.predict(given, batch_tokens="auto"), scorer.predict(given), atol=1e-6)
    with pytest.raises((TypeError, ValueError), match="batch_tokens is 'most'"):
        model.encode(TEXTS, batch_tokens="most")
