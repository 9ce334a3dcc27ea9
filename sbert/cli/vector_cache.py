"""Vectors of the texts of a file, in files of the user's cache that ``encode(out=)`` writes and checks."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert.storage import files, user_cache
from sbert.storage.atomic import replacing_file

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from sbert.encoder import SentenceEncoder

# By name on the command line, the name in the library.
PRECISIONS = {"float32": "float32", "int8": "int8", "binary": "ubinary"}
# Number of texts from which the ranges of int8 are computed.
_SAMPLE = 2048


class CachedVectors(NamedTuple):
    """Vectors or codes of texts, and the ranges of int8 codes."""

    vectors: npt.NDArray[Any]
    ranges: npt.NDArray[np.float32] | None


def cache_path(path: str, *settings: str | None) -> Path | None:
    """The file of the cache for a file and these settings; None if it is not a regular file, such as a pipe.

    Example:
        >>> cache_path("none.txt", "minilm", "float32") is None
        True
    """
    if not os.path.isfile(path):
        return None
    name = re.sub(r"[^\w.-]+", "-", Path(settings[0] or "").name)
    digest = hashlib.sha256(repr((os.path.realpath(path), settings)).encode("utf-8", "surrogatepass")).hexdigest()
    return user_cache.folder() / "vectors" / f"{Path(path).stem}-{name}-{digest[:12]}.npy"


def document_vectors(
    model: SentenceEncoder,
    texts: list[str],
    precision: str,
    path: Path | None,
    show_progress_bar: bool | None = None,
) -> CachedVectors:
    """The vectors of documents: from the cache if texts and model are unchanged, otherwise encoded and stored.

    Args:
        model: The encoder.
        texts: The documents.
        precision: One of ``PRECISIONS``.
        path: The file of the cache; None for no cache.
        show_progress_bar: As in ``encode``.
    """

    def encode(path: Path | None, resume: bool) -> CachedVectors:
        options: dict[str, Any] = {"show_progress_bar": show_progress_bar, "precision": PRECISIONS[precision]}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            options |= {"out": path, "shard": (0, 1), "resume": resume}  # A shard has a manifest that stays.
        ranges = _ranges(model, texts, path, resume) if precision == "int8" else None
        return CachedVectors(model.encode_document(texts, ranges=ranges, **options), ranges)

    for resume in (True, False) if path else ():
        try:
            return encode(path, resume)
        except ValueError:  # It is of other texts or of another model, or damaged.
            continue
        except (OSError, RuntimeError) as error:
            reason = files.one_line(error)
            warnings.warn(f"{path} cannot be written ({reason}), so the vectors are not stored", stacklevel=2)
            break
    return encode(None, False)


def _ranges(model: SentenceEncoder, texts: list[str], path: Path | None, resume: bool) -> npt.NDArray[np.float32]:
    """The ranges that are stored beside the vectors, whose manifest has their hash; or those of a sample."""
    import numpy as np

    from sbert.pipeline.quantization import calibrate

    path = path and path.with_suffix(".ranges")
    if path and resume:
        with suppress(OSError, ValueError):
            stored: npt.NDArray[np.float32] = np.frombuffer(path.read_bytes(), np.float32).reshape(2, -1).copy()
            return stored
    sample = texts[:: -(-len(texts) // _SAMPLE)]
    sample = sample if len(sample) > 1 else sample * 2  # The ranges of a single vector would be empty.
    ranges: npt.NDArray[np.float32] = calibrate(
        model.encode_document(sample, show_progress_bar=False, on_truncate="ignore")
    )
    if path:
        with replacing_file(path) as file:
            file.write(ranges.tobytes())
    return ranges
