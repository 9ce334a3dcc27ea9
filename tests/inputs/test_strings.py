"""Every str gets a finite vector; everything that is not a str gets a TypeError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbert import SentenceEncoder
from tests.backends.test_families import build, ours

ANY_TEXT = st.one_of(
    st.text(max_size=60),
    # Control characters, lone halves of surrogate pairs, and what has no name yet.
    st.text(st.characters(categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"]), max_size=20),
    st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: text * 40),
    st.text("ab[]<s>/CLSEPUNKMASKpad ▁##Ġ", max_size=40),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SentenceEncoder]:
    """One for each kind of tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    families = {"wordpiece": "bert", "byte-level": "qwen3", "unigram": "t5-encoder"}
    return {name: ours(build(family, folder / name)) for name, family in families.items()}


def check(model: SentenceEncoder, texts: list[str]) -> None:
    """Finite, and the first ones the same alone as in the batch."""
    vectors = model.encode(texts, on_truncate="ignore")
    assert vectors.shape == (len(texts), model.get_sentence_embedding_dimension())
    assert np.isfinite(vectors).all()
    for text, vector in zip(texts[:4], vectors, strict=False):
        assert np.abs(model.encode(text, on_truncate="ignore") - vector).max() <= 1e-6


@pytest.mark.parametrize("name", ["wordpiece", "byte-level", "unigram"])
@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(ANY_TEXT, min_size=20, max_size=20))
def test_generated_strings(models: dict[str, SentenceEncoder], name: str, texts: list[str]) -> None:
    check(models[name], texts)


@pytest.mark.parametrize("name", ["wordpiece", "byte-level", "unigram"])
@pytest.mark.parametrize(
    "text",
    [
        *("", "\t\n\r  \u3000", "\0", "a\udfffb", "\ud83d\ude00 halves", "\ufeff\u200b\u202e"),
        "x" * 200_000,
        "lake boat " * 20_000,
        "[CLS] [SEP] [PAD] <s> </s> <pad>",
    ],
    ids=lambda text: ascii(text)[:16] + f"-{len(text)}",
)
def test_odd_strings(models: dict[str, SentenceEncoder], name: str, text: str) -> None:
    check(models[name], [text, "a small boat"])


def test_halves_of_a_pair_are_one_character(model: SentenceEncoder) -> None:
    """As JSON decoders leave them that do not join them."""
    joined = model.encode("smile \U0001f600")
    np.testing.assert_array_equal(model.encode("smile \ud83d\ude00"), joined)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "NoneType"), (float("nan"), "float"), (b"boat", "bytes"), (["boat"], "list"), (pd.NA, "NAType")],
)
def test_what_is_no_string(model: SentenceEncoder, value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"sentences\[2\] is of type {kind} "):
        model.encode(["boat", "lake", value, "fox"])


def test_the_name_of_a_file_is_no_text(model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # A relative name: that of the folder may be longer than the model's 64 tokens.
    path = Path("texts.txt")
    expected = model.encode(str(path))  # There is no such file yet.
    path.write_text("a small boat\n", encoding="utf-8")
    with pytest.warns(
        UserWarning, match=r"'texts\.txt' is the name of a file; .* pass sbert\.data\.Texts\(path\)"
    ) as told:
        np.testing.assert_array_equal(model.encode_query(str(path)), expected)
    assert (len(told), told[0].filename) == (1, __file__)
    with pytest.raises(TypeError, match=r"of type PosixPath; .* texts of a file sbert\.data\.Texts\(path\)"):
        model.encode(path)


@pytest.mark.parametrize("value", [None, 3, b"boat", {"text": "boat"}, {"boat"}, np.array("boat"), np.array([["a"]])])
def test_what_is_no_list_of_strings(model: SentenceEncoder, value: Any) -> None:
    with pytest.raises(TypeError, match=r"sentences is (of type|an array of shape|a dict with the columns)"):
        model.encode(value)
