"""Whenever a save is interrupted, the old folder is complete, or the new one."""

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
from tests.storage.test_replaced_folders import word_model

SENTENCES = ["a small boat", "lake"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[SentenceEncoder]:
    """Two that differ."""
    root = tmp_path_factory.mktemp("bert")
    chains = [(Transformer(small.bert(root / f"{seed}", seed)), Pooling()) for seed in (0, 1)]
    return [SentenceEncoder(*chain, device="cpu") for chain in chains]


def encode(folder: Path) -> np.ndarray:
    return SentenceEncoder(folder, device="cpu").encode(SENTENCES)


@pytest.mark.slow  # Twenty kills at random moments: fewer would meet few of the lines of a save.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to kill")
def test_killed_while_saving(tmp_path: Path) -> None:
    """By children that save two models alternately, each killed after one or two saves and some time."""
    chance, target, seen = random.Random(0), tmp_path / "target", set()
    models = [word_model(number) for number in (0, 1)]
    expected = [model.encode(SENTENCES) for model in models]
    models[0].save(target)

    def save_alternately() -> None:
        while True:
            for model in models:
                model.save(target)
                os.write(writer, b".")

    for kill in range(20):
        reader, writer = os.pipe()
        child, saves = in_child(save_alternately), 0
        os.close(writer)
        while saves < 1 + kill % 2:
            assert os.read(reader, 1), "the child has failed"
            saves += 1
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        model = SentenceEncoder(target, device="cpu")
        same = [np.array_equal(model.encode(SENTENCES), vectors) for vectors in expected]
        assert sum(same) == 1
        assert model.verify(tolerance=0)
        seen.add(same.index(True))
    assert seen == {0, 1}  # Otherwise the children were killed before they saved anything.


@pytest.mark.parametrize("function", ["flush_entry", "os.replace", "write_json", "save_file", "save_pretrained"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_full_disk(
    models: list[SentenceEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, exists: bool
) -> None:
    target = tmp_path / "out" / "target"
    model = SentenceEncoder(models[1][0], Pooling(), Dense(16, 4), device="cpu")
    if exists:
        models[0].save(target)
    elif function != "os.replace":
        target.parent.mkdir()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    owners = {
        "flush_entry": atomic,
        "os.replace": os,
        "write_json": encoder_folder,
        "save_file": __import__("safetensors.torch").torch,
        "save_pretrained": type(model.tokenizer),
    }
    monkeypatch.setattr(owners[function], function.removeprefix("os."), full)
    if function == "os.replace" and exists:  # Folders are exchanged in one step, which needs no replace.
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    with pytest.raises(OSError, match="No space left"):
        model.save(target)
    monkeypatch.undo()
    if exists:
        np.testing.assert_array_equal(encode(target), models[0].encode(SENTENCES))
    assert [path.name for path in target.parent.iterdir() if path != target] == []


def test_the_same_folder_again_and_without_an_exchange(
    models: list[SentenceEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model saved where it was loaded from, also through a link; with the permissions of ordinary files."""
    target, link = tmp_path / "target", tmp_path / "link"
    models[0].save(target)
    link.symlink_to(target)
    model, expected = SentenceEncoder(target, device="cpu"), models[0].encode(SENTENCES)
    for path in (target, link):
        model.save(path)
        np.testing.assert_array_equal(encode(path), expected)
    assert link.is_symlink()
    with torch.no_grad():  # What was saved is a copy, even if the file is mapped into memory.
        model[0].auto_model.embeddings.word_embeddings.weight.zero_()
    assert SentenceEncoder(target, device="cpu").verify(tolerance=0)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (target, *target.rglob("*")):
        assert path.stat().st_mode == (tmp_path / ("folder" if path.is_dir() else "file")).stat().st_mode, path
    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    for model in (models[1], models[0]):
        model.save(target)
        np.testing.assert_array_equal(encode(target), model.encode(SENTENCES))
    assert {path.name for path in tmp_path.iterdir()} == {"target", "link", "file", "folder"}


def test_the_next_save_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """Except what another process is writing now, and other names."""
    (tmp_path / "target").mkdir()
    code = "import os, sys; from pathlib import Path; from sbert.storage.atomic import replacing\n" + (
        "with replacing(Path(sys.argv[1]), id) as work: (work / 'file').touch(); "
    )
    dead, alive = f"{code} os.kill(os.getpid(), 9)", f"{code} print('ready', flush=True); sys.stdin.read()"
    for name in ("target", "other.target"):
        killed = subprocess.run([sys.executable, "-c", dead, str(tmp_path / name)])
        assert killed.returncode == -signal.SIGKILL
    for name in (".target.saving-mine", ".target.saving-abcd1234.old"):
        (tmp_path / name).mkdir()
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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    atomic.write_text(tmp_path / "pipe", "one\n")
    assert os.read(reader, 99) == b"one\n"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
