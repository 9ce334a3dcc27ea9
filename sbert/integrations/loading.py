"""The model of an adapter: one that is loaded, or the name of one."""

from __future__ import annotations

import os
from typing import Any

from sbert.encoder import SentenceEncoder


def loaded(model: SentenceEncoder | str | os.PathLike[str] | None, **options: Any) -> SentenceEncoder:
    """The encoder itself, or that of a name or folder; None for the model of the library.

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
