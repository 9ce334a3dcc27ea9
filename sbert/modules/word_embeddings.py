"""Vectors that stand in a table: one a token (StaticEmbedding) or one a word (WordEmbeddings)."""

from __future__ import annotations

import gzip
import os
import string
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.functional import segment_sum
from sbert.inputs.arguments import known_arguments
from sbert.modules.tokenizer import FastTokenizer

if TYPE_CHECKING:
    import tokenizers

# What is done to a word, one after the other, until the table has it.
_FORMS: tuple[Callable[[str], str], ...] = (str, lambda word: word.strip(string.punctuation), str.lower)


def _table(weights: Tensor, trainable: bool) -> nn.Embedding:
    rows, dim = weights.shape
    return nn.Embedding(rows, dim, _weight=weights, _freeze=not trainable)


class StaticEmbedding(nn.Module):
    """The mean of a text's token vectors, each taken from a table: no transformer, no limit of length.

    Args:
        tokenizer: Splits texts into the table's tokens; its special tokens are not used.
        weights: The table.

    Shape:
        weights: (vocab, dim). Input: TokenBatch of (tokens,) ids. Output: (rows, dim); zeros for a text
        without tokens.

    References:
        Tulkens and van Dongen, 2024, Model2Vec. https://github.com/MinishLab/model2vec

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "red": 1, "fox": 2}, unk_token="<unk>"))
        >>> tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> from sbert import SentenceEncoder
        >>> SentenceEncoder(StaticEmbedding(tokenizer, torch.eye(3))).encode("red fox")
        array([0. , 0.5, 0.5], dtype=float32)
    """

    special_tokens = (0, 0)

    @known_arguments
    def __init__(self, tokenizer: tokenizers.Tokenizer, weights: Tensor) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.embedding = _table(weights, trainable=True)
        self.max_seq_length: int | None = None
        self._fast = FastTokenizer(tokenizer, add_special_tokens=False)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are vectors for."""
        return self.embedding.num_embeddings

    @property
    def unknown_id(self) -> int | None:
        """The id of all that is not in the vocabulary; None where the tokenizer knows all bytes."""
        return self._fast.unknown_id

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, whatever its length."""
        return self._fast(texts)

    def locate(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Ids of each text, and the characters that each token stands for: start and end."""
        return self._fast.locate(texts)

    def forward(self, batch: TokenBatch) -> Tensor:
        total = segment_sum(self.embedding(batch.ids), batch.offsets)  # (rows, dim)
        return total / batch.lengths.clamp(min=1)[:, None].to(total.dtype)

    def extra_repr(self) -> str:
        return f"max_seq_length={self.max_seq_length}"


class WordEmbeddings(nn.Module):
    """A vector a word, taken from a table such as GloVe's or word2vec's; to be followed by a pooling.

    A text is split at white space. A word that is not in the table is tried without the punctuation around
    it, then in lower case, and otherwise left out.

    Args:
        words: The words of the table.
        weights: Their vectors.
        lower_case: Whether texts are put in lower case first.
        stop_words: Words that are left out.
        max_seq_length: How many words of a text are read; all of them where it is None.
        trainable: Whether the vectors are trained.

    Shape:
        weights: (words, dim). Input: TokenBatch of (tokens,) ids. Output: TokenEmbeddings of (tokens, dim).

    Raises:
        ValueError: If there are not as many words as vectors.

    References:
        Pennington et al., 2014. https://aclanthology.org/D14-1162

    Example:
        >>> from sbert import Pooling, SentenceEncoder
        >>> words = WordEmbeddings(["red", "fox"], torch.eye(2))
        >>> SentenceEncoder(words, Pooling("mean")).encode("The red, red Fox").round(2)
        array([0.67, 0.33], dtype=float32)
    """

    special_tokens = (0, 0)

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
            raise ValueError(f"{len(words)} words and {len(weights)} vectors; pass one vector a word")
        self.words = list(words)
        self.lower_case = lower_case
        self.stop_words = frozenset(stop_words)
        self.max_seq_length = max_seq_length
        self.embedding = _table(weights, trainable)
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def from_text_file(
        cls, path: str | os.PathLike[str], lower_case: bool = False, max_words: int | None = None
    ) -> WordEmbeddings:
        """Read vectors from a text file of GloVe's or word2vec's form, gzipped or not.

        Each line holds a word and its numbers, with spaces between them; word2vec's first line,
        the number of words and the dim, is passed over.

        Args:
            path: The file.
            lower_case: Whether texts are put in lower case before words are looked up.
            max_words: Read only so many words, from the top.

        Raises:
            ValueError: If a line does not fit, with its number.
        """
        words: list[str] = []
        vectors: list[np.ndarray] = []
        open_text = gzip.open if Path(path).suffix == ".gz" else open
        with open_text(path, "rt", encoding="utf-8", newline="\n") as lines:
            dim = 0
            for number, line in enumerate(lines, start=1):
                parts = line.rstrip().split(" ")
                if number == 1 and len(parts) == 2:
                    continue
                dim = dim or len(parts) - 1
                try:
                    vector = np.array(parts[-dim:] if dim else [], dtype=np.float32)
                except ValueError:
                    vector = np.empty(0, dtype=np.float32)
                if dim < 1 or len(parts) <= dim or len(vector) != dim or not np.isfinite(vector).all():
                    raise ValueError(
                        f"{os.fspath(path)}, line {number}: expected a word and {dim or 'its'} numbers,"
                        f" got {line[:60].rstrip()!r}; mend or remove the line"
                    )
                words.append(" ".join(parts[:-dim]))  # GloVe's Common Crawl words hold spaces.
                vectors.append(vector)
                if max_words is not None and len(words) >= max_words:
                    break
        if not words:
            raise ValueError(f"{os.fspath(path)} holds no vectors; pass a file of words and their numbers")
        return cls(words, torch.from_numpy(np.stack(vectors)), lower_case)

    def _id(self, word: str) -> int | None:
        for change in _FORMS:
            word = change(word)
            if word in self.stop_words:
                return None
            if word in self._ids:
                return self._ids[word]
        return None

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Ids of the words of each text that are in the table."""
        split = ((text.lower() if self.lower_case else text).split() for text in texts)
        return [[i for i in map(self._id, words) if i is not None] for words in split]

    def left_out(self, texts: list[str], rows: list[list[int]]) -> int:
        """How many words of texts, stop words apart, are not in the rows that ``tokenize`` has made of them."""
        split = [(text.lower() if self.lower_case else text).split() for text in texts]
        count = sum(map(len, split)) - sum(map(len, rows))
        if not count or not self.stop_words:
            return count
        return sum(self._id(word) is None and not self._is_stop_word(word) for words in split for word in words)

    def _is_stop_word(self, word: str) -> bool:
        for change in _FORMS:
            word = change(word)
            if word in self.stop_words:
                return True
        return False

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        return batch.embeddings(self.embedding(batch.ids))

    def extra_repr(self) -> str:
        return f"lower_case={self.lower_case}, max_seq_length={self.max_seq_length}"
