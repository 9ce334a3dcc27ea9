"""What a training run changes in the layers of a model until it ends: frozen weights, checkpointing, compiling."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from torch import nn

from sbert.modules import Transformer
from sbert.training.config import TrainingConfig
from sbert.training.optimizers import matching


def prepared_layers(model: nn.Module, config: TrainingConfig, named: Mapping[str, nn.Parameter]) -> ExitStack:
    """Freeze some of the named weights, and prepare the layers of transformers; closing the stack restores them.

    Raises:
        ValueError: If a pattern of frozen weights matches none, or a transformer cannot be checkpointed.
    """
    with ExitStack() as undo:
        for name in matching(config.freeze or (), list(named), "freeze"):
            undo.callback(named[name].requires_grad_, named[name].requires_grad)
            named[name].requires_grad_(False)
        networks = [module.network for module in model.modules() if isinstance(module, Transformer)]
        for network in networks:
            if config.gradient_checkpointing:
                _checkpoint(network, undo)
            if config.compile:
                for layer in _layers(network):
                    layer.compile()
                    undo.callback(setattr, layer, "_compiled_call_impl", None)
        return undo.pop_all()


def _layers(network: nn.Module) -> list[nn.Module]:
    lists = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=len, default=()))


def _checkpoint(network: Any, undo: ExitStack) -> None:
    if not getattr(network, "supports_gradient_checkpointing", False):
        raise ValueError(
            f"{type(network).__name__} has no gradient checkpointing; leave gradient_checkpointing out, and pass"
            " chunk_tokens= to save memory"
        )
    if not any(getattr(module, "gradient_checkpointing", False) for module in network.modules()):
        # Older releases of transformers call it gradient checkpointing.
        kind = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
        getattr(network, f"{kind}_checkpointing_enable")({"use_reentrant": False})
        undo.callback(getattr(network, f"{kind}_checkpointing_disable"))
