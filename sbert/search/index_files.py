"""The folder of a saved index: its files, their checksums, and how they are read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbert.pipeline.quantization import PRECISIONS
from sbert.search.ann import BACKENDS, Graph
from sbert.search.corpus import opened
from sbert.search.store import INT64_END, Id, Ids, VectorStore
from sbert.storage.files import JsonObject, UnreadableError, checksum, write_json
from sbert.storage.folders import check_own, foreign
from sbert.vector_files.formats import npy_file

# The arguments of an index that are saved.
SETTINGS = ("dim", "backend", "similarity", "precision", "ranges")

_CHECKSUM = "crc32"
_INDEX, _VECTORS, _IDS = "index.json", "vectors.npy", "ids.json"
_GRAPH = "graph."
# Values that are written in one step.
_VALUES = 1 << 22


class Kind(NamedTuple):
    """A kind of index: what its folder contains.

    Args:
        format: Name of the format.
        version: Version of the format.
        files: The only files that index.json may name, beside that of the ids: others, inside the folder or outside,
            do not belong to the index.
    """

    format: str
    version: int
    files: tuple[str, ...]

    def owns(self, name: str) -> bool:
        """Whether a file belongs to an index of this kind."""
        return name in {*self.files, _IDS}

    def check_replaceable(self, target: Path) -> None:
        """Raise a ValueError if saving to ``target`` would delete files that are not part of such an index."""
        check_own(target, "an index", self._foreign)

    def _foreign(self, folder: Path) -> str | None:
        try:
            described = _json(folder / _INDEX)
        except (OSError, ValueError):
            described = None
        is_index = isinstance(described, dict) and described.get("format") == self.format
        return foreign(folder, lambda name: is_index and (self.owns(name) or name == _INDEX))


INDEX = Kind("sbert.search.Index", 2, (_VECTORS, *(_GRAPH + backend for backend in BACKENDS)))


def write(folder: Path, settings: dict[str, Any], store: VectorStore, graph: Graph | None) -> None:
    """Write the files of an index to an empty folder."""
    if store.blocks:
        dim = store.blocks[0].shape[1]
        with npy_file(folder / _VECTORS, dim, store.blocks[0].dtype) as append:
            step = max(1, _VALUES // dim)
            for block in store.blocks:
                for low in range(0, len(block), step):
                    append(block[low : low + step])
    if graph is not None:
        graph.save(folder / (_GRAPH + graph.backend))
    ranges = None if settings["ranges"] is None else settings["ranges"].tolist()
    describe(folder, INDEX, {**settings, "ranges": ranges}, store)


def describe(folder: Path, kind: Kind, settings: dict[str, Any], store: Ids) -> None:
    """Write the ids, and index.json with the settings and the checksums of all files of the folder."""
    write_strings(folder / _IDS, store.ids)
    files = {path.name: [path.stat().st_size, checksum(path)] for path in sorted(folder.iterdir())}
    described = {"format": kind.format, "version": kind.version, **settings, "following": store.next_id, "files": files}
    write_json(folder / _INDEX, {**described, _CHECKSUM: _checksum(described)})


def write_strings(path: Path, strings: Iterable[Id]) -> None:
    """Write strings or ids as JSON. Its escapes can hold strings that UTF-8 cannot encode, such as some file names."""
    path.write_text(json.dumps(list(strings)), encoding="utf-8")


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
    described, ids, next_id = read_described(folder, INDEX, () if verify else (_VECTORS,))
    files = described["files"]
    vectors = _vectors(folder, described, len(ids)) if ids or _VECTORS in files else None
    graph = next((folder / name for name in files if name.startswith(_GRAPH)), None)
    return {name: described.get(name) for name in SETTINGS}, VectorStore(vectors, ids, next_id), graph


def read_described(folder: Path, kind: Kind, unverified: Sequence[str] = ()) -> tuple[JsonObject, list[Id], int]:
    """The content of index.json, the ids and the next id.

    Args:
        folder: The folder of the index.
        kind: Its kind.
        unverified: Files of which only the size is verified; of the others, the checksum.

    Raises:
        UnreadableError: If a file is missing, damaged or of another format.
    """
    described = JsonObject(_described(folder, kind), folder / _INDEX)
    for name, saved in described.required("files", dict).items():
        _check_file(folder, kind, name, saved, name not in unverified)
    ids = read_unique(folder, _IDS, "ids", int, str)
    next_id = described.required("following", int)
    if ids and isinstance(ids[0], int) and not -INT64_END <= min(ids) <= max(ids) < next_id <= INT64_END:
        reason = f"gives {next_id} as the next id, but the ids are {min(ids)} to {max(ids)}, and ids have 64 bits"
        raise unreadable(folder, reason)
    return described, ids, next_id


def read_unique(folder: Path, name: str, what: str, *types: type) -> list[Any]:
    """The list in a JSON file; an error unless its values are unique and of one of these types."""
    values = _json(folder / name)
    found = {type(each) for each in values} if isinstance(values, list) else {None}
    if found not in (set(), *({each} for each in types)) or len(set(values)) < len(values):
        raise unreadable(folder, f"is not a list of unique {what}", name)
    return list(values)


def _check_file(folder: Path, kind: Kind, name: str, saved: Any, verify: bool) -> None:
    """Compare a file with its entry in index.json, [size in bytes, checksum]."""
    if not kind.owns(name):
        raise unreadable(folder, f"names the file {name!r}, which is no part of an index")
    if not isinstance(saved, list) or len(saved) != 2:
        raise unreadable(folder, f"gives {name!r} no size and checksum")
    size, expected = saved
    actual = (folder / name).stat().st_size if (folder / name).is_file() else None
    if actual != size:
        raise unreadable(folder, f"has {actual} bytes of {size}: it is truncated, or belongs to another index", name)
    if verify and checksum(folder / name) != expected:
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


def _described(folder: Path, kind: Kind) -> dict[str, Any]:
    """The content of index.json, verified, without its checksum."""
    path = folder / _INDEX
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; pass the folder of a saved index")
    if not path.is_file():
        raise UnreadableError(folder, f"has no {_INDEX}, so it is not an index", "pass the folder of an index")
    described = _json(path)
    if not isinstance(described, dict) or (described.get("format"), described.get("version")) != kind[:2]:
        raise UnreadableError(
            path, f"is not of format {kind.format}, version {kind.version}", "pass the folder of an index"
        )
    if described.pop(_CHECKSUM, None) != _checksum(described):
        raise unreadable(folder, "is not what was saved: its checksum differs")
    return described


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise unreadable(path.parent, f"cannot be read as JSON ({type(error).__name__})", path.name) from error
