"""Checkpoints: a killed run is bit-for-bit identical after a resume; what does not belong together is refused."""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Pooling, SentenceEncoder
from sbert.losses import CosineSimilarityLoss, SoftmaxLoss
from sbert.training import Callback, EarlyStopping, checkpoint
from sbert.training.callbacks import Progress
from sbert.training.checkpoint import lock_output
from tests import small
from tests.backends.test_packed import transformer
from tests.children import in_child, run_in_child
from tests.training.helpers import Kill, fit, load, pairs, regression, tiny, triples, weights
from tests.training.test_rows import Stream


class Counting(torch.optim.SGD):
    """Has a state in its groups of weights, as Prodigy has."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups)
        for group in self.param_groups:
            group["count"] = 0

    def step(self, closure: Any = None) -> Any:
        """As many times as steps were taken."""
        for group in self.param_groups:
            group["count"] += 1
            group["lr"] *= group["count"]
        return super().step(closure)


def curriculum(rows: Any, batch_size: int, generator: np.random.Generator, epoch: int) -> list[np.ndarray]:
    return np.array_split(generator.permutation(len(rows))[: 8 + 4 * epoch], 2 + epoch)


class Sum(Callback):
    """Adds up the weights of all steps: its state is a tensor."""

    def on_begin(self, progress: Progress) -> None:
        self.total = torch.zeros(())

    def on_step(self, progress: Progress) -> None:
        self.total = self.total + weights(progress.model).sum()

    def state(self) -> dict[str, Any]:
        return {"total": self.total}

    def restore(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


SETTINGS: dict[str, dict[str, Any]] = {
    "accumulation": {"accumulation": 2, "log_every": 4, "checkpoint_every": 3, "callbacks": lambda: [Sum()]},
    "Adafactor, cached, cosine, frozen": {"optimizer": "Adafactor", "chunk_tokens": 40, "schedule": "cosine"}
    | {"warmup": 3, "freeze": ["0.auto_model.embeddings.*"]},
    "functions": {"optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9), "sampler": curriculum}
    | {"schedule": lambda done: (1 - done) ** 2},
    "state in groups": {"optimizer": Counting, "gradient_checkpointing": True, "schedule": "constant"},
    "rates": {"learning_rates": {"loss.*": 1e-2, "0.auto_model.encoder.layer.0.*": 1e-3}, "sampler": "no_duplicates"},
    "stopping": {"callbacks": lambda: [EarlyStopping(2)], "evaluator": lambda _: 0.5, "sampler": "in_order"},
    "lower": {"minimize": True, "evaluator": {"a": lambda _: {"x": 1.0}, "b": lambda m: float(weights(m).sum())}},
    "streams": {"data": lambda rows: {"a": Stream(rows[:22]), "b": rows[22:30], "c": Stream(rows[30:])}}
    | {"mix": {"a": 1.0, "b": 2.0, "c": 0.5}, "batch_size": {"a": 3, "b": 4, "c": 5}, "shuffle_buffer": 7},
}


def train(output: Path, settings: dict[str, Any], *more: Any, resume: bool = False) -> tuple[Any, ...]:
    """The model, its loss, the history but for the times, and the callbacks; a checkpoint overwrites other weights."""
    model, loss = tiny(), SoftmaxLoss(16, 3)
    generator = torch.Generator().manual_seed(int(checkpoint.newest(output / "checkpoints") is not None))
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    watchers = settings.get("callbacks", list)()
    options: dict[str, Any] = {"steps": 6, "batch_size": 4, "learning_rate": 1e-3, "log_every": 1, "output": output}
    options |= {"checkpoint_every": 2, "evaluate_every": 2, **settings, "callbacks": [*watchers, *more]}
    data = options.pop("data", lambda rows: rows[:24])(triples(40))
    history = fit(model, data, loss, resume, **options)
    return model, loss, [{k: v for k, v in e.items() if k != "sentences_per_second"} for e in history], watchers


@pytest.mark.parametrize("settings", [pytest.param(value, id=name) for name, value in SETTINGS.items()])
def test_killed_runs_are_bit_for_bit_identical_after_a_resume(settings: dict[str, Any], tmp_path: Path) -> None:
    """Runs that are killed: each setting has a state of its own."""
    whole, loss, history, watchers = train(tmp_path / "whole", settings)
    last = min(history[-1]["step"], 5)
    assert run_in_child(lambda: train(tmp_path / "killed", settings, Kill(last))) == signal.SIGKILL
    assert checkpoint.newest(tmp_path / "killed" / "checkpoints") is not None
    again, other_loss, continued, others = train(tmp_path / "killed", settings, resume=True)
    assert torch.equal(weights(whole), weights(again))
    assert torch.equal(weights(loss), weights(other_loss))
    assert torch.equal(weights(load(tmp_path / "whole/final")), weights(load(tmp_path / "killed/final")))
    assert continued == history
    assert [watcher.state() for watcher in watchers] == [watcher.state() for watcher in others]
    if "accumulation" in settings:
        assert train(tmp_path / "killed", settings, resume=True)[2] == history, "it stays as it ended"


@pytest.mark.slow  # Four processes, three of which are killed at any point.
def test_a_run_killed_anywhere_three_times_is_still_the_same(tmp_path: Path) -> None:
    """kill -9 in a step, an evaluation, or while a file is written."""
    settings: dict[str, Any] = {"checkpoint_every": 1, "evaluator": lambda model: float(weights(model).sum())}
    whole, _, history, _ = train(tmp_path / "whole", settings)
    output, chance = tmp_path / "out", random.Random(0)
    for step in (1, 2, 4):
        child = os.fork()
        if not child:
            train(output, settings, resume=True)
            os._exit(0)
        deadline = time.monotonic() + 60
        while f'"step": {step},' not in (file.read_text() if (file := output / "history.jsonl").exists() else ""):
            assert time.monotonic() < deadline
        time.sleep(chance.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    again, _, continued, _ = train(output, settings, resume=True)
    assert continued == history
    assert torch.equal(weights(again), weights(whole))
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["step-00000005", "step-00000006"]


def test_a_checkpoint_of_other_training_is_refused(tmp_path: Path) -> None:
    model, output = tiny(), tmp_path / "out"
    prompts = {"first": "", "second": "a: "}
    settings: dict[str, Any] = {"output": output, "learning_rate": 1e-3, "prompts": prompts, "max_lengths": 20}
    fit(model, pairs(16), regression, **settings)
    with pytest.raises(ValueError, match="step-00000001 exists already; pass resume=True"):
        fit(model, pairs(16), regression, **settings)
    other_data = [(a, b, 1 - c) for a, b, c in pairs(16)]
    for encoder, data, loss, changed, words in [
        (SentenceEncoder(model[0], Pooling("cls")), pairs(16), regression, {}, "model was .*mean.* is now .*cls"),
        (model, pairs(17), regression, {}, r"data data was \[16"),
        (model, other_data, regression, {}, "data data was"),
        (model, pairs(16), CosineSimilarityLoss(), {}, "losses data was 'regression"),
        (model, pairs(16), regression, {"learning_rate": 1e-4}, "learning_rate was 0.001, but is now 0.0001"),
        (model, pairs(16), regression, {"max_lengths": 19}, "max_lengths was 20"),
        (model, pairs(16), regression, {"prompts": ""}, r"prompts data was \['', 'a: '\]"),
        (model, pairs(16), regression, {"freeze": ["0.*"]}, "nothing is trained|frozen weights was"),
    ]:
        with pytest.raises(ValueError, match=words):
            fit(encoder, data, loss, resume=True, **{**settings, **changed})
    (output / "checkpoints" / "step-00000001" / "training" / "state.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"state\.safetensors cannot be read"):
        fit(model, pairs(16), regression, resume=True, **settings)
    with pytest.raises(ValueError, match="has no output"):
        fit(model, pairs(16), regression, resume=True)


QUICKLY: dict[str, Any] = {"steps": 6, "batch_size": 4, "learning_rate": 1e-3, "checkpoint_every": 2, "keep": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run, without its last checkpoint: 2 and 4 of 6 steps are left."""
    output = tmp_path_factory.mktemp("finished")
    fit(tiny(), pairs(24), regression, output=output, **QUICKLY)
    shutil.rmtree(output / "checkpoints" / "step-00000006")
    return output


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.with_name("step-00000005").mkdir(), "step-00000005/training/checksums.json cannot be read"),
        (lambda path: (path / "training/state.json").write_text('{"optimizer": []}'), "its checksum differs"),
        (lambda path: (path / "training/state.json").unlink(), "state.json cannot be read as part of a checkpoint"),
        (lambda path: (path / "training/checksums.json").write_text("{}"), "its checksum differs"),
        (lambda path: flip(path / "training/checksums.json"), "cannot be read"),
        *((lambda path, file=file: flip(path / file), f"{file} cannot be read as it was written") for file in (
            "training/state.json", "training/state.safetensors", "model.safetensors"
        )),
    ],
)  # fmt: skip
def test_of_damaged_checkpoints_the_next_older_is_used(damage: Any, words: str, finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(finished, output)
    damage(output / "checkpoints" / "step-00000004")
    settings = {**QUICKLY, "output": output}
    with pytest.warns(UserWarning, match="training goes on from .*, and what is damaged was renamed") as caught:
        history = fit(model := tiny(), pairs(24), regression, resume=True, **settings)
    assert len(caught) == 1
    assert words in str(caught[0].message)
    assert history[-1]["step"] == 6
    assert torch.equal(weights(model), weights(load(finished / "final"))), "as if it had not been interrupted"
    names = sorted(path.name for path in (output / "checkpoints").iterdir())
    assert [name for name in names if "damaged" not in name] == [f"step-0000000{step}" for step in (2, 4, 6)]
    assert sum("damaged" in name for name in names) == 1
    fit(tiny(), pairs(24), regression, resume=True, **settings)  # Without a warning.


def test_without_a_good_checkpoint_nothing_is_trained(finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(finished, output)
    for path in (output / "checkpoints").iterdir():
        flip(path / "training" / "state.safetensors")
    with pytest.raises(ValueError, match=r"4/.* differs; .*2/.* differs: no checkpoint in .* pass another output, or"):
        fit(tiny(), pairs(24), regression, resume=True, **QUICKLY, output=output)
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["step-00000002", "step-00000004"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["ended", "killed"])
def test_of_two_trainings_in_one_folder_the_second_is_refused(is_killed: bool, finished: Path, tmp_path: Path) -> None:
    settings = {**QUICKLY, "output": tmp_path / "out"}
    (begun, begin), (ended, end) = os.pipe(), os.pipe()

    class Wait(Callback):
        def on_step(self, progress: Progress) -> None:
            if progress.step == 3:
                os.write(begin, b".")
                os.read(ended, 1)

    other = in_child(lambda: fit(tiny(), pairs(24), regression, callbacks=[Wait()], **settings))
    os.close(begin)
    assert os.read(begun, 1) == b".", "it has failed"
    for resume in (False, True):
        refused = f"out is the output folder of a training .* process {other} on .*; wait"
        with pytest.raises(RuntimeError, match=refused):
            fit(tiny(), pairs(24), regression, resume=resume, **settings)
    if is_killed:
        os.kill(other, signal.SIGKILL)
    os.write(end, b".")
    assert os.waitpid(other, 0)[1] == (signal.SIGKILL if is_killed else 0)
    for each in (begun, ended, end):
        os.close(each)
    assert (tmp_path / "out" / "training.lock").exists() == is_killed
    history = fit(tiny(), pairs(24), regression, resume=True, **settings)
    assert [entry["step"] for entry in history] == [6]
    assert torch.equal(weights(load(tmp_path / "out" / "final")), weights(load(finished / "final")))
    assert not (tmp_path / "out" / "training.lock").exists()


def test_a_thread_that_trains_in_the_folder_of_another_is_refused(tmp_path: Path) -> None:
    with lock_output(tmp_path / "out"), lock_output(tmp_path / "out"), ThreadPoolExecutor(1) as pool:
        other = pool.submit(fit, tiny(), pairs(8), regression, output=tmp_path / "out")
        with pytest.raises(RuntimeError, match=f"process {os.getpid()} on"):
            other.result()
    assert not any((tmp_path / "out").iterdir()), "nothing was written"


def test_weights_that_are_tied_are_saved_once(tmp_path: Path) -> None:
    model = SentenceEncoder(transformer("t5-encoder"), Pooling("mean"))  # Its table of words has two names.
    settings: dict[str, Any] = {"learning_rate": 1e-3, "checkpoint_every": 1, "output": tmp_path / "out"}
    twin = copy.deepcopy(model)
    fit(model, pairs(32), regression, **settings)
    (tmp_path / "out" / "checkpoints" / "step-00000002").rename(tmp_path / "gone")
    fit(twin, pairs(32), regression, resume=True, **settings)
    assert torch.equal(weights(twin), weights(model))


@pytest.mark.slow  # A process of its own, whose files cannot grow.
@pytest.mark.parametrize(("better", "what"), [(1, "best"), (-1, "step-00000002")])
def test_a_full_disk_leaves_the_last_checkpoint(better: int, what: str, tmp_path: Path) -> None:
    """Whether the model that is better than those before, or the checkpoint, is the first that cannot be written."""
    settings: dict[str, Any] = {"checkpoint_every": 1, "evaluate_every": 1, "learning_rate": 1e-3}
    settings["output"] = tmp_path / "out"

    def run() -> None:
        calls = 0
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        def evaluator(model: Any) -> float:
            nonlocal calls
            calls += 1
            if calls == 2:  # From here on no file may grow beyond so much.
                resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
            return calls * float(better)

        try:
            fit(tiny(), pairs(64), regression, evaluator=evaluator, **settings)
        except OSError as error:
            (tmp_path / "error.txt").write_text(str(error))

    assert run_in_child(run) == 0
    said = (tmp_path / "error.txt").read_text()
    assert f"{what} cannot be written" in said
    assert "the last good checkpoint is" in said
    assert "step-00000001; free some disk space, and resume" in said
    assert [path.name for path in (tmp_path / "out" / "checkpoints").iterdir()] == ["step-00000001"]
    assert load(tmp_path / "out" / "best").dtype == torch.float32  # The one before is whole.
    assert fit(tiny(), pairs(64), regression, resume=True, **settings)[-1]["step"] == 4


def test_half_a_line_of_history_is_dropped(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"output": tmp_path / "out", "checkpoint_every": 2, "log_every": 1, "keep": 9}
    history = fit(tiny(), pairs(64), regression, **settings)
    checkpoints = tmp_path / "out" / "checkpoints"
    (checkpoints / "step-00000004").rename(tmp_path / "gone")
    (checkpoints / ".step-00000004.saving-abcd1234").mkdir()
    file = tmp_path / "out" / "history.jsonl"
    file.write_text(file.read_text()[:-20])
    again = fit(tiny(), pairs(64), regression, resume=True, **settings)
    assert [entry["loss"] for entry in again] == [entry["loss"] for entry in history]
    assert [json.loads(line) for line in file.read_text().splitlines()] == again
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000002", "step-00000004"]


@pytest.mark.slow  # The imports of peft and sentence-transformers take seconds.
def test_an_adapter_is_loaded_with_its_model(tmp_path: Path) -> None:
    """As sentence-transformers leaves it."""
    import peft
    from sentence_transformers import SentenceTransformer

    model = tiny()
    model.save(tmp_path / "base")
    peer = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    peer.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False))
    peer.save(str(tmp_path / "adapter"))
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    expected = peer.encode(small.TEXTS)
    assert np.abs(expected - model.encode(small.TEXTS)).max() > 1e-3
    load(tmp_path / "adapter").save(tmp_path / "merged")
    for folder in ("adapter", "merged"):
        np.testing.assert_allclose(load(tmp_path / folder).encode(small.TEXTS), expected, atol=2e-6)
