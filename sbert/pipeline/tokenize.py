"""Token ids of many texts, or pairs of texts, truncated to the limit of the model and concatenated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from sbert.batch import TokenBatch
from sbert.inputs.texts import Pair
from sbert.modules.tokenizer import PairTokenizer, ReadsText

# Characters per token, and at least, that are read of a text, where a model has a limit; three or four are usual. What
# is longer and still has too few tokens is no language, and a tokenizer takes up to 500 bytes per character.
_CHARACTERS, _LEAST = 64, 2048
# Characters of texts that are tokenized together.
_TOGETHER = 1 << 20

Text = TypeVar("Text")


@dataclass(frozen=True)
class Tokens:
    """Token ids of texts, or of pairs of texts, in one array: 4 bytes per token.

    Args:
        ids: The tokens of all texts.
        offsets: Index of the first token of each text, then the number of tokens.
        truncated: Whether each text was truncated.
        prompt_tokens: Number of leading tokens of each text that belong to its prompt; None without prompts.
        types: Which text of its pair each token belongs to; None for single texts, and if the model does not use it.
        unreadable: Whether each text consists mostly of unknown tokens: see ``TokenKinds``.
        marks: As of ``TokenBatch``.

    Shape:
        ids, types, marks: (tokens,) int32. offsets: (texts + 1,) int64. truncated, unreadable: (texts,) bool.
        prompt_tokens: (texts,).
    """

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    truncated: npt.NDArray[np.bool_]
    prompt_tokens: npt.NDArray[np.int64] | None = None
    types: npt.NDArray[np.int32] | None = None
    unreadable: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    marks: npt.NDArray[np.int64] | None = None

    @classmethod
    def join(cls, parts: Sequence[Tokens]) -> Tokens:
        """Concatenate the tokens of texts with different prompts."""
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.cumsum([0, *(length for part in parts for length in part.lengths)]),
            np.concatenate([part.truncated for part in parts]),
            np.concatenate([np.zeros_like(p.lengths) if p.prompt_tokens is None else p.prompt_tokens for p in parts]),
            unreadable=np.concatenate([part.unreadable for part in parts]),
            marks=None if parts[0].marks is None else np.concatenate([part.marks for part in parts]),
        )

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of tokens of each text. Shape: (texts,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def batch(self, rows: npt.NDArray[np.int64], device: torch.device | None = None) -> TokenBatch:
        """The texts ``rows``, in that order, on a device; by default on the CPU."""
        prompt, types, marks = self.prompt_tokens, self.types, self.marks
        if len(self.offsets) == 2 and len(rows) == 1:  # Of one text, which is all there is.
            offsets, lengths = self.offsets, self.offsets[1:]
            positions: slice | npt.NDArray[np.int64] = slice(None)
        else:
            lengths = self.lengths[rows]
            offsets = np.concatenate([[0], np.cumsum(lengths)])  # (rows + 1,)
            # Index of each token in ids: the start of its row plus its position in the row.
            positions = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        batch = TokenBatch(
            torch.from_numpy(self.ids[positions].astype(np.int64)),
            torch.from_numpy(offsets),
            int(lengths.max(initial=0)),
            None if prompt is None else torch.from_numpy(np.minimum(lengths, prompt[rows])),
            None if types is None else torch.from_numpy(types[positions].astype(np.int64)),
            None if marks is None else torch.from_numpy(marks[positions]),
        )
        return batch if device is None or device.type == "cpu" else batch.to(device)


def prompt_length(reader: ReadsText, prompt: str) -> int:
    """Number of tokens of a prompt, with the leading special tokens.

    Args:
        reader: First module of an encoder.
        prompt: The prompt. If it alone reaches the limit of the reader, the trailing special token still belongs to
            the text.
    """
    limit = reader.max_seq_length
    part = prompt if limit is None else prompt[: most_characters(limit)]
    length = len(reader.tokenize([part])[0])
    if limit is not None:
        length = limit if len(part) < len(prompt) else min(length, limit)
    return length - reader.special_tokens[1]


def most_characters(limit: int) -> int:
    """How many characters are read of a text at most, by a model that reads at most ``limit`` tokens."""
    return _LEAST + _CHARACTERS * limit


def groups(texts: Iterable[Text], length: Callable[[Text], int]) -> Iterator[tuple[int, list[Text]]]:
    """Groups of texts to tokenize together, each with the index of its first text.

    Args:
        texts: The texts.
        length: How many characters are read of a text.
    """
    first, characters = 0, 0
    group: list[Text] = []
    for text in texts:
        group.append(text)
        characters += length(text)
        if characters >= _TOGETHER:
            yield first, group
            first, characters, group = first + len(group), 0, []
    if group:
        yield first, group


def tokenize(
    reader: ReadsText, texts: Sequence[str], prompt: str = "", max_length: int | None = None, roles: Any = None
) -> Tokens:
    """Tokenize texts and truncate those that exceed the ``max_seq_length`` of the reader.

    No more than ``most_characters`` are read of each.

    Args:
        reader: First module of an encoder.
        texts: The texts.
        prompt: Text prepended to each text; it counts toward the limit.
        max_length: A lower limit for these texts.
        roles: The ``LateInteraction`` of a model that has one.
    """
    limit = reader.max_seq_length if roles is None else roles.limit(reader.max_seq_length)
    if max_length is not None:
        limit = max_length if limit is None else min(limit, max_length)
    most = None if limit is None else most_characters(limit)
    prompt_tokens = prompt_length(reader, prompt) if prompt else None
    start = prompt[:most]  # Of a long prompt, as much as leaves no token for the text.
    truncated = [most is not None and len(prompt) + len(text) > most for text in texts]
    rows: list[list[int]] = []
    for _, group in groups(texts, (lambda text: len(start) + len(text)) if start else len):
        read = [start + text for text in group] if start else group
        if most is not None and any(truncated):
            left = getattr(reader, "truncation_side", "right") == "left"
            read = [text[-most:] if left else text[:most] for text in read]
        rows += reader.tokenize(read)
    if limit is not None and max(map(len, rows), default=0) > limit:
        for row, ids in enumerate(rows):
            if len(ids) > limit:
                rows[row], truncated[row] = _truncate(ids, limit, reader), True
    rows, marks = (rows, None) if roles is None else roles.read(reader, rows)
    flat, offsets = _flat(rows)
    size = getattr(reader, "vocab_size", None)
    if size is not None and flat.max(initial=0) >= size:
        raise _without_vector(flat, size, "id", offsets, texts)
    prompts = None if prompt_tokens is None else np.full(len(rows), prompt_tokens)
    tokens = Tokens(flat, offsets, np.array(truncated, bool), prompts, None, np.zeros(len(rows), bool), marks)
    return find_unreadable(reader, texts, tokens)


def find_unreadable(reader: Any, texts: Sequence[str] | Sequence[Pair], tokens: Tokens) -> Tokens:
    """The tokens, with the texts, or pairs with a text, that consist mostly of unknown ones; prompts do not count.

    Args:
        reader: First module of an encoder, or the tokenizer of pairs.
        texts: The texts or pairs, without the prompt; or the documents whose windows they are.
        tokens: Their tokens.
    """
    rows, lengths = len(tokens.truncated), tokens.lengths
    prompts: Any = 0 if tokens.prompt_tokens is None else tokens.prompt_tokens
    if hasattr(reader, "is_unreadable"):
        return replace(tokens, unreadable=np.fromiter(map(reader.is_unreadable, texts, lengths - prompts), bool, rows))
    kinds = getattr(reader, "token_kinds", None)
    pairs: Any = texts
    strings = chain.from_iterable(pairs) if texts and isinstance(texts[0], tuple) else pairs
    if kinds is None or (all(map(str.isascii, strings)) and kinds.unknown_id not in tokens.ids):
        return tokens
    owners = np.repeat(np.arange(rows), lengths)  # (tokens,)
    of_text = np.arange(len(owners)) >= np.repeat(tokens.offsets[:-1] + prompts, lengths)
    owners, parts = (owners, 1) if tokens.types is None else (2 * owners + tokens.types, 2)
    unreadable = kinds.find_unreadable(tokens.ids[of_text], owners[of_text], parts * rows).reshape(rows, parts).any(1)
    return replace(tokens, unreadable=unreadable)


def _truncate(row: list[int], limit: int, reader: ReadsText) -> list[int]:
    """The row with its special tokens and as many of its other tokens as the limit allows."""
    leading, trailing = reader.special_tokens
    if getattr(reader, "truncation_side", "right") == "left":
        return row[:leading] + row[len(row) - (limit - leading) :]
    return row[: limit - trailing] + row[len(row) - trailing :]


def tokenize_pairs(
    reader: PairTokenizer, pairs: Sequence[Pair], vocab_size: int | None, types: int | None, prompt: str = ""
) -> Tokens:
    """Tokenize pairs of texts, each as one input, and truncate those that exceed the limit of the reader.

    Of each text, no more than ``most_characters`` are read.

    Args:
        reader: The tokenizer.
        pairs: The pairs.
        vocab_size: Number of tokens that the model has vectors for, if known.
        types: Number of token types that the model has vectors for, if known.
        prompt: Text prepended to the first text of each pair.
    """
    most = None if reader.limit is None else most_characters(reader.limit)
    part = slice(None, most) if reader.truncation_side != "left" or most is None else slice(-most, None)
    start = prompt[:most]
    rows: list[list[int]] = []
    types_of_rows: list[list[int]] = []
    truncated: list[bool] = []
    for _, group in groups(pairs, lambda pair: len(start) + sum(map(len, pair))):
        texts = [((start + first)[part], second[part]) for first, second in group]
        for (row, types_of_row, too_long), pair, text in zip(reader.tokenize_pairs(texts), group, texts, strict=True):
            rows.append(row)
            types_of_rows.append(types_of_row)
            truncated.append(too_long or len(prompt) + sum(map(len, pair)) > sum(map(len, text)))
    ids, offsets = _flat(rows)
    kinds = _flat(types_of_rows)[0] if reader.typed else None
    for values, size, what in ((ids, vocab_size, "id"), (kinds, types, "type")):
        if values is not None and size is not None and values.max(initial=0) >= size:
            raise _without_vector(values, size, what, offsets, pairs)
    tokens = Tokens(ids, offsets, np.array(truncated, bool), types=kinds, unreadable=np.zeros(len(rows), bool))
    return find_unreadable(reader, pairs, tokens)


def _flat(rows: list[list[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The rows end to end, and the index of the first value of each, then the number of values."""
    if len(rows) == 1:
        return np.array(rows[0], np.int32), np.array([0, len(rows[0])])
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets


def _without_vector(
    values: npt.NDArray[np.int32],
    size: int,
    what: str,
    offsets: npt.NDArray[np.int64],
    texts: Sequence[str] | Sequence[Pair],
) -> ValueError:
    """The error for a token whose id or type the model has no vector for. The message names the text."""
    text = texts[int(np.searchsorted(offsets, values.argmax(), side="right")) - 1]
    shown = text if isinstance(text, str) else " / ".join(text)
    return ValueError(
        f"a token of {shown[:80]!r} has the {what} {values.max()}, and the model has vectors for {size} {what}s;"
        " use the tokenizer that belongs to the weights, or auto_model.resize_token_embeddings"
    )
