"""Speed of this library, of sentence-transformers and of other runtimes: many texts, one sentence; and the ceiling.

python -m tests.benchmarks.contenders --data stsb/train.tsv --column sentence1 [--sample 2500] [--rounds 5] [--busy]
    [--model all-MiniLM-L6-v2] [--only sbert,openvino] [--work short,mixed,one,eight]

Every contender has a process of its own, which loads once; they take turns on new texts in each round, after a short
one to warm up. "short" are the texts of the file, "mixed" a quarter as many, each one to twenty of them joined; "one"
are 200 texts in a call each, and with ``--busy`` others beside a process that only counts; "eight" are eight threads
that encode 25 texts each, one by one. A figure is the median over
the rounds; in brackets, how many times as fast as sentence-transformers in float32 (the median of the ratios). The last
columns compare the vectors of all these texts with its vectors, at length 1. "ceiling" is the part of the fastest
matrix product of this machine in that dtype that the operations of the texts reach, without padding, attention in full.
Few texts in all make batches of very different lengths, which cost those who pad: keep to thousands.

OpenVINO and ONNX Runtime run what ``sbert export`` writes, with as many threads as torch; "openvino default" computes
in bfloat16 where the processor has it. They and CTranslate2 have the thinnest code around them: ``tokenizers``, texts
sorted by their number of tokens, batches of 32 padded to their longest. "sbert onnx" and "sbert openvino" are
``SentenceEncoder(backend=)``. Pooling for CTranslate2, which has none, is our
own, as in "padded", the loop of a tutorial: the mean alone. ``sbert-mini`` is the bundled model, of another dim. What
is not installed is left out: ``pip install "sbert[onnx]" openvino ctranslate2``.

``--model`` takes a folder, or a size of ``runtimes.MODELS``: random weights and the vocabulary of all-MiniLM-L6-v2, so
that the speed is that of the real one, and the vectors mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import Timer

from sbert.cli.benchmark import start_process
from sbert.data import read_texts
from tests.benchmarks.runtimes import LIBRARIES, OWN, Plan, prepare
from tests.benchmarks.turns import MODEL, OTHER, Round, compete, make_loads, processor

SINGLES, CALLERS, LIMIT = 200, 8, 600  # Texts one by one; threads; seconds after which a contender is ended.
CONTENDERS = [f"{OTHER} float32", f"{OTHER} bfloat16", "sbert float32", "sbert bfloat16", "sbert 32 in input order"]
CONTENDERS += ["sbert onnx", "sbert onnx int8", "sbert openvino", "onnxruntime int8"]
CONTENDERS += ["padded 32 in input order", "openvino float32", "openvino default", "onnxruntime float32"]
CONTENDERS += ["ctranslate2 float32", "ctranslate2 int8", OWN]


def ceiling(dtype: torch.dtype) -> float:
    """Operations per second of the fastest matrix product, of those sizes that a batch of BERT has or larger ones."""
    speeds = []
    for rows, inner, columns in ((2048, 768, 3072), (4096, 4096, 4096)):
        a, b = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
        names = {"f": torch.nn.functional.linear, "a": a, "b": b}
        timer = Timer("f(a, b)", globals=names, num_threads=torch.get_num_threads())
        speeds.append(2 * rows * inner * columns / min(timer.blocked_autorange(min_run_time=0.5).times))
    return max(speeds)


@contextmanager
def counting() -> Iterator[None]:
    """Beside a process that only counts; it ends with this one at the latest."""
    lines = ("import os", "parent = os.getppid()", "print(flush=True)", "while os.getppid() == parent:")
    program = "\n".join([*lines, "    for number in range(1_000_000):", "        pass"])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()  # type: ignore[union-attr]
            yield
        finally:
            process.kill()


def make_round(name: str, plan: Plan) -> Round:
    """What the process of a contender measures in each round."""
    library, _, what = name.partition(" ")
    encode = LIBRARIES[library].encoder(what, plan)
    dtype = "float32" if "input order" in what else what

    def run(number: int) -> tuple[dict[str, float], Any]:
        count, singles = (plan.sample, SINGLES) if number else (max(4, plan.sample // 4), SINGLES // 4)
        figures: dict[str, float] = {}
        vectors = []
        for load, texts in make_loads(plan.texts, count, number).items():
            if load in plan.work:
                gc.collect()
                begin = time.perf_counter()
                vectors.append(encode(texts))
                taken = time.perf_counter() - begin
                figures[f"{load}: texts/s"] = len(texts) / taken
                if dtype in plan.ceilings:
                    share = plan.operations[number][load] / taken / plan.ceilings[dtype]
                    figures[f"{load}: ceiling, %"] = 100 * share
        for busy in (False, True)[: 1 + plan.busy] if "one" in plan.work else ():
            seconds = []
            with counting() if busy else nullcontext():
                for text in make_loads(plan.texts, singles, 2 * number + busy)["short"]:
                    text = f"Then {text}"
                    begin = time.perf_counter()
                    vectors.append(encode([text]))
                    seconds.append(time.perf_counter() - begin)
            middle, high = 1000 * np.percentile(seconds, (50, 95))
            figures |= {f"{'busy' if busy else 'one'}: p50, ms": middle, f"p95{' busy' if busy else ''}, ms": high}
        if "eight" in plan.work:
            texts = make_loads(plan.texts, singles, 2 * number)["short"]
            with ThreadPoolExecutor(CALLERS) as threads:
                begin = time.perf_counter()
                vectors += threads.map(lambda text: encode([text]), texts)
                figures["eight: texts/s"] = singles / (time.perf_counter() - begin)
        return figures, None if library == OWN else np.concatenate([np.asarray(part, np.float32) for part in vectors])

    return run


# ------------------------------------------------------------------------------------------------------ the program


def choose(only: str | None, model: str) -> list[str]:
    """The names that are meant and whose packages are installed, the reference first; says which others are not."""
    names = [name for name in CONTENDERS if name != OWN or model == MODEL]
    for part in only.split(",") if only else ():
        if not any(name == part or name.startswith(f"{part} ") for name in names):
            sys.exit(f"no contender is called {part!r}; there are: {', '.join(names)}")
    parts = only.split(",") if only else names
    meant = [n for n in names if n in parts or any(n.startswith(f"{part} ") for part in parts if part not in names)]
    chosen = []
    for name in dict.fromkeys([names[0], *meant]):
        missing = [package for package in LIBRARIES[name.split(" ")[0]].packages if find_spec(package) is None]
        if missing:
            print(f"{name} is left out: the package {missing[0]} is not installed", flush=True)
        else:
            chosen.append(name)
    return chosen


def heading(threads: int, names: list[str]) -> str:
    packages = {package for name in names for package in LIBRARIES[name.split(" ")[0]].packages}
    listed = ["torch", "transformers", "tokenizers", *sorted(packages - {"onnx", "onnxscript"})]
    versions = ", ".join(f"{package} {version(package)}" for package in listed)
    return f"{processor()}, {torch.backends.cpu.get_cpu_capability()}, {threads} threads; {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--column")
    parser.add_argument("--sample", type=int, default=2500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--only")
    parser.add_argument("--work", default="short,mixed,one,eight")
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    model = MODEL if options.model == "all-MiniLM-L6-v2" else options.model
    texts = list(dict.fromkeys(read_texts(options.data, options.column)))
    texts = [texts[row] for row in np.random.default_rng(0).permutation(len(texts))]  # Rounds alike.
    names, threads = choose(options.only, model), torch.get_num_threads()
    print(f"### {heading(threads, names)}", flush=True)
    ceilings = {dtype: max(ceiling(getattr(torch, dtype)) for _ in range(3)) for dtype in ("float32", "bfloat16")}
    said = ", ".join(f"{dtype} {speed / 1e9:,.0f} GFLOP/s" for dtype, speed in ceilings.items())
    print(f"\nThe fastest matrix product: {said}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        rest = (options.sample, options.rounds, options.work.split(","), options.busy, threads, ceilings)
        kinds = {LIBRARIES[name.split(" ")[0]].kind for name in names}
        with start_process() as process:
            plan, failures = process.submit(prepare, Plan(model, Path(temporary), texts, *rest), kinds).result()
        for name in list(names):
            if reason := failures.get(LIBRARIES[name.split(" ")[0]].kind):
                names.remove(name)
                print(f"{name} is left out: {reason}", flush=True)
        makers = {name: partial(make_round, name, plan) for name in names}
        compete(Path(options.model).name, makers, options.rounds, LIMIT)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the processes end as well.
    main()
