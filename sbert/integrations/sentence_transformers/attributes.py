"""What scripts read from a ``SentenceTransformer``, beside what a ``SentenceEncoder`` has."""

from __future__ import annotations

from functools import wraps
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder
from sbert.integrations.sentence_transformers.forms import absent
from sbert.integrations.sentence_transformers.models import note_dim
from sbert.pipeline.model import choose_prompt

_absent = absent("SentenceTransformer", "SentenceTransformer: methods and attributes")


class Attributes(SentenceEncoder):
    """A ``SentenceEncoder`` with their attributes and their prompts, and tensors in the dtype of its weights."""

    _asked_dtype = torch.float32
    _target_device = property(attrgetter("device"))
    processor = property(attrgetter("tokenizer"))
    transformers_model = property(lambda self: self[0].auto_model)
    config = property(lambda self: self[0].auto_model.config)

    @wraps(SentenceEncoder.__init__)  # type: ignore[misc]
    def __init__(self, *modules: Any, prompts: Any = None, default_prompt_name: Any = None, **options: Any) -> None:
        super().__init__(*modules, **options)
        self.prompts = {"query": "", "document": "", **self.prompts, **(prompts or {})}
        self.default_prompt_name = default_prompt_name or self.default_prompt_name
        choose_prompt(self)  # A ValueError if there is no such prompt.
        first, *rest = self
        if dim := getattr(first, "dim", 0):
            note_dim(first, dim)
            for module in rest[:1]:
                if isinstance(module, Pooling):
                    mode = module.modes if module.modes[1:] else module.modes[0]
                    vars(note_dim(module, dim * len(module.modes))).update(embedding_dimension=dim, pooling_mode=mode)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return _absent(name)

    def float(self) -> Any:
        self._asked_dtype = torch.float32
        return super().float()

    def encode(self, sentences: Any, **options: Any) -> Any:
        """Ours; a tensor has the dtype of the weights, also where the CPU has computed in another one."""
        dtype = self._asked_dtype if self.dtype == torch.float32 else self.dtype
        result = super().encode(sentences, **options)
        self._asked_dtype = dtype  # A float16 model on a CPU is a float32 model now.
        return result.to(dtype) if isinstance(result, Tensor) and result.dtype == torch.float32 else result
