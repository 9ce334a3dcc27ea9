"""What the library knows of a network: its modules, hooks and weights, their changes, and what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from sbert.backends.backend import inference_call
from sbert.inputs.arguments import whole

AnyState = TypeVar("AnyState")
_hooks_everywhere: Callable[[], bool] = _has_any_global_hook
_hooks = attrgetter("_forward_hooks", "_forward_pre_hooks")
_tables = attrgetter("_modules", "_parameters", "_forward_hooks", "_forward_pre_hooks")
_compared = itemgetter("_modules", "_parameters")
# Elements sampled from each matrix.
_SAMPLES = 16

# All that the library keeps of a model while it lives, by type. Nothing in it may refer to the model.
_states: WeakKeyDictionary[nn.Module, dict[Any, Any]] = WeakKeyDictionary()


def state_of(model: nn.Module, kind: Callable[[], AnyState]) -> AnyState:
    """What is known of a model: the one object of this type, made at its first use and freed with the model.

    Args:
        model: A network, or a whole encoder.
        kind: A class without arguments.
    """
    states: dict[Any, AnyState] = _states.setdefault(model, {})
    return states[kind] if kind in states else states.setdefault(kind, kind())


class ModuleSnapshot:
    """What a walk over a model finds, and whether another walk would find the same.

    A forward leaves little of the modules in the caches of a processor, so that to visit them all takes a single
    sentence as long as a layer. This reads the least that shows whether a module was replaced, added or removed, or has
    another forward.

    Args:
        model: The model. Nothing here refers to it, so that it can be freed; a module in it that does, in a list or the
            like, keeps it.
    """

    def __init__(self, model: nn.Module) -> None:
        modules, seen = [model], {model}
        for module in modules:  # Level by level.
            new = [child for child in module._modules.values() if child is not None and child not in seen]
            seen.update(new)
            modules.extend(dict.fromkeys(new))
        # The modules below, and what ``snapshot`` has found of them: it is current while this is.
        self.parts: dict[nn.Module, ModuleSnapshot | None] = dict.fromkeys(modules[1:])
        tables: list[tuple[Any, ...]] = list(map(_tables, modules))
        children, parameters, *hooks = zip(*tables, strict=True)
        self.has_hooks: bool = any(map(any, hooks))
        self._attributes = [vars(module) for module in self.parts]
        # A function that the caller has put in the place of a module's forward runs in that module alone.
        self.has_own_forward: bool = any("forward" in attributes for attributes in [vars(model), *self._attributes])
        # With hooks, whose functions may refer to the model, this is not kept.
        self.cacheable: bool = not self.has_hooks and not any(isinstance(m, torch.jit.ScriptModule) for m in self.parts)
        self._counts = [len(vars(model)), *map(len, self._attributes)]
        self._compared = [table for of_module in tables for table in of_module[:2]]
        self._empty = [table for of_module in tables for table in of_module if not table]
        self._children = [table.values() for table in children if table]
        self._modules = list(chain.from_iterable(self._children))
        self._weights = [table.values() for table in parameters if table]

    def is_current(self, model: nn.Module) -> bool:
        """Whether the model has the modules of before, and none of them has hooks or another attribute."""
        attributes = vars(model)
        if any(self._empty) or [len(attributes), *map(len, self._attributes)] != self._counts:
            return False
        tables = chain(_compared(attributes), chain.from_iterable(map(_compared, self._attributes)))
        return list(chain.from_iterable(self._children)) == self._modules and all(map(is_, tables, self._compared))

    def version(self) -> tuple[object, ...]:
        """What changes when weights are assigned or stepped, or hooks registered or removed."""
        weights = [weight for table in self._weights for weight in table if weight is not None]
        # Tensors that were made in inference mode have no version.
        versions = [-1 if weight.is_inference() else weight._version for weight in weights]
        return _hooks_everywhere() or self.has_hooks, list(map(Tensor.data_ptr, weights)), versions


def snapshot(model: nn.Module) -> ModuleSnapshot:
    """What a walk over a model finds now; in a call of ``encode``, one over the whole encoder is enough."""
    states, parts = _states.setdefault(model, {}), getattr(inference_call.get(), "parts", {})
    current: ModuleSnapshot | None = parts.get(model) or states.get(ModuleSnapshot)
    if current is None or not (parts.get(model) or current.is_current(model)):
        current = ModuleSnapshot(model)
        states[ModuleSnapshot] = current if current.cacheable else None
    if model in parts:
        parts[model] = current
    return current


def has_hooks(model: nn.Module, modules: bool = True) -> bool:
    """Whether forward hooks are registered on all modules there are, on this model, or on any of its ``modules``."""
    return _hooks_everywhere() or any(_hooks(model)) or (modules and snapshot(model).has_hooks)


class Samples:
    """Samples of each weight of a model at equal distances, compared with their current values.

    Edits through ``.data`` (merged adapters, moving averages) do not increase the version of a tensor. A change of a
    whole weight is detected, and so is one of more than a sixteenth of the consecutive rows of a matrix; a change of
    fewer rows may be missed.

    Args:
        model: A model on one device.
    """

    def __init__(self, model: nn.Module) -> None:
        views = [_view(parameter.detach()) for parameter in model.parameters() if parameter.numel()]
        if views and views[0].device.type != "cpu":
            self._read: Callable[[], Any] = lambda: _array(torch.cat([view.reshape(-1) for view in views]).cpu())
        else:
            self._read = partial(np.concatenate, [_array(view) for view in views] or [np.zeros(0)], axis=None)
        self._before = self._read().tobytes()

    def is_current(self) -> bool:
        """Whether the weights are those of before."""
        return bool(self._read().tobytes() == self._before)


def _view(weight: Tensor) -> Tensor:
    """A strided view of some elements of a weight, in any memory layout: a diagonal with large steps."""
    if min(weight.shape, default=1) < _SAMPLES:
        return weight[tuple(slice(None, None, max(1, size // 4)) for size in weight.shape)]
    step = sum(size // _SAMPLES * stride for size, stride in zip(weight.shape, weight.stride(), strict=True))
    return weight.as_strided((_SAMPLES,), (step,))


def _array(numbers: Tensor) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = (numbers.view(torch.int16) if numbers.element_size() == 2 else numbers).numpy()
    return array


# ---------------------------------------------------------------------------------- positions, token ids and arguments


def position_table(network: nn.Module) -> nn.Embedding | None:
    """The table of positions of a network, which are counted from its padding index if it has one."""
    for name, part in network.named_children():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            return part
        # Read for every batch; the table precedes the list of layers.
        table = None if isinstance(part, nn.ModuleList) else position_table(part)
        if table is not None:
            return table
    return None


def position_limit(network: nn.Module) -> int | None:
    """Maximum number of tokens of a network with a table of positions; None without a table.

    RoBERTa-family models count positions from padding_idx + 1 and cannot use the rows before.
    """
    table = position_table(network)
    if table is None:
        return None
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def default_limit(network: Any, tokenizer: Any) -> int | None:
    """Longest input in tokens: the minimum of the tokenizer, the configuration and the positions."""
    configured = getattr(network.config, "max_position_embeddings", None)
    stated = (tokenizer.model_max_length, configured, position_limit(network))
    # Without a limit, tokenizers have 10**30 and configurations -1.
    return min((limit for limit in stated if isinstance(limit, int) and 0 < limit < 10**9), default=None)


def check_limit(network: nn.Module, length: int | None, least: int) -> int | None:
    """The length, if the network supports inputs of so many tokens; for None, the maximum.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than ``least``, or exceeds the positions of the network.
    """
    positions = position_limit(network)
    if length is None:
        return positions
    if whole("max_seq_length", length) < least:
        raise ValueError(f"max_seq_length={length} leaves no room for text; pass at least {least}")
    if positions is not None and length > positions:
        raise ValueError(
            f"max_seq_length={length} exceeds the {positions} positions of the model; pass at most {positions}"
        )
    return length


def vocab_size(network: Any) -> int | None:
    """Number of tokens in the embedding table of a network; None without a table."""
    try:
        table = network.get_input_embeddings()
    except NotImplementedError:
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


def accepts(network: nn.Module, name: str) -> bool:
    """Whether the forward of a network has an argument of this name."""
    return name in inspect.signature(network.forward).parameters


def without_cache(network: nn.Module) -> dict[str, Any]:
    """Options of a forward that does not return keys and values for a next token."""
    return {"use_cache": False} if accepts(network, "use_cache") else {}
