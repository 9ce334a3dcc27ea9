"""Their ``readers`` and ``datasets``: rows as objects."""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sbert.integrations.sentence_transformers.forms import publish_names


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


class DenoisingAutoEncoderDataset:
    """A damaged text and the text itself, for ``DenoisingAutoEncoderLoss``.

    Args:
        sentences: The texts.
        noise_fn: What damages a text. Default: ``delete``.

    Example:
        >>> from sbert.integrations.sentence_transformers.readers import DenoisingAutoEncoderDataset
        >>> DenoisingAutoEncoderDataset(["A cat sleeps."], str.upper)[0].texts
        ['A CAT SLEEPS.', 'A cat sleeps.']
    """

    def __init__(self, sentences: Sequence[str], noise_fn: Callable[[str], str] | None = None) -> None:
        self.sentences, self.noise_fn = sentences, noise_fn or self.delete

    def __getitem__(self, item: int) -> InputExample:
        return InputExample(texts=[self.noise_fn(self.sentences[item]), self.sentences[item]])

    def __len__(self) -> int:
        return len(self.sentences)

    @staticmethod
    def delete(text: str, del_ratio: float = 0.6) -> str:
        """A text without this share of its words, but with one at least, by the generator of ``random``."""
        left = [word for word in text.split() if random.random() > del_ratio]  # noqa: S311
        return " ".join(left or random.sample(text.split(), bool(text.split())))


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

    def load_data(self, filepath: str, *args: Any, **options: Any) -> None:
        """Add the lines of a file, which may be compressed: a text and its translations, between tabs."""
        with (gzip.open if filepath.endswith(".gz") else open)(filepath, "rt", encoding="utf-8") as file:
            self.add_dataset((line.strip().split("\t") for line in file), *args, **options)

    def add_dataset(
        self, rows: Any, weight: int = 100, max_sentences: float | None = None, max_sentence_length: float | None = 128
    ) -> None:
        """Add texts and their translations; those with more characters are left out, and a weight is an error."""
        if weight != 100:
            raise ValueError(f"weight={weight}: each text is drawn once in an epoch; add a dataset several times")
        texts: dict[str, dict[str, None]] = {}
        for row in rows:
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


__all__ = ["DenoisingAutoEncoderDataset", "InputExample", "NoDuplicatesDataLoader", "ParallelSentencesDataset"]
__all__ += ["SentenceLabelDataset", "SentencesDataset"]
publish_names(__name__)
