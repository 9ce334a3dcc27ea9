"""Arguments that several functions take, checked in one way."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# What sentence-transformers and scikit-learn call arguments whose names here are not like theirs; () for those that
# nothing here is like.
_ELSEWHERE = {
    "absolute_margin": ("margin",),
    "calibration_embeddings": ("ranges", "vectors"),
    "corpus_chunk_size": (),
    "corpus_embeddings": ("corpus",),
    "embeddings": ("vectors", "vectors_or_model"),
    "k": ("top_k", "clusters"),
    "metric": ("similarity",),
    "model": ("vectors_or_model", "scores"),
    "pooling_mode": ("mode",),
    "num_negatives": ("negatives",),
    "query_chunk_size": (),
    "query_embeddings": ("queries",),
    "random_state": ("seed",),
    "score_function": ("similarity",),
    "similarity": ("name",),
}


def nearest_argument(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another, British spelling or not, or has it as initials; None where none is.

    Example:
        >>> nearest_argument("normalise_embeddings", ["batch_size", "normalize_embeddings"])
        'normalize_embeddings'
        >>> nearest_argument("lr", ["loss", "learning_rate"])
        'learning_rate'
    """
    known = list(known)
    for each in known:
        if name == "".join(word[:1] for word in each.split("_")):
            return each
    spelt = {_spelling(each): each for each in known}
    found = difflib.get_close_matches(_spelling(name), spelt, n=1)
    return spelt[found[0]] if found else None


def _spelling(name: str) -> str:
    return name.lower().replace("is", "iz").replace("_", "")


def known_arguments(function: Callable[P, R], config: type | None = None) -> Callable[P, R]:
    """Have a function answer an argument that it does not take with the name of the nearest one that it does.

    Args:
        function: Without ``**`` parameters.
        config: A class of settings that the function takes as ``config``, whose arguments are looked through, too.

    Example:
        >>> @known_arguments
        ... def cluster(vectors, *, clusters=None): ...
        >>> cluster([[1.0]], n_clusters=2)
        Traceback (most recent call last):
        TypeError: cluster() takes no argument 'n_clusters'; did you mean 'clusters'? It takes vectors, clusters
    """
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    placed = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    called = function.__qualname__.removesuffix(".__init__")
    own = len(inspect.signature(function).parameters) - len(parameters)  # 1 where there is a self.

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in names:
                elsewhere = [each for each in _ELSEWHERE.get(name, ()) if each in names]
                meant = elsewhere[0] if elsewhere else None if name in _ELSEWHERE else nearest_argument(name, names)
                hint = f"; did you mean {meant!r}? It takes" if meant else ", only"
                if not meant and config is not None:
                    setting = nearest_argument(name, inspect.signature(config).parameters)
                    hint = f"; pass config={config.__name__}({setting}=...); it takes" if setting else hint
                raise TypeError(f"{called}() takes no argument {name!r}{hint} {', '.join(names)}")
        if len(args) - own > len(placed) and not any_number:
            later = ", ".join(f"{name}=" for name in names[len(placed) :]) or "nothing else"
            raise TypeError(
                f"{called}() takes {', '.join(placed)} by their places, and {len(args) - own} arguments were given;"
                f" pass the others by their names: {later}"
            )
        return function(*args, **kwargs)

    return checked


def known_arguments_or(config: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """``known_arguments`` of a function that takes settings of this class as ``config``."""
    return lambda function: known_arguments(function, config)


def warn(message: str) -> None:
    """Warn at the line of the caller's own code, however deep in this package the reason is found."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "sbert":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise a ValueError for a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; pass one of {', '.join(map(repr, choices))}")


def check_positive(name: str, value: int | None) -> int | None:
    """The number if it is whole and at least 1, or None; else raise a TypeError or ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r:.60}; pass a whole number")
    if value < 1:
        raise ValueError(f"{name}={value} is too small; pass at least 1")
    return int(value)


def check_count(name: str, value: int) -> int:
    """The number if it is whole and at least 1; else raise a TypeError or ValueError."""
    if value is None:
        raise TypeError(f"{name} is None; pass a whole number")
    return check_positive(name, value) or 1


def is_model(given: object, method: str = "encode") -> bool:
    """Whether this encodes texts, as a str, which has the method ``encode``, does not."""
    return not isinstance(given, str) and callable(getattr(given, method, None))


def check_model(name: str, model: object, other: str, method: str = "encode") -> None:
    """Raise a TypeError unless this encodes; it names the argument with which a caller may have changed places."""
    if not is_model(model, method):
        raise TypeError(
            f"{name} must be a SentenceEncoder, not of type {type(model).__name__}; pass the model first, then {other}"
        )


def check_number(name: str, value: float) -> float:
    """The number if it is real and finite; else raise a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r:.60}; pass a number")
    if not math.isfinite(value):
        raise ValueError(f"{name}={value} is not finite; pass a finite number")
    return float(value)


def check_threshold(value: float) -> float:
    """The least cosine, if it is one; else raise a TypeError or ValueError."""
    if isinstance(value, Real) and not -1 <= value <= 1:
        raise ValueError(f"threshold={value} is no cosine; pass -1 to 1")
    return check_number("threshold", value)


def check_seed(value: int) -> int:
    """The seed if it is a whole number from 0 to 2^32 - 1; else raise a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"seed is {value!r:.60}; pass a whole number")
    if not 0 <= value < 2**32:
        raise ValueError(f"seed={value} is out of range; pass 0 to 4294967295")
    return int(value)
