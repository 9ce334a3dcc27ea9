"""The names of sentence-transformers on our models: constructor arguments, and methods that are one line over ours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from sbert.backends.huggingface import ATTENTIONS
from sbert.inputs.arguments import check_choice, known_arguments
from sbert.modules import Pooling

if TYPE_CHECKING:
    from sbert.pipeline.pool.processes import Processes

P = ParamSpec("P")
R = TypeVar("R")

# Its arguments without an equivalent: what they are by default, and what to do instead.
_REFUSED: dict[str, tuple[Any, str]] = {
    "trust_remote_code": (
        False,
        "code from model folders is never run; pass trust_remote_code=False, which loads each model that transformers"
        " knows (see the guide of sbert.integrations)",
    ),
    "backend": ("torch", "models run in torch here; 'sbert export' writes them for other runtimes"),
    "model_card_data": (None, "edit the README.md of the saved folder"),
    "keep_in_fp32_modules": (None, "pass dtype='float32'"),
    "safe_serialization": (True, "weights are written as safetensors"),
    "train_datasets": (None, "edit the README.md of the saved folder"),
    "local_model_path": (None, "load the model from there, and push it"),
    "exist_ok": (False, "it is pushed whether the repository exists or not; leave this out"),
    "replace_model_card": (False, "the model card is replaced in any case; leave this out"),
    "create_pr": (False, "pass revision= for a branch of its own"),
}
ALIASES = {
    "model_name_or_path": "model",
    "use_auth_token": "token",
    "processor_kwargs": "tokenizer_kwargs",
    "num_labels": "classes",
    "max_length": "max_seq_length",
    "activation_fn": "activation",
    "inputs": "sentences",
    "model_name": "name",
}
# What transformers loads a model with, under the names that model folders have for it.
_DTYPES = ("dtype", "torch_dtype")
_ATTENTION, _FAST = "attn_implementation", ("flash_attention_2", "flash_attention_3")  # Kernels for it are the default.


def renamed(called: str, options: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """The options under our names; those that have no equivalent are left out if they have their default.

    Args:
        called: The function, for errors.
        options: Keyword arguments.
        known: Our names.

    Raises:
        TypeError: If an option is given under both names.
        ValueError: If an option without an equivalent does not have its default. The message says what to do instead.

    Example:
        >>> renamed("CrossEncoder", {"num_labels": 3, "backend": "torch"}, ["model", "classes"])
        {'classes': 3}
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name in _REFUSED:
            default, remedy = _REFUSED[name]
            if value != default:
                raise ValueError(f"{called}() got {name}={value!r:.60}, where only {default!r} is supported; {remedy}")
            continue
        ours = name if name in known else ALIASES.get(name, name)
        if ours in found:
            raise TypeError(f"{called}() got {ours!r} under two names; pass it once")
        found[ours] = value
    return found


def with_aliases(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function that takes arguments under the names of sentence-transformers as well as under ours.

    Type checkers know ours alone.
    """
    checked: Callable[..., R] = known_arguments(function)
    names = signature(function).parameters
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def translated(*args: Any, **options: Any) -> R:
        options = renamed(called, options, names)
        if called == "SentenceEncoder":  # Whose modules are given by position.
            name, chain = options.pop("model", None), options.pop("modules", None) or ()
            args = (*args, *(chain.values() if isinstance(chain, Mapping) else chain))
            args = args if name is None else (*args, name)
        return checked(*args, **options)

    return cast("Callable[P, R]", translated)


def loading_options(
    model_kwargs: Mapping[str, Any] | None,
    tokenizer_kwargs: Mapping[str, Any] | None,
    config_kwargs: Mapping[str, Any] | None,
) -> tuple[Any, dict[str, dict[str, Any]]]:
    """The dtype among the arguments for transformers, None without one, and the other arguments.

    Raises:
        ValueError: If an argument of the model is neither a dtype nor an implementation of attention.
    """
    model = dict(model_kwargs or {})
    if model.get(_ATTENTION, ATTENTIONS[0]) not in ATTENTIONS:
        check_choice(_ATTENTION, model.pop(_ATTENTION), (*ATTENTIONS, *_FAST))
    dtypes = [dtype for name in _DTYPES if (dtype := model.pop(name, None)) is not None]
    unknown = sorted(set(model) - {_ATTENTION})
    if unknown:
        raise ValueError(
            f"model_kwargs has {', '.join(unknown)}, where dtype and {_ATTENTION} are supported; leave the others out,"
            " or load the model with transformers and pass Transformer(model, tokenizer), Pooling()"
        )
    arguments = {
        "model_kwargs": model,
        "processor_kwargs": dict(tokenizer_kwargs or {}),
        "config_kwargs": dict(config_kwargs or {}),
    }
    return next(iter(dtypes), None), arguments


def several(encode: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of ``encode`` for what is done around it: a list of devices, and no output value."""

    @functools.wraps(encode)
    def encoded(self: Any, *args: Any, **options: Any) -> Any:
        devices = options.get("device")
        if isinstance(devices, (list, tuple)):
            with self.pool(devices) as own:
                return encoded(self, *args, **{**options, "device": None, "pool": own})
        if options.get("output_value", "") is None:
            return _outputs(encode, self, args, options)
        return encode(self, *args, **options)

    return encoded


def with_softmax(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of ``predict``: with ``apply_softmax=True``, the scores of several classes are probabilities."""

    @functools.wraps(predict)
    def predicted(self: Any, *args: Any, apply_softmax: bool = False, **options: Any) -> Any:
        given = options.get("activation_fn", options.get("activation"))
        if apply_softmax and self.classes > 1:
            first = given or self.activation
            options = {**options, "activation": lambda scores: torch.softmax(first(scores), -1)}
            options.pop("activation_fn", None)
        return predict(self, *args, **options)

    return predicted


def _outputs(encode: Callable[..., Any], model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The vectors of the tokens and of the text, for each text, by the names of their outputs."""
    names = ("token_embeddings", "sentence_embedding")
    options = {**options, "convert_to_numpy": False}
    found = [encode(model, *args, **{**options, "output_value": name}) for name in names]
    single = isinstance(args[0] if args else options["sentences"], str)
    return (
        dict(zip(names, found, strict=True))
        if single
        else [dict(zip(names, row, strict=True)) for row in zip(*found, strict=True)]
    )


class Aliases:
    """What both encoders have: names of ``SentenceTransformer`` and its ``CrossEncoder``, prompts, and a pool."""

    prompts: dict[str, str]
    default_prompt_name: str | None

    def pool(self: Any, devices: Sequence[str | torch.device] | None = None) -> Processes:
        """Worker processes that share the model, each on a device of its own; see ``Processes``.

        Args:
            devices: A device for each process, such as ``["cuda:0", "cuda:1"]`` or ``["cpu"] * 4``. Default: each GPU,
                or else four times the CPU.
        """
        from sbert.pipeline.pool.processes import Processes

        return Processes(self, devices)

    def __sklearn_clone__(self) -> Any:
        """The model itself: scikit-learn would copy the weights for each step of a search."""
        return self

    def save_pretrained(self: Any, path: str, **options: Any) -> None:
        """``save``."""
        self.save(path, **options)

    def save_to_hub(self: Any, repo_id: str, **options: Any) -> str:
        """``push_to_hub``."""
        url: str = self.push_to_hub(repo_id, **options)
        return url

    def evaluate(self: Any, evaluator: Callable[..., Any], output_path: str | None = None) -> Any:
        """``evaluator(model)``; its metrics are added to ``metrics.csv`` in the folder ``output_path``."""
        return evaluator(self) if output_path is None else evaluator(self, output=Path(output_path) / "metrics.csv")


class EncoderAliases(Aliases):
    """What ``SentenceTransformer`` calls otherwise than ``SentenceEncoder``."""

    def get_embedding_dimension(self: Any) -> int:
        """``get_sentence_embedding_dimension``."""
        return int(self.get_sentence_embedding_dimension())

    def get_max_seq_length(self: Any) -> int | None:
        """``max_seq_length``."""
        limit: int | None = self.max_seq_length
        return limit

    @contextmanager
    def truncate_embeddings(self: Any, truncate_dim: int | None) -> Iterator[None]:
        """Within the block, ``truncate_dim`` is another one."""
        before: int | None = self.truncate_dim
        self.truncate_dim: int | None = truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    def truncate_sentence_embeddings(self: Any, truncate_dim: int | None) -> AbstractContextManager[None]:
        """``truncate_embeddings``."""
        context: AbstractContextManager[None] = self.truncate_embeddings(truncate_dim)
        return context

    def set_pooling_include_prompt(self: Any, include_prompt: bool) -> None:
        """``model[1].include_prompt = include_prompt``, where module 1 is the pooling."""
        for module in self.modules():
            if isinstance(module, Pooling):
                module.include_prompt = include_prompt

    def _first_module(self: Any) -> nn.Module:
        """``model[0]``."""
        return next(iter(self))  # type: ignore[no-any-return]

    def _last_module(self: Any) -> nn.Module:
        """``model[-1]``."""
        return list(self)[-1]  # type: ignore[no-any-return]

    def start_multi_process_pool(self: Any, target_devices: Sequence[str] | None = None) -> Processes:
        """``Processes(model, devices)``, for ``encode(pool=)``."""
        pool: Processes = self.pool(target_devices)
        return pool

    @staticmethod
    def stop_multi_process_pool(pool: Processes) -> None:
        """``pool.close()``."""
        pool.close()

    def encode_multi_process(self: Any, sentences: Iterable[str], pool: Processes, **options: Any) -> Any:
        """``encode(sentences, pool=pool)``."""
        return self.encode(sentences, pool=pool, **options)


class ScorerAliases(Aliases):
    """What the ``CrossEncoder`` of sentence-transformers calls otherwise than ours."""

    @property
    def num_labels(self: Any) -> int:
        """``classes``."""
        return int(self.classes)

    @property
    def max_length(self: Any) -> int | None:
        """``max_seq_length``."""
        limit: int | None = self.max_seq_length
        return limit

    @max_length.setter
    def max_length(self: Any, length: int | None) -> None:
        self.max_seq_length = length

    @property
    def activation_fn(self: Any) -> Callable[[Tensor], Tensor]:
        """``activation``."""
        function: Callable[[Tensor], Tensor] = self.activation
        return function
