"""Short texts per second of the host alone: everything beyond tokenizing, and tokenizing on one and on two threads.

python -m tests.benchmarks.host_rate [--texts 100000] [--rounds 5] [--batch-tokens 4096,32768,131072]

The model is a stub on a simulated GPU, which gives each text a row of a table: what is left is to deduplicate texts, to
form batches, to copy them to the device, and to collect the vectors. Tokenizing runs in a process for each number of
threads. All take turns, and the best round of each counts: by the clock, and by the processor time of the process,
which depends less on what else runs on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sbert import SentenceEncoder, TokenBatch
from sbert.inputs.devices import default_batch_tokens, default_windows
from sbert.pipeline.batching import windows
from sbert.pipeline.tokenize import Tokens
from tests.benchmarks.simulated_gpu import texts

DIM = 384


class Stub(nn.Module):
    """Takes tokenized texts, and gives each text of a batch a row of a table.

    Args:
        device: Device of the table.
    """

    max_seq_length = None
    special_tokens = (1, 1)

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(1 << 16, DIM, device=device), requires_grad=False)

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        return [[1, 2, 3] for _ in texts]

    def forward(self, batch: TokenBatch) -> Tensor:
        return self.rows[: batch.rows]


class Stubbed:
    """A model whose texts are tokenized already.

    Args:
        given: The texts.
        device: Device of the model.
    """

    def __init__(self, given: list[str], device: torch.device) -> None:
        self.given = given
        self.model: Any = SentenceEncoder(Stub(device), device=device)
        reader = SentenceEncoder(device="cpu")
        runs = [given[run] for run in windows(len(given), *default_windows(device))]
        self.known: dict[str, Tokens] = {run[0]: reader.tokens(run) for run in runs}
        self.known["a"] = reader.tokens(["a"])
        self.model.tokens = lambda texts, prompt="": self.known[texts[0]]

    def encode(self, batch_tokens: int) -> None:
        """One call of encode."""
        vectors = self.model.encode(self.given, batch_tokens=batch_tokens, show_progress_bar=False)
        assert vectors.shape == (len(self.given), DIM)


def rates(call: Callable[[], object], count: int) -> tuple[float, float]:
    """Texts per second by the clock and by processor time, of a call for a number of texts."""
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return count / (time.perf_counter() - clock), count / (time.process_time() - processor)


def tokenizing(count: int) -> None:
    """Tokenize the texts once per line of standard input, and print the rates."""
    model, given = SentenceEncoder(device="cpu"), texts(count)
    for _ in sys.stdin:
        print(*rates(lambda: model.tokens(given), count), flush=True)


def worker(threads: int, count: int) -> subprocess.Popen[str]:
    """A process that tokenizes on a number of threads."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-m", "tests.benchmarks.host_rate", "--texts", str(count), "--tokenize"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(process: subprocess.Popen[str]) -> tuple[float, float]:
    """The rates of one more round of a process."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    clock, processor = map(float, process.stdout.readline().split())
    return clock, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-tokens", default="4096,32768,131072")
    parser.add_argument("--tokenize", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tokenize:
        tokenizing(options.texts)
        return
    from tests.simulated_cuda.simulator import simulated

    workers = {f"tokenizing, threads: {threads}": worker(threads, options.texts // 4) for threads in (1, 2)}
    with simulated():
        device = torch.device("cuda:0")
        stubbed, default = Stubbed(texts(options.texts), device), default_batch_tokens(device)
        measured: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for tokens in map(int, options.batch_tokens.split(",")):
                name = f"beyond tokenizing, batch_tokens={tokens:,}{' (default)' * (tokens == default)}"
                measured.setdefault(name, []).append(rates(partial(stubbed.encode, tokens), options.texts))
            for name, process in workers.items():
                measured.setdefault(name, []).append(asked(process))
    for process in workers.values():
        process.communicate()
    print(f"{'texts per second':50} {'by the clock':>15} {'by processor':>15}")
    for name, found in measured.items():
        print(f"{name:50}" + "".join(f" {max(each):15,.0f}" for each in zip(*found, strict=True)))


if __name__ == "__main__":
    main()
