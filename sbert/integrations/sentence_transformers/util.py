"""Their ``util``: similarities as tensors, and searches that give lists of dicts."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from torch import Tensor
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
    publish_names,
)
from sbert.storage.atomic import replacing_file

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


# Of scores: with a cross-encoder, of its scores.
_LIMITS = ("max_score", "min_score", "margin", "relative_margin")


def _rescore(rows: Any, scorer: Any, limits: Mapping[str, float], chosen: slice, form: str) -> list[dict[str, Any]]:
    """Rows of a query and documents, positives first, with the negatives that suit the scores of a cross-encoder."""
    mined = []
    for row in rows:
        scores = scorer.predict([(row["query"], text) for text in row["documents"]], show_progress_bar=False)
        positives, lowest = row["documents"][: sum(row["labels"])], min(scores[: sum(row["labels"])])
        most = min(limits.get("max_score", np.inf), lowest - limits.get("margin", -np.inf))
        most = min(most, lowest - abs(lowest) * limits.get("relative_margin", -np.inf))
        order = [i for i in np.argsort(-scores, kind="stable") if limits.get("min_score", -np.inf) <= scores[i] <= most]
        texts = [row["documents"][i] for i in order if not row["labels"][i]][chosen]
        labels = [1] * len(positives) + [0] * len(texts)
        lists = [{"query": row["query"], "documents": positives + texts, "labels": labels}] if texts else []
        if not form.startswith("labeled"):
            parts = [{"negative": text} for text in texts]
            if form == "n-tuple":
                parts = [{f"negative_{i}": text for i, text in enumerate(texts, 1)}]
                parts = parts if len(texts) == chosen.stop - chosen.start else []
            lists = [{"anchor": row["query"], "positive": text, **part} for text in positives for part in parts]
        mined += lists
    return mined


def _negatives(
    dataset: Any, model: Any, anchor: str | None, positive: str | None, corpus: Any, form: str, strategy: str,
    as_triplets: bool | None, cross_encoder: Any, **options: Any,
) -> Any:  # fmt: skip
    from datasets import Dataset  # type: ignore[import-untyped]

    form = form if as_triplets is None else "triplet" if as_triplets else "n-tuple"
    check_choice("output_format", form, ("triplet", "n-tuple", "labeled-pair", "labeled-list"))
    check_choice("sampling_strategy", strategy, ("top", "random"))
    columns = {"anchor": anchor or dataset.column_names[0], "positive": positive or dataset.column_names[1]}
    pairs = list(zip(*(list(dataset[name]) for name in columns.values()), strict=True))
    mining: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    limits = {name: mining.pop(name) for name in _LIMITS if cross_encoder is not None and name in mining}
    mining |= {"as_triplets": form == "triplet", "as_lists": form.startswith("labeled")}
    if limits:  # The nearest candidates, of which the cross-encoder chooses.
        first, count = mining.pop("range_min", 0), mining["negatives"]
        most = mining.pop("range_max", None) or first + 10 * count + max(Counter(query for query, _ in pairs).values())
        mining |= {"negatives": most, "range_max": most, "as_triplets": False, "as_lists": True}
    mined = search.mine_hard_negatives(model, pairs, corpus, seed=None if strategy == "top" else 42, **mining)
    if limits:
        mined = _rescore(mined, cross_encoder, limits, slice(first, first + count), form)
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


def _search_quantized(
    query_embeddings: Any, corpus_embeddings: Any = None, corpus_index: Any = None, corpus_precision: str = "float32",
    top_k: int = 10, rescore: bool = True, rescore_multiplier: int = 2, output_index: bool = False, **_: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The hits, the seconds, and the corpus as its index: all pairs are compared; ``sbert.search.Index`` is faster."""
    started, corpus = time.perf_counter(), corpus_index if corpus_embeddings is None else corpus_embeddings
    values, queries, count = np.asarray(corpus), as_rows(query_embeddings).numpy(), top_k
    if corpus_precision in ("binary", "ubinary"):
        codes = values.astype(np.int16) + 128 if corpus_precision == "binary" else values
        values = np.unpackbits(codes.astype(np.uint8), axis=1) * 2.0 - 1  # (rows, dim)
        queries, count = np.where(queries > 0, 1.0, -1.0), top_k * (rescore_multiplier if rescore else 1)
    hits = _search(queries.astype(np.float32), values.astype(np.float32), count, "dot")
    if count > top_k:  # Bits, 0 or 1, by the queries in full precision.
        for query, ranked in zip(as_rows(query_embeddings).numpy(), hits, strict=True):
            for hit in ranked:
                hit["score"] = float(query @ (values[hit["corpus_id"]] > 0))
            ranked[:] = sorted(ranked, key=itemgetter("score"), reverse=True)[:top_k]
    return (hits, time.perf_counter() - started, *([corpus] if output_index else []))


semantic_search_faiss = semantic_search_usearch = _search_quantized


def http_get(url: str, path: str) -> None:
    """Download a file, which is complete once it has its name."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with urlopen(url) as response, replacing_file(Path(path)) as file:  # noqa: S310
        shutil.copyfileobj(response, file)


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
    *(name for name in dir() if name.endswith(("_search", "_sim", "_score", "_embeddings", "_detection"))),
    *"LoggingHandler SimilarityFunction batch_to_device http_get information_retrieval mine_hard_negatives".split(),
    *"paraphrase_mining semantic_search_faiss semantic_search_usearch".split(),
]
__all__ = [name for name in __all__ if name[0] != "_"]
publish_names(__name__)
