"""The settings of ``sbert train``: a file, and over it flags and ``--set``; checked, and stored with the run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sbert.cli.options import suggest

# The settings of a run: a table for each section.
RunSettings = dict[str, Any]
STORED = "train.json"
Types = Mapping[str, type | tuple[type, ...]]
_NAMED = (str, dict)  # A name, or a table with a name and parameters.
_SECTIONS: Types = {"model": _NAMED, "output": str, "data": dict, "training": dict, "evaluate": dict}
_SECTIONS = {**_SECTIONS, "callbacks": list}
_MODEL: Types = {"name": Path, "pooling": str, "max_seq_length": int, "lora": dict, "device": str}
_DATA: Types = {"file": Path, "columns": list, "label": str, "loss": _NAMED, "classes": list, "drop": list}
_DATA = {**_DATA, "scale": list, "format": str}
_EVALUATE: Types = {"file": Path, "with": _NAMED, "columns": list, "label": str}
# The sections with settings that are checked here, and those that they must have.
_TABLES = {"model": (_MODEL, ("name",)), "data": (_DATA, ("file", "loss")), "evaluate": (_EVALUATE, ("file",))}
_ARTICLES = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "a table",
    _NAMED: "a name, or a table with name",
}


def gather(config: str | None, over: Iterable[tuple[str, Any]]) -> RunSettings:
    """The settings of a run.

    Args:
        config: A TOML or JSON file.
        over: What counts more than the file: dotted names, such as ``training.epochs``, and values.

    Raises:
        ImportError: If the file is TOML, and Python is older than 3.11.
        ValueError: If a setting is missing, unknown or of another type; the message names it and the nearest known one.

    Example:
        >>> from sbert.cli.train_settings import gather
        >>> gather(None, [("model", "m"), ("output", "o"), ("data.file", "a.tsv"), ("data.loss", "ranking")])["data"]
        {'file': 'a.tsv', 'loss': 'ranking'}
    """
    settings = {} if config is None else _read(config)
    for path, value in over:
        _put(settings, path, value)
    where = config or "settings"
    settings = _check(settings, _SECTIONS, where, ("model", "output", "data"))
    if isinstance(settings["model"], str):
        settings["model"] = {"name": settings["model"]}
    for section, (types, required) in _TABLES.items():
        if section in settings:
            settings[section] = _check(settings[section], types, f"{where}: {section}", required)
    return settings


def read_stored(folder: str, over: Iterable[tuple[str, Any]]) -> RunSettings:
    """The settings that the run of an output folder has stored, under those that count more.

    Raises:
        FileNotFoundError: If the folder stores no settings.
        ValueError: If they are damaged, or a setting is wrong.
    """
    path = Path(folder) / STORED
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; pass the --output of a run of sbert train")
    return gather(str(path), [*over, ("output", folder)])


def parse_set(text: str) -> tuple[str, Any]:
    """The name and the value of ``--set NAME=VALUE``: a value of JSON, or a text.

    Raises:
        ValueError: If there is no ``=``.

    Example:
        >>> from sbert.cli.train_settings import parse_set
        >>> parse_set("training.warmup=0.2"), parse_set("model.pooling=cls")
        (('training.warmup', 0.2), ('model.pooling', 'cls'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set {text!r} is not of the form NAME=VALUE, such as training.warmup=0.2")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def check_known(names: Iterable[str], choices: Iterable[str], where: str) -> None:
    """Raise a ValueError for the first name that is not among the choices; the message has the nearest one."""
    choices = list(choices)
    for name in names:
        if name not in choices:
            raise ValueError(f"{where}: {name} is unknown; {suggest(name, choices)}")


def _read(path: str) -> RunSettings:
    """The settings of a file."""
    parse: Callable[[str], Any] = json.loads if path.endswith(".json") else tomllib.loads
    try:
        settings = parse(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid {'JSON' if parse is json.loads else 'TOML'}: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path} does not hold a table of settings")
    return settings


def _put(settings: RunSettings, path: str, value: Any) -> None:
    """Put a value where a dotted name says; a text on the way becomes the name of a table."""
    *parents, last = path.split(".")
    table = settings
    for parent in parents:
        inner = table.get(parent, {})
        table[parent] = inner = {"name": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict):
            raise ValueError(f"--set {path}: {parent} is {inner!r:.40}, not a table; set it as a whole")
        table = inner
    table[last] = value


def _check(settings: RunSettings, types: Types, where: str, required: Iterable[str]) -> RunSettings:
    """The settings of a table; a text in the place of a list is divided at its commas."""
    check_known(settings, types, where)
    if missing := [name for name in required if name not in settings]:
        raise ValueError(f"{where}: {missing[0]} is missing; name it by its flag, --set, or in a file for --config")
    checked = dict(settings)
    for name, value in settings.items():
        if types[name] is list and isinstance(value, str):
            checked[name] = [part.strip() for part in value.split(",")]
        elif types[name] is Path and isinstance(value, str):  # A whole path lets a run be resumed from any folder.
            checked[name] = str(Path(value).resolve()) if Path(value).exists() else value
        elif not isinstance(value, types[name]) or isinstance(value, bool):
            raise ValueError(f"{where}: {name} is {value!r:.40}; write {_ARTICLES[types[name]]}")
    return checked
