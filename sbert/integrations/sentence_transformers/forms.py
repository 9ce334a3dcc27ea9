"""How a class or function of theirs is made with ours: its parameters, and what each of them is here."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from sbert.functional import SIMILARITIES, check_similarity, pairwise_similarity
from sbert.inputs.arguments import MissingNameError, publish, raise_missing
from sbert.integrations import switching

# Names that are made when they are first asked for, since they import much.
LAZY: dict[str, Callable[[], Any]] = {}


class NotOfferedMeta(type):
    """Of a class in place of one that is not here: it can be imported and inherited from, and has no instances."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(cls.__mro__[-2].__doc__)  # That of the placeholder, also of what inherits from it.


def offer(module: str) -> None:
    """``publish``, with names that are made when they are asked for; for others of theirs, what raises when used."""
    publish(module)
    namespace = vars(sys.modules[module])

    def find(name: str) -> Any:
        if name in LAZY and name in namespace["__all__"]:
            return LAZY[name]()
        if name.startswith("__") or switching.find_counterpart(name) is None:
            raise_missing(module, name, namespace["__all__"])
        doc = str(MissingNameError(f"module {module!r}", name, ()))
        return namespace.setdefault(name, NotOfferedMeta(name, (), {"__doc__": doc}))

    namespace["__getattr__"] = find


class SignatureAdapter:
    """The parameters of a class or function of theirs, in their order, from the table of ``switching``.

    Args:
        of: The class or function, after its module.

    Example:
        >>> from sbert.integrations.sentence_transformers.forms import SignatureAdapter
        >>> adapter = SignatureAdapter("losses.CoSENTLoss")
        >>> adapter.signature
        <Signature (model, scale=20.0, similarity_fct='cosine')>
        >>> adapter.translate(adapter.bind(("model",), {"scale": 10.0}))
        {'model': 'model', 'temperature': 0.1}
    """

    def __init__(self, of: str) -> None:
        self.name: str = of.rpartition(".")[2]
        rows = [row for row in switching.PARAMETERS if row.section == of]
        self.parameters: dict[str, switching.Counterpart] = {row.names[0]: row for row in rows}
        kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        defaults = {name: json.loads(row.default) if row.default else none for name, row in self.parameters.items()}
        self.signature = inspect.Signature([inspect.Parameter(name, kind, default=defaults[name]) for name in defaults])

    def bind(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Their arguments by name, with the defaults.

        Raises:
            TypeError: If there are too many or too few arguments, or one that is unknown.
            ValueError: If one is not supported beside its default.
        """
        older = {parameter.older: name for name, parameter in self.parameters.items() if parameter.older}
        try:
            bound = self.signature.bind(*args, **{older.get(name, name): value for name, value in options.items()})
        except TypeError as error:
            raise TypeError(f"{self.name}() takes {', '.join(self.parameters)}: {error}") from None
        for name, argument in bound.arguments.items():
            parameter, default = self.parameters[name], self.signature.parameters[name].default
            value = CONVERT[parameter.convert](argument)
            if parameter.how == "only" and value != default and repr(value) != default:
                reason = f"only {default!r} is supported; {parameter.here}"
                raise ValueError(f"{self.name}({name}={argument!r:.60}): {reason}")
        bound.apply_defaults()
        return bound.arguments

    def translate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Our arguments for theirs by name, as ``bind`` gives them."""
        pairs = [(self.parameters[name], value) for name, value in arguments.items()]
        taken = [(row, value) for row, value in pairs if row.how not in ("no effect", "only")]
        return {row.here or row.names[0]: CONVERT[row.convert](value) for row, value in taken}

    def function(self, ours: Callable[..., Any]) -> Any:
        """The function under their name."""

        def call(*args: Any, **options: Any) -> Any:
            return ours(**self.translate(self.bind(args, options)))

        call.__name__ = call.__qualname__ = self.name
        call.__doc__ = ours.__doc__
        call.__signature__, call.adapter = self.signature, self  # type: ignore[attr-defined]
        return call

    def make_class(self, bases: tuple[type, ...], **members: Any) -> Any:
        """The class under their name."""
        new = type(bases[0])(self.name, bases, {"adapter": self, **members})
        new.__signature__ = self.signature  # type: ignore[attr-defined]
        return new


def as_rows(vectors: Any) -> Tensor:
    """Vectors of any form as a tensor (rows, dim): an array, a list of vectors or of numbers, a single vector."""
    if isinstance(vectors, (list, tuple)) and len(vectors) and isinstance(vectors[0], Tensor):
        vectors = torch.stack(list(vectors))
    tensor = torch.as_tensor(vectors)
    return tensor if tensor.ndim > 1 else tensor[None]


def similarity_name(similarity: Any) -> str:
    """Our name of a similarity: of a name, of an entry of an enumeration, or of one of the functions of ``util``.

    Raises:
        ValueError: If it is a function of another kind.

    Example:
        >>> from sbert.integrations.sentence_transformers import SimilarityFunction
        >>> from sbert.integrations.sentence_transformers.forms import similarity_name
        >>> similarity_name(SimilarityFunction.DOT_PRODUCT), similarity_name("cosine")
        ('dot', 'cosine')
    """
    name = getattr(similarity, "value", similarity)
    if callable(name):
        label = getattr(name, "__name__", "").removeprefix("pytorch_").removeprefix("pairwise_").split("_")[0]
        name = "cosine" if label == "cos" else label
    return check_similarity(str(name))


def _name_activation(function: Any) -> str:
    function = nn.Identity() if function is None else function
    name = function.removesuffix("()") if isinstance(function, str) else type(function).__name__
    plain = getattr(nn, name)()
    if not isinstance(function, str) and repr(function) != repr(plain):
        raise ValueError(f"activation_function={function!r:.60}: only {plain!r} is supported; see register_module")
    return name


# What the table calls the functions that make our value of theirs.
CONVERT: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "inverse": lambda scale: 1 / scale,
    "similarity": lambda similarity: None if similarity is None else similarity_name(similarity),
    "activation": _name_activation,
    "function": lambda value: getattr(nn, _name_activation(value))() if isinstance(value, str) else value,
    "distance": lambda name: {"l2": "euclidean"}.get(name, name),
    "margin": lambda margin: margin or 0.0,
}


class SimilarityFunction(Enum):
    """Names of similarities."""

    COSINE = "cosine"
    DOT_PRODUCT = "dot"
    DOT = DOT_PRODUCT
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"


class ModelCardData(SimpleNamespace):
    """Facts for a model card, which are taken and not used; those that are not set are None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Copies and pickles ask for methods.
            raise AttributeError(name)


class DistanceName(str):
    """The name of a distance, which programs read as that of a function."""

    __name__ = property(str.__str__)


class DistanceMetric:
    """Names of distances, under the names of all their enumerations of them."""

    COSINE = COSINE_DISTANCE = DistanceName("cosine")
    EUCLIDEAN = DistanceName("euclidean")
    MANHATTAN = DistanceName("manhattan")
    cosine_distance = COSINE
    eucledian_distance = euclidean_distance = EUCLIDEAN


def compare_by(name: str, pairwise: bool = False, label: str = "") -> Callable[[Any, Any], Tensor]:
    """The function of a similarity that gives tensors: (rows of a, rows of b), or (rows,) if pairwise."""

    def similarity(a: Any, b: Any) -> Tensor:
        a, b = as_rows(a), as_rows(b)
        scores: Tensor = pairwise_similarity(a, b, name) if pairwise else SIMILARITIES[name](a, b)
        return scores

    similarity.__name__ = similarity.__qualname__ = label or f"{name}_sim"
    return similarity


def make_module(name: str, members: dict[str, Any]) -> ModuleType:
    """A module of their names, which import statements find, too."""
    module = ModuleType(name, f"Their ``{name.partition('sentence_transformers.')[2]}``.")
    vars(module).update(members, __all__=list(members))
    sys.modules[name] = module
    offer(name)
    return module
