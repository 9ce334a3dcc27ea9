"""Groups of similar vectors: communities and clusters, and the words that characterize them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from math import log1p

import numpy as np
import numpy.typing as npt
import torch

from sbert.functional import Vectors, check_threshold, directions
from sbert.inputs.arguments import check_choice, check_count, check_positive, check_seed, known_arguments, whole
from sbert.inputs.extras import require
from sbert.inputs.texts import rows_of
from sbert.search.exact.comparison import Prefilter, PreparedVectors, just_below, pairs_above, prepare, scores_above
from sbert.search.exact.semantic_search import in_memory

# Number of centres, and of rows, that are compared in one step.
_CENTRES, _BLOCK = 128, 16384
# Each method of ``cluster``, and the arguments that it takes.
_METHODS = {"kmeans": "clusters", "community": "threshold"}

# Phrases that occur less often are left out.
_REPEATED = 2
# From this number of clusters on, a word that is usual in more than this part of them characterizes none.
_MANY, _COMMON = 8, 0.5
# The least number of terms that are examined for a cluster; words with this beginning in common are alike.
_RANKED, _PREFIX = 100, 5


@known_arguments
def community_detection(vectors: Vectors, threshold: float = 0.75, min_community_size: int = 10) -> list[list[int]]:
    """Groups of vectors whose cosine with the centre of their group reaches a threshold, largest group first.

    Two vectors are neighbours if their cosine is at least ``threshold``. The vector with the most neighbours becomes
    the first centre, and its neighbours are the members. Then the next vector in the order of neighbour counts becomes
    a centre, if enough of its neighbours are still without a group, and so on. Among equal counts, the lower row comes
    first. No vector belongs to two groups.

    The neighbours of all rows may be as many as all pairs and are not stored: a first pass counts them, a second pass
    looks up those of the centres.

    Args:
        vectors: Array or tensor.
        threshold: Minimum cosine between a member and the centre, from -1 to 1.
        min_community_size: Minimum size of a group, its centre included.

    Returns:
        For each group a list of rows: the centre, then the members by decreasing cosine with it; ties by row.

    Shape:
        vectors: (rows, dim).

    Raises:
        ValueError: If the threshold is not a cosine, or a value is NaN or infinite; the message names its row.

    Example:
        >>> import numpy as np
        >>> from sbert.search import community_detection
        >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.8, 0.1], [0.1, 1]])
        >>> community_detection(vectors, threshold=0.9, min_community_size=2)
        [[0, 2, 3], [1, 4]]
    """
    size = check_count("min_community_size", min_community_size)
    check_threshold(threshold)
    values = in_memory("vectors", vectors)
    if not len(values):
        return []
    limit = just_below(threshold)
    rows = prepare(values, "vectors", "cosine", exact=True)
    return _groups(rows, limit, _counts(rows, limit), size)


def _counts(rows: PreparedVectors, limit: float) -> npt.NDArray[np.int64]:
    """The number of neighbours of each row, itself included. Shape: (rows,)."""
    total = len(rows.values)
    counts = (rows.norms > 0).long() if limit >= 0 else torch.ones_like(rows.norms, dtype=torch.int64)
    for _, first, second in pairs_above(rows, lambda: limit):
        counts += torch.bincount(first, minlength=total) + torch.bincount(second, minlength=total)
    return counts.cpu().numpy()


def _groups(rows: PreparedVectors, limit: float, counts: npt.NDArray[np.int64], size: int) -> list[list[int]]:
    """The groups, from the number of neighbours of each row."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= size]
    used = np.zeros(len(counts), bool)
    groups: list[list[int]] = []
    # Rows that became members of an earlier group cannot be centres.
    while len(order := order[~used[order]]):
        centres, order = order[:_CENTRES], order[_CENTRES:]
        for centre, members in zip(centres.tolist(), _neighbours(rows, limit, centres), strict=True):
            left = members[~used[members]]
            if not used[centre] and len(left) >= size:
                groups.append([centre, *left[left != centre].tolist()])
                used[left] = used[centre] = True
    return sorted(groups, key=len, reverse=True)


def _neighbours(rows: PreparedVectors, limit: float, centres: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """The neighbours of each centre by decreasing cosine."""
    prefilter = Prefilter(rows.part(torch.from_numpy(centres).to(rows.values.device)))
    parts: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(rows.values), _BLOCK):
        scores, row_ids, query_ids = scores_above(prefilter, rows.part(slice(start, start + _BLOCK)), limit)
        parts.append((query_ids.cpu().numpy(), row_ids.cpu().numpy() + start, scores.cpu().numpy()))
    of_centre, neighbours, cosines = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((neighbours, -cosines, of_centre))
    return np.split(neighbours[order], np.searchsorted(of_centre[order], np.arange(1, len(centres))))


@known_arguments
def cluster(
    vectors: Vectors,
    method: str = "kmeans",
    *,
    clusters: int | None = None,
    threshold: float | None = None,
    min_community_size: int = 10,
    seed: int = 0,
) -> npt.NDArray[np.int64]:
    """Assign each vector to a cluster by its direction; lengths do not matter.

    Args:
        vectors: Array or tensor.
        method: ``"kmeans"``: a fixed number of compact clusters, by scikit-learn. ``"community"``:
            ``community_detection``, which leaves isolated vectors unassigned.
        clusters: Number of clusters, for ``"kmeans"``.
        threshold: Minimum cosine between a member and the centre of its community, for ``"community"``; default 0.75.
        min_community_size: Minimum number of members, for ``"community"``.
        seed: Random seed of ``"kmeans"``.

    Shape:
        vectors: (rows, dim). Output: (rows,) int64. Label 0 is the largest cluster; -1 means no cluster.

    Raises:
        ImportError: If the method needs scikit-learn and it is not installed.
        ValueError: If an argument does not fit the method, or a value is NaN or infinite; the message names its row.

    Example:
        >>> import numpy as np
        >>> from sbert.search import cluster
        >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.8, 0.1], [0.1, 1]])
        >>> cluster(vectors, "community", threshold=0.9, min_community_size=2).tolist()
        [0, 1, 0, 0, 1]
    """
    values = in_memory("vectors", vectors)
    check_choice("method", method, tuple(_METHODS))
    if threshold is not None:
        check_threshold(threshold)
    check_seed(seed)
    check_positive("clusters", clusters)
    unused, needed = (threshold, clusters) if method == "kmeans" else (clusters, 1)
    if unused is not None or needed is None:
        raise ValueError(f"method={method!r} takes {_METHODS[method]}; pass it alone, not {clusters=}, {threshold=}")
    if method == "community":
        labels = np.full(len(values), -1, np.int64)
        groups = community_detection(values, 0.75 if threshold is None else threshold, min_community_size)
        for label, members in enumerate(groups):
            labels[members] = label
        return labels
    if clusters is not None and clusters > len(values):
        raise ValueError(f"clusters={clusters} exceeds the {len(values)} vectors; pass at most {len(values)}")
    with require("method='kmeans'", "scikit-learn", "cluster", "pass 'community'"):
        from sklearn.cluster import KMeans
    # float32 is precise enough for k-means and halves the time.
    units = directions(prepare(values, "vectors", "cosine").values.double()).float().cpu().numpy()
    return _order_by_size(np.asarray(KMeans(clusters, n_init=4, random_state=seed).fit_predict(units)))


def _order_by_size(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Renumber the clusters from the largest to the smallest; of equal size, by their first row."""
    unique, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    renumbered = np.empty(len(unique), np.int64)
    renumbered[np.lexsort((first, -counts))] = np.arange(len(unique))
    return renumbered[inverse]


@known_arguments
def topic_words(texts: Iterable[str], labels: Iterable[int], top_k: int = 5) -> dict[int, list[str]]:
    """The words, and phrases of two words, that characterize each cluster, by a class-based tf-idf.

        w_tc = (sqrt(p_tc) - sqrt(q_tc)) log(1 + A / f_t)

    where p_tc is the relative frequency of term t in cluster c, q_tc the same in all other clusters together, f_t the
    number of times t occurs in all clusters, and A the mean number of words per cluster. Subtracting q_tc removes
    words that are frequent in every cluster, such as "the". The square root makes the variance of a frequency nearly
    independent of its size. A word is a run of at least two letters, digits or underscores, in lower case. English
    function words are left out, and so are words that are usual in most clusters, where there are 8 or more. A phrase
    takes the place of its words if it makes up half of the occurrences of one of them. Terms of several texts of a
    cluster come before those of a single one, which are often names.

    Args:
        texts: The texts that were clustered.
        labels: One label per text; texts with the label -1 are ignored.
        top_k: Number of words and phrases per cluster, no two of which share a word or its beginning.

    Returns:
        A dict from label to words, greatest weight first; equal weights in alphabetical order.

    Raises:
        TypeError: If a text is not a str; the message names its row.
        ValueError: If there are more or fewer labels than texts.

    References:
        Grootendorst, 2022, section 3.3 (without q_tc). https://arxiv.org/abs/2203.05794
        Bartlett, 1936 (square roots of counts). https://doi.org/10.2307/2983678

    Example:
        >>> from sbert.search import topic_words
        >>> texts = ["The cat sleeps.", "The cat naps here.", "Income taxes rise.", "They raise income taxes."]
        >>> topic_words(texts, [0, 0, 1, 1], top_k=1)
        {0: ['cat'], 1: ['income taxes']}
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise TypeError(f"labels are {labels!r:.60}; pass one label per text, as cluster() returns them")
    listed = list(rows_of(texts, "texts"))
    label_of = [whole(f"labels[{row}]", label) for row, label in enumerate(labels)]
    count = check_count("top_k", top_k)
    if len(listed) != len(label_of):
        raise ValueError(f"there are {len(listed)} texts and {len(label_of)} labels; pass one label per text")
    function_words = set((files("sbert.search.exact") / "function_words.txt").read_text(encoding="utf-8").split())
    terms: dict[int, Counter[str]] = {label: Counter() for label in sorted(set(label_of)) if label >= 0}
    texts_with = {label: Counter[str]() for label in terms}
    sizes = dict.fromkeys(terms, 0)  # Words of each cluster.
    for text, label in zip(listed, label_of, strict=True):
        if label >= 0:
            words = re.findall(r"\w\w+", text.lower())
            sizes[label] += len(words)
            content = [None if word in function_words else word for word in words]
            pairs = (f"{a} {b}" for a, b in pairwise(content) if a and b and a != b)
            terms[label].update(in_text := [*filter(None, content), *pairs])
            texts_with[label].update(set(in_text))
    overall = Counter[str]()
    for counts in terms.values():
        overall.update(counts)
    for pair in [term for term, times in overall.items() if times < _REPEATED and " " in term]:
        del overall[pair]
    total = sum(sizes.values())
    if len(terms) >= _MANY:  # Leave out what is at least half as frequent as overall in most clusters.
        usual = Counter(
            term
            for label, counts in terms.items()
            for term, times in counts.items()
            if 2 * times * total >= overall[term] * sizes[label]
        )
        for term in [term for term, clusters in usual.items() if clusters > _COMMON * len(terms)]:
            overall.pop(term, None)
    result = {}
    for label, counts in terms.items():
        size, others = sizes[label], max(1, total - sizes[label])
        weights = {
            term: ((times / size) ** 0.5 - ((overall[term] - times) / others) ** 0.5)
            * log1p(total / len(terms) / overall[term])
            for term, times in counts.items()
            if term in overall
        }
        in_one = {term for term, times in texts_with[label].items() if times == 1}  # Often a name.
        ranked = sorted(weights, key=lambda term: (term in in_one, -weights[term], term))
        result[label] = _distinct_terms(ranked, counts, count)
    return result


def _distinct_terms(ranked: Sequence[str], times: Mapping[str, int], count: int) -> list[str]:
    """The first terms that share no word, or its beginning; phrases in place of words that occur mostly in them."""
    ranked = ranked[: max(_RANKED, 4 * count)]
    phrases: dict[str, str] = {}  # The first phrase that makes up half of a word's occurrences.
    for phrase in (term for term in ranked if " " in term):
        for word in phrase.split():
            if 2 * times[phrase] > times[word] > 1:
                phrases.setdefault(word, phrase)
    chosen: list[str] = []
    used: set[str] = set()
    for term in ranked:
        term = phrases.get(term, term)
        prefixes = {word[:_PREFIX] for word in term.split()}
        if not prefixes & used:
            chosen.append(term)
            used |= prefixes
    return chosen[:count]
