"""Whenever a save is cut off, the old folder stands, or the new one."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Dense, Pooling, SentenceEncoder, Transformer
from sbert.saving import encoder_folder
from sbert.storage import atomic
from tests import small
from tests.children import in_child

pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
SENTENCES = ["a small boat", "lake"]


@pytest.fixture
def models(tmp_path: Path) -> list[SentenceEncoder]:
    """Two that differ, in the folders a and b."""
    made = []
    for seed, name in enumerate("ab"):
        model = SentenceEncoder(Transformer(small.bert(tmp_path / "bert", seed)), Pooling(), device="cpu")
        model.save(tmp_path / name)
        made.append(model)
    return made


@pytest.mark.slow  # Twenty kills at random moments: fewer would meet few of the lines of a save.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to kill")
def test_killed_while_saving(models: list[SentenceEncoder], tmp_path: Path) -> None:
    """By children that save the two in turn, each killed after one or two saves and some time."""
    chance, target, seen = random.Random(0), tmp_path / "target", set()
    expected = [model.encode(SENTENCES) for model in models]
    models[0].save(target)

    def save_in_turn() -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # Its threads are not forked.
        while True:
            for model in models:
                model.save(target)
                os.write(writer, b".")

    for kill in range(20):
        reader, writer = os.pipe()
        child, saves = in_child(save_in_turn), 0
        os.close(writer)
        while saves < 1 + kill % 2:
            assert os.read(reader, 1), "the child has failed"
            saves += 1
        time.sleep(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        found = SentenceEncoder(target, device="cpu")
        same = [np.array_equal(found.encode(SENTENCES), vectors) for vectors in expected]
        assert sum(same) == 1
        assert found.verify(tolerance=0)
        seen.add(same.index(True))
    assert seen == {0, 1}  # Or the children would have been killed before they saved anything.


@pytest.mark.parametrize("function", ["flush_entry", "os.replace", "write_json", "save_file", "save_pretrained"])
@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk(
    models: list[SentenceEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, there: bool
) -> None:
    target = tmp_path / "out" / "target"
    model = SentenceEncoder(models[1][0], Pooling(), Dense(16, 4), device="cpu")
    if there:
        models[0].save(target)
        expected = models[0].encode(SENTENCES)
    elif function != "os.replace":
        target.parent.mkdir()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    places = {
        "flush_entry": (atomic, "flush_entry"),
        "os.replace": (os, "replace"),
        "write_json": (encoder_folder, "write_json"),
        "save_file": (__import__("safetensors.torch").torch, "save_file"),
        "save_pretrained": (type(model.tokenizer), "save_pretrained"),
    }
    monkeypatch.setattr(*places[function], full)
    if function == "os.replace" and there:  # Folders change places in one step, which needs no replace.
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    with pytest.raises(OSError, match="No space left"):
        model.save(target)
    monkeypatch.undo()
    if there:
        np.testing.assert_array_equal(SentenceEncoder(target, device="cpu").encode(SENTENCES), expected)
    leftovers = [path.name for path in target.parent.iterdir() if path != target]
    assert leftovers == []


def test_without_an_exchange_in_one_step(
    models: list[SentenceEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    for model in (*models, models[0]):
        model.save(tmp_path / "out" / "target")
        again = SentenceEncoder(tmp_path / "out" / "target", device="cpu")
        np.testing.assert_array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["target"]


def test_what_a_killed_save_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """Except what another process is writing now, and other names."""
    (tmp_path / "target").mkdir()
    code = "import os, sys; from pathlib import Path; from sbert.storage.atomic import replacing\n" + (
        "with replacing(Path(sys.argv[1]), id) as work: (work / 'file').touch(); "
    )
    dead, alive = f"{code} os.kill(os.getpid(), 9)", f"{code} print('ready', flush=True); sys.stdin.read()"
    for name in ("target", "other.target"):
        killed = subprocess.run([sys.executable, "-c", dead, str(tmp_path / name)])
        assert killed.returncode == -signal.SIGKILL
    for own in (".target.saving-mine", ".target.saving-abcd1234.old"):
        (tmp_path / own).mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    assert len(before) == 5
    left = next(name for name in before if re.fullmatch(r"\.target\.saving-\w{8}", name))
    command = [sys.executable, "-c", alive, str(tmp_path / "target")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        [writing] = {path.name for path in tmp_path.iterdir()} - before
        with atomic.replacing(tmp_path / "target", lambda _: None) as work:
            (work / "modules.json").touch()
        assert {path.name for path in tmp_path.iterdir()} == before - {left} | {writing}
        process.communicate("")
    assert process.returncode == 0
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["file"]
    assert {path.name for path in tmp_path.iterdir()} == before - {left}


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no names of standard output")
def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    atomic.write_text(tmp_path / "pipe", "one\n")
    assert os.read(reader, 99) == b"one\n"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    before = {path: os.lstat(path).st_ino for path in ("/dev/null", "/dev/stdout")}
    out = tmp_path / "out.txt"
    code = (
        "from pathlib import Path; from sbert.storage.atomic import write_text\n"
        "for path in ('/dev/null', '/dev/stdout', '/dev/fd/1'): write_text(Path(path), f'{path}\\n')"
    )
    expected = "/dev/stdout\n/dev/fd/1\n"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == expected
    out.write_text("before\n")
    with out.open("a") as file:  # As a shell's >> does.
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text() == f"before\n{expected}"
    assert {path: os.lstat(path).st_ino for path in before} == before


def test_the_same_folder_again(models: list[SentenceEncoder], tmp_path: Path) -> None:
    """A model saved where it was loaded from, and through a link."""
    model = SentenceEncoder(tmp_path / "a", device="cpu")
    expected = model.encode(SENTENCES)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for target in (tmp_path / "a", tmp_path / "link"):
        model.save(target)
        np.testing.assert_array_equal(SentenceEncoder(target, device="cpu").encode(SENTENCES), expected)
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "file").touch()
    for path in (tmp_path / "a").rglob("*"):
        like = tmp_path / "bert" if path.is_dir() else tmp_path / "file"
        assert path.stat().st_mode == like.stat().st_mode, path
    assert os.stat(tmp_path / "a").st_mode & 0o777 == os.stat(tmp_path / "bert").st_mode & 0o777


@pytest.mark.parametrize("name", ["thesis.tex", "data/inner", ".git"])
def test_nothing_of_others_is_taken_away(models: list[SentenceEncoder], tmp_path: Path, name: str) -> None:
    """A configuration of some program makes no model."""
    for folder in (tmp_path / "a", tmp_path / "mine"):
        (folder / name).mkdir(parents=True)
        (folder / name / "work").write_text("months of it")
        message = rf"'{name.split('/')[0]}', which is not part of a model.*save to another folder"
        with pytest.raises(ValueError, match=message):
            models[1].save(folder)
        assert (folder / name / "work").read_text() == "months of it"
    (tmp_path / "file").write_text("a file")
    small.write(tmp_path / "other", {"config.json": {}})
    for other, message in (
        ("file", "is a file; name a folder"),
        ("other", "contains 'config.json', which is not part"),
    ):
        with pytest.raises(ValueError, match=message):
            models[1].save(tmp_path / other)


def test_weights_change_after_saving(models: list[SentenceEncoder], tmp_path: Path) -> None:
    """What is saved is a copy, also where the file is mapped into memory."""
    model = SentenceEncoder(tmp_path / "a", device="cpu")
    with torch.no_grad():
        model[0].auto_model.embeddings.word_embeddings.weight.zero_()
    assert SentenceEncoder(tmp_path / "a", device="cpu").verify(tolerance=0)
