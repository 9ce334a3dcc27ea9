"""Where a long text may be cut so that the tokens before the cut are those of the whole text.

That holds between a letter and a space if no step of the tokenizer looks beyond them: normalizers that work on
characters, a pre-tokenizer that separates words at spaces, and no added token that contains a space. Where it separates
punctuation, too, it holds between a letter and the end of a line or a Chinese punctuation mark.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

# Letters and digits that no normalizer makes a space or nothing of, and that join nothing that a border has after them:
# Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, kana, Chinese, Hangul.
_LETTER = (
    "[0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03a9\u03b1-\u03c9\u0410-\u044f\u05d0-\u05ea"
    "\u0627-\u064a\u0905-\u0939\u3042-\u3093\u30a2-\u30f3\u4e00-\u9fff\uac00-\ud7a3]"
)
_MARKS = "\n\u3002\uff0c\uff01\uff1f\uff1b"
_SPACE, _SPACE_OR_MARK = f"{_LETTER}(?= )", f"{_LETTER}(?=[ {_MARKS}])"  # Compiled at their first use: that takes long.
# Normalizers of single characters and of what combines with them, or of the start and the end of a text.
_LOCAL = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents", "Strip", "Precompiled"}
_LOCAL |= {"Prepend"}
# Pre-tokenizers that separate words at spaces, or do not look at spaces.
_SEPARATING = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits"}
_AT_PUNCTUATION = {"BertPreTokenizer", "Whitespace", "ByteLevel"}
# Replaced patterns that match nothing across the border: spaces alone.
_SPACES = {" ", "  ", " {2,}", " +", r"\s+"}


def border(tokenizer: tokenizers.Tokenizer) -> re.Pattern[str] | None:
    """A pattern that ends where a text may be cut; None if the tokenizer may look further.

    Args:
        tokenizer: The tokenizer, without truncation.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "red": 1, "fox": 2}, unk_token="<unk>"))
        >>> border(tokenizer) is None
        True
        >>> tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> border(tokenizer).search("red fox").end()
        3
    """
    added = "".join(token.content for token in tokenizer.get_added_tokens_decoder().values())
    normalizers, steps = _steps(tokenizer.normalizer), _steps(tokenizer.pre_tokenizer)
    local = all(step["type"] in _LOCAL or _replaces_within(step) for step in normalizers)
    known = all(map(_separates_words, steps)) and not getattr(tokenizer.model, "dropout", None)
    if not (local and known and _splits(tokenizer)) or re.search(r"\s", added):
        return None
    kinds = {step["type"] for step in steps}
    plain = all(step["type"] in _LOCAL for step in normalizers) and not re.search(f"[{_MARKS}]", added)
    return re.compile(_SPACE_OR_MARK if plain and kinds & _AT_PUNCTUATION else _SPACE)


def _splits(tokenizer: tokenizers.Tokenizer) -> bool:
    """Whether words are separated in the end, whatever the steps do to a space."""
    text = tokenizer.normalizer.normalize_str("a b") if tokenizer.normalizer else "a b"
    return bool(tokenizer.pre_tokenizer) and len(tokenizer.pre_tokenizer.pre_tokenize_str(text)) > 1


def _steps(part: Any) -> list[dict[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer, as in its JSON."""
    described: dict[str, Any] = json.loads(part.__getstate__()) if part is not None else {"type": "Sequence"}
    if described["type"] != "Sequence":
        return [described]
    steps: list[dict[str, Any]] = described.get("normalizers") or described.get("pretokenizers") or []
    return steps


def _separates_words(step: dict[str, Any]) -> bool:
    kind = step["type"]
    return (
        kind in _SEPARATING
        or (kind == "ByteLevel" and step.get("use_regex", True))
        or (kind == "Metaspace" and step.get("split", True))
    )


def _replaces_within(step: dict[str, Any]) -> bool:
    """Whether a replacement matches nothing that has both the letter and the space of a border."""
    if step["type"] != "Replace":
        return False
    (kind, pattern), content = next(iter(step["pattern"].items())), step.get("content", "")
    return " " in content if pattern in _SPACES else kind == "String" and " " not in pattern
