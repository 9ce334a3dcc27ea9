"""Search on a simulated GPU finds exactly what a CPU finds, and copies little more than the hits to the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from sbert.search import corpus, low_precision, paraphrase_mining, semantic_search
from tests.simulated_cuda.simulator import Simulator, simulated

pytestmark = pytest.mark.simulated_cuda
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
CAPABILITIES = {(6, 1): torch.float32, (7, 5): torch.float16, (8, 0): torch.bfloat16, (9, 0): torch.bfloat16}


def random(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(3000, 24))


def units(rng: np.random.Generator) -> np.ndarray:
    vectors = random(rng)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ties(rng: np.random.Generator) -> np.ndarray:
    """Few different scores, so that most decisions are those between equal ones."""
    return rng.integers(-1, 2, size=(3000, 6))


def duplicates(rng: np.random.Generator) -> np.ndarray:
    return units(rng)[rng.integers(0, 40, 3000)]


def near_duplicates(rng: np.random.Generator) -> np.ndarray:
    """Rows that low precision cannot tell apart."""
    return units(rng)[rng.integers(0, 40, 3000)] * (1 + 1e-6 * rng.normal(size=(3000, 24)))


def lengths(rng: np.random.Generator) -> np.ndarray:
    """From tiny to huge, in one block."""
    return random(rng) * 10.0 ** rng.uniform(-8, 8, size=(3000, 1))


def tiny(rng: np.random.Generator) -> np.ndarray:
    return random(rng) * 1e-20


def huge(rng: np.random.Generator) -> np.ndarray:
    return random(rng) * 1e17


def overflowing(rng: np.random.Generator) -> np.ndarray:
    """Beyond float16, and within bfloat16."""
    return random(rng) * 1e5


def zeros(rng: np.random.Generator) -> np.ndarray:
    vectors = random(rng)
    vectors[rng.integers(0, 3000, 1500)] = 0
    vectors[:3] = 0
    return vectors


KINDS = (random, units, ties, duplicates, near_duplicates, lengths, tiny, huge, overflowing, zeros)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_hits_are_those_of_a_cpu(
    kind: Callable[[np.random.Generator], np.ndarray], capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = kind(np.random.default_rng(0)).astype(np.float32)
    device = "cuda:1" if capability == (9, 0) else "cuda:0"
    for rows in (1 << 18, 1024):  # One block, and three.
        monkeypatch.setattr(corpus, "_ROWS_ON_GPU", rows)
        for similarity in SIMILARITIES:
            for k in (1, 7, 100):
                expected = semantic_search(vectors[:40], vectors, k, similarity=similarity)
                with simulated(capability):
                    given = torch.from_numpy(vectors).to(device)
                    assert low_precision.product_dtype(given.device) == CAPABILITIES[capability]
                    hits = semantic_search(given[:40], given, k, similarity=similarity)
                np.testing.assert_array_equal(hits.indices, expected.indices)
                np.testing.assert_array_equal(hits.scores, expected.scores)


def test_sums_in_float16_are_not_used() -> None:
    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    try:
        with simulated((7, 5)):
            assert low_precision.product_dtype(torch.device("cuda")) == torch.float32
    finally:
        torch.backends.cuda.matmul.allow_fp16_accumulation = False


@pytest.mark.parametrize("rows", [0, 1, 5, 65, 300])
def test_a_corpus_of_few_rows(rows: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    expected = semantic_search(vectors[:3], vectors[:rows], 70)
    with simulated():
        hits = semantic_search(torch.from_numpy(vectors[:3]).to("cuda"), vectors[:rows], 70)
    np.testing.assert_array_equal(hits.indices, expected.indices)
    np.testing.assert_array_equal(hits.scores, expected.scores)


def searched(gpu: Simulator, similarity: str) -> dict[str, int]:
    """What a search of 8 blocks of 4096 rows for 64 queries does."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(8 * 4096, 32, generator=generator).to("cuda")
    gpu.forget()
    semantic_search(given[:64], given, 10, similarity=similarity)
    return gpu.counts()


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_little_is_copied_to_the_host(similarity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_ROWS_ON_GPU", 4096)
    with simulated() as gpu:
        counts = searched(gpu, similarity)
    hits = 64 * 10 * (4 + 8)
    assert counts["bytes to the host"] <= hits + 8 * 64  # and the lengths of the shortest and the longest row
    assert counts["synchronizations"] <= 8 * 5 + 5, counts
    # The prefilter alone, never all pairs in float64, but for manhattan, which it does not serve.
    assert (counts.get("kernel mm", 0), counts.get("kernel _cdist_forward", 0)) == (
        (0, 8) if similarity == "manhattan" else (8, 0)
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_pairs_are_those_of_a_cpu(capability: tuple[int, int]) -> None:
    for kind in (units, ties, near_duplicates):
        vectors = kind(np.random.default_rng(0)).astype(np.float32)[:1500]
        for options in ({"top_k": 5}, {"top_k": None}):
            expected = paraphrase_mining(vectors, max_pairs=200, **options)
            with simulated(capability):
                pairs = paraphrase_mining(torch.from_numpy(vectors).to("cuda:1"), max_pairs=200, **options)
            for one, other in zip(pairs, expected, strict=True):
                np.testing.assert_array_equal(one, other)
