"""Shards that processes of the shell write, one of them killed and run again, are joined to what one run writes."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sbert import Pooling, SentenceEncoder, WordEmbeddings
from tests import small

ROWS = 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model that encodes in no time, and a file of texts."""
    import torch

    words = sorted({word for text in small.CORPUS for word in text.lower().split()})
    weights = torch.randn(len(words), 16, generator=torch.Generator().manual_seed(0))
    SentenceEncoder(WordEmbeddings(words, weights), Pooling("mean"), device="cpu").save(tmp_path / "model")
    lines = (" ".join(words[(i * k + i) % len(words)] for k in range(1, 2 + i % 7)) for i in range(ROWS))
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "sbert", *words]


@pytest.mark.slow
def test_xargs_with_a_killed_shard(folder: Path) -> None:
    encode = command("encode", "model", "texts.txt", "-o", "v.npy", "--quiet", "--device", "cpu", "--shard", "{}/4")
    # The first shard is killed as soon as it has begun.
    with subprocess.Popen([word.replace("{}", "1") for word in encode], cwd=folder) as child:
        while not list(folder.glob("*.partial")) and child.poll() is None:
            time.sleep(0.001)
        child.kill()
    status = subprocess.run(command("encode", "--status", "-o", "v.npy"), cwd=folder, capture_output=True, text=True)
    assert "v-00001-of-00004.npy" in status.stdout
    assert "0 of 4 files done" in status.stdout
    early = subprocess.run(command("merge", "v.npy"), cwd=folder, capture_output=True, text=True)
    assert (early.returncode, early.stderr[:14]) == (2, "sbert: error: ")
    script = f"seq 0 3 | xargs -P 2 -I{{}} {shlex.join(encode)} && {shlex.join(command('merge', 'v.npy'))}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"v.npy: {ROWS} vectors\n", "")
    whole = SentenceEncoder(folder / "model", device="cpu").encode((folder / "texts.txt").read_text().splitlines())
    joined = np.load(folder / "v.npy")
    assert joined.shape == whole.shape
    assert np.abs(joined - whole).max() <= 1e-6
    assert not list(folder.glob("*.partial")) + list(folder.glob("*.journal"))
