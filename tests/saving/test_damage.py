"""Damaged folders: an answer or a clear error, never a crash, a hang or code that runs."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Dense, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.modules.tokenizer import FastTokenizer
from tests import small

pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
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


# What stands in for a value of a JSON file.
STRANGE: list[Any] = [None, -1, 0, 3, 1.5, True, "text", "", [], {}, [1], {"a": 1}, 10**6]
ODD = ["a b", "", "snow \u2603 \u6587 \U0010ffff zzz", "[UNK] [MASK]"]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value inside a JSON value; of a list, to its first ones."""
    if at:
        yield at
    entries = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from places(inner, (*at, key))


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value with another value in one place; without that place where it is ``...``."""
    changed = copy.deepcopy(value)
    parent = changed
    for key in at[:-1]:
        parent = parent[key]
    if new is ...:
        del parent[at[-1]]
    else:
        parent[at[-1]] = new
    return changed


@pytest.mark.filterwarnings("ignore:max_seq_length=1000000 exceeds the 64 positions of the model:UserWarning")
@pytest.mark.parametrize(
    "name",
    [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "3_Normalize/config.json",
        "config.json",
        "config_sentence_transformers.json",
        "modules.json",
        "sbert_reference.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ],
)
def test_json_of_the_wrong_shape(good: Path, tmp_path: Path, name: str) -> None:
    """Values missing, or of another type or size: what loads can encode, and the rest says why."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    value = json.loads((good / name).read_text(encoding="utf-8"))
    cases = [(at, new) for at in places(value) for new in (*STRANGE, ...)]
    rng = random.Random(0)
    for at, new in rng.sample(cases, min(60, len(cases))):
        (folder / name).write_text(json.dumps(replaced(value, at, new)), encoding="utf-8")
        try:
            SentenceEncoder(folder, device="cpu").encode(ODD, on_truncate="ignore")
        except ValueError as error:
            assert "\n" not in str(error), (at, new, str(error))
            assert str(folder) in str(error) or "tokenizer.json" in str(error), (at, new, str(error))


def _without_unknown(tokenizer: dict[str, Any]) -> None:
    del tokenizer["model"]["vocab"]["[UNK]"]


def _beyond_the_table(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["vocab"]["b"] = 10**6


def _panics(tokenizer: dict[str, Any]) -> None:
    tokenizer["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            _without_unknown,
            r"the tokenizer fails at 'snow .* \(Exception: .*its tokenizer.json is damaged or incomplete",
        ),
        (_beyond_the_table, r"a token of 'a b' has the id 1000000, and the model has vectors for \d+ ids;"),
        (_panics, r"tokenizer.json cannot be read as a tokenizer \(PanicException: "),
    ],
)
def test_damaged_tokenizers(good: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str) -> None:
    """What Rust raises is no ValueError, and on a GPU a token without a vector would end the process."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    edit(tokenizer)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        SentenceEncoder(folder, device="cpu").encode(ODD)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("1_Pooling/config.json", "pooling_mode_max_tokens", True, r"modules that work together \(RuntimeError: mat1"),
        ("2_Dense/config.json", "in_features", 3, r"2_Dense/model.safetensors .* size mismatch for linear.weight"),
        ("config.json", "num_attention_heads", -1, r"config.json gives num_attention_heads=-1 where at least 1"),
        (
            "config.json",
            "intermediate_size",
            48,
            r"model.safetensors gives encoder.layer.0\S+ the shape \(32,\), where",
        ),
        ("modules.json", 0, ..., r"modules.json begins with a Pooling, which reads no text"),
        ("modules.json", 1, ..., r"modules that work together \(TypeError"),
    ],
)
def test_files_that_do_not_fit_together(
    good: Path, tmp_path: Path, name: str, key: Any, value: Any, message: str
) -> None:
    """Refused when the folder is loaded, not when the first sentence comes."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    (folder / name).write_text(json.dumps(replaced(json.loads((good / name).read_text()), (key,), value)))
    with pytest.raises(ValueError, match=message):
        SentenceEncoder(folder, device="cpu")


def test_a_pickle_in_place_of_weights(good: Path, tmp_path: Path) -> None:
    """pytorch_model.bin is a pickle by nature, and still runs nothing."""
    for name in ("model.safetensors", "2_Dense/model.safetensors"):
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(good, folder)
        (folder / name).unlink()
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            content = pickle.dumps(Marks(tmp_path / "marker"), protocol)
            (folder / name).with_name("pytorch_model.bin").write_bytes(content)
            with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
                SentenceEncoder(folder, device="cpu")
            torch.save({"linear.weight": Marks(tmp_path / "marker")}, (folder / name).with_name("pytorch_model.bin"))
            with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
                SentenceEncoder(folder, device="cpu")
        assert not (tmp_path / "marker").exists()
        pickle.loads(pickle.dumps(Marks(tmp_path / "proof")))
        assert (tmp_path / "proof").is_dir()
        (tmp_path / "proof").rmdir()


def test_a_text_that_no_tokenizer_reads_is_named() -> None:
    """Also from the middle of many."""
    tokenizer = small.wordpiece()
    tokenizer.model.unk_token = "nothing"
    with pytest.raises(ValueError, match=r"the tokenizer fails at 'fox \u2603'"):
        FastTokenizer(tokenizer)(["lake", "boat", "fox \u2603", "fox"])
