"""One factory for all their classes: it translates the arguments, and calls ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import Any, NamedTuple

from sbert.integrations import switching
from sbert.integrations.sentence_transformers.names import similarity_name


class Only(NamedTuple):
    """A parameter of theirs without an equivalent: its default, and what to do instead."""

    default: Any
    remedy: str = "leave it out"


class Form(NamedTuple):
    """How one of theirs is made with ours.

    Args:
        make: Our class, or a function.
        names: Their parameters in their order, each with ours, ``Only``, or "" for one that changes no result.
        values: Our arguments, where their default is another one than ours.
    """

    make: Callable[..., Any]
    names: Mapping[str, str | Only] = {}
    values: Mapping[str, Any] = {}


# By the names of their parameters.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "scale": lambda scale: 1 / scale,
    "similarity_fct": similarity_name,
    "distance_metric": similarity_name,
    "main_similarity": similarity_name,
    "main_similarity_function": similarity_name,
    "main_score_function": similarity_name,
    "activation_function": lambda function: "Identity" if function is None else type(function).__name__,
}


def arguments(name: str, form: Form, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Our arguments for theirs.

    Raises:
        TypeError: If there are too many arguments, or one that is unknown.
        ValueError: If one without an equivalent does not have its default.
    """
    if len(args) > len(form.names) or set(options) - set(form.names):
        raise TypeError(
            f"{name}() takes {', '.join(form.names)}; got {len(args)} by position, and {', '.join(options)}"
        )
    ours = dict(form.values)
    for theirs, value in {**dict(zip(form.names, args, strict=False)), **options}.items():
        to = form.names[theirs]
        if isinstance(to, Only):
            if value is not to.default and value != to.default:
                raise ValueError(f"{name}({theirs}={value!r:.60}): only {to.default!r} is supported; {to.remedy}")
        elif to and not (value is None and theirs in _CONVERT and theirs != "activation_function"):
            ours[to] = _CONVERT[theirs](value) if theirs in _CONVERT else value
    return ours


def factory(name: str, form: Form) -> Callable[..., Any]:
    """The function under their name that makes ours from their arguments."""

    def made(*args: Any, **options: Any) -> Any:
        return form.make(**arguments(name, form, args, options))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"``{getattr(form.make, '__name__', name).lstrip('_')}`` with the arguments {', '.join(form.names)}."
    return made


def factories(forms: Mapping[str, Form]) -> dict[str, Any]:
    """The functions of a table, by their names."""
    return {name: factory(name, form) for name, form in forms.items()}


def absent(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: what is not offered raises, with the reason of the switching guide."""

    def missing(name: str) -> Any:
        for row in re.findall(r"^\| (``.*) \| (.*) \| (.*) \|$", switching.__doc__ or "", re.MULTILINE):
            if not name.startswith("_") and any(fnmatch(name, known) for known in re.findall(r"``([^`]*)``", row[0])):
                raise ImportError(f"{name} is not offered by {module}; instead: {row[2].replace('``', '')}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing
