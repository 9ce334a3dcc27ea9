"""Search on a simulated GPU finds exactly what a CPU finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from sbert.search import paraphrase_mining, semantic_search
from sbert.search.exact import comparison
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
CAPABILITIES = {(7, 5): torch.float32, (9, 0): torch.bfloat16}


def draw(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3000, 24))
    if kind == "ties":  # Few different scores, so that most decisions are those between equal ones.
        vectors = rng.integers(-1, 2, size=(3000, 6))
    elif kind == "near duplicates":  # Rows that low precision cannot tell apart.
        vectors = vectors[rng.integers(0, 40, 3000)] * (1 + 1e-6 * rng.normal(size=(3000, 24)))
    elif kind == "lengths":  # From tiny to huge, in one block.
        vectors *= 10.0 ** rng.uniform(-8, 8, size=(3000, 1))
    elif kind == "overflowing":  # Beyond float16, and within bfloat16.
        vectors *= 1e5
    elif kind == "zeros":
        vectors[[0, 1, 2, *rng.integers(0, 3000, 1500)]] = 0
    return vectors.astype(np.float32)


KINDS = ("random", "ties", "near duplicates", "lengths", "overflowing", "zeros")


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_hits_are_those_of_a_cpu(kind: str, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = draw(kind)
    device = "cuda:1" if capability == (9, 0) else "cuda:0"
    for similarity, k in itertools.product(SIMILARITIES, (1, 100)):
        expected = semantic_search(vectors[:40], vectors, k, similarity=similarity)
        for rows in (1 << 18, 1024):  # Two blocks, and three.
            monkeypatch.setattr(comparison, "_BLOCK_ON_GPU", rows)
            with simulated(capability):
                given = torch.from_numpy(vectors).to(device)
                assert comparison.product_dtype.__wrapped__(given.device) == CAPABILITIES[capability]
                hits = semantic_search(given[:40], given, k, similarity=similarity)
            np.testing.assert_array_equal(hits.indices, expected.indices)
            np.testing.assert_array_equal(hits.scores, expected.scores)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_pairs_are_those_of_a_cpu(capability: tuple[int, int]) -> None:
    for kind in KINDS[:3]:
        vectors = draw(kind)[:1500]
        expected = paraphrase_mining(vectors, max_pairs=200)
        with simulated(capability):
            pairs = paraphrase_mining(torch.from_numpy(vectors).to("cuda:1"), max_pairs=200)
        for pair, other in zip(pairs, expected, strict=True):
            np.testing.assert_array_equal(pair, other)
