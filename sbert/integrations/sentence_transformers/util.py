"""Their ``util``: similarities as tensors, and searches that give lists of dicts."""

from __future__ import annotations

import logging
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, hub
from torch.nn import functional
from tqdm.auto import tqdm

from sbert import search
from sbert.functional import truncate
from sbert.inputs.arguments import check_choice
from sbert.integrations.sentence_transformers.forms import (  # noqa: F401
    SignatureAdapter,
    SimilarityFunction,
    as_rows,
    compare_by,
    offer,
)

_NAMES = {"cos_sim": "cosine", "dot_score": "dot", "euclidean_sim": "euclidean", "manhattan_sim": "manhattan"}
cos_sim, dot_score, euclidean_sim, manhattan_sim = (compare_by(name, False, label) for label, name in _NAMES.items())
pairwise_cos_sim, pairwise_dot_score, pairwise_euclidean_sim, pairwise_manhattan_sim = (
    compare_by(name, True, f"pairwise_{label}") for label, name in _NAMES.items()
)
pytorch_cos_sim, truncate_embeddings = cos_sim, truncate


def _search(queries: Any, corpus: Any, top_k: int = 10, similarity: str = "cosine") -> list[list[dict[str, Any]]]:
    vectors = as_rows(corpus)
    hits = search.semantic_search(as_rows(queries), vectors, min(top_k, len(vectors)), similarity=similarity)
    return [[{"corpus_id": row, "score": score} for row, score in ranked] for ranked in hits]


def _mine(vectors: Any, **options: Any) -> list[list[Any]]:
    return [list(pair) for pair in search.paraphrase_mining(as_rows(vectors), **options)]


def _mine_texts(model: Any, sentences: Any, **options: Any) -> list[list[Any]]:
    names = ("show_progress_bar", "batch_size", "truncate_dim", "prompt_name", "prompt")
    encoding = {name: value for name in names if (value := options.pop(name, None)) is not None}
    return _mine(model.encode(sentences, **encoding), **options)


def _communities(vectors: Any, **options: Any) -> list[list[int]]:
    return search.community_detection(as_rows(vectors), **options)


def _negatives(
    dataset: Any, model: Any, anchor: str | None, positive: str | None, corpus: Any, form: str, strategy: str,
    as_triplets: bool | None, **options: Any,
) -> Any:  # fmt: skip
    from datasets import Dataset  # type: ignore[import-untyped]

    form = form if as_triplets is None else "triplet" if as_triplets else "n-tuple"
    check_choice("output_format", form, ("triplet", "n-tuple", "labeled-pair", "labeled-list"))
    check_choice("sampling_strategy", strategy, ("top", "random"))
    columns = {"anchor": anchor or dataset.column_names[0], "positive": positive or dataset.column_names[1]}
    pairs = list(zip(*(list(dataset[name]) for name in columns.values()), strict=True))
    mining: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    mining |= {"as_triplets": form == "triplet", "as_lists": form.startswith("labeled")}
    if not mining.keys() & {"max_score", "min_score", "margin", "relative_margin"}:
        mining.pop("cross_encoder", None)  # As there, it scores for these conditions alone.
    if "cross_encoder" in mining:
        positives = max(Counter(query for query, _ in pairs).values())
        mining = {"range_max": mining["range_min"] + 10 * mining["negatives"] + positives, **mining}
    mined = search.mine_hard_negatives(model, pairs, corpus, seed=None if strategy == "top" else 42, **mining)
    columns |= {"query": columns["anchor"], "documents": columns["positive"]}
    if form == "labeled-pair":
        mined = [
            {"query": row["query"], "documents": document, "label": label}
            for row in mined
            for document, label in zip(row["documents"], row["labels"], strict=True)
        ]
    return Dataset.from_list([{columns.get(name, name): value for name, value in row.items()} for row in mined])


def _quantize(embeddings: Any, precision: str, ranges: Any = None, calibration: Any = None) -> Any:
    vectors = as_rows(embeddings).cpu().numpy()
    if precision == "float32":
        return vectors.astype(np.float32)
    whole = precision in ("int8", "uint8")
    if whole and not len(vectors):
        return vectors.astype(precision)
    if whole and ranges is None:
        ranges = search.calibrate(vectors if calibration is None else as_rows(calibration).cpu().numpy())
    quantized = search.quantize(vectors, "int8" if whole else precision, ranges if whole else None)
    return (quantized.astype(np.int16) + 128).astype(np.uint8) if precision == "uint8" else quantized


semantic_search: Any = SignatureAdapter("util.semantic_search").function(_search)
information_retrieval: Any = SignatureAdapter("util.information_retrieval").function(_search)
paraphrase_mining_embeddings: Any = SignatureAdapter("util.paraphrase_mining_embeddings").function(_mine)
paraphrase_mining: Any = SignatureAdapter("util.paraphrase_mining").function(_mine_texts)
community_detection: Any = SignatureAdapter("util.community_detection").function(_communities)
mine_hard_negatives: Any = SignatureAdapter("util.mine_hard_negatives").function(_negatives)
quantize_embeddings: Any = SignatureAdapter("util.quantize_embeddings").function(_quantize)


def is_datasets_available() -> bool:
    """Whether ``datasets`` is installed."""
    return find_spec("datasets") is not None


is_training_available = is_datasets_available


def http_get(url: str, path: str) -> None:
    """Download a file, which is complete once it has its name."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    hub.download_url_to_file(url, path)


def batch_to_device(batch: dict[str, Any], target_device: Any) -> dict[str, Any]:
    """The features of a batch on a device."""
    return {name: value.to(target_device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def normalize_embeddings(embeddings: Tensor) -> Tensor:
    """Vectors of length 1."""
    return functional.normalize(embeddings, dim=1)


class LoggingHandler(logging.Handler):
    """Writes log messages above progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        tqdm.write(self.format(record))


__all__ = [
    *(name for name in dir() if name.endswith(("_sim", "_score", "_embeddings", "_detection", "_available"))),
    *"LoggingHandler SimilarityFunction batch_to_device http_get information_retrieval mine_hard_negatives".split(),
    *"paraphrase_mining semantic_search".split(),
]
offer(__name__)
