"""STSSuite: the similarity figures of the field's tables, from a folder of their data."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sbert.data.sts import read_sick, read_sts, read_sts_year
from sbert.data.tables import check_folder, located
from sbert.evaluation.checks import names
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.metrics import spearman
from sbert.evaluation.pair_scores import compared
from sbert.inputs.arguments import check_choice

# Pairs and scores of a sub-set.
Pairs = tuple[list[str], list[str], np.ndarray]

_YEARS = {f"STS{year}": (f"sts/STS{year}", f"STS/STS{year}-en-test", f"STS{year}") for year in range(12, 17)}
_FILES = {
    "STSb": ("stsb/test.tsv", "STS/STSBenchmark/sts-test.csv", "stsbenchmark/sts-test.csv", "sts-test.csv"),
    "SICK-R": ("sick/test.tsv", "SICK/SICK_test_annotated.txt"),
}
SETS = (*_YEARS, *_FILES)


class STSSuite(Evaluator):
    r"""Spearman's correlation of cosines and scores on STS12 to STS16, the STS benchmark's test and SICK's.

        figure = spearman( cos(u_i, v_i), score_i )

    ``STS12`` to ``STS16`` are SentEval's *all*, as in most tables: all pairs of the year's sub-sets in one list, and
    the correlation of that. ``STS12_mean`` and so on are the mean of the sub-sets' correlations, each with the same
    weight, which differs by points. ``STSb`` and ``SICK-R`` have no sub-sets. ``average`` is the mean of the seven
    without the means, or of as many as there are. All are fractions, where tables have them times 100.

    The years have pairs of the STS benchmark's train part: their figures say nothing of a model trained on it.

    Args:
        folder: With ``sts/STS12/NAME.tsv``, ``stsb/test.tsv`` and ``sick/test.tsv``, or SentEval's ``downstream``
            with ``STS/STS12-en-test``, ``STS/STSBenchmark/sts-test.csv`` and ``SICK/SICK_test_annotated.txt``.
        sets: Names among STS12 to STS16, STSb and SICK-R; those that are in the folder where it is not given.
            ``suite.missing`` names the others.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        FileNotFoundError: If the folder has none of them, or not one that ``sets`` names.
        TypeError: If ``sets`` is one string.
        ValueError: If a name is unknown, or there is none; or a file does not fit, with the line's number.

    References:
        Reimers and Gurevych, 2019, table 1. https://arxiv.org/abs/1908.10084
        Conneau and Kiela, 2018 (SentEval). https://arxiv.org/abs/1803.05449

    Example:
        >>> import tempfile
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
        root, self.prompt = Path(folder), prompt
        check_folder(root)
        wanted = SETS if sets is None else names("sets", sets)
        if not wanted:
            raise ValueError(f"sets names none; pass some of {', '.join(SETS)}, or leave it out")
        places = {name: located(root, _paths(name)) for name in wanted}
        self.missing = [name for name, place in places.items() if place is None]
        if self.missing and (sets is not None or len(self.missing) == len(wanted)):
            looked = "; ".join(f"{name}: {' or '.join(_paths(name))}" for name in self.missing)
            raise FileNotFoundError(f"{root} has no {', '.join(self.missing)}; they are looked for at {looked}")
        self.sets = {name: _read(name, place) for name, place in places.items() if place is not None}

    def measure(self, vectors: Vectors) -> dict[str, float]:
        pairs = [pair for parts in self.sets.values() for pair in parts.values()]
        if not vectors.is_cross_encoder:
            texts = dict.fromkeys(text for first, second, _ in pairs for text in (*first, *second))
            vectors(list(texts), prompt=self.prompt)
        whole, means = {}, {}
        for name, parts in self.sets.items():
            cosines = [
                compared(vectors, first, second, {"": "cosine"}, self.prompt)[""] for first, second, _ in parts.values()
            ]
            scores = [score for _, _, score in parts.values()]
            whole[name] = spearman(np.concatenate(cosines), np.concatenate(scores))
            if name in _YEARS:
                means[f"{name}_mean"] = float(np.mean([spearman(*both) for both in zip(cosines, scores, strict=True)]))
        return {"average": float(np.mean(list(whole.values()))), **whole, **means}


def _paths(name: str) -> tuple[str, ...]:
    check_choice("set", name, SETS)
    return _YEARS.get(name) or _FILES[name]


def _read(name: str, place: Path) -> dict[str, Pairs]:
    """The sub-sets of a set, of which a benchmark has one."""
    if name in _YEARS:
        parts = read_sts_year(place, None)
    else:
        parts = {name: read_sick(place, scale=None) if name == "SICK-R" else read_sts(place, None)}
    return {
        part: (
            [row["first"] for row in rows],
            [row["second"] for row in rows],
            np.array([row["label"] for row in rows], float),
        )
        for part, rows in parts.items()
    }
