"""Passages stand where they say, and their vectors are those of a loop over the Hugging Face model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert import Dense, Normalize, Pooling, SentenceEncoder, StaticEmbedding, Transformer, WordEmbeddings
from sbert.chunking import encode_chunks, late, split
from sbert.chunking.boundaries import Chunk
from tests import small

# 24 tokens at once, two of which are special.
ROOM = 22
STORY = (
    "A small boat lies on the quiet lake. Nobody rows it home! The red fox runs over seven green hills, e.g. one two"
    " three, before the long winter.\n\nZero one two three four five! Six seven eight nine ten. A fox. A lake. The"
    " boat runs home over the hills and nobody rows it before the winter and the long quiet lake and the small boat."
)


def model(*more: torch.nn.Module, pooling: Any = "mean", limit: int = 24, **options: Any) -> SentenceEncoder:
    reader = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64), limit)
    return SentenceEncoder(reader, Pooling(pooling, **options), *more, device="cpu")


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return model(Normalize())


def of_kind(tokenizer: Any) -> SentenceEncoder:
    table = torch.randn(tokenizer.get_vocab_size(), 4, generator=torch.Generator().manual_seed(0))
    return SentenceEncoder(StaticEmbedding(tokenizer, table), device="cpu")


def tokens_of(encoder: SentenceEncoder, text: str) -> int:
    return len(encoder[0].tokenize([text])[0]) - sum(encoder[0].special_tokens)


# --------------------------------------------------------------------------------------------------------- split


def test_passages_end_where_sentences_do(encoder: SentenceEncoder) -> None:
    documents = ["A fox. A lake. The boat runs home.", "One two. Three."]
    assert [chunk.text(documents) for chunk in split(encoder, documents, 8)] == [
        "A fox. A lake.",
        "The boat runs home.",
        "One two. Three.",
    ]
    assert split(encoder, documents, 8)[1] == Chunk(0, 15, 34)
    assert split(encoder, documents) == [Chunk(0, 0, 34), Chunk(1, 0, 15)]
    assert split(encoder, "A fox.") == [Chunk(0, 0, 6)]


def test_what_is_no_end_of_a_sentence(encoder: SentenceEncoder) -> None:
    for text, ends in [
        ("Six foxes, e.g. one fox", "one"),
        ("The red fox\nruns home now", "home"),
        ("The red fox runs home\n\nOne two three", "home"),
        ("A “fox.” Nobody runs home now", "”"),
        ("文文文。문장 one two three four", "。"),
        ("the fox runs 3.14 hills home", "runs 3.14 hills"),
    ]:
        count = tokens_of(encoder, text)
        assert split(encoder, text, count - 1)[0].text([text]).endswith(ends), text


def test_a_long_sentence_is_cut_between_words_and_a_long_word_between_characters(encoder: SentenceEncoder) -> None:
    text = "one two three four five six seven"
    assert [chunk.text([text]) for chunk in split(encoder, text, 3)] == ["one two three", "four five six", "seven"]
    text = "one caféfoxfox two"
    pieces = [chunk.text([text]) for chunk in split(encoder, text, 4)]
    assert pieces[0] == "one"
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "sizes", "expected"),
    [
        ("One two. Three four. Five six. Seven eight.", (6, 3),
         ["One two. Three four.", "Three four. Five six.", "Five six. Seven eight."]),
        # Less of it, where the next sentence would else be cut.
        ("One two three four. Five six seven eight.", (7, 4), ["One two three four.", "four. Five six seven eight."]),
    ],
)  # fmt: skip
def test_overlap_is_whole_sentences(encoder: SentenceEncoder, text: str, sizes: Any, expected: list[str]) -> None:
    assert [chunk.text([text]) for chunk in split(encoder, text, *sizes)] == expected


KINDS = [small.wordpiece(), small.byte_bpe(), small.unigram()]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab fox. !\n문。😀é\u00a0\ud83d"), max_size=60), max_size=4),
    st.integers(5, 12),
    st.integers(0, 4),
    st.sampled_from(range(3)),
)
def test_passages_hold_all_that_is_visible_and_no_more_than_they_may(
    documents: list[str], limit: int, overlap: int, kind: int
) -> None:
    encoder = of_kind(KINDS[kind])
    chunks = split(encoder, documents, limit, overlap)
    alone = [
        [each._replace(document=i) for each in split(encoder, [x], limit, overlap)] for i, x in enumerate(documents)
    ]
    assert chunks == [*itertools.chain(*alone)]
    covered = [np.zeros(len(text), bool) for text in documents]
    for chunk in chunks:
        text = chunk.text(documents)
        assert text
        assert text == text.strip()
        assert tokens_of(encoder, text) <= limit
        assert not covered[chunk.document][chunk.start : chunk.end].all()
        covered[chunk.document][chunk.start : chunk.end] = True
        if not overlap:
            assert covered[chunk.document].sum() == sum(
                c.end - c.start for c in chunks if c[:2] <= chunk[:2] and c.document == chunk.document
            )
    for text, seen in zip(documents, covered, strict=True):
        if tokens_of(encoder, text):
            assert all(character.isspace() for character, here in zip(text, seen, strict=True) if not here)
        else:
            assert not seen.any()


FOX = SentenceEncoder(WordEmbeddings(["fox"], torch.eye(1)), Pooling("mean"), device="cpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_tokens": 23}, "max_tokens=23 exceeds the 22 that max_seq_length=24 leaves"),
        ({"max_tokens": 22, "prompt": "one two "}, "exceeds the 20 that"),
        ({"prompt": "one " * 30}, "that max_seq_length=24 leaves after special tokens and prompt"),
        ({"max_tokens": 8, "overlap": 8}, "overlap=8 does not fit passages of 8 tokens; pass 0 to 7"),
        ({"max_tokens": 8, "overlap": 0.5}, r"overlap is 0\.5"),
        ({"max_tokens": 0}, "max_tokens=0 is too small"),
        ({"documents": ["a", 1]}, r"documents\[1\] is of type int"),
        ({"model": of_kind(small.wordpiece())}, "no maximum length; pass max_tokens"),
        ({"model": FOX}, "WordEmbeddings gives no positions of its tokens"),
    ],
)
def test_what_cannot_be_split(encoder: SentenceEncoder, given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        split(**{"model": encoder, "documents": ["a"], **given})


# ------------------------------------------------------------------------------------------------- plain chunking


def test_plain_passages_are_encoded_alone(encoder: SentenceEncoder) -> None:
    chunks, vectors = encode_chunks(encoder, [STORY, " ", "A fox."], 12, 3)
    assert chunks == split(encoder, [STORY, " ", "A fox."], 12, 3)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, encoder.encode([chunk.text([STORY, " ", "A fox."]) for chunk in chunks]))
    for late_too in (False, True):
        assert encode_chunks(encoder, ["", "  "], late=late_too)[0] == []
        assert encode_chunks(encoder, [], late=late_too)[1].shape == (0, 16)
        shape = encode_chunks(encoder, [STORY], 9, truncate_dim=4, late=late_too)[1].shape
        assert shape == (len(split(encoder, [STORY], 9)), 4)


# -------------------------------------------------------------------------------------------------- late chunking


def by_hand(encoder: SentenceEncoder, text: str, chunks: list[Chunk], prompt: str = "") -> np.ndarray:
    """Late chunking of one document that fits the model, by the Hugging Face model and a loop over its tokens."""
    given = encoder.tokenizer(prompt + text, return_offsets_mapping=True, return_tensors="pt")
    offsets = given.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        hidden = encoder[0].auto_model(**given).last_hidden_state[0].numpy()
    vectors = []
    for number, chunk in enumerate(chunks):
        own = []
        for place, (start, end) in enumerate(offsets):
            special = start == end
            inside = start - len(prompt) >= chunk.start and end - len(prompt) <= chunk.end
            begins = number == 0 and (place == 0 or (not special and end <= len(prompt)))
            if (not special and inside) or begins or (number == len(chunks) - 1 and place == len(offsets) - 1):
                own.append(hidden[place])
        vector = np.mean(own, axis=0)
        vectors.append(vector / np.linalg.norm(vector))
    return np.array(vectors)


def test_late_passages_are_those_of_a_loop() -> None:
    wide = model(Normalize(), limit=64)
    documents = ["A small boat. Nobody rows it home! The red fox runs.", "", "One two. Three four five.", "Lake"]
    chunks, vectors = encode_chunks(wide, documents, 6, late=True)
    assert len(chunks) == 6
    for row, text in enumerate(documents):
        own = [place for place, chunk in enumerate(chunks) if chunk.document == row]
        expected = by_hand(wide, text, [chunks[place] for place in own])
        np.testing.assert_allclose(vectors[own], expected.reshape(-1, 16), atol=1e-6)
    _, plain = encode_chunks(wide, documents, 6)
    assert abs(plain[:3] - vectors[:3]).max() > 1e-2  # They do look around.


@pytest.mark.parametrize("included", [True, False])
def test_late_with_a_prompt(included: bool) -> None:
    wide, text, prompt = model(Normalize(), limit=64, include_prompt=included), "One two. Three four. Five.", "red fox "
    whole = [Chunk(0, 0, len(text))]
    _, vectors = encode_chunks(wide, text, chunks=whole, late=True, prompt=prompt)
    np.testing.assert_allclose(vectors, wide.encode([text], prompt=prompt), atol=1e-6)
    chunks, vectors = encode_chunks(wide, text, 4, late=True, prompt=prompt)
    assert len(chunks) == 3
    expected = by_hand(wide, text, chunks, prompt)
    np.testing.assert_allclose(vectors[1:], expected[1:], atol=1e-6)
    assert np.allclose(vectors[0], expected[0], atol=1e-6) == included


@pytest.mark.parametrize("pooling", ["mean", "max", "mean_sqrt_len", "weightedmean", ["mean", "max"]])
def test_one_passage_of_a_whole_document_is_the_document(pooling: Any) -> None:
    width = 16 if isinstance(pooling, str) else 32
    chain = model(Dense(width, 8), Normalize(), pooling=pooling, limit=64)
    texts = ["  A small boat lies.  ", "The red fox — runs!\n", "Lake"]
    blank = [*texts, "", " \n"]
    for late_too in (False, True):
        whole = [Chunk(row, 0, len(text)) for row, text in enumerate(blank)]
        _, vectors = encode_chunks(chain, blank, chunks=whole, late=late_too)
        np.testing.assert_allclose(vectors, chain.encode(blank), atol=1e-6)
    _, vectors = encode_chunks(chain, texts, late=True)
    np.testing.assert_allclose(vectors, chain.encode(texts), atol=1e-6)


def test_white_space_that_is_a_token_does_not_overfill_a_passage() -> None:
    reader = Transformer(small.bert_model(), small.wrapped(small.byte_bpe(), 64), 24)
    encoder = SentenceEncoder(reader, Pooling(), device="cpu")
    text = "x" * ROOM + "\n \n"
    chunks, vectors = encode_chunks(encoder, text, late=True)
    assert chunks == [Chunk(0, 0, ROOM)]
    ids = torch.tensor([reader.tokenizer("x" * ROOM).input_ids])
    assert ids.shape == (1, 24)
    with torch.no_grad():
        hidden = reader.auto_model(ids).last_hidden_state[0, :-1]  # </s> comes after the white space.
    np.testing.assert_allclose(vectors[0], hidden.mean(0), atol=1e-6)


@pytest.mark.parametrize("part", [4, 32])
def test_windows_of_a_long_document(encoder: SentenceEncoder, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each passage is pooled from one window, and no window begins or ends close by, but where the document does."""
    monkeypatch.setattr(late, "_PART", part)
    chunks = split(encoder, STORY, 6)
    (ids, places), reader = encoder[0].locate([STORY])[0], encoder[0]
    passages = [(row, chunk.start, chunk.end) for row, chunk in enumerate(chunks)]
    windows = list(late._windows(reader, STORY, (ids, places), passages, "", np.arange(len(passages))))
    assert len(windows) > 3
    assert sorted(row for window in windows for row, _, _ in window.passages) == list(range(len(chunks)))
    expected = np.zeros((len(chunks), 16))
    for window in windows:
        assert len(window.ids) <= 24
        with torch.no_grad():
            hidden = reader.auto_model(torch.tensor([window.ids])).last_hidden_state[0].numpy()
        for row, first, behind in window.passages:
            text = reader.tokenizer.decode(window.ids[first:behind], skip_special_tokens=True)
            assert text.replace(" ", "") == STORY[chunks[row].start : chunks[row].end].lower().replace(" ", "")
            assert first >= ROOM // part or window.ids[:8] == ids[:8]
            assert behind <= len(window.ids) - ROOM // part or window.ids[-8:] == ids[-8:]
            expected[row] = hidden[first:behind].mean(0) / np.linalg.norm(hidden[first:behind].mean(0))
    _, vectors = encode_chunks(encoder, STORY, 6, late=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_a_document_does_not_see_the_others(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [STORY, "A fox.", STORY[:150], "One two. Three.", STORY]
    chunks, vectors = encode_chunks(encoder, documents, 7, 2, late=True)
    for row, text in enumerate(documents):
        own = [place for place, chunk in enumerate(chunks) if chunk.document == row]
        np.testing.assert_allclose(vectors[own], encode_chunks(encoder, text, 7, 2, late=True)[1], atol=1e-6)
    monkeypatch.setattr("sbert.pipeline.tokenize._TOGETHER", 10)
    again, others = encode_chunks(encoder, documents, 7, 2, late=True, batch_tokens=30)
    assert again == chunks
    np.testing.assert_allclose(others, vectors, atol=1e-6)
    backwards, others = encode_chunks(encoder, documents, chunks=chunks[::-1], late=True)
    assert backwards == chunks[::-1]
    np.testing.assert_allclose(others[::-1], vectors, atol=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "lasttoken", ["mean", "cls"]])
def test_late_chunking_needs_all_tokens(pooling: Any) -> None:
    with pytest.raises(ValueError, match=r"pooling such as mean, and the model's pooling is '(cls|lasttoken)'"):
        encode_chunks(model(pooling=pooling), [STORY], late=True)
    with pytest.raises(ValueError, match="StaticEmbedding gives none; pass late=False"):
        encode_chunks(of_kind(small.wordpiece()), [STORY], 8, late=True)


@pytest.mark.parametrize(
    ("text", "chunks", "message"),
    [
        ("A  fox", [(0, 0, 1), (0, 1, 2)], r"chunks\[1\] has 0 tokens"),
        (STORY, [(0, 0, len(STORY))], r"chunks\[0\] has \d+ tokens, and the model can read 22 at once"),
        ("A fox", [(1, 0, 1)], r"chunks\[0\]=\(1, .* is no part of the 1 documents"),
        ("A fox", [(0, 0, 6)], r"chunks\[0\]=\(0, 0, 6\) is no part"),
        ("A fox", [(0, 3, 3)], r"chunks\[0\]=\(0, 3, 3\) is no part"),
        ("A fox", [(0, 0, 0)], r"chunks\[0\]=\(0, 0, 0\) is no part"),
        ("A fox", [(0, -1, 2)], r"chunks\[0\]=\(0, -1, 2\) is no part"),
    ],
)
def test_passages_that_are_none(encoder: SentenceEncoder, text: str, chunks: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_chunks(encoder, [text], chunks=chunks, late=True)
    with pytest.raises(ValueError, match="pass either chunks"):
        encode_chunks(encoder, [text], 4, chunks=chunks)
