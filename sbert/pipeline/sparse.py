"""Sparse vectors: of each text the dimensions that are not zero, and SciPy's or torch's matrices of them."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.functional import SIMILARITIES, accumulation_dtype
from sbert.inputs.extras import require
from sbert.inputs.vectors import matrix
from sbert.storage.atomic import replacing_file


def sparse_rows(vectors: Tensor, most: int | None, device: torch.device) -> list[Tensor]:
    """The dimensions of each vector that are not zero, in order, and their values, as float32.

    Float32 holds whole numbers up to 2^24 exactly, which is more than the words of any vocabulary.

    Args:
        vectors: The vectors.
        most: Number of dimensions of each vector that remain, those of the greatest magnitude. Default: all.
        device: Where the result is.

    Shape:
        vectors: (rows, dim). Each output: (2, active dimensions).

    Example:
        >>> import torch
        >>> from sbert.pipeline.sparse import sparse_rows
        >>> sparse_rows(torch.tensor([[0.0, 2.0, 1.0]]), 1, torch.device("cpu"))
        [tensor([[1.],
                [2.]])]
    """
    if most is not None:
        greatest = vectors.abs().topk(min(most, vectors.shape[1]), 1).indices
        vectors = torch.zeros_like(vectors).scatter(1, greatest, vectors.gather(1, greatest))
    rows, dims = vectors.nonzero(as_tuple=True)
    both = torch.stack([dims.to(vectors.dtype), vectors[rows, dims]]).to(device)
    return list(torch.split(both, rows.bincount(minlength=len(vectors)).tolist(), 1))


def convert_sparse(rows: list[Tensor], dim: int, single: bool, to_numpy: bool, to_tensor: bool, out: Any) -> Any:
    """The rows as the caller wants them: a ``scipy.sparse.csr_array``, a sparse tensor, or a list of sparse tensors.

    Args:
        rows: What ``sparse_rows`` has returned.
        dim: Dimension of the vectors.
        single: Whether the caller passed one text, and gets one vector: of CSR, an array of one row.
        to_numpy: Whether to return an array.
        to_tensor: Whether to return a tensor, which comes first; with neither, a list of tensors.
        out: The path of a file that is written as ``scipy.sparse.save_npz`` does, atomically.

    Raises:
        ImportError: If an array is wanted, and SciPy is not installed.
    """
    counts = torch.tensor([row.shape[1] for row in rows], dtype=torch.int64)
    dims, values = torch.cat(rows or [torch.empty(2, 0)], 1)
    if to_numpy and not to_tensor:
        ends = F.pad(counts.cumsum(0), (1, 0)).numpy()
        array = csr((values.numpy(), dims.numpy().astype(np.int32), ends), (len(rows), dim))
        if out is not None:
            with replacing_file(Path(out)) as file:
                import_module("scipy.sparse").save_npz(file, array)
        return array
    positions = torch.stack([torch.arange(len(rows)).repeat_interleave(counts).to(dims.device), dims.long()])
    result = torch.sparse_coo_tensor(positions, values, (len(rows), dim), is_coalesced=True, check_invariants=False)
    return result if to_tensor and not single else result[0] if single else [result[row] for row in range(len(rows))]


def csr(vectors: Any, shape: tuple[int, ...] | None = None) -> Any:
    """A ``scipy.sparse.csr_array`` of rows, each with its dimensions in order and once; equal ones are summed.

    Args:
        vectors: Dense or sparse, an array, a tensor or a list of these, which stays as it is.
        shape: With it, the vectors are parts for SciPy: the values, the dimensions in order, and the ends of rows.

    Shape:
        vectors: (rows, dim) or, for one row, (dim,).

    Raises:
        ImportError: If SciPy is not installed.
        TypeError: If this is not numbers.
        ValueError: If the shape is wrong.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from sbert.pipeline.sparse import csr
        >>> csr(csr_array(([1.0, 2.0], [2, 2], [0, 2]), shape=(1, 3))).toarray()
        array([[0., 0., 3.]])
    """
    with require("an array of sparse vectors", "scipy", "sparse", "pass convert_to_tensor=True"):
        from scipy.sparse import csr_array
    if isinstance(vectors, list) and vectors and isinstance(vectors[0], Tensor):
        vectors = torch.stack(vectors)
    if isinstance(vectors, Tensor):
        coo = (vectors if vectors.ndim == 2 else vectors[None]).detach().cpu().to_sparse().coalesce()
        vectors, shape = (coo.values().to(accumulation_dtype(coo.dtype)).numpy(), coo.indices().numpy()), coo.shape
    if shape is not None:
        return csr_array(vectors, shape)
    array = csr_array(vectors if hasattr(vectors, "tocsr") else matrix("vectors", vectors))
    is_canonical = array.ndim == 2 and array.has_canonical_format
    return array if is_canonical else array.tocoo().reshape(-1, array.shape[-1]).tocsr()


def top_dims(vectors: Any, top: int | None = None) -> list[list[tuple[int, float]]]:
    """The dimensions of each vector with the greatest values, and these.

    Args:
        vectors: Dense or sparse, an array or a tensor.
        top: Maximum number of dimensions of each vector. Default: all that are not 0.

    Shape:
        vectors: (rows, dim) or (dim,).

    Example:
        >>> import numpy as np
        >>> from sbert.pipeline.sparse import top_dims
        >>> top_dims(np.array([[0.0, 2.0, 0.5, 1.0]]), 2)
        [[(1, 2.0), (3, 1.0)]]
    """
    array = csr(vectors)
    rows = [slice(*bounds) for bounds in pairwise(array.indptr.tolist())]
    orders = [row.start + np.argsort(-array.data[row], kind="stable")[:top] for row in rows]
    return [list(zip(array.indices[order].tolist(), array.data[order].tolist(), strict=True)) for order in orders]


def sparse_dot(a: Any, b: Any, pairs: bool = False) -> Any:
    """Dot product of every row of a with every row of b, or with the same row: a tensor if both are, else an array.

    Shape:
        a: (n, dim). b: (m, dim). Output: (n, m), or (n,) of ``pairs``, dense.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from sbert.pipeline.sparse import sparse_dot
        >>> sparse_dot(csr_array([[0, 2]]), csr_array([[1, 1], [0, 3]]))
        array([[2, 6]])
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        a, b = a.to_dense(), b.to_dense()
        return (a * b).sum(-1) if pairs else SIMILARITIES["dot"](a, b)
    return csr(a).multiply(csr(b)).sum(1) if pairs else (csr(a) @ csr(b).T).toarray()
