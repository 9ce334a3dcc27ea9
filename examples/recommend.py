"""Which model and which kind of search find the most in your own texts: vectors, BM25, both together, and reranking.

python examples/recommend.py [--data DATA] [--models A,B] [--rerankers A,B] [--title COLUMN] [--language NAME]

DATA is a folder with queries and judgments in BEIR's layout; or a file or a folder of texts, of which the titles
(--title) or the first sentences become the queries. Such queries share words with their document, which favours BM25:
real queries are better. Each row is printed as soon as it is known; the advice at the end names a winner only if the
difference is more than chance. nDCG@10 and recall@100 are in percent; docs/s is adding documents, ms is one query.
"""

import argparse
import random
import re
import textwrap
import time
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from shared import things, worded

from sbert import CrossEncoder, SentenceEncoder
from sbert.data import Texts, read_retrieval
from sbert.evaluation import paired_bootstrap
from sbert.evaluation.ranking_metrics import ndcg_at, recall_at
from sbert.search import BM25, HybridIndex

# A first sentence of 15 to 300 characters, and what follows it.
FIRST = re.compile(r"\s*(.{15,300}?(?:[.!?…]+[\"'”’»)\]]*\s|[。！？]+[”’」』）]*|\n))\s*(\S.{20,})", re.DOTALL)
DEPTH = 100  # Results per query.
TIMED = 20  # Queries that are timed one by one.
NAME = 40  # Columns of a name.
fill = partial(textwrap.fill, width=80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


class Collection(NamedTuple):
    """What a search is measured on; for each query the grades of its relevant documents."""

    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]]


class System(NamedTuple):
    """A way to search, and what it showed: nDCG@10 of each query, seconds of a document and of a query."""

    name: str
    ndcg: np.ndarray
    per_document: float
    per_query: float
    how: dict

    @property
    def mean(self) -> float:
        return float(self.ndcg.mean())


def read(options) -> Collection:
    """The collection of the options, at most so many queries and, beside relevant ones, so many documents."""
    draw = random.Random(options.seed)
    if options.data is None:
        return made_up(draw)
    if options.data.is_dir() and any(options.data.glob("queries.*")):
        return judged(options, draw)
    return from_texts(options, draw)


def made_up(draw: random.Random) -> Collection:
    """Paraphrases of synthetic sentences."""
    every = things(held_out=True)
    return Collection(
        [worded(thing, draw) for thing in every[:60]],
        [worded(thing, draw) for thing in every],
        [{number: 1.0} for number in range(60)],
    )


def judged(options, draw: random.Random) -> Collection:
    """A sample of a collection with judgments."""
    data = read_retrieval(options.data)
    names = sorted(draw.sample(list(data.queries), min(options.queries, len(data.queries))))
    wanted = {document for name in names for document in data.relevant[name]}
    others = [document for document in data.corpus if document not in wanted]
    wanted |= set(draw.sample(others, max(0, min(len(others), options.documents - len(wanted)))))
    rows = {name: row for row, name in enumerate(name for name in data.corpus if name in wanted)}
    relevant = [{rows[document]: grade for document, grade in data.relevant[name].items()} for name in names]
    return Collection([data.queries[name] for name in names], [data.corpus[name] for name in rows], relevant)


def from_texts(options, draw: random.Random) -> Collection:
    """Texts whose titles or first sentences, taken out of them, are the queries."""
    texts = Texts(options.data, options.column, keep=[options.title] if options.title else [])
    rows = [(text, row.get(options.title)) for text, row in texts.rows() if text.strip()]
    pairs = {}
    for text, title in draw.sample(rows, min(options.documents, len(rows))):
        match = FIRST.fullmatch(text)
        if options.title:
            query = title.strip() if isinstance(title, str) else ""
            pairs[text.strip().removeprefix(query).strip() or text] = query
        else:
            pairs[match[2].strip() if match else text] = match[1].strip() if match else ""
    queries = list(pairs.values())
    able = [row for row, query in enumerate(queries) if query and queries.count(query) == 1]
    if not able:
        raise SystemExit(f"{options.data}: no text has a first sentence with more behind it; pass --title COLUMN")
    chosen = sorted(draw.sample(able, min(options.queries, len(able))))
    return Collection([queries[row] for row in chosen], list(pairs), [{row: 1.0} for row in chosen])


def measure(name: str, index: HybridIndex, data: Collection, per_document: float, **how) -> System:
    """Search all queries, print the row, and return it."""
    index.search(data.queries[:1], DEPTH, **how)  # The first search builds what it needs.
    results = index.search(data.queries, DEPTH, **how)
    times = []
    for query in data.queries[:TIMED]:
        begin = time.perf_counter()
        index.search(query, DEPTH, **how)
        times.append(time.perf_counter() - begin)
    grades = np.zeros((len(results), DEPTH))  # (queries, results)
    for row, (ranking, relevant) in enumerate(zip(results, data.relevant, strict=True)):
        grades[row, : len(ranking)] = [relevant.get(result.id, 0.0) for result in ranking]
    most = max(map(len, data.relevant))
    best = np.array([[*grades_of.values(), *[0.0] * (most - len(grades_of))] for grades_of in data.relevant])
    system = System(name, ndcg_at(grades, 10, best), per_document, float(np.median(times)), how)
    figures = f"{100 * system.mean:6.1f} {100 * recall_at(grades, DEPTH, best).mean():7.1f}"
    start = name if len(name) <= NAME else f"{name}\n{'':{NAME}}"  # A long name has a line of its own.
    print(f"{start:{NAME}} {figures} {1 / per_document:9,.0f} {1000 * system.per_query:9.1f}", flush=True)
    return system


def measure_all(options, data: Collection) -> list[System]:
    """All systems; a model that does not run is a line that says why."""
    systems, last = [], None
    print(f"{'system':{NAME}} {'nDCG':>6} {'recall':>7} {'docs/s':>9} {'ms':>9}")
    for model in options.models.split(","):
        try:
            index = HybridIndex(SentenceEncoder(model, device=options.device), language=options.language)
            begin = time.perf_counter()
            index.add(data.documents, ids=range(len(data.documents)))
            per_document = (time.perf_counter() - begin) / len(data.documents)
            if not systems:
                begin = time.perf_counter()
                BM25(language=index.language).add(data.documents)
                alone = (time.perf_counter() - begin) / len(data.documents)
                systems.append(measure("BM25", index, data, alone, by="lexical"))
            systems.append(measure(model, index, data, per_document, by="dense"))
            systems.append(measure(f"{model} + BM25", index, data, per_document, by="hybrid"))
            best = max(systems[-2:], key=attrgetter("mean"))
            last = (index, best) if last is None or best.mean > last[1].mean else last
        except (OSError, ValueError, RuntimeError) as error:
            print(fill(f"{model}: not measured: {error}"), flush=True)
    if last is None:
        raise SystemExit("no model could be measured; pass other --models")
    index, base = last
    for name in filter(None, options.rerankers.split(",")):
        try:
            rerank = {**base.how, "rerank": CrossEncoder(name), "candidates": DEPTH}
            systems.append(measure(f"{base.name}, {name}", index, data, base.per_document, **rerank))
        except (OSError, ValueError, RuntimeError) as error:
            print(fill(f"{name}: not measured: {error}"), flush=True)
    return systems


def advice(systems: list[System]) -> list[str]:
    """The best system, those that are not visibly worse, and the cheapest of these."""
    best, *others = sorted(systems, key=attrgetter("mean"), reverse=True)
    few = len(best.ndcg) < 10
    alike = [system for system in others if few or not paired_bootstrap(best.ndcg, system.ndcg).visible]
    lines = [f"Best: {best.name}, nDCG@10 {100 * best.mean:.1f}."]
    if few:
        lines.append(f"So few queries ({len(best.ndcg)}) cannot compare systems.")
    elif alike:
        names = ", ".join(system.name for system in alike[:3]) + (" and others" if len(alike) > 3 else "")
        lines.append(f"With {len(best.ndcg)} queries, no difference from {names} is visible.")
    least = min(system.per_document + system.per_query for system in (best, *alike))
    cheap = next(system for system in (best, *alike) if system.per_document + system.per_query <= 1.5 * least)
    if cheap is not best:
        times = f"{1000 * cheap.per_query:.1f} ms per query instead of {1000 * best.per_query:.1f}"
        lines.append(f"Cheapest that is not visibly worse: {cheap.name}, {times}.")
    return lines


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data", type=Path, help="judged queries in BEIR's layout, or texts (default: synthetic)")
    flags.add_argument("--models", default="sbert-mini", metavar="A,B", help="encoders")
    flags.add_argument("--rerankers", default="", metavar="A,B", help="cross-encoders")
    flags.add_argument("--column", help="column of the texts")
    flags.add_argument("--title", metavar="COLUMN", help="column of titles, which become the queries")
    flags.add_argument("--language", default="auto", help="of stop words and stems of BM25 (default: the model's)")
    flags.add_argument("--queries", type=int, default=200, metavar="N", help="at most so many queries (200)")
    flags.add_argument("--documents", type=int, default=5000, metavar="N", help="at most so many documents (5000)")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--device")
    options = flags.parse_args()
    collection = read(options)
    print(f"{len(collection.queries):,} queries, {len(collection.documents):,} documents.\n")
    measured = measure_all(options, collection)
    print("\n" + "\n".join(map(fill, advice(measured))))
