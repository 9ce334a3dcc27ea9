"""From the settings of ``sbert train`` to a trainer: data, model, losses, evaluators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert.cli.training.calls import called, parsed
from sbert.cli.training.evaluators import EVALUATORS, made_callbacks, made_evaluators
from sbert.cli.training.keys import SETTINGS
from sbert.cli.training.losses import Choice, choice_of, made_loss
from sbert.cli.training.settings import Settings
from sbert.data import read_classes, read_rows
from sbert.data.records import read_records
from sbert.storage.hub import resolve

if TYPE_CHECKING:
    from sbert.training import Trainer, TrainingConfig

# Maximum number of classes to print.
_LISTED = 20


def check(tables: Mapping[str, Settings]) -> None:
    """Raise a ValueError for columns or labels that do not fit the loss."""
    for table in tables.values():
        choice, loss = choice_of(table["loss"]), f"--loss {table['loss']}"
        columns = columns_of(table)
        fixed = sum(not column.startswith("*") for column in choice.columns)
        if len(columns) < max(fixed, 1) or (len(columns) > fixed and fixed == len(choice.columns)):
            raise ValueError(f"{loss} takes {', '.join(choice.columns)}; --columns names {', '.join(columns)}")
        if choice.label == "none" and any(table.get(name) for name in ("label", "classes", "scale", "drop")):
            raise ValueError(f"{loss} takes no labels; leave --label, --classes, --scale and --drop out")
        if choice.label != "none" and "label" not in table:
            raise ValueError(f"{loss} takes a {choice.label} as label; name its column with --label")
        if choice.label == "class" and "scale" in table:
            raise ValueError(f"{loss} takes classes, and --scale makes fractions of labels; leave it out")


def columns_of(table: Settings) -> list[str]:
    """The columns of a data set: the given ones, or those of its loss."""
    named: list[str] = table.get("columns") or [
        column for column in choice_of(table["loss"]).columns if not column.startswith("*")
    ]
    return named


def config_of(settings: Settings) -> TrainingConfig:
    """The settings of the trainer.

    Raises:
        ValueError: If one is out of range.
    """
    from sbert.training import TrainingConfig

    tables: dict[str, Settings] = settings["data"]
    values = {name: settings[name] for name in SETTINGS if name in settings}
    by_name: dict[str, dict[str, Any]] = {
        "sampler": {name: table.get("sampler", _sampler(table)) for name, table in tables.items()},
        "batch_size": {name: table.get("batch_size", 16) for name, table in tables.items()},
    }
    for key, setting, none in (("prompt", "prompts", ""), ("max_length", "max_lengths", {})):
        if any(key in table for table in tables.values()):
            by_name[setting] = {name: table.get(key, none) for name, table in tables.items()}
    if any("weight" in table for table in tables.values()):
        if "mix" in settings:
            raise ValueError("--weight and --mix both say which data set a batch is of; pass one of them")
        values["mix"] = {name: float(table.get("weight", 1)) for name, table in tables.items()}
    for name, several in by_name.items():
        values[name] = several if len(set(map(repr, several.values()))) > 1 else next(iter(several.values()))
    if "betas" in values:
        values["betas"] = tuple(values["betas"])
    return TrainingConfig(output=settings["output"], **values)


def _sampler(table: Settings) -> str:
    """The default sampler: of a stream, in which none can choose rows, that of all data."""
    return "random" if Path(table["file"]).is_dir() else choice_of(table["loss"]).sampler


def read_data(settings: Settings, verbose: bool) -> dict[str, Any]:
    """The rows of each data set; the classes that they have are added to its settings.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a line is invalid.
    """
    found = {}
    for name, table in settings["data"].items():
        choice = choice_of(table["loss"])
        classes = _classes(table, choice, verbose)
        if classes is not None:
            table["classes"] = classes
        found[name] = _rows(table, table["file"], choice)
    return found


def _rows(table: Settings, file: str, choice: Choice) -> Any:
    columns, label, chosen = columns_of(table), table.get("label"), table.get("format")
    if Path(file).is_dir():
        return _stream(table, choice)
    if choice.reads == "lists":
        if wrong := [name for name in ("classes", "scale", "drop") if table.get(name)]:
            raise ValueError(f"--{wrong[0]} is for labels of single rows, and --loss {table['loss']} reads lists")
        wanted = [*columns, *([label] if label else [])]
        return [{name: row[name] for name in wanted} for _, row in read_records(file, wanted, chosen)]
    scale = tuple(table["scale"]) if "scale" in table else None
    options = {"classes": table.get("classes"), "scale": scale, "drop": table.get("drop", ())}
    return list(read_rows(file, columns, label, file_format=chosen, **options))


def _stream(table: Settings, choice: Choice) -> Any:
    """The rows of a folder of Parquet files, whose labels are numbers already."""
    from sbert.training import ParquetRows

    wrong = [name for name in ("classes", "scale", "drop") if table.get(name)]
    if choice.label == "class" or wrong:
        named = f"--{wrong[0]}" if wrong else f"--loss {table['loss']}"
        raise ValueError(f"{table['file']} is a folder, which is streamed as it stands, but {named} needs a file")
    return ParquetRows(table["file"], [*columns_of(table), *([table["label"]] if "label" in table else [])])


def _classes(table: Settings, choice: Choice, verbose: bool) -> list[str] | None:
    """The given classes; or, for a loss that needs classes, those of the data."""
    if choice.label != "class" or "classes" in table or Path(table["file"]).is_dir():
        return table.get("classes")
    if table["file"] == "-":
        raise ValueError("standard input cannot be read twice, once for its classes; name them with --classes")
    drop, chosen = table.get("drop", ()), table.get("format")
    classes = read_classes(table["file"], table["label"], drop=drop, file_format=chosen)
    if verbose:
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        print(f"classes: {', '.join(f'{i} {name}' for i, name in enumerate(classes[:_LISTED]))}{more}", flush=True)
    return classes


def trainer_of(settings: Settings, rows: Mapping[str, Any], config: TrainingConfig) -> Trainer:
    """The trainer of a run.

    Raises:
        ValueError: If the model, the data and the settings do not fit each other.
    """
    from sbert.training import Trainer

    tables: dict[str, Settings] = settings["data"]
    evaluator = made_evaluators(settings["evaluate"])  # Read before the model is loaded.
    held_out = _held_out(settings)
    callbacks = made_callbacks(settings.get("callbacks", ()))
    model = load(settings)
    losses = {
        name: made_loss(table["loss"], model, len(table.get("classes", ())), config.seed)
        for name, table in tables.items()
    }
    as_is = {
        name
        for name, table in tables.items()
        if choice_of(table["loss"]).reads == "lists" or Path(table["file"]).is_dir()
    }
    return Trainer(
        model,
        rows,
        losses,
        config,
        evaluator=evaluator,
        evaluation_data=held_out,
        callbacks=callbacks,
        columns={name: columns_of(table) for name, table in tables.items()},
        label={
            name: table["label"] if name in as_is else "label" for name, table in tables.items() if "label" in table
        },
        guide=_guide(settings),
    )


def _held_out(settings: Settings) -> Any:
    """The rows whose loss is a score: those of an evaluator are for the data set of its name, or for the only one."""
    found = {}
    for name, table in settings["evaluate"].items():
        if parsed(table.get("with", "similarity"), EVALUATORS, "evaluate_with").name != "loss":
            continue
        only = next(iter(settings["data"])) if len(settings["data"]) == 1 else name
        if only not in settings["data"]:
            known = ", ".join(settings["data"])
            raise ValueError(f"evaluate_with='loss' of {name!r}: there is no data set of this name, only {known}")
        source = settings["data"][only]
        found[only] = _rows(source, table["file"], choice_of(source["loss"]))
    return found.get("data", found) or None


def _guide(settings: Settings) -> Any:
    if "guide" not in settings:
        return None
    from sbert.encoder import SentenceEncoder

    return SentenceEncoder(settings["guide"], device=settings.get("device"))


def load(settings: Settings) -> Any:
    """The model, with an adapter if one is wanted.

    Raises:
        ValueError: If it does not fit the losses, or has what is to be added.
    """
    choices = {choice_of(table["loss"]).reads for table in settings["data"].values()}
    is_scorer = bool(settings.get("cross_encoder"))
    if is_scorer == ("texts" in choices):
        kind, remedy = ("cross-encoders", "leave it out") if is_scorer else ("single texts", "pass it")
        names = ", ".join(table["loss"] for table in settings["data"].values())
        about = f"--loss {names} is not for {kind}; choose another"
        raise ValueError(about if is_scorer else f"--loss {names} needs --cross-encoder; {remedy}")
    import torch

    with torch.random.fork_rng(devices=[]):  # New heads and adapters are initialized at random.
        torch.manual_seed(settings.get("seed", 0))
        model = _scorer(settings) if is_scorer else _encoder(settings)
        if "lora" in settings:
            _add_adapter(model, settings["lora"])
    if "max_seq_length" in settings:
        model.max_seq_length = settings["max_seq_length"]
    return model


def _encoder(settings: Settings) -> Any:
    from sbert.encoder import SentenceEncoder
    from sbert.modules import Pooling, Transformer

    modules: list[Any] = [settings["model"]]
    if "pooling" in settings:
        folder = resolve(settings["model"], organisation="sentence-transformers")
        if (folder / "modules.json").exists():
            raise ValueError(f"{settings['model']} has its own pooling; leave --pooling out")
        modules = [Transformer(folder), Pooling(settings["pooling"])]
    return SentenceEncoder(*modules, device=settings.get("device"), dtype="float32")


def _scorer(settings: Settings) -> Any:
    from sbert.cross_encoder import CrossEncoder

    if "pooling" in settings:
        raise ValueError("a cross-encoder has no pooling; leave --pooling out")
    named = [table["classes"] for table in settings["data"].values() if choice_of(table["loss"]).label == "class"]
    if any(classes != named[0] for classes in named) or 0 < len(named) < len(settings["data"]):
        raise ValueError("a cross-encoder has one head: the data sets must have the same classes; pass --classes")
    classes = len(named[0]) if named else None
    model = CrossEncoder(settings["model"], classes, device=settings.get("device"), dtype="float32")
    if named:  # Saved with the model.
        names = dict(enumerate(named[0]))
        model.auto_model.config.update({"id2label": names, "label2id": {name: i for i, name in names.items()}})
    return model


def _add_adapter(model: Any, text: str) -> None:
    from sbert.inputs.extras import needed

    with needed("--lora", "peft", "adapters"):
        from peft import LoraConfig
    call = parsed(text, ["lora"], "lora")
    if model.is_cross_encoder:
        raise ValueError("--lora is for encoders of single texts; leave --cross-encoder or --lora out")
    model[0].auto_model.add_adapter(called(call, LoraConfig, "lora"))
