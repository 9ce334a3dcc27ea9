"""Similarities against plain loops; functions of vectors that are traced, exported and compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sbert import functional
from sbert.functional import directions, in_range, segment_sum

GIVEN = torch.tensor([[3.0, 4.0], [1.0, -2.0]])
OTHERS = torch.tensor([[0.0, 0.0], [3e-30, 4e-30], [3e30, 4e30]])


@pytest.mark.parametrize("function", [directions, in_range])
def test_a_recorded_function_takes_other_values(function: Callable[[Tensor], Tensor]) -> None:
    class Module(torch.nn.Module):
        def forward(self, vectors: Tensor) -> Tensor:
            return function(vectors)

    rows = ({0: torch.export.Dim("rows")},)
    for recorded in (
        torch.jit.trace(function, GIVEN),  # type: ignore[no-untyped-call]
        torch.export.export(Module(), (GIVEN,), dynamic_shapes=rows).module(),
        torch.compile(function, fullgraph=True, backend="eager"),
        make_fx(function)(GIVEN),
        lambda vectors: torch.func.vmap(function)(vectors[None])[0],
    ):
        torch.testing.assert_close(recorded(OTHERS), function(OTHERS))
        assert recorded(OTHERS).isfinite().all()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_similarities(kind: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 6)), rng.normal(size=(3, 6))
    expected = {
        "cosine": a @ b.T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1),
        "dot": a @ b.T,
        "euclidean": -np.sqrt(((a[:, None] - b) ** 2).sum(2)),
        "manhattan": -np.abs(a[:, None] - b).sum(2),
    }
    for name, scores in expected.items():
        given = (a, b) if kind == "numpy" else (torch.from_numpy(a), torch.from_numpy(b))
        result = functional.SIMILARITIES[name](*given)
        assert isinstance(result, np.ndarray if kind == "numpy" else Tensor)
        np.testing.assert_allclose(np.asarray(result), scores, atol=1e-12)
        pairs = functional.pairwise_similarity(given[0][:3], given[1], name)
        np.testing.assert_allclose(np.asarray(pairs), np.diag(scores), atol=1e-12)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("tokens", [1, 13, 64, 65])
def test_a_row_alone_has_the_sum_that_it_has_among_others(tokens: int, mean: bool) -> None:
    values, offsets = torch.randn(tokens + 7, 48), torch.tensor([0, 3, 3 + tokens, tokens + 7])
    alone = segment_sum(values[3:-4], torch.tensor([0, tokens]), mean=mean)
    torch.testing.assert_close(alone, segment_sum(values, offsets, mean=mean)[1:2], rtol=1e-6, atol=1e-6)
