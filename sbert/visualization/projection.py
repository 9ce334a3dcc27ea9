"""Projection of vectors to two dimensions, for maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.functional import Vectors, directions
from sbert.inputs.arguments import check_choice, warn
from sbert.inputs.extras import missing, require
from sbert.inputs.vectors import vectors_of

NAMES = {"tsne": "t-SNE", "pca": "PCA"}
Coordinates = npt.NDArray[np.float32]
Labels = Sequence[int] | npt.NDArray[np.integer[Any]]
# Fewer vectors have no neighbourhoods to preserve, and more would take t-SNE too long.
_LEAST, _MOST = 10, 50_000
# Principal components that t-SNE uses: the others are mostly noise, and cost time.
_COMPONENTS = 50
# The neighbours of a label, most of which must belong to its cluster.
_NEAREST = 50
# Number of points that are tried for a label.
_TRIED = 64


def project(vectors: Vectors, dims: int = 2, method: str = "auto") -> Coordinates:
    """Project vectors to coordinates for a map.

    PCA is the linear projection that preserves most of the variance: it is fast, and points that are far apart have
    different vectors. t-SNE preserves neighbourhoods, so that groups become visible; distances between groups mean
    little.

    Args:
        vectors: NumPy array, tensor or lists.
        dims: Number of coordinates, 1 to 3.
        method: ``"pca"``, ``"tsne"`` (needs scikit-learn) or ``"auto"`` (the result of ``choose``; a warning is given
            if that is PCA because scikit-learn is missing or there are too many vectors).

    Shape:
        vectors: (n, dim). Output: (n, dims) float32.

    Raises:
        ImportError: If the method is t-SNE and scikit-learn is not installed.
        ValueError: If the vectors are not a matrix of finite numbers, the method is unknown, or there are too few
            vectors for t-SNE.

    References:
        Pearson, 1901. https://doi.org/10.1080/14786440109462720
        van der Maaten and Hinton, 2008. https://jmlr.org/papers/v9/vandermaaten08a.html

    Example:
        >>> project(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]), dims=1, method="pca").round(2).tolist()
        [[-2.0], [-1.0], [3.0]]
    """
    check_choice("method", method, ("auto", *NAMES))
    if dims not in (1, 2, 3):
        raise ValueError(f"dims={dims!r} cannot be drawn; pass 1, 2 or 3")
    matrix = check_vectors(vectors)
    if method == "auto":
        method, reason = choose(len(matrix))
        if reason is not None and len(matrix) >= _LEAST:
            warn(f"the layout is PCA, because {reason}")
    return _pca(matrix, dims) if method == "pca" else _tsne(matrix, dims)


def choose(rows: int, method: str = "auto") -> tuple[str, str | None]:
    """Choose the method for a number of vectors, with the reason if it is not t-SNE.

    Args:
        rows: Number of vectors.
        method: As in ``project``; ``"auto"`` is t-SNE for 10 to 50,000 vectors if scikit-learn is installed, otherwise
            PCA.

    Returns:
        ``"tsne"`` or ``"pca"``, and the reason with the remedy; None as the reason if the method is the requested one.

    Example:
        >>> choose(60_000)
        ('pca', '60,000 texts are more than 50,000, and t-SNE would take long; choose tsne and wait, or map a sample')
    """
    if method != "auto":
        return method, None
    if rows < _LEAST:
        return "pca", f"fewer than {_LEAST} texts have no neighbourhoods that t-SNE could keep"
    if rows > _MOST:
        remedy = "choose tsne and wait, or map a sample"
        return "pca", f"{rows:,} texts are more than {_MOST:,}, and t-SNE would take long; {remedy}"
    try:
        import sklearn.manifold  # noqa: F401
    except ImportError:
        return "pca", str(missing("t-SNE", "scikit-learn", "plot"))
    return "tsne", None


def density_peaks(points: Vectors, labels: Labels, count: int) -> npt.NDArray[np.int64]:
    """For each cluster, the point where its label should be: where the cluster is dense, and others are not.

    Of up to 64 points of the cluster, this is the one that is nearest to its 50 nearest points, if more than half of
    these belong to the cluster; a cluster that is scattered among others has no such point.

    Args:
        points: Coordinates of the texts.
        labels: The cluster of each text, -1 for none.
        count: Number of clusters.

    Shape:
        points: (n, 2). labels: (n,). Output: (count,) int64, the row of a point of the cluster, such that more than
        half of its 50 nearest points (fewer for a smaller cluster: its size) belong to the cluster; -1 if there is
        none.

    Example:
        >>> density_peaks([[0, 0], [0.1, 0], [0, 0.1], [5, 5], [9, 9]], [0, 0, 0, 1, -1], 3).tolist()
        [0, 3, -1]
    """
    positions, given = torch.from_numpy(check_vectors(points)), torch.as_tensor(np.asarray(labels))
    peaks = np.full(count, -1, np.int64)
    for label in sorted({*given.tolist()} - {-1}):
        own = torch.nonzero(given == label)[:, 0]
        tried = own[:: -(-len(own) // _TRIED)]
        distances, nearest = torch.cdist(positions[tried], positions).topk(min(_NEAREST, len(own)), largest=False)
        distance = distances.mean(1)  # (tried,)
        distance[(given[nearest] == label).float().mean(1) <= 0.5] = torch.inf
        if distance.min().isfinite():
            peaks[label] = tried[distance.argmin()]
    return peaks


def check_vectors(vectors: Vectors, name: str = "vectors") -> Coordinates:
    """The vectors as a float32 matrix.

    Raises:
        TypeError: If they are not numbers.
        ValueError: If they are not a matrix, or a value is not finite; the message names its row.
    """
    if isinstance(vectors, (np.ndarray, torch.Tensor)) and vectors.ndim != 2:
        raise ValueError(f"{name} have shape {tuple(vectors.shape)}; pass a matrix (n, dim)")
    matrix: Coordinates = vectors_of(name, vectors).detach().cpu().float().numpy()
    bad = np.flatnonzero(~np.isfinite(matrix).all(1))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is not finite; encode its text again, or remove it")
    return matrix


def _pca(matrix: Coordinates, dims: int) -> Coordinates:
    """The first principal components, each with its largest absolute value positive; zeros if there are too few."""
    rows, dim = matrix.shape
    result = np.zeros((rows, dims), np.float32)
    if not rows:
        return result
    centred = matrix - matrix.mean(0, dtype=np.float64).astype(np.float32)  # (rows, dim)
    # The axes, the one of largest variance first: (dim, min(rows, dim)).
    if dim <= rows:  # Faster than the singular vectors of many rows.
        axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, ::-1]
    else:
        axes = np.linalg.svd(centred, full_matrices=False)[2].T
    components = centred @ axes[:, :dims].astype(np.float32)  # (rows, dims)
    signs = np.sign(np.take_along_axis(components, np.abs(components).argmax(0)[None], 0))
    result[:, : components.shape[1]] = components * signs
    return result


def _tsne(matrix: Coordinates, dims: int) -> Coordinates:
    """t-SNE of the directions of the vectors, initialized by their principal components, and so deterministic."""
    if len(matrix) < 4:
        raise ValueError(f"{len(matrix)} vectors are too few for t-SNE; pass method='pca'")
    with require("t-SNE", "scikit-learn", "plot", "pass method='pca'"):
        from sklearn.manifold import TSNE
    components = _pca(directions(torch.from_numpy(matrix)).numpy(), min(_COMPONENTS, max(dims, matrix.shape[1])))
    start = components[:, :dims] / max(float(components[:, 0].std()), 1e-12) * 1e-4
    perplexity = min(30.0, (len(matrix) - 1) / 3)
    tsne = TSNE(dims, init=start, perplexity=perplexity, random_state=0)
    return np.asarray(tsne.fit_transform(components), np.float32)
