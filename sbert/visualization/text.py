"""Text in images: shortened, and in a font that has its script."""

from __future__ import annotations

import unicodedata

# Fonts for scripts that matplotlib's own font does not have.
_FONTS = ("Noto Sans CJK KR", "Noto Sans CJK JP", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "Unifont")


def shorten(text: str, length: int) -> str:
    """The text on one line of at most ``length`` characters.

    Example:
        >>> shorten("A long line of text", 10)
        'A long li…'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def count_columns(text: str) -> int:
    """The columns of a terminal that a text takes: two for wide characters, none for marks and for format characters.

    Example:
        >>> count_columns("cat"), count_columns("고양이"), count_columns("cafe\u0301")
        (3, 6, 4)
    """
    categories = map(unicodedata.category, text)
    return sum(
        0 if category in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character, category in zip(text, categories, strict=True)
    )


def font_families() -> list[str]:
    """Matplotlib's font, followed by the installed fonts for other scripts."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FONTS if name in installed)]
