"""Two numbers in place of hundreds: where the vectors of a corpus stand in a picture."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from sbert.functional import directions
from sbert.inputs.extras import missing
from sbert.inputs.vectors import vectors_of

METHODS = ("auto", "tsne", "pca")
NAMES = {"tsne": "t-SNE", "pca": "PCA"}
WITHOUT_SCIKIT_LEARN = str(missing("t-SNE", "scikit-learn", "plot"))
# Fewer vectors have no neighbourhoods to keep, and more would take t-SNE longer than anybody waits.
_LEAST, _MOST = 10, 50_000
# t-SNE starts from so many principal components: the others hold mostly noise, and cost time.
_COMPONENTS = 50
# A label stands where most of so many points around it belong to its cluster.
_NEAREST = 50
# Cells of the grid on which densities are estimated, along one side at most.
_CELLS = 200
# Cells of the greatest density that are tried for a label.
_TRIED = 32


def project(vectors: Any, dims: int = 2, method: str = "auto") -> np.ndarray:
    """Coordinates of vectors in a picture.

    PCA is the linear map that keeps most of the variance: quick, and far apart means different. t-SNE keeps
    neighbours together, so that groups show; how far two groups are apart says little.

    Args:
        vectors: As NumPy array, tensor or lists.
        dims: Coordinates of each.
        method: ``"pca"``, ``"tsne"`` (needs scikit-learn), or ``"auto"``: what ``choose`` says. Where that is PCA for
            want of scikit-learn or because there are too many vectors, a warning says so.

    Shape:
        vectors: (n, dim). Output: (n, dims) float32.

    Raises:
        ImportError: If the method is t-SNE and scikit-learn is not installed.
        ValueError: If the vectors are no matrix of finite numbers, the method is unknown, or it is t-SNE and there are
            too few vectors for it.

    References:
        Pearson, 1901. https://doi.org/10.1080/14786440109462720
        van der Maaten and Hinton, 2008. https://jmlr.org/papers/v9/vandermaaten08a.html

    Example:
        >>> project(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]), dims=1, method="pca").round(2).tolist()
        [[-2.0], [-1.0], [3.0]]
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown; pass one of {', '.join(map(repr, METHODS))}")
    if dims not in (1, 2, 3):
        raise ValueError(f"dims={dims!r} draws no picture; pass 1, 2 or 3")
    matrix = check_vectors(vectors)
    if method == "auto":
        method, reason = choose(len(matrix))
        if reason is not None and len(matrix) >= _LEAST:
            warnings.warn(f"the layout is PCA, because {reason}", stacklevel=2)
    return _pca(matrix, dims) if method == "pca" else _tsne(matrix, dims)


def choose(rows: int, method: str = "auto") -> tuple[str, str | None]:
    """The method that lays out so many vectors, and why it is not t-SNE although it might have been.

    Args:
        rows: How many vectors there are.
        method: As in ``project``; ``"auto"`` is t-SNE where scikit-learn is installed, for 10 to 50,000 vectors, and
            PCA otherwise.

    Returns:
        ``"tsne"`` or ``"pca"``; and the reason with the remedy, or None where the method is the one wanted.

    Example:
        >>> choose(60_000)
        ('pca', '60,000 texts are more than 50,000, and t-SNE would take long; choose tsne and wait, or map a sample')
    """
    if method != "auto":
        return method, None
    if rows < _LEAST:
        return "pca", f"fewer than {_LEAST} texts have no neighbourhoods that t-SNE could keep"
    if rows > _MOST:
        return "pca", (
            f"{rows:,} texts are more than {_MOST:,}, and t-SNE would take long; choose tsne and wait, or map a sample"
        )
    if not _has_scikit_learn():
        return "pca", WITHOUT_SCIKIT_LEARN
    return "tsne", None


def density_peaks(points: Any, labels: Any, count: int) -> np.ndarray:
    """For each cluster the point where a label for it belongs: where it lies densest, and others do not.

    The density of a cluster is a histogram on a grid, smoothed by a Gaussian about as wide as 50 points. At the peak,
    the cluster's own density less that of all others is the greatest. A label there is true only if most of the points
    around it belong to the cluster; of a cluster that is scattered among others, there is no such place.

    Args:
        points: Where texts stand in a picture.
        labels: The cluster of each, -1 for none.
        count: How many clusters there are.

    Shape:
        points: (n, 2). labels: (n,). Output: (count,) int64, the row of a point of which more than half of the 50
        nearest points (of a smaller cluster: as many as it has) are of its own cluster; or -1 where there is none.

    Example:
        >>> density_peaks([[0, 0], [0.1, 0], [0, 0.1], [5, 5], [9, 9]], [0, 0, 0, 1, -1], 3).tolist()
        [0, 3, -1]
    """
    places, given = check_vectors(points), np.asarray(labels)
    if not len(places):
        return np.full(count, -1, np.int64)
    side = max(float(np.ptp(places, axis=0).max()), 1e-12)
    shares = (places - places.min(0)) / side  # (n, 2), from 0 to 1
    return np.array([_peak(shares, given == label) for label in range(count)], np.int64)


def _peak(places: np.ndarray, member: np.ndarray) -> int:
    """The row of ``density_peaks`` for one cluster.

    Shape:
        places: (n, 2), from 0 to 1. member: (n,) bool.
    """
    own = np.flatnonzero(member)
    if not len(own):
        return -1
    near = min(_NEAREST, len(own))
    radius = (near / (np.pi * len(places))) ** 0.5  # Of a disc with so many of n points in a square.
    cells = int(np.clip(4 / radius, 1, _CELLS))
    corner = np.minimum((places * cells).astype(np.int64), cells - 1)
    cell = corner[:, 0] * cells + corner[:, 1]
    sums = np.bincount(cell, np.where(member, 1.0, -1.0), cells**2).reshape(cells, cells)
    smooth = _gaussian(cells, radius / 2)
    excess = (smooth @ sums @ smooth).reshape(-1)
    occupied = np.unique(cell[own])
    for best in occupied[np.argsort(-excess[occupied], kind="stable")][:_TRIED]:
        middle = places[own[cell[own] == best]].mean(0)  # (2,)
        row = int(own[np.square(places[own] - middle).sum(1).argmin()])
        nearest = np.argpartition(np.square(places - places[row]).sum(1), near - 1)[:near]
        if 2 * np.count_nonzero(member[nearest]) > near:
            return row
    return -1


def _gaussian(cells: int, width: float) -> np.ndarray:
    """The symmetric matrix that smooths a row of cells.

    Shape:
        Output: (cells, cells).
    """
    centres = (np.arange(cells) + 0.5) / cells
    weights: np.ndarray = np.exp(-0.5 * ((centres[:, None] - centres) / width) ** 2)
    return weights


def check_vectors(vectors: Any) -> np.ndarray:
    """The vectors as a matrix of float32.

    Raises:
        TypeError: If they are no numbers.
        ValueError: If they are no matrix, or a number is not finite, naming its row.
    """
    if isinstance(vectors, (np.ndarray, torch.Tensor)) and vectors.ndim != 2:
        raise ValueError(f"vectors have shape {tuple(vectors.shape)}; pass a matrix (n, dim)")
    matrix: np.ndarray = vectors_of("vectors", vectors).detach().cpu().float().numpy()
    bad = np.flatnonzero(~np.isfinite(matrix).all(1))
    if len(bad):
        raise ValueError(f"vectors[{bad[0]}] is not finite; encode its text again, or leave it out")
    return matrix


def _has_scikit_learn() -> bool:
    try:
        import sklearn.manifold  # noqa: F401
    except ImportError:
        return False
    return True


def _pca(matrix: np.ndarray, dims: int) -> np.ndarray:
    """The first principal components, each with its greatest number positive; zeros where there are no more."""
    rows, width = matrix.shape
    found = np.zeros((rows, dims), np.float32)
    if rows == 0:
        return found
    centred = matrix - matrix.mean(0, dtype=np.float64).astype(np.float32)  # (rows, width)
    # The eigenvectors of the smaller of the two products say the same.
    if width <= rows:
        _, axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))
        components = centred @ axes[:, : -dims - 1 : -1].astype(np.float32)  # (rows, dims), the greatest first
    else:
        values, axes = np.linalg.eigh((centred @ centred.T).astype(np.float64))
        components = axes[:, : -dims - 1 : -1] * np.sqrt(np.maximum(values[: -dims - 1 : -1], 0))
    greatest = np.abs(components).argmax(0)
    signs = np.sign(components[greatest, np.arange(components.shape[1])])
    found[:, : components.shape[1]] = components * signs
    return found


def _tsne(matrix: np.ndarray, dims: int) -> np.ndarray:
    """t-SNE of the vectors' directions, started from their principal components and so always the same."""
    if len(matrix) < 4:
        raise ValueError(f"{len(matrix)} vectors are too few for t-SNE; pass method='pca'")
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise missing("t-SNE", "scikit-learn", "plot", "pass method='pca'") from error
    components = _pca(directions(torch.from_numpy(matrix)).numpy(), min(_COMPONENTS, max(dims, matrix.shape[1])))
    start = components[:, :dims] / max(float(components[:, 0].std()), 1e-12) * 1e-4
    perplexity = min(30.0, (len(matrix) - 1) / 3)
    tsne = TSNE(dims, init=start, perplexity=perplexity, random_state=0)
    coordinates: np.ndarray = tsne.fit_transform(components)
    return coordinates.astype(np.float32)
