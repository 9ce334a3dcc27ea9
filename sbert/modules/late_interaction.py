"""How queries and documents are read by an encoder that gives one vector per token, as ColBERT has it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from sbert.batch import DROPPED, HIDDEN
from sbert.inputs.arguments import check_choice, check_positive, known_arguments
from sbert.inputs.prompts import ROLES

# The mask tokens of BERT and ModernBERT, and of RoBERTa.
_MASKS = ("[MASK]", "<mask>")


class LateInteraction(nn.Identity):
    """Settings of an encoder that gives one vector per token: how it reads queries and documents.

    ``encode_query`` reads a text as a query, ``encode_document`` and ``encode`` as a document; in training, ``routes``
    says which columns are queries. The vectors of tokens pass through unchanged.

    The names of the settings are those of PyLate.

    Args:
        query_length: Maximum number of tokens of a query, including special tokens and the prefix; None for that of
            the model, which is never exceeded.
        document_length: Maximum number of tokens of a document.
        query_prefix: A token of the vocabulary that stands after the first token of every query; ``""`` for none.
        document_prefix: The same of documents.
        do_query_expansion: Whether shorter queries are filled up to ``query_length`` by mask tokens, whose vectors
            count in MaxSim as those of words do.
        attend_to_expansion_tokens: Whether the other tokens attend to those mask tokens.
        skiplist_words: Tokens of documents whose vectors are left out, such as ``string.punctuation``.

    Raises:
        TypeError: If a length is not an integer.
        ValueError: If a length is not positive, or queries are to be expanded without a length.

    References:
        Khattab and Zaharia, 2020, ColBERT, section 3.2. https://arxiv.org/abs/2004.12832

    Example:
        >>> from sbert import Dense, LateInteraction, Normalize, SentenceEncoder, Transformer
        >>> roles = LateInteraction(query_length=8, skiplist_words=".,")
        >>> model = SentenceEncoder(Transformer("sbert-mini"), Dense(384, 48), Normalize(), roles)
        >>> model.encode_query("Who sleeps?").shape, model.encode_document("Taxes rise, again.").shape
        ((8, 48), (5, 48))
    """

    @known_arguments
    def __init__(
        self,
        query_length: int | None = 32,
        document_length: int | None = 180,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        do_query_expansion: bool = True,
        attend_to_expansion_tokens: bool = False,
        skiplist_words: Iterable[str] = (),
    ) -> None:
        super().__init__()
        if do_query_expansion and query_length is None:
            raise ValueError("queries are expanded to query_length=None; pass it, or do_query_expansion=False")
        self.settings: dict[str, Any] = {
            "query_length": check_positive("query_length", query_length),
            "document_length": check_positive("document_length", document_length),
            "query_prefix": query_prefix,
            "document_prefix": document_prefix,
            "do_query_expansion": do_query_expansion,
            "attend_to_expansion_tokens": attend_to_expansion_tokens,
            "skiplist_words": list(skiplist_words),
        }
        # The roles that ``in_role`` takes, and which of them this one is for.
        self.routes, self.role = tuple(ROLES), "document"
        self._in_roles: dict[str, LateInteraction] = {}

    def in_role(self, role: str) -> LateInteraction:
        """The same settings for texts of one role, ``"query"`` or ``"document"``: one object for each.

        Raises:
            ValueError: If there is no such role.
        """
        check_choice("route", role, tuple(ROLES))
        if role not in self._in_roles:
            self._in_roles[role] = copy.copy(self)
            vars(self._in_roles[role]).update(routes=(), role=role)
        return self._in_roles[role]

    def limit(self, limit: int | None) -> int | None:
        """Maximum number of tokens of a text before the prefix is put into it, where the model has this limit."""
        longest = [length for length in (limit, self.settings[f"{self.role}_length"]) if length is not None]
        return min(longest) - bool(self.settings[f"{self.role}_prefix"]) if longest else None

    def read(self, reader: Any, rows: list[list[int]]) -> tuple[list[list[int]], npt.NDArray[np.int64]]:
        """The token ids of texts with prefix and expansion, and the marks of all tokens end to end.

        Args:
            reader: First module of the encoder, which has the vocabulary.
            rows: Token ids of each text.

        Raises:
            ValueError: If a prefix or a mask token is not in the vocabulary.
        """
        role, find_id = self.role, reader.tokenizer_copy().tokenizer.token_to_id
        if word := self.settings[f"{role}_prefix"]:
            prefix = _require_id(find_id, word)
            rows = [[*row[:1], prefix, *row[1:]] for row in rows]
        if role == "query" and self.settings["do_query_expansion"]:
            length = min(self.settings["query_length"], reader.max_seq_length or self.settings["query_length"])
            mask, mark = _require_id(find_id, *_MASKS), 0 if self.settings["attend_to_expansion_tokens"] else HIDDEN
            marks = [mark * (place >= len(row)) for row in rows for place in range(max(length, len(row)))]
            return [row + [mask] * (length - len(row)) for row in rows], np.array(marks, np.int64)
        skipped = [find_id(word) for word in self.settings["skiplist_words"] if role == "document"]
        ids = np.array([token for row in rows for token in row], np.int64)
        return rows, np.where(np.isin(ids, [number for number in skipped if number is not None]), DROPPED, 0)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


def _require_id(find_id: Callable[[str], int | None], *tokens: str) -> int:
    """The id of the first of some tokens that the vocabulary has."""
    ids = [number for number in map(find_id, tokens) if number is not None]
    if not ids:
        remedy = "pass a token that it has, or add it: tokenizer.add_tokens, then auto_model.resize_token_embeddings"
        raise ValueError(f"the vocabulary has no {tokens[0]!r}; {remedy}")
    return ids[0]
