"""The weights of a run: which are trained, at which rates, by which optimizers, and what a checkpoint holds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from sbert.backends.huggingface import find_adapters
from sbert.distributed.ranks import Ranks
from sbert.inputs.extras import require
from sbert.losses.signature import Loss
from sbert.modules import Dense, Transformer
from sbert.training.config import TrainingConfig

# Size of a table from which filling its gradient with zeros takes a noticeable part of a step.
_LARGE = 1 << 20
# The first factor of gradients in float16, and the steps after which a larger one is tried.
_FIRST_SCALE, _SCALE_STEPS = 65536.0, 2000
# The norm of gradients up to this size is computed on their concatenation, which is faster.
_SMALL = 1 << 16


class Weights:
    """The parameters and buffers of a model and its losses, with the names that a checkpoint gives them.

    Args:
        model: The model to train.
        losses: The losses by data set. Those that are modules have weights of their own, such as a classifier.
    """

    def __init__(self, model: Any, losses: Mapping[str, Loss]) -> None:
        self.model: Any = model
        heads: dict[str, nn.Module] = {}
        for name, loss in losses.items():
            if isinstance(loss, nn.Module) and loss not in heads.values():
                # The prefix avoids names of methods, such as "train". A dot is written in a way of its own.
                heads["of_" + name.replace("_", "__").replace(".", "_d")] = loss
        self.heads: nn.ModuleDict = nn.ModuleDict(heads).to(model.device)
        self.both: nn.ModuleDict = nn.ModuleDict({"model": model, "loss": self.heads})

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
        fixed = [name for name, each in model.named_parameters() if each.requires_grad and each not in castable]
        given = f"the model's weights are {dtype}, too imprecise for small steps"
        if model.is_cross_encoder or not adapters or fixed:
            remedy = "load it with dtype='float32', and compute in TrainingConfig(dtype='bfloat16')"
            raise ValueError(f"{given}; {remedy}; only the frozen base model of adapters of peft may be bfloat16")
        if dtype == torch.float16 != getattr(torch, config.dtype):
            raise ValueError("the base model is float16, whose gradients need TrainingConfig(dtype='float16')")
    quantized = any(getattr(part, "is_quantized", False) for part in model.modules())
    if quantized and adapters and config.merge_adapters and config.output is not None:
        given = "the base model is quantized, so that adapters cannot be merged into it"
        raise ValueError(f"{given}; pass TrainingConfig(merge_adapters=False), which saves them alone")


@contextmanager
def prepare_model(model: Any, losses: Mapping[str, Loss], config: TrainingConfig) -> Iterator[Weights]:
    """Around a run: training mode, weights that are frozen or new, and layers that are checkpointed or compiled.

    All is undone at the end.

    Raises:
        ValueError: If a pattern of frozen weights matches none, or a transformer cannot be checkpointed.
    """
    weights = Weights(model, losses)
    with ExitStack() as undo:
        undo.callback(weights.both.zero_grad)
        for module in model.modules():
            undo.callback(setattr, module, "training", module.training)
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
        if config.gradient_checkpointing or config.compile:
            for network in [part.auto_model for part in model.modules() if isinstance(part, Transformer)]:
                if config.gradient_checkpointing:
                    _checkpoint(network, undo)
                lists = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
                for layer in max(lists, key=len, default=()) if config.compile else ():
                    layer.compile()
                    undo.callback(setattr, layer, "_compiled_call_impl", None)
        model.train()
        yield weights


def _checkpoint(network: Any, undo: ExitStack) -> None:
    if not getattr(network, "supports_gradient_checkpointing", False):
        raise ValueError(f"{type(network).__name__} has no gradient checkpointing; pass chunk_tokens= to save memory")
    if not any(getattr(module, "gradient_checkpointing", False) for module in network.modules()):
        # Older releases of transformers call it gradient checkpointing.
        kind = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
        getattr(network, f"{kind}_checkpointing_enable")({"use_reentrant": False})
        undo.callback(getattr(network, f"{kind}_checkpointing_disable"))


def shard(model: nn.Module, ranks: Ranks) -> None:
    """Distribute the weights of a model over the ranks, layer by layer (FSDP2).

    Raises:
        ValueError: If there is one process only.
    """
    from torch.distributed.fsdp import fully_shard

    if ranks.world == 1:
        raise ValueError("sharded=True spreads the weights over several processes; start the program with torchrun")
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer)
    fully_shard(model)


def gather_whole(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU, gathered if it is sharded; then all ranks must call this together."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu()


def match_names(patterns: Iterable[str], names: Sequence[str], setting: str) -> dict[str, str]:
    """For each name that matches a pattern, the last such pattern; ``*`` matches any characters.

    Raises:
        ValueError: If a pattern matches no name; the message lists some names.

    Example:
        >>> match_names(["0.*", "*.bias"], ["0.weight", "0.bias", "1.weight"], "freeze")
        {'0.weight': '0.*', '0.bias': '*.bias'}
    """
    last = {}
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matches:
            some = f"the {len(names)} weights, such as {', '.join(names[:3])}"
            raise ValueError(f"{setting}: {pattern!r} matches none of {some}")
        last.update(dict.fromkeys(matches, pattern))
    return last


class Optimizers:
    """The optimizers of all weights that are trained, in groups with a learning rate and a weight decay each.

    Args:
        config: The settings.
        weights: The weights.

    Raises:
        ImportError: If the optimizer's package is not installed.
        TypeError: If a function returned something else.
        ValueError: If nothing is trained, or a pattern of ``learning_rates`` matches no name.
    """

    def __init__(self, config: TrainingConfig, weights: Weights) -> None:
        # Those of the model by their names there, those of losses as ``loss.…``.
        self.trained: dict[str, nn.Parameter] = {}
        for name, parameter in weights.both.named_parameters():
            if parameter.requires_grad:
                self.trained[name.removeprefix("model.")] = parameter
        if not self.trained:
            raise ValueError("nothing is trained: no weight of the model or the loss has requires_grad=True")
        rates = config.learning_rates or {}
        patterns = match_names(rates, list(self.trained), "learning_rates") if rates else {}
        muons = set(self.trained.values()) if config.optimizer == "muon" else set()
        for part in weights.both.modules() if muons else ():
            if isinstance(part, nn.Embedding):
                muons.discard(part.weight)
        groups: dict[tuple[object, ...], dict[str, Any]] = {}
        for name, parameter in self.trained.items():
            rate = rates[patterns[name]] if name in patterns else config.learning_rate
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            key = (parameter.ndim == 2 and parameter in muons, name.startswith("loss."), decay, rate)
            groups.setdefault(key, {"params": [], "lr": rate, "weight_decay": decay})["params"].append(parameter)
        matrices = [groups.pop(key) for key in list(groups) if key[0]] if muons else []
        self._all: list[torch.optim.Optimizer] = [_create(config, list(groups.values()))] if groups else []
        if matrices:  # Steps as large as those of AdamW, so that one learning rate serves both.
            self._all.append(torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw"))
        for optimizer in self._all:
            for group in optimizer.param_groups:
                group["peak"] = group["lr"]

    def step(self, factor: float) -> None:
        """Take a step with learning rates of this share of their peaks, and drop the gradients."""
        for optimizer in self._all:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
        self.drop_gradients()

    def drop_gradients(self) -> None:
        """Of all weights: an optimizer of the caller's may leave some out."""
        for parameter in self.trained.values():
            parameter.grad = None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state as ``optimizer.NAME.KEY``: tensors, unsharded, and numbers.

        Raises:
            TypeError: If a value is neither.
        """
        tensors: dict[str, Tensor] = {}
        values = {place: group[key] for place, group, key in self._counters()}
        for name, parameter in self.trained.items():
            for optimizer in self._all:
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        tensors[f"optimizer.{name}.{key}"] = gather_whole(value)
                    elif value is None or isinstance(value, (bool, int, float)):
                        values[f"optimizer.{name}.{key}"] = value
                    else:
                        what = f"the optimizer's state {key!r} of {name} is of type {type(value).__name__}"
                        raise TypeError(f"{what}; use an optimizer whose state is tensors and numbers")
        return tensors, values

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Set what ``state`` returned."""
        for place, group, key in self._counters():
            group[key] = saved.get(place, group[key])
        owner = {part: each for each in self._all for group in each.param_groups for part in group["params"]}
        for place, value in saved.items():
            name, _, key = place.removeprefix("optimizer.").rpartition(".")
            if place.startswith("optimizer.") and name in self.trained:
                part = self.trained[name]
                owner[part].state[part][key] = _place_like(value, part) if isinstance(value, Tensor) else value

    def _counters(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """What optimizers count or adapt in a group: its name in a checkpoint, the group, and the key there."""
        for i, optimizer in enumerate(self._all):
            for j, group in enumerate(optimizer.param_groups):
                for key, value in list(group.items()):
                    if type(value) in (int, float) and key not in ("lr", "peak"):  # Those the run itself sets.
                        yield f"group.{i}.{j}.{key}", group, key


def _create(config: TrainingConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if not isinstance(config.optimizer, str):
        own = config.optimizer(groups)
        if not isinstance(own, torch.optim.Optimizer):
            raise TypeError(f"optimizer= returned {type(own).__name__}; return a torch.optim.Optimizer of the groups")
        return own
    if config.optimizer == "adafactor":
        return torch.optim.Adafactor(groups)
    betas, eps = config.betas or (0.9, 0.999), 1e-8 if config.eps is None else config.eps
    if config.optimizer == "adamw_8bit":
        with require("optimizer='adamw_8bit'", "bitsandbytes", "bitsandbytes"):
            from bitsandbytes.optim import AdamW8bit
        eight_bits: torch.optim.Optimizer = AdamW8bit(groups, betas=betas, eps=eps)
        return eight_bits
    return torch.optim.AdamW(groups, betas=betas, eps=eps, fused=True)


def _place_like(value: Tensor, live: Any) -> Tensor:
    """The value on the device of ``live``, and sharded as it is; a number, such as a count of steps, stays whole."""
    value = value.to(live.device, copy=True)
    if not value.ndim or not hasattr(live, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, live.device_mesh, live.placements)


# -------------------------------------------------------------------------------------------------------- gradients


class LossScale:
    """The factor of the gradients of a model that computes in float16, in which small ones would be 0.

    Where one is not finite, the step is computed again with half the factor; after many that were, it is doubled.

    References:
        Micikevicius et al., 2018, Mixed precision training, section 3.2. https://arxiv.org/abs/1710.03740
    """

    def __init__(self, config: TrainingConfig) -> None:
        self._is_needed: bool = config.dtype == "float16"
        self.factor: float = _FIRST_SCALE if self._is_needed else 1.0
        self.steps: int = 0  # Since it has changed.

    def halve(self) -> bool:
        """Take half the factor; False if it is 1."""
        if self.factor <= 1:
            return False
        self.factor, self.steps = self.factor / 2, 0
        return True

    def confirm(self) -> None:
        """All gradients of a step were finite."""
        self.steps += 1
        if self._is_needed and self.steps >= _SCALE_STEPS:
            self.factor, self.steps = 2 * self.factor, 0

    def undo(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients of parameters by the factor."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self._is_needed and gradients:
            torch._foreach_mul_(gradients, 1 / self.factor)


class EmbeddingGradients:
    """Gradients of large embedding tables on a CPU, reused from step to step: only the used rows are written.

    Autograd would fill a new gradient with zeros for every batch: 23 million numbers for BERT.

    Args:
        modules: Modules, of which the embedding tables are handled.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules: list[nn.Embedding] = []
        self._buffers: dict[Tensor, Tensor] = {}
        for part in modules:
            if type(part) is nn.Embedding and not (part.sparse or part.scale_grad_by_freq):
                weight = part.weight
                if weight.device.type == "cpu" and weight.requires_grad and weight.numel() >= _LARGE:
                    self._modules.append(part)
                    self._buffers[weight] = torch.zeros_like(weight)
        self._used: dict[Tensor, Tensor] = {}  # For each table, the rows of its buffer that are not 0.

    @contextmanager
    def sparse(self) -> Iterator[None]:
        """Around all backward passes of one step: autograd makes sparse gradients, which are dense afterwards."""
        for part in self._modules:
            part.sparse = True
        try:
            yield
        finally:
            for part in self._modules:
                part.sparse = False
        for weight, buffer in self._buffers.items():
            if weight in self._used:
                buffer.index_fill_(0, self._used.pop(weight), 0)
            gradient = weight.grad
            if gradient is not None and gradient.is_sparse:
                rows, values = gradient._indices()[0], gradient._values()
                self._used[weight] = torch.unique(rows)
                weight.grad = buffer.index_add_(0, rows, values)

    def norm(self, parameters: Iterable[nn.Parameter]) -> float:
        """The norm of all gradients of these parameters; of the tables, only the used rows are read."""
        squares, small = 0.0, list[Tensor]()
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            if parameter in self._used:
                gradient = gradient.index_select(0, self._used[parameter])
            flat = gradient.flatten()
            if len(flat) > _SMALL:
                squares += float(torch.dot(flat, flat))
            else:
                small.append(flat)
        if small:
            flat = torch.cat(small)
            squares += float(torch.dot(flat, flat))
        return math.sqrt(squares)
