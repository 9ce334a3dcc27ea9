"""The paper's systems make vectors and learn, its tables are what they should be, and a stopped run goes on."""

from __future__ import annotations

import argparse
import csv
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

from examples.paper import arguments, cells, claims, published, report, reproduce, systems, transfer, transfer_data
from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import SoftmaxLoss
from tests import small

pytestmark = pytest.mark.gate

WORDS = [word for line in small.CORPUS[:2] for word in line.split()]
TEXTS = ["a small boat", "", "nobodyknows thisword", "The red fox, over the hills!"]


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
    paths = {"data": folder / "data", "vectors": folder / "data/vectors/glove.tiny.txt", "fasttext": None}
    settings = {"output": tmp_path, "device": "cpu", "dtype": "float32", "learning_rate": 1e-3, "hidden": 8}
    return argparse.Namespace(**paths, backbone=str(folder / "bert"), **settings)


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
def test_systems_make_vectors_and_train(options: argparse.Namespace, tmp_path: Path, name: str) -> None:
    """Every weight that is meant to learn does, also with rows of no known word; and nothing else."""
    make, dim = MAKE[name]
    model = make(systems, options)
    assert model.encode(TEXTS).shape == (len(TEXTS), dim)
    if name == "average_words":  # Nothing in it learns.
        np.testing.assert_array_equal(model.encode("the boat"), model.encode("boat"))
        return
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    rows = [(TEXTS[0], TEXTS[1], 0), (TEXTS[3], TEXTS[2], 1), (TEXTS[2], TEXTS[0], 2), (TEXTS[0], TEXTS[3], 0)]
    config = TrainingConfig(output=tmp_path / "out", steps=2, learning_rate=1e-2, warmup=0.0)
    Trainer(model, rows, SoftmaxLoss(dim, 3), config).fit(show_progress_bar=False)
    for weight_name, weight in model.named_parameters():
        unused = "pooler" in weight_name
        changed = not torch.equal(weight, before[weight_name])
        assert changed == (weight.requires_grad and not unused), weight_name
        assert weight.isfinite().all()
    np.testing.assert_array_equal(SentenceEncoder(tmp_path / "out" / "final").encode(TEXTS), model.encode(TEXTS))


# -------------------------------------------------------------------------------------------------------- tables


def test_the_papers_figures_agree_with_its_averages() -> None:
    """The averages are printed in the paper, too; that of SBERT-NLI-base is 0.03 above the mean of its figures."""
    printed = {
        1: {"Avg. GloVe embeddings": 61.32, "BERT CLS-vector": 29.19, "SBERT-NLI": 74.89, "BiLSTM-max, NLI": 65.01},
        5: {"Avg. GloVe embeddings": 81.52, "BERT CLS-vector": 84.66, "SBERT-NLI": 87.41, "BiLSTM-max, NLI": 85.59},
    }
    for number, rows in printed.items():
        for row, average in rows.items():
            figures = [figure for (figure,) in published.paper(number, row).values()]
            assert np.mean(figures) == pytest.approx(average, abs=0.031)


# -------------------------------------------------------------------------------------------------------- claims


def say(number: int, figures: dict[str, dict[str, list[float]]]) -> list[str]:
    """What is said of a table whose figures (a list over seeds, by row and column) are these, in percent."""
    results = [
        {"table": number, "system": row, "seed": seed, "figures": {column: value / 100}}
        for row, columns in figures.items()
        for column, values in columns.items()
        for seed, value in enumerate(values)
    ]
    rows = [(row, published.paper(number, row)) for row in figures]
    (_, said) = claims.claims(report.collect(results, number, rows))
    return [line.removeprefix("- ") for line in said.splitlines()]


def test_a_comparison_is_decided_by_deviations_over_seeds() -> None:
    one, several = [27.09], [27.09, 27.3, 26.9]
    said = say(2, {"SBERT-NLI": {"STSb": one}, "SBERT-STSb": {"STSb": [26.52]}})
    assert said == ["STSb: SBERT-NLI 27.09 ? SBERT-STSb 26.52: one seed; not decided (paper: 77.03 < 84.67 ± 0.19)"]
    close = say(2, {"SBERT-NLI": {"STSb": several}, "SBERT-STSb": {"STSb": [26.52, 27.2, 26.4]}})
    assert close[0].endswith(": within the deviations; not decided (paper: 77.03 < 84.67 ± 0.19)")
    for figures, verdict in (([20.0, 20.3, 20.1], "contradicts"), ([30.0, 30.2, 29.9], "agrees")):
        (found,) = say(2, {"SBERT-NLI": {"STSb": several}, "SBERT-STSb": {"STSb": figures}})
        assert found.endswith(f": {verdict} (paper: 77.03 < 84.67 ± 0.19)")
        assert ("<" in found.partition(":")[2].partition("paper")[0]) == (verdict == "agrees")
    # One seed of one of the two is too few; what nothing is random in is measured once.
    mixed = {"Avg. BERT embeddings": {"SICK-R": [40.0]}, "SBERT-NLI": {"SICK-R": several}}
    assert say(1, mixed)[0].endswith(": contradicts (paper: 58.40 < 72.91)")
    mixed["SBERT-NLI"]["SICK-R"] = one
    assert say(1, mixed)[0].endswith(": one seed; not decided (paper: 58.40 < 72.91)")
    fixed = {"BERT CLS-vector": {"SICK-R": one}, "Avg. BERT embeddings": {"SICK-R": [26.52]}}
    assert "nothing is trained, one figure each; not decided" in say(1, fixed)[0]


# --------------------------------------------------------------------------------------------------------- paper


@pytest.mark.slow  # The whole of two tables: no part of it shows that a stopped run goes on.
@pytest.mark.filterwarnings("ignore:The least populated class", "ignore:not every program reads this model")
def test_paper_stopped_and_resumed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    words = ["--data", folder / "data", "--backbone", folder / "bert", "--output", tmp_path / "out", "--device", "cpu"]
    words += ["--tables", "2,5", "--quick", "--seeds", "1", "--hidden", "8"]
    monkeypatch.setattr(transfer, "GRID", [0.5, 1.0])  # Fits of a classifier take most of the time.
    monkeypatch.setattr(transfer, "INNER_FOLDS", 2)
    monkeypatch.setattr(sys, "argv", ["paper.py", *map(str, words)])
    file, real, left = tmp_path / "out" / "results.jsonl", reproduce.write_line, [5]

    def break_off(*arguments: Any) -> None:
        real(*arguments)
        left[0] -= 1
        if not left[0]:
            with file.open("a", encoding="utf-8") as half:
                half.write('{"cell": [2, "SB')
            raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "write_line", break_off)
    with pytest.raises(KeyboardInterrupt):
        reproduce.main()
    before = file.read_text(encoding="utf-8").splitlines()
    assert len(before) == 6
    reproduce.main()
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[:5] == before[:5]
    written = [tuple(json.loads(line)["cell"]) for line in lines]
    assert len(set(written)) == len(written)
    assert [sum(cell[0] == table for cell in written) for table in (2, 5)] == [9, 6]
    said = (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")
    assert said in capsys.readouterr().out
    assert "Not there: MR, SUBJ, MPQA, SST, TREC, MRPC." in said
    assert (tmp_path / "out" / "table2.png").exists()
    reproduce.main()
    assert file.read_text(encoding="utf-8").splitlines() == lines


# ----------------------------------------------------------------- arguments, sections of articles, several backbones


@pytest.fixture(scope="module")
def argued(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The publishers' files of Tables 3 and 4 in miniature."""
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
    for part in ("train", "test"):
        rows = [(f'{sentence(draw)},"a, {sentence(draw)}",{sentence(draw)}',) for _ in range(70)]
        write(root / "wikipedia-sections-triplets" / f"{part}.csv", "Sentence1,Sentence2,Sentence3", rows)
    return root


def test_every_argument_is_left_out_once(argued: Path) -> None:
    """Of ten parts, or of three topics; and no system is trained on what it is measured on."""
    rows = arguments.read_arguments(argued / "afs")["gun control"]
    assert rows[0]["first"][0] == "\u201c"  # The files are in Windows-1252.
    assert all(0 <= row["label"] <= 1 for row in rows)
    for protocol, count in (("fold", 10), ("topic", 3)):
        splits = systems.argument_rows(argued, protocol)
        parts = [row for _, part in splits for row in part]
        assert (len(splits), len(parts), len(set(parts))) == (count, 24, 24)
        for train, part in splits:
            assert set(train) | set(part) == set(parts)
            assert not set(train) & set(part)


def test_tables_3_and_4(
    argued: Path, options: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part by a system that was trained on the others; none of them is kept, and an interrupted one goes on."""
    monkeypatch.setattr(systems, "FOLDS", 2)
    options.data, options.seeds = argued, 1
    study = cells.Study(options)
    named = {cell.system: cell for cell in study.cells(3)}
    assert list(named) == ["Avg. GloVe embeddings", "Avg. BERT embeddings", *cells.ARGUED]
    figures = [
        cells.correlations(study.systems.get(f"bert-afs-fold-{i}", 0), part)
        for i, (_, part) in enumerate(systems.argument_rows(argued, "fold"))
    ]
    measured = named["BERT-AFS, 10-fold"].measure()
    assert list(measured) == published.COLUMNS[3]
    assert measured == {name: pytest.approx((figures[0][name] + figures[1][name]) / 2) for name in measured}
    assert list((tmp_path / "models").iterdir()) == []
    (triplets,) = [cell for cell in study.cells(4) if cell.system == "SBERT-WikiSec"]
    assert 0 < triplets.measure()["accuracy"] < 1
    assert (tmp_path / "models" / "sbert-wikisec-0" / "final").exists()


# ------------------------------------------------------------------------------------------------------- transfer


def test_transfer_tasks_in_both_layouts(tmp_path: Path) -> None:
    """As SentEval has them, some in Windows-1252, and as tables."""
    flat, senteval = tmp_path / "flat", tmp_path / "downstream"
    write(flat / "MR.tsv", "label\ttext", [(1, "a d’amour"), (0, "bad")])
    write(senteval / "MR/rt-polarity.neg", "bad", [])
    (senteval / "MR/rt-polarity.pos").write_bytes("a d’amour\n\n".encode("cp1252"))
    for split, name in (("train", "train_5500"), ("test", "TREC_10")):
        write(flat / f"TREC_{split}.tsv", "coarse\tfine\ttext", [("NUM", "dist", f"How far : {split} ?")])
        write(senteval / f"TREC/{name}.label", f"NUM:dist How far : {split} ?", [])
        write(flat / f"MRPC_{split}.tsv", "label\tsentence1\tsentence2", [(1, 'A "b', split)])
        header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        write(senteval / f"MRPC/msr_paraphrase_{split}.txt", header, [(1, 7, 8, 'A "b', split)])
    read, names = transfer_data.read_transfer, ["MR", "TREC", "MRPC"]
    assert transfer_data.list_tasks(flat) == transfer_data.list_tasks(senteval) == names
    for name in names:
        assert read(flat, name) == read(senteval, name)
    assert read(flat, "TREC").splits["test"] == [{"sentence": "How far : test ?", "label": 5}]
    with pytest.raises(FileNotFoundError, match=r"has no CR.tsv or senteval/CR.tsv or CR/custrev.pos"):
        read(flat, "CR")


def test_transfer_is_scikit_learns_search(tmp_path: Path) -> None:
    """TREC has six classes and no development part: folds of the training part choose the penalty."""
    linear_model, selection = (pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "model_selection"))
    rng, words = np.random.default_rng(0), ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    labels, centres = rng.integers(0, 6, 300), rng.normal(size=(6, 24))
    table = {
        f"text {i}": (centres[label] + 2 * rng.normal(size=24)).astype(np.float32) for i, label in enumerate(labels)
    }
    parts, texts = {"train": slice(200), "test": slice(200, 300)}, list(table)
    for name, part in parts.items():
        rows = [(words[label], "x", text) for label, text in zip(labels[part], texts[part], strict=True)]
        write(tmp_path / f"TREC_{name}.tsv", "coarse\tfine\ttext", rows)
    model = SimpleNamespace(encode=lambda texts, **_: np.stack([table[text] for text in texts]))
    train, test = (model.encode(texts[part]).astype(float) for part in parts.values())
    folds = selection.StratifiedKFold(5, shuffle=True, random_state=1111)
    grid = {"C": [2.0**power for power in range(-1, 6)]}
    search = selection.GridSearchCV(linear_model.LogisticRegression(max_iter=5000, tol=1e-6), grid, cv=folds)
    expected = search.fit(train, labels[:200]).score(test, labels[200:])
    assert 0.4 < expected < 0.98
    assert transfer.TransferSuite(tmp_path)(model)["TREC"] == pytest.approx(expected, abs=0.011)
