"""TransferSuite: logistic regression on frozen vectors for the classification tasks of SentEval."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.data.transfer import TransferTask, read_transfer, tasks_in
from sbert.evaluation.checks import names
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metrics import accuracy, f1
from sbert.evaluation.vectors import Floats, Vectors
from sbert.inputs.arguments import check_count
from sbert.inputs.extras import missing
from sbert.pipeline.progress import progress_bar

TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")

# SentEval's values of C: for tasks with folds or a development set, and for tasks with a training and a test set only.
_GRID = [2.0**power for power in range(-2, 4)]
_GRID_WITHOUT_DEV = [2.0**power for power in range(-1, 6)]
_SEED = 1111
_INNER_FOLDS = 5

# Indices of the rows for training, for the choice of C (None for inner folds of the training rows), and for testing.
Rows = npt.NDArray[np.int64]
Fold = tuple[Rows, Rows | None, Rows]


class TransferSuite(Evaluator):
    r"""The accuracy of a logistic regression on a model's frozen vectors, on SentEval's classification tasks.

        features = u                    for sentences
        features = (\|u - v\|, u * v)   for pairs

    ``MR``, ``CR``, ``SUBJ`` and ``MPQA`` are means of a stratified cross-validation with 10 folds; ``SST2``, ``TREC``
    and ``MRPC`` are the accuracy on the test set; ``MRPC_f1`` is the F1 of its paraphrases. ``average`` is the mean of
    the accuracies. All values are fractions, which publications multiply by 100.

    The strength of the L2 penalty is chosen from SentEval's grids: C of 2^-2 to 2^3 on the development set, or, with
    cross-validation, on inner folds of the training folds; C of 2^-1 to 2^5 on folds of the training set if there is
    only a test set besides. The differences from SentEval are: 5 inner folds instead of 10; scikit-learn's solver
    lbfgs in float64, with a tolerance of 1e-5 and one multinomial model; and training sets of more than ``rows`` rows
    are evenly subsampled, which does not occur in the seven default tasks. SNLI uses the features above, while
    SentEval adds u and v to them and uses no penalty. MNLI is not a task of SentEval.

    Args:
        folder: The folder of the data, as for ``read_transfer``.
        tasks: Names of tasks; by default those of the seven that are in the folder. The attribute ``missing`` has the
            names of the others. SST5, SICK-E, SNLI and MNLI are also available.
        folds: Number of folds of the cross-validation.
        rows: Maximum number of rows of a training set.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        FileNotFoundError: If the folder has none of the tasks, or lacks one that ``tasks`` names.
        ImportError: If scikit-learn is not installed.
        TypeError: If ``tasks`` is a single string.
        ValueError: If a task is unknown, or a file is invalid; the message has the line number.

    References:
        Conneau and Kiela, 2018. https://arxiv.org/abs/1803.05449
        Reimers and Gurevych, 2019, section 5 and table 5. https://arxiv.org/abs/1908.10084

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [f"{i}\t{word} film number {n}" for n in range(20) for i, word in enumerate(["bad", "good"])]
        ...     _ = (Path(folder) / "MR.tsv").write_text("label\ttext\n" + "\n".join(texts))
        ...     TransferSuite(folder, folds=2)(model)
        {'average': 1.0, 'MR': 1.0}
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        tasks: Iterable[str] | None = None,
        *,
        folds: int = 10,
        rows: int = 100_000,
        prompt: str | None = None,
    ) -> None:
        if find_spec("sklearn") is None:
            raise missing("TransferSuite", "scikit-learn", "evaluation")
        self._folds, self._rows, self._prompt = check_count("folds", folds), check_count("rows", rows), prompt
        if folds < 2:
            raise ValueError(f"folds={folds} is too small; pass at least 2")
        wanted, present = names("tasks", tasks, TASKS), tasks_in(folder)
        self.missing: list[str] = [name for name in wanted if name not in present and tasks is None]
        if len(self.missing) == len(wanted):
            raise FileNotFoundError(f"{folder} has no {' or '.join(TASKS)}; see read_transfer for the names of files")
        self.tasks: list[TransferTask] = [read_transfer(folder, name) for name in wanted if name not in self.missing]

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The accuracy of each task, after their average."""
        problems = [_problem(task, self._folds, self._rows) for task in self.tasks]
        texts = dict.fromkeys(text for problem in problems for column in problem.columns for text in column)
        vectors(list(texts), prompt=self._prompt)  # One call that encodes all texts.
        ranks, jobs = vectors.ranks, [(problem, fold) for problem in problems for fold in problem.folds]
        own = ranks.together(lambda: _fold_metrics(vectors, self._prompt, jobs[ranks.rank :: ranks.world]))
        results = ranks.gather(torch.tensor(own, dtype=torch.float64).reshape(-1, 1, 2), len(jobs))  # (folds, 1, 2)
        metrics: dict[str, float] = {}
        for problem, part in zip(problems, torch.split(results, [len(each.folds) for each in problems]), strict=True):
            metrics[problem.name], f1_of_class_1 = part.mean((0, 1)).tolist()
            if problem.name == "MRPC":
                metrics["MRPC_f1"] = f1_of_class_1
        average = float(np.mean([metrics[problem.name] for problem in problems]))
        return {"average": average, **metrics}


@dataclass(frozen=True, eq=False)
class _Problem:
    """A task: its columns of texts and labels, its folds as indices of rows, and the values of C to choose from."""

    name: str
    columns: list[list[str]]
    labels: npt.NDArray[np.int64]
    folds: list[Fold]
    grid: list[float]


def _problem(task: TransferTask, folds: int, most: int) -> _Problem:
    from sklearn.model_selection import StratifiedKFold

    rows = {split: list(part) for split, part in task.splits.items()}
    if len(rows.get("train", ())) > most:
        places = np.linspace(0, len(rows["train"]), most, endpoint=False).astype(int)
        rows["train"] = [rows["train"][place] for place in places]
    every = [row for part in rows.values() for row in part]
    labels = np.array([row["label"] for row in every])
    ends = np.cumsum([len(part) for part in rows.values()])
    splits = dict(zip(rows, np.split(np.arange(len(every)), ends[:-1]), strict=True))
    if "all" in splits:
        least = int(np.bincount(labels).min())
        if least < folds:
            raise ValueError(f"{task.name} has {least} rows of a class, too few for folds={folds}; pass fewer folds")
        halves = StratifiedKFold(folds, shuffle=True, random_state=_SEED).split(labels, labels)
        parts: list[Fold] = [(train, None, test) for train, test in halves]
    else:
        parts = [(splits["train"], splits.get("dev"), splits["test"])]
    grid = _GRID if "dev" in splits or "all" in splits else _GRID_WITHOUT_DEV
    return _Problem(task.name, [[row[name] for row in every] for name in task.columns], labels, parts, grid)


def _fold_metrics(vectors: Vectors, prompt: str | None, jobs: list[tuple[_Problem, Fold]]) -> list[tuple[float, float]]:
    """The accuracy and the F1 of class 1 of each fold."""
    from threadpoolctl import threadpool_limits

    found = []
    bar = progress_bar(vectors.show_progress_bar, total=len(jobs), desc="Folds")
    with bar if bar is not None else nullcontext(), threadpool_limits(1):  # Such small matrices gain nothing by more.
        for problem, group in groupby(jobs, key=lambda job: job[0]):
            first, *second = (vectors(column, prompt=prompt) for column in problem.columns)
            # (rows, dim) for sentences, (rows, 2 dim) for pairs
            features = np.concatenate([np.abs(first - second[0]), first * second[0]], 1) if second else first
            for _, fold in group:
                found.append(_measure_fold(features, problem.labels, fold, problem.grid))
                if bar is not None:
                    bar.update()
    return found


def _measure_fold(features: Floats, labels: Rows, fold: Fold, grid: list[float]) -> tuple[float, float]:
    """Choose C without the test rows, fit on all training rows, and return accuracy and F1 on the test rows."""
    from sklearn.model_selection import StratifiedKFold

    train, dev, test = fold
    if dev is not None:
        inner = [(train, dev)]
    else:
        folds = StratifiedKFold(_INNER_FOLDS, shuffle=True, random_state=_SEED).split(train, labels[train])
        inner = [(train[rest], train[held_out]) for rest, held_out in folds]
    accuracies = np.mean([_accuracies(features, labels, *rows, grid) for rows in inner], axis=0)
    best = grid[int(np.argmax(accuracies))]  # Of several best values, that with the strongest penalty.
    predicted = _regression(best).fit(features[train].astype(float), labels[train]).predict(features[test])
    return accuracy(predicted, labels[test]), f1(predicted == 1, labels[test] == 1)


def _accuracies(features: Floats, labels: Rows, train: Rows, held_out: Rows, grid: list[float]) -> list[float]:
    """The accuracy on held-out rows for each C; each fit starts from the previous one, so that it converges fast."""
    rows, model = features[train].astype(float), _regression(grid[0], warm_start=True)
    return [
        float(model.set_params(C=c).fit(rows, labels[train]).score(features[held_out], labels[held_out])) for c in grid
    ]


def _regression(c: float, **options: Any) -> Any:
    # Fit it on float64: in float32 the solver may stop before it reaches the tolerance.
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, tol=1e-5, max_iter=1000, **options)
