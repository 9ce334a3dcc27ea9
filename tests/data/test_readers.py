"""What each reader of data gives trains with the losses it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer, losses
from sbert.data import read_nli, read_rows, read_sick, read_sts, read_sts_year, read_triplets
from tests import small
from tests.data.test_datasets import OFFICIAL, lines, objects, put

SENTENCES = ["a small boat", "the quiet lake", "red fox", "green hills", "long winter", "nobody rows"]
PAIRS = [(SENTENCES[i], SENTENCES[(i + 2) % 6], 2.5 * (i % 3)) for i in range(6)]
TABLE = lines(["score", "sentence1", "sentence2"], *([score, first, second] for first, second, score in PAIRS))
NLI = ("neutral", "entailment", "contradiction")
LABELLED = [{"gold_label": NLI[i % 3], "sentence1": a, "sentence2": b} for i, (a, b, _) in enumerate(PAIRS)]
SICK = lines(OFFICIAL, *([i, a, b, 1 + s * 0.8, NLI[i % 3].upper()] for i, (a, b, s) in enumerate(PAIRS)))
TRIPLETS = "sent0,sent1,hard_neg\n" + "".join(f"{first},{second},{SENTENCES[0]}\n" for first, second, _ in PAIRS)
BINARY = lines(["label", "first", "second"], *([i % 2, *row[:2]] for i, row in enumerate(PAIRS)))
TEXTS = BINARY.replace("first", "sentence")
ROWS = ["first", "second"]
READERS: dict[str, tuple[str, str, Callable[[Path], Any], Any]] = {
    "sts": ("sts-train.tsv", TABLE, read_sts, losses.CoSENTLoss()),
    "sts of a year": ("STS12/one.tsv", TABLE, lambda path: read_sts_year(path.parent), losses.AnglELoss()),
    "sick": ("SICK_train.txt", SICK, read_sick, losses.CosineSimilarityLoss()),
    "entailment": ("SICK_train.txt", SICK, lambda path: read_sick(path, "entailment"), losses.SoftmaxLoss(16, 3)),
    "nli": ("snli.jsonl", objects(*LABELLED), read_nli, losses.SoftmaxLoss(16, 3)),
    "triplets": ("nli.csv", TRIPLETS, read_triplets, losses.MultipleNegativesRankingLoss()),
    "texts": ("a.tsv", TEXTS, lambda path: list(read_rows(path, ["sentence"], "label")), losses.BatchAllTripletLoss()),
    "pairs": ("a.tsv", BINARY, lambda path: list(read_rows(path, ROWS, "label")), losses.ContrastiveLoss()),
}


@pytest.mark.parametrize("name", READERS)
def test_what_a_reader_gives_trains(name: str, tmp_path: Path) -> None:
    file, content, read, loss = READERS[name]
    data = read(put(tmp_path / file, content))
    transformer = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    encoder = SentenceEncoder(transformer, Pooling("mean"), device="cpu")
    config = TrainingConfig(steps=1, batch_size=6)
    assert Trainer(encoder, data, loss, config).fit(show_progress_bar=False)[-1]["loss"] >= 0
    if name == "nli":  # Contradictions would be positives: names and labels still decide, and not positions.
        with pytest.raises(ValueError, match=r"takes anchor, positive, \*negatives; data has first, second, label"):
            Trainer(encoder, data, losses.MultipleNegativesRankingLoss())
