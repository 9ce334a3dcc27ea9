"""Hard negatives: texts that are similar to an anchor without being one of its positives."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbert.functional import check_similarity
from sbert.inputs.arguments import check_count, check_model, check_number, check_seed, known_arguments
from sbert.inputs.texts import records_of, rows_of
from sbert.search.blocks import prepare_block, prepare_queries
from sbert.search.corpus import in_memory
from sbert.search.scoring import pair_scores
from sbert.search.semantic import semantic_search

# Anchors whose positives are scored in one step.
_ANCHORS = 512


@known_arguments
def mine_hard_negatives(
    model: Any,
    pairs: Iterable[Any],
    corpus: Iterable[str] | None = None,
    *,
    negatives: int = 1,
    range_min: int = 0,
    range_max: int = 100,
    max_score: float | None = None,
    min_score: float | None = None,
    margin: float | None = None,
    relative_margin: float | None = None,
    similarity: str | None = None,
    as_triplets: bool = False,
    seed: int | None = None,
) -> list[dict[str, str]]:
    """Add hard negatives to rows of (anchor, positive), in the form that ``Trainer`` takes.

    The candidates of an anchor are all texts except the anchor itself and all its positives, from any row, in the order
    of decreasing similarity. A candidate of rank ``range_min`` to ``range_max - 1`` may be a negative if its score s
    satisfies, with p for the lowest score of the anchor's positives,

        min_score <= s <= max_score,    s <= p - margin,    s <= p - relative_margin |p|.

    The arguments are those of the function of the same name in sentence-transformers. The differences: ranks are
    counted among candidates only and before the score conditions, so they do not depend on the number of positives; an
    anchor is never its own negative; vectors are compared as the model returns them, without normalization; rows keep
    their order, and duplicate rows are kept.

    Args:
        model: A ``SentenceEncoder``, which encodes anchors as queries and other texts as documents.
        pairs: Rows (anchor, positive): tuples, dicts with these two keys, or a data frame.
        corpus: Further texts that may be negatives. The positives of other anchors always may.
        negatives: Number of negatives per row.
        range_min: First rank, from 0. The nearest candidates may be positives that are not labelled.
        range_max: First rank that is excluded.
        max_score: Maximum score.
        min_score: Minimum score.
        margin: Minimum difference between the positive's score and the negative's.
        relative_margin: The same, relative to the positive's score.
        similarity: Similarity of the scores; default: that of the model.
        as_triplets: Whether to return one row per negative; a row may then have fewer negatives.
        seed: Choose randomly among the candidates that satisfy the conditions; by default, the nearest are chosen.

    Returns:
        Dicts with the keys anchor, positive and negative; or negative_1, negative_2 and so on for several negatives.
        Rows with too few negatives are left out, and a warning gives their number.

    Raises:
        TypeError: If a row or a text has a wrong type; the message names its row.
        ValueError: If there are no pairs, or an argument is out of range.

    References:
        Moreira et al., 2024, section 3 (margins). https://arxiv.org/abs/2407.15831

    Example:
        >>> from sbert.search import mine_hard_negatives
        >>> pairs = [("Who naps on the sofa?", "A cat naps on the sofa.")]
        >>> mine_hard_negatives(model, pairs, ["The sofa is new.", "Taxes rise."])[0]["negative"]
        'The sofa is new.'
    """
    check_model("model", model, "pairs", "encode_query")
    count = check_count("negatives", negatives)
    limits = _checked_limits(range_min, range_max, count, min_score, max_score, margin, relative_margin)
    if seed is not None:
        check_seed(seed)
    similarity = check_similarity(similarity or model.similarity_fn_name)
    rows, texts = _checked_texts(pairs, corpus)
    index = {text: number for number, text in enumerate(texts)}
    positives: dict[str, set[int]] = {}  # Of each anchor, as indices of texts.
    for anchor, positive in rows:
        positives.setdefault(anchor, set()).add(index[positive])
    queries = in_memory("anchors", model.encode_query(list(positives), convert_to_tensor=True))
    documents = in_memory("corpus", model.encode_document(texts, convert_to_tensor=True))
    lowest = _lowest_positive_scores(queries, documents, list(positives.values()), similarity)
    # Enough hits even if all positives and the anchor are among them.
    hits = semantic_search(queries, documents, range_max + max(map(len, positives.values())) + 1, similarity=similarity)
    chosen: dict[str, list[str]] = {}
    generator = None if seed is None else np.random.default_rng(seed)
    for row, (anchor, own) in enumerate(positives.items()):
        allowed = ~np.isin(hits.indices[row], [*own, index.get(anchor, -1)])
        window = allowed.nonzero()[0][range_min:range_max]
        satisfied = limits.satisfied_by(hits.scores[row, window].astype(np.float64), lowest[row])
        fitting = hits.indices[row, window[satisfied]]
        if generator is not None:
            fitting = fitting[np.sort(generator.permutation(len(fitting))[:count])]
        chosen[anchor] = [texts[number] for number in fitting[:count]]
    required = 1 if as_triplets else count
    short = sum(len(chosen[anchor]) < required for anchor, _ in rows)
    if short:
        warnings.warn(
            f"{short} of {len(rows)} rows have fewer than {required} negatives and are left out; widen the range or the"
            " limits of scores, or pass a larger corpus",
            stacklevel=3,
        )
    return list(_with_negatives(rows, chosen, count, as_triplets))


class _Limits(NamedTuple):
    """The conditions on the score of a negative."""

    lowest: np.float32
    highest: np.float32
    margin: float | None
    relative_margin: float | None

    def satisfied_by(self, scores: np.ndarray, positive: float) -> np.ndarray:
        """Which scores are those of a negative, if ``positive`` is the lowest score of a positive."""
        satisfied: np.ndarray = (scores <= self.highest) & (scores >= self.lowest)
        if self.margin is not None:
            satisfied &= scores + self.margin <= positive
        if self.relative_margin is not None:
            satisfied &= scores <= positive - abs(positive) * self.relative_margin
        return satisfied


def _checked_limits(
    range_min: int,
    range_max: int,
    count: int,
    min_score: float | None,
    max_score: float | None,
    margin: float | None,
    relative_margin: float | None,
) -> _Limits:
    """The conditions on scores, or an error if they or the ranks are out of range."""
    if any(isinstance(end, bool) or not isinstance(end, (int, np.integer)) for end in (range_min, range_max)):
        raise TypeError(f"range_min={range_min!r} and range_max={range_max!r} must be whole numbers")
    if range_min < 0 or range_max - range_min < count:
        raise ValueError(
            f"range_min={range_min} and range_max={range_max} leave no room for {count} negatives; widen the range"
        )
    for name, value in (("margin", margin), ("relative_margin", relative_margin)):
        if value is not None and check_number(name, value) < 0:
            raise ValueError(f"{name}={value} is negative; pass 0 or more, or None")
    for name, value in (("max_score", max_score), ("min_score", min_score)):
        if value is not None and value not in (math.inf, -math.inf):
            check_number(name, value)
    # Rounded like the scores, so that a score equal to a limit satisfies it.
    with np.errstate(over="ignore"):
        lowest = np.float32(-math.inf if min_score is None else min_score)
        highest = np.float32(math.inf if max_score is None else max_score)
    return _Limits(lowest, highest, margin, relative_margin)


def _checked_texts(pairs: Iterable[Any], corpus: Iterable[str] | None) -> tuple[list[tuple[str, str]], list[str]]:
    """The rows (anchor, positive), and all texts that may be negatives of some row, each once."""
    rows = list(_checked_pairs(pairs))
    if not rows:
        raise ValueError("there are no pairs; pass rows of an anchor and its positive")
    if isinstance(corpus, str):
        raise TypeError(f"corpus={corpus!r:.60} is one text; pass a list of texts")
    further = () if corpus is None else rows_of(corpus, "corpus")
    return rows, list(dict.fromkeys([*further, *(positive for _, positive in rows)]))


def _checked_pairs(pairs: Iterable[Any]) -> Iterator[tuple[str, str]]:
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TypeError(f"pairs is {pairs!r:.60}; pass a list of (anchor, positive), or of dicts of them")
    for number, row in enumerate(records_of(pairs)):
        if isinstance(row, Mapping):
            texts: tuple[Any, ...] = (row.get("anchor"), row.get("positive"))
        else:
            texts = tuple(row) if isinstance(row, (tuple, list)) else (row,)
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"pairs[{number}] is {row!r:.80}; pass (anchor, positive), or a dict of them, as strings")
        yield texts[0], texts[1]


def _lowest_positive_scores(
    queries: Tensor, documents: Tensor, positives: list[set[int]], similarity: str
) -> np.ndarray:
    """The lowest score of each anchor's positives, equal to the scores of the search. Shape: (anchors,) float64."""
    lowest = np.full(len(positives), np.inf)
    for low in range(0, len(positives), _ANCHORS):
        part = positives[low : low + _ANCHORS]
        query_ids = np.repeat(np.arange(len(part)), [len(each) for each in part])
        unique, inverse = np.unique([index for each in part for index in each], return_inverse=True)
        block = prepare_block(documents[torch.from_numpy(unique).to(documents.device)], "corpus", similarity)
        pairs = torch.from_numpy(inverse).to(documents.device), torch.from_numpy(query_ids).to(documents.device)
        scores = pair_scores(prepare_queries(queries[low : low + _ANCHORS], similarity), block, pairs)
        np.minimum.at(lowest, query_ids + low, scores.cpu().numpy())
    return lowest


def _with_negatives(
    rows: list[tuple[str, str]], chosen: dict[str, list[str]], count: int, as_triplets: bool
) -> Iterator[dict[str, str]]:
    for anchor, positive in rows:
        row, texts = {"anchor": anchor, "positive": positive}, chosen[anchor]
        if as_triplets or count == 1:
            yield from ({**row, "negative": text} for text in texts)
        elif len(texts) == count:
            yield {**row, **{f"negative_{number}": text for number, text in enumerate(texts, 1)}}
