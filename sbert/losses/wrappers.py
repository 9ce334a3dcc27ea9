"""Losses that combine other losses: MatryoshkaLoss, SpladeLoss, WeightedSum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sbert.inputs.arguments import check_choice
from sbert.losses.checks import Data, check_columns, check_margin, run_check
from sbert.losses.module import LossModule, sum_parts
from sbert.losses.signature import Loss, Signature


class _Combination(LossModule):
    """What the losses below share: other losses, a weight for each term, and the extras that the losses take.

    Args:
        losses: Modules, or functions of columns.
        weights: The weights of the terms; None for 1 each.
        terms: Number of terms.
    """

    def __init__(self, losses: Sequence[Loss], weights: Sequence[float] | None, terms: int) -> None:
        super().__init__()
        self.weights: tuple[float, ...] = (1.0,) * terms if weights is None else tuple(weights)
        valid = len(self.weights) == terms and all(0 <= weight < math.inf for weight in self.weights)
        if not valid or not any(self.weights):
            raise ValueError(f"weights={self.weights}; pass {terms} numbers of 0 or more, not all of them 0")
        self.signature: Signature = Signature.combine(type(self).__name__, [Signature.of(loss) for loss in losses])
        if names := [type(loss).__name__ for loss in losses if hasattr(loss, "encode")]:
            raise TypeError(f"{names[0]} encodes by itself, which {type(self).__name__} does not call; train with it")
        self.losses: tuple[Loss, ...] = tuple(losses)
        # A tuple can hold functions, but the optimizer finds the losses' weights only in a ModuleList.
        self.registered: nn.ModuleList = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))

    def _select_extras(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        """The extras that are not None, each of which a loss must take."""
        passed = {name: extra for name, extra in extras.items() if extra is not None}
        if unknown := [name for name in passed if name not in self.signature.by_name]:
            raise TypeError(f"{', '.join(unknown)} given, which no loss in {self.signature.name} takes; leave it out")
        return passed

    def check_labels(self, labels: Tensor) -> None:
        """Raise the error of the first loss that rejects the labels."""
        for loss in self.losses:
            run_check(loss, labels)

    def check_data(self, data: Data) -> None:
        """Raise the error of the first loss that rejects the data."""
        for loss in self.losses:
            run_check(loss, data)


class MatryoshkaLoss(_Combination):
    """Weighted sum of a loss on vectors truncated to several dimensions.

        loss = sum_d weight_d * loss(columns[:, :d])

    Truncated vectors are not normalized again: the loss sees the same vectors that ``truncate_dim`` gives.

    Args:
        loss: A loss module, or a function of columns.
        dims: The dimensions to truncate to, all different.
        weights: One weight for each of ``dims``; by default all 1.

    Shape:
        Each column: (rows, dim). labels, texts, guide and row data: as the loss takes them. Output: scalar.
        Labels that are vectors are truncated with the columns; a loss with such labels sets the class attribute
        ``labels_are_vectors = True``, as MSELoss does.

    Raises:
        ValueError: If a dimension or a weight is invalid, or a dimension is greater than that of the vectors.
        TypeError: If the loss is not callable, or does not take an extra that was passed.

    References:
        Kusupati et al., 2022, equation 1. https://arxiv.org/abs/2205.13147

    Example:
        >>> import torch
        >>> from sbert.losses import CosineSimilarityLoss, MatryoshkaLoss
        >>> loss = MatryoshkaLoss(CosineSimilarityLoss(), dims=[2, 1])
        >>> loss(torch.ones(1, 2), torch.tensor([[1.0, -1.0]]), labels=torch.tensor([1.0]))
        tensor(1.)
    """

    def __init__(self, loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> None:
        listed = tuple(dims) if isinstance(dims, Iterable) else ()
        parts = loss.modules() if isinstance(loss, nn.Module) else ()
        if several := [type(part).__name__ for part in parts if getattr(part, "takes_several_vectors", False)]:
            raise ValueError(f"{several[0]} takes several vectors side by side; put MatryoshkaLoss into it instead")
        if not listed or min(listed) < 1 or len(set(listed)) < len(listed):
            raise ValueError(f"dims={dims!r:.60}; pass the loss, then one or more different whole numbers above 0")
        super().__init__([loss], weights, len(listed))
        self.dims: tuple[int, ...] = listed

    def forward(self, *columns: Tensor, **extras: Any) -> Tensor:
        full = check_columns(self, *columns)[0].shape[1]
        if max(self.dims) > full:
            raise ValueError(f"dims contains {max(self.dims)}, but the vectors have dim {full}; pass at most {full}")
        passed = self._select_extras(extras)
        # The shape does not tell whether labels are vectors: the scores of `dim` candidates have the same one.
        vectors = passed.get("labels") if self.signature.labels_are_vectors else None
        if vectors is not None and vectors.shape[-1] != full:
            what = f"labels are vectors of dim {vectors.shape[-1]}, but the columns have dim {full}"
            raise ValueError(f"{what}; pass labels of that dim")
        values = []
        for dim, weight in zip(self.dims, self.weights, strict=True):
            if vectors is not None:
                passed["labels"] = vectors[..., :dim]
            values.append(weight * sum_parts(self.losses[0](*(column[:, :dim] for column in columns), **passed)))
        return torch.stack(values).sum()


class SpladeLoss(_Combination):
    """A loss of sparse vectors, and terms that make them sparse: for queries, the first column, and for documents.

        loss = loss(columns) + s (queries R(q) + documents R(d))

        flops: R(a) = sum_j (mean_i |a_ij|)^2        l1: R(a) = mean_i sum_j |a_ij|

    The factor s grows quadratically from 0 to 1 during the warmup of a training, and then stays 1: vectors that are
    sparse before they are good do not become good.

    Args:
        loss: A loss module, or a function of columns, such as ``MarginMSELoss()``, whose similarity is ``"dot"``.
        documents: Weight of the term of all columns but the first; of one column, both terms are of that.
        queries: Weight of the term of the first column; 0 for queries without weights to train.
        kind: R, ``"flops"`` or ``"l1"``.
        warmup: The part of all steps in which s grows.

    Shape:
        Each column: (rows, dim). labels, texts, guide and row data: as the loss takes them. Output: scalar.

    Raises:
        ValueError: If a setting is unknown, negative or not finite.
        TypeError: If the loss is not callable, or does not take an extra that was passed.

    References:
        Formal et al., 2021, SPLADE v2, section 3. https://arxiv.org/abs/2109.10086
        Paria et al., 2020, section 3 (flops). https://arxiv.org/abs/2004.05665

    Example:
        >>> import torch
        >>> from sbert.losses import MultipleNegativesRankingLoss, SpladeLoss
        >>> ranking = MultipleNegativesRankingLoss(temperature=1.0, similarity="dot")
        >>> loss = SpladeLoss(ranking, documents=0.1, queries=0.2)
        >>> loss(torch.eye(2), torch.eye(2)) - ranking(torch.eye(2), torch.eye(2))
        tensor(0.1500)
    """

    def __init__(
        self, loss: Loss, documents: float = 3e-3, queries: float = 5e-3, kind: str = "flops", warmup: float = 1 / 3
    ) -> None:
        super().__init__([loss], None, 1)
        check_choice("kind", kind, ("flops", "l1"))
        self.kind: str = kind
        self.documents: float = check_margin(documents, "documents")
        self.queries: float = check_margin(queries, "queries")
        self.warmup: float = check_margin(warmup, "warmup")
        self._factor = 1.0

    def start_step(self, step: int, total: int) -> None:
        """Set the factor s; the trainer calls this before each step, on all processes."""
        self._factor = min(1.0, (step + 1) / max(1.0, self.warmup * total)) ** 2

    def forward(self, *columns: Tensor, **extras: Any) -> Tensor:
        queries, *documents = check_columns(self, *columns)
        value: Tensor = sum_parts(self.losses[0](*columns, **self._select_extras(extras)))
        terms = self.queries * self._measure(queries)
        terms = terms + self.documents * self._measure(torch.cat(documents or [queries]))
        return value + self._factor * terms

    def _measure(self, vectors: Tensor) -> Tensor:
        means = vectors.abs().mean(0)  # (dim,)
        return (means.square() if self.kind == "flops" else means).sum()


class WeightedSum(_Combination):
    """Weighted sum of several losses on the same columns.

        loss = sum_k weight_k * loss_k(columns)

    All losses get all columns in the same order, whatever names they use: ``first, second`` and ``anchor, positive``
    can be combined. The data uses the names of the loss with the most columns; if several have the most, of the
    first. A ranking loss treats every row as a pair of similar texts, whatever its label says.

    Args:
        pairs: Tuples of a loss (a module, or a function of columns) and its weight.

    Shape:
        Each column: (rows, dim). labels, texts, guide and row data: passed to the losses that take
        them. Output: scalar.

    Raises:
        ValueError: If the losses take different numbers of columns, or the same names in a different order, or a
            weight is negative.
        TypeError: If a loss is not callable, or no loss takes an extra that was passed.

    Example:
        >>> import torch
        >>> from sbert.losses import AnglELoss, CosineSimilarityLoss, WeightedSum
        >>> loss = WeightedSum((CosineSimilarityLoss(), 2.0), (AnglELoss(), 1.0))
        >>> loss(torch.eye(2), torch.eye(2), labels=torch.tensor([1.0, 0.5]))
        tensor(0.9431)
    """

    def __init__(self, *pairs: tuple[Loss, float]) -> None:
        super().__init__([loss for loss, _ in pairs], [weight for _, weight in pairs], len(pairs))

    def forward(self, *columns: Tensor, **extras: Any) -> Tensor:
        passed, values = self._select_extras(extras), []
        for loss, weight in zip(self.losses, self.weights, strict=True):
            taken = Signature.of(loss).by_name
            value = loss(*columns, **{name: passed[name] for name in passed if name in taken})
            values.append(weight * sum_parts(value))
        return torch.stack(values).sum()

    def extra_repr(self) -> str:
        return f"weights={self.weights}"
