"""Training in several processes: what they compute together is what one computes, and what is lost ends all."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert.distributed.buckets import GradientBuckets, sort_unused_first
from sbert.distributed.ranks import Ranks
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import SoftmaxLoss
from tests import pairs as scored
from tests.training import test_cross_encoders
from tests.training.helpers import (
    fit,
    load,
    pairs,
    run_two_ranks,
    start_two_ranks,
    tiny,
    triples,
    weights,
    without_dropout,
)

score_gradients = test_cross_encoders.gradients
ROOT = Path(__file__).parent.parent.parent
# The module, whose name in its package is that of the function.
computing: Any = importlib.import_module("sbert.training.backward")
STEPS = 6  # More than an epoch of 29 rows in batches of 8, the last of which has 5 rows, so that ranks differ.
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks": {"tokens": 40},
    "cached": {"chunk_tokens": 40},
    "few": {"batch_size": 1, "steps": 2},  # Fewer rows than ranks.
}


def train(output: Path, resume: bool = False, **settings: Any) -> None:
    """Train without dropout, whose random numbers differ between ranks; the loss's weights are in loss.pt."""
    tokens, present = settings.pop("tokens", None), computing.default_batch_tokens
    if tokens is not None:  # At once, without caching.
        computing.default_batch_tokens = lambda device: tokens
    torch.manual_seed(0)
    loss = SoftmaxLoss(16, 3)
    options: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 8, "log_every": 1, "steps": STEPS}
    options |= {"checkpoint_every": 5, "evaluate_every": 3, "output": output, **settings}
    evaluator = SimilarityEvaluator(*zip(*pairs(30), strict=True))
    fit(without_dropout(tiny()), triples(29), loss, resume, evaluator=evaluator, **options)
    computing.default_batch_tokens = present
    if Ranks.join().first:
        torch.save(weights(loss), output / "loss.pt")


def history(output: Path) -> list[dict[str, Any]]:
    """All but the times."""
    lines = [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "sentences_per_second"} for line in lines]


def results(output: Path) -> list[Tensor]:
    return [weights(load(output / "final")), weights(load(output / "best")), torch.load(output / "loss.pt")]


def gradients(ranks: list[int], together: Ranks, overlapping: bool = False) -> list[Tensor | None]:
    """Those of a table, of layers that both ranks use, one or none, and of a frozen one."""
    torch.manual_seed(0)
    names = ("both", "second", "none", "frozen")
    model = nn.ModuleDict({"table": nn.Embedding(4, 8)} | {name: nn.Linear(8, 8) for name in names})
    model["frozen"].requires_grad_(False)
    value = torch.zeros(())
    for rank in ranks:
        x = model["frozen"](model["both"](model["table"](torch.tensor([rank, 2]))))
        value = value + (model["second"](x) if rank else x).square().sum()
    buckets = GradientBuckets(sort_unused_first(model.parameters(), value, together), together)
    with buckets.overlap() if overlapping else nullcontext():
        value.backward()
    buckets.finish()
    return [p.grad for p in model.parameters()]


def on_a_rank(rank: int, folder: Path) -> None:
    sums = [gradients([rank], Ranks.join(), overlapping) for overlapping in (False, True)]
    torch.save(sums, folder / f"sums{rank}.pt")
    options: dict[str, Any] = {"ranks": Ranks.join(), "chunk_tokens": 40}
    cases = test_cross_encoders.CASES
    scores = [
        [score_gradients(folder / "bert", case, cached=each, **options) for each in (False, True)] for case in cases
    ]
    torch.save(scores, folder / f"scores{rank}.pt")
    for name, settings in CASES.items():
        train(folder / name, **settings)
    again = folder / "again"  # Two ranks go on from the checkpoint of two.
    if rank == 0:
        shutil.copytree(folder / "plain", again)
        shutil.rmtree(again / "checkpoints" / f"step-0000000{STEPS}")
    torch.distributed.barrier()
    train(again, resume=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process trains, and two."""
    path = tmp_path_factory.mktemp("processes")
    train(path / "alone")
    scored.folder(path / "bert")
    run_two_ranks(partial(on_a_rank, folder=path))
    return path


@pytest.mark.slow  # Two processes train all cases; nothing less shows what they exchange.
def test_two_ranks_train_what_one_does(folder: Path) -> None:
    one, expected = history(folder / "alone"), results(folder / "alone")
    for name in CASES:
        two = history(folder / name)
        if name == "few":
            assert [line["step"] for line in two if "loss" in line] == [1, 2]
            continue
        assert [line["step"] for line in two] == [line["step"] for line in one]
        for a, b in zip(one, two, strict=True):
            assert a.get("loss") == pytest.approx(b.get("loss"), abs=1e-5)
            assert b.get("evaluation") == pytest.approx(a.get("evaluation"), abs=1e-3)
        for result, value in zip(results(folder / name), expected, strict=True):
            assert (result - value).abs().median() < 1e-6
            assert (result - value).norm() < 1e-2 * value.norm()
        checkpoints = sorted(path.name for path in (folder / name / "checkpoints").iterdir())
        assert checkpoints == ["step-00000005", f"step-0000000{STEPS}"]
    assert history(folder / "again") == history(folder / "plain")
    for result, value in zip(results(folder / "again"), results(folder / "plain"), strict=True):
        assert torch.equal(result, value)


@pytest.mark.slow  # As above.
def test_gradients_are_summed_also_where_a_rank_has_none(folder: Path) -> None:
    """Bit for bit the same on both ranks, summed at the end or while others are computed."""
    expected = gradients([0, 1], Ranks())
    for rank in range(2):
        for result in torch.load(folder / f"sums{rank}.pt"):
            for a, b, first in zip(result, expected, torch.load(folder / "sums0.pt")[0], strict=True):
                assert (a is None) == (b is None) == (first is None)
                if a is not None:
                    torch.testing.assert_close(a, b)
                    assert torch.equal(a, first)


@pytest.mark.slow  # As above.
def test_scores_of_two_ranks_are_those_of_one(folder: Path) -> None:
    for case, results in zip(test_cross_encoders.CASES, torch.load(folder / "scores0.pt"), strict=True):
        for result in results:
            test_cross_encoders.same(result, score_gradients(folder / "bert", case, deduplicate=False))


def lose(rank: int, folder: Path) -> None:
    """An action fails on one rank, also within another one; one takes longer than the timeout; then a rank hangs."""
    ranks, errors = Ranks.join(timeout=5.0), []

    def raises() -> None:
        if rank == 1:
            raise ValueError("this action fails")

    for action in (raises, lambda: ranks.together(raises)):
        try:
            ranks.together(action)
        except (ValueError, RuntimeError) as error:
            errors.append(str(error))
    ranks.run_on_main(lambda: time.sleep(7))
    (folder / f"{rank}.txt").write_text("\n".join(errors))

    def loss(anchor: Tensor, positive: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if rank == 1 and calls == 2:
            time.sleep(600)
        return (anchor - positive).square().mean()

    calls = 0
    try:
        fit(tiny(), pairs(16, False), loss, steps=4, batch_size=4)
    except RuntimeError as error:
        (folder / "hangs.txt").write_text(str(error))
    os._exit(0)


@pytest.mark.slow  # Two processes, and the timeout of one that waits for the other, are what is tested.
def test_what_fails_on_one_rank_ends_all(tmp_path: Path) -> None:
    first, second = start_two_ranks(partial(lose, folder=tmp_path))
    os.waitpid(first, 0)
    os.kill(second, signal.SIGKILL)
    os.waitpid(second, 0)
    assert (tmp_path / "1.txt").read_text().splitlines() == ["this action fails"] * 2
    others = ["another process has failed; its own error gives the reason"] * 2
    assert (tmp_path / "0.txt").read_text().splitlines() == others
    assert "imed out" in (tmp_path / "hangs.txt").read_text()


PROGRAM = """
import torch
from tokenizers import Tokenizer, models
from sbert import SentenceEncoder, StaticEmbedding, Trainer, TrainingConfig
from sbert.losses import MultipleNegativesRankingLoss
from sbert.distributed.ranks import Ranks
tokenizer = Tokenizer(models.WordLevel({"red": 0, "fox": 1}, unk_token="red"))
model = SentenceEncoder(StaticEmbedding(tokenizer, torch.eye(2)), device="cpu")
config = TrainingConfig(steps=2, batch_size=4, log_every=1)
history = Trainer(model, [("red", "fox"), ("fox", "red")] * 4, MultipleNegativesRankingLoss(), config).fit()
assert Ranks.join().world == 2 and [entry["step"] for entry in history] == [1, 2]
"""


@pytest.mark.slow  # The command of the guide, which starts three processes.
def test_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
