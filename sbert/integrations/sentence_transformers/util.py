"""Their ``util``: similarities as tensors, and searches that give lists of dicts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm

from sbert import search
from sbert.functional import truncate
from sbert.inputs.devices import default_device
from sbert.integrations.sentence_transformers.forms import absent
from sbert.integrations.sentence_transformers.names import SimilarityFunction, compared, rows, similarity_name

_NAMES = {"cos_sim": "cosine", "dot_score": "dot", "euclidean_sim": "euclidean", "manhattan_sim": "manhattan"}
cos_sim, dot_score, euclidean_sim, manhattan_sim = (compared(name, False, called) for called, name in _NAMES.items())
pairwise_cos_sim, pairwise_dot_score, pairwise_euclidean_sim, pairwise_manhattan_sim = (
    compared(name, True, f"pairwise_{called}") for called, name in _NAMES.items()
)
pytorch_cos_sim = cos_sim


def semantic_search(
    query_embeddings: Any,
    corpus_embeddings: Any,
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500_000,
    top_k: int = 10,
    score_function: Any = cos_sim,
) -> list[list[dict[str, Any]]]:
    """``sbert.search.semantic_search``: for each query, dicts with ``corpus_id`` and ``score``, the best first."""
    corpus = rows(corpus_embeddings)
    name = similarity_name(score_function)
    hits = search.semantic_search(rows(query_embeddings), corpus, min(top_k, len(corpus)), similarity=name)
    return [
        [{"corpus_id": place, "score": score} for place, score in zip(*row, strict=True)]
        for row in zip(hits.indices.tolist(), hits.scores.tolist(), strict=True)
    ]


information_retrieval = semantic_search


def paraphrase_mining_embeddings(
    embeddings: Any,
    query_chunk_size: int = 5000,
    corpus_chunk_size: int = 100_000,
    max_pairs: int = 500_000,
    top_k: int = 100,
    score_function: Any = cos_sim,
) -> list[list[Any]]:
    """``sbert.search.paraphrase_mining``: lists of a score and two row numbers, the best first."""
    name = similarity_name(score_function)
    pairs = search.paraphrase_mining(rows(embeddings), max_pairs=max_pairs, top_k=top_k, similarity=name)
    return [list(pair) for pair in pairs]


def paraphrase_mining(
    model: Any,
    sentences: Any,
    show_progress_bar: bool = False,
    batch_size: int = 32,
    query_chunk_size: int = 5000,
    corpus_chunk_size: int = 100_000,
    max_pairs: int = 500_000,
    top_k: int = 100,
    score_function: Any = cos_sim,
    truncate_dim: int | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> list[list[Any]]:
    """The same for the vectors of sentences."""
    options = {"truncate_dim": truncate_dim, "prompt_name": prompt_name, "prompt": prompt}
    given = {name: value for name, value in options.items() if value is not None}
    vectors = model.encode(sentences, show_progress_bar=show_progress_bar, batch_size=batch_size, **given)
    return paraphrase_mining_embeddings(vectors, max_pairs=max_pairs, top_k=top_k, score_function=score_function)


def community_detection(
    embeddings: Any,
    threshold: float = 0.75,
    min_community_size: int = 10,
    batch_size: int = 1024,
    show_progress_bar: bool = False,
) -> list[list[int]]:
    """``sbert.search.community_detection``."""
    return search.community_detection(rows(embeddings), threshold, min_community_size)


def mine_hard_negatives(
    dataset: Any,
    model: Any,
    anchor_column_name: str | None = None,
    positive_column_name: str | None = None,
    corpus: Any = None,
    *,
    range_max: int | None = None,
    absolute_margin: float | None = None,
    num_negatives: int = 3,
    sampling_strategy: str = "top",
    output_format: str = "triplet",
    batch_size: int = 32,
    verbose: bool = True,
    **options: Any,
) -> Any:
    """``sbert.search.mine_hard_negatives`` of a ``datasets.Dataset``, as another; the guide of ours has differences.

    Further options are ``range_min``, ``min_score``, ``max_score`` and ``relative_margin``.

    Raises:
        ValueError: If the output format is neither "triplet" nor "n-tuple".
    """
    from datasets import Dataset  # type: ignore[import-untyped]

    if output_format not in ("triplet", "n-tuple"):
        raise ValueError(f"output_format={output_format!r} is not supported; pass 'triplet' or 'n-tuple'")
    names = [anchor_column_name or dataset.column_names[0], positive_column_name or dataset.column_names[1]]
    found = search.mine_hard_negatives(
        model,
        list(zip(*(list(dataset[name]) for name in names), strict=True)),
        corpus,
        negatives=num_negatives,
        range_max=100 if range_max is None else range_max,
        margin=absolute_margin,
        as_triplets=output_format == "triplet",
        seed=None if sampling_strategy == "top" else 42,
        **options,
    )
    renamed = dict(zip(("anchor", "positive"), names, strict=True))
    return Dataset.from_list([{renamed.get(name, name): text for name, text in row.items()} for row in found])


def quantize_embeddings(embeddings: Any, precision: str, ranges: Any = None, calibration_embeddings: Any = None) -> Any:
    """``sbert.search.quantize``; without ranges, "int8" takes those of the calibration vectors, or of these vectors."""
    vectors = rows(embeddings).cpu().numpy()
    if precision == "float32":
        return vectors.astype(np.float32)
    if precision == "int8" and ranges is None:
        sample = vectors if calibration_embeddings is None else rows(calibration_embeddings).cpu().numpy()
        ranges = search.calibrate(sample)
    return search.quantize(vectors, precision, ranges if precision == "int8" else None)


def normalize_embeddings(embeddings: Tensor) -> Tensor:
    """Vectors of length 1."""
    return functional.normalize(embeddings, dim=1)


def truncate_embeddings(embeddings: Any, truncate_dim: int | None) -> Any:
    """The first dimensions of each vector."""
    return truncate(embeddings, truncate_dim)


def batch_to_device(batch: Any, target_device: Any) -> Any:
    """A dict with its tensors, or a ``TokenBatch``, on a device."""
    if not isinstance(batch, Mapping):
        return batch.to(target_device)
    return {name: value.to(target_device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def get_device_name() -> str:
    """The device that models are loaded to."""
    return default_device().type


class LoggingHandler(logging.Handler):
    """Writes log messages above progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        tqdm.write(self.format(record))


__all__ = [
    "LoggingHandler", "SimilarityFunction", "batch_to_device", "community_detection", "cos_sim", "dot_score",
    "euclidean_sim", "get_device_name", "information_retrieval", "manhattan_sim", "mine_hard_negatives",
    "normalize_embeddings", "pairwise_cos_sim", "pairwise_dot_score", "pairwise_euclidean_sim",
    "pairwise_manhattan_sim", "paraphrase_mining", "paraphrase_mining_embeddings", "pytorch_cos_sim",
    "quantize_embeddings", "semantic_search", "truncate_embeddings",
]  # fmt: skip
__getattr__ = absent(__name__)
