"""Readers of natural language inference, and of the triplets that are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sbert.data.records import Name
from sbert.data.rows import as_word, conversion
from sbert.data.tables import read_table

CLASSES = ("contradiction", "entailment", "neutral")
# As the losses of two sentences call them.
_PAIR = {"first": ("premise", "sentence1", "first"), "second": ("hypothesis", "sentence2", "second")}
_LABEL = ("gold_label", "label", "gold")
_TRIPLET = {
    "anchor": ("anchor", "sent0", "query", "sentence1"),
    "positive": ("positive", "sent1", "pos", "sentence2"),
    "negative": ("negative", "hard_neg", "neg", "sentence3"),
}


def read_nli(path: Name, classes: Sequence[str] = CLASSES, *, split: str | None = None) -> list[dict[str, Any]]:
    r"""Premises, hypotheses and what follows: SNLI, MultiNLI, KorNLI, XNLI.

    The rows are for ``SoftmaxLoss``, and for ``CrossEncoder.fit`` with three classes, as they are. Rows that are
    labelled ``-``, or ``-1`` in files of numbers, on which people did not agree, are left out.

    Args:
        path: A file of SNLI's or MultiNLI's releases, ``.jsonl`` or ``.txt``, of KorNLI's, or TSV, CSV or JSONL
            with premise or sentence1, hypothesis or sentence2, and label or gold_label.
        classes: The labels, each of which becomes its index here.
        split: The part to read, of a file with a column split; all of it where it is not given.

    Returns:
        Rows with ``first``, the premise, ``second``, the hypothesis, and ``label``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is not there, or a line does not fit, with its number.

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
    r"""An anchor, a sentence like it and one unlike it: AllNLI's triplets, of a premise and two of its hypotheses.

    The rows are for ``TripletLoss`` and ``MultipleNegativesRankingLoss`` as they are.

    Args:
        path: TSV, CSV or JSONL with anchor, positive and negative; with sent0, sent1 and hard_neg, as SimCSE's; or
            JSONL with an array of three texts a line.
        split: The part to read, of a file with a column split; all of it where it is not given.

    Returns:
        Rows with ``anchor``, ``positive`` and ``negative``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is not there, or a line does not fit, with its number.

    References:
        Gao et al., 2021, section 4. https://arxiv.org/abs/2104.08821

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
