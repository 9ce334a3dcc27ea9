"""``SentenceTransformer`` and ``CrossEncoder``: ours, with their attributes and the old ``fit``."""

from __future__ import annotations

from functools import cached_property, wraps
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from sbert import Pooling, SentenceEncoder, cross_encoder
from sbert.inputs.arguments import check_choice
from sbert.inputs.prompts import with_role_prompt
from sbert.integrations.sentence_transformers import features
from sbert.integrations.sentence_transformers.forms import ModelCardData, SignatureAdapter
from sbert.integrations.sentence_transformers.models import add_dim_getters
from sbert.integrations.sentence_transformers.training import (
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    default_loss,
)
from sbert.integrations.sentence_transformers.util import quantize_embeddings
from sbert.losses.signature import Signature
from sbert.pipeline.model import choose_prompt
from sbert.pipeline.run import output_dims

_SCHEDULERS = {
    "constantlr": "constant", "warmupconstant": "constant_with_warmup", "warmuplinear": "linear",
    "warmupcosine": "cosine", "warmupcosinewithhardrestarts": "cosine_with_restarts",
}  # fmt: skip
_BY_POSITION = (
    "prompt_name prompt batch_size show_progress_bar output_value precision convert_to_numpy convert_to_tensor device"
    " normalize_embeddings"
).split()


def _fit(
    model: Any, objectives: Any, evaluator: Any, scheduler: str, best: bool, output: Any, optimizer: Any,
    optimizer_params: Any, show: bool | None, steps_per_epoch: int | None = None, **arguments: Any,
) -> None:  # fmt: skip
    """Train with a ``DataLoader`` of ``InputExample`` and a loss, or several such pairs alternately.

    Raises:
        ValueError: If the data loaders have different batch sizes, or a scheduler is unknown.
    """
    check_choice("scheduler", scheduler.lower(), list(_SCHEDULERS))
    if arguments.get("output_dir"):  # Scripts save the model in the same folder, which replaces it.
        arguments["output_dir"] = f"{arguments['output_dir']}-checkpoints"
    loaders, losses = zip(*objectives, strict=True)
    size, *others = {loader.batch_size for loader in loaders}
    if others:
        raise ValueError(f"the data loaders have the batch sizes {[size, *others]}; pass loaders of one batch size")
    loss = {str(i): default_loss(model) if part is None else part for i, part in enumerate(losses)}
    data = {name: _rows(loader, loss[name]) for name, loader in zip(loss, loaders, strict=True)}
    epoch = len(data) * (steps_per_epoch or min(-(-len(rows) // size) for rows in data.values()))
    sampler = getattr(loaders[0].dataset, "sampler", loaders[0].sampler)  # A name, of those of ``readers``.
    in_order = "in_order" if isinstance(sampler, SequentialSampler) else "random"
    args = SentenceTransformerTrainingArguments(
        **arguments,
        lr_scheduler_type=_SCHEDULERS[scheduler.lower()],
        max_steps=round(epoch * arguments["num_train_epochs"]),
        per_device_train_batch_size=size,
        batch_sampler=sampler if isinstance(sampler, str) else in_order,
        eval_strategy="steps" if arguments["eval_steps"] else "epoch",
        save_strategy="steps" if arguments.get("output_dir") else "no",
        disable_tqdm=None if show is None else not show,
    )
    args.load_best_model_at_end = best and evaluator is not None
    kind = optimizer or torch.optim.AdamW, optimizer_params
    more: dict[str, Any] = {"loss": loss, "evaluator": evaluator, "optimizer_cls_and_kwargs": kind}
    SentenceTransformerTrainer(model, args, data, **more).train()
    if output is not None:
        model.save(output)


def _fit_pairs(model: Any, loader: Any, loss: Any, **options: Any) -> None:
    """Train with a ``DataLoader`` of ``InputExample`` and a loss of scores, ``loss(scores, *, labels)``."""
    _fit(model, [(loader, loss)], **options)


def _rows(loader: Any, loss: Any) -> list[tuple[Any, ...]]:
    """The rows of a data loader, with their labels if the loss takes them."""
    labelled = "labels" in Signature.of(loss).extras
    return [(*row.texts, row.label) if labelled else tuple(row.texts) for row in loader.dataset]


class SentenceTransformer(SentenceEncoder):
    """A ``SentenceEncoder`` with their attributes and prompts, similarities as tensors, and the old ``fit``."""

    model_card_data = cached_property(lambda _: ModelCardData())
    _target_device = property(attrgetter("device"))
    processor = property(attrgetter("tokenizer"))
    transformers_model = property(lambda self: self[0].auto_model)
    config = property(lambda self: self[0].auto_model.config)
    fit: Any = SignatureAdapter("SentenceTransformer.fit").function(_fit)
    old_fit = fit

    @wraps(SentenceEncoder.__init__)  # type: ignore[misc]
    def __init__(self, *modules: Any, prompts: Any = None, default_prompt_name: Any = None, **options: Any) -> None:
        super().__init__(*modules, **options)
        self.prompts = {"query": "", "document": "", **self.prompts, **(prompts or {})}
        self.default_prompt_name = default_prompt_name or self.default_prompt_name
        choose_prompt(self)  # A ValueError if there is no such prompt.
        first, *rest = self
        if dim := getattr(first, "dim", 0):
            add_dim_getters(first, dim)
            for module in rest[:1]:
                if isinstance(module, Pooling):
                    mode = module.modes if module.modes[1:] else module.modes[0]
                    add_dim_getters(module, dim * len(module.modes))
                    vars(module).update(embedding_dimension=dim, pooling_mode=mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self[0].auto_model, name) if "adapter" in name else super().__getattr__(name)

    def encode(self, sentences: Any, *args: Any, **options: Any) -> Any:
        """Ours; int8 and uint8 in the ranges of the texts of the call, and tensors in the dtype of the weights."""
        options |= dict(zip(_BY_POSITION, args, strict=False))
        options["precision"] = options.get("precision") or "float32"
        options["truncate_dim"] = self._fit_dim(options.get("truncate_dim") or self.truncate_dim)
        if not self.routes:
            options.pop("task", None)
        if options["precision"] in ("int8", "uint8") and options.get("ranges") is None:
            exact = {"precision": "float32", "convert_to_numpy": True, "convert_to_tensor": False}
            quantized = quantize_embeddings(super().encode(sentences, **{**options, **exact}), options["precision"])
            if options.get("convert_to_numpy") is False and not options.get("convert_to_tensor"):
                return list(torch.as_tensor(quantized))
            return torch.as_tensor(quantized) if options.get("convert_to_tensor") else quantized
        encoded: Any = super().encode(sentences, **options)
        is_float = isinstance(encoded, Tensor) and encoded.dtype == torch.float32
        return encoded.to(self.dtype) if is_float else encoded

    def _encode_for(self, role: str, sentences: Any, options: dict[str, Any]) -> Any:
        prompts = {"prompt_name": None, "prompt": None, **with_role_prompt(self.prompts, role, options)}
        return self.encode(sentences=sentences, task=role, **prompts)

    def _fit_dim(self, dim: int | None) -> int | None:
        """The dimension, or that of the vectors if it is beyond it."""
        return min(dim, output_dims(self.encoders[0], self.device)[-1]) if dim else dim

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarity of each row of one and each of the other: (rows, rows)."""
        return torch.as_tensor(super().similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarity of each row of one and the same row of the other: (rows,)."""
        return torch.as_tensor(super().similarity_pairwise(embeddings1, embeddings2))

    def tokenize(self, sentences: Any, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """The padded features of texts."""
        return features.padded_features(self, sentences)

    preprocess = tokenize

    def forward(self, value: Any, **_: Any) -> Any:  # type: ignore[override]
        """The vectors of tokens; of features, these with the vectors added."""
        return features.add_embeddings(self, value) if isinstance(value, dict) else super().forward(value)


class SparseEncoder(SentenceTransformer):
    """A ``SentenceTransformer`` of sparse vectors, which returns tensors of torch unless the caller says otherwise."""

    def encode(self, sentences: Any, *args: Any, **options: Any) -> Any:
        """Sparse tensors."""
        return super().encode(sentences, *args, **{"convert_to_tensor": True, **options})


class CrossEncoder(cross_encoder.CrossEncoder):
    """Ours, with their names of its parts and the old ``fit``."""

    model_card_data = cached_property(lambda _: ModelCardData())
    model = transformers_model = property(lambda self: self.auto_model)
    config = property(lambda self: self.auto_model.config)
    default_activation_function = property(lambda self: self.activation)
    fit: Any = SignatureAdapter("CrossEncoder.fit").function(_fit_pairs)
    old_fit = fit

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__("activation" if name == "default_activation_function" else name, value)
