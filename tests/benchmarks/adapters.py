"""Peak memory and seconds per step of LoRA on a base model in bfloat16: this library, and a plain loop over peft.

python -m tests.benchmarks.adapters [--rows 2] [--tokens 32] [--steps 3] [--rounds 2] [--layers 28]

Both train the same random weights in the shape of Qwen3-Embedding-0.6B, with the same adapters (rank 16 on all linear
layers), in-batch negatives on the same pairs of texts of ``--tokens`` tokens, AdamW, and vectors of the last token.
Each run has a process of its own, in turns. The first step, in which memory is allocated and backends are compared, is
not timed. A CPU without AVX-512 takes minutes for a step in bfloat16; ``--steps 1`` measures memory alone.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from sbert import Normalize, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.losses import MultipleNegativesRankingLoss
from sbert.training import Callback, Progress
from tests import small

VOCABULARY, SCALE = 151_669, 20.0


def make_network(layers: int) -> Any:
    """A Qwen3 in bfloat16 with random weights."""
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": layers}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    config = Qwen3Config(vocab_size=VOCABULARY, dtype="bfloat16", **sizes, **heads)
    torch.set_default_dtype(torch.bfloat16)
    network = Qwen3Model(config)
    torch.set_default_dtype(torch.float32)
    return network


def make_rows(count: int, tokens: int) -> list[tuple[str, str]]:
    """Pairs of different texts of this number of tokens, with the two that the tokenizer adds."""
    words = small.words()
    texts = [" ".join(words[(start * 7 + i) % len(words)] for i in range(tokens - 2)) for start in range(2 * count)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def make_adapter() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear")


class Clock(Callback):
    """The time after each step."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step(self, progress: Progress) -> None:
        self.times.append(time.perf_counter())


def run_ours(network: Any, tokenizer: Any, rows: list[tuple[str, str]], steps: int) -> list[float]:
    network.add_adapter(make_adapter())
    modules = Transformer(network, tokenizer), Pooling("lasttoken"), Normalize()
    clock = Clock()
    config = TrainingConfig(steps=steps, batch_size=len(rows), learning_rate=1e-4)
    Trainer(
        SentenceEncoder(*modules, device="cpu"), rows, MultipleNegativesRankingLoss(SCALE), config, callbacks=clock
    ).fit(show_progress_bar=False)
    return clock.times


def run_peft(network: Any, tokenizer: Any, rows: list[tuple[str, str]], steps: int) -> list[float]:
    from peft import get_peft_model

    model = get_peft_model(network, make_adapter())
    model.train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    times = []
    for _ in range(steps):
        columns = []
        for texts in zip(*rows, strict=True):
            batch = tokenizer(list(texts), padding=True, return_tensors="pt")
            hidden = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
            last = batch["attention_mask"].sum(1) - 1
            columns.append(torch.nn.functional.normalize(hidden[torch.arange(len(texts)), last].float(), dim=-1))
        loss = torch.nn.functional.cross_entropy(SCALE * columns[0] @ columns[1].T, torch.arange(len(rows)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter())
    return times


LOOPS: dict[str, Callable[..., list[float]]] = {"sbert": run_ours, "peft": run_peft}


def measure(name: str, options: argparse.Namespace) -> None:
    """Print the peak memory of this process in bytes, and the seconds of a step."""
    warnings.simplefilter("ignore")
    tokenizer = small.wrapped(small.wordpiece(), 64)
    times = LOOPS[name](make_network(options.layers), tokenizer, make_rows(options.rows, options.tokens), options.steps)
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    print(peak, (times[-1] - times[0]) / max(1, len(times) - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in {"rows": 2, "tokens": 32, "steps": 3, "rounds": 2, "layers": 28}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--only", choices=LOOPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        measure(options.only, options)
        return
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in LOOPS}
    for _ in range(options.rounds):
        for name, runs in results.items():
            command = [sys.executable, "-m", "tests.benchmarks.adapters", "--only", name]
            for option in ("rows", "tokens", "steps", "layers"):
                command += [f"--{option}", str(getattr(options, option))]
            peak, seconds = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-2:]
            runs.append((int(peak) / 2**30, float(seconds)))
            print(f"{name:6} {runs[-1][0]:.2f} GiB, {runs[-1][1]:.1f} s a step", flush=True)
    medians = {name: list(map(statistics.median, zip(*runs, strict=True))) for name, runs in results.items()}
    print("\n| loop | peak memory, GiB | seconds per step | memory beside peft |\n|---|---|---|---|")
    for name, (peak, seconds) in medians.items():
        print(f"| {name} | {peak:.2f} | {seconds:.1f} | {peak / medians['peft'][0]:.2f} |")


if __name__ == "__main__":
    main()
