"""Eval mode while anybody encodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sbert.backends.hooks import walk
from sbert.storage.processes import Lock, in_child

_lock = Lock()
# For each model: the threads of the calls under way, and which of its modules were training before the first.
_calls: WeakKeyDictionary[nn.Module, tuple[list[int], list[nn.Module]]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradient; the last of several threads to leave puts the modules' modes back.

    Were each thread to put back what it found, one would switch dropout on under another.
    """
    thread = threading.get_ident()
    with _lock:
        if model not in _calls:
            _calls[model] = [], [module for module in walk(model) if module.training]
        threads, paused = _calls[model]
        threads.append(thread)
        for module in paused:
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            threads.remove(thread)
            _resume(model)


def _resume(model: nn.Module) -> None:
    """Put the modes back if no call is under way."""
    threads, paused = _calls[model]
    if not threads:
        for module in paused:
            module.training = True
        del _calls[model]


def _forget_others() -> None:
    """In a forked child, end the calls of the threads that it does not have."""
    for model, (threads, _) in list(_calls.items()):
        threads[:] = [thread for thread in threads if thread == threading.get_ident()]
        _resume(model)


in_child(_forget_others)
