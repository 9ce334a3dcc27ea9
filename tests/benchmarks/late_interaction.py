"""Reranking by late interaction: nDCG@10 on Cranfield, CACM and TIME, of a search by words, vectors and both.

python -m tests.benchmarks.late_interaction --data FOLDER [--model MODEL ...]

Models and data as of tests.benchmarks.hybrid. The best 100 documents of each search are reranked; "weight" is how much
the late interaction counts. The last row is the best order that these 100 documents have.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from sbert import SentenceEncoder
from sbert.data import Retrieval, read_retrieval
from sbert.evaluation import ranking
from sbert.search import HybridIndex, LateInteraction
from sbert.search.index.fusion import Reranker
from tests.benchmarks.hybrid import MINILM, SETS


class Remembered:
    """A reranker that scores each pair once."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self._scores: dict[tuple[str, str], float] = {}
        self.weight: float = 1.0

    def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._scores]
        self._scores.update(zip(new, self._reranker.predict(new).tolist() if new else [], strict=True))
        return np.array([self._scores[pair] for pair in pairs], np.float32)


def figures(given: Retrieval, model: SentenceEncoder) -> dict[str, float]:
    """nDCG@10 times 100 of each way to search."""
    index, late = HybridIndex(model, language="english"), Remembered(LateInteraction(model))
    index.add(list(given.corpus.values()), list(given.corpus))
    queries, relevant = [*given.queries.values()], [given.relevant[query] for query in given.queries]
    found = {}

    def row(name: str, best: bool = False, **options: object) -> None:
        results = index.search(queries, 100, **options)  # type: ignore[arg-type]
        grades = [[own.get(each.id, 0) for each in hits] for own, hits in zip(relevant, results, strict=True)]
        some = (sorted(row, reverse=True) for row in grades) if best else grades
        scores = [ranking.ndcg_at(row, 10, [*own.values()]) for row, own in zip(some, relevant, strict=True)]
        found[name] = 100 * float(np.mean(scores))

    for by in ("lexical", "dense", "hybrid"):
        row(by, by=by)
        for late.weight in (0.2, 0.4, 0.6, 1.0):
            row(f"{by}, reranked, weight {late.weight}", by=by, rerank=late)
    row("hybrid, the best order", best=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", nargs="+", default=["", MINILM])
    options = parser.parse_args()
    for name in options.model:
        model = SentenceEncoder(*filter(None, [name]), device="cpu")
        columns = [figures(read_retrieval(options.data / folder), model) for folder in SETS]
        label = {"": "the library's model", MINILM: "all-MiniLM-L6-v2"}.get(name, name)
        print(f"\n| {label} | {' | '.join(Path(folder).name for folder in SETS)} | mean |\n|{'---|' * 5}")
        for row in columns[0]:
            values = [column[row] for column in columns]
            print(f"| {row} | {' | '.join(f'{value:.2f}' for value in [*values, np.mean(values)])} |", flush=True)


if __name__ == "__main__":
    main()
