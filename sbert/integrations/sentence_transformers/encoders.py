"""``SentenceTransformer`` and ``CrossEncoder``: ours, with tensors of similarities and the old ``fit``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from sbert import cross_encoder, encoder
from sbert.integrations.sentence_transformers.forms import Form, arguments
from sbert.integrations.sentence_transformers.losses import settings
from sbert.integrations.sentence_transformers.training import default_loss, load_best
from sbert.losses.signature import Signature
from sbert.training import Trainer, TrainingConfig


class SentenceTransformer(encoder.SentenceEncoder):
    """A ``SentenceEncoder`` whose similarities are tensors, and that has the old ``fit``."""

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
    "epochs steps_per_epoch scheduler! warmup_steps optimizer_class=- optimizer_params=optimizer weight_decay"
    " evaluation_steps=evaluate_every output_path save_best_model=best max_grad_norm=max_gradient_norm use_amp=mixed"
    " callback! show_progress_bar=shown checkpoint_path checkpoint_save_steps=checkpoint_every"
    " checkpoint_save_total_limit=keep activation_fct!",
)


def _fit(model: Any, objectives: list[tuple[Any, Any]], evaluator: Any, **options: Any) -> None:
    """Train a model with data loaders and losses, as the method ``fit`` of theirs.

    Raises:
        ValueError: If the data loaders have different batch sizes, or an option without an equivalent is given.
    """
    given = arguments("fit", _FORM, (), options)
    chosen = [default_loss(model) if loss is None else loss for _, loss in objectives]
    losses = {str(i): loss for i, loss in enumerate(chosen)}
    data = {str(i): _rows(loader, losses[str(i)]) for i, (loader, _) in enumerate(objectives)}
    more = {key: value for loss in losses.values() for key, value in settings(loss).items()}
    output, temporary = given.get("checkpoint_path"), None
    if output is None and evaluator is not None and given.get("best", True):
        temporary = tempfile.TemporaryDirectory()
        output = temporary.name
    config = _config(given, [loader for loader, _ in objectives], output, more.get("chunk_tokens"))
    trainer = Trainer(model, data, losses, config, evaluator=evaluator, guide=more.get("guide"))
    trainer.fit(show_progress_bar=given.get("shown"))
    if evaluator is not None and given.get("best", True):
        load_best(model, output)
    if temporary is not None:
        temporary.cleanup()
    if given.get("output_path") is not None:
        model.save(given["output_path"])


def _config(given: dict[str, Any], loaders: list[Any], output: Any, chunk_tokens: int | None) -> TrainingConfig:
    sizes = {loader.batch_size for loader in loaders}
    if len(sizes) > 1:
        raise ValueError(f"the data loaders have the batch sizes {sorted(sizes)}; pass loaders of one batch size")
    each = given.get("steps_per_epoch") or min(-(-len(loader.dataset) // min(sizes)) for loader in loaders)
    total = round(each * len(loaders) * given.get("epochs", 1))
    rate = (given.get("optimizer") or {}).get("lr", 2e-5)
    return TrainingConfig(
        output=output,
        steps=total,
        batch_size=min(sizes),
        learning_rate=rate,
        warmup=min(1.0, given.get("warmup_steps", 10_000) / total),
        weight_decay=given.get("weight_decay", 0.01),
        max_gradient_norm=given.get("max_gradient_norm", 1.0),
        dtype="bfloat16" if given.get("mixed") else "float32",
        evaluate_every=given.get("evaluate_every") or None,
        checkpoint_every=given.get("checkpoint_every"),
        keep=given.get("keep") or 2,
        sampler=_sampler(loaders[0]),
        chunk_tokens=chunk_tokens,
    )


def _sampler(loader: Any) -> str | Callable[..., Any]:
    """The sampler of a data loader: the rows in their order, if it does not shuffle them."""
    for own in (loader, loader.dataset):
        if isinstance(getattr(own, "sampler", None), str):
            return str(own.sampler)
    return _in_order if isinstance(loader.sampler, SequentialSampler) else "random"


def _in_order(rows: Any, batch_size: int, generator: Any) -> list[Any]:
    return [np.arange(start, min(start + batch_size, len(rows))) for start in range(0, len(rows), batch_size)]


def _rows(loader: Any, loss: Any) -> list[tuple[Any, ...]]:
    """The rows of a data loader, with their labels if the loss takes them."""
    labelled = "labels" in Signature.of(loss).extras
    return [(*row.texts, row.label) if labelled else tuple(row.texts) for row in loader.dataset]
