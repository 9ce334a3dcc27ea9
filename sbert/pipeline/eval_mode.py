"""Eval mode while any thread encodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from operator import attrgetter

import torch
from torch import nn

from sbert.backends.network import walk
from sbert.storage.processes import in_child

_lock, _is_training = threading.RLock(), attrgetter("training")
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
            modules = walk(model)
            _calls[model] = [], list(compress(modules, map(_is_training, modules)))
        threads, paused = _calls[model]
        threads.append(thread)
        for module in paused:
            _set_mode(module, False)
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            threads.remove(thread)
            _resume(model)


def _set_mode(module: nn.Module, training: bool) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        module.training = training
    else:
        vars(module)["training"] = training  # As an attribute it takes fifty times as long.


def _resume(model: nn.Module) -> None:
    """Restore the modes if no call is running."""
    threads, paused = _calls[model]
    if not threads:
        for module in paused:
            _set_mode(module, True)
        del _calls[model]


def _forget_others() -> None:
    """In a forked child, end the calls of threads that do not exist there, one of which may have held the lock."""
    global _lock
    _lock = threading.RLock()
    for model, (threads, _) in list(_calls.items()):
        threads[:] = [thread for thread in threads if thread == threading.get_ident()]
        _resume(model)


in_child(_forget_others)
