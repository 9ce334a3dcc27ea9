"""Text in images: shortened, and in a font that has its script."""

from __future__ import annotations

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


def font_families() -> list[str]:
    """Matplotlib's font, followed by the installed fonts for other scripts."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FONTS if name in installed)]
