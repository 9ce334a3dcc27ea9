"""Comparisons that agree whatever the dtype and the length of the vectors, and wrong calls that say what is wrong."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sbert.visualization as plotting
from sbert import functional, losses
from sbert.evaluation import RerankingEvaluator, SimilarityEvaluator, TripletEvaluator
from sbert.functional import SIMILARITIES, cos_sim, directions, dot_score, euclidean, manhattan, pairwise_similarity
from sbert.inputs.arguments import nearest_argument
from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search import (
    Index,
    Pair,
    cluster,
    community_detection,
    mine_hard_negatives,
    most_similar_pair,
    paraphrase_mining,
    semantic_search,
    topic_words,
)

HALF = [torch.float16, torch.bfloat16]
TEXTS = ["a b", "c d", "e f"]


def random(rows: int = 40, dim: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dim))


def exact(a: np.ndarray, b: np.ndarray, similarity: str) -> np.ndarray:
    """Plain loops in float64, with vectors scaled before they are squared."""
    scores = np.empty((len(a), len(b)))
    for row, column in itertools.product(range(len(a)), range(len(b))):
        one, two = a[row].astype(np.float64), b[column].astype(np.float64)
        if similarity == "cosine":
            one, two = (each / (np.abs(each).max() or 1) for each in (one, two))
            length = np.linalg.norm(one) * np.linalg.norm(two)
            scores[row, column] = one @ two / length if length else 0
        elif similarity == "dot":
            scores[row, column] = one @ two
        else:
            scores[row, column] = -np.linalg.norm(one - two, 2 if similarity == "euclidean" else 1)
    return scores


class Model:
    """Encodes each text as the vector that is given for it."""

    similarity_fn_name, is_cross_encoder, default_prompt_name = "cosine", False, None

    def __init__(self, vectors: dict[str, np.ndarray] | None = None) -> None:
        self.vectors = vectors or {text: random(3, 4)[row] for row, text in enumerate(TEXTS)}

    def encode(self, texts: list[str], **options: Any) -> np.ndarray:
        return np.array([self.vectors[text] for text in texts], np.float32)

    encode_query = encode_document = encode

    def similarity(self, a: Any, b: Any) -> Any:
        return cos_sim(a, b)


# --------------------------------------------------------------------------------------- accumulation and range


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_03_half_precision_scores_accumulate_in_float32(similarity: str, dtype: torch.dtype) -> None:
    a, b = (torch.from_numpy(random(seed=seed)).to(dtype) for seed in (0, 1))
    scores, paired = SIMILARITIES[similarity](a, b), pairwise_similarity(a, b, similarity)
    assert scores.dtype == paired.dtype == torch.float32
    expected = exact(a.double().numpy(), b.double().numpy(), similarity)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(paired.numpy(), expected.diagonal(), rtol=1e-5, atol=1e-6)


def test_03_scores_of_bfloat16_are_as_many_as_the_vectors() -> None:
    a, b = (torch.from_numpy(random(1000, 384, seed)).bfloat16() for seed in (0, 1))
    for scores in (cos_sim(a[:1], b)[0], pairwise_similarity(a, b)):
        assert len(scores.unique()) > 990
    large = torch.full((2, 384), 100.0, dtype=torch.float16)
    assert dot_score(large, large).tolist() == [[3.84e6] * 2] * 2  # float16 ends at 65504.


def test_03_arrays_of_float16_give_arrays_of_float32() -> None:
    vectors = random().astype(np.float16)
    for compare in SIMILARITIES.values():
        assert (compare(vectors, vectors).dtype, compare(vectors, vectors.astype(np.float64)).dtype) == (
            np.float32,
            np.float64,
        )
    assert cos_sim(torch.ones(1, 2).double(), torch.ones(1, 2).half()).dtype == torch.float64


def test_03_autocast_changes_no_score() -> None:
    a, b = (torch.from_numpy(random(seed=seed)).float() for seed in (0, 1))
    for compare in (*SIMILARITIES.values(), pairwise_similarity):
        plain = compare(a, b)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(compare(a, b), plain)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *((np.float32, size) for size in (1.0, 1e30, 1e-30, 1e-42)),
        *((np.float64, size) for size in (1.0, 1e30, 1e200, 1e307, 1e-200, 1e-310)),
    ],
)
def test_03_a_cosine_does_not_depend_on_the_lengths(dtype: type, size: float) -> None:
    vectors = random(12, 8)
    vectors[3] = 0
    scaled = (vectors * size).astype(dtype)
    expected = exact(scaled, scaled, "cosine")
    assert (expected[3] == 0).all()
    assert expected[0, 0] == pytest.approx(1)
    scores = cos_sim(scaled, scaled)
    hits = semantic_search(scaled, scaled, 12)
    found = np.empty((12, 12))
    np.put_along_axis(found, hits.indices, hits.scores, 1)
    mined = np.zeros((12, 12))
    for score, first, second in paraphrase_mining(scaled, top_k=None):
        mined[first, second] = score
    for some in (scores, found):
        np.testing.assert_allclose(some, expected, atol=1e-6)
    np.testing.assert_allclose(mined, np.triu(expected, 1), atol=1e-6)
    np.testing.assert_allclose(
        pairwise_similarity(scaled, scaled[::-1].copy()), expected[:, ::-1].diagonal(), atol=1e-6
    )


def test_03_lengths_that_differ_within_a_search_change_nothing() -> None:
    """Rows of all lengths stand among others in blocks that are searched with a bound, and in ones without."""
    vectors, queries = random(3000, 16), random(40, 16, 1)
    sizes = 10.0 ** np.random.default_rng(2).integers(-37, 37, (3000, 1))
    for rows in (slice(0, 3000, 7), slice(2500, 2502), slice(0, 3000)):
        scaled = vectors.copy()
        scaled[rows] *= sizes[rows]
        scaled[11] = 0
        scaled = scaled.astype(np.float32)
        hits = semantic_search(queries.astype(np.float32), scaled, 10)
        wide = scaled.astype(np.float64)
        lengths = np.linalg.norm(wide, axis=1) * np.linalg.norm(queries, axis=1)[:, None]
        expected = np.divide(queries @ wide.T, lengths, where=lengths > 0, out=np.zeros_like(lengths))
        np.testing.assert_allclose(hits.scores, np.sort(expected, 1)[:, :-11:-1], atol=1e-6)


def test_03_arccos_is_never_nan() -> None:
    rng = np.random.default_rng(0)
    a = torch.from_numpy(rng.normal(size=(500, 300))).float()
    near = a * (1 + 1e-4 * torch.rand(500, 1)) + 1e-6 * torch.randn(
        500, 300, generator=torch.Generator().manual_seed(0)
    )
    for one, two in ((a, a), (a, near), (a, -near), (a.bfloat16(), a.bfloat16()), (a.double(), a.double())):
        for scores in (cos_sim(one, two), pairwise_similarity(one, two)):
            assert scores.abs().max() <= 1
            assert not scores.arccos().isnan().any()
    array = semantic_search(a.numpy(), near.numpy(), 5).scores
    assert not np.isnan(np.arccos(array)).any()


def test_03_the_gradient_of_a_cosine_is_that_of_its_formula() -> None:
    torch.manual_seed(0)
    first = torch.randn(64, 32)
    # Nearly parallel: some cosines are rounded to more than 1, and the gradient of a clamp would be 0 there.
    second = first * 3 + 1e-3 * torch.randn(64, 32)
    raw = (F.normalize(first, dim=1) * F.normalize(second, dim=1)).sum(1)
    assert (raw > 1).any()
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = first.to(dtype).requires_grad_()
        wanted = pairwise_similarity(leaf, second.to(dtype)).sum() + cos_sim(leaf, second.to(dtype)).diagonal().sum()
        gradients.append(torch.autograd.grad(wanted, leaf)[0].double())
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-6)
    assert (gradients[0].norm(dim=1) > 1e-6).all()
    leaf = torch.zeros(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(cos_sim(leaf, torch.ones(1, 3)).sum(), leaf)
    assert gradient.abs().max() <= 1  # 1e12 with torch's normalize.
    a, b = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for compare in SIMILARITIES.values():
        assert torch.autograd.gradcheck(compare, (a, b))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_03_losses_of_half_precision_vectors_are_those_of_the_same_floats(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    columns = [torch.randn(8, 64).to(dtype) for _ in range(3)]
    labels = torch.linspace(0, 1, 8)
    cases: list[tuple[Callable[..., Tensor], int, dict[str, Tensor]]] = [
        (losses.CosineSimilarityLoss(), 2, {"labels": labels}),
        (losses.CoSENTLoss(), 2, {"labels": labels}),
        (losses.AnglELoss(), 2, {"labels": labels}),
        (losses.ContrastiveLoss("euclidean"), 2, {"labels": (labels > 0.5).float()}),
        (losses.MultipleNegativesRankingLoss(), 3, {}),
        (losses.TripletLoss("manhattan"), 3, {}),
        (losses.BatchAllTripletLoss(), 1, {"labels": torch.tensor([0, 1] * 4)}),
    ]
    for loss, count, extras in cases:
        found, gradients = [], []
        for half in (True, False):
            leaves = [(column if half else column.float()).clone().requires_grad_() for column in columns[:count]]
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                value = loss(*leaves, **extras)
            found.append(value)
            gradients.append([gradient.float() for gradient in torch.autograd.grad(value, leaves)])
        assert found[0].dtype == torch.float32
        assert torch.equal(*found)
        for one, two in zip(*gradients, strict=True):
            torch.testing.assert_close(one, two.to(dtype).float(), rtol=0, atol=0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e30, 1e-30])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_03_all_comparisons_agree(similarity: str, size: float) -> None:
    vectors = (random(24, 12) * size).astype(np.float32)
    names = [str(row) for row in range(24)]
    model = Model(dict(zip(names, vectors, strict=True)))
    model.similarity_fn_name = similarity
    scores = SIMILARITIES[similarity](vectors, vectors)
    finite = np.isfinite(scores)
    scale = np.abs(scores[finite]).max(initial=1e-37)
    hits = semantic_search(vectors, vectors, 24, similarity=similarity)
    searched = np.empty((24, 24), np.float32)
    np.put_along_axis(searched, hits.indices, hits.scores, 1)
    tensors = SIMILARITIES[similarity](torch.from_numpy(vectors), torch.from_numpy(vectors)).numpy()
    index = Index(similarity=similarity)
    index.add(vectors)
    found = index.search(vectors, 24)
    indexed = np.empty((24, 24), np.float32)
    np.put_along_axis(indexed, found.ids, found.scores, 1)
    mined = paraphrase_mining(vectors, top_k=None, similarity=similarity)
    for some in (searched, tensors, indexed):
        assert (some[~finite] == scores[~finite]).all()
        np.testing.assert_allclose(some[finite], scores[finite], rtol=1e-6, atol=2e-6 * scale)
    np.testing.assert_array_equal(mined.scores, searched[mined.first, mined.second])
    if finite.all():
        paired = pairwise_similarity(vectors[mined.first], vectors[mined.second], similarity)
        np.testing.assert_allclose(paired, mined.scores, rtol=1e-6, atol=2e-6 * scale)
        best = most_similar_pair(vectors, similarity=similarity)
        assert best == mined[0]


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_03_evaluators_see_directions_whatever_the_lengths(size: float) -> None:
    vectors = random(30, 8)
    names = [str(row) for row in range(30)]
    found = []
    for factor in (1.0, size):
        model: Any = Model(dict(zip(names, (vectors * factor).astype(np.float32), strict=True)))
        found.append(
            [
                SimilarityEvaluator(names[:10], names[10:20], np.arange(10.0))(model),
                TripletEvaluator(names[:10], names[10:20], names[20:])(model),
                RerankingEvaluator([{"query": "0", "positive": names[1:4], "negative": names[4:]}])(model),
                cluster((vectors * factor).astype(np.float32), clusters=3).tolist(),
                community_detection((vectors * factor).astype(np.float32), 0.5, min_community_size=2),
            ]
        )
    for one, two in zip(*found, strict=True):
        if isinstance(one, dict):
            assert one == pytest.approx(two)
        else:
            assert one == two


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_03_what_is_not_finite_is_named_by_searches_and_nan_in_similarities(bad: float) -> None:
    good, broken = random(5, 3).astype(np.float32), random(5, 3).astype(np.float32)
    broken[2, 1] = bad
    calls: list[Callable[[], Any]] = [
        lambda: semantic_search(good, broken),
        lambda: semantic_search(broken, good),
        lambda: paraphrase_mining(broken),
        lambda: most_similar_pair(broken),
        lambda: community_detection(broken),
        lambda: cluster(broken, clusters=2),
        lambda: Index().add(broken),
        lambda: plotting.corpus_map(broken),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"\[2\] (has a NaN|is not finite)"):
            call()
    for scores in (cos_sim(broken, good), cos_sim(good, broken).T):
        assert np.isnan(scores[2]).all()
        assert np.isfinite(np.delete(scores, 2, 0)).all()
    for name in SIMILARITIES:
        paired = pairwise_similarity(broken, good, name)
        assert not np.isfinite(paired[2])
        assert np.isfinite(np.delete(paired, 2)).all()
    if np.isnan(bad):
        with pytest.raises(ValueError, match=r"vectors\[2\] has a NaN"):
            quantize(broken, "ubinary")


def test_03_normalised_vectors_have_length_1_whatever_they_were() -> None:
    sizes = torch.tensor([1e30, 1e-30, 1e-44, 1.0, 3e38])[:, None]
    vectors = torch.tensor([[0.6, -0.8, 0.1]]) * sizes
    torch.testing.assert_close(directions(vectors).norm(dim=1), torch.ones(5))
    usual = torch.randn(10, 7)
    assert torch.equal(directions(usual), F.normalize(usual, dim=1))


# ------------------------------------------------------------------------------------------------ what is returned


def test_17_mined_pairs_are_a_sequence_of_pairs() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = paraphrase_mining(vectors)
    assert len(found) == 3  # As many as there are arrays, which a loop must not go over.
    rows = [(round(score, 4), first, second) for score, first, second in found]
    assert rows == [(0.8, 1, 2), (0.6, 0, 2), (0.0, 0, 1)]
    assert all(type(pair) is Pair and type(pair.first) is int for pair in found)
    assert found[0] == Pair(found.scores[0], 1, 2)
    assert found[-1].second == 1
    assert found[:2].first.tolist() == [1, 0]
    assert len(found[found.scores > 0.7]) == 1
    assert found.scores.dtype == np.float32
    assert found.first.dtype == found.second.dtype == np.int64
    assert not isinstance(found, tuple)
    with pytest.raises(IndexError):
        found[3]
    with pytest.raises(ValueError, match="unpack"):
        _, _, _ = paraphrase_mining(random(4, 3))


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[np.ndarray]:
    np.save(tmp_path / "v.npy", random(12, 8).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield np.load(tmp_path / "v.npy", mmap_mode="r")


def test_17_a_read_only_memory_map_draws_no_warning(mapped: np.ndarray) -> None:
    # torch warns once a process, unless it is told to warn always.
    torch.set_warn_always(True)
    try:
        copy = np.array(mapped)
        for compare in (cos_sim, dot_score, euclidean, manhattan, pairwise_similarity):
            np.testing.assert_array_equal(compare(mapped, mapped[::-1]), compare(copy, copy[::-1]))
        np.testing.assert_array_equal(semantic_search(mapped, mapped).indices, semantic_search(copy, copy).indices)
        assert paraphrase_mining(mapped)[0] == most_similar_pair(mapped)
        cluster(mapped, clusters=2)
        community_detection(mapped, 0.1, 2)
        np.testing.assert_array_equal(calibrate(mapped), calibrate(copy))
        codes = quantize(mapped, "int8", calibrate(mapped))
        codes.flags.writeable = False
        assert isinstance(dequantize(codes, "int8"), np.ndarray)
        Index().add(mapped)
        plotting.corpus_map(mapped)
    finally:
        torch.set_warn_always(False)


def test_17_arrays_are_coded_to_arrays() -> None:
    vectors = random(6, 12).astype(np.float32)
    ranges = calibrate(vectors)
    for precision, given in (("int8", ranges), ("binary", None), ("ubinary", None)):
        codes = quantize(vectors, precision, given)
        tensor = quantize(torch.from_numpy(vectors), precision, given)
        assert isinstance(codes, np.ndarray)
        assert np.array_equal(codes, tensor.numpy())
        np.testing.assert_array_equal(
            dequantize(codes, precision, given, 12), dequantize(tensor, precision, given, 12).numpy()
        )


# ------------------------------------------------------------------------------------------------------- messages

V = random(6, 4).astype(np.float32)
W, CUBE = V[:, :3], np.zeros((2, 3, 4), np.float32)
CODES = np.zeros((3, 1), np.uint8)
M = Model()
ENCODE = r"pass the result of model\.encode\(texts\)"
NUMBERS = rf"must hold numbers, not text \(.*\); {ENCODE}"
HISTORY: Any = [{"step": 1, "loss": 0.5, "learning_rate": 1e-5}]

# Wrong calls by what they must say: what was given, what was expected, and the remedy.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "two strings": (lambda: cos_sim("a", "b"), rf"a {NUMBERS}"),
    "second string": (lambda: dot_score(V, "b"), rf"b must hold numbers, not text \('b'\); {ENCODE}"),
    "texts": (lambda: euclidean(TEXTS, TEXTS), rf"a must hold numbers, not text \(\['a b', .*\); {ENCODE}"),
    "texts in an array": (lambda: manhattan(V, np.array(TEXTS)), rf"b {NUMBERS}"),
    "pairwise strings": (lambda: pairwise_similarity("a", "b"), rf"a {NUMBERS}"),
    "none": (
        lambda: cos_sim(V, None),
        f"b must be an array, a tensor or a list of vectors, not of type NoneType; {ENCODE}",
    ),
    "a model": (lambda: cos_sim(M, V), "a must be an array, .* not of type Model"),
    "a dict": (lambda: cos_sim({"a": 1}, V), "not of type dict"),
    "ragged": (lambda: cos_sim([[1, 2], [3]], V), f"a must hold vectors of the same dim, and they differ; {ENCODE}"),
    "three dims": (
        lambda: cos_sim(CUBE, V),
        rf"a must have the shape \(rows, dim\) or \(dim,\), not \(2, 3, 4\); {ENCODE}",
    ),
    "nothing": (lambda: cos_sim([], []), r"not \(0,\)"),
    "dims": (
        lambda: cos_sim(V, W),
        "dim 4 and 3 cannot be compared; encode both with the same model and the same truncate_dim",
    ),
    "complex": (lambda: cos_sim(np.ones((2, 3), complex), V), "a must hold real numbers, not complex128"),
    "objects": (lambda: cos_sim(np.array([[1, None]]), V), "a must hold real numbers, not object"),
    "sparse": (lambda: cos_sim(torch.eye(3).to_sparse(), torch.eye(3)), "a must be a dense tensor"),
    "codes": (lambda: cos_sim(CODES, CODES), r"a must hold floats, not codes of torch.uint8; .*dequantize"),
    "similarity function": (
        lambda: semantic_search(V, V, similarity=dot_score),
        "'dot_score' is unknown; pass one of cosine, .* by its name",
    ),
    "search text": (lambda: semantic_search("a b", V), rf"queries {NUMBERS}"),
    "search texts": (lambda: semantic_search(TEXTS, V), rf"queries {NUMBERS}"),
    "corpus of texts": (lambda: semantic_search(V, TEXTS), rf"corpus {NUMBERS}"),
    "corpus of one text": (
        lambda: semantic_search(V, "a b"),
        r"corpus='a b' is not a file; pass the path of a \.npy file, or",
    ),
    "search by a model": (lambda: semantic_search(M, V), "queries must be an array"),
    "search none": (lambda: semantic_search(None, V), "queries must be an array, .*NoneType"),
    "search three dims": (lambda: semantic_search(CUBE, V), "queries must have the shape"),
    "list of matrices": (lambda: semantic_search(V, [V, V]), r"corpus must have the shape .* not \(2, 6, 4\)"),
    "search dims": (
        lambda: semantic_search(V, W),
        r"corpus has shape \(\d+, 3\), and the queries are of dim 4; encode both",
    ),
    "rescore dims": (
        lambda: semantic_search(V, V, rescore=W),
        r"rescore has shape \(\d+, 3\), and the queries are of dim 4",
    ),
    "rescore texts": (lambda: semantic_search(V, V, rescore=TEXTS), rf"rescore {NUMBERS}"),
    "floats for codes": (lambda: semantic_search(V, V, precision="int8"), "codes of torch.float32 are not 'int8'"),
    "ranges": (lambda: semantic_search(V, CODES, ranges="a"), "ranges are 'a'; pass those that calibrate"),
    "top_k": (lambda: semantic_search(V, V, top_k=5.0), r"top_k is 5\.0; pass a whole number"),
    "by place": (
        lambda: semantic_search(V, V, 5, "dot"),
        "takes queries, corpus, top_k by position, and 4 .*similarity=",
    ),
    "mining swapped": (
        lambda: paraphrase_mining(TEXTS, M),
        "must be a SentenceEncoder, not of type list; pass the model first, then",
    ),
    "mining texts": (lambda: paraphrase_mining(TEXTS), rf"vectors {NUMBERS}"),
    "mining a model": (
        lambda: paraphrase_mining(M),
        r"no sentences to encode; pass paraphrase_mining\(model, sentences\)",
    ),
    "mining one text": (lambda: paraphrase_mining(M, "a b c"), "sentences='a b c' is one sentence; pass a list"),
    "mining by a name": (lambda: paraphrase_mining("minilm", TEXTS), "must be a SentenceEncoder, not of type str"),
    "mining both": (
        lambda: paraphrase_mining(V, TEXTS),
        "vectors and sentences were both given; pass the vectors alone",
    ),
    "mining threshold": (lambda: paraphrase_mining(V, threshold="0.5"), "threshold is '0.5'; pass a number"),
    "most similar texts": (lambda: most_similar_pair(TEXTS), rf"vectors {NUMBERS}"),
    "communities of texts": (lambda: community_detection(TEXTS), rf"vectors {NUMBERS}"),
    "communities of a model": (lambda: community_detection(M), "vectors must be an array"),
    "community threshold": (lambda: community_detection(V, "0.5"), "threshold is '0.5'; pass a number"),
    "clusters of texts": (lambda: cluster(["a", "b"]), rf"vectors {NUMBERS}"),
    "clusters of two texts": (lambda: cluster(["a", "b"], clusters=2), rf"vectors {NUMBERS}"),
    "clusters by place": (lambda: cluster(V, 3), "method=3 is a number; to get 3 clusters, pass clusters=3"),
    "cluster threshold": (lambda: cluster(V, "agglomerative", threshold=5), "threshold=5 is not a cosine; pass -1"),
    "cluster nan": (lambda: cluster(V, "agglomerative", threshold=np.nan), "threshold=nan is no"),
    "cluster seed": (lambda: cluster(V, clusters=2, seed=1.5), "seed is 1.5; pass a whole number"),
    "labels as text": (lambda: topic_words(TEXTS, "abc"), "labels are 'abc'; pass one label per text"),
    "labels between": (lambda: topic_words(TEXTS, [0.5, 1, 1]), r"labels\[0\] is 0\.5; pass integers"),
    "no labels": (lambda: topic_words(TEXTS, None), "labels are None"),
    "negatives swapped": (
        lambda: mine_hard_negatives([("a b", "c d")], M),
        "not of type list; pass the model first, then pairs",
    ),
    "negatives of one text": (
        lambda: mine_hard_negatives(M, [("a b", "c d")], "e f"),
        "corpus='e f' is one text; pass a list",
    ),
    "no pairs": (lambda: mine_hard_negatives(M, None), r"pairs is None; pass a list of \(anchor, positive\)"),
    "margin": (lambda: mine_hard_negatives(M, [("a b", "c d")], margin="0.1"), "margin is '0.1'; pass a number"),
    "least score": (lambda: mine_hard_negatives(M, [("a b", "c d")], min_score="0"), "min_score is '0'; pass a number"),
    "random": (lambda: mine_hard_negatives(M, [("a b", "c d")], seed=0.5), "seed is 0.5; pass a whole number"),
    "index of ranges": (lambda: Index(precision="int8", ranges=5), "ranges of shape .* do not fit"),
    "index of vectors": (lambda: Index(V), r"dim is array\(.{0,60}; pass a whole number"),
    "add texts": (lambda: Index().add(TEXTS), rf"vectors {NUMBERS}"),
    "add codes": (lambda: Index().add(CODES), "vectors must hold floats, not codes"),
    "add an id": (lambda: Index().add(V, 5), "ids=5 is of type int; pass a list of ids"),
    "ask in words": (lambda: Index().search("a b"), rf"queries {NUMBERS}"),
    "code texts": (lambda: quantize(TEXTS, "ubinary"), rf"vectors {NUMBERS}"),
    "code codes": (lambda: quantize(CODES, "ubinary"), "vectors must hold floats, not codes"),
    "coding swapped": (lambda: quantize("ubinary", V), "precision=array.* is unknown; pass one of float32"),
    "ranges of texts": (lambda: calibrate(TEXTS), rf"vectors {NUMBERS}"),
    "decode floats": (lambda: dequantize(V, "ubinary"), "codes of torch.float32 are not 'ubinary'"),
    "decode more": (lambda: dequantize(CODES, "ubinary", dim=100), "dim=100 exceeds the 8 bits of each row"),
    "truncate to a float": (
        lambda: functional.truncate(torch.ones(2, 4), 2.0),
        r"truncate_dim is 2\.0; pass a whole number",
    ),
    "picture of a text": (
        lambda: plotting.similarity_heatmap("abc", M),
        "sentences is of type str; pass a list of str",
    ),
    "picture of vectors": (
        lambda: plotting.similarity_heatmap(V, M),
        r"sentences is an array of shape \(6, 4\); pass",
    ),
    "picture swapped": (
        lambda: plotting.similarity_heatmap(M, TEXTS),
        "sentences is of type Model; pass a str, or a list",
    ),
    "picture by texts": (
        lambda: plotting.similarity_heatmap(TEXTS, TEXTS),
        r"scores are \['a b'.*; pass a model, or numbers \(3, 3\)",
    ),
    "map of texts": (lambda: plotting.corpus_map(TEXTS), rf"vectors {NUMBERS}"),
    "map with texts": (
        lambda: plotting.corpus_map(V, TEXTS),
        "path is of type list; pass a file name, and all else by name",
    ),
    "map by letters": (lambda: plotting.corpus_map(V, labels="abcdef"), "labels must be a list"),
    "map of letters": (lambda: plotting.corpus_map(V, texts="abcdef"), "texts is of type str; pass a list of str"),
    "curves of a number": (
        lambda: plotting.training_curves(5),
        r"history is of type int; pass the result of Trainer\.fit",
    ),
    "curves of numbers": (lambda: plotting.training_curves([0.5]), r"history\[0\] is 0\.5, not an entry of a history"),
    # Names of arguments.
    "n_clusters": (
        lambda: cluster(V, n_clusters=2),
        r"cluster\(\) takes no argument 'n_clusters'; did you mean 'clusters'\?",
    ),
    "random_state": (lambda: cluster(V, clusters=2, random_state=2), "did you mean 'seed'"),
    "corpus_embeddings": (lambda: semantic_search(V, corpus_embeddings=V), "did you mean 'corpus'"),
    "query_embeddings": (lambda: semantic_search(query_embeddings=V, corpus=V), "did you mean 'queries'"),
    "score_function": (lambda: semantic_search(V, V, score_function=dot_score), "did you mean 'similarity'"),
    "query_chunk_size": (
        lambda: semantic_search(V, V, query_chunk_size=10),
        "'query_chunk_size', only queries, corpus, top_k",
    ),
    "k": (lambda: Index().search(V, k=3), r"Index\.search\(\) takes no argument 'k'; did you mean 'top_k'"),
    "metric": (lambda: Index(metric="ip"), r"Index\(\) takes no argument 'metric'; did you mean 'similarity'"),
    "min_size": (lambda: community_detection(V, min_size=2), "did you mean 'min_community_size'"),
    "num_negatives": (lambda: mine_hard_negatives(M, [], num_negatives=2), "did you mean 'negatives'"),
    "embeddings": (lambda: paraphrase_mining(embeddings=V), "did you mean 'vectors_or_model'"),
    "name": (lambda: pairwise_similarity(V, V, similarity="dot"), "did you mean 'name'"),
    "dimension": (lambda: cos_sim(V, V, dim=1), r"cos_sim\(\) takes no argument 'dim', only a, b"),
    "calibration": (lambda: quantize(V, "int8", calibration_embeddings=V), "did you mean 'ranges'"),
    "label": (lambda: plotting.corpus_map(V, label=[1] * 6), "did you mean 'labels'"),
    "curve": (lambda: plotting.training_curves(histori=HISTORY), "did you mean 'history'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_19_a_wrong_call_says_what_was_given_and_what_to_pass(name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message) as caught:
        call()
    assert len(str(caught.value)) < 260
    assert " object at 0x" not in str(caught.value)


def test_19_the_nearest_argument_is_one_that_is_like_it() -> None:
    known = ["queries", "corpus", "top_k", "similarity"]
    assert [nearest_argument(name, known) for name in ("similarty", "topk", "querys", "batch_size")] == [
        "similarity",
        "top_k",
        "queries",
        None,
    ]


def test_19_a_checked_function_is_still_itself() -> None:
    assert semantic_search.__name__ == "semantic_search"
    assert "top_k" in inspect.signature(semantic_search).parameters
    assert list(inspect.signature(Index).parameters)[:2] == ["dim", "backend"]
