"""Queries, documents and judgments: read from a folder, or made from texts alone; large collections are sampled."""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from sbert.data import Texts, read_retrieval

Row = TypeVar("Row")
# A first sentence of 15 to 300 characters, and what follows it.
_FIRST = re.compile(r"\s*(.{15,300}?(?:[.!?…]+[\"'”’»)\]]*\s|[。！？]+[”’」』）]*|\n))\s*(\S.{20,})", re.DOTALL)


class Collection(NamedTuple):
    """What a search is measured on.

    Args:
        queries: Query texts.
        documents: Document texts.
        relevant: For each query, the grades of its relevant documents by their index.
        about: Where the queries come from, in a sentence.
    """

    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]]
    about: str


def read(arguments: argparse.Namespace) -> Collection:
    """Read or make a collection, of at most ``queries`` queries and, beside relevant ones, ``documents`` documents.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a line is invalid, or no query can be made.
    """
    rng, folder = random.Random(arguments.seed), Path(arguments.data)  # noqa: S311
    if folder.is_dir() and any(folder.glob("queries.*")):
        return _judged(folder, arguments.queries, arguments.documents, rng)
    return _made(arguments, rng)


def _judged(folder: Path, queries: int, documents: int, rng: random.Random) -> Collection:
    found = read_retrieval(folder)
    asked = set(rng.sample(list(found.queries), min(queries, len(found.queries))))
    kept = {document for query in asked for document in found.relevant[query]}
    others = [document for document in found.corpus if document not in kept]
    kept |= set(rng.sample(others, max(0, min(len(others), documents - len(kept)))))
    places = {name: place for place, name in enumerate(name for name in found.corpus if name in kept)}
    names = [name for name in found.queries if name in asked]
    about = f"{_of(len(names), len(found.queries), 'queries')} with judgments"
    about += f", {_of(len(places), len(found.corpus), 'documents')}."
    if len(places) < len(found.corpus):
        about += " Among all documents every figure would be lower."
    relevant = [{places[document]: grade for document, grade in found.relevant[name].items()} for name in names]
    return Collection([found.queries[name] for name in names], [found.corpus[name] for name in places], relevant, about)


def _of(count: int, total: int, what: str) -> str:
    return f"{count:,} {what}" if count == total else f"{count:,} of {total:,} {what}"


def _made(arguments: argparse.Namespace, rng: random.Random) -> Collection:
    """Each query is a title, or a first sentence that is taken out of its document."""
    title = arguments.title
    rows = Texts(arguments.data, arguments.column, format=arguments.format, keep=[title] if title else []).rows()
    total = Counter[str]()
    sampled = _sampled(_counted(((text, row.get(title)) for text, row in rows if text.strip()), total), arguments, rng)
    pairs = [_split(text) if title is None else _titled(text, heading) for text, heading in sampled]
    distinct = {document: query for query, document in pairs}
    times = Counter(distinct.values())
    able = [place for place, query in enumerate(distinct.values()) if query and times[query] == 1]
    if not able:
        what = "first sentence with more text behind it" if title is None else f"title in the column {title!r}"
        raise ValueError(
            f"{arguments.data}: no document has a {what}, so no query can be made; pass --title NAME, the column of"
            " titles, or a folder with queries, corpus and qrels"
        )
    chosen = sorted(rng.sample(able, min(arguments.queries, len(able))))
    queries = list(distinct.values())
    source = "titles" if title else "first sentences, which were taken out of the documents"
    about = f"{len(chosen):,} queries made from {source}; {_of(len(distinct), total['rows'], 'documents')}. Such"
    about += " queries share words with their document, which favours BM25: real queries are better."
    return Collection([queries[i] for i in chosen], list(distinct), [{i: 1.0} for i in chosen], about)


def _counted(rows: Iterable[Row], total: Counter[str]) -> Iterator[Row]:
    for row in rows:
        total["rows"] += 1
        yield row


def _sampled(rows: Iterable[Row], arguments: argparse.Namespace, rng: random.Random) -> list[Row]:
    """At most ``documents`` rows, each with the same probability; only these are in memory."""
    kept: list[Row] = []
    for number, row in enumerate(rows):
        if len(kept) < arguments.documents:
            kept.append(row)
        elif (place := rng.randrange(number + 1)) < len(kept):
            kept[place] = row
    return kept


def _split(text: str) -> tuple[str, str]:
    """The first sentence and the rest; if there is no rest, no query and the whole text."""
    match = _FIRST.fullmatch(text)
    return (match[1].strip(), match[2].strip()) if match else ("", text)


def _titled(text: str, title: object) -> tuple[str, str]:
    """The title, and the text without it."""
    query = title.strip() if isinstance(title, str) else ""
    return query, text.strip().removeprefix(query).strip() or text
