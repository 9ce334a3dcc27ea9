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
VERBS = {"embed", "_embed"}
ADJECTIVES = {"padded"}  # Of a batch, as everybody says.


def test_words() -> None:
    assert wrong_words() == {}


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


def test_a_public_name_has_one_meaning() -> None:
    assert ambiguous_names() == {}
    assert ambiguous_files() == {}


def test_variables_say_what_they_hold() -> None:
    assert vague_variables(PACKAGE) == {}
