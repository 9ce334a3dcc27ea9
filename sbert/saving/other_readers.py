"""Detect whether other programs read a model folder."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sbert.modules import Pooling
from sbert.modules.registry import BUILT_IN, REGISTERED
from sbert.saving.format import POOLING_KEYS


def differences(modules: Sequence[nn.Module]) -> str | None:
    """Which parts of an encoder are the caller's own, so that no other library reads them; None if there are none."""
    modes = [mode for module in modules if isinstance(module, Pooling) for mode in module.modes]
    custom = [kind for kind in map(type, modules) if BUILT_IN.get(kind.__name__) is not kind]
    known = {*POOLING_KEYS.values(), "splade", "splade_log1p"}
    names = [*(kind.__name__ for kind in custom), *(mode for mode in modes if mode not in known)]
    if not names:
        return None
    reason = f"{', '.join(dict.fromkeys(names))} is known to sbert alone, and no other library loads this model"
    unregistered = [kind.__name__ for kind in custom if REGISTERED.get(kind.__name__) is not kind]
    remedy = f"; put @register_module before the class {', '.join(unregistered)}, so that sbert loads it"
    return reason + remedy * bool(unregistered)
