"""Time of search, mining and communities compared with sentence-transformers (and faiss, if it is installed).

python -m tests.benchmarks.search [--only search,pair,mining,communities]

Vectors are random directions around a few thousand centres, so that some are similar, as vectors of sentences are. The
libraries run alternately, and their results are compared. A ratio is the median over rounds of theirs / ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sentence_transformers import util

from sbert.search import Index, community_detection, most_similar_pair, paraphrase_mining, semantic_search

Ways = dict[str, Callable[[], Any]]
DIM, TOP_K, ROUNDS = 384, 10, 5


def directions(rows: int, dim: int, seed: int = 0) -> torch.Tensor:
    """Unit vectors (rows, dim), each near one of many centres."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(max(1, rows // 40), dim, generator=torch.Generator().manual_seed(99))
    vectors = torch.empty(rows, dim)
    for start in range(0, rows, 1 << 16):
        part = vectors[start : start + (1 << 16)]
        near = centres[torch.randint(len(centres), (len(part),), generator=generator)]
        spread = torch.rand(len(part), 1, generator=generator) + 0.3
        part.copy_(near + spread * torch.randn(len(part), dim, generator=generator))
        part /= part.norm(dim=1, keepdim=True)
    return vectors


def compare(name: str, ways: Ways, same: Callable[[dict[str, Any]], str]) -> None:
    """Time the ways in turns and print one line each; the first way is ours, the reference of the ratios."""
    results = {way: action() for way, action in ways.items()}  # This also warms up.
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS):
        for way in list(ways)[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            ways[way]()
            times[way].append(time.perf_counter() - start)
    ours = times[next(iter(ways))]
    for way, seconds in times.items():
        ratio = statistics.median(other / one for other, one in zip(seconds, ours, strict=True))
        print(f"| {name} | {way} | {statistics.median(seconds):.3f} s | {ratio:.2f} |")
    print(f"  {same(results)}", flush=True)


def search() -> None:
    corpus = directions(1_000_000, DIM)
    for count in (1, 10, 100):
        compare_search(corpus, directions(count, DIM, 1))


def compare_search(corpus: torch.Tensor, queries: torch.Tensor) -> None:
    index = Index()
    index.add(corpus)
    ways: Ways = {
        "sbert": lambda: semantic_search(queries, corpus, TOP_K),
        "sbert, Index": lambda: index.search(queries, TOP_K),
        "sentence-transformers": lambda: util.semantic_search(queries, corpus, top_k=TOP_K),
        "NumPy, without order": lambda: np.argpartition(queries.numpy() @ corpus.numpy().T, -TOP_K)[:, -TOP_K:],
    }
    try:
        import faiss

        flat = faiss.IndexFlatIP(corpus.shape[1])
        flat.add(torch.nn.functional.normalize(corpus).numpy())
        asked = torch.nn.functional.normalize(queries).numpy()
        ways["faiss IndexFlatIP"] = lambda: flat.search(asked, TOP_K)
    except ImportError:
        print("(faiss-cpu is not installed)")

    def same(results: dict[str, Any]) -> str:
        scores, indices = results["sbert"].scores, results["sbert"].indices
        theirs = results["sentence-transformers"]
        others = {"theirs": np.array([[hit["corpus_id"] for hit in hits] for hits in theirs])}
        off = np.abs(scores - np.array([[hit["score"] for hit in hits] for hits in theirs])).max()
        if "faiss IndexFlatIP" in results:
            others["faiss"] = results["faiss IndexFlatIP"][1]
        equal = ", ".join(f"{(indices == other).mean():.5f} of {name}" for name, other in others.items())
        return f"indices equal to {equal}; maximum difference of scores {off:.1e}"

    compare(f"top {TOP_K} of {len(corpus)} for {len(queries)} queries", ways, same)


def pair() -> None:
    vectors = directions(10_000, DIM)
    mine = util.paraphrase_mining_embeddings
    ways: Ways = {"sbert": lambda: most_similar_pair(vectors), "sentence-transformers": lambda: mine(vectors)}

    def same(results: dict[str, Any]) -> str:
        score, first, second = results["sentence-transformers"][0]
        return f"ours {results['sbert']}, theirs ({score}, {first}, {second})"

    compare(f"most similar pair of {len(vectors)}", ways, same)


def mining() -> None:
    vectors = directions(10_000, DIM)
    mine = util.paraphrase_mining_embeddings
    ways: Ways = {"sbert": lambda: paraphrase_mining(vectors), "sentence-transformers": lambda: mine(vectors)}

    def same(results: dict[str, Any]) -> str:
        found = results["sbert"]
        ours = {*zip(found.first.tolist(), found.second.tolist(), strict=True)}
        others = {(first, second) for _, first, second in results["sentence-transformers"]}
        return f"{len(ours)} pairs and {len(others)}, of which {len(ours & others)} are the same"

    compare(f"mining of {len(vectors)}", ways, same)


def communities() -> None:
    vectors = directions(100_000, DIM)
    detect = util.community_detection
    ways: Ways = {"sbert": lambda: community_detection(vectors), "sentence-transformers": lambda: detect(vectors)}

    def same(results: dict[str, Any]) -> str:
        ours, others = results.values()
        # Members are ordered by their cosine with the centre; in float32 some of theirs are equal.
        same = sum(one[0] == two[0] and {*one} == {*two} for one, two in zip(ours, others, strict=False))
        return f"{len(ours)} communities and {len(others)}, {same} with the same centre and members"

    compare(f"communities of {len(vectors)}", ways, same)


PARTS = {f.__name__: f for f in (search, pair, mining, communities)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="search,pair,mining,communities")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n\n| what | who | median | theirs / ours |")
    print("|---|---|---|---|", flush=True)
    for part in options.only.split(","):
        PARTS[part]()


if __name__ == "__main__":
    main()
