"""Encoding, training and search on a CUDA GPU beside sentence-transformers, as tables in Markdown.

python -m tests.benchmarks.gpu [--device cuda] [--quick] [--scale 1.0] [--head-dim N]

Every library and dtype has a process of its own for each table. They take turns on new texts in each round; the first
round warms up. A figure is the median over the rounds; in brackets, how many times as fast as the first row (the median
of the ratios). The last columns compare vectors (after training; of search, scores) with those of the first row: the
least cosine and the largest difference of rows of length 1. What fails has its reason in the table. MiniLM has the
weights of all-MiniLM-L6-v2, the other models have random ones. ``--device cpu --scale 0.01 --head-dim 8`` tries the
program with little work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from sbert.inputs.devices import driver_version
from tests.benchmarks.compare import Measure
from tests.benchmarks.training import ours, seconds, theirs
from tests.benchmarks.turns import MODEL, OTHER, Round, compete, make_loads, processor

MODELS = {"MiniLM-L6": (6, 32), "BERT-base": (12, 64), "MPNet-base": (12, 64)}  # Layers, and dim of a head.
HEADS, BATCH, TOP_K = 12, 64, 10
LIMIT = 150  # Seconds after which a contender is ended.


def write_model(name: str, folder: Path, head_dim: int | None = None) -> str:
    """A folder with random weights; that of all-MiniLM-L6-v2 where no size is options."""
    from transformers import AutoTokenizer, BertConfig, BertModel, MPNetConfig, MPNetModel

    layers, usual = MODELS[name]
    if name == "MiniLM-L6" and head_dim is None:
        return MODEL
    kind, config = (MPNetModel, MPNetConfig) if name == "MPNet-base" else (BertModel, BertConfig)
    dim = HEADS * (head_dim or usual)
    sizes = {"hidden_size": dim, "intermediate_size": 4 * dim}
    torch.manual_seed(0)
    kind(config(num_hidden_layers=layers, num_attention_heads=HEADS, **sizes)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODEL, model_max_length=512).save_pretrained(folder)
    return str(folder)


# ------------------------------------------------------------------------------------------ what a process measures


def encode(who: str, dtype: str, model: str, device: str, scale: float) -> Round:
    if who == OTHER:
        from sentence_transformers import SentenceTransformer

        call: Any = SentenceTransformer(model, device=device, model_kwargs={"dtype": dtype}).encode
    else:
        from sbert import SentenceEncoder

        call = SentenceEncoder(model, device=device, dtype="auto" if dtype == "default" else dtype).encode

    def run(number: int) -> tuple[dict[str, float], Any]:
        draw, figures, vectors = Measure(number, scale), {}, []
        texts = draw.texts(10_000)
        for load, some in make_loads(texts, len(texts), 0).items():
            taken = seconds(lambda some=some: vectors.append(call(some, show_progress_bar=False)))
            figures[f"{load}: texts/s"] = len(some) / taken
        singles = [1000 * seconds(lambda text=text: call(text, show_progress_bar=False)) for text in draw.texts(100)]
        figures["one: p50, ms"], figures["p95, ms"] = map(float, np.percentile(singles, (50, 95)))
        return figures, vectors[0]

    return run


def training(who: str, dtype: str, model: str, device: str, scale: float) -> Round:
    def run(number: int) -> tuple[dict[str, float], Any]:
        draw, figures = Measure(number, scale), {}
        first, second, texts = (draw.texts(count) for count in (4096, 4096, 256))
        labels = draw.rng.random(len(first)).tolist()
        losses = {"CosineSimilarityLoss": (first, second, labels), "MultipleNegativesRankingLoss": (first, second)}
        for loss, columns in losses.items():
            train = theirs if who == OTHER else ours
            speed, encoder = train(model, list(zip(*columns, strict=True)), loss, 0, dtype, device, BATCH)
            figures[f"{loss}: rows/s"] = speed
        return figures, encoder.encode(texts, show_progress_bar=False)

    return run


def search(who: str, dtype: str, device: str, scale: float) -> Round:
    from tests.benchmarks.search import directions, semantic_search, util

    corpus = directions(max(1000, int(1_000_000 * scale)), 384).to(device)

    def find(queries: torch.Tensor) -> Any:
        if who == OTHER:
            hits = util.semantic_search(queries, corpus, top_k=TOP_K)
            return [[hit["score"] for hit in row] for row in hits]
        return torch.as_tensor(semantic_search(queries, corpus, TOP_K)[0]).cpu()

    def run(number: int) -> tuple[dict[str, float], Any]:
        queries, figures, scores = directions(505, 384, number + 1).to(device), {}, []
        for count, some in {"100": queries[:500].split(100), "1": queries[500:].split(1)}.items():
            taken = [1000 * seconds(lambda part=part: scores.append(find(part))) for part in some]
            figures[f"{count} of {len(corpus):,} x 384, ms"] = median(taken)
        return figures, np.asarray(scores[0])

    return run


def heading(device: str) -> str:
    card = processor()
    if device != "cpu":
        name, cuda = torch.cuda.get_device_name(device), torch.version.cuda
        card = f"{name}, driver {driver_version()}, CUDA {cuda}, beside {card}"
    return f"{card}; " + ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", OTHER))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="in about 2 minutes on an H100; else in about 8")
    parser.add_argument("--scale", type=float)
    parser.add_argument("--head-dim", type=int)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA GPU here; --device cpu --scale 0.01 tries the program without one")
    options.rounds, options.seconds = (2, 15) if options.quick else (3, 60)
    scale = options.scale or (0.3 if options.quick else 1.0)
    fast = options.device == "cpu" or torch.cuda.get_device_capability(options.device) >= (8, 0)
    half = "bfloat16" if fast else "float16"
    print(f"### {heading(options.device)}", flush=True)
    task_options = {"device": options.device, "scale": scale}
    both = [(who, dtype) for who in (OTHER, "sbert") for dtype in ("float32", half)]

    def run(title: str, task: Callable[..., Round], contenders: list[tuple[str, str]], **more: Any) -> None:
        makers = {f"{who} {dtype}": partial(task, who, dtype, **task_options, **more) for who, dtype in contenders}
        compete(title, makers, options.rounds, LIMIT, options.seconds)

    with tempfile.TemporaryDirectory() as folder:
        models = {name: write_model(name, Path(folder, name), head_dim=options.head_dim) for name in MODELS}
        for name, model in models.items():
            run(name, encode, [*both[:2], ("sbert", "float32"), ("sbert", "default")], model=model)
        for name, model in list(models.items())[: 1 if options.quick else 2]:
            run(f"training, {name}", training, both, model=model)
        run("search", search, [(OTHER, "float32"), ("sbert", "float32")])


if __name__ == "__main__":
    main()
