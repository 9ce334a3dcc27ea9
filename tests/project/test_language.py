"""The words of the code are those of its readers: none of these, for which the field has a term."""

from __future__ import annotations

import ast
import re

from tests.project.code_lines import PACKAGE
from tests.project.names import ambiguous_files, ambiguous_names, vague_variables, wrong_words

_IRREGULAR = (
    "built|chosen|done|drawn|found|frozen|given|held|hidden|kept|known|left|lost|made|seen|shown|taken|told|written"
)
_PARTICIPLE = re.compile(rf"_*(?:[a-z]*[^e]ed|{_IRREGULAR})(?:_(?:out|up|as|by|in|of|to))?")
NO_PARTICIPLES = {"embed", "_embed", "padded"}  # The last one of a batch, as everybody says.


def test_words() -> None:
    assert wrong_words() == {}


def test_functions_are_verbs() -> None:
    """But for attributes, and for those that answer yes or no."""
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _PARTICIPLE.fullmatch(node.name):
                attribute = any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)
                answer = node.returns is not None and "bool" in ast.unparse(node.returns)
                if not attribute and not answer and node.name not in NO_PARTICIPLES:
                    wrong.append(f"{path.relative_to(PACKAGE)}: {node.name}")
    assert wrong == []


def test_a_name_has_one_meaning_and_says_it() -> None:
    assert ambiguous_names() == {}
    assert ambiguous_files() == {}
    assert vague_variables() == []
