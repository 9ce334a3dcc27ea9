"""The corpus of Argument Facet Similarity (AFS): pairs of arguments with the mean score of their annotators."""

import csv
import io
from pathlib import Path
from typing import Any

TOPICS = {"death penalty": "ArgPairs_DP.csv", "gun control": "ArgPairs_GC.csv", "gay marriage": "ArgPairs_GM.csv"}


def read_arguments(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows with ``first``, ``second`` and ``label`` (0 to 1) by topic.

    The files are not in UTF-8: what is not is read as Windows-1252, the encoding of typographic quotation marks.

    References:
        Misra et al., 2016. https://aclanthology.org/W16-3636
    """
    return {topic: read_topic(folder / name) for topic, name in TOPICS.items()}


def read_topic(path: Path) -> list[dict[str, Any]]:
    """The rows of one file of the release."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    return [
        {"first": row["sentence_1"], "second": row["sentence_2"], "label": float(row["regression_label"]) / 5}
        for row in csv.DictReader(io.StringIO(text, newline=""), strict=True)
    ]
