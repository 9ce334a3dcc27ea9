"""The cells of the paper's tables: which systems are measured, and how."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from examples.paper.published import DEVICES, STS, TRANSFER, WAYS
from examples.paper.systems import (
    CHOSEN,
    CONCATENATIONS,
    FROZEN,
    SECTIONS,
    Systems,
    argument_rows,
    averaging_network,
    bilstm,
    inference_files,
    section_rows,
    similarity_rows,
)
from examples.paper.transfer import TransferSuite
from sbert import CrossEncoder, SentenceEncoder, TokenBatch, TokenEmbeddings, Transformer
from sbert.evaluation import SimilarityEvaluator, STSSuite, TripletEvaluator
from sbert.evaluation.metrics import spearman

NLI = f"sbert-nli-mean-{CHOSEN}"
# By row of a table, the name of the system.
PLAIN = {
    "Avg. GloVe embeddings": "words",
    "Avg. BERT embeddings": "tokens",
    "BERT CLS-vector": "cls",
    "BiLSTM-max, NLI": "bilstm",
    "Averaging network, NLI": "averaging",
    "SBERT-NLI": NLI,
}
SCORED = {
    "BERT-STSb": "bert-stsb",
    "SBERT-STSb": "sbert-stsb-mean",
    "BERT-NLI-STSb": "bert-nli-stsb",
    "SBERT-NLI-STSb": "sbert-nli-stsb",
}
POOLED = ("MEAN", "MAX", "CLS")
CONCATENATED = {f"({', '.join(pieces)})": f"sbert-nli-mean-{name}" for name, pieces in CONCATENATIONS.items()}
FAST = {
    "Avg. GloVe embeddings": "words",
    "BiLSTM-max": "bilstm",
    "Averaging network": "averaging",
    "SBERT": "tokens",
}
# Not trained on arguments, and trained: the kind of model, and what is left out.
UNSEEN = {row: PLAIN[row] for row in ("Avg. GloVe embeddings", "Avg. BERT embeddings", "BiLSTM-max, NLI")}
ARGUED = {
    f"{kind}-AFS, {protocol}": (kind.lower(), part)
    for protocol, part in (("10-fold", "fold"), ("cross-topic", "topic"))
    for kind in ("BERT", "SBERT")
}
SECTIONED = {
    "Avg. GloVe embeddings": "words",
    "Avg. BERT embeddings": "tokens",
    "SBERT-WikiSec": "sbert-wikisec",
}
TRANSFERRED = {"Avg. GloVe embeddings": "words", "Avg. fastText embeddings": "fasttext", **PLAIN}
ROWS = {
    1: [*PLAIN, "SBERT-NLI-STSb"],
    2: [*(row for row in PLAIN if row != "BERT CLS-vector"), *SCORED],
    3: [*UNSEEN, *ARGUED],
    4: [*SECTIONED],
    5: [*TRANSFERRED],
    6: [*POOLED, *CONCATENATED],
    7: [*FAST],
}


# Rows in which there is no transformer: they are the same for all backbones.
SHARED = {
    row
    for rows in (TRANSFERRED, FAST)
    for row, name in rows.items()
    if name in ("words", "fasttext", "bilstm", "averaging")
}


@dataclass(frozen=True)
class Cell:
    """One measurement: the figures of one system, by column, for one seed."""

    table: int
    system: str
    seed: int
    part: str
    measure: Callable[[], dict[str, float]]

    @property
    def key(self) -> list[Any]:
        """The key of the cell in the results file."""
        return [self.table, self.system, self.seed, self.part]


class Study:
    """The cells of all tables for which there is data.

    Args:
        options: The options of ``Systems``, and ``seeds``, the number of trainings of each system.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.data = options, options.data
        self.systems = Systems(options)

    def cells(self, table: int) -> Iterator[Cell]:
        """The cells of a table, in the order of measurement."""
        every = {**PLAIN, **SCORED}
        plain: dict[int, tuple[dict[str, str], Callable[[Any], dict[str, float]]]] = {
            1: (PLAIN, self.similarity),
            2: ({row: every[row] for row in ROWS[2]}, partial(self.scored, part="test")),
            3: (UNSEEN, self.unseen),
            4: (SECTIONED, self.sectioned),
            5: (TRANSFERRED, self.transfer),
        }
        rows, measure = plain.get(table, ({}, self.similarity))
        for row, name in rows.items():
            yield from self._cells(table, row, name, measure, seeds=1 if table == 5 else None)
        more = {1: self._scored_cells, 3: self._argued_cells, 6: self._ablation_cells, 7: self._speed_cells}
        if table in more:
            yield from more[table]()

    def _scored_cells(self) -> Iterator[Cell]:
        # It was trained on STSb, which has pairs of the STS data of all years.
        row = "SBERT-NLI-STSb"
        yield from self._cells(1, row, SCORED[row], partial(self.similarity, sets=STS[5:]))

    def _argued_cells(self) -> Iterator[Cell]:
        for row, (kind, part) in ARGUED.items():
            for seed in range(self.options.seeds if self.measurable(3) else 0):
                yield Cell(3, row, seed, "", partial(self.argued, f"{kind}-afs-{part}", part, seed))

    def _ablation_cells(self) -> Iterator[Cell]:
        dev = partial(self.scored, part="dev")
        for row in POOLED:
            yield from self._cells(6, row, f"sbert-nli-{row.lower()}-{CHOSEN}", partial(dev, column="NLI"), "NLI")
            yield from self._cells(6, row, f"sbert-stsb-{row.lower()}", dev, "STSb")
        for row, name in CONCATENATED.items():
            yield from self._cells(6, row, name, partial(dev, column="NLI"), "NLI")

    def _speed_cells(self) -> Iterator[Cell]:
        for row, name in FAST.items():
            yield from self._cells(7, row, name, self.speed, seeds=1, make=partial(self.untrained, name))

    def _cells(
        self,
        table: int,
        row: str,
        name: str,
        measure: Callable[[Any], dict[str, float]],
        part: str = "",
        seeds: int | None = None,
        make: Callable[[], Any] | None = None,
    ) -> Iterator[Cell]:
        """One cell per seed; none without data, and only one if nothing is random."""
        if not (self.measurable(table) and (make or self.trainable(name)) and self.readable(name)):
            return

        def run(seed: int) -> dict[str, float]:
            found = measure(self.systems.get(name, seed) if make is None else make())
            if table == 6 and name not in (NLI, "sbert-stsb-mean"):  # Other tables need these two.
                self.systems.forget(name, seed)
            return found

        count = 1 if name in FROZEN else seeds or self.options.seeds
        for seed in range(count):
            yield Cell(table, row, seed, part, partial(run, seed))

    # ------------------------------------------------------------------------------------------ availability

    def measurable(self, table: int) -> bool:
        """Whether there is evaluation data for a table."""
        wanted = {1: ("sts", "stsb", "sick"), 3: ("afs",), 4: (SECTIONS,), 5: ("senteval",)}.get(table, ("stsb",))
        return any((self.data / folder).is_dir() for folder in wanted)

    def trainable(self, name: str) -> bool:
        """Whether there is training data for a system."""
        inference = "nli" in name or name in ("bilstm", "averaging")
        return (not inference or bool(inference_files(self.data))) and (
            "stsb" not in name or (self.data / "stsb").is_dir()
        )

    def readable(self, name: str) -> bool:
        """Whether there are word vectors, if a system needs them."""
        if name == "fasttext":
            return self.options.fasttext is not None
        return name not in ("words", "bilstm", "averaging") or self.options.vectors is not None

    def untrained(self, name: str) -> SentenceEncoder:
        """A system without training, for measuring speed."""
        options = self.options
        made = {
            "bilstm": lambda: bilstm(options.vectors, options.hidden),
            "averaging": lambda: averaging_network(options.vectors),
        }.get(name, lambda: self.systems.get(name))
        return made().to(options.device)

    # ------------------------------------------------------------------------------------------------ measures

    def similarity(self, model: SentenceEncoder, sets: list[str] = STS) -> dict[str, float]:
        """Spearman correlation on the data sets of Table 1."""
        found = STSSuite(self.data)(model)
        return {name: found[name] for name in sets if name in found}

    def scored(self, model: SentenceEncoder | CrossEncoder, part: str, column: str = "STSb") -> dict[str, float]:
        """Spearman correlation on a part of the STS benchmark."""
        first, second, scores = map(list, zip(*similarity_rows(self.data, part), strict=True))
        if isinstance(model, CrossEncoder):
            return {column: spearman(model.predict(zip(first, second, strict=True)), scores)}
        return {column: SimilarityEvaluator(first, second, scores)(model)["spearman"]}

    def transfer(self, model: SentenceEncoder) -> dict[str, float]:
        """Accuracy on the tasks of Table 5."""
        found = {
            name.replace("SST2", "SST"): figure for name, figure in TransferSuite(self.data / "senteval")(model).items()
        }
        return {name: found[name] for name in TRANSFER if name in found}

    def unseen(self, model: SentenceEncoder) -> dict[str, float]:
        """Correlations on all pairs of arguments, of a system that was not trained on any."""
        return correlations(model, [row for _, part in argument_rows(self.data, "topic") for row in part])

    def argued(self, name: str, protocol: str, seed: int) -> dict[str, float]:
        """The means of the correlations on the parts, each by a system that was trained on the other parts."""
        found = []
        for number, (_, part) in enumerate(argument_rows(self.data, protocol)):
            found.append(correlations(self.systems.get(f"{name}-{number}", seed), part))
        for number in range(len(found)):  # Not before: an interrupted measurement goes on with them.
            self.systems.forget(f"{name}-{number}", seed)
        return {column: statistics.fmean(figures[column] for figures in found) for column in found[0]}

    def sectioned(self, model: SentenceEncoder) -> dict[str, float]:
        """Accuracy on the triplets of Wikipedia's sections, by Euclidean distances."""
        columns = zip(*section_rows(self.data, "test"), strict=True)
        return TripletEvaluator(*columns, similarity="euclidean")(model)

    def speed(self, model: SentenceEncoder) -> dict[str, float]:
        """Sentences of the STS benchmark per second on the CPU, and on the GPU if it is used."""
        rows = [row for part in ("train", "dev", "test") for row in similarity_rows(self.data, part)]
        texts = list(dict.fromkeys(text for row in rows for text in row[:2]))
        devices = dict.fromkeys(["cpu", torch.device(self.options.device).type])
        return {
            f"{way}, {DEVICES[device]}": rate
            for device in devices
            if device in DEVICES
            for way, rate in rates(model.to(device), texts).items()
        }


def correlations(model: SentenceEncoder | CrossEncoder, rows: list[tuple[Any, ...]]) -> dict[str, float]:
    """Pearson's and Spearman's correlation of similarities, or of a cross-encoder's scores, and the scores of pairs."""
    first, second, scores = map(list, zip(*rows, strict=True))
    found = SimilarityEvaluator(first, second, scores)(model)
    return {name.capitalize(): found[name] for name in ("pearson", "spearman")}


def rates(model: SentenceEncoder, texts: list[str]) -> dict[str, float]:
    """Texts per second by the kind of batching; the best of three alternating rounds."""
    ways = dict(zip(WAYS, (in_order, lambda model, texts: model.encode(texts)), strict=True))
    found = dict.fromkeys(ways, 0.0)
    for part in (texts[:200], texts, texts, texts):  # The first part is the warm-up.
        for name, encode in ways.items():
            start = time.perf_counter()
            encode(model, part)
            if part is texts:
                found[name] = max(found[name], len(texts) / (time.perf_counter() - start))
    return found


@torch.inference_mode()
def in_order(model: SentenceEncoder, texts: list[str]) -> None:
    """Encode batches of 32 in input order, padded if the model has a transformer: without smart batching."""
    model.eval()
    for start in range(0, len(texts), 32):
        value: Any = model.tokenize(texts[start : start + 32]).to(model.device)
        for module in model:
            value = padded(module, value) if isinstance(module, Transformer) else module(value)
        value.cpu()


def padded(transformer: Transformer, batch: TokenBatch) -> TokenEmbeddings:
    """The token vectors of a batch that is padded to its longest text."""
    ids, mask = batch.padded(fill=transformer.tokenizer.pad_token_id or 0)  # (rows, longest)
    hidden = transformer.auto_model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    return batch.embeddings(hidden.flatten(0, 1)[batch.slot_of_token])  # (tokens, dim)


def word_vectors(data: Path, names: str = "glove*.txt*") -> Path | None:
    """The largest file of word vectors with such a name, if there is one; fastText's end in .vec."""
    found = sorted((data / "vectors").glob(names), key=lambda path: path.stat().st_size)
    return found[-1] if found else None
