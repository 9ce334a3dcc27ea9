"""The trainer: matches data, losses and a model, and trains the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate
from sbert.inputs.arguments import known_arguments_or, nearest_argument, warn
from sbert.inputs.prompts import by_column, column_prompts, default_prompt, prompt_text
from sbert.losses.module import Data, run_check
from sbert.losses.signature import Loss, Signature
from sbert.training.batches import Batches, Dataset
from sbert.training.callbacks import Callback, EarlyStopping, as_callbacks
from sbert.training.config import TrainingConfig
from sbert.training.dataset import Rows
from sbert.training.lazy_rows import AnyRows, StreamedRows, rows_of_data
from sbert.training.loop import Run
from sbert.training.random_state import preserved
from sbert.training.sampling import Batch

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder

Value = TypeVar("Value")


class Trainer:
    """Trains a model in place, with a loss on rows of texts.

    A loss is any function or module ``loss(*columns, labels=None)`` of the columns' vectors. The default settings are
    those of the Sentence-BERT paper. Started with ``torchrun``, the same program trains in several processes: each
    encodes its part of every batch, and the loss sees the whole batch. The result is the same, except for the random
    numbers of dropout.

    Args:
        model: A ``SentenceEncoder`` or a ``CrossEncoder``.
        data: An iterable of rows, each a tuple of texts with the label last, or a dict; or a data frame or table with
            named columns; or several of these, by name. A ``datasets.Dataset`` stays on the disk, and each row is read
            when a batch needs it. An iterable without a length that can be iterated again is streamed, for ``steps=``;
            a resume knows it by its first 1,000 rows.
        loss: The loss; or one loss for each data set, by name.
        config: The settings of the training.
        evaluator: A function of the model that returns one score, or several by name; or several such functions by
            name, whose scores are then called ``name_score``. The model with the best score is saved.
        evaluation_data: Rows whose loss is one more score, ``evaluation_loss``; or several data sets by the names of
            those in ``data``, whose scores are called ``evaluation_NAME_loss``.
        callbacks: What is called after steps, evaluations and checkpoints, such as ``EarlyStopping``.
        columns: The data's columns in the order of the loss's columns, or these by data set; by default those of the
            same names, else all texts by position, which a warning tells. A list of texts is several columns.
        label: The data's column of labels, if it is not called label or score; or this by data set. For losses of
            classes, labels may be words, which are numbered in alphabetical order, in the output's ``labels.json``.
        guide: A model whose vectors are passed to losses that take ``guide``.

    Raises:
        TypeError: If a row, a text or a label has the wrong type; the message names it.
        ValueError: If the data and the loss do not match; the message shows the columns of both.

    References:
        Reimers and Gurevych, 2019, section 3.1 (the settings). https://arxiv.org/abs/1908.10084

    Example:
        >>> def loss(anchor, positive): return 1 - torch.cosine_similarity(anchor, positive).mean()
        >>> encoder = SentenceEncoder(minilm)
        >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
        >>> history = Trainer(encoder, rows, loss, TrainingConfig(steps=2)).fit(show_progress_bar=False)
        >>> history[-1]["step"]
        2
    """

    @known_arguments_or(TrainingConfig)
    def __init__(
        self,
        model: SentenceEncoder | Any,
        data: Iterable[Any] | Mapping[str, Iterable[Any]],
        loss: Loss | Mapping[str, Loss],
        config: TrainingConfig | None = None,
        *,
        evaluator: Evaluate | Mapping[str, Evaluate] | None = None,
        evaluation_data: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
        callbacks: Callback | Iterable[Callback] = (),
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        label: str | Mapping[str, str] | None = None,
        guide: SentenceEncoder | None = None,
    ) -> None:
        self.model: SentenceEncoder | Any = model
        self.config: TrainingConfig = config or TrainingConfig()
        self.callbacks: list[Callback] = as_callbacks(callbacks)
        by_name = dict(data) if isinstance(data, Mapping) else {"data": data}
        if not by_name:
            raise ValueError("there are no data sets; pass at least one")
        self._names: list[str] = list(by_name)
        self.config.check_names(self._names)

        def tables(given: Mapping[str, Any]) -> list[AnyRows]:
            named = ((name, _loss_of(loss, name), _of(columns, name), _of(label, name)) for name in given)
            pairs = model.is_cross_encoder
            return [
                rows_of_data(given[name], *others, name, pairs=pairs, words=words.get(name)) for name, *others in named
            ]

        words: dict[str, Sequence[str]] = {}
        rows = tables(by_name)
        words |= _classes(rows, model)
        self._check(rows)
        self.batches: Batches = Batches(model, self._datasets(rows, guide), self.config, guide)
        self.evaluator: Evaluate | Mapping[str, Evaluate] | None = evaluator
        if evaluation_data is not None:
            held_out = tables(_held_out(evaluation_data, self._names, loss, self.config.batch_size))
            if any(isinstance(rows, StreamedRows) for rows in held_out):
                raise ValueError("evaluation_data is a stream, which may have no end; pass data with a length")
            config = replace(self.config, sampler="in_order", mix="proportional", drop_last=False)
            batches = Batches(model, self._datasets(held_out, guide), config, guide)
            self.evaluator = _with_losses(evaluator, batches, isinstance(evaluation_data, Mapping))
        if self.evaluator is None:
            _check_unused(self.config, self.callbacks)
        if model.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"the model's weights are {model.dtype}, too imprecise for small steps; load it with dtype='float32',"
                " and pass TrainingConfig(dtype='bfloat16') to compute in bfloat16"
            )

    def _check(self, tables: list[AnyRows]) -> None:
        """Raise for data that does not fit the loss, the prompts or the settings."""
        for rows in tables:
            _check_data(rows, self.config)
            _check_classes(rows, self.model)
        if not self.model.is_cross_encoder and any(map(_repeats, tables)) and not _has_dropout(self.model):
            warn(
                "rows hold the same text twice, and the model has no dropout, so both get the same vector and teach"
                " nothing; use a model with dropout, or other pairs"
            )
        for setting in ("prompts", "max_lengths"):
            self._check_columns(setting, tables)

    def _datasets(self, tables: list[AnyRows], guide: SentenceEncoder | None) -> dict[str, Dataset]:
        found = {
            rows.name: Dataset(rows, self._prompts(rows), self._guide_prompts(guide, rows), self._lengths(rows))
            for rows in tables
        }
        if guide is not None and all(dataset.guide_prompts is None for dataset in found.values()):
            raise ValueError("no loss takes a guide; leave guide= out, or use a loss that takes one")
        return found

    def _check_columns(self, setting: str, tables: list[AnyRows]) -> None:
        """Raise for prompts or lengths that the model does not take, or of columns that no data has."""
        given = getattr(self.config, setting)
        if self.model.is_cross_encoder:
            if setting == "prompts" and any(isinstance(self._own(setting, rows), Mapping) for rows in tables):
                raise ValueError(
                    f"a {type(self.model).__name__} reads two texts as one input, with one prompt before the first;"
                    " pass the name or the text of this prompt, and write into the texts what else it should read"
                )
            if setting == "max_lengths" and given:
                raise ValueError(
                    f"a {type(self.model).__name__} reads two texts as one input, without max_lengths; leave"
                    " max_lengths out, and set the model's max_seq_length"
                )
            return
        names_of = {rows.name: {name for names in rows.names for name in names} for rows in tables}
        own = {rows.name: self._own(setting, rows) for rows in tables}
        together = all(each is given for each in own.values())  # One value for all data sets.
        every = set().union(*names_of.values())
        for table, value in own.items():
            known = every if together else names_of[table]
            for name in value if isinstance(value, Mapping) else ():
                if name not in known:
                    nearest = nearest_argument(str(name), known)
                    meant = f"; did you mean {nearest!r}?" if nearest else ""
                    where = "no data has" if together else f"{table} has not"
                    raise ValueError(
                        f"{setting} names the column {name!r}, which {where}; pass some of"
                        f" {', '.join(map(repr, sorted(known)))}{meant}"
                    )

    def _own(self, setting: str, rows: AnyRows) -> Any:
        """The value of a setting for a data set."""
        return self.config.of_data_set(setting, rows.name, self._names)

    def _prompts(self, rows: AnyRows) -> list[str]:
        """The text before each column; of pairs, the one before the first text of each."""
        given = self._own("prompts", rows)
        if not rows.pairs:
            return column_prompts(self.model, given, rows.names)
        return [default_prompt(self.model) if given is None else prompt_text(self.model, given, "prompts")]

    def _lengths(self, rows: AnyRows) -> list[int | None] | None:
        """The maximum number of tokens of each column."""
        given = self._own("max_lengths", rows)
        if isinstance(given, Mapping):
            return [next((given[name] for name in names if name in given), None) for names in rows.names]
        return None if given is None else [given] * len(rows.names)

    def _guide_prompts(self, guide: SentenceEncoder | None, rows: AnyRows) -> list[str] | None:
        """The guide's prompts with the given names, if the loss takes a guide; no prompt for other names."""
        if guide is None or "guide" not in rows.signature.extras:
            return None
        given = self._own("prompts", rows)
        column_prompts(guide, None if given is None else "", rows.names, "the guide")
        return [guide.prompts.get(prompt, "") for prompt in by_column(given, rows.names)]

    def epoch(self, epoch: int) -> list[tuple[str, Batch]]:
        """The batches of an epoch, the same in every process: the name of the data set and the indices of the rows.

        Raises:
            ValueError: If the sampler makes no batch of a data set.

        Example:
            >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
            >>> loss = lambda anchor, positive: (anchor - positive).square().mean()
            >>> [(name, len(batch)) for name, batch in Trainer(SentenceEncoder(minilm), rows, loss).epoch(0)]
            [('data', 2)]
        """
        return self.batches.epoch(epoch)

    @known_arguments_or(TrainingConfig)
    def fit(self, *, resume: bool = False, show_progress_bar: bool | None = None) -> list[dict[str, Any]]:
        """Train, and return the history: one dict every ``log_every`` steps, and one for each evaluation.

        Afterwards the model is in the same mode as before, with the weights of the last step; the best weights are in
        ``output/best``. The caller's random number generators are restored.

        Args:
            resume: Whether to continue from the newest checkpoint in the output folder, if there is one. On a CPU the
                weights are then bit-identical to those of an uninterrupted run.
            show_progress_bar: Whether to show a progress bar; by default only on a terminal or in a notebook.

        Raises:
            FloatingPointError: If the loss or a gradient is not finite; the message names the step, the rows and the
                last good checkpoint.
            OSError: If a checkpoint cannot be written; the message names the last good one.
            RuntimeError: If another process hangs, is stopped or has ended; the message names its rank and the step.
            ValueError: If the checkpoint belongs to a different training, or there is one and ``resume`` is false.

        Example:
            >>> from sbert.losses import CosineSimilarityLoss
            >>> rows = [("A cat sleeps.", "A kitten naps.", 0.9), ("A cat sleeps.", "Taxes rise.", 0.0)]
            >>> trainer = Trainer(SentenceEncoder(), rows, CosineSimilarityLoss(), TrainingConfig(steps=2))
            >>> trainer.fit(show_progress_bar=False)[-1]["step"]
            2
        """
        ranks = Ranks.join(self.model.device.type, self.config.timeout)
        ranks.place(self.model)
        with preserved(self.model.device):
            watchers = self.evaluator, self.callbacks
            run = Run(self.model, self.batches, self.config, *watchers, ranks, resume, show_progress_bar)
            try:
                return run.train()
            finally:
                run.close()


def _check_data(rows: AnyRows, config: TrainingConfig) -> None:
    """Raise the loss's own error for data from which it cannot learn."""
    size, sampler = config.size_of(rows.name), config.sampler_of(rows.name)
    if isinstance(rows, StreamedRows):
        if config.steps is None or sampler != "random" or config.mix == "proportional":
            raise ValueError(
                f"{rows.name} is a stream, whose length is not known; pass steps=, and neither a sampler nor"
                " mix='proportional'; or pass data with a length"
            )
        largest = size
    else:  # A sampler of the caller's may make batches of any size.
        largest = min(size, len(rows)) if isinstance(sampler, str) else len(rows)
    labels = rows.labels if isinstance(rows, Rows) else None  # The first rows may have one label only.
    try:
        run_check(rows.loss, Data(largest, len(rows.names), labels))
    except ValueError as error:
        raise ValueError(f"{rows.name}: {error}") from error


def _check_classes(rows: AnyRows, model: Any) -> None:
    """Raise if a loss of lists, which takes one score per document, is given several."""
    if model.is_cross_encoder and model.classes > 1 and Signature.of(rows.loss).takes_lists:
        raise ValueError(
            f"{rows.signature.name} takes one score per document, but the model gives {model.classes}; use a model with"
            " classes=1"
        )


def _held_out(given: Any, names: Sequence[str], *settings: Any) -> dict[str, Any]:
    """Evaluation data by the names of the data sets, which settings by data set need."""
    found = dict(given) if isinstance(given, Mapping) else {names[0] if len(names) == 1 else "data": given}
    if not set(found) <= set(names) and any(isinstance(setting, Mapping) for setting in settings):
        known = ", ".join(map(repr, names))
        raise ValueError(f"losses or batch sizes are by data set; pass evaluation_data by such names, too: {known}")
    return found


def _check_unused(config: TrainingConfig, callbacks: Sequence[Callback]) -> None:
    """Warn of settings that say nothing without an evaluator."""
    unused = [name for name in ("metric", "minimize", "evaluate_first") if getattr(config, name)]
    unused += ["EarlyStopping" for each in callbacks if isinstance(each, EarlyStopping)]
    if unused:
        warn(f"without an evaluator, {', '.join(unused)} changes nothing; pass evaluator= or evaluation_data=")


def _with_losses(
    evaluator: Evaluate | Mapping[str, Evaluate] | None, batches: Batches, several: bool
) -> Mapping[str, Evaluate]:
    """Evaluators by name, and one that measures the loss of data."""

    def losses(model: Any) -> dict[str, float]:
        found = batches.mean_losses(model)
        return {f"{name}_loss" if several else "loss": value for name, value in found.items()}

    given = evaluator if isinstance(evaluator, Mapping) else {} if evaluator is None else {"": evaluator}
    if "evaluation" in given:
        raise ValueError("an evaluator is called 'evaluation', as the losses of evaluation_data are; rename it")
    return {**given, "evaluation": losses}


def _classes(tables: list[AnyRows], model: Any) -> dict[str, Sequence[str]]:
    """The classes of the data sets whose labels are words, which a warning tells; a cross-encoder keeps them."""
    words = {rows.name: rows.words for rows in tables if rows.words is not None}
    of_loss: dict[int, tuple[str, Sequence[str]]] = {}
    for rows in tables:
        if rows.words is None:
            continue
        name, first = of_loss.setdefault(id(rows.loss), (rows.name, rows.words))
        if list(first) != list(rows.words):
            raise ValueError(
                f"{name} has the classes {', '.join(first)}, and {rows.name} has {', '.join(rows.words)}, for one loss;"
                " number the labels yourself"
            )
        named = dict(enumerate(rows.words))
        warn(f"{rows.name}: the labels are the classes {', '.join(f'{i} = {word}' for i, word in named.items())}")
        if model.is_cross_encoder:  # Saved with the model.
            model.auto_model.config.update({"id2label": named, "label2id": {word: i for i, word in named.items()}})
    return words


def _of(value: Value | Mapping[str, Value] | None, name: str) -> Value | None:
    """The value for one data set: its own, where values are given by name, or the one for all."""
    return value.get(name) if isinstance(value, Mapping) else value


def _loss_of(loss: Loss | Mapping[str, Loss], name: str) -> Loss:
    if not isinstance(loss, Mapping):
        return loss
    if name not in loss:
        raise ValueError(f"there is no loss for {name!r}, only for {', '.join(map(repr, loss))}; pass one for each")
    return loss[name]


def _repeats(rows: AnyRows) -> bool:
    """Whether each of the first 100 rows holds the same text twice, as for two dropout views of it (SimCSE)."""
    return all(len(set(texts)) < len(texts) for texts in map(rows.texts, range(min(100, len(rows)))))


def _has_dropout(model: Any) -> bool:
    reader = model[0]
    modules = [*model.modules(), *(reader.materialize().modules() if hasattr(reader, "materialize") else ())]
    return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in modules)
