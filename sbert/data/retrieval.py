"""Reader of retrieval data: queries, documents and relevance judgments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sbert.data.files import Name
from sbert.data.labels import conversion
from sbert.data.tables import cells, find, located

_CORPUS, _QUERIES = ("corpus.jsonl", "corpus.tsv"), ("queries.jsonl", "queries.tsv")


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
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "corpus.tsv").write_text("doc_id\ttitle\ttext\nd1\tCats\tThey sleep.\n")
        ...     _ = (Path(folder) / "queries.tsv").write_text("query_id\ttext\nq1\tWho sleeps?\n")
        ...     _ = (Path(folder) / "qrels.tsv").write_text("query_id\tdoc_id\tgrade\nq1\td1\t2\n")
        ...     read_retrieval(folder)
        Retrieval(queries={'q1': 'Who sleeps?'}, corpus={'d1': 'Cats They sleep.'}, relevant={'q1': {'d1': 2}})
    """
    # A corpus may have millions of documents, so missing files are reported before it is read.
    documents, asked = find(folder, _CORPUS), find(folder, _QUERIES)
    judged = find(folder, [f"qrels/{split}.tsv", *(["qrels.tsv"] if split == "test" else [])])
    corpus = texts_by_id([documents], ("_id", "doc_id", "id"), titled=True)
    queries = texts_by_id([asked], ("_id", "query_id", "id"), titled=False)
    columns = (("query-id", "query_id", "query"), ("corpus-id", "doc_id", "corpus_id", "doc"), ("score", "grade"))
    relevant = judgments(cells(judged, columns), queries, corpus, (asked.name, documents.name))
    if not relevant:
        raise ValueError(f"{judged} has no relevant document; download the file again")
    return Retrieval({name: queries[name] for name in relevant}, corpus, relevant)


def judgments(
    rows: Iterable[tuple[str, list[Any]]],
    queries: Mapping[str, str],
    corpus: Mapping[str, str],
    files: tuple[str, str] = ("queries", "corpus"),
) -> dict[str, dict[str, float]]:
    """The grades above 0 by the ids of queries and documents, from rows of both ids and a grade."""
    convert, relevant = conversion(None, None), dict[str, dict[str, float]]()
    for where, (query, document, grade) in rows:
        for name, known, file in zip((query, document), (queries, corpus), files, strict=True):
            if name not in known:
                raise ValueError(f"{where}: the id {name!r} is not in {file}; fix or remove the line")
        if (number := convert(where, grade)) > 0:
            relevant.setdefault(query, {})[document] = number
    return relevant


def is_retrieval(folder: Name) -> bool:
    """Whether ``read_retrieval`` can read this folder."""
    needed = (_CORPUS, _QUERIES, ("qrels/test.tsv", "qrels.tsv"))
    return all(located(folder, names) for names in needed)


def texts_by_id(paths: Iterable[Path], ids: tuple[str, ...], titled: bool) -> dict[str, str]:
    """Texts by id. A document may be empty; a query may not."""
    texts: dict[str, str] = {}
    title = ("title",) if titled else ()
    for where, (name, *parts) in (row for path in paths for row in cells(path, (ids, ("text",)), optional=title)):
        key = _id(where, name)
        if key in texts:
            raise ValueError(f"{where}: the id {key!r} occurs twice; fix or remove the line")
        if any(not isinstance(part, str) for part in parts):
            raise ValueError(f"{where}: the text or the title is not a string; make it a string")
        texts[key] = " ".join(reversed(parts)).strip()
        if not titled and not texts[key]:
            raise ValueError(f"{where}: the query is empty; fill it in, or remove the line")
    return texts


def _id(where: str, value: Any) -> str:
    """The id as a str; ids may be integers in JSON."""
    if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
        raise ValueError(f"{where}: the id {value!r} is not valid; make it a non-empty string or a whole number")
    return str(value)
