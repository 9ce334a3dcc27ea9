"""A cross-encoder's scores of queries and their documents: labels for the losses of distillation and of lists."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from sbert.data.formats import read_lines
from sbert.inputs.texts import records_of
from sbert.pipeline.results import PredictOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ROWS = 200  # Scored together.


def score_lists(
    teacher: Any,
    rows: Iterable[Any],
    *,
    as_margins: bool = False,
    out: str | os.PathLike[str] | None = None,
    **options: Unpack[PredictOptions],
) -> Iterator[dict[str, Any]]:
    """Add a teacher's scores to rows of a query and documents, as the labels from which a ``Trainer`` distils.

    Rows are read as they are needed, 200 at a time, so that they may be a generator of any length.

    Args:
        teacher: A ``CrossEncoder`` with one score per pair.
        rows: Dicts with query and documents, or with anchor, positive and negatives (a list, or negative, negative_1
            and so on), as ``mine_hard_negatives`` returns; or a data frame of these. Other keys stay.
        as_margins: Whether labels are the positive's score minus that of each negative, for ``MarginMSELoss``. By
            default, they are the scores of all documents, the positive first: for ``DistillKLDivLoss`` and, of rows
            with documents, for the losses of lists, such as ``ListNetLoss``.
        out: A file of JSON lines, to which each row is written when it is scored. All rows are scored before the call
            returns. If the file has rows already, of a call that was stopped, scoring goes on after them.
        options: Arguments of ``teacher.predict``. By default ``activation=nn.Identity()``: labels are raw scores.

    Returns:
        The rows as dicts, with the key labels, a list of floats: scored one after the other or, with ``out``, read from
        the file.

    Raises:
        TypeError: If a row has no query, or nothing to score; the message shows it.
        ValueError: If the teacher gives several scores; if ``out`` has other rows, or the first of them other scores.

    References:
        Hofstätter et al., 2020 (margins). https://arxiv.org/abs/2010.02666

    Example:
        >>> from sbert.search import score_lists
        >>> teacher = CrossEncoder(minilm, classes=1)
        >>> rows = [{"anchor": "Who naps?", "positive": "A cat naps.", "negatives": ["Taxes rise.", "It rains."]}]
        >>> scored = list(score_lists(teacher, rows, as_margins=True))
        >>> list(scored[0]), len(scored[0]["labels"])
        (['anchor', 'positive', 'negatives', 'labels'], 2)
        >>> len(next(score_lists(teacher, [{"query": "Who naps?", "documents": ["A cat.", "Taxes."]}]))["labels"])
        2
    """
    if getattr(teacher, "classes", None) != 1:
        raise ValueError(f"teacher is {teacher!r:.80}; pass a CrossEncoder with one score per pair")
    settings: dict[str, Any] = {"activation": nn.Identity(), "show_progress_bar": False, **options}
    score = partial(_score, teacher, as_margins, settings)
    records = iter(records_of(rows))
    if out is None:
        return score(records)
    with Path(out).open("ab+") as file:
        whole = file.seek(0)
        for number, line in enumerate(file):
            row = next(records, None) if number else next(score(islice(records, 1)), None)
            if row is not None and not line.endswith(b"\n") and _to_line(row).startswith(line[:20]):
                records = chain([row], records)  # The process was stopped while it wrote this line.
                break
            if row is None or not _is_same(line, row, number == 0):
                given = f"{out}, line {number + 1} is not this row with the scores of this teacher and these settings"
                raise ValueError(f"{given}; pass those with which the file was begun, or another file")
            whole += len(line)
        file.truncate(whole)
        for row in score(records):
            file.write(_to_line(row))
            file.flush()
    return map(json.loads, read_lines(out))


def _score(
    teacher: Any, as_margins: bool, settings: Mapping[str, Any], records: Iterator[Any]
) -> Iterator[dict[str, Any]]:
    while some := [(row, _texts_of(row, as_margins)) for row in islice(records, _ROWS)]:
        pairs = [(query, text) for _, (query, *documents) in some for text in documents]
        scores = iter(teacher.predict(pairs, **settings).tolist())
        for row, texts in some:
            own = list(islice(scores, len(texts) - 1))
            yield {**row, "labels": [own[0] - score for score in own[1:]] if as_margins else own}


def _texts_of(row: Any, as_margins: bool) -> list[str]:
    """The query, and its documents or its positive and negatives."""
    texts: list[Any] = []
    if isinstance(row, Mapping):
        names = ["documents"]
        if as_margins or "documents" not in row:
            names = ["positive", *filter(re.compile(r"negatives?[_-]?\d*").fullmatch, row)]  # As a Trainer.
        parts = [row.get(name) for name in ("query" if "query" in row else "anchor", *names)]
        texts = [each for part in parts for each in (part if isinstance(part, (tuple, list, np.ndarray)) else [part])]
    if len(texts) < 2 + as_margins or not all(isinstance(text, str) for text in texts):
        wanted = "anchor, positive and negatives" + ", or query and documents" * (not as_margins)
        raise TypeError(f"a row is {row!r:.80}; pass dicts of {wanted}, as strings")
    return texts


def _to_line(row: Mapping[str, Any]) -> bytes:
    """The row as JSON; the values of arrays, such as a Parquet file has, as lists."""
    return json.dumps(row, ensure_ascii=False, default=methodcaller("tolist")).encode() + b"\n"


def _is_same(line: bytes, row: Mapping[str, Any], is_scored: bool) -> bool:
    """Whether a line has this row and, if it is scored, nearly its labels: their last digits depend on the batch."""
    try:
        written, given = dict(json.loads(line)), json.loads(_to_line(row))
    except (ValueError, TypeError):  # No line of such a file.
        return False
    one, two = written.pop("labels", []), given.pop("labels", [])
    return bool(written == given and (not is_scored or (len(one) == len(two) and np.allclose(one, two, 0.02, 0.02))))
