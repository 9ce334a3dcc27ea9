"""Search is that of the sorted whole, whatever multiplies, holds or codes the vectors, in the memory of a block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert.functional import SIMILARITIES
from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search import Hits, semantic_search
from sbert.search.exact import comparison
from sbert.search.exact.comparison import Prefilter, all_scores, prepare, search_blocks


@pytest.fixture(params=[torch.float32, torch.bfloat16, None], ids=str)
def _dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dtype whose product may be the fastest somewhere; None: queries are few, and rows are not converted."""
    monkeypatch.setattr(comparison, "FEW", 1000 if request.param is None else 0)
    if request.param is not None:
        monkeypatch.setattr(comparison, "product_dtype", lambda device: request.param)


def score(queries: np.ndarray, vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Every score, as it is defined: in float64, rounded to float32."""
    q, c = queries.astype(np.float64)[:, None], vectors.astype(np.float64)[None]
    if similarity == "euclidean":
        return (-np.sqrt(((q - c) ** 2).sum(-1))).astype(np.float32)
    if similarity == "manhattan":
        return (-np.abs(q - c).sum(-1)).astype(np.float32)
    scores = (q * c).sum(-1)
    if similarity == "cosine":
        lengths = np.linalg.norm(q, axis=-1) * np.linalg.norm(c, axis=-1)
        scores /= np.where(lengths == 0, 1, lengths)
    return scores.astype(np.float32)


def whole(queries: np.ndarray, vectors: np.ndarray, k: int, similarity: str = "cosine") -> Hits:
    scores = score(queries, vectors, similarity)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(np.take_along_axis(scores, order, 1), order)


def equal(hits: Hits, expected: Hits) -> None:
    np.testing.assert_array_equal(hits.indices, expected.indices)
    np.testing.assert_array_equal(hits.scores, expected.scores)
    assert (hits.scores.dtype, hits.indices.dtype) == (np.float32, np.int64)


@pytest.mark.usefixtures("_dtype")
@pytest.mark.parametrize("k", [1, 10, 5000])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_search_is_the_sorted_whole(similarity: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every row there twice, rows of length 0, and lengths from a hundredth to a hundred."""
    for name, size in (("_VALUES", 1 << 14), ("_ROWS_OF_FEW", 1280), ("_ROWS", 1000), ("_ROWS_OF_DOTS", 500)):
        monkeypatch.setattr(comparison, name, size)
    monkeypatch.setattr(comparison, "QUERIES", max(4, comparison.FEW))
    rng = np.random.default_rng(0)
    queries, vectors = (rng.normal(size=(rows, 12)).astype(np.float32) for rows in (7, 3100))
    vectors *= 10 ** rng.uniform(-2, 2, (3100, 1)).astype(np.float32)
    vectors[1550:] = vectors[:1550]
    vectors[[3, 2000]] = 0
    queries[5] = 0
    queries[6] = vectors[40]
    equal(semantic_search(queries, vectors, k, similarity=similarity), whole(queries, vectors, k, similarity))


@pytest.mark.usefixtures("_dtype")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_what_exceeds_a_limit_is_never_left_out(similarity: str, autocast: bool) -> None:
    """However little it exceeds it by, and wherever rounding to low precision leads."""
    rng, passed = np.random.default_rng(0), 0
    for scale in (1e-9, 1.0, 1e6):
        vectors = torch.from_numpy(rng.normal(size=(4096, 48)).astype(np.float32)) * scale
        # Numbers between two of bfloat16, all of which are rounded the same way.
        vectors[::2] = vectors[::2].bfloat16().float() * (1 + 2.0**-8 * 0.99)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            few, asked = comparison.FEW > 0, vectors[::512] / scale
            queries = prepare(asked, "q", similarity, buffer=torch.empty(asked.shape) if few else None)
            rows = prepare(vectors, "corpus", similarity, queries=queries if few else None)
            prefilter = Prefilter(queries)
        scores = all_scores(queries, rows)
        ranked = scores.sort(1, descending=True).values
        for rank in (0, 2, 5):
            limit = torch.nextafter(ranked[:, rank], torch.tensor(-math.inf)).double()
            for known_limit in (limit, None):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                    pairs = prefilter.candidates(rows, known_limit, rank + 1)
                if pairs is not None:  # None is what compares all of them.
                    passed += 1
                    found = {*zip(pairs[1].tolist(), pairs[0].tolist(), strict=True)}
                    assert found >= {(of, at) for of, at in (scores > limit[:, None]).nonzero().tolist()}
    assert passed >= 8


def unusual(size: float, dtype: str) -> np.ndarray:
    """Vectors of which some are almost equal, some equal, and some zeros; the sums of some cancel."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(4100, 24)) * size
    vectors[3000:3040] = 2 * vectors[0] * (1 + 2.0**-23 * rng.integers(-3, 4, (40, 24)))
    vectors[3500:3510] = vectors[10]
    vectors[2000:2010, 12:] = -vectors[2000:2010, :12] * (1 + 2.0**-23 * rng.integers(-3, 4, (10, 12)))
    vectors[[5, 4000]] = 0
    return vectors.astype(dtype)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1.0, "f4"), (1.0, "f2"), (1.0, "f8"), (1e-42, "f4"), (1e-20, "f4"), (1e37, "f4"), (1e14, "f4"), (1e120, "f8")],
)
def test_few_queries_have_the_hits_of_many(
    size: float, dtype: str, similarity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, and as many as are few, in one block and in many, as array, tensor, map and path, beside a plain loop."""
    vectors = unusual(size, dtype)
    np.save(tmp_path / "vectors.npy", vectors)
    queries = vectors[[0, 2000, 10, 5]].astype("f8" if dtype == "f8" else "f4")
    if size == 1.0:
        queries[2] *= 1000
    few = comparison.FEW
    assert few >= len(queries)
    with np.errstate(over="ignore"):  # Some scores are infinite in float32.
        expected = whole(queries, vectors, 12, similarity)
    for values in (1 << 14, 6 << 20):
        monkeypatch.setattr(comparison, "_VALUES", values)
        monkeypatch.setattr(comparison, "_ROWS_OF_FEW", values // 24)
        for corpus in (vectors, torch.from_numpy(vectors), np.load(tmp_path / "vectors.npy", mmap_mode="r")):
            results = []
            for maximum in (few, 0):
                monkeypatch.setattr(comparison, "FEW", maximum)
                results.append(semantic_search(queries, corpus, 12, similarity=similarity))
            equal(results[0], expected)
            equal(results[1], expected)
            monkeypatch.setattr(comparison, "FEW", few)
            one = semantic_search(queries[0], corpus, 12, similarity=similarity)
            equal(one, Hits(expected.scores[:1], expected.indices[:1]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kept", [False, True], ids=["plain", "with lengths"])
def test_few_queries_name_what_is_not_finite(bad: float, kept: bool) -> None:
    """Also with a query of zeros, whose products may leave it out."""
    vectors = np.ones((9000, 4), np.float32)
    vectors[8123, 2] = bad
    for query in (vectors[:1], np.zeros((1, 4), np.float32)):
        norms: Any = {} if kept else None
        for _ in range(2):
            with pytest.raises(ValueError, match=r"corpus\[8123\] has a NaN or an infinity"):
                search_blocks(torch.from_numpy(query), [torch.from_numpy(vectors)], 3, "cosine", norms)


@pytest.mark.usefixtures("_dtype")
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_lengths_of_an_earlier_search_change_nothing(similarity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_VALUES", 1 << 14)
    monkeypatch.setattr(comparison, "_ROWS_OF_FEW", 640)
    vectors, norms = unusual(1.0, "f4"), {}
    vectors[1000] *= np.float32(1e-25)  # In the second block, whose lengths, and those after it, are not kept.
    for rows in (3000, 3000, 4100):  # Rows that were added make the last block longer.
        for queries in (vectors[:1], vectors[:9], vectors[:2]):
            asked, parts = torch.from_numpy(queries), [torch.from_numpy(vectors[:rows])]
            hits = search_blocks(asked, parts, 7, similarity, norms)
            equal(hits, whole(queries, vectors[:rows], 7, similarity))
    assert bool(norms) == (similarity != "manhattan")


def forms(vectors: np.ndarray, folder: Path) -> Iterator[Any]:
    path, view = folder / "vectors.npy", vectors.view()
    view.flags.writeable = False
    np.save(path, vectors)
    np.save(folder / "fortran.npy", np.asfortranarray(vectors))
    yield from (vectors, view, np.repeat(vectors, 2, 1)[:, ::2], vectors.astype(">f4"), vectors.astype(np.float64))
    yield from (torch.from_numpy(vectors).requires_grad_(), vectors.tolist(), path, str(path))
    yield from (np.load(path, mmap_mode=mode) for mode in ("r", "r+", "c"))
    yield from (np.load(path, mmap_mode="r")[:], np.asarray(np.load(path, mmap_mode="r")))
    yield np.load(folder / "fortran.npy", mmap_mode="r")
    yield (vectors[start : start + 333] for start in range(0, len(vectors), 333))


def test_a_corpus_may_be_anything_that_holds_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_VALUES", 64 * 20)
    monkeypatch.setattr(comparison, "_ROWS_OF_FEW", 64)
    rng = np.random.default_rng(0)
    queries, vectors = (rng.normal(size=(rows, 20)).astype(np.float32) for rows in (3, 1000))
    for corpus in forms(vectors, tmp_path):
        equal(semantic_search(queries, corpus, 4), whole(queries, vectors, 4))
    equal(semantic_search(torch.from_numpy(queries), torch.from_numpy(vectors), 4), whole(queries, vectors, 4))
    for half in (torch.from_numpy(vectors).half(), torch.from_numpy(vectors).bfloat16(), vectors.astype(np.float16)):
        equal(semantic_search(queries, half, 4), whole(queries, np.asarray(torch.as_tensor(half).float()), 4))


@pytest.mark.usefixtures("_dtype")
@pytest.mark.parametrize("precision", ["int8", "binary", "ubinary"])
def test_codes_are_searched_as_the_vectors_that_they_stand_for(precision: str) -> None:
    rng = np.random.default_rng(0)
    queries, vectors = (torch.from_numpy(rng.normal(size=(rows, 21)).astype(np.float32)) for rows in (3, 2000))
    ranges = calibrate(vectors[:500]) if precision == "int8" else None
    codes = quantize(vectors, precision, ranges)
    meant = dequantize(codes, precision, ranges, 21).numpy()
    equal(semantic_search(queries, codes.numpy(), 5, ranges=ranges), whole(queries.numpy(), meant, 5))
    if precision == "int8":
        equal(semantic_search(queries, codes, 5), whole(queries.numpy(), codes.float().numpy(), 5))


def test_rescoring_is_the_order_of_the_finer_codes() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3000, 64)).astype(np.float32)
    queries = vectors[:40] + 0.3 * rng.normal(size=(40, 64)).astype(np.float32)
    bits = quantize(torch.from_numpy(vectors), "ubinary")
    expected = whole(queries, vectors, 10)
    equal(semantic_search(queries, bits, 10, rescore=vectors, oversample=300), expected)
    ranges = calibrate(vectors)
    codes = quantize(torch.from_numpy(vectors), "int8", ranges)
    fine = semantic_search(queries, bits, 10, rescore=codes, oversample=300, ranges=ranges)
    equal(fine, semantic_search(queries, codes, 10, ranges=ranges))
    for count in (2, 2999, 6000):
        other = np.resize(vectors, (count, 64))
        with pytest.raises(ValueError, match=f"rescore has {count} rows, and the corpus 3000; pass the same rows"):
            semantic_search(queries, bits, rescore=other)
    equal(semantic_search(queries, codes, rescore=vectors, oversample=300, ranges=ranges), expected)
    doubles = vectors.astype(np.float64) * (1 + 1e-9)
    equal(semantic_search(queries, doubles, 3, rescore=doubles), whole(queries, doubles, 3))
    assert semantic_search(queries[:0], bits, rescore=vectors).scores.shape == (0, 10)


def test_no_rows_and_few_rows() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert semantic_search(vectors[:2], vectors, 100).indices.shape == (2, 3)
    assert semantic_search(vectors[:2], np.empty((0, 3))).scores.shape == (2, 0)
    assert semantic_search(vectors[:2], iter([])).indices.shape == (2, 0)
    assert semantic_search(np.empty((0, 3)), vectors).scores.shape[0] == 0
    assert semantic_search(vectors[0], vectors, 1).indices.tolist() == [[0]]


def test_a_file_that_is_not_there_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    with pytest.raises(
        FileNotFoundError, match=r"corpus=.*vectors\.npy.* is not a file; pass the path of a \.npy file"
    ):
        semantic_search(np.ones(3), path)
    np.save(path, np.empty((0, 3)))
    assert semantic_search(np.ones(3), path).indices.shape == (1, 0)


def test_vectors_in_reverse_order() -> None:
    """One row reversed is contiguous for NumPy, and nothing for torch."""
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for queries in (vectors[:1][::-1], vectors[::-1], vectors[:1, ::-1]):
        found = semantic_search(queries, vectors[::-1])
        expected = semantic_search(queries.copy(), vectors[::-1].copy())
        assert all(map(np.array_equal, found, expected))
