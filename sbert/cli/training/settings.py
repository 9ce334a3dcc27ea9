"""The settings of a run of ``sbert train``, gathered from flags and a file, checked, and stored with the run."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sbert.cli.training.keys import BY_NAME, CALLS, GROUPS, KEYS, LENGTHS, NUMBERS, SWITCH, Key, of_part
from sbert.inputs.arguments import nearest_argument

# Settings by key; "data" and "evaluate" hold a table for each data set and evaluator, by name.
Settings = dict[str, Any]
STORED = "train.json"
_PARTS = ("data", "evaluate")
_FILES = {"data": "data", "evaluate": "evaluation"}
_PATHS = ("model", "output", "guide")


# --------------------------------------------------------------------------------------------------------- flags


class _Put(argparse.Action):
    """Puts the value of a flag into the settings; one of a data set or an evaluator goes to the last that was begun."""

    def __call__(self, _parser: Any, namespace: Any, values: Any, _flag: str | None = None) -> None:
        key = KEYS[self.dest]
        settings: Settings = getattr(namespace, "settings", None) or {}
        namespace.settings = settings
        if key.name in _PARTS:
            name, file = _named(values)
            settings.setdefault(key.name, []).append((name, {"file": file}))
            return
        begun = settings.get(key.part) if key.part else None
        target, name = (begun[-1][1], key.inner) if begun else (settings, key.name)
        if key.kind in (BY_NAME, NUMBERS, LENGTHS):
            column, equals, text = values.rpartition("=") if key.kind is NUMBERS else values.partition("=")
            if not equals and key.kind is NUMBERS:
                raise argparse.ArgumentError(self, f"{values!r} is not of the form {key.metavar}")
            _put_named(self, target, name, column if equals else None, _read(self, key, text if equals else values))
        elif key.kind is CALLS:
            target.setdefault(name, []).append(values)
        else:
            target[name] = values


def _put_named(action: argparse.Action, target: Settings, name: str, column: str | None, value: Any) -> None:
    given = target.get(name)
    if (column is None and given is not None) or (column is not None and not isinstance(given or {}, dict)):
        raise argparse.ArgumentError(action, f"{value!r} does not fit the others; pass COLUMN=VALUE for each column")
    if column is None:
        target[name] = value
    elif column in (given or {}):
        raise argparse.ArgumentError(action, f"{column!r} is given twice; pass COLUMN=VALUE once for each column")
    else:
        target.setdefault(name, {})[column] = value


def _read(action: argparse.Action, key: Key, text: str) -> Any:
    try:
        return key.kind.read(text)
    except ValueError as error:
        raise argparse.ArgumentError(action, f"{text!r} is not a number") from error


def _named(text: str) -> tuple[str | None, str]:
    """The name of a data set and its file, from NAME=FILE or FILE."""
    match = None if Path(text).exists() else re.match(r"(\w+)=(.+)", text)
    return (match[1], match[2]) if match else (None, text)


def _typed(key: Key) -> Any:
    """The type of a flag for argparse, with errors that show what was given."""
    if key.kind in (BY_NAME, NUMBERS, LENGTHS, CALLS):
        return str

    def read(text: str) -> Any:
        try:
            return key.kind.read(text)
        except ValueError as error:
            said = str(error)
            good = said if said.startswith(repr(text)) else f"{text!r} is not {key.kind.article}"
            raise argparse.ArgumentTypeError(good) from None

    return read


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each key, in groups.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_flags(parser)
        >>> parser.parse_args(["--model", "m", "--data", "a=a.tsv", "--columns", "x,y"]).settings
        {'model': 'm', 'data': [('a', {'file': 'a.tsv', 'columns': ['x', 'y']})]}
    """
    parser.set_defaults(settings=None)
    for title, keys in GROUPS.items():
        group = parser.add_argument_group(title)
        for key in keys:
            more: dict[str, Any] = {"metavar": key.metavar, "type": _typed(key)}
            if key.kind is SWITCH:
                more |= {"nargs": "?", "const": True, "metavar": "BOOL"}
            flag = f"--{key.name.replace('_', '-')}"
            group.add_argument(flag, action=_Put, dest=key.name, default=argparse.SUPPRESS, help=key.about, **more)


# --------------------------------------------------------------------------------------------------------- files


def read_config(path: str) -> Settings:
    """The settings of a TOML or JSON file.

    Raises:
        ImportError: If it is TOML, and Python is older than 3.11.
        ValueError: If the file is not valid, or holds an unknown key or a value of another type.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        found = json.loads(text) if path.endswith(".json") else _toml(path)(text)
    except ValueError as error:
        raise ValueError(f"{path} is not valid {'JSON' if path.endswith('.json') else 'TOML'}: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no table of settings")
    return checked(found, path)


def _toml(path: str) -> Any:
    try:
        from tomllib import loads  # type: ignore[import-not-found, unused-ignore]
    except ImportError:  # Before Python 3.11.
        try:
            from tomli import loads  # type: ignore[import-not-found, no-redef, unused-ignore]
        except ImportError as error:
            raise ImportError(
                f"{path} is TOML, which Python reads from 3.11 on; run: pip install tomli, or write it as .json"
            ) from error
    return loads


def checked(found: Mapping[str, Any], path: str) -> Settings:
    """Settings whose keys are known, with values of the right types; data sets and evaluators as lists of tables.

    Raises:
        ValueError: If a key is unknown or a value of another type; the message names it and the nearest known one.

    Example:
        >>> checked({"epoch": 2}, "a.toml")
        Traceback (most recent call last):
        ValueError: a.toml: epoch is unknown; did you mean epochs?
    """
    settings: Settings = {}
    for name, value in found.items():
        if name in _PARTS:
            tables = value if isinstance(value, dict) else {None: {"file": value}}
            keys = of_part(name)
            settings[name] = [(each, _table(inner, keys, f"{path}, [{name}.{each}]")) for each, inner in tables.items()]
        else:
            settings |= _table({name: value}, KEYS, path)
    return settings


def _table(found: Any, keys: Mapping[str, Key], where: str) -> Settings:
    if not isinstance(found, dict):
        raise ValueError(f"{where} is {found!r:.40}; write a table, with file = ...")
    for name, value in found.items():
        key = keys.get(name)
        if key is None:
            nearest = nearest_argument(name, keys)
            meant = f"did you mean {nearest}?" if nearest else f"the keys are {', '.join(keys)}"
            raise ValueError(f"{where}: {name} is unknown; {meant}")
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        bad_items = key.kind.item and any(not isinstance(part, key.kind.item) for part in parts)
        is_bool = isinstance(value, bool) and key.kind is not SWITCH
        if key.kind.length and isinstance(value, list):
            bad_items = bad_items or len(value) != key.kind.length or bool in map(type, value)
        if not isinstance(value, key.kind.accepts) or is_bool or bad_items:
            raise ValueError(f"{where}: {name} is {value!r:.40}; write {key.kind.article}")
    return dict(found)


# ---------------------------------------------------------------------------------------------------- one run


def gathered(flags: Settings | None, config: str | None) -> Settings:
    """The settings of a run: those of the file, and over them those of the flags.

    What is set outside of all data sets is for each that does not set it itself. With flags for data sets, those of
    the file do not count; so for evaluators.

    Raises:
        ValueError: If a setting is missing.
    """
    flags = flags or {}
    settings = {**(read_config(config) if config else {}), **flags}
    for part in _PARTS:
        shared = {key.inner: settings.pop(name) for name, key in KEYS.items() if _is_shared(key, part, settings)}
        # Flags count more than the tables of the file, and those of one data set more than those of all.
        last = {} if part in flags else {key.inner: flags[n] for n, key in KEYS.items() if _is_shared(key, part, flags)}
        if shared and part == "evaluate" and part not in settings:
            given = next(name for name, key in of_part(part).items() if name in shared)
            raise ValueError(f"--evaluate-{given} needs data; pass a file with --evaluate")
        settings[part] = _by_name([(name, {**shared, **table, **last}) for name, table in settings.get(part, [])], part)
    if not settings["evaluate"] and "evaluate_every" in settings:
        raise ValueError("--evaluate-every needs data; pass a file with --evaluate")
    missing = [name for name in ("model", "output", "data") if not settings.get(name)]
    tables = settings["data"].values()
    missing += [name for name in ("file", "loss") if any(name not in table for table in tables)]
    if missing:
        raise ValueError(f"there is no --{', --'.join(missing)}; pass it, or a file of settings with --config")
    return settings


def _is_shared(key: Key, part: str, settings: Settings) -> bool:
    return key.part == part and key.name != part and key.name in settings


def _by_name(tables: list[tuple[str | None, Settings]], part: str) -> dict[str, Settings]:
    """The tables by name: those of a single one need none, others take those of their files."""
    found: dict[str, Settings] = {}
    for name, table in tables:
        stem = _FILES[part] if len(tables) == 1 else Path(str(table.get("file"))).name.partition(".")[0]
        chosen = name or stem
        if chosen in found:
            raise ValueError(f"two files of --{part} are called {chosen!r}; pass NAME=FILE")
        found[chosen] = table
    return found


def stored(folder: str) -> Settings:
    """The settings that a run has stored in its output folder.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If the file is damaged.
    """
    path = Path(folder) / STORED
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; pass the --output of a run of sbert train")
    try:
        found: Settings = json.loads(path.read_text(encoding="utf-8"))
        tables = [*found["data"].values(), *found["evaluate"].values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}); repeat the command of the run with --resume") from error
    if any(table["file"] == "-" for table in tables):
        raise ValueError(f"{path}: the run read standard input; repeat its command with --resume")
    return {**found, "output": folder}


def to_store(settings: Settings) -> Settings:
    """The settings with whole paths, so that the run can be resumed from any folder."""
    whole = {name: _whole(value) if name in _PATHS else value for name, value in settings.items()}
    for part in _PARTS:
        whole[part] = {
            name: {**table, "file": _whole(table["file"])} if "file" in table else table
            for name, table in settings[part].items()
        }
    return {name: value for name, value in whole.items() if name not in ("quiet", "plot")}


def _whole(path: str) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else path
