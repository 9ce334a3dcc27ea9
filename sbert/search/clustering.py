"""Cluster vectors, and find the words that characterize each cluster."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sbert.functional import Vectors, directions
from sbert.inputs.arguments import (
    check_choice,
    check_count,
    check_positive,
    check_seed,
    check_threshold,
    known_arguments,
)
from sbert.inputs.extras import missing
from sbert.inputs.texts import rows_of
from sbert.search.communities import community_detection
from sbert.search.corpus import in_memory

METHODS = ("kmeans", "agglomerative", "community")


@known_arguments
def cluster(
    vectors: Vectors,
    method: str = "kmeans",
    *,
    clusters: int | None = None,
    threshold: float | None = None,
    min_community_size: int = 10,
    seed: int = 0,
) -> np.ndarray:
    """Assign each vector to a cluster by its direction; lengths do not matter.

    Args:
        vectors: Array or tensor.
        method: ``"kmeans"``: a fixed number of compact clusters. ``"agglomerative"``: repeatedly merge the two
            clusters with the greatest mean cosine (average linkage) until ``clusters`` remain or no mean cosine
            reaches ``threshold``. ``"community"``: ``community_detection``, which leaves isolated vectors unassigned.
            The first two methods need scikit-learn.
        clusters: Number of clusters, for ``"kmeans"`` and ``"agglomerative"``.
        threshold: Minimum cosine. For ``"agglomerative"``, between two clusters that are merged; for ``"community"``,
            between a member and the centre of its community (default 0.75).
        min_community_size: Minimum number of members, for ``"community"``.
        seed: Random seed of ``"kmeans"``.

    Shape:
        vectors: (rows, dim). Output: (rows,) int64. Label 0 is the largest cluster; -1 means no cluster.

    Raises:
        ImportError: If the method needs scikit-learn and it is not installed.
        TypeError: If ``method`` is a number.
        ValueError: If an argument does not fit the method, or a value is NaN or infinite; the message names its row.

    Example:
        >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.8, 0.1], [0.1, 1]])
        >>> cluster(vectors, "community", threshold=0.9, min_community_size=2).tolist()
        [0, 1, 0, 0, 1]
    """
    values = in_memory("vectors", vectors)
    if isinstance(method, (int, np.integer)):
        raise TypeError(f"method={method} is a number; to get {method} clusters, pass clusters={method}")
    check_choice("method", method, METHODS)
    if threshold is not None:
        check_threshold(threshold)
    check_seed(seed)
    check_positive("clusters", clusters)
    valid = {"kmeans": clusters is not None and threshold is None, "community": clusters is None}
    if not valid.get(method, (clusters is None) != (threshold is None)):
        expected = {"kmeans": "clusters", "agglomerative": "either clusters or threshold", "community": "threshold"}
        raise ValueError(f"clusters={clusters}, threshold={threshold}: method={method!r} takes {expected[method]}")
    if method == "community":
        labels = np.full(len(values), -1, np.int64)
        minimum = 0.75 if threshold is None else threshold
        for label, members in enumerate(community_detection(values, minimum, min_community_size)):
            labels[members] = label
        return labels
    if clusters is not None and clusters > len(values):
        raise ValueError(f"clusters={clusters} exceeds the {len(values)} vectors; pass at most {len(values)}")
    units = directions(values.double()).cpu().numpy()
    if not np.isfinite(units).all():
        row = int(np.flatnonzero(~np.isfinite(units).all(1))[0])
        raise ValueError(f"vectors[{row}] has a NaN or an infinity; remove or correct that row")
    zeros = np.flatnonzero(~units.any(1))
    if method == "agglomerative" and len(zeros):
        raise ValueError(f"vectors[{zeros[0]}] has length 0 and no direction; remove it, or pass method='kmeans'")
    return _ordered_by_size(_sklearn_labels(units, method, clusters, threshold, seed))


def _sklearn_labels(
    units: np.ndarray, method: str, clusters: int | None, threshold: float | None, seed: int
) -> np.ndarray:
    try:
        from sklearn.cluster import AgglomerativeClustering, KMeans
    except ImportError as error:
        raise missing(f"method={method!r}", "scikit-learn", "cluster", "pass 'community'") from error
    if len(units) < 2:
        return np.zeros(len(units), np.int64)
    if method == "kmeans":
        # float32 is precise enough for k-means and halves the time.
        fitted = KMeans(clusters, n_init=4, random_state=seed).fit(units.astype(np.float32))
    else:
        distance = None if threshold is None else 1 - threshold
        fitted = AgglomerativeClustering(clusters, metric="cosine", linkage="average", distance_threshold=distance).fit(
            units
        )
    labels: np.ndarray = fitted.labels_
    return labels


def _integer_labels(labels: Any) -> list[int]:
    """The labels as integers, or a TypeError."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise TypeError(f"labels are {labels!r:.60}; pass one label per text, as cluster() returns them")
    listed = list(labels)
    for row, label in enumerate(listed):
        if not isinstance(label, (int, np.integer)) and not (hasattr(label, "is_integer") and label.is_integer()):
            raise TypeError(f"labels[{row}] is {label!r:.60}; pass integers, as cluster() returns them")
    return [int(label) for label in listed]


def _ordered_by_size(labels: np.ndarray) -> np.ndarray:
    """Renumber the clusters from the largest to the smallest; of equal size, by their first row."""
    unique, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    renumbered = np.empty(len(unique), np.int64)
    renumbered[np.lexsort((first, -counts))] = np.arange(len(unique))
    return renumbered[inverse]


@known_arguments
def topic_words(texts: Iterable[str], labels: Sequence[int] | np.ndarray, top_k: int = 5) -> dict[int, list[str]]:
    """The words that characterize each cluster, by a class-based tf-idf.

        w_tc = (sqrt(p_tc) - sqrt(q_tc)) log(1 + A / f_t)

    where p_tc is the relative frequency of word t in cluster c, q_tc the same in all other clusters together, f_t the
    number of times t occurs in all clusters, and A the mean number of words per cluster. Subtracting q_tc removes
    words that are frequent in every cluster, such as "the". The square root makes the variance of a frequency nearly
    independent of its size. A word is a run of at least two letters, digits or underscores, in lower case.

    Args:
        texts: The texts that were clustered.
        labels: One label per text; texts with the label -1 are ignored.
        top_k: Number of words per cluster.

    Returns:
        A dict from label to words, greatest weight first; equal weights in alphabetical order.

    Raises:
        TypeError: If a text is not a str; the message names its row.
        ValueError: If there are more or fewer labels than texts.

    References:
        Grootendorst, 2022, section 3.3 (without q_tc). https://arxiv.org/abs/2203.05794
        Bartlett, 1936 (square roots of counts). https://doi.org/10.2307/2983678

    Example:
        >>> texts = ["The cat sleeps.", "The cat naps here.", "The taxes rise.", "The state raises taxes."]
        >>> topic_words(texts, [0, 0, 1, 1], top_k=1)
        {0: ['cat'], 1: ['taxes']}
    """
    listed, given = list(rows_of(texts, "texts")), _integer_labels(labels)
    count = check_count("top_k", top_k)
    if len(listed) != len(given):
        raise ValueError(f"there are {len(listed)} texts and {len(given)} labels; pass one label per text")
    words: dict[int, Counter[str]] = {label: Counter() for label in sorted(set(given)) if label >= 0}
    for text, label in zip(listed, given, strict=True):
        if label >= 0:
            words[label].update(re.findall(r"\w\w+", text.lower()))
    overall: Counter[str] = Counter()
    for own in words.values():
        overall.update(own)
    total = overall.total()
    mean = total / max(1, len(words))
    result = {}
    for label, own in words.items():
        size, others = own.total(), max(1, total - own.total())
        weights = {
            word: ((times / size) ** 0.5 - ((overall[word] - times) / others) ** 0.5) * np.log1p(mean / overall[word])
            for word, times in own.items()
        }
        result[label] = sorted(weights, key=lambda word: (-weights[word], word))[:count]
    return result
