"""What a user's encoder returns for losses of several models or layers, and a decoder fed by ``collate``: few lines."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert import (
    Pooling,
    SentenceEncoder,
    TokenBatch,
    TokenEmbeddings,
    Trainer,
    TrainingConfig,
    Transformer,
    register_module,
)
from sbert.distributed.ranks import Ranks
from sbert.losses import ContrastiveTensionLoss, MatryoshkaLoss, MultipleNegativesRankingLoss
from tests import small

WORDS = small.CORPUS[1].split()
PAIRS = [(" ".join(WORDS[i : i + 4]), " ".join(WORDS[i + 2 : i + 5])) for i in range(6)]


@register_module
class EveryLayer(Transformer):
    """The vectors of all layers, side by side."""

    def __init__(self, model: Path | str) -> None:
        super().__init__(model)
        self.config = {"model": str(model)}

    @property
    def dim(self) -> int:
        return super().dim * int(self.network.config.num_hidden_layers)

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        ids, mask = batch.padded()
        output = self.materialize()(ids, attention_mask=mask.long(), output_hidden_states=True)
        return batch.embeddings(torch.cat(output.hidden_states[1:], -1)[mask])


class Twins(Transformer):
    """The vectors of two copies of a network, side by side; the second is the model to keep."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.second = copy.deepcopy(Transformer(self.materialize(), self.tokenizer))

    @property
    def dim(self) -> int:
        return 2 * super().dim

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        both = [super().forward(batch).values, self.second(batch).values]
        return batch.embeddings(torch.cat(both, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return Path(small.bert(tmp_path_factory.mktemp("model") / "bert"))


@pytest.mark.filterwarnings("ignore:not every program reads")
def test_every_layer_is_trained(folder: Path, tmp_path: Path) -> None:
    loss = MatryoshkaLoss(MultipleNegativesRankingLoss(), [32, 16])
    model = SentenceEncoder(EveryLayer(folder), Pooling("mean"), device="cpu")
    assert model.encode(PAIRS[0][0]).shape == (32,)
    last = SentenceEncoder(Transformer(folder), Pooling("mean"), device="cpu")
    np.testing.assert_allclose(model.encode(PAIRS[0][0])[16:], last.encode(PAIRS[0][0]), atol=1e-6)
    before = {name: value.clone() for name, value in model.named_parameters()}
    config = TrainingConfig(steps=2, batch_size=6, output=tmp_path, checkpoint_every=1)
    Trainer(model, PAIRS, loss, config).fit(show_progress_bar=False)
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert any("layer.0" in name for name in changed)
    assert any("layer.1" in name for name in changed)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000002")
    resumed = SentenceEncoder(EveryLayer(folder), Pooling("mean"), device="cpu")
    Trainer(resumed, PAIRS, loss, config).fit(resume=True, show_progress_bar=False)
    saved = SentenceEncoder(tmp_path / "final", device="cpu")
    for other in (resumed, saved):
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_twins_are_trained_apart(folder: Path) -> None:
    model = SentenceEncoder(Twins(folder), Pooling("mean"), device="cpu")
    first, second = model[0].network, model[0].second
    texts, config = [(a,) for a, _ in PAIRS], TrainingConfig(steps=2, batch_size=6)
    Trainer(model, texts, ContrastiveTensionLoss(), config).fit(show_progress_bar=False)
    weights = [dict(each.named_parameters()) for each in (first, second.network)]
    assert weights[0].keys() == weights[1].keys()
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    kept = SentenceEncoder(second, Pooling("mean"), device="cpu")
    text = PAIRS[0][0]
    np.testing.assert_allclose(kept.encode(text), model.encode(text)[16:], atol=1e-6)


# ------------------------------------------------------------------------------------------- noise and token ids


class TSDAE(nn.Module):
    """A decoder rebuilds a text from the vector of what is left of it (Wang et al., 2021)."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        from transformers import BertConfig, BertLMHeadModel

        self.tokenize = encoder[0].tokenize
        settings = {**encoder[0].auto_model.config.to_dict(), "is_decoder": True, "add_cross_attention": True}
        self.decoder = BertLMHeadModel(BertConfig(**settings))

    def collate(self, texts: list[tuple[str, ...]], generator: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        ids = [torch.tensor(row[:128]) for row in self.tokenize([text for (text,) in texts])]
        words = [text.split() for (text,) in texts]
        kept = [[word for word in row if generator.random() > 0.6] or row[:1] for row in words]
        return [(" ".join(row),) for row in kept], {"ids": nn.utils.rnn.pad_sequence(ids, batch_first=True)}

    def forward(self, sentence: Tensor, *, ids: Tensor) -> Tensor:
        scores = self.decoder(ids[:, :-1], encoder_hidden_states=sentence[:, None], use_cache=False).logits
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)


TEXTS = [(" ".join(WORDS[i : i + 5]),) for i in range(8)]


def fit(folder: Path, output: Path, **settings: Any) -> SentenceEncoder:
    torch.manual_seed(1)
    model = SentenceEncoder(Transformer(folder), Pooling("cls"), device="cpu")
    loss = TSDAE(model)
    resume = settings.pop("resume", False)
    config = TrainingConfig(output=output, batch_size=4, learning_rate=1e-3, checkpoint_every=3, keep=9, **settings)
    history = Trainer(model, TEXTS, loss, config).fit(resume=resume, show_progress_bar=False)
    assert history[-1]["step"] == settings["steps"]
    return model


def test_tsdae_trains_and_resumes(folder: Path, tmp_path: Path) -> None:
    """The noise is that of the step, so an interrupted run goes on with the same noise."""
    whole = fit(folder, tmp_path / "run", steps=6)
    shutil.rmtree(sorted((tmp_path / "run" / "checkpoints").iterdir())[-1])
    again = fit(folder, tmp_path / "run", steps=6, resume=True)
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    start = SentenceEncoder(Transformer(folder), Pooling("cls"), device="cpu")
    assert any(not torch.equal(a, b) for a, b in zip(start.parameters(), whole.parameters(), strict=True))


def test_noise_is_seeded_and_the_same_for_all(folder: Path) -> None:
    model = SentenceEncoder(Transformer(folder), Pooling("cls"), device="cpu")
    loss = TSDAE(model)
    trainer = Trainer(model, TEXTS, loss, TrainingConfig(batch_size=4))
    runs = [list(trainer.batches.prepare(0, 4, ranks)) for ranks in (Ranks(), Ranks(), Ranks(1, 2))]
    texts = [[batch.texts for batch in run] for run in runs]
    assert texts[0] == texts[1] == texts[2]
    assert [batch.texts for batch in trainer.batches.prepare(2, 4, Ranks())] == texts[0][2:]
    assert len({str(each) for each in texts[0]}) == 4  # Other noise in every batch.
    batch = runs[0][0]
    assert batch.inputs.extras["ids"].shape[0] == 4
    assert len(batch.inputs.tokens.lengths) <= 4
