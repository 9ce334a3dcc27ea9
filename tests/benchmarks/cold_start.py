"""Time until SentenceEncoder is imported, and until the first vector, in times of ``import torch``.

python -m tests.benchmarks.cold_start [MODEL]

Each statement runs in a fresh process, in turns; the least of ten runs of each.
"""

from __future__ import annotations

import subprocess
import sys

ROUNDS = 10


def seconds(statement: str) -> float:
    """Time of a statement in a fresh process, as that process measures it."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    encode = "from sbert import SentenceEncoder; SentenceEncoder({}, device='cpu').encode('A sentence.')"
    statements = {
        "import torch": "import torch",
        "from sbert import SentenceEncoder": "from sbert import SentenceEncoder",
        "the first vector of the library's model": encode.replace("{}, ", ""),
        **{f"the first vector of {model}": encode.format(repr(model)) for model in sys.argv[1:]},
    }
    times = [[seconds(statement) for statement in statements.values()] for _ in range(ROUNDS)]
    least = [min(column) for column in zip(*times, strict=True)]
    for name, value in zip(statements, least, strict=True):
        print(f"{name}: {value:.2f} s, {value / least[0]:.2f} times")


if __name__ == "__main__":
    main()
