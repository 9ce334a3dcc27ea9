"""Detect which other programs would compute different vectors from a model folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from sbert.modules import Dense, Dropout, Normalize, Pooling, Transformer
from sbert.modules.registry import REGISTERED, is_built_in
from sbert.saving.format import POOLING_KEYS

_TEI, _LLAMA = "text-embeddings-inference", "llama.cpp's converter"
# The modules that text-embeddings-inference supports. If it finds any other, it skips every Dense as well.
_KNOWN = (Transformer, Pooling, Dense, Normalize)
_MODES = set(POOLING_KEYS.values())
_POOLINGS = ("cls", "mean", "lasttoken")
_ACTIVATIONS = ("Tanh", "Identity")


def differences(modules: Sequence[nn.Module]) -> str | None:
    """Which parts of an encoder other programs ignore or read differently, and why; None if there are none.

    According to the sources of text-embeddings-inference and of llama.cpp's ``convert_hf_to_gguf.py``. Both only read
    encoders that begin with a transformer, so others are not checked.
    """
    kinds = [type(module) for module in modules]
    reasons = _of_own(modules)
    if kinds[0] is Transformer and not reasons:
        reasons = [reason for module in modules for reason in _of_module(module)]
        lost = _join_names(kind for kind in kinds if kind not in (Transformer, Pooling, Normalize, Dropout))
        unknown = _join_names(kind for kind in kinds if kind not in _KNOWN)
        if lost and unknown:
            reasons.append(f"{_TEI} leaves out {lost}, as it does not know {unknown}")
        if lost:
            reasons.append(f"{_LLAMA} leaves out {lost}")
    return "; ".join(dict.fromkeys(reasons)) or None


def _join_names(kinds: Iterable[type[nn.Module]]) -> str:
    return ", ".join(dict.fromkeys(kind.__name__ for kind in kinds))


def _of_own(modules: Sequence[Any]) -> list[str]:
    """Reasons that concern modules and poolings defined by the user."""
    modes = [mode for module in modules if type(module) is Pooling for mode in module.modes]
    own = [type(module) for module in modules if not is_built_in(type(module))]
    names = ", ".join(dict.fromkeys([kind.__name__ for kind in own] + [m for m in modes if m not in _MODES]))
    reasons = [f"{names} is known to sbert alone, and no other library loads this model"] if names else []
    unregistered = _join_names(kind for kind in own if REGISTERED.get(kind.__name__) is not kind)
    if unregistered:
        reasons.append(f"sbert loads it once {unregistered} is registered: put @register_module before the class")
    return reasons


def _of_module(module: Any) -> list[str]:
    """Reasons that concern the settings of one module."""
    reasons = {}
    if type(module) is Pooling:
        modes, is_known = " + ".join(module.modes), list(module.modes) in [[mode] for mode in _POOLINGS]
        reasons[f"{_TEI} and {_LLAMA} pool by one of {', '.join(_POOLINGS)}, and not by {modes}"] = not is_known
        reasons[f"{_TEI} and {_LLAMA} pool the tokens of the prompt, too"] = not module.include_prompt
    elif type(module) is Dense:
        known, is_known = " and ".join(_ACTIVATIONS), module.activation in _ACTIVATIONS
        reasons[f"{_TEI} refuses {module.activation} in Dense, as it knows {known} alone"] = not is_known
        reasons[f"{_TEI} leaves out the residual of Dense"] = module.use_residual
    elif type(module) is Transformer:
        reasons[f"{_TEI} and {_LLAMA} do not put texts in lower case first"] = module.lower_case
    return [reason for reason, applies in reasons.items() if applies]
