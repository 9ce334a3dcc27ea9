"""The modules of a model and their hooks: what watches a module run has to see it run."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

FORWARD = ("_forward_hooks", "_forward_pre_hooks")
ALL = (*FORWARD, "_backward_hooks", "_backward_pre_hooks")
_tables = attrgetter("_modules", "_parameters", "_buffers", *FORWARD)
_compared = itemgetter("_modules", "_parameters")


class Tree:
    """What a walk over a model finds, and whether another walk would find the same.

    A forward leaves little of the modules in the caches of a processor, so that to visit them all takes a single
    sentence as long as a layer. This reads the least that shows whether a module was replaced, added or removed.

    Args:
        model: The model. Nothing here refers to it, so that it can be freed; a module in it that does, in a list or the
            like, keeps it.
    """

    def __init__(self, model: nn.Module) -> None:
        self.below: list[nn.Module] = _walk(model)[1:]
        tables: list[tuple[Any, ...]] = list(map(_tables, [model, *self.below]))
        children, parameters, buffers, *hooks = zip(*tables, strict=True)
        self.watched: bool = any(map(any, hooks))
        # With hooks, whose functions may refer to the model, this is not kept.
        self.lasts: bool = not self.watched and not any(isinstance(m, torch.jit.ScriptModule) for m in self.below)
        self._states = [vars(module) for module in self.below]
        self._compared = [table for each in tables for table in each[:2]]
        self._empty = [table for each in tables for table in each if not table]
        self._children = [table.values() for table in children if table]
        self._found = list(chain.from_iterable(self._children))
        self._weights = [table.values() for table in parameters if table]
        self._buffers = [table.values() for table in buffers if table]

    def holds(self, model: nn.Module) -> bool:
        """Whether the model has the modules of before, and none of them has hooks."""
        if any(self._empty):
            return False
        tables = chain(_compared(vars(model)), chain.from_iterable(map(_compared, self._states)))
        return list(chain.from_iterable(self._children)) == self._found and all(map(is_, tables, self._compared))

    def tensors(self, buffers: bool = False) -> list[Tensor]:
        """The weights that the modules have now, and their buffers."""
        found = chain.from_iterable(self._weights + self._buffers if buffers else self._weights)
        return [tensor for tensor in found if tensor is not None]


_trees: WeakKeyDictionary[nn.Module, Tree] = WeakKeyDictionary()


def tree(model: nn.Module) -> Tree:
    """What a walk over a model finds now."""
    found = _trees.get(model)
    if found is None or not found.holds(model):
        found = Tree(model)
        if found.lasts:
            _trees[model] = found
        else:
            _trees.pop(model, None)
    return found


def walk(model: nn.Module) -> list[nn.Module]:
    """The module and all below it, level by level: ``modules()``, without the cost of its names."""
    return [model, *tree(model).below]


def _walk(model: nn.Module) -> list[nn.Module]:
    found, seen = [model], {model}
    for module in found:
        if children := module._modules:
            for child in children.values():
                if child is not None and child not in seen:
                    seen.add(child)
                    found.append(child)
    return found


def first_weight(model: nn.Module) -> Tensor | None:
    """The first of ``parameters()``, found without a walk; None if there are none."""
    found: Tensor | None = next((weight for weight in model._parameters.values() if weight is not None), None)
    for child in () if found is not None else model._modules.values():
        if child is not None and (found := first_weight(child)) is not None:
            break
    return found


def watched(model: nn.Module, kinds: tuple[str, ...] = FORWARD, own: bool = False) -> bool:
    """Whether any module of a model, or the model itself as ``own``, has hooks of these kinds, or all modules have."""
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return True
    if kinds == FORWARD and not own:
        return tree(model).watched
    return any(any(map(attrgetter(kind), [model] if own else walk(model))) for kind in kinds)
