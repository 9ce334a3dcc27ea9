"""Token ids of many texts, truncated to the limit of the model and concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch

from sbert.batch import TokenBatch
from sbert.modules.tokenizer import ReadsText
from sbert.pipeline.progress import Unknown


@dataclass(frozen=True)
class Tokens:
    """Token ids of texts in one array: 4 bytes per token.

    Shape:
        ids: (tokens,) int32. offsets: (texts + 1,) int64. truncated: (texts,) bool.
    """

    ids: np.ndarray
    offsets: np.ndarray
    truncated: np.ndarray
    prompt_tokens: int | None
    unknown: Unknown = field(default_factory=Unknown)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text. Shape: (texts,)."""
        return np.diff(self.offsets)

    def batch(self, rows: np.ndarray) -> TokenBatch:
        """The texts ``rows``, in that order."""
        starts, lengths = self.offsets[rows], self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])  # (rows + 1,)
        # Index of each token in ids: the start of its row plus its position in the row.
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        prompt = None
        if self.prompt_tokens is not None:
            prompt = torch.from_numpy(np.minimum(lengths, self.prompt_tokens))
        ids = torch.from_numpy(self.ids[places].astype(np.int64))
        return TokenBatch(ids, torch.from_numpy(offsets), int(lengths.max(initial=0)), prompt)


@dataclass(frozen=True)
class PromptedTokens(Tokens):
    """Token ids of texts with different prompts.

    Shape:
        prompts: (texts,), number of leading tokens of each text that belong to its prompt.
    """

    prompts: np.ndarray = field(kw_only=True)

    @classmethod
    def joined(cls, parts: Sequence[Tokens]) -> PromptedTokens:
        """Concatenate parts, each of which has one prompt or none."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([part.truncated for part in parts]),
            None,
            sum((part.unknown for part in parts), Unknown()),
            prompts=np.repeat([part.prompt_tokens or 0 for part in parts], [len(part.lengths) for part in parts]),
        )

    def batch(self, rows: np.ndarray) -> TokenBatch:
        """The texts ``rows``, in that order."""
        prompt = np.minimum(self.lengths[rows], self.prompts[rows])
        return replace(super().batch(rows), prompt_tokens=torch.from_numpy(prompt))


def _truncated(row: list[int], limit: int, leading: int, trailing: int, side: str) -> list[int]:
    """The row with its special tokens and as many of its other tokens as the limit allows."""
    if side == "left":
        return row[:leading] + row[len(row) - (limit - leading) :]
    return row[: limit - trailing] + row[len(row) - trailing :]


def tokenize(reader: ReadsText, texts: Sequence[str], prompt: str = "") -> Tokens:
    """Tokenize texts and truncate those that exceed the ``max_seq_length`` of the reader.

    Args:
        reader: First module of an encoder.
        texts: The texts.
        prompt: Text prepended to each text; it counts toward the limit.
    """
    leading, trailing = reader.special_tokens
    limit = reader.max_seq_length
    prompt_tokens = None
    if prompt:
        length = len(reader.tokenize([prompt])[0])
        # If the prompt alone reaches the limit, the trailing special token still belongs to the text.
        prompt_tokens = (length if limit is None else min(length, limit)) - trailing
    rows = reader.tokenize(read := [prompt + text for text in texts] if prompt else list(texts))
    unknown = Unknown.of(reader, read, rows, prompt_tokens)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    truncated = np.zeros(len(rows), bool) if limit is None else lengths > limit
    for row in np.flatnonzero(truncated):
        rows[row] = _truncated(rows[row], limit or 0, leading, trailing, getattr(reader, "truncation_side", "right"))
    lengths = lengths if limit is None else np.minimum(lengths, limit)
    ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    vocab_size = getattr(reader, "vocab_size", None)
    if vocab_size is not None and ids.max(initial=0) >= vocab_size:
        text = texts[np.searchsorted(offsets, ids.argmax(), side="right") - 1]
        raise ValueError(
            f"a token of {text[:40]!r} has the id {ids.max()}, and the model has vectors for {vocab_size} tokens;"
            " use the tokenizer.json that belongs to the weights, or resize_token_embeddings"
        )
    return Tokens(ids, offsets, truncated, prompt_tokens, unknown)
