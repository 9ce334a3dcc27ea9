"""SetFit: text classifiers from a few labelled examples, with an encoder of ours as the body.

>>> from datasets import Dataset  # doctest: +SKIP
>>> from sbert.integrations.setfit import SbertSetFitModel, SbertTrainer  # doctest: +SKIP
>>> rows = Dataset.from_dict({"text": ["Good.", "Great.", "Bad.", "Awful."], "label": [1, 1, 0, 0]})  # doctest: +SKIP
>>> classifier = SbertSetFitModel.of("all-MiniLM-L6-v2")  # doctest: +SKIP
>>> SbertTrainer(classifier, train_dataset=rows).train()  # doctest: +SKIP
>>> classifier.save_pretrained("classifier")  # doctest: +SKIP
>>> SbertSetFitModel.load("classifier").predict(["Fine."])  # doctest: +SKIP

- Pairs, settings, the classifier and ``evaluate`` are SetFit's; the body trains on the pairs by ``sbert.Trainer``, with
  the loss that is given. There, an evaluation data set, ``max_length`` and callbacks have no effect.
- Heads are those of scikit-learn. A saved head is a pickle, which can run code: load only folders that you trust.
- SetFit itself loads the saved folder, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
from setfit import SetFitModel, Trainer, TrainingArguments
from setfit.modeling import CONFIG_NAME, MODEL_HEAD_NAME
from setfit.sampler import ContrastiveDataset
from sklearn.linear_model import LogisticRegression

import sbert
from sbert.integrations.loading import load_encoder
from sbert.losses import CosineSimilarityLoss


class SbertSetFitModel(SetFitModel):
    """SetFit's model around a ``SentenceEncoder``."""

    @classmethod
    def of(cls, model: Any = None, head: Any = None, **settings: Any) -> SbertSetFitModel:
        """A classifier; ``head`` is one of scikit-learn, ``settings`` are of ``SetFitModel``, as ``labels``."""
        return cls(load_encoder(model), LogisticRegression() if head is None else head, **settings)

    @classmethod
    def load(cls, folder: str) -> SbertSetFitModel:
        """The classifier in a folder."""
        settings = json.loads((Path(folder) / CONFIG_NAME).read_text())
        return cls.of(folder, joblib.load(Path(folder) / MODEL_HEAD_NAME), **settings)

    def _save_pretrained(self, save_directory: Any) -> None:
        folder = Path(save_directory)
        for name in (CONFIG_NAME, MODEL_HEAD_NAME):  # The body replaces no files of others.
            (folder / name).unlink(missing_ok=True)
        self.model_body.save(folder)
        settings = {name: getattr(self, name) for name in self.attributes_to_save if hasattr(self, name)}
        (folder / CONFIG_NAME).write_text(json.dumps(settings))
        joblib.dump(self.model_head, folder / MODEL_HEAD_NAME)


class SbertTrainer(Trainer):
    """SetFit's trainer, whose first phase is a training by ``sbert.Trainer``.

    Args:
        model: The classifier.
        args: SetFit's settings.
        train_dataset: Rows with the columns "text" and "label".
        eval_dataset: Rows for ``evaluate``.
        metric: As in SetFit, which downloads those that it takes by their names.
        loss: A loss of ``sbert.losses`` for pairs with the labels 1 and 0. Default: ``CosineSimilarityLoss``.

    Raises:
        ValueError: If columns are missing, or ``args`` has a loss.
    """

    def __init__(
        self,
        model: SbertSetFitModel,
        args: TrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        metric: Any = "accuracy",
        loss: Any = None,
    ) -> None:
        self.args, self.column_mapping = args or TrainingArguments(), None
        if self.args.loss is not TrainingArguments.loss:
            raise ValueError(f"args has the loss {self.args.loss.__name__}; pass loss= with one of sbert.losses")
        for rows in filter(None, (train_dataset, eval_dataset)):
            self._validate_column_mapping(rows)
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self._model, self.loss, self.metric, self.metric_kwargs = model, loss or CosineSimilarityLoss(), metric, None

    def train_embeddings(self, x_train: Any, y_train: Any = None, *_: Any, args: Any = None) -> None:
        """Train the body on pairs of texts, which belong to one label or to two."""
        args, strategy = args or self.args, self.model.multi_target_strategy
        pairs = ContrastiveDataset(x_train, y_train, strategy, args.num_iterations, args.sampling_strategy)
        config = sbert.TrainingConfig(
            epochs=None if args.max_steps > 0 else args.embedding_num_epochs,
            steps=args.max_steps if args.max_steps > 0 else None,
            batch_size=args.embedding_batch_size,
            learning_rate=args.body_embedding_learning_rate,
            warmup=args.warmup_proportion,
            weight_decay=args.l2_weight or 0.0,
            dtype="bfloat16" if args.use_amp else "float32",
            seed=args.seed,
        )
        rows = [(row["sentence_1"], row["sentence_2"], float(row["label"])) for row in pairs]
        sbert.Trainer(self.model.model_body, rows, self.loss, config).fit(show_progress_bar=args.show_progress_bar)
