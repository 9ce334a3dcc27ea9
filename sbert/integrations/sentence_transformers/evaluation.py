"""Their ``evaluation``: our evaluators with their arguments, and with their names of the metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from sbert import evaluation
from sbert.distributed.ranks import ALONE
from sbert.evaluation.evaluator import write_line
from sbert.integrations.sentence_transformers.forms import Form, SimilarityFunction, absent, factories, similarity_name

BaseEvaluator = SentenceEvaluator = evaluation.Evaluator


class Kind(NamedTuple):
    """One of their evaluators.

    Args:
        make: Our evaluator, or a function that makes it.
        names: Their parameters, as in ``Form``.
        metric: Their name of a metric, as a format of ``similarity`` and ``name``, or its ``part`` and ``last``.
        primary: The metric that decides, by our name.
        renamed: Metrics whose name is another one.
    """

    make: Callable[..., evaluation.Evaluator]
    names: str
    metric: str
    primary: str
    renamed: Mapping[str, str] = {}


class CalledByPath(evaluation.Evaluator):
    """An evaluator that is called as theirs are: ``evaluator(model, output_path, epoch, steps)``."""

    file_name: str = "sequential_results.csv"
    write_csv: bool = True

    def __call__(self, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1, **options: Any) -> Any:
        """The metrics by their names; with ``output_path``, also as a line of a CSV file in that folder."""
        metrics = super().__call__(model, **options)
        if output_path is not None and self.write_csv:
            path = os.path.join(output_path, self.file_name)
            line = {"epoch": epoch, "steps": steps, **metrics}
            options.get("ranks", ALONE).run_on_main(lambda: write_line(path, line))
        return metrics


class NamedEvaluator(CalledByPath):
    """An evaluator of ours under one of their names.

    ``primary_metric`` is the name of the metric that decides, known after the first call.
    """

    def __init__(self, kind: Kind, label: str, **options: Any) -> None:
        self._kind = kind
        self.name: str = options.pop("name", "")
        self.file_name = "_".join(filter(None, (label, self.name, "results.csv")))
        self.write_csv = options.pop("write_csv", True)
        self._dim: int | None = options.pop("truncate_dim", None)
        main, similarities = options.pop("main", None), options.pop("similarities", None)
        if similarities is not None and not isinstance(similarities, Mapping):
            similarities = {similarity_name(each): each for each in similarities}
        if similarities is None and main is not None:
            similarities = {main: main}
        self._main: str | None = main
        self._similarities: Mapping[str, Any] | None = similarities or None
        self._options = options
        self.primary_metric: str = ""
        if "{similarity}" not in kind.metric:
            kind.make(**options)  # Errors are raised now, and not at the end of an epoch.

    def measure(self, vectors: evaluation.Vectors) -> dict[str, float]:
        """The metrics by their names, the one that decides first."""
        model, results = vectors._model, {}
        if self._dim is not None:
            vectors = evaluation.Vectors(model, vectors.ranks, vectors.show_progress_bar)
        default = getattr(model, "similarity_fn_name", "cosine")
        similarities = self._similarities or {default: default}
        with nullcontext() if self._dim is None else model.truncate_embeddings(self._dim):
            for label, similarity in similarities.items():
                own = {"similarity": similarity_name(similarity)} if "{similarity}" in self._kind.metric else {}
                metrics = self._kind.make(**self._options, **own).measure(vectors)
                results[label] = {self._kind.renamed.get(name, name): value for name, value in metrics.items()}
        if len(results) > 1:
            every = list(results.values())
            results["max"] = {name: max(one[name] for one in every) for name in every[0]}
        label = self._main or next(reversed(results))
        by_name = {self._metric_name(name, each): value for each, one in results.items() for name, value in one.items()}
        primary = [name for name in results[label] if name.startswith(self._kind.primary)]
        self.primary_metric = self._metric_name(primary[-1 if self._kind.primary else 0], label)
        return {self.primary_metric: by_name.pop(self.primary_metric), **by_name}

    def _metric_name(self, metric: str, label: str) -> str:
        own = self._kind.metric
        if label == "max" and own == "{similarity}_{name}":
            own = "max_{name}"
        part, _, last = metric.rpartition("_")
        part = "NanoBEIR_mean" if part == "mean" else part
        return "_".join(filter(None, (self.name, own.format(name=metric, similarity=label, part=part, last=last))))


class SequentialEvaluator(CalledByPath):
    """Several evaluators in turn; ``main_score_function`` makes one score of their primary ones.

    Texts that they have in common are encoded once.
    """

    primary_metric = "sequential_score"

    def __init__(
        self, evaluators: Iterable[Any], main_score_function: Callable[[list[float]], float] = lambda scores: scores[-1]
    ) -> None:
        self.evaluators = list(evaluators)
        self._main = main_score_function

    def measure(self, vectors: evaluation.Vectors) -> dict[str, float]:
        """The metrics of all, after the score."""
        metrics = [evaluator.measure(vectors) for evaluator in self.evaluators]
        score = self._main([next(iter(one.values())) for one in metrics])
        return {"sequential_score": score, **{name: value for one in metrics for name, value in one.items()}}


def _paraphrases(texts: Mapping[Any, str], pairs: Iterable[Any] | None = None, known: Any = None, **more: Any) -> Any:
    positions = {name: position for position, name in enumerate(texts)}
    listed = list(pairs or ()) + [(one, other) for one in known or {} for other, same in known[one].items() if same]
    return evaluation.ParaphraseMiningEvaluator(
        texts.values(), [(positions[one], positions[other]) for one, other in listed], **{"top_k": 100, **more}
    )


class _PercentError(evaluation.MSEEvaluator):
    """Theirs is a hundred times the error, without the cosine."""

    def measure(self, vectors: evaluation.Vectors) -> dict[str, float]:
        return {"negative_mse": 100 * super().measure(vectors)["negative_mse"]}


_NANOBEIR = (
    "ClimateFEVER DBPedia FEVER FiQA2018 HotpotQA MSMARCO NFCorpus NQ QuoraRetrieval SCIDOCS ArguAna SciFact Touche2020"
)


def _nanobeir(
    similarity: str, dataset_names: Iterable[str] | None = None, dataset_id: str = "", **more: Any
) -> evaluation.Evaluator:
    """The suite of a folder, or of a repository of the hub, which is downloaded."""
    folder = dataset_id or "sentence-transformers/NanoBEIR-en"
    if not os.path.isdir(folder):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(folder, repo_type="dataset")
    known = {name.lower(): f"Nano{name}" for name in _NANOBEIR.split()}
    sets = None if dataset_names is None else [known.get(name.lower(), name) for name in dataset_names]
    return evaluation.NanoBEIRSuite(folder, sets, similarity=similarity, **more)


def _list_similarity(similarity: str, **options: Any) -> evaluation.Evaluator:
    for query, document in (("query_prompt_name", "query_prompt"), ("corpus_prompt_name", "document_prompt")):
        name = options.pop(query, None)
        options[document] = options.get(document) if name is None else name
    return evaluation.RetrievalEvaluator(similarity=similarity, **options)


COMMON = " name batch_size=- show_progress_bar=- write_csv truncate_dim "
_SIMILARITIES = "similarity_fn_names=similarities "
KINDS = {
    "EmbeddingSimilarityEvaluator": Kind(
        evaluation.SimilarityEvaluator,
        "sentences1=first sentences2=second scores batch_size=- main_similarity=main "
        f"{_SIMILARITIES}{COMMON} precision!",
        "{name}_{similarity}",
        "spearman",
    ),
    "BinaryClassificationEvaluator": Kind(
        evaluation.PairClassificationEvaluator,
        f"sentences1=first sentences2=second labels {COMMON}{_SIMILARITIES}",
        "{similarity}_{name}",
        "ap",
        {"average_precision": "ap"},
    ),
    "TripletEvaluator": Kind(
        evaluation.TripletEvaluator,
        f"anchors positives negatives main_similarity_function=main margin {COMMON}{_SIMILARITIES}",
        "{similarity}_{name}",
        "accuracy",
    ),
    "InformationRetrievalEvaluator": Kind(
        _list_similarity,
        "queries corpus relevant_docs=relevant corpus_chunk_size=block mrr_at_k=mrr_at ndcg_at_k=ndcg_at"
        " accuracy_at_k=accuracy_at precision_recall_at_k=precision_recall_at map_at_k=map_at show_progress_bar=-"
        f" batch_size=- {COMMON} score_functions=similarities main_score_function=main query_prompt query_prompt_name"
        " corpus_prompt=document_prompt corpus_prompt_name write_predictions!",
        "{similarity}_{name}",
        "ndcg@",
    ),
    "RerankingEvaluator": Kind(
        evaluation.RerankingEvaluator,
        f"samples at_k=k name write_csv similarity_fct=similarity {COMMON} use_batched_encoding=- mrr_at_k!",
        "{name}",
        "ndcg@",
    ),
    "ParaphraseMiningEvaluator": Kind(
        _paraphrases,
        "sentences_map=texts duplicates_list=pairs duplicates_dict=known add_transitive_closure! query_chunk_size=-"
        f" corpus_chunk_size=- max_pairs top_k show_progress_bar=- batch_size=- {COMMON}",
        "{name}",
        "average_precision",
    ),
    "TranslationEvaluator": Kind(
        evaluation.TranslationEvaluator,
        f"source_sentences=source target_sentences=target show_progress_bar=- batch_size=- {COMMON}"
        " print_wrong_matches!",
        "{name}",
        "mean_accuracy",
        {"source_to_target": "src2trg_accuracy", "target_to_source": "trg2src_accuracy"},
    ),
    "MSEEvaluator": Kind(
        _PercentError,
        "source_sentences=source target_sentences=target teacher_model=teacher show_progress_bar=- batch_size=- name"
        " write_csv truncate_dim!",
        "{name}",
        "negative_mse",
    ),
    "NanoBEIREvaluator": Kind(
        _nanobeir,
        "dataset_names dataset_id mrr_at_k=mrr_at ndcg_at_k=ndcg_at accuracy_at_k=accuracy_at"
        " precision_recall_at_k=precision_recall_at map_at_k=map_at show_progress_bar=- batch_size=- write_csv"
        " truncate_dim score_functions=similarities main_score_function=main aggregate_fn! aggregate_key!"
        " query_prompts=query_prompt corpus_prompts=document_prompt write_predictions!",
        "{part}_{similarity}_{last}",
        "mean_ndcg@",
    ),
}


def evaluators(kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The functions under their names that make evaluators."""
    return factories({name: Form(partial(NamedEvaluator, kind, name), kind.names) for name, kind in kinds.items()})


globals().update(evaluators(KINDS))
__all__ = [*KINDS, "BaseEvaluator", "SentenceEvaluator", "SequentialEvaluator", SimilarityFunction.__name__]
__getattr__ = absent(__name__, "evaluation")
