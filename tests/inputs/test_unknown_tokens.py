"""Texts of letters that a model does not know are worth one warning."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Pooling, SentenceEncoder, StaticEmbedding, Transformer, WordEmbeddings
from sbert.chunking.encode import encode_chunks
from sbert.losses import MultipleNegativesRankingLoss
from sbert.training import Trainer, TrainingConfig
from tests import small

KOREAN = ["오늘은 날씨가 맑다", "고양이가 소파에서 잔다", "세금이 오른다"]
SHARE = (
    r"^unknown tokens: \d+% of the tokens of these {} are not in the model's vocabulary.*use a model for that language"
)


def encoder(tokenizer: Any, **options: Any) -> SentenceEncoder:
    """A BERT of two layers with a tokenizer."""
    wrapped = small.wrapped(tokenizer, 64)
    for name, token in options.items():
        setattr(wrapped, name, token)
    network = small.bert_model()
    network.resize_token_embeddings(len(wrapped))
    return SentenceEncoder(Transformer(network, wrapped), Pooling("mean"), device="cpu")


def warnings_of(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


def words(**options: Any) -> WordEmbeddings:
    known = [*small.words(), "€"]
    return WordEmbeddings(known, torch.randn(len(known), 8), **options)


def test_the_model_of_the_library_says_what_it_does_not_know() -> None:
    model = SentenceEncoder(device="cpu")
    english = ["A cat sleeps → on the sofa ☃.", "Taxes rise again in spring, they say."]
    assert warnings_of(lambda: model.encode(english)) == []
    (message,) = warnings_of(lambda: model.encode(KOREAN))
    tokens = model.tokens(KOREAN)
    own = [i for row in range(3) for i in tokens.ids[tokens.offsets[row] + 1 : tokens.offsets[row + 1] - 1]]
    share = np.mean(np.array(own) == model.tokenizer.unk_token_id)
    assert message.startswith(f"unknown tokens: {share:.0%} of the tokens of these sentences")
    assert share > 0.1
    assert warnings_of(lambda: model.encode(KOREAN)) == []  # Once a model.
    assert len(warnings_of(lambda: SentenceEncoder(device="cpu").encode(KOREAN[::-1]))) == 1


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (lambda: encoder(small.wordpiece()), False),
        (lambda: encoder(small.unigram()), False),
        (lambda: encoder(small.byte_bpe()), True),
        (lambda: SentenceEncoder(StaticEmbedding(small.wordpiece(), torch.randn(200, 8)), device="cpu"), False),
        (lambda: SentenceEncoder(words(), Pooling("mean"), device="cpu"), False),
        (lambda: SentenceEncoder(words(stop_words=["naps", *" ".join(KOREAN).split()]), Pooling("mean")), True),
    ],
    ids=["wordpiece", "unigram", "bytes", "static", "words", "stop words"],
)
def test_every_tokenizer_says_so_once(make: Callable[[], SentenceEncoder], known: bool) -> None:
    model = make()
    assert warnings_of(lambda: model.encode(["a small boat", "seven green hills", "the red fox"])) == []
    assert warnings_of(lambda: model.encode(["a small boat lies", "문장 €"] * 9)) == []  # One rare symbol or two.
    messages = warnings_of(lambda: model.encode(KOREAN, prompt="the red fox runs over seven green hills "))
    assert len(messages) == (not known)
    if not known:
        assert re.match(SHARE.format("sentences"), messages[0])
    assert warnings_of(lambda: model.encode(KOREAN)) == []


def test_the_last_token_is_not_the_unknown_one() -> None:
    """Some call by one name what ends every text and what nothing is in the vocabulary for."""
    model = encoder(small.byte_bpe(), unk_token="</s>")
    assert warnings_of(lambda: model.encode(["a", "b", "c", "d"])) == []


def test_pairs_passages_and_training_say_so_too(folder: Path, scorer: CrossEncoder) -> None:
    pairs = [("a small boat", text) for text in KOREAN]
    (message,) = warnings_of(lambda: scorer.predict(pairs))
    assert re.match(SHARE.format("pairs"), message)
    assert warnings_of(lambda: scorer.predict(pairs)) == []
    model = SentenceEncoder(folder, device="cpu")
    (message,) = warnings_of(lambda: encode_chunks(model, KOREAN, 4, late=True))
    assert re.match(SHARE.format("passages"), message)
    model = SentenceEncoder(folder, device="cpu")
    rows = list(zip(KOREAN, KOREAN[::-1], strict=True))
    trainer = Trainer(model, rows, MultipleNegativesRankingLoss(), TrainingConfig(steps=2, batch_size=3))
    (message,) = warnings_of(lambda: trainer.fit(show_progress_bar=False))
    assert re.match(SHARE.format("training texts"), message)


def test_the_warning_stands_at_the_line_that_called_and_can_be_silenced(folder: Path) -> None:
    with pytest.warns(UserWarning, match="unknown tokens") as caught:
        SentenceEncoder(folder, device="cpu").encode_query(KOREAN)
    assert caught[0].filename == __file__
    model = SentenceEncoder(folder, device="cpu")
    with pytest.warns(UserWarning, match="were truncated to max_seq_length") as caught:
        model.encode("a small boat " * 40)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unknown tokens")
        model.encode(KOREAN)
