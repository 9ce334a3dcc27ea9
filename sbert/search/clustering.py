"""Labels of clusters, and the words that tell clusters apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sbert.functional import directions
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
from sbert.search.corpus import held

METHODS = ("kmeans", "agglomerative", "community")


@known_arguments
def cluster(
    vectors: Any,
    method: str = "kmeans",
    *,
    clusters: int | None = None,
    threshold: float | None = None,
    min_community_size: int = 10,
    seed: int = 0,
) -> np.ndarray:
    """The cluster of each vector, by the directions of the vectors.

    Args:
        vectors: Array or tensor.
        method: ``"kmeans"`` for so many round clusters; ``"agglomerative"`` to join the two clusters whose vectors
            have the greatest mean cosine, until there are so many or no two are that similar; ``"community"`` for
            ``community_detection``, which leaves out what stands alone. The first two need scikit-learn.
        clusters: How many, for the first two methods.
        threshold: The least cosine: of two clusters that are joined, if ``clusters`` is not given; or of a member with
            the centre of its community, 0.75 if it is not given.
        min_community_size: Of a community.
        seed: Of k-means.

    Shape:
        vectors: (rows, dim). Output: (rows,) int64, 0 for the largest cluster, -1 for none.

    Raises:
        ImportError: If scikit-learn is needed and not installed.
        ValueError: If an argument does not fit the method.

    Example:
        >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.8, 0.1], [0.1, 1]])
        >>> cluster(vectors, "community", threshold=0.9, min_community_size=2).tolist()
        [0, 1, 0, 0, 1]
    """
    values = held("vectors", vectors)
    if isinstance(method, (int, np.integer)):
        raise TypeError(f"method={method} is a number; for so many clusters, pass clusters={method}")
    check_choice("method", method, METHODS)
    if threshold is not None:
        check_threshold(threshold)
    check_seed(seed)
    check_positive("clusters", clusters)
    wanted = {"kmeans": clusters is not None and threshold is None, "community": clusters is None}
    if not wanted.get(method, (clusters is None) != (threshold is None)):
        needed = {"kmeans": "clusters", "agglomerative": "either clusters or threshold", "community": "threshold"}
        raise ValueError(f"clusters={clusters}, threshold={threshold}: method={method!r} takes {needed[method]}")
    if method == "community":
        labels = np.full(len(values), -1, np.int64)
        least = 0.75 if threshold is None else threshold
        for number, members in enumerate(community_detection(values, least, min_community_size)):
            labels[members] = number
        return labels
    if clusters is not None and clusters > len(values):
        raise ValueError(f"clusters={clusters} exceeds the {len(values)} vectors; pass at most that")
    units = directions(values.double()).cpu().numpy()
    if not np.isfinite(units).all():
        row = int(np.flatnonzero(~np.isfinite(units).all(1))[0])
        raise ValueError(f"vectors[{row}] has a NaN or an infinity; leave that row out, or mend it")
    nothing = np.flatnonzero(~units.any(1))
    if method == "agglomerative" and len(nothing):
        raise ValueError(f"vectors[{nothing[0]}] has the length 0 and no direction; leave it out, or pass 'kmeans'")
    return _by_size(_fitted(units, method, clusters, threshold, seed))


def _fitted(units: np.ndarray, method: str, clusters: int | None, threshold: float | None, seed: int) -> np.ndarray:
    try:
        from sklearn.cluster import AgglomerativeClustering, KMeans
    except ImportError as error:
        raise missing(f"method={method!r}", "scikit-learn", "cluster", "pass 'community'") from error
    if len(units) < 2:
        return np.zeros(len(units), np.int64)
    if method == "kmeans":
        # In float32, which is enough to tell clusters, and half the work.
        fitted = KMeans(clusters, n_init=4, random_state=seed).fit(units.astype(np.float32))
    else:
        distance = None if threshold is None else 1 - threshold
        fitted = AgglomerativeClustering(clusters, metric="cosine", linkage="average", distance_threshold=distance).fit(
            units
        )
    labels: np.ndarray = fitted.labels_
    return labels


def _labels(labels: Any) -> list[int]:
    """Labels as whole numbers."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise TypeError(f"labels are {labels!r:.60}; pass the cluster of each text, as cluster gives them")
    listed = list(labels)
    for row, label in enumerate(listed):
        if not isinstance(label, (int, np.integer)) and not (hasattr(label, "is_integer") and label.is_integer()):
            raise TypeError(f"labels[{row}] is {label!r:.60}; number the clusters, as cluster does")
    return [int(label) for label in listed]


def _by_size(labels: np.ndarray) -> np.ndarray:
    """The labels anew: 0 for the largest cluster; of as many, for that of the first row."""
    different, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    places = np.empty(len(different), np.int64)
    places[np.lexsort((first, -counts))] = np.arange(len(different))
    return places[inverse]


@known_arguments
def topic_words(texts: Iterable[str], labels: Sequence[int] | np.ndarray, top_k: int = 5) -> dict[int, list[str]]:
    """The words that tell each cluster from the others: class-based tf-idf.

        w_tc = (sqrt(p_tc) - sqrt(q_tc)) log(1 + A / f_t)

    where p_tc is the part of the words of cluster c that are t, q_tc the same of all other clusters, f_t how often t is
    there at all, and A the mean number of words of a cluster. With p_tc alone, words that every cluster says, such as
    "the", stand first where there are few clusters; what all say alike weighs nothing. Of roots, the difference that
    chance makes is as large for frequent words as for rare ones. A word is two letters or digits or more; upper case is
    lower case.

    Args:
        texts: As many as labels.
        labels: The cluster of each text; texts of -1 belong to none, and are left out.
        top_k: Words of a cluster.

    Returns:
        The words of each cluster by its label, the weightiest first, of equal ones in the order of the alphabet.

    Raises:
        ValueError: If there are not as many labels as texts.
        TypeError: If a text is no str, naming its row.

    References:
        Grootendorst, 2022, section 3.3, with p_tc alone. https://arxiv.org/abs/2203.05794
        Bartlett, 1936, of roots of counts. https://doi.org/10.2307/2983678

    Example:
        >>> texts = ["The cat sleeps.", "The cat naps here.", "The taxes rise.", "The state raises taxes."]
        >>> topic_words(texts, [0, 0, 1, 1], top_k=1)
        {0: ['cat'], 1: ['taxes']}
    """
    listed, given = list(rows_of(texts, "texts")), _labels(labels)
    count = check_count("top_k", top_k)
    if len(listed) != len(given):
        raise ValueError(f"there are {len(listed)} texts and {len(given)} labels; pass as many of each")
    words: dict[int, Counter[str]] = {label: Counter() for label in sorted(set(given)) if label >= 0}
    for text, label in zip(listed, given, strict=True):
        if label >= 0:
            words[label].update(re.findall(r"\w\w+", text.lower()))
    everywhere: Counter[str] = Counter()
    for own in words.values():
        everywhere.update(own)
    total = everywhere.total()
    mean = total / max(1, len(words))
    found = {}
    for label, own in words.items():
        size, others = own.total(), max(1, total - own.total())
        weights = {
            word: ((times / size) ** 0.5 - ((everywhere[word] - times) / others) ** 0.5)
            * np.log1p(mean / everywhere[word])
            for word, times in own.items()
        }
        found[label] = sorted(weights, key=lambda word: (-weights[word], word))[:count]
    return found
