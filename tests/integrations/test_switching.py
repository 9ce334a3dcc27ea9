"""The switching guide has every public name of sentence-transformers, and the names of ours in it exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

import pytest
from torch import nn

import sbert
from sbert import CrossEncoder, SentenceEncoder
from sbert.integrations import switching
from sbert.integrations.foreign_arguments import ALIASES, REFUSED
from sbert.integrations.switching import DEFAULTS, OF_MODELS, ROWS, Row
from tests import pairs, small

pytestmark = pytest.mark.filterwarnings("ignore")  # The old names of modules warn.
peer = pytest.importorskip("sentence_transformers")

KINDS = ("same", "other name", "other form", "not here")
OUT_OF_SCOPE, OTHERS = "Out of scope", "Arguments of the other methods"
# The sections of modules, and where their names are there and here.
MODULES = {
    "util": (["util"], ["functional", "search"]),
    "losses": (["losses"], ["losses"]),
    "Training": (["", "sentence_transformer", "datasets", "base.sampler", "cross_encoder"], [""]),
    "readers": (["readers"], []),
    "evaluation": (["evaluation"], ["evaluation"]),
    "models": (["models"], ["modules"]),
    "CrossEncoder: losses": (["cross_encoder.losses"], ["losses"]),
    "CrossEncoder: evaluation": (["cross_encoder.evaluation"], []),
}
# Names that only the samplers' module has, and that users pass as strings.
INTERNAL = {f"{name}BatchSampler" for name in ("GroupByLabel", "NoDuplicates", "RoundRobin", "Proportional")}
SECTIONS = dict.fromkeys(row.section for row in ROWS)
TABLES: dict[str, list[Row]] = {section: [row for row in ROWS if row.section == section] for section in SECTIONS}
ARGUMENTS = [*TABLES.pop(DEFAULTS), *TABLES.pop(OF_MODELS)]
SKIPPED = [name for row in TABLES.pop(OUT_OF_SCOPE) for name in row.theirs]
ENCODE, SCORE = ("encode", "encode_query", "encode_document"), ("predict", "rank")


def parameters(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments, without ``self``, ``*args`` and ``**kwargs``."""
    found = inspect.signature(inspect.unwrap(function)).parameters.values()
    return {each.name for each in found if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)} - {"self", "cls"}


def public(model: nn.Module) -> set[str]:
    """The attributes and methods of a model that are not torch's."""
    names = {*dir(type(model)), *vars(model)}
    return {name for name in names if not name.startswith("_") and not hasattr(nn.Module(), name)}


def method(owner: type, name: str) -> Callable[..., Any] | None:
    value = inspect.getattr_static(owner, name, None)
    value = getattr(value, "__func__", value)
    return value if callable(value) and not isinstance(value, type) else None


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The public names of the installed package, by the sections of the guide."""
    root = tmp_path_factory.mktemp("theirs")
    encoder = peer.SentenceTransformer(str(small.bert(root / "encoder")), device="cpu")
    scorer = peer.CrossEncoder(str(pairs.folder(root / "scorer")), device="cpu")
    found: dict[str, set[str]] = {OTHERS: set()}
    for name, model, main, label in (
        ("SentenceTransformer", encoder, ENCODE, "encode"),
        ("CrossEncoder", scorer, SCORE, "predict and rank"),
    ):
        kind = type(model)
        found[f"{name}: constructor"] = parameters(kind.__init__)
        found[f"{name}: {label}"] = set().union(*(parameters(getattr(kind, each)) for each in main))
        found[f"{name}: methods and attributes"] = public(model)
        others = [method(kind, each) for each in public(model) - set(main)]
        found[OTHERS].update(*(parameters(each) for each in others if each))
    for section, (modules, _) in MODULES.items():
        imported = [importlib.import_module(f"sentence_transformers.{module}".rstrip(".")) for module in modules]
        found[section] = {name for module in imported for name in module.__all__} - INTERNAL
    return found


def test_every_name_of_theirs_is_in_the_table_and_no_other(theirs: dict[str, set[str]]) -> None:
    assert set(TABLES) == set(theirs)
    for section, names in theirs.items():
        expected = sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in SKIPPED))
        assert sorted(name for row in TABLES[section] for name in row.theirs) == expected, section
    everything = {name for names in theirs.values() for name in names}
    assert all(any(fnmatchcase(name, pattern) for name in everything) for pattern in SKIPPED)


def test_each_row_has_a_kind_and_what_is_not_the_same_is_explained() -> None:
    for row in (row for rows in TABLES.values() for row in rows):
        assert row.theirs, row
        assert row.how in KINDS, row
        assert row.how == "same" or row.here, row
    assert all(row.here for row in ARGUMENTS if json.loads(row.how) is None)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = pairs.folder(tmp_path_factory.mktemp("ours"))
    return {"SentenceTransformer": SentenceEncoder(device="cpu"), "CrossEncoder": CrossEncoder(folder, device="cpu")}


def taken(function: Callable[..., Any]) -> set[str]:
    """What a function takes under our names and theirs; some are arguments of its decorators."""
    names = parameters(function)
    decorated: Any = function
    while decorated is not None:
        names |= set(inspect.signature(decorated, follow_wrapped=False).parameters)
        decorated = getattr(decorated, "__wrapped__", None)
    return names | {alias for alias, name in ALIASES.items() if name in names} | set(REFUSED)


def known_names(section: str, ours: dict[str, Any]) -> set[str]:
    """The names that are here what they are there, of a section."""
    owner, _, part = section.partition(": ")
    if section in MODULES:
        modules = [importlib.import_module(f"sbert.{module}".rstrip(".")) for module in MODULES[section][1]]
        return {name for module in modules for name in dir(module)}
    if section == OTHERS:
        methods = [method(type(model), each) for model in ours.values() for each in public(model)]
        names = set().union(*(taken(each) for each in methods if each), parameters(sbert.TrainingConfig))
        return names | parameters(nn.Sequential.insert) | parameters(nn.Sequential.extend) | {"key"}
    if part == "methods and attributes":
        return public(ours[owner]) | set(vars(ours[owner])["_modules"])
    functions = {"constructor": ("__init__",), "encode": ENCODE[:1], "predict and rank": SCORE}[part]
    names = set().union(*(taken(getattr(type(ours[owner]), each)) for each in functions))
    return names | public(ours[owner]) | {"modules", "model_name_or_path", "apply_softmax"}


def test_the_same_names_are_here_and_those_that_are_not_are_not(ours: dict[str, Any]) -> None:
    """Other names without ``sbert.`` belong to the class of the section."""
    for section, rows in TABLES.items():
        known = known_names(section, ours)
        for row in rows:
            codes = re.findall(r"``([^`]+)``", row.here)
            for name in row.theirs:
                if row.how == "same":
                    assert name in known, (section, name)
                elif row.how == "not here" and MODULES.get(section, ([], []))[1]:
                    # Losses of pairs of the same name are for vectors here.
                    assert name not in known or section == "CrossEncoder: losses", (section, name)
            if row.how == "other name" and section not in MODULES and section != OTHERS:
                assert codes[0].startswith("sbert.") or codes[0] in known, row


def find_calls(code: str) -> list[tuple[Any, set[str]]]:
    """The functions and classes of ours that a piece of code calls, and their keyword arguments."""
    try:
        nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []
    named = [(ast.unparse(node.func), {keyword.arg or "" for keyword in node.keywords}) for node in nodes]
    return [(attrgetter(name[6:])(sbert), each) for name, each in named if re.fullmatch(r"sbert(\.\w+)+", name)]


def test_names_of_ours_and_their_arguments_exist() -> None:
    for module in ("functional", "data", "training"):
        importlib.import_module(f"sbert.{module}")
    codes = [code for row in ROWS for code in re.findall(r"``([^`]+)``", row.here)]
    names = [name for code in codes for name in re.findall(r"\bsbert(?:\.\w+)+", code)]
    assert len(names) > 60
    for name in names:
        attrgetter(name[6:])(sbert)
    for code in codes:
        for function, keywords in find_calls(code):
            assert keywords <= parameters(function), code


@pytest.mark.parametrize("section", MODULES)
def test_what_the_package_of_their_names_lacks_is_an_error_with_the_words_of_the_guide(section: str) -> None:
    modules = [
        importlib.import_module(f"sbert.integrations.sentence_transformers.{each}".rstrip("."))
        for each in MODULES[section][0]
    ]
    offered = {name for module in modules for name in module.__all__}
    for name in {name for row in TABLES[section] for name in row.theirs} - offered:
        row = switching.find_row(name, section)
        assert row is not None
        with pytest.raises(ImportError, match=re.escape(f"instead: {row.here.replace('``', '')}")):
            getattr(modules[0], name)
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        _ = modules[0].unknown


@pytest.mark.slow  # Only another process can leave out docstrings, and it compiles torch's modules again.
def test_messages_and_guide_stand_without_docstrings() -> None:
    """As ``python -OO`` leaves them out."""
    code = (
        "from sbert.integrations import switching\n"
        "import sbert.integrations.sentence_transformers.losses as losses\n"
        "assert 'EmbedDistillLoss' in switching.__doc__\n"
        "try: losses.EmbedDistillLoss\n"
        "except ImportError as error: assert 'EmbeddingDistillationLoss' in str(error)\n"
        "else: raise SystemExit('no error')"
    )
    assert subprocess.run([sys.executable, "-OO", "-c", code], check=False).returncode == 0


def test_the_guide_has_a_table_per_section() -> None:
    assert (switching.__doc__ or "").count("\n|---|---|---|\n") == len(SECTIONS)
