"""Layouts of vectors in a plane, for maps: projections, and how much of the neighbourhoods they preserve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sbert.functional import Vectors, directions
from sbert.inputs.arguments import check_choice, warn
from sbert.inputs.extras import missing, require
from sbert.inputs.vectors import vectors_of
from sbert.pipeline.progress import progress_bar
from sbert.search import semantic_search

LAYOUTS = {"tsne": "t-SNE", "pca": "PCA"}
Points = npt.NDArray[np.float32]
Labels = Sequence[int] | npt.NDArray[np.integer[Any]]
# Fewer vectors have no neighbourhoods to preserve.
_LEAST = 10
# Iterations of t-SNE with attractions 12 times as large, which find groups, and after them. Where there are more than
# _FEW vectors, less attraction than 1 keeps more neighbours; where there are fewer, groups would lose their shape.
_EARLY, _LATE, _FEW, _LESS = 250, 500, 50_000, 0.7
# Iterations between two steps of the progress bar.
_STEP = 50
# From this number of points on, forces by interpolation are faster than by a tree. Nodes two units apart are as good
# as openTSNE's one unit, and take a quarter of the time.
_INTERPOLATED, _INTERVAL = 5_000, 2
# The neighbours of a vector that attract it.
_KEPT = 15
# If more than one in so many vectors attracted another, a small map would become one point.
_SHARE = 8
# The neighbours of a label, and the share of them that belongs to its cluster, where this is possible.
_NEAREST, _CLEAR = 50, 0.89
# Number of candidates for the position of a label, and for all labels together, but at least 8 for each.
_TRIED, _ALL_TRIED = 64, 3_000


class Neighbours(NamedTuple):
    """The nearest vectors of each vector, by cosine, without itself.

    Args:
        indices: (n, k) int64, in the order of decreasing cosine.
        cosines: (n, k) float32.
    """

    indices: npt.NDArray[np.int64]
    cosines: npt.NDArray[np.float32]


def nearest_neighbours(vectors: Vectors, count: int = _KEPT) -> Neighbours:
    """The nearest vectors of each vector, exactly.

    Args:
        vectors: NumPy array, tensor or lists.
        count: Number of neighbours, fewer if there are too few vectors.

    Shape:
        vectors: (n, dim). Output: (n, count).

    Example:
        >>> from sbert.visualization import nearest_neighbours
        >>> nearest_neighbours([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]], count=1).indices.tolist()
        [[1], [0], [1]]
    """
    rows = len(check_vectors(vectors))
    wanted = max(0, min(count, rows - 1))
    hits = semantic_search(vectors, vectors, top_k=min(wanted + 1, rows))
    # Repeated texts may come before a text itself, or push it out.
    order = np.argsort(hits.indices == np.arange(rows)[:, None], axis=1, kind="stable")[:, :wanted]
    return Neighbours(np.take_along_axis(hits.indices, order, 1), np.take_along_axis(hits.scores, order, 1))


def project_vectors(
    vectors: Vectors, method: str = "auto", neighbours: Neighbours | None = None, show_progress_bar: bool | None = False
) -> Points:
    """Project vectors to points in a plane.

    t-SNE preserves neighbourhoods, so that groups become visible; distances between groups mean little. PCA is
    the linear projection that preserves most of the variance: points that are far apart have different vectors. The
    same vectors give the same points.

    Args:
        vectors: NumPy array, tensor or lists.
        method: ``"tsne"`` (needs openTSNE), ``"pca"`` or ``"auto"``: that of ``choose_projection``, with a warning if
            it is PCA because openTSNE is missing. For another layout, such as UMAP, pass its points to the maps.
        neighbours: Those of ``nearest_neighbours(vectors)``, if they are computed already; t-SNE needs them.
        show_progress_bar: Whether to show a bar of t-SNE's iterations; if None, on terminals and in notebooks.

    Shape:
        vectors: (n, dim). Output: (n, 2) float32.

    Raises:
        ImportError: If the package of the method is not installed.
        ValueError: If the vectors are not a matrix of finite numbers, the method is unknown, or there are too few
            vectors for it.

    References:
        Pearson, 1901. https://doi.org/10.1080/14786440109462720
        van der Maaten and Hinton, 2008. https://jmlr.org/papers/v9/vandermaaten08a.html
        Linderman et al., 2019 (interpolation). https://doi.org/10.1038/s41592-018-0308-4
        Böhm et al., 2022 (equal attractions, and their factor). https://jmlr.org/papers/v23/21-0055.html

    Example:
        >>> import numpy as np
        >>> from sbert.visualization import project_vectors
        >>> project_vectors(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]), method="pca").round(2).tolist()
        [[-2.0, 0.0], [-1.0, 0.0], [3.0, 0.0]]
    """
    check_choice("method", method, ("auto", *LAYOUTS))
    matrix = check_vectors(vectors)
    if method == "auto":
        method, reason = choose_projection(len(matrix))
        if reason is not None and len(matrix) >= _LEAST:
            warn(f"the layout is PCA, because {reason}")
    if method == "pca":
        return _pca(matrix)
    if len(matrix) < _LEAST:
        raise ValueError(f"{len(matrix)} vectors are too few for {LAYOUTS[method]}; pass method='pca'")
    neighbours = neighbours or nearest_neighbours(matrix)
    start = _pca(directions(torch.from_numpy(matrix)).numpy())
    start /= max(float(start[:, 0].std()), 1e-12)
    return np.asarray(_tsne(matrix, neighbours, start, show_progress_bar), np.float32)


def choose_projection(rows: int) -> tuple[str, str | None]:
    """Choose t-SNE for 10 vectors or more if openTSNE is installed, otherwise PCA.

    Args:
        rows: Number of vectors.

    Returns:
        The method, and the reason with the remedy if it is not t-SNE.

    Example:
        >>> from sbert.visualization.projection import choose_projection
        >>> choose_projection(5)
        ('pca', 'fewer than 10 texts have no neighbourhoods that t-SNE could keep')
    """
    if rows < _LEAST:
        return "pca", f"fewer than {_LEAST} texts have no neighbourhoods that t-SNE could keep"
    try:
        import openTSNE  # noqa: F401
    except ImportError:
        return "pca", str(missing("t-SNE", "openTSNE", "plot"))
    return "tsne", None


def density_peaks(points: Vectors, labels: Labels, count: int) -> npt.NDArray[np.int64]:
    """For each cluster, the point where its label should be: where the cluster is dense, and others are not.

    Of up to 64 points of the cluster (fewer if there are many clusters), this is the one that is nearest to its nearest
    quarter of the cluster. Of its 50 nearest points, at least 90 % belong to the cluster, or if there is no such point,
    more than half; a cluster that is scattered among others has none.

    Args:
        points: Points of the texts.
        labels: The cluster of each text, -1 for none.
        count: Number of clusters.

    Shape:
        points: (n, 2). labels: (n,). Output: (count,) int64, the row of a point of the cluster, such that more than
        half of its 50 nearest points (fewer for a smaller cluster: its size) belong to the cluster; -1 if there is
        none.

    Example:
        >>> from sbert.visualization.projection import density_peaks
        >>> density_peaks([[0, 0], [0.1, 0], [0, 0.1], [5, 5], [9, 9]], [0, 0, 0, 1, -1], 3).tolist()
        [0, 3, -1]
    """
    positions, clusters = torch.from_numpy(check_vectors(points)), torch.as_tensor(np.asarray(labels))
    peaks = np.full(count, -1, np.int64)
    most = min(_TRIED, max(8, _ALL_TRIED // max(count, 1)))
    for label in sorted({*clusters.tolist()} - {-1}):
        members = torch.nonzero(clusters == label)[:, 0]
        candidates = members[:: -(-len(members) // most)]
        distances = torch.cdist(positions[candidates], positions)  # (candidates, n)
        nearest = distances.topk(min(_NEAREST, len(members)), largest=False).indices
        share = (clusters[nearest] == label).float().mean(1)  # (candidates,)
        spread = distances[:, members].topk(-(-len(members) // 4), largest=False).values.mean(1)
        for least in (_CLEAR, 0.5):
            if (possible := torch.where(share > least, spread, torch.inf)).min().isfinite():
                peaks[label] = candidates[possible.argmin()]
                break
    return peaks


def check_vectors(vectors: Vectors, name: str = "vectors") -> Points:
    """The vectors as a float32 matrix.

    Raises:
        TypeError: If they are not numbers.
        ValueError: If they are not a matrix, or a value is not finite; the message names its row.
    """
    if isinstance(vectors, (np.ndarray, torch.Tensor)) and vectors.ndim != 2:
        raise ValueError(f"{name} have shape {tuple(vectors.shape)}; pass a matrix (n, dim)")
    matrix: Points = vectors_of(name, vectors).detach().cpu().float().numpy()
    bad = np.flatnonzero(~np.isfinite(matrix).all(1))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is not finite; encode its text again, or remove it")
    return matrix


def _pca(matrix: Points) -> Points:
    """The first two principal components, each with its largest absolute value positive; zeros if there are fewer."""
    rows, dim = matrix.shape
    result = np.zeros((rows, 2), np.float32)
    if not rows:
        return result
    centred = matrix - matrix.mean(0, dtype=np.float64).astype(np.float32)  # (rows, dim)
    # The axes, the one of largest variance first: (dim, min(rows, dim)).
    if dim <= rows:  # Faster than the singular vectors of many rows.
        axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, ::-1]
    else:
        axes = np.linalg.svd(centred, full_matrices=False)[2].T
    components = centred @ axes[:, :2].astype(np.float32)  # (rows, 2)
    signs = np.sign(np.take_along_axis(components, np.abs(components).argmax(0)[None], 0))
    result[:, : components.shape[1]] = components * signs
    return result


def _tsne(matrix: Points, neighbours: Neighbours, start: Points, show: bool | None) -> Any:
    """t-SNE by openTSNE, in which all neighbours attract alike, from given first points, and so deterministic."""
    with require("t-SNE", "openTSNE", "plot", "pass method='pca'"):
        from openTSNE import TSNEEmbedding
        from openTSNE.affinity import Uniform
        from openTSNE.nearest_neighbors import PrecomputedNeighbors
    count = min(_KEPT, max(2, len(matrix) // _SHARE))
    distances = np.sqrt(np.maximum(2 - 2 * neighbours.cosines[:, :count].astype(np.float64), 0))
    graph = PrecomputedNeighbors(neighbours.indices[:, :count], distances)
    affinities = Uniform(k_neighbors=count, knn_index=graph, symmetrize="mean")
    options: dict[str, Any] = {"n_jobs": torch.get_num_threads(), "random_state": 0, "ints_in_interval": _INTERVAL}
    options["negative_gradient_method"] = "fft" if len(matrix) >= _INTERPOLATED else "bh"
    points = TSNEEmbedding(1e-4 * start, affinities, **options)
    phases = ((_EARLY, 12, 0.5), (_LATE, 1 if len(matrix) <= _FEW else _LESS, 0.8))
    with progress_bar(show, total=_EARLY + _LATE, desc="Layout", unit=" steps") as bar:

        def advance(*_: object) -> None:
            bar.update(_STEP)

        watch = {"callbacks": advance, "callbacks_every_iters": _STEP}
        for steps, attraction, momentum in phases:
            points = points.optimize(steps, exaggeration=attraction, momentum=momentum, **watch)
    return points
