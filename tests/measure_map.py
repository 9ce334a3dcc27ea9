"""How long a map of n points takes to lay out, and how well neighbours stay neighbours: python -m tests.measure_map."""

from __future__ import annotations

import sys
import time

import numpy as np

from sbert.visualization.projection import project


def kept(vectors: np.ndarray, points: np.ndarray, near: int = 10, sample: int = 500) -> float:
    """Part of the nearest neighbours of some vectors that are among their nearest in the picture."""
    rows = np.random.default_rng(0).choice(len(vectors), min(sample, len(vectors)), replace=False)
    found = []
    for row in rows:
        true, drawn = (np.linalg.norm(x - x[row], axis=1).argsort()[1 : near + 1] for x in (vectors, points))
        found.append(len(set(true) & set(drawn)) / near)
    return float(np.mean(found))


def main() -> None:
    random = np.random.default_rng(0)
    print(f"{'points':>8} {'method':8} {'CPU s':>8} {'neighbours kept':>16}")
    for count in map(int, sys.argv[1:] or ("2000", "20000")):
        # Ten directions that matter, and noise in all: as of sentences, few of the numbers say much.
        latent = 2 * random.normal(size=(40, 10))[random.integers(0, 40, count)] + random.normal(size=(count, 10))
        vectors = (latent @ random.normal(size=(10, 384)) + 0.5 * random.normal(size=(count, 384))).astype("f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for method in ("pca", "tsne"):
            start = time.process_time()
            points = project(vectors, method=method)
            seconds = time.process_time() - start
            print(f"{count:8,} {method:8} {seconds:8.1f} {100 * kept(vectors, points):15.1f}%", flush=True)


if __name__ == "__main__":
    main()
