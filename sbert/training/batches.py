"""The batches of a training run: their rows and order, and the texts, prompts and guide vectors of each."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, cycle, islice, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sbert.distributed.ranks import ALONE, Ranks
from sbert.inputs.arguments import nearest_argument
from sbert.inputs.prompts import by_column, column_prompts, column_routes, default_prompt, prompt_text
from sbert.losses.signature import Loss
from sbert.training.backward import TrainingBatch, compute_loss
from sbert.training.config import TrainingConfig
from sbert.training.sampling import SAME_COUNT, SAMPLERS, name_of
from sbert.training.table import RowIndices
from sbert.training.training_data import TrainingData

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder

# The name of a data set, the indices of rows, and the rows themselves if they were read from a stream.
PlannedBatch = tuple[str, RowIndices, Sequence[Any]]


@dataclass(frozen=True)
class Dataset:
    """One data set of a training run.

    Args:
        rows: Its texts, labels and loss.
        config: The ``TrainingConfig``, with its own values of those that are given by data set.
        prompts: The text before each column; of pairs, the one before the first text of each.
        guide_prompts: The text before each column for the guide; None if the loss takes no guide.
        max_lengths: The maximum number of tokens of each column; None for that of the model.
        routes: The route of each column; None if the model has none.
    """

    rows: TrainingData
    config: Any
    prompts: list[str]
    guide_prompts: list[str] | None = None
    max_lengths: list[int | None] | None = None
    routes: list[str] | None = None

    @classmethod
    def of(cls, rows: TrainingData, model: Any, config: Any, guide: Any) -> Dataset:
        """Rows with the settings of their columns, among those of the data set."""
        prompts, lengths, for_guide = config.prompts, config.max_lengths, None
        if isinstance(lengths, Mapping):
            lengths = [next((lengths[name] for name in names if name in lengths), None) for names in rows.names]
        elif lengths is not None:
            lengths = [lengths] * len(rows.names)
        if guide is not None and "guide" in rows.signature.extras:
            column_prompts(guide, None if prompts is None else "", rows.names, "the guide")
            for_guide = [guide.prompts.get(prompt, "") for prompt in by_column(prompts, rows.names)]
        if not model.is_cross_encoder:
            texts = column_prompts(model, prompts, rows.names)
        else:
            texts = [default_prompt(model) if prompts is None else prompt_text(model, prompts, "prompts")]
        return cls(rows, config, texts, for_guide, lengths, column_routes(model, config.routes, rows.names))


def check_column_settings(model: Any, tables: Mapping[TrainingData, TrainingConfig]) -> None:
    """Raise a ValueError for prompts or lengths that the model does not take, or of columns that no data has.

    Args:
        model: The model.
        tables: The data sets, each with its own settings.
    """
    columns = {name for rows in tables for names in rows.names for name in names}
    for settings in tables.values():
        if model.is_cross_encoder and (isinstance(settings.prompts, Mapping) or settings.max_lengths):
            raise ValueError(
                f"a {type(model).__name__} reads two texts as one input, with one prompt before the first, without"
                " max_lengths; pass one name or text as prompts, and set the model's max_seq_length"
            )
        for setting in ("prompts", "max_lengths", "routes"):
            value = getattr(settings, setting)
            for name in value if isinstance(value, Mapping) else ():
                if name not in columns:
                    hint = f"; did you mean {nearest!r}?" if (nearest := nearest_argument(str(name), columns)) else ""
                    problem = f"{setting} names the column {name!r}, which no data has"
                    raise ValueError(f"{problem}; pass some of {', '.join(map(repr, sorted(columns)))}{hint}")


@dataclass(frozen=True)
class PreparedBatch:
    """A batch of one data set, tokenized.

    Args:
        dataset: The data set.
        rows: Indices of the rows of all ranks.
        texts: The texts of these rows.
        inputs: Their tokens and labels, for ``backward``.
    """

    dataset: Dataset
    rows: RowIndices
    texts: list[tuple[Any, ...]]
    inputs: TrainingBatch


@dataclass
class Batches:
    """All batches of a training run, in the same order in every process and after every resume.

    Args:
        model: A ``SentenceEncoder`` or a ``CrossEncoder``, which tokenizes the texts.
        datasets: The data sets by name.
        config: Batch size, sampler, mix and seed.
        guide: A model whose vectors are passed to the losses that take ``guide``.
    """

    model: Any
    datasets: Mapping[str, Dataset]
    config: TrainingConfig
    guide: SentenceEncoder | None
    _plans: dict[int, list[PlannedBatch]] = field(default_factory=dict)  # Of the epochs to come that were counted.

    def __post_init__(self) -> None:
        self.losses: dict[str, Loss] = {name: dataset.rows.loss for name, dataset in self.datasets.items()}
        # Whether a data set is a stream, so that there are no epochs.
        self.is_streamed: bool = any(dataset.rows.is_stream for dataset in self.datasets.values())

    def plan(self, epoch: int) -> list[PlannedBatch]:
        """The batches of an epoch."""
        if self.is_streamed:
            raise ValueError("a stream has no epochs; pass data with a length")
        if epoch not in self._plans:
            self._plans[epoch] = list(self._mix(epoch))
        return self._plans[epoch]

    def _epochs(self) -> Iterator[list[PlannedBatch]]:
        """The batches of each epoch, without end."""
        for epoch in count():
            yield self.plan(epoch)
            self._plans.pop(epoch, None)

    def count(self, epochs: float) -> float:
        """The number of batches in so many epochs; those whose sampler may make more or fewer in each are planned."""
        if epochs <= 1 or all(dataset.config.sampler in SAME_COUNT for dataset in self.datasets.values()):
            return epochs * len(self.plan(0))
        counts = [len(self.plan(epoch)) for epoch in range(math.ceil(epochs))]
        return sum(counts) - counts[-1] * (math.ceil(epochs) - epochs)

    def steps(self, config: TrainingConfig) -> tuple[int, int]:
        """The number of optimizer steps, in all and of an epoch."""
        total = config.steps or max(1, round(self.count(config.epochs or 1) / config.accumulation))
        return total, total if self.is_streamed else max(1, round(len(self.plan(0)) / config.accumulation))

    def _mix(self, epoch: int) -> Iterator[PlannedBatch]:
        """The batches of an epoch, of one data set after the other; endless with a stream."""
        names, mix = list(self.datasets), self.config.mix
        counts, sources = list[float](), []
        for position, name in enumerate(names):
            passes = self._passes(name, position, epoch)
            first = next(passes)
            counts.append(len(first) if isinstance(first, list) else math.inf)
            sources.append(chain(first, chain.from_iterable(passes)))
        weights = mix if isinstance(mix, str) else list(map(mix.__getitem__, names))
        for turn in turns(counts, weights, np.random.default_rng([self.config.seed, epoch])):
            yield names[turn], *next(sources[turn])

    def _passes(self, name: str, position: int, epoch: int) -> Iterator[Iterable[tuple[RowIndices, Sequence[Any]]]]:
        """The batches of a data set in an epoch, for each of its passes; those of a stream with their rows."""
        for again in count():
            seed = [self.config.seed, epoch, position, *([again] if again else [])]
            generator = np.random.default_rng(seed)
            if self.datasets[name].rows.is_stream:
                yield self._stream(name, again, generator)
            else:
                yield list(zip(self._sample(name, epoch, generator), repeat(())))

    def _stream(self, name: str, again: int, generator: np.random.Generator) -> Iterator[tuple[RowIndices, list[Any]]]:
        """The batches of one pass over a stream."""
        config, number = self.datasets[name].config, 0
        for batch in self.datasets[name].rows.stream(config.batch_size, config.shuffle_buffer, generator):
            if not config.drop_last or len(batch[0]) == config.batch_size:
                number += 1
                yield batch
        if not number:
            reason = "it can be iterated once only, or it has fewer rows than a batch and drop_last=True"
            raise ValueError(f"{name} gave no batch in pass {again + 1}: {reason}; pass one that can be iterated again")

    def _sample(self, name: str, epoch: int, generator: np.random.Generator) -> list[RowIndices]:
        """The batches of one pass over a data set."""
        config, rows = self.datasets[name].config, self.datasets[name].rows
        sampler, size = config.sampler, config.batch_size
        sample: Any = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
        more = {"epoch": epoch} if "epoch" in inspect.signature(sample).parameters else {}
        plan = list(map(np.asarray, sample(rows, size, generator, **more)))
        if config.drop_last:
            plan = [batch for batch in plan if len(batch) == size]
        if not plan:
            full = " of batch_size rows (drop_last=True)" if config.drop_last else ""
            raise ValueError(f"sampler={name_of(sampler)!r} makes no batch{full} of {name}; pass another, or more rows")
        return plan

    def prepare(self, start: int, stop: int, ranks: Ranks) -> Iterator[PreparedBatch]:
        """The batches from number ``start`` to before ``stop``, counted over all epochs, tokenized."""
        endless = self._mix(0) if self.is_streamed else chain.from_iterable(self._epochs())
        for number, (name, rows, values) in enumerate(islice(endless, start, stop), start):
            dataset = self.datasets[name]
            table, positions = dataset.rows.take(rows, values)
            texts, labels, row_data = table.choose(positions, self.model.dtype)
            if dataset.rows.negatives is not None:
                texts = dataset.rows.draw(texts, np.random.default_rng([self.config.seed, number, 1]))
            for collate in dataset.rows.signature.collates:
                # The same random numbers in every process, and after a resume.
                texts, more = collate(texts, np.random.default_rng([self.config.seed, number]))
                row_data |= more
            options: dict[str, Any] = {"deduplicate": self.config.deduplicate, "ranks": ranks, "row_data": row_data}
            options |= {"prompts": dataset.prompts, "max_lengths": dataset.max_lengths, "routes": dataset.routes}
            inputs = TrainingBatch.of(self.model, texts, dataset.rows.signature, labels, **options)
            yield PreparedBatch(dataset, rows, texts, inputs)

    def mean_losses(self, model: Any) -> dict[str, float]:
        """The mean loss of each data set over all of its batches of the first epoch, by name, without a gradient."""
        sums = dict.fromkeys(self.datasets, (0.0, 0))
        for batch in self.prepare(0, len(self.plan(0)), ALONE):
            rows = batch.dataset.rows
            value = compute_loss(model, rows.loss, self.move(batch, model.device, ALONE), self.config.chunk_tokens)
            total, number = sums[rows.name]
            sums[rows.name] = total + value * len(batch.rows), number + len(batch.rows)
        return {name: total / number for name, (total, number) in sums.items()}

    def move(self, batch: PreparedBatch, device: torch.device, ranks: Ranks) -> TrainingBatch:
        """Move a batch to a device, and add the guide's vectors if the loss takes them."""
        inputs = batch.inputs.to(device)
        prompts = batch.dataset.guide_prompts
        if self.guide is not None and prompts is not None:
            texts = batch.texts[ranks.rank :: ranks.world]
            options: dict[str, Any] = {"show_progress_bar": False, "on_truncate": "ignore", "convert_to_tensor": True}
            options["device"] = device
            vectors = [
                self.guide.encode([row[column] for row in texts], prompt=prompt, **options)
                for column, prompt in enumerate(prompts)
            ]
            inputs.extras["guide"] = ranks.gather(torch.stack(vectors, 1), len(batch.texts))
        return inputs


def turns(counts: Sequence[float], mix: str | Sequence[float], generator: np.random.Generator) -> Iterator[int]:
    """The order of the data sets: for each batch of an epoch, the index of its data set; endless with a stream.

    Args:
        counts: Number of batches of each data set; infinite for a stream.
        mix: ``"round_robin"``, ``"proportional"``, or the weight of each data set.
        generator: Source of the random order.

    Example:
        >>> import numpy as np
        >>> from sbert.training.batches import turns
        >>> list(turns([3, 2], "round_robin", np.random.default_rng(0)))
        [0, 1, 0, 1]
        >>> sorted(turns([3, 2], "proportional", np.random.default_rng(0)))
        [0, 0, 0, 1, 1]
    """
    is_endless = math.inf in counts
    if mix == "round_robin":
        order = range(len(counts))
        yield from cycle(order) if is_endless else [*order] * int(min(counts))
    elif mix == "proportional":
        yield from generator.permutation(np.repeat(np.arange(len(counts)), np.array(counts, int))).tolist()
    else:
        shares = np.cumsum(mix) / np.sum(mix)
        for _ in count() if is_endless else range(int(sum(counts))):
            yield int(np.searchsorted(shares, generator.random(), side="right"))
