"""A hash of a model: of its weights, its configuration and its tokenizer."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from sbert.saving import verification

# The packages whose modules change no attribute while they run.
_KNOWN = ("sbert", "torch", "transformers")
_SIMPLE = (bool, int, float, str, type(None))
# What says nothing about the vectors.
_ABSENT = ("training", "name_or_path", "transformers_version", "default_prompt_name", "automatic_dtype", "truncate_dim")


def digest_of_model(model: Any) -> str:
    """A hash of what the vectors of a ``SentenceEncoder`` depend on, wherever it was loaded from.

    Args:
        model: The encoder. Weights, settings of the modules, and the tokenizer by its vocabulary and what it makes of
            a few texts are hashed.
    """
    digest = hashlib.sha256()
    for name, module in model.named_modules():
        digest.update(f"{name} {type(module).__name__} {_settings(module)}".encode())
    # Not the property ``tokenizer`` of a Transformer, which loads transformers.
    tokenizer: Any = getattr(model[0], "_tokenizer", None) or getattr(model[0], "tokenizer", None)
    vocabulary = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "get_vocab", None)
    if callable(vocabulary):
        digest.update(repr(sorted(vocabulary().items())).encode("utf-8", "surrogatepass"))
    digest.update(model.tokens(verification.TEXTS).ids.tobytes())
    for name, tensor in sorted(model.state_dict().items()):
        if ".pooler." in name:  # Of no use here, and random where a folder has none.
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _settings(module: nn.Module) -> str:
    """Simple values among the attributes of a module and of its configuration, and how it describes itself."""
    found: dict[str, Any] = {}
    if type(module).__module__.partition(".")[0] not in _KNOWN:
        return module.extra_repr()
    for owner in (module, getattr(module, "config", None)):
        for name, value in sorted(vars(owner).items()) if hasattr(owner, "__dict__") else ():
            flat = value if isinstance(value, (tuple, list)) else [value]
            if not name.startswith("_") and name not in _ABSENT and all(isinstance(each, _SIMPLE) for each in flat):
                found[name] = value
    return f"{found} {module.extra_repr()}"
