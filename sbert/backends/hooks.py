"""Hooks: what watches a model's modules run, and so has to see them run."""

from __future__ import annotations

from operator import attrgetter

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

FORWARD = ("_forward_hooks", "_forward_pre_hooks")
ALL = (*FORWARD, "_backward_hooks", "_backward_pre_hooks")


def walk(model: nn.Module) -> list[nn.Module]:
    """The module and all below it: ``modules()``, without the cost of its names, which a single sentence feels."""
    found, seen = [model], {model}
    for module in found:
        if children := module._modules:
            for child in children.values():
                if child is not None and child not in seen:
                    seen.add(child)
                    found.append(child)
    return found


def watched(model: nn.Module, kinds: tuple[str, ...] = FORWARD, own: bool = False) -> bool:
    """Whether any module of a model, or the model itself as ``own``, has hooks of these kinds, or all modules have."""
    everywhere: bool = _has_any_global_hook()  # type: ignore[no-untyped-call]
    modules = [model] if own else walk(model)
    return everywhere or any(any(map(attrgetter(kind), modules)) for kind in kinds)
