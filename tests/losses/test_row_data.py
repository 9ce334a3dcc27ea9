"""Row data: what a loss takes of each row by name, from the data to the loss, and what its ``collate`` adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.losses import EmbeddingDistillationLoss, MatryoshkaLoss, WeightedSum
from sbert.losses.signature import Signature
from sbert.training.training_data import TrainingData
from tests import small

WORDS = small.CORPUS[1].split()


@pytest.fixture
def model(tmp_path: Path) -> SentenceEncoder:
    torch.manual_seed(0)
    return SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling("mean"))


def rows(count: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "positive": " ".join(WORDS[i % 7 : i % 7 + 4]),
            "weight": i / 8,
            "anchor": " ".join(WORDS[i : i + 3]),
            "id": f"q{i}",
            "teacher": [float(i), 2.0],
            "tags": ["x"] * (i % 3),
            "group": i // 2,
        }
        for i in range(count)
    ]


def weighted(
    anchor: Tensor,
    positive: Tensor,
    temperature: float = 0.5,
    *,
    weight: Tensor,
    id: list[str],  # noqa: A002
    teacher: Tensor,
    tags: list[list[str]],
    group: Tensor | None = None,
) -> Tensor:
    SEEN.append({"weight": weight, "id": id, "teacher": teacher, "tags": tags, "group": group, "scale": temperature})
    return (weight * (anchor - positive).square().mean(1)).mean()


SEEN: list[dict[str, Any]] = []


@pytest.mark.parametrize(
    "loss", [weighted, MatryoshkaLoss(WeightedSum((weighted, 1.0)), [4, 8])], ids=["plain", "both"]
)
@pytest.mark.parametrize("options", [{}, {"chunk_tokens": 16}], ids=str)
def test_row_data_arrives_as_it_stands(model: SentenceEncoder, loss: Any, options: dict[str, Any]) -> None:
    SEEN.clear()
    data = rows()
    trainer = Trainer(model, data, loss, TrainingConfig(batch_size=4, steps=3, sampler="random", **options))
    expected = [batch.tolist() for _, batch in trainer.epoch(0)]
    trainer.fit(show_progress_bar=False)
    assert len(SEEN) == 3 * (1 if loss is weighted else 2)
    for seen, chosen in zip(SEEN[:: len(SEEN) // 3], expected, strict=True):
        for name in ("weight", "id", "teacher", "tags", "group"):
            values = seen[name].tolist() if isinstance(seen[name], Tensor) else seen[name]
            assert values == [data[row][name] for row in chosen]
        assert (seen["weight"].dtype, seen["teacher"].dtype, seen["group"].dtype) == (model.dtype,) * 2 + (torch.int64,)
        assert seen["scale"] == 0.5  # No such column: a setting.


@pytest.mark.parametrize("streamed", [False, True])
def test_row_data_of_data_that_is_read_later(model: SentenceEncoder, streamed: bool) -> None:
    import datasets

    data = datasets.Dataset.from_list(rows())
    given = data.to_iterable_dataset() if streamed else data
    SEEN.clear()
    Trainer(model, given, weighted, TrainingConfig(batch_size=4, steps=3)).fit(show_progress_bar=False)
    expected = {row["id"]: row for row in rows()}
    assert len({name for seen in SEEN for name in seen["id"]}) == 12
    for seen in SEEN:
        assert seen["weight"].tolist() == [expected[name]["weight"] for name in seen["id"]]
        assert seen["teacher"].tolist() == [expected[name]["teacher"] for name in seen["id"]]


def test_a_setting_is_row_data_if_the_data_has_its_column() -> None:
    data = [{**row, "temperature": 2.5} for row in rows()]
    assert TrainingData(data, weighted).head.row_data["temperature"].tolist() == [2.5] * 12
    assert "temperature" not in TrainingData(rows(), weighted).head.row_data
    # A column that columns= takes as text is row data only if the loss asks for it by name.
    taken = TrainingData(
        [{"a": "x", "temperature": "y"}], lambda one, two, temperature=1: 0, columns=["a", "temperature"]
    )
    assert (taken.head.row_data, taken.texts(0)) == ({}, ("x", "y"))
    taken = TrainingData([{"a": "x", "b": "y"}], lambda one, two, *, a: 0, columns=["a", "b"])
    assert (taken.head.row_data, taken.texts(0)) == ({"a": ["x"]}, ("x", "y"))


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"takes anchor, positive and weight and id .*: there is no 'weight'; add"):
        TrainingData([{"anchor": "a", "positive": "b", "id": "c"}], weighted)
    with pytest.raises(ValueError, match="rows without names, but weighted takes 'weight'; pass dicts"):
        TrainingData([("a", "b")], weighted)
    with pytest.raises(TypeError, match=r"put 'labels' last; if 'weight' is not text .* put it after a \*"):
        Signature.of(lambda first, second, labels, weight: 0)
    with pytest.raises(TypeError, match="speed given, which no loss in MatryoshkaLoss takes"):
        MatryoshkaLoss(weighted, [1])(torch.eye(2), torch.eye(2), speed=3)


def test_a_label_may_be_a_vector_of_each_column() -> None:
    loss = EmbeddingDistillationLoss()
    data = TrainingData([("a", "b", [[1.0, 2.0], [3.0, 4.0]]), ("c", "d", torch.ones(2, 2))], loss)
    assert data.labels.shape == (2, 2, 2)
    assert loss(torch.ones(2, 2), torch.ones(2, 2), labels=data.labels) > 0
    with pytest.raises(TypeError, match=r"the label is .* pass a number"):
        TrainingData([("a", "b", [[[1.0]]])], loss)


def test_row_data_that_collate_should_add_may_not_be_missing(model: SentenceEncoder) -> None:
    def loss(anchor: Tensor, *, ids: Tensor) -> Tensor:
        return anchor.mean()

    loss.collate = lambda texts, generator: ([("a",)] * 12, {})  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"loss takes 'ids', which is missing in row_data=\[\]"):
        Trainer(model, [(row["anchor"],) for row in rows()], loss, TrainingConfig(steps=1)).fit()
