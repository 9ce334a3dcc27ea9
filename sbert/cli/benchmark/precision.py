"""Recall of searches with vectors in low precision."""

from __future__ import annotations

import numpy as np

from sbert.functional import Vectors
from sbert.pipeline.quantization import calibrate, quantize
from sbert.search import semantic_search
from sbert.search.corpus import in_memory

# By name: the precision of the corpus, and of the vectors that rescore the best results.
WAYS: dict[str, tuple[str, str | None]] = {
    "int8": ("int8", None),
    "binary": ("ubinary", None),
    "binary, rescored by int8": ("ubinary", "int8"),
    "binary, rescored by float32": ("ubinary", "float32"),
}


def recall_by_precision(
    queries: Vectors, corpus: Vectors, top_k: int = 10, oversample: int = 4
) -> dict[str, dict[str, float]]:
    """Recall of searches in int8 and binary: the share of the ``top_k`` results of float32 that they find.

        recall = mean_q |results(q) ∩ results_float32(q)| / k

    Queries stay float32. The ranges of int8 are computed from the corpus.

    Args:
        queries: Array or tensor.
        corpus: Array or tensor, of two rows or more.
        top_k: Number of results per query; all rows if the corpus has fewer.
        oversample: With rescoring, the binary search returns ``oversample`` times ``top_k`` candidates.

    Returns:
        By precision, ``recall``, and ``bytes`` per vector, including those for rescoring.

    Shape:
        queries: (queries, dim). corpus: (rows, dim).

    Raises:
        ValueError: If there are no queries, the corpus has fewer than two rows, the dims differ, or a value is not
            finite.

    References:
        Shakir et al., 2024. https://huggingface.co/blog/embedding-quantization

    Example:
        >>> from sbert.cli.benchmark.precision import recall_by_precision
        >>> corpus = np.array([[1.0, 0.1], [1.0, 0.3], [1.0, -0.2], [-1.0, 0.0]])
        >>> report = recall_by_precision(np.array([[1.0, 0.3]]), corpus, top_k=1, oversample=3)
        >>> report["binary"]["recall"], report["binary, rescored by float32"]["recall"]
        (0.0, 1.0)
    """
    asked, vectors = in_memory("queries", queries), in_memory("corpus", corpus).float()
    if not len(asked):
        raise ValueError("there are no queries; pass at least one")
    expected = semantic_search(asked, vectors, top_k).indices
    ranges = calibrate(vectors)
    codes = {"float32": vectors, "int8": quantize(vectors, "int8", ranges), "ubinary": quantize(vectors, "ubinary")}
    report: dict[str, dict[str, float]] = {}
    for way, (coarse, fine) in WAYS.items():
        hits = semantic_search(
            asked,
            codes[coarse],
            top_k,
            ranges=ranges if "int8" in (coarse, fine) else None,
            rescore=None if fine is None else codes[fine],
            oversample=None if fine is None else oversample,
        )
        same = (hits.indices[:, :, None] == expected[:, None]).any(2)  # (queries, k)
        size = sum(codes[name][0].nbytes for name in (coarse, fine) if name)
        report[way] = {"bytes": size, "recall": float(np.mean(same))}
    return report
