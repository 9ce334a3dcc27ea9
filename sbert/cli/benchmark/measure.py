"""The measurement: one process per contender, which take turns."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.cli.benchmark.ceiling import ceilings
from sbert.cli.benchmark.contenders import OWN, PEERS
from sbert.cli.benchmark.precision import recall_by_precision
from sbert.cli.benchmark.processes import Field, started
from sbert.cli.benchmark.workloads import mixed, short
from sbert.inputs.devices import check_device, default_device
from sbert.inputs.texts import texts_of
from sbert.saving import verification

_SWEEP = {"cpu": (512, 1024, 2048, 4096, 8192, 16384), "cuda": (8192, 16384, 32768, 65536, 131072)}
_QUERIES = 50
_NEAREST = 10
_LINEAR = (1000, 10_000, 100_000)


def chosen(against: Iterable[str] | None, device: torch.device) -> list[str]:
    """Check and return the names of the contenders.

    Raises:
        ValueError: If a peer is unknown.
    """
    peers = list(PEERS if against is None else against)
    if against is None and device.type == "cpu":
        peers.remove("sentence-transformers-best")
    for name in peers:
        if name not in PEERS:
            raise ValueError(f"--against {name!r} is unknown; pass one or more of {', '.join(PEERS)}")
    return [name for name in OWN if name != "sbert-float32" or device.type == "cuda"] + peers


def benchmark(
    model: str,
    texts: Sequence[str] | None = None,
    *,
    against: Iterable[str] | None = None,
    device: str | None = None,
    rounds: int = 3,
    sample: int = 2000,
    linear: bool = False,
) -> dict[str, Any]:
    """Measure speed, memory and accuracy of a model, compared with other libraries, and recall in low precision.

    Each contender has its own process. They take turns in each round, on new texts, so that a change in the speed of
    the machine affects all of them. Results are medians over the rounds.

    Args:
        model: A folder, or a name on the hub.
        texts: Short texts in their natural order; default: synthetic texts of about 17 tokens.
        against: Other libraries; default: those that are installed.
        device: The device to run on.
        rounds: Number of rounds.
        sample: Number of short texts per round; texts of mixed length are a quarter as many.
        linear: Whether to measure 1,000, 10,000 and 100,000 texts as well.

    Returns:
        Everything that ``show.report`` prints, ready for JSON.

    Raises:
        ValueError: If a peer is unknown, or there are no texts.
    """
    where = check_device(device or default_device())
    names = chosen(against, where)
    if texts is not None:
        # Distinct texts only: contenders differ in whether they encode repeated texts once.
        texts = list(dict.fromkeys(texts_of(texts, "texts")))
        if not texts:
            raise ValueError("there are no texts; pass at least one")
    threads = torch.get_num_threads()
    with started(names, model, str(where), threads) as field:
        result: dict[str, Any] = {
            "model": str(model),
            "processor": _processor(),
            "sample": sample,
            "rounds": rounds,
            "facts": field.ask("sbert", "facts"),
            "versions": _versions(),
            "ceilings": ceilings(where, threads),
            "skipped": field.skipped,
            "loads": {},
        }
        for load, make, count in (("short", short, sample), ("mixed", mixed, sample // 4)):
            result["loads"][load] = _throughput(field, [make(count, i, texts) for i in range(rounds)])
            # Measure again and take the maximum: other programs may have slowed the machine down for a moment.
            again = ceilings(where, threads)
            result["ceilings"] = {name: max(speed, again[name]) for name, speed in result["ceilings"].items()}
        unseen = -(-rounds * sample // _QUERIES)  # The texts after those of the short rounds.
        result["single"] = _latency(field, [short(_QUERIES, unseen + i, texts) for i in range(rounds)])
        memory = {name: field.ask(name, "memory") for name in field.turns(0)}
        result["memory"] = {name: memory[name] for name in field.running}
        result["start"] = {name: field.start[name] for name in field.running}
        result["recall"] = _recall(field, short(sample, 2 * rounds + 1, texts))
        loads = {"short": short(sample, 2 * rounds, texts), "mixed": mixed(sample // 4, 2 * rounds, texts)}
        result["batch_tokens"] = _sweep(field, _SWEEP["cpu" if where.type == "cpu" else "cuda"], loads)
    if linear:
        with started(["sbert"], model, str(where), threads) as field:
            result["linear"] = _linearity(field, rounds)
    return result


def _versions() -> dict[str, str]:
    found = dict(verification.versions())
    with suppress(PackageNotFoundError):
        found["sentence-transformers"] = version("sentence-transformers")
    return found


def _processor() -> str:
    """The name of the CPU; on Linux it is in a file."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _throughput(field: Field, rounds: list[list[str]]) -> dict[str, Any]:
    """Sentences, tokens and operations per second, and the difference of the vectors from the reference."""
    for name in field.turns(0):  # Warm-up: libraries are initialized and memory is allocated.
        field.ask(name, "timed", [f"warm {text}" for text in rounds[0][:256]])
    needed = [{"sentences": len(texts), **field.ask("sbert", "useful", texts)} for texts in rounds]
    seconds: dict[str, list[float]] = {name: [] for name in field.running}
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    for number, texts in enumerate(rounds):
        for name in field.turns(number):
            answer = field.ask(name, "timed", texts)
            if answer is not None:
                taken, vectors[name] = answer
                seconds[name].append(taken)
    reference = "sentence-transformers" if "sentence-transformers" in field.running else "sbert"
    tokens = sum(need["tokens"] for need in needed) / sum(map(len, rounds))
    report: dict[str, Any] = {"reference": reference, "texts": len(rounds[0]), "rounds": len(rounds), "tokens": tokens}
    report["contenders"] = {
        name: {
            **{unit: _median([need[unit] for need in needed], seconds[name]) for unit in needed[0]},
            "seconds": seconds[name],
            "ratio": _median(seconds[reference], seconds[name]),
            "difference": float(np.abs(vectors[name] - vectors[reference]).max()),
            "cosine": _least_cosine(vectors[name], vectors[reference]),
        }
        for name in field.running
    }
    return report


def _median(amounts: list[float], seconds: list[float]) -> float:
    return float(np.median(np.divide(amounts, seconds)))


def _least_cosine(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    one, two = (torch.from_numpy(vectors).double() for vectors in (a, b))
    return float(torch.cosine_similarity(one, two).min())


def _latency(field: Field, rounds: list[list[str]]) -> dict[str, dict[str, float]]:
    """Milliseconds per single sentence."""
    times: dict[str, list[float]] = {name: [] for name in field.running}
    for number, texts in enumerate(rounds):
        warm = [f"warm {text}" for text in texts[:5]]
        for name in field.turns(number):
            times[name] += (field.ask(name, "latencies", warm + texts) or [])[len(warm) :]
    return {
        name: {f"p{part}": 1000 * float(np.percentile(times[name], part)) for part in (50, 95, 99)}
        for name in field.running
    }


def _recall(field: Field, texts: list[str]) -> dict[str, Any]:
    """Recall of the nearest neighbours of some texts among the others, with vectors in low precision."""
    _, vectors = field.ask("sbert", "timed", texts)
    queries, corpus = vectors[::10], np.delete(vectors, np.s_[::10], axis=0)
    ways = recall_by_precision(queries, corpus, _NEAREST)
    return {"top_k": _NEAREST, "queries": len(queries), "texts": len(corpus), "bytes": corpus[0].nbytes, "ways": ways}


def _sweep(field: Field, budgets: Sequence[int], loads: dict[str, list[str]]) -> dict[str, Any]:
    """Sentences per second by token budget, the best of two rounds, and the best budget over all loads."""
    speeds: dict[str, dict[str, float]] = {load: {str(budget): 0.0 for budget in budgets} for load in loads}
    for turn in range(2):
        for load, texts in loads.items():
            for budget in budgets:
                again = [f"{turn} {budget} {text}" for text in texts]
                seconds, _ = field.ask("sbert", "timed", again, batch_tokens=budget)
                speeds[load][str(budget)] = max(speeds[load][str(budget)], len(texts) / seconds)
    best = max(budgets, key=lambda budget: np.prod([speeds[load][str(budget)] for load in loads]))
    return {**speeds, "best": best}


def _linearity(field: Field, rounds: int) -> list[dict[str, float]]:
    """Sentences per second for growing numbers of texts, and the growth of the peak memory."""
    field.ask("sbert", "grow", _LINEAR[1], 0)  # Warm-up with a full window of texts.
    rows = []
    for count in _LINEAR:
        turns = range(rounds if count < _LINEAR[-1] else 1)
        runs = [field.ask("sbert", "grow", count, count + turn) for turn in turns]
        speed = count / float(np.median([run["seconds"] for run in runs]))
        grown = sum(run["grown"] for run in runs)
        rows.append({"texts": count, "sentences": speed, "grown": grown, "vectors": runs[0]["vectors"]})
    return rows
