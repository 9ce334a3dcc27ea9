"""CrossEncoder in the trainer on rows of a query and several documents: rows, gradients, data on the disk, resume."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import CrossEncoder, Trainer, TrainingConfig
from sbert.distributed.ranks import leave
from sbert.losses import (
    LambdaLoss,
    ListMLELoss,
    ListNetLoss,
    LocalizedContrastiveLoss,
    RankNetLoss,
    ScoreMarginMSELoss,
    WeightedSum,
)
from sbert.training import GradientBuckets, Ranks, Rows, Signature, TrainingBatch, backward
from tests.pairs import folder
from tests.training.test_callbacks import Kill, in_child

WORDS = "boat lake fox hill winter green red seven home quiet long small".split()


def rows(count: int = 12, longest: int = 5) -> list[dict[str, Any]]:
    """Queries with 1 to ``longest`` documents, the first relevant; every other one graded by its place."""
    made = []
    for row in range(count):
        word = WORDS[row % len(WORDS)]
        number = 1 + (3 * row + 1) % longest
        documents = [" ".join([word] * 2), *(" ".join(WORDS[(row + k) % 12 :][: k + 1]) for k in range(1, number))]
        made.append(
            {"query": f"the {word}", "documents": documents, "labels": [2, *((row + k) % 2 for k in range(1, number))]}
        )
    return made


def tuples(data: list[dict[str, Any]], labelled: bool = True) -> list[tuple[Any, ...]]:
    return [tuple(row.values())[: 2 + labelled] for row in data]


def data_for(loss: Any, data: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return tuples(data, "labels" in Signature.of(loss).extras)


LOSSES = [
    ListNetLoss(0.5),
    ListMLELoss(True),
    LambdaLoss(),
    RankNetLoss(),
    LocalizedContrastiveLoss(),
    ScoreMarginMSELoss(),
    WeightedSum((ListNetLoss(), 1.0), (LocalizedContrastiveLoss(), 0.5)),
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("models") / "bert")


def fitted(path: Path, data: Any, loss: Any, **options: Any) -> tuple[Tensor, list[Any]]:
    """The weights after training, and the history."""
    model = CrossEncoder(path, device="cpu")
    settings = {"steps": 4, "batch_size": 4, "learning_rate": 3e-3, "log_every": 1, **options}
    history = Trainer(model, data, loss, TrainingConfig(**settings)).fit(show_progress_bar=False)
    return torch.cat([weight.flatten() for weight in model.state_dict().values()]), history


# -------------------------------------------------------------------------------------------------------- rows


def test_rows_of_lists() -> None:
    made = Rows([("q", ["a", "b"], [2, 0.5]), ("p", ["c"], [1])], ListNetLoss(), pairs=True)
    assert (made.texts(0), made.head.inputs(0)) == (("q", "a", "b"), (("q", "a"), ("q", "b")))
    assert (made.head.inputs(1), made.head.cells(0)) == ((("p", "c"),), ("q", "a / b", "2, 0.5"))
    assert made.labels is not None
    assert made.labels.tolist() == [[2, 0.5], [1, 1]]  # Padding repeats the first label, and is masked.
    named = [{"score": np.array([0.5, 1.0]), "docs": np.array(["a", "b"], object), "question": "q", "id": 3}]
    made = Rows(named, ListNetLoss(), ["question", "docs"], pairs=True)
    assert made.head.inputs(0) == (("q", "a"), ("q", "b"))
    assert Rows([("q", ["a", "b"])], LocalizedContrastiveLoss(), pairs=True).labels is None


def test_the_fingerprint_tells_lists_apart() -> None:
    found = {
        Rows(data, LocalizedContrastiveLoss(), pairs=True).fingerprint
        for data in ([("q", ["a", "b"]), ("c", ["d"])], [("q", ["a"]), ("b", ["c", "d"])], [("q", ["b", "a"])])
    }
    assert len(found) == 3


def unmasked(*scores: Tensor, labels: Tensor) -> Tensor:
    return (torch.cat(scores, 1) - labels).square().mean()


@pytest.mark.parametrize(
    ("data", "loss", "kind", "message"),
    [
        (
            [("q", ["a"], [1]), ("q", "b", [1])],
            ListNetLoss(),
            TypeError,
            "data, row 1: documents is 'b' of type str",
        ),
        (
            [("q", ["a", 3], [1, 0])],
            ListNetLoss(),
            TypeError,
            "data, row 0: document 1 is 3 of type int; pass",
        ),
        ([("q", ["a"], [1]), (5, ["a"], [1])], ListNetLoss(), TypeError, "data, row 1: column 0 holds 5 of type int"),
        ([("q", ["a"], [1]), ("q", [], [])], ListNetLoss(), ValueError, "data, row 1 has no documents; pass at least"),
        ([("q", ["a"], [1]), ("q", ["b"], 1)], ListNetLoss(), ValueError, "data, row 1 has 1 document and 1; pass a l"),
        ([("q", ["a", "b"], [1])], ListNetLoss(), ValueError, "data, row 0 has 2 documents and 1 labels; pass a list"),
        ([("q", ["a"], ["x"])], ListNetLoss(), TypeError, "data, row 0: the label is .* of type list; pass a number"),
        ([("q", ["a", "b"], [1, math.nan])], ListNetLoss(), ValueError, "data, row 0: the label is missing"),
        (
            [("q", ["a"], [1]), ("q", ["a", "b"], [1, -1])],
            LambdaLoss(),
            ValueError,
            r"labels\[1, 1\] is -1; Lambda",
        ),
        (
            [("q", ["a"])],
            ListNetLoss(),
            ValueError,
            r"takes rows \(query, documents, label\); those of data have 2",
        ),
        (
            [{"query": "q", "docs": ["a"], "labels": [1]}],
            ListNetLoss(),
            ValueError,
            "takes query, documents and labels",
        ),
        (
            [("q", ["a"], [1]), ("q", ["a", "b"], [1, 0])],
            unmasked,
            ValueError,
            "row 1 has 2 documents, row 0 1; ",
        ),
        (
            [("q", ["a"], [1]), ("q", ["a", "b"], [1, 0])],
            WeightedSum((unmasked, 1.0), (ListNetLoss(), 1.0)),
            ValueError,
            "row 1 has 2 documents, row 0 1; WeightedSum takes no mask",
        ),
        ([("q", "a", "b")], lambda anchor, positive: anchor, TypeError, r"so take scores alone; or \*scores, for rows"),
    ],
)
def test_rows_that_do_not_fit(bert: Path, data: Any, loss: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Trainer(CrossEncoder(bert, device="cpu"), data, loss)


def test_models_and_settings_that_do_not_fit(bert: Path, tmp_path: Path) -> None:
    several = CrossEncoder(folder(tmp_path / "several", classes=3), device="cpu")
    with pytest.raises(ValueError, match="ListNetLoss takes one score per document, but the model gives 3"):
        Trainer(several, rows(), ListNetLoss())
    for number in (-1, 1.5):
        with pytest.raises(ValueError, match=f"in_batch={number} is not a number of documents"):
            LocalizedContrastiveLoss(in_batch=number)


def test_lists_of_one_length_need_no_mask(bert: Path) -> None:
    data = [("q", ["a", "lake"], [1, 0]), ("p", ["b", "fox"], [0, 1])]
    start = CrossEncoder(bert, device="cpu", activation=torch.nn.Identity())
    scores = start.predict([(query, text) for query, texts, _ in data for text in texts])
    trainer = Trainer(start, data, unmasked, TrainingConfig(batch_size=2, sampler="in_order"))
    value = trainer.batches.mean_losses(start)["data"]
    assert value == pytest.approx(float(((scores - [1, 0, 0, 1]) ** 2).mean()), rel=1e-5)


# --------------------------------------------------------------------------------------------------- gradients


def gradients(path: Path, loss: Any, *, deduplicate: bool = True, train: bool = False, **options: Any) -> list[Tensor]:
    """The value of a loss on lists of different lengths, and its gradients."""
    model, ranks = CrossEncoder(path, device="cpu").double().train(train), options.get("ranks", Ranks())
    data = Rows(data_for(loss, rows(5)), loss, pairs=True)
    labels = None if data.labels is None else data.labels.double()
    texts = [data.head.inputs(row) for row in range(len(data))]
    for collate in data.signature.collates:
        texts, _ = collate(texts, np.random.default_rng(0))
    given = {"deduplicate": deduplicate, "ranks": ranks}
    batch = TrainingBatch.of(model, texts, data.signature, labels, **given)
    if deduplicate and ranks.world == 1:  # Padding is not encoded.
        assert len(batch.tokens.lengths) == len({pair for row in texts for pair in row})
    torch.manual_seed(5)
    value = backward(model, loss, batch, **options)
    GradientBuckets(model.parameters(), ranks).finish(mean=False)
    return [value, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])]


def of_a_plain_forward(path: Path, loss: Any) -> list[Tensor]:
    """The same with one call of the transformer for each pair, and a matrix with NaN at padding."""
    model = CrossEncoder(path, device="cpu").double()
    data = rows(5)
    width = max(len(row["documents"]) for row in data)
    scores, labels = [], []
    for row in data:
        made = [model.tokenizer([row["query"]], [text], return_tensors="pt") for text in row["documents"]]
        scores.append([model.auto_model(**one).logits.flatten()[0] for one in made])
        labels.append(row["labels"] + [7] * (width - len(made)))
    mask = torch.tensor([[place < len(row) for place in range(width)] for row in scores])
    matrix = torch.stack([torch.stack(row + [torch.tensor(9.0).double()] * (width - len(row))) for row in scores])
    takes = "labels" in Signature.of(loss).extras
    value = loss(matrix, mask=mask, **({"labels": torch.tensor(labels).double()} if takes else {}))
    value.backward()
    return [value.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])]


def same(one: list[Tensor], other: list[Tensor]) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_plain_deduplicated_and_cached_are_the_same(bert: Path, loss: Any) -> None:
    plain = of_a_plain_forward(bert, loss)
    assert plain[1].abs().max() > 1e-4
    same(gradients(bert, loss, deduplicate=False), plain)
    same(gradients(bert, loss), plain)
    same(gradients(bert, loss, chunk_tokens=40), plain)
    same(gradients(bert, loss, chunk_tokens=40, cached=True), plain)


IN_BATCH = LocalizedContrastiveLoss(in_batch=2)


def test_in_batch_and_dropout_cached_are_plain(bert: Path) -> None:
    plain = gradients(bert, IN_BATCH, chunk_tokens=40, train=True)
    same(gradients(bert, IN_BATCH, chunk_tokens=40, train=True, cached=True), plain)
    assert (gradients(bert, IN_BATCH, chunk_tokens=40)[1] - plain[1]).abs().max() > 1e-6  # There was dropout.


def on_a_rank(rank: int, where: Path, model: Path) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{where}/meeting", rank=rank, world_size=2)
    found = [
        gradients(model, loss, cached=cached, ranks=Ranks.join(), chunk_tokens=40)
        for loss in [*LOSSES, IN_BATCH]
        for cached in (False, True)
    ]
    if rank == 0:
        torch.save(found, where / "found.pt")
    leave()


@pytest.mark.slow
def test_two_ranks_are_one(bert: Path, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(on_a_rank, (tmp_path, bert), nprocs=2)
    found = torch.load(tmp_path / "found.pt")
    for number, loss in enumerate([*LOSSES, IN_BATCH]):
        plain = gradients(bert, loss, deduplicate=False)
        same(found[2 * number], plain)
        same(found[2 * number + 1], plain)


# -------------------------------------------------------------------------------------------------- in the batch


def test_documents_of_other_queries() -> None:
    batch = [
        (("q", "a"), ("q", "b")),
        (("p", "c"),),
        (("q", "d"), ("q", "c")),  # The first query again: its documents are no negatives of it.
        (("r", "e"),),
    ]
    every, nothing = LocalizedContrastiveLoss(in_batch=math.inf).collate(batch, np.random.default_rng(0))
    assert nothing == {}
    assert [tuple(document for _, document in row) for row in every] == [
        ("a", "b", "e"),
        ("c", "a", "b", "d", "e"),
        ("d", "c", "e"),
        ("e", "a", "b", "c", "d"),
    ]
    assert all({query for query, _ in row} == {old[0][0]} for row, old in zip(every, batch, strict=True))
    drawn = [LocalizedContrastiveLoss(in_batch=2).collate(batch, np.random.default_rng(seed))[0] for seed in range(20)]
    assert {len(made[1]) for made in drawn} == {3}
    assert {pair for made in drawn for pair in made[1][1:]} == {*every[1][1:]}  # Each has its turn.
    assert drawn[0] == LocalizedContrastiveLoss(in_batch=2).collate(batch, np.random.default_rng(0))[0]
    assert LocalizedContrastiveLoss().collate(batch, np.random.default_rng(0))[0] == batch


def test_ranking_is_that_of_sentence_transformers(bert: Path) -> None:
    """With all documents of the batch, hard negatives included, and without the sigmoid before the softmax."""
    peer = pytest.importorskip("sentence_transformers.cross_encoder")
    from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss

    data = [(f"the {WORDS[k]}", [f"{WORDS[k]} home", f"{WORDS[k + 4]} long"]) for k in range(4)]
    theirs = peer.CrossEncoder(str(bert), device="cpu").eval()
    loss = MultipleNegativesRankingLoss(theirs, num_negatives=None, scale=2.0, activation_fn=torch.nn.Identity())
    expected = loss([[row[0] for row in data], *([row[1][k] for row in data] for k in (0, 1))], None)
    ours = Trainer(
        CrossEncoder(bert, device="cpu"), data, LocalizedContrastiveLoss(0.5, math.inf), TrainingConfig(batch_size=4)
    )
    assert ours.batches.mean_losses(ours.model)["data"] == pytest.approx(expected.item(), rel=1e-5)


# ---------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize("loss", [*LOSSES, IN_BATCH], ids=str)
def test_each_loss_falls(bert: Path, loss: Any) -> None:
    _, history = fitted(bert, data_for(loss, rows()), loss, steps=24, batch_size=12, learning_rate=1e-2)
    losses = [entry["loss"] for entry in history]
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])


def test_a_student_learns_the_margins_of_its_teacher(bert: Path, tmp_path: Path) -> None:
    teacher = CrossEncoder(folder(tmp_path / "teacher", seed=3), device="cpu", activation=torch.nn.Identity())
    data = [
        {**row, "labels": teacher.predict([(row["query"], text) for text in row["documents"]]) * 4} for row in rows()
    ]
    _, history = fitted(bert, data, ScoreMarginMSELoss(), steps=40, batch_size=12, learning_rate=1e-2)
    assert history[-1]["loss"] < 0.3 * history[0]["loss"]


@pytest.mark.parametrize("sampler", ["random", "no_duplicates", "length"])
def test_memory_mapped_lists_train_as_lists_in_memory(bert: Path, tmp_path: Path, sampler: str) -> None:
    datasets.Dataset.from_list(rows()).save_to_disk(tmp_path / "data")
    mapped = datasets.load_from_disk(tmp_path / "data")
    expected, _ = fitted(bert, rows(), ListNetLoss(), sampler=sampler)
    for data in (mapped, tuples(rows())):
        assert torch.equal(fitted(bert, data, ListNetLoss(), sampler=sampler)[0], expected)
    mapped = datasets.Dataset.from_list([*rows(), {"query": "q", "documents": [], "labels": []}])
    with pytest.raises(ValueError, match="data, row 12 has no documents"):
        fitted(bert, mapped, ListNetLoss(), steps=8)


def test_streamed_lists_are_trained_on(bert: Path) -> None:
    stream = datasets.Dataset.from_list(rows()).to_iterable_dataset()
    expected, _ = fitted(bert, rows(), ListNetLoss(), steps=3, sampler="in_order")
    assert torch.equal(fitted(bert, stream, ListNetLoss(), steps=3, shuffle_buffer=1)[0], expected)


def test_a_killed_run_goes_on(bert: Path, tmp_path: Path) -> None:
    """With documents drawn from the batch, and gradient caching."""
    data = tuples(rows(), labelled=False)
    settings = {"steps": 6, "checkpoint_every": 2, "chunk_tokens": 60}
    expected, _ = fitted(bert, data, IN_BATCH, **settings)
    settings["output"] = tmp_path / "out"

    def run(resume: bool, callbacks: Any = ()) -> Tensor:
        model = CrossEncoder(bert, device="cpu")
        config = TrainingConfig(**settings, batch_size=4, learning_rate=3e-3, log_every=1)
        Trainer(model, data, IN_BATCH, config, callbacks=callbacks).fit(resume=resume, show_progress_bar=False)
        return torch.cat([weight.flatten() for weight in model.state_dict().values()])

    killer = Kill(5)
    assert in_child(lambda: run(False, [killer])) == signal.SIGKILL
    assert torch.equal(run(True, [Kill(99)]), expected)


def test_the_card_shows_lists(bert: Path, tmp_path: Path) -> None:
    fitted(bert, rows(), ListNetLoss(), steps=1, output=tmp_path / "out")
    card = (tmp_path / "out" / "final" / "README.md").read_text(encoding="utf-8")
    assert "| ListNetLoss(temperature=1.0) | Cao et al., 2007" in card
    assert "| query | documents | label |" in card
    assert "| the boat | boat boat / lake fox | 2, 1 |" in card
    loaded = huggingface_hub.ModelCard(card)
    assert (loaded.data.pipeline_tag, loaded.data.base_model) == ("text-ranking", None), "no folder of this machine"
