"""The batches of a training run: their rows and order, and the texts, prompts and guide vectors of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sbert.distributed.ranks import ALONE, Ranks
from sbert.training.backward import TrainingBatch, value_of
from sbert.training.config import TrainingConfig
from sbert.training.lazy_rows import AnyRows, StreamedRows
from sbert.training.row_data import of_rows
from sbert.training.sampling import SAMPLERS, Batch, name_of, takes_epoch, turns

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder


@dataclass(frozen=True)
class Dataset:
    """One data set of a training run.

    Args:
        rows: Its texts, labels and loss.
        prompts: The text before each column.
        guide_prompts: The text before each column for the guide; None if the loss takes no guide.
        max_lengths: The maximum number of tokens of each column; None for that of the model.
    """

    rows: AnyRows
    prompts: list[str]
    guide_prompts: list[str] | None = None
    max_lengths: list[int | None] | None = None


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
    rows: Batch
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
    _plans: dict[int, list[tuple[str, Batch]]] = field(default_factory=dict)  # Of the last epoch only.

    @property
    def streamed(self) -> bool:
        """Whether a data set is a stream, so that there are no epochs."""
        return any(isinstance(dataset.rows, StreamedRows) for dataset in self.datasets.values())

    @property
    def epoch_steps(self) -> int:
        """Optimizer steps of an epoch; with a stream, those of the whole run."""
        config = self.config
        return (config.steps or 1) if self.streamed else max(1, round(len(self.epoch(0)) / config.accumulation))

    def epoch(self, epoch: int) -> list[tuple[str, Batch]]:
        """The batches of an epoch: for each, the name of its data set and the indices of its rows."""
        if self.streamed:
            raise ValueError("a stream has no epochs; pass data with a length")
        if epoch not in self._plans:
            self._plans = {epoch: [(name, rows) for name, rows, _ in self._in_turns(epoch)]}
        return self._plans[epoch]

    def _in_turns(self, epoch: int) -> Iterator[tuple[str, Batch, list[Any] | None]]:
        """The batches of an epoch, of one data set after the other; endless with a stream."""
        names, mix = list(self.datasets), self.config.mix
        first = [
            None if isinstance(self.datasets[name].rows, StreamedRows) else self._plan(name, epoch, 0) for name in names
        ]
        sources = [self._passes(name, epoch, plan) for name, plan in zip(names, first, strict=True)]
        weights = [mix[name] for name in names] if isinstance(mix, Mapping) else mix
        counts = [None if plan is None else len(plan) for plan in first]
        for turn in turns(counts, weights, np.random.default_rng([self.config.seed, epoch])):
            yield names[turn], *next(sources[turn])

    def _passes(self, name: str, epoch: int, first: list[Batch] | None) -> Iterator[tuple[Batch, list[Any] | None]]:
        """The batches of a data set, one pass after the other; those of a stream with their rows."""
        for again in count():
            rows = self.datasets[name].rows
            if isinstance(rows, StreamedRows):
                size, generator = self.config.size_of(name), self._generator(name, epoch, again)
                found = rows.batches(size, self.config.shuffle_buffer, generator)
                yield from (batch for batch in found if not self.config.drop_last or len(batch[0]) == size)
            else:
                yield from ((batch, None) for batch in (self._plan(name, epoch, again) if again else first or []))

    def _generator(self, name: str, epoch: int, again: int) -> np.random.Generator:
        seed = [self.config.seed, epoch, list(self.datasets).index(name)]
        return np.random.default_rng([*seed, again] if again else seed)

    def _plan(self, name: str, epoch: int, again: int) -> list[Batch]:
        """The batches of one pass over a data set."""
        rows: Any = self.datasets[name].rows
        config = self.config
        sampler, size = config.sampler_of(name), config.size_of(name)
        sample = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
        more = {"epoch": epoch} if takes_epoch(sample) else {}
        plan = [np.asarray(batch) for batch in sample(rows, size, self._generator(name, epoch, again), **more)]
        plan = [batch for batch in plan if not config.drop_last or len(batch) == size]
        if not plan:
            full = " of batch_size rows (drop_last=True)" if config.drop_last else ""
            raise ValueError(f"sampler={name_of(sampler)!r} makes no batch{full} of {name}; pass another, or more rows")
        return plan

    def _all(self) -> Iterator[tuple[str, Batch, list[Any] | None]]:
        if self.streamed:
            yield from self._in_turns(0)
        for epoch in count():
            yield from ((name, rows, None) for name, rows in self.epoch(epoch))

    def prepared(self, start: int, stop: int, ranks: Ranks) -> Iterator[PreparedBatch]:
        """The batches from number ``start`` to before ``stop``, counted over all epochs, tokenized."""
        for number, (name, chosen, values) in enumerate(islice(self._all(), start, stop), start):
            dataset = self.datasets[name]
            source = dataset.rows
            if isinstance(source, StreamedRows):
                rows, places = source.at(chosen, values or [])
            else:
                rows, places = source.at(chosen)
            texts = [rows.inputs(row) for row in places.tolist()]
            labels = None if rows.labels is None else rows.labels[torch.from_numpy(places)]
            if labels is not None and labels.is_floating_point():
                labels = labels.to(self.model.dtype)
            row_data = of_rows(rows.row_data, places, self.model.dtype)
            for collate in rows.signature.collates:
                # The same random numbers in every process, and after a resume.
                texts, more = collate(texts, np.random.default_rng([self.config.seed, number]))
                row_data |= more
            inputs = TrainingBatch.of(
                self.model,
                texts,
                rows.signature,
                labels,
                deduplicate=self.config.deduplicate,
                ranks=ranks,
                prompts=dataset.prompts,
                max_lengths=dataset.max_lengths,
                row_data=row_data,
            )
            yield PreparedBatch(dataset, chosen, texts, inputs)

    def mean_losses(self) -> dict[str, float]:
        """The mean loss of each data set over all of its batches of the first epoch, by name, without a gradient."""
        sums = dict.fromkeys(self.datasets, (0.0, 0))
        for batch in self.prepared(0, len(self.epoch(0)), ALONE):
            inputs = self.with_guide(batch, ALONE)
            value = value_of(self.model, batch.dataset.rows.loss, inputs, self.config.chunk_tokens)
            total, rows = sums[batch.dataset.rows.name]
            sums[batch.dataset.rows.name] = total + value * inputs.rows, rows + inputs.rows
        return {name: total / rows for name, (total, rows) in sums.items()}

    def with_guide(self, batch: PreparedBatch, ranks: Ranks) -> TrainingBatch:
        """Move a batch to the model's device, and add the guide's vectors if the loss takes them."""
        inputs = batch.inputs.to(self.model.device)
        prompts = batch.dataset.guide_prompts
        if self.guide is not None and prompts is not None:
            own = batch.texts[ranks.rank :: ranks.world]
            options: dict[str, Any] = {"show_progress_bar": False, "on_truncate": "ignore", "convert_to_tensor": True}
            vectors = [
                self.guide.encode([row[column] for row in own], prompt=prompt, device=inputs.columns.device, **options)
                for column, prompt in enumerate(prompts)
            ]
            inputs.extras["guide"] = ranks.gather(torch.stack(vectors, 1), len(batch.texts))
        return inputs
