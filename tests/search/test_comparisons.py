"""Similarities and searches hold whatever the dtype and the length of the vectors, and name what is not finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sbert.functional import SIMILARITIES, cos_sim, pairwise_similarity
from sbert.search import Index, cluster, community_detection, paraphrase_mining, semantic_search
from tests.search.test_semantic_search import score


def random(rows: int = 40, dim: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dim))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_half_precision_scores_accumulate_in_float32(similarity: str, dtype: torch.dtype) -> None:
    a, b = (torch.from_numpy(random(seed=seed)).to(dtype) for seed in (0, 1))
    scores, paired = SIMILARITIES[similarity](a, b), pairwise_similarity(a, b, similarity)
    assert scores.dtype == paired.dtype == torch.float32
    expected = score(a.double().numpy(), b.double().numpy(), similarity)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(paired.numpy(), expected.diagonal(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float32, 1.0), (np.float32, 1e30), (np.float32, 1e-42), (np.float64, 1e200), (np.float64, 1e-310)],
)
def test_a_cosine_does_not_depend_on_the_lengths(dtype: type, size: float) -> None:
    vectors = random(12, 8)
    vectors[3] = 0
    scaled = (vectors * size).astype(dtype)
    expected = score(scaled / np.float64(size), scaled / np.float64(size), "cosine")
    hits = semantic_search(scaled, scaled, 12)
    searched, mined = np.empty((12, 12)), np.zeros((12, 12))
    np.put_along_axis(searched, hits.indices, hits.scores, 1)
    for pair_score, first, second in paraphrase_mining(scaled):
        mined[first, second] = pair_score
    for scores in (cos_sim(scaled, scaled), searched, mined + np.tril(expected)):
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    paired = pairwise_similarity(scaled, scaled[::-1].copy())
    np.testing.assert_allclose(paired, expected[:, ::-1].diagonal(), atol=1e-6)


def test_arccos_is_never_nan() -> None:
    a = torch.from_numpy(np.random.default_rng(0).normal(size=(500, 300))).float()
    near = a * (1 + 1e-4 * torch.rand(500, 1)) + 1e-6
    for one, two in ((a, a), (a, near), (a, -near), (a.bfloat16(), a.bfloat16()), (a.double(), a.double())):
        for scores in (cos_sim(one, two), pairwise_similarity(one, two)):
            assert not scores.arccos().isnan().any()
    assert not np.isnan(np.arccos(semantic_search(a.numpy(), near.numpy(), 5).scores)).any()


def test_the_gradient_of_a_cosine_is_that_of_its_formula() -> None:
    torch.manual_seed(0)
    first = torch.randn(64, 32)
    # Nearly parallel: some cosines are rounded to more than 1, and the gradient of a clamp would be 0 there.
    second = first * 3 + 1e-3 * torch.randn(64, 32)
    assert ((F.normalize(first, dim=1) * F.normalize(second, dim=1)).sum(1) > 1).any()
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = first.to(dtype).requires_grad_()
        cosines = pairwise_similarity(leaf, second.to(dtype)).sum() + cos_sim(leaf, second.to(dtype)).diagonal().sum()
        gradients.append(torch.autograd.grad(cosines, leaf)[0].double())
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-6)
    assert (gradients[0].norm(dim=1) > 1e-6).all()
    leaf = torch.zeros(2, 3, requires_grad=True)
    assert torch.autograd.grad(cos_sim(leaf, torch.ones(1, 3)).sum(), leaf)[0].abs().max() <= 1  # torch: 1e12.
    a, b = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert all(torch.autograd.gradcheck(compare, (a, b)) for compare in SIMILARITIES.values())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_by_searches_and_nan_in_similarities(bad: float) -> None:
    good, broken = random(5, 3).astype(np.float32), random(5, 3).astype(np.float32)
    broken[2, 1] = bad
    for call in (
        lambda: semantic_search(good, broken),
        lambda: paraphrase_mining(broken),
        lambda: community_detection(broken),
        lambda: cluster(broken, clusters=2),
        lambda: Index().add(broken),
    ):
        with pytest.raises(ValueError, match=r"\[2\] (has a NaN|is not finite)"):
            call()
    for scores in (cos_sim(broken, good), cos_sim(good, broken).T):
        assert np.isnan(scores[2]).all()
        assert np.isfinite(np.delete(scores, 2, 0)).all()
    for name in SIMILARITIES:
        assert np.isfinite(pairwise_similarity(broken, good, name)).tolist() == [True, True, False, True, True]
