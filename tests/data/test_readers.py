"""What readers of public data sets give trains with the losses it is for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer, losses
from sbert.data import read_nli, read_rows, read_sick, read_sts, read_sts_year, read_triplets
from tests import pairs, small
from tests.data.test_datasets import OFFICIAL, lines, objects, put

SENTENCES = ["a small boat", "the quiet lake", "red fox", "green hills", "long winter", "nobody rows"]
PAIRS = [(SENTENCES[i], SENTENCES[(i + 2) % 6], 2.5 * (i % 3)) for i in range(6)]
TABLE = lines(["score", "sentence1", "sentence2"], *([score, first, second] for first, second, score in PAIRS))
NLI = ("neutral", "entailment", "contradiction")
LABELLED = [{"gold_label": NLI[i % 3], "sentence1": a, "sentence2": b} for i, (a, b, _) in enumerate(PAIRS)]
SICK = lines(OFFICIAL, *([i, a, b, 1 + s * 0.8, NLI[i % 3].upper()] for i, (a, b, s) in enumerate(PAIRS)))
TRIPLETS = "sent0,sent1,hard_neg\n" + "".join(f"{first},{second},{SENTENCES[0]}\n" for first, second, _ in PAIRS)
BINARY = lines(["label", "first", "second"], *([i % 2, *row[:2]] for i, row in enumerate(PAIRS)))


def read_sentences(path: Path) -> Any:
    return list(read_rows(path, ["sentence"], "label"))


GRADED = [losses.CosineSimilarityLoss(), losses.CoSENTLoss(), losses.AnglELoss(), "bce", "mse"]
CLASSED = [losses.SoftmaxLoss(16, 3), "cross_entropy"]
OF_TRIPLETS = [losses.TripletLoss(), losses.MultipleNegativesRankingLoss()]
OF_GROUPS = [losses.BatchAllTripletLoss(), losses.BatchHardTripletLoss(), losses.BatchSemiHardTripletLoss()]
OF_TWO = [losses.ContrastiveLoss(), losses.OnlineContrastiveLoss(), losses.SoftmaxLoss(16, 2), "bce"]
READERS: dict[str, tuple[str, str, Callable[[Path], Any], list[Any]]] = {
    "sts": ("sts-train.tsv", TABLE, read_sts, GRADED),
    "sts of a year": ("STS12/one.tsv", TABLE, lambda path: read_sts_year(path.parent), GRADED),
    "sick": ("SICK_train.txt", SICK, read_sick, GRADED),
    "entailment": ("SICK_train.txt", SICK, lambda path: read_sick(path, "entailment"), CLASSED),
    "nli": ("snli.jsonl", objects(*LABELLED), read_nli, CLASSED),
    "triplets": ("nli.csv", TRIPLETS, read_triplets, OF_TRIPLETS),
    "texts": ("a.tsv", BINARY.replace("first", "sentence"), read_sentences, OF_GROUPS),
    "pairs": ("a.tsv", BINARY, lambda path: list(read_rows(path, ["first", "second"], "label")), OF_TWO),
}


@pytest.mark.parametrize("name", READERS)
def test_what_a_reader_gives_trains(name: str, tmp_path: Path) -> None:
    file, content, read, fitting = READERS[name]
    data, config = read(put(tmp_path / file, content)), TrainingConfig(steps=1, batch_size=6)
    transformer = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    encoder = SentenceEncoder(transformer, Pooling("mean"), device="cpu")
    for loss in fitting:
        if isinstance(loss, str):
            classes = 3 if loss == "cross_entropy" else 1
            scorer = CrossEncoder(pairs.folder(tmp_path / f"{classes}", classes=classes), device="cpu")
            history = scorer.fit(data, loss, config, show_progress_bar=False)
        else:
            history = Trainer(encoder, data, copy.deepcopy(loss), config).fit(show_progress_bar=False)
        assert history[-1]["loss"] >= 0
    if fitting is GRADED:
        assert {row["label"] for row in (data if isinstance(data, list) else data["one"])} == {0.0, 0.5, 1.0}
    if name == "nli":  # Contradictions would be positives: names and labels still decide, and not positions.
        with pytest.raises(ValueError, match=r"takes anchor, positive, \*negatives; data has first, second, label"):
            Trainer(encoder, data, losses.MultipleNegativesRankingLoss())
