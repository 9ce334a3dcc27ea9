"""Their ``util``: similarities as tensors, and searches that give lists of dicts."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm

from sbert import search
from sbert.functional import truncate
from sbert.inputs.arguments import check_choice
from sbert.integrations.sentence_transformers.forms import Form, SimilarityFunction, absent, compare_by, factories, rows

_NAMES = {"cos_sim": "cosine", "dot_score": "dot", "euclidean_sim": "euclidean", "manhattan_sim": "manhattan"}
cos_sim, dot_score, euclidean_sim, manhattan_sim = (compare_by(name, False, label) for label, name in _NAMES.items())
pairwise_cos_sim, pairwise_dot_score, pairwise_euclidean_sim, pairwise_manhattan_sim = (
    compare_by(name, True, f"pairwise_{label}") for label, name in _NAMES.items()
)
pytorch_cos_sim, truncate_embeddings = cos_sim, truncate


def _search(queries: Any, corpus: Any, top_k: int = 10, similarity: str = "cosine") -> list[list[dict[str, Any]]]:
    vectors = rows(corpus)
    hits = search.semantic_search(rows(queries), vectors, min(top_k, len(vectors)), similarity=similarity)
    return [
        [{"corpus_id": place, "score": score} for place, score in zip(*row, strict=True)]
        for row in zip(hits.indices.tolist(), hits.scores.tolist(), strict=True)
    ]


def _mine(vectors: Any, **options: Any) -> list[list[Any]]:
    return [list(pair) for pair in search.paraphrase_mining(rows(vectors), **options)]


def _mine_texts(model: Any, sentences: Any, **options: Any) -> list[list[Any]]:
    own = ("show_progress_bar", "batch_size", "truncate_dim", "prompt_name", "prompt")
    given = {name: value for name in own if (value := options.pop(name, None)) is not None}
    return _mine(model.encode(sentences, **given), **options)


def _communities(vectors: Any, **options: Any) -> list[list[int]]:
    return search.community_detection(rows(vectors), **options)


def _negatives(
    dataset: Any,
    model: Any,
    anchor: str | None = None,
    positive: str | None = None,
    corpus: Any = None,
    *,
    form: str = "triplet",
    strategy: str = "top",
    **options: Any,
) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]

    if form not in ("triplet", "n-tuple"):
        raise ValueError(f"output_format={form!r} is not supported; pass 'triplet' or 'n-tuple'")
    check_choice("sampling_strategy", strategy, ("top", "random"))
    columns = {"anchor": anchor or dataset.column_names[0], "positive": positive or dataset.column_names[1]}
    pairs = list(zip(*(list(dataset[name]) for name in columns.values()), strict=True))
    seed = None if strategy == "top" else 42
    given = {name: value for name, value in options.items() if value is not None}
    mined = search.mine_hard_negatives(model, pairs, corpus, as_triplets=form == "triplet", seed=seed, **given)
    return Dataset.from_list([{columns.get(name, name): text for name, text in row.items()} for row in mined])


def _quantize(embeddings: Any, precision: str, ranges: Any = None, calibration: Any = None) -> Any:
    vectors = rows(embeddings).cpu().numpy()
    if precision == "float32":
        return vectors.astype(np.float32)
    whole = precision in ("int8", "uint8")
    if whole and ranges is None:
        ranges = search.calibrate(vectors if calibration is None else rows(calibration).cpu().numpy())
    quantized = search.quantize(vectors, "int8" if whole else precision, ranges if whole else None)
    return (quantized.astype(np.int16) + 128).astype(np.uint8) if precision == "uint8" else quantized


_MINING = "query_chunk_size=- corpus_chunk_size=- max_pairs top_k score_function=similarity"
_SEARCH = Form(
    _search,
    "query_embeddings=queries corpus_embeddings=corpus query_chunk_size=- corpus_chunk_size=- top_k"
    " score_function=similarity",
)
FORMS = {
    "semantic_search": _SEARCH,
    "information_retrieval": _SEARCH,
    "paraphrase_mining_embeddings": Form(_mine, f"embeddings=vectors {_MINING}", {"similarity": "cosine"}),
    "paraphrase_mining": Form(
        _mine_texts,
        f"model sentences show_progress_bar batch_size {_MINING} truncate_dim prompt_name prompt",
        {"similarity": "cosine"},
    ),
    "community_detection": Form(
        _communities, "embeddings=vectors threshold min_community_size batch_size=- show_progress_bar=-"
    ),
    "mine_hard_negatives": Form(
        _negatives,
        "dataset model anchor_column_name=anchor positive_column_name=positive corpus cross_encoder! range_min"
        " range_max max_score min_score absolute_margin=margin relative_margin num_negatives=negatives"
        " sampling_strategy=strategy output_format=form batch_size=- faiss_batch_size=- use_faiss=- verbose=-",
        {"negatives": 3},
    ),
    "quantize_embeddings": Form(_quantize, "embeddings precision ranges calibration_embeddings=calibration"),
}
globals().update(factories(FORMS))


def normalize_embeddings(embeddings: Tensor) -> Tensor:
    """Vectors of length 1."""
    return functional.normalize(embeddings, dim=1)


class LoggingHandler(logging.Handler):
    """Writes log messages above progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        tqdm.write(self.format(record))


__all__ = [
    *FORMS,
    *_NAMES,
    SimilarityFunction.__name__,
    *(f"pairwise_{name}" for name in _NAMES),
    *"LoggingHandler normalize_embeddings pytorch_cos_sim truncate_embeddings".split(),
]
__getattr__ = absent(__name__, "util")
