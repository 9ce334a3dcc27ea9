"""Losses of sentence-transformers that need the model: values and gradients of theirs, and training."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import sentence_transformers as theirs
import torch
from sentence_transformers.sentence_transformer import losses as peer
from torch.utils.data import DataLoader

from sbert.integrations.sentence_transformers import SentenceTransformer, denoising, readers
from sbert.losses.signature import Signature
from sbert.training import TrainingBatch, backward
from tests import small

WORDS = small.CORPUS[1].split()
PAIRS = [(" ".join(WORDS[i : i + 4]), " ".join(WORDS[i + 2 : i + 5])) for i in range(6)]
TEXTS = [" ".join(WORDS[i % 8 : i % 8 + 4]) + f" {i}" for i in range(30)]


@pytest.fixture
def models(folder: Path) -> list[Any]:
    """The same model by both, in float64."""
    made = [
        package(str(folder), device="cpu").double().eval()
        for package in (theirs.SentenceTransformer, SentenceTransformer)
    ]
    for model in made:
        model[0].auto_model.eval()
    return made


def compare(models: list[Any], other: Any, loss: Any, rows: list[Any], labels: Any = None, **options: Any) -> None:
    """Value and gradients of both; ``other`` is their loss, or the value of it."""
    models[0].zero_grad()
    features = [models[0].preprocess(list(column)) for column in zip(*rows, strict=True)]
    expected = other(features, labels) if isinstance(other, torch.nn.Module) else other(features)
    expected.backward()
    signature, texts, more = Signature.of(loss), rows, {}
    for collate in signature.collates:
        texts, more = collate(rows, None)
    batch = TrainingBatch.of(models[1], texts, signature, labels, row_data=more)
    value = backward(models[1].train(False), loss, batch, **options)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-9)
    known = dict(models[0][0].auto_model.named_parameters())
    gradients = {name: p.grad for name, p in models[1][0].auto_model.named_parameters() if p.grad is not None}
    assert gradients.keys() == {name for name, p in known.items() if p.grad is not None}
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, known[name].grad, rtol=1e-7, atol=1e-9)


CHUNKS: list[dict[str, Any]] = [{}, {"chunk_tokens": 15, "cached": True}]


@pytest.mark.parametrize("tie", [True, False])
def test_denoising_is_theirs(models: list[Any], folder: Path, tie: bool) -> None:
    other = peer.DenoisingAutoEncoderLoss(models[0], str(folder), tie).double().eval()
    mine = denoising.DenoisingAutoEncoderLoss(models[1], str(folder), tie).eval()
    shared = {id(p) for p in models[1].parameters()} & {id(p) for p in mine.parameters()}
    assert bool(shared) == tie
    assert mine.decoder.get_output_embeddings().weight is mine.decoder.get_input_embeddings().weight
    mine.decoder.load_state_dict(other.decoder.state_dict())  # The weights that the folder has not.
    rows = [(short, f"{short} {long}") for long, short in PAIRS]
    for options in CHUNKS:
        compare(models, other, mine, rows, **options)
        known = dict(other.decoder.named_parameters())
        for name, weight in mine.decoder.named_parameters():
            torch.testing.assert_close(weight.grad, known[name].grad, rtol=1e-7, atol=1e-9)
        other.zero_grad(), models[1].zero_grad(), mine.zero_grad()


@pytest.mark.filterwarnings("ignore")
def test_old_fit(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    denoised = DataLoader(readers.DenoisingAutoEncoderDataset(TEXTS), batch_size=8, shuffle=True)
    objectives = [(denoised, denoising.DenoisingAutoEncoderLoss(model))]
    before = copy.deepcopy(model.state_dict())
    model.fit(objectives, epochs=1, warmup_steps=0, show_progress_bar=False, optimizer_params={"lr": 1e-3})
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_decoder_trains_in_one_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="one process"):
        denoising.DenoisingAutoEncoderLoss(model)
