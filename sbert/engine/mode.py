"""Eval mode while anybody encodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

_lock = threading.Lock()
# For each model: how many calls are under way, and which of its modules were training before the first.
_calls: WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]] = WeakKeyDictionary()


def walk(model: nn.Module) -> list[nn.Module]:
    """The module and all below it: ``modules()``, without the cost of its names, which a single sentence feels."""
    found, seen = [model], {model}
    for module in found:
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                found.append(child)
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradient; the last of several threads to leave puts the modules' modes back.

    Were each thread to put back what it found, one would switch dropout on under another.
    """
    with _lock:
        count, paused = _calls.get(model, (0, []))
        if count == 0:
            paused = [module for module in walk(model) if module.training]
            for module in paused:
                module.training = False
        _calls[model] = (count + 1, paused)
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            count, paused = _calls[model]
            if count == 1:
                for module in paused:
                    module.training = True
                del _calls[model]
            else:
                _calls[model] = (count - 1, paused)
