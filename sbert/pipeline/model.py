"""What both encoders have: a device, a dtype, prompts, a pool; and what tools that know sentence-transformers call.

Its names of arguments are in ``sbert/integrations/migrating.md``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sbert.backends.huggingface import ATTENTIONS
from sbert.inputs.arguments import MissingNameError, check_choice, nearest_argument, with_aliases
from sbert.inputs.devices import check_device, parse_dtype
from sbert.modules import Pooling
from sbert.storage import hub

if TYPE_CHECKING:
    from sbert.pipeline.pool import Pool

# What transformers loads a model with, under the names that model folders have for it.
_DTYPES = ("dtype", "torch_dtype")
_ATTENTION, _QUANTIZATION = "attn_implementation", "quantization_config"
_FAST = ("flash_attention_2", "flash_attention_3")  # Kernels for it are the default.


def choose_prompt(model: Any, name: str | None = None, text: str | None = None) -> str:
    """The prompt for a call of ``encode``: that of a name, or a text; by default the model's own.

    Raises:
        TypeError: If the text is not a str.
        ValueError: If both are given, or the model has no prompt of this name.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.pipeline.model import choose_prompt
        >>> choose_prompt(SentenceEncoder(prompts={"query": "query: "}), "query")
        'query: '
    """
    if name is not None and text is not None:
        raise ValueError("prompt_name= and prompt= both set the prompt; pass one of them")
    if text is not None:
        if not isinstance(text, str):
            raise TypeError(f"prompt is of type {type(text).__name__}; pass a str")
        return text
    name = model.default_prompt_name if name is None else name
    if name is not None and name not in model.prompts:
        if not model.prompts:
            remedy = "leave prompt_name= out, or pass the text itself as prompt="
            raise ValueError(f"prompt_name={name!r} is unknown; the model has no prompts; {remedy}")
        nearest = nearest_argument(name, model.prompts)
        known, meant = ", ".join(map(repr, model.prompts)), f" did you mean {nearest!r}?" if nearest else ""
        raise ValueError(f"prompt_name={name!r} is unknown; the model has {known};{meant} pass one of them, or prompt=")
    return "" if name is None else str(model.prompts[name])


def set_up(
    model: Any, prompts: Mapping[str, str] | None, default: str | None, saved: tuple[Mapping[str, str], str | None]
) -> None:
    """Give a model the prompts of its folder, or others in their place, and the state of its calls.

    Args:
        model: The model.
        prompts: Its prompts by name. Default: those that are saved.
        default: Name of its default prompt. Default: the one that is saved.
        saved: Prompts and name of the default prompt of the folder.

    Raises:
        ValueError: If there is no prompt of this name.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.pipeline.model import choose_prompt, set_up
        >>> model = SentenceEncoder()
        >>> set_up(model, {"query": "query: "}, "query", ({}, None))
        >>> choose_prompt(model)
        'query: '
        >>> set_up(model, None, None, ({}, None))
    """
    model._compiling, model._memory_limits, model._warned = None, {}, set()
    model.prompts = dict(saved[0] if prompts is None else prompts)
    model.default_prompt_name = default or saved[1]
    if model.default_prompt_name is not None:
        choose_prompt(model, model.default_prompt_name)  # A ValueError if there is no such prompt.


def loading_options(
    dtype: str | torch.dtype,
    model_kwargs: Mapping[str, Any] | None,
    tokenizer_kwargs: Mapping[str, Any] | None,
    config_kwargs: Mapping[str, Any] | None,
) -> tuple[torch.dtype | None, dict[str, dict[str, Any]]]:
    """The dtype of the weights, that among the arguments for transformers if there is one, and the other arguments.

    Raises:
        ValueError: If there is no such dtype, or an argument of the model is neither a dtype nor an implementation of
            attention.
    """
    model = dict(model_kwargs or {})
    if model.get(_ATTENTION, ATTENTIONS[0]) not in ATTENTIONS:
        check_choice(_ATTENTION, model.pop(_ATTENTION), (*ATTENTIONS, *_FAST))
    dtypes = [value for name in _DTYPES if (value := model.pop(name, None)) is not None]
    if unknown := sorted(set(model) - {_ATTENTION, _QUANTIZATION}):
        raise ValueError(
            f"model_kwargs has {', '.join(unknown)}, where dtype, {_ATTENTION} and {_QUANTIZATION} are supported; leave"
            " the others out, or load the model with transformers and pass Transformer(model, tokenizer), Pooling()"
        )
    options = {"model_kwargs": model, "processor_kwargs": tokenizer_kwargs, "config_kwargs": config_kwargs}
    return parse_dtype(next(iter(dtypes), dtype)), {name: dict(values or {}) for name, values in options.items()}


def _alias(name: str) -> Callable[..., Any]:
    """A method under another name, for tools that know sentence-transformers."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self, name)(*args, **options)

    return method


class Methods:
    """What both encoders have: a device, a dtype, a pool, the hub, and names that tools call."""

    prompts: dict[str, str]
    default_prompt_name: str | None
    _compiling: dict[str, Any] | None
    _memory_limits: dict[torch.device, Any]
    _warned: set[str]

    def __getattr__(self, name: str) -> torch.Tensor | nn.Module:
        try:
            return super().__getattr__(name)  # type: ignore[misc, no-any-return]
        except AttributeError:
            known = {*dir(type(self)), *vars(self)} - {*dir(nn.Module)}
            raise MissingNameError(type(self).__name__, name, known) from None

    @property
    def device(self: Any) -> torch.device:
        """Device of the weights."""
        weight = next(self.parameters(), None)
        return torch.device("cpu") if weight is None else weight.device

    @device.setter
    def device(self, device: object) -> None:
        raise AttributeError(f"the device of a model is that of its weights; move them: model.to({device!r})")

    @property
    def dtype(self: Any) -> torch.dtype:
        """Dtype of the weights."""
        dtypes = (weight.dtype for weight in self.parameters() if weight.is_floating_point())
        return next(dtypes, torch.float32)

    @with_aliases
    def push_to_hub(
        self: Any,
        repo_id: str,
        *,
        token: str | bool | None = None,
        private: bool | None = None,
        commit_message: str = "Add model",
        revision: str | None = None,
    ) -> str:
        """Upload the model to the Hugging Face hub, with a short model card.

        Args:
            repo_id: Repository, as ``"name/model"``; created if it does not exist.
            token: Access token. Default: that of ``hf auth login``.
            private: Whether a new repository is private.
            commit_message: Message of the commit.
            revision: Branch; created if it does not exist.

        Returns:
            The URL of the commit.

        Raises:
            ValueError: As ``save``.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> model.push_to_hub("me/my-model")  # doctest: +SKIP
            'https://huggingface.co/me/my-model/commit/…'
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save(f"{folder}/model", repo_id)
            return hub.upload(Path(folder) / "model", repo_id, token, private, commit_message, revision)

    def on_devices(
        self: Any, device: str | torch.device | Sequence[str | torch.device]
    ) -> AbstractContextManager[Pool | None]:
        """Several devices as a pool for the length of a call; the model is moved to a single one."""
        if isinstance(device, (list, tuple)):
            return self.pool(device)  # type: ignore[no-any-return]
        if torch.empty(0, device=check_device(device)).device != self.device:
            self.to(check_device(device))
        return nullcontext()

    def pool(self: Any, devices: Sequence[str | torch.device] | None = None) -> Pool:
        """Worker processes that share the model, each on a device of its own; see ``Pool``.

        Args:
            devices: A device for each process, such as ``["cuda:0", "cuda:1"]`` or ``["cpu"] * 4``. Default: each GPU,
                or else four times the CPU.
        """
        from sbert.pipeline.pool import Pool

        return Pool(self, devices)

    def __sklearn_clone__(self) -> Any:
        """The model itself: scikit-learn would copy the weights for each step of a search."""
        return self

    save_pretrained = _alias("save")
    save_to_hub = _alias("push_to_hub")

    def evaluate(self: Any, evaluator: Callable[..., Any], output_path: str | None = None) -> Any:
        """``evaluator(model)``; its metrics are added to ``metrics.csv`` in the folder ``output_path``."""
        return evaluator(self) if output_path is None else evaluator(self, output=Path(output_path) / "metrics.csv")


class EncoderMethods(Methods):
    """What ``SentenceTransformer`` calls otherwise than ``SentenceEncoder``."""

    get_embedding_dimension = _alias("get_sentence_embedding_dimension")

    def get_max_seq_length(self: Any) -> int | None:
        """``max_seq_length``."""
        return self.max_seq_length  # type: ignore[no-any-return]

    @contextmanager
    def truncate_embeddings(self: Any, truncate_dim: int | None) -> Iterator[None]:
        """Within the block, ``truncate_dim`` is another one."""
        before: int | None = self.truncate_dim
        self.truncate_dim: int | None = truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    truncate_sentence_embeddings = _alias("truncate_embeddings")

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

    def start_multi_process_pool(self: Any, target_devices: Sequence[str] | None = None) -> Pool:
        """``Pool(model, devices)``, for ``encode(pool=)``."""
        return self.pool(target_devices)  # type: ignore[no-any-return]

    @staticmethod
    def stop_multi_process_pool(pool: Pool) -> None:
        """``pool.close()``."""
        pool.close()

    def encode_multi_process(self: Any, sentences: Iterable[str], pool: Pool, **options: Any) -> Any:
        """``encode(sentences, pool=pool)``."""
        return self.encode(sentences, pool=pool, **options)


class ScorerMethods(Methods):
    """What the ``CrossEncoder`` of sentence-transformers calls otherwise than ours."""

    num_labels = property(attrgetter("classes"))
    max_length = property(attrgetter("max_seq_length"), lambda self, length: setattr(self, "max_seq_length", length))
    activation_fn = property(attrgetter("activation"))
