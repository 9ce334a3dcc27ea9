"""``SentenceTransformer`` and ``CrossEncoder``: ours, with tensors of similarities and the old ``fit``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from sbert import cross_encoder, encoder
from sbert.integrations.sentence_transformers.forms import Form, arguments
from sbert.integrations.sentence_transformers.training import (
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    default_loss,
)
from sbert.integrations.sentence_transformers.util import quantize_embeddings
from sbert.losses.signature import Signature

_BY_POSITION = (
    "prompt_name prompt batch_size show_progress_bar output_value precision convert_to_numpy convert_to_tensor device"
    " normalize_embeddings"
).split()


class SentenceTransformer(encoder.SentenceEncoder):
    """A ``SentenceEncoder`` whose similarities are tensors, with their ``encode`` and the old ``fit``."""

    def encode(self, sentences: Any, *args: Any, **options: Any) -> Any:
        """Ours, with arguments by position; int8 and uint8 in the ranges of the texts of the call."""
        options |= dict(zip(_BY_POSITION, args, strict=False))
        options["precision"] = options.get("precision") or "float32"
        if (options.get("truncate_dim") or 0) > self.get_embedding_dimension():
            del options["truncate_dim"]
        if options["precision"] in ("int8", "uint8") and options.get("ranges") is None:
            vectors = super().encode(sentences, **{**options, "precision": "float32"})
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


class CrossEncoder(cross_encoder.CrossEncoder):
    """Ours, with the old ``fit``."""

    def fit(self, train_dataloader: Any, evaluator: Any = None, loss_fct: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Train with a ``DataLoader`` of ``InputExample``; ``loss_fct`` is one of our losses of scores."""
        _fit(self, [(train_dataloader, loss_fct)], evaluator, **options)

    old_fit = fit


_FORM = Form(
    dict,
    "epochs=num_train_epochs steps_per_epoch scheduler! warmup_steps optimizer_class optimizer_params weight_decay"
    " evaluation_steps=eval_steps output_path save_best_model=load_best_model_at_end max_grad_norm use_amp=fp16"
    " callback! show_progress_bar checkpoint_path=output_dir checkpoint_save_steps=save_steps"
    " checkpoint_save_total_limit=save_total_limit activation_fct!",
    {"num_train_epochs": 1, "warmup_steps": 10_000, "weight_decay": 0.01, "load_best_model_at_end": True},
)


def _fit(model: Any, objectives: list[tuple[Any, Any]], evaluator: Any, **options: Any) -> None:
    """Train a model with data loaders and losses by our trainer of theirs, as the method ``fit``.

    Raises:
        ValueError: If the data loaders have different batch sizes, or an option without an equivalent is given.
    """
    given = arguments("fit", _FORM, (), options)
    loaders = [loader for loader, _ in objectives]
    sizes = {loader.batch_size for loader in loaders}
    if len(sizes) > 1:
        raise ValueError(f"the data loaders have the batch sizes {sorted(sizes)}; pass loaders of one batch size")
    each = given.pop("steps_per_epoch", None) or min(-(-len(loader.dataset) // min(sizes)) for loader in loaders)
    folder, shown = given.pop("output_path", None), given.pop("show_progress_bar", None)
    optimizer = given.pop("optimizer_class", torch.optim.AdamW), given.pop("optimizer_params", {"lr": 2e-5})
    best = given.pop("load_best_model_at_end") and evaluator is not None
    losses = {str(i): default_loss(model) if loss is None else loss for i, (_, loss) in enumerate(objectives)}
    data = {name: _rows(loader, losses[name]) for name, loader in zip(losses, loaders, strict=True)}
    output = given.pop("output_dir", None)
    args = SentenceTransformerTrainingArguments(
        output,
        **given,
        max_steps=round(each * len(loaders) * given["num_train_epochs"]),
        per_device_train_batch_size=min(sizes),
        load_best_model_at_end=best,
        batch_sampler=_sampler(loaders[0]),
        eval_strategy="steps" if given.get("eval_steps") else "epoch",
        save_strategy="no" if output is None else "steps" if given.get("save_steps") else "epoch",
        disable_tqdm=None if shown is None else not shown,
    )
    more = {"loss": losses, "evaluator": evaluator, "optimizer_cls_and_kwargs": optimizer}
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
