"""Which texts consist mostly of unknown tokens, or of single letters of an alphabet without words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt


class TokenKinds:
    """Finds the texts of which at least half of the tokens are unknown, or single letters of an alphabet without words.

    Latin letters, Chinese characters and Hangul syllables are words; punctuation, symbols and special tokens do not
    count, and a byte of a character counts as a quarter.

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

    def find_unreadable(
        self, ids: npt.NDArray[np.int32], owners: npt.NDArray[np.int64], count: int
    ) -> npt.NDArray[np.bool_]:
        """Whether each text consists mostly of unknown tokens.

        Args:
            ids: The tokens of all texts.
            owners: The text of each token, from 0 to ``count`` - 1.
            count: Number of texts.

        Shape:
            ids, owners: (tokens,). Output: (count,).
        """
        tokens, inverse = np.unique(ids, return_inverse=True)
        result, words = np.ones(count, bool), set[str]()
        for _ in range(2):  # A large vocabulary takes a second: it is looked at only if it may matter.
            texts = zip(tokens.tolist(), self._texts(tokens.tolist()), strict=True)
            kinds = np.array([self._weigh(token, text, words) for token, text in texts], float)[inverse]  # (tokens,)
            result = (np.bincount(owners, kinds > 0, count) > 0) & (np.bincount(owners, kinds, count) >= 0)
            if not result.any():
                break
            words = self._words
        return result

    @cached_property
    def _words(self) -> set[str]:
        """The alphabets of which the vocabulary has more words than letters."""
        texts = self._texts(range(self._size))
        words, letters = (Counter(_alphabet(text[:1]) for text in texts if (len(text) > 1) == i) for i in (True, False))
        return {name for name in words if words[name] > letters[name]}

    def _texts(self, tokens: Iterable[int]) -> list[str]:
        """The text of each token, without the marks for the start and the inside of a word."""
        texts = self._decode([[token] for token in tokens], skip_special_tokens=False)
        return [text.strip(" ▁").removeprefix("##") for text in texts]

    def _weigh(self, token: int, text: str, words: set[str]) -> float:
        if token == self.unknown_id or (len(text) == 1 and _alphabet(text) and _alphabet(text) not in words):
            return 1
        return 0.25 if "\ufffd" in text else -any(map(str.isalnum, text)) * (token not in self._special)


def _alphabet(letter: str) -> str:
    """The name of the alphabet of a letter; empty for what is a word, and for what is no letter.

    Example:
        >>> [_alphabet(letter) for letter in "aл猫가"]
        ['', 'CYRILLIC', '', '']
    """
    name = unicodedata.name(letter, "") if letter and unicodedata.category(letter)[0] in "LM" else ""
    return "" if name.startswith(("LATIN", "CJK", "HANGUL SYL", "MODIFIER", "COMBINING")) else name.partition(" ")[0]
