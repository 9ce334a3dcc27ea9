"""TransferSuite: how well a logistic regression of frozen vectors does on SentEval's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.data.transfer import TransferTask, read_transfer, tasks_in
from sbert.evaluation.checks import names
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.metrics import accuracy, f1
from sbert.inputs.arguments import check_positive
from sbert.inputs.extras import missing
from sbert.pipeline.progress import progress_bar

TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")

# SentEval's: C for tasks with folds or a development part, and for those with a train and a test part alone.
_GRID = [2.0**power for power in range(-2, 4)]
_WIDE = [2.0**power for power in range(-1, 6)]
_SEED = 1111
_INNER = 5

# Rows to train with, to choose C with (if they are others), and to measure with.
Fold = tuple[np.ndarray, np.ndarray | None, np.ndarray]


class TransferSuite(Evaluator):
    r"""The accuracy of logistic regression on a model's vectors, which stay as they are, on classification tasks.

        features = u                    for sentences
        features = (\|u - v\|, u * v)   for pairs

    ``MR``, ``CR``, ``SUBJ`` and ``MPQA`` are the mean of a stratified cross-validation with 10 folds, ``SST2``,
    ``TREC`` and ``MRPC`` the accuracy on the test part; ``MRPC_f1`` is F1 of its paraphrases. ``average`` is the mean
    of the accuracies. All are fractions, where tables have them times 100.

    The strength of the L2 penalty is chosen from SentEval's grids: C of 2^-2 to 2^3 on the development part if there
    is one, or in each of the 10 folds on inner folds of the other 9; C of 2^-1 to 2^5 on folds of the training part
    where there is a test part alone. What differs from SentEval: 5 inner folds for its 10; scikit-learn's solver
    lbfgs in float64, to a tolerance of 1e-5, with all classes in one model; and training parts of more than ``rows``
    rows are thinned out evenly, of which there are none among the seven. SNLI is measured as the other pairs are, where
    SentEval adds u and v to the features and has no penalty; MNLI is none of its tasks.

    Args:
        folder: As ``read_transfer`` takes it.
        tasks: Names of tasks; those of the seven that are in the folder where it is not given, and ``suite.missing``
            names the others. SST5, SICK-E, SNLI and MNLI can be had, too.
        folds: How many the cross-validation has.
        rows: At most so many rows of a training part.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        FileNotFoundError: If the folder has none of the tasks, or not one that ``tasks`` names.
        ImportError: If scikit-learn is not installed.
        TypeError: If ``tasks`` is one string.
        ValueError: If a task is unknown; or if a file does not fit, with the line's number.

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
        self.prompt = prompt
        if find_spec("sklearn") is None:
            raise missing("TransferSuite", "scikit-learn", "evaluation")
        self.folds, self.rows = check_positive("folds", folds) or 0, check_positive("rows", rows) or 0
        if self.folds < 2:
            raise ValueError(f"folds={folds} is too small; pass at least 2")
        present = tasks_in(folder)
        self.missing = [name for name in TASKS if name not in present] if tasks is None else []
        wanted = [name for name in TASKS if name in present] if tasks is None else names("tasks", tasks)
        if tasks is not None and not wanted:
            raise ValueError(f"tasks names none; pass some of {', '.join(TASKS)}, or leave it out")
        if not wanted:
            raise FileNotFoundError(f"{folder} has no {' or '.join(TASKS)}; see read_transfer for how files are named")
        self.tasks = [read_transfer(folder, name) for name in wanted]

    def measure(self, vectors: Vectors) -> dict[str, float]:
        problems = [_Problem.of(task, self.folds, self.rows) for task in self.tasks]
        texts = [text for problem in problems for column in problem.columns for text in column]
        vectors(list(dict.fromkeys(texts)), prompt=self.prompt)
        ranks, jobs = vectors.ranks, [(problem, fold) for problem in problems for fold in problem.folds]

        def own() -> Tensor:
            """(own folds, 1, 2): accuracy and F1 of the folds that this process does."""
            made = list(_work(vectors, self.prompt, jobs[ranks.rank :: ranks.world]))
            return torch.tensor(made, dtype=torch.float64).reshape(len(made), 1, 2)

        found = iter(ranks.gather(ranks.together(own), len(jobs))[:, 0].tolist())
        figures: dict[str, float] = {}
        for problem in problems:
            folds = [next(found) for _ in problem.folds]
            figures[problem.name] = float(np.mean([right for right, _ in folds]))
            if problem.name == "MRPC":
                figures["MRPC_f1"] = folds[0][1]
        average = float(np.mean([figures[problem.name] for problem in problems]))
        return {"average": average, **figures}


@dataclass(frozen=True, eq=False)
class _Problem:
    """A task, laid out as rows, some of which make up each fold."""

    name: str
    columns: list[list[str]]
    labels: np.ndarray
    folds: list[Fold]
    grid: list[float]

    @classmethod
    def of(cls, task: TransferTask, folds: int, most: int) -> _Problem:
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
                raise ValueError(
                    f"{task.name} has {least} rows of a class, too few for folds={folds}; pass fewer folds"
                )
            cut = StratifiedKFold(folds, shuffle=True, random_state=_SEED).split(labels, labels)
            parts: list[Fold] = [(train, None, test) for train, test in cut]
        else:
            parts = [(splits["train"], splits.get("dev"), splits["test"])]
        columns = [[row[name] for row in every] for name in task.columns]
        return cls(task.name, columns, labels, parts, _GRID if "dev" in splits or "all" in splits else _WIDE)


def _work(vectors: Vectors, prompt: str | None, jobs: list[tuple[_Problem, Fold]]) -> Iterator[tuple[float, float]]:
    """The accuracy and the F1 of class 1 of each fold."""
    from threadpoolctl import threadpool_limits

    bar = progress_bar(vectors.show_progress_bar, total=len(jobs), desc="Folds")
    with bar if bar is not None else nullcontext(), threadpool_limits(1):  # Threads wait for each other, on small work.
        for problem, group in groupby(jobs, key=lambda job: job[0]):
            features = _features([vectors(column, prompt=prompt) for column in problem.columns])
            for _, fold in group:
                yield _judged(features, problem.labels, fold, problem.grid)
                if bar is not None:
                    bar.update()


def _features(columns: list[np.ndarray]) -> np.ndarray:
    """What the classifier sees: (rows, dim) of sentences, (rows, 2 dim) of pairs."""
    if len(columns) == 1:
        return columns[0]
    first, second = columns
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def _judged(features: np.ndarray, labels: np.ndarray, fold: Fold, grid: list[float]) -> tuple[float, float]:
    """Choose the strength without a look at the test rows, fit with all rows for training, and test."""
    from sklearn.model_selection import StratifiedKFold

    train, dev, test = fold
    if dev is not None:
        inner = [(train, dev)]
    else:
        cut = StratifiedKFold(_INNER, shuffle=True, random_state=_SEED).split(train, labels[train])
        inner = [(train[rest], train[held_out]) for rest, held_out in cut]
    accuracies = np.mean([_accuracies(features, labels, *rows, grid) for rows in inner], axis=0)
    best = grid[int(np.argmax(accuracies))]  # Of equal ones that of the strongest penalty.
    found = _regression(best).fit(features[train].astype(float), labels[train]).predict(features[test])
    return accuracy(found, labels[test]), f1(found == 1, labels[test] == 1)


def _accuracies(
    features: np.ndarray, labels: np.ndarray, train: np.ndarray, held_out: np.ndarray, grid: list[float]
) -> list[float]:
    """The accuracy on held-out rows for each strength; each fit starts from the one before, and soon ends."""
    rows, model = features[train].astype(float), _regression(grid[0], warm_start=True)
    return [
        float(model.set_params(C=strength).fit(rows, labels[train]).score(features[held_out], labels[held_out]))
        for strength in grid
    ]


def _regression(strength: float, **options: Any) -> Any:
    # In float32 the solver may stop short of the tolerance.
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, tol=1e-5, max_iter=1000, **options)
