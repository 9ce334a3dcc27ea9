"""Pairs of texts: validated, tokenized as one input each, and scored in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.backends.select import Inference
from sbert.batch import TokenBatch
from sbert.inputs.texts import columns_of
from sbert.modules.tokenizer import unknown_id, without_lone_surrogates
from sbert.pipeline.batching import plan, unique
from sbert.pipeline.eval_mode import evaluating
from sbert.pipeline.outputs import RowsOfTensor
from sbert.pipeline.progress import Report, Unknown, check_finite
from sbert.pipeline.run import ahead, run
from sbert.pipeline.tokenize import Tokens
from sbert.storage.files import is_failure, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Pair = tuple[str, str]

# Pairs that are tokenized and sorted together.
_WINDOW = 8192


def is_pair(value: Any) -> bool:
    """Whether a value is one pair of texts."""
    listed = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return listed and len(value) == 2 and all(isinstance(text, str) for text in value)


def pairs_of(pairs: Any) -> Iterator[Pair]:
    """Iterate over pairs; a single pair is an iterable of one.

    Raises:
        TypeError: If a row is not a pair of str (the message names it), or the input is not an iterable of pairs.
    """
    if is_pair(pairs):
        pairs = [pairs]
    columns = columns_of(pairs)
    if columns is not None or isinstance(pairs, (str, bytes, bytearray, Set)) or not isinstance(pairs, Iterable):
        two = f", such as zip(pairs[{columns[0]!r}], pairs[{columns[1]!r}])" if columns and len(columns) > 1 else ""
        raise TypeError(
            f"pairs is of type {type(pairs).__name__}; pass a tuple of two str, or an ordered iterable of such"
            f" tuples{two}"
        )
    for row, pair in enumerate(pairs):
        if not is_pair(pair):
            raise TypeError(f"pairs[{row}] is {_describe(pair)}; pass a tuple of two str")
        yield (str(pair[0]), str(pair[1]))


def _describe(value: Any) -> str:
    if isinstance(value, (tuple, list, np.ndarray)):
        kinds = ", ".join(type(part).__name__ for part in value[:3]) + (", …" if len(value) > 3 else "")
        return f"a {type(value).__name__} of {len(value)} ({kinds})"
    return f"of type {type(value).__name__}"


@dataclass(frozen=True)
class PairTokens(Tokens):
    """Token ids of pairs in one array, with token types.

    Shape:
        ids, types: (tokens,) int32. offsets: (pairs + 1,) int64. truncated: (pairs,) bool.
    """

    types: np.ndarray | None = None

    def batch(self, rows: np.ndarray) -> TokenBatch:
        """The pairs ``rows``, in that order."""
        batch = super().batch(rows)
        if self.types is None:
            return batch
        return replace(batch, types=Tokens(self.types, self.offsets, self.truncated, None).batch(rows).ids)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Number of tokens that remain of two texts in a limited length: the longer text is truncated first.

    Example:
        >>> longest_first(3, 20, room=10), longest_first(30, 20, room=11)
        ((3, 7), (6, 5))
    """
    if first + second <= room:
        return first, second
    if min(first, second) * 2 > room:
        # An odd number leaves one more token to the longer text, or to the second one of equal length.
        less, more = room // 2, room - room // 2
        return (more, less) if first > second else (less, more)
    return (first, room - first) if first <= second else (room - second, second)


class PairTokenizer:
    """Tokenizes two texts as one input, like the tokenizer of a Hugging Face model, without state that a call changes.

    Args:
        tokenizer: Tokenizer of the model. A Rust tokenizer is copied, so that changes of the original have no effect.
        typed: Whether the model uses token types.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, typed: bool) -> None:
        self._plain, self._fast, self._unknown = tokenizer, None, None
        self.typed = typed
        self.side = str(tokenizer.truncation_side)
        if tokenizer.is_fast:
            from tokenizers import Tokenizer

            described = tokenizer.backend_tokenizer.to_str()
            self._unknown = unknown_id(tokenizer.backend_tokenizer, described)
            self._fast = Tokenizer.from_str(described)
            self._fast.no_padding()
            self._fast.no_truncation()
        self.special_tokens = len(self._rows([("", "")])[0][0])

    def __call__(self, pairs: Sequence[Pair], limit: int | None) -> PairTokens:
        """Tokens of the pairs, truncated to the limit by ``longest_first``."""
        rows = self._rows(list(pairs))
        lengths = np.fromiter((len(ids) for ids, _, _ in rows), np.int64, len(rows))
        truncated = np.zeros(len(rows), bool) if limit is None else lengths > limit
        for row in np.flatnonzero(truncated):
            rows[row] = self._truncated(rows[row], limit or 0)
        total = np.concatenate([[0], np.cumsum([len(ids) for ids, _, _ in rows])]).astype(np.int64)
        ids = np.fromiter(chain.from_iterable(row[0] for row in rows), np.int32, total[-1])
        types = np.fromiter(chain.from_iterable(row[1] for row in rows), np.int32, total[-1]) if self.typed else None
        unknown = Unknown(int((ids == self._unknown).sum()), len(ids) - self.special_tokens * len(rows))
        return PairTokens(ids, total, truncated, None, unknown, types)

    def _rows(self, pairs: list[Pair]) -> list[tuple[list[int], list[int], Any]]:
        """Ids and types of each pair without truncation, and the encoding that assigns tokens to texts."""
        if self._fast is None:
            clean = [(without_lone_surrogates(first), without_lone_surrogates(second)) for first, second in pairs]
            return [self._slow(pair) for pair in clean]
        try:
            encoded = self._encode(pairs)
        except (TypeError, UnicodeError):
            encoded = self._encode([(without_lone_surrogates(a), without_lone_surrogates(b)) for a, b in pairs])
        return [(encoding.ids, encoding.type_ids, encoding) for encoding in encoded]

    def _encode(self, pairs: list[Pair]) -> list[Any]:
        try:
            return self._fast.encode_batch_fast(pairs)  # type: ignore[union-attr]
        except (TypeError, UnicodeError):
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            raise ValueError(
                f"the tokenizer fails at a pair ({one_line(error)}); its tokenizer.json is damaged or incomplete, so"
                " use another copy"
            ) from error

    def _slow(self, pair: Pair, **options: Any) -> tuple[list[int], list[int], Pair]:
        options = {"truncation": False, **options}
        made = self._plain(*pair, return_token_type_ids=True, padding=False, verbose=False, **options)
        return made["input_ids"], made["token_type_ids"], pair

    def _truncated(self, row: tuple[list[int], list[int], Any], limit: int) -> tuple[list[int], list[int], Any]:
        ids, types, source = row
        if self._fast is None:
            return self._slow(source, truncation="longest_first", max_length=limit)
        # (tokens,): 0 and 1 for tokens of the two texts, -1 for special tokens.
        owner = np.array([-1 if text is None else text for text in source.sequence_ids])
        texts = np.flatnonzero(owner == 0), np.flatnonzero(owner == 1)
        room = limit - (len(ids) - len(texts[0]) - len(texts[1]))
        keeps = longest_first(len(texts[0]), len(texts[1]), room)
        gone = [
            text[: len(text) - keep] if self.side == "left" else text[keep:]
            for text, keep in zip(texts, keeps, strict=True)
        ]
        kept = np.setdiff1d(np.arange(len(ids)), np.concatenate(gone))
        return np.array(ids)[kept].tolist(), np.array(types)[kept].tolist(), source


def check_tokens(tokens: PairTokens, pairs: Sequence[Pair], vocab: int | None, types: int | None) -> PairTokens:
    """The tokens, if the model has embeddings for all ids and types.

    Raises:
        ValueError: If not. The message names the pair and the remedy.
    """
    for what, values, size in (("id", tokens.ids, vocab), ("type", tokens.types, types)):
        if size is not None and values is not None and values.max(initial=0) >= size:
            first, _ = pairs[int(np.searchsorted(tokens.offsets, values.argmax(), side="right")) - 1]
            raise ValueError(
                f"a token of the pair that begins with {first[:40]!r} has the {what} {values.max()}, and the model has"
                f" vectors for {size}; use the tokenizer that belongs to the weights"
            )
    return tokens


def score(model: Any, pairs: list[Pair], report: Report, budget: int, size: int | None, to: torch.device) -> Tensor:
    """Scores of pairs before the activation. Each distinct pair is scored once.

    Args:
        model: A ``CrossEncoder``.
        pairs: The pairs.
        report: Records progress and truncation.
        budget: Maximum number of tokens per batch.
        size: Number of pairs per batch, instead of a maximum of tokens.
        to: Device of the scores.

    Shape:
        Output: (pairs, classes) float32.
    """
    different, first, inverse = unique(pairs)
    counts = np.bincount(inverse, minlength=len(different))
    result = RowsOfTensor((len(different), model.classes), to)
    here, starts = model.device, range(0, len(different), _WINDOW)
    forward = Inference(model.dtype).running(model)
    windows = (model.tokens(different[start : start + _WINDOW]) for start in starts)
    with evaluating(model), closing(ahead(windows) if len(starts) > 1 else windows) as tokenized:
        for start, tokens in zip(starts, tokenized, strict=True):
            truncated = start + np.flatnonzero(tokens.truncated)
            report.truncated_rows(first[truncated], int(counts[truncated].sum()))
            report.unknown += tokens.unknown
            for rows, scores in run(forward, tokens, plan(tokens.lengths, budget, size), here):
                result.put(start + rows, scores.float())
                report.done(int(counts[start + rows].sum()))
    report.rows += len(pairs)
    complete = result.complete()[torch.from_numpy(inverse).to(to)]
    check_finite(complete, 0, "the score of pairs")
    return complete


def activated(scores: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
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
        >>> activated(torch.zeros(2, 1), torch.sigmoid)
        tensor([0.5000, 0.5000])
    """
    rows, classes = scores.shape
    if classes == 1 and isinstance(activation, (nn.Softmax, nn.LogSoftmax)):
        raise ValueError(
            f"activation={activation} of one score gives every pair the same; pass nn.Sigmoid() or nn.Identity()"
        )
    found = activation(scores)
    if (
        not isinstance(found, Tensor)
        or not found.ndim
        or len(found) != rows
        or (classes == 1 and found.numel() != rows)
    ):
        given = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"activation={activation} makes {given} of ({rows}, {classes}) scores; pass a function that returns a"
            f" tensor with a row for each of the {rows} pairs"
        )
    found = found.float() if found.is_floating_point() else found
    missing = found.isnan().reshape(rows, -1).any(1) if rows else found.new_zeros(0)
    if missing.any():
        raise ValueError(f"activation={activation} gives NaN for pairs[{int(missing.nonzero()[0])}]; pass another one")
    return found.reshape(rows) if classes == 1 else found
