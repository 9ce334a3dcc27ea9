"""A hash of a model: of its weights, its configuration and its tokenizer."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.saving import verification

# The packages whose modules may have tensors and dicts that say nothing about the vectors.
_KNOWN = ("sbert", "torch", "transformers")
# What says nothing about the vectors.
_ABSENT = {"training", "name_or_path", "transformers_version", "default_prompt_name", "automatic_dtype"}
_ABSENT |= {"truncate_dim", "language", "engine", "has_head", "max_active_dims"}


def digest_of_model(model: Any) -> str:
    """A hash of what the vectors of a ``SentenceEncoder`` depend on, wherever it was loaded from.

    Args:
        model: The encoder. Weights, settings of the modules, and the tokenizer by its vocabulary and what it makes of
            a few texts are hashed. Of the caller's own modules, so are attributes that are numbers, strings, arrays,
            tensors, or lists and dicts of these, unless their names begin with an underscore, as those of caches do.
    """
    digest = hashlib.sha256()
    if model.routes:
        digest.update(" ".join([*model.routes, *map(digest_of_model, model.encoders)]).encode())
        return digest.hexdigest()
    for name, module in model.named_modules():
        digest.update(f"{name} {type(module).__name__} {_settings(module)}".encode())
    # Not the property ``tokenizer`` of a Transformer, which loads transformers.
    tokenizer: Any = getattr(model[0], "_tokenizer", None) or getattr(model[0], "tokenizer", None)
    vocabulary = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "get_vocab", None)
    if callable(vocabulary):
        digest.update(repr(sorted(vocabulary().items())).encode("utf-8", "surrogatepass"))
    digest.update(model.tokens(verification.REFERENCE_TEXTS).ids.tobytes())
    for name, tensor in sorted(model.state_dict().items()):
        if ".pooler." in name:  # Of no use here, and random where a folder has none.
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _settings(module: nn.Module) -> str:
    """Simple values among the attributes of a module and of its configuration, and how it describes itself."""
    known = type(module).__module__.partition(".")[0] in _KNOWN
    settings: dict[str, str] = {}
    for owner in ({} if known else module._buffers, module, getattr(module, "config", None)):
        values = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
        for name, value in sorted(values.items()):
            if name.startswith("_") or name in _ABSENT or (known and isinstance(value, (dict, Tensor, np.ndarray))):
                continue
            with suppress(TypeError, ValueError, AttributeError, RuntimeError):  # Of another kind.
                settings[name] = json.dumps(value, default=lambda array: [str(array.dtype), array.tolist()])
    return f"{settings} {module.extra_repr()}"
