"""The user's own modules, by the names that folders give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn

Kind = TypeVar("Kind", bound=type[nn.Module])

_own: dict[str, type[nn.Module]] = {}


def check_free(what: str, name: str, own: object, known: Mapping[str, object]) -> None:
    """Raise a ValueError if a name stands for something else already.

    What is defined again, as in a notebook's cell that is run twice, takes the place of what it was before.
    """
    other = known.get(name)
    if other is not None and _origin(other) != _origin(own):
        raise ValueError(f"the {what} {name!r} is known already, as {'.'.join(_origin(other))}; choose another name")


def _origin(thing: object) -> tuple[str, str]:
    return (str(getattr(thing, "__module__", "")), str(getattr(thing, "__qualname__", "")))


def register_module(kind: Kind) -> Kind:
    """Let folders hold modules of a class of your own: what is saved with them loads again.

    A module's attribute ``config`` has to hold all arguments of its class, as values that JSON can keep. The class is
    registered wherever a model with it is loaded: import the file that defines it before.

    Args:
        kind: The class; its name is the one that stands in the folder.

    Raises:
        TypeError: If it is no class of modules.
        ValueError: If the library, or another class that is registered, has that name.

    Example:
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
        raise TypeError(f"{kind!r} is no class of modules; decorate a class that inherits from torch.nn.Module")
    check_name(kind)
    _own[kind.__name__] = kind
    return kind


def check_name(kind: type[nn.Module]) -> None:
    """Raise a ValueError if a folder could not tell a class from another one."""
    check_free("module", kind.__name__, kind, {**_built_in(), **_own})


def registered() -> dict[str, type[nn.Module]]:
    """The classes that are registered, by name."""
    return dict(_own)


def is_built_in(kind: type[nn.Module]) -> bool:
    """Whether a class is the library's."""
    return _built_in().get(kind.__name__) is kind


def _built_in() -> dict[str, Any]:
    from sbert import modules

    return {name: getattr(modules, name) for name in modules.__all__}
