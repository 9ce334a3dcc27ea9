"""Checks of arguments that several functions share, and errors that name the nearest known argument."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dis import opmap
from importlib import import_module
from numbers import Integral, Real
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# What other libraries call their arguments: only an unknown one needs it, so nothing here depends on it.
_FOREIGN = "sbert.integrations.switching"


def nearest_argument(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to ``name``: by its initials, or by spelling (American or British); None if none is near.

    Example:
        >>> from sbert.inputs.arguments import nearest_argument
        >>> nearest_argument("normalise_embeddings", ["batch_size", "normalize_embeddings"])
        'normalize_embeddings'
        >>> nearest_argument("lr", ["loss", "learning_rate"])
        'learning_rate'
    """
    known = list(known)
    for argument in known:
        if name == "".join(word[:1] for word in argument.split("_")):
            return argument
    name, *spelling = (word.lower().replace("is", "iz").replace("_", "") for word in (name, *known))
    spelt = dict(zip(spelling, known, strict=True))
    nearest = difflib.get_close_matches(name, spelt, n=1)
    return spelt[nearest[0]] if nearest else None


def known_arguments(
    function: Callable[P, R], config: type | None = None, aliases: bool = False, more: type = object, label: str = ""
) -> Callable[P, R]:
    """Decorator: for an unknown argument, raise a TypeError that names the nearest known argument.

    Args:
        function: The function.
        config: Class of the function's argument ``config``; its arguments are searched as well.
        aliases: Whether the names of sentence-transformers are understood as well.
        more: A ``TypedDict`` of the function's ``**`` parameter.
        label: What errors call the function. Default: its name.

    Example:
        >>> from sbert.inputs.arguments import known_arguments
        >>> @known_arguments
        ... def cluster(vectors, *, clusters=None): ...
        >>> cluster([[1.0]], n_clusters=2)
        Traceback (most recent call last):
        TypeError: cluster() takes no argument 'n_clusters'; did you mean 'clusters'? It takes vectors, clusters
    """
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]
    names += inspect.get_annotations(more)
    known, takes_others = frozenset(names), more is object and any(p.kind == p.VAR_KEYWORD for p in parameters)
    variable = [p.name for p in parameters if p.kind == p.VAR_POSITIONAL]
    most = math.inf if variable else sum(p.kind == p.POSITIONAL_OR_KEYWORD for p in parameters)
    names = variable + names
    later = ", ".join(name for name in names if name in [p.name for p in parameters if p.kind == p.KEYWORD_ONLY])
    label = label or function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if not known.issuperset(options):
            if aliases:
                args, options = import_module(_FOREIGN).translate(label, names, args, options)
            if unknown := [name for name in options if name not in known and not takes_others]:
                hint = _hint(unknown[0], names, config)
                raise TypeError(f"{label}() takes no argument {unknown[0]!r}{hint} {', '.join(names)}")
        if len(args) > most:
            extra = f"{args[-1]!r:.60} by name, as one of {later}" if later else f"no more than {', '.join(names)}"
            raise TypeError(f"{label}() takes {extra}")
        return function(*args, **options)

    return call


def _hint(name: str, names: list[str], config: type | None) -> str:
    if meant := meant_argument(name, names):
        return f"; did you mean {meant!r}? It takes"
    if config is not None and (setting := meant_argument(name, list(inspect.signature(config).parameters))):
        return f"; pass config={config.__name__}({setting}=...); it takes"
    return ", only"


def meant_argument(name: str, names: list[str]) -> str | None:
    """What an unknown argument is called here: as other libraries' names are translated, else the nearest name."""
    elsewhere = import_module(_FOREIGN).SUGGESTIONS
    equivalents = [argument for argument in elsewhere.get(name, ()) if argument in names]
    return next(iter(equivalents), None) if name in elsewhere else nearest_argument(name, names)


# ---------------------------------------------------------------------------------- names of modules and of objects


class MissingNameError(AttributeError):
    """A name that a module or an object lacks. Its text is made when it is read: ``hasattr`` must be fast.

    Args:
        owner: What lacks it.
        name: The name.
        known: The names that it has.

    Example:
        >>> from sbert.inputs.arguments import MissingNameError
        >>> print(MissingNameError("module 'sbert'", "SentenceTransformer", []))
        module 'sbert' has no attribute 'SentenceTransformer'; use sbert.SentenceEncoder
    """

    def __init__(self, owner: str, name: str, known: Iterable[str]) -> None:
        super().__init__(owner, name, known)

    def __str__(self) -> str:
        owner, name, known = self.args
        return f"{owner} has no attribute {name!r}{'' if name.startswith('__') else _describe(name, known)}"


def raise_missing(module: str, name: str, known: Iterable[str]) -> NoReturn:
    """The end of a module's ``__getattr__``: an import statement would hide the text of an AttributeError.

    Raises:
        MissingNameError: The module lacks the name.
        ImportError: The same, in an import statement.
    """
    error, caller = MissingNameError(f"module {module!r}", name, known), sys._getframe(2)
    if caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]:
        raise ImportError(str(error))
    raise error


def _describe(name: str, known: Iterable[str]) -> str:
    """What a name means that is missing: one of another library, one of another package, or one that is misspelt."""
    row = import_module(_FOREIGN).find_counterpart(name)
    if row is not None and (row.how != "same" or "sbert." in row.here):
        return f"{':' if row.how == 'not here' else '; use'} {row.plain}"
    for package in ("sbert", *(f"sbert.{room}" for room in import_module("sbert").ROOMS)):
        if name in getattr(import_module(package), "__all__", ()):
            return f"; it is {package}.{name}"
    meant = meant_argument(name, [other for other in known if not other.startswith("_")])
    return f"; did you mean {meant!r}?" if meant else ""


def publish(module: str) -> None:
    """Let ``dir`` of a package list its ``__all__`` alone, and say of a name that it lacks what it is called here.

    Args:
        module: Its ``__name__``.

    Example:
        >>> from sbert import chunking
        >>> [name for name in dir(chunking) if not name.startswith("_")]
        ['Chunk', 'encode_chunks', 'split']
        >>> hasattr(chunking, "splitt")
        False
    """
    namespace = vars(sys.modules[module])

    def missing(name: str) -> NoReturn:
        raise_missing(module, name, namespace["__all__"])

    namespace["__getattr__"] = missing
    namespace["__dir__"] = lambda: sorted([*namespace["__all__"], *filter(re.compile("__").match, namespace)])


def with_aliases(function: Callable[P, R]) -> Callable[P, R]:
    """``known_arguments`` for a function that takes the names of sentence-transformers as well as ours.

    Type checkers know ours alone.
    """
    return known_arguments(function, aliases=True)


def warn(message: str) -> None:
    """Issue a warning that points to the line of the user's code, not to a line of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "sbert":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise a ValueError if ``value`` is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; pass one of {', '.join(map(repr, choices))}")


def whole(name: str, value: int) -> int:
    """Return ``value`` as an int if it is an integer, else raise a TypeError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r:.60}; pass a whole number")
    return int(value)


def check_count(name: str, value: int) -> int:
    """Return ``value`` if it is an integer of at least 1, else raise a TypeError or ValueError."""
    if whole(name, value) < 1:
        raise ValueError(f"{name}={value} is too small; pass at least 1")
    return int(value)


def check_positive(name: str, value: int | None) -> int | None:
    """Return ``value`` if it is None or an integer of at least 1, else raise a TypeError or ValueError."""
    return None if value is None else check_count(name, value)


def is_model(value: object, method: str = "encode") -> bool:
    """Whether ``value`` has this method and is not a str (which has ``encode`` as well)."""
    return not isinstance(value, str) and callable(getattr(value, method, None))


def check_model(name: str, model: object, other: str, method: str = "encode") -> None:
    """Raise a TypeError if ``model`` is not a model; ``other`` may have been passed in its place."""
    if not is_model(model, method):
        raise TypeError(
            f"{name} must be a SentenceEncoder, not of type {type(model).__name__}; pass the model first, then {other}"
        )


def check_number(name: str, value: float) -> float:
    """Return ``value`` as a float if it is real and finite, else raise a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r:.60}; pass a number")
    if not math.isfinite(value):
        raise ValueError(f"{name}={value} is not finite; pass a finite number")
    return float(value)


def check_seed(value: int) -> int:
    """Return the seed if it is an integer in [0, 2^32), else raise a TypeError or ValueError."""
    if not 0 <= whole("seed", value) < 2**32:
        raise ValueError(f"seed={value} is out of range; pass 0 to 4294967295")
    return int(value)
