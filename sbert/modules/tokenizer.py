"""From texts to token ids, without state that a call changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sbert.storage.files import is_failure, one_line

if TYPE_CHECKING:
    import tokenizers

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
    special_tokens: tuple[int, int]

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, with special tokens, without truncation."""
        ...


@runtime_checkable
class LocatesTokens(ReadsText, Protocol):
    """A module that gives the position of its tokens in a text."""

    def locate(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids of each text, with special tokens, and the span of characters of each token: start and end."""
        ...


def without_lone_surrogates(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
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
        self.unknown_id = unknown_id(tokenizer, described)
        self._tokenizer = Tokenizer.from_str(described)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if lower_case:
            given = self._tokenizer.normalizer
            steps = [normalizers.Lowercase()] if given is None else [normalizers.Lowercase(), given]
            self._tokenizer.normalizer = normalizers.Sequence(steps)
        self._add_special_tokens = add_special_tokens
        probe = self._tokenizer.encode("a", add_special_tokens=add_special_tokens)
        if any(probe.type_ids):
            raise ValueError("the tokenizer gives token types other than 0 to a single text; use another model")
        self.special_tokens = count_special(probe.special_tokens_mask)

    def __call__(self, texts: list[str]) -> list[list[int]]:
        try:
            encoded = self._encode(texts)
        except (TypeError, UnicodeError):
            encoded = self._encode([without_lone_surrogates(text) for text in texts])
        return [encoding.ids for encoding in encoded]

    def locate(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids of each text, and the span of characters of each token, (0, 0) for special tokens."""
        try:
            encoded = self._encode(texts, located=True)
        except (TypeError, UnicodeError):  # One character for one, so that spans do not change.
            encoded = self._encode([_SURROGATE.sub("\ufffd", text) for text in texts], located=True)
        return [(encoding.ids, encoding.offsets) for encoding in encoded]

    def _encode(self, texts: list[str], located: bool = False) -> list[Any]:
        encode = self._tokenizer.encode_batch if located else self._tokenizer.encode_batch_fast
        try:
            return encode(texts, add_special_tokens=self._add_special_tokens)
        except (TypeError, UnicodeError):
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            for text in texts if len(texts) > 1 else []:
                self._encode([text], located)  # The error names the text that fails.
            raise ValueError(
                f"the tokenizer fails at {texts[0][:40]!r} ({one_line(error)});"
                " its tokenizer.json is damaged or incomplete, so use another copy"
            ) from error


def unknown_id(tokenizer: tokenizers.Tokenizer, described: str) -> int | None:
    """Id of the unknown token of a tokenizer; None if it knows all bytes.

    It is that of the model of the tokenizer: elsewhere another token may be called the unknown one.

    Args:
        tokenizer: The tokenizer.
        described: The same as JSON.
    """
    token = getattr(tokenizer.model, "unk_token", None)
    if token is not None:
        number: int | None = tokenizer.model.token_to_id(token)
        return number
    found = _UNKNOWN.search(described) if type(tokenizer.model).__name__ == "Unigram" else None
    return None if found is None else int(found[1])


def count_special(mask: list[int]) -> tuple[int, int]:
    """Number of leading and of trailing special tokens in a mask."""
    leading = next((i for i, special in enumerate(mask) if not special), len(mask))
    trailing = next((i for i, special in enumerate(reversed(mask[leading:])) if not special), 0)
    return leading, trailing
