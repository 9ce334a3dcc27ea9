"""Split documents into passages at sentence ends, else between words, else between characters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sbert.inputs.arguments import check_positive
from sbert.modules.tokenizer import Tokenizing
from sbert.pipeline.tokenize import prompt_length

# A possible sentence end: punctuation, closing quotation marks and brackets, and the white space that follows.
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*|\n\s*")


class Chunk(NamedTuple):
    """A passage: ``documents[document][start:end]``.

    Args:
        document: Index of the document in the list.
        start: Index of the first character.
        end: Index of the last character plus 1.
    """

    document: int
    start: int
    end: int

    def text(self, documents: Sequence[str]) -> str:
        """The text of the passage.

        Example:
            >>> from sbert.chunking import Chunk
            >>> Chunk(0, 0, 3).text(["One. Two."])
            'One'
        """
        return documents[self.document][self.start : self.end]


def require_positions(module: object) -> Tokenizing:
    """The module, if its tokenizer gives token positions; otherwise a ValueError."""
    if not isinstance(module, Tokenizing) or not hasattr(module.tokenizer_copy(), "encode"):
        remedy = "use a Transformer with a tokenizer.json"
        raise ValueError(f"{type(module).__name__} gives no positions of its tokens in a text; {remedy}")
    return module


def token_limit(reader: Tokenizing, max_tokens: int | None, prompt: str) -> int:
    """The maximum number of tokens per passage: ``max_tokens`` if it fits, by default as many as the model can read."""
    limit = check_positive("max_tokens", max_tokens)
    if reader.max_seq_length is None:
        if limit is None:
            raise ValueError("the model has no maximum length; pass max_tokens (chunk= of an index)")
        return limit
    leading, trailing = reader.special_tokens
    before = prompt_length(reader, prompt) if prompt else leading
    room = reader.max_seq_length - before - trailing
    if (limit or 1) > room:
        left = f"the {room} that max_seq_length={reader.max_seq_length} leaves after special tokens and prompt"
        raise ValueError(f"max_tokens={limit} exceeds {left}; pass at most that, or a shorter prompt")
    return limit or room


def passages(reader: Tokenizing, documents: list[str], limit: int, overlap: int) -> Iterator[list[tuple[int, int]]]:
    """For each document, the (start, end) of its passages in characters.

    Args:
        reader: First module of an encoder.
        documents: The documents.
        limit: Maximum number of tokens per passage.
        overlap: Maximum number of tokens that a passage shares with the previous one.
    """
    special = sum(reader.special_tokens)
    for document, (ids, positions) in zip(documents, reader.locate(documents), strict=True):
        inner = slice(reader.special_tokens[0], len(ids) - reader.special_tokens[1])
        splitter, budget = _Splitter(document, positions[inner]), limit
        while True:
            spans = splitter.spans(budget, min(overlap, budget - 1))
            # A passage on its own may have more tokens than the same characters inside the document.
            texts = [document[start:end] for start, end in spans]
            excess = max(map(len, reader.tokenize(texts)), default=0) - special - limit
            if excess <= 0 or budget == 1:
                break
            budget = max(1, budget - excess)
        yield spans


class _Splitter:
    """A document and the tokens before which it may be split: the first of a sentence, a word, a character.

    Args:
        text: The document.
        positions: The (start, end) of each token, in characters.
    """

    def __init__(self, text: str, positions: list[tuple[int, int]]) -> None:
        self.text, self.count = text, len(positions)
        self.starts, self.ends = np.maximum.accumulate(np.array(positions, np.int64).reshape(-1, 2)).T.tolist()
        characters = [i for i in range(1, self.count) if self.starts[i] >= self.ends[i - 1]]
        words = [i for i in characters if text[self.starts[i] - 1].isspace() or text[self.starts[i]].isspace()]
        self.levels = [[*splits, self.count] for splits in (self._sentences(set(characters)), words, characters)]

    def _sentences(self, allowed: set[int]) -> list[int]:
        """The tokens that begin a sentence and are in ``allowed``."""
        tokens = []
        for match in _SENTENCE_END.finditer(self.text):
            begin = match.end()
            token = bisect_right(self.ends, begin)
            # A lower-case letter continues the sentence: "e.g. this", or a wrapped line.
            ends = token in allowed and not self.text[begin].islower()
            if ends and not self.text[self.starts[token] : begin].strip():
                tokens.append(token)
        return tokens

    def spans(self, limit: int, overlap: int) -> list[tuple[int, int]]:
        """The (start, end), in characters, of passages of up to ``limit`` tokens that share up to ``overlap``."""
        spans: list[tuple[int, int]] = []
        start = end = 0
        while end < self.count:
            end = self._end(end, start + limit)
            # Characters without a token belong to the token before them.
            behind = self.starts[end] if end < self.count else len(self.text)
            first, behind = self._visible(self.starts[start] if start else 0, behind)
            if first < behind and (not spans or spans[-1][1] < behind):  # Skip a passage inside the previous one.
                spans.append((first, behind))
            start = self._next(start, end, limit, overlap) if overlap and end < self.count else end
        return spans

    def _end(self, reached: int, furthest: int) -> int:
        """The last possible split after token ``reached`` and up to ``furthest``, at the best level that has one."""
        for splits in self.levels:
            split = splits[max(0, bisect_right(splits, furthest) - 1)]
            if reached < split <= furthest:
                return split
        characters = self.levels[-1]  # A single character of more tokens than the limit is not split.
        return characters[bisect_right(characters, reached)]

    def _next(self, start: int, end: int, limit: int, overlap: int) -> int:
        """The first token of the passage that follows the passage from ``start`` to ``end``."""
        sentences = self.levels[0]
        sentence = sentences[bisect_right(sentences, end)]
        # Overlap less if the overlap would keep the next sentence from fitting into its passage.
        earliest = max(start + 1, end - overlap, sentence - limit if sentence - end <= limit else 0)
        for splits in self.levels:
            split = splits[bisect_left(splits, earliest)]
            if split < end:
                return split
        return end

    def _visible(self, start: int, end: int) -> tuple[int, int]:
        """The span without surrounding white space."""
        text = self.text[start:end]
        return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
