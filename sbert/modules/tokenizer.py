"""From texts to token ids, without state that a call changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sbert.inputs.texts import Pair
from sbert.modules.token_kinds import TokenKinds
from sbert.storage.files import is_failure, one_line

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerBase

# The unknown id of a Unigram model, which has no attribute for it.
_UNKNOWN = re.compile(r'"unk_id":(\d+)')
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@runtime_checkable
class ReadsText(Protocol):
    """Interface of the first module of an encoder, beside ``forward(TokenBatch)``.

    ``special_tokens`` counts the leading and the trailing tokens that belong to every text and
    outlive its truncation.
    """

    max_seq_length: int | None

    @property
    def special_tokens(self) -> tuple[int, int]:
        """Number of special tokens before and after every text."""

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, with special tokens, without truncation."""
        ...


def without_lone_surrogates(text: str, keep_length: bool = False) -> str:
    """The text with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD.

    Args:
        text: The text.
        keep_length: Whether two surrogates that form one character are replaced as well, so that spans do not change.
    """
    if keep_length:
        return _SURROGATE.sub("\ufffd", text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class FastTokenizer:
    """A private copy of a Rust tokenizer without truncation and padding.

    Threads share it safely, because nothing changes it: padding that is enabled in the public tokenizer, from which it
    was copied, has no effect on it.

    Args:
        tokenizer: The tokenizer to copy.
        lower_case: Whether to convert texts to lower case first.
        add_special_tokens: Whether to add the special tokens of the model.

    Raises:
        ValueError: If the tokenizer assigns several token types to a single text.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, lower_case: bool = False, add_special_tokens: bool = True
    ) -> None:
        from tokenizers import Tokenizer, normalizers

        described = tokenizer.to_str()
        self.tokenizer = Tokenizer.from_str(described)
        # The unknown token of the model: elsewhere in a tokenizer another one may be called so.
        model: Any = tokenizer.model
        match = _UNKNOWN.search(described) if type(model).__name__ == "Unigram" else None
        unknown = getattr(model, "unk_token", None)
        unknown_id = match and int(match[1]) if unknown is None else model.token_to_id(unknown)
        self.token_kinds = TokenKinds(self.tokenizer.decode_batch, unknown_id)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._add_special_tokens = add_special_tokens
        if lower_case:
            steps = [normalizers.Lowercase(), *filter(None, [self.tokenizer.normalizer])]
            self.tokenizer.normalizer = normalizers.Sequence(steps)
        probe = self.encode(["a"], located=True)[0]
        if any(probe.type_ids):
            raise ValueError("the tokenizer gives token types other than 0 to a single text; use another model")
        self.special_tokens: tuple[int, int] = count_special(probe.special_tokens_mask)

    def encode(self, inputs: Sequence[str | Pair], located: bool = False) -> list[tokenizers.Encoding]:
        """Encodings of texts or of pairs of texts.

        Args:
            inputs: The texts or pairs.
            located: Whether the encodings give the span of characters of each token.

        Raises:
            ValueError: If the tokenizer fails at one of them. The message shows it.
        """
        try:
            encode = self.tokenizer.encode_batch if located else self.tokenizer.encode_batch_fast
            return encode(inputs, add_special_tokens=self._add_special_tokens)
        except (TypeError, UnicodeError):
            clean = partial(without_lone_surrogates, keep_length=located)
            cleaned = [clean(x) if isinstance(x, str) else (clean(x[0]), clean(x[1])) for x in inputs]
            if cleaned == list(inputs):
                raise
            return self.encode(cleaned, located)
        except BaseException as error:
            if not is_failure(error):
                raise
            for text in inputs if len(inputs) > 1 else []:
                self.encode([text], located)  # The error names the text that fails.
            reason = f"the tokenizer fails at {inputs[0]!r:.40} ({one_line(error)})"
            raise ValueError(f"{reason}; its tokenizer.json is damaged or incomplete, so use another copy") from error

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""
        return list(map(attrgetter("ids"), self.encode(texts)))


class SlowTokenizer:
    """A tokenizer that is written in Python, by the methods of ``FastTokenizer``.

    Args:
        tokenizer: The tokenizer.
        lower_case: Whether to convert texts to lower case first.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, lower_case: bool = False) -> None:
        self._tokenizer, self._lower_case = tokenizer, lower_case
        mask = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        self.special_tokens: tuple[int, int] = count_special(mask)
        unknown: int | None = tokenizer.unk_token_id
        ends = unknown in tokenizer("")["input_ids"]  # Some call what ends every text the unknown token.
        self.token_kinds = TokenKinds(tokenizer.batch_decode, None if ends else unknown)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""
        clean = [without_lone_surrogates(text.lower() if self._lower_case else text) for text in texts]
        rows: list[list[int]] = self._tokenizer(clean, truncation=False, padding=False, verbose=False)["input_ids"]
        return rows


class Tokenizing:
    """What the first module of an encoder answers by the private copy of its tokenizer."""

    max_seq_length: int | None

    def tokenizer_copy(self) -> FastTokenizer | SlowTokenizer:
        """The copy, which nothing changes."""
        raise NotImplementedError

    @property
    def special_tokens(self) -> tuple[int, int]:
        """Number of special tokens before and after every text."""
        return self.tokenizer_copy().special_tokens

    @property
    def token_kinds(self) -> TokenKinds:
        """Finds the texts that cannot be read."""
        return self.tokenizer_copy().token_kinds

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, with special tokens, without truncation."""
        return self.tokenizer_copy()(texts)

    def locate(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids of each text, with special tokens, and the span of characters of each token: start and end.

        A special token has (0, 0). Only of a ``FastTokenizer``.
        """
        encodings = self.tokenizer_copy().encode(texts, located=True)  # type: ignore[union-attr]
        return [(encoding.ids, encoding.offsets) for encoding in encodings]


class PairTokenizer(FastTokenizer):
    """Tokenizes two texts as one input of two segments, as the tokenizer of a Hugging Face model does.

    Args:
        tokenizer: The tokenizer, which is copied, so that changes of the original have no effect.
        typed: Whether the model uses token types.
        limit: Longest input in tokens, to which the longer text is truncated first; None for no limit.

    Raises:
        ValueError: If the tokenizer is written in Python.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, typed: bool, limit: int | None = None) -> None:
        if not tokenizer.is_fast:
            raise ValueError(f"{type(tokenizer).__name__} is written in Python; load the model with a tokenizer.json")
        super().__init__(tokenizer.backend_tokenizer)
        self.typed, self.limit, self.truncation_side = typed, limit, tokenizer.truncation_side

    def tokenize_pairs(self, pairs: Sequence[Pair]) -> list[tuple[list[int], list[int], bool]]:
        """Token ids and types of each pair, and whether it was truncated to the limit."""
        return list(map(self._truncate, self.encode(pairs)))

    def _truncate(self, pair: tokenizers.Encoding) -> tuple[list[int], list[int], bool]:
        """By ``longest_first``, which in Rust makes all the overflowing parts as well, and takes four times as long."""
        ids, types = pair.ids, pair.type_ids if self.typed else []
        if self.limit is None or len(ids) <= self.limit:
            return ids, types, False
        owners = pair.sequence_ids  # 0 or 1 for tokens of the two texts, None for special tokens.
        counts = owners.count(0), owners.count(1)
        room = sum(counts) - len(ids) + self.limit
        # An odd number leaves one more token to the longer text, or to the second one of equal length.
        shorter = min(*counts, room // 2)
        lengths = (shorter, room - shorter) if counts[0] <= counts[1] else (room - shorter, shorter)
        for text in (1, 0):
            if excess := counts[text] - lengths[text]:
                start = owners.index(text) + (0 if self.truncation_side == "left" else lengths[text])
                del ids[start : start + excess], types[start : start + excess]
        return ids, types, True


def count_special(mask: list[int]) -> tuple[int, int]:
    """Number of leading and of trailing special tokens in a mask."""
    return (mask.index(0), mask[::-1].index(0)) if 0 in mask else (len(mask), 0)
