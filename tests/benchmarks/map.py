"""Time of projecting n vectors to two dimensions, and the share of nearest neighbours that the projection preserves.

python -m tests.benchmarks.map [N ...]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from sbert.visualization.projection import project


def preserved(vectors: np.ndarray, points: np.ndarray, near: int = 10, sample: int = 500) -> float:
    """Share of the nearest neighbours of some vectors that are among the nearest neighbours of their points."""
    rows = np.random.default_rng(0).choice(len(vectors), min(sample, len(vectors)), replace=False)
    shares = []
    for row in rows:
        true, drawn = (np.linalg.norm(x - x[row], axis=1).argsort()[1 : near + 1] for x in (vectors, points))
        shares.append(len(set(true) & set(drawn)) / near)
    return float(np.mean(shares))


def main() -> None:
    random = np.random.default_rng(0)
    print(f"{'points':>8} {'method':8} {'CPU s':>8} {'neighbours preserved':>21}")
    for count in map(int, sys.argv[1:] or ("2000", "20000")):
        # Ten informative directions and noise in all dimensions, as in vectors of sentences.
        latent = 2 * random.normal(size=(40, 10))[random.integers(0, 40, count)] + random.normal(size=(count, 10))
        vectors = (latent @ random.normal(size=(10, 384)) + 0.5 * random.normal(size=(count, 384))).astype("f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for method in ("pca", "tsne"):
            start = time.process_time()
            points = project(vectors, method=method)
            seconds = time.process_time() - start
            print(f"{count:8,} {method:8} {seconds:8.1f} {100 * preserved(vectors, points):20.1f}%", flush=True)


if __name__ == "__main__":
    main()
