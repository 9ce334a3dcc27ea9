"""Where to cut a document: at the ends of sentences, or else of words, or else of characters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sbert.inputs.arguments import check_positive
from sbert.modules.tokenizer import LocatesTokens
from sbert.pipeline.tokenize import tokenize

# Characters of documents that are tokenised together.
_WINDOW = 1 << 20
# What may end a sentence, with quotation marks and brackets that close and the white space behind it.
_STOP = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*|\n\s*")


class Chunk(NamedTuple):
    """A passage: ``documents[document][start:end]``.

    Args:
        document: The document's place in the list.
        start: Its first character.
        end: The character behind its last.
    """

    document: int
    start: int
    end: int

    def text(self, documents: Sequence[str]) -> str:
        """What it says.

        Example:
            >>> Chunk(0, 0, 3).text(["One. Two."])
            'One'
        """
        return documents[self.document][self.start : self.end]


def chunks_of(
    module: object,
    documents: Iterable[str],
    max_tokens: int | None,
    overlap: int,
    prompt: str,
) -> list[Chunk]:
    """The passages of documents, in their order.

    Args:
        module: The first one of an encoder.
        documents: The documents.
        max_tokens: Tokens in a passage at most, or None for as many as the model reads at once.
        overlap: Tokens at most that it shares with the one before it.
        prompt: Will stand before each.

    Raises:
        ValueError: If the numbers do not fit the model or each other, or it does not say where tokens stand.
    """
    reader = locating(module)
    limit = _limit(reader, max_tokens, prompt)
    if isinstance(overlap, bool) or not isinstance(overlap, (int, np.integer)):
        raise TypeError(f"overlap is {overlap!r}; pass a whole number of tokens")
    if not 0 <= overlap < limit:
        raise ValueError(f"overlap={overlap} does not fit passages of {limit} tokens; pass 0 to {limit - 1}")
    return [
        Chunk(number, start, end)
        for first, group in groups(documents)
        for number, spans in enumerate(passages(reader, group, limit, int(overlap)), start=first)
        for start, end in spans
    ]


def locating(module: object) -> LocatesTokens:
    """The module, if it says where in a text its tokens stand; else a ValueError."""
    if not isinstance(module, LocatesTokens):
        raise ValueError(f"{type(module).__name__} does not say where in a text its tokens stand; use a Transformer")
    return module


def _limit(reader: LocatesTokens, max_tokens: int | None, prompt: str) -> int:
    """Tokens in a passage at most."""
    limit = check_positive("max_tokens", max_tokens)
    if reader.max_seq_length is None:
        if limit is None:
            raise ValueError("the model reads texts of any length; say with max_tokens how long passages are to be")
        return limit
    leading, trailing = reader.special_tokens
    before = tokenize(reader, [], prompt).prompt_tokens if prompt else leading
    room = reader.max_seq_length - (before or 0) - trailing
    if room < 1:
        raise ValueError(f"the prompt fills max_seq_length={reader.max_seq_length}; pass a shorter one")
    if limit is not None and limit > room:
        raise ValueError(
            f"max_tokens={limit} exceeds the {room} that max_seq_length={reader.max_seq_length} leaves beside special"
            f" tokens and prompt; pass at most {room}"
        )
    return limit or room


def groups(documents: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Documents that are tokenised together, with the place of the first."""
    first, characters = 0, 0
    group: list[str] = []
    for document in documents:
        group.append(document)
        characters += len(document)
        if characters >= _WINDOW:
            yield first, group
            first, characters, group = first + len(group), 0, []
    if group:
        yield first, group


def passages(reader: LocatesTokens, documents: list[str], limit: int, overlap: int) -> Iterator[list[tuple[int, int]]]:
    """Start and end of the passages of each document, in characters.

    Args:
        reader: The first module of an encoder.
        documents: The documents.
        limit: Tokens in a passage at most.
        overlap: Tokens at most that it shares with the one before it.
    """
    special = sum(reader.special_tokens)
    for document, (ids, places) in zip(documents, reader.locate(documents), strict=True):
        inner = slice(reader.special_tokens[0], len(ids) - reader.special_tokens[1])
        cuts, budget = _Cuts(document, places[inner]), limit
        while True:
            spans = cuts.spans(budget, min(overlap, budget - 1))
            # Tokens at an edge may be others than in the middle of a text, and more.
            pieces = [document[start:end] for start, end in spans]
            excess = max(map(len, reader.tokenize(pieces)), default=0) - special - limit
            if excess <= 0 or budget == 1:
                break
            budget = max(1, budget - excess)
        yield spans


class _Cuts:
    """A document, and the tokens before which it may be cut: those that begin a sentence, a word, a character.

    Args:
        text: The document.
        places: Start and end of each of its tokens, in characters.
    """

    def __init__(self, text: str, places: list[tuple[int, int]]) -> None:
        self.text, self.count = text, len(places)
        self.starts, self.ends = np.maximum.accumulate(np.array(places, np.int64).reshape(-1, 2)).T.tolist()
        characters = [i for i in range(1, self.count) if self.starts[i] >= self.ends[i - 1]]
        words = [i for i in characters if text[self.starts[i] - 1].isspace() or text[self.starts[i]].isspace()]
        self.levels = [[*cuts, self.count] for cuts in (self._sentences(set(characters)), words, characters)]

    def _sentences(self, allowed: set[int]) -> list[int]:
        """The tokens that begin a sentence, if the text may be cut before them."""
        found = []
        for stop in _STOP.finditer(self.text):
            begin = stop.end()
            token = bisect_right(self.ends, begin)
            # "e.g. this" goes on, and so does a line that was wrapped.
            if (
                token in allowed
                and not self.text[begin].islower()
                and not self.text[self.starts[token] : begin].strip()
            ):
                found.append(token)
        return found

    def spans(self, limit: int, overlap: int) -> list[tuple[int, int]]:
        """Start and end of passages of at most ``limit`` tokens, that share at most ``overlap``, in characters."""
        found: list[tuple[int, int]] = []
        start = end = 0
        while end < self.count:
            end = self._end(end, start + limit)
            # A character of which the tokenizer makes no token goes with the one before it.
            behind = self.starts[end] if end < self.count else len(self.text)
            first, behind = self._visible(self.starts[start] if start else 0, behind)
            if first < behind and (not found or found[-1][1] < behind):  # It has more to say than the last one.
                found.append((first, behind))
            start = self._next(start, end, limit, overlap) if overlap and end < self.count else end
        return found

    def _end(self, reached: int, furthest: int) -> int:
        """Where a passage ends: behind what the last one has reached, and no further than it may go."""
        for cuts in self.levels:
            cut = cuts[max(0, bisect_right(cuts, furthest) - 1)]
            if reached < cut <= furthest:
                return cut
        characters = self.levels[-1]  # One of more tokens than a passage may have; it stays whole.
        return characters[bisect_right(characters, reached)]

    def _next(self, start: int, end: int, limit: int, overlap: int) -> int:
        """Where the passage behind ``start`` to ``end`` starts."""
        sentences = self.levels[0]
        sentence = sentences[bisect_right(sentences, end)]
        # The overlap gives way where the next sentence would not end within its passage for it.
        least = max(start + 1, end - overlap, sentence - limit if sentence - end <= limit else 0)
        for cuts in self.levels:
            cut = cuts[bisect_left(cuts, least)]
            if cut < end:
                return cut
        return end

    def _visible(self, start: int, end: int) -> tuple[int, int]:
        """The same without white space around it."""
        text = self.text[start:end]
        return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
