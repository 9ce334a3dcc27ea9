"""The batches of a training run: their rows and order, and the texts, prompts and guide vectors of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sbert.distributed.ranks import Ranks
from sbert.training.backward import TrainingBatch
from sbert.training.config import TrainingConfig
from sbert.training.dataset import Rows
from sbert.training.row_data import of_rows
from sbert.training.sampling import SAMPLERS, Batch, interleave, name_of

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder


@dataclass(frozen=True)
class Dataset:
    """One data set of a training run.

    Args:
        rows: Its texts, labels and loss.
        prompts: The text before each column.
        guide_prompts: The text before each column for the guide; None if the loss takes no guide.
    """

    rows: Rows
    prompts: list[str]
    guide_prompts: list[str] | None = None


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

    def epoch(self, epoch: int) -> list[tuple[str, Batch]]:
        """The batches of an epoch: for each, the name of its data set and the indices of its rows."""
        if epoch not in self._plans:
            self._plans = {epoch: self._plan(epoch)}
        return self._plans[epoch]

    def _plan(self, epoch: int) -> list[tuple[str, Batch]]:
        sampler = self.config.sampler
        sample = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
        plans = []
        for number, dataset in enumerate(self.datasets.values()):
            generator = np.random.default_rng([self.config.seed, epoch, number])
            plans.append([np.asarray(batch) for batch in sample(dataset.rows, self.config.batch_size, generator)])
            if not plans[-1]:
                raise ValueError(
                    f"sampler={name_of(sampler)!r} makes no batch of {dataset.rows.name}; pass another, or more rows"
                )
        names = list(self.datasets)
        order = np.random.default_rng([self.config.seed, epoch])
        remaining = [iter(plan) for plan in plans]
        turns = interleave([len(plan) for plan in plans], self.config.mix, order)
        return [(names[turn], next(remaining[turn])) for turn in turns]

    def prepared(self, start: int, stop: int, ranks: Ranks) -> Iterator[PreparedBatch]:
        """The batches from number ``start`` to before ``stop``, counted over all epochs, tokenized."""
        stream = (batch for epoch in count() for batch in self.epoch(epoch))
        for number, (name, chosen) in enumerate(islice(stream, start, stop), start):
            dataset = self.datasets[name]
            rows = dataset.rows
            texts = [rows.inputs(row) for row in chosen.tolist()]
            labels = None if rows.labels is None else rows.labels[torch.from_numpy(chosen)]
            if labels is not None and labels.is_floating_point():
                labels = labels.to(self.model.dtype)
            row_data = of_rows(rows.row_data, chosen, self.model.dtype)
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
                row_data=row_data,
            )
            yield PreparedBatch(dataset, chosen, texts, inputs)

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
