"""Coordinates agree with scikit-learn's, and groups stay together."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from sbert.visualization.projection import choose, project


def groups(rows: int = 60, dim: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    return (3 * np.eye(3, dim)[labels] + 0.2 * random.normal(size=(rows, dim))).astype(np.float32), labels


@pytest.mark.parametrize(("rows", "dim"), [(50, 7), (7, 50), (8, 8), (400, 3)])
def test_pca_is_that_of_scikit_learn(rows: int, dim: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(rows, dim)) * np.linspace(3, 1, dim)
    for dims in (1, 2, 3):
        found = project(vectors, dims, "pca")
        expected = PCA(dims).fit_transform(vectors)
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)
        assert found.dtype == np.float32
        greatest = np.abs(found).argmax(0)
        assert (found[greatest, np.arange(dims)] > 0).all()


def test_any_number_of_vectors() -> None:
    for method in ("auto", "pca"):
        assert project(np.zeros((0, 5)), method=method).shape == (0, 2)
        for vectors in (np.ones((1, 5)), np.ones((4, 5)), np.ones((1, 1))):
            np.testing.assert_array_equal(project(vectors, method=method), np.zeros((len(vectors), 2)))
    line = project(np.arange(5.0)[:, None], method="pca")
    np.testing.assert_allclose(line, [[-2, 0], [-1, 0], [0, 0], [1, 0], [2, 0]] * np.sign(line[-1, :1] + 1e-9))


def test_tsne_keeps_groups_together_and_repeats_itself() -> None:
    vectors, labels = groups()
    points = project(vectors)
    np.testing.assert_array_equal(points, project(vectors, method="tsne"))
    assert abs(points - project(vectors, method="pca")).max() > 1
    distances = np.linalg.norm(points[:, None] - points[None], axis=2) + np.eye(len(points)) * 1e9
    assert (labels[distances.argmin(1)] == labels).all()
    repeated = project(np.repeat(vectors[:4], 5, axis=0))  # Texts that repeat.
    assert np.isfinite(repeated).all()


def test_what_cannot_be_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = groups()
    broken = vectors.copy()
    broken[5, 2] = np.nan
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (broken, {}, r"vectors\[5\] is not finite"),
        (vectors[0], {}, r"shape \(12,\); pass a matrix"),
        (vectors, {"method": "umap"}, "method='umap' is unknown; pass one of 'auto', 'tsne', 'pca'"),
        (vectors, {"dims": 4}, "dims=4 cannot be drawn"),
        (vectors[:3], {"method": "tsne"}, "3 vectors are too few"),
    ]
    for given, options, message in cases:
        with pytest.raises(ValueError, match=message):
            project(given, **options)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.warns(UserWarning, match="the layout is PCA, because t-SNE needs scikit-learn"):
        found = project(vectors)
    np.testing.assert_array_equal(found, project(vectors, method="pca"))
    with pytest.raises(ImportError, match=r'pip install "sbert\[plot\]", or'):
        project(vectors, method="tsne")


def test_more_than_50000_texts_are_laid_out_by_pca_with_a_warning() -> None:
    vectors = np.random.default_rng(0).normal(size=(50_001, 3))
    with pytest.warns(UserWarning, match=r"the layout is PCA, because 50,001 texts are more than 50,000.*choose tsne"):
        found = project(vectors)
    np.testing.assert_array_equal(found, project(vectors, method="pca"))
    assert choose(50_000) == ("tsne", None)
    assert choose(50_001, "pca") == ("pca", None)
