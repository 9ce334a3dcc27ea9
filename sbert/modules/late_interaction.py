"""How queries and documents are read by an encoder that gives one vector per token, as ColBERT has it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from sbert.batch import DROPPED, HIDDEN, TokenEmbeddings
from sbert.inputs.arguments import check_positive, known_arguments
from sbert.inputs.prompts import ROLES


class LateInteraction(nn.Module):
    """Settings of an encoder that gives one vector per token: how it reads queries and documents.

    ``encode_query`` reads a text as a query, ``encode_document`` and ``encode`` as a document; in training, ``routes``
    says which columns are queries. The vectors of tokens pass through unchanged.

    Args:
        query_length: Maximum number of tokens of a query, including special tokens and the prefix; None for that of
            the model.
        document_length: Maximum number of tokens of a document.
        query_prefix: A token of the vocabulary that stands after the first token of every query; ``""`` for none.
        document_prefix: The same of documents.
        expand_queries: Whether shorter queries are filled up to ``query_length`` by mask tokens, whose vectors count in
            MaxSim as those of words do (query expansion).
        attend_to_expansion: Whether the other tokens attend to those of the expansion.
        skipped: Tokens of documents whose vectors are left out, such as ``string.punctuation``.

    Raises:
        TypeError: If a length is not an integer.
        ValueError: If a length is not positive, or queries are to be expanded without a length.

    References:
        Khattab and Zaharia, 2020, ColBERT, section 3.2. https://arxiv.org/abs/2004.12832

    Example:
        >>> from sbert import Dense, LateInteraction, Normalize, SentenceEncoder, Transformer
        >>> roles = LateInteraction(query_length=8, skipped=".,", expand_queries=False)
        >>> model = SentenceEncoder(Transformer("sbert-mini"), Dense(256, 48), Normalize(), roles)
        >>> model.encode_document(["A cat sleeps.", "Taxes rise, again."])[0].shape
        (5, 48)
    """

    @known_arguments
    def __init__(
        self,
        query_length: int | None = 32,
        document_length: int | None = 180,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        expand_queries: bool = True,
        attend_to_expansion: bool = False,
        skipped: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.lengths = {
            "query": check_positive("query_length", query_length),
            "document": check_positive("document_length", document_length),
        }
        if expand_queries and query_length is None:
            raise ValueError("queries are expanded to query_length, which is None; pass it, or expand_queries=False")
        self.prefixes = {"query": query_prefix, "document": document_prefix}
        self.expand_queries: bool = expand_queries
        self.attend_to_expansion: bool = attend_to_expansion
        self.skipped: list[str] = list(skipped)
        self.role: str | None = None
        self._in_roles: dict[str, LateInteraction] = {}

    @property
    def routes(self) -> tuple[str, ...]:
        """The roles; none of what has a role already."""
        return () if self.role else tuple(ROLES)

    def in_role(self, role: str | None) -> LateInteraction:
        """The same settings for texts of one role, ``"query"`` or else ``"document"``: one object for each."""
        role = "query" if role == "query" else "document"
        if role not in self._in_roles:
            self._in_roles[role] = copy.copy(self)
            self._in_roles[role].role = role
        return self._in_roles[role]

    def limit(self, limit: int | None) -> int | None:
        """Maximum number of tokens of a text before the prefix is put into it, where the model has this limit."""
        longest = [length for length in (limit, self.lengths[self.role or "document"]) if length is not None]
        return min(longest) - bool(self.prefixes[self.role or "document"]) if longest else None

    def read(self, reader: Any, rows: list[list[int]]) -> tuple[list[list[int]], npt.NDArray[np.int64]]:
        """The token ids of texts with prefix and expansion, and the marks of all tokens end to end.

        Args:
            reader: First module of the encoder, which has the vocabulary.
            rows: Token ids of each text.

        Raises:
            ValueError: If a prefix or a mask token is not in the vocabulary.
        """
        role = self.role or "document"
        if self.prefixes[role]:
            prefix = _find_id(reader, self.prefixes[role])
            if prefix is None:
                raise ValueError(
                    f"the prefix {self.prefixes[role]!r} is not in the vocabulary; pass one of its tokens, such as"
                    " '[unused0]' of BERT, or add it: tokenizer.add_tokens, then auto_model.resize_token_embeddings"
                )
            rows = [[*row[:1], prefix, *row[1:]] for row in rows]
        length, sizes = self.lengths[role] or 0, list(map(len, rows))
        if role == "query" and self.expand_queries:
            token = _find_mask(reader)
            rows = [row + [token] * (length - len(row)) for row in rows]
            hidden = 0 if self.attend_to_expansion else HIDDEN
            marks = [[0] * size + [hidden] * (len(row) - size) for size, row in zip(sizes, rows, strict=True)]
            return rows, np.array([mark for row in marks for mark in row], np.int64)
        skipped = [_find_id(reader, token) for token in self.skipped] if role == "document" else []
        ids = np.array([token for row in rows for token in row], np.int64)
        return rows, np.where(np.isin(ids, [token for token in skipped if token is not None]), DROPPED, 0)

    def forward(self, tokens: TokenEmbeddings) -> TokenEmbeddings:
        if not isinstance(tokens, TokenEmbeddings):
            raise TypeError("LateInteraction takes one vector per token; leave the Pooling before it out")
        return tokens

    def extra_repr(self) -> str:
        return f"lengths={self.lengths}, prefixes={self.prefixes}, expand_queries={self.expand_queries}"


def _find_id(reader: Any, token: str) -> int | None:
    """The id of a token in the vocabulary of a reader."""
    return reader.tokenizer_copy().tokenizer.token_to_id(token)  # type: ignore[no-any-return]


def _find_mask(reader: Any) -> int:
    """The id of the token that expands queries: the mask token, or else that of the end, as PyLate chooses it."""
    found: int | None = _find_id(reader, "[MASK]")  # Without loading transformers.
    if found is None and reader.tokenizer.mask_token_id is None:
        found = reader.tokenizer.eos_token_id
    found = reader.tokenizer.mask_token_id if found is None else found
    if found is None:
        raise ValueError("the vocabulary has no mask token to expand queries with; pass expand_queries=False")
    return found
