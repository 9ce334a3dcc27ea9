"""CrossEncoder in the trainer, on pairs and on a query with several documents: rows, gradients, resume, the losses."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import CrossEncoder, Trainer, TrainingConfig
from sbert.distributed.buckets import GradientBuckets
from sbert.distributed.ranks import Ranks
from sbert.losses import (
    BinaryCrossEntropyLoss,
    CrossEntropyLoss,
    LambdaLoss,
    ListMLELoss,
    ListNetLoss,
    LocalizedContrastiveLoss,
    RankNetLoss,
    ScoreMarginMSELoss,
    WeightedSum,
)
from sbert.losses.signature import Signature
from sbert.training.backward import TrainingBatch, backward
from sbert.training.training_data import TrainingData
from tests import pairs, small
from tests.children import run_in_child
from tests.training.helpers import Kill, weights

WORDS = "boat lake fox hill winter green red seven home quiet long small".split()


def lists(count: int = 12, longest: int = 5) -> list[dict[str, Any]]:
    """Queries with 1 to ``longest`` documents, the first relevant; every other one graded by its position."""
    made = []
    for row in range(count):
        word, number = WORDS[row % len(WORDS)], 1 + (3 * row + 1) % longest
        documents = [" ".join([word] * 2), *(" ".join(WORDS[(row + k) % 12 :][: k + 1]) for k in range(1, number))]
        labels = [2, *((row + k) % 2 for k in range(1, number))]
        made.append({"query": f"the {word}", "documents": documents, "labels": labels})
    return made


def tuples(data: list[dict[str, Any]], loss: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values())[: 2 + ("labels" in Signature.of(loss).extras)] for row in data]


def squares(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.squeeze(1) - labels).square().mean()


def unmasked(*scores: Tensor, labels: Tensor) -> Tensor:
    return (torch.cat(scores, 1) - labels).square().mean()


IN_BATCH = LocalizedContrastiveLoss(in_batch=2)
OF_LISTS = [
    ListNetLoss(0.5),
    ListMLELoss(True),
    LambdaLoss(),
    RankNetLoss(),
    LocalizedContrastiveLoss(),
    ScoreMarginMSELoss(),
    WeightedSum((ListNetLoss(), 1.0), (LocalizedContrastiveLoss(), 0.5)),
]
UNITS = [(*pair, 0.1 * number) for number, pair in enumerate([*pairs.PAIRS, pairs.PAIRS[1], pairs.PAIRS[1]])]
# Losses with their rows: lists, pairs of which some are equal, and a batch that leaves a second rank without rows.
CASES: list[tuple[Any, list[Any]]] = [(loss, tuples(lists(5), loss)) for loss in [*OF_LISTS, IN_BATCH]]
CASES += [(squares, UNITS), (squares, UNITS[1:2])]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pairs.folder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pairs.folder(tmp_path_factory.mktemp("models") / "bert", classes=3)


def fit(path: Path, data: Any, loss: Any, resume: bool = False, **options: Any) -> tuple[Tensor, list[float]]:
    """The weights after training, and the losses."""
    callbacks = options.pop("callbacks", ())
    settings = {"steps": 4, "batch_size": 4, "learning_rate": 3e-3, "log_every": 1, **options}
    model = CrossEncoder(path, device="cpu")
    trainer = Trainer(model, data, loss, TrainingConfig(**settings), callbacks=callbacks)
    history = trainer.fit(resume=resume, show_progress_bar=False)
    return weights(model), [entry["loss"] for entry in history]


# -------------------------------------------------------------------------------------------------------- rows


def test_rows() -> None:
    rows = TrainingData([("q", ["a", "b"], [2, 0.5]), ("p", ["c"], [1])], ListNetLoss(), pairs=True)
    assert (rows.texts(0), rows.head.inputs([0])) == (("q", "a", "b"), [(("q", "a"), ("q", "b"))])
    assert (rows.head.inputs([1]), rows.head.cells(1)) == ([(("p", "c"),)], [("q", "a / b", "2, 0.5")])
    assert rows.labels.tolist() == [[2, 0.5], [1, 1]]  # Padding repeats the first label, and is masked.
    named = [{"score": np.array([0.5, 1.0]), "docs": np.array(["a", "b"], object), "question": "q", "id": 3}]
    rows = TrainingData(named, ListNetLoss(), ["question", "docs"], pairs=True)
    assert rows.head.inputs([0]) == [(("q", "a"), ("q", "b"))]
    assert TrainingData([("q", ["a", "b"])], LocalizedContrastiveLoss(), pairs=True).labels is None
    rows = TrainingData(
        [{"question": "a", "gold": 0.5, "answer": "b"}], squares, ["answer", "question"], "gold", pairs=True
    )
    assert (rows.texts(0), rows.head.inputs([0]), rows.labels.tolist()) == (("b", "a"), [(("b", "a"),)], [0.5])
    given = [("q", ["a", "b"]), ("c", ["d"])], [("q", ["a"]), ("b", ["c", "d"])], [("q", ["b", "a"])]
    assert len({TrainingData(data, LocalizedContrastiveLoss(), pairs=True).fingerprint for data in given}) == 3


LIST = ListNetLoss()
UNEQUAL = [("q", ["a"], [1]), ("q", ["a", "b"], [1, 0])]


@pytest.mark.parametrize(
    ("data", "loss", "kind", "message"),
    [
        ([("q", ["a"], [1]), ("q", "b", [1])], LIST, TypeError, "data, row 1: documents is 'b' of type str"),
        ([("q", ["a", 3], [1, 0])], LIST, TypeError, "data, row 0: document 1 is 3 of type int; pass"),
        ([("q", ["a"], [1]), ("q", [], [])], LIST, ValueError, "data, row 1 has no documents; pass at least"),
        ([("q", ["a"], [1]), ("q", ["b"], 1)], LIST, ValueError, "data, row 1 has 1 document and 1; pass a l"),
        ([("q", ["a", "b"], [1])], LIST, ValueError, "data, row 0 has 2 documents and 1 labels; pass a list"),
        ([("q", ["a"], [1]), ("q", ["a", "b"], [1, -1])], LambdaLoss(), ValueError, r"labels\[1, 1\] is -1; Lambda"),
        ([{"docs": ["a"], "query": "q", "labels": [1]}], LIST, ValueError, "takes query, documents and labels"),
        (UNEQUAL, unmasked, ValueError, "row 1 has 2 documents, row 0 1; "),
        (UNEQUAL, WeightedSum((unmasked, 1.0), (LIST, 1.0)), ValueError, "row 0 1; WeightedSum takes no mask"),
        ([("q", "a", "b")], lambda anchor, positive: anchor, TypeError, r"so take scores alone; or \*scores, for rows"),
        ([{"a": "x", "label": 1.0}], squares, ValueError, "squares takes first, second and labels; data has"),
        ([("a", "b")], lambda scores, texts: scores, ValueError, "takes texts, which belongs to the vectors of texts"),
    ],
)
def test_rows_that_do_not_fit(bert: Path, data: Any, loss: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Trainer(CrossEncoder(bert, device="cpu"), data, loss)


def test_models_and_settings_that_do_not_fit(bert: Path, classifier: Path) -> None:
    one, three = CrossEncoder(bert, device="cpu"), CrossEncoder(classifier, device="cpu")
    with pytest.raises(ValueError, match="ListNetLoss takes one score per document, but the model gives 3"):
        Trainer(three, lists(), LIST)
    with pytest.raises(ValueError, match=r"in_batch=1.5 is not a number of documents"):
        LocalizedContrastiveLoss(in_batch=1.5)
    with pytest.raises(ValueError, match="too imprecise for small steps"):
        CrossEncoder(bert, device="cpu", dtype="bfloat16").fit(pairs.rows())
    one.activation = torch.sigmoid
    with pytest.raises(ValueError, match="cannot be saved by name"):
        one.fit(pairs.rows(), config=TrainingConfig(output="nowhere"))
    assert not Path("nowhere").exists()


# --------------------------------------------------------------------------------------------------- gradients


def gradients(path: Path, case: tuple[Any, list[Any]], *, deduplicate: bool = True, **options: Any) -> list[Tensor]:
    """The value of a loss and its gradients."""
    model, ranks, (loss, data) = CrossEncoder(path, device="cpu").double(), options.get("ranks"), case
    rows = TrainingData(data, loss, pairs=True)
    labels = None if rows.labels is None else rows.labels.double()
    texts = rows.head.inputs(range(len(rows)))
    for collate in rows.signature.collates:
        texts, _ = collate(texts, np.random.default_rng(0))
    given = {"deduplicate": deduplicate, "ranks": ranks or Ranks()}
    batch = TrainingBatch.of(model, texts, rows.signature, labels, **given)
    if deduplicate and ranks is None:  # Padding is not encoded.
        assert len(batch.tokens.lengths) == len({pair for row in texts for pair in row})
    value = backward(model, loss, batch, **options)
    GradientBuckets(model.parameters(), ranks or Ranks()).finish()
    return [value, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])]


def of_a_plain_forward(path: Path, case: tuple[Any, list[Any]]) -> list[Tensor]:
    """The same with one call of the transformer for each pair, and a matrix with senseless numbers at padding."""
    model, (loss, data) = CrossEncoder(path, device="cpu").double(), case

    def score(query: str, text: str) -> Tensor:
        logits: Tensor = model.auto_model(**model.tokenizer([query], [text], return_tensors="pt")).logits
        return logits.flatten()[0]

    if loss is squares:
        scores = torch.stack([score(first, second) for first, second, _ in data])[:, None]
        value = loss(scores, torch.tensor([row[2] for row in data]).double())
    else:
        width = max(len(row[1]) for row in data)
        ragged = [[score(row[0], text) for text in row[1]] for row in data]
        mask = torch.tensor([[k < len(row) for k in range(width)] for row in ragged])
        nine = torch.tensor(9.0).double()
        matrix = torch.stack([torch.stack(row + [nine] * (width - len(row))) for row in ragged])
        labels = [row[2] + [7] * (width - len(row[2])) for row in data if len(row) > 2]
        value = loss(matrix, mask=mask, **({"labels": torch.tensor(labels).double()} if labels else {}))
    value.backward()
    return [value.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])]


def same(one: list[Tensor], other: list[Tensor]) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).__name__)
def test_plain_deduplicated_and_cached_are_the_same(bert: Path, case: tuple[Any, list[Any]]) -> None:
    plain = gradients(bert, case, deduplicate=False)
    assert plain[1].abs().max() > 1e-4
    if case[0] is not IN_BATCH:
        same(plain, of_a_plain_forward(bert, case))
    same(gradients(bert, case, chunk_tokens=40), plain)
    same(gradients(bert, case, chunk_tokens=40, cached=True), plain)


def test_documents_of_other_queries() -> None:
    batch = [
        (("q", "a"), ("q", "b")),
        (("p", "c"),),
        (("q", "d"), ("q", "c")),  # The first query again: its documents are no negatives of it.
        (("r", "e"),),
    ]

    def collate(in_batch: float, seed: int = 0) -> list[tuple[Any, ...]]:
        return LocalizedContrastiveLoss(in_batch=in_batch).collate(batch, np.random.default_rng(seed))[0]

    every = collate(math.inf)
    assert ["".join(document for _, document in row) for row in every] == ["abe", "cabde", "dce", "eabcd"]
    assert all({query for query, _ in row} == {old[0][0]} for row, old in zip(every, batch, strict=True))
    assert {pair for seed in range(20) for pair in collate(2, seed)[1][1:]} == {*every[1][1:]}  # Each has its turn.
    assert collate(0) == batch


# ---------------------------------------------------------------------------------------------------------- fit


def test_fit_is_the_trainer_with_the_loss_for_the_number_of_scores(bert: Path, classifier: Path) -> None:
    for path, loss in ((bert, BinaryCrossEntropyLoss()), (classifier, CrossEntropyLoss(3))):
        data, config = pairs.rows(3 if path is classifier else 2), TrainingConfig(steps=1, learning_rate=1e-3)
        one, other = CrossEncoder(path, device="cpu"), CrossEncoder(path, device="cpu")
        one.fit(data, config=config, show_progress_bar=False)
        Trainer(other, data, loss, config).fit(show_progress_bar=False)
        assert torch.equal(weights(one), weights(other))


@pytest.mark.parametrize("sampler", ["random", "no_duplicates"])
def test_lists_in_memory_on_the_disk_and_streamed_train_the_same(bert: Path, tmp_path: Path, sampler: str) -> None:
    datasets.Dataset.from_list(lists()).save_to_disk(tmp_path / "data")
    mapped = datasets.load_from_disk(tmp_path / "data")
    expected = fit(bert, lists(), LIST, sampler=sampler)[0]
    for data in (mapped, tuples(lists(), LIST)):
        assert torch.equal(fit(bert, data, LIST, sampler=sampler)[0], expected)
    if sampler == "random":
        stream = fit(bert, mapped.to_iterable_dataset(), LIST, steps=3, shuffle_buffer=1)
        assert torch.equal(stream[0], fit(bert, lists(), LIST, steps=3, sampler="in_order")[0])
        wrong = datasets.Dataset.from_list([*lists(), {"query": "q", "documents": [], "labels": []}])
        with pytest.raises(ValueError, match="data, row 12 has no documents"):
            fit(bert, wrong, LIST)


@pytest.mark.slow  # A run is killed in a process of its own.
def test_a_killed_run_goes_on(bert: Path, tmp_path: Path) -> None:
    """With documents drawn from the batch, and gradient caching."""
    data, loss = tuples(lists(), IN_BATCH), IN_BATCH
    settings: dict[str, Any] = {"steps": 6, "checkpoint_every": 2, "chunk_tokens": 60}
    expected, _ = fit(bert, data, loss, **settings)
    settings["output"] = tmp_path / "out"
    assert run_in_child(lambda: fit(bert, data, loss, callbacks=[Kill(5)], **settings)) == signal.SIGKILL
    assert torch.equal(fit(bert, data, loss, resume=True, **settings)[0], expected)
    assert torch.equal(weights(CrossEncoder(tmp_path / "out" / "final", device="cpu")), expected)


@pytest.mark.slow  # The import of peft takes seconds.
@pytest.mark.parametrize("targets", [["query", "value"], "all-linear"])
def test_a_new_head_trains_beside_an_adapter(tmp_path: Path, targets: Any) -> None:
    import peft

    def train(path: Path, output: str, **settings: Any) -> tuple[CrossEncoder, set[str]]:
        torch.manual_seed(0)
        model = CrossEncoder(path, 1 if path == backbone else None, device="cpu")
        model.auto_model.add_adapter(peft.LoraConfig(r=2, target_modules=targets))
        before = {name: weight.clone() for name, weight in model.named_parameters()}
        frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
        config = TrainingConfig(tmp_path / output, steps=2, learning_rate=1e-2, warmup=0, **settings)
        model.fit(pairs.rows(), config=config, show_progress_bar=False)
        assert frozen == {name for name, weight in model.named_parameters() if not weight.requires_grad}
        changed = (name for name, weight in model.named_parameters() if not torch.equal(weight, before[name]))
        return model, {name.removeprefix("auto_model.").replace(".base_layer.", ".") for name in changed}

    backbone, head = small.bert(tmp_path / "backbone"), {"classifier.weight", "classifier.bias"}
    model, changed = train(backbone, "new")
    assert head < changed
    assert all("lora" in name for name in changed - head)
    saved = CrossEncoder(tmp_path / "new" / "final", device="cpu")
    assert not any("lora" in name for name, _ in saved.named_parameters())
    np.testing.assert_allclose(saved.predict(pairs.PAIRS), model.predict(pairs.PAIRS), atol=2e-6)
    assert not head & train(backbone, "frozen", freeze=["*classifier.*"])[1]
    assert not head & train(tmp_path / "new" / "final", "trained")[1]
