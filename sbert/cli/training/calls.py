"""Names with parameters, as ``matryoshka(ranking(temperature=0.02), dims=[256, 64])``: read without running code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sbert.inputs.arguments import nearest_argument

Made = TypeVar("Made")


@dataclass(frozen=True)
class Call:
    """A name with its parameters, whose values may be calls as well."""

    name: str
    values: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)

    def within(self) -> list[Call]:
        """The call itself, and those among its parameters.

        Example:
            >>> [call.name for call in parsed("sum((mse, 1.0), (angle(), 0.5))", ["sum", "mse", "angle"]).within()]
            ['sum', 'mse', 'angle']
        """
        return [self, *(call for value in (*self.values, *self.named.values()) for call in _calls(value))]

    def made(self, make: Callable[[Call], Any]) -> Call:
        """The call with what ``make`` returns in the place of the calls among its parameters."""
        named = {name: _made(value, make) for name, value in self.named.items()}
        return Call(self.name, [_made(value, make) for value in self.values], named)


def parsed(text: str, known: Iterable[str], what: str = "loss") -> Call:
    """Read a name with parameters.

    Args:
        text: As in Python; words that are not known names are texts, and a hyphen may stand for an underscore.
        known: The names that are calls.
        what: What errors call such a name.

    Raises:
        ValueError: If the text has another form, or the name is unknown; the message says the nearest known one.

    Example:
        >>> parsed("online-contrastive(margin=0.4, distance=cosine)", ["online-contrastive"])
        Call(name='online-contrastive', values=[], named={'margin': 0.4, 'distance': 'cosine'})
    """
    names = {name.replace("-", "_"): name for name in known}
    try:
        tree = ast.parse(_with_underscores(text, names.values()), mode="eval").body
        call: Call = _value(tree, names, is_top=True)
    except (SyntaxError, ValueError, KeyError):
        raise ValueError(f"{what}={text!r} is not of the form NAME or NAME(parameter=value, ...)") from None
    if call.name not in names.values():
        nearest = nearest_argument(call.name.replace("-", "_"), list(names))
        meant = f"; did you mean {names[nearest]!r}?" if nearest else ";"
        raise ValueError(f"{what}={call.name!r} is unknown{meant} The known ones are {', '.join(names.values())}")
    return call


def _with_underscores(text: str, known: Iterable[str]) -> str:
    """Names with underscores for hyphens: the first one, known ones and those of parameters, outside of quotes."""
    names = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    pattern = rf"""('[^']*'|"[^"]*")|^[a-z-]+|(?<![\w-])(?:{names}|[a-z][a-z-]*(?=\s*=))(?![\w-])"""
    return re.sub(pattern, lambda found: found[1] or found[0].replace("-", "_"), text.strip())


def called(call: Call, function: Callable[..., Made], what: str, given: Mapping[str, Any] | None = None) -> Made:
    """Call a function with the parameters.

    Args:
        call: The parameters, among which no calls are left.
        function: The function or class.
        what: What errors call it.
        given: Further arguments.

    Raises:
        ValueError: If a parameter is unknown or missing; the message names the nearest known one.

    Example:
        >>> called(Call("loss", [4], {}), lambda margin: margin / 2, "loss")
        2.0
    """
    signature = inspect.signature(function)
    takes = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD]
    if len(takes) == len(signature.parameters):
        for name in call.named:
            if name not in takes:
                nearest = nearest_argument(name, takes)
                meant = f"did you mean {nearest!r}? " if nearest else ""
                raise ValueError(f"{what} takes no {name!r}; {meant}It takes {', '.join(takes) or 'no parameters'}")
    try:
        signature.bind(*call.values, **call.named, **(given or {}))
    except TypeError as error:
        raise ValueError(f"{what}: {error}; it takes {', '.join(takes) or 'no parameters'}") from None
    return function(*call.values, **call.named, **(given or {}))


def _calls(value: Any) -> list[Call]:
    if isinstance(value, Call):
        return value.within()
    return [call for each in value for call in _calls(each)] if isinstance(value, (list, tuple)) else []


def _made(value: Any, make: Callable[[Call], Any]) -> Any:
    if isinstance(value, Call):
        return make(value)
    return type(value)(_made(each, make) for each in value) if isinstance(value, (list, tuple)) else value


def _value(node: ast.expr, names: Mapping[str, str], is_top: bool = False) -> Any:
    if isinstance(node, ast.Name):
        constants = {"true": True, "false": False, "none": None}
        if node.id in names or is_top:
            return Call(names.get(node.id, node.id))
        return constants.get(node.id, node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        values = [_value(each, names) for each in node.args]
        named = {str(each.arg): _value(each.value, names) for each in node.keywords}
        return Call(names.get(node.func.id, node.func.id) if is_top else names[node.func.id], values, named)
    if is_top:
        raise ValueError
    if isinstance(node, (ast.List, ast.Tuple)):
        listed = [_value(each, names) for each in node.elts]
        return listed if isinstance(node, ast.List) else tuple(listed)
    return ast.literal_eval(node)
