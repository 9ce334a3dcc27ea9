"""A small model, texts, and a way to run a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from tests import small

TEXTS = [f"{text} {number}" for number in ("one", "two", "three") for text in small.CORPUS]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with prompts and reference vectors; beside it is ``bert``, its plain transformer."""
    root = tmp_path_factory.mktemp("models")
    reader = Transformer(small.bert(root / "bert"))
    prompts = {"query": "seven green hills: ", "document": "the lake: "}
    SentenceEncoder(reader, Pooling("mean"), prompts=prompts, device="cpu").save(root / "small")
    return root / "small"


@pytest.fixture(scope="session")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of texts in rows 2 to 13, behind an empty one, in the folder where the test runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(["", *TEXTS]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; gives its exit code and what it wrote to stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def check_refused(ended: tuple[int, str, str], message: str) -> None:
    """Raise unless a command has printed an error of one line with this message, and nothing else."""
    code, said, errors = ended
    assert (code, said) == (2, "")
    assert errors.startswith("sbert: error: ")
    assert errors.count("\n") == 1
    assert message in errors


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]
