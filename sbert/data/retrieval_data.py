"""Readers of retrieval data: queries, documents and relevance judgments, in BEIR's layout and in that of the hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sbert.data.file_formats import Name, find_format
from sbert.data.rows import make_converter
from sbert.data.tables import check_folder, locate, read_cells

# The files of a data set: corpus, queries, qrels and, of some on the hub, candidates.
Files = Mapping[str, list[Path]]

_BEIR = {"corpus": ("corpus.jsonl", "corpus.tsv"), "queries": ("queries.jsonl", "queries.tsv")}
# The folders of a repository; that of judgments may have candidates, too.
_HUB = {
    "corpus": ["corpus"],
    "queries": ["queries"],
    "qrels": ["qrels", "relevance"],
    "candidates": ["bm25", "relevance"],
}
# The names of columns.
_ID, _TEXT, _TITLE = ("_id", "doc_id", "query_id", "id"), ("text",), ("title",)
_QUERY = ("query-id", "query_id", "query")
_DOCUMENT = ("corpus-id", "positive-corpus-ids", "corpus_id", "doc_id", "doc")
_GRADE, _CANDIDATES = ("score", "grade"), ("corpus-ids", "bm25-ranked-ids")


class Retrieval(NamedTuple):
    """Queries, documents and relevance judgments: the first three arguments of ``RetrievalEvaluator``, in order.

    Args:
        queries: Query texts by id; only queries with at least one relevant document.
        corpus: Document texts by id.
        relevant: For each query id, the grades (above 0) of its relevant documents by their ids.
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: dict[str, dict[str, float]]


def read_retrieval(folder: Name, split: str = "test") -> Retrieval:
    r"""Read queries, documents and relevance judgments from a folder in the BEIR layout, or similar tables.

    The text of a document is its title, a space and its text. Judgments with a score of 0 or below mean "not relevant"
    and are left out, as are queries without a relevant document.

    Args:
        folder: With ``corpus.jsonl`` (_id, title, text), ``queries.jsonl`` (_id, text) and ``qrels/test.tsv``
            (query-id, corpus-id, score); or ``corpus.tsv`` (doc_id, title, text), ``queries.tsv`` (query_id, text) and
            ``qrels.tsv`` (query_id or query, doc_id or doc, grade or score); gzipped or not.
        split: The split of the judgments. A single ``qrels.tsv`` is the split ``"test"``.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a line is invalid, an id occurs twice, or a judgment names an unknown id; the message gives the
            line number.

    References:
        Thakur et al., 2021. https://arxiv.org/abs/2104.08663

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import read_retrieval
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "corpus.tsv").write_text("doc_id\ttitle\ttext\nd1\tCats\tThey sleep.\n")
        ...     _ = (Path(folder) / "queries.tsv").write_text("query_id\ttext\nq1\tWho sleeps?\n")
        ...     _ = (Path(folder) / "qrels.tsv").write_text("query_id\tdoc_id\tgrade\nq1\td1\t2\n")
        ...     read_retrieval(folder)
        Retrieval(queries={'q1': 'Who sleeps?'}, corpus={'d1': 'Cats They sleep.'}, relevant={'q1': {'d1': 2}})
    """
    check_folder(folder)
    files = _list_beir(Path(folder), split)
    # A corpus may have millions of documents, so missing files are reported before it is read.
    _check_whole(folder, split, files)
    return Retrieval(*_read(files, default_grade=None)[:3])


def is_retrieval(folder: Name) -> bool:
    """Whether ``read_retrieval`` can read this folder."""
    return all(_list_beir(Path(folder), "test").values())


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
        >>> from pathlib import Path
        >>> from sbert.data import read_hub_retrieval
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
    available = _list_sets(Path(folder))
    if not available:
        remedy = "download a repository such as sentence-transformers/NanoBEIR-en there, or several"
        raise FileNotFoundError(f"{folder} has no data sets; {remedy}")
    wanted = list(available) if sets is None else list(dict.fromkeys(sets))
    if absent := [name for name in wanted if name not in available]:
        raise FileNotFoundError(f"{folder} has no {', '.join(absent)}; it has {', '.join(available)}")
    for name in wanted:
        _check_whole(folder, name, available[name])
    return {name: _read(available[name], default_grade=1) for name in wanted}


# ---------------------------------------------------------------------------------------------------------- files


def _list_beir(folder: Path, split: str) -> Files:
    judgments = (f"qrels/{split}.tsv", *(["qrels.tsv"] if split == "test" else []))
    paths = {part: locate(folder, names) for part, names in {**_BEIR, "qrels": judgments}.items()}
    return {part: [] if path is None else [path] for part, path in paths.items()}


def _check_whole(folder: Name, name: str, files: Files) -> None:
    """Raise a FileNotFoundError if a part of a data set other than the candidates is missing."""
    for part, paths in files.items():
        if not paths and part != "candidates":
            raise FileNotFoundError(f"{folder} has no {part} of {name!r}; put the files there, or pass another folder")


def _list_sets(root: Path) -> dict[str, Files]:
    """The data sets of a folder by name."""
    sets: dict[str, Files] = {split: _list_hub(root, split) for split in _list_splits(root)}
    for path in [] if sets else sorted(path for path in root.iterdir() if path.is_dir()):
        splits = _list_splits(path)
        # A repository of one data set calls its split train or test.
        sets |= {(path.name if len(splits) == 1 else f"{path.name}_{name}"): _list_hub(path, name) for name in splits}
        if is_retrieval(path):
            sets[path.name] = _list_beir(path, "test")
    return sets


def _list_splits(repository: Path) -> list[str]:
    """The names of splits, with which the names of the files of queries begin; none if this is not a repository."""
    if not (repository / "corpus").is_dir() or not (repository / "queries").is_dir():
        return []
    return sorted({split for path in (repository / "queries").iterdir() if (split := _split_of(path))})


def _split_of(path: Path) -> str:
    """The beginning of a file's name, without the number of the part; empty if it has no rows."""
    stem = path.name.split(".")[0] if find_format(path) not in (None, "text") else ""
    name, *numbers = stem.rsplit("-", 3)
    return name if len(numbers) == 3 and numbers[1] == "of" else stem


def _list_hub(repository: Path, split: str) -> Files:
    """The files of a split: for each part, those in the first of its folders that has any."""
    files = {}
    for part, folders in _HUB.items():
        paths = [path for folder in folders for path in sorted((repository / folder).glob("*"))]
        paths = [path for path in paths if _split_of(path) == split]
        files[part] = [path for path in paths if path.parent == paths[0].parent]
    return files


# -------------------------------------------------------------------------------------------------------- content


def _read(files: Files, default_grade: float | None) -> HubRetrieval:
    """A data set; judgments without a grade have the default, or are an error."""
    corpus, queries = _read_texts(files["corpus"], _TITLE), _read_texts(files["queries"])
    convert, relevant = make_converter(None, None), dict[str, dict[str, float]]()
    for path in files["qrels"]:
        for where, (query, documents, cell) in read_cells(path, (_QUERY, _DOCUMENT), optional=_GRADE):
            grade = default_grade if cell == "" and default_grade else convert(where, cell)
            for document in documents if isinstance(documents, list) else [documents]:
                _check_known(where, query, queries, files["queries"])
                _check_known(where, document, corpus, files["corpus"])
                if grade > 0:
                    relevant.setdefault(query, {})[document] = grade
    if not relevant:
        raise ValueError(f"{files['qrels'][0]} has no relevant document; download the file again")
    candidates = {}
    for path in files.get("candidates", ()):
        for where, (query, listed) in read_cells(path, (_QUERY, _CANDIDATES)):
            for document in listed:
                _check_known(where, document, corpus, files["corpus"])
            candidates[query] = listed
    return HubRetrieval({name: queries[name] for name in relevant}, corpus, relevant, candidates)


def _check_known(where: str, name: Any, texts: Mapping[str, str], files: list[Path]) -> None:
    if name not in texts:
        raise ValueError(f"{where}: the id {name!r} is not in {Path(*files[0].parts[-2:])}; fix or remove the line")


def _read_texts(paths: Iterable[Path], title: tuple[str, ...] = ()) -> dict[str, str]:
    """Texts by id. A document, which may have a title, may be empty; a query may not."""
    texts: dict[str, str] = {}
    for where, (name, *parts) in (row for path in paths for row in read_cells(path, (_ID, _TEXT), optional=title)):
        if not isinstance(name, (str, int)) or name == "":
            raise ValueError(f"{where}: the id {name!r} is not valid; make it a non-empty string or a whole number")
        if str(name) in texts:
            raise ValueError(f"{where}: the id {name!r} occurs twice; fix or remove the line")
        if any(not isinstance(part, str) for part in parts):
            raise ValueError(f"{where}: the text or the title is not a string; make it a string")
        texts[str(name)] = " ".join(reversed(parts)).strip()
        if not title and not texts[str(name)]:
            raise ValueError(f"{where}: the query is empty; fill it in, or remove the line")
    return texts
