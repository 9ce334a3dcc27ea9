"""``SentenceTransformer`` and ``CrossEncoder``: ours, with their attributes and the old ``fit``."""

from __future__ import annotations

import os
import shutil
from functools import cached_property, partialmethod, wraps
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
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
from sbert.integrations.sentence_transformers.training import SentenceTransformerTrainer, default_loss, make_arguments
from sbert.integrations.sentence_transformers.util import quantize_embeddings
from sbert.losses.signature import Signature
from sbert.pipeline.model import choose_prompt
from sbert.pipeline.results import convert
from sbert.pipeline.run import output_dims
from sbert.saving.format import find_foreign_file

_SCHEDULERS = {
    "constantlr": "constant", "warmupconstant": "constant_with_warmup", "warmuplinear": "linear",
    "warmupcosine": "cosine", "warmupcosinewithhardrestarts": "cosine_with_restarts",
}  # fmt: skip
_NO_LIMIT = int(1e30)  # As transformers writes it.
_BY_POSITION = (
    "sentences prompt_name prompt batch_size show_progress_bar output_value precision convert_to_numpy"
    " convert_to_tensor device normalize_embeddings"
).split()


def _fit(
    model: Any, objectives: Any, evaluator: Any, scheduler: str, best: bool, output: Any, optimizer: Any,
    optimizer_params: Any, show: bool | None, callback: Any, steps_per_epoch: int | None = None, **arguments: Any,
) -> None:  # fmt: skip
    """Train with a ``DataLoader`` of ``InputExample`` and a loss, or several such pairs alternately.

    Raises:
        ValueError: If the data loaders have different batch sizes, or a scheduler is unknown.
    """
    check_choice("scheduler", scheduler.lower(), list(_SCHEDULERS))
    if arguments.get("output_dir"):  # Scripts save the model in the same folder, which replaces it.
        arguments["output_dir"] = f"{arguments['output_dir']}-checkpoints"
    loaders, losses = zip(*objectives, strict=True)
    size, *others = {loader.batch_size or loader.batch_sampler.batch_size for loader in loaders}
    if others:
        raise ValueError(f"the data loaders have the batch sizes {[size, *others]}; pass loaders of one batch size")
    loss = {str(i): default_loss(model) if part is None else part for i, part in enumerate(losses)}
    data = {name: _rows(loader, loss[name]) for name, loader in zip(loss, loaders, strict=True)}
    epoch = len(data) * (steps_per_epoch or min(-(-len(rows) // size) for rows in data.values()))
    sampler = getattr(loaders[0].dataset, "sampler", loaders[0].sampler)  # A name, of those of ``readers``.
    in_order = "in_order" if isinstance(sampler, SequentialSampler) else "random"
    args = make_arguments()(
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
    trainer = SentenceTransformerTrainer(model, args, data, **more)
    trainer.score_callback = callback
    trainer.train()
    if output is not None:
        model.save(output)


def _fit_pairs(model: Any, loader: Any, loss: Any, **options: Any) -> None:
    """Train with a ``DataLoader`` of ``InputExample`` and a loss of scores, ``loss(scores, *, labels)``."""
    _fit(model, [(loader, loss)], **options)


def _rows(loader: Any, loss: Any) -> list[tuple[Any, ...]]:
    """The rows of a data loader, with their labels if the loss takes them."""
    labelled = "labels" in Signature.of(loss).extras
    return [(*row.texts, row.label) if labelled else tuple(row.texts) for row in loader.dataset]


def _by_name(args: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``encode`` by name; the newer name of the first one is ``inputs``."""
    first = {"sentences": options.pop("inputs")} if "inputs" in options else {}
    return options | first | dict(zip(_BY_POSITION, args, strict=False))


class SentenceTransformer(SentenceEncoder):
    """A ``SentenceEncoder`` with their attributes and prompts, similarities as tensors, and the old ``fit``."""

    model_card_data = cached_property(lambda _: ModelCardData())
    _public_tokenizer: Any = None  # Once a program has read it.
    _target_device = property(attrgetter("device"))
    processor = property(attrgetter("tokenizer"))
    transformers_model = property(lambda self: self[0].auto_model)
    config = property(lambda self: self[0].auto_model.config)
    load = classmethod(lambda cls, path: cls(path))
    fit: Any = SignatureAdapter("SentenceTransformer.fit").function(_fit)
    old_fit = fit

    @wraps(SentenceEncoder.__init__)  # type: ignore[misc]
    def __init__(self, *modules: Any, prompts: Any = None, default_prompt_name: Any = None, **options: Any) -> None:
        if card := options.pop("model_card_data", None):
            vars(self)["model_card_data"] = card
        super().__init__(*modules, **options)
        self.prompts = {"query": "", "document": "", **self.prompts, **(prompts or {})}
        self.default_prompt_name = default_prompt_name or self.default_prompt_name
        choose_prompt(self)  # A ValueError if there is no such prompt.
        first, *rest = self
        vars(self._reader)["processing_kwargs"] = {"text": {}}
        if dim := getattr(first, "dim", 0):
            add_dim_getters(first, dim)
            for module in rest[:1]:
                if isinstance(module, Pooling):
                    mode = module.modes if module.modes[1:] else module.modes[0]
                    add_dim_getters(module, dim * len(module.modes))
                    vars(module).update(embedding_dimension=dim, pooling_mode=mode)

    def add_module(self, name: str, module: Any) -> None:
        """Theirs take features; such a module is adapted."""
        super().add_module(name, features.adapt_module(module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self[0].auto_model, name) if "adapter" in name else super().__getattr__(name)

    @SentenceEncoder.tokenizer.getter  # type: ignore[attr-defined]
    def tokenizer(self) -> Any:
        """The tokenizer, whose ``model_max_length`` is the limit of the model from now on."""
        if (tokenizer := self._reader.tokenizer) is not self._public_tokenizer:
            vars(self)["_public_tokenizer"] = tokenizer
            self.max_seq_length = self._reader.max_seq_length
        return tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """The limit in tokens, which programs also set in the tokenizer and in the first module."""
        options = vars(self._reader).get("processing_kwargs", {}).get("text", {})
        limit = options.get("max_length") or getattr(self._public_tokenizer, "model_max_length", None)
        if limit not in (None, _NO_LIMIT):
            self._reader.max_seq_length = limit
        return self._reader.max_seq_length  # type: ignore[no-any-return]

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        self._reader.max_seq_length = length
        if hasattr(self._public_tokenizer, "model_max_length"):
            self._public_tokenizer.model_max_length = length or _NO_LIMIT

    def encode(self, *args: Any, **options: Any) -> Any:
        """Ours; int8 and uint8 in the ranges of the texts of the call, and tensors in the dtype of the weights."""
        options = _by_name(args, options)
        sentences, _ = options.pop("sentences", None), self.max_seq_length
        options["precision"] = options.get("precision") or "float32"
        options["truncate_dim"] = self._fit_dim(options.get("truncate_dim") or self.truncate_dim)
        if not self.routes:
            options.pop("task", None)
        if options["precision"] in ("int8", "uint8") and options.get("ranges") is None:
            exact = {"precision": "float32", "convert_to_numpy": True, "convert_to_tensor": False}
            quantized = quantize_embeddings(super().encode(sentences, **{**options, **exact}), options["precision"])
            forms = options.get("convert_to_numpy", True), options.get("convert_to_tensor", False)
            return convert(torch.as_tensor(quantized), isinstance(sentences, str), *forms)
        encoded: Any = super().encode(sentences, **options)
        is_float = isinstance(encoded, Tensor) and encoded.dtype == torch.float32
        return encoded.to(self.dtype) if is_float else encoded

    def _encode_as(self, role: str, *args: Any, **options: Any) -> Any:
        options = with_role_prompt(self.prompts, role, _by_name(args, options))
        return self.encode(**{"prompt_name": None, "prompt": None, "task": role, **options})

    encode_query, encode_document = partialmethod(_encode_as, "query"), partialmethod(_encode_as, "document")

    def _fit_dim(self, dim: int | None) -> int | None:
        """The dimension, or that of the vectors if it is beyond it."""
        return min(dim, output_dims(self.encoders[0], self.device)[-1]) if dim else dim

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarity of each row of one and each of the other: (rows, rows)."""
        return torch.as_tensor(super().similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarity of each row of one and the same row of the other: (rows,)."""
        return torch.as_tensor(super().similarity_pairwise(embeddings1, embeddings2))

    def save(self, path: Any, *args: Any, create_model_card: bool = True, **options: Any) -> None:
        """Ours; among files of another program, the files of the model alone are replaced, one by one."""
        target = Path(path)
        if not target.is_dir() or find_foreign_file(target) is None:
            super().save(target, *args, create_model_card=create_model_card, **options)
        else:
            with TemporaryDirectory(dir=target) as folder:
                shutil.copystat(target, folder)  # Which copytree gives back.
                self.write(Path(folder), None, target)
                left = None if create_model_card else shutil.ignore_patterns("README.md")
                shutil.copytree(folder, target, ignore=left, dirs_exist_ok=True, copy_function=os.replace)

    def tokenize(self, sentences: Any, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """The padded features of texts."""
        return features.padded_features(self, sentences)

    preprocess = tokenize

    def smart_batching_collate(self, batch: Any) -> tuple[list[dict[str, Tensor]], Tensor]:
        """The features of each column of rows that are ``InputExample``, and their labels."""
        columns = zip(*(row.texts for row in batch), strict=True)
        return [self.tokenize(column) for column in columns], torch.tensor([row.label for row in batch])

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
