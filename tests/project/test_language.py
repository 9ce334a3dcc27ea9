"""The words of the code are those of its readers: none of these, for which the field has a term."""

from __future__ import annotations

import io
import re
import tokenize

from tests.project.code_lines import PACKAGE

# What to write in its place.
WORDS = {
    r"numbers (?:a|of a|per) (?:row|vector)": "dim",
    r"few bits": "low precision",
    r"\brough(?:ly)?\b": "low precision, prefilter",
    r"by halves": "pairwise summation",
    r"furnish": "materialize",
    r"padded_because": "padding_reason",
    r"\bguided\b": "with_guide",
    r"\bkin\b": "BERT-family models",
    r"reads_pairs": "is_cross_encoder",
    r"\b(?:whoever|nobody|somebody|anybody)\b": "the caller, no other thread, another process",
    r"\ba (?:vector|tensor|number|score|byte|bit) a (?:text|token|word|row|pair|sentence|number)\b": "one … per …",
}


def texts(source: str) -> str:
    """Comments, strings and names."""
    kinds = {tokenize.COMMENT, tokenize.STRING, tokenize.NAME}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(token.string for token in tokens if token.type in kinds)


def test_words() -> None:
    wrong = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        said = texts(path.read_text(encoding="utf-8"))
        for word, better in WORDS.items():
            for match in re.finditer(word, said, re.IGNORECASE):
                wrong[f"{path.relative_to(PACKAGE)}: {match[0]}"] = better
    assert wrong == {}
