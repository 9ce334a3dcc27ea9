"""Text in images: shortened, and in a font that has its script."""

from __future__ import annotations

import unicodedata
from itertools import accumulate, takewhile

# Fonts for scripts that matplotlib's own font does not have.
_FONTS = ("Noto Sans CJK KR", "Noto Sans CJK JP", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "Unifont")


def shorten(text: str, width: int) -> str:
    """The text on one line of at most ``width`` columns of a terminal, with … at its end if it was longer.

    Example:
        >>> shorten("The cat sleeps.", 8), shorten("고양이가 잔다.", 8)
        ('The cat…', '고양이…')
    """
    line = " ".join(text.split())
    if count_columns(line) <= width:
        return line
    columns = accumulate(map(count_columns, line))
    return line[: sum(1 for _ in takewhile(lambda so_far: so_far < width, columns))].rstrip() + "…" if width > 0 else ""


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
