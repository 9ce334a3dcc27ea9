"""Late chunking beside plain chunking: processor time for the same passages of 60 and 120 tokens, in turns.

OMP_NUM_THREADS=1 python -m tests.benchmarks.chunking [--model MODEL] [--rounds 5] [--data FOLDER]

Documents have 200, 1,000 and 5,000 random words. A ratio is the median over the rounds. With --data, also nDCG@10 of
the best passage on the long documents of FOLDER/retrieval_dev/time; and for queries of three to five words of a
sentence, how often the passage with this sentence is the best one of its document.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

import numpy as np

from examples.default_model.texts import END, few_words
from sbert import SentenceEncoder
from sbert.chunking import encode_chunks, split
from sbert.data import Retrieval, read_retrieval
from sbert.evaluation.ranking_metrics import ndcg_at
from tests.benchmarks.compare import WORDS

TOTAL = 20_000  # Words of all documents.


def measure_quality(model: SentenceEncoder, data: Retrieval, tokens: int, late: bool) -> tuple[float, float]:
    """nDCG@10, by the best passage of each document, and how often the right passage is its best, both times 100."""
    chunks, vectors = encode_chunks(model, data.corpus.values(), tokens, late=late)
    names, owners = [*data.corpus], np.array([chunk.document for chunk in chunks])
    scores = model.encode_query([*data.queries.values()]) @ vectors.T
    best = np.full((len(scores), len(names)), -1.0)  # (queries, documents)
    np.maximum.at(best, (slice(None), owners), scores)
    figures = []
    for row, query in zip(best, data.queries, strict=True):
        relevant = data.relevant[query]
        grades = [relevant.get(names[position], 0) for position in np.argsort(-row)]
        figures.append(ndcg_at(grades, 10, [*relevant.values()]))
    texts, choose, right = [*data.corpus.values()], random.Random(0), []
    for document in range(len(texts)):
        passages = np.flatnonzero(owners == document)
        passage = choose.choice(passages)
        query = few_words(choose.choice(END.split(chunks[passage].text(texts))), choose)
        if query and len(passages) > 1:
            right.append(passages[np.argmax(vectors[passages] @ model.encode_query(query))] == passage)
    return 100 * float(np.mean(figures)), 100 * float(np.mean(right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sbert-mini")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    model, draw = SentenceEncoder(options.model, device="cpu"), random.Random(0)
    for tokens in (60, 120):
        if options.data:
            data = read_retrieval(options.data / "retrieval_dev" / "time")
            for late in (False, True):
                quality, right = measure_quality(model, data, tokens, late)
                print(f"TIME, {'late ' * late}passages of {tokens} tokens: {quality:.2f}, right passage {right:.1f} %")
        for words in (200, 1000, 5000):
            sentences = [" ".join(draw.choices(WORDS, k=10)) + "." for _ in range(TOTAL // 10)]
            texts = [" ".join(sentences[start : start + words // 10]) for start in range(0, TOTAL // 10, words // 10)]
            chunks, ratios = split(model, texts, tokens), []
            for _ in range(options.rounds + 1):
                times = [time.process_time()]
                for late in (False, True):
                    encode_chunks(model, texts, chunks=chunks, late=late)
                    times.append(time.process_time())
                ratios.append((times[2] - times[1]) / (times[1] - times[0]))
            ratio = statistics.median(ratios[1:])  # The first call selects a backend.
            print(f"documents of {words:,} words, passages of {tokens} tokens: {ratio:.2f} times", flush=True)


if __name__ == "__main__":
    main()
