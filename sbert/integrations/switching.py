"""The names of sentence-transformers, and what each is here: the tables of ``migrating.md`` and of errors that hint."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

# The section of arguments that are taken at one value alone, which is in the second column, as JSON.
OF_MODELS = "Arguments of models at their default"
TRAINING, TRAINERS = "TrainingArguments", "Arguments and methods of trainers"
_FOLDER = Path(__file__).parent / "sentence_transformers"


class Counterpart(NamedTuple):
    """Names of sentence-transformers, and what they are called here; or a parameter of a class or function of theirs.

    Args:
        section: The section of the page, ``migrating.md``; of a parameter, the class or function, after its module.
        names: The names there, or patterns of names.
        how: ``"same"``, ``"other name"``, ``"other form"``, ``"no effect"`` or ``"not here"``; of a parameter, also
            ``"only"`` if it is taken at its default alone.
        here: What to use instead; of a parameter, its name here, or the reason why it has no effect.
        default: Of a parameter, its default there, as JSON; empty if it has none.
        older: Its older name.
        convert: How the value here is made of that there, by the name of a function.
    """

    section: str
    names: list[str]
    how: str
    here: str
    default: str = ""
    older: str = ""
    convert: str = ""

    @property
    def new_name(self) -> str | None:
        """The name with which ``here`` begins, if it does."""
        return self.here.split("``")[1] if self.here.startswith("``") else None

    @property
    def plain(self) -> str:
        """``here`` without markup, for errors."""
        return self.here.replace("``", "")


def read_table(name: str) -> list[list[str]]:
    """The rows of one of the tables of their names, without its head."""
    with (_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


_TABLE = [Counterpart(section, names.split(), *more) for section, names, *more in read_table("names.csv")]
COUNTERPARTS: list[Counterpart] = [row for row in _TABLE if "." not in row.section]
PARAMETERS: list[Counterpart] = [row for row in _TABLE if "." in row.section]


def find_counterpart(name: str) -> Counterpart | None:
    """The first row of a name of sentence-transformers; None if there is none.

    Example:
        >>> from sbert.integrations.switching import find_counterpart
        >>> find_counterpart("BatchHardSoftMarginTripletLoss").here
        '``sbert.losses.BatchHardTripletLoss(margin=None)``'
    """
    return next((row for row in COUNTERPARTS if any(fnmatchcase(name, pattern) for pattern in row.names)), None)


# --------------------------------------------------------------- arguments of calls, for ``sbert.inputs.arguments``

# Names that are not taken, and the names here that an error suggests; () if there is no equivalent.
SUGGESTIONS: dict[str, tuple[str, ...]] = {name: tuple(here.split()) for name, here in read_table("suggestions.csv")}
for _row in COUNTERPARTS:
    if _row.section == TRAINING and _row.new_name:
        SUGGESTIONS |= dict.fromkeys(_row.names, (_row.new_name,))
# Names that the encoders take as well as those here.
ALIASES: dict[str, str] = dict(read_table("aliases.csv"))
# Arguments without an equivalent: those that change nothing here, and those that are taken at their default alone.
REFUSED = {name: row for row in COUNTERPARTS if row.section == OF_MODELS for name in row.names}


def translate(
    label: str, names: list[str], args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call under the names here; arguments without an equivalent are left out if they have their default.

    Args:
        label: The function, for errors.
        names: The names of its arguments here.
        args: Its arguments by position.
        options: Its arguments by name.

    Raises:
        TypeError: If an argument is passed under both names.
        ValueError: If one without an equivalent has another value than it can have here. The message says what to do.

    Example:
        >>> from sbert.integrations.switching import translate
        >>> translate("CrossEncoder", ["model", "classes"], (), {"num_labels": 3, "backend": "torch"})
        ((), {'classes': 3})
    """
    renamed: dict[str, Any] = {}
    for name, value in options.items():
        if (row := REFUSED.get(name)) and name not in names:
            if row.how != "any" and value != (default := json.loads(row.how)):
                raise ValueError(f"{label}() got {name}={value!r:.60}, where only {default!r} is supported; {row.here}")
            continue
        alias = ALIASES.get(name, name)  # SentenceEncoder takes its model by position.
        new_name = alias if name not in names and (alias in names or alias == "model") else name
        if new_name in renamed:
            raise TypeError(f"{label}() got {new_name!r} under two names; pass it once")
        renamed[new_name] = value
    if label == "SentenceEncoder":  # Its modules are passed by position.
        chain = renamed.pop("modules", None) or ()
        chain = [chain] if isinstance(chain, (str, os.PathLike)) else chain
        args = (*args, *(chain.values() if isinstance(chain, Mapping) else chain))
        model = renamed.pop("model", None)
        args = args if model is None else (*args, model)
    if label == "CrossEncoder.predict" and renamed.pop("apply_softmax", False):
        renamed["activation"] = _with_softmax(args[0], renamed.get("activation"))
    return args, renamed


def _with_softmax(model: Any, activation: Any) -> Any:
    """The activation of a cross-encoder, followed by a softmax over the scores of several classes."""
    first = activation or model.activation
    return (lambda scores: first(scores).softmax(-1)) if model.classes > 1 else first
