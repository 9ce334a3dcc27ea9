"""What works on a GPU, stage by stage: ``sbert doctor --gpu``.

An error of CUDA ends all use of the device in its process, so each stage has a process of its own. Its line is there as
soon as it is known: if the machine hangs, the last line names the stage that did it.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch

from sbert.backends import CallSettings, InferenceCall, attend, max_relative_error, probe_of
from sbert.cli import benchmark
from sbert.cli.diagnosis import diagnose
from sbert.cli.output import facts_table
from sbert.encoder import SentenceEncoder
from sbert.inputs.arguments import warn
from sbert.inputs.devices import driver_version, inference_dtype
from sbert.losses import CosineSimilarityLoss
from sbert.pipeline.run import Encoding, evaluating
from sbert.pipeline.self_check import compare
from sbert.pipeline.settings import EncodeSettings
from sbert.saving.verification import versions
from sbert.search import semantic_search
from sbert.storage.atomic import write_text
from sbert.storage.files import is_out_of_memory, one_line, write_json
from sbert.training import Trainer, TrainingConfig

_TEXTS, _CORPUS = 4096, 200_000  # Texts and vectors that are measured.
_LENGTHS = ((17,) * 512, tuple(range(1, 513, 16)))  # Tokens of rows whose attention is measured.
_LIMIT, _HANGS = 600, "it did not end within"  # Seconds of a stage, and the reason if they do not suffice.
_VARIABLES = re.compile(r"(CUDA|CUBLAS|NVIDIA|NCCL|PYTORCH|TORCH|SBERT|OMP|MKL)_\w+|LD_LIBRARY_PATH")
Facts = dict[str, Any]


class WrongError(Exception):
    """The result of a stage is wrong: the reason, and all facts."""


class Subject(NamedTuple):
    """What is examined: a model on a device, in a dtype."""

    model: str
    device: str
    dtype: str
    name: str = ""

    def load(self, **options: Any) -> SentenceEncoder:
        """The model, loaded anew."""
        return SentenceEncoder(self.model, **{"device": self.device, "dtype": self.dtype, **options})


# -------------------------------------------------------------------------------------------------------- the stages


def _describe(subject: Subject) -> Facts:
    """What this machine has; torch warns if it was built without kernels for a GPU."""
    variables = (f"{name}={value}" for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name))
    facts: Facts = {"model": subject.name, "dtype": subject.dtype, "driver": driver_version(), **versions()}
    facts |= {"torch built for": f"CUDA {torch.version.cuda}", "variables": " ".join(variables) or "none"}
    facts |= {"TF32": torch.backends.cuda.matmul.fp32_precision, "deterministic": torch.get_deterministic_debug_mode()}
    if not torch.cuda.is_available() or (count := torch.cuda.device_count()) <= int(subject.device[5:]):
        why = "a driver is missing, too old or not ready, or CUDA_VISIBLE_DEVICES hides it"
        why = why if torch.version.cuda else "this build of torch has no CUDA"
        raise WrongError(f"there is no {subject.device}: {why}", facts)
    facts["architectures"] = " ".join(torch.cuda.get_arch_list())
    for number in range(count):
        known = torch.cuda.get_device_properties(number)  # An instance of MIG says so in its name.
        size = f"{known.total_memory / 1e9:.0f} GB, {known.multi_processor_count} multiprocessors"
        facts[f"cuda:{number}"] = f"{known.name}, capability {known.major}.{known.minor}, {size}"
    return facts


def _compare(model: SentenceEncoder) -> Facts:
    """The vectors beside those in float32 on the CPU: rows of 2 to 511 tokens, in batches of 1 to 2,000."""
    job, facts = Encoding(model, EncodeSettings(plain=True)), Facts()
    chosen = inference_dtype(model.dtype, model.automatic_dtype, model.device)[0]
    for dtype in dict.fromkeys((model.dtype, chosen)):
        job.inference = InferenceCall(CallSettings(dtype))
        with evaluating(model):
            result = compare(job)
        known = "error {:.1e} of {:.1e}".format(*result) if result else "not compared: a module cannot be copied"
        facts[str(dtype).removeprefix("torch.")] = known
        if result and not result[0] <= result[1]:
            remedy = "; dtype='float32' is nearer" * (dtype != torch.float32)
            raise WrongError(f"DIFFERENT vectors in {dtype} from float32 on the CPU{remedy}", facts)
    return facts


def _explain(model: SentenceEncoder) -> Facts:
    known = diagnose(model)
    return {name: known[name] for name in ("forward", "attention")}


def _attend(subject: Subject) -> Facts:
    """Attention by each kind of call, for two shapes: milliseconds of the first and the second time."""
    device, facts = torch.device(subject.device), Facts()
    dtype = inference_dtype(torch.float32, True, device)[0]

    def call(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        leaves = [x.to(device, dtype).requires_grad_(kind == "trained") for x in values]
        bias = scores.to(device, dtype) if kind == "bias" else None
        result = attend(leaves[0], leaves[1], leaves[2], rows.to(device), bias=bias, causal=kind == "causal")
        if kind == "trained":
            result = torch.cat(torch.autograd.grad(result.float().square().sum(), leaves), -1)
        return result.detach().float().cpu().flatten(1)  # Waits for the device.

    for kind, lengths in itertools.product(("any length", "trained", "causal", "bias"), _LENGTHS):
        rows = probe_of(lengths, 100, torch.device("cpu"))
        values = torch.randn(3, len(rows.ids), 4, 64).to(dtype).float()
        scores = torch.randn(4, rows.longest, rows.longest).to(dtype).float()
        expected, times = call(torch.device("cpu"), torch.float32), list[float]()
        while len(times) < 2:
            begin = time.perf_counter()
            error = max_relative_error(call(device, dtype), expected, rows)
            times.append(1000 * (time.perf_counter() - begin))
            if not error <= 0.0316:
                raise WrongError(f"DIFFERENT attention from the CPU's: {kind}, error {error:.1e}", facts)
        facts[f"{kind} to {max(lengths)}, ms"] = "{:,.3g}, then {:,.3g}".format(*times)
    return facts


def _draw(count: int, seed: int, least: int = 10, most: int = 20) -> list[str]:
    """Texts of 10 to 20 words."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(benchmark.WORDS, draw.integers(least, most + 1))) for _ in range(count)]


def _check_same(vectors: Any, expected: Any, what: str) -> None:
    error = float(np.abs(vectors - expected).max() / np.abs(expected).max())
    if not error <= 0.01:
        raise WrongError(f"DIFFERENT vectors {what}: error {error:.1e}", {})


def _take_turns(subject: Subject) -> Facts:
    """Two models in turns; one is freed, and the other one goes on."""
    texts, first, second = _draw(_TEXTS // 8, 0), subject.load(), subject.load()
    expected = first.encode(texts, on_truncate="ignore")
    _check_same(second.encode(texts, on_truncate="ignore"), expected, "by a second model")
    del first
    gc.collect()
    torch.cuda.empty_cache()
    _check_same(second.encode(texts, on_truncate="ignore"), expected, "after another model was freed")
    return {"models": 2}


def _use_threads(subject: Subject) -> Facts:
    """Two threads on streams of their own share a model."""
    model, texts = subject.load(), [_draw(_TEXTS // 16, seed) for seed in range(2)]

    def work(texts: list[str]) -> Any:
        with torch.cuda.stream(torch.cuda.Stream(model.device)):  # type: ignore[no-untyped-call]
            return np.stack([model.encode(texts, on_truncate="ignore") for _ in range(4)])

    expected = [model.encode(each, on_truncate="ignore") for each in texts]
    with ThreadPoolExecutor(2) as pool:
        for vectors, reference in zip(pool.map(work, texts), expected, strict=True):
            _check_same(vectors, reference, "in a second thread")
    return {"threads": 2, "calls": 8}


def _train(subject: Subject, dtype: str, then: Callable[[SentenceEncoder], Facts] = lambda _: {}) -> Facts:
    """Some steps of training in a dtype, and what is to be known of the model then."""
    model, texts = subject.load(dtype="auto", default_prompt_name=None), _draw(64, 1)
    rows = [(text, other, number % 2) for number, (text, other) in enumerate(zip(texts, texts[::-1], strict=True))]
    config = TrainingConfig(steps=6, batch_size=32, dtype=dtype)
    [*_, last] = Trainer(model, rows, CosineSimilarityLoss(), config).fit(show_progress_bar=False)
    facts = {"loss": last["loss"], "sentences/s": last["sentences_per_second"]}
    return {**facts, "peak, GB": torch.cuda.max_memory_allocated(model.device) / 1e9, **then(model)}


def _search(subject: Subject) -> Facts:
    """The best rows on the GPU are those on the CPU."""
    draw, times = torch.Generator().manual_seed(0), []
    corpus = torch.randn(_CORPUS, 384, generator=draw)
    queries = corpus[:100] + torch.randn(100, 384, generator=draw)
    expected = semantic_search(queries.numpy(), corpus.numpy(), 10).indices
    queries, corpus = queries.to(subject.device), corpus.to(subject.device)
    for _ in range(2):
        begin = time.perf_counter()
        indices = semantic_search(queries, corpus, 10).indices
        times.append(1000 * (time.perf_counter() - begin))
        if not np.array_equal(indices, expected):
            raise WrongError("DIFFERENT results from those of the CPU", {})
    return {f"100 of {_CORPUS:,}, ms": times[1]}


def _measure(subject: Subject, library: str) -> Facts:
    """Texts per second, of new texts in a second call; and milliseconds of one text."""
    facts: Facts = {"first vector, s": benchmark.load(library, *subject[:3])}
    for name, (least, most) in {"short texts/s": (10, 20), "mixed texts/s": (10, 300)}.items():
        facts[name] = [_TEXTS / benchmark.encode(_draw(_TEXTS, seed, least, most)) for seed in range(2)][1]
    singles = [1000 * benchmark.encode([text]) for text in _draw(200, 2)][20:]
    facts["one text, ms"], facts["p95"] = np.percentile(singles, (50, 95)).tolist()
    return facts


_PLAIN, _OTHER, _PACKAGE = "SBERT_BACKEND=plain avoids it", "sentence-transformers", "sentence_transformers"
# What runs, and what to do where it fails.
STAGES: dict[str, tuple[Callable[[Subject], Facts], str]] = {
    "environment": (_describe, "install a driver, and the build of torch for it (pytorch.org/get-started)"),
    "plain vectors": (lambda subject: _compare(subject.load(backend="plain")), "--device cpu avoids it"),
    "vectors": (lambda subject: _compare(model := subject.load()) | _explain(model), _PLAIN),
    "attention": (_attend, _PLAIN),
    "two models": (_take_turns, _PLAIN),
    "threads": (_use_threads, "a lock around encode avoids it"),
    "fine-tuning": (partial(_train, dtype="float32", then=_compare), _PLAIN),
    **{f"train in {x}": (partial(_train, dtype=x), "dtype='float32' avoids it") for x in ("bfloat16", "float16")},
    "search": (_search, "vectors on the CPU (NumPy arrays) avoid it"),
    "speed": (partial(_measure, library="sbert"), _PLAIN),
    _OTHER: (partial(_measure, library=_OTHER), "nothing here needs it"),
}


# ----------------------------------------------------------------------------------------------- the process of a stage


def main(stage: str, subject: str, result: str) -> None:
    """Run a stage in this process, and write its result."""
    record: Facts = {"facts": {}}
    faulthandler.dump_traceback_later(_LIMIT - 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            record["facts"] = STAGES[stage][0](Subject(*json.loads(subject)))
        except WrongError as error:
            record["reason"], record["facts"] = error.args
        except BaseException as error:
            if is_out_of_memory(error):
                record["facts"] = {"not examined": one_line(error)}
            else:
                record |= {"reason": one_line(error), "traceback": traceback.format_exc()}
    record["warnings"] = sorted({str(each.message) for each in caught if each.category is UserWarning})
    write_json(Path(result), record)


def start(arguments: list[str], environment: Mapping[str, str], log: BinaryIO) -> int:
    """Run a stage in a process of its own, and return its exit code."""
    command = [sys.executable, "-X", "faulthandler", "-m", "sbert.cli.gpu_doctor", *arguments]
    given: Facts = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
    return subprocess.run(command, env=dict(environment), timeout=_LIMIT, **given).returncode  # noqa: S603


def _run(stage: str, subject: Subject, **variables: str) -> Facts:
    """The result of a stage; the reason and all that was printed, if it failed or died."""
    with tempfile.TemporaryDirectory() as folder:
        result, log, code = Path(folder, "result.json"), Path(folder, "log"), 0
        with log.open("wb") as file:
            try:
                code = start([stage, json.dumps(subject), str(result)], os.environ | variables, file)
                ended = f"the process ended with {code}"
            except subprocess.TimeoutExpired:
                ended = f"{_HANGS} {_LIMIT} seconds"
        said = log.read_text(encoding="utf-8", errors="replace")
        if not result.exists():
            return {"reason": ended, "traceback": said, "facts": {}, "warnings": []}
        record: Facts = json.loads(result.read_text(encoding="utf-8"))
    if "traceback" in record or code:
        record = {"reason": ended, **record, "traceback": record.get("traceback", "") + said}
    return record


# ----------------------------------------------------------------------------------------------------- the report


def examine(subject: Subject, report: Path | None, as_json: bool) -> int:
    """Run all stages, and print and write a line for each as soon as it is known: 0 if all is well, 1 if not.

    Args:
        subject: What is examined.
        report: Folder for gpu.jsonl, the lines as JSON, and gpu.md, a table for an issue.
        as_json: Whether to print JSON.
    """
    records: list[Facts] = []
    stages = [("environment", "environment", subject)]
    for title, name, own in stages:
        _put({"stage": title}, records, report, as_json)
        try:
            record = _run(name, own)
            if "traceback" in record and not record["reason"].startswith(_HANGS):
                again = _run(name, own, CUDA_LAUNCH_BLOCKING="1")
                record["again"] = again.get("reason", "it works")
                record["traceback"] = again.get("traceback") or record["traceback"]
        except Exception as error:  # The disk is full, say; the next stage may tell more.
            record = {"reason": one_line(error), "facts": {}, "warnings": []}
        records.append({"stage": title, **record, "remedy": STAGES[name][1]})
        _put(records[-1], records, report, as_json)
        if len(stages) == 1 and "reason" not in record:
            others = [gpu for gpu in record["facts"] if gpu.startswith("cuda:") and gpu != own.device]
            stages += [(name, name, subject) for name in list(STAGES)[1:] if name != _OTHER or find_spec(_PACKAGE)]
            stages += [(f"vectors, {gpu}", "vectors", subject._replace(device=gpu)) for gpu in others]
    return int(any("reason" in record for record in records))


def _put(record: Facts, records: list[Facts], report: Path | None, as_json: bool) -> None:
    """Print the start of a stage, or what is known of it, and write it to the report, at once."""
    line, is_known = json.dumps(record), "facts" in record
    start = facts_table({record["stage"]: "?"})[:-1]
    if as_json:
        print(line, flush=True)
    elif is_known:
        print(facts_table({record["stage"]: _summarize(record)})[len(start) :], flush=True)
    else:
        print(start, end="", flush=True)
    if report is None:
        return
    try:
        with (report / "gpu.jsonl").open("a", encoding="utf-8") as file:
            print(line, file=file, flush=True)
            os.fsync(file.fileno())
        write_text(report / "gpu.md", _page(records if is_known else [*records, record]))
    except OSError as error:
        warn(f"the report is not complete: {error}")


def _page(records: list[Facts]) -> str:
    """A table in Markdown, and what failed stages have printed."""
    cells = [("stage", "result"), ("---", "---"), *((each["stage"], _summarize(each)) for each in records)]
    page = "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells)
    said = [f"\n{each['stage']}:\n\n```text\n{each['traceback']}\n```\n" for each in records if "traceback" in each]
    return page + "".join(said)


def _summarize(record: Facts) -> str:
    """What is known of a stage, in one line."""
    if "facts" not in record:
        return "it runs, or has ended this program"
    parts = [f"FAILED: {record['reason']}", record["remedy"]] if "reason" in record else ["ok"]
    if "again" in record:
        parts.append(f"again, with CUDA_LAUNCH_BLOCKING=1: {record['again']}")
    parts += [f"warning: {warning}" for warning in record["warnings"]]
    for name, value in record["facts"].items():
        parts.append(f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}")
    return " ".join("; ".join(parts).split())


if __name__ == "__main__":
    main(*sys.argv[1:])
