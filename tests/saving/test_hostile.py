"""Hostile and damaged folders: an error of one line that names the file, at little cost, and no code is run."""

from __future__ import annotations

import json
import shutil
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sbert import Dense, Normalize, Pooling, SentenceEncoder, StaticEmbedding, Transformer, WordEmbeddings
from tests import pairs, small
from tests.backends.test_families import build
from tests.contract.damage import replace_value
from tests.memory import STATUS
from tests.saving import hostile
from tests.saving.hostile import values

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
SETTINGS = "sentence_bert_config.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, in a folder."""
    root = tmp_path_factory.mktemp("good")
    encoder(Transformer(small.bert(root / "bert")), Pooling(), Dense(16, 16), Normalize()).save(root / "bert")
    build("roberta", root / "roberta")
    pairs.folder(root / "pairs")
    encoder(WordEmbeddings(["red", "fox"], torch.eye(2)), Pooling()).save(root / "words")
    words = small.wordpiece()
    encoder(StaticEmbedding(words, torch.randn(words.get_vocab_size(), 8))).save(root / "static")
    for path in list((root / "static/0_StaticEmbedding").iterdir()):
        path.rename(root / "static" / path.name)
    small.write(root / "static", {"modules.json": small.modules("StaticEmbedding")})
    return root


def encoder(*modules: Any) -> SentenceEncoder:
    return SentenceEncoder(*modules, device="cpu")


# ------------------------------------------------------------------------------------------------- hostile folders


@pytest.mark.slow  # 170 folders, each loaded in a process whose memory is measured.
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say how much of a process is in memory")
@pytest.mark.skipif(sys.platform != "linux", reason="devices and pipes are those of Linux")
def test_hostile_folders_are_answered(good: Path, tmp_path: Path) -> None:
    """Each within 2 seconds and 500 MB, by an error that names the file."""
    shutil.copytree(good, tmp_path / "good")
    expected = {}
    for number, (name, family, edit, file) in enumerate(hostile.cases()):
        folder = tmp_path / "hostile" / f"{family}-{number:03}"
        shutil.copytree(good / family, folder)
        edit(folder)
        expected[folder.name] = name, file
    child = get_context("fork").Process(target=hostile.main, args=(tmp_path, tmp_path / "out"))
    child.start()
    child.join()
    lines = (tmp_path / "out").read_text().splitlines()
    assert not (tmp_path / "hostile" / "marker").exists(), "code ran"
    found = {name: json.loads(line) for name, line in zip(lines[::2], lines[1::2], strict=False)}
    last = expected[lines[-1]][0] if len(lines) % 2 else "none"
    assert child.exitcode == 0, f"the last folder was {last!r}"
    assert found.keys() == expected.keys()
    wrong = []
    for folder_name, outcome in found.items():
        name, file = expected[folder_name]
        said = outcome["said"]
        fine = file in said and folder_name in said and "\n" not in said and len(said) < 1000 and "; " in said
        if not fine or outcome["seconds"] > 2 or outcome["bytes"] > 500e6:
            wrong.append((name, outcome))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_unused_weights_are_named_once(good: Path, tmp_path: Path, family: str) -> None:
    """A model of two layers whose configuration speaks of one reads half of its weights."""
    folder = shutil.copytree(good / family, tmp_path / "model")
    values("config.json", num_hidden_layers=1)(folder)
    message = r"model\.safetensors contains weights .* encoder\.layer\.1\.\S+ and 13 more"
    with pytest.warns(UserWarning, match=message) as found:
        SentenceEncoder(folder, device="cpu")
    assert len(found) == 1


HEADS = ("cls.predictions.bias", "lm_head.weight", "classifier.weight", "vocab_projector.bias", "qa_outputs.bias")


@pytest.mark.parametrize("prefix", ["", "roberta."])
def test_heads_for_other_tasks_are_no_surprise(good: Path, tmp_path: Path, prefix: str) -> None:
    """As thousands of models on the hub have them, with their tables of positions."""
    folder = shutil.copytree(good / "roberta", tmp_path / "model")
    tensors = {f"{prefix}{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors |= {name: torch.zeros(2) for name in HEADS}
    tensors[f"{prefix}embeddings.position_ids"] = torch.arange(64)[None]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    vectors = [SentenceEncoder(path, device="cpu").encode("a small boat") for path in (folder, good / "roberta")]
    np.testing.assert_array_equal(*vectors)


def test_pickled_weights_of_all_ages_are_read(good: Path, tmp_path: Path) -> None:
    """In a zip file and as torch wrote before; weights that share memory; half precision."""
    expected = SentenceEncoder(good / "roberta", device="cpu").encode("a small boat")
    for zipped in (True, False):
        folder = shutil.copytree(good / "roberta", tmp_path / f"zipped {zipped}")
        tensors: dict[str, Any] = dict(load_file(folder / "model.safetensors"))
        tensors["lm_head.decoder.weight"] = tensors["embeddings.word_embeddings.weight"]
        tensors["lm_head.bias"] = nn.Parameter(torch.zeros(3))
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        np.testing.assert_array_equal(SentenceEncoder(folder, device="cpu").encode("a small boat"), expected)


# Files outside the folder that its settings name, and what the warning says.
FROM_OUTSIDE: list[tuple[dict[str, Any], str]] = [
    ({"config_kwargs": {"subfolder": "../other"}}, "subfolder='../other' ignored"),
    ({"config_kwargs": {"gguf_file": "../other/config.json"}}, "gguf_file=.* ignored: it is no value"),
    ({"model_args": {"subfolder": "../other"}}, "model_kwargs subfolder='../other' ignored"),
    ({"tokenizer_args": {"subfolder": "../other"}}, "processor_kwargs subfolder='../other' ignored"),
]


def test_nothing_outside_of_a_folder_is_read(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only values of the configuration are taken; everything else is named in one warning."""
    other = shutil.copytree(good / "bert", tmp_path / "other")
    values("config.json", layer_norm_eps=0.25)(other)
    expected, opened, plain_open = encoder(good / "bert").encode("a small boat"), [], open

    def record(path: Any, *more: Any, **options: Any) -> Any:
        opened.append(str(path))
        return plain_open(path, *more, **options)

    monkeypatch.setattr("builtins.open", record)
    for number, (settings, message) in enumerate(FROM_OUTSIDE):
        folder = shutil.copytree(good / "bert", tmp_path / str(number))
        values(SETTINGS, **settings)(folder)
        with pytest.warns(UserWarning, match=message) as warned:
            vector = encoder(folder).encode("a small boat")
        np.testing.assert_array_equal(vector, expected)
        assert len(warned) == 1
    assert not [path for path in opened if "other" in path]


def test_values_of_the_configuration_are_set_after_it_is_read(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good / "bert", tmp_path / "model")
    values(SETTINGS, config_kwargs={"layer_norm_eps": 0.25, "num_labels": 5})(folder)
    transformer = encoder(folder)[0]
    assert (transformer.auto_model.config.layer_norm_eps, transformer.auto_model.config.num_labels) == (0.25, 5)
    assert (transformer.auto_model.encoder.layer[0].output.LayerNorm.eps, transformer.max_seq_length) == (0.25, 64)


def test_verify_sees_a_flipped_weight(good: Path, tmp_path: Path) -> None:
    """No reader can tell one weight from another; the reference vectors can."""
    folder = shutil.copytree(good / "bert", tmp_path / "model")
    path = folder / "2_Dense/model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x04  # in the exponent of the last weight
    path.write_bytes(content)
    assert SentenceEncoder(good / "bert", device="cpu").verify()
    assert not SentenceEncoder(folder, device="cpu").verify()


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no config.json, so it is not a model"):
        SentenceEncoder(tmp_path)


PANIC = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("model", "vocab", "[UNK]"), ..., r"the tokenizer fails at 'snow .* \(Exception: .*damaged or incomplete"),
        (("model", "vocab", "b"), 10**6, r"a token of 'a b' has the id 1000000, and the model has vectors for \d+ "),
        (("normalizer",), PANIC, r"tokenizer.json cannot be read as a tokenizer \(PanicException: "),
    ],
)
def test_damaged_tokenizers(good: Path, tmp_path: Path, keys: tuple[str, ...], value: Any, message: str) -> None:
    """What Rust raises is no ValueError, and on a GPU a token without a vector would end the process."""
    folder = shutil.copytree(good / "bert", tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(replace_value(tokenizer, keys, value)), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        SentenceEncoder(folder, device="cpu").encode(["a b", "snow \u2603 \u6587 \U0010ffff zzz"])
