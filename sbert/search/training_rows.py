"""Rows for training: hard negatives of pairs, and the scores of a teacher as labels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sbert.functional import check_similarity, check_threshold
from sbert.inputs.arguments import check_count, check_model, check_number, check_seed, known_arguments, warn, whole
from sbert.inputs.texts import records_of, rows_of
from sbert.pipeline.results import PredictOptions
from sbert.search.exact.semantic_search import in_memory, scores_of_rows, semantic_search

# Rows whose texts a teacher scores together.
_ROWS = 200


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
    cross_encoder: Any = None,
    as_triplets: bool = False,
    as_lists: bool = False,
    seed: int | None = None,
    show_progress_bar: bool | None = None,
) -> list[dict[str, Any]]:
    """Add hard negatives to rows of (anchor, positive), in the form that ``Trainer`` takes.

    The candidates of an anchor are all texts except the anchor itself and all its positives, from any row, in the order
    of decreasing similarity. A candidate of rank ``range_min`` to ``range_max - 1`` may be a negative if its score s
    satisfies, with p for the lowest score of the anchor's positives,

        min_score <= s <= max_score,    s <= p - margin,    s <= p - relative_margin |p|.

    With a cross-encoder, these are the scores of its ``predict``, and the candidates are sorted by them.

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
        cross_encoder: A ``CrossEncoder`` with one score per pair, which scores the candidates of these ranks and the
            positives.
        as_triplets: Whether to return one row per negative; a row may then have fewer negatives.
        as_lists: Whether to return one row per anchor with all its positives, for the losses of a ``CrossEncoder`` that
            take lists; a row may then have fewer negatives.
        seed: Choose randomly among the candidates that satisfy the conditions; by default, the nearest are chosen.
        show_progress_bar: Whether to show a progress bar, as in ``encode``.

    Returns:
        Dicts with the keys anchor, positive and negative; or negative_1, negative_2 and so on for several negatives; or
        query, documents (positives first) and labels (1 and 0). Rows with too few negatives are left out, and a warning
        gives their number.

    Raises:
        TypeError: If a row or a text has a wrong type; the message names its row.
        ValueError: If there are no pairs, an argument is out of range, or the cross-encoder gives several scores.

    References:
        Moreira et al., 2024, section 3 (margins). https://arxiv.org/abs/2407.15831

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.search import mine_hard_negatives
        >>> model = SentenceEncoder()
        >>> pairs = [("Who naps on the sofa?", "A cat naps on the sofa.")]
        >>> mine_hard_negatives(model, pairs, ["The sofa is new.", "Taxes rise."])[0]["negative"]
        'The sofa is new.'
        >>> mine_hard_negatives(model, pairs, ["The sofa is new."], as_lists=True)[0]["labels"]
        [1, 0]
    """
    check_model("model", model, "pairs", "encode_query")
    count = check_count("negatives", negatives)
    if whole("range_min", range_min) < 0 or whole("range_max", range_max) - range_min < count:
        raise ValueError(f"range_min={range_min} and range_max={range_max} leave no room for {count} negatives")
    similarity = check_similarity(similarity or model.similarity_fn_name)
    for name, limit in (("min_score", min_score), ("max_score", max_score)):
        if limit is not None and cross_encoder is None:
            check_threshold(limit, similarity, name)
    if similarity == "cosine" and cross_encoder is None and (margin or 0) > 2:
        raise ValueError(f"margin={margin} exceeds 2, the largest difference of cosines; pass a smaller one, or None")
    _check_teacher("cross_encoder", cross_encoder, cross_encoder is None)
    suits = _conditions(min_score, max_score, margin, relative_margin)
    generator = None if seed is None else np.random.default_rng(check_seed(seed))
    rows = list(_check_pairs(pairs))
    texts = _texts(rows, corpus)
    index = {text: number for number, text in enumerate(texts)}
    positives: dict[str, set[int]] = {}  # Of each anchor, as indices of texts.
    for anchor, positive in rows:
        positives.setdefault(anchor, set()).add(index[positive])
    options = {"convert_to_tensor": True, "show_progress_bar": show_progress_bar}
    queries = in_memory("anchors", model.encode_query(list(positives), **options))
    documents = in_memory("corpus", model.encode_document(texts, **options))
    lowest = _lowest_positive_scores(queries, documents, list(positives.values()), similarity)
    # Enough hits even if all positives and the anchor are among them.
    hits = semantic_search(queries, documents, range_max + max(map(len, positives.values())) + 1, similarity=similarity)
    chosen: dict[str, list[str]] = {}
    for row, (anchor, answers) in enumerate(positives.items()):
        allowed = ~np.isin(hits.indices[row], [*answers, index.get(anchor, -1)])
        window = allowed.nonzero()[0][range_min:range_max]
        candidates, scores, bound = hits.indices[row, window], hits.scores[row, window], lowest[row]
        if cross_encoder is not None:
            candidates, scores, bound = _rescore(cross_encoder, anchor, texts, candidates, answers)
        fitting = candidates[suits(scores.astype(np.float64), bound)]
        if generator is not None:
            fitting = fitting[np.sort(generator.permutation(len(fitting))[:count])]
        chosen[anchor] = [texts[number] for number in fitting[:count]]
    if as_triplets and as_lists:
        raise ValueError("as_triplets and as_lists both set the form of the rows; pass one of them")
    required = 1 if as_triplets or as_lists else count
    if short := sum(len(chosen[anchor]) < required for anchor, _ in rows):
        warn(f"{short} of {len(rows)} rows have fewer than {required} negatives and are left out; pass a larger corpus")
    if as_lists:
        lists = ((anchor, [texts[at] for at in sorted(positives[anchor])], mined) for anchor, mined in chosen.items())
        return [
            {"query": anchor, "documents": right + wrong, "labels": [1] * len(right) + [0] * len(wrong)}
            for anchor, right, wrong in lists
            if wrong
        ]
    return list(_with_negatives(rows, chosen, count, as_triplets))


def _rescore(scorer: Any, anchor: str, texts: list[str], candidates: np.ndarray, right: set[int]) -> tuple[Any, ...]:
    """The candidates by decreasing score of a cross-encoder, their scores, and the lowest score of the positives."""
    pairs = [(anchor, texts[number]) for number in (*right, *candidates)]
    positives, scores = np.split(scorer.predict(pairs, show_progress_bar=False), [len(right)])
    order = np.argsort(-scores, kind="stable")
    return candidates[order], scores[order], positives.min()


def _conditions(
    min_score: float | None, max_score: float | None, margin: float | None, relative_margin: float | None
) -> Callable[[np.ndarray, float], np.ndarray]:
    """A function that tells which scores are those of negatives, from the lowest score of the anchor's positives."""
    for name, value in (("margin", margin), ("relative_margin", relative_margin)):
        if value is not None and check_number(name, value) < 0:
            raise ValueError(f"{name}={value} is negative; pass 0 or more, or None")
    # Rounded like the scores, so that a score equal to a limit satisfies it.
    with np.errstate(over="ignore"):
        lowest = np.float32(-math.inf if min_score is None else check_number("min_score", min_score))
        highest = np.float32(math.inf if max_score is None else check_number("max_score", max_score))

    def suits(scores: np.ndarray, positive: float) -> np.ndarray:
        satisfied: np.ndarray = (scores <= highest) & (scores >= lowest)
        if margin is not None:
            satisfied &= scores + margin <= positive
        if relative_margin is not None:
            satisfied &= scores <= positive - abs(positive) * relative_margin
        return satisfied

    return suits


def _texts(rows: list[tuple[str, str]], corpus: Iterable[str] | None) -> list[str]:
    """All texts that may be negatives of some row, each once."""
    if not rows:
        raise ValueError("there are no pairs; pass rows of an anchor and its positive")
    if isinstance(corpus, str):
        raise TypeError(f"corpus={corpus!r:.60} is one text; pass a list of texts")
    further = () if corpus is None else rows_of(corpus, "corpus")
    return list(dict.fromkeys([*further, *(positive for _, positive in rows)]))


def _check_pairs(pairs: Iterable[Any]) -> Iterator[tuple[str, str]]:
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TypeError(f"pairs is {pairs!r:.60}; pass a list of (anchor, positive), or of dicts of them")
    for number, row in enumerate(records_of(pairs)):
        texts = (row.get("anchor"), row.get("positive")) if isinstance(row, Mapping) else row
        if not isinstance(texts, (tuple, list)) or len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"pairs[{number}] is {row!r:.80}; pass (anchor, positive), or a dict of them, as strings")
        yield texts[0], texts[1]


def _lowest_positive_scores(
    queries: Tensor, documents: Tensor, positives: list[set[int]], similarity: str
) -> npt.NDArray[np.float64]:
    """The lowest score of each anchor's positives, equal to the scores of the search. Shape: (anchors,)."""
    anchors = np.repeat(np.arange(len(positives)), [len(answers) for answers in positives])
    rows = np.array([index for answers in positives for index in answers])
    lowest = np.full(len(positives), np.inf)
    np.minimum.at(lowest, anchors, scores_of_rows(queries, documents, anchors, rows, similarity, name="corpus"))
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


# ------------------------------------------------------------------------------------------------ a teacher's scores


def score_lists(
    teacher: Any, rows: Iterable[Any], *, as_margins: bool = False, **options: Unpack[PredictOptions]
) -> Iterator[dict[str, Any]]:
    """Add a teacher's scores to rows of a query and documents, as the labels from which a ``Trainer`` distils.

    Rows are read as they are needed, 200 at a time, so that they may be a generator of any length.

    Args:
        teacher: A ``CrossEncoder`` with one score per pair.
        rows: Dicts with query and documents, or with anchor, positive and negatives (a list, or negative, negative_1
            and so on), as ``mine_hard_negatives`` returns; or a data frame of these. Other keys stay.
        as_margins: Whether labels are the positive's score minus that of each negative, for ``MarginMSELoss``. By
            default, they are the scores of all documents, the positive first: for ``DistillKLDivLoss`` and, of rows
            with documents, for the losses of lists, such as ``ListNetLoss``.
        options: Arguments of ``teacher.predict``. By default ``activation=nn.Identity()``: labels are raw scores.

    Returns:
        The rows as dicts, with the key labels, a list of floats; scored as they are taken.

    Raises:
        TypeError: If a row has no query, or nothing to score; the message shows it.
        ValueError: If the teacher gives several scores.

    References:
        Hofstätter et al., 2020 (margins). https://arxiv.org/abs/2010.02666

    Example:
        >>> from sbert import CrossEncoder
        >>> from sbert.search import score_lists
        >>> teacher = CrossEncoder("sbert-mini", classes=1)
        >>> rows = [{"anchor": "Who naps?", "positive": "A cat naps.", "negatives": ["Taxes rise.", "It rains."]}]
        >>> scored = list(score_lists(teacher, rows, as_margins=True))
        >>> list(scored[0]), len(scored[0]["labels"])
        (['anchor', 'positive', 'negatives', 'labels'], 2)
        >>> len(next(score_lists(teacher, [{"query": "Who naps?", "documents": ["A cat.", "Taxes."]}]))["labels"])
        2
    """
    _check_teacher("teacher", teacher)
    settings: dict[str, Any] = {"activation": nn.Identity(), "show_progress_bar": False, **options}
    return _score(teacher, as_margins, settings, iter(records_of(rows)))


def _check_teacher(name: str, teacher: Any, is_left_out: bool = False) -> None:
    if not is_left_out and getattr(teacher, "classes", None) != 1:
        raise ValueError(f"{name} is {teacher!r:.80}; pass a CrossEncoder with one score per pair")


def _score(
    teacher: Any, as_margins: bool, settings: Mapping[str, Any], records: Iterator[Any]
) -> Iterator[dict[str, Any]]:
    while some := [(row, _texts_of(row, as_margins)) for row in islice(records, _ROWS)]:
        pairs = [(query, text) for _, (query, *documents) in some for text in documents]
        scores = iter(teacher.predict(pairs, **settings).tolist())
        for row, texts in some:
            labels = list(islice(scores, len(texts) - 1))
            yield {**row, "labels": [labels[0] - score for score in labels[1:]] if as_margins else labels}


def _texts_of(row: Any, as_margins: bool) -> list[str]:
    """The query, and its documents or its positive and negatives."""
    texts: list[Any] = []
    if isinstance(row, Mapping):
        names = ["documents"]
        if as_margins or "documents" not in row:
            names = ["positive", *filter(re.compile(r"negatives?[_-]?\d*").fullmatch, row)]  # As a Trainer.
        parts = [row.get(name) for name in ("query" if "query" in row else "anchor", *names)]
        texts = [text for part in parts for text in (part if isinstance(part, (tuple, list, np.ndarray)) else [part])]
    if len(texts) < 2 + as_margins or not all(isinstance(text, str) for text in texts):
        wanted = "anchor, positive and negatives" + ", or query and documents" * (not as_margins)
        raise TypeError(f"a row is {row!r:.80}; pass dicts of {wanted}, as strings")
    return texts
