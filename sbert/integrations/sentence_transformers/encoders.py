"""``SentenceTransformer`` and ``CrossEncoder``: ours, with tensors of similarities and the old ``fit``."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from sbert import cross_encoder
from sbert.inputs.arguments import check_choice
from sbert.integrations.sentence_transformers import features
from sbert.integrations.sentence_transformers.attributes import Attributes
from sbert.integrations.sentence_transformers.forms import ModelCardData
from sbert.integrations.sentence_transformers.training import (
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    default_loss,
)
from sbert.integrations.sentence_transformers.util import quantize_embeddings
from sbert.losses.signature import Signature
from sbert.training import Callback

_BY_POSITION = (
    "prompt_name prompt batch_size show_progress_bar output_value precision convert_to_numpy convert_to_tensor device"
    " normalize_embeddings"
).split()


class SentenceTransformer(Attributes):
    """A ``SentenceEncoder`` whose similarities are tensors, with their ``encode`` and the old ``fit``."""

    model_card_data = cached_property(lambda _: ModelCardData())

    def encode(self, sentences: Any, *args: Any, **options: Any) -> Any:
        """Ours, with arguments by position; int8 and uint8 in the ranges of the texts of the call."""
        options |= dict(zip(_BY_POSITION, args, strict=False))
        options["precision"] = options.get("precision") or "float32"
        if (options.get("truncate_dim") or 0) > self.get_embedding_dimension():
            del options["truncate_dim"]
        if options["precision"] in ("int8", "uint8") and options.get("ranges") is None:
            exact = {"precision": "float32", "convert_to_numpy": True, "convert_to_tensor": False}
            vectors = super().encode(sentences, **{**options, **exact})
            return quantize_embeddings(vectors, options["precision"])
        return super().encode(sentences, **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarity of each row of one and each of the other: (rows, rows)."""
        return torch.as_tensor(super().similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarities of the rows of both in turn: (rows,)."""
        return torch.as_tensor(super().similarity_pairwise(embeddings1, embeddings2))

    def fit(self, train_objectives: Any, evaluator: Any = None, **options: Any) -> None:
        """Train with a ``DataLoader`` of ``InputExample`` and a loss, or several such pairs in turn."""
        _fit(self, list(train_objectives), evaluator, **options)

    old_fit = fit

    def tokenize(self, sentences: Any, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """The padded features of texts."""
        return features.tokenize(self, sentences)

    preprocess = tokenize

    def forward(self, value: Any, **_: Any) -> Any:  # type: ignore[override]
        """The vectors of tokens; of features, these with the vectors added."""
        return features.run(self, value) if isinstance(value, dict) else super().forward(value)


def _of_network(name: str, model: Any) -> Any:
    return getattr(model[0].auto_model, name)


for _name in (
    "add_adapter load_adapter delete_adapter set_adapter enable_adapters disable_adapters active_adapter"
    " active_adapters get_adapter_state_dict"
).split():
    setattr(SentenceTransformer, _name, property(partial(_of_network, _name)))


class CrossEncoder(cross_encoder.CrossEncoder):
    """Ours, with their names of its parts and the old ``fit``."""

    model_card_data = cached_property(lambda _: ModelCardData())
    model = transformers_model = property(lambda self: self.auto_model)
    config = property(lambda self: self.auto_model.config)
    default_activation_function = property(lambda self: self.activation)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__("activation" if name == "default_activation_function" else name, value)

    def fit(self, train_dataloader: Any, evaluator: Any = None, *args: Any, **options: Any) -> None:  # type: ignore[override]
        """Train with a ``DataLoader`` of ``InputExample``, and a loss of scores and labels of ours or of torch."""
        options |= dict(zip(("epochs", "loss_fct", "activation_fct"), args, strict=False))
        given, activation = options.pop("loss_fct", None) or default_loss(self), options.pop("activation_fct", None)
        is_ours = "labels" in Signature.of(given).extras

        def loss(scores: Tensor, *, labels: Tensor) -> Any:
            scores = scores if activation is None else activation(scores)  # (rows, classes)
            labels = labels.to(scores.dtype) if self.classes == 1 else labels
            return given(scores, labels=labels) if is_ours else given(scores.squeeze(1), labels)

        _fit(self, [(train_dataloader, given if is_ours and activation is None else loss)], evaluator, **options)

    old_fit = fit


_OF_FIT = {
    "epochs": "num_train_epochs", "evaluation_steps": "eval_steps", "use_amp": "fp16", "checkpoint_path": "output_dir",
    "checkpoint_save_steps": "save_steps", "checkpoint_save_total_limit": "save_total_limit",
    "save_best_model": "load_best_model_at_end",
}  # fmt: skip
_SCHEDULERS = {
    "constantlr": "constant", "warmupconstant": "constant_with_warmup", "warmuplinear": "linear",
    "warmupcosine": "cosine", "warmupcosinewithhardrestarts": "cosine_with_restarts",
}  # fmt: skip


class _CallWithScore(Callback):
    def __init__(self, function: Any, evaluator: Any, each: int) -> None:
        self.function, self.evaluator, self.each = function, evaluator, each

    def on_evaluate(self, progress: Any) -> None:
        name = getattr(self.evaluator, "primary_metric", None) or next(iter(progress.figures))
        self.function(progress.figures[name], progress.step / self.each, progress.step)


def _fit(model: Any, objectives: list[tuple[Any, Any]], evaluator: Any, **options: Any) -> None:
    """Train a model with data loaders and losses by our trainer of theirs, as the method ``fit``.

    Raises:
        ValueError: If the data loaders have different batch sizes, or a scheduler is unknown.
    """
    given: dict[str, Any] = {"num_train_epochs": 1, "warmup_steps": 10_000, "weight_decay": 0.01}
    given |= {_OF_FIT.get(name, name): value for name, value in options.items() if value is not None}
    scheduler = given.pop("scheduler", "WarmupLinear").lower()
    check_choice("scheduler", scheduler, list(_SCHEDULERS))
    loaders = [loader for loader, _ in objectives]
    sizes = {loader.batch_size for loader in loaders}
    if len(sizes) > 1:
        raise ValueError(f"the data loaders have the batch sizes {sorted(sizes)}; pass loaders of one batch size")
    each = given.pop("steps_per_epoch", None) or min(-(-len(loader.dataset) // min(sizes)) for loader in loaders)
    folder, shown, call = (given.pop(name, None) for name in ("output_path", "show_progress_bar", "callback"))
    optimizer = given.pop("optimizer_class", torch.optim.AdamW), given.pop("optimizer_params", {"lr": 2e-5})
    best = given.pop("load_best_model_at_end", True) and evaluator is not None
    losses = {str(i): default_loss(model) if loss is None else loss for i, (_, loss) in enumerate(objectives)}
    data = {name: _rows(loader, losses[name]) for name, loader in zip(losses, loaders, strict=True)}
    saving = "steps" if given.get("save_steps") else "epoch"
    args = SentenceTransformerTrainingArguments(
        **given,
        lr_scheduler_type=_SCHEDULERS[scheduler],
        max_steps=round(each * len(loaders) * given["num_train_epochs"]),
        per_device_train_batch_size=min(sizes),
        load_best_model_at_end=best,
        batch_sampler=_sampler(loaders[0]),
        eval_strategy="steps" if given.get("eval_steps") else "epoch",
        save_strategy=saving if given.get("output_dir") else "no",
        disable_tqdm=None if shown is None else not shown,
    )
    calls = [_CallWithScore(call, evaluator, each * len(loaders))] if call and evaluator is not None else []
    more = {"loss": losses, "evaluator": evaluator, "optimizer_cls_and_kwargs": optimizer, "callbacks": calls}
    SentenceTransformerTrainer(model, args, data, **more).train()
    if folder is not None:
        model.save(folder)


def _sampler(loader: Any) -> str:
    """The sampler of a data loader: the rows in their order, if it does not shuffle them."""
    for own in (loader, loader.dataset):
        if isinstance(getattr(own, "sampler", None), str):
            return str(own.sampler)
    return "in_order" if isinstance(loader.sampler, SequentialSampler) else "random"


def _rows(loader: Any, loss: Any) -> list[tuple[Any, ...]]:
    """The rows of a data loader, with their labels if the loss takes them."""
    labelled = "labels" in Signature.of(loss).extras
    return [(*row.texts, row.label) if labelled else tuple(row.texts) for row in loader.dataset]
