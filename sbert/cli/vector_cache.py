"""A cache of the vectors of a file's texts, in a folder beside the file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert.storage import files
from sbert.storage.atomic import replacing
from sbert.storage.folders import foreign

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from sbert.encoder import SentenceEncoder

# By name on the command line, the name in the library.
PRECISIONS = {"float32": "float32", "int8": "int8", "binary": "ubinary"}

_VECTORS, _DESCRIPTION = "vectors.npy", "vectors.json"
# Number of texts from which the ranges of int8 are computed.
_SAMPLE = 2048


class CachedVectors(NamedTuple):
    """Vectors or codes of texts, and the ranges of int8 codes."""

    vectors: npt.NDArray[Any]
    ranges: npt.NDArray[np.float32] | None


def folder_of(path: str, *settings: str | None) -> Path | None:
    """The cache folder of a file for these settings; None if it is not a regular file, such as a pipe.

    Example:
        >>> folder_of("none.txt", "minilm", "float32") is None
        True
    """
    if not os.path.isfile(path):
        return None
    name = re.sub(r"[^\w.-]+", "-", Path(settings[0] or "").name)
    return Path(f"{path}.sbert-vectors", f"{name}-{_digest(map(repr, settings))[:12]}")


def document_vectors(
    model: SentenceEncoder,
    source: Path,
    texts: list[str],
    precision: str,
    place: Path | None,
    show_progress_bar: bool | None = None,
) -> CachedVectors:
    """The vectors of documents: from the cache if texts and model are unchanged, otherwise encoded and stored.

    Args:
        model: The encoder.
        source: The folder from which the model was loaded.
        texts: The documents.
        precision: One of ``PRECISIONS``.
        place: The cache folder, replaced atomically; None for no cache.
        show_progress_bar: As in ``encode``.
    """
    encode = partial(_encoded, model, texts, precision, show_progress_bar)
    if place is None:
        return encode()
    key = _key(model, source, texts, precision)
    cached = _read(place, key)
    if cached is not None:
        return cached
    failure = None
    try:
        with replacing(place, _check) as work:
            vectors, ranges = encode(work / _VECTORS)
            described = {**key, "ranges": None if ranges is None else ranges.tolist()}
            files.write_json(work / _DESCRIPTION, {**described, "crc32": _checksum(vectors, described)})
    except OSError as error:
        failure = files.one_line(error)
    finally:
        with suppress(OSError):  # It is usually not empty.
            place.parent.rmdir()
    cached = _read(place, key)  # After a failure, too: another process may have written it meanwhile.
    if cached is None and failure is not None:
        warnings.warn(f"{place} cannot be written ({failure}), so the vectors are not stored", stacklevel=2)
    return cached or encode()


def _encoded(
    model: SentenceEncoder, texts: list[str], precision: str, show_progress_bar: bool | None, out: Path | None = None
) -> CachedVectors:
    from sbert.pipeline.quantization import calibrate

    ranges = None
    if precision == "int8":
        sample = texts[:: -(-len(texts) // _SAMPLE)]
        sample = sample if len(sample) > 1 else sample * 2  # The ranges of a single vector would be empty.
        ranges = calibrate(model.encode_document(sample, show_progress_bar=False, on_truncate="ignore"))
    vectors = model.encode_document(
        texts, precision=PRECISIONS[precision], ranges=ranges, out=out, show_progress_bar=show_progress_bar
    )
    return CachedVectors(vectors, ranges)


def _read(place: Path, key: dict[str, Any]) -> CachedVectors | None:
    """The cached vectors; None if there are none, if they belong to another key, or if they are damaged."""
    import numpy as np

    from sbert.search.exact.semantic_search import opened

    try:
        described = files.read_object(place / _DESCRIPTION)
        vectors = opened("vectors", place / _VECTORS)
    except (OSError, ValueError):
        return None
    # Another process may have replaced the vectors in between: then the checksum is not that of the description.
    if described.pop("crc32", None) != _checksum(vectors, described):
        return None
    ranges = described.pop("ranges", None)
    return (
        CachedVectors(vectors, None if ranges is None else np.array(ranges, np.float32)) if described == key else None
    )


def _checksum(vectors: npt.NDArray[Any], described: dict[str, Any]) -> int:
    """The checksum of the vectors and their description."""
    about = json.dumps([described, vectors.shape, str(vectors.dtype)], sort_keys=True)
    return zlib.crc32(vectors.data, zlib.crc32(about.encode()))


def _check(place: Path) -> None:
    """Raise an error if the cache would replace files of another origin."""
    if os.path.lexists(place):
        found = foreign(place, {_VECTORS, _DESCRIPTION}.__contains__)
        if found is not None:
            raise FileExistsError(f"it holds {found!r}, which sbert did not write")


# -------------------------------------------------------------------------------------- the key of the cache


def _key(model: SentenceEncoder, source: Path, texts: list[str], precision: str) -> dict[str, Any]:
    from sbert.inputs.devices import inference_dtype
    from sbert.saving import verification
    from sbert.vector_files.fingerprint import digest_of_model

    return {
        "format": "vectors of sbert search, version 5",
        "texts": _digest(texts),
        "model": digest_of_model(model),
        # Name and revision do not suffice: a folder may contain a model that was trained again.
        "folder": _digest(_descriptions(source)),
        "dtype": str(inference_dtype(model.dtype, model.automatic_dtype, model.device)[0]),
        "device": _processor(model.device),
        "precision": precision,
        "versions": verification.versions(),
    }


def _processor(device: torch.device) -> str:
    """The processor: in low precision, vectors of different processors differ by far more than rounding."""
    import torch

    if device.type in ("cuda", "xpu"):
        return f"{device.type} {torch.get_device_module(device).get_device_name(device)}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        written = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d " % len(written))
        digest.update(written)
    return digest.hexdigest()


def _descriptions(source: Path) -> list[str]:
    """Names and contents of the files that describe a model and its tokenizer, without the weights."""
    paths = sorted(path for pattern in ("*", "*/*") for path in source.glob(pattern))
    small = [path for path in paths if path.suffix in (".json", ".txt", ".model", ".jinja") and path.is_file()]
    return [part for path in small for part in (str(path.relative_to(source)), path.read_bytes().decode("latin-1"))]
