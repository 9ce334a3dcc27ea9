"""The paper's systems make vectors and learn, its tables are what they should be, and a stopped run goes on."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import SoftmaxLoss
from sbert.training.run.report import Log
from tests import small

WORDS = [word for line in small.CORPUS[:2] for word in line.split()]
TEXTS = ["a small boat", "", "nobodyknows thisword", "The red fox, over the hills!"]


@pytest.fixture(scope="module")
def examples() -> Any:
    """The modules of the paper's reproduction."""
    names = ("systems", "published", "report", "claims", "cells", "reproduce", "transfer")
    return SimpleNamespace(**{name: importlib.import_module(f"examples.paper.{name}") for name in names})


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 8)))


def write(path: Path, header: str, rows: list[tuple[Any, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header, *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of made-up rows, without STS13 to STS16, and a BERT of two layers."""
    root, draw = tmp_path_factory.mktemp("paper"), random.Random(0)

    def pairs(count: int) -> list[tuple[Any, ...]]:
        return [(round(draw.uniform(0, 5), 2), sentence(draw), sentence(draw)) for _ in range(count)]

    for part in ("train", "dev", "test"):
        write(root / f"data/stsb/{part}.tsv", "score\tsentence1\tsentence2", pairs(20))
    write(root / "data/sts/STS12/boats.tsv", "score\tsentence1\tsentence2", pairs(10))
    sick = [(1 + score * 0.8, one, two, "NEUTRAL") for score, one, two in pairs(10)]
    write(root / "data/sick/test.tsv", "relatedness\tsentence1\tsentence2\tentailment", sick)
    labels = ["contradiction", "entailment", "neutral"]
    nli = [(sentence(draw), sentence(draw), labels[i % 3]) for i in range(32)]
    write(root / "data/nli/snli_train.tsv", "premise\thypothesis\tlabel", nli)
    write(root / "data/senteval/CR.tsv", "label\ttext", [(i % 2, sentence(draw)) for i in range(40)])
    lines = [" ".join([word, *(f"{draw.gauss(0, 1):.3f}" for _ in range(6))]) for word in sorted({*WORDS, "tree"})]
    write(root / "data/vectors/glove.tiny.txt", lines[0], [(line,) for line in lines[1:]])
    small.bert(root / "bert")
    return root


@pytest.fixture
def options(folder: Path, tmp_path: Path) -> argparse.Namespace:
    data, vectors = folder / "data", folder / "data/vectors/glove.tiny.txt"
    named = {
        "data": data,
        "vectors": vectors,
        "fasttext": None,
        "backbone": str(folder / "bert"),
        "output": tmp_path,
        "device": "cpu",
    }
    return argparse.Namespace(**named, dtype="float32", learning_rate=1e-3, hidden=8)


# ------------------------------------------------------------------------------------------------------- systems

MAKE: dict[str, tuple[Callable[[Any, Any], SentenceEncoder], int]] = {
    "average_words": (lambda systems, options: systems.average_words(options.vectors), 6),
    "average_tokens": (lambda systems, options: systems.average_tokens(options.backbone), 16),
    "first_token": (lambda systems, options: systems.first_token(options.backbone), 16),
    "sbert": (lambda systems, options: systems.sbert(options.backbone, "max"), 16),
    "bilstm": (lambda systems, options: systems.bilstm(options.vectors, 5), 10),
    "averaging_network": (lambda systems, options: systems.averaging_network(options.vectors, 7), 7),
}


@pytest.mark.filterwarnings("ignore:not every program reads this model")  # Its pooling is max.
@pytest.mark.parametrize("name", MAKE)
def test_systems_make_vectors_that_a_folder_keeps(
    examples: Any, options: argparse.Namespace, tmp_path: Path, name: str
) -> None:
    make, dim = MAKE[name]
    model = make(examples.systems, options)
    vectors = model.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), dim)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(model.encode(text), vector, atol=1e-6)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(SentenceEncoder(tmp_path / "model").encode(TEXTS), vectors)


@pytest.mark.filterwarnings("ignore:not every program reads this model")  # Its pooling is max.
@pytest.mark.parametrize("name", [name for name in MAKE if name != "average_words"])
def test_systems_train(examples: Any, options: argparse.Namespace, tmp_path: Path, name: str) -> None:
    """Every weight that is meant to learn does, also with rows of no known word; and nothing else."""
    make, dim = MAKE[name]
    model = make(examples.systems, options)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    rows = [(TEXTS[0], TEXTS[1], 0), (TEXTS[3], TEXTS[2], 1), (TEXTS[2], TEXTS[0], 2), (TEXTS[0], TEXTS[3], 0)]
    config = TrainingConfig(output=tmp_path / "out", steps=2, learning_rate=1e-2, warmup=0.0)
    Trainer(model, rows, SoftmaxLoss(dim, 3), config).fit(show_progress_bar=False)
    for weight_name, weight in model.named_parameters():
        unused = "pooler" in weight_name
        changed = not torch.equal(weight, before[weight_name])
        assert changed == (weight.requires_grad and not unused), weight_name
        assert weight.isfinite().all()
    again = SentenceEncoder(tmp_path / "out" / "final")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    words = [module for module in again if hasattr(module, "words")]
    assert [module.embedding.weight.requires_grad for module in words] == [name == "averaging_network"] * len(words)


def test_a_trained_system_is_kept_and_a_broken_off_one_resumed(
    examples: Any, options: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples.systems, "CHECKPOINTS", 1)
    name = "sbert-nli-mean-u-v-difference"
    whole = examples.systems.Systems(options).get(name, seed=1)
    assert not (tmp_path / "models" / f"{name}-1" / "checkpoints").exists()
    options.output = tmp_path / "again"
    real = Log.step

    def breaks_off(self: Log, step: int, *more: Any, **named: Any) -> None:
        if step == 2:
            raise KeyboardInterrupt
        real(self, step, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "step", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            examples.systems.Systems(options).get(name, seed=1)
    steps: list[int] = []
    monkeypatch.setattr(Log, "step", lambda self, step, *more, **named: steps.append(step))
    resumed = examples.systems.Systems(options).get(name, seed=1)
    assert steps == [2]
    np.testing.assert_array_equal(resumed.encode(TEXTS), whole.encode(TEXTS))
    monkeypatch.setattr(examples.systems.Systems, "_train", lambda *_: pytest.fail("trained twice"))
    examples.systems.Systems(options).get(name, seed=1)


def test_cross_encoders(examples: Any, options: argparse.Namespace) -> None:
    """Trained on inference, then with a new head on scores."""
    systems = examples.systems.Systems(options)
    model = systems.get("bert-nli-stsb", seed=0)
    assert isinstance(model, CrossEncoder)
    scores = model.predict([("a small boat", "the red fox"), ("the red fox", "the red fox")])
    assert scores.shape == (2,)
    before = systems.get("bert-nli", seed=0)
    assert before.classes == 3
    start = CrossEncoder(systems.folder("bert-nli-stsb", 0) / "start", classes=1)
    for one, two in zip(
        before.auto_model.base_model.parameters(), start.auto_model.base_model.parameters(), strict=True
    ):
        assert torch.equal(one, two)


def test_samples_and_files(examples: Any, folder: Path, tmp_path: Path) -> None:
    """Few rows of each table, other files whole; and of two forms of one file, one."""
    data = tmp_path / "data"
    write(data / "stsb/train.tsv", "score\tsentence1\tsentence2", [(i % 5, f"a {i}", '"') for i in range(400)])
    (data / "sick").mkdir()
    (data / "sick/SICK.txt").write_text("whole\n")
    for name in (
        "snli_1.0_train.txt",
        "snli_1.0_train.jsonl",
        "multinli_1.0_train.txt",
        "snli_1.0_dev.txt",
        "wiki_train",
    ):
        write(data / "nli" / name, "header", [])
    names = [path.name for path in examples.systems.inference_files(data)]
    assert names == ["multinli_1.0_train.txt", "snli_1.0_train.txt"]
    made = examples.reproduce.sample(data, tmp_path / "sample")
    lines = (made / "stsb/train.tsv").read_text(encoding="utf-8").splitlines()
    whole = (data / "stsb/train.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 301
    assert lines[0] == whole[0]
    assert set(lines) < set(whole)
    assert (made / "sick/SICK.txt").read_text() == "whole\n"
    assert sorted(path.name for path in (made / "nli").iterdir()) == names
    assert examples.reproduce.sample(folder / "data", made) == made
    assert not (made / "senteval").exists()


# -------------------------------------------------------------------------------------------------------- tables


def test_markdown(examples: Any) -> None:
    results = [
        {"table": 6, "system": "(|u-v|)", "seed": 1, "figures": {"NLI": 0.72}},
        {"table": 6, "system": "(|u-v|)", "seed": 0, "figures": {"NLI": 0.70}},
        {"table": 6, "system": "MEAN", "seed": 0, "figures": {"NLI": 0.8}},
        {"table": 6, "system": "MEAN", "seed": 0, "figures": {"STSb": 0.9}},
        {"table": 7, "system": "SBERT", "seed": 0, "figures": {"in input order, CPU": 1234.5}},
    ]
    rows = [(row, examples.published.paper(6, row)) for row in ("MEAN", "MAX", "(|u-v|)")]
    table = examples.report.collect(results, 6, rows)
    assert examples.report.markdown(table).splitlines()[2:] == [
        "|  | NLI | STSb |",
        "| --- | ---: | ---: |",
        "| MEAN | **80.00** (80.78) | **90.00** (87.44) |",
        "| (\\|u-v\\|) | 71.00 ± 1.41 (69.78) | – |",
    ]
    table = examples.report.collect(results, 7, [("SBERT", examples.published.paper(7, "SBERT"))])
    said = examples.report.markdown(table)
    assert "| SBERT | 1,234 (44) | – (83) | – (1,378) | – (2,042) |" in said
    assert said.splitlines()[2].endswith(
        "| in input order, CPU | smart batching, CPU | in input order, GPU | smart batching, GPU |"
    )


def test_the_groups_of_table_2(examples: Any) -> None:
    """Each begins with a line of its own; the best of all rows is bold."""
    names = ("Avg. BERT embeddings", "SBERT-STSb", "BERT-NLI-STSb", "SBERT-NLI-STSb")
    results = [
        {"table": 2, "system": name, "seed": 0, "figures": {"STSb": 0.4 + i / 10}} for i, name in enumerate(names)
    ]
    table = examples.report.collect(results, 2, [(name, {}) for name in names])
    assert examples.report.markdown(table).splitlines()[4:] == [
        "| *Not trained for STS* |  |",
        "| Avg. BERT embeddings | 40.00 |",
        "| *Trained on the STS benchmark* |  |",
        "| SBERT-STSb | 50.00 |",
        "| *Trained on NLI and the STS benchmark* |  |",
        "| BERT-NLI-STSb | 60.00 |",
        "| SBERT-NLI-STSb | **70.00** |",
    ]


def test_averages_are_over_the_same_columns(examples: Any) -> None:
    figures = {"STS12": 0.5, "SICK-R": 0.7}
    results = [
        {"table": 1, "system": "BERT CLS-vector", "seed": 0, "figures": figures},
        {"table": 1, "system": "Avg. BERT embeddings", "seed": 0, "figures": {"SICK-R": 0.6}},
    ]
    rows = [(row, examples.published.paper(1, row)) for row in ("Avg. BERT embeddings", "BERT CLS-vector")]
    table = examples.report.collect(results, 1, rows)
    assert table.columns == ["STS12", "SICK-R", "Avg."]
    assert "Avg." not in table.rows[0].here
    assert table.rows[1].here["Avg."] == pytest.approx([60])
    assert table.rows[1].paper["Avg."] == pytest.approx([(20.16 + 42.63) / 2])
    assert table.notes[0].startswith("Not there: STS13, STS14, STS15, STS16, STSb.")
    assert len(table.notes) == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((1, "SBERT-NLI"), 76.53),
        ((1, "SBERT-NLI", "SRoBERTa", "large"), 77.00),
        ((1, "BiLSTM-max, NLI"), 66.75),
    ],
)
def test_the_papers_figures(examples: Any, where: tuple[Any, ...], expected: float) -> None:
    assert examples.published.paper(*where)["STS13"] == (expected,)


def test_the_papers_figures_agree_with_its_averages(examples: Any) -> None:
    """The averages are printed in the paper, too; that of SBERT-NLI-base is 0.03 above the mean of its figures."""
    printed = {
        1: {"Avg. GloVe embeddings": 61.32, "BERT CLS-vector": 29.19, "SBERT-NLI": 74.89, "BiLSTM-max, NLI": 65.01},
        5: {
            "Avg. GloVe embeddings": 81.52,
            "Avg. fastText embeddings": 82.42,
            "BERT CLS-vector": 84.66,
            "SBERT-NLI": 87.41,
            "BiLSTM-max, NLI": 85.59,
        },
    }
    for number, rows in printed.items():
        for row, average in rows.items():
            figures = [figure for (figure,) in examples.published.paper(number, row).values()]
            assert np.mean(figures) == pytest.approx(average, abs=0.031)
    assert examples.published.paper(2, "SBERT-NLI-STSb") == {"STSb": (85.35, 0.17)}
    assert examples.published.paper(2, "BERT-STSb") == {"STSb": (84.30, 0.76)}
    assert examples.published.paper(2, "BERT-STSb", "SRoBERTa") == {}
    assert examples.published.paper(6, "MEAN", "SRoBERTa", "large") == {}, "measured with BERT-base alone"
    assert examples.published.paper(7, "SBERT", size="large") == {}
    assert examples.published.paper(1, "InferSent", size="large") == examples.published.paper(1, "InferSent")
    assert examples.published.paper(7, "SBERT")["smart batching, GPU"] == (2042,)
    assert examples.published.paper(3, "SBERT-AFS, cross-topic", size="large") == {
        "Pearson": (53.82,),
        "Spearman": (53.1,),
    }
    assert examples.published.paper(3, "BERT-AFS, 10-fold", "SRoBERTa") == {}
    assert examples.published.paper(4, "SBERT-WikiSec", "SRoBERTa") == {"accuracy": (79.45,)}


# --------------------------------------------------------------------------------------------------------- paper


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The least populated class", "ignore:not every program reads this model")
def test_paper_stopped_and_resumed(
    examples: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    words = ["--data", folder / "data", "--backbone", folder / "bert", "--output", tmp_path / "out", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["paper.py", *map(str, words), "--quick", "--seeds", "1", "--hidden", "8"])
    file, real, left = tmp_path / "out" / "results.jsonl", examples.reproduce.write_line, [12]

    def breaks_off(*arguments: Any) -> None:
        real(*arguments)
        left[0] -= 1
        if not left[0]:
            with file.open("a", encoding="utf-8") as half:
                half.write('{"cell": [2, "SB')
            raise KeyboardInterrupt

    monkeypatch.setattr(examples.reproduce, "write_line", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        examples.reproduce.main()
    before = file.read_text(encoding="utf-8").splitlines()
    assert len(before) == 13
    examples.reproduce.main()
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[:12] == before[:12]
    cells = [tuple(json.loads(line)["cell"]) for line in lines]
    assert len(set(cells)) == len(cells)
    # Seven rows in Table 1, nine in 2, six in 5, 6 + 7 in 6, four in 7.
    assert [sum(cell[0] == table for cell in cells) for table in (1, 2, 5, 6, 7)] == [7, 9, 6, 13, 4]
    said = (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")
    assert said in capsys.readouterr().out
    assert all(f"## Table {table}" in said for table in (1, 2, 5, 6, 7))
    assert "Not there: STS13, STS14, STS15, STS16." in said
    assert "Not there: MR, SUBJ, MPQA, SST, TREC, MRPC." in said
    pictures = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    assert pictures == [f"table{table}.png" for table in (1, 2, 5, 6, 7)]
    kept = sorted(path.name for path in (tmp_path / "out" / "models").iterdir())
    assert "sbert-nli-mean-u-v-0" not in kept
    assert "sbert-nli-mean-u-v-difference-0" in kept
    examples.reproduce.main()
    assert file.read_text(encoding="utf-8").splitlines() == lines
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--learning-rate", "0.5"])
    with pytest.raises(SystemExit):
        examples.reproduce.main()
    assert "was created with" in capsys.readouterr().err


def test_what_is_not_there_is_left_out(
    examples: Any, folder: Path, options: argparse.Namespace, tmp_path: Path
) -> None:
    """Without inference data and word vectors, what needs them is in no table."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stsb").symlink_to(folder / "data" / "stsb")
    options.data, options.vectors, options.seeds = tmp_path / "data", None, 3
    study = examples.cells.Study(options)
    found = {table: [(cell.system, cell.seed) for cell in study.cells(table)] for table in (1, 2, 5, 6, 7)}
    assert found[1] == [("Avg. BERT embeddings", 0), ("BERT CLS-vector", 0)]
    assert found[2] == [
        ("Avg. BERT embeddings", 0),
        *((row, seed) for row in ("BERT-STSb", "SBERT-STSb") for seed in range(3)),
    ]
    assert found[5] == []
    assert found[6] == [(row, seed) for row in ("MEAN", "MAX", "CLS") for seed in range(3)]
    assert found[7] == [("SBERT", 0)]


# ----------------------------------------------------------------- arguments, sections of articles, several backbones


@pytest.fixture(scope="module")
def argued(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The publishers' files of Tables 3 and 4 in miniature, and vectors of fastText."""
    root, draw = tmp_path_factory.mktemp("argued"), random.Random(1)
    for name in ("DP", "GC", "GM"):
        path = root / "afs" / f"ArgPairs_{name}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="cp1252", newline="") as file:
            table = csv.writer(file)
            table.writerow(["regression_label", "majority_binary", "sentence_1", "sentence_2"])
            table.writerows(
                [round(draw.uniform(0, 5), 1), 1, f"\u201c{sentence(draw)}\u201d, so", sentence(draw)] for _ in range(8)
            )
    sections = root / "wikipedia-sections-triplets"
    for part in ("train", "test"):
        write(
            sections / f"{part}.csv",
            "Sentence1,Sentence2,Sentence3",
            [(f'{sentence(draw)},"a, {sentence(draw)}",{sentence(draw)}',) for _ in range(70)],
        )
    write(root / "senteval/CR.tsv", "label\ttext", [(i % 2, sentence(draw)) for i in range(40)])
    lines = [" ".join([word, *(f"{draw.gauss(0, 1):.3f}" for _ in range(6))]) for word in WORDS[:4]]
    write(root / "vectors/tiny.vec", "4 6", [(line,) for line in lines])
    return root


def test_every_argument_is_left_out_once(examples: Any, argued: Path) -> None:
    """Of ten parts, or of three topics; and no system is trained on what it is measured on."""
    for protocol, count in (("fold", 10), ("topic", 3)):
        splits = examples.systems.argument_rows(argued, protocol)
        assert len(splits) == count
        parts = [row for _, part in splits for row in part]
        assert len(parts) == len(set(parts)) == 24
        for train, part in splits:
            assert set(train) | set(part) == set(parts)
            assert not set(train) & set(part)
        assert splits == examples.systems.argument_rows(argued, protocol)


def test_tables_3_and_4(
    examples: Any, argued: Path, options: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part by a system that was trained on the others; none of them is kept, and an interrupted one goes on."""
    monkeypatch.setattr(examples.systems, "FOLDS", 2)
    options.data, options.seeds, options.fasttext = argued, 1, argued / "vectors/tiny.vec"
    study = examples.cells.Study(options)
    cells = {cell.system: cell for cell in study.cells(3)}
    assert list(cells) == ["Avg. GloVe embeddings", "Avg. BERT embeddings", *examples.cells.ARGUED]
    rows = [row for _, part in examples.systems.argument_rows(argued, "topic") for row in part]
    expected = examples.cells.correlations(study.systems.get("tokens"), rows)
    assert cells["Avg. BERT embeddings"].measure() == expected
    assert list(expected) == examples.published.COLUMNS[3]
    splits = examples.systems.argument_rows(argued, "fold")
    figures = [
        examples.cells.correlations(study.systems.get(f"bert-afs-fold-{i}", 0), part)
        for i, (_, part) in enumerate(splits)
    ]
    found = cells["BERT-AFS, 10-fold"].measure()
    assert found == {name: pytest.approx((figures[0][name] + figures[1][name]) / 2) for name in expected}
    assert list((tmp_path / "models").iterdir()) == []
    (triplets,) = [cell for cell in study.cells(4) if cell.system == "SBERT-WikiSec"]
    assert 0 < triplets.measure()["accuracy"] < 1
    assert (tmp_path / "models" / "sbert-wikisec-0" / "final").exists()
    assert "Avg. fastText embeddings" in [cell.system for cell in study.cells(5)]
    assert study.systems.get("fasttext").encode(WORDS[0]).shape == (6,)
    sampled = examples.reproduce.sample(argued, tmp_path / "sample")
    assert len(examples.systems.section_rows(sampled, "train")) == 70
    assert len(examples.systems.argument_rows(sampled, "topic")) == 3


@pytest.mark.filterwarnings("ignore:not every program reads this model")
def test_the_rows_of_several_backbones_are_in_one_table(
    examples: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by its name, and what has no transformer once; a second run measures nothing again."""
    small.bert(tmp_path / "other", seed=1)
    backbones = f"{folder / 'bert'},{tmp_path / 'other'}"
    words = ["--data", folder / "data", "--backbone", backbones, "--output", tmp_path / "out", "--device", "cpu"]
    monkeypatch.setattr(
        sys, "argv", ["paper.py", *map(str, words), "--tables", "2,7", "--quick", "--seeds", "1", "--hidden", "8"]
    )
    monkeypatch.setattr(examples.systems.Systems, "_train", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(examples.cells.Study, "trainable", lambda self, name: name in ("tokens", "cls", "words"))
    examples.reproduce.main()
    said = (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")
    systems = [line.split(" | ")[0].removeprefix("| ") for line in said.splitlines() if line.startswith("| ")]
    assert systems == [
        "", "---", "*Not trained for STS*", "Avg. GloVe embeddings",
        "Avg. BERT embeddings [bert]", "Avg. BERT embeddings [other]",
        "", "---", "Avg. GloVe embeddings", "BiLSTM-max", "Averaging network", "SBERT [bert]", "SBERT [other]",
    ]  # fmt: skip
    assert "Backbone bert, other, cpu" in said
    monkeypatch.setattr(examples.reproduce, "write_line", lambda *_: pytest.fail("measured again"))
    capsys.readouterr()
    examples.reproduce.main()
    assert said in capsys.readouterr().out
