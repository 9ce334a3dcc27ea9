"""Text in images: shortened, and in a font that has its script."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, takewhile

from sbert.inputs.arguments import warn

# Fonts for scripts that matplotlib's own font does not have, those to prefer.
_FONTS = ("Noto Sans CJK KR", "Noto Sans CJK JP", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "Unifont")


def shorten(text: str, width: int) -> str:
    """The text on one line of at most ``width`` columns of a terminal: its first words, and … if there are more.

    Example:
        >>> from sbert.visualization.text import shorten
        >>> shorten("The cat sleeps.", 8), shorten("고양이가 잔다.", 8)
        ('The cat…', '고양이…')
    """
    line = " ".join(text.split())
    if count_columns(line) <= width:
        return line
    end = sum(1 for _ in takewhile(lambda so_far: so_far < width, accumulate(map(count_columns, line))))
    space = line.rfind(" ", 0, end + 1)
    return line[: space if space > end // 2 else end].rstrip() + "…" if width > 0 else ""


def count_columns(text: str) -> int:
    """The columns of a terminal that a text takes: two for wide characters, none for marks and for format characters.

    Example:
        >>> from sbert.visualization.text import count_columns
        >>> count_columns("cat"), count_columns("고양이"), count_columns("cafe\u0301")
        (3, 6, 4)
    """
    categories = map(unicodedata.category, text)
    return sum(
        0 if category in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character, category in zip(text, categories, strict=True)
    )


def choose_fonts(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The texts as the installed fonts can write them, and these fonts: matplotlib's own, and those for other scripts.

    A character that no font has becomes □, and one warning names its script and packages with fonts.

    Example:
        >>> from sbert.visualization.text import choose_fonts
        >>> choose_fonts(["A cat."])
        (['A cat.'], ['DejaVu Sans'])
    """
    from matplotlib.font_manager import findfont

    texts, families = list(texts), ["DejaVu Sans"]
    readable = _characters_of(findfont(families[0]))
    missing = {character for text in texts for character in text} - readable
    missing = {character for character in missing if unicodedata.category(character)[0] != "C"}
    for name, path in _installed_fonts() if missing else ():
        if has := missing & _characters_of(path):
            families.append(name)
            missing, readable = missing - has, readable | has
    if missing:
        # The names of Unicode begin with the script, as THAI CHARACTER KO KAI.
        scripts = {unicodedata.name(character, "OTHER").replace("-", " ").split()[0] for character in missing}
        what = f"no installed font has the characters of {', '.join(sorted(scripts))}, which become □"
        warn(f"{what}; install one, on Debian: apt install fonts-noto-core fonts-noto-cjk")
    table = {ord(character): "□" for character in missing}
    table |= {code: "" for text in texts for code in map(ord, text) if chr(code) not in readable | missing}
    return [text.translate(table) for text in texts], families


def _installed_fonts() -> list[tuple[str, str]]:
    """Name and path of each upright font, those to prefer first; also of fonts newer than matplotlib's list of them."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = {font.fname for font in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - listed):
        with suppress(OSError, RuntimeError):  # A damaged font, or one of bitmaps only.
            fontManager.addfont(path)
    upright = {font.name: font.fname for font in fontManager.ttflist if font.style == "normal" and font.weight == 400}
    upright.pop("Last Resort High-Efficiency", None)  # It has a box for every character.
    names = sorted(upright, key=lambda name: (name not in _FONTS, "Sans" not in name, "Mono" in name, name))
    return [(name, upright[name]) for name in names]


@lru_cache(maxsize=512)
def _characters_of(path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    return frozenset(map(chr, get_font(path).get_charmap()))
