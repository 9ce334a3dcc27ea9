"""What works on a GPU, stage by stage: ``sbert doctor --gpu``.

An error of CUDA ends all use of the device in its process, so each stage has a process of its own. Its name is printed
before it starts: if the machine hangs, the last line names the stage that did it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch

from sbert.backends import attend, probe_of
from sbert.cli import benchmark
from sbert.cli.diagnosis import diagnose
from sbert.encoder import SentenceEncoder
from sbert.inputs.devices import build_hint, driver_version, inference_dtype, missing_kernels
from sbert.losses import CosineSimilarityLoss
from sbert.pipeline.self_check import compare, vector_tolerance
from sbert.saving.verification import versions
from sbert.search import semantic_search
from sbert.storage.files import is_out_of_memory, one_line
from sbert.training import Trainer, TrainingConfig

_TEXTS, _CORPUS, _LIMIT = 4096, 200_000, 600.0  # Texts and vectors that are measured; seconds of a stage.
Facts = dict[str, Any]


class Subject(NamedTuple):
    """What is examined: a model on a device, in a dtype."""

    model: str
    device: str
    dtype: str

    def load(self, **options: Any) -> SentenceEncoder:
        """The model, loaded again."""
        return SentenceEncoder(self.model, **{"device": self.device, "dtype": self.dtype, **options})


def _check(result: Any, expected: Any, limit: float, what: str) -> float:
    error = float(np.abs(np.subtract(result, expected)).max() / np.abs(expected).max())
    if not error <= limit:  # NaN is not.
        raise AssertionError(f"DIFFERENT {what}: error {error:.1e}, where {limit:.1e} is allowed")
    return error


def _describe(subject: Subject) -> Facts:
    """What this machine has, and why it cannot be used, if so."""
    facts: Facts = {"driver": driver_version(), "torch built for": f"CUDA {torch.version.cuda}", **versions()}
    facts |= {name: value for name, value in os.environ.items() if name.startswith(("CU", "NCCL", "PYTORCH", "SBERT"))}
    facts |= {f"cuda:{gpu}": torch.cuda.get_device_properties(gpu) for gpu in range(torch.cuda.device_count())}
    absent = f"no {subject.device}: a driver is missing or too old, or CUDA_VISIBLE_DEVICES hides the GPU"
    reason = missing_kernels(torch.device(subject.device)) if subject.device in facts else build_hint() or absent
    if reason is not None:
        raise RuntimeError(f"{reason} ({facts})")
    return facts


def _compare(model: SentenceEncoder) -> Facts:
    """The vectors beside those in float32 on the CPU, in the dtype of the weights and in that of ``encode``."""
    dtypes = {model.dtype, inference_dtype(model.dtype, model.automatic_dtype, model.device)[0]}
    errors = {dtype: compare(model.eval(), model.device, dtype) or 0.0 for dtype in dtypes}
    return {
        f"error in {dtype}": _check(1 + error, 1, vector_tolerance(dtype), "vectors") for dtype, error in errors.items()
    }


def _attend(subject: Subject) -> Facts:
    """Attention by each kind of call, for rows of many lengths."""
    gpu, cpu = torch.device(subject.device), torch.device("cpu")
    dtype, rows = inference_dtype(torch.float32, True, gpu)[0], probe_of((*range(512, 0, -32), *(17,) * 64), 100, cpu)
    inputs = [torch.randn(len(rows.ids), 4, 64) for _ in range(3)] + [torch.randn(4, rows.longest, rows.longest)]

    def attend_on(device: torch.device, used: torch.dtype) -> dict[str, torch.Tensor]:
        q, k, v, scores = (x.to(device, used) for x in inputs)
        kinds: dict[str, dict[str, Any]] = {"plain": {}, "causal": {"causal": True}, "bias": {"bias": scores}}
        return {kind: attend(q, k, v, rows.to(device), **more).float().cpu() for kind, more in kinds.items()}

    expected, limit = attend_on(cpu, torch.float32), vector_tolerance(dtype)
    return {kind: _check(x, expected[kind], limit, f"attention ({kind})") for kind, x in attend_on(gpu, dtype).items()}


def _draw(count: int, seed: int, most: int = 20) -> list[str]:
    """Texts of 10 words to this number."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(benchmark.WORDS, draw.integers(10, most + 1))) for _ in range(count)]


def _use_two_threads(subject: Subject) -> Facts:
    """Two threads on streams of their own share a model."""
    model, texts = subject.load(), [_draw(_TEXTS // 16, seed) for seed in range(2)] * 4

    def work(texts: list[str]) -> Any:
        with torch.cuda.stream(torch.cuda.Stream(model.device)):  # type: ignore[no-untyped-call]
            return model.encode(texts, on_truncate="ignore")

    expected = list(map(work, texts))
    with ThreadPoolExecutor(2) as pool:
        return {"error": _check(list(pool.map(work, texts)), expected, 0.01, "vectors of two threads")}


def _train(subject: Subject, dtype: str) -> Facts:
    """Some steps of training in a dtype, and the vectors then."""
    model, texts = subject.load(dtype="auto", default_prompt_name=None), _draw(64, 1)
    rows = [(text, texts[-number], number % 2) for number, text in enumerate(texts, start=1)]
    config = TrainingConfig(steps=6, batch_size=32, dtype=dtype)
    [*_, last] = Trainer(model, rows, CosineSimilarityLoss(), config).fit(show_progress_bar=False)
    facts = {"loss": last["loss"], "sentences/s": last["sentences_per_second"]}
    return {**facts, "peak, GB": torch.cuda.max_memory_allocated(model.device) / 1e9, **_compare(model)}


def _search(subject: Subject) -> Facts:
    """The best rows on the GPU are those on the CPU."""
    corpus = torch.randn(_CORPUS, 384, generator=torch.Generator().manual_seed(0))
    queries = corpus[:100] + corpus[100:200]
    hits = semantic_search(queries.to(subject.device), corpus.to(subject.device), 10)
    return {"error": _check(hits.indices, semantic_search(queries.numpy(), corpus.numpy(), 10).indices, 0, "hits")}


def _measure(subject: Subject) -> Facts:
    """Texts per second, of new texts in a second call; and milliseconds of one text."""
    facts: Facts = {"first vector, s": benchmark.load("sbert", *subject)}
    for name, most in {"short texts/s": 20, "mixed texts/s": 300}.items():
        facts[name] = [_TEXTS / benchmark.time_encode(_draw(_TEXTS, seed, most=most)) for seed in range(2)][1]
    facts["one text, ms"] = float(np.median([1000 * benchmark.time_encode([text]) for text in _draw(200, 2)]))
    return facts


_PLAIN = "SBERT_BACKEND=plain avoids it"
# What runs, and what to do where it fails.
STAGES: dict[str, tuple[Callable[[Subject], Facts], str]] = {
    "environment": (_describe, "install a driver, and the build of torch for it (pytorch.org/get-started)"),
    "plain vectors": (lambda subject: _compare(subject.load(backend="plain")), "--device cpu avoids it"),
    "vectors": (lambda subject: _compare(model := subject.load()) | diagnose(model), _PLAIN),
    "attention": (_attend, _PLAIN),
    "threads": (_use_two_threads, "a lock around encode avoids it"),
    **{f"train in {x}": (partial(_train, dtype=x), _PLAIN) for x in ("float32", "bfloat16", "float16")},
    "search": (_search, "vectors on the CPU (NumPy arrays) avoid it"),
    "speed": (_measure, _PLAIN),
}


def run(stage: str, subject: Subject) -> str:
    """What a stage finds, in its process: one line."""
    facts = STAGES[stage][0](subject).items()
    return "; ".join(["ok", *(f"{name} {x:,.4g}" if isinstance(x, float) else f"{name} {x}" for name, x in facts)])


def examine(subject: Subject, report: TextIO) -> int:
    """Run all stages, and print a line for each: 0 if all is well, 1 if not.

    Args:
        subject: What is examined.
        report: A file for the same lines, as they come, and for the tracebacks of stages that fail.
    """
    failed = False
    others = [f"vectors, cuda:{gpu}" for gpu in range(torch.cuda.device_count()) if f"cuda:{gpu}" != subject.device]
    for name in [*STAGES, *others]:
        stage, _, device = name.partition(", ")
        for out in (sys.stdout, report):
            print(f"{name:<20} ", end="", file=out, flush=True)
        said = ""
        try:
            with benchmark.start_process() as process:
                line = process.submit(run, stage, subject._replace(device=device or subject.device)).result(_LIMIT)
        except Exception as error:
            line, said = f"not examined: {one_line(error)}", traceback.format_exc()
            if not is_out_of_memory(error):
                line, failed = f"FAILED: {one_line(error)}; {STAGES[stage][1]}", True
        print(line, flush=True)
        print(line, said, sep="\n", file=report, flush=True)
        if failed and stage == "environment":
            break
    return int(failed)
