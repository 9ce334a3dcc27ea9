"""Two numbers in place of hundreds: where the vectors of a corpus stand in a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

METHODS = ("auto", "tsne", "pca")
# Fewer vectors have no neighbourhoods to keep, and more would take t-SNE longer than anybody waits.
_LEAST, _MOST = 10, 50_000
# t-SNE starts from so many principal components: the others hold mostly noise, and cost time.
_COMPONENTS = 50


def project(vectors: Any, dims: int = 2, method: str = "auto") -> np.ndarray:
    """Coordinates of vectors in a picture.

    PCA is the linear map that keeps most of the variance: quick, and far apart means different. t-SNE keeps
    neighbours together, so that groups show; how far two groups are apart says little.

    Args:
        vectors: As NumPy array, tensor or lists.
        dims: Coordinates of each.
        method: ``"pca"``, ``"tsne"`` (needs scikit-learn), or ``"auto"``: t-SNE where it is installed, for 10 to
            50,000 vectors, and PCA otherwise.

    Shape:
        vectors: (n, dim). Output: (n, dims) float32.

    Raises:
        ValueError: If the vectors are no matrix of finite numbers, the method is unknown, or it is t-SNE and
            scikit-learn is not installed, or there are too few vectors for it.

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
        method = "tsne" if _LEAST <= len(matrix) <= _MOST and _has_scikit_learn() else "pca"
    return _pca(matrix, dims) if method == "pca" else _tsne(matrix, dims)


def check_vectors(vectors: Any) -> np.ndarray:
    """The vectors as a matrix of float32.

    Raises:
        ValueError: If they are no matrix, or a number is not finite, naming its row.
    """
    matrix = np.asarray(vectors, np.float32)
    if matrix.ndim != 2:
        raise ValueError(f"vectors have shape {matrix.shape}; pass a matrix (n, dim)")
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
        raise ValueError("t-SNE needs scikit-learn; pip install scikit-learn, or pass method='pca'") from error
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    directions = matrix / np.maximum(lengths, 1e-12)
    components = _pca(directions, min(_COMPONENTS, max(dims, matrix.shape[1])))
    start = components[:, :dims] / max(float(components[:, 0].std()), 1e-12) * 1e-4
    perplexity = min(30.0, (len(matrix) - 1) / 3)
    tsne = TSNE(dims, init=start, perplexity=perplexity, random_state=0)
    coordinates: np.ndarray = tsne.fit_transform(components)
    return coordinates.astype(np.float32)
