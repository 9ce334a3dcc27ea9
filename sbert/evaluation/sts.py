"""STSSuite: the standard tasks of semantic textual similarity, from a folder of their data."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sbert.data.sentence_pairs import read_sick, read_sts, read_sts_year
from sbert.data.tables import check_folder, locate
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metric_checks import check_name_list
from sbert.evaluation.metrics import spearman
from sbert.evaluation.model_vectors import ModelVectors
from sbert.evaluation.pair_evaluators import compare_pairs
from sbert.inputs.arguments import check_choice

# First texts, second texts and scores of a subset.
_Subset = tuple[list[Any], ...]

_YEARS = {f"STS{year}": (f"sts/STS{year}", f"STS/STS{year}-en-test", f"STS{year}") for year in range(12, 17)}
_FILES = {
    "STSb": ("stsb/test.tsv", "STS/STSBenchmark/sts-test.csv", "stsbenchmark/sts-test.csv", "sts-test.csv"),
    "SICK-R": ("sick/test.tsv", "SICK/SICK_test_annotated.txt"),
}
SETS = (*_YEARS, *_FILES)


class STSSuite(Evaluator):
    r"""Spearman's correlation of cosines and scores on STS12 to STS16, and the test sets of STSb and SICK-R.

        metric = spearman( cos(u_i, v_i), score_i )

    ``STS12`` to ``STS16`` are SentEval's *all*, as in most publications: one correlation over all pairs of the year's
    subsets. ``STS12_mean`` and so on are the means of the subsets' correlations, which can differ by several points.
    ``STSb`` and ``SICK-R`` have no subsets. ``average`` is the mean of the seven tasks, or of those in the folder,
    without the ``_mean`` values. All values are fractions, which publications multiply by 100.

    Sparse and multi-vector encoders are measured by their own similarity instead of the cosine.

    STS12 to STS16 contain training pairs of STSb: they are not a valid test of a model trained on STSb.

    Args:
        folder: A folder with ``sts/STS12/NAME.tsv``, ``stsb/test.tsv`` and ``sick/test.tsv``, or SentEval's folder
            ``downstream`` with ``STS/STS12-en-test``, ``STS/STSBenchmark/sts-test.csv`` and
            ``SICK/SICK_test_annotated.txt``.
        sets: Names among STS12 to STS16, STSb and SICK-R; by default all that are in the folder. The attribute
            ``missing`` has the names of the others.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        FileNotFoundError: If the folder has none of them, or lacks one that ``sets`` names.
        TypeError: If ``sets`` is a single string.
        ValueError: If a name is unknown, ``sets`` is empty, or a file is invalid; the message has the line number.

    References:
        Reimers and Gurevych, 2019, table 1. https://arxiv.org/abs/1908.10084
        Conneau and Kiela, 2018 (SentEval). https://arxiv.org/abs/1803.05449

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import STSSuite
        >>> model = SentenceEncoder()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (Path(folder) / "stsb").mkdir()
        ...     rows = "4.5\tA cat sleeps.\tA kitten naps.\n0.0\tA cat sleeps.\tTaxes rise.\n"
        ...     _ = (Path(folder) / "stsb" / "test.tsv").write_text(f"score\tsentence1\tsentence2\n{rows}")
        ...     STSSuite(folder)(model)
        {'average': 1.0, 'STSb': 1.0}
    """

    def __init__(
        self, folder: str | os.PathLike[str], sets: Iterable[str] | None = None, *, prompt: str | None = None
    ) -> None:
        root, self._prompt = Path(folder), prompt
        check_folder(root)
        wanted = check_name_list("sets", sets, SETS)
        paths = {name: locate(root, _paths(name)) for name in wanted}
        self.missing: list[str] = [name for name, path in paths.items() if path is None]
        if self.missing and (sets is not None or len(self.missing) == len(wanted)):
            expected = "; ".join(f"{name}: {' or '.join(_paths(name))}" for name in self.missing)
            raise FileNotFoundError(f"{root} has no {', '.join(self.missing)}; the expected paths are {expected}")
        self.sets = {name: _read(name, path) for name, path in paths.items() if path is not None}

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The correlation of each task and the mean of its subsets, after the average of the tasks."""
        if not vectors.is_cross_encoder:  # One call that encodes all texts.
            pairs = [pair for parts in self.sets.values() for pair in parts.values()]
            texts = dict.fromkeys(text for first, second, _ in pairs for text in (*first, *second))
            vectors(list(texts), prompt=self._prompt)
        totals, means = {}, {}
        for name, parts in self.sets.items():
            compared = [(compare_pairs(vectors, u, v, None, self._prompt), scores) for u, v, scores in parts.values()]
            totals[name] = spearman(*map(np.concatenate, zip(*compared, strict=True)))
            if name in _YEARS:
                means[f"{name}_mean"] = float(np.mean([spearman(*part) for part in compared]))
        return {"average": float(np.mean(list(totals.values()))), **totals, **means}


def _paths(name: str) -> tuple[str, ...]:
    check_choice("set", name, SETS)
    return _YEARS.get(name) or _FILES[name]


def _read(name: str, path: Path) -> dict[str, _Subset]:
    """The subsets of a set by name; STSb and SICK-R have one each."""
    if name in _YEARS:
        parts = read_sts_year(path, None)
    else:
        parts = {name: read_sick(path, scale=None) if name == "SICK-R" else read_sts(path, None)}
    columns = ("first", "second", "label")
    return {part: tuple([row[name] for row in rows] for name in columns) for part, rows in parts.items()}
