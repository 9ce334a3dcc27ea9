"""Readers of natural language inference (NLI) data, and of triplets built from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sbert.data.files import Name
from sbert.data.labels import as_word, conversion
from sbert.data.tables import read_table

CLASSES = ("contradiction", "entailment", "neutral")
# Keys: the parameter names of the losses of two sentences. Values: column names in files.
_PAIR = {"first": ("premise", "sentence1", "first"), "second": ("hypothesis", "sentence2", "second")}
_LABEL = ("gold_label", "label", "gold")
_TRIPLET = {
    "anchor": ("anchor", "sent0", "query", "sentence1"),
    "positive": ("positive", "sent1", "pos", "sentence2"),
    "negative": ("negative", "hard_neg", "neg", "sentence3"),
}


def read_nli(path: Name, classes: Sequence[str] = CLASSES, *, split: str | None = None) -> list[dict[str, Any]]:
    r"""Read premises, hypotheses and their labels: SNLI, MultiNLI, KorNLI, XNLI.

    The rows can be passed to ``SoftmaxLoss``, and to ``CrossEncoder.fit`` with three classes. Rows without an agreed
    label, marked ``-`` (or ``-1`` in files with numeric labels), are left out.

    Args:
        path: A file of the releases of SNLI or MultiNLI (``.jsonl`` or ``.txt``) or of KorNLI; or TSV, CSV or JSONL
            with premise or sentence1, hypothesis or sentence2, and label or gold_label.
        classes: The labels; each is replaced by its index in this sequence.
        split: The split to read, if the file has a column named split. Default: all rows.

    Returns:
        Rows with ``first`` (the premise), ``second`` (the hypothesis) and ``label``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column is missing, or a line is invalid; the message gives the line number.

    References:
        Bowman et al., 2015 (SNLI). https://arxiv.org/abs/1508.05326
        Williams et al., 2018 (MultiNLI). https://arxiv.org/abs/1704.05426

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "snli_1.0_dev.jsonl"
        ...     _ = file.write_text('{"gold_label": "neutral", "sentence1": "A cat.", "sentence2": "A black cat."}\n')
        ...     read_nli(file)
        [{'first': 'A cat.', 'second': 'A black cat.', 'label': 2}]
    """
    drop = {"-", "-1"} - {as_word(word) for word in classes}
    return read_table(path, _PAIR, _LABEL, conversion(classes, None), split=split, drop=drop)


def read_triplets(path: Name, *, split: str | None = None) -> list[dict[str, Any]]:
    r"""Read triplets of an anchor, a positive and a negative, such as those of AllNLI or of Wikipedia's sections.

    In AllNLI, the anchor is a premise; the positive is a hypothesis that it entails, the negative one that it
    contradicts. The rows can be passed to ``TripletLoss`` and ``MultipleNegativesRankingLoss``.

    Args:
        path: TSV, CSV or JSONL with anchor, positive and negative; with sent0, sent1 and hard_neg, as in SimCSE; with
            Sentence1 to Sentence3, as wikipedia-sections-triplets; or JSONL with an array of three texts per line.
        split: The split to read, if the file has a column named split. Default: all rows.

    Returns:
        Rows with ``anchor``, ``positive`` and ``negative``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column is missing, or a line is invalid; the message gives the line number.

    References:
        Gao et al., 2021, section 4. https://arxiv.org/abs/2104.08821
        Ein Dor et al., 2018 (Wikipedia's sections). https://aclanthology.org/P18-2009

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "AllNLI.jsonl"
        ...     _ = file.write_text('["A cat sleeps.", "A cat is resting.", "A cat runs."]\n')
        ...     read_triplets(file)
        [{'anchor': 'A cat sleeps.', 'positive': 'A cat is resting.', 'negative': 'A cat runs.'}]
    """
    return read_table(path, _TRIPLET, places=(0, 1, 2), split=split)
