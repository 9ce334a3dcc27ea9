"""Searches, mining and similarities agree, whatever the dtype and the length of the vectors."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import sbert.visualization as plotting
from sbert.functional import SIMILARITIES, cos_sim, dot_score, euclidean, manhattan, pairwise_similarity
from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search import (
    Index,
    Pair,
    cluster,
    community_detection,
    most_similar_pair,
    paraphrase_mining,
    semantic_search,
)

HALF = [torch.float16, torch.bfloat16]


def random(rows: int = 40, dim: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dim))


def exact(a: np.ndarray, b: np.ndarray, similarity: str) -> np.ndarray:
    """Plain loops in float64, with vectors scaled before they are squared."""
    scores = np.empty((len(a), len(b)))
    for row, column in itertools.product(range(len(a)), range(len(b))):
        one, two = a[row].astype(np.float64), b[column].astype(np.float64)
        if similarity == "cosine":
            one, two = (each / (np.abs(each).max() or 1) for each in (one, two))
            length = np.linalg.norm(one) * np.linalg.norm(two)
            scores[row, column] = one @ two / length if length else 0
        elif similarity == "dot":
            scores[row, column] = one @ two
        else:
            scores[row, column] = -np.linalg.norm(one - two, 2 if similarity == "euclidean" else 1)
    return scores


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_half_precision_scores_accumulate_in_float32(similarity: str, dtype: torch.dtype) -> None:
    a, b = (torch.from_numpy(random(seed=seed)).to(dtype) for seed in (0, 1))
    scores, paired = SIMILARITIES[similarity](a, b), pairwise_similarity(a, b, similarity)
    assert scores.dtype == paired.dtype == torch.float32
    expected = exact(a.double().numpy(), b.double().numpy(), similarity)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(paired.numpy(), expected.diagonal(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *((np.float32, size) for size in (1.0, 1e30, 1e-42)),
        *((np.float64, size) for size in (1e200, 1e-310)),
    ],
)
def test_a_cosine_does_not_depend_on_the_lengths(dtype: type, size: float) -> None:
    vectors = random(12, 8)
    vectors[3] = 0
    scaled = (vectors * size).astype(dtype)
    expected = exact(scaled, scaled, "cosine")
    assert (expected[3] == 0).all()
    assert expected[0, 0] == pytest.approx(1)
    scores = cos_sim(scaled, scaled)
    hits = semantic_search(scaled, scaled, 12)
    found = np.empty((12, 12))
    np.put_along_axis(found, hits.indices, hits.scores, 1)
    mined = np.zeros((12, 12))
    for score, first, second in paraphrase_mining(scaled, top_k=None):
        mined[first, second] = score
    for some in (scores, found):
        np.testing.assert_allclose(some, expected, atol=1e-6)
    np.testing.assert_allclose(mined, np.triu(expected, 1), atol=1e-6)
    np.testing.assert_allclose(
        pairwise_similarity(scaled, scaled[::-1].copy()), expected[:, ::-1].diagonal(), atol=1e-6
    )


def test_arccos_is_never_nan() -> None:
    rng = np.random.default_rng(0)
    a = torch.from_numpy(rng.normal(size=(500, 300))).float()
    near = a * (1 + 1e-4 * torch.rand(500, 1)) + 1e-6 * torch.randn(
        500, 300, generator=torch.Generator().manual_seed(0)
    )
    for one, two in ((a, a), (a, near), (a, -near), (a.bfloat16(), a.bfloat16()), (a.double(), a.double())):
        for scores in (cos_sim(one, two), pairwise_similarity(one, two)):
            assert scores.abs().max() <= 1
            assert not scores.arccos().isnan().any()
    array = semantic_search(a.numpy(), near.numpy(), 5).scores
    assert not np.isnan(np.arccos(array)).any()


def test_the_gradient_of_a_cosine_is_that_of_its_formula() -> None:
    torch.manual_seed(0)
    first = torch.randn(64, 32)
    # Nearly parallel: some cosines are rounded to more than 1, and the gradient of a clamp would be 0 there.
    second = first * 3 + 1e-3 * torch.randn(64, 32)
    raw = (F.normalize(first, dim=1) * F.normalize(second, dim=1)).sum(1)
    assert (raw > 1).any()
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = first.to(dtype).requires_grad_()
        wanted = pairwise_similarity(leaf, second.to(dtype)).sum() + cos_sim(leaf, second.to(dtype)).diagonal().sum()
        gradients.append(torch.autograd.grad(wanted, leaf)[0].double())
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-6)
    assert (gradients[0].norm(dim=1) > 1e-6).all()
    leaf = torch.zeros(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(cos_sim(leaf, torch.ones(1, 3)).sum(), leaf)
    assert gradient.abs().max() <= 1  # 1e12 with torch's normalize.
    a, b = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for compare in SIMILARITIES.values():
        assert torch.autograd.gradcheck(compare, (a, b))


@pytest.mark.parametrize("size", [1.0, 1e30, 1e-30])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_all_comparisons_agree(similarity: str, size: float) -> None:
    vectors = (random(24, 12) * size).astype(np.float32)
    scores = SIMILARITIES[similarity](vectors, vectors)
    finite = np.isfinite(scores)
    scale = np.abs(scores[finite]).max(initial=1e-37)
    hits = semantic_search(vectors, vectors, 24, similarity=similarity)
    searched = np.empty((24, 24), np.float32)
    np.put_along_axis(searched, hits.indices, hits.scores, 1)
    tensors = SIMILARITIES[similarity](torch.from_numpy(vectors), torch.from_numpy(vectors)).numpy()
    index = Index(similarity=similarity)
    index.add(vectors)
    found = index.search(vectors, 24)
    indexed = np.empty((24, 24), np.float32)
    np.put_along_axis(indexed, found.ids, found.scores, 1)
    mined = paraphrase_mining(vectors, top_k=None, similarity=similarity)
    for some in (searched, tensors, indexed):
        assert (some[~finite] == scores[~finite]).all()
        np.testing.assert_allclose(some[finite], scores[finite], rtol=1e-6, atol=2e-6 * scale)
    np.testing.assert_array_equal(mined.scores, searched[mined.first, mined.second])
    if finite.all():
        paired = pairwise_similarity(vectors[mined.first], vectors[mined.second], similarity)
        np.testing.assert_allclose(paired, mined.scores, rtol=1e-6, atol=2e-6 * scale)
        best = most_similar_pair(vectors, similarity=similarity)
        assert best == mined[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_by_searches_and_nan_in_similarities(bad: float) -> None:
    good, broken = random(5, 3).astype(np.float32), random(5, 3).astype(np.float32)
    broken[2, 1] = bad
    calls: list[Callable[[], Any]] = [
        lambda: semantic_search(good, broken),
        lambda: semantic_search(broken, good),
        lambda: paraphrase_mining(broken),
        lambda: most_similar_pair(broken),
        lambda: community_detection(broken),
        lambda: cluster(broken, clusters=2),
        lambda: Index().add(broken),
        lambda: plotting.corpus_map(broken),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"\[2\] (has a NaN|is not finite)"):
            call()
    for scores in (cos_sim(broken, good), cos_sim(good, broken).T):
        assert np.isnan(scores[2]).all()
        assert np.isfinite(np.delete(scores, 2, 0)).all()
    for name in SIMILARITIES:
        paired = pairwise_similarity(broken, good, name)
        assert not np.isfinite(paired[2])
        assert np.isfinite(np.delete(paired, 2)).all()
    if np.isnan(bad):
        with pytest.raises(ValueError, match=r"vectors\[2\] has a NaN"):
            quantize(broken, "ubinary")


def test_mined_pairs_are_a_sequence_of_pairs() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = paraphrase_mining(vectors)
    assert len(found) == 3  # As many as there are arrays, which a loop must not go over.
    rows = [(round(score, 4), first, second) for score, first, second in found]
    assert rows == [(0.8, 1, 2), (0.6, 0, 2), (0.0, 0, 1)]
    assert all(type(pair) is Pair and type(pair.first) is int for pair in found)
    assert found[0] == Pair(found.scores[0], 1, 2)
    assert found[-1].second == 1
    assert found[:2].first.tolist() == [1, 0]
    assert len(found[found.scores > 0.7]) == 1
    assert found.scores.dtype == np.float32
    assert found.first.dtype == found.second.dtype == np.int64
    assert not isinstance(found, tuple)
    with pytest.raises(IndexError):
        found[3]
    with pytest.raises(ValueError, match="unpack"):
        _, _, _ = paraphrase_mining(random(4, 3))


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[np.ndarray]:
    np.save(tmp_path / "v.npy", random(12, 8).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield np.load(tmp_path / "v.npy", mmap_mode="r")


def test_a_read_only_memory_map_draws_no_warning(mapped: np.ndarray) -> None:
    # torch warns once a process, unless it is told to warn always.
    torch.set_warn_always(True)
    try:
        copy = np.array(mapped)
        for compare in (cos_sim, dot_score, euclidean, manhattan, pairwise_similarity):
            np.testing.assert_array_equal(compare(mapped, mapped[::-1]), compare(copy, copy[::-1]))
        np.testing.assert_array_equal(semantic_search(mapped, mapped).indices, semantic_search(copy, copy).indices)
        assert paraphrase_mining(mapped)[0] == most_similar_pair(mapped)
        cluster(mapped, clusters=2)
        community_detection(mapped, 0.1, 2)
        np.testing.assert_array_equal(calibrate(mapped), calibrate(copy))
        codes = quantize(mapped, "int8", calibrate(mapped))
        codes.flags.writeable = False
        assert isinstance(dequantize(codes, "int8"), np.ndarray)
        Index().add(mapped)
        plotting.corpus_map(mapped)
    finally:
        torch.set_warn_always(False)
