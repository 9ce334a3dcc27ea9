"""The measurement: one process per contender, which take turns."""

from __future__ import annotations

import multiprocessing
import platform
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch

from sbert.cli.benchmark.ceiling import ceilings
from sbert.cli.benchmark.contenders import OWN, PEERS, serve
from sbert.cli.benchmark.precision import recall_by_precision
from sbert.cli.benchmark.workloads import mixed, short
from sbert.inputs.devices import check_device, default_device
from sbert.inputs.texts import texts_of
from sbert.saving.verification import versions

_SWEEP = {"cpu": (512, 1024, 2048, 4096, 8192, 16384), "cuda": (8192, 16384, 32768, 65536, 131072)}
_QUERIES = 50
_NEAREST = 10
_LINEAR = (1000, 10_000, 100_000)


class Contender:
    """A contender in a separate process.

    Args:
        name: A key of ``OWN`` or ``PEERS``.
        model: A folder, or a name on the hub.
        device: The device to run on.
        threads: Number of threads of torch.
    """

    def __init__(self, name: str, model: str, device: str | None, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=serve, args=(name, model, device, threads, there), daemon=True)
        with _ignoring_interrupts():
            self._process.start()
        there.close()
        said = self._receive()
        self.failure = said if isinstance(said, str) else None
        self.seconds: dict[str, float] = said if isinstance(said, dict) else {}

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join(10)
            return f"its process ended with exit code {self._process.exitcode}"

    def ask(self, what: str, *arguments: Any, **options: Any) -> Any:
        """Send a request to ``serve``, and return the answer.

        Raises:
            RuntimeError: If the contender failed; the message is its reason.
        """
        with suppress(OSError):  # The process has ended; the answer says so.
            self._connection.send((what, arguments, options))
        answer = self._receive()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            with suppress(OSError):
                self._connection.send(None)
        else:  # After an error or Ctrl-C its answer is not needed.
            self._process.terminate()
        self._process.join(10)
        self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes started in this context ignore Ctrl-C; the parent process handles it and ends them."""
    if threading.current_thread() is not threading.main_thread():  # Only the main thread may set handlers.
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


class Field:
    """The contenders that run, and the reasons why others do not.

    Args:
        names: Names of contenders, with ``"sbert"``.
        model: A folder, or a name on the hub.
        device: The device to run on.
        threads: Number of threads of torch.

    Raises:
        ValueError: If ``"sbert"`` cannot run.
    """

    def __init__(self, names: Iterable[str], model: str, device: str | None, threads: int) -> None:
        self.running: dict[str, Contender] = {}
        self.skipped: dict[str, str] = {}
        with ExitStack() as stack:
            for name in names:
                contender = stack.enter_context(Contender(name, model, device, threads))
                if contender.failure is None:
                    self.running[name] = contender
                elif name == "sbert":
                    raise ValueError(f"{model} cannot be measured: {contender.failure}")
                else:
                    self.skipped[name] = contender.failure
            self._stack = stack.pop_all()

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def turns(self, number: int) -> list[str]:
        """The names in the order of a round; each round starts with another contender."""
        names = list(self.running)
        return names[number % len(names) :] + names[: number % len(names)]

    def ask(self, name: str, what: str, *arguments: Any) -> Any:
        """The contender's answer; None if it fails, and it is then removed.

        Raises:
            RuntimeError: If ``"sbert"`` fails.
        """
        try:
            return self.running[name].ask(what, *arguments)
        except RuntimeError as error:
            if name == "sbert":
                raise
            self.skipped[name] = " ".join(str(error).split())
            del self.running[name]
            return None


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
        Everything that ``table`` prints, ready for JSON.

    Raises:
        ValueError: If a peer is unknown, there are no texts, or ``rounds`` or ``sample`` is too small.
    """
    where = check_device(device or default_device())
    names = chosen(against, where)
    texts = None if texts is None else texts_of(texts, "texts")
    if rounds < 1 or sample < 4 or texts == []:
        raise ValueError(f"rounds={rounds}, sample={sample}: pass at least 1 round, a sample of 4 and one text")
    # Distinct texts only: contenders differ in whether they encode repeated texts once.
    given, threads = None if texts is None else list(dict.fromkeys(texts)), torch.get_num_threads()
    with Field(names, model, str(where), threads) as field:
        result: dict[str, Any] = {
            "model": str(model),
            "processor": _processor(),
            "sample": sample,
            "rounds": rounds,
            "facts": field.ask("sbert", "facts"),
            "versions": {**versions(), **_peer_versions()},
            "ceilings": ceilings(where, threads),
            "skipped": field.skipped,
            "loads": {},
        }
        for load, make in (("short", short), ("mixed", mixed)):
            count = sample if load == "short" else sample // 4
            result["loads"][load] = _throughput(field, [make(count, i, given) for i in range(rounds)])
            # Measure again and take the maximum: other programs may have slowed the machine down for a moment.
            again = ceilings(where, threads)
            result["ceilings"] = {name: max(speed, again[name]) for name, speed in result["ceilings"].items()}
        unseen = -(-rounds * sample // _QUERIES)  # The texts after those of the short rounds.
        result["single"] = _latency(field, [short(_QUERIES, unseen + i, given) for i in range(rounds)])
        memory = {name: field.ask(name, "memory") for name in field.turns(0)}
        result["memory"] = {name: memory[name] for name in field.running}
        result["start"] = {name: contender.seconds for name, contender in field.running.items()}
        result["recall"] = _recall(field.running["sbert"], short(sample, 2 * rounds + 1, given))
        result["batch_tokens"] = _sweep(
            field.running["sbert"],
            _SWEEP["cpu" if where.type == "cpu" else "cuda"],
            {"short": short(sample, 2 * rounds, given), "mixed": mixed(sample // 4, 2 * rounds, given)},
        )
    if linear:
        with Contender("sbert", model, str(where), threads) as contender:
            result["linear"] = _linearity(contender, rounds)
    return result


def _peer_versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"sentence-transformers": version("sentence-transformers")}
    except PackageNotFoundError:
        return {}


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
        field.ask(name, "encode", [f"warm {text}" for text in rounds[0][:256]])
    needed = [field.ask("sbert", "useful", texts) for texts in rounds]
    speeds: dict[str, dict[str, list[float]]] = {name: {} for name in field.running}
    vectors: dict[str, np.ndarray] = {}
    for number, texts in enumerate(rounds):
        for name in field.turns(number):
            answer = field.ask(name, "encode", texts)
            if answer is None:
                continue
            seconds, vectors[name] = answer
            speeds[name].setdefault("seconds", []).append(seconds)
            for unit, amount in {"sentences": len(texts), **needed[number]}.items():
                speeds[name].setdefault(unit, []).append(amount / seconds)
    reference = "sentence-transformers" if "sentence-transformers" in field.running else "sbert"
    expected = _unit(vectors[reference])
    report: dict[str, Any] = {"reference": reference, "texts": len(rounds[0]), "rounds": len(rounds)}
    report["tokens"] = sum(need["tokens"] for need in needed) / sum(map(len, rounds))
    report["contenders"] = {
        name: {
            **{unit: float(np.median(values)) for unit, values in speeds[name].items()},
            "seconds": speeds[name]["seconds"],
            "ratio": float(np.median(np.divide(speeds[name]["sentences"], speeds[reference]["sentences"]))),
            "difference": float(np.abs(vectors[name] - vectors[reference]).max()),
            "cosine": float((_unit(vectors[name]) * expected).sum(1).min()),
        }
        for name in field.running
    }
    return report


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def _latency(field: Field, rounds: list[list[str]]) -> dict[str, dict[str, float]]:
    """Milliseconds per single sentence."""
    times: dict[str, list[float]] = {name: [] for name in field.running}
    for number, texts in enumerate(rounds):
        for name in field.turns(number):
            warm = [f"warm {text}" for text in texts[:5]]
            answer = field.ask(name, "latency", warm + texts)
            times[name] += [] if answer is None else answer[len(warm) :]
    return {
        name: {f"p{part}": 1000 * float(np.percentile(times[name], part)) for part in (50, 95, 99)}
        for name in field.running
    }


def _recall(contender: Contender, texts: list[str]) -> dict[str, Any]:
    """Recall of the nearest neighbours of some texts among the others, with vectors in low precision."""
    _, vectors = contender.ask("encode", texts)
    queries, corpus = vectors[::10], np.delete(vectors, np.s_[::10], axis=0)
    ways = recall_by_precision(queries, corpus, _NEAREST)
    return {"top_k": _NEAREST, "queries": len(queries), "texts": len(corpus), "bytes": corpus[0].nbytes, "ways": ways}


def _sweep(contender: Contender, budgets: Sequence[int], loads: dict[str, list[str]]) -> dict[str, Any]:
    """Sentences per second by token budget, the best of two rounds, and the best budget over all loads."""
    speeds: dict[str, dict[int, float]] = {load: dict.fromkeys(budgets, 0.0) for load in loads}
    for turn in range(2):
        for load, texts in loads.items():
            for budget in budgets:
                again = [f"{turn} {budget} {text}" for text in texts]
                seconds, _ = contender.ask("encode", again, batch_tokens=budget)
                speeds[load][budget] = max(speeds[load][budget], len(texts) / seconds)
    best = max(budgets, key=lambda budget: np.prod([speeds[load][budget] for load in loads]))
    return {**{load: {str(b): speed for b, speed in by.items()} for load, by in speeds.items()}, "best": best}


def _linearity(contender: Contender, rounds: int) -> list[dict[str, float]]:
    """Sentences per second for growing numbers of texts, and the growth of the peak memory."""
    contender.ask("grow", _LINEAR[1], 0)  # Warm-up with a full window of texts.
    rows = []
    for count in _LINEAR:
        turns = range(rounds if count < _LINEAR[-1] else 1)
        runs = [contender.ask("grow", count, count + turn) for turn in turns]
        seconds = float(np.median([run["seconds"] for run in runs]))
        grown = sum(run["grown"] for run in runs)
        rows.append({"texts": count, "sentences": count / seconds, "grown": grown, "vectors": runs[0]["vectors"]})
    return rows
