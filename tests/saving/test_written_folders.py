"""What is written: the user's own modules, and what other programs read of a chain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sbert import Pooling, SentenceEncoder, TokenEmbeddings, Transformer, register_module, register_pooling
from sbert.modules import registry
from sbert.modules.pooling import POOLINGS
from tests import small
from tests.backends.test_families import build
from tests.saving.hostile import values

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("bert") / "plain")


def encoder(*modules: Any) -> SentenceEncoder:
    return SentenceEncoder(*modules, device="cpu")


# --------------------------------------------------------------------------------------------- the user's own modules


@pytest.fixture
def _tables() -> Iterator[None]:
    """What a test registers is forgotten behind it."""
    with patch.dict(POOLINGS), patch.dict(registry.REGISTERED):
        yield


class Scaled(nn.Module):
    """A factor, and a weight."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.config, self.factor = {"factor": factor}, factor
        self.shift = nn.Parameter(torch.ones(1))

    def forward(self, vectors: Tensor) -> Tensor:
        return self.factor * vectors + self.shift


def first_two(tokens: TokenEmbeddings) -> Tensor:
    return tokens.padded()[0][:, :2].sum(1)


@pytest.mark.usefixtures("_tables")
def test_modules_and_poolings_of_the_user_load_again(bert: Path, tmp_path: Path) -> None:
    register_pooling("first two")(first_two)
    model = encoder(Transformer(bert), Pooling(["mean", "first two"]), Scaled(3.0))
    with torch.no_grad():
        model[2].shift.fill_(0.5)
    with pytest.warns(UserWarning, match="Scaled, first two is known to sbert.*put @register_module before the class"):
        model.save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"the module type 'sbert.Scaled'.*with @register_module before its class"):
        SentenceEncoder(tmp_path / "own", device="cpu")
    register_module(Scaled)
    again = SentenceEncoder(tmp_path / "own", device="cpu")
    np.testing.assert_array_equal(again.encode(["a small boat", "lake"]), model.encode(["a small boat", "lake"]))
    assert again[2].factor == 3.0
    again[2].config = {}  # An argument with a default is missed as well: the module may have another value.
    with pytest.raises(ValueError, match="Scaled cannot be saved without its argument 'factor'"):
        again.save(tmp_path / "careless")
    del POOLINGS["first two"]
    with pytest.raises(ValueError, match=r"config.json gives the pooling mode 'first two'.*@register_pooling\("):
        SentenceEncoder(tmp_path / "own", device="cpu")


@pytest.mark.usefixtures("_tables")
def test_names_stand_for_one_thing(bert: Path, tmp_path: Path) -> None:
    """A class of the user's that bears the name of another one would be read as that."""
    other = type("Dense", (nn.Module,), {"forward": lambda self, vectors: -vectors})
    with pytest.raises(ValueError, match=r"the module 'Dense' is already registered, as sbert.modules.dense.Dense"):
        register_module(other)
    with pytest.raises(ValueError, match="the module 'Dense' is already registered"):
        encoder(Transformer(bert), Pooling(), other()).save(tmp_path / "own")
    with pytest.raises(ValueError, match="the pooling mode 'mean' is already registered"):
        register_pooling("mean")(first_two)
    with pytest.raises(TypeError, match="is not a class of modules"):
        register_module(first_two)  # type: ignore[type-var]
    assert register_module(Scaled) is register_module(Scaled)


def test_no_limit_is_not_written_as_null(tmp_path: Path) -> None:
    """text-embeddings-inference reads a number, and takes the model's own limit where there is no file."""
    build("t5-encoder", tmp_path / "given")
    values("tokenizer_config.json", model_max_length=...)(tmp_path / "given")
    (tmp_path / "given/sentence_bert_config.json").unlink(missing_ok=True)
    model = SentenceEncoder(tmp_path / "given", device="cpu")
    assert model.max_seq_length is None
    model.save(tmp_path / "model")
    assert not (tmp_path / "model/sentence_bert_config.json").exists()
    assert SentenceEncoder(tmp_path / "model", device="cpu").max_seq_length is None
