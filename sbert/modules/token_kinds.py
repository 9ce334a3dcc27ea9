"""Which texts consist mostly of unknown tokens, or of single letters of another alphabet."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class TokenKinds(NamedTuple):
    """Finds texts of which at least half of the tokens are unknown, or single letters inside words of other alphabets.

    Latin letters, Chinese characters and Hangul syllables are words; punctuation, symbols and special tokens do not
    count, and a byte of a character counts as a quarter.

    Args:
        decode: Returns the texts of lists of ids.
        unknown_id: Id of the unknown token, if there is one.
    """

    decode: Callable[..., list[str]]
    unknown_id: int | None

    def find_unreadable(
        self, ids: npt.NDArray[np.int32], owners: npt.NDArray[np.int64], count: int
    ) -> npt.NDArray[np.bool_]:
        """Whether each text consists mostly of such tokens.

        Args:
            ids: The tokens of all texts.
            owners: The text of each token, from 0 to ``count`` - 1.
            count: Number of texts.

        Shape:
            ids, owners: (tokens,). Output: (count,).
        """
        tokens, inverse = np.unique(ids, return_inverse=True)
        texts = self.decode([[token, token] for token in tokens.tolist()], skip_special_tokens=True)
        weights = np.where(tokens == self.unknown_id, 1, list(map(_weigh, texts)))[inverse]  # (tokens,)
        return (np.bincount(owners, weights > 0, count) > 0) & (np.bincount(owners, weights, count) >= 0)


def _weigh(text: str) -> float:
    """1 for a token that texts in a language of the model rarely have, -1 or -2 for a word; from it twice in a row.

    A letter that begins a word may be the whole word: "и и". What counts is a letter inside a word: "лл".

    Example:
        >>> from sbert.modules.token_kinds import _weigh
        >>> [_weigh(text) for text in ("##aa", "cat cat", "##лл", "и и", "она она", "..", "\ufffd\ufffd")]
        [-1, -1, 1, 0, -2, 0, 0.25]
    """
    text = text.strip().removeprefix("##")
    if "\ufffd" in text:
        return 0.25
    letter = unicodedata.name(text[0], "") if text and unicodedata.category(text[0])[0] in "LM" else "LATIN"
    other = not letter.startswith(("LATIN", "CJK", "HANGUL SYL", "COMBINING"))
    if other and 2 <= len(text) <= 3:
        return 3 - len(text)
    return -any(map(str.isalnum, text)) * (1 + other)
