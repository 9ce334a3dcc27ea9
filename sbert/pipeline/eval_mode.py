"""Eval mode while any thread encodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from sbert.backends.network import walk
from sbert.storage.processes import in_child

_lock = threading.RLock()
# For each model: the threads of the running calls, and the modules that were in training mode before the first.
_calls: dict[nn.Module, tuple[list[int], list[nn.Module]]] = {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradient. The last of several threads to leave restores the modes of the modules.

    If each thread restored the modes that it found, one thread could enable dropout while another one encodes.
    """
    thread = threading.get_ident()
    with _lock:
        if model not in _calls:
            _calls[model] = [], [module for module in walk(model) if module.training]
        threads, paused = _calls[model]
        threads.append(thread)
        _set_mode(paused, False)
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            threads.remove(thread)
            if not threads:
                _set_mode(_calls.pop(model)[1], True)


def _set_mode(modules: list[nn.Module], training: bool) -> None:
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            module.training = training
        else:
            vars(module)["training"] = training  # As an attribute it takes fifty times as long.


def _forget_others() -> None:
    """In a forked child, end the calls of threads that do not exist there, one of which may have held the lock."""
    global _lock
    _lock = threading.RLock()
    for model, (threads, _) in list(_calls.items()):
        threads[:] = [thread for thread in threads if thread == threading.get_ident()]
        if not threads:
            _set_mode(_calls.pop(model)[1], True)


in_child(_forget_others)
