"""Which texts a vocabulary cannot spell: of unknown tokens, or of letters of an alphabet that it has no words of."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable

import numpy as np
import numpy.typing as npt

# What a token adds to a text: the text cannot be read if the sum is not negative. Punctuation, symbols and special
# tokens add nothing, and of a character that is split into bytes there are up to four pieces.
_READ, _NEUTRAL, _PIECE, _UNREAD = -4, 0, 1, 4
# The first words of the names of characters that spell no words, or are words.
_OTHERS = ("LATIN", "CJK", "HANGUL SYLLABLE", "MODIFIER", "COMBINING")


class TokenKinds:
    """Finds the texts that a model cannot read, by the ids of their tokens.

    At least half of their tokens are unknown, or single letters of an alphabet other than Latin of which the vocabulary
    has no more words than letters. Chinese characters and Hangul syllables are words.

    Args:
        decode: Returns the texts of lists of ids.
        size: Number of ids.
        special: Ids of special tokens.
        unknown: Id of the unknown token, if there is one.
    """

    def __init__(
        self, decode: Callable[..., list[str]], size: int, special: Collection[int], unknown: int | None
    ) -> None:
        self._decode, self._size, self._special, self.unknown_id = decode, size, special, unknown
        self._known: dict[int, int] = {}
        # The alphabets of words in the vocabulary; None before they are needed.
        self._alphabets: set[str] | None = None

    def find_unreadable(
        self, ids: npt.NDArray[np.int32], owners: npt.NDArray[np.int64], count: int
    ) -> npt.NDArray[np.bool_]:
        """Whether each text cannot be read.

        Args:
            ids: The tokens of all texts.
            owners: The text of each token, from 0 to ``count`` - 1.
            count: Number of texts.

        Shape:
            ids, owners: (tokens,). Output: (count,).
        """
        different, inverse = np.unique(ids, return_inverse=True)
        known, tokens = self._known, different.tolist()
        new = [token for token in tokens if token not in known]
        known.update(zip(new, map(self._kind, new, self._texts(new)), strict=True))
        kinds = np.array([known[token] for token in tokens], np.int64)[inverse]  # (tokens,)
        result = (np.bincount(owners, kinds > 0, count) > 0) & (np.bincount(owners, kinds, count) >= 0)
        if self._alphabets is not None or not result.any():
            return result
        words, letters = Counter[str](), Counter[str]()  # Only now, as a large vocabulary takes a second.
        for text in self._texts(range(self._size)):
            (letters if len(text) == 1 else words)[_alphabet(text[:1])] += 1
        self._alphabets, self._known = {name for name in words if words[name] > letters[name]}, {}
        return self.find_unreadable(ids, owners, count)

    def _texts(self, tokens: Iterable[int]) -> list[str]:
        """The text of each token, without the marks for the start and the inside of a word."""
        texts = self._decode([[token] for token in tokens], skip_special_tokens=False)
        return [text.strip(" ▁").removeprefix("##") for text in texts]

    def _kind(self, token: int, text: str) -> int:
        if token == self.unknown_id:
            return _UNREAD
        if len(text) == 1 and (alphabet := _alphabet(text)):
            return _READ if alphabet in (self._alphabets or ()) else _UNREAD
        if "\ufffd" in text:
            return _PIECE
        return _READ if any(map(str.isalnum, text)) and token not in self._special else _NEUTRAL


def _alphabet(letter: str) -> str:
    """The name of the alphabet of a letter; empty for Latin, words of one character, and what is no letter.

    Example:
        >>> [_alphabet(letter) for letter in "aл猫가"]
        ['', 'CYRILLIC', '', '']
    """
    if letter.isascii() or unicodedata.category(letter)[0] not in "LM":
        return ""
    name = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "")
    return "" if name.startswith(_OTHERS) else name.partition(" ")[0]
