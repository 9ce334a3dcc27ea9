"""Tokenize no more of a long text than the model reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sbert.modules.tokenizer import ReadsText

# Characters per token, and at least, that are read at first: a third of that is usual. Rarely, more are needed.
_CHARACTERS, _LEAST = 16, 1024
# Tokens beyond the limit, so that not even the last one that is kept stands near the cut.
_MARGIN = 16


def tokenize_beginnings(reader: ReadsText, texts: Sequence[str], limit: int | None) -> list[list[int]]:
    """Token ids of texts; of a text that is far longer than the limit, those of a beginning that exceeds the limit.

    They are the first ids of the whole text: see ``sbert.modules.borders``. A text that is truncated on the left, one
    without spaces, and those of a tokenizer that might look beyond a word are read as a whole.

    Args:
        reader: First module of an encoder.
        texts: The texts, including the prompt.
        limit: Longest input in tokens, including special tokens.
    """
    size = _LEAST + _CHARACTERS * (limit or 0)
    long = limit is not None and max(map(len, texts), default=0) > 2 * size
    border = getattr(reader, "border", None) if long else None
    if limit is None or border is None or getattr(reader, "truncation_side", "right") == "left":
        return reader.tokenize(list(texts))
    rows: list[list[int]] = [[]] * len(texts)
    waiting = list(range(len(texts)))
    while waiting:
        read = [_beginning(texts[row], size, border) for row in waiting]
        for row, text, ids in zip(waiting, read, reader.tokenize(read), strict=True):
            enough = len(ids) > limit + _MARGIN or len(text) == len(texts[row])
            rows[row] = ids if enough else []
        waiting = [
            row for row, text in zip(waiting, read, strict=True) if not rows[row] and len(text) < len(texts[row])
        ]
        size *= 4
    return rows


def _beginning(text: str, size: int, border: re.Pattern[str]) -> str:
    if len(text) <= 2 * size:
        return text
    found = border.search(text, size)
    return text[: found.end()] if found else text
