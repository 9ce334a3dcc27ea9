"""The switching guide has every public name of sentence-transformers, and the names of ours in it exist."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import sbert
from sbert import CrossEncoder, SentenceEncoder
from sbert.integrations import switching
from sbert.integrations.foreign_arguments import ALIASES, REFUSED
from tests import pairs, small
from tests.integrations import snippets

pytestmark = pytest.mark.filterwarnings("ignore")  # The old names of modules warn.
peer = pytest.importorskip("sentence_transformers")

KINDS = ("same", "other name", "other form", "not here")
NAMES = "sbert.integrations.sentence_transformers"
OUT_OF_SCOPE, RUN = "Out of scope", "What is run in both libraries"
# The headings of modules and where their names are here.
MODULES = {
    "util": ["util"],
    "losses": ["losses"],
    "Training": ["", "sentence_transformer", "datasets", "base.sampler", "cross_encoder"],
    "readers": ["readers"],
    "evaluation": ["evaluation"],
    "models": ["models"],
    "CrossEncoder: losses": ["cross_encoder.losses"],
    "CrossEncoder: evaluation": ["cross_encoder.evaluation"],
}
OURS = {
    "util": ["sbert.functional", "sbert.search"],
    "losses": ["sbert.losses"],
    "CrossEncoder: losses": ["sbert.losses"],
    "evaluation": ["sbert.evaluation"],
    "models": ["sbert.modules"],
    "Training": ["sbert"],
}
# Names that only the samplers' module has, and that users pass as strings.
INTERNAL = {f"{name}BatchSampler" for name in ("GroupByLabel", "NoDuplicates", "RoundRobin", "Proportional")}


def tables() -> dict[str, list[tuple[list[str], str, str]]]:
    """The rows of each section of the guide: their names, the kind, and what is said."""
    found = {}
    for section in (switching.__doc__ or "").split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        lines = [line.strip("| ").split("|", 2) for line in body.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line] for line in lines]
        found[heading] = [(re.findall(r"``([^`]+)``", row[0]), row[1], row[2] if row[2:] else "") for row in rows[2:]]
    return found


TABLES = tables()
EXCEPTIONS = TABLES.pop(RUN)
SKIPPED = [name for names, _, _ in TABLES[OUT_OF_SCOPE] for name in names]


def listed(heading: str) -> list[str]:
    return [name for names, _, _ in TABLES[heading] for name in names]


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


ENCODE, SCORE = ("encode", "encode_query", "encode_document"), ("predict", "rank")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The public names of the installed package, by the headings of the guide."""
    root = tmp_path_factory.mktemp("theirs")
    encoder = peer.SentenceTransformer(str(small.bert(root / "encoder")), device="cpu")
    scorer = peer.CrossEncoder(str(pairs.folder(root / "scorer")), device="cpu")
    found: dict[str, set[str]] = {"Arguments of the other methods": set()}
    for name, model, main, called in (
        ("SentenceTransformer", encoder, ENCODE, "encode"),
        ("CrossEncoder", scorer, SCORE, "predict and rank"),
    ):
        kind = type(model)
        found[f"{name}: constructor"] = parameters(kind.__init__)
        found[f"{name}: {called}"] = set().union(*(parameters(getattr(kind, each)) for each in main))
        found[f"{name}: methods and attributes"] = public(model)
        others = [method(kind, each) for each in public(model) - set(main)]
        found["Arguments of the other methods"].update(*(parameters(each) for each in others if each))
    for heading, modules in MODULES.items():
        imported = [importlib.import_module(f"sentence_transformers.{module}".rstrip(".")) for module in modules]
        found[heading] = {name for module in imported for name in module.__all__} - INTERNAL
    return found


def test_every_name_of_theirs_is_in_the_guide_and_no_other(theirs: dict[str, set[str]]) -> None:
    assert set(TABLES) - {OUT_OF_SCOPE} == set(theirs)
    for heading, names in theirs.items():
        expected = {name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in SKIPPED)}
        assert set(listed(heading)) == expected, heading
        assert len(listed(heading)) == len(expected), f"{heading} has a name twice"
    everything = {name for names in theirs.values() for name in names}
    assert all(fnmatch.filter(everything, pattern) for pattern in SKIPPED)
    print(f"{sum(map(len, theirs.values()))} names of sentence-transformers {peer.__version__}")


def test_each_row_has_a_kind_and_what_is_not_the_same_is_explained() -> None:
    for heading, rows in TABLES.items():
        for names, kind, said in rows:
            assert names, heading
            assert kind in KINDS, names
            assert kind == "same" or said, names


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = pairs.folder(tmp_path_factory.mktemp("ours"))
    return {
        "SentenceTransformer": SentenceEncoder(device="cpu"),
        "CrossEncoder": CrossEncoder(folder, device="cpu"),
    }


def taken(call: Callable[..., Any]) -> set[str]:
    """What a function takes under our names and theirs; ``pool`` and the like are arguments of its decorators."""
    names = parameters(call)
    decorated: Any = call
    while decorated is not None:
        names |= set(inspect.signature(decorated, follow_wrapped=False).parameters)
        decorated = getattr(decorated, "__wrapped__", None)
    return names | {alias for alias, name in ALIASES.items() if name in names} | set(REFUSED)


def has(heading: str, name: str, ours: dict[str, Any]) -> bool:
    """Whether a name is here what it is there."""
    owner, _, part = heading.partition(": ")
    if heading in OURS:
        return any(hasattr(importlib.import_module(module), name) for module in OURS[heading])
    if part == "methods and attributes":
        return name in public(ours[owner])
    if heading == "Arguments of the other methods":
        others = [method(type(model), each) for model in ours.values() for each in public(model)]
        known = set().union(*(taken(each) for each in others if each), parameters(sbert.TrainingConfig))
        return name in known | parameters(nn.Sequential.insert) | parameters(nn.Sequential.extend) | {"key"}
    called = {"constructor": ("__init__",), "encode": ENCODE[:1], "predict and rank": SCORE}[part]
    names = set().union(*(taken(getattr(type(ours[owner]), each)) for each in called))
    return name in names | {"modules", "model_name_or_path"} if part == "constructor" else name in names


def test_the_same_names_are_here_and_those_that_are_not_are_not(ours: dict[str, Any]) -> None:
    for heading, rows in TABLES.items():
        if heading in ("readers", "CrossEncoder: evaluation", OUT_OF_SCOPE):
            assert not any(kind == "same" for _, kind, _ in rows)
            continue
        for names, kind, _ in rows:
            for name in names:
                if kind == "same":
                    assert has(heading, name, ours), (heading, name)
                elif kind == "not here" and heading in OURS:
                    # Losses of pairs of the same name are for vectors here.
                    known = heading == "CrossEncoder: losses" and hasattr(sbert.losses, name)
                    assert known or not has(heading, name, ours), (heading, name)


def calls(code: str) -> list[tuple[Any, set[str]]]:
    """The functions and classes of ours that a piece of code calls, and their keyword arguments."""
    try:
        nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []
    names = [ast.unparse(node.func) for node in nodes]
    keywords = [{keyword.arg or "" for keyword in node.keywords} for node in nodes]
    simple = [re.fullmatch(r"sbert(\.\w+)+", name) for name in names]
    return [(attrgetter(name[6:])(sbert), each) for name, each, ok in zip(names, keywords, simple, strict=True) if ok]


def test_names_of_ours_and_their_arguments_exist(ours: dict[str, Any]) -> None:
    for module in ("functional", "data", "training"):
        importlib.import_module(f"sbert.{module}")
    seen = 0
    for rows in TABLES.values():
        for _, _, said in rows:
            for code in re.findall(r"``([^`]+)``", said):
                for name in re.findall(r"\bsbert(?:\.\w+)+", code):
                    attrgetter(name[6:])(sbert)
                    seen += 1
                for function, keywords in calls(code):
                    assert keywords <= parameters(function), code
    assert seen > 60


def test_other_names_of_attributes_exist(ours: dict[str, Any]) -> None:
    """Names without ``sbert.`` belong to the class of the section."""
    for heading, rows in TABLES.items():
        owner, _, part = heading.partition(": ")
        if owner not in ours or part in ("losses", "evaluation"):
            continue
        for names, kind, said in rows:
            name = (re.findall(r"``([^`]+)``", said) or [""])[0]
            if kind == "other name" and not name.startswith("sbert."):
                call = {"constructor": ("__init__",), "encode": ENCODE[:1], "predict and rank": SCORE}.get(part, ())
                known = set().union(*(taken(getattr(type(ours[owner]), each)) for each in call), public(ours[owner]))
                known |= set(vars(ours[owner])["_modules"])
                assert name in known, (heading, names, name)


HEADINGS = {
    "SentenceTransformer(name_or_folder)": ["SentenceTransformer: constructor"],
    "encode(sentences)": ["SentenceTransformer: encode"],
    "model": ["SentenceTransformer: methods and attributes", "Arguments of the other methods"],
    "sbert": ["Training", OUT_OF_SCOPE],
}


def said_of(group: str, call: str) -> list[tuple[str, str]]:
    """The kind and the remark of a call of the snippets, by its argument or its name."""
    name = re.sub(r"=[^)]*", "=", call).removeprefix("model[0].")
    name = (re.findall(r"(\w+)=", name) or re.findall(r"\w+", name))[-1 if "=" in name else 0]
    rows = [row for heading in HEADINGS[group] for row in TABLES[heading]]
    return [
        (kind, said) for names, kind, said in rows if any(fnmatch.fnmatch(name, each) for each in names) or name in said
    ]


def test_the_guide_says_of_each_snippet_whether_it_runs() -> None:
    """Calls that are run in both libraries are in the tables as such, and those that raise are not called the same."""
    for group, calls in snippets.PLAIN.items():
        for call in calls:
            assert any(kind != "not here" or said.startswith("only") for kind, said in said_of(group, call)), call
    for group, calls in snippets.REFUSED.items():
        for call in set(calls) - {"util", "models"}:  # These are headings.
            assert said_of(group, call)[0][0] != "same", call
    assert {"util", "models"} <= set(TABLES)


def test_the_guide_has_the_figures_of_the_snippets_and_those_that_differ() -> None:
    groups = [calls for table in (snippets.PLAIN, snippets.SCRIPTS, snippets.SLOW) for calls in table.values()]
    count = sum(map(len, groups))
    section = (switching.__doc__ or "").partition(f"## {RUN}")[2].partition("\n## ")[0]
    assert section.strip().startswith(f"{count} pieces")
    assert f" {count - len(snippets.DIFFERENT)} give the same." in " ".join(section.split())
    assert {names[0]: reason for names, reason, _ in EXCEPTIONS} == snippets.DIFFERENT


def offers(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(f"{NAMES}.{module}".rstrip(".")), name)
    except ImportError:  # With the name of ours.
        return False


def test_what_has_a_counterpart_is_in_the_package_of_their_names_or_said_not_to_be() -> None:
    importlib.import_module(NAMES)
    section = (switching.__doc__ or "").partition(f"## {RUN}")[2].partition("\n## ")[0]
    said = set(re.findall(r"``(\w+)``", section.partition("Some names have")[2]))
    missing = {
        name
        for heading, modules in MODULES.items()
        for names, kind, _ in TABLES[heading]
        for name in names
        if kind != "not here" and not any(offers(module, name) for module in modules)
    }
    assert missing == said


def test_the_guide_is_a_page_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pdoc")
    from tests.project import render_site

    monkeypatch.setattr(render_site, "PAGES", ["sbert.integrations"])
    render_site.render(tmp_path)
    page = (tmp_path / "sbert/integrations/switching.html").read_text(encoding="utf-8")
    assert page.count("<table>") == len(TABLES) + bool(EXCEPTIONS)
