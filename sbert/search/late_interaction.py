"""Late interaction: queries and documents are compared token by token, with the vectors that any encoder computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.chunking import split
from sbert.encoder import SentenceEncoder
from sbert.inputs.arguments import check_model, check_number, known_arguments
from sbert.inputs.prompts import with_role_prompt
from sbert.inputs.texts import rows_of

# Documents whose token vectors are in memory at the same time.
_STEP = 256


class LateInteraction:
    """Ranks documents by MaxSim, with the token vectors of an encoder; no second model is needed.

        score(query, document) = mean_q max_d cos(q, d)        for the tokens q of the query and d of the document

    A document that is longer than the model reads is read in passages, with the tokens of all.

    Args:
        model: Computes the token vectors.
        weight: How much its scores count in ``HybridIndex.search(rerank=...)``, beside those of the search, which
            count 1 - weight. Encoders are trained for vectors of whole texts, so MaxSim alone ranks worse than words
            and vectors together; see ``python -m tests.benchmarks.hybrid --rerank``.

    References:
        Khattab and Zaharia, 2020, ColBERT. https://arxiv.org/abs/2004.12832

    Example:
        >>> from sbert.search import LateInteraction
        >>> late = LateInteraction(model)
        >>> scores = late.predict([("a kitten naps", "The cat sleeps."), ("a kitten naps", "Taxes rise.")])
        >>> bool(scores[0] > scores[1])
        True
    """

    @known_arguments
    def __init__(self, model: SentenceEncoder, *, weight: float = 0.4) -> None:
        check_model("model", model, "the encoder")
        self.model: SentenceEncoder = model
        self.weight: float = check_number("weight", weight)
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight={weight} is not a part of 1; pass 0 to 1")

    def predict(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float32]:
        """The scores of pairs of a query and a document.

        Each text is read once, however many pairs have it.

        Args:
            pairs: Queries and documents.

        Raises:
            TypeError: If a text is not a str.
            ValueError: If a pair does not consist of two texts.

        Shape:
            Output: (pairs,), from -1 to 1; 0 if one of the texts has no tokens.
        """
        for row, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2:
                raise ValueError(f"pair {row} is {pair!r:.60}; pass a query and a document")
        queries, documents = (list(rows_of([pair[side] for pair in pairs], "pairs")) for side in (0, 1))
        of_document: dict[str, dict[str, list[int]]] = {}
        for row, (query, document) in enumerate(zip(queries, documents, strict=True)):
            of_document.setdefault(document, {}).setdefault(query, []).append(row)
        asked = list(dict.fromkeys(queries))
        token_vectors = dict(zip(asked, self._tokens(asked, "query"), strict=True))
        scores = np.zeros(len(pairs), np.float32)
        for document, tokens in self._documents(list(of_document)):
            for query, rows in of_document[document].items():
                cosines = token_vectors[query] @ tokens.T
                scores[rows] = float(cosines.max(1).values.mean()) if cosines.numel() else 0.0
        return scores

    def _documents(self, documents: list[str]) -> Iterator[tuple[str, Tensor]]:
        """Each document, and the vectors (tokens, dim) of all its passages, of length 1."""
        role = with_role_prompt(self.model.prompts, "document", {})
        for start in range(0, len(documents), _STEP):
            some = documents[start : start + _STEP]
            chunks = split(self.model, some, **role)
            tokens = self._tokens([chunk.text(some) for chunk in chunks], "document")
            parts: list[list[Tensor]] = [[] for _ in some]
            for chunk, part in zip(chunks, tokens, strict=True):
                parts[chunk.document].append(part)
            yield from ((text, torch.cat(part)) for text, part in zip(some, parts, strict=True) if part)

    def _tokens(self, texts: list[str], role: str) -> list[Tensor]:
        """The vectors (tokens, dim) of each text, of length 1."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        result = encode(texts, output_value="token_embeddings", show_progress_bar=False)
        return [F.normalize(tokens.float(), dim=1) for tokens in result]
