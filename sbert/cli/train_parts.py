"""What ``sbert train`` makes from names and parameters: losses, evaluators and callbacks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import MethodType, ModuleType
from typing import Any, NamedTuple

from sbert.cli.train_settings import RunSettings, check_known
from sbert.data import read_retrieval, read_rows
from sbert.data.file_formats import read_records

# Names beside those of the classes.
_SHORT = {
    "bce": "BinaryCrossEntropyLoss",
    "cosine": "CosineSimilarityLoss",
    "kl": "DistillKLDivLoss",
    "pairs": "PairClassificationEvaluator",
    "ranking": "MultipleNegativesRankingLoss",
    "sum": "WeightedSum",
}
_SAMPLERS = {"MultipleNegativesRankingLoss": "no_duplicates", "MegaBatchMarginLoss": "no_duplicates"}
# The columns of the files of evaluators, and that of their labels; of losses, their signatures say both.
_COLUMNS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "SimilarityEvaluator": (("sentence1", "sentence2"), "score"),
    "PairClassificationEvaluator": (("sentence1", "sentence2"), "label"),
    "LabelEvaluator": (("sentence1", "sentence2"), "label"),
    "TripletEvaluator": (("anchor", "positive", "negative"), None),
    "TranslationEvaluator": (("source", "target"), None),
    "RerankingEvaluator": (("query", "positive", "negative"), None),
}


def find(part: Any, module: ModuleType, what: str) -> tuple[Any, dict[str, Any]]:
    """A class of a module and its parameters, from a name or a table with ``name``.

    A name is that of the class, in any case, with hyphens, and without Loss, Evaluator or Suite at its end.

    Raises:
        ValueError: If there is no name, or it is unknown; the message has the nearest known one.

    Example:
        >>> from sbert import training
        >>> from sbert.cli.train_parts import find
        >>> find({"name": "early-stopping", "patience": 2}, training, "callbacks")
        (<class 'sbert.training.callbacks.EarlyStopping'>, {'patience': 2})
    """
    table = {"name": part} if isinstance(part, str) else part
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ValueError(f"{what} is {part!r:.40}; write a name, or a table with a name and parameters")
    classes = [name for name in module.__all__ if inspect.isclass(getattr(module, name))]
    names = {_key(name): name for name in classes} | {key: name for key, name in _SHORT.items() if name in classes}
    check_known([_key(table["name"])], names, what)
    return getattr(module, names[_key(table["name"])]), {key: value for key, value in table.items() if key != "name"}


def _key(name: str) -> str:
    return re.sub("[-_]|(loss|evaluator|suite)$", "", name.lower())


def call(function: Callable[..., Any], *values: Any, **parameters: Any) -> Any:
    """Call a class with parameters of the user.

    Raises:
        ValueError: If a parameter is missing, or unknown; the message names the nearest known one.

    Example:
        >>> from sbert.cli.train_parts import call
        >>> from sbert.training import EarlyStopping
        >>> call(EarlyStopping, patient=1)
        Traceback (most recent call last):
        ValueError: EarlyStopping: patient is unknown; did you mean patience?
    """
    signature = inspect.signature(function)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        check_known(parameters, signature.parameters, function.__name__)
    try:
        signature.bind(*values, **parameters)
    except TypeError as error:
        raise ValueError(f"{function.__name__}: {error}; set it in its table") from error
    return function(*values, **parameters)


# --------------------------------------------------------------------------------------------------------- losses


class Needs(NamedTuple):
    """What a loss needs: columns, a label, classes, a sampler; scores of a cross-encoder, and those of lists."""

    columns: tuple[str, ...]
    label: bool
    classes: bool
    sampler: str
    scores: bool
    lists: bool


def needs(loss: Any) -> Needs:
    """What a loss needs, by the signature of its class; a loss of losses needs what the first with a label needs.

    Raises:
        ValueError: If it is unknown.

    Example:
        >>> from sbert.cli.train_parts import needs
        >>> needs({"name": "matryoshka", "loss": "cosent", "dims": [8]}).columns
        ('first', 'second')
    """
    from sbert import losses
    from sbert.losses.signature import Signature

    kind, parameters = find(loss, losses, "loss")
    if inner := [parameters["loss"]] if "loss" in parameters else [part for part, _ in parameters.get("pairs", ())]:
        return max(map(needs, inner), key=lambda need: need.label)
    signature = Signature.of(MethodType(kind.forward, kind))
    lists, scores = signature.more == "scores", "scores" in (*signature.columns, signature.more)
    columns = signature.of_pairs().columns if scores else signature.columns
    classes = getattr(kind, "labels_are_classes", False)
    sampler = "group_by_label" if classes and len(columns) == 1 else _SAMPLERS.get(kind.__name__, "random")
    return Needs(columns, signature.needs_labels, classes, sampler, scores, lists)


def make_loss(loss: Any, model: Any, classes: int) -> Any:
    """The loss; a classifier gets its size from the model and the number of classes.

    Raises:
        ValueError: If a parameter is unknown.
    """
    from sbert import losses
    from sbert.pipeline.run import output_dims

    kind, parameters = find(loss, losses, "loss")
    pairs = [(make_loss(part, model, classes), weight) for part, weight in parameters.pop("pairs", ())]
    if "loss" in parameters:
        parameters["loss"] = make_loss(parameters["loss"], model, classes)
    if kind in (losses.SoftmaxLoss, losses.CrossEntropyLoss):
        parameters.setdefault("classes", classes)
    if kind is losses.SoftmaxLoss:
        parameters.setdefault("dim", output_dims(model.encoders[0], model.device)[-1])
    if kind is losses.SquaredErrorLoss:
        parameters.setdefault("activation", model.activation)
    return call(kind, *pairs, **parameters)


# ------------------------------------------------------------------------------------------------------ evaluators


def make_evaluator(table: RunSettings, classes: Sequence[str] | None) -> Any:
    """The evaluator of a table of settings; labels that are classes are those of the data.

    Raises:
        ValueError: If its file, its columns or a parameter are wrong; the message names the file.
    """
    from sbert import evaluation

    kind, parameters = find(table.get("with", "similarity"), evaluation, "evaluate.with")
    file, (names, label) = table["file"], _COLUMNS.get(kind.__name__, ((), None))
    columns = table.get("columns", names)
    if len(columns) != len(names) or (label is None and "label" in table):
        takes = ", ".join(names) + (f" in evaluate.columns, and evaluate.label ({label})" if label else ", no label")
        raise ValueError(f"evaluate: {kind.__name__} takes {takes}; it has {columns} and {table.get('label', 'none')}")
    values = _values(kind.__name__, file, columns, table.get("label", label), classes)
    return call(kind, *values, **parameters)


def _values(name: str, file: str, columns: Sequence[str], label: str | None, classes: Any) -> list[Any]:
    """What the evaluator measures: a list for each column, or as it takes them."""
    if name == "RetrievalEvaluator":
        return list(read_retrieval(file))
    if name == "RerankingEvaluator":
        # The results of a retriever, where the third column is called so.
        keys = ("query", "positive", "documents" if columns[2] == "documents" else "negative")
        return [[dict(zip(keys, row.values(), strict=True)) for row in read_lists(file, columns)]]
    if not columns:
        return [file]
    rows = list(read_rows(file, columns, label, classes=classes if name == "LabelEvaluator" else None))
    return [[row[column] for row in rows] for column in [*columns, *(["label"] if label else [])]]


def read_lists(file: str, columns: Sequence[str], file_format: str | None = None) -> list[dict[str, Any]]:
    """Rows of a file whose values may be lists of texts or of numbers."""
    return [{name: row[name] for name in columns} for _, row in read_records(file, columns, file_format)]
