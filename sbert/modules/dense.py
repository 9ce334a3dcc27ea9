"""Modules that map each vector to another, of a text or of a token: Normalize, Dense, LayerNorm; Dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from sbert.batch import TokenEmbeddings
from sbert.functional import accumulation_dtype, directions
from sbert.inputs.arguments import known_arguments

# Activations of a Dense module. Names in files are looked up here only.
DENSE_ACTIVATIONS: dict[str, type[nn.Module]] = {
    name: getattr(nn, name)
    for name in (
        "CELU ELU GELU Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid"
        " Softplus Softsign Tanh Tanhshrink"
    ).split()
}


class OfEachVector(nn.Module):
    """A module that maps each vector, of a text or of a token, by itself: (vectors, dim) to (vectors, dim)."""

    convert: Callable[[Tensor], Tensor]

    def forward(self, vectors: Any) -> Any:
        if isinstance(vectors, TokenEmbeddings):
            return replace(vectors, values=self.convert(vectors.values))
        return self.convert(vectors)


class Normalize(OfEachVector):
    """Scales each vector to length 1.

        y = x / |x|_2, and 0 for a vector of zeros

    Shape:
        Input: (rows, dim). Output: (rows, dim).

    Example:
        >>> import torch
        >>> from sbert import Normalize
        >>> Normalize()(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    def convert(self, vectors: Tensor) -> Tensor:
        return directions(vectors.to(accumulation_dtype(vectors.dtype)))


class Dense(OfEachVector):
    """A linear layer with an activation.

        y = f(W x + b); with ``residual``, + x or, if the dimensions differ, + V x

    Args:
        in_features: Dimension of the input.
        out_features: Dimension of the output.
        bias: Whether to add b.
        activation: f, an activation of ``torch.nn`` without arguments.
        residual: Whether the input is added to the output.

    Shape:
        Input: (rows, in_features). Output: (rows, out_features).

    Raises:
        ValueError: If the activation is unknown.

    Example:
        >>> import torch
        >>> from sbert import Dense
        >>> Dense(384, 128)(torch.zeros(2, 384)).shape
        torch.Size([2, 128])
    """

    @known_arguments
    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, activation: str = "Tanh", residual: bool = False
    ) -> None:
        super().__init__()
        if activation not in DENSE_ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is unknown; pass one of {', '.join(DENSE_ACTIVATIONS)}")
        self.activation: str = activation
        self.linear: nn.Linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation_function: nn.Module = DENSE_ACTIVATIONS[activation]()
        self.use_residual: bool = residual
        if residual:
            same = in_features == out_features
            self.residual: Any = nn.Identity() if same else nn.Linear(in_features, out_features, bias=False)

    def convert(self, vectors: Tensor) -> Tensor:
        vectors = vectors.to(self.linear.weight.dtype)
        output: Tensor = self.activation_function(self.linear(vectors))  # (rows, out_features)
        output = output.to(accumulation_dtype(output.dtype))  # Less under autocast, or of weights in half precision.
        return output + self.residual(vectors) if self.use_residual else output


class LayerNorm(OfEachVector):
    """Layer normalization of each vector.

        y = (x - mean(x)) / sqrt(var(x) + 1e-5) * w + b

    Args:
        dim: Dimension of the vectors.

    Shape:
        Input: (rows, dim). Output: (rows, dim).

    References:
        Ba et al., 2016. https://arxiv.org/abs/1607.06450

    Example:
        >>> import torch
        >>> from sbert import LayerNorm
        >>> LayerNorm(2)(torch.tensor([[1.0, 3.0]]))
        tensor([[-1.0000,  1.0000]], grad_fn=<NativeLayerNormBackward0>)
    """

    @known_arguments
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm: nn.LayerNorm = nn.LayerNorm(dim)

    def convert(self, vectors: Tensor) -> Tensor:
        return self.norm(vectors.to(self.norm.weight.dtype))  # type: ignore[no-any-return]


class Dropout(nn.Dropout):
    """In training, set each element to zero with probability p and scale the others by 1 / (1 - p).

    Args:
        p: The probability.

    Shape:
        Input: (rows, dim). Output: (rows, dim).

    Example:
        >>> import torch
        >>> from sbert import Dropout
        >>> Dropout(0.5).eval()(torch.ones(1, 2))
        tensor([[1., 1.]])
    """

    @known_arguments
    def __init__(self, p: float = 0.2) -> None:
        super().__init__(p)
