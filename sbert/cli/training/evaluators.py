"""The evaluators and callbacks of ``sbert train``, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sbert.cli.training.calls import called, parsed
from sbert.cli.training.settings import Settings
from sbert.data import read_rows
from sbert.data.records import read_records
from sbert.data.retrieval import read_retrieval

# For each evaluator, its class in sbert.evaluation, and the columns of its file.
EVALUATORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "similarity": ("SimilarityEvaluator", ("sentence1", "sentence2", "score")),
    "pairs": ("PairClassificationEvaluator", ("sentence1", "sentence2", "label")),
    "triplet": ("TripletEvaluator", ("anchor", "positive", "negative")),
    "translation": ("TranslationEvaluator", ("source", "target")),
    "reranking": ("RerankingEvaluator", ("query", "positive", "negative")),
    "mse": ("MSEEvaluator", ("source", "target")),
    "retrieval": ("RetrievalEvaluator", ()),
    "nanobeir": ("NanoBEIRSuite", ()),
    "loss": ("", ()),
}
CALLBACKS = {
    "early-stopping": "EarlyStopping",
    "averaged-weights": "AveragedWeights",
    "tensorboard": "TensorBoard",
    "wandb": "WandB",
    "mlflow": "MLflow",
    "push-to-hub": "PushToHub",
}


def check(tables: Mapping[str, Settings]) -> None:
    """Raise a ValueError for an unknown evaluator, or one with another number of columns than it takes."""
    for table in tables.values():
        call = parsed(table.get("with", "similarity"), EVALUATORS, "evaluate_with")
        columns, given = EVALUATORS[call.name][1], table.get("columns")
        if given is not None and len(given) != len(columns):
            number = {3: "three names", 2: "two names"}.get(len(columns), "no names")
            takes = f": {', '.join(columns)}" if columns else ""
            raise ValueError(f"--evaluate-columns takes {number}{takes}; it names {', '.join(given)}")


def made_evaluators(tables: Mapping[str, Settings]) -> Any:
    """The evaluator, or several by name; None without any. Those of the loss of held-out rows are left out.

    Raises:
        ValueError: If a file or a parameter is wrong; the message names it.
    """
    found = {name: made for name, table in tables.items() if (made := _made(table)) is not None}
    return found if len(tables) > 1 else next(iter(found.values()), None)


def _made(table: Settings) -> Any:
    from sbert import SentenceEncoder, evaluation

    call = parsed(table.get("with", "similarity"), EVALUATORS, "evaluate_with")
    kind, columns = EVALUATORS[call.name]
    if not kind:
        return None
    prompt = {"prompt": table["prompt"]} if "prompt" in table else {}
    try:
        parts = _parts(call.name, table["file"], table.get("columns", columns))
        for model in {"teacher", "retriever"} & call.named.keys():
            call.named[model] = SentenceEncoder(call.named[model])
        if call.name == "mse":  # The teacher stands between the two columns.
            call.named["target"] = parts.pop()
        call.values[:0] = parts
        return called(call, getattr(evaluation, kind), f"evaluate_with={call.name!r}", prompt)
    except ValueError as error:
        file = table["file"]
        raise error if str(file) in str(error) else ValueError(f"{file}: {error}") from error


def _parts(name: str, file: str, columns: Sequence[str]) -> list[Any]:
    """What the evaluator measures: a list for each column, or as it takes them."""
    if name == "retrieval":
        return list(read_retrieval(file))
    if name == "nanobeir":
        return [file]
    if name == "reranking":
        rows = (row for _, row in read_records(file, columns))
        # What a retriever found, where the third column is called so.
        keys = ("query", "positive", "documents" if columns[2] == "documents" else "negative")
        return [[{key: row[column] for key, column in zip(keys, columns, strict=True)} for row in rows]]
    label = columns[2] if name in ("similarity", "pairs") else None
    texts = list(columns[:2] if label else columns)
    listed = list(read_rows(file, texts, label))
    return [[row[column] for row in listed] for column in [*texts, *(["label"] if label else [])]]


def made_callbacks(texts: Sequence[str]) -> list[Any]:
    """The callbacks.

    Raises:
        ValueError: If a name or a parameter is unknown.
    """
    from sbert import training

    calls = [parsed(text, CALLBACKS, "callbacks") for text in texts]
    return [called(call, getattr(training, CALLBACKS[call.name]), f"callbacks={call.name!r}") for call in calls]
