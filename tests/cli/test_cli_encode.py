"""``sbert encode`` and ``sbert merge``: several inputs, columns, shards, and what they hand to the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from tests.cli.conftest import Run, check_refused

TEXTS = [f"{a} {b} {c}" for a in ("red", "small", "seven") for b in ("fox", "boat", "hills") for c in ("runs", "lies")]


@pytest.fixture(scope="module")
def vectors(model: SentenceEncoder) -> Any:
    return model.encode(TEXTS)


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a folder of two files of texts."""
    (tmp_path / "corpus").mkdir()
    for place, name in enumerate(["a.jsonl", "b.jsonl"]):
        rows = [{"id": 100 + row, "body": TEXTS[row]} for row in range(9 * place, 9 * place + 9)]
        (tmp_path / "corpus" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize("inputs", ["corpus", "corpus/*.jsonl", "corpus/a.jsonl corpus/b.jsonl"])
def test_several_inputs(folder: Path, vectors: Any, run: Run, inputs: str) -> None:
    code, said, errors = run("encode", folder, *inputs.split(), "-o", "v.npy", "--column", "body")
    assert (code, said, errors) == (0, "v.npy: 18 vectors of 16 float32\n", "")
    assert np.array_equal(np.load("v.npy"), vectors)


@pytest.mark.parametrize(
    ("words", "model", "inputs"),
    [
        ("corpus", "sbert-mini", ["corpus"]),
        ("corpus/*.jsonl corpus", "sbert-mini", ["corpus/*.jsonl", "corpus"]),
        ("- corpus", "sbert-mini", ["-", "corpus"]),
        ("all-MiniLM-L6-v2 corpus", "all-MiniLM-L6-v2", ["corpus"]),
        ("folder/model corpus/a.jsonl corpus", "folder/model", ["corpus/a.jsonl", "corpus"]),
    ],
)
def test_the_first_word_is_a_model_unless_it_is_an_input(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: str, model: str, inputs: list[str]
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("sbert.cli.encode._encode", lambda arguments, files: seen.append((arguments.model, files)))
    assert run("encode", *words.split(), "-o", "v.npy") == (0, "", "")
    assert seen == [(model, inputs)]


def test_several_devices_are_a_pool(folder: Path, vectors: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[list[str]] = []
    monkeypatch.setattr(SentenceEncoder, "pool", lambda self, devices: pools.append(devices) or self)
    words = ["encode", folder, "corpus", "--column", "body", "-o", "v.npy", "--devices", "cpu,cpu"]
    assert run(*words)[0] == 0
    assert pools == [["cpu", "cpu"]]
    assert np.array_equal(np.load("v.npy"), vectors)


# -------------------------------------------------------------------------------------------- shards


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_shards(folder: Path, vectors: Any, run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("sbert.vector_files.reader.STRIPE", 4)  # Of 5 stripes, the first shard has 3.
    words = ["encode", folder, "corpus", "--column", "body", "-o", name, "--shard"]
    assert run(*words, "0/2") == (0, f"{name}, shard 0/2: 10 vectors of 16 float32\n", "")
    check_refused(run("merge", name), "error: 1 of 2 shards are missing or not finished: ")
    assert run(*words, "1/2", "--quiet") == (0, "", "")
    written = Path(f"v-00001-of-00002{Path(name).suffix}").stat().st_mtime_ns
    assert run(*words, "1/2", "--quiet") == (0, "", "")  # It is skipped.
    assert Path(f"v-00001-of-00002{Path(name).suffix}").stat().st_mtime_ns == written
    assert run("merge", name) == (0, f"{name}: 18 vectors\n", "")
    if name == "v.npy":
        assert np.abs(np.load(name) - vectors).max() <= 1e-6
    refused = "was written with --batch-size None, and this call has 2; make the same call, or pass --overwrite"
    check_refused(run(*words, "1/2", "--batch-size", "2"), refused)
    assert run(*words, "1/2", "--batch-size", "2", "--overwrite", "--quiet") == (0, "", "")
