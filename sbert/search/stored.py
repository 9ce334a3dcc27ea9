"""The folder in which an index is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sbert.engine.sinks import NpyFile
from sbert.files import UnreadableError, required, write_json
from sbert.quantization import PRECISIONS
from sbert.search.approximate import BACKENDS, Graph
from sbert.search.corpus import opened
from sbert.search.kept import END, Kept

# What an index is made with, as its arguments are called.
SETTINGS = ("dim", "backend", "similarity", "precision", "ranges")

_FORMAT = "sbert.search.Index"
_INDEX, _VECTORS, _IDS = "index.json", "vectors.npy", "ids.json"
_GRAPH = "graph."
# All that an index may name: what another name stands for, inside the folder or out of it, is somebody's own.
_FILES = {_VECTORS, _IDS, *(_GRAPH + backend for backend in BACKENDS)}
_REMEDY = "save the index again"
# Numbers that are written at once.
_NUMBERS = 1 << 22


def write(folder: Path, settings: dict[str, Any], kept: Kept, graph: Graph | None) -> None:
    """Write the files of an index to an empty folder."""
    if kept.blocks:
        with NpyFile(folder / _VECTORS, kept.blocks[0].shape[1], kept.blocks[0].dtype) as file:
            step = max(1, _NUMBERS // file.dim)
            for block in kept.blocks:
                for low in range(0, len(block), step):
                    file.append(block[low : low + step])
    # Escaped, for strings that no encoding holds, as names of files may be.
    (folder / _IDS).write_text(json.dumps(kept.ids), encoding="utf-8")
    if graph is not None:
        graph.save(folder / (_GRAPH + graph.backend))
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    ranges = None if settings["ranges"] is None else settings["ranges"].tolist()
    described = {"format": _FORMAT, "version": 1, **settings, "ranges": ranges, "following": kept.following}
    write_json(folder / _INDEX, {**described, "files": sizes})


def identity(folder: Path) -> tuple[int, int] | None:
    """What tells a folder from another one of its name; None where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def read(folder: Path) -> tuple[dict[str, Any], Kept, Path | None]:
    """The settings, the vectors with their ids, and the file of the graph."""
    described, path = _described(folder), folder / _INDEX
    files = required(described, path, "files", dict)
    for name, size in files.items():
        if name not in _FILES:
            raise UnreadableError(path, f"names the file {name!r}, which is no part of an index", _REMEDY)
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            raise UnreadableError(folder / name, f"has {found} bytes of {size}: it is truncated, or another's", _REMEDY)
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
    return {name: described.get(name) for name in SETTINGS}, Kept(vectors, ids, following), graph


def _vectors(folder: Path, described: dict[str, Any], rows: int) -> np.ndarray:
    precision = required(described, folder / _INDEX, "precision", str)
    width = required(described, folder / _INDEX, "dim", int)
    width = -(-width // 8) if "binary" in precision else width
    vectors: np.ndarray = opened(folder / _VECTORS)
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
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ValueError(f"{target} is a file; name a folder to save to")
    names = sorted(path.name for path in target.iterdir())
    if names:
        try:
            _described(target)
            known = {*_FILES, _INDEX}
        except ValueError:
            known = set()
        foreign = [name for name in names if name not in known]
        if foreign:
            raise ValueError(f"{target} holds {foreign[0]!r}, which is no part of an index; save to another folder")


def _described(folder: Path) -> dict[str, Any]:
    path = folder / _INDEX
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; name one that an index was saved to")
    if not path.is_file():
        raise UnreadableError(folder, f"holds no {_INDEX}, so it is no index", "name the folder of one")
    described = _json(path)
    if not isinstance(described, dict) or described.get("format") != _FORMAT or described.get("version") != 1:
        raise UnreadableError(path, f"describes no index of {_FORMAT}, version 1", "name the folder of one")
    return described


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(path, f"cannot be read as JSON ({type(error).__name__})", _REMEDY) from error
