"""Their ``readers`` and ``datasets``: rows as objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sbert.integrations.sentence_transformers.forms import absent


@dataclass
class InputExample:
    """A row of training data: its texts and its label.

    Example:
        >>> InputExample(texts=["A cat.", "A kitten."], label=0.9).label
        0.9
    """

    guid: str = ""
    texts: Sequence[str] = field(default_factory=list)
    label: Any = 0


class SentencesDataset(list[InputExample]):
    """A list of rows; the model is not needed."""

    def __init__(self, examples: Iterable[InputExample], model: Any = None) -> None:  # noqa: ARG002
        super().__init__(examples)


class SentenceLabelDataset(SentencesDataset):
    """Rows whose batches have each label at least twice."""

    sampler = "group_by_label"

    def __init__(self, examples: Iterable[InputExample], samples_per_label: int = 2) -> None:
        if samples_per_label != 2:
            raise ValueError(f"samples_per_label={samples_per_label}: only 2 is supported; TrainingConfig has sampler=")
        super().__init__(examples)


class NoDuplicatesDataLoader:
    """Rows whose batches have no text twice, for ``fit``."""

    sampler = "no_duplicates"

    def __init__(self, train_examples: Iterable[InputExample], batch_size: int) -> None:
        self.dataset = list(train_examples)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.dataset) // self.batch_size


__all__ = ["InputExample", "NoDuplicatesDataLoader", "SentenceLabelDataset", "SentencesDataset"]
__getattr__ = absent(__name__, "readers")
