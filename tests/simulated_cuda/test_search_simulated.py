"""Search on a simulated GPU finds exactly what a CPU finds."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from sbert.search import paraphrase_mining, semantic_search
from sbert.search.exact import scores
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
CAPABILITIES = {(7, 5): torch.float32, (9, 0): torch.bfloat16}
blocks = sys.modules["sbert.search.exact.semantic_search"]


def random(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(3000, 24))


def ties(rng: np.random.Generator) -> np.ndarray:
    """Few different scores, so that most decisions are those between equal ones."""
    return rng.integers(-1, 2, size=(3000, 6))


def near_duplicates(rng: np.random.Generator) -> np.ndarray:
    """Rows that low precision cannot tell apart."""
    return random(rng)[rng.integers(0, 40, 3000)] * (1 + 1e-6 * rng.normal(size=(3000, 24)))


def lengths(rng: np.random.Generator) -> np.ndarray:
    """From tiny to huge, in one block."""
    return random(rng) * 10.0 ** rng.uniform(-8, 8, size=(3000, 1))


def overflowing(rng: np.random.Generator) -> np.ndarray:
    """Beyond float16, and within bfloat16."""
    return random(rng) * 1e5


def zeros(rng: np.random.Generator) -> np.ndarray:
    vectors = random(rng)
    vectors[rng.integers(0, 3000, 1500)] = 0
    vectors[:3] = 0
    return vectors


KINDS = (random, ties, near_duplicates, lengths, overflowing, zeros)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_hits_are_those_of_a_cpu(
    kind: Callable[[np.random.Generator], np.ndarray], capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = kind(np.random.default_rng(0)).astype(np.float32)
    device = "cuda:1" if capability == (9, 0) else "cuda:0"
    for rows in (1 << 18, 1024):  # Two blocks, and three.
        monkeypatch.setattr(blocks, "_ROWS_ON_GPU", rows)
        for similarity in SIMILARITIES:
            for k in (1, 100):
                expected = semantic_search(vectors[:40], vectors, k, similarity=similarity)
                with simulated(capability):
                    given = torch.from_numpy(vectors).to(device)
                    assert scores.product_dtype.__wrapped__(given.device) == CAPABILITIES[capability]
                    hits = semantic_search(given[:40], given, k, similarity=similarity)
                np.testing.assert_array_equal(hits.indices, expected.indices)
                np.testing.assert_array_equal(hits.scores, expected.scores)


def test_a_corpus_of_few_rows() -> None:
    vectors = np.random.default_rng(0).normal(size=(65, 16)).astype(np.float32)
    for rows in (0, 1, 65):
        expected = semantic_search(vectors[:3], vectors[:rows], 70)
        with simulated():
            hits = semantic_search(torch.from_numpy(vectors[:3]).to("cuda"), vectors[:rows], 70)
        np.testing.assert_array_equal(hits.indices, expected.indices)
        np.testing.assert_array_equal(hits.scores, expected.scores)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_pairs_are_those_of_a_cpu(capability: tuple[int, int]) -> None:
    for kind in (random, ties, near_duplicates):
        vectors = kind(np.random.default_rng(0)).astype(np.float32)[:1500]
        for options in ({"top_k": 5}, {"top_k": None}):
            expected = paraphrase_mining(vectors, max_pairs=200, **options)
            with simulated(capability):
                pairs = paraphrase_mining(torch.from_numpy(vectors).to("cuda:1"), max_pairs=200, **options)
            for one, other in zip(pairs, expected, strict=True):
                np.testing.assert_array_equal(one, other)
