"""Calls of scripts for sentence-transformers give here what they give there: the pieces of ``snippets.md``."""

from __future__ import annotations

import copy
import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from tests import pairs, small

peer = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # Old names warn there, and truncated texts here.

NAMED = "sbert.integrations.sentence_transformers"
OURS = {"plain": "sbert", "refused": "sbert"}
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
    "centred": lambda vectors: vectors - vectors.mean(0),
}


IMPORTS = """import copy, io, json, os, pickle, torch
import numpy as np
from pathlib import Path
from sentence_transformers import CrossEncoder, SentenceTransformer, models, util
"""


class Snippet(NamedTuple):
    """A piece: its table and group, its name, the code, and the reason if it is different or not here."""

    table: str
    group: str
    name: str
    code: str
    reason: str = ""


def read_snippets() -> Iterator[Snippet]:
    text = Path(__file__).with_name("snippets.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, *pieces = re.split(r"^### ", part, flags=re.MULTILINE)
        table, _, group = heading.partition("\n")[0].partition(": ")
        start = "".join(re.findall(r"```python\n(.*?)```", heading, re.DOTALL))
        for piece in pieces:
            name, _, body = piece.partition("\n")
            (code,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
            yield Snippet(table, group, name, start + code)
        for line in re.findall(r"```text\n(.*?)```", heading, re.DOTALL)[0].splitlines() if not pieces else ():
            shown, _, reason = line.partition("  # ")
            *before, value = shown.split("; ")
            yield Snippet(table, group, shown, IMPORTS + "\n".join([*before, f"result = {value}"]), reason)


def pieces_of(*tables: str) -> Any:
    chosen = [piece for piece in read_snippets() if piece.table in tables]
    return pytest.mark.parametrize("piece", chosen, ids=lambda piece: f"{piece.group}: {piece.name}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Models that both libraries read, without dropout: an encoder with a prompt, scorers of one and three classes."""
    root = tmp_path_factory.mktemp("models")
    small.bert(root / "bert")
    for classes, name in ((1, "scorer"), (3, "scorer3")):
        pairs.folder(root / name, classes=classes)
    for path in root.glob("*/config.json"):
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))
    SentenceEncoder(root / "bert", device="cpu", prompts={"query": "the red "}).save(root / "encoder")
    return {"folder": str(root / "encoder"), "scorer_folder": str(root / "scorer")}


@cache
def load(kind: type, folder: str) -> Any:
    return kind(folder, device="cpu")


def run(piece: Snippet, library: str, folders: dict[str, str], new: Path) -> Any:
    """The result of a piece with a library."""
    kind = SentenceEncoder if library == "sbert" else importlib.import_module(library).SentenceTransformer
    names: dict[str, Any] = {"SentenceTransformer": kind, "new": str(new), **folders, **copy.deepcopy(GIVEN)}
    if re.search(r"\bmodel\b", piece.code):
        names["model"] = copy.deepcopy(load(kind, folders["folder"]))
    torch.manual_seed(0)
    exec(piece.code.replace("from sentence_transformers", f"from {library}"), names)
    return names.get("result")


def check_equal(found: Any, expected: Any, strict: bool = False) -> None:
    """Raise unless two results have the same keys, texts and whole numbers, and nearly the same other numbers.

    With ``strict``, arrays and tensors have the same types and dtypes.
    """
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        found, expected = [found[name] for name in expected], list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other, strict)
    elif isinstance(expected, (np.ndarray, torch.Tensor, float)):
        if strict and not isinstance(expected, float):
            assert (type(found), found.dtype) == (type(expected), expected.dtype)
        first, second = (torch.as_tensor(value).detach().double() for value in (found, expected))
        torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4 if strict else 0)
    else:
        assert found == expected


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is uploaded; what a trainer writes into the current folder is thrown away."""
    monkeypatch.setattr(
        "sbert.storage.hub.upload", lambda path, repo_id, *_: f"{repo_id}: {len(list(path.iterdir())) > 3}"
    )
    monkeypatch.setattr(peer.SentenceTransformer, "push_to_hub", lambda self, repo_id, **_: f"{repo_id}: True")
    monkeypatch.chdir(tmp_path)


@pieces_of("plain", "scripts", "slow", "programs", "lines")
def test_a_call_gives_what_it_gives_in_sentence_transformers(
    piece: Snippet, folders: dict[str, str], tmp_path: Path
) -> None:
    """What a call returns; after training, the vectors of the model."""
    expected = run(piece, "sentence_transformers", folders, tmp_path / "theirs")
    assert expected is not None or piece.table == "lines"
    check_equal(run(piece, OURS.get(piece.table, NAMED), folders, tmp_path / "ours"), expected, piece.table == "lines")


@pieces_of("different")
def test_what_is_different_is_so_on_purpose(piece: Snippet, folders: dict[str, str], tmp_path: Path) -> None:
    expected = run(piece, "sentence_transformers", folders, tmp_path / "theirs")
    assert run(piece, NAMED, folders, tmp_path / "ours") != expected


@pieces_of("refused", "not here")
def test_what_is_not_here_raises_and_does_not_do_something_else(
    piece: Snippet, folders: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError, ImportError), match=piece.reason):
        run(piece, OURS.get(piece.table, NAMED), folders, tmp_path / "new")
