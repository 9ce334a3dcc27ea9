"""Maps of 1,000, 20,000 and 100,000 texts: what they preserve, and seconds, megabytes and milliseconds per frame.

python -m tests.benchmarks.maps FILE [--column NAME] [--model MODEL] [--sizes 1000,20000,100000]

The texts are the first of the file. kept: the share of the 15 nearest texts that the layout keeps nearest. labels: of
the 50 points nearest to a name, the share that belongs to its topic, the mean of all names of a level, from the
coarsest to the finest, and the share of names for which it is at least 90 %. colour: of the 15 points nearest to a
coloured one, the share of its finest topic. frame: the median time between two frames of a moving map, and of the
drawing alone, in headless chromium without a GPU, 1,200 x 800 pixels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from sbert import SentenceEncoder
from sbert.data import Texts
from sbert.visualization import Topics, find_topics, map_page, nearest_neighbours, project_vectors
from sbert.visualization.projection import density_peaks
from tests.visualization import browser

MOVE = """new Promise((done) => {
  const frames = [], drawings = [];
  const step = (now) => {
    frames.push(now);
    const start = performance.now();
    view.x += 0.002, draw();
    drawings.push(performance.now() - start);
    if (frames.length < 61) requestAnimationFrame(step);
    else done([frames.slice(1).map((end, k) => end - frames[k]), drawings].map((all) => all.sort((a, b) => a - b)[30]));
  };
  requestAnimationFrame(step);
})"""


def label_truth(points: np.ndarray, level: Topics) -> tuple[float, float]:
    """Of the points nearest to each name, the mean share of its topic, and how many names have 90 %."""
    labels = np.asarray(level.labels)
    peaks = density_peaks(points, labels, len(level.names))
    shares, tree = [], cKDTree(points)
    for topic in np.flatnonzero(peaks >= 0):
        nearest = tree.query(points[peaks[topic]], min(50, int((labels == topic).sum())))[1]
        shares.append(float((labels[np.atleast_1d(nearest)] == topic).mean()))
    return float(np.mean(shares)), float(np.mean(np.array(shares) >= 0.9))


def colour_share(points: np.ndarray, labels: np.ndarray) -> float:
    """Of the 15 nearest points of a coloured point, the share that has its colour."""
    nearest = cKDTree(points).query(points, 16)[1][:, 1:]
    return float((labels[nearest] == labels[:, None])[labels >= 0].mean())


def frames(page: Path) -> tuple[float, float]:
    """Milliseconds from frame to frame, and of the drawing in it; nan without chromium."""
    program = browser.find()
    if program is None:
        return float("nan"), float("nan")
    with browser.Browser(program, page.with_name("profile"), (1200, 800)) as opened:
        opened.open(page)
        between, drawing = opened.run(MOVE)
    return between, drawing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--column")
    parser.add_argument("--model", default="sbert-mini")
    parser.add_argument("--sizes", default="1000,20000,100000")
    options = parser.parse_args()
    model = SentenceEncoder(options.model, device="cpu")
    for size in map(int, options.sizes.split(",")):
        texts = list(islice(Texts(options.file, options.column), size))
        times = [time.perf_counter()]

        def tick(times: list[float] = times) -> None:
            times.append(time.perf_counter())

        vectors = model.encode(texts, normalize_embeddings=True, on_truncate="ignore")
        tick()
        neighbours = nearest_neighbours(vectors)
        points = project_vectors(vectors, neighbours=neighbours)
        tick()
        topics = find_topics(texts, vectors, points)
        tick()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Of a browser that ends.
            path = Path(folder, "map.html")
            page = map_page(texts, points, topics, neighbours, path=path)
            tick()
            between, drawing = frames(path)
        encoding, layout, naming, writing = np.diff(times)
        near = cKDTree(points).query(points, 16)[1][:, 1:]
        kept = np.mean([len({*a} & {*b}) / 15 for a, b in zip(near, neighbours.indices, strict=True)])
        truths = [label_truth(points, level) for level in topics]
        print(f"{len(texts):,} texts")
        print(f"  seconds: encode {encoding:.1f}, layout {layout:.1f}, topics {naming:.1f}, page {writing:.1f}")
        print(f"  kept {kept:.3f}, colour {colour_share(points, np.asarray(topics[-1].labels)):.3f}")
        for level, (mean, share) in zip(topics, truths, strict=True):
            print(f"  {len(level.names)} topics: labels {mean:.3f}, {share:.0%} of names have 0.9")
        print(f"  {len(page.encode()) / 1e6:.1f} MB, frame {between:.1f} ms, drawing {drawing:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
