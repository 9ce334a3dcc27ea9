"""Where to cut a document: at the ends of sentences, or else of words, or else of characters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from sbert.modules.tokenization import LocatesTokens

# What may end a sentence, with quotation marks and brackets that close and the white space behind it.
_STOP = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*|\n\s*")


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
