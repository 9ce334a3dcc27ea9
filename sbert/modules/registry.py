"""Registered modules of the caller, by their names in folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch import nn

_ModuleClass = TypeVar("_ModuleClass", bound=type[nn.Module])

# Classes of the library, which its package adds, and those of the caller.
BUILT_IN: dict[str, type[nn.Module]] = {}
REGISTERED: dict[str, type[nn.Module]] = {}


def check_free(what: str, name: str, item: object, taken: Mapping[str, object]) -> None:
    """Raise a ValueError if a name is already registered for another object.

    An object that is defined again, as in a notebook cell that is run twice, replaces the old one.
    """
    other = taken.get(name)
    if other is not None and _origin(other) != _origin(item):
        raise ValueError(
            f"the {what} {name!r} is already registered, as {'.'.join(_origin(other))}; choose another name"
        )


def _origin(thing: object) -> tuple[str, str]:
    return (str(getattr(thing, "__module__", "")), str(getattr(thing, "__qualname__", "")))


def register_module(kind: _ModuleClass) -> _ModuleClass:
    """Register a class of modules, so that models with such modules can be saved and loaded.

    The attribute ``config`` of a module has to contain all arguments of its class, as JSON values. The class has to
    be registered before a model with it is loaded: import the file that defines it.

    Args:
        kind: The class; folders store its name.

    Raises:
        TypeError: If it is not a class of modules.
        ValueError: If a class of the library or another registered class has this name.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from sbert import register_module
        >>> @register_module
        ... class Scale(nn.Module):
        ...     def __init__(self, factor: float = 1.0) -> None:
        ...         super().__init__()
        ...         self.config = {"factor": factor}
        ...
        ...     def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        ...         return self.config["factor"] * vectors
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise TypeError(f"{kind!r} is not a class of modules; decorate a class that inherits from torch.nn.Module")
    check_free("module", kind.__name__, kind, {**BUILT_IN, **REGISTERED})
    REGISTERED[kind.__name__] = kind
    return kind
