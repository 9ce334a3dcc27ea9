"""Reader of the corpus of Argument Facet Similarity (AFS)."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from sbert.data.files import Name
from sbert.data.labels import conversion
from sbert.data.rows import row_of
from sbert.data.tables import find

_TOPICS = {"death penalty": "ArgPairs_DP.csv", "gun control": "ArgPairs_GC.csv", "gay marriage": "ArgPairs_GM.csv"}
_COLUMNS = ("sentence_1", "sentence_2", "regression_label")


def read_afs(folder: Name) -> dict[str, list[dict[str, Any]]]:
    r"""Read the pairs of arguments of each topic, with the mean score of their annotators.

    The files are not in UTF-8: what is not is read as Windows-1252, the encoding of typographic quotation marks.

    Args:
        folder: With ``ArgPairs_DP.csv``, ``ArgPairs_GC.csv`` and ``ArgPairs_GM.csv`` of the release, which have the
            columns regression_label (0 to 5), sentence_1 and sentence_2 among others.

    Returns:
        Rows with ``first``, ``second`` and ``label`` (0 to 1) by topic: death penalty, gun control, gay marriage.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a column is missing or a line is invalid, with the line number.

    References:
        Misra et al., 2016. https://aclanthology.org/W16-3636

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("DP", "GC", "GM"):
        ...         lines = 'regression_label,sentence_1,sentence_2\n2.5,"Guns kill, always.",They protect.\n'
        ...         _ = Path(folder, f"ArgPairs_{name}.csv").write_text(lines)
        ...     read_afs(folder)["gun control"]
        [{'first': 'Guns kill, always.', 'second': 'They protect.', 'label': 0.5}]
    """
    return {topic: _rows(find(folder, [name])) for topic, name in _TOPICS.items()}


def _rows(path: Path) -> list[dict[str, Any]]:
    raw, convert = path.read_bytes(), conversion(None, (0, 5))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    if missing := [name for name in _COLUMNS if name not in (table.fieldnames or ())]:
        raise ValueError(f"{path}: no column {missing[0]!r}; the first line names {', '.join(table.fieldnames or ())}")
    try:
        rows = [
            row_of(f"{path}, line {table.line_num}", ["first", "second"], [row[name] for name in _COLUMNS], convert)
            for row in table
        ]
    except csv.Error as error:
        raise ValueError(f"{path}, line {table.line_num}: {error}; fix the quotes there or before") from error
    if not rows:
        raise ValueError(f"{path} has no rows; download the file again")
    return rows
