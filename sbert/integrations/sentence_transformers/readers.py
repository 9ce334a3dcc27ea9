"""Their ``readers`` and ``datasets``: rows as objects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sbert.inputs.arguments import publish


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


class NoDuplicatesDataLoader:
    """Rows whose batches have no text twice, for ``fit``."""

    sampler = "no_duplicates"

    def __init__(self, train_examples: Iterable[InputExample], batch_size: int) -> None:
        self.dataset = list(train_examples)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.dataset) // self.batch_size


__all__ = ["DenoisingAutoEncoderDataset", "InputExample", "NoDuplicatesDataLoader"]
__all__ += ["SentenceLabelDataset", "SentencesDataset"]
publish(__name__)
