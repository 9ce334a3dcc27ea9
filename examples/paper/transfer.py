"""The transfer suite: logistic regression on frozen vectors, for the classification tasks of SentEval.

Run it on any model: python -m examples.paper.transfer MODEL --data FOLDER
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.paper.transfer_data import SOURCES, TransferTask, list_tasks, read_transfer
from sbert import SentenceEncoder
from sbert.evaluation import Evaluator, ModelVectors
from sbert.evaluation.metrics import accuracy, f1

TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")

# SentEval's values of C: for tasks with folds or a development set, and for tasks with a training and a test set only.
GRID = [2.0**power for power in range(-2, 4)]
GRID_WITHOUT_DEV = [2.0**power for power in range(-1, 6)]
SEED = 1111
INNER_FOLDS = 5

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
        ValueError: If a task is unknown, or a file is invalid.

    References:
        Conneau and Kiela, 2018. https://arxiv.org/abs/1803.05449
        Reimers and Gurevych, 2019, section 5 and table 5. https://arxiv.org/abs/1908.10084
    """

    def __init__(
        self,
        folder: Path,
        tasks: Sequence[str] | None = None,
        *,
        folds: int = 10,
        rows: int = 100_000,
        prompt: str | None = None,
    ) -> None:
        self._folds, self._rows, self._prompt = folds, rows, prompt
        wanted, present = list(tasks or TASKS), list_tasks(folder)
        self.missing: list[str] = [name for name in wanted if name not in present and tasks is None]
        if len(self.missing) == len(wanted):
            raise FileNotFoundError(f"{folder} has no {' or '.join(TASKS)}; see read_transfer for the names of files")
        self.tasks: list[TransferTask] = [read_transfer(folder, name) for name in wanted if name not in self.missing]

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The accuracy of each task, after their average."""
        from threadpoolctl import threadpool_limits

        problems = [prepare(task, self._folds, self._rows) for task in self.tasks]
        texts = dict.fromkeys(text for problem in problems for column in problem.columns for text in column)
        vectors(list(texts), prompt=self._prompt)  # One call that encodes all texts.
        metrics: dict[str, float] = {}
        for problem in problems:
            first, *second = (vectors(column, prompt=self._prompt) for column in problem.columns)
            # (rows, dim) for sentences, (rows, 2 dim) for pairs
            features = np.concatenate([np.abs(first - second[0]), first * second[0]], 1) if second else first
            with threadpool_limits(1):  # Such small matrices gain nothing by more.
                folds = [measure_fold(features, problem.labels, fold, problem.grid) for fold in problem.folds]
            metrics[problem.name], f1_of_class_1 = np.mean(folds, axis=0).tolist()
            if problem.name == "MRPC":
                metrics["MRPC_f1"] = f1_of_class_1
        average = float(np.mean([metrics[problem.name] for problem in problems]))
        return {"average": average, **metrics}


@dataclass(frozen=True, eq=False)
class Problem:
    """A task: its columns of texts and labels, its folds as indices of rows, and the values of C to choose from."""

    name: str
    columns: list[list[str]]
    labels: npt.NDArray[np.int64]
    folds: list[Fold]
    grid: list[float]


def prepare(task: TransferTask, folds: int, most: int) -> Problem:
    """The rows, labels and folds of a task; a training set of more than ``most`` rows is evenly subsampled."""
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
        halves = StratifiedKFold(folds, shuffle=True, random_state=SEED).split(labels, labels)
        parts: list[Fold] = [(train, None, test) for train, test in halves]
    else:
        parts = [(splits["train"], splits.get("dev"), splits["test"])]
    grid = GRID if "dev" in splits or "all" in splits else GRID_WITHOUT_DEV
    return Problem(task.name, [[row[name] for row in every] for name in task.columns], labels, parts, grid)


def measure_fold(features: npt.NDArray[np.float32], labels: Rows, fold: Fold, grid: list[float]) -> tuple[float, float]:
    """Choose C without the test rows, fit on all training rows, and return accuracy and F1 on the test rows."""
    from sklearn.model_selection import StratifiedKFold

    train, dev, test = fold
    if dev is not None:
        inner = [(train, dev)]
    else:
        folds = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=SEED).split(train, labels[train])
        inner = [(train[rest], train[held_out]) for rest, held_out in folds]
    scores = np.mean([score(features, labels, *rows, grid) for rows in inner], axis=0)
    best = grid[int(np.argmax(scores))]  # Of several best values, that with the strongest penalty.
    predicted = regression(best).fit(features[train].astype(float), labels[train]).predict(features[test])
    return accuracy(predicted, labels[test]), f1(predicted == 1, labels[test] == 1)


def score(
    features: npt.NDArray[np.float32], labels: Rows, train: Rows, held_out: Rows, grid: list[float]
) -> list[float]:
    """The accuracy on held-out rows for each C; each fit starts from the previous one, so that it converges fast."""
    rows, model = features[train].astype(float), regression(grid[0], warm_start=True)
    return [
        float(model.set_params(C=c).fit(rows, labels[train]).score(features[held_out], labels[held_out])) for c in grid
    ]


def regression(c: float, **options: Any) -> Any:
    """The classifier. Fit it on float64: in float32 the solver may stop before it reaches the tolerance."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, tol=1e-5, max_iter=1000, **options)


def main() -> None:
    """Print the figures of a model in percent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder, or name on the hub")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data, see read_transfer")
    parser.add_argument("--tasks", type=lambda names: names.split(","), help=f"of {','.join(SOURCES)}")
    parser.add_argument("--prompt", help="prompt of the texts: a name or a text")
    options = parser.parse_args()
    suite = TransferSuite(options.data, options.tasks, prompt=options.prompt)
    for name, figure in suite(SentenceEncoder(options.model)).items():
        print(f"{name:10} {100 * figure:6.2f}")


if __name__ == "__main__":
    main()
