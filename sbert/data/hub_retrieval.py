"""Reader of retrieval data as repositories of the hub hold it: NanoBEIR, and what is made like it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sbert.data.files import Name
from sbert.data.retrieval import is_retrieval, judgments, read_retrieval, texts_by_id
from sbert.data.tables import cells, check_folder

_ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".tsv", ".csv")
_PARTS = ("corpus", "queries")
# Folders of judgments, and of the documents that another search found for each query.
_JUDGED, _FOUND = ("qrels", "relevance"), ("bm25", "relevance")
_DOCUMENT = ("corpus-id", "positive-corpus-ids", "corpus_id", "doc_id")
_QUERY, _CANDIDATES = ("query-id", "query_id"), ("corpus-ids", "bm25-ranked-ids")


class HubRetrieval(NamedTuple):
    """A data set of retrieval, and the candidates for a reranker.

    Args:
        queries: Query texts by id; only queries with at least one relevant document.
        corpus: Document texts by id.
        relevant: For each query id, the grades (above 0) of its relevant documents by their ids.
        candidates: For each query id, the ids of the documents that BM25 found, best first; empty if there are none.
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: dict[str, dict[str, float]]
    candidates: dict[str, list[str]]


def read_hub_retrieval(folder: Name, sets: Iterable[str] | None = None) -> dict[str, HubRetrieval]:
    r"""Read the data sets of a folder in the layout of the hub's repositories, by name.

    The folder is one of these, with files in Parquet, JSONL, TSV or CSV, in one or several parts:

    - one repository of several data sets: ``corpus/NanoNQ-00000-of-00001.parquet``, ``queries/NanoNQ-...``,
      ``qrels/NanoNQ-...`` and optionally ``bm25/NanoNQ-...``, as sentence-transformers/NanoBEIR-en;
    - a folder of repositories of one data set each: ``NanoNQ/corpus/train-00000-of-00001.parquet`` and so on, as
      zeta-alpha-ai/NanoNQ; also with ``relevance`` instead of ``qrels``, as sentence-transformers/NanoNQ-bm25;
    - a folder of folders in BEIR's layout, as for ``read_retrieval``.

    Columns: ``_id`` and ``text`` (and ``title``) of texts; ``query-id``, ``corpus-id`` (or a list of them) and
    optionally ``score`` of judgments; ``query-id`` and ``corpus-ids`` of candidates. Judgments without a score have
    the grade 1.

    Args:
        folder: The folder.
        sets: The names of data sets; by default all that are in the folder, in alphabetical order.

    Raises:
        FileNotFoundError: If the folder has no data set, or lacks one that ``sets`` names.
        ValueError: If a file is invalid; the message names the row.

    References:
        https://huggingface.co/collections/zeta-alpha-ai/nanobeir
        Thakur et al., 2021 (BEIR). https://arxiv.org/abs/2104.08663

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part in ("corpus", "queries", "qrels"):
        ...         (Path(folder) / "NanoPets" / part).mkdir(parents=True)
        ...     root = Path(folder) / "NanoPets"
        ...     _ = (root / "corpus/train.jsonl").write_text('{"_id": "d1", "text": "Cats sleep."}\n')
        ...     _ = (root / "queries/train.jsonl").write_text('{"_id": "q1", "text": "Who sleeps?"}\n')
        ...     _ = (root / "qrels/train.jsonl").write_text('{"query-id": "q1", "corpus-id": "d1"}\n')
        ...     read_hub_retrieval(folder)["NanoPets"].relevant
        {'q1': {'d1': 1}}
    """
    check_folder(folder)
    found = _sets(Path(folder))
    wanted = list(found) if sets is None else list(dict.fromkeys(sets))
    if not found:
        raise FileNotFoundError(
            f"{folder} has no data sets; download a repository such as sentence-transformers/NanoBEIR-en there, with"
            " folders corpus, queries and qrels; or several such repositories"
        )
    if absent := [name for name in wanted if name not in found]:
        raise FileNotFoundError(f"{folder} has no {', '.join(absent)}; it has {', '.join(found)}")
    return {name: _read(*found[name]) for name in wanted}


def _sets(root: Path) -> dict[str, tuple[Path, str]]:
    """The data sets by name: each a folder, and how the names of its files begin."""
    if all((root / part).is_dir() for part in _PARTS):
        return {name: (root, name) for name in _splits(root / "queries")}
    found = {}
    for path in sorted(path for path in root.iterdir() if path.is_dir()):
        if is_retrieval(path):
            found[path.name] = path, ""
        elif all((path / part).is_dir() for part in _PARTS):
            splits = _splits(path / "queries")
            # A repository of one data set calls its split train or test.
            found |= {(path.name if len(splits) == 1 else f"{path.name}_{split}"): (path, split) for split in splits}
    return found


def _splits(folder: Path) -> list[str]:
    """The names of splits: the beginnings of file names, without the number of the part."""
    return sorted({_split(path) for path in folder.iterdir() if path.name.endswith(_ENDINGS)})


def _split(path: Path) -> str:
    stem = path.name.split(".")[0]
    name, *numbers = stem.rsplit("-", 3)
    return name if len(numbers) == 3 and numbers[1] == "of" else stem


def _files(folder: Path, names: Iterable[str], split: str) -> list[Path]:
    """The parts of a split in the first of the named folders that has it."""
    for name in names:
        if (folder / name).is_dir():
            parts = sorted(path for path in (folder / name).iterdir() if path.name.endswith(_ENDINGS))
            if found := [path for path in parts if _split(path) == split]:
                return found
    return []


def _read(folder: Path, split: str) -> HubRetrieval:
    if not split:
        return HubRetrieval(*read_retrieval(folder), {})
    files = {part: _files(folder, [part], split) for part in _PARTS} | {"qrels": _files(folder, _JUDGED, split)}
    if absent := [part for part, paths in files.items() if not paths]:
        raise FileNotFoundError(f"{folder} has no {absent[0]} of {split!r}; download the repository again")
    corpus = texts_by_id(files["corpus"], ("_id", "id"), titled=True)
    queries = texts_by_id(files["queries"], ("_id", "id"), titled=False)
    rows = (row for path in files["qrels"] for row in cells(path, (_QUERY, _DOCUMENT), optional=("score",)))
    relevant = judgments(_each(rows), queries, corpus)
    if not relevant:
        raise ValueError(f"{files['qrels'][0]} has no relevant document; download the file again")
    candidates = {}
    for path in _files(folder, _FOUND, split):
        for where, (query, found) in cells(path, (_QUERY, _CANDIDATES)):
            if not isinstance(found, list) or any(name not in corpus for name in found):
                raise ValueError(f"{where}: the candidates are no list of ids of the corpus; download the file again")
            candidates[query] = found
    return HubRetrieval({name: queries[name] for name in relevant}, corpus, relevant, candidates)


def _each(rows: Iterable[tuple[str, list[Any]]]) -> Iterator[tuple[str, list[Any]]]:
    """One row per judgment: the ids of documents may be lists, and there may be no score."""
    for where, (query, documents, score) in rows:
        for document in documents if isinstance(documents, list) else [documents]:
            yield where, [query, document, 1 if score == "" else score]
