"""Texts that a model takes for an anchor's positive, and that are none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.functional import check_similarity
from sbert.inputs.arguments import check_count, check_model, check_number, check_seed, known_arguments
from sbert.inputs.texts import records_of, rows_of
from sbert.search.corpus import held
from sbert.search.scoring import Queries, rows
from sbert.search.semantic import semantic_search

# Anchors whose positives are scored at once.
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
    """Rows of pairs with texts that are near the anchor and are no positive of it, as a ``Trainer`` takes them.

    An anchor's candidates are all other texts, the nearest first, but for the anchor itself and all its positives, in
    whichever rows they stand. Those of rank ``range_min`` up to ``range_max`` are taken whose score s satisfies, with
    p for the least score of the anchor's positives,

        min_score <= s <= max_score,    s <= p - margin,    s <= p - relative_margin |p|.

    These are the conditions of sentence-transformers' function of this name. Ours differs from it in this: ranks
    count before scores decide, and among candidates alone, so that no other anchor's number of positives moves them;
    an anchor is never its own negative; vectors are compared as the model gives them, not scaled to length 1; rows
    keep their order, and are given back as often as they were given.

    Args:
        model: A ``SentenceEncoder``, which encodes anchors as queries and other texts as documents.
        pairs: Rows (anchor, positive): tuples, or dicts with these two names, or a data frame.
        corpus: Texts in which to look beside the positives, which always count.
        negatives: How many for each row.
        range_min: Rank of the first candidate that may be taken, from 0: the nearest may be positives nobody marked.
        range_max: Rank of the first candidate that may not be taken.
        max_score: The greatest score.
        min_score: The least score.
        margin: By how much a negative's score is below the positive's.
        relative_margin: The same as a part of the positive's.
        similarity: Of scores; the model's where it is not given.
        as_triplets: Whether each negative makes a row of its own; a row may then have fewer of them.
        seed: Takes negatives at random among those that may be taken; the nearest, where it is not given.

    Returns:
        Dicts of anchor, positive and negative; or negative_1, negative_2 and so on, where there are several in a row.
        Rows for which there are too few are left out, and a warning says how many.

    Raises:
        TypeError: If a row or a text is something else, naming it.
        ValueError: If there are no pairs, or an argument does not fit.

    References:
        Moreira et al., 2024, section 3, of margins. https://arxiv.org/abs/2407.15831

    Example:
        >>> from sbert.search import mine_hard_negatives
        >>> pairs = [("Who naps on the sofa?", "A cat naps on the sofa.")]
        >>> mine_hard_negatives(model, pairs, ["The sofa is new.", "Taxes rise."])[0]["negative"]
        'The sofa is new.'
    """
    check_model("model", model, "pairs", "encode_query")
    count = check_count("negatives", negatives)
    _check_range(range_min, range_max, count)
    for name, value in (("margin", margin), ("relative_margin", relative_margin)):
        if value is not None and check_number(name, value) < 0:
            raise ValueError(f"{name}={value} is negative; pass 0 or more, or None")
    for name, value in (("max_score", max_score), ("min_score", min_score)):
        if value is not None and value not in (math.inf, -math.inf):
            check_number(name, value)
    if seed is not None:
        check_seed(seed)
    kind = check_similarity(similarity or model.similarity_fn_name)
    given = list(_pairs(pairs))
    if not given:
        raise ValueError("there are no pairs; pass rows of an anchor and its positive")
    if isinstance(corpus, str):
        raise TypeError(f"corpus={corpus!r:.60} is one text; pass a list of texts")
    added = () if corpus is None else rows_of(corpus, "corpus")
    texts = list(dict.fromkeys([*added, *(positive for _, positive in given)]))
    place = {text: row for row, text in enumerate(texts)}
    own: dict[str, set[int]] = {}  # Where the positives of each anchor stand.
    for anchor, positive in given:
        own.setdefault(anchor, set()).add(place[positive])
    asked = held("anchors", model.encode_query(list(own), convert_to_tensor=True))
    found = held("corpus", model.encode_document(texts, convert_to_tensor=True))
    least = _least(asked, found, list(own.values()), kind)
    most = range_max + max(map(len, own.values())) + 1  # With all that cannot be taken.
    hits = semantic_search(asked, found, most, similarity=kind)
    # Rounded as the scores are: what is just as great as a limit satisfies it.
    limits = np.array([-math.inf if min_score is None else min_score, math.inf if max_score is None else max_score])
    with np.errstate(over="ignore"):
        limits = limits.astype(np.float32)
    chosen: dict[str, list[str]] = {}
    generator = None if seed is None else np.random.default_rng(seed)
    for row, (anchor, positives) in enumerate(own.items()):
        candidates = ~np.isin(hits.indices[row], [*positives, place.get(anchor, -1)])
        window = candidates.nonzero()[0][range_min:range_max]
        scores = hits.scores[row, window].astype(np.float64)
        fits = (scores <= limits[1]) & (scores >= limits[0])
        if margin is not None:
            fits &= scores + margin <= least[row]
        if relative_margin is not None:
            fits &= scores <= least[row] - abs(least[row]) * relative_margin
        fit = hits.indices[row, window[fits]]
        if generator is not None:
            fit = fit[np.sort(generator.permutation(len(fit))[:count])]
        chosen[anchor] = [texts[index] for index in fit[:count]]
    needed = 1 if as_triplets else count
    short = sum(len(chosen[anchor]) < needed for anchor, _ in given)
    if short:
        warnings.warn(
            f"{short} of {len(given)} rows have fewer than {needed} negatives and are left out; widen the range or the"
            " limits of scores, or pass a larger corpus",
            stacklevel=3,
        )
    return list(_rows(given, chosen, count, as_triplets))


def _check_range(low: int, high: int, count: int) -> None:
    if any(isinstance(end, bool) or not isinstance(end, (int, np.integer)) for end in (low, high)):
        raise TypeError(f"range_min={low!r} and range_max={high!r} must be whole numbers")
    if low < 0 or high - low < count:
        raise ValueError(f"range_min={low} and range_max={high} leave no room for {count} negatives; widen the range")


def _pairs(pairs: Iterable[Any]) -> Iterator[tuple[str, str]]:
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


def _least(asked: Tensor, found: Tensor, own: list[set[int]], similarity: str) -> np.ndarray:
    """The least score of each anchor's positives, exactly as the search has it. Shape: (anchors,) float64."""
    least = np.full(len(own), np.inf)
    for low in range(0, len(own), _ANCHORS):
        part = own[low : low + _ANCHORS]
        of = np.repeat(np.arange(len(part)), [len(each) for each in part])
        at, inverse = np.unique([index for each in part for index in each], return_inverse=True)
        block = rows(found[torch.from_numpy(at).to(found.device)], "corpus", similarity)
        places = torch.from_numpy(inverse).to(found.device), torch.from_numpy(of).to(found.device)
        scores = Queries(asked[low : low + _ANCHORS], similarity).some(block, places).cpu().numpy()
        np.minimum.at(least, of + low, scores)
    return least


def _rows(
    given: list[tuple[str, str]], chosen: dict[str, list[str]], count: int, as_triplets: bool
) -> Iterator[dict[str, str]]:
    for anchor, positive in given:
        row, texts = {"anchor": anchor, "positive": positive}, chosen[anchor]
        if as_triplets or count == 1:
            yield from ({**row, "negative": text} for text in texts)
        elif len(texts) == count:
            yield {**row, **{f"negative_{number}": text for number, text in enumerate(texts, 1)}}
