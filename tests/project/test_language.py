"""The words of the code are those of its readers: none of these, for which the field has a term."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from tests.project.code_lines import PACKAGE

# What to write in its place; a word with a capital letter is looked for as it stands.
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
    r"\branks\.(?:lead|most|same)\b": "run_on_main, all_max, broadcast",
    r"\bevaluation\.Sequence\b": "SequentialEvaluator",
    r"by=[\"'](?:words|meaning)": "lexical, dense",
    r"\b(?-i:Lexical)\b": "BM25",
    r"\b(?-i:Room)\b": "MemoryLimit",
    r"\bbeginnings\b": "tokenize_prefixes",
    r"\btelling_": "warn_once, explain_disk_full",
    r"\b(?:un)?sealed\b": "with_checksum, without_checksum",
    r"\b(?-i:Stored|_?Kept)\b": "PartEntry, DocumentRecord, CachedBackend",
    r"\btwins?\b": "copy_without_hooks",
    r"\bgap\b": "max_relative_error",
    r"\bblame\b": "load_error",
    r"are to see (?:its|their)": "forward hooks are registered",
}
# The same for names alone: in a sentence, these are words like others.
NAMES = {
    "found": "result",
    "made": "new",
    "told": "warned",
    "kept": "cached",
    "places": "positions",
    "ways": "implementations",
    "unread": "load_error",
    "halved": "half_precision_backend",
}
_IRREGULAR = (
    "built|chosen|done|drawn|found|frozen|given|held|hidden|kept|known|left|lost|made|seen|shown|taken|told|written"
)
_PARTICIPLE = re.compile(rf"_*(?:[a-z]*[^e]ed|{_IRREGULAR})(?:_(?:out|up|as|by|in|of|to))?")
VERBS = {"embed", "_embed"}
ADJECTIVES = {"padded"}  # Of a batch, as everybody says.


def texts(source: str) -> str:
    """Comments, strings and names."""
    kinds = {tokenize.COMMENT, tokenize.STRING, tokenize.NAME}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(token.string for token in tokens if token.type in kinds)


def test_words() -> None:
    wrong = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        said = texts(path.read_text(encoding="utf-8"))
        lines = set(said.split("\n"))
        for word, better in WORDS.items():
            for match in re.finditer(word, said, re.IGNORECASE):
                wrong[f"{path.relative_to(PACKAGE)}: {match[0]}"] = better
        wrong |= {f"{path.relative_to(PACKAGE)}: {name}": better for name, better in NAMES.items() if name in lines}
    assert wrong == {}


def is_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is not a verb, and what it gives is neither yes or no nor an attribute."""
    attribute = any(ast.unparse(decorator).endswith("property") for decorator in function.decorator_list)
    answer = function.returns is not None and "bool" in ast.unparse(function.returns)
    return (
        bool(_PARTICIPLE.fullmatch(function.name))
        and not (attribute or answer)
        and function.name not in VERBS | ADJECTIVES
    )


def test_functions_are_verbs() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        wrong += [f"{path.relative_to(PACKAGE)}: {node.name}" for node in functions if is_participle(node)]
    assert wrong == []
