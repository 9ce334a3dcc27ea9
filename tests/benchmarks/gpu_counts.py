"""Kernels, copies and waits of one ``encode`` on a simulated GPU, and what follows from them for an H100.

python -m tests.benchmarks.gpu_counts

Texts are random sentences of 17 tokens on average, or of 65 to 384 tokens ("long"). Counts are those of a second call:
of operations on the device (views are none), each taken for one kernel. To be affordable, models have all their layers,
but two heads of 8 dims; that this changes no count is checked with the real sizes of each, for 512 or 128 texts, which
also give the bytes per token that operations other than products and attention read and write. torch's attention is
one kernel, as on a GPU, and is not computed. Of sentence-transformers, at most 512 texts are counted (128 long ones),
and multiplied: all batches of 32 are alike.

The time of an H100 is arithmetic; its assumptions are the constants below. Device time is the sum of products (no less
than reading their weights), attention, other operations and copies; launches take host time beside it, and the greater
one counts: for sbert of the whole call, for sentence-transformers of each batch, whose vectors it waits for. End to end
is the time with tokenizing and the rest of the host's work, measured on this processor in one thread with an empty
network: sbert tokenizes beside the device, sentence-transformers before each batch.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from sbert import SentenceEncoder
from sbert.inputs import devices
from sbert.pipeline import encode as pipeline
from sbert.pipeline import self_check
from sbert.pipeline.batching import plan, windows
from tests.benchmarks.compare import WORDS, Measure
from tests.benchmarks.gpu import HEADS, MODELS, write_model
from tests.benchmarks.turns import MODEL, OTHER, processor
from tests.simulated_cuda.simulator import simulated

PRODUCTS = {"sbert": 650e12, OTHER: 60e12}  # FLOP/s: two thirds of 989 in bfloat16; 90 % of 67 in float32 (no TF32).
BANDWIDTH, COPIES = 3e12, 25e9  # Bytes/s of 3.35e12 of the memory (SXM), and of pinned copies over PCIe 5.
FLASH, TILE = 350e12, 128  # FlashAttention-2 reaches 35 % on an H100 (arXiv 2407.08608); rows fill tiles of 128.
EFFICIENT = FLASH / 2  # The memory-efficient kernel, a guess, on tiles of 64. In float32 it is as fast as products.
LAUNCH = 5e-6  # Seconds of the host per operation, the same in both libraries.
CORES = 16  # That tokenize in parallel, without loss. Everything else on the host is serial.
BATCH = 32  # Default of sentence-transformers.
GPU = torch.device("cuda")
SHAPES = ("shapes of attention", "plans of cuDNN")
COPIED = tuple(f"{kind} copies to the {end}" for end in ("device", "host") for kind in ("kernel", "bytes"))
APART = ("addmm", "mm", "bmm", "_flash_attention_forward", "_scaled_dot_product", "copies")


@cache
def load_other() -> Any:
    """sentence-transformers without inference mode, whose tensors the simulated device does not have."""
    with mock.patch.object(torch, "inference_mode", lambda on=True: torch.no_grad() if on else torch.enable_grad()):
        from sentence_transformers import SentenceTransformer
    return SentenceTransformer


def draw(count: int, long: bool, seed: int = 0) -> list[str]:
    if not long:
        return Measure(seed, 1.0, time.perf_counter).texts(max(2, count))[:count]
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size)) for size in rng.integers(63, 383, count)]


# ------------------------------------------------------------------------------------------------------- the counts


class Attention:
    """In the place of torch's attention: one kernel, and one that converts a boolean mask."""

    def __init__(self) -> None:
        self.run, self.calls, self.computes = F.scaled_dot_product_attention, 0, True

    def __call__(self, query: Any, key: Any, value: Any, attn_mask: Any = None, *others: Any, **options: Any) -> Any:
        if self.computes:
            return self.run(query, key, value, attn_mask, *others, **options)
        self.calls += 1 + (attn_mask is not None and attn_mask.dtype == torch.bool)
        return value


def count(library: str, folder: str, texts: list[str]) -> Counter[str]:
    """What the second call of a new model does."""
    attention = Attention()
    with mock.patch.object(F, "scaled_dot_product_attention", attention), simulated((9, 0)) as gpu:
        model: Any = (SentenceEncoder if library == "sbert" else load_other())(folder, device="cuda")
        model.encode(["one text", "another one"])
        attention.computes = False
        with gpu.counted() as counts:
            model.encode(texts, show_progress_bar=False)
    result = Counter({"launches": attention.calls, **{name: counts[name] for name in SHAPES + COPIED}})
    for name, number in counts.items():
        kind, _, operation = name.partition(" ")
        if operation.startswith("waits"):
            result["waits"] += number
        elif kind == "kernel" and not operation.startswith("copies"):
            result["launches"] += number
        elif kind == "bytes" and not operation.startswith(APART):
            result["bytes of others"] += number
    return result


# ----------------------------------------------------------------------------------------------------- the model


def batches_of(library: str, texts: list[str], lengths: Any) -> Iterator[Any]:
    """The lengths of the texts of each batch, as the library forms them."""
    if library == OTHER:
        order = np.argsort([-len(text) for text in texts])
        yield from (lengths[order[start : start + BATCH]] for start in range(0, len(order), BATCH))
        return
    for window in windows(len(lengths), *devices.default_windows(GPU)):
        for rows in plan(lengths[window], devices.default_batch_tokens(GPU)):
            yield lengths[window][rows]


def device_seconds(library: str, name: str, lengths: Any, bytes_per_token: float) -> float:
    """Products, attention and the other operations of one batch."""
    layers, head_dim = MODELS[name]
    dim, rows, longest = HEADS * head_dim, len(lengths), int(lengths.max())
    tokens = int(lengths.sum()) if library == "sbert" else rows * longest
    weights, size = 12 * dim**2 * layers, 2 if library == "sbert" else 4
    products = max(2 * weights * tokens / PRODUCTS[library], weights * size / BANDWIDTH)
    if library == OTHER:
        slots, rate = rows * (-(-longest // 64) * 64.0) ** 2, PRODUCTS[OTHER]
    elif name == "MPNet-base":  # Padded for its position bias.
        slots, rate = (1 << (rows - 1).bit_length()) * (-(-longest // 64) * 64.0) ** 2, EFFICIENT
    else:
        slots, rate = float(((-(-lengths // TILE) * TILE).astype(float) ** 2).sum()), FLASH
    return products + 4 * slots * dim * layers / rate + bytes_per_token * tokens / BANDWIDTH


def model_time(library: str, name: str, counts: Any, per_token: float, batches: Any, texts: int, host: Any) -> Any:
    """Seconds of the device, of launches, of both together, and end to end."""
    times = [device_seconds(library, name, each, per_token) for each in batches]
    copies = (counts[COPIED[1]] + counts[COPIED[3]]) / COPIES
    device, launches = sum(times) + copies, counts["launches"] * LAUNCH
    tokenizing, rest = host[0] / min(CORES, texts), host[1]
    if library == OTHER:
        together = copies + sum(max(each, launches / len(times)) for each in times)
        return device, launches, together, together + texts * (tokenizing + rest)
    first = min(texts, devices.default_windows(GPU)[0]) * (tokenizing + rest)
    whole = first + max(device, launches + texts * rest, texts * tokenizing)
    return device, launches, max(device, launches), whole


def measure_host(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Seconds per text of the tokenizer in Rust, and of everything else without a network."""
    ours, theirs = SentenceEncoder(MODEL, device="cpu"), load_other()(MODEL, device="cpu")
    job, dim, fast = pipeline.Encoding(ours, batch_tokens=1 << 15), 768, ours[0].tokenizer_copy()._tokenizer

    def forward(batch: Any) -> Any:
        return torch.ones(len((batch.lengths, batch.groups, batch.offsets_int32, batch.position_of_token)[0]), dim)

    def empty(self: Any, features: Any, **options: Any) -> Any:
        return {"sentence_embedding": torch.ones(len(features["input_ids"]), dim)}

    def seconds(run: Callable[[], Any]) -> float:
        times = []
        for _ in range(3):
            begin = time.process_time()
            run()
            times.append(time.process_time() - begin)
        return min(times) / len(texts)

    with (
        mock.patch.object(job, "_forward", forward),
        mock.patch.object(pipeline, "default_windows", return_value=devices.default_windows(GPU)),
        mock.patch.object(type(theirs), "forward", empty),
    ):
        rust = seconds(lambda: fast.encode_batch_fast(texts))
        own = seconds(lambda: job.vectors(texts, pipeline.Report.silent()))
        other = seconds(lambda: theirs.encode(texts, show_progress_bar=False))
    return {"sbert": (rust, own - rust), OTHER: (rust, other - rust)}


# ------------------------------------------------------------------------------------------------------ the tables


def measure_case(library: str, name: str, long: bool, folder: Path, host: Any) -> Iterator[tuple[int, Any, float, Any]]:
    """For each number of texts: counts, bytes per token of other operations, and times."""
    head_dim, sample = MODELS[name][1], draw(128 if long else 512, long)
    small = write_model(name, folder / f"{name} small", heads=2, head_dim=8)
    counts, real = (count(library, each, sample) for each in (small, write_model(name, folder / name, HEADS, head_dim)))
    different = {key for key in real if counts[key] != real[key] and "bytes" not in key}
    assert not different, f"{name}: the small model has other {different}"
    fast: Any = SentenceEncoder(MODEL, device="cpu")[0]

    def batches(texts: list[str]) -> list[Any]:
        return list(batches_of(library, texts, np.array([len(ids) for ids in fast.tokenize(texts)])))

    tokens = sum(each.sum() if library == "sbert" else each.max() * len(each) for each in batches(sample))
    per_token = real["bytes of others"] / tokens
    for number in (20_000,) if long else (1, 32, 2048, 20_000):
        texts = draw(number, long)
        part = texts if library == "sbert" else texts[: len(sample)]
        laps = -(-number // BATCH) / -(-len(part) // BATCH)
        counts = Counter({key: int(laps * value) for key, value in count(library, small, part).items()})
        if library == OTHER and counts[SHAPES[0]]:
            counts[SHAPES[0]] = len({(len(lengths), lengths.max()) for lengths in batches(texts)})
        counts[COPIED[3]] += 4 * (HEADS * head_dim - 16) * number  # The small model's vectors have 16 dims.
        yield number, counts, per_token, model_time(library, name, counts, per_token, batches(texts), number, host)


def main() -> None:
    print(f"Host: one thread of {processor()}.\n")
    columns = ["launches", *SHAPES, "copies to the device", "MB", "copies to the host", "MB", "waits"]
    print(f"| model, texts | library | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}", flush=True)
    torch.set_num_threads(1)
    rows: dict[tuple[str, str], Any] = {}
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(self_check, "_COUNTS", (1, 2)):
        os.environ.update(XDG_CACHE_HOME=folder, TOKENIZERS_PARALLELISM="false")  # The short self-check is not kept.
        hosts = {long: measure_host(draw(500 if long else 5000, long)) for long in (False, True)}
        cases = [(name, False) for name in MODELS] + [("MPNet-base", True)]
        for (name, long), library in product(cases, ("sbert", OTHER)):
            for number, counts, *others in measure_case(library, name, long, Path(folder), hosts[long][library]):
                title = f"{name}, {number:,} {'long' if long else 'short'}"
                cells = [f"{counts[key] / 1e6:.2f}" if "bytes" in key else f"{counts[key]:,}"
                         for key in ("launches", *SHAPES, *COPIED, "waits")]  # fmt: skip
                print(f"| {title} | {library} | {' | '.join(cells)} |", flush=True)
                rows[title, library] = number, *others
    for long, host in hosts.items():
        serial = (f"{library} {1e6 * rest:.1f}" for library, (_, rest) in host.items())
        print(f"\n{'long' if long else 'short'} texts: {1 / host['sbert'][0]:,.0f} texts/s tokenized per core; the rest"
              f" of the host's work, µs per text: {', '.join(serial)}")  # fmt: skip
    columns = ["KB per token of other operations", "device, ms", "launches, ms", "texts/s", "texts/s end to end"]
    print(f"\n| model, texts | library | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    for (title, library), (number, per_token, (device, launches, *taken)) in rows.items():
        other = rows[title, OTHER][2][2:]
        ratios = [f" ({one / own:.1f})" if library == "sbert" else "" for own, one in zip(taken, other, strict=True)]
        speeds = [f"{number / own:,.0f}{ratio}" for own, ratio in zip(taken, ratios, strict=True)]
        cells = [f"{per_token / 1000:,.0f}", f"{1000 * device:,.2f}", f"{1000 * launches:,.2f}", *speeds]
        print(f"| {title} | {library} | {' | '.join(cells if number > BATCH else [*cells[:-1], ''])} |")


if __name__ == "__main__":
    main()
