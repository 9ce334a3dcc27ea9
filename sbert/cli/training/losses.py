"""The losses of ``sbert train``: a table of all in ``sbert.losses``, with the columns and labels that they take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sbert.cli.training.calls import Call, called, parsed


class Choice(NamedTuple):
    """A loss of the command line, and what it needs.

    ``loss`` is the name of the class in ``sbert.losses``, ``columns`` are the columns of text in order; a star stands
    for any number of them. ``label`` is the kind of label: ``"class"``, ``"number"``, ``"list"`` (of numbers, from
    JSONL) or ``"none"``; ``sampler`` the default sampler; and ``reads`` is ``"texts"``, or for losses of cross-encoders
    ``"pairs"``, or ``"lists"`` of documents.
    """

    loss: str
    columns: tuple[str, ...]
    label: str
    sampler: str = "random"
    reads: str = "texts"


_PAIR, _TRIPLET, _RANKED = ("first", "second"), ("anchor", "positive", "negative"), ("anchor", "positive", "*negatives")
_ANY, _ONE, _LISTS = ("*sentences",), ("sentence",), ("query", "documents")
LOSSES = {
    "softmax": Choice("SoftmaxLoss", _PAIR, "class"),
    "cosine": Choice("CosineSimilarityLoss", _PAIR, "number"),
    "cosent": Choice("CoSENTLoss", _PAIR, "number"),
    "angle": Choice("AnglELoss", _PAIR, "number"),
    "contrastive": Choice("ContrastiveLoss", _PAIR, "number"),
    "online-contrastive": Choice("OnlineContrastiveLoss", _PAIR, "number"),
    "triplet": Choice("TripletLoss", _TRIPLET, "none"),
    "ranking": Choice("MultipleNegativesRankingLoss", _RANKED, "none", "no_duplicates"),
    "mega-batch": Choice("MegaBatchMarginLoss", ("anchor", "positive"), "none", "no_duplicates"),
    "batch-all": Choice("BatchAllTripletLoss", _ONE, "class", "group_by_label"),
    "batch-hard": Choice("BatchHardTripletLoss", _ONE, "class", "group_by_label"),
    "batch-semi-hard": Choice("BatchSemiHardTripletLoss", _ONE, "class", "group_by_label"),
    "mse": Choice("MSELoss", _ANY, "list"),
    "embedding-distillation": Choice("EmbeddingDistillationLoss", _ANY, "list"),
    "margin-mse": Choice("MarginMSELoss", _RANKED, "number"),
    "kl": Choice("DistillKLDivLoss", _RANKED, "list"),
    "contrastive-tension": Choice("ContrastiveTensionLoss", _ONE, "none"),
    "orthogonal": Choice("GlobalOrthogonalRegularizationLoss", _ANY, "none"),
    "bce": Choice("BinaryCrossEntropyLoss", _PAIR, "number", reads="pairs"),
    "cross-entropy": Choice("CrossEntropyLoss", _PAIR, "class", reads="pairs"),
    "squared-error": Choice("SquaredErrorLoss", _PAIR, "number", reads="pairs"),
    "lambda-loss": Choice("LambdaLoss", _LISTS, "list", reads="lists"),
    "ranknet": Choice("RankNetLoss", _LISTS, "list", reads="lists"),
    "listnet": Choice("ListNetLoss", _LISTS, "list", reads="lists"),
    "listmle": Choice("ListMLELoss", _LISTS, "list", reads="lists"),
    "score-margin-mse": Choice("ScoreMarginMSELoss", _LISTS, "list", reads="lists"),
    "localized-contrastive": Choice("LocalizedContrastiveLoss", _LISTS, "none", reads="lists"),
}
# Losses of losses: matryoshka(cosent, dims=[256, 64]), sum((ranking, 1.0), (orthogonal, 0.1)).
WRAPPERS = {"matryoshka": "MatryoshkaLoss", "adaptive-layers": "AdaptiveLayerLoss", "sum": "WeightedSum"}
_LONG = {choice.loss: name for name, choice in LOSSES.items()} | {long: name for name, long in WRAPPERS.items()}


def loss_call(text: str) -> Call:
    """A loss with its parameters; the names of the classes are known as well.

    Raises:
        ValueError: If it is unknown, or its form is wrong.

    Example:
        >>> loss_call("CoSENTLoss(temperature=0.1)").named
        {'temperature': 0.1}
    """
    return parsed(text, [*LOSSES, *WRAPPERS, *_LONG], "loss")


def choice_of(text: str) -> Choice:
    """What a loss needs; for a loss of losses, what the first with a label needs.

    Raises:
        ValueError: As ``loss_call``; or if a loss of losses has none.

    Example:
        >>> choice_of("matryoshka(cosent, dims=[8])").label
        'number'
    """
    leaves = [LOSSES[name] for call in loss_call(text).within() if (name := _LONG.get(call.name, call.name)) in LOSSES]
    if not leaves:
        raise ValueError(f"loss={text!r} needs a loss, such as matryoshka(cosent, dims=[256, 64])")
    return next((leaf for leaf in leaves if leaf.label != "none"), leaves[0])


def made_loss(text: str, model: Any, classes: int, seed: int) -> Any:
    """The loss; a classifier gets its size from the model and the number of classes.

    Raises:
        ValueError: If a parameter is unknown.
    """
    import torch

    from sbert import losses
    from sbert.pipeline.encode import output_dims

    def make(call: Call) -> Any:
        name = _LONG.get(call.name, call.name)
        long = WRAPPERS.get(name) or LOSSES[name].loss
        given: dict[str, Any] = {}
        if long in ("SoftmaxLoss", "CrossEntropyLoss"):
            given["classes"] = classes
        if long == "SoftmaxLoss":
            given["dim"] = output_dims(model, model.device)[-1]
        if long == "SquaredErrorLoss":
            given["activation"] = model.activation
        given = {key: value for key, value in given.items() if key not in call.named}
        return called(call.made(make), getattr(losses, long), f"loss={name!r}", given)

    with torch.random.fork_rng(devices=[]):  # A classifier is initialized at random.
        torch.manual_seed(seed)
        return make(loss_call(text))


def table() -> Iterable[str]:
    """The lines of the help about losses.

    Example:
        >>> next(iter(table()))
        '  softmax                first, second                    class'
    """
    for name, choice in LOSSES.items():
        yield f"  {name:22} {', '.join(choice.columns):32} {choice.label}"
