"""The card of a trained model: what it says, and that the hub can read it."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from huggingface_hub import ModelCard, repocard_data
from huggingface_hub.repocard import metadata_load

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import MatryoshkaLoss, MultipleNegativesRankingLoss, SoftmaxLoss
from sbert.training import AveragedWeights
from tests.training.helpers import pairs, tiny


def test_the_card_of_a_trained_model(tmp_path: Path) -> None:
    model = tiny()
    torch.manual_seed(0)
    model.name_or_path = "org/base"
    odd = [("a | b\n<script>alert(1)</script>", "**bold** [x](http://y) `code` $x$", 1), ("c" * 500, "d", 0)] * 4
    data = {"odd": odd, "plain": pairs(8, False)}
    losses = {"odd": SoftmaxLoss(16, 2), "plain": MultipleNegativesRankingLoss(temperature=0.03)}
    config = TrainingConfig(tmp_path / "o", steps=4, evaluate_first=True, evaluate_every=2, learning_rate=1e-4)
    scores = iter([{"spearman": 0.25, "nan": float("nan")}, {"spearman": 0.5}, {"spearman": 0.75, "nan": 1.0}])
    Trainer(model, data, losses, config, evaluator=lambda _: next(scores)).fit(show_progress_bar=False)
    file = tmp_path / "o/final/README.md"
    text = file.read_text(encoding="utf-8")
    assert "**odd**: 8 rows, such as" in text
    assert (
        "| a &#124; b &lt;script&gt;alert(1)&lt;/script&gt; | &#42;&#42;bold&#42;&#42; &#91;x&#93;(http://y) " in text
    )
    assert "ccc… | d |" in text
    assert "MultipleNegativesRankingLoss(temperature=0.03" in text
    assert "arxiv.org/abs/1908.10084" in text, "the source of the loss"
    assert "| spearman | 0.2500 | 0.7500 |" in text
    assert "| learning&#95;rate | 0.0001 |" in text
    assert str(tmp_path) not in text
    metadata = metadata_load(file)
    assert metadata["base_model"] == "org/base"
    (name, results) = repocard_data.model_index_to_eval_results(metadata["model-index"])
    figures = {result.metric_type: result.metric_value for result in results}
    assert (name, figures) == ("final", {"spearman": 0.75, "nan": 1.0})
    assert ModelCard(text).data.base_model == "org/base"
    again = SentenceEncoder(tmp_path / "o/final", device="cpu")
    assert again.verify()


def test_each_card_tells_its_own_training_and_no_folder(tmp_path: Path) -> None:
    model = tiny()
    model.save(tmp_path / "m")
    untrained = (tmp_path / "m/README.md").read_text(encoding="utf-8")
    assert not re.search("## Training|base_model", untrained)
    assert "can add the training data, the licence and the limitations" in untrained
    model.name_or_path = str(tmp_path)
    loss = MatryoshkaLoss(MultipleNegativesRankingLoss(hardness_mode="hard"), [16, 8])
    for output in (tmp_path / "first", None):
        config = TrainingConfig(output, steps=2, learning_rate=2e-3 if output else 3e-3)
        callbacks = AveragedWeights()
        Trainer(model, pairs(8, False), loss, config, callbacks=callbacks).fit(show_progress_bar=False)
    model.save(tmp_path / "second")
    cards = {path.parent.name: path.read_text(encoding="utf-8") for path in tmp_path.rglob("[fs]*/**/README.md")}
    assert {name: "| 0.003 |" in card for name, card in cards.items()} == {
        **dict.fromkeys(["step-00000001", "step-00000002", "final", "averaged"], False),
        "second": True,
    }
    for card in cards.values():
        assert "hardness&#95;mode='hard'" in card
        assert "ModuleList" not in card
        assert "base_model" not in card
