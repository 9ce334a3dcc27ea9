"""Sums of gradients over all ranks, which are computed while the rest of the gradients is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from sbert.distributed.ranks import Ranks

# Bytes of the gradients in one collective operation.
_BUCKET = 25 << 20


class GradientBuckets:
    """The gradients of one training step, in buckets that are summed over all ranks.

    Gradients become complete from the last layer to the first, and so are the buckets. Within ``overlap``, a bucket
    is sent as soon as its gradients and all buckets before it are complete: all ranks send the same buckets in the same
    order, even if a rank lacks the gradient of some parameters. ``finish`` sends the remaining ones.

    The buckets take as much memory as the gradients. torch's DistributedDataParallel does the same for one forward and
    one backward of one wrapped module. Here a step has many of both, and chunks that are encoded without a graph.

    Args:
        parameters: The parameters, the same and in the same order on all ranks.
        ranks: The processes that train together.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
        self._ranks = ranks
        self._buckets = [] if ranks.world == 1 else _split(parameters)
        self._position = {parameter: position for position, bucket in enumerate(self._buckets) for parameter in bucket}
        self._missing = [set(bucket) for bucket in self._buckets]
        self._sent: list[tuple[Tensor, Callable[[], object]]] = []

    @contextmanager
    def overlap(self) -> Iterator[None]:
        """Around the last backward pass of the step: complete buckets are sent while it goes on."""
        with ExitStack() as hooks:
            for parameter in self._position:
                hook = parameter.register_post_accumulate_grad_hook(self._complete)  # type: ignore[no-untyped-call]
                hooks.callback(hook.remove)
            yield

    def _complete(self, parameter: nn.Parameter) -> None:
        position = self._position[parameter]
        if position < len(self._sent):
            raise RuntimeError(
                f"a gradient of shape {tuple(parameter.shape)} was computed twice in one backward pass, the second time"
                " after it was sent to the other processes; checkpoint activations with use_reentrant=False"
            )
        self._missing[position].discard(parameter)
        while len(self._sent) < len(self._buckets) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        """Start to sum the next bucket: its gradients, zeros for missing ones, then for each whether there is one."""
        bucket = self._buckets[len(self._sent)]
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket]
        present = parts[0].new_ones(len(bucket))  # Filled on the device, which a copied list would wait for.
        for position, parameter in enumerate(bucket):
            if parameter.grad is None:
                present[position] = 0
        flat = torch.cat([*parts, present])
        self._sent.append((flat, self._ranks.start_sum(flat)))

    def finish(self, mean: bool = False) -> None:
        """Replace each gradient by its sum or mean; parameters that have none on any rank keep none."""
        while len(self._sent) < len(self._buckets):
            self._send()
        for bucket in self._buckets:
            flat, wait = self._sent.pop(0)  # Its memory is free for the optimizer.
            wait()
            if mean:
                flat /= self._ranks.world
            *sums, present = torch.split(flat, [*(p.numel() for p in bucket), len(bucket)])
            # Only a missing gradient makes the host wait for the device.
            reached = present.tolist() if any(p.grad is None for p in bucket) else [1.0] * len(bucket)
            for parameter, total, number in zip(bucket, sums, reached, strict=True):
                if parameter.grad is not None:
                    parameter.grad.copy_(total.view_as(parameter))
                elif number:
                    parameter.grad = total.view_as(parameter).clone()


def sort_unused_first(parameters: Iterable[nn.Parameter], output: Tensor, ranks: Ranks) -> list[nn.Parameter]:
    """The parameters that are trained, in front those that the main process's output does not depend on.

    Their bucket, which is complete only at the end of a step, would hold up all others. A BERT model has such
    parameters in its pooler.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        return []
    nodes, seen = [output.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
    reached = {id(getattr(node, "variable", None)) for node in seen}
    used = torch.tensor([id(parameter) in reached for parameter in trained], device=output.device).byte()
    ranks.broadcast([used])
    return [parameter for parameter, _ in sorted(zip(trained, used.tolist(), strict=True), key=lambda pair: pair[1])]


def _split(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters from the last to the first, in buckets of one dtype and device."""
    buckets: list[list[nn.Parameter]] = []
    size, kind = 0, None
    for parameter in reversed(list(parameters)):
        if size >= _BUCKET or kind != (parameter.dtype, parameter.device):
            buckets.append([])
            size, kind = 0, (parameter.dtype, parameter.device)
        buckets[-1].append(parameter)
        size += parameter.nbytes
    return buckets
