"""The model of an adapter: one that is loaded, or the name of one."""

from __future__ import annotations

import os
from functools import lru_cache
from threading import Lock
from typing import Any

from sbert.encoder import SentenceEncoder

_LOCK = Lock()  # Threads of a worker load a model once.


def load_encoder(model: SentenceEncoder | str | os.PathLike[str] | None, **options: Any) -> SentenceEncoder:
    """The encoder itself, or that of a name or folder; None for the bundled model.

    Args:
        model: An encoder, a folder or a name on the hub.
        options: Of ``SentenceEncoder``, for one that is not loaded yet.

    Raises:
        TypeError: If there are options for an encoder that is loaded.
    """
    if isinstance(model, SentenceEncoder):
        if options:
            raise TypeError(f"{', '.join(options)} given with an encoder that is loaded; pass them to SentenceEncoder")
        return model
    return SentenceEncoder(**options) if model is None else SentenceEncoder(model, **options)


def load_encoder_once(model: str | None, **options: Any) -> SentenceEncoder:
    """The encoder of a name or folder, loaded once in each process.

    Args:
        model: A folder or a name on the hub. Default: the bundled model.
        options: Of ``SentenceEncoder``, such as ``device``.

    Example:
        >>> from sbert.integrations.loading import load_encoder_once
        >>> load_encoder_once(None, device="cpu") is load_encoder_once(None, device="cpu")
        True
    """
    with _LOCK:
        return _load_once(model, tuple(sorted(options.items())))


@lru_cache(maxsize=4)
def _load_once(model: str | None, options: tuple[tuple[str, Any], ...]) -> SentenceEncoder:
    return load_encoder(model, **dict(options))
