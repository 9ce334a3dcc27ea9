"""Reader of retrieval data: queries, documents, and which of these answer which of those."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from sbert.data.records import Name
from sbert.data.rows import conversion
from sbert.data.tables import cells, find, located

_ENDINGS = (".jsonl", ".tsv")
_NUMBER = conversion(None, None)


class Retrieval(NamedTuple):
    """Queries, the documents to search, and which are wanted: what a ``RetrievalEvaluator`` takes, in its order.

    Args:
        queries: Texts by id, those alone that have a relevant document.
        corpus: Texts by id.
        relevant: By the id of a query, how relevant a document is by its id, above 0.
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: dict[str, dict[str, float]]


def read_retrieval(folder: Name, split: str = "test") -> Retrieval:
    r"""Queries, documents and relevance judgments in BEIR's layout, or in tables like it.

    A document's text is its title, a space and its text. Judgments of 0 and below say that a document is not
    relevant, and are left out, as are queries without any other.

    Args:
        folder: With ``corpus.jsonl`` (_id, title, text), ``queries.jsonl`` (_id, text) and ``qrels/test.tsv``
            (query-id, corpus-id, score), or ``corpus.tsv`` (doc_id, title, text), ``queries.tsv`` (query_id, text) and
            ``qrels.tsv`` (query_id or query, doc_id or doc, grade or score); gzipped or not.
        split: The part of the judgments; that of a lone ``qrels.tsv`` is the test.

    Raises:
        FileNotFoundError: If a file is not there.
        ValueError: If a line does not fit, an id is there twice, or a judgment names what is not there, with the
            number of the line.

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
    # A folder may hold millions of documents, so what is missing is found first.
    documents, asked = find(folder, _named("corpus")), find(folder, _named("queries"))
    judged = find(folder, [f"qrels/{split}.tsv", *(["qrels.tsv"] if split == "test" else [])])
    corpus = _texts(documents, ("_id", "doc_id", "id"), titled=True)
    queries = _texts(asked, ("_id", "query_id", "id"), titled=False)
    relevant: dict[str, dict[str, float]] = {}
    columns = (("query-id", "query_id", "query"), ("corpus-id", "doc_id", "corpus_id", "doc"), ("score", "grade"))
    for where, (query, document, grade) in cells(judged, columns):
        for name, known, path in ((query, queries, asked), (document, corpus, documents)):
            if name not in known:
                raise ValueError(f"{where}: the id {name!r} is not in {path.name}; mend or remove the line")
        found = _NUMBER(where, grade)
        if found > 0:
            relevant.setdefault(query, {})[document] = found
    if not relevant:
        raise ValueError(f"{judged} says of no document that it is relevant; get the file again")
    return Retrieval({name: queries[name] for name in relevant}, corpus, relevant)


def is_retrieval(folder: Name) -> bool:
    """Whether a folder is one that ``read_retrieval`` reads."""
    needed = (_named("corpus"), _named("queries"), ("qrels/test.tsv", "qrels.tsv"))
    return all(located(folder, names) for names in needed)


def _named(name: str) -> tuple[str, ...]:
    return tuple(f"{name}{end}" for end in _ENDINGS)


def _texts(path: Path, ids: tuple[str, ...], titled: bool) -> dict[str, str]:
    """Texts by their ids; a document may be empty, a query may not."""
    found: dict[str, str] = {}
    for where, (name, *parts) in cells(path, (ids, ("text",)), optional=("title",) if titled else ()):
        key = _id(where, name)
        if key in found:
            raise ValueError(f"{where}: the id {key!r} is there twice; mend or remove the line")
        if any(not isinstance(part, str) for part in parts):
            raise ValueError(f"{where}: the text or the title is no string; put a string there")
        found[key] = " ".join(reversed(parts)).strip()
        if not titled and not found[key]:
            raise ValueError(f"{where}: the query is empty; fill it in, or remove the line")
    return found


def _id(where: str, value: Any) -> str:
    """An id as a table would have it."""
    if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
        raise ValueError(f"{where}: the id {value!r} is no name; put a string or a whole number there")
    return str(value)
