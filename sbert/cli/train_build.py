"""From the settings of ``sbert train`` to a trainer: its config, data, model and losses."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os.path import isdir
from typing import TYPE_CHECKING, Any, cast

from sbert.cli.train_parts import call, find, make_evaluator, make_loss, needs, read_lists
from sbert.cli.train_settings import RunSettings, check_known
from sbert.data import read_classes, read_rows
from sbert.storage.hub import resolve

if TYPE_CHECKING:
    from sbert.training import Trainer, TrainingConfig

# Maximum number of classes to print.
_SHOWN = 20


def make_config(settings: RunSettings) -> TrainingConfig:
    """The settings of the trainer; the default sampler of each data set is that of its loss.

    Raises:
        ValueError: If one is unknown or out of range.
    """
    from sbert.training import TrainingConfig

    training: dict[str, Any] = settings.get("training", {})
    data = settings["data"].items()
    # No sampler can choose the rows of a stream.
    samplers = {name: "random" if isdir(table["file"]) else needs(table["loss"]).sampler for name, table in data}
    sampler = samplers if len(set(samplers.values())) > 1 else next(iter(samplers.values()))
    options = {"output": settings["output"], "sampler": sampler, **training}
    return cast("TrainingConfig", call(TrainingConfig, **options))


def read_data(settings: RunSettings, verbose: bool) -> dict[str, Any]:
    """The rows of each data set; its columns and classes are added to its settings.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a line is invalid, or the labels are not those that the loss takes.
    """
    rows = {}
    for name, table in settings["data"].items():
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
        rows[name] = _read(table, table["file"])
    return rows


def _is_unchanged(table: RunSettings) -> bool:
    """Whether rows keep the label as it stands in the file: those of a folder, which is streamed, and lists."""
    return isdir(table["file"]) or needs(table["loss"]).lists


def _read(table: RunSettings, file: str) -> Any:
    columns, label, file_format = table["columns"], table.get("label"), table.get("format")
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


def make_trainer(settings: RunSettings, rows: Mapping[str, Any], config: TrainingConfig) -> Trainer:
    """The trainer of a run.

    Raises:
        ValueError: If the model, the data and the settings do not fit each other.
    """
    import torch

    from sbert import training
    from sbert.encoder import SentenceEncoder
    from sbert.evaluation import LabelEvaluator
    from sbert.losses import SoftmaxLoss
    from sbert.training import Trainer

    tables: dict[str, RunSettings] = settings["data"]
    evaluate = settings["evaluate"]
    classes = next((table["classes"] for table in tables.values() if "classes" in table), None)
    tested = {name: table for name, table in evaluate.items() if table.get("with") != "loss"}
    evaluators = {name: make_evaluator(table, classes) for name, table in tested.items()}
    evaluation_data = _read_evaluation_data(settings)  # Read before the model is loaded.
    callbacks = [find(part, training, "callbacks") for part in settings.get("callbacks", ())]
    with torch.random.fork_rng(devices=[]):  # New heads, adapters and classifiers are initialized at random.
        torch.manual_seed(config.seed)
        model = _load(settings)
        losses = {name: make_loss(t["loss"], model, len(t.get("classes", ()))) for name, t in tables.items()}
    softmax = next((loss for loss in losses.values() if isinstance(loss, SoftmaxLoss)), None)
    for evaluator in evaluators.values():
        if isinstance(evaluator, LabelEvaluator):
            evaluator.loss = softmax
    return Trainer(
        model,
        rows,
        losses,
        config,
        evaluator=evaluators if len(evaluate) > 1 else next(iter(evaluators.values()), None),
        evaluation_data=evaluation_data,
        callbacks=[call(kind, **parameters) for kind, parameters in callbacks],
        columns={name: table["columns"] for name, table in tables.items()},
        label={name: table["label"] for name, table in tables.items() if "label" in table and _is_unchanged(table)},
        guide=SentenceEncoder(settings["guide"], device=model.device) if "guide" in settings else None,
    )


def _read_evaluation_data(settings: RunSettings) -> Any:
    """The rows whose loss is a score: those of an evaluator are for the data set of its name, or for the only one."""
    data, rows = settings["data"], {}
    for name, table in settings["evaluate"].items():
        if table.get("with") == "loss":
            target = next(iter(data)) if len(data) == 1 else name
            check_known([target], data, "evaluate.with loss: the data set")
            rows[target] = _read({**data[target], **table}, table["file"])
    return rows.get("data", rows) or None


def _load(settings: RunSettings) -> Any:
    """The model that the losses take."""
    kinds = {needs(data["loss"]).scores for data in settings["data"].values()}
    if len(kinds) > 1:
        raise ValueError("some of the losses are for encoders, others for cross-encoders; train two models")
    table = settings["model"]
    model = _load_cross_encoder(table, settings["data"]) if True in kinds else _load_encoder(table)
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


def _load_cross_encoder(table: RunSettings, tables: Mapping[str, RunSettings]) -> Any:
    from sbert.cross_encoder import CrossEncoder

    if wrong := [name for name in ("pooling", "lora") if name in table]:
        raise ValueError(f"model.{wrong[0]} is for encoders, and the loss is for cross-encoders; leave it out")
    classes = [data.get("classes") for data in tables.values()]
    if any(names != classes[0] for names in classes):
        raise ValueError("a cross-encoder has one head: the data sets must have the same classes; set data.classes")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* has no head that scores pairs")  # It is trained now.
        return CrossEncoder(table["name"], len(classes[0] or ()) or None, device=table.get("device"), dtype="float32")
