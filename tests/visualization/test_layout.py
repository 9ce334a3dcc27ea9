"""Layouts agree with scikit-learn's figures, groups stay together, and topics are where a map is dense."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from sbert.visualization import projection
from sbert.visualization.projection import nearest_neighbours, project_vectors
from sbert.visualization.topics import find_topics


def groups(rows: int = 60, dim: int = 12, count: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.arange(rows) % count
    return (3 * np.eye(count, dim)[labels] + 0.2 * random.normal(size=(rows, dim))).astype(np.float32), labels


@pytest.mark.parametrize(("rows", "dim"), [(50, 7), (7, 50), (8, 8)])
def test_pca_is_that_of_scikit_learn(rows: int, dim: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(rows, dim)) * np.linspace(3, 1, dim)
    found = project_vectors(vectors, "pca")
    np.testing.assert_allclose(np.abs(found), np.abs(PCA(2).fit_transform(vectors)), atol=1e-4)
    assert found.dtype == np.float32
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all()


def test_any_number_of_vectors() -> None:
    for method in ("auto", "pca"):
        assert project_vectors(np.zeros((0, 5)), method).shape == (0, 2)
        for vectors in (np.ones((1, 5)), np.ones((4, 5)), np.ones((1, 1))):
            np.testing.assert_array_equal(project_vectors(vectors, method), np.zeros((len(vectors), 2)))
    line = project_vectors(np.arange(5.0)[:, None], "pca")
    np.testing.assert_allclose(line, [[-2, 0], [-1, 0], [0, 0], [1, 0], [2, 0]] * np.sign(line[-1, :1] + 1e-9))


def test_groups_stay_together_and_layouts_repeat_themselves() -> None:
    vectors, labels = groups()
    points = project_vectors(vectors, "tsne")
    np.testing.assert_array_equal(points, project_vectors(vectors, "tsne", nearest_neighbours(vectors)))
    assert abs(points - project_vectors(vectors, "pca")).max() > 1
    distances = np.linalg.norm(points[:, None] - points[None], axis=2) + np.eye(len(points)) * 1e9
    assert (labels[distances.argmin(1)] == labels).all()
    assert np.isfinite(project_vectors(np.repeat(vectors[:4], 5, axis=0), "tsne")).all()  # Texts that repeat.


def test_large_maps_keep_neighbours_and_repeat_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are laid out by interpolation."""
    for name, value in {"_INTERPOLATED": 1000, "_EARLY": 50, "_LATE": 50}.items():  # A step takes as long for 6000.
        monkeypatch.setattr(projection, name, value)
    vectors, labels = groups(1000, 24, 20)
    points = project_vectors(vectors)
    np.testing.assert_array_equal(points, project_vectors(vectors))
    near = NearestNeighbors(n_neighbors=16).fit(points).kneighbors(points)[1][:, 1:]
    assert (labels[near] == labels[:, None]).mean() > 0.99


def test_neighbours_are_those_of_scikit_learn() -> None:
    vectors, _ = groups()
    found = nearest_neighbours(vectors, 7)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances, expected = NearestNeighbors(n_neighbors=8).fit(unit).kneighbors(unit)
    np.testing.assert_array_equal(found.indices, expected[:, 1:])
    np.testing.assert_allclose(found.cosines, 1 - distances[:, 1:] ** 2 / 2, atol=1e-5)
    for rows, count in ((1, 0), (3, 2), (100, 15)):
        same = nearest_neighbours(np.ones((rows, 4)))  # A text that repeats is never its own neighbour.
        assert same.indices.shape == (rows, count)
        assert (same.indices != np.arange(rows)[:, None]).all()


def test_topics_are_dense_places_and_have_parts() -> None:
    random = np.random.default_rng(0)
    centres = np.array([[0, 0], [0, 10], [30, 0], [30, 10], [10, 25], [20, 25]])
    points = np.concatenate([centre + random.normal(size=(200, 2)) * 0.3 for centre in centres])
    points = np.concatenate([points, random.uniform(-5, 35, (40, 2))])
    place_of = np.repeat([*range(6), -1], [200] * 6 + [40])
    meanings = np.eye(3, 8)[np.clip(place_of, 0, None) // 2] + 0.3 * np.eye(8)[2:][np.clip(place_of, 0, None)]
    words = ["red cat", "blue cat", "low tax", "high tax", "old road", "new road", "noise"]
    texts = [words[number] for number in place_of]
    coarse, fine = find_topics(texts, meanings, points, levels=[3])
    shared = [[word for word in ("cat", "road", "tax") if word in name] for name in coarse.names]
    assert sorted(shared) == [["cat"], ["road"], ["tax"]]
    labels = np.asarray(fine.labels)
    for number in range(6):
        of_place = labels[place_of == number]
        topic = np.bincount(of_place[of_place >= 0]).argmax()
        assert (of_place == topic).mean() > 0.9
        assert (place_of[labels == topic] == number).mean() > 0.95
    assert (labels[place_of == -1] == -1).mean() > 0.8  # What lies between has no topic.
    parents = {(a, b) for a, b in zip(fine.labels, coarse.labels, strict=True)}
    assert len({fine_topic for fine_topic, _ in parents}) == len(parents)  # Each is part of one.
    assert (np.diff(np.bincount(labels[labels >= 0])) <= 0).all()
    assert coarse.of_each()[0] == coarse.names[coarse.labels[0]]


def test_a_map_without_dense_places_has_no_topics() -> None:
    for rows in (0, 1, 9):
        assert find_topics(["a"] * rows, np.ones((rows, 2)), np.ones((rows, 2))) == []
    [only] = find_topics(["a cat"] * 12, np.ones((12, 2)), np.ones((12, 2)))
    assert (list(only.labels), only.names) == ([0] * 12, ["cat"])


def test_what_cannot_be_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = groups()
    broken = vectors.copy()
    broken[5, 2] = np.nan
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (broken, {}, r"vectors\[5\] is not finite"),
        (vectors[0], {}, r"shape \(12,\); pass a matrix"),
        (vectors, {"method": "mds"}, "method='mds' is unknown; pass one of 'auto', 'tsne', 'pca'"),
        (vectors[:3], {"method": "tsne"}, "3 vectors are too few for t-SNE"),
    ]
    for matrix, options, message in cases:
        with pytest.raises(ValueError, match=message):
            project_vectors(matrix, **options)
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.warns(UserWarning, match="the layout is PCA, because t-SNE needs openTSNE"):
        found = project_vectors(vectors)
    np.testing.assert_array_equal(found, project_vectors(vectors, "pca"))
    with pytest.raises(ImportError, match=r'pip install "sbert\[plot\]", or'):
        project_vectors(vectors, "tsne")
