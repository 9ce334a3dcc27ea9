"""The training examples run without network and data, and what they train is better than before."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from safetensors.torch import load_file

from sbert import Pooling, SentenceEncoder, Transformer

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
TRAINING = ["train_nli", "train_stsb", "train_triplets", "train_korean", "custom_loss", "distil"]
MINUTES = ["train_second_language", "train_cross_encoder"]  # They take as long on made-up rows.


def program(name: str) -> list[str]:
    """The words that start an example: a file, or a module of a package such as ``examples.paper``."""
    return ["-m", f"examples.{name}"] if "." in name else [str(EXAMPLES / f"{name}.py")]


def output(name: str, folder: Path, *words: object) -> str:
    """What an example prints, in an empty folder, with an empty hub and no network; a warning ends it."""
    return _run(folder, [*program(name), *map(str, words)])


def _run(folder: Path, words: list[str], ignored: str = "nothing") -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", f"ignore:{ignored}", *words],
        cwd=folder,
        env={**ENVIRONMENT, "HF_HUB_CACHE": str(folder / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(said: str) -> tuple[float, float]:
    """The first figure before training, and after."""
    before = re.search(r"(-?[0-9.]+) before|before: (-?[0-9.]+)", said)
    after = re.search(r"(-?[0-9.]+) after|after: (-?[0-9.]+)", said)
    assert before is not None
    assert after is not None
    return float(before[1] or before[2]), float(after[1] or after[2])


# One process for several examples, since its imports take longer than most of them. After an example's name comes what
# it prints.
_IN_TURN = """
import json, runpy, sys
folder = f"{sys.path[1]}/examples"
sys.path.insert(0, folder)
for name, words in json.loads(sys.argv[1]).items():
    sys.argv = [name, *words]
    print(f"\\n== {name}", flush=True)
    runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
"""


def outputs(folder: Path, calls: dict[str, list[str]], ignored: str = "nothing") -> dict[str, str]:
    """What each example prints, run as ``output`` does."""
    said = _run(folder, ["-c", _IN_TURN, json.dumps(calls)], ignored)
    parts = dict(part.split("\n", 1) for part in said.split("\n== ")[1:])
    assert list(parts) == list(calls)
    return parts


@pytest.mark.slow
def test_without_arguments(tmp_path: Path) -> None:
    """The figure is at most the first before, at least the second after, and rises."""
    limits = {
        "train_nli": (0.5, 0.9),
        "train_stsb": (0.91, 0.92),
        "train_triplets": (0.8, 0.95),
        "train_korean": (0.7, 0.8),
        "custom_loss": (0.2, 0.4),
        "distil": (0.4, 0.7),
    }
    said = outputs(tmp_path, {name: [] for name in limits})
    for name, (most, least) in limits.items():
        before, after = figures(said[name])
        assert before < most, name
        assert after > max(least, before + 0.02), name
    assert list(tmp_path.iterdir()) == []
    assert "resumed from step 10, ended at step 20" in said["custom_loss"]


@pytest.mark.slow
def test_with_data(tmp_path: Path, data: Path) -> None:
    """On rows so few that nothing is learned, in a language that is not the model's, too."""
    rows = dict.fromkeys(TRAINING, 48) | dict.fromkeys(MINUTES, 16)
    words = {n: ["--data", str(data), "--rows", str(k), "--output", str(tmp_path / n)] for n, k in rows.items()}
    for name, said in outputs(tmp_path, words, ignored="unknown tokens").items():
        assert all(-1 <= figure <= 1 for figure in figures(said)), name
        assert (tmp_path / name / "final").is_dir()


# --------------------------------------------------------------------------------------------------- pretraining

SMALL = ["--layers", "1", "--width", "32", "--dtype", "float32", "--device", "cpu", "--steps", "150"]


@pytest.mark.slow
def test_pretraining_without_data(tmp_path: Path) -> None:
    """In seconds there is a model that guesses better than at first, and that a SentenceEncoder takes."""
    said = output("paper.pretrain", tmp_path, "--output", "out", "--steps", 40, "--device", "cpu")
    before, after = figures(said)
    assert after < before - 0.5
    model = SentenceEncoder(Transformer(tmp_path / "out" / "model"), Pooling(), device="cpu")
    assert model.encode(["A woman sings a song in the park."]).shape == (1, 256)
    assert model[0].tokenizer.unk_token_id not in model.tokens(["a woman sings in the park"]).ids
    again = output("paper.pretrain", tmp_path, "--output", "out", "--steps", 40, "--device", "cpu")
    assert "steps 40 to 40" in again
    with pytest.raises(AssertionError, match=r"was created with .*'width': 256"):
        output("paper.pretrain", tmp_path, "--output", "out", "--width", 128)


@pytest.mark.slow
def test_pretraining_killed_and_resumed(tmp_path: Path) -> None:
    """It ends with the weights and the history of a run that nobody killed."""
    output("paper.pretrain", tmp_path, "--output", "whole", *SMALL)
    killed = tmp_path / "killed"
    killed.mkdir()
    # The trainer of vocabularies breaks ties by chance.
    shutil.copytree(tmp_path / "whole" / "vocabulary", killed / "vocabulary")
    command = [sys.executable, *program("paper.pretrain"), "--output", str(killed), *SMALL, "--save-every", "10"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (killed / "checkpoint.pt").exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    assert not (killed / "model").exists()
    done = torch.load(killed / "checkpoint.pt", weights_only=True)["step"]
    said = output("paper.pretrain", tmp_path, "--output", "killed", *SMALL)
    assert f"steps {done} to 150" in said
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "killed"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    histories = [
        [json.loads(line)["step"] for line in (tmp_path / name / "history.jsonl").read_text().splitlines()]
        for name in ("whole", "killed")
    ]
    assert histories[0] == histories[1] == [50, 100, 150]


# ------------------------------------------------------------------------------------------------- made-up rows


@pytest.fixture(scope="module")
def shared() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_shared", EXAMPLES / "shared.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "column"), [("nli", "premise"), ("paraphrases", "anchor"), ("scored_pairs", "sentence1")]
)
def test_made_up_rows_are_the_same_every_time_and_nothing_held_out_is_trained_on(
    shared: ModuleType, name: str, column: str
) -> None:
    make = getattr(shared, name)
    train, held_out = make(100, seed=0), make(50, seed=1, held_out=True)
    assert train == make(100, seed=0)
    assert train != make(100, seed=1)
    trained = {row[column] for row in train}
    assert len(trained) >= 50
    assert not {row[column] for row in held_out} & trained


def test_made_up_korean_says_the_same(shared: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Korean sentence for each English one, none of the held out in training, and as many labels."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    rows = importlib.import_module("korean_rows")
    train, held_out = rows.translations(100, seed=0), rows.translations(50, seed=1, held_out=True)
    assert train == rows.translations(100, seed=0)
    assert len({row["eng"] for row in train}) == len({row["kor"] for row in train}) == 100
    assert not {row["kor"] for row in held_out} & {row["kor"] for row in train}
    assert all(row["kor"].endswith("다.") and not row["kor"].isascii() for row in train)
    assert [row["label"] for row in rows.korean_nli(5, seed=0)] == [0, 1, 2] * 5
    assert {row["label"] for row in rows.korean_pairs(200, seed=0)} == {0, 0.2, 0.4, 0.6, 0.8, 1}


def test_made_up_labels(shared: ModuleType) -> None:
    rows = shared.nli(30, seed=0)
    assert [row["label"] for row in rows] == [0, 1, 2] * 30
    assert len({row["premise"] for row in rows}) == 30
    scores = {row["label"] for row in shared.scored_pairs(200, seed=0)}
    assert scores == {0, 0.2, 0.4, 0.6, 0.8, 1}
    assert all(row["anchor"] != row["positive"] for row in shared.paraphrases(100, seed=0))


# --------------------------------------------------------------------------------------------------- notebooks

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_shows_its_outputs(path: Path) -> None:
    """As a reader sees it without running it: executed in order, without errors, and with a picture."""
    assert path.stat().st_size < 300_000
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Of the kernel's own packages.
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anew, in an empty folder and without a network; an error in a cell ends it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    assert list(tmp_path.iterdir()) == []
