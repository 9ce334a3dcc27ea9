"""Of a long text only a prefix is tokenized; the ids are exactly those of the whole text."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from sbert import SentenceEncoder
from sbert.chunking import encode_chunks
from sbert.modules.borders import border
from sbert.modules.tokenizer import FastTokenizer
from sbert.pipeline import tokenize as tokenizing
from sbert.pipeline.tokenize import tokenize
from tests import small


def changed(make: Callable[[], Tokenizer], **parts: object) -> Tokenizer:
    tokenizer = make()
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def with_tokens() -> Tokenizer:
    """Added tokens that look at their neighbours, or take the spaces beside them."""
    tokenizer = small.wordpiece()
    tokenizer.add_tokens([AddedToken("boat", single_word=True), AddedToken("lake!", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("red", rstrip=True), AddedToken("fox文", normalized=True)])
    return tokenizer


def sentencepiece() -> normalizers.Normalizer:
    """The steps of XLM-R and T5, with the normalizer of characters that they have in a table."""
    return normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Nmt(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    )


_METASPACE = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
_DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel()])
_NFC = {"normalizer": normalizers.NFC(), "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}
FAMILIES: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any]]] = {
    "wordpiece": (small.wordpiece, {}),
    "wordpiece, cased": (
        small.wordpiece,
        {"normalizer": normalizers.BertNormalizer(lowercase=False, strip_accents=False)},
    ),
    "wordpiece, added tokens": (with_tokens, {}),
    "unigram": (small.unigram, {}),
    "unigram, sentencepiece": (small.unigram, {"normalizer": sentencepiece()}),
    "unigram, legacy": (small.unigram, {"pre_tokenizer": _METASPACE}),
    "byte-level": (small.byte_bpe, {}),
    "byte-level, NFC": (small.byte_bpe, _NFC),
    "byte-level, digits": (small.byte_bpe, {"pre_tokenizer": _DIGITS}),
}
WORDS = st.sampled_from(
    [*small.words(), *"boat lake! red fox文 [MASK] <mask> </s> don't 文 문장 文文 カ".split(), "x" * 120]
)
# What joins, vanishes, becomes a space, or combines with the character before it or after it.
ODD = st.sampled_from(
    [
        *"\u0301\u00ad\u200b\u200d\u3000\u00a0\u0600ﬁΣİß\0𝒳ㅤ文▁\ud800´3½",
        *("\t\n", "각", "##", "'s", "\U0001f468\u200d\U0001f469"),
    ]
)
SPACES = st.sampled_from([" ", "  ", "", "\n", " \n ", "   ", "。", "，", "\n\n", "！"])
TEXT = st.lists(st.tuples(st.one_of(WORDS, ODD, st.text(max_size=3)), SPACES), max_size=60).map(
    lambda parts: "".join(map("".join, parts))
)


class Reader:
    """The first module of an encoder, of which only the tokenizer is wanted."""

    def __init__(self, tokenizer: Tokenizer, limit: int) -> None:
        self.tokenize = FastTokenizer(tokenizer)
        self.max_seq_length = limit
        self.special_tokens, self.unknown_id = self.tokenize.special_tokens, self.tokenize.unknown_id
        self.border = self.tokenize.border
        self.truncation_side = "right"


@pytest.fixture(scope="module", params=FAMILIES)
def reader(request: pytest.FixtureRequest) -> Reader:
    make, parts = FAMILIES[request.param]
    reader = Reader(changed(make, **parts), 5)
    assert reader.border is not None
    assert ("。" in reader.border.pattern) == ("unigram" not in request.param)
    return reader


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT)
def test_tokens_before_any_border_are_those_of_the_whole_text(reader: Reader, text: str) -> None:
    _, trailing = reader.special_tokens
    read = [text, *(text[: found.end()] for found in reader.border.finditer(text))]
    whole, *parts = reader.tokenize(read)
    whole = whole[: len(whole) - trailing]
    for part, ids in zip(read[1:], parts, strict=True):
        assert ids[: len(ids) - trailing] == whole[: len(ids) - trailing], part


def test_ids_and_counts_are_those_of_the_whole_texts(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "_CHARACTERS", 1)
    monkeypatch.setattr(tokenizing, "_LEAST", 8)
    monkeypatch.setattr(tokenizing, "_MARGIN", 0)
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(small.words(), length)) for length in random.integers(0, 60, 40)]
    texts += ["x" * 300, "x " * 300, " " * 300, "x" * 300 + " y", "\u0301 " * 100, "red " + " " * 300]
    lengths: list[int] = []
    rust = reader.tokenize
    reader.tokenize = lambda read: lengths.extend(map(len, read)) or rust(read)
    try:
        read, total = tokenize(reader, texts, "one "), sum(lengths)
        reader.border = None
        lengths.clear()
        whole = tokenize(reader, texts, "one ")
    finally:
        reader.tokenize, reader.border = rust, rust.border
    assert total < 0.8 * sum(lengths), "otherwise nothing was saved, and nothing shown"
    for name in ("ids", "offsets", "truncated", "prompt_tokens"):
        np.testing.assert_array_equal(getattr(read, name), getattr(whole, name))


@pytest.mark.parametrize(
    "tokenizer",
    [
        changed(small.unigram, pre_tokenizer=pre_tokenizers.Metaspace(split=False)),
        changed(small.unigram, pre_tokenizer=pre_tokenizers.Split(Regex("e l"), "isolated")),
        changed(small.unigram, normalizer=normalizers.Replace(Regex("e +l"), "x")),
        changed(small.unigram, normalizer=normalizers.Replace(" ", "_"), pre_tokenizer=pre_tokenizers.Whitespace()),
        changed(small.byte_bpe, pre_tokenizer=pre_tokenizers.ByteLevel(use_regex=False)),
        changed(small.byte_bpe, model=models.BPE(dropout=0.1)),
        Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")),
    ],
    ids=["no split", "split across", "replace across", "no spaces left", "bytes without words", "random", "no steps"],
)
def test_tokenizers_that_may_look_further_read_whole_texts(tokenizer: Tokenizer) -> None:
    assert border(tokenizer) is None


def test_texts_truncated_on_the_left_are_read_whole() -> None:
    reader = Reader(small.wordpiece(), 5)
    text = "one two " * 2000 + "red fox"
    reader.truncation_side = "left"
    assert tokenize(reader, [text]).ids.tolist()[1:] == reader.tokenize(["two red fox"])[0][-4:]


def test_ten_megabytes_cost_what_a_page_costs() -> None:
    model, text = SentenceEncoder(device="cpu"), "a small boat lies on the quiet lake " * 280_000
    page = text[:20_000]
    with pytest.warns(UserWarning, match="1 of 1 sentences were truncated"):
        expected = model.encode(page)
    tracemalloc.start()
    with pytest.warns(UserWarning, match="1 of 1 sentences were truncated"):
        vector = model.encode(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(vector, expected)
    assert peak < 20e6


LONGEST = 1 << 17  # Characters that are read of a text at most, where it has too few tokens for the limit.


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("part", ["x", "fox-", "湖"])
def test_no_more_is_read_of_any_text_than_may_matter(part: str, side: str) -> None:
    """One word, punctuation and Chinese characters, among which no border is: of 8 MB a tokenizer makes gigabytes."""
    rust, lengths = FastTokenizer(small.wordpiece()), list[int]()
    reader = Reader(small.wordpiece(), 64)
    reader.tokenize = lambda texts: lengths.extend(map(len, texts)) or rust(texts)
    reader.truncation_side = side
    longest = part * (LONGEST // len(part))
    tokens = tokenize(reader, [longest, part * 2_000_000, "a fox"], "red: ")
    assert max(lengths) == LONGEST
    assert tokens.truncated.tolist() == [True, True, False], "what was not read is said"
    whole = tokenize(reader, [longest[: LONGEST - len("red: ")]], "red: ")
    assert whole.truncated.all() == (part != "x"), "one word is one token, and was read as a whole"
    if side == "right":
        row = whole.ids.tolist()
        assert tokens.ids.tolist() == [*row, *row, *tokenize(reader, ["a fox"], "red: ").ids.tolist()]


@pytest.mark.parametrize("prompt", ["a fox " * 1_400_000, "x" * 8_000_000])
def test_a_prompt_is_cut_too(prompt: str) -> None:
    model, lengths = SentenceEncoder(device="cpu"), list[int]()
    model.max_seq_length = 64
    rust = model[0].tokenize
    model[0].tokenize = lambda texts: lengths.extend(map(len, texts)) or rust(texts)
    model.prompts, model.default_prompt_name = {"long": prompt}, "long"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.encode(["lake " * number for number in range(1, 10)])
    assert "9 of 9 sentences were truncated to max_seq_length=64" in str(caught[0].message)
    assert max(lengths) < 10_000
    for late in (False, True):
        with pytest.raises(ValueError, match=r"pass .*a shorter prompt"):
            encode_chunks(model, ["A lake."], chunks=[(0, 0, 3)] if late else None, late=late)


def test_texts_are_read_in_groups(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a tokenizer is that of a group."""
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(small.words(), length)) for length in random.integers(0, 20, 40)]
    whole = tokenize(reader, texts, "one ")
    monkeypatch.setattr(tokenizing, "_TOGETHER", 100)
    rust, sizes = reader.tokenize, list[int]()
    reader.tokenize = lambda read: sizes.append(len(read)) or rust(read)
    try:
        read = tokenize(reader, texts, "one ")
    finally:
        reader.tokenize = rust
    assert len(sizes) > 10
    for name in ("ids", "offsets", "truncated", "prompt_tokens", "unreadable"):
        np.testing.assert_array_equal(getattr(read, name), getattr(whole, name))
