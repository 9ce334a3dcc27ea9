"""From the settings of ``sbert train`` to a trainer: its config, data, model and losses."""

from __future__ import annotations

import warnings
from os.path import isdir
from typing import TYPE_CHECKING, Any, cast

from sbert.cli.train_parts import call, find, make_evaluator, make_loss, needs, read_lists
from sbert.cli.train_settings import RunSettings
from sbert.data import read_classes, read_rows
from sbert.storage.hub import resolve

if TYPE_CHECKING:
    from sbert.training import Trainer, TrainingConfig

# Maximum number of classes to print.
_SHOWN = 20


def make_config(settings: RunSettings) -> TrainingConfig:
    """The settings of the trainer; the default sampler is that of the loss.

    Raises:
        ValueError: If one is unknown or out of range.
    """
    from sbert.training import TrainingConfig

    data = settings["data"]
    sampler = "random" if isdir(data["file"]) else needs(data["loss"]).sampler  # No sampler can reorder a stream.
    options = {"output": settings["output"], "sampler": sampler, **settings.get("training", {})}
    return cast("TrainingConfig", call(TrainingConfig, **options))


def read_data(settings: RunSettings, verbose: bool) -> Any:
    """The rows of the data; their columns and classes are added to its settings.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a line is invalid, or the labels are not those that the loss takes.
    """
    table = settings["data"]
    need = needs(table["loss"])
    if need.label != ("label" in table):
        takes = "labels; name their column with --label" if need.label else "no labels; leave --label out"
        raise ValueError(f"--loss {table['loss']} takes {takes}")
    table.setdefault("columns", list(need.columns))
    if need.classes and "classes" not in table and not isdir(table["file"]):
        if table["file"] == "-":
            raise ValueError("standard input cannot be read twice; name the classes: --set data.classes=A,B")
        options = {"drop": table.get("drop", ()), "file_format": table.get("format")}
        table["classes"] = read_classes(table["file"], table["label"], **options)
        if verbose:
            listed = [f"{i} {name}" for i, name in enumerate(table["classes"])]
            more = f" and {len(listed) - _SHOWN} more" if listed[_SHOWN:] else ""
            print(f"classes: {', '.join(listed[:_SHOWN])}{more}")
    return _read(table)


def _is_unchanged(table: RunSettings) -> bool:
    """Whether rows keep the label as it stands in the file: those of a folder, which is streamed, and lists."""
    return isdir(table["file"]) or needs(table["loss"]).lists


def _read(table: RunSettings) -> Any:
    file, columns, label, file_format = table["file"], table["columns"], table.get("label"), table.get("format")
    options = {name: table[name] for name in ("classes", "scale", "drop") if name in table}
    if not _is_unchanged(table):
        return list(read_rows(file, columns, label, file_format=file_format, **options))
    if options:
        raise ValueError(f"{file}: its rows are taken as they stand; leave {', '.join(options)} out")
    columns = [*columns, *([label] if label else [])]
    if not isdir(file):
        return read_lists(file, columns, file_format)
    from sbert.training import ParquetRows

    return ParquetRows(file, columns)


def make_trainer(settings: RunSettings, rows: Any, config: TrainingConfig) -> Trainer:
    """The trainer of a run.

    Raises:
        ValueError: If the model, the data and the settings do not fit each other.
    """
    import torch

    from sbert import training
    from sbert.evaluation import LabelEvaluator
    from sbert.losses import SoftmaxLoss
    from sbert.training import Trainer

    data, evaluate = settings["data"], settings.get("evaluate", {})
    classes, evaluator, evaluation_data = data.get("classes", ()), None, None
    if evaluate.get("with") == "loss":
        evaluation_data = _read({**data, **evaluate})  # Read before the model is loaded.
    elif evaluate:
        evaluator = make_evaluator(evaluate, classes or None)
    callbacks = [find(part, training, "callbacks") for part in settings.get("callbacks", ())]
    with torch.random.fork_rng(devices=[]):  # New heads, adapters and classifiers are initialized at random.
        torch.manual_seed(config.seed)
        model = _load(settings)
        loss = make_loss(data["loss"], model, len(classes))
    if isinstance(evaluator, LabelEvaluator):
        evaluator.loss = loss if isinstance(loss, SoftmaxLoss) else None
    return Trainer(
        model,
        rows,
        loss,
        config,
        evaluator=evaluator,
        evaluation_data=evaluation_data,
        callbacks=[call(kind, **parameters) for kind, parameters in callbacks],
        columns=data["columns"],
        label=data.get("label") if _is_unchanged(data) else None,
    )


def _load(settings: RunSettings) -> Any:
    """The model that the loss takes."""
    table = settings["model"]
    is_pairs = needs(settings["data"]["loss"]).scores
    model = _load_cross_encoder(table, settings["data"]) if is_pairs else _load_encoder(table)
    if "max_seq_length" in table:
        model.max_seq_length = table["max_seq_length"]
    return model


def _load_encoder(table: RunSettings) -> Any:
    from sbert.encoder import SentenceEncoder
    from sbert.inputs.extras import require
    from sbert.modules import Pooling, Transformer

    modules: list[Any] = [table["name"]]
    if "pooling" in table:
        folder = resolve(table["name"], organisation="sentence-transformers")
        if (folder / "modules.json").exists():
            raise ValueError(f"{table['name']} has its own pooling; leave model.pooling out")
        modules = [Transformer(folder), Pooling(table["pooling"])]
    model = SentenceEncoder(*modules, device=table.get("device"), dtype="float32")
    if "lora" in table:
        with require("model.lora", "peft", "adapters"):
            from peft import LoraConfig
        model[0].auto_model.add_adapter(call(LoraConfig, **table["lora"]))
    return model


def _load_cross_encoder(table: RunSettings, data: RunSettings) -> Any:
    from sbert.cross_encoder import CrossEncoder

    if wrong := [name for name in ("pooling", "lora") if name in table]:
        raise ValueError(f"model.{wrong[0]} is for encoders, and the loss is for cross-encoders; leave it out")
    classes = len(data.get("classes", ())) or None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* has no head that scores pairs")  # It is trained now.
        return CrossEncoder(table["name"], classes, device=table.get("device"), dtype="float32")
