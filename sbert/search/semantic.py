"""The best of a corpus for each query."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbert.functional import check_similarity
from sbert.inputs.arguments import check_count, check_positive, known_arguments
from sbert.inputs.vectors import matrix, tensor_of
from sbert.search.corpus import Corpus, device_of, is_coded, is_int8, opened
from sbert.search.scoring import Places, Queries, Rows, rows

# Queries that are compared with a block at once.
_QUERIES = 512
# Candidates of a coarse corpus, of which the best by a finer one are returned, to each that is asked for.
_OVERSAMPLE = 4


class Hits(NamedTuple):
    """What was found for each query, the best first.

    Args:
        scores: (queries, k) float32.
        indices: (queries, k) int64, rows of the corpus.
    """

    scores: np.ndarray
    indices: np.ndarray


def top(scores: np.ndarray, k: int) -> np.ndarray:
    """The columns of each row's k greatest scores, the best first; of equal ones, the first columns.

    Shape:
        scores: (rows, columns). Output: (rows, k), or (rows, columns) where there are fewer.

    Example:
        >>> top(np.array([[1, 3, 2, 3, 3]]), 2).tolist()
        [[1, 3]]
    """
    columns = scores.shape[1]
    k = min(k, columns)
    if not scores.size:
        return np.empty((len(scores), k), np.int64)
    least = np.partition(scores, columns - k, axis=1)[:, columns - k, None]  # (rows, 1)
    above, equal = scores > least, scores == least
    room = k - above.sum(1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, 1, dtype=np.int32) <= room))
    places = chosen.nonzero()[1].reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
    return np.take_along_axis(places, order, 1)


class Best:
    """The k best rows for each query among those that were seen, in order, so far.

    Args:
        queries: Those that rows are compared with.
        k: How many to keep.
    """

    def __init__(self, queries: Queries, k: int) -> None:
        self.queries, self.k = queries, k
        self.hits = Hits(np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64))
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._limit: Tensor | None = None  # (queries,) what a score must exceed, once k rows were seen.

    def see(self, block: Rows, start: int) -> None:
        """Compare a block, whose first row is the corpus's row ``start``."""
        places = None if self._limit is None else self.queries.worth(block, self._limit)
        if places is None:
            self._see_all(block, start)
        else:
            self._see_some(block, start, places)

    def _see_all(self, block: Rows, start: int) -> None:
        self.flush()
        scores = self.queries.all(block).cpu().numpy()  # (queries, rows)
        best = top(scores, self.k)
        merged = np.concatenate([self.hits.scores, np.take_along_axis(scores, best, 1)], 1)
        indices = np.concatenate([self.hits.indices, best + start], 1)
        # What came before stands first, so equal scores stay in the order of the corpus.
        kept = top(merged, self.k)
        self._keep(np.take_along_axis(merged, kept, 1), np.take_along_axis(indices, kept, 1))

    def _see_some(self, block: Rows, start: int, places: Places) -> None:
        """The same of the rows that may be among the best."""
        scores = self.queries.some(block, places)
        better = scores > self._limit.index_select(0, places[1])  # type: ignore[union-attr]
        at, of, scores = places[0][better], places[1][better], scores[better]
        if len(at):
            self._waiting.append((of.cpu().numpy(), at.cpu().numpy() + start, scores.cpu().numpy()))
            # Sorting is dear, and a limit that lags behind lets few more pass.
            if sum(len(part[0]) for part in self._waiting) >= self.hits.scores.size:
                self.flush()

    def flush(self) -> Hits:
        """The best so far."""
        if self._waiting:
            queries, k = self.hits.scores.shape
            kept = np.repeat(np.arange(queries), k), self.hits.indices.ravel(), self.hits.scores.ravel()
            of, indices, scores = (np.concatenate(parts) for parts in zip(kept, *self._waiting, strict=True))
            self._waiting = []
            order = np.lexsort((indices, -scores, of))
            of = of[order]
            first = order[np.arange(len(of)) - np.searchsorted(of, of) < k]
            self._keep(scores[first].reshape(queries, k), indices[first].reshape(queries, k))
        return self.hits

    def _keep(self, scores: np.ndarray, indices: np.ndarray) -> None:
        self.hits = Hits(scores, indices)
        if scores.shape[1] == self.k:
            self._limit = torch.from_numpy(scores[:, -1].astype(np.float64)).to(self.queries.values.device)


@known_arguments
def semantic_search(
    queries: Any,
    corpus: Any,
    top_k: int = 10,
    *,
    similarity: str = "cosine",
    precision: str | None = None,
    ranges: Any = None,
    rescore: Any = None,
    oversample: int | None = None,
) -> Hits:
    """The rows of a corpus that are most similar to each query, all of which are compared.

    Scores are those of the vectors as they are given, computed in float64 and rounded to float32; of equal ones, the
    lower index comes first. A product in few bits finds the rows that are worth it, and leaves out none, so the result
    does not depend on the processor. Only a block of the corpus is in memory at a time.

    Args:
        queries: Vectors; or codes, where the corpus is codes of the same kind.
        corpus: Vectors as floats of 64, 32 or 16 bits, or as codes of int8 or of bits, as ``quantize`` makes them: an
            array, a tensor, a memory map, the path of a ``.npy`` file, or an iterator of blocks of such.
        top_k: How many to find; all, where the corpus has fewer.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.
            Bits are taken for numbers of 1 and -1.
        precision: What the corpus holds, where its dtype and its dim do not say it: ``"int8"`` or ``"binary"``.
        ranges: Those with which codes of int8 were made; without, the codes are taken for the numbers.
        rescore: The same rows once more, in more bits. Then ``oversample`` times as many are searched for in
            ``corpus``, and the best of them by the scores of these are returned. ``ranges`` are of whichever is int8.
        oversample: See ``rescore``; 4 where it is not given.

    Shape:
        queries: (queries, dim) or (dim,). corpus: (rows, dim), or (rows, ceil(dim / 8)) for bits. Each output:
        (queries, k).

    Raises:
        ValueError: If the dims differ, a number is NaN or infinite, naming its row, or another argument does not fit.
        FileNotFoundError: If there is no such file.

    References:
        Shakir et al., 2024, binary vectors with rescoring. https://huggingface.co/blog/embedding-quantization

    Example:
        >>> corpus = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> hits = semantic_search(np.array([0.0, 2.0]), corpus, top_k=2)
        >>> hits.scores.round(4), hits.indices
        (array([[1. , 0.8]], dtype=float32), array([[2, 1]]))
    """
    k = check_count("top_k", top_k)
    check_similarity(similarity)
    if rescore is None:
        if oversample is not None:
            raise ValueError(f"oversample={oversample} is of rescoring; pass rescore= with it, or leave it out")
        return _searched(queries, corpus, k, similarity, precision, ranges)[0]
    finer = opened("rescore", rescore)
    more = k * (check_positive("oversample", oversample) or _OVERSAMPLE)
    hits, count = _searched(queries, corpus, more, similarity, precision, ranges, also_others=is_int8(finer))
    if not len(hits.scores):
        return Hits(*(each[:, :k] for each in hits))
    if count != len(finer):
        raise ValueError(f"rescore has {len(finer)} rows, and the corpus {count}; pass the same rows in more bits")
    return rescored(queries, hits, finer, k, similarity=similarity, ranges=ranges)


def _searched(
    queries: Any,
    corpus: Any,
    k: int,
    similarity: str,
    precision: str | None,
    ranges: Any,
    also_others: bool = False,
) -> tuple[Hits, int]:
    """The best rows of a corpus, and how many there are; ``also_others`` if the ranges may be of something else."""
    asked = tensor_of(matrix("queries", queries)).detach()
    asked = asked.to(device_of(corpus, asked))
    searched = Corpus(corpus, asked.shape[1], asked.device, precision, ranges, is_coded(asked), also_others)
    if not len(asked):
        return Hits(np.empty((0, k), np.float32), np.empty((0, k), np.int64)), 0
    best: list[Best] | None = None
    room: Tensor | None = None
    for start, values in searched:
        # Codes can be read only once it is known what those of the corpus are.
        best = best or _begin(searched.decoded(asked), similarity, k)
        block = rows(values, "corpus", similarity, start, room=room)
        room = block.rough if room is None or len(room) < len(values) else room
        for part in best:
            part.see(block, start)
    found = [part.flush() for part in best or _begin(asked.float(), similarity, k)]
    return Hits(*(np.concatenate(parts) for parts in zip(*found, strict=True))), searched.count


def _begin(queries: Tensor, similarity: str, k: int) -> list[Best]:
    rows(queries, "queries", similarity)
    return [Best(Queries(part, similarity), k) for part in torch.split(queries, _QUERIES)]


def rescored(
    queries: Any, hits: Hits, corpus: Any, top_k: int, *, similarity: str = "cosine", ranges: Any = None
) -> Hits:
    """The best of what was found already, by a corpus in more bits."""
    asked = tensor_of(matrix("queries", queries)).detach()
    # As the search itself takes them: what float64 tells apart, rescoring does, too.
    asked = asked if asked.dtype == torch.float64 else asked.float()
    whole, device = opened("rescore", corpus), device_of(corpus, asked)
    ranges = ranges if is_int8(whole) else None
    found = []
    for low in range(0, len(asked), _QUERIES):
        part = asked[low : low + _QUERIES].to(device)
        indices = hits.indices[low : low + _QUERIES]
        needed, inverse = np.unique(indices, return_inverse=True)
        values = [block for _, block in Corpus(whole[needed], asked.shape[1], device, None, ranges, name="rescore")]
        of = np.repeat(np.arange(len(part)), indices.shape[1])
        places = torch.from_numpy(inverse.ravel()).to(device), torch.from_numpy(of).to(device)
        block = rows(torch.cat(values) if values else part[:0], "rescore", similarity)
        scores = Queries(part, similarity).some(block, places).cpu().numpy().reshape(indices.shape)
        order = np.lexsort((indices, -scores), axis=1)[:, :top_k]
        found.append([np.take_along_axis(values_of, order, 1) for values_of in (scores, indices)])
    return Hits(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
