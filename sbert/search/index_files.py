"""The folder in which an index is kept."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sbert.pipeline.outputs import npy_file
from sbert.pipeline.quantization import PRECISIONS
from sbert.search.ann import BACKENDS, Graph
from sbert.search.corpus import opened
from sbert.search.store import END, VectorStore
from sbert.storage.files import UnreadableError, checksum, required, write_json
from sbert.storage.folders import check_own, foreign

# What an index is made with, as its arguments are called.
SETTINGS = ("dim", "backend", "similarity", "precision", "ranges")

_FORMAT, _VERSION, _CHECKSUM = "sbert.search.Index", 2, "crc32"
_INDEX, _VECTORS, _IDS = "index.json", "vectors.npy", "ids.json"
_GRAPH = "graph."
# All that an index may name: what another name stands for, inside the folder or out of it, is somebody's own.
_FILES = {_VECTORS, _IDS, *(_GRAPH + backend for backend in BACKENDS)}
_REMEDY = "save the index again"
# Numbers that are written at once.
_NUMBERS = 1 << 22


def write(folder: Path, settings: dict[str, Any], kept: VectorStore, graph: Graph | None) -> None:
    """Write the files of an index to an empty folder."""
    if kept.blocks:
        with npy_file(folder / _VECTORS, kept.blocks[0].shape[1], kept.blocks[0].dtype) as file:
            step = max(1, _NUMBERS // file.dim)
            for block in kept.blocks:
                for low in range(0, len(block), step):
                    file.append(block[low : low + step])
    # Escaped, for strings that no encoding holds, as names of files may be.
    (folder / _IDS).write_text(json.dumps(kept.ids), encoding="utf-8")
    if graph is not None:
        graph.save(folder / (_GRAPH + graph.backend))
    files = {path.name: [path.stat().st_size, checksum(path)] for path in sorted(folder.iterdir())}
    ranges = None if settings["ranges"] is None else settings["ranges"].tolist()
    described = {"format": _FORMAT, "version": _VERSION, **settings, "ranges": ranges, "following": kept.following}
    described["files"] = files
    write_json(folder / _INDEX, {**described, _CHECKSUM: _checksum(described)})


def _checksum(described: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(described, sort_keys=True).encode())


def read(folder: Path, verify: bool) -> tuple[dict[str, Any], VectorStore, Path | None]:
    """The settings, the vectors with their ids, and the file of the graph.

    Args:
        folder: Of the index.
        verify: Whether the vectors are read for their checksum; other files are in any case.
    """
    described, path = _described(folder), folder / _INDEX
    files = required(described, path, "files", dict)
    for name, saved in files.items():
        if name not in _FILES:
            raise UnreadableError(path, f"names the file {name!r}, which is no part of an index", _REMEDY)
        if not isinstance(saved, list) or len(saved) != 2:
            raise UnreadableError(path, f"gives {name!r} no size and checksum", _REMEDY)
        size, expected = saved
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            raise UnreadableError(folder / name, f"has {found} bytes of {size}: it is truncated, or another's", _REMEDY)
        if (verify or name != _VECTORS) and checksum(folder / name) != expected:
            raise UnreadableError(folder / name, "is not what was saved: its checksum differs", _REMEDY)
    ids = _json(folder / _IDS)
    kinds = {type(each) for each in ids} if isinstance(ids, list) else {None}
    if kinds not in (set(), {int}, {str}) or len(set(ids)) < len(ids):
        raise UnreadableError(folder / _IDS, "holds no list of different ids", _REMEDY)
    vectors = _vectors(folder, described, len(ids)) if ids or _VECTORS in files else None
    graph = next((folder / name for name in files if name.startswith(_GRAPH)), None)
    following = required(described, path, "following", int)
    if kinds == {int} and not -END <= min(ids) <= max(ids) < following <= END:
        reason = f"goes on from {following}, and the ids from {min(ids)} to {max(ids)}; whole numbers have 64 bits"
        raise UnreadableError(path, reason, _REMEDY)
    return {name: described.get(name) for name in SETTINGS}, VectorStore(vectors, ids, following), graph


def _vectors(folder: Path, described: dict[str, Any], rows: int) -> np.ndarray:
    precision = required(described, folder / _INDEX, "precision", str)
    width = required(described, folder / _INDEX, "dim", int)
    width = -(-width // 8) if "binary" in precision else width
    vectors: np.ndarray = opened("vectors", folder / _VECTORS)
    kind = np.dtype(PRECISIONS.get(precision, np.float32))
    if vectors.shape != (rows, width) or vectors.dtype != kind:
        reason = f"holds {vectors.shape} of {vectors.dtype} where {(rows, width)} of {kind} is expected"
        raise UnreadableError(folder / _VECTORS, reason, _REMEDY)
    return vectors


@contextmanager
def describing(folder: Path) -> Iterator[None]:
    """Give errors of settings that were read the name of their file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UnreadableError(folder / _INDEX, f"does not fit: {error}", _REMEDY) from error


def read_graph(file: Path, backend: str, similarity: str, dim: int, rows: int) -> Graph:
    """The graph in a file, with as many rows."""
    graph = Graph(backend, similarity, dim, file)
    if len(graph) != rows:
        raise UnreadableError(file, f"holds {len(graph)} rows where {rows} are expected", _REMEDY)
    return graph


def check_replaceable(target: Path) -> None:
    """Raise a ValueError where saving to ``target`` would take away something that is no index."""
    check_own(target, "an index", _foreign)


def _foreign(folder: Path) -> str | None:
    try:
        described = _json(folder / _INDEX)
    except (OSError, ValueError):
        described = None
    is_index = isinstance(described, dict) and described.get("format") == _FORMAT
    return foreign(folder, {*_FILES, _INDEX}.__contains__ if is_index else lambda _: False)


def _described(folder: Path) -> dict[str, Any]:
    """What index.json says, without its checksum."""
    path = folder / _INDEX
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; name one that an index was saved to")
    if not path.is_file():
        raise UnreadableError(folder, f"holds no {_INDEX}, so it is no index", "name the folder of one")
    described = _json(path)
    if isinstance(described, dict) and (described.get("format"), described.get("version")) == (_FORMAT, 1):
        raise UnreadableError(path, "is of an index without checksums", "add its vectors to a new Index, and save that")
    if not isinstance(described, dict) or (described.get("format"), described.get("version")) != (_FORMAT, _VERSION):
        raise UnreadableError(path, f"describes no index of {_FORMAT}, version {_VERSION}", "name the folder of one")
    if described.pop(_CHECKSUM, None) != _checksum(described):
        raise UnreadableError(path, "is not what was saved: its checksum differs", _REMEDY)
    return described


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(path, f"cannot be read as JSON ({type(error).__name__})", _REMEDY) from error
