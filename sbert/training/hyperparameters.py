"""Search of hyper-parameters: trials with settings that Optuna chooses, in a file from which a search is resumed."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sbert.inputs.arguments import check_count, known_arguments, warn
from sbert.inputs.extras import needed
from sbert.training.callbacks import Callback, Progress
from sbert.training.trainer import Trainer

# For each setting, a list of choices; or the lowest and the highest number, for a logarithmic scale with a third "log".
Space = Mapping[str, Sequence[Any]]


class Trial(NamedTuple):
    """One trial of a search.

    Args:
        number: Its number, from 0.
        settings: What was chosen.
        score: Its best score; of a pruned trial, the best until then; NaN if there is none.
        pruned: Whether it was ended early, because others were better after as many steps.
    """

    number: int
    settings: dict[str, Any]
    score: float
    pruned: bool


@known_arguments
def search(
    space: Space,
    trials: int,
    make: Callable[[dict[str, Any]], Trainer],
    *,
    storage: str | os.PathLike[str] | None = None,
    prune: bool = True,
    seed: int = 0,
) -> list[Trial]:
    """Search settings of a training, and return the finished trials, the best first.

    Each trial makes a trainer and fits it. Its score is the best one of the evaluations, of the metric that
    ``TrainingConfig`` names. The values are chosen by a tree-structured Parzen estimator from those of earlier trials.

    Other programs search in the same way. With Ray Tune, a trial is the function
    ``lambda values: {"score": max(e["evaluation"]["spearman"] for e in make(values).fit() if "evaluation" in e)}``
    for ``ray.tune.Tuner(trial, param_space={"learning_rate": ray.tune.loguniform(1e-6, 1e-3)})``.

    Args:
        space: For each setting, a list of choices, or a tuple of the lowest and the highest number: whole numbers if
            both are, and on a logarithmic scale with a third value ``"log"``.
        trials: Number of trials in all, with those that the file already holds.
        make: A function from the chosen settings to a trainer with an evaluator. It loads the model, as each trial
            starts from the same weights.
        storage: A file of the trials. A search with the same file goes on; a trial that was interrupted begins again.
        prune: Whether to end a trial whose score is below the median of the others after as many steps, from the sixth
            trial on.
        seed: Seed of the choices.

    Raises:
        ImportError: If optuna is not installed.
        ValueError: If the space is empty or has a wrong range, or a trainer has no evaluator.

    References:
        Akiba et al., 2019, Optuna. https://arxiv.org/abs/1907.10902
        Bergstra et al., 2011, section 4 (the estimator).
        https://papers.nips.cc/paper/2011/hash/86e8f7ab32cfd12577bc2619bc635690-Abstract.html

    Example:
        >>> from sbert.losses import CosineSimilarityLoss
        >>> from sbert.evaluation import SimilarityEvaluator
        >>> rows = [("A cat sleeps.", "A kitten naps.", 0.9), ("A cat sleeps.", "Taxes rise.", 0.0)]
        >>> def make(settings):
        ...     config, measure = TrainingConfig(steps=2, **settings), SimilarityEvaluator(*zip(*rows))
        ...     return Trainer(SentenceEncoder(device="cpu"), rows, CosineSimilarityLoss(), config, evaluator=measure)
        >>> found = search({"learning_rate": (1e-6, 1e-3, "log"), "schedule": ["linear", "cosine"]}, 2, make)
        >>> len(found), found[0].score, sorted(found[0].settings)
        (2, 1.0, ['learning_rate', 'schedule'])
    """
    with needed("search()", "optuna", "hyperparameters"):
        import optuna  # type: ignore[import-not-found, unused-ignore]
    _check_space(space)
    check_count("trials", trials)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = _study(optuna, storage, prune, seed)
    finished = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED

    def run(trial: Any) -> float:
        try:
            chosen = {name: _choose(trial, name, values) for name, values in space.items()}
        except ValueError as error:
            raise ValueError(f"{storage} holds trials of another space ({error}); pass another file") from error
        trainer = make(chosen)
        if trainer.evaluator is None:
            raise ValueError("the trainer has no evaluator, so its trial has no score; pass evaluator=")
        watch = _Watch(trial, trainer)
        trainer.callbacks = [*trainer.callbacks, watch]
        try:
            trainer.fit(show_progress_bar=False)
        except FloatingPointError as error:  # Too high a learning rate, for instance: a bad trial.
            warn(f"trial {trial.number}: {error}")
        except KeyboardInterrupt:
            study.enqueue_trial(trial.params)
            raise
        trial.set_user_attr("score", watch.best)
        trial.set_user_attr("sign", watch.sign)
        if watch.pruned or math.isnan(watch.best):
            raise optuna.TrialPruned
        return watch.sign * watch.best

    left = trials - sum(trial.state in finished for trial in study.trials)
    if left > 0:
        study.optimize(run, n_trials=left)
    done = [trial for trial in study.trials if trial.state in finished]
    found = [
        (trial.user_attrs["sign"], Trial(trial.number, dict(trial.params), trial.user_attrs["score"], pruned))
        for trial in done
        for pruned in [trial.state == finished[1] and not math.isnan(trial.user_attrs["score"])]
    ]
    found.sort(key=lambda each: (math.isnan(each[1].score), each[1].pruned, -each[0] * each[1].score))
    return [trial for _, trial in found]


def _study(optuna: Any, storage: str | os.PathLike[str] | None, prune: bool, seed: int) -> Any:
    """The study of a file, or a new one."""
    kept = None
    if storage is not None:
        from optuna.storages import JournalStorage  # type: ignore[import-not-found, unused-ignore]
        from optuna.storages.journal import JournalFileBackend  # type: ignore[import-not-found, unused-ignore]

        Path(storage).parent.mkdir(parents=True, exist_ok=True)
        kept = JournalStorage(JournalFileBackend(os.fspath(storage)))
    pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
    study = optuna.create_study(
        storage=kept, study_name="search", load_if_exists=True, direction="maximize", pruner=pruner
    )
    # A resumed search must not choose once more what it chose first.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # Interrupted.
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    return study


class _Watch(Callback):
    """Reports the scores of a trial, and ends it if Optuna wants that."""

    def __init__(self, trial: Any, trainer: Trainer) -> None:
        self.trial, self.config = trial, trainer.config
        self.best, self.sign, self.pruned = math.nan, 1, False

    def on_evaluate(self, progress: Progress) -> None:
        """Report the score."""
        metric = self.config.metric or next(iter(progress.figures))
        score, self.sign = float(progress.figures[metric]), -1 if self.config.lower_is_better(metric) else 1
        if progress.improved:
            self.best = score
        if not math.isnan(score):
            self.trial.report(self.sign * score, progress.step)
            if progress.step < progress.total and self.trial.should_prune():
                self.pruned = True
                progress.stop()


def _choose(trial: Any, name: str, values: Sequence[Any]) -> Any:
    if isinstance(values, list):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Choices for a categorical")  # Lists can be written to the file, too.
            return trial.suggest_categorical(name, values)
    low, high, *scale = values
    suggest = trial.suggest_int if isinstance(low, int) and isinstance(high, int) else trial.suggest_float
    return suggest(name, low, high, log=bool(scale))


def _check_space(space: Space) -> None:
    if not space:
        raise ValueError("space is empty; pass a range or choices for each setting")
    for name, values in space.items():
        if isinstance(values, list) and values:
            continue
        numbers = isinstance(values, tuple) and all(isinstance(value, (int, float)) for value in values[:2])
        logarithmic = len(values) == 3 and values[2] == "log"
        if not numbers or not (len(values) == 2 or logarithmic) or not values[0] < values[1]:
            raise ValueError(
                f"space[{name!r}] is {values!r}; pass a list of choices, (low, high) or (low, high, 'log')"
            )
        if logarithmic and values[0] <= 0:
            raise ValueError(f"space[{name!r}] is {values!r}; a logarithmic scale begins above 0")
