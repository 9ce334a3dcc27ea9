"""The folder of a saved index: its files, their checksums, and how they are read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sbert.pipeline.outputs import npy_file
from sbert.pipeline.quantization import PRECISIONS
from sbert.search.ann import BACKENDS, Graph
from sbert.search.corpus import opened
from sbert.search.store import INT64_END, VectorStore
from sbert.storage.files import JsonObject, UnreadableError, checksum, write_json
from sbert.storage.folders import check_own, foreign

# The arguments of an index that are saved.
SETTINGS = ("dim", "backend", "similarity", "precision", "ranges")

_FORMAT, _VERSION, _CHECKSUM = "sbert.search.Index", 2, "crc32"
_INDEX, _VECTORS, _IDS = "index.json", "vectors.npy", "ids.json"
_GRAPH = "graph."
# The only files that index.json may name: others, inside the folder or outside, do not belong to the index.
_FILES = {_VECTORS, _IDS, *(_GRAPH + backend for backend in BACKENDS)}
# Values that are written in one step.
_VALUES = 1 << 22


def write(folder: Path, settings: dict[str, Any], store: VectorStore, graph: Graph | None) -> None:
    """Write the files of an index to an empty folder."""
    if store.blocks:
        with npy_file(folder / _VECTORS, store.blocks[0].shape[1], store.blocks[0].dtype) as file:
            step = max(1, _VALUES // file.dim)
            for block in store.blocks:
                for low in range(0, len(block), step):
                    file.append(block[low : low + step])
    # JSON with escapes can hold strings that UTF-8 cannot encode, such as some file names.
    (folder / _IDS).write_text(json.dumps(list(store.ids)), encoding="utf-8")
    if graph is not None:
        graph.save(folder / (_GRAPH + graph.backend))
    files = {path.name: [path.stat().st_size, checksum(path)] for path in sorted(folder.iterdir())}
    ranges = None if settings["ranges"] is None else settings["ranges"].tolist()
    described = {"format": _FORMAT, "version": _VERSION, **settings, "ranges": ranges, "following": store.next_id}
    described["files"] = files
    write_json(folder / _INDEX, {**described, _CHECKSUM: _checksum(described)})


def _checksum(described: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(described, sort_keys=True).encode())


def read(folder: Path, verify: bool) -> tuple[dict[str, Any], VectorStore, Path | None]:
    """The settings, the vectors with their ids, and the file of the graph, if there is one.

    Args:
        folder: The folder of the index.
        verify: Whether to verify the checksum of the vectors; those of the other files are always verified.

    Raises:
        UnreadableError: If a file is missing, damaged or of another format.
    """
    described = JsonObject(_described(folder), folder / _INDEX)
    files = described.required("files", dict)
    for name, saved in files.items():
        _check_file(folder, name, saved, verify)
    ids = _json(folder / _IDS)
    types = {type(each) for each in ids} if isinstance(ids, list) else {None}
    if types not in (set(), {int}, {str}) or len(set(ids)) < len(ids):
        raise unreadable(folder, "is not a list of unique ids", _IDS)
    vectors = _vectors(folder, described, len(ids)) if ids or _VECTORS in files else None
    graph = next((folder / name for name in files if name.startswith(_GRAPH)), None)
    next_id = described.required("following", int)
    if types == {int} and not -INT64_END <= min(ids) <= max(ids) < next_id <= INT64_END:
        reason = f"gives {next_id} as the next id, but the ids are {min(ids)} to {max(ids)}, and ids have 64 bits"
        raise unreadable(folder, reason)
    return {name: described.get(name) for name in SETTINGS}, VectorStore(vectors, ids, next_id), graph


def _check_file(folder: Path, name: str, saved: Any, verify: bool) -> None:
    """Compare a file with its entry in index.json, [size in bytes, checksum]."""
    if name not in _FILES:
        raise unreadable(folder, f"names the file {name!r}, which is no part of an index")
    if not isinstance(saved, list) or len(saved) != 2:
        raise unreadable(folder, f"gives {name!r} no size and checksum")
    size, expected = saved
    actual = (folder / name).stat().st_size if (folder / name).is_file() else None
    if actual != size:
        raise unreadable(folder, f"has {actual} bytes of {size}: it is truncated, or belongs to another index", name)
    if (verify or name != _VECTORS) and checksum(folder / name) != expected:
        raise unreadable(folder, "is not what was saved: its checksum differs", name)


def _vectors(folder: Path, described: JsonObject, rows: int) -> np.ndarray:
    precision = described.required("precision", str)
    dim = described.required("dim", int)
    columns = -(-dim // 8) if "binary" in precision else dim
    vectors: np.ndarray = opened("vectors", folder / _VECTORS)
    dtype = np.dtype(PRECISIONS.get(precision, np.float32))
    if vectors.shape != (rows, columns) or vectors.dtype != dtype:
        reason = f"has shape {vectors.shape} and dtype {vectors.dtype}, expected {(rows, columns)} and {dtype}"
        raise unreadable(folder, reason, _VECTORS)
    return vectors


def unreadable(folder: Path, reason: str, name: str = _INDEX) -> UnreadableError:
    """An error that names a file of an index."""
    return UnreadableError(folder / name, reason, "save the index again")


def read_graph(file: Path, backend: str, similarity: str, dim: int, rows: int) -> Graph:
    """The graph in a file; an error if its number of rows differs."""
    graph = Graph(backend, similarity, dim, file)
    if len(graph) != rows:
        raise unreadable(file.parent, f"has {len(graph)} rows, expected {rows}", file.name)
    return graph


def check_replaceable(target: Path) -> None:
    """Raise a ValueError if saving to ``target`` would delete files that are not part of an index."""
    check_own(target, "an index", _foreign)


def _foreign(folder: Path) -> str | None:
    try:
        described = _json(folder / _INDEX)
    except (OSError, ValueError):
        described = None
    is_index = isinstance(described, dict) and described.get("format") == _FORMAT
    return foreign(folder, lambda name: is_index and name in {*_FILES, _INDEX})


def _described(folder: Path) -> dict[str, Any]:
    """The content of index.json, verified, without its checksum."""
    path = folder / _INDEX
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; pass the folder of a saved index")
    if not path.is_file():
        raise UnreadableError(folder, f"has no {_INDEX}, so it is not an index", "pass the folder of an index")
    described = _json(path)
    if not isinstance(described, dict) or (described.get("format"), described.get("version")) != (_FORMAT, _VERSION):
        raise UnreadableError(path, f"is not of format {_FORMAT}, version {_VERSION}", "pass the folder of an index")
    if described.pop(_CHECKSUM, None) != _checksum(described):
        raise unreadable(folder, "is not what was saved: its checksum differs")
    return described


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise unreadable(path.parent, f"cannot be read as JSON ({type(error).__name__})", path.name) from error
