"""scikit-learn: texts to vectors as a step of a pipeline.

>>> from sklearn.linear_model import LogisticRegression
>>> from sklearn.pipeline import make_pipeline
>>> from sbert.integrations.sklearn import SentenceVectors
>>> classifier = make_pipeline(SentenceVectors(), LogisticRegression())
>>> _ = classifier.fit(["A good film.", "A bad film."], [1, 0])
>>> classifier.predict(["A very good film."])
array([1])
>>> SentenceVectors(truncate_dim=2).set_output(transform="pandas").fit_transform(["A good film."]).columns.tolist()
['sentencevectors0', 'sentencevectors1']

SetFit's method, for a few labelled examples, is to train the encoder on pairs of equal and of different labels first:

>>> from itertools import combinations
>>> from sbert import SentenceEncoder, Trainer, TrainingConfig
>>> from sbert.losses import CosineSimilarityLoss
>>> texts, labels = ["Good.", "Great.", "Bad.", "Awful."], [1, 1, 0, 0]
>>> rows = list(zip(texts, labels))
>>> pairs = [(a, b, float(first == second)) for (a, first), (b, second) in combinations(rows, 2)]
>>> encoder = SentenceEncoder(device="cpu")
>>> _ = Trainer(encoder, pairs, CosineSimilarityLoss(), TrainingConfig(steps=5)).fit(show_progress_bar=False)
>>> make_pipeline(SentenceVectors(encoder), LogisticRegression()).fit(texts, labels).predict(["Fine."])
array([1])

- A grid search encodes the texts again for every fold and setting: if the settings of this step stay the same, search
  with the classifier alone, over ``model.encode(texts)``.
- Clones share the encoder, so its weights are in memory once; ``n_jobs=`` with processes copies it to each of them.
- A pickle of the pipeline contains the encoder; with a name in its place, that of the fitted one, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sbert.integrations.loading import load_encoder


class SentenceVectors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The vectors of a ``SentenceEncoder``, for pipelines and grid searches, whose clones share the encoder.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        prompt_name: As in ``encode``.
        normalize_embeddings: As in ``encode``.
        truncate_dim: As in ``encode``.
    """

    def __init__(
        self,
        model: Any = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> None:
        self.model = model
        self.prompt_name = prompt_name
        self.normalize_embeddings = normalize_embeddings
        self.truncate_dim = truncate_dim

    def fit(self, texts: Any, labels: Any = None) -> SentenceVectors:  # noqa: ARG002
        """Load the model."""
        self.encoder_ = load_encoder(self.model)
        return self

    def transform(self, texts: Any) -> npt.NDArray[np.float32]:
        """One vector per text. Shape: (texts, dim).

        Raises:
            NotFittedError: If ``fit`` has not loaded the model.
        """
        check_is_fitted(self, "encoder_")
        vectors: npt.NDArray[np.float32] = self.encoder_.encode(
            texts,
            prompt_name=self.prompt_name,
            normalize_embeddings=self.normalize_embeddings,
            truncate_dim=self.truncate_dim,
        )
        return vectors

    @property
    def _n_features_out(self) -> int:
        dim: int = self.encoder_.get_sentence_embedding_dimension()
        return min(dim, self.truncate_dim or dim)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
