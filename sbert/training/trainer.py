"""The trainer: data, losses and a model, and the order in which rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sbert.inputs.arguments import known_arguments_or, nearest_argument, warn
from sbert.inputs.prompts import by_column, column_prompts
from sbert.losses.checks import Data
from sbert.losses.signature import Loss
from sbert.pipeline.ranks import Ranks
from sbert.training.backward import TrainingBatch
from sbert.training.config import TrainingConfig
from sbert.training.dataset import Rows
from sbert.training.loop import Run, own_randomness
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
        data: An iterable of rows, each a tuple of texts with the label last, or a dict; or a data frame or
            table, whose columns have names; or several of these, by name.
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

    @known_arguments_or(TrainingConfig)
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
                pairs=model.is_cross_encoder,
            )
            for name, rows in datasets.items()
        }
        for name, rows in self.rows.items():
            _check_data(self.losses[name], rows, config)
        if not model.is_cross_encoder and any(map(_repeats, self.rows.values())) and not _has_dropout(model):
            warn(
                "rows hold one text twice, and the model has no dropout, so that both get the same vector and teach"
                " nothing; take a model with dropout, or other pairs"
            )
        self.prompts = self._prompts()
        self._planned: dict[int, list[tuple[str, np.ndarray]]] = {}  # The last epoch that was asked for.
        wanting = [name for name, rows in self.rows.items() if "guide" in rows.signature.extras]
        if guide is not None and not wanting:
            raise ValueError("no loss takes a guide; leave guide= out, or take one that does")
        self.guide_prompts = (
            {} if guide is None else {name: self._guide_prompts(guide, self.rows[name]) for name in wanting}
        )
        if isinstance(config.sampler, str) and config.sampler not in SAMPLERS:
            raise ValueError(f"sampler={config.sampler!r} is unknown; pass one of {', '.join(SAMPLERS)}, or a function")
        if model.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"the model's weights are {model.dtype}, too coarse for small steps; load it with dtype='float32', and"
                " pass TrainingConfig(dtype='bfloat16') to compute in bfloat16"
            )

    def _prompts(self) -> dict[str, list[str]]:
        """The text that stands before each column of each dataset."""
        given = self.config.prompts
        if self.model.is_cross_encoder:
            if given:
                raise ValueError(
                    f"a {type(self.model).__name__} reads two texts as one input, with no prompt before them; leave"
                    " prompts out, and put into the texts what it is to read"
                )
            return {name: [""] for name in self.rows}
        if isinstance(given, Mapping):
            known = {name for rows in self.rows.values() for names in rows.names for name in names}
            for name in given:
                if name not in known:
                    nearest = nearest_argument(str(name), known)
                    meant = f"; did you mean {nearest!r}?" if nearest else ""
                    raise ValueError(
                        f"prompts names the column {name!r}, which no data has; pass some of"
                        f" {', '.join(map(repr, sorted(known)))}{meant}"
                    )
        return {name: column_prompts(self.model, given, rows.names) for name, rows in self.rows.items()}

    def _guide_prompts(self, guide: SentenceEncoder, rows: Rows) -> list[str]:
        """The guide's own prompts of the names that are given; other columns it reads without."""
        given = self.config.prompts
        column_prompts(guide, None if given is None else "", rows.names, "the guide")
        return [guide.prompts.get(name, "") for name in by_column(given, rows.names)]

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
                self.model,
                texts,
                rows.signature,
                labels,
                deduplicate=self.config.deduplicate,
                ranks=ranks,
                prompts=self.prompts[name],
            )
            yield Piece(name, chosen, texts, batch)

    def guided(self, piece: Piece, ranks: Ranks) -> TrainingBatch:
        """The batch on the model's device, with the guide's vectors if the loss takes them."""
        batch = piece.batch.to(self.model.device)
        if self.guide is not None and "guide" in self.rows[piece.dataset].signature.extras:
            own = piece.texts[ranks.rank :: ranks.world]
            options: dict[str, Any] = {"show_progress_bar": False, "on_truncate": "ignore", "convert_to_tensor": True}
            prompts, vectors = self.guide_prompts[piece.dataset], torch.empty(0)
            for prompt in dict.fromkeys(prompts):
                chosen = [column for column, other in enumerate(prompts) if other == prompt]
                flat = [row[column] for row in own for column in chosen]
                found = self.guide.encode(flat, prompt=prompt, device=self.model.device, **options)
                if not len(vectors):
                    vectors = found.new_empty(len(own), len(prompts), found.shape[-1])
                vectors[:, chosen] = found.view(len(own), len(chosen), found.shape[-1])
            batch.extras["guide"] = ranks.gather(vectors, len(piece.texts))
        return batch

    # ------------------------------------------------------------------------------------------------------ fit

    @known_arguments_or(TrainingConfig)
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
            RuntimeError: If another process hangs, is stopped or has ended, naming its rank and the step.
            ValueError: If the checkpoint is of other training, or there is one and ``resume`` is false.
        """
        ranks = Ranks.join(self.model.device.type, self.config.timeout)
        if ranks.world > 1 and self.model.device.type == "cuda":
            self.model.to(torch.device("cuda", torch.cuda.current_device()))
        with own_randomness(self.model.device):
            run = Run(self, ranks, resume, show_progress_bar)
            try:
                return run.go()
            finally:
                run.close()


def _check_data(loss: Loss, rows: Rows, config: TrainingConfig) -> None:
    """Raise what the loss says of data that teaches it nothing; a plain function says nothing."""
    check = getattr(loss, "check_data", None)
    if check is not None:
        # A sampler of the caller's may make batches of any size.
        most = min(config.batch_size, len(rows)) if isinstance(config.sampler, str) else len(rows)
        try:
            check(Data(most, len(rows.texts(0)), rows.labels))
        except ValueError as error:
            raise ValueError(f"{rows.name}: {error}") from error


def _of(value: Any, name: str, what: str) -> Any:
    """What belongs to a dataset: its own by name, or the one for all."""
    if not isinstance(value, Mapping):
        return value
    if name not in value:
        if what != "loss":
            return None
        raise ValueError(f"there is no loss for {name!r}, only for {', '.join(map(repr, value))}; pass one for each")
    return value[name]


def _repeats(rows: Rows) -> bool:
    """Whether each of the first rows holds one text twice, as for two dropout views of it."""
    return all(len(set(texts)) < len(texts) for texts in map(rows.texts, range(min(100, len(rows)))))


def _has_dropout(model: Any) -> bool:
    reader = model[0]
    modules = [*model.modules(), *(reader.materialize().modules() if hasattr(reader, "materialize") else ())]
    return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in modules)
