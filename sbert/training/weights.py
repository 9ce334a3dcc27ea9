"""The weights of a run: which are trained, at which rates, by which optimizers, and what a checkpoint holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from sbert.backends.huggingface import find_adapters
from sbert.inputs.arguments import warn
from sbert.inputs.devices import SLOW_BFLOAT16, inference_dtype, multiplies_bfloat16
from sbert.losses.signature import Loss
from sbert.modules import Dense, Transformer
from sbert.training.config import TrainingConfig


class Weights:
    """The parameters and buffers of a model and its losses, with the names that a checkpoint gives them.

    Args:
        model: The model to train.
        losses: The losses by data set. Those that are modules have weights of their own, such as a classifier.
    """

    def __init__(self, model: Any, losses: Mapping[str, Loss]) -> None:
        self.model: Any = model
        self.device: torch.device = model.device
        heads: dict[str, nn.Module] = {}
        for name, loss in losses.items():
            if isinstance(loss, nn.Module) and loss not in heads.values():
                # The prefix avoids names of methods, such as "train". A dot is written in a way of its own.
                heads["of_" + name.replace("_", "__").replace(".", "_d")] = loss
        self.heads: nn.ModuleDict = nn.ModuleDict(heads).to(self.device)
        self.both: nn.ModuleDict = nn.ModuleDict({"model": model, "loss": self.heads})

    @cached_property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are not frozen, those of losses as ``loss.…``."""
        named = self.both.named_parameters()
        return {name.removeprefix("model."): parameter for name, parameter in named if parameter.requires_grad}

    def select_changing(self) -> dict[str, Tensor]:
        """What training changes: parameters that are not frozen, and the buffers that a model folder stores."""
        saved = self.both.state_dict()
        weights = {name: value for name, value in self.both.named_parameters() if value.requires_grad}
        return weights | {name: value for name, value in self.both.named_buffers() if name in saved}

    def digest_frozen(self) -> str:
        """A digest of the frozen parameters, from the first 64 numbers of each."""
        digest = hashlib.blake2b(digest_size=16)
        for name, parameter in self.both.named_parameters():
            if not parameter.requires_grad:
                digest.update(name.encode() + parameter.detach().flatten()[:64].float().cpu().numpy().tobytes())
        return digest.hexdigest()


def check_dtypes(model: Any, config: TrainingConfig) -> None:
    """Raise a ValueError for weights that cannot be trained, or be saved, in the form in which they are.

    Adapters of peft, and Dense modules, are trained in float32 beside a frozen base model in half precision.
    """
    adapters, dtype = list(find_adapters(model).values()), model.dtype
    if dtype.itemsize < 4:
        castable = {weight for part in model.modules() if isinstance(part, Dense) for weight in part.parameters()}
        castable |= {weight for part in adapters for weight in part.parameters()}
        fixed = [name for name, weight in model.named_parameters() if weight.requires_grad and weight not in castable]
        problem = f"the model's weights are {dtype}, too imprecise for small steps"
        if model.is_cross_encoder or not adapters or fixed:
            remedy = "load it with dtype='float32', and compute in TrainingConfig(dtype='bfloat16')"
            raise ValueError(f"{problem}; {remedy}; only the frozen base model of adapters of peft may be bfloat16")
        if dtype == torch.float16 and config.dtype != "float16":
            raise ValueError("the base model is float16, whose gradients need TrainingConfig(dtype='float16')")
    quantized = any(getattr(part, "is_quantized", False) for part in model.modules())
    if quantized and adapters and config.merge_adapters and config.output is not None:
        problem = "the base model is quantized, so that adapters cannot be merged into it"
        raise ValueError(f"{problem}; pass TrainingConfig(merge_adapters=False), which saves them alone")


def training_dtype(model: Any, device: torch.device, config: TrainingConfig) -> torch.dtype:
    """The dtype in which the transformer computes: that of the config, or of a base model in half precision."""
    weights = cast("torch.dtype", model.dtype)
    if weights.itemsize < 4:
        return weights
    if config.dtype == "auto" and device.type == "cuda":
        dtype, _ = inference_dtype(torch.float32, True, device)
        return dtype if dtype == torch.bfloat16 else torch.float32
    return torch.float32 if config.dtype == "auto" else cast("torch.dtype", getattr(torch, config.dtype))


@contextmanager
def prepare_model(model: Any, losses: Mapping[str, Loss], config: TrainingConfig) -> Iterator[Weights]:
    """Around a run: training mode, weights that are frozen or new, and layers that are checkpointed.

    All is undone at the end.

    Raises:
        ValueError: If a pattern of frozen weights matches none, or a transformer cannot be checkpointed.
    """
    weights = Weights(model, losses)
    with ExitStack() as undo:
        undo.callback(weights.both.zero_grad)
        for module in model.modules():
            undo.callback(setattr, module, "training", module.training)
            if getattr(module, "support_avx512bf16_for_cpu", False):
                # bitsandbytes' layout of 4-bit weights for inference has no gradient; reading the state undoes it.
                undo.callback(setattr, module, "support_avx512bf16_for_cpu", True)
                module.state_dict()
                module.support_avx512bf16_for_cpu = False
        model.train()
        for name, parameter in model.named_parameters():  # An adapter freezes a new head, too.
            if name.replace(".base_layer.", ".").endswith(tuple(getattr(model, "new_weights", ()))):
                undo.callback(parameter.requires_grad_, parameter.requires_grad)
                parameter.requires_grad_(True)
        if config.freeze:
            named = {name.removeprefix("model."): value for name, value in weights.both.named_parameters()}
            for name in match_names(config.freeze, list(named), "freeze"):
                undo.callback(named[name].requires_grad_, named[name].requires_grad)
                named[name].requires_grad_(False)
        for parameter in model.parameters():  # Beside a frozen base model in half precision.
            if parameter.requires_grad and parameter.dtype.itemsize < 4:
                parameter.data = parameter.data.float()
        if config.gradient_checkpointing:
            for network in [part.auto_model for part in model.modules() if isinstance(part, Transformer)]:
                _checkpoint(network, undo)
        yield weights


def _checkpoint(network: Any, undo: ExitStack) -> None:
    if not getattr(network, "supports_gradient_checkpointing", False):
        raise ValueError(f"{type(network).__name__} has no gradient checkpointing; pass chunk_tokens= to save memory")
    if not any(getattr(module, "gradient_checkpointing", False) for module in network.modules()):
        # Older releases of transformers call it gradient checkpointing.
        kind = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
        getattr(network, f"{kind}_checkpointing_enable")({"use_reentrant": False})
        undo.callback(getattr(network, f"{kind}_checkpointing_disable"))


def match_names(patterns: Iterable[str], names: Sequence[str], setting: str) -> dict[str, str]:
    """For each name that matches a pattern, the last such pattern; ``*`` matches any characters.

    Raises:
        ValueError: If a pattern matches no name; the message lists some names.

    Example:
        >>> from sbert.training.weights import match_names
        >>> match_names(["0.*", "*.bias"], ["0.weight", "0.bias", "1.weight"], "freeze")
        {'0.weight': '0.*', '0.bias': '*.bias'}
    """
    last = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matches:
            some = f"the {len(names)} weights, such as {', '.join(names[:3])}"
            parts = any(str(pattern) in name for name in names) * f"; for parts of names, pass '*{pattern}*'"
            raise ValueError(f"{setting}: the pattern {pattern!r} matches none of {some}{parts}")
        last.update(dict.fromkeys(matches, pattern))
    return last


def create_optimizer(config: TrainingConfig, weights: Weights) -> torch.optim.Optimizer:
    """The optimizer of all weights that are trained, in groups with a learning rate and a weight decay each.

    Raises:
        TypeError: If a function returned something else.
        ValueError: If nothing is trained, or a pattern of ``learning_rates`` matches no name.
    """
    if not weights.trained:
        raise ValueError("nothing is trained: no weight of the model or the loss has requires_grad=True")
    rates = config.learning_rates or {}
    patterns = match_names(rates, list(weights.trained), "learning_rates") if rates else {}
    by_setting: dict[tuple[object, ...], dict[str, Any]] = {}
    for name, parameter in weights.trained.items():
        rate = rates[patterns[name]] if name in patterns else config.learning_rate
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        key = (name.startswith("loss."), decay, rate)
        by_setting.setdefault(key, {"params": [], "lr": rate, "weight_decay": decay})["params"].append(parameter)
    groups, kind = list(by_setting.values()), config.optimizer
    if isinstance(kind, str):
        options = {"fused": True} if kind == "AdamW" else {}  # One pass over the weights.
        optimizer = getattr(torch.optim, kind)(groups, **options)
    else:
        optimizer = kind(groups)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer= returned {type(optimizer).__name__}; return a torch.optim.Optimizer of the groups")
    computes_in_bfloat16 = "Muon" in type(optimizer).__name__ and weights.device.type == "cpu"
    if computes_in_bfloat16 and not multiplies_bfloat16():
        warn(f"{SLOW_BFLOAT16}, in which {type(optimizer).__name__} computes; use AdamW here")
    for group in optimizer.param_groups:
        group["peak"] = group["lr"]
    return optimizer


def read_optimizer(optimizer: torch.optim.Optimizer, weights: Weights) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state as ``optimizer.NAME.KEY``: tensors and numbers.

    Raises:
        TypeError: If a value is neither.
    """
    tensors: dict[str, Tensor] = {}
    values = {path: group[key] for path, group, key in _counters(optimizer)}
    for name, parameter in weights.trained.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{name}.{key}"] = value
            elif value is None or isinstance(value, (bool, int, float)):
                values[f"optimizer.{name}.{key}"] = value
            else:
                what = f"the optimizer's state {key!r} of {name} is of type {type(value).__name__}"
                raise TypeError(f"{what}; use an optimizer whose state is tensors and numbers")
    return tensors, values


def restore_optimizer(optimizer: torch.optim.Optimizer, weights: Weights, saved: Mapping[str, Any]) -> None:
    """Set what ``read_optimizer`` returned."""
    for path, group, key in _counters(optimizer):
        group[key] = saved.get(path, group[key])
    for path, value in saved.items():
        name, _, key = path.removeprefix("optimizer.").rpartition(".")
        if path.startswith("optimizer.") and name in weights.trained:
            parameter = weights.trained[name]
            optimizer.state[parameter][key] = value.to(parameter.device) if isinstance(value, Tensor) else value


def _counters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, dict[str, Any], str]]:
    """What an optimizer counts or adapts in a group: its name in a checkpoint, the group, and the key there."""
    for number, group in enumerate(optimizer.param_groups):
        for key, value in list(group.items()):
            if type(value) in (int, float) and key not in ("lr", "peak"):  # Those the run itself sets.
                yield f"group.{number}.{key}", group, key
