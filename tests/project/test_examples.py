"""The training examples run without network and data, and what they train is better than before."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from sbert import Pooling, SentenceEncoder, Transformer

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def figures(said: str) -> tuple[float, float]:
    """The first figure before training, and after."""
    before, after = (re.findall(rf"(-?[0-9.]+) {word}|{word}: (-?[0-9.]+)", said)[0] for word in ("before", "after"))
    return float("".join(before)), float("".join(after))


def run(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> dict[str, Any]:
    """The names of an example, once it has run in this process: its imports take longer than most examples."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two small layers that knows all words of the examples."""
    folder, tokenizer = tmp_path_factory.mktemp("tiny"), SentenceEncoder(device="cpu").tokenizer
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **size)).save_pretrained(
        folder / "bert"
    )
    tokenizer.save_pretrained(folder / "bert")
    SentenceEncoder(Transformer(folder / "bert"), Pooling(), device="cpu").save(folder / "model")
    return folder / "model"


# A warning ends it.
runs_quietly = pytest.mark.filterwarnings("error", "ignore:unknown tokens")


@runs_quietly
@pytest.mark.slow  # The only test that runs the training examples.
def test_training(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On made-up rows: what learns from nothing is better after it; a tiny model only runs."""
    monkeypatch.chdir(tmp_path)
    names = ["train_nli", "train_stsb", "train_triplets", "distil", "train_second_language", "train_cross_encoder"]
    for name in [*names, "custom_loss"]:
        run(monkeypatch, name, "--model", tiny, "--output", tmp_path / name)
        said = capsys.readouterr().out
        assert all(-1 <= figure <= 1 for figure in figures(said)), name
        assert (tmp_path / name / "final").is_dir(), name
    assert "resumed from step 10, ended at step 20" in said
    run(monkeypatch, "train_korean")
    before, after = figures(capsys.readouterr().out)
    assert before < 0.7 < 0.8 < after


@runs_quietly
@pytest.mark.slow  # Reads what no made-up file can stand for: the real ones, in the columns that the examples name.
def test_training_with_data(
    tiny: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train_nli", "train_stsb", "train_triplets", "custom_loss", "distil", "train_second_language"):
        run(monkeypatch, name, "--data", data, "--rows", "24", "--model", tiny)
        assert all(-1 <= figure <= 1 for figure in figures(capsys.readouterr().out)), name


# --------------------------------------------------------------------------------------------------- pretraining

SMALL = ["--layers", "1", "--width", "32", "--dtype", "float32", "--device", "cpu", "--steps", "40"]


@pytest.mark.gate  # Of the paper.
@pytest.mark.slow
def test_pretraining_killed_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with the weights of a run that nobody killed; a SentenceEncoder takes the model."""

    def pretrain(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["pretrain.py", "--output", str(tmp_path / name), *SMALL, *words])
        importlib.import_module("examples.paper.pretrain").main()
        return capsys.readouterr().out

    def save_and_end(state: Any, path: Path) -> None:
        if path.with_suffix(".pt").exists():
            path.write_bytes(b"a part")
            raise KeyboardInterrupt
        save(state, path)

    before, after = figures(pretrain("whole"))
    assert after < before
    killed, save = tmp_path / "killed", torch.save
    killed.mkdir()
    # The trainer of vocabularies breaks ties by chance.
    shutil.copytree(tmp_path / "whole" / "vocabulary", killed / "vocabulary")
    monkeypatch.setattr(torch, "save", save_and_end)
    with pytest.raises(KeyboardInterrupt):
        pretrain("killed", "--save-every", "5")
    monkeypatch.setattr(torch, "save", save)
    assert not (killed / "model").exists()
    assert "steps 5 to 40" in pretrain("killed")
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "killed"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    model = SentenceEncoder(Transformer(killed / "model"), Pooling(), device="cpu")
    assert model.encode(["A woman sings a song in the park."]).shape == (1, 32)


# ------------------------------------------------------------------------------------------------- made-up rows


def test_made_up_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same every time, and nothing held out is trained on; the Korean ones have the labels of the English."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    shared, korean = (importlib.import_module(name) for name in ("shared", "korean_rows"))
    columns = {shared.nli: "premise", shared.paraphrases: "anchor", shared.scored_pairs: "sentence1"}
    for make, column in {**columns, korean.translations: "kor"}.items():
        train, held_out = make(100, seed=0), make(50, seed=1, held_out=True)
        assert train == make(100, seed=0)
        assert train != make(100, seed=1)
        assert not {row[column] for row in held_out} & {row[column] for row in train}
    for module in ((shared.nli, shared.scored_pairs), (korean.korean_nli, korean.korean_pairs)):
        assert [row["label"] for row in module[0](5, seed=0)] == [0, 1, 2] * 5
        assert {row["label"] for row in module[1](200, seed=0)} == {0, 0.2, 0.4, 0.6, 0.8, 1}


# --------------------------------------------------------------------------------------------------- notebooks

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def read_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_shows_its_outputs(path: Path) -> None:
    """As a reader sees it without running it: executed in order, without errors, and with a picture."""
    assert path.stat().st_size < 400_000
    cells = read_cells(path)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


@pytest.mark.slow  # One of them trains; on few rows here.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells run as a program, in an empty folder; an error in a cell ends it."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, cell in enumerate(read_cells(path), start=1):
        source = "".join(cell["source"]).replace("pairs(400", "pairs(32")
        exec(compile(source, f"{path.name}, cell {number}", "exec"), names)
    assert list(tmp_path.iterdir()) == []
