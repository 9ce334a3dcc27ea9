"""Damaged folders: an answer or a clear error, never a crash, a hang or code that runs."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Dense, Normalize, Pooling, SentenceEncoder, Transformer
from tests import small

SENTENCES = ["a small boat", "lake", ""]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of file."""
    folder = tmp_path_factory.mktemp("good")
    torch.manual_seed(0)
    transformer = Transformer(small.bert(folder / "bert"))
    model = SentenceEncoder(transformer, Pooling(), Dense(16, 8), Normalize(), device="cpu", prompts={"query": "q: "})
    model.save(folder / "model")
    return folder / "model"


class Marks:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def damages(content: bytes, marker: Path) -> Iterator[tuple[str, bytes | None]]:
    """What becomes of a file, and its new content; None where a folder takes its place."""
    rng = random.Random(len(content))
    for share in (0.1, 0.5, 0.9):
        yield f"cut at {share:.0%}", content[: int(len(content) * share)]
    yield "cut by a byte", content[:-1]
    yield "emptied", b""
    for _ in range(12):
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(flipped)
    for _ in range(3):
        # The header of a safetensors file, and the head of any other.
        place = rng.randrange(min(200, len(content)))
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        yield f"byte {place} inverted", bytes(flipped)
    for other in (b"[]", b"3", b'"text"', b"null", b"{}", b"<html></html>", rng.randbytes(300)):
        yield f"replaced by {other[:10]!r}", other
    yield "replaced by a pickle", pickle.dumps(Marks(marker))
    yield "replaced by a folder", None


def test_each_file_damaged(good: Path, tmp_path: Path) -> None:
    files = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file())
    expected = SentenceEncoder(good, device="cpu").encode(SENTENCES)
    marker, folder = tmp_path / "marker", tmp_path / "model"
    counts = {"refused": 0, "same": 0, "other": 0}
    shutil.copytree(good, folder)
    for name in files:
        path, content = folder / name, (good / name).read_bytes()
        for what, new in damages(content, marker):
            if new == content:
                continue
            path.unlink()
            if new is None:
                path.mkdir()
            else:
                path.write_bytes(new)
            try:
                vectors = SentenceEncoder(folder, device="cpu").encode(SENTENCES, on_truncate="ignore")
            except ValueError as error:
                counts["refused"] += 1
                assert "\n" not in str(error), f"{name} {what}: {error}"
                # Numbers that are none show only when a sentence is encoded.
                assert name.name in str(error) or "not finite" in str(error), f"{name} {what}: {error}"
            except UserWarning as warning:
                assert name.name in str(warning), f"{name} {what}: {warning}"
                counts["refused"] += 1
            else:
                assert vectors.shape[0] == len(SENTENCES)
                same = vectors.shape == expected.shape and np.abs(vectors - expected).max() < 1e-6
                counts["same" if same else "other"] += 1
            assert not marker.exists(), f"{name} {what}: code ran"
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.write_bytes(content)
    print(f"\n{sum(counts.values())} damaged folders: {counts}")
    assert sum(counts.values()) >= 200
    assert counts["refused"] >= 150


def test_each_file_missing(good: Path, tmp_path: Path) -> None:
    """The optional ones are not missed; of the others, the error names the file or the folder."""
    expected = SentenceEncoder(good, device="cpu").encode(SENTENCES)
    optional = {
        "README.md",
        "sbert_reference.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
        "3_Normalize/config.json",
        "tokenizer_config.json",
    }
    for path in sorted(path for path in good.rglob("*") if path.is_file()):
        name = str(path.relative_to(good))
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(good, folder)
        (folder / name).unlink()
        if name == "modules.json":  # A plain transformer then.
            assert len(SentenceEncoder(folder, device="cpu")) == 2
        elif name in optional:
            assert np.abs(SentenceEncoder(folder, device="cpu").encode(SENTENCES) - expected).max() < 1e-6
        else:
            with pytest.raises(ValueError, match=str(folder)):
                SentenceEncoder(folder, device="cpu")


def test_verify_sees_a_flipped_weight(good: Path, tmp_path: Path) -> None:
    """No reader can tell one weight from another; the reference vectors can."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    path = folder / "2_Dense/model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x04  # in the exponent of the last weight
    path.write_bytes(content)
    assert SentenceEncoder(good, device="cpu").verify()
    assert not SentenceEncoder(folder, device="cpu").verify()


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no config.json, so it is no model"):
        SentenceEncoder(tmp_path)
