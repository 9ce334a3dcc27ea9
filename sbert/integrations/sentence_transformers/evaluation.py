"""Their ``evaluation``: our evaluators with their arguments, and with their names of the metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

from sbert import evaluation
from sbert.data.retrieval_data import read_hub_retrieval
from sbert.distributed.ranks import ALONE
from sbert.evaluation.evaluator import write_line
from sbert.integrations.sentence_transformers.forms import SignatureAdapter, SimilarityFunction, offer, similarity_name


class EvaluatorSpec(NamedTuple):
    """How one of their evaluators is made with ours.

    Args:
        make: Our evaluator, or a function that makes it.
        metric: Their name of a metric, as a format of ``similarity`` and ``name``, or its ``part`` and ``last``.
        primary: The metric that decides, by our name.
        renamed: Metrics whose name is another one.
    """

    make: Callable[..., evaluation.Evaluator]
    metric: str
    primary: str
    renamed: Mapping[str, str] = {}


class SentenceEvaluator:
    """An evaluator of the caller: ``__call__(model, output_path, epoch, steps)`` returns a score, or several by name.

    ``primary_metric`` is the name of the score that decides.
    """

    greater_is_better = True
    primary_metric: str | None = None

    def __init__(self) -> None: ...

    def __call__(self, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __call__(self, model, output_path, epoch, steps)")

    def prefix_name_to_metrics(self, metrics: Mapping[str, float], name: str) -> dict[str, float]:
        """The metrics with a name in front, also that of the primary one."""
        prefix = f"{name}_" if name else ""
        if self.primary_metric and not self.primary_metric.startswith(prefix):
            self.primary_metric = prefix + self.primary_metric
        return {prefix + metric: float(value) for metric, value in metrics.items()}

    def store_metrics_in_model_card_data(self, *_: Any) -> None:
        """Nothing: the trainer notes the metrics."""


class CalledByPath(SentenceEvaluator, evaluation.Evaluator):
    """An evaluator that is called as theirs are: ``evaluator(model, output_path, epoch, steps)``."""

    file_name: str = "sequential_results.csv"
    write_csv: bool = True

    def __call__(self, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1, **options: Any) -> Any:
        """The metrics by their names; with ``output_path``, also as a line of a CSV file in that folder."""
        metrics = evaluation.Evaluator.__call__(self, model, **options)
        if output_path is not None and self.write_csv:
            path = os.path.join(output_path, self.file_name)
            line = {"epoch": epoch, "steps": steps, **metrics}
            options.get("ranks", ALONE).run_on_main(lambda: write_line(path, line))
        return metrics


class NamedEvaluator(CalledByPath):
    """An evaluator of ours under one of their names, whose arguments are its attributes.

    ``primary_metric`` is the name of the metric that decides, known after the first call.
    """

    adapter: SignatureAdapter
    spec: EvaluatorSpec

    def __init__(self, *args: Any, **options: Any) -> None:
        arguments = self.adapter.bind(args, options)
        vars(self).update(arguments)
        options = self.adapter.translate(arguments)
        self.name: str = options.pop("name", "")
        self.file_name = "_".join(filter(None, (self.adapter.name, self.name, "results.csv")))
        self.write_csv = options.pop("write_csv", True)
        self._dim: int | None = options.pop("truncate_dim", None)
        main, similarities = options.pop("main", None), options.pop("similarities", None)
        if similarities is not None and not isinstance(similarities, Mapping):
            similarities = {similarity_name(similarity): similarity for similarity in similarities}
        self._main: str | None = main
        self._similarities: Mapping[str, Any] = similarities or ({} if main is None else {main: main})
        self._options = options
        if "{similarity}" not in self.spec.metric:
            self.spec.make(**options)  # Errors are raised now, and not at the end of an epoch.

    @classmethod
    def from_input_examples(cls, examples: Iterable[Any], **options: Any) -> Any:
        """The evaluator of rows as objects, with their labels if it takes them."""
        rows = list(examples)
        labels = [row.label for row in rows]
        if next(iter(cls.adapter.parameters)) == "sentence_pairs":
            return cls([row.texts for row in rows], labels, **options)
        columns = list(zip(*(row.texts for row in rows), strict=True))
        return cls(*map(list, columns), *([labels] if len(columns) == 2 else []), **options)

    def measure(self, vectors: evaluation.ModelVectors) -> dict[str, float]:
        """The metrics by their names, the one that decides first."""
        model, results = vectors._model, {}
        if self._dim is not None:
            vectors = evaluation.ModelVectors(model, vectors.ranks, vectors.show_progress_bar)
        default = getattr(model, "similarity_fn_name", "cosine")
        similarities = self._similarities or {default: default}
        with nullcontext() if self._dim is None else model.truncate_embeddings(self._dim):
            for label, similarity in similarities.items():
                chosen = {"similarity": similarity_name(similarity)} if "{similarity}" in self.spec.metric else {}
                metrics = self.spec.make(**self._options, **chosen).measure(vectors)
                results[label] = {self.spec.renamed.get(name, name): value for name, value in metrics.items()}
        if len(results) > 1:
            listed = list(results.values())
            results["max"] = {name: max(metrics[name] for metrics in listed) for name in listed[0]}
        by_name = {self._metric_name(name, of): value for of in results for name, value in results[of].items()}
        label = self._main or next(reversed(results))
        primary = [name for name in results[label] if name.startswith(self.spec.primary)]
        self.primary_metric = self._metric_name(primary[-1 if self.spec.primary else 0], label)
        return {self.primary_metric: by_name.pop(self.primary_metric), **by_name}

    def _metric_name(self, metric: str, label: str) -> str:
        form = self.spec.metric
        if label == "max" and form == "{similarity}_{name}":
            form = "max_{name}"
        part, _, last = metric.rpartition("_")
        part = "NanoBEIR_mean" if part == "mean" else part
        return "_".join(filter(None, (self.name, form.format(name=metric, similarity=label, part=part, last=last))))


def _measure(evaluator: Any, vectors: evaluation.ModelVectors, name: str) -> Mapping[str, float]:
    """The scores of an evaluator, the one that decides first."""
    if isinstance(evaluator, evaluation.Evaluator):
        return evaluator.measure(vectors)
    result = evaluator(vectors._model)
    scores = result if isinstance(result, Mapping) else {name: result}
    primary = getattr(evaluator, "primary_metric", None) or next(iter(scores))
    return {primary: scores[primary], **scores}


class SequentialEvaluator(CalledByPath):
    """Several evaluators one after the other; ``main_score_function`` makes one score of their primary ones.

    Texts that they have in common are encoded once.
    """

    primary_metric = "sequential_score"

    def __init__(
        self, evaluators: Iterable[Any], main_score_function: Callable[[list[float]], float] = lambda scores: scores[-1]
    ) -> None:
        self.evaluators = list(evaluators)
        self._main = main_score_function

    def measure(self, vectors: evaluation.ModelVectors) -> dict[str, float]:
        """The metrics of all, after the score."""
        parts = [_measure(part, vectors, f"evaluator_{number}") for number, part in enumerate(self.evaluators)]
        score = self._main([next(iter(metrics.values())) for metrics in parts])
        return {"sequential_score": score, **{name: value for metrics in parts for name, value in metrics.items()}}


def _paraphrases(texts: Mapping[Any, str], pairs: Iterable[Any] | None, by_id: Any, **more: Any) -> Any:
    positions = {name: position for position, name in enumerate(texts)}
    ids = list(pairs or ()) + [
        (first, second) for first in by_id or {} for second, same in by_id[first].items() if same
    ]
    duplicates = [(positions[first], positions[second]) for first, second in ids]
    return evaluation.ParaphraseMiningEvaluator(texts.values(), duplicates, **more)


class _PercentError(evaluation.MSEEvaluator):
    """Theirs is a hundred times the error, without the cosine."""

    def measure(self, vectors: evaluation.ModelVectors) -> dict[str, float]:
        return {"negative_mse": 100 * super().measure(vectors)["negative_mse"]}


NANOBEIR = (
    "ClimateFEVER DBPedia FEVER FiQA2018 HotpotQA MSMARCO NFCorpus NQ QuoraRetrieval SCIDOCS ArguAna SciFact Touche2020"
)


def _find_nanobeir(folder: str, names: Iterable[str] | None) -> tuple[str, list[str] | None]:
    """A folder, which is downloaded if it is a repository of the hub, and our names of the data sets."""
    if not os.path.isdir(folder):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(folder, repo_type="dataset")
    full_names = {name.lower(): f"Nano{name}" for name in NANOBEIR.split()}
    return folder, None if names is None else [full_names.get(name.lower(), name) for name in names]


def read_nanobeir(folder: str, names: Iterable[str] | None) -> Any:
    """The data sets by name: queries, corpus, relevant documents and candidates."""
    return read_hub_retrieval(*_find_nanobeir(folder, names))


def _nanobeir(dataset_names: Iterable[str] | None, dataset_id: str, **more: Any) -> evaluation.Evaluator:
    return evaluation.NanoBEIRSuite(*_find_nanobeir(dataset_id, dataset_names), **more)


def _retrieval(similarity: str, **options: Any) -> evaluation.Evaluator:
    for query, document in (("query_prompt_name", "query_prompt"), ("corpus_prompt_name", "document_prompt")):
        name = options.pop(query, None)
        options[document] = options.get(document) if name is None else name
    return evaluation.RetrievalEvaluator(similarity=similarity, **options)


def evaluator_class(of: str, spec: EvaluatorSpec) -> Any:
    """The class of an evaluator under their name."""
    return SignatureAdapter(of).make_class((NamedEvaluator,), spec=spec, __module__=__name__)


_DIRECTIONS = {"source_to_target": "src2trg_accuracy", "target_to_source": "trg2src_accuracy"}
_SPECS = {
    "EmbeddingSimilarityEvaluator": EvaluatorSpec(evaluation.SimilarityEvaluator, "{name}_{similarity}", "spearman"),
    "BinaryClassificationEvaluator": EvaluatorSpec(
        evaluation.PairClassificationEvaluator, "{similarity}_{name}", "ap", {"average_precision": "ap"}
    ),
    "TripletEvaluator": EvaluatorSpec(evaluation.TripletEvaluator, "{similarity}_{name}", "accuracy"),
    "InformationRetrievalEvaluator": EvaluatorSpec(_retrieval, "{similarity}_{name}", "ndcg@"),
    "RerankingEvaluator": EvaluatorSpec(evaluation.RerankingEvaluator, "{name}", "ndcg@"),
    "ParaphraseMiningEvaluator": EvaluatorSpec(_paraphrases, "{name}", "average_precision"),
    "TranslationEvaluator": EvaluatorSpec(evaluation.TranslationEvaluator, "{name}", "mean_accuracy", _DIRECTIONS),
    "MSEEvaluator": EvaluatorSpec(_PercentError, "{name}", "negative_mse"),
    "NanoBEIREvaluator": EvaluatorSpec(_nanobeir, "{part}_{similarity}_{last}", "mean_ndcg@"),
}
globals().update({name: evaluator_class(f"evaluation.{name}", spec) for name, spec in _SPECS.items()})
BaseEvaluator = SentenceEvaluator
__all__ = [*_SPECS, "BaseEvaluator", "SentenceEvaluator", "SequentialEvaluator", "SimilarityFunction"]
offer(__name__)
