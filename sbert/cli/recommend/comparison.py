"""The systems one after another, with the estimate first; one that fails is noted, and the others go on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any, TypeVar

from sbert.cli.options import progress
from sbert.cli.recommend.collection import Collection
from sbert.cli.recommend.models import Model, check_memory
from sbert.cli.recommend.systems import System, Trial, weights
from sbert.cross_encoder import CrossEncoder
from sbert.encoder import SentenceEncoder
from sbert.pipeline.progress import progress_bar
from sbert.search import LateInteraction
from sbert.storage import hub
from sbert.storage.files import one_line

Result = TypeVar("Result")
_LATE = "late interaction"


class Comparison:
    """Measures the systems that models, words and rerankers make.

    Args:
        arguments: The options of the command.
        collection: What they are measured on.
    """

    def __init__(self, arguments: argparse.Namespace, collection: Collection) -> None:
        self._options, self._collection = arguments, collection
        self.systems: list[System] = []
        self.failed: dict[str, str] = {}

    def run(self, encoders: list[Model], rerankers: list[Model]) -> None:
        """Measure all systems, and fill ``systems`` and ``failed``."""
        encoders, rerankers, seconds = self._estimated(encoders, rerankers)
        queries, documents = len(self._collection.queries), len(self._collection.documents)
        total = len(encoders) * documents + self._pairs * (len(rerankers) + bool(encoders))
        if not self._options.quiet:
            took = f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"
            models = len(encoders) + len(rerankers)
            print(f"{queries:,} queries, {documents:,} documents, models: {models}; about {took}", file=sys.stderr)
        bar = progress_bar(progress(self._options), total=total, unit=" texts", leave=False)
        with nullcontext() if bar is None else closing(bar):
            self._measure(Trial(self._collection, (lambda _: None) if bar is None else bar.update), encoders, rerankers)

    @property
    def _pairs(self) -> int:
        """Number of pairs of a query and a document that are reranked."""
        count: int = self._options.rerank
        return len(self._collection.queries) * min(count, len(self._collection.documents))

    def _measure(self, trial: Trial, encoders: list[Model], rerankers: list[Model]) -> None:
        for model in encoders:
            self._try(model.name, self._vectors, trial, model)
        vectors = [*self.systems]
        for language in dict.fromkeys((None, self._options.language)):
            self._try("BM25" if language is None else f"BM25 {language}", trial.words, language)
        words = max(self.systems[len(vectors) :], key=_quality, default=None)
        for system in vectors if words else ():
            self._try(f"{system.name} + BM25", trial.hybrid, system, words)
        if not self.systems or not self._options.rerank:
            return
        base = max(self.systems, key=_quality)
        for model in rerankers:
            self._try(model.name, self._reranked, trial, base, model)
        if vectors:
            best = max(vectors, key=_quality)
            if self._is_short(_LATE, self._pairs * best.document_seconds):
                self._try(_LATE, self._late, trial, base, best)

    def _vectors(self, trial: Trial, model: Model) -> System:
        return trial.vectors(*model, self._encoder(model))

    def _reranked(self, trial: Trial, base: System, model: Model) -> System:
        """The results of a system, ranked again by a cross-encoder."""
        reranker = self._reranker(model)
        return trial.reranked(base, *model, reranker, self._options.rerank, weights(reranker))

    def _late(self, trial: Trial, base: System, best: System) -> System:
        """The results of a system, ranked again by the token vectors of the best encoder."""
        known, source = best in (base, *base.parts), str(best.model)
        reranker = LateInteraction(self._encoder(Model(best.name, source)))
        name, size = (_LATE, 0) if known else (f"{_LATE} of {best.name}", best.model_bytes)
        return trial.reranked(base, name, source, reranker, self._options.rerank, size)

    def _try(self, name: str, measure: Callable[..., System], *arguments: Any) -> None:
        system = self._attempt(name, measure, *arguments)
        if system is not None:
            self.systems.append(system)

    def _attempt(self, name: str, action: Callable[..., Result], *arguments: Any) -> Result | None:
        """What an action returns; None, and a note of the reason, if it fails."""
        try:
            return action(*arguments)
        except Exception as error:
            self.failed[name] = one_line(error)
            return None

    # ---------------------------------------------------------------------------------------------------- models

    def _load(self, kind: Any, model: Model, organisation: str) -> Any:
        try:
            folder = hub.resolve(model.source, organisation=organisation, local_files_only=True)
        except FileNotFoundError:
            folder = hub.resolve(model.source, organisation=organisation)
        check_memory(folder)
        return kind(folder, device=self._options.device, dtype=self._options.dtype)

    def _encoder(self, model: Model) -> SentenceEncoder:
        encoder: SentenceEncoder = self._load(SentenceEncoder, model, "sentence-transformers")
        return encoder

    def _reranker(self, model: Model) -> CrossEncoder:
        reranker: CrossEncoder = self._load(CrossEncoder, model, "cross-encoder")
        if reranker.classes != 1:
            raise ValueError(f"it gives {reranker.classes} scores per pair, and a reranker gives one")
        return reranker

    # ------------------------------------------------------------------------------------------------- estimates

    def _estimated(self, encoders: list[Model], rerankers: list[Model]) -> tuple[list[Model], list[Model], float]:
        """The models that are fast enough, and the seconds that all of them need."""
        trial = Trial(self._collection, lambda _: None)
        encoding = self._short(encoders, lambda model: trial.encoding_seconds(self._encoder(model)))
        ranking = self._short(rerankers, lambda model: self._pairs * trial.pair_seconds(self._reranker(model)))
        # Late interaction encodes what it reranks, in the worst case with the slowest encoder.
        late = max(encoding.values(), default=0) / len(self._collection.documents) * self._pairs
        return list(encoding), list(ranking), sum((late, *encoding.values(), *ranking.values()))

    def _short(self, models: list[Model], estimate: Callable[[Model], float]) -> dict[Model, float]:
        """The estimated seconds of the models that do not take too long."""
        seconds = {model: self._attempt(model.name, estimate, model) for model in models}
        return {model: x for model, x in seconds.items() if x is not None and self._is_short(model.name, x)}

    def _is_short(self, name: str, seconds: float) -> bool:
        """Whether a model takes no longer than ``--minutes``; otherwise this is noted."""
        if seconds <= 60 * self._options.minutes:
            return True
        self.failed[name] = f"it would take {seconds / 60:.0f} minutes; pass a greater --minutes, or fewer --documents"
        return False


def _quality(system: System) -> float:
    return float(system.ndcg.mean())
