"""What ``encode`` and ``predict`` return: the types that follow from their arguments, activation and conversion."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, cast, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sbert.inputs.texts import Pair
from sbert.pipeline.quantization import Codes

if TYPE_CHECKING:
    from typing import NotRequired, Unpack

    from sbert.pipeline.pool import Pool

ScoreActivation = Callable[[Tensor], Tensor]
Sentences = str | Iterable[str]
Pairs = Pair | Iterable[Pair]
Encoded = Codes | Tensor | list[Tensor]
Scored = np.float32 | npt.NDArray[np.float32] | Tensor | list[Tensor]


class Ranked(TypedDict):
    """A document in a ranking: its index, its score with the query and, if wanted, its text."""

    corpus_id: int
    score: float | Tensor
    text: NotRequired[str]


class Options(TypedDict, total=False):
    """The arguments that ``encode`` and ``predict`` share, and on which the types of their results do not depend."""

    batch_size: int | None
    batch_tokens: int | None
    show_progress_bar: bool | None
    on_truncate: str
    prompt_name: str | None
    prompt: str | None
    pool: Pool | None
    chunk_size: int | None


class EncodeOptions(Options, total=False):
    """The arguments of ``encode`` on which the type of its result does not depend."""

    ranges: npt.ArrayLike | None
    device: str | torch.device | Sequence[str | torch.device] | None
    normalize_embeddings: bool
    truncate_dim: int | None
    max_active_dims: int | None
    out: str | os.PathLike[str] | None
    overwrite: bool
    shard: tuple[int, int] | None
    task: str | None


class EncodeToArray(EncodeOptions, total=False):
    """The arguments of ``encode`` where it returns an array."""

    output_value: Literal["sentence_embedding"]
    convert_to_numpy: Literal[True]
    convert_to_tensor: Literal[False]


class PredictOptions(Options, total=False):
    """The arguments of ``predict`` on which the type of its result does not depend."""

    activation: ScoreActivation | None


class PredictToArray(PredictOptions, total=False):
    """The arguments of ``predict`` where it returns an array."""

    convert_to_numpy: Literal[True]
    convert_to_tensor: Literal[False]


class Encode(Protocol):
    """The types of ``encode``: an array by default, else a tensor or, for token embeddings, one tensor per text."""

    @overload
    def __call__(
        self, sentences: Sentences, *, precision: Literal["float32"] = ..., **more: Unpack[EncodeToArray]
    ) -> npt.NDArray[np.float32]: ...
    @overload
    def __call__(self, sentences: Sentences, *, precision: str, **more: Unpack[EncodeToArray]) -> Codes: ...
    @overload
    def __call__(
        self,
        sentences: Sentences,
        *,
        precision: str = ...,
        convert_to_tensor: Literal[True],
        **more: Unpack[EncodeOptions],
    ) -> Tensor: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # A str is an iterable of str as well.
        self, sentences: str, *, output_value: Literal["token_embeddings"], **more: Unpack[EncodeOptions]
    ) -> Tensor: ...
    @overload
    def __call__(
        self, sentences: Iterable[str], *, output_value: Literal["token_embeddings"], **more: Unpack[EncodeOptions]
    ) -> list[Tensor]: ...
    @overload
    def __call__(
        self,
        sentences: Sentences,
        *,
        precision: str = ...,
        output_value: str = ...,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **more: Unpack[EncodeOptions],
    ) -> Encoded: ...


class Predict(Protocol):
    """The types of ``predict``: an array by default, else a tensor, or a list of them; of one pair, its row."""

    @overload
    def __call__(self, pairs: Iterable[Pair], **more: Unpack[PredictToArray]) -> npt.NDArray[np.float32]: ...
    @overload
    def __call__(self, pairs: Pair, **more: Unpack[PredictToArray]) -> np.float32 | npt.NDArray[np.float32]: ...
    @overload
    def __call__(self, pairs: Pairs, *, convert_to_tensor: Literal[True], **more: Unpack[PredictOptions]) -> Tensor: ...
    @overload
    def __call__(
        self,
        pairs: Pairs,
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **more: Unpack[PredictOptions],
    ) -> Scored: ...


def as_encode(method: Callable[..., Any]) -> Encode:
    """Declare that a method has the types of ``encode``."""
    return cast("Encode", method)


def as_predict(method: Callable[..., Any]) -> Predict:
    """Declare that a method has the types of ``predict``."""
    return cast("Predict", method)


def convert(outputs: Tensor | list[Tensor], single: bool, to_numpy: bool, to_tensor: bool) -> Scored:
    """The outputs as the caller wants them.

    Args:
        outputs: One row per text or pair; or a tensor for each.
        single: Whether the caller passed one text or pair, and gets one row.
        to_numpy: Whether to return an array.
        to_tensor: Whether to return a tensor, which comes first; with neither, a list of tensors.
    """
    result: Any = outputs
    if isinstance(outputs, Tensor):
        result = outputs.numpy() if to_numpy and not to_tensor else outputs
        if not (single or to_numpy or to_tensor):
            return list(outputs)
    return result[0] if single else result  # type: ignore[no-any-return]


def activate(scores: Tensor, activation: ScoreActivation) -> Tensor:
    """Apply an activation to scores: float32, or integers if it returns those.

    Args:
        scores: Scores of pairs.
        activation: A function of scores.

    Shape:
        scores: (pairs, classes). Output: (pairs,) for one class, else (pairs, …).

    Raises:
        ValueError: If the activation does not return one row per pair, returns NaN, or is a softmax over a single
            score, which is always 1.

    Example:
        >>> import torch
        >>> from sbert.pipeline.results import activate
        >>> activate(torch.zeros(2, 1), torch.sigmoid)
        tensor([0.5000, 0.5000])
    """
    rows, classes = scores.shape
    if classes == 1 and isinstance(activation, (nn.Softmax, nn.LogSoftmax)):
        raise ValueError(f"activation={activation} of one score gives every pair the same; pass nn.Sigmoid()")
    result = activation(scores)
    shape = tuple(result.shape) if isinstance(result, Tensor) else ()
    if shape[:1] != (rows,) or (classes == 1 and result.numel() != rows):
        output = f"shape {shape}" if shape else type(result).__name__
        raise ValueError(f"activation={activation} makes {output} of {(rows, classes)} scores; return a row per pair")
    result = result.float() if result.is_floating_point() else result
    missing = result.isnan().flatten(1).any(1) if result.ndim > 1 else result.isnan()
    if missing.any():
        raise ValueError(f"activation={activation} gives NaN for pairs[{int(missing.nonzero()[0])}]; pass another one")
    return result.reshape(rows) if classes == 1 else result
