"""The similarity of pairs of texts, by a model's vectors or by its scores; and SimilarityEvaluator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sbert.evaluation.checks import check_finite, check_lengths
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metrics import pearson, spearman
from sbert.evaluation.vectors import Floats, Vectors
from sbert.functional import SIMILARITIES, check_similarity, pairwise_similarity
from sbert.inputs.texts import texts_of

Similarity = str | Iterable[str]

# Pairs compared at a time: float64 copies of all of them would take much memory.
_STEP = 4096


class PairEvaluator(Evaluator):
    """Measures how well the similarities of pairs agree with what is known about the pairs.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with several, each metric is computed
            for each, with its name as a prefix.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.
        known: What is known about each pair, by name.

    Raises:
        ValueError: If the lengths differ, there are fewer than two pairs, or the similarity is unknown.
        TypeError: If a text is not a str.
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        similarity: Similarity,
        prompt: str | None,
        **known: npt.NDArray[np.generic],
    ) -> None:
        self._first, self._second, self._prompt = texts_of(first, "first"), texts_of(second, "second"), prompt
        check_lengths(2, first=self._first, second=self._second, **known)
        self._similarities = name_similarities(similarity)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The metrics for each similarity."""
        scores = compare(vectors, self._first, self._second, self._similarities, self._prompt)
        return {f"{prefix}{name}": value for prefix, own in scores.items() for name, value in self.metrics(own).items()}

    @abstractmethod
    def metrics(self, similarities: Floats) -> dict[str, float]:
        """The metrics by name, from the similarity of each pair."""


class SimilarityEvaluator(PairEvaluator):
    """Spearman's and Pearson's correlation between the similarity of two texts and a reference score.

        spearman( cos(u_i, v_i), score_i )

    For a ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        scores: The reference score of each pair, on any scale; higher means more similar.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with several, metrics are called
            ``cosine_spearman`` and so on.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, there are fewer than two pairs, a score is not finite, all scores are equal,
            or the similarity is unknown.
        TypeError: If a text is not a str.

    References:
        Reimers and Gurevych, 2019, section 4. https://arxiv.org/abs/1908.10084

    Example:
        >>> evaluator = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> evaluator(model)["spearman"]
        1.0
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        scores: Iterable[float],
        similarity: Similarity = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self._scores = np.array(list(scores), float)
        super().__init__(first, second, similarity, prompt, scores=self._scores)
        check_finite("scores", self._scores)
        if np.all(self._scores == self._scores[0]):
            raise ValueError(f"every score is {self._scores[0]:g}, so there is no correlation; pass different scores")

    def metrics(self, similarities: Floats) -> dict[str, float]:
        """Both correlations."""
        return {"spearman": spearman(similarities, self._scores), "pearson": pearson(similarities, self._scores)}


def name_similarities(similarity: Similarity) -> dict[str, str]:
    """The similarities by the prefix of the names of their metrics, which is empty if there is only one as a str.

    Raises:
        ValueError: If one is unknown, or there are none.
    """
    names = {"": similarity} if isinstance(similarity, str) else {f"{name}_": name for name in similarity}
    if not names:
        raise ValueError("similarity is empty; pass the name of one similarity, or several")
    return {prefix: check_similarity(name) for prefix, name in names.items()}


def score_pairs(vectors: Vectors, first: Sequence[str], second: Sequence[str]) -> Floats:
    """A cross-encoder's scores of pairs.

    Shape:
        Output: (pairs,).

    Raises:
        ValueError: If the model gives several scores per pair.
    """
    scores = vectors.score_pairs(first, second)
    if scores.ndim > 1:
        raise ValueError(
            f"the model gives {scores.shape[1]} scores per pair, but one is needed; measure it with LabelEvaluator, or"
            " use a model with classes=1"
        )
    return scores


def compare(
    vectors: Vectors,
    first: Sequence[str],
    second: Sequence[str],
    similarities: dict[str, str],
    prompt: str | None = None,
) -> dict[str, Floats]:
    """The scores of pairs by each similarity; for a cross-encoder, only its own scores.

    Shape:
        Output: (pairs,) each.
    """
    if vectors.is_cross_encoder:
        return {"": score_pairs(vectors, first, second)}
    table = vectors([*first, *second], prompt=prompt)  # (2 * pairs, dim)
    halves = table[: len(first)], table[len(first) :]
    return {prefix: _exact(*halves, name) for prefix, name in similarities.items()}


def score_candidates(
    vectors: Vectors,
    queries: Sequence[str],
    candidates: Sequence[Sequence[str]],
    similarities: dict[str, str],
    prompts: tuple[str | None, str | None],
) -> dict[str, list[Floats]]:
    """The scores of each query's own candidates by each similarity; for a cross-encoder, only its own scores.

    Shape:
        Output: (candidates of the query,) for each query.
    """
    texts = [text for own in candidates for text in own]
    if vectors.is_cross_encoder:
        first = [query for query, own in zip(queries, candidates, strict=True) for _ in own]
        ends = np.cumsum([len(own) for own in candidates])[:-1]
        return {"": np.split(score_pairs(vectors, first, texts), ends)}
    asked = vectors(queries, "query", prompts[0])  # (queries, dim)
    vectors(texts, "document", prompts[1])  # One call that encodes all texts; later calls read those of one query.
    scores: dict[str, list[Floats]] = {prefix: [] for prefix in similarities}
    for query, own in zip(asked, candidates, strict=True):
        documents = vectors(own, "document", prompts[1])
        for prefix, name in similarities.items():
            scores[prefix].append(SIMILARITIES[name](query, documents)[0])
    return scores


def _exact(first: Floats, second: Floats, name: str) -> Floats:
    """Similarities computed in float64, so that equal vectors have a cosine of exactly 1 and the same rank.

    In float32, their cosines would differ by about 1e-7, and their ranks would be random.

    Shape:
        first, second: (pairs, dim). Output: (pairs,).
    """
    scores = np.empty(len(first), np.float32)
    for start in range(0, len(first), _STEP):
        rows = slice(start, start + _STEP)
        scores[rows] = pairwise_similarity(first[rows].astype(float), second[rows].astype(float), name)
    return scores
