"""The transformer: from token ids to one vector per token."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sbert import backends
from sbert.backends import BertModel, PlainTokenizer, huggingface
from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.inputs.arguments import check_choice, known_arguments
from sbert.modules.tokenizer import FastTokenizer, SlowTokenizer, Tokenizing
from sbert.storage.folders import read_whole
from sbert.storage.hub import resolve

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Transformer(Tokenizing, nn.Module):
    """A Hugging Face transformer and its tokenizer.

    Of an encoder-decoder such as T5, only the encoder is loaded. Weights are float32 unless ``dtype`` says otherwise,
    whatever the dtype in the file.

    A BERT is loaded, and encodes, without the transformers library, whose import takes twice as long as that of torch.
    Reading ``auto_model``, or training, materializes the Hugging Face model (see ``materialize``); reading
    ``tokenizer`` creates the tokenizer alone.

    Args:
        model: A folder, a name on the hub, or a transformer that is already in memory.
        tokenizer: The tokenizer of a transformer in memory. Default: that of the folder.
        max_seq_length: Longest input in tokens, including special tokens and the prompt. Default: the minimum of what
            the tokenizer, the configuration and the table of positions allow.
        lower_case: Whether to convert texts to lower case first.
        dtype: Dtype of the weights. Default: float32.
        cache_folder: Folder for downloads.
        head: The head of a masked language model, for ``Pooling("splade")``: ``"saved"`` in the folder, or a ``"new"``
            one, which begins with the table of token embeddings, to be trained. Default: that of a
            ``...ForMaskedLM`` in memory.
        backend: What runs it: ``"plain"`` for the Hugging Face module alone, with padding; ``"auto"`` for the fastest,
            or what the environment variable ``SBERT_BACKEND`` says.

    Shape:
        Input: TokenBatch of (tokens,) ids. Output: TokenEmbeddings of (tokens, dim).

    Raises:
        FileNotFoundError: If neither a folder nor a model on the hub has this name.
        ValueError: If a file of the folder is damaged, or ``max_seq_length`` is too large for the model.

    Example:
        >>> from sbert import Normalize, Pooling, SentenceEncoder, Transformer
        >>> model = SentenceEncoder(Transformer("sbert-mini"), Pooling("mean"), Normalize())
        >>> model.encode("A sentence.").shape
        (384,)
    """

    @known_arguments
    def __init__(
        self,
        model: str | os.PathLike[str] | PreTrainedModel | BertModel,
        tokenizer: PreTrainedTokenizerBase | PlainTokenizer | None = None,
        max_seq_length: int | None = None,
        *,
        lower_case: bool = False,
        dtype: torch.dtype | None = None,
        cache_folder: str | None = None,
        head: str | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if isinstance(model, (str, os.PathLike)):
            folder = resolve(model, cache_folder=cache_folder)
            read = partial(_read, folder, dtype or torch.float32, tokenizer, head == "saved")
            model, tokenizer = read_whole(folder, read)
        elif tokenizer is None:
            raise ValueError("a transformer in memory has no tokenizer; pass its tokenizer as well")
        if head is not None:
            check_choice("head", head, ("saved", "new"))
        model = huggingface.with_new_head(backends.materialize(model)) if head == "new" else model
        self.has_head: bool = type(model).__name__.endswith("ForMaskedLM")  # That of a language model.
        self._modules["auto_model"] = model
        self._tokenizer: Any = tokenizer
        self.lower_case: bool = lower_case
        self._copy: tuple[tuple[Any, int], FastTokenizer | SlowTokenizer] | None = None
        self._limit = backends.default_limit(self.network, tokenizer)
        if max_seq_length is not None:
            self.max_seq_length = max_seq_length
        self.backend = backend
        self.plain_devices: set[torch.device] = set()  # Those where a faster way has failed.
        self.engine: Any = None  # What ``choose_engine`` returned, if an engine encodes.

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        backends.adopt(self.network, self._backend)  # The model may come from another process.

    @property
    def auto_model(self) -> Any:
        """The Hugging Face model, which is materialized when it is first read."""
        return self.materialize()

    @property
    def network(self) -> Any:
        """What gives the token vectors: ``auto_model`` without its head, or a minimal BERT until it is materialized."""
        model: Any = self._modules["auto_model"]
        return model.base_model if self.has_head else model

    def materialize(self) -> Any:
        """Replace a minimal BERT by the Hugging Face model with the same weights, and return that."""
        if isinstance(self.network, BertModel):
            with huggingface.lock:
                self._modules["auto_model"] = backends.materialize(self.network)
        return self._modules["auto_model"]

    @property
    def backend(self) -> str:
        """``"auto"`` or ``"plain"``."""
        return self._backend

    @backend.setter
    def backend(self, name: str) -> None:
        self._backend = backends.choose_backend(name)
        backends.adopt(self.materialize() if self._backend == "plain" else self._modules["auto_model"], self._backend)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers."""
        if isinstance(self._tokenizer, PlainTokenizer):
            with huggingface.lock:
                self._tokenizer = backends.materialize_tokenizer(self._tokenizer)
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def train(self, mode: bool = True) -> Transformer:
        """Set the mode; training materializes the Hugging Face model."""
        if mode:
            self.materialize()
        return super().train(mode)

    @property
    def dim(self) -> int:
        """Width of the token embeddings."""
        return int(self.network.config.hidden_size)

    @property
    def vocab_size(self) -> int | None:
        """Number of tokens in the embedding table; None without a table."""
        network = self.network
        return network.config.vocab_size if isinstance(network, BertModel) else backends.vocab_size(network)

    @property
    def padding_reason(self) -> str | None:
        """Why batches are padded; None if they are not. The first batch may add a reason."""
        return "backend='plain'" if self._backend == "plain" else backends.padding_reason(self.network)

    @property
    def max_seq_length(self) -> int | None:
        """Longest input in tokens, including special tokens and the prompt; None without a limit."""
        return self._limit

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        self._limit = backends.check_limit(self.network, length, sum(self.special_tokens) + 1)

    @property
    def truncation_side(self) -> str:
        """Side on which long texts are truncated."""
        return str(self._tokenizer.truncation_side)

    def tokenizer_copy(self) -> FastTokenizer | SlowTokenizer:
        """A private copy of the tokenizer, copied again after the tokenizer was replaced or extended."""
        original, lower = self._tokenizer, self.lower_case
        state = original, 0 if isinstance(original, PlainTokenizer) else len(original)  # That one cannot be extended.
        if self._copy is None or self._copy[0] != state:
            fast = original.is_fast
            copy = FastTokenizer(original.backend_tokenizer, lower) if fast else SlowTokenizer(original, lower)
            self._copy = state, copy
        return self._copy[1]

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        network, head = self.network, self.logits if self.has_head else None
        if len(batch.values) == 0:
            return batch.embeddings(torch.zeros(0, self.dim, dtype=network.dtype, device=batch.values.device), head)
        plain = self._backend == "plain" or batch.values.device in self.plain_devices
        learns = self.training or torch.is_grad_enabled()
        if isinstance(network, BertModel) and not plain and (learns or backends.has_hooks(network)):
            network = self.materialize()
        return batch.embeddings(backends.forward(network, batch, plain, self.engine), head)

    def logits(self, states: Tensor) -> Tensor:
        """The logits of the language model's head. Shape: (tokens, dim) to (tokens, vocabulary)."""
        return backends.head_logits(self._modules["auto_model"], states[None])[0]

    def extra_repr(self) -> str:
        int8 = ", int8" if self.engine and self.engine.dtype == torch.int8 else ""
        return f"max_seq_length={self.max_seq_length}, lower_case={self.lower_case}{int8}"

    def __repr__(self) -> str:
        return f"Transformer({type(self._modules['auto_model']).__name__}, dim={self.dim}, {self.extra_repr()})"


def _read(folder: Path, dtype: torch.dtype, tokenizer: Any, with_head: bool) -> tuple[Any, Any]:
    """The model in a folder, and its tokenizer unless one is given."""
    loaded = None if with_head else backends.load_minimal_bert(folder, dtype)
    if loaded:
        return loaded[0], tokenizer or loaded[1]
    model = huggingface.load_network(folder, huggingface.load_config(folder, {}), dtype, {}, with_head)
    return model, tokenizer or huggingface.load_tokenizer(folder, {})
