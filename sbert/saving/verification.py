"""Reference vectors of a few texts, saved with a model, to detect later changes of its vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TypedDict

import numpy as np
import numpy.typing as npt

# Accents, several scripts, digits, punctuation, white space and capitals: everything that tokenizers normalize.
REFERENCE_TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Ünïcödé, naïve café: 3.14 × 2 = 6.28 (50 %)!",
    "  white\tspace \n and CAPITALS  ",
    "문장의 의미를 벡터로 나타낸다. 文の意味 смысл предложения",
    "def f(x): return x**2  # code_with_underscores",
]
# Texts of 1 to 600 words, by whose vectors what runs in other programs, or in int8, is compared with ``encode``.
_WORDS = (
    "The night train to Čadca left at ten past nine, and no one on platform 3 had told the baker's DAUGHTER that her"
    " trunk, with two hundred letters and a clock, was still in the waiting room; 東京 was far away. Why worry?"
).split()
_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24, 28, 33, 40, 60, 600)
COMPARED_TEXTS = [" ".join((_WORDS * 20)[3 * i :][:count]) for i, count in enumerate(_COUNTS)]
# The lowest rank correlation of their similarities in int8 with those in float32. On STS benchmark, all-MiniLM-L6-v2
# has 82.03 in float32: 82.04 where it is 0.998, 81.96 at 0.997, 81.78 at 0.993, 81.72 at 0.990, 80.26 at 0.967.
_LEAST = 0.99
_PACKAGES = ("sbert", "torch", "transformers", "tokenizers")


class Reference(TypedDict):
    """Texts, their vectors when the model was saved, and the versions of packages then."""

    texts: list[str]
    vectors: npt.NDArray[np.float32]
    versions: dict[str, str]


@dataclass(frozen=True)
class Verification:
    """The difference between a model's vectors now and those it was saved with.

    Args:
        max_difference: Largest absolute difference in any dimension.
        tolerance: Largest difference that still counts as equal.
        versions: Packages whose version has changed, with the versions then and now.
    """

    max_difference: float
    tolerance: float
    versions: dict[str, tuple[str, str]]

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.max_difference <= self.tolerance

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        changed = ", ".join(f"{name} {then} → {now}" for name, (then, now) in self.versions.items())
        return (
            f"{'same' if self.ok else 'DIFFERENT'} vectors: max difference {self.max_difference:.1e}"
            f" (tolerance {self.tolerance:.0e});"
            f" versions changed since saving: {changed or 'none'}"
        )


@cache  # Each version is read from a long file.
def versions() -> dict[str, str]:
    """Versions of the packages that a vector depends on."""
    return {name: version(name) for name in _PACKAGES}


def record(vectors: npt.NDArray[np.float32]) -> Reference:
    """The data to save for ``REFERENCE_TEXTS``. Shape of vectors: (texts, dim)."""
    return {"texts": REFERENCE_TEXTS, "vectors": vectors, "versions": versions()}


def compare_int8(vectors: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """Spearman's rank correlation of the cosine similarities of all pairs of texts in int8 with those in float32.

    Args:
        vectors: Vectors in int8.
        expected: Those of the same texts in float32.

    Shape:
        vectors, expected: (texts, dim).

    Raises:
        ValueError: If it is below 0.99.
    """
    directions = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors, expected)]
    cosines = [(rows @ rows.T)[np.triu_indices(len(rows), 1)] for rows in directions]
    correlation = float(np.corrcoef([values.argsort().argsort() for values in cosines])[0, 1])
    if not correlation >= _LEAST:
        raise ValueError(f"int8 changes similarities too much: rank correlation {correlation:.3f}; use float32")
    return correlation


def compare_vectors(recorded: Reference, vectors: npt.NDArray[np.float32], tolerance: float) -> Verification:
    """Compare vectors with the recorded ones of the same texts."""
    before = recorded["vectors"]
    if before.shape != vectors.shape:
        raise ValueError(f"vectors of shape {vectors.shape} now, {before.shape} when saved; load the saved model")
    changed = {k: (str(v), now) for k, v in recorded["versions"].items() if (now := versions().get(k, v)) != v}
    return Verification(float(np.abs(before - vectors).max()), tolerance, changed)
