"""Nothing of others is deleted when a folder is saved over, and no load gives a mixture of two models."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import LSTM, CrossEncoder, Dense, LayerNorm, Normalize, Pooling, SentenceEncoder, Transformer, WordEmbeddings
from sbert.saving import encoder_folder
from sbert.saving.format import check_replaceable
from sbert.storage import atomic
from sbert.training import checkpoint
from tests import small
from tests.children import in_child

TEXTS = ["a small boat", "lake"]


def tree(folder: Path) -> dict[str, Any]:
    """All that stands below a folder: contents of files, targets of links, names of folders."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else (path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


def word_model(number: int) -> SentenceEncoder:
    """One of several that differ in everything that a folder holds."""
    words = WordEmbeddings(["a", "small", "boat", "lake"], torch.eye(4) * (number + 1), lower_case=bool(number % 2))
    pooling = Pooling(["mean", "max"] if number % 2 else ["max", "mean"])
    torch.manual_seed(number)
    prompts = {"query": f"prompt {number}"}
    return SentenceEncoder(words, pooling, Dense(8, 4), Normalize(), device="cpu", prompts=prompts)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("bert") / "plain")


@pytest.fixture(scope="module")
def layouts(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that saves have made, and one of transformers alone."""
    place = tmp_path_factory.mktemp("layouts")
    dim = [LayerNorm(16), Dense(16, 4), Normalize()]
    SentenceEncoder(Transformer(bert), Pooling(), *dim, device="cpu").save(place / "bert")
    word_model(0).save(place / "words")
    lstm = [WordEmbeddings(["lake"], torch.eye(1)), LSTM(1, 2), Pooling()]
    SentenceEncoder(*lstm, device="cpu").save(place / "lstm")
    CrossEncoder(bert, classes=1, device="cpu").save(place / "pairs")
    shutil.copytree(bert, place / "plain")
    small.bert_model().save_pretrained(place / "shards", max_shard_size="5KB")
    small.wrapped(small.wordpiece(), 64, chat_template="{{ messages }}").save_pretrained(place / "shards")
    assert len(list((place / "shards").glob("model-*.safetensors"))) > 1
    assert (place / "shards" / "chat_template.jinja").exists()
    return {path.name: path for path in place.iterdir()}


# ------------------------------------------------------------------------------------------ what a save replaces


FOREIGN: dict[str, Callable[[Path], Any]] = {
    "a file": lambda folder: (folder / "notes.txt").write_text("mine"),
    "another case": lambda folder: (folder / "Config.json").write_text("mine"),
    "a copy": lambda folder: (folder / "model.safetensors.bak").write_text("mine"),
    "a part that no index lists": lambda folder: (folder / "model-00001-of-00009.safetensors").write_text("mine"),
    "a model's file in a folder": lambda folder: small.write(folder / "9_Dense", {"config.json": {}}),
    "an empty folder": lambda folder: (folder / "a/b").mkdir(parents=True),
    "a folder under a file's name": lambda folder: (folder / "vocab.txt" / "mine").mkdir(parents=True),
    "a link": lambda folder: (folder / "spm.model").symlink_to(folder.parent),
    "in a module's folder": lambda folder: [
        (path / "run.csv").write_text("mine") for path in [*folder.iterdir(), folder] if path.is_dir()
    ],
}


def test_nothing_foreign_is_deleted(layouts: dict[str, Path], bert: Path, tmp_path: Path) -> None:
    savers: list[Callable[[Path], None]] = [word_model(0).save, CrossEncoder(bert, classes=1, device="cpu").save]
    for source in layouts.values():
        for kind, put in FOREIGN.items():
            folder = shutil.copytree(source, tmp_path / "folder")
            put(folder)
            before = tree(folder)
            for save in savers:
                with pytest.raises(ValueError, match=r"which is (not part of a model|a link), and saving would delete"):
                    save(folder)
                assert tree(folder) == before, (source.name, kind)
            shutil.rmtree(folder)
    (tmp_path / "file").write_text("a file")
    small.write(tmp_path / "other", {"config.json": {}})  # The configuration of another program makes no model.
    for name, message in (("file", "is a file; name a folder"), ("other", "'config.json', which is not part of a")):
        with pytest.raises(ValueError, match=message):
            savers[0](tmp_path / name)


def test_what_a_save_has_written_is_replaced(layouts: dict[str, Path], bert: Path, tmp_path: Path) -> None:
    """And what transformers has: otherwise no model could be saved to the same folder twice."""
    for name, source in layouts.items():
        for save in (word_model(1).save, CrossEncoder(bert, classes=1, device="cpu").save):
            shutil.copytree(source, tmp_path / name)
            save(tmp_path / name)
            assert "model_type" not in tree(tmp_path / name)
            shutil.rmtree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["notes.txt", "1_Pooling/notes.txt"])
def test_what_comes_while_a_save_runs_is_kept(tmp_path: Path, name: str) -> None:
    """The folder was a model's when the save began."""
    target = tmp_path / "model"
    word_model(0).save(target)
    with ExitStack() as save:
        word_model(1).write(save.enter_context(atomic.replacing(target, check_replaceable)), "model", target)
        (target / name).write_text("months of it")
        with pytest.warns(UserWarning, match="move them where they belong") as said:
            save.close()
    [kept] = tmp_path.glob("model.replaced-*")
    assert str(kept) in str(said[0].message)
    assert (kept / name).read_text() == "months of it"
    for folder, number in ((kept, 0), (target, 1)):  # Both are whole.
        vectors = SentenceEncoder(folder, device="cpu").encode(TEXTS)
        np.testing.assert_array_equal(vectors, word_model(number).encode(TEXTS))
    assert {path.name for path in tmp_path.iterdir()} == {"model", kept.name}


@pytest.mark.slow  # A process that is killed at a certain line.
def test_what_came_before_a_save_was_killed_is_kept(tmp_path: Path) -> None:
    """Between the exchange of the two folders and the removal of the old one."""
    target = tmp_path / "model"
    word_model(0).save(target)

    def die(old: Path, *_: Any) -> None:
        (old / "notes.txt").write_text("months of it")
        os.kill(os.getpid(), signal.SIGKILL)

    def save() -> None:
        atomic._discard = die
        word_model(0).save(target)

    assert os.waitpid(in_child(save), 0)[1] == signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.warns(UserWarning, match="move them where they belong"):
        word_model(1).save(target)
    [kept] = tmp_path.glob("model.replaced-*")
    assert (kept / "notes.txt").read_text() == "months of it"
    assert len(list(tmp_path.iterdir())) == 2


def test_old_checkpoints_with_files_of_others_stay(tmp_path: Path) -> None:
    def write(step: int) -> Path:
        path = tmp_path / f"step-{step:08}"
        checkpoint.write_checkpoint(path, word_model(0), {"x": torch.zeros(1)}, {"step": step}, keep=1)
        return path

    first = write(1)
    (first / "training" / "notes.txt").write_text("mine")
    (tmp_path / ".step-mine").mkdir()
    with pytest.warns(UserWarning, match=r"step-00000001 is not removed: it holds 'training/notes.txt'"):
        write(2)
    (first / "training" / "notes.txt").unlink()
    write(3)
    assert {path.name for path in tmp_path.iterdir()} == {".step-mine", "step-00000003"}
    write(3)  # One that is there is replaced.
    with pytest.raises(ValueError, match="contains 'training', which is not part of a model"):
        word_model(0).save(tmp_path / "step-00000003")


# ------------------------------------------------------------------------------------- loading while others save


def describe(folder: Path) -> list[Any]:
    """All that a folder decides."""
    model = SentenceEncoder(folder, device="cpu")
    reference = model._reference
    assert reference is not None
    vectors = model.encode(TEXTS).tobytes()
    return [vectors, model.prompts, reference["vectors"].tobytes(), str(model), model.max_seq_length]


@pytest.mark.slow  # Two processes, and 200 loads, of which each could be of half a model.
def test_200_loads_while_another_process_saves(tmp_path: Path) -> None:
    """At least this many, and more until the model has changed ten times: on a slow disk, saving takes longer."""
    models, target = [word_model(0), word_model(1)], tmp_path / "target"
    expected: list[Any] = []
    for model in (models[1], models[0]):
        model.save(target)
        expected.insert(0, describe(target))

    def save() -> None:
        while True:  # In turns, a reader that takes as long as two saves would see but one.
            random.choice(models).save(target)

    found: list[int] = []
    changes, child = 0, in_child(save)
    try:
        while len(found) < 200 or changes < 10:
            found.append(expected.index(describe(target)))  # A ValueError for a mixture.
            changes += found[-2:] in ([0, 1], [1, 0])
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                child = 0
                pytest.fail("the child has failed")
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert set(found) == {0, 1}


def exchange(place: Path, name: str) -> None:
    """What ``save`` does when it ends, in the thread that reads."""
    shutil.rmtree(place / "old", ignore_errors=True)
    os.rename(place / "model", place / "old")
    shutil.copytree(place / name, place / "model")


@pytest.mark.parametrize("times", [1, 1000])
def test_a_folder_that_is_replaced_while_it_is_read(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference, the last file that is read, is that of the weights; an error if there is no end of it."""
    for number, name in enumerate(("model", "other")):
        word_model(number).save(tmp_path / name)
    read, calls = encoder_folder.read_reference, []

    def read_late(path: Path) -> Any:
        calls.append(path)
        if len(calls) <= times:
            exchange(tmp_path, "other")
        return read(path)

    monkeypatch.setattr(encoder_folder, "read_reference", read_late)
    if times > 1:
        with pytest.raises(ValueError, match=r"model was replaced \d+ times while it was read; load it while"):
            SentenceEncoder(tmp_path / "model", device="cpu")
        return
    model = SentenceEncoder(tmp_path / "model", device="cpu")
    assert len(calls) == 2
    assert model.prompts == {"query": "prompt 1"}
    assert model.verify(tolerance=0)


def test_a_tokenizer_is_that_of_the_folder_that_was_read(tmp_path: Path) -> None:
    """Transformers reads it when it is first used, and another model may be there then."""
    for name, limit in (("model", 64), ("other", 7)):
        small.bert_model(limit).save_pretrained(tmp_path / name)
        small.wrapped(small.wordpiece(), limit).save_pretrained(tmp_path / name)
    model = SentenceEncoder(tmp_path / "model", device="cpu")
    exchange(tmp_path, "other")
    assert model.tokenizer.model_max_length == 64
