"""The trainer: matches data, losses and a model, and trains the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from sbert.backends.huggingface import find_adapters
from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate
from sbert.inputs.arguments import MissingNameError, known_arguments, warn
from sbert.inputs.devices import parse_dtype, warn_of_slow
from sbert.losses.checks import Data, run_check
from sbert.losses.signature import Loss, Signature
from sbert.modules import Transformer
from sbert.saving.codecs import check_savable
from sbert.training.backward import preserve_random_state
from sbert.training.batches import Batches, Dataset, check_column_settings
from sbert.training.callbacks import Callback, EarlyStopping
from sbert.training.checkpoint import lock_output
from sbert.training.config import TrainingConfig
from sbert.training.table import RowIndices
from sbert.training.training_data import TrainingData
from sbert.training.training_run import Run
from sbert.training.weights import check_dtypes, prepare_model

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder


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
            a resume knows it by its first 1,000 rows. A ``DatasetDict`` with splits called test, validation or dev is
            refused; of a dict of yours, all data sets are trained on.
        loss: The loss; or one loss for each data set, by name.
        config: The settings of the training.
        evaluator: A function of the model that returns one score, or several by name; or several such functions by
            name, whose scores are then called ``name_score``. The model with the best score is saved.
        evaluation_data: Rows whose loss is one more score, ``evaluation_loss``; or several data sets by the names of
            those in ``data``, whose scores are called ``evaluation_NAME_loss``.
        callbacks: What is called after steps, evaluations and checkpoints, such as ``EarlyStopping``.
        columns: The data's columns in the order of the loss's columns, or these by data set; by default those of the
            same names, else all texts by position, which a warning says. A list of texts is several columns.
        label: The data's column of labels, if it is not called label or score; or this by data set.
        guide: A model whose vectors are passed to losses that take ``guide``.

    Raises:
        TypeError: If a row, a text or a label has the wrong type; the message names it.
        ValueError: If the data and the loss do not match; the message shows the columns of both.

    References:
        Reimers and Gurevych, 2019, section 3.1 (the settings). https://arxiv.org/abs/1908.10084

    Example:
        >>> import torch
        >>> from sbert import SentenceEncoder, Trainer, TrainingConfig
        >>> def loss(anchor, positive): return 1 - torch.cosine_similarity(anchor, positive).mean()
        >>> encoder = SentenceEncoder()
        >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
        >>> history = Trainer(encoder, rows, loss, TrainingConfig(steps=2)).fit(show_progress_bar=False)
        >>> history[-1]["step"]
        2
    """

    @partial(known_arguments, config=TrainingConfig)
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
        _check_model(model)
        if not isinstance(config, (TrainingConfig, type(None))):
            raise TypeError(f"config is of type {type(config).__name__}; pass TrainingConfig(...) with these settings")
        self.model: SentenceEncoder | Any = model
        self.config: TrainingConfig = config or TrainingConfig()
        self.callbacks: list[Callback] = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
        self._given = loss, columns, label
        by_name = dict(data) if isinstance(data, Mapping) else {"data": data}
        if hasattr(data, "rename_column"):  # A ``DatasetDict``; the names in a dict are those of the caller.
            _refuse_held_out(by_name)
        if not by_name:
            raise ValueError("there are no data sets; pass at least one")
        names = list(by_name)
        configs = {name: self.config.for_data_set(name, names) for name in names}
        tables = self._read(by_name)
        if self.config.negatives and not any(rows.negatives for rows in tables):
            raise ValueError(f"negatives={self.config.negatives}, but no loss takes *negatives; leave it out")
        for rows in tables:
            _check_data(rows, configs[rows.name], model)
            if model.is_cross_encoder and rows.class_names and model.classes == len(rows.class_names):
                numbers = {label: number for number, label in enumerate(rows.class_names)}  # Saved with the model.
                network: Any = model.auto_model
                network.config.update({"id2label": dict(enumerate(rows.class_names)), "label2id": numbers})
        for part in list(model.modules()):
            if isinstance(part, Transformer):
                part.materialize()  # What is trained are the modules of transformers, with dropout.
        check_column_settings(model, {rows: configs[rows.name] for rows in tables})
        self.batches: Batches = self._batches(tables, self.config, names, guide)
        self.evaluator: Evaluate | Mapping[str, Evaluate] | None = evaluator
        if evaluation_data is not None:
            held_out = self._read(_name_held_out(evaluation_data, names, loss, self.config.batch_size))
            if any(rows.is_stream for rows in held_out):
                raise ValueError("evaluation_data is a stream, which may have no end; pass data with a length")
            in_order = replace(self.config, sampler="in_order", mix="proportional", drop_last=False)
            batches = self._batches(held_out, in_order, names, guide)
            self.evaluator = _add_losses(evaluator, batches, isinstance(evaluation_data, Mapping))
        self._check_settings()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise MissingNameError("Trainer", name, dir(self))

    def _read(self, data: Mapping[str, Any]) -> list[TrainingData]:
        """The rows of data sets, with the loss, columns and label of each."""
        loss, columns, label = self._given
        return [
            TrainingData(
                rows, _loss_of(loss, name), _of(columns, name), _of(label, name), name,
                pairs=self.model.is_cross_encoder,
                negatives=self.config.negatives if Signature.of(_loss_of(loss, name)).more else None,
            )
            for name, rows in data.items()
        ]  # fmt: skip

    def _batches(
        self,
        tables: Sequence[TrainingData],
        config: TrainingConfig,
        names: Sequence[str],
        guide: SentenceEncoder | None,
    ) -> Batches:
        named = {rows.name: (rows, config.for_data_set(rows.name, names)) for rows in tables}
        datasets = {name: Dataset.of(rows, self.model, settings, guide) for name, (rows, settings) in named.items()}
        if guide is not None and all(dataset.guide_prompts is None for dataset in datasets.values()):
            raise ValueError("no loss takes a guide; leave guide= out, or use a loss that takes one")
        return Batches(self.model, datasets, config, guide)

    def _check_settings(self) -> None:
        """Raise for settings that this model or these callbacks cannot have; warn of those that change nothing."""
        config = self.config
        if self.model.automatic_dtype and self.model.dtype.itemsize < 4 and not find_adapters(self.model):
            self.model.float()  # A folder in half precision keeps its dtype on a GPU for ``encode`` alone.
        check_dtypes(self.model, config)
        if config.output is not None and not self.model.is_cross_encoder:
            check_savable(chain.from_iterable(self.model.encoders))
        if not config.merge_adapters and self.model.is_cross_encoder:
            raise ValueError("merge_adapters=False is for encoders; a cross-encoder is saved with its adapters merged")
        if config.dtype == "float16" and self.model.device.type == "cpu":
            raise ValueError("dtype='float16' is emulated by CPUs, far slower; pass dtype='bfloat16' or 'float32'")
        warn_of_slow(parse_dtype(config.dtype), self.model.device)
        evaluators = self.evaluator.values() if isinstance(self.evaluator, Mapping) else [self.evaluator]
        if kinds := [type(one).__name__ for one in evaluators if one is not None and not callable(one)]:
            raise TypeError(f"evaluator is of type {kinds[0]}; pass one of sbert.evaluation, or a function")
        if self.evaluator is None:
            unused = [name for name in ("metric", "minimize", "load_best", "evaluate_first") if getattr(config, name)]
            unused += ["EarlyStopping" for callback in self.callbacks if isinstance(callback, EarlyStopping)]
            if unused:
                warn(f"without an evaluator, {', '.join(unused)} changes nothing; pass evaluator= or evaluation_data=")

    def epoch(self, epoch: int) -> list[tuple[str, RowIndices]]:
        """The batches of an epoch, the same in every process: the name of the data set and the indices of the rows.

        Raises:
            ValueError: If the sampler makes no batch of a data set.

        Example:
            >>> from sbert import SentenceEncoder, Trainer
            >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
            >>> loss = lambda anchor, positive: (anchor - positive).square().mean()
            >>> [(name, len(batch)) for name, batch in Trainer(SentenceEncoder(), rows, loss).epoch(0)]
            [('data', 2)]
        """
        return [(name, rows) for name, rows, _ in self.batches.plan(epoch)]

    def fit(self, *, resume: bool = False, show_progress_bar: bool | None = None) -> list[dict[str, Any]]:
        """Train, and return the history: one dict every ``log_every`` steps, and one for each evaluation.

        ``sbert.visualization.training_curves`` draws it.

        Afterwards the model is in the same mode as before, with the weights of the last step (the best ones, with
        ``load_best``); the best weights are in ``output/best``. The caller's random number generators are restored.

        Args:
            resume: Whether to continue from the newest checkpoint in the output folder, if there is one. On a CPU the
                weights are then bit-identical to those of an uninterrupted run. A damaged checkpoint is named in a
                warning and renamed, and the next older one is used.
            show_progress_bar: Whether to show a progress bar, and a line per evaluation above it; by default only on
                a terminal or in a notebook. Elsewhere ``True`` prints the lines alone.

        Raises:
            FloatingPointError: If the loss or a gradient is not finite; the message names the step, the rows and the
                last good checkpoint.
            OSError: If a checkpoint cannot be written; the message names the last good one.
            RuntimeError: If another process hangs or has ended, or trains in the same output folder.
            ValueError: If the checkpoint belongs to a different training, or there is one and ``resume`` is false; or
                all checkpoints are damaged.

        Example:
            >>> from sbert import SentenceEncoder, Trainer, TrainingConfig
            >>> from sbert.losses import CosineSimilarityLoss
            >>> rows = [("A cat sleeps.", "A kitten naps.", 0.9), ("A cat sleeps.", "Taxes rise.", 0.0)]
            >>> trainer = Trainer(SentenceEncoder(), rows, CosineSimilarityLoss(), TrainingConfig(steps=2))
            >>> trainer.fit(show_progress_bar=False)[-1]["step"]
            2
        """
        model, config = self.model, self.config
        ranks = Ranks.join(model.device.type, config.timeout)
        if ranks.world > 1:
            ranks.place(model)
        with ExitStack() as stack:
            weights = stack.enter_context(prepare_model(model, self.batches.losses, config))
            stack.enter_context(preserve_random_state(weights.device))
            if (output := config.output) is not None:
                ranks.run_on_main(lambda: stack.enter_context(lock_output(output)))
            callbacks = self.evaluator, self.callbacks
            return Run(weights, self.batches, config, *callbacks, ranks, resume, show_progress_bar).train()


def _check_model(model: Any) -> None:
    if not hasattr(model, "is_cross_encoder"):
        call = f"SentenceEncoder({model!r})" if isinstance(model, str) else "a SentenceEncoder or a CrossEncoder"
        raise TypeError(f"model is of type {type(model).__name__}; pass a model: {call}")


def _refuse_held_out(names: Iterable[object]) -> None:
    """Raise if a split of what ``datasets.load_dataset`` returns is called as those for evaluation are."""
    if held_out := [name for name in names if str(name).lower().startswith(("test", "val", "dev", "eval"))]:
        splits = ", ".join(map(repr, names))
        problem = f"data has the splits {splits}, and {held_out[0]!r} is for evaluation, by its name"
        raise ValueError(f"{problem}; pass data['train'], or a dict of those to train on, by names of your own")


def _check_data(rows: TrainingData, config: Any, model: Any) -> None:
    """Raise the loss's own error for data from which it cannot learn."""
    if rows.is_stream and (config.steps is None or config.sampler != "random" or config.mix == "proportional"):
        problem = f"{rows.name} is a stream, whose length is not known"
        raise ValueError(f"{problem}; pass steps=, and neither a sampler nor mix='proportional'; or data with a length")
    largest: int = config.batch_size
    if not rows.is_stream:  # A sampler of the caller's may make batches of any size.
        largest = min(largest, len(rows)) if isinstance(config.sampler, str) else len(rows)
    labels = rows.labels if rows.in_memory else None  # The first rows may have one label only.
    try:
        run_check(rows.loss, Data(largest, len(rows.names), labels))
    except ValueError as error:
        raise ValueError(f"{rows.name}: {error}") from error
    if model.is_cross_encoder and model.classes > 1 and Signature.of(rows.loss).takes_lists:
        problem = f"{rows.signature.name} takes one score per document, but the model gives {model.classes}"
        raise ValueError(f"{problem}; use a model with classes=1")


def _name_held_out(data: Any, names: Sequence[str], *settings: Any) -> dict[str, Any]:
    """Evaluation data by the names of the data sets, which settings by data set need."""
    named = dict(data) if isinstance(data, Mapping) else {names[0] if len(names) == 1 else "data": data}
    if not set(named) <= set(names) and any(isinstance(setting, Mapping) for setting in settings):
        listed = ", ".join(map(repr, names))
        raise ValueError(f"losses or batch sizes are by data set; pass evaluation_data by such names, too: {listed}")
    return named


def _add_losses(
    evaluator: Evaluate | Mapping[str, Evaluate] | None, batches: Batches, by_name: bool
) -> Mapping[str, Evaluate]:
    """Evaluators by name, and one that measures the loss of data."""

    def losses(model: Any) -> dict[str, float]:
        values = batches.mean_losses(model)
        return {f"{name}_loss" if by_name else "loss": value for name, value in values.items()}

    evaluators = evaluator if isinstance(evaluator, Mapping) else {} if evaluator is None else {"": evaluator}
    if "evaluation" in evaluators:
        raise ValueError("an evaluator is called 'evaluation', as the losses of evaluation_data are; rename it")
    return {**evaluators, "evaluation": losses}


def _of(value: Any, name: str) -> Any:
    """The value for one data set: its own, where values are given by name, or the one for all."""
    return value.get(name) if isinstance(value, Mapping) else value


def _loss_of(loss: Loss | Mapping[str, Loss], name: str) -> Loss:
    if isinstance(loss, Mapping) and name not in loss:
        raise ValueError(f"there is no loss for {name!r}, only for {', '.join(map(repr, loss))}; pass one for each")
    return loss[name] if isinstance(loss, Mapping) else loss
