"""``sbert benchmark``: the speed of a model here, beside sentence-transformers if installed.

  sbert benchmark --data texts.txt --dtypes float32,bfloat16

Each library has a process of its own for each dtype. They take turns in each round, on new texts; times are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import accumulate
from multiprocessing import active_children, get_context
from statistics import median, quantiles
from typing import Any

from sbert.cli.options import READING, add_options, at_least, names, read_input
from sbert.cli.output import table
from sbert.inputs.arguments import warn
from sbert.storage import hub

_OTHER = "sentence-transformers"
_SINGLE = 50  # Texts of each round that are encoded one by one.
WORDS = (
    "the a of and light stone river under green slowly house walks seven open sky because bread window friend carries"
    " winter music early garden letters against morning quiet market children remember silver across mountains"
).split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert benchmark``."""
    add = parser.add_argument
    add_options(parser, "model", "--device", *READING, "--json")
    add("--data", dest="texts", metavar="FILE", help="texts; default: synthetic sentences of about 17 tokens")
    add("--dtypes", dest="dtype", type=names, default=["auto"], metavar="A,B", help="such as float32,bfloat16")
    add("--rounds", type=at_least(1), default=3, metavar="N", help="rounds (3)")
    add("--sample", type=at_least(4), default=2000, metavar="N", help="texts per round (2000)")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert benchmark``.

    Raises:
        RuntimeError: If the model cannot run.
        ValueError: If an option or the data is invalid.
    """
    from sbert.inputs.devices import check_device, default_device, parse_dtype, warn_of_slow

    rounds = make_rounds(arguments)
    for dtype in arguments.dtype:
        warn_of_slow(parse_dtype(dtype), check_device(arguments.device or default_device()))
    libraries = ["sbert", *([_OTHER] if find_spec("sentence_transformers") else [])]
    measured: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        processes = {}
        for library, dtype in [(library, dtype) for library in libraries for dtype in arguments.dtype]:
            name = library if dtype == "auto" else f"{library} {dtype}"
            process = stack.enter_context(start_process())
            try:
                first = process.submit(load, library, arguments.model, arguments.device, dtype).result()
            except Exception as error:
                if library == "sbert":
                    raise
                warn(f"{name} does not run this model: {error}")
                continue
            processes[name], measured[name] = process, {"first": first, "texts": [], "single": []}
        for number, texts in enumerate(rounds):
            order = list(processes)
            for name in order[number % len(order) :] + order[: number % len(order)]:
                seconds, singles = processes[name].submit(_measure, texts).result()
                if number:  # The first round is for warming up.
                    measured[name]["texts"].append(len(texts) / seconds)
                    measured[name]["single"] += singles
    results = [_summarize(name, measurements) for name, measurements in measured.items()]
    print(json.dumps(results, indent=2) if arguments.json else _format(results, arguments))


# ------------------------------------------------------------------------------------------------------- the texts


def make_rounds(arguments: argparse.Namespace) -> list[list[str]]:
    """The texts of each round, none of which occurs twice: a library may encode repeated texts once."""
    size = arguments.sample
    counts = [min(256, size), *[size] * arguments.rounds]
    if arguments.texts is None:
        draw = random.Random(0)  # noqa: S311
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(6, 23))) for _ in range(sum(counts))]
    else:
        texts = list(dict.fromkeys(read_input(arguments)[0]))
        laps = -(-sum(counts) // len(texts))
        texts = [f"{lap} " * (lap > 0) + text for lap in range(laps) for text in texts]
    return [texts[end - count : end] for end, count in zip(accumulate(counts), counts, strict=True)]


# --------------------------------------------------------------------------------------------------- the processes


@contextmanager
def start_process() -> Iterator[ProcessPoolExecutor]:
    """A process that ends with the block, immediately after an error or Ctrl-C, which only this process handles."""
    executor = ProcessPoolExecutor(1, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield executor
    except BaseException:
        for child in active_children():
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


_loaded: dict[str, Any] = {}  # The model of this process, and the options of its encode.


def load(library: str, model: str, device: str | None, dtype: str) -> float:
    """Import a library and load the model: seconds until the first vector."""
    begin = time.perf_counter()
    warnings.filterwarnings("ignore", "this CPU has no bfloat16")  # Of which the main process has warned.
    if library == "sbert":
        from sbert.encoder import SentenceEncoder

        encoder: Any = SentenceEncoder(model, device=device, dtype=dtype)
        options = {"on_truncate": "ignore"}
    else:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        path = os.fspath(hub.resolve(model)) if model == hub.MINI else model  # Others do not know its name.
        more = {} if dtype == "auto" else {"dtype": dtype}
        encoder, options = SentenceTransformer(path, device=device, model_kwargs=more), {}
    _loaded.update(encoder=encoder, options={"show_progress_bar": False, **options})
    time_encode(["one text"])
    return time.perf_counter() - begin


def time_encode(texts: Sequence[str]) -> float:
    """Encode texts in one call: seconds."""
    begin = time.perf_counter()
    _loaded["encoder"].encode(texts, **_loaded["options"])
    return time.perf_counter() - begin


def _measure(texts: Sequence[str]) -> tuple[float, list[float]]:
    """Seconds of texts in one call, and of some of them one by one, changed so that none repeats."""
    return time_encode(texts), [time_encode([f"alone {text}"]) for text in texts[:_SINGLE]]


# ------------------------------------------------------------------------------------------------------ the results


def _summarize(name: str, measurements: dict[str, Any]) -> dict[str, Any]:
    singles = [1000 * seconds for seconds in quantiles(measurements["single"], n=20)]
    speed = {"texts_per_second": median(measurements["texts"]), "first_vector_seconds": measurements["first"]}
    return {"name": name, **speed, "single_ms_p50": singles[9], "single_ms_p95": singles[18]}


def _format(results: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    """A table; the ratio is to the first row of sentence-transformers, else to the first of all."""
    others = [result for result in results if result["name"].startswith(_OTHER)]
    reference = [*others, results[0]][0]["texts_per_second"]
    header = ["library", "texts/s", "ratio", "first s", "one: ms", "p95"]
    rows = [
        [name, f"{rate:,.0f}", f"{rate / reference:.2f}", *(f"{time:.2f}" for time in times)]
        for name, rate, *times in (result.values() for result in results)
    ]
    about = "first: until the first vector; one: one text alone, median and 95th percentile"
    return f"{arguments.model}, {arguments.sample:,} texts per round\n\n{table(rows, header)}\n\n{about}"
