"""The trainer: data, losses and a model, and the order in which rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sbert.distributed import Ranks
from sbert.training.backward import TrainingBatch
from sbert.training.config import TrainingConfig
from sbert.training.rows import Loss, Rows
from sbert.training.run import Run, own_randomness
from sbert.training.sampling import SAMPLERS, interleave, name_of

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder

Evaluate = Callable[[Any], "float | Mapping[str, float]"]


@dataclass(frozen=True)
class Piece:
    """A batch on its way: the rows of one dataset, laid out."""

    dataset: str
    rows: np.ndarray
    texts: list[tuple[Any, ...]]
    batch: TrainingBatch


class Trainer:
    """Trains a model in place by a loss on rows of texts.

    A loss is any function or module ``loss(*columns, labels=None)`` of the columns' vectors. The paper's recipe is the
    default. Started by ``torchrun``, the same program trains on several processes, with the same result but for the
    random numbers of dropout: each encodes its part of every batch, and the loss sees all of it.

    Args:
        model: A ``SentenceEncoder`` or a ``CrossEncoder``.
        data: An iterable of rows, each a tuple of texts with the label last, or a dict; or several, by name.
        loss: For the rows; or one for each dataset, by name.
        config: How to train.
        evaluator: Gives a number, or several by name, for a model; the best model is kept by it.
        columns: The data's columns in the order of the loss's, where their names differ; or by dataset.
        label: The data's column of labels, where it is not called label or score; or by dataset.
        guide: A model whose vectors go to losses that take ``guide``.

    Raises:
        TypeError: If a row, a text or a label is of the wrong type, naming it.
        ValueError: If the data and the loss do not fit each other, printing both.

    References:
        Reimers and Gurevych, 2019, section 3.1 (the recipe). https://arxiv.org/abs/1908.10084

    Example:
        >>> def loss(anchor, positive): return 1 - torch.cosine_similarity(anchor, positive).mean()
        >>> encoder = SentenceEncoder(minilm)
        >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
        >>> history = Trainer(encoder, rows, loss, TrainingConfig(steps=2)).fit(show_progress_bar=False)
        >>> history[-1]["step"]
        2
    """

    def __init__(
        self,
        model: SentenceEncoder | Any,
        data: Iterable[Any] | Mapping[str, Iterable[Any]],
        loss: Loss | Mapping[str, Loss],
        config: TrainingConfig | None = None,
        *,
        evaluator: Evaluate | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        label: str | Mapping[str, str] | None = None,
        guide: SentenceEncoder | None = None,
    ) -> None:
        config = config or TrainingConfig()
        self.model, self.config, self.evaluator, self.guide = model, config, evaluator, guide
        datasets = dict(data) if isinstance(data, Mapping) else {"data": data}
        if not datasets:
            raise ValueError("there are no datasets; pass at least one")
        self.losses: dict[str, Loss] = {name: _of(loss, name, "loss") for name in datasets}
        self.rows = {
            name: Rows(
                rows,
                self.losses[name],
                _of(columns, name, "columns"),
                _of(label, name, "label"),
                name,
                pairs=model.reads_pairs,
            )
            for name, rows in datasets.items()
        }
        self._planned: dict[int, list[tuple[str, np.ndarray]]] = {}  # The last epoch that was asked for.
        wanting = [name for name, rows in self.rows.items() if "guide" in rows.signature.extras]
        if guide is not None and not wanting:
            raise ValueError("no loss takes a guide; leave guide= out, or take one that does")
        if isinstance(config.sampler, str) and config.sampler not in SAMPLERS:
            raise ValueError(f"sampler={config.sampler!r} is unknown; pass one of {', '.join(SAMPLERS)}, or a function")
        if model.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"the model's weights are {model.dtype}, too coarse for small steps; load it with dtype='float32', and"
                " pass TrainingConfig(dtype='bfloat16') to compute in bfloat16"
            )

    # --------------------------------------------------------------------------------------------------- batches

    def epoch(self, epoch: int) -> list[tuple[str, np.ndarray]]:
        """The batches of an epoch: the same in every process, and after every resume."""
        if epoch not in self._planned:
            self._planned = {epoch: self._plan(epoch)}
        return self._planned[epoch]

    def _plan(self, epoch: int) -> list[tuple[str, np.ndarray]]:
        sampler = self.config.sampler
        plans = []
        for number, rows in enumerate(self.rows.values()):
            generator = np.random.default_rng([self.config.seed, epoch, number])
            chosen = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
            plans.append([np.asarray(batch) for batch in chosen(rows, self.config.batch_size, generator)])
            if not plans[-1]:
                raise ValueError(
                    f"sampler={name_of(sampler)!r} makes no batch of {rows.name}; pass another, or more rows"
                )
        names = list(self.rows)
        order = np.random.default_rng([self.config.seed, epoch]) if len(names) > 1 else None
        turns = interleave([len(plan) for plan in plans], self.config.mix, order) if order else [0] * len(plans[0])
        following = [iter(plan) for plan in plans]
        return [(names[turn], next(following[turn])) for turn in turns]

    def pieces(self, start: int, stop: int, ranks: Ranks) -> Iterator[Piece]:
        """The batches from one number to another, laid out."""
        stream = (batch for epoch in count() for batch in self.epoch(epoch))
        for name, chosen in islice(stream, start, stop):
            rows = self.rows[name]
            texts = [rows.inputs(row) for row in chosen.tolist()]
            labels = None if rows.labels is None else rows.labels[torch.from_numpy(chosen)]
            if labels is not None and labels.is_floating_point():
                labels = labels.to(self.model.dtype)
            batch = TrainingBatch.of(
                self.model, texts, rows.signature, labels, deduplicate=self.config.deduplicate, ranks=ranks
            )
            yield Piece(name, chosen, texts, batch)

    def guided(self, piece: Piece, ranks: Ranks) -> TrainingBatch:
        """The batch on the model's device, with the guide's vectors if the loss takes them."""
        batch = piece.batch.to(self.model.device)
        if self.guide is not None and "guide" in self.rows[piece.dataset].signature.extras:
            own = piece.texts[ranks.rank :: ranks.world]
            flat = [text for row in own for text in row]
            options: dict[str, Any] = {"show_progress_bar": False, "on_truncate": "ignore"}
            vectors = self.guide.encode(flat, convert_to_tensor=True, device=self.model.device, **options)
            vectors = vectors.view(len(own), len(piece.texts[0]), vectors.shape[-1])
            batch.extras["guide"] = ranks.gather(vectors, len(piece.texts))
        return batch

    # ------------------------------------------------------------------------------------------------------ fit

    def fit(self, *, resume: bool = False, show_progress_bar: bool | None = None) -> list[dict[str, Any]]:
        """Train, and return the history: a dict every few steps, and one an evaluation.

        The model ends in the mode in which it was, with the weights of the last step; the best ones are in
        ``output/best``. Random numbers outside are not disturbed.

        Args:
            resume: Whether to go on from the newest checkpoint in the output folder, if there is one: on a CPU the
                weights are those of a run that was never stopped, bit by bit.
            show_progress_bar: Whether there is a bar; on a terminal or in a notebook where it is not given.

        Raises:
            FloatingPointError: If the loss or a gradient is not finite, naming the step, the rows and the last good
                checkpoint.
            OSError: If a checkpoint cannot be written, naming the last good one.
            ValueError: If the checkpoint is of other training, or there is one and ``resume`` is false.
        """
        ranks = Ranks.join(self.model.device.type)
        if ranks.world > 1 and self.model.device.type == "cuda":
            self.model.to(torch.device("cuda", torch.cuda.current_device()))
        with own_randomness(self.model.device):
            run = Run(self, ranks, resume, show_progress_bar)
            try:
                return run.go()
            finally:
                run.close()


def _of(value: Any, name: str, what: str) -> Any:
    """What belongs to a dataset: its own by name, or the one for all."""
    if not isinstance(value, Mapping):
        return value
    if name not in value:
        if what != "loss":
            return None
        raise ValueError(f"there is no loss for {name!r}, only for {', '.join(map(repr, value))}; pass one for each")
    return value[name]
