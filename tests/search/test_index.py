"""An index is semantic search under the user's ids, and its folder is whole at any moment."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from sbert.pipeline.quantization import calibrate, quantize
from sbert.search import Index, semantic_search
from tests.vector_files.samples import fill_disk


def vectors(rows: int, dim: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_search_is_semantic_search(similarity: str, tmp_path: Path) -> None:
    """However the rows were added, with ids of both kinds, before and after saving."""
    corpus, queries = vectors(700), vectors(5, seed=1)
    names = [f"row {row}\0" for row in range(700)]
    expected = semantic_search(queries, corpus, 7, similarity=similarity)
    for ids in (None, names):
        index, low = Index(similarity=similarity), 0
        for rows in (1, 1, 300, 2, 0, 396):
            index.add(corpus[low : low + rows], None if ids is None else ids[low : low + rows])
            low += rows
        index.save(tmp_path / "index")
        again = Index.load(tmp_path / "index")
        assert isinstance(again._blocks[0], np.memmap)
        for opened in (index, again):
            found = opened.search(queries, 7)
            np.testing.assert_array_equal(found.scores, expected.scores)
            wanted = expected.indices if ids is None else np.array(names, object)[expected.indices]
            np.testing.assert_array_equal(found.ids, wanted)
            assert found.ids.dtype == (np.int64 if ids is None else object)
            assert (len(opened), opened.dim, opened.similarity) == (700, 12, similarity)


@pytest.mark.parametrize("precision", ["int8", "binary", "ubinary"])
def test_fewer_bits(precision: str, tmp_path: Path) -> None:
    corpus, queries = vectors(300), vectors(4, seed=1)
    ranges = calibrate(corpus) if precision == "int8" else None
    codes = quantize(torch.from_numpy(corpus), precision, ranges)
    expected = semantic_search(queries, codes, 9, ranges=ranges)
    index = Index(precision=precision, ranges=ranges)
    index.add(corpus)
    index.save(tmp_path / "index")
    for opened in (index, Index.load(tmp_path / "index")):
        found = opened.search(torch.from_numpy(queries), 9)
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.ids, expected.indices)


def test_ids_are_given_once() -> None:
    index = Index()
    index.add(vectors(3), [5, np.int64(-2), 9])
    for ids, error, message in (
        ([1, 1], ValueError, r"ids\[1\]=1 is given twice; nothing was added"),
        ([1, 9], ValueError, r"ids\[1\]=9 is in the index already; remove it first"),
        ([1], ValueError, "1 ids and 2 vectors were given"),
        ([1, "a"], TypeError, r"ids\[1\]='a', but other ids are like 5"),
        ([1, True], TypeError, r"ids\[1\]=True is of type bool"),
        ([1, 2.0], TypeError, r"ids\[1\]=2.0 is of type float"),
        ([1, 2**63], ValueError, r"ids\[1\]=9223372036854775808 does not fit 64 bits"),
        ("ab", TypeError, "ids='ab' is of type str; pass a list of ids"),
    ):
        with pytest.raises(error, match=message):  # type: ignore[call-overload]
            index.add(vectors(2), ids)
        assert len(index) == 3
    index.add(vectors(2))
    assert list(index._ids.ids) == [5, -2, 9, 10, 11]
    index.remove([11])
    index.add(vectors(1))  # Not 11 again, which a caller may still refer to.
    assert 12 in index
    assert 11 not in index


def test_removed_and_added_again(tmp_path: Path) -> None:
    corpus = vectors(60)
    index = Index()
    index.add(corpus[:40])
    index.save(tmp_path / "index")
    index = Index.load(tmp_path / "index")
    index.add(corpus[40:])
    index.remove(range(0, 60, 2))
    found = index.search(corpus, 1)
    np.testing.assert_array_equal(found.ids[1::2, 0], np.arange(1, 60, 2))
    assert not (found.ids % 2 == 0).any()
    index.save(tmp_path / "index")  # In the place of the file that is mapped.
    np.testing.assert_array_equal(Index.load(tmp_path / "index").search(corpus, 1).ids, found.ids)
    with pytest.raises(KeyError, match="2 is not an id of the index; nothing was removed"):
        index.remove([1, 2])
    index.remove(range(1, 60, 2))
    assert (len(index), index.search(corpus[0]).ids.shape) == (0, (1, 0))


def test_lengths_are_those_of_the_rows_that_remain() -> None:
    """Rows that take the place of others are not searched with their lengths, which a search has kept."""
    corpus, added, index = vectors(4000), vectors(2000, seed=1), Index()
    corpus[:2000] *= 1000  # With these lengths, products would be too small to be candidates.
    index.add(corpus)
    index.search(corpus[0])
    assert index._norms
    index.remove(range(2000))
    index.add(added)
    expected = semantic_search(corpus[3500], np.concatenate([corpus[2000:], added]), 5)
    found = index.search(corpus[3500], 5)
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.ids, expected.indices + 2000)


def test_what_is_empty_or_does_not_fit(tmp_path: Path) -> None:
    index = Index()
    index.save(tmp_path / "index")
    for opened in (index, Index.load(tmp_path / "index")):
        assert opened.search(vectors(2)).scores.shape == (2, 0)
        added = vectors(2)
        opened.add(added)
        expected = opened.search(vectors(3), 10).scores.copy()
        added[:] = 0  # It is the caller's.
        np.testing.assert_array_equal(opened.search(vectors(3), 10).scores, expected)
        assert opened.search(vectors(3), 10).ids.shape == (3, 2)
        assert opened.search(np.empty((0, 12))).ids.shape[0] == 0
        with pytest.raises(ValueError, match="dim 7, the index 12"):
            opened.add(vectors(1, 7))
        with pytest.raises(ValueError, match=r"vectors\[0\] has a NaN or a value that is infinite as float32"):
            opened.add(np.array([[0.0] * 11 + [1e300]]))
        with pytest.raises(ValueError, match="the queries have dim 7, the index 12"):
            opened.search(vectors(1, 7))
        assert len(opened) == 2


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, path = Index(), tmp_path / "index"
    index.add(np.eye(2, 3, dtype=np.float32))
    index.save(path)
    index.add(np.eye(2, 3, dtype=np.float32))
    for room in count():
        with monkeypatch.context() as patch, suppress(OSError):
            fill_disk(patch, room)
            index.save(path)
            break
        assert len(Index.load(path)) == 2
        assert os.listdir(tmp_path) == ["index"]
    assert len(Index.load(path)) == 4
    assert room > 3


def test_nothing_of_others_is_taken_away(tmp_path: Path) -> None:
    index = Index()
    index.add(vectors(3), ["a", "b", "\udcff"])
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        Index.load(tmp_path / "index")
    index.save(tmp_path / "mine")
    for name in ("mine/notes", "new/notes", "model/modules.json", "vectors/vectors.npy", "other/index.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
        before = sorted((tmp_path / name).parent.iterdir())
        with pytest.raises(ValueError, match="not part of an index, and saving would delete it; save to another"):
            index.save((tmp_path / name).parent)
        assert sorted((tmp_path / name).parent.iterdir()) == before
    with pytest.raises(ValueError, match="is a file"):
        index.save(tmp_path / "mine" / "notes")
    (tmp_path / "mine" / "notes").unlink()
    assert "\udcff" in Index.load(tmp_path / "mine")
