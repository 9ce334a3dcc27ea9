"""Training in processes of its own: several ranks, and processes that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Transformer
from tests import small
from tests.training.test_training import weights

ROOT = Path(__file__).parent.parent.parent
STEPS = 26  # Two epochs of 101 rows in batches of 8.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model; and what one process makes of it that nobody disturbs."""
    root = tmp_path_factory.mktemp("processes")
    SentenceEncoder(Transformer(small.bert(root / "bert")), Pooling("mean")).save(root / "model")
    run([sys.executable, "-m", "tests.training.program"], root / "model", root / "alone")
    return root


def run(command: list[str], *arguments: object) -> None:
    done = subprocess.run([*command, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def torchrun(ranks: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        "-m",
        "tests.training.program",
    ]


def history(output: Path) -> list[dict[str, Any]]:
    """All but the times."""
    lines = [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "sentences_per_second"} for line in lines]


def results(output: Path) -> tuple[Tensor, Tensor]:
    head: Tensor = torch.load(output / "loss.pt")
    return weights(SentenceEncoder(output / "final")), head


@pytest.mark.slow
def test_killed_five_times_and_still_the_same(folder: Path, tmp_path: Path) -> None:
    """kill -9 at five random steps; what goes on each time from the last checkpoint ends bit by bit the same."""
    output, chance, killed = tmp_path / "out", random.Random(0), []
    at = sorted(chance.sample(range(1, STEPS), 5))
    for step in at:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.training.program", folder / "model", output, "checkpoint_every=1"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            deadline = time.monotonic() + 100
            while process.poll() is None and time.monotonic() < deadline:
                file = output / "history.jsonl"
                if file.exists() and f'"step": {step},' in file.read_text():
                    time.sleep(chance.random() * 0.03)  # In a step, an evaluation, or while it writes.
                    os.kill(process.pid, signal.SIGKILL)
                    break
            killed.append(process.wait() == -signal.SIGKILL)
    assert killed == [True] * 5
    run([sys.executable, "-m", "tests.training.program"], folder / "model", output, "checkpoint_every=1")
    assert history(output) == history(folder / "alone")
    for found, expected in zip(results(output), results(folder / "alone"), strict=True):
        assert torch.equal(found, expected)
    assert not list((output / "checkpoints").glob(".*"))
    assert len(list((output / "checkpoints").iterdir())) == 2


@pytest.fixture(scope="module")
def without_dropout(folder: Path) -> Path:
    """A model without dropout, which differs between ranks; and what one process makes of it."""
    root = folder / "without-dropout"
    model = SentenceEncoder(folder / "model")
    config = model[0].auto_model.config
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model.save(root / "model")
    run([sys.executable, "-m", "tests.training.program"], root / "model", root / "one")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("cached", [[], ["tokens=40"], ["chunk_tokens=40"]], ids=["plain", "chunks", "cached"])
@pytest.mark.parametrize("sharded", [[], ["sharded=true"]], ids=["replicated", "sharded"])
def test_two_ranks_train_what_one_does(
    cached: list[str], sharded: list[str], without_dropout: Path, tmp_path: Path
) -> None:
    """The last batch of an epoch has 5 rows, so that the ranks' parts differ."""
    settings, alone = [*cached, *sharded], without_dropout / "one"
    run(torchrun(2), without_dropout / "model", tmp_path / "two", "checkpoint_every=20", *settings)
    one, two = history(alone), history(tmp_path / "two")
    assert [line["step"] for line in two] == [line["step"] for line in one]
    for a, b in zip(one, two, strict=True):
        assert a.get("loss") == pytest.approx(b.get("loss"), abs=1e-5)
    for found, expected in zip(results(tmp_path / "two"), results(alone), strict=True):
        assert (found - expected).abs().median() < 1e-6
        assert (found - expected).norm() < 1e-2 * expected.norm()
    checkpoints = tmp_path / "two" / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000020", "step-00000026"]
    if cached:  # A checkpoint is the same however gradients are computed.
        return

    # Two ranks go on from the checkpoint of two, to the same end.
    again = tmp_path / "again"
    (again / "checkpoints").mkdir(parents=True)
    (checkpoints / "step-00000020").rename(again / "checkpoints" / "step-00000020")
    (again / "history.jsonl").write_text((tmp_path / "two" / "history.jsonl").read_text())
    run(torchrun(2), without_dropout / "model", again, "checkpoint_every=20", *settings)
    assert history(again) == two
    for found, expected in zip(results(again), results(tmp_path / "two"), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.slow
def test_two_ranks_evaluate_what_one_does(folder: Path, tmp_path: Path) -> None:
    """Each encodes its part of the texts; the figures, the log and the best model are those of one."""
    model = SentenceEncoder(folder / "model")
    config = model[0].auto_model.config
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model.save(tmp_path / "model")
    settings = ["similarity=true", "evaluate_every=4", "steps=12"]
    run([sys.executable, "-m", "tests.training.program"], tmp_path / "model", tmp_path / "one", *settings)
    run(torchrun(2), tmp_path / "model", tmp_path / "two", *settings)
    one, two = ([line for line in history(tmp_path / name) if "evaluation" in line] for name in ("one", "two"))
    assert [line["step"] for line in two] == [line["step"] for line in one]
    assert len(one) >= 3
    for a, b in zip(one, two, strict=True):
        assert list(b["evaluation"]) == ["spearman", "pearson"]
        assert b["evaluation"] == pytest.approx(a["evaluation"], abs=1e-3)
    kept, expected = (weights(SentenceEncoder(tmp_path / name / "best")) for name in ("two", "one"))
    assert (kept - expected).norm() < 1e-2 * expected.norm()


@pytest.mark.slow
def test_three_ranks_with_fewer_rows_than_ranks(folder: Path, tmp_path: Path) -> None:
    run(torchrun(3), folder / "model", tmp_path / "out", "batch_size=2", "steps=3")
    assert [line["step"] for line in history(tmp_path / "out") if "loss" in line] == [1, 2, 3]
