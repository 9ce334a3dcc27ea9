"""Mistakes that only a GPU would show, planted one by one: the simulated device has to catch each of them.

``python -m tests.simulated_cuda.mistakes FOLDER`` makes small models in a folder and prints one line of JSON per
mistake: its name, and how it was caught, or null. Each runs in a process of its own, on a source that is changed while
it is imported; "none" runs everything unchanged.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.simulator import simulated

WORDS = ["one", "two", "red", "fox", "boat", "lake", "hills"]
PAIRS = [(f"one {word}", f"{word} two " * number) for number, word in enumerate([*WORDS, "hills boat"], start=1)]
# Of 1 to 26 tokens; two of the models read no more.
TEXTS = [" ".join(WORDS[(row + 3 * position) % len(WORDS)] for position in range(row % 25)) for row in range(100)]


def encoder(folder: Path, name: str, device: str, **options: Any) -> Any:
    from sbert import Normalize, Pooling, SentenceEncoder, Transformer

    return SentenceEncoder(Transformer(folder / name, **options), Pooling("mean"), Normalize(), device=device)


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def encode(folder: Path) -> None:
    """On the second device: the vectors of the CPU, one copy per batch, and the host waits twice."""
    expected = encoder(folder, "bert", "cpu").encode(TEXTS)
    with simulated() as gpu:
        model = encoder(folder, "bert", "cuda:1")
        for batch_tokens in (100, 600):
            np.testing.assert_allclose(model.encode(TEXTS, batch_tokens=batch_tokens), expected, atol=0.02)
        on_device = model.encode(TEXTS, convert_to_tensor=True)
        np.testing.assert_allclose(on_device.cpu(), expected, atol=0.02)
        before = Counter(gpu.counts())
        model.encode(TEXTS, batch_tokens=600)
        new = Counter(gpu.counts()) - before
        assert new["kernel copies to the device"] == new["kernel _flash_attention_forward"] / 2, new
        assert sum(count for name, count in new.items() if name.startswith("kernel waits")) == 2, new
        before = Counter(gpu.counts())
        model.encode(TEXTS, batch_tokens=600, convert_to_tensor=True)
        new = Counter(gpu.counts()) - before
        # For samples of the weights, and to see that all vectors are finite.
        assert sum(count for name, count in new.items() if name.startswith("kernel waits")) == 2, new
        model[0].auto_model.encoder.layer[1].output.dense.weight.data *= -3
        edited = model.encode(TEXTS[9])
        model.to("cpu")
    np.testing.assert_allclose(edited, model.encode(TEXTS[9]), atol=0.02)


def encode_with_bias(folder: Path) -> None:
    """Without the kernel for rows of any length: few shapes, and none for cuDNN."""
    expected = encoder(folder, "mpnet", "cpu").encode(TEXTS, on_truncate="ignore")
    with simulated() as gpu:
        model = encoder(folder, "mpnet", "cuda")
        model.encode("one")  # The first use is compared with the plain way.
        before = Counter(gpu.counts())
        vectors = model.encode(TEXTS, batch_tokens=100, on_truncate="ignore")
        np.testing.assert_allclose(vectors, expected, atol=0.02)
        new = Counter(gpu.counts()) - before
        assert 0 < new["shapes of attention"] <= 20, new  # A row alone has the shape that it has.
        assert new["plans of cuDNN"] == 0, new


def encode_beside_another_gpu(folder: Path) -> None:
    """A model on the second of two different GPUs; the first is the current one."""
    from sbert.pipeline.run import Encoding

    for capabilities, dtype in (([(7, 5), (9, 0)], torch.bfloat16), ([(9, 0), (7, 5)], torch.float16)):
        with simulated(capabilities) as gpu:
            model = encoder(folder, "bert", "cuda:1")
            assert Encoding(model).inference.settings.dtype == dtype, capabilities
            model.encode(TEXTS[:9])
            assert (gpu.count("kernel _flash_attention_forward") > 0) == (dtype == torch.bfloat16), capabilities


def encode_with_two_copies_on_the_way(folder: Path) -> None:
    """Vectors are copied to the host while those of the next batch are computed."""
    from sbert.pipeline import compute as results

    results._GATHERED = 1
    expected = encoder(folder, "bert", "cpu").encode(TEXTS)
    with simulated():
        vectors = encoder(folder, "bert", "cuda").encode(TEXTS, batch_tokens=100)
    np.testing.assert_allclose(vectors, expected, atol=0.02)


def encode_long_texts(folder: Path) -> None:
    """More than 512 tokens, of which the check of the first use has some."""
    with simulated():
        encoder(folder, "qwen3", "cuda", max_seq_length=640).encode("one")


def encode_many_rows(folder: Path) -> None:
    """In batches of more rows than the grid of a kernel, which has 256 here."""
    from sbert.pipeline import batching

    batching._MOST_ROWS, texts = 256, list(map(" ".join, itertools.product(WORDS, WORDS, WORDS)))
    with simulated() as gpu:
        gpu.call("grid", 256)
        encoder(folder, "bert", "cuda").encode(texts, batch_size=len(texts))


def move_to_another_gpu(folder: Path) -> None:
    """Whose kernels are wrong, as its own check finds."""
    from sbert.backends import attention, fused

    expected = encoder(folder, "bert", "cpu").encode(TEXTS)
    fused.attend = lambda q, *given, **options: attention.attend(q, *given, **options) * (1 + (q.device.index == 1))
    with simulated([(9, 0), (8, 0)]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = encoder(folder, "bert", "cuda:0")
        for device in ("cuda:0", "cuda:1"):
            np.testing.assert_allclose(model.to(device).encode(TEXTS), expected, atol=0.02)


def train_in_float16(folder: Path) -> None:
    """A step by gradients that are clipped is that of float32."""
    from sbert import Trainer, TrainingConfig
    from sbert.losses import MultipleNegativesRankingLoss

    torch.amp.GradScaler = partial(torch.amp.GradScaler, init_scale=256.0)  # No first step is left out.
    steps = []
    for dtype in ("float32", "float16"):
        with simulated((7, 5)):
            model = without_dropout(encoder(folder, "bert", "cuda"))
            before = torch.cat([weight.detach().flatten().cpu() for weight in model.parameters()])
            options = {"steps": 1, "batch_size": 8, "learning_rate": 1.0, "warmup": 0}
            config = TrainingConfig(dtype=dtype, optimizer="SGD", max_gradient_norm=0.1, **options)
            Trainer(model, PAIRS, MultipleNegativesRankingLoss(), config).fit(show_progress_bar=False)
            steps.append(torch.cat([weight.detach().flatten().cpu() for weight in model.parameters()]) - before)
    assert (steps[1] - steps[0]).norm() <= 0.1 * steps[0].norm(), f"steps of {[float(x.norm()) for x in steps]}"


def cache_gradients(folder: Path) -> None:
    """Chunks that are computed again drop the same weights."""
    from sbert.losses import MultipleNegativesRankingLoss
    from sbert.losses.signature import Signature
    from sbert.training import TrainingBatch, backward

    gradients, loss = [], MultipleNegativesRankingLoss()
    with simulated():
        model = encoder(folder, "bert", "cuda").train()
        batch = TrainingBatch.of(model, PAIRS, Signature.of(loss)).to(model.device)
        for cached in (False, True):
            model.zero_grad()
            torch.manual_seed(7)
            backward(model, loss, batch, chunk_tokens=24, cached=cached)
            gradients.append(torch.cat([x.grad.flatten().cpu() for x in model.parameters() if x.grad is not None]))
    assert (gradients[1] - gradients[0]).norm() <= 1e-3 * gradients[0].norm(), "gradients of other dropout"


def attend(folder: Path) -> None:
    """Heads of a size that kernels do not take."""
    from sbert import TokenBatch
    from sbert.backends import attention

    rows = TokenBatch.from_rows([[1] * 9, [1] * 3, [1]])
    query, key, value = (torch.randn(13, 2, 26).bfloat16() for _ in range(3))
    expected = attention.attend(query, key, value, rows)
    with simulated():
        result = attention.attend(*(x.to("cuda") for x in (query, key, value)), rows.to("cuda")).cpu()
    assert (result - expected).norm() <= 0.02 * expected.norm()


def encode_in_two_threads(folder: Path) -> None:
    """The Hugging Face module under autocast, on streams of their own; neither thread ends before the other."""
    expected = encoder(folder, "bert", "cpu").encode(TEXTS[:9])
    with simulated():
        model = encoder(folder, "bert", "cuda", backend="plain")
        both = threading.Barrier(2)
        model[0].auto_model.encoder.layer[1].register_forward_pre_hook(lambda *_: meet())

        def meet() -> None:
            both.wait(timeout=60)

        def work(_: int) -> Any:
            with torch.cuda.stream(torch.cuda.Stream("cuda")):
                return model.encode(TEXTS[:9])

        with ThreadPoolExecutor(2) as pool:
            for vectors in pool.map(work, range(2)):
                np.testing.assert_allclose(vectors, expected, atol=0.02)


def sum_gradients(folder: Path) -> None:
    """Sums of two ranks on a stream of their own, as NCCL computes them."""
    from sbert.distributed.buckets import GradientBuckets
    from sbert.distributed.ranks import Ranks

    class OnAStream(Ranks):
        def start_sum(self, tensor: torch.Tensor) -> Callable[[], None]:
            stream, own = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(own)
            with torch.cuda.stream(stream):
                tensor *= 2
            return lambda: own.wait_stream(stream)

    with simulated():
        weights = [torch.nn.Parameter(torch.ones(5, device="cuda")) for _ in range(3)]
        for weight in weights:
            weight.grad = torch.ones(5, device="cuda")
        GradientBuckets(weights, OnAStream(0, 2)).finish(mean=True)
        sums = [weight.grad.cpu() for weight in weights if weight.grad is not None]
    assert [each.tolist() for each in sums] == [[1] * 5] * 3


class Mistake(NamedTuple):
    """A text of a source file, what stands there instead, and what catches it: words of the error."""

    name: str
    file: str
    old: str
    new: str
    scenario: Callable[[Path], None]
    words: str


_TO_HOST = "torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)"
_COPY = "    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)\n"
_RECORD = "    done = module.Event()\n    done.record(module.current_stream(tensor.device))\n"
_STORE = "result[torch.from_numpy(number)] = host\n"
_WAIT = "            wait()\n"
_GARBAGE = "left the range|Mismatched"  # Memory that is read too early is not finite.
MISTAKES = [
    Mistake("none", "batch.py", "", "", lambda folder: [each(folder) for each in SCENARIOS] and None, ""),
    Mistake(
        "an event is recorded before the copy that it guards",
        "batch.py", _COPY + _RECORD, _RECORD + _COPY, encode, _GARBAGE,
    ),
    Mistake("a copy to the host is not waited for", "batch.py", "done.synchronize", "lambda: None", encode, _GARBAGE),
    Mistake(
        "an event is recorded on the current device, not on that of the data",
        "batch.py", "module.current_stream(tensor.device)", "module.current_stream()", encode, _GARBAGE,
    ),
    Mistake(
        "vectors are read before the copy to the host is waited for",
        "pipeline/compute.py", _WAIT + 12 * " " + _STORE, 12 * " " + _STORE + _WAIT, encode, _GARBAGE,
    ),
    Mistake(
        "pinned memory is used again before its copy has happened",
        "batch.py", "split(words)", "split(words)\n    host.zero_()", encode, "pinned memory changes",
    ),
    Mistake(
        "memory that is not pinned is copied",
        "batch.py", "tensor.pin_memory().to(device, non_blocking=True)", "tensor.to(device)", encode, "waits",
    ),
    Mistake(
        "the host waits for the longest row of each batch",
        "backends/attention.py", "max_q=rows.longest", "max_q=int(rows.lengths.max())", encode, "waits",
    ),
    Mistake(
        "offsets stay on the host",
        "batch.py", "moved = move_together(tensors | computed, device)",
        "moved = {**move_together(tensors | computed, device), 'offsets': self.offsets}", encode, "same device",
    ),
    Mistake(
        "positions stay on the host",
        "batch.py", "move_together(tensors | computed, device)",
        "{**move_together(tensors, device), **computed}", encode, "same device|slower|plain",
    ),
    Mistake(
        "offsets of 64 bits for a kernel that takes 32",
        "backends/attention.py", "cum_seq_q=rows.offsets_int32", "cum_seq_q=rows.offsets", encode, "dtype int32",
    ),
    Mistake(
        "heads of any size for a kernel that takes multiples of 8",
        "backends/attention.py", "and dim % _MULTIPLE:", "and False:", attend, "head_size|misaligned",
    ),
    Mistake(
        "the kernel is chosen for the current device, not for that of the data",
        "backends/attention.py", "get_device_capability(device)", "get_device_capability()",
        encode_beside_another_gpu, r"\(7, 5\)|capability",
    ),
    Mistake(
        "the dtype is chosen for the current device, not for that of the model",
        "inputs/devices.py", "get_device_capability(device)", "get_device_capability()",
        encode_beside_another_gpu, r"\(7, 5\)",
    ),
    Mistake(
        "padding is attended to",
        "backends/attention.py", "like.new_full((count * length,), -_HIDDEN)", "like.new_full((count * length,), 0.0)",
        encode_with_bias, "differ by|Mismatched",
    ),
    Mistake(
        "a shape of its own for each length",
        "backends/attention.py", "return 1 << (rows.rows - 1).bit_length(), round_length(rows.longest)",
        "return rows.rows, rows.longest", encode_with_bias, "shapes of attention",
    ),
    Mistake(
        "cuDNN plans each shape",
        "backends/attention.py", "torch.backends.cuda.enable_cudnn_sdp(False)", "pass",
        encode_with_bias, "plans of cuDNN",
    ),
    Mistake(
        "casts of weights are shared with a thread that computes on another stream",
        "backends/padded.py", ", cache_enabled=False", "", encode_in_two_threads, "another stream",
    ),
    Mistake(
        "copies of weights that were edited serve again",
        "backends/network.py", "return bool(self._read().tobytes() == self._before)",
        "return bool(self._read().tobytes())", encode, "Mismatched",
    ),
    Mistake(
        "rows above 512 tokens are not attended to",
        "backends/attention.py", "max_q=rows.longest", "max_q=min(rows.longest, 512)",
        encode_long_texts, "longer than max_q",
    ),
    Mistake(
        "queries, keys and values begin two bytes off",
        "backends/fused.py", "self.qkv(x)\n", "F.pad(self.qkv(x).flatten(), (1, 0))[1:].view(len(x), -1)\n",
        encode, "misaligned address",
    ),
    Mistake(
        "one pinned buffer for two copies",
        "batch.py", _TO_HOST, "globals().setdefault('one', torch.empty(1 << 16, pin_memory=True))"
        "[: tensor.numel()].view(tensor.shape)", encode_with_two_copies_on_the_way, "two copies",
    ),
    Mistake(
        "batch_size= beyond the limit of a grid",
        "pipeline/batching.py", "rows = min(batch_size or max(1, rows), _MOST_ROWS)",
        "rows = batch_size or min(max(1, rows), _MOST_ROWS)", encode_many_rows, "invalid configuration argument",
    ),
    Mistake(
        "a check of one device counts for another",
        "pipeline/self_check.py", "key, dtypes = (device, dtype),", "key, dtypes = (None, dtype),",
        move_to_another_gpu, "Mismatched",
    ),
    Mistake(
        "gradients are clipped before they are unscaled",
        "training/training_run.py",
        "        self.scaler.unscale_(self.optimizer)\n        norm = self._clip()\n",
        "        norm = self._clip()\n        self.scaler.unscale_(self.optimizer)\n", train_in_float16, "steps of",
    ),
    Mistake(
        "only the host's random state is restored",
        "training/backward.py", "else module.set_rng_state(state, device)", "else None",
        cache_gradients, "gradients of other dropout",
    ),
    Mistake(
        "a sum of another stream is used before it is waited for",
        "distributed/buckets.py", _WAIT, "", sum_gradients, "uses what another stream writes",
    ),
    Mistake(
        "memory is changed while another stream reads it",
        "distributed/buckets.py", _WAIT, "            flat.zero_()\n" + _WAIT, sum_gradients, "another stream",
    ),
    Mistake(
        "memory is freed while another stream uses it",
        "distributed/buckets.py", "self._sent.append((flat, self._ranks.start_sum(flat)))",
        "self._sent.append((flat.clone(), self._ranks.start_sum(flat)))", sum_gradients, "memory is freed",
    ),
]  # fmt: skip
SCENARIOS = list(dict.fromkeys(mistake.scenario for mistake in MISTAKES[1:]))


def plant(mistake: Mistake) -> None:
    """Let Python read a source file with the mistake in it."""
    target, read, stats = str(PACKAGE / mistake.file), SourceFileLoader.get_data, SourceFileLoader.path_stats

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        data = read(self, path)
        if path != target:
            return data
        assert data.count(mistake.old.encode()) >= 1, f"{mistake.file} has no {mistake.old!r}"
        return data.replace(mistake.old.encode(), mistake.new.encode())

    def path_stats(self: SourceFileLoader, path: str) -> Any:
        if path == target:
            raise OSError  # What was compiled before is not used, and nothing is kept.
        return stats(self, path)

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]
    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def caught(mistake: Mistake, folder: Path) -> str | None:
    """How a process with a mistake ends, in words; None if as well as without it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        words = ""
        try:
            if mistake.old:
                plant(mistake)
            torch.manual_seed(0)
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", DeprecationWarning)  # Of transformers.
            os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{os.getpid()}")
            mistake.scenario(folder)
        except BaseException as error:
            words = "".join(traceback.format_exception(error))
        with os.fdopen(write_end, "w") as pipe:
            pipe.write(words)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        words = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"the process ended with {status}" if status else words or None


def main(folder: Path) -> None:
    """Print what catches each mistake."""
    assert "sbert" not in sys.modules  # Each process imports its own.
    # Once, for all, with what they import.
    import torch._dynamo  # noqa: F401
    from transformers import BertModel, MPNetModel, Qwen3Model  # noqa: F401

    for mistake in MISTAKES:
        print(json.dumps([mistake.name, caught(mistake, folder)]), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
    main(Path(sys.argv[1]))
