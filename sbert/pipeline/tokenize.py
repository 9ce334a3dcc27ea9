"""Token ids of many texts, or pairs of texts, truncated to the limit of the model and concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from sbert.batch import TokenBatch
from sbert.inputs.texts import Pair
from sbert.modules.tokenizer import PairTokenizer, ReadsText
from sbert.pipeline.beginnings import tokenize_beginnings
from sbert.pipeline.progress import Unknown


@dataclass(frozen=True)
class Tokens:
    """Token ids of texts, or of pairs of texts, in one array: 4 bytes per token.

    Args:
        ids: The tokens of all texts.
        offsets: Index of the first token of each text, then the number of tokens.
        truncated: Whether each text was truncated.
        prompt_tokens: Number of leading tokens of each text that belong to its prompt; None without prompts.
        types: Which text of its pair each token belongs to; None for single texts, and if the model does not use it.
        unknown: Number of unknown tokens.

    Shape:
        ids, types: (tokens,) int32. offsets: (texts + 1,) int64. truncated: (texts,) bool. prompt_tokens: (texts,).
    """

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    truncated: npt.NDArray[np.bool_]
    prompt_tokens: npt.NDArray[np.int64] | None = None
    types: npt.NDArray[np.int32] | None = None
    unknown: Unknown = field(default_factory=Unknown)

    @classmethod
    def joined(cls, parts: Sequence[Tokens]) -> Tokens:
        """Concatenate the tokens of texts with different prompts."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([part.truncated for part in parts]),
            np.concatenate([np.zeros_like(p.lengths) if p.prompt_tokens is None else p.prompt_tokens for p in parts]),
            unknown=sum((part.unknown for part in parts), Unknown()),
        )

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of tokens of each text. Shape: (texts,)."""
        return np.diff(self.offsets)

    def batch(self, rows: npt.NDArray[np.int64]) -> TokenBatch:
        """The texts ``rows``, in that order."""
        prompt, types = self.prompt_tokens, self.types
        if len(self.offsets) == 2 and len(rows) == 1:  # Of one text, which is all there is.
            offsets, lengths = self.offsets, self.offsets[1:]
            places: slice | npt.NDArray[np.int64] = slice(None)
        else:
            lengths = self.lengths[rows]
            offsets = np.concatenate([[0], np.cumsum(lengths)])  # (rows + 1,)
            # Index of each token in ids: the start of its row plus its position in the row.
            places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return TokenBatch(
            torch.from_numpy(self.ids[places].astype(np.int64)),
            torch.from_numpy(offsets),
            int(lengths.max(initial=0)),
            None if prompt is None else torch.from_numpy(np.minimum(lengths, prompt[rows])),
            None if types is None else torch.from_numpy(types[places].astype(np.int64)),
        )


def prompt_length(reader: ReadsText, prompt: str) -> int:
    """Number of tokens of a prompt, with the leading special tokens.

    Args:
        reader: First module of an encoder.
        prompt: The prompt. If it alone reaches the limit of the reader, the trailing special token still belongs to
            the text.
    """
    length, limit = len(reader.tokenize([prompt])[0]), reader.max_seq_length
    return (length if limit is None else min(length, limit)) - reader.special_tokens[1]


def tokenize(reader: ReadsText, texts: Sequence[str], prompt: str = "", max_length: int | None = None) -> Tokens:
    """Tokenize texts and truncate those that exceed the ``max_seq_length`` of the reader.

    Of texts that are far longer, only a beginning is read, where that cannot change the tokens that remain. Unknown
    tokens are counted in what is read.

    Args:
        reader: First module of an encoder.
        texts: The texts.
        prompt: Text prepended to each text; it counts toward the limit.
        max_length: A lower limit for these texts.
    """
    limits = [limit for limit in (reader.max_seq_length, max_length) if limit is not None]
    limit = min(limits, default=None)
    prompt_tokens = prompt_length(reader, prompt) if prompt else None
    read = [prompt + text for text in texts] if prompt else list(texts)
    rows = tokenize_beginnings(reader, read, limit)
    unknown = Unknown.of(reader, read, rows, prompt_tokens)
    truncated = np.zeros(len(rows), bool)
    if limit is not None and (too_long := [row for row, ids in enumerate(rows) if len(ids) > limit]):
        truncated[too_long] = True
        for row in too_long:
            rows[row] = _truncated(rows[row], limit, reader)
    ids, offsets = _flat(rows)
    _check_embedded(ids, getattr(reader, "vocab_size", None), "id", offsets, texts)
    prompts = None if prompt_tokens is None else np.full(len(rows), prompt_tokens)
    return Tokens(ids, offsets, truncated, prompts, unknown=unknown)


def _truncated(row: list[int], limit: int, reader: ReadsText) -> list[int]:
    """The row with its special tokens and as many of its other tokens as the limit allows."""
    leading, trailing = reader.special_tokens
    if getattr(reader, "truncation_side", "right") == "left":
        return row[:leading] + row[len(row) - (limit - leading) :]
    return row[: limit - trailing] + row[len(row) - trailing :]


def tokenize_pairs(
    reader: PairTokenizer, pairs: Sequence[Pair], limit: int | None, vocab_size: int | None, types: int | None
) -> Tokens:
    """Tokenize pairs of texts, each as one input, and truncate those that exceed a limit.

    Args:
        reader: The tokenizer.
        pairs: The pairs.
        limit: Longest input in tokens; None for no limit.
        vocab_size: Number of tokens that the model has vectors for, if known.
        types: Number of token types that the model has vectors for, if known.
    """
    read = reader(pairs, limit)
    rows = [ids for ids, _, _ in read]
    ids, offsets = _flat(rows)
    kinds = _flat([kinds for _, kinds, _ in read])[0] if reader.typed else None
    _check_embedded(ids, vocab_size, "id", offsets, pairs)
    if kinds is not None:
        _check_embedded(kinds, types, "type", offsets, pairs)
    truncated = np.fromiter((truncated for _, _, truncated in read), bool, len(read))
    return Tokens(ids, offsets, truncated, types=kinds, unknown=Unknown.of(reader, [], rows))


def _flat(rows: list[list[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The rows end to end, and the index of the first value of each, then the number of values."""
    if len(rows) == 1:
        return np.array(rows[0], np.int32), np.array([0, len(rows[0])])
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets


def _check_embedded(
    values: npt.NDArray[np.int32],
    size: int | None,
    what: str,
    offsets: npt.NDArray[np.int64],
    texts: Sequence[str] | Sequence[Pair],
) -> None:
    """Raise a ValueError if the model has no vector for the id or type of a token. The message names the text."""
    if size is None or values.max(initial=0) < size:
        return
    text = texts[int(np.searchsorted(offsets, values.argmax(), side="right")) - 1]
    shown = text if isinstance(text, str) else " / ".join(text)
    raise ValueError(
        f"a token of {shown[:80]!r} has the {what} {values.max()}, and the model has vectors for {size} {what}s;"
        " use the tokenizer that belongs to the weights, or auto_model.resize_token_embeddings"
    )
