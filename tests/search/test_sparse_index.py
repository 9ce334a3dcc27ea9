"""Sparse vectors in an inverted index: the dot products of dense ones, whatever is added and removed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from sbert import SentenceEncoder
from sbert.chunking import split
from sbert.search import BM25, Hits, HybridIndex, Index, SparseIndex, fuse
from sbert.search.index import passages
from sbert.search.index.sparse_index import max_of_passages
from tests import small
from tests.modules.test_splade import model_of

DIM = 40
TEXTS = [f"{text} {word}" for text in small.CORPUS for word in ("lake", "red", "seven", "a small boat")]
QUERIES = ["the red boat", "seven", "quiet hills"]


def vectors_of(rows: int, generator: np.random.Generator) -> Any:
    values = generator.random((rows, DIM), np.float32) * (generator.random((rows, DIM)) < 0.2)
    return np.round(values * 4) / 4  # So that some scores are equal.


def expected(queries: Any, table: dict[int, Any], k: int) -> Hits:
    """The products of dense vectors; of equal scores, the first."""
    scores = queries @ np.stack([*table.values()]).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(np.take_along_axis(scores, order, 1), np.array([*table])[order])


@pytest.mark.parametrize("seed", range(3))
def test_it_gives_the_products_of_dense_vectors(seed: int) -> None:
    chance, generator = random.Random(seed), np.random.default_rng(seed)
    index, table = SparseIndex(), dict[int, Any]()
    for step in range(40):
        if step % 3 == 2:
            removed = chance.sample([*table], chance.randint(0, len(table) - 1))
            index.remove(removed)
            table = {name: row for name, row in table.items() if name not in removed}
        else:
            new = vectors_of(chance.randint(1, 9), generator)
            names = range(10 * step, 10 * step + len(new))
            index.add(csr_array(new) if step % 2 else new, names)
            table |= dict(zip(names, new, strict=True))
        queries = vectors_of(4, generator)
        for k in (3, 100):
            hits = index.search(csr_array(queries), k)
            reference = expected(queries, table, k)
            np.testing.assert_allclose(hits.scores, reference.scores, rtol=1e-6)
            assert np.array_equal(hits.ids, reference.ids)
    assert len(index) == len(table)


def test_negative_values_and_other_dimensions() -> None:
    index = SparseIndex()
    index.add(np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0]]), ["plus", "minus", "other"])
    assert index.search(np.array([1.0, 0, 0])).ids.tolist() == [["plus", "other", "minus"]]
    with pytest.raises(ValueError, match="dim 2 is not the index's 3"):
        index.search(np.ones((1, 2)))
    with pytest.raises(ValueError, match="a vector has a NaN or an infinity; remove or correct it"):
        index.add(np.array([[0, np.nan, 0]]))


def test_all_forms_of_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of one dimension are summed, the caller's matrix stays as it is, and nothing is dense in between."""
    monkeypatch.setattr(torch.Tensor, "to_dense", None)
    twice = csr_array((np.array([1.0, 2, 4]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 3))
    tensor = torch.sparse_coo_tensor([[0, 0, 0], [1, 1, 0]], [1.0, 2, 4], (1, 3), check_invariants=False)
    row = csr_array(twice.toarray())[0]  # (dim,)
    for form in (twice, row, tensor, tensor[0], [tensor[0]], tensor.half(), [[4, 3, 0]]):
        index = SparseIndex()
        index.add(form)
        assert index.search(np.eye(3)).scores.ravel().tolist() == [4, 3, 0]
        assert index.search(form).scores.tolist() == [[25]]
    assert (twice.data.tolist(), twice.indices.tolist()) == ([1, 2, 4], [1, 1, 0])


# -------------------------------------------------------------------------------------------------- in a HybridIndex


@pytest.fixture(scope="module")
def models() -> tuple[SentenceEncoder, SentenceEncoder]:
    return SentenceEncoder(), model_of().float()


def compare(index: HybridIndex, models: Any, texts: list[str], ids: list[int]) -> None:
    """All ways give what their own indexes give, and the hybrid one what ``fuse`` makes of these."""
    dense, sparse = models
    hits = {}
    for by, own, model in (("lexical", BM25(), None), ("dense", Index(), dense), ("sparse", SparseIndex(), sparse)):
        own.add(model.encode_document(texts) if model else texts, ids)
        hits[by] = own.search(model.encode_query(QUERIES) if model else QUERIES, 50)
    hits["hybrid"] = fuse(*hits.values(), top_k=50, method="weighted", weights=(0.3, 0.42, 0.28))
    for by, found in hits.items():
        for results, row, names in zip(index.search(QUERIES, 50, by=by), found.scores, found.ids, strict=True):
            chosen = row != 0 if by in ("lexical", "sparse") else np.ones(len(row), bool)
            assert [result.score for result in results] == pytest.approx(row[chosen].tolist(), rel=1e-5)
            if by == "sparse":
                assert [result.id for result in results] == names[chosen].tolist()


def test_changes_are_changes_of_postings(models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "_MOST_REMOVED", 1)
    opened = [HybridIndex(models[0], tmp_path, sparse_model=models[1], language=None) for _ in range(2)]
    texts = dict(enumerate(TEXTS[:10]))
    opened[0].add(texts.values(), texts)
    compare(opened[1], models, [*texts.values()], [*texts])
    for step, text in enumerate(TEXTS[10:]):
        index, name = opened[step % 2], min(texts)
        del texts[name]
        if step % 2:
            index.remove([name])
        else:
            index.update([text], [name])
            texts[name] = text
        compare(opened[step % 3 % 2], models, [*texts.values()], [*texts])
    compare(HybridIndex(models[0], tmp_path, sparse_model=models[1]), models, [*texts.values()], [*texts])


def test_a_document_is_the_maximum_of_its_passages(models: Any) -> None:
    index = HybridIndex(models[0], sparse_model=models[1])
    long = " ".join(TEXTS)
    index.add([TEXTS[0], "", long], chunk=8)
    parts = [part.text([long]) for part in split(models[0], [long], 8)]
    weights = models[1].encode_document(parts).toarray().max(0)
    found = {result.id: result for result in index.search(QUERIES[0], by="sparse")[0]}
    assert found[2].score == pytest.approx((models[1].encode_query(QUERIES[0]) @ weights).item(), rel=1e-5)
    assert found[2].text == long
    values = max_of_passages(models[1].encode(TEXTS[:4], convert_to_tensor=True), np.array([0, 0, 2, 2]), 3)
    assert values == max_of_passages(models[1].encode(TEXTS[:4]), np.array([0, 0, 2, 2]), 3)


def test_what_does_not_fit(models: Any, tmp_path: Path) -> None:
    dense, sparse = models
    for first, second in ((sparse, None), (dense, dense)):
        with pytest.raises(ValueError, match="model gives sparse vectors, or sparse_model dense ones"):
            HybridIndex(first, sparse_model=second)
    with pytest.raises(ValueError, match="by='sparse' is unknown"):
        HybridIndex(dense).search("a", by="sparse")
    HybridIndex(dense, tmp_path, sparse_model=sparse).add(TEXTS[:2])
    for changed in (None, model_of("Roberta").float()):
        with pytest.raises(ValueError, match="was created with sparse_model="):
            HybridIndex(dense, tmp_path, sparse_model=changed)
