"""Their ``readers`` and ``datasets``: rows as objects."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sbert.integrations.sentence_transformers.forms import offer


@dataclass
class InputExample:
    """A row of training data: its texts and its label.

    Example:
        >>> from sbert.integrations.sentence_transformers import InputExample
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


class ParallelSentencesDataset(SentencesDataset):
    """Texts with the vector that a teacher gives their translation, for ``MSELoss``: each once in an epoch.

    Args:
        student_model: The model in training, which is not needed.
        teacher_model: The model that encodes the first text of a line.
        options: ``batch_size`` of the teacher; others are not needed.
    """

    def __init__(self, student_model: Any, teacher_model: Any, batch_size: int = 8, **options: Any) -> None:  # noqa: ARG002
        super().__init__([])
        self._teacher = partial(teacher_model.encode, batch_size=batch_size, show_progress_bar=False)

    def load_data(
        self, filepath: str, weight: int = 100, max_sentences: Any = None, max_sentence_length: Any = 128
    ) -> None:
        """Add the lines of a file, which may be compressed: a text and its translations, between tabs.

        Raises:
            ValueError: If it has a weight.
        """
        if weight != 100:
            raise ValueError(f"weight={weight}: each text is drawn once in an epoch; load a file several times")
        texts: dict[str, dict[str, None]] = {}
        with (gzip.open if filepath.endswith(".gz") else open)(filepath, "rt", encoding="utf-8") as file:
            for row in (line.strip().split("\t") for line in file):
                if len(texts) < (max_sentences or math.inf) and max(map(len, row)) <= (max_sentence_length or math.inf):
                    texts.setdefault(row[0], {}).update(dict.fromkeys(row))
        for vector, translations in zip(self._teacher(list(texts)), texts.values(), strict=True):
            self.extend(InputExample(texts=[text], label=vector) for text in translations)


class NoDuplicatesDataLoader:
    """Rows whose batches have no text twice, for ``fit``."""

    sampler = "no_duplicates"

    def __init__(self, train_examples: Iterable[InputExample], batch_size: int) -> None:
        self.dataset = list(train_examples)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.dataset) // self.batch_size


__all__ = ["InputExample", "NoDuplicatesDataLoader", "ParallelSentencesDataset", "SentenceLabelDataset"]
__all__ += ["SentencesDataset"]
offer(__name__)
