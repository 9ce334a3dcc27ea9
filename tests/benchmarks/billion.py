"""What a billion texts cost: time, money, storage and memory, from rates and prices that are given.

python -m tests.benchmarks.billion [--texts 1e9] [--rate "A100, BERT-base=64000=2.00" ...] [--dims 256,384,768,1024]
python -m tests.benchmarks.billion --measure [--sample 8000]

A rate is NAME=TEXTS PER SECOND=PRICE PER HOUR, for one core or one GPU. The default rates of cores were printed by
--measure, which encodes short texts in one thread and counts processor time; those of GPUs are a model of the time (the
guide of sbert.backends), nothing that was measured; prices are assumptions. The bytes of a graph are computed, and with
--check compared with the size of an index that faiss has built.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.benchmarks.texts import models, texts

CORE = 0.04  # Dollars per hour, as of GPUs: assumptions, not offers.
RATES = [
    f"core, sbert-mini, float32=2100={CORE}",
    f"core, MiniLM, float32=480={CORE}",
    f"core, MiniLM, bfloat16=790={CORE}",
    f"core, BERT-base, bfloat16=130={CORE}",
    "T4, BERT-base (simulated)=6700=0.35",
    "A100, BERT-base (simulated)=64000=2",
    "H100, BERT-base (simulated)=172000=3",
]
BYTES = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "binary": 1 / 8}
LINKS = 32  # Of a row in a graph, at the upper levels; twice as many at the lowest.


def graph_bytes(links: int = LINKS) -> float:
    """Bytes per row of an HNSW graph of faiss, without the vector: links of four bytes, an offset and a level."""
    upper = 1 / (links - 1)  # Expected number of upper levels per row: 1 / M + 1 / M ** 2 + ...
    return 4 * (2 * links + links * upper) + 8 + 4


def vector_bytes(dim: int, precision: str) -> int:
    return int(np.ceil(dim * BYTES[precision]))


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(*names: str) -> None:
    row(*names)
    row(*["---"] * len(names))


def size(total: float) -> str:
    """Bytes in a readable unit."""
    return f"{total / 1e12:.2f} TB" if total >= 1e12 else f"{total / 1e9:.0f} GB"


def time_and_cost(count: float, rates: list[str]) -> None:
    """Hours = texts / rate / 3600; cost = hours x price."""
    head("one core or GPU, model", "texts/s", "hours, one", "hours, 64", "cost")
    for rate in rates:
        name, speed, price = rate.rsplit("=", 2)
        alone = count / float(speed) / 3600
        row(
            name,
            f"{float(speed):,.0f}",
            f"{alone:,.1f}",
            f"{alone / 64:,.1f}",
            f"${alone * float(price):,.0f}",
        )


def storage(count: float, dims: list[int]) -> None:
    """Bytes = texts x dim x bytes of a dimension; in a graph, the links beside."""
    links = graph_bytes()
    print(f"Per vector: all vectors, all in an HNSW graph of {LINKS} links per row, {links:.0f} bytes each\n")
    head("dimensions", *BYTES)
    for dim in dims:
        each = [vector_bytes(dim, name) for name in BYTES]
        row(dim, *(f"{one:,} B: {size(count * one)}, {size(count * (one + links))}" for one in each))


def check(rows: int = 20_000, dim: int = 64) -> None:
    """The bytes per row of an index that faiss has built, and the formula."""
    import faiss

    index = faiss.IndexHNSWFlat(dim, LINKS)
    index.add(np.random.default_rng(0).standard_normal((rows, dim), dtype=np.float32))
    built = faiss.serialize_index(index).nbytes / rows
    print(f"\nfaiss, {rows:,} rows of {dim}: {built:.1f} bytes per row; the formula: {graph_bytes() + 4 * dim:.1f}")
    assert abs(built / (graph_bytes() + 4 * dim) - 1) < 0.02


def measure(sample: int) -> None:
    """Texts per second of processor time on one core."""
    import torch

    from sbert import SentenceEncoder

    torch.set_num_threads(1)
    given = texts(sample)
    head("model", "dtype", "texts/s, one core")
    with tempfile.TemporaryDirectory() as folder:
        for name, made in {"sbert-mini": lambda: "sbert-mini", **models(Path(folder))}.items():
            for dtype in ("float32", "bfloat16"):
                model = SentenceEncoder(str(made()), device="cpu", dtype=dtype)
                part = given[: sample // (10 if name == "bert-base" else 1)]
                seconds = []
                for _ in range(4):  # The first one warms up.
                    begin = time.process_time()
                    model.encode(part, show_progress_bar=False)
                    seconds.append(time.process_time() - begin)
                row(name, dtype, f"{len(part) / min(seconds[1:]):,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=float, default=1e9)
    parser.add_argument("--rate", action="append", metavar="NAME=RATE=PRICE")
    parser.add_argument("--dims", default="256,384,768,1024")
    parser.add_argument("--check", action="store_true", help="compare the bytes of a graph with faiss")
    parser.add_argument("--measure", action="store_true", help="measure this machine's rates of one core")
    parser.add_argument("--sample", type=int, default=8_000)
    options = parser.parse_args()
    if options.measure:
        measure(options.sample)
        return
    dims = [int(dim) for dim in options.dims.split(",")]
    time_and_cost(options.texts, options.rate or RATES)
    print()
    storage(options.texts, dims)
    if options.check:
        check()


if __name__ == "__main__":
    main()
