"""One factory for all their classes, which translates arguments and calls ours; and their similarities as our names."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dis import opmap
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sbert.functional import SIMILARITIES, check_similarity, pairwise_similarity
from sbert.integrations import switching


class Form(NamedTuple):
    """How one of theirs is made with ours.

    Args:
        make: Our class, or a function.
        names: Their parameters in their order: ``theirs=ours``; ``theirs`` where the name is the same; ``theirs=-`` for
            one that changes no result, and ``theirs!`` for one that is taken at its default alone: the table of names
            says why, and what to do instead.
        values: Our arguments, where their default is another one than ours.
    """

    make: Callable[..., Any]
    names: str = ""
    values: Mapping[str, Any] = {}

    def parameters(self) -> dict[str, str]:
        """Ours for each of theirs.

        Example:
            >>> Form(dict, "scale=temperature margin batch_size=- precision!").parameters()
            {'scale': 'temperature', 'margin': 'margin', 'batch_size': '-', 'precision!': 'precision!'}
        """
        return {part.partition("=")[0]: part.rpartition("=")[2] for part in self.names.split()}


def rows(vectors: Any) -> Tensor:
    """Vectors of any form as a tensor (rows, dim): an array, a list of vectors or of numbers, a single vector."""
    if isinstance(vectors, (list, tuple)) and len(vectors) and isinstance(vectors[0], Tensor):
        vectors = torch.stack(list(vectors))
    tensor = torch.as_tensor(vectors)
    return tensor if tensor.ndim > 1 else tensor[None]


def similarity_name(given: Any) -> str:
    """Our name of a similarity: of a name, of an entry of an enumeration, or of one of the functions of ``util``.

    Raises:
        ValueError: If it is a function of another kind.

    Example:
        >>> similarity_name(SimilarityFunction.DOT_PRODUCT), similarity_name("cosine")
        ('dot', 'cosine')
    """
    name = getattr(given, "value", given)
    if callable(name):
        label = getattr(name, "__name__", "").removeprefix("pytorch_").removeprefix("pairwise_")
        known = {"cos": "cosine", "dot": "dot", "euclidean": "euclidean", "manhattan": "manhattan"}
        name = known.get(label.split("_")[0], label)
    return check_similarity(str(name))


class SimilarityFunction(Enum):
    """Names of similarities."""

    COSINE = "cosine"
    DOT_PRODUCT = "dot"
    DOT = DOT_PRODUCT
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"

    @staticmethod
    def possible_values() -> list[str]:
        """All names."""
        return list(SIMILARITIES)

    @staticmethod
    def to_similarity_fn(similarity: Any) -> Callable[[Any, Any], Tensor]:
        """The function of a name: of each row of one and each of the other."""
        return compare_by(similarity_name(similarity))

    @staticmethod
    def to_similarity_pairwise_fn(similarity: Any) -> Callable[[Any, Any], Tensor]:
        """The function of a name: of the rows of both in turn."""
        return compare_by(similarity_name(similarity), pairwise=True)


class DistanceMetric:
    """Names of distances, under the names of all their enumerations of them."""

    COSINE = COSINE_DISTANCE = "cosine"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    cosine_distance = COSINE
    eucledian_distance = euclidean_distance = EUCLIDEAN


def compare_by(name: str, pairwise: bool = False, label: str = "") -> Callable[[Any, Any], Tensor]:
    """The function of a similarity that gives tensors: (rows of a, rows of b), or (rows,) if pairwise."""

    def similarity(a: Any, b: Any) -> Tensor:
        a, b = rows(a), rows(b)
        scores: Tensor = pairwise_similarity(a, b, name) if pairwise else SIMILARITIES[name](a, b)
        return scores

    similarity.__name__ = similarity.__qualname__ = label or f"{name}_sim"
    return similarity


def _name_activation(function: Any) -> str:
    if repr(function) != repr(plain := type(function)()):
        raise ValueError(f"activation_function={function!r:.60}: only {plain!r} is supported; see register_module")
    return type(function).__name__


# By the names of their parameters.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "scale": lambda scale: 1 / scale,
    "activation_function": lambda function: _name_activation(function or torch.nn.Identity()),
    **dict.fromkeys(
        "similarity_fct distance_metric main_similarity main_similarity_function main_score_function"
        " score_function".split(),
        lambda given: None if given is None else similarity_name(given),
    ),
}


def arguments(name: str, form: Form, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Our arguments for theirs.

    Raises:
        TypeError: If there are too many arguments, or one that is unknown.
        ValueError: If one without an equivalent does not have its default.
    """
    names = {theirs.rstrip("!"): to for theirs, to in form.parameters().items()}
    if len(args) > len(names) or set(options) - set(names):
        raise TypeError(f"{name}() takes {', '.join(names)}; got {len(args)} by position, and {', '.join(options)}")
    ours = dict(form.values)
    for theirs, value in {**dict(zip(names, args, strict=False)), **options}.items():
        if names[theirs].endswith("!"):
            row = switching.find_row(theirs, switching.DEFAULTS)
            default = None if row is None else json.loads(row.how)
            if (list(value) if isinstance(value, tuple) else value) != default:
                remedy = "leave it out" if row is None else row.here
                raise ValueError(f"{name}({theirs}={value!r:.60}): only {default!r} is supported; {remedy}")
        elif names[theirs] != "-":
            ours[names[theirs]] = _CONVERT[theirs](value) if theirs in _CONVERT else value
    return ours


def factory(name: str, form: Form) -> Callable[..., Any]:
    """The function under their name that makes ours from their arguments."""

    def make(*args: Any, **options: Any) -> Any:
        return form.make(**arguments(name, form, args, options))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Ours with the arguments {', '.join(form.parameters())}."
    return make


def factories(forms: Mapping[str, Form]) -> dict[str, Any]:
    """The functions of a table, by their names."""
    return {name: factory(name, form) for name, form in forms.items()}


def absent(module: str, section: str = "") -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: what is not offered raises, with what the switching guide says in a section.

    An import statement would hide the text of an AttributeError, so it gets an ImportError; ``hasattr`` is false.
    """

    def missing(name: str) -> Any:
        row = None if name.startswith("__") else switching.find_row(name, section)
        if row is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        caller = sys._getframe(1)
        is_import = caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]
        error = ImportError if is_import else AttributeError
        raise error(f"{name} is not offered by {module}; instead: {row.plain}")

    return missing


def make_module(name: str, members: dict[str, Any], section: str) -> ModuleType:
    """A module of their names, which import statements find, too."""
    module = ModuleType(name, f"Their ``{name.partition('sentence_transformers.')[2]}``.")
    vars(module).update(members, __all__=list(members), __getattr__=absent(name, section))
    sys.modules[name] = module
    return module
