"""Arguments and methods under the names of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, SentenceEncoder

TEXTS = [f"{a} {b}" for a in ("red fox", "small boat", "quiet lake") for b in ("one", "two", "three")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "fast"}, "backend='fast' is unknown; pass one of 'auto', 'plain'"),
        ({"model_kwargs": {"device_map": "auto"}}, "model_kwargs has device_map, where dtype, attn_impl"),
        ({"model_kwargs": {"attn_implementation": "magic"}}, "attn_implementation='magic' is unknown; pass one of"),
        ({"similarity_fn_name": "nearness"}, "similarity 'nearness' is unknown"),
    ],
)
@pytest.mark.parametrize("kind", [SentenceEncoder, CrossEncoder])
def test_what_is_refused_says_what_to_do(kind: type, folder: Path, options: dict[str, Any], words: str) -> None:
    if kind is CrossEncoder and "similarity_fn_name" in options:
        words = "takes no argument 'similarity_fn_name'"
    options = {**options, "classes": 1} if kind is CrossEncoder else options
    with pytest.raises((TypeError, ValueError), match=words):
        kind(str(folder), **options)


@pytest.mark.parametrize("names", [("model", "model_name_or_path"), ("classes", "num_labels")])
def test_an_argument_under_two_names(folder: Path, names: tuple[str, str]) -> None:
    value: Any = str(folder) if "model" in names else 3
    others = {} if "model" in names else {"model": str(folder)}
    with pytest.raises(TypeError, match=f"got '{names[0]}' under two names; pass it once"):
        CrossEncoder(**dict.fromkeys(names, value), **others)


def test_arguments_reach_transformers(folder: Path) -> None:
    model = SentenceEncoder(
        folder,
        device="cpu",
        model_kwargs={"torch_dtype": "bfloat16", "attn_implementation": "eager"},
        tokenizer_kwargs={"truncation_side": "left"},
        config_kwargs={"layer_norm_eps": 0.25},
    )
    config = model[0].auto_model.config
    assert (config._attn_implementation, config.layer_norm_eps) == ("eager", 0.25)
    assert model.tokenizer.truncation_side == "left"
    assert model.dtype == torch.bfloat16
    scorer = CrossEncoder(folder, device="cpu", config_kwargs={"layer_norm_eps": 0.25}, num_labels=2, max_length=12)
    assert scorer.auto_model.config.layer_norm_eps == 0.25
    assert (scorer.num_labels, scorer.max_length) == (2, 12)


def test_what_needs_no_change(folder: Path, model: SentenceEncoder) -> None:
    """Flash attention is what runs anyway, and an enum names the similarity."""
    from sentence_transformers import SimilarityFunction

    kind, options = SimilarityFunction.DOT_PRODUCT, {"attn_implementation": "flash_attention_2"}
    other = SentenceEncoder(folder, device="cpu", similarity_fn_name=kind, model_kwargs=options)
    assert other.similarity_fn_name == "dot"
    assert np.array_equal(other.encode(TEXTS), model.encode(TEXTS))


def test_softmax_of_scores(folder: Path) -> None:
    scorer = CrossEncoder(folder, device="cpu", num_labels=3)
    assert CrossEncoder(folder, device="cpu", num_labels=2, config_kwargs={"num_labels": 3}).classes == 2
    with pytest.warns(UserWarning, match="no head that scores pairs"):
        assert CrossEncoder(folder, device="cpu", config_kwargs={"num_labels": 3}).classes == 3
    pairs = [("red fox", "boat"), ("one", "two")]
    scores = scorer.predict(pairs, activation_fn=torch.nn.Identity(), convert_to_tensor=True)
    assert np.allclose(scorer.predict(pairs, apply_softmax=True), scores.softmax(1), atol=1e-6)
    scorer.activation_fn = torch.nn.Softmax(-1)
    assert np.allclose(scorer.predict(pairs), scores.softmax(1), atol=1e-6)


def test_the_outputs_of_a_text(model: SentenceEncoder) -> None:
    (one, two), single = model.encode(TEXTS[:2], output_value=None), model.encode(TEXTS[0], output_value=None)
    for found, text in ((one, TEXTS[0]), (two, TEXTS[1]), (single, TEXTS[0])):
        assert np.array_equal(found["sentence_embedding"], model.encode(text))
        assert torch.equal(found["token_embeddings"], model.encode(text, output_value="token_embeddings"))
