"""The terms of texts, which search by words compares: words in lower case, perhaps without stop words and endings."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from sbert.inputs.arguments import check_choice
from sbert.inputs.extras import needed

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, ideographs; and Hangul, where particles follow
# a word without a space.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]+"
)


class _Separators(dict[int, str]):
    """For ``str.translate``: replaces characters that are no part of a word by spaces.

    Words contain combining marks, such as the vowel signs of Hindi, which a regular expression would split at.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = char if char.isalnum() or unicodedata.category(char)[0] == "M" else " "
        return self[code]


_SEPARATORS = _Separators({0xAD: ""})  # A soft hyphen is inside a word.


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; of scripts without spaces, all pairs of adjacent characters.

    Example:
        >>> words_of("Naïve café, ＡＢＣ-12: हिन्दी")
        ['naïve', 'café', 'abc', '12', 'हिन्दी']
        >>> words_of("猫 東京都 고양이")
        ['猫', '東京', '京都', '고양', '양이']
    """
    text = unicodedata.normalize("NFKC", text).lower().translate(_SEPARATORS)
    return (text if text.isascii() else _UNSPACED.sub(_pairs, text)).split()


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join(run[place : place + 2] for place in range(max(1, len(run) - 1)))} "


# The terms of words in each language, which each thread looks up for itself: two must not use the same stemmer.
_KNOWN, _MOST_KNOWN = threading.local(), 1_000_000


class _Terms(dict[str, str]):
    """The term of each word: the word or its stem, or an empty string for a stop word."""

    def __init__(self, stop_words: Iterable[str], stem: Callable[[str], str] | None) -> None:
        super().__init__(dict.fromkeys(stop_words, ""))
        self._stem = stem

    def __missing__(self, word: str) -> str:
        self[word] = term = word if self._stem is None else self._stem(word)
        return term


def terms_of(texts: Iterable[str], language: str | None) -> Iterator[list[str]]:
    """The terms of each text. With a language, its stop words are left out and its words are stemmed.

    Raises:
        ImportError: If bm25s, which has the stop words, or PyStemmer is not installed.
        ValueError: If the language is unknown.

    Example:
        >>> list(terms_of(["The cats are sleeping."], "english"))
        [['cat', 'sleep']]
    """
    if language is None:
        return map(words_of, texts)
    with needed(f"language={language!r}", "bm25s and PyStemmer", "search", "pass language=None"):
        import Stemmer
        from bm25s import stopwords
    stemmed = Stemmer.algorithms()
    stop_words = {
        name.removeprefix("STOPWORDS_").lower(): words for name, words in vars(stopwords).items() if name.isupper()
    }
    stop_words["english"] = stop_words.pop("en_plus")
    del stop_words["en"]  # A shorter list, which finds less.
    check_choice("language", language, sorted({*stop_words, *stemmed}))
    terms: _Terms | None = getattr(_KNOWN, language, None)
    if terms is None or len(terms) > _MOST_KNOWN:
        stem = Stemmer.Stemmer(language).stemWord if language in stemmed else None
        terms = _Terms(stop_words.get(language, ()), stem)
        setattr(_KNOWN, language, terms)
    return ([term for word in words_of(text) if (term := terms[word])] for text in texts)
