"""The interface of evaluators: they measure a model by the vectors of texts; and files of their results."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sbert.distributed.ranks import ALONE, Ranks
from sbert.evaluation.model_vectors import ModelVectors
from sbert.storage.atomic import write_text

# What a ``Trainer`` takes as its evaluator: a function of a model that returns one score, or several by name.
Evaluate = Callable[[Any], "float | Mapping[str, float]"]


class Evaluator(ABC):
    """Computes the metrics of a model, by name; call it with a model, or pass it to a ``Trainer``.

    To write your own, implement ``measure``. A ``Trainer`` also takes any function of a model, but only an Evaluator
    can run in several processes and share vectors with other evaluators.

    Example:
        >>> import numpy as np
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import Evaluator
        >>> model = SentenceEncoder()
        >>> class MeanLength(Evaluator):
        ...     def measure(self, vectors):
        ...         return {"length": float(np.linalg.norm(vectors(["A cat.", "A dog."]), axis=1).mean())}
        >>> round(MeanLength()(model)["length"], 3)
        1.0
    """

    @abstractmethod
    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The metrics by name. The first decides which model is the best; higher is better."""

    def __call__(
        self,
        model: Any,
        *,
        output: str | os.PathLike[str] | None = None,
        ranks: Ranks = ALONE,
        show_progress_bar: bool | None = False,
    ) -> dict[str, float]:
        """Measure a model, and return its metrics by name.

        Args:
            model: A ``SentenceEncoder``, its ``pool``, or any object with ``encode(list of str)``; for evaluators of
                pairs also a ``CrossEncoder``, or any object with ``predict(list of pairs)``.
            output: A file to which one line is added: CSV if it ends in ``.csv``, else JSONL.
            ranks: The processes that share the work, all of which must call this; a ``Trainer`` passes its own.
            show_progress_bar: As in ``encode``.

        Raises:
            OSError: If ``output`` cannot be written.
            ValueError: If the model returns NaN or infinity, or ``output`` is a CSV file with other columns.
        """
        values = self.measure(ModelVectors(model, ranks, show_progress_bar))
        metrics = {name: float(value) for name, value in values.items()}
        if output is not None:
            name, when = getattr(model, "name_or_path", type(model).__name__), time.strftime("%Y-%m-%dT%H:%M:%S%z")
            about = {"time": when, "model": name, "evaluator": type(self).__name__}
            # An error here is raised on all ranks, so that none of them continues alone.
            ranks.run_on_main(lambda: write_line(output, {**about, **metrics}))
        return metrics


class SequentialEvaluator(Evaluator):
    """Runs several evaluators in sequence; texts that they have in common are encoded once.

    Args:
        evaluators: The evaluators by name; each metric is called ``name_metric``. The first metric of the first
            evaluator decides which model is the best.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import SequentialEvaluator, SimilarityEvaluator
        >>> model = SentenceEncoder()
        >>> first = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> second = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "A dog."], [4.5, 3])
        >>> SequentialEvaluator({"far": first, "near": second})(model)["far_spearman"]
        1.0
    """

    def __init__(self, evaluators: Mapping[str, Evaluator]) -> None:
        self._evaluators = dict(evaluators)

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The metrics of all evaluators."""
        return {
            f"{name}_{metric}": value
            for name, evaluator in self._evaluators.items()
            for metric, value in evaluator.measure(vectors).items()
        }


# ------------------------------------------------------------------------------------------------- files of results


def write_line(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    r"""Add a record to a file of results, which is created if it does not exist.

    In a CSV file, missing columns are added. In a JSONL file, an incomplete last line, left by a killed process, is
    ended first.

    Args:
        path: The file: CSV if it ends in ``.csv``, else JSONL.
        record: Values by name.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If it is a CSV file that is not a header with rows.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.evaluation import write_line
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "results.csv"
        ...     write_line(file, {"model": "a", "spearman": 0.5})
        ...     write_line(file, {"model": "b", "spearman": 0.6, "pearson": 0.7})
        ...     file.read_text().splitlines()
        ['model,spearman,pearson', 'a,0.5,', 'b,0.6,0.7']
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write = _write_csv if target.suffix.lower() == ".csv" else _append_json
    write(target, record)


def _append_json(path: Path, record: Mapping[str, Any]) -> None:
    unknown = {name: None for name, value in record.items() if isinstance(value, float) and not math.isfinite(value)}
    with path.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        incomplete = file.read() not in (b"", b"\n")
        file.write(("\n" * incomplete + json.dumps({**record, **unknown}, ensure_ascii=False) + "\n").encode())


def _write_csv(path: Path, record: Mapping[str, Any]) -> None:
    try:
        old = path.read_bytes().decode() if path.exists() else ""
        header, *rows = list(csv.reader(io.StringIO(old, newline=""), strict=True)) or [[]]
        if any(len(row) != len(header) for row in rows) or len(set(header)) < len(header):
            raise ValueError("rows do not match the header")
        if header and not set(header) & set(record):
            raise ValueError("it has other columns")
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path} is not a CSV file of these results ({error}); pass another file") from error
    columns = [*header, *(name for name in record if name not in header)]
    rows = [row + [""] * (len(columns) - len(header)) for row in rows]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([columns, *rows, [record.get(name, "") for name in columns]])
    write_text(path, text.getvalue())
