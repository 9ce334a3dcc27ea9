"""The card of a trained model: what it says, and that the hub can read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from huggingface_hub import ModelCard, repocard_data
from huggingface_hub.repocard import metadata_load

from sbert import CrossEncoder, SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_nli
from sbert.data.sentence_pairs import CLASSES
from sbert.losses import BinaryCrossEntropyLoss, MatryoshkaLoss, MultipleNegativesRankingLoss, SoftmaxLoss
from tests import small
from tests.training.helpers import pairs, tiny


@pytest.mark.filterwarnings("ignore:the evaluator returned nan=nan")
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
    assert (name, figures) == ("o", {"spearman": 0.75, "nan": 1.0})
    assert ModelCard(text).data.base_model == "org/base"
    again = SentenceEncoder(tmp_path / "o/final", device="cpu")
    assert again.verify()


@pytest.mark.parametrize("kind", ["encoder", "cross-encoder"])
def test_a_card_has_the_name_of_the_model_and_loads_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where it was trained; from elsewhere, in its folder."""
    monkeypatch.chdir(tmp_path)
    model: Any = tiny() if kind == "encoder" else CrossEncoder(small.bert(tmp_path / "bert"), 1, device="cpu")
    loss = MultipleNegativesRankingLoss() if kind == "encoder" else BinaryCrossEntropyLoss()
    for output in (Path("runs/cats"), tmp_path / "runs" / "dogs"):
        config = TrainingConfig(output, steps=1, batch_size=8)
        data, options = pairs(8, kind != "encoder"), {"evaluator": lambda _: 1.0}
        Trainer(model, data, loss, config, **options).fit(show_progress_bar=False)
        for folder in ("final", "best", "checkpoints/step-00000001"):
            check_card(output / folder, output.name, f"runs/{output.name}/{folder}")
    model.save("birds")
    check_card(tmp_path / "birds", "birds", "birds")
    model.save("fish", "me/whales")
    check_card(tmp_path / "fish", "whales", "me/whales", loads=False)
    monkeypatch.chdir(tmp_path / "runs")
    model.save(tmp_path / "final", "ants")
    monkeypatch.chdir(tmp_path / "final")
    check_card(tmp_path / "final", "ants", ".")


def check_card(folder: Path, title: str, loaded: str, loads: bool = True) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert re.findall("^# (.*)$", text, re.MULTILINE)[0] == title
    (code,) = re.findall("```python\n(.*?)```", text, re.DOTALL)
    assert f'Encoder("{loaded}")' in code
    if loads:
        exec(code, {})


def test_names_of_classes_are_on_the_card(tmp_path: Path) -> None:
    """Of a reader of NLI, also after slicing and joining; of a column of datasets; a cross-encoder keeps them."""
    lines = "\n".join(f"{label}\tthe {word}\ta {word}" for word in ("lake", "fox") for label in CLASSES)
    (tmp_path / "nli.tsv").write_text(f"label\tsentence1\tsentence2\n{lines}\n", encoding="utf-8")
    rows = read_nli(tmp_path / "nli.tsv")
    assert rows[1] == {"first": "the lake", "second": "a lake", "label": 1}
    texts = {name: datasets.Value("string") for name in ("first", "second")}
    features = datasets.Features({**texts, "label": datasets.ClassLabel(names=list(CLASSES))})
    table = datasets.Dataset.from_list(rows, features)
    scorer = CrossEncoder(small.bert(tmp_path / "bert"), 3, device="cpu")
    cases: list[Any] = [(tiny(), SoftmaxLoss(16, 3), data) for data in (rows[2:] + rows[:2], table)]
    for number, (model, loss, data) in enumerate([*cases, (scorer, None, rows)]):
        output = tmp_path / str(number)
        model.fit(data, loss, TrainingConfig(output, steps=1)) if model is scorer else fit(model, data, loss, output)
        text = (output / "final/README.md").read_text(encoding="utf-8")
        assert "Classes: 0 = contradiction, 1 = entailment, 2 = neutral." in text
    assert scorer.auto_model.config.id2label == dict(enumerate(CLASSES))


def fit(model: Any, data: Any, loss: Any, output: Path) -> None:
    Trainer(model, data, loss, TrainingConfig(output, steps=1)).fit(show_progress_bar=False)


def test_each_card_tells_its_own_training_and_no_folder(tmp_path: Path) -> None:
    model = tiny()
    model.name_or_path = str(tmp_path)
    loss = MatryoshkaLoss(MultipleNegativesRankingLoss(hardness_mode="hard"), [16, 8])
    for output in (tmp_path / "first", None):
        config = TrainingConfig(output, steps=2, learning_rate=2e-3 if output else 3e-3)
        Trainer(model, pairs(8, False), loss, config).fit(show_progress_bar=False)
    model.save(tmp_path / "second")
    cards = {path.parent.name: path.read_text(encoding="utf-8") for path in tmp_path.rglob("[fs]*/**/README.md")}
    assert {name: "| 0.003 |" in card for name, card in cards.items()} == {
        **dict.fromkeys(["step-00000001", "step-00000002", "final"], False),
        "second": True,
    }
    for card in cards.values():
        assert "hardness&#95;mode='hard'" in card
        assert "ModuleList" not in card
        assert "base_model" not in card
