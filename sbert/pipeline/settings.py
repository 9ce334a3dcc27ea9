"""What the caller of ``encode`` and ``predict`` has chosen, checked once; workers of a pool receive a copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from sbert.inputs.arguments import check_choice, check_positive
from sbert.pipeline.quantization import check_coding


@dataclass(frozen=True, eq=False)
class EncodeSettings:
    """The settings of one call.

    Args:
        prompt: Text prepended to each text, or to the first text of each pair.
        batch_tokens: Maximum number of tokens per batch. Default: that of the device.
        batch_size: Number of texts per batch, instead of a maximum of tokens.
        on_truncate: What to do about texts that are too long: ``"warn"``, ``"ignore"`` or ``"error"``.
        truncate_dim: Dimension to which outputs are truncated.
        normalize: Whether outputs are scaled to length 1.
        precision: Precision of the outputs.
        ranges: Ranges of the precision int8.
        token_embeddings: Whether the outputs are the vectors of the tokens of each text.
        sparse: Whether the outputs are sparse vectors.
        max_active_dims: Number of dimensions of a sparse vector that remain, those of the greatest magnitude.
        plain: Whether to compute in the dtype of the weights, and without ``torch.compile``.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a value is unknown or too small, or two settings exclude each other.
    """

    prompt: str = ""
    batch_tokens: int | None = None
    batch_size: int | None = None
    on_truncate: str = "warn"
    truncate_dim: int | None = None
    normalize: bool = False
    precision: str = "float32"
    ranges: npt.ArrayLike | None = None
    token_embeddings: bool = False
    sparse: bool = False
    max_active_dims: int | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_tokens is not None:
            raise ValueError("batch_size and batch_tokens both set the size of a batch; pass one of them")
        check_positive("batch_size", self.batch_size)
        check_positive("batch_tokens", self.batch_tokens)
        if self.on_truncate != "warn":
            check_choice("on_truncate", self.on_truncate, ("warn", "ignore", "error"))
        if self.precision != "float32" or self.ranges is not None:
            check_coding(self.precision, self.ranges)
            if self.sparse:
                raise ValueError(f"precision={self.precision!r} is for dense vectors, and the model's are sparse")
        if check_positive("max_active_dims", self.max_active_dims) and not self.sparse:
            raise ValueError("max_active_dims= is for sparse vectors, and the model's are dense; leave it out")
