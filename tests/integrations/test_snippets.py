"""Calls of scripts for sentence-transformers give here what they give there."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from tests import pairs, small
from tests.integrations import snippets

peer = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # Old names warn there, and truncated texts here.

OURS = "sbert.integrations.sentence_transformers"
GIVEN: dict[str, Any] = {
    "texts": [
        "a small boat lies on the quiet lake",
        "the red fox",
        "one two three",
        "the boat lies on the lake",
        "seven green hills before the long winter",
        "nobody rows it home",
        "the red fox runs",
        "four five six seven",
    ],
    "queries": ["the quiet lake", "a fox on the hills"],
    "rows": [
        ("a small boat", "the boat lies on the lake", "seven eight nine"),
        ("the red fox", "a fox runs over the hills", "one two three"),
        ("seven green hills", "the hills before the winter", "eight nine ten"),
        ("four five six", "three four five six seven", "the quiet lake"),
        ("nobody rows it", "a boat lies on the quiet lake", "the red hills"),
        ("the long winter", "before the winter", "a small fox"),
    ],
    "scores": [0.9, 0.7, 0.2, 0.8, 0.5, 0.1],
}
TABLES = {"plain": snippets.PLAIN, "scripts": snippets.SCRIPTS, "slow": snippets.SLOW}
ALL = [
    pytest.param(table, group, name, id=f"{group}: {name}", marks=[pytest.mark.slow] if table == "slow" else [])
    for table, groups in TABLES.items()
    for group, calls in groups.items()
    for name in calls
]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Models that both libraries read: an encoder with a prompt, and scorers of one and of three classes."""
    root = tmp_path_factory.mktemp("models")
    without_dropout(small.bert(root / "bert"))
    SentenceEncoder(root / "bert", device="cpu", prompts={"query": "the red "}).save(root / "encoder")
    for classes, name in ((1, "scorer"), (3, "scorer3")):
        without_dropout(pairs.folder(root / name, classes=classes))
    return {"folder": str(root / "encoder"), "scorer_folder": str(root / "scorer")}


def without_dropout(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))


def centred(vectors: Any) -> Any:
    return vectors - vectors.mean(0)


def run(source: str, library: str, folders: dict[str, str], new: Path) -> Any:
    """The result of a snippet with a library."""
    kind = SentenceEncoder if library == "sbert" else importlib.import_module(library).SentenceTransformer
    known: dict[str, Any] = {
        "SentenceTransformer": kind,
        "new": str(new),
        "centred": centred,
        **folders,
        **copy.deepcopy(GIVEN),
    }
    if re.search(r"\bmodel\b", source):
        known["model"] = kind(folders["folder"], device="cpu")
    torch.manual_seed(0)
    exec(source.replace("from sentence_transformers", f"from {library}"), known)
    return known.get("result")


def check_equal(found: Any, expected: Any) -> None:
    """Raise unless two results have the same keys, texts and whole numbers, and nearly the same other numbers."""
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for name, value in expected.items():
            check_equal(found[name], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, (str, bool, int)):
        assert found == expected
    else:
        first, second = (np.asarray(torch.as_tensor(value).detach()) for value in (found, expected))
        np.testing.assert_allclose(first, second, atol=TOLERANCE, rtol=0)


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is uploaded; what a trainer writes into the current folder is thrown away."""
    monkeypatch.setattr(
        "sbert.storage.hub.upload", lambda path, repo_id, *_: f"{repo_id}: {len(list(path.iterdir())) > 3}"
    )
    monkeypatch.setattr(peer.SentenceTransformer, "push_to_hub", lambda self, repo_id, **_: f"{repo_id}: True")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("table", "group", "name"), ALL)
def test_a_call_gives_what_it_gives_in_sentence_transformers(
    table: str, group: str, name: str, folders: dict[str, str], tmp_path: Path
) -> None:
    """What a call returns; after training, the vectors of the model."""
    source = TABLES[table][group][name]
    ours = "sbert" if table == "plain" else OURS
    expected = run(source, "sentence_transformers", folders, tmp_path / "theirs")
    assert expected is not None
    if name in snippets.DIFFERENT:
        with pytest.raises(Exception):  # noqa: B017, PT011
            check_equal(run(source, ours, folders, tmp_path / "ours"), expected)
        return
    check_equal(run(source, ours, folders, tmp_path / "ours"), expected)


REFUSED = [(group, name) for group, calls in snippets.REFUSED.items() for name in calls]


@pytest.mark.parametrize(("group", "name"), REFUSED, ids=[f"{group}: {name}" for group, name in REFUSED])
def test_what_is_not_here_raises_and_does_not_do_something_else(
    group: str, name: str, folders: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError, ImportError)):
        run(snippets.REFUSED[group][name], "sbert", folders, tmp_path / "new")


def test_at_least_95_percent_of_60_snippets_and_more_are_equal() -> None:
    names = [param.values[2] for param in ALL]
    assert len(names) >= 60
    for table, groups in TABLES.items():
        for group, calls in groups.items():
            for name, source in calls.items():
                body = [node for node in ast.parse(source).body if not isinstance(node, (ast.Import, ast.ImportFrom))]
                assert 1 <= len(body) <= 8, (table, group, name)
    assert set(snippets.DIFFERENT) <= set(names)
    share = 1 - sum(name in snippets.DIFFERENT for name in names) / len(names)
    print(f"{len(names)} snippets, {share:.1%} with equal results")
    assert share >= 0.95
