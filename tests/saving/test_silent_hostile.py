"""Folders that declare more than they hold, the user's own modules, and what other programs read of a chain."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sbert import (
    LSTM,
    CrossEncoder,
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    SentenceEncoder,
    StaticEmbedding,
    TokenEmbeddings,
    Trainer,
    TrainingConfig,
    Transformer,
    register_module,
    register_pooling,
)
from sbert.losses import CosineSimilarityLoss
from sbert.modules import registry
from sbert.modules.pooling import POOLINGS
from tests import pairs, small
from tests.backends.test_families import build
from tests.memory import STATUS
from tests.saving import hostile

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
WARNING = "not every program reads this model as it is: "
ROWS = [("a small boat", "lake", 0.5), ("hills", "a fox", 0.1)]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, in a folder."""
    root = tmp_path_factory.mktemp("good")
    with pytest.warns(UserWarning, match="llama.cpp's converter leaves out Dense"):
        encoder(Transformer(small.bert(root / "bert")), Pooling(), Dense(16, 16), Normalize()).save(root / "bert")
    build("roberta", root / "roberta")
    build("distilbert", root / "distilbert")
    pairs.folder(root / "pairs")
    words = small.wordpiece()
    encoder(StaticEmbedding(words, torch.randn(words.get_vocab_size(), 8))).save(root / "static")
    for path in list((root / "static/0_StaticEmbedding").iterdir()):
        path.rename(root / "static" / path.name)
    small.write(root / "static", {"modules.json": small.modules("StaticEmbedding")})
    return root


def encoder(*modules: Any) -> SentenceEncoder:
    return SentenceEncoder(*modules, device="cpu")


# ------------------------------------------------------------------------------------------------- hostile folders


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say how much of a process is in memory")
@pytest.mark.skipif(sys.platform != "linux", reason="devices and pipes are those of Linux")
def test_16_hostile_folders_are_answered(good: Path, tmp_path: Path) -> None:
    """Each within 2 seconds and 500 MB, by an error that names the file."""
    shutil.copytree(good, tmp_path / "good")
    expected = {}
    for number, (name, family, edit, file) in enumerate(hostile.cases()):
        folder = tmp_path / "hostile" / f"{family}-{number:03}"
        shutil.copytree(good / family, folder)
        edit(folder)
        expected[folder.name] = name, file
    assert len(expected) >= 100
    command = [sys.executable, "-m", "tests.saving.hostile", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent.parent)
    lines = result.stdout.splitlines()
    found = {name: json.loads(line) for name, line in zip(lines[::2], lines[1::2], strict=False)}
    last = expected[lines[-1]][0] if len(lines) % 2 else "none"
    assert result.returncode == 0, f"the last folder was {last!r}: {result.stderr[-2000:]}"
    assert found.keys() == expected.keys()
    wrong = []
    for folder_name, outcome in found.items():
        name, file = expected[folder_name]
        said = outcome["said"]
        fine = file in said and folder_name in said and "\n" not in said and len(said) < 1000
        if not fine or outcome["seconds"] > 2 or outcome["bytes"] > 500e6:
            wrong.append((name, outcome))
    slowest = max(outcome["seconds"] for outcome in found.values())
    largest = max(outcome["bytes"] for outcome in found.values())
    print(f"\n{len(found)} hostile folders: at most {slowest:.2f} s and {largest / 1e6:.0f} MB")
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_16_unused_weights_are_named_once(good: Path, tmp_path: Path, family: str) -> None:
    """A model of two layers whose configuration speaks of one reads half of its weights."""
    folder = shutil.copytree(good / family, tmp_path / "model")
    hostile.values("config.json", num_hidden_layers=1)(folder)
    with pytest.warns(
        UserWarning, match=r"model\.safetensors contains weights .* encoder\.layer\.1\.\S+ and 13 more"
    ) as found:
        SentenceEncoder(folder, device="cpu")
    assert len(found) == 1


HEADS = ("cls.predictions.bias", "lm_head.weight", "classifier.weight", "vocab_projector.bias", "qa_outputs.bias")


@pytest.mark.parametrize("prefix", ["", "roberta."])
def test_16_heads_for_other_tasks_are_no_surprise(good: Path, tmp_path: Path, prefix: str) -> None:
    """As thousands of models on the hub have them, with their tables of positions."""
    folder = shutil.copytree(good / "roberta", tmp_path / "model")
    tensors = {f"{prefix}{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors |= {name: torch.zeros(2) for name in HEADS}
    tensors[f"{prefix}embeddings.position_ids"] = torch.arange(64)[None]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    vectors = SentenceEncoder(folder, device="cpu").encode(small.TEXTS, on_truncate="ignore")
    np.testing.assert_array_equal(
        vectors, SentenceEncoder(good / "roberta", device="cpu").encode(small.TEXTS, on_truncate="ignore")
    )


def test_16_pickled_weights_of_all_ages_are_read(good: Path, tmp_path: Path) -> None:
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


# --------------------------------------------------------------------------------------------- the user's own modules


@pytest.fixture
def _tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten behind it."""
    monkeypatch.setattr(registry, "_own", dict(registry._own))
    before = dict(POOLINGS)
    yield
    POOLINGS.clear()
    POOLINGS.update(before)


class Scaled(nn.Module):
    """A factor, and a weight."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.config = {"factor": factor}
        self.shift = nn.Parameter(torch.ones(1))

    def forward(self, vectors: Tensor) -> Tensor:
        return self.config["factor"] * vectors + self.shift


def first_two(tokens: TokenEmbeddings) -> Tensor:
    return tokens.padded()[0][:, :2].sum(1)


@pytest.mark.usefixtures("_tables")
@pytest.mark.parametrize("modes", ["first two", ["mean", "first two"]])
def test_18_own_pooling_loads_again(good: Path, tmp_path: Path, modes: str | list[str]) -> None:
    register_pooling("first two")(first_two)
    model = encoder(Transformer(good / "roberta"), Pooling(modes))
    with pytest.warns(UserWarning, match="first two is known to sbert alone"):
        model.save(tmp_path / "own")
    texts = ["a small boat", "lake"]
    np.testing.assert_array_equal(SentenceEncoder(tmp_path / "own", device="cpu").encode(texts), model.encode(texts))
    del POOLINGS["first two"]
    with pytest.raises(
        ValueError, match=r"1_Pooling/config.json gives the pooling mode 'first two'.*@register_pooling\("
    ):
        SentenceEncoder(tmp_path / "own", device="cpu")


@pytest.mark.usefixtures("_tables")
def test_18_own_module_loads_again(good: Path, tmp_path: Path) -> None:
    model = encoder(Transformer(good / "roberta"), Pooling(), Scaled(3.0))
    with torch.no_grad():
        model[2].shift.fill_(0.5)
    with pytest.warns(UserWarning, match="Scaled is known to sbert alone.*put @register_module before the class"):
        model.save(tmp_path / "own")
    with pytest.raises(
        ValueError, match=r"names the module type 'sbert.Scaled'.*with @register_module before its class"
    ):
        SentenceEncoder(tmp_path / "own", device="cpu")
    register_module(Scaled)
    again = SentenceEncoder(tmp_path / "own", device="cpu")
    np.testing.assert_array_equal(again.encode("a small boat"), model.encode("a small boat"))
    assert again[2].config == {"factor": 3.0}


@pytest.mark.usefixtures("_tables")
def test_18_names_stand_for_one_thing(good: Path, tmp_path: Path) -> None:
    """A class of the user's that bears the name of another one would be read as that."""
    other = type("Dense", (nn.Module,), {"forward": lambda self, vectors: -vectors})
    with pytest.raises(ValueError, match=r"the module 'Dense' is already registered, as sbert.modules.dense.Dense"):
        register_module(other)
    with pytest.raises(ValueError, match="the module 'Dense' is already registered"):
        encoder(Transformer(good / "roberta"), Pooling(), other()).save(tmp_path / "own")
    with pytest.raises(ValueError, match="the pooling mode 'mean' is already registered"):
        register_pooling("mean")(first_two)
    with pytest.raises(TypeError, match="is not a class of modules"):
        register_module(first_two)  # type: ignore[type-var]
    assert register_module(Scaled) is register_module(Scaled)


@pytest.mark.usefixtures("_tables")
def test_18_an_argument_with_a_default_is_kept_or_missed(good: Path, tmp_path: Path) -> None:
    """A module that was made with another value would load with the default."""

    @register_module
    class Careless(nn.Module):
        def __init__(self, factor: float = 1.0) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, vectors: Tensor) -> Tensor:
            return self.factor * vectors

    with pytest.raises(ValueError, match="Careless cannot be saved without its argument 'factor'"):
        encoder(Transformer(good / "roberta"), Pooling(), Careless(2.0)).save(tmp_path / "own")


# ------------------------------------------------------------------------------------------------ what servers read

SERVERS = "text-embeddings-inference and llama.cpp's converter "
CHAINS: dict[str, tuple[list[Any], str | None]] = {
    "ordinary": ([Pooling("mean"), Normalize()], None),
    "cls": ([Pooling("cls")], None),
    "dropout alone": ([Pooling("mean"), Dropout()], None),
    "dense": ([Pooling("mean"), Dense(16, 8)], "llama.cpp's converter leaves out Dense"),
    "dropout": (
        [Pooling("mean"), Dropout(), Dense(16, 8)],
        "text-embeddings-inference leaves out Dense, as it does not know Dropout;"
        " llama.cpp's converter leaves out Dense",
    ),
    "norm": (
        [Pooling("mean"), LayerNorm(16), Dense(16, 8)],
        "text-embeddings-inference leaves out LayerNorm, Dense, as it does not know LayerNorm;"
        " llama.cpp's converter leaves out LayerNorm, Dense",
    ),
    "lstm": (
        [LSTM(16, 8), Pooling("mean")],
        "text-embeddings-inference leaves out LSTM, as it does not know LSTM; llama.cpp's converter leaves out LSTM",
    ),
    "modes": ([Pooling(["mean", "max"])], SERVERS + "pool by one of cls, mean, lasttoken, and not by mean + max"),
    "max": ([Pooling("max")], SERVERS + "pool by one of cls, mean, lasttoken, and not by max"),
    "prompt": ([Pooling("mean", include_prompt=False)], SERVERS + "pool the tokens of the prompt, too"),
    "residual": (
        [Pooling("mean"), Dense(16, 8, activation="GELU", residual=True)],
        "text-embeddings-inference refuses GELU in Dense, as it knows Tanh and Identity alone;"
        " text-embeddings-inference leaves out the residual of Dense; llama.cpp's converter leaves out Dense",
    ),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.filterwarnings("ignore:dropout option adds dropout:UserWarning")
def test_20_one_warning_says_which_servers_read_otherwise(good: Path, tmp_path: Path, name: str) -> None:
    modules, expected = CHAINS[name]
    model = encoder(Transformer(good / "roberta"), *modules)
    if expected is not None:
        with pytest.warns(UserWarning, match=WARNING) as found:
            model.save(tmp_path / "model")
        assert [str(warning.message) for warning in found] == [WARNING + expected]
        assert found[0].filename == __file__
    model.save(tmp_path / "model")  # Once for a model.
    again = SentenceEncoder(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.encode("a small boat"), model.encode("a small boat"), atol=1e-6)


def test_20_training_says_it_once(good: Path, tmp_path: Path) -> None:
    """However many checkpoints are written."""
    model = encoder(Transformer(good / "roberta"), Pooling(), Dense(16, 8))
    config = TrainingConfig(steps=4, batch_size=2, checkpoint_every=1, output=str(tmp_path / "out"))
    with pytest.warns(UserWarning, match="leaves out Dense") as found:
        Trainer(model, ROWS, CosineSimilarityLoss(), config).fit()
    assert len(found) == 1
    assert len(list((tmp_path / "out").rglob("2_Dense"))) > 1
    model.save(tmp_path / "model")


FLAGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


@pytest.mark.filterwarnings(f"ignore:{WARNING}")
@pytest.mark.parametrize("modes", ["cls", ["mean", "max"], ["max", "mean"], ["mean", "mean"]])
def test_20_old_flags_of_pooling_are_always_there(good: Path, tmp_path: Path, modes: str | list[str]) -> None:
    """text-embeddings-inference refuses a folder without them."""
    encoder(Transformer(good / "roberta"), Pooling(modes)).save(tmp_path / "model")
    config = json.loads((tmp_path / "model/1_Pooling/config.json").read_text())
    true = {name for name in FLAGS if config[f"pooling_mode_{name}"]}
    assert true == {"cls_token"} if modes == "cls" else {"mean_tokens", "max_tokens"} >= true >= {"mean_tokens"}
    model = SentenceEncoder(tmp_path / "model", device="cpu")
    assert list(model[1].modes) == ([modes] if isinstance(modes, str) else modes)


def test_20_no_limit_is_not_written_as_null(tmp_path: Path) -> None:
    """text-embeddings-inference reads a number, and takes the model's own limit where there is no file."""
    build("t5-encoder", tmp_path / "given")
    for name in ("tokenizer_config.json",):
        hostile.values(name, model_max_length=...)(tmp_path / "given")
    (tmp_path / "given/sentence_bert_config.json").unlink(missing_ok=True)
    model = SentenceEncoder(tmp_path / "given", device="cpu")
    assert model.max_seq_length is None
    model.save(tmp_path / "model")
    assert not (tmp_path / "model/sentence_bert_config.json").exists()
    assert SentenceEncoder(tmp_path / "model", device="cpu").max_seq_length is None


def test_16_cross_encoders_read_the_heads_they_have(good: Path) -> None:
    assert CrossEncoder(good / "pairs", device="cpu").classes == 1
