"""Embedding tables without a transformer: one vector per token (StaticEmbedding) or per word (WordEmbeddings)."""

from __future__ import annotations

import gzip
import os
import string
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.functional import segment_sum
from sbert.inputs.arguments import known_arguments
from sbert.modules.tokenizer import FastTokenizer, Tokenizing

if TYPE_CHECKING:
    import tokenizers

# Changes to a word, applied in order until the table contains it.
_FORMS: tuple[Callable[[str], str], ...] = (str, lambda word: word.strip(string.punctuation), str.lower)


class StaticEmbedding(Tokenizing, nn.Module):
    """Mean of the vectors of the tokens of a text, from a table: no transformer, no limit of length.

    Args:
        tokenizer: Tokenizer with the vocabulary of the table; its special tokens are not used.
        weights: The table.

    Shape:
        weights: (vocab, dim). Input: TokenBatch of (tokens,) ids. Output: (rows, dim); zeros for a text
        without tokens.

    References:
        Tulkens and van Dongen, 2024, Model2Vec. https://github.com/MinishLab/model2vec

    Example:
        >>> import torch
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from sbert import StaticEmbedding
        >>> tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "red": 1, "fox": 2}, unk_token="<unk>"))
        >>> tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> from sbert import SentenceEncoder
        >>> SentenceEncoder(StaticEmbedding(tokenizer, torch.eye(3))).encode("red fox")
        array([0. , 0.5, 0.5], dtype=float32)
    """

    @known_arguments
    def __init__(self, tokenizer: tokenizers.Tokenizer, weights: Tensor) -> None:
        super().__init__()
        self.tokenizer: tokenizers.Tokenizer = tokenizer
        self.embedding: nn.Embedding = nn.Embedding.from_pretrained(weights, freeze=False)  # type: ignore[no-untyped-call]
        self.max_seq_length: int | None = None
        self.vocab_size: int = len(weights)
        self._fast = FastTokenizer(tokenizer, add_special_tokens=False)

    def tokenizer_copy(self) -> FastTokenizer:
        """A private copy of the tokenizer."""
        return self._fast

    def forward(self, batch: TokenBatch) -> Tensor:
        return segment_sum(self.embedding(batch.ids), batch.offsets, mean=True)  # (rows, dim)


class SparseStaticEmbedding(StaticEmbedding):
    """The weight of each word that a text has, from a table: sparse vectors of queries without a transformer.

        y_v = w_v if v is among the tokens of the text, else 0

    Args:
        tokenizer: Tokenizer of transformers, that of the documents' encoder; its special tokens are not used.
        weights: The table, such as inverse document frequencies, or 1 for each word.
        trainable: Whether the weights are trained.

    Shape:
        weights: (vocab,). Input: TokenBatch of (tokens,) ids. Output: (rows, vocab).

    References:
        Geng et al., 2024, Towards competitive search relevance for inference-free learned sparse retrievers.
        https://arxiv.org/abs/2411.04403

    Example:
        >>> import torch
        >>> from sbert import Pooling, Router, SentenceEncoder, SparseStaticEmbedding, Transformer
        >>> documents = Transformer("sbert-mini", head="new")
        >>> queries = SparseStaticEmbedding(documents.tokenizer, torch.ones(documents.vocab_size))
        >>> model = SentenceEncoder(Router({"query": [queries], "document": [documents, Pooling("splade")]}))
        >>> model.decode(model.encode_query("Red red fox"))
        [[('red', 1.0), ('fox', 1.0)]]
    """

    is_sparse: bool = True

    @known_arguments
    def __init__(self, tokenizer: Any, weights: Tensor, trainable: bool = True) -> None:
        super().__init__(tokenizer.backend_tokenizer, weights[:, None])
        self.embedding.weight.requires_grad_(trainable)
        self.tokenizer: Any = tokenizer
        limit = tokenizer.model_max_length  # 10**30 without one.
        self.max_seq_length: int | None = limit if limit < 10**9 else None

    def forward(self, batch: TokenBatch) -> Tensor:
        present = self.embedding.weight.new_zeros(batch.rows, self.vocab_size)
        present[batch.row_of_token, batch.ids] = 1
        return present * self.embedding.weight[:, 0]  # (rows, vocab)


class WordEmbeddings(nn.Module):
    """One vector per word, from a table such as that of GloVe or word2vec; followed by a pooling.

    A text is split at white space. A word that the table does not contain is looked up without surrounding punctuation,
    then in lower case; otherwise it is left out.

    Args:
        words: The words of the table.
        weights: Their vectors.
        lower_case: Whether to convert texts to lower case first.
        stop_words: Words to leave out.
        max_seq_length: Maximum number of words of a text; None for no limit.
        trainable: Whether the vectors are trained.

    Shape:
        weights: (words, dim). Input: TokenBatch of (tokens,) ids. Output: TokenEmbeddings of (tokens, dim).

    Raises:
        ValueError: If the numbers of words and vectors differ.

    References:
        Pennington et al., 2014. https://aclanthology.org/D14-1162

    Example:
        >>> import torch
        >>> from sbert import Pooling, SentenceEncoder, WordEmbeddings
        >>> words = WordEmbeddings(["red", "fox"], torch.eye(2))
        >>> SentenceEncoder(words, Pooling("mean")).encode("The red, red Fox").round(2)
        array([0.67, 0.33], dtype=float32)
    """

    special_tokens: tuple[int, int] = (0, 0)

    @known_arguments
    def __init__(
        self,
        words: Sequence[str],
        weights: Tensor,
        lower_case: bool = False,
        stop_words: Iterable[str] = (),
        max_seq_length: int | None = None,
        trainable: bool = False,
    ) -> None:
        super().__init__()
        if len(words) != len(weights):
            raise ValueError(f"{len(words)} words and {len(weights)} vectors; pass one vector per word")
        self.words: list[str] = list(words)
        self.lower_case: bool = lower_case
        self.stop_words: frozenset[str] = frozenset(stop_words)
        self.max_seq_length: int | None = max_seq_length
        self.embedding: nn.Embedding = nn.Embedding.from_pretrained(weights, freeze=not trainable)  # type: ignore[no-untyped-call]
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def from_text_file(
        cls, path: str | os.PathLike[str], lower_case: bool = False, stop_words: Iterable[str] = ()
    ) -> WordEmbeddings:
        """Read vectors from a text file in the format of GloVe or word2vec, possibly gzipped.

        Each line contains a word and its vector, separated by spaces. The first line of word2vec, with the number of
        words and the dim, is skipped.

        Args:
            path: The file.
            lower_case: Whether to convert texts to lower case before words are looked up.
            stop_words: Words to leave out of texts.

        Raises:
            ValueError: If a line is invalid. The message gives its number.

        Example:
            >>> import tempfile
            >>> from sbert import WordEmbeddings
            >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            ...     print("cat 0.5 1.0", file=file, flush=True)
            ...     words = WordEmbeddings.from_text_file(file.name)
            >>> words.embedding.weight[-1]
            tensor([0.5000, 1.0000])
        """
        words: list[str] = []
        vectors: list[npt.NDArray[np.float32]] = []
        dim = 0
        open_text = gzip.open if Path(path).suffix == ".gz" else open
        with open_text(path, "rt", encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                parts = line.rstrip().split(" ")
                if number == 1 and len(parts) == 2:
                    continue
                dim = dim or len(parts) - 1
                vector = np.full(1, np.nan, np.float32)
                with suppress(ValueError):
                    vector = np.array(parts[-dim:], dtype=np.float32)
                if not 0 < dim < len(parts) or not np.isfinite(vector).all():
                    raise ValueError(
                        f"{os.fspath(path)}, line {number}: expected a word and {dim or 'its'} numbers,"
                        f" got {line[:60].rstrip()!r}; mend or remove the line"
                    )
                words.append(" ".join(parts[:-dim]))  # Words of GloVe for Common Crawl contain spaces.
                vectors.append(vector)
        if not words:
            raise ValueError(f"{os.fspath(path)} holds no vectors; pass a file of words and their numbers")
        return cls(words, torch.from_numpy(np.stack(vectors)), lower_case, stop_words)

    def _id(self, word: str) -> int | None:
        """Id of a word, -1 of a stop word, None of a word that the table does not contain."""
        for change in _FORMS:
            word = change(word)
            if word in self.stop_words:
                return -1
            if word in self._ids:
                return self._ids[word]
        return None

    def _words(self, text: str) -> list[str]:
        return (text.lower() if self.lower_case else text).split()

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Ids of the words of each text that the table contains."""
        ids = (map(self._id, self._words(text)) for text in texts)
        return [[i for i in row if i is not None and i >= 0] for row in ids]

    def is_unreadable(self, text: str, tokens: int) -> bool:
        """Whether the table lacks at least half of a text's words, except stop words; ``tokens`` of them are read."""
        words = self._words(text)
        if len(words) < max(1, 2 * tokens):
            return False
        ids = list(map(self._id, words))
        return 0 < ids.count(None) >= len(ids) - ids.count(None) - ids.count(-1)

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        return batch.embeddings(self.embedding(batch.ids))
