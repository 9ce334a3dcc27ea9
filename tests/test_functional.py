"""Functions of vectors that are traced, exported and compiled: nothing that was true of the example is taken over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sbert.functional import directions, in_range

GIVEN = torch.tensor([[3.0, 4.0], [1.0, -2.0]])
OTHERS = torch.tensor([[0.0, 0.0], [3e-30, 4e-30], [3e30, 4e30]])


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
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
