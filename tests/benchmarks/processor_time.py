"""Processor time of ``encode`` beside sentence-transformers, which says more than the clock while other programs run.

OMP_NUM_THREADS=1 python -m tests.benchmarks.processor_time MODEL --data FOLDER [--texts 512] [--rounds 3]

All encode the same sentences of STS benchmark test, in turns; the least time of each counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from sbert import SentenceEncoder
from sbert.data import read_sts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True, help="folder with stsb/test.tsv")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    texts = [row["first"] for row in read_sts(options.data / "stsb" / "test.tsv")][: options.texts]
    theirs = SentenceTransformer(options.model, device="cpu")
    ours = {dtype: SentenceEncoder(options.model, device="cpu", dtype=dtype) for dtype in ("float32", "bfloat16")}
    models: dict[str, Any] = {
        "sentence-transformers": theirs,
        **{f"sbert, {dtype}": model for dtype, model in ours.items()},
    }
    seconds, vectors = dict.fromkeys(models, float("inf")), dict.fromkeys(models, np.empty(0))
    for number in range(options.rounds + 1):
        for name, model in models.items():
            start = time.process_time()
            vectors[name] = model.encode(texts if number else texts[:32])  # The first round only warms up.
            if number:
                seconds[name] = min(seconds[name], time.process_time() - start)
    expected = vectors["sentence-transformers"]
    print("| way | texts per second of processor time | ratio | max difference |\n|---|---|---|---|")
    for name, least in seconds.items():
        ratio, difference = seconds["sentence-transformers"] / least, np.abs(vectors[name] - expected).max()
        print(f"| {name} | {len(texts) / least:.0f} | {ratio:.2f} | {difference:.1e} |")


if __name__ == "__main__":
    main()
