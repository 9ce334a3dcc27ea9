"""What is shown is what is so: scores, pictures, maps, bars, and what is said of the paper and of other libraries."""

from __future__ import annotations

import base64
import importlib
import itertools
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sbert import CrossEncoder, SentenceEncoder, Trainer, TrainingConfig
from sbert.cli.main import main
from sbert.pipeline.progress import progress_bar
from sbert.visualization import corpus_map
from sbert.visualization.map_page import map_page
from sbert.visualization.projection import choose, project
from tests import pairs, small
from tests.visualization import browser

ROOT = Path(__file__).parent.parent.parent

# ----------------------------------------------------------------------------------------------- cross-encoders

DOCUMENTS = ["a small boat", "the quiet lake", "a red fox", "a small boat"]


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, CrossEncoder]:
    """Cross-encoders by the number of scores that they give a pair."""
    root = tmp_path_factory.mktemp("scorers")
    return {n: CrossEncoder(pairs.folder(root / str(n), classes=n), device="cpu") for n in (1, 3)}


@pytest.fixture(params=[1, 3])
def scorer(request: pytest.FixtureRequest, scorers: dict[int, CrossEncoder]) -> CrossEncoder:
    return scorers[request.param]


CONVERSIONS = list(itertools.product((True, False), repeat=2))


def test_17_rank_gives_tensors_or_numbers(scorers: dict[int, CrossEncoder]) -> None:
    scorer = scorers[1]
    expected = scorer.predict([("a fox", text) for text in DOCUMENTS])
    order = np.argsort(-expected, kind="stable").tolist()
    for (numpy, tensor), top_k in itertools.product(CONVERSIONS, (None, 2)):
        options = {"convert_to_numpy": numpy, "convert_to_tensor": tensor, "top_k": top_k}
        found = scorer.rank("a fox", iter(DOCUMENTS), return_documents=True, **options)
        assert [entry["corpus_id"] for entry in found] == order[:top_k]
        assert [entry["text"] for entry in found] == [DOCUMENTS[row] for row in order[:top_k]]
        assert [float(entry["score"]) for entry in found] == expected[order[:top_k]].tolist()
        for entry in found:
            if numpy and not tensor:
                assert type(entry["score"]) is float
            else:
                assert (entry["score"].shape, entry["score"].dtype) == ((), torch.float32)
        assert scorer.rank("a fox", [], **options) == []


def test_17_predict_gives_one_type_for_each_conversion(scorer: CrossEncoder) -> None:
    several = [("a fox", text) for text in DOCUMENTS]
    expected = scorer.predict(several)
    row = () if scorer.classes == 1 else (scorer.classes,)
    for numpy, tensor in CONVERSIONS:
        options: dict[str, Any] = {"convert_to_numpy": numpy, "convert_to_tensor": tensor}
        kind = torch.Tensor if tensor else np.ndarray if numpy else list
        for given in (several, tuple(several), iter(several), np.array(several), zip(*zip(*several))):  # noqa: B905
            found = scorer.predict(given, **options)
            assert isinstance(found, kind)
            np.testing.assert_allclose(torch.stack(found) if kind is list else found, expected, atol=1e-6)
        for one in (several[0], list(several[0]), np.array(several[0])):
            found = scorer.predict(one, **options)
            assert isinstance(found, (np.ndarray, np.generic) if kind is np.ndarray else torch.Tensor)
            assert found.shape == row
            np.testing.assert_allclose(found, expected[0], atol=1e-6)
        for nothing in ([], iter(()), np.zeros((0, 2), "<U1")):
            found = scorer.predict(nothing, **options)
            assert isinstance(found, kind)
            assert kind is list or tuple(found.shape) == (0, *row)


def test_17_an_activation_gives_float32_and_a_row_a_pair(scorer: CrossEncoder) -> None:
    several = [("a fox", text) for text in DOCUMENTS]
    plain = scorer.predict(several, activation=nn.Identity())
    found = scorer.predict(several, activation=lambda scores: scores.double().sigmoid())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-plain)), atol=1e-6)
    assert scorer.predict(several, activation=lambda scores: scores.argmax(1)).dtype == np.int64
    for softmax in (nn.Softmax(dim=-1), nn.LogSoftmax(dim=1)):
        if scorer.classes == 1:  # It would be 1, or 0, for every pair, and rank by nothing.
            with pytest.raises(ValueError, match=r"of one score gives every pair the same; pass nn\.Sigmoid"):
                scorer.rank("a fox", DOCUMENTS, activation=softmax)
        else:
            assert np.ptp(scorer.predict(several, activation=softmax)) > 0
    cases = [
        (lambda scores: scores * float("nan"), r"gives NaN for pairs\[0\]"),
        (lambda scores: scores[:1], r"makes shape \(1, \d\) of \(4, \d\) scores; pass a function that returns"),
        (lambda scores: scores.numpy(), "makes ndarray of"),
    ]
    for activation, message in cases:
        with pytest.raises(ValueError, match=message):
            scorer.predict(several, activation=activation)


# ----------------------------------------------------------------------------------------------------- notebooks

DRAWN = (
    "similarity_heatmap(['a', 'b'], np.eye(2))",
    "corpus_map(np.eye(3), labels=[0, 1, 1])",
    "training_curves([{'step': 1, 'loss': 0.5, 'learning_rate': 1e-5}])",
)


def test_21_a_notebook_shows_each_picture_once() -> None:
    """In a kernel of its own: as it is, with pyplot there, and with ``%matplotlib inline``."""
    import nbformat
    from nbclient import NotebookClient

    start = "import numpy as np\nfrom sbert.visualization import corpus_map, similarity_heatmap, training_curves"
    begins = (start, "import matplotlib.pyplot as plt", "%matplotlib inline")
    cells = [source for begin in begins for source in (begin, *DRAWN, f"picture = {DRAWN[0]}")]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in notebook.cells:
        shown = [output["data"]["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
        assert len(shown) == (cell.source in DRAWN), cell.source
        assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in shown)
    kinds = {output["output_type"] for cell in notebook.cells for output in cell.outputs}
    assert kinds == {"execute_result"}


# ---------------------------------------------------------------------------------------------------------- maps


def parted() -> tuple[np.ndarray, np.ndarray]:
    """Points of three clusters: the median of the first lies where the second is, and the third is scattered."""
    random = np.random.default_rng(0)
    parts = ((70, -6), (3, 0), (70, 6), (100, 0))
    blobs = [random.normal(size=(n, 2)) * 0.6 + (middle, 0) for n, middle in parts]
    scattered = random.uniform((-7, -2), (7, 2), (30, 2))
    labels = np.repeat([0, 0, 0, 1, 2], [70, 3, 70, 100, 30])
    return np.concatenate([*blobs, scattered]).astype(np.float32), labels


def own_share(points: np.ndarray, labels: np.ndarray, label: int, place: Any) -> float:
    """The part of the 50 points nearest to a place that belong to a cluster."""
    nearest = np.square(points - place).sum(1).argsort()[:50]
    return float((labels[nearest] == label).mean())


def data_of(page: str) -> dict[str, Any]:
    found: Any = re.search('type="application/json">(.*?)</script>', page, re.DOTALL)
    values: dict[str, Any] = json.loads(found[1])
    return values


def test_21_labels_stand_at_the_density_peak_of_their_own_cluster() -> None:
    points, labels = parted()
    assert own_share(points, labels, 0, np.median(points[labels == 0], axis=0)) < 0.1  # Else any place would do.
    page = map_page([f"text {i}" for i in range(len(points))], points, labels, ["parted", "middle", "scattered"])
    peaks = data_of(page)["peaks"]
    for label in (0, 1):
        assert labels[peaks[label]] == label
        assert own_share(points, labels, label, points[peaks[label]]) > 0.5
    # There is no place where most points are of the third, so no label may say so; and the page says that.
    assert peaks[2] == -1
    assert "1 cluster is scattered among others, and named only in the legend." in page


def test_21_labels_in_a_browser_stand_among_their_own(tmp_path: Path) -> None:
    program = browser.find()
    if program is None:
        pytest.skip("there is no chromium; apt-get install chromium")
    points, labels = parted()
    names, path = ["parted", "middle", "scattered"], tmp_path / "map.html"
    texts = [f"text {i}" for i in range(len(points))]
    path.write_text(map_page(texts, points, labels, names), encoding="utf-8")
    with browser.Browser(program, tmp_path / "profile") as page:
        page.open(path)
        page.run("context.fillText = (text, x, y) => (window.said = [...(window.said ?? []), [text, x, y]]), draw()")
        said = page.run("window.said")
        screen = np.array(page.run("Array.from({ length: count }, (_, i) => toScreen(i))"))
    assert [text for text, _, _ in said] == ["parted", "middle"]
    for text, *place in said:
        assert own_share(screen, labels, names.index(text), place) > 0.5


@pytest.fixture(scope="module")
def texts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("map") / "texts.txt"
    lines = [f"{text} {number}" for number in ("one", "two", "three", "four") for text in small.CORPUS]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    return SentenceEncoder(small.bert(tmp_path_factory.mktemp("encoder")), device="cpu")


def note_of(path: Path) -> str:
    """What the page says of its layout."""
    found: Any = re.search('<p id="note">(.*?)</p>', path.read_text(encoding="utf-8"))
    return str(found[1])


def test_21_the_map_says_which_layout_it_has(
    encoder: SentenceEncoder, texts_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder.save(tmp_path / "model")
    page, few = tmp_path / "map.html", tmp_path / "few.txt"
    few.write_text("a small boat\nthe red fox\n", encoding="utf-8")
    rows = len(texts_file.read_text(encoding="utf-8").splitlines())
    for file, more, said in (
        (texts_file, (), f"{rows} texts, laid out by t-SNE\n"),
        (texts_file, ("--method", "pca"), f"{rows} texts, laid out by PCA\n"),
        (
            few,
            (),
            "2 texts, laid out by PCA, because fewer than 10 texts have no neighbourhoods that t-SNE could keep\n",
        ),
    ):
        assert main(["map", str(tmp_path / "model"), str(file), "-o", str(page), *more]) == 0
        assert capsys.readouterr().out == f"{page}: {said}"
        layout = said.partition("laid out by ")[2].strip()
        assert note_of(page).startswith(f"Layout: {layout}. ")


def test_21_without_scikit_learn_the_map_says_so_and_names_the_remedy(
    encoder: SentenceEncoder,
    texts_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("sklearn.cluster", "sklearn.manifold"):
        monkeypatch.setitem(sys.modules, name, None)
    encoder.save(tmp_path / "model")
    page = tmp_path / "map.html"
    for quiet in ((), ("--quiet",)):
        assert main(["map", str(tmp_path / "model"), str(texts_file), "-o", str(page), *quiet]) == 0
        said = capsys.readouterr()
        reason = 'because t-SNE needs scikit-learn; run: pip install "sbert[plot]"'
        assert f"warning: the layout is PCA, {reason}\n" in said.err
        assert 'no clusters: colouring them needs scikit-learn; run: pip install "sbert[plot]"\n' in said.err
        assert ("laid out by PCA" in said.out) == (not quiet)
        assert note_of(page).startswith(f"Layout: PCA, {reason}. ".replace('"', "&quot;"))


def test_21_more_than_50000_texts_are_laid_out_by_pca_with_a_warning() -> None:
    vectors = np.random.default_rng(0).normal(size=(50_001, 3))
    with pytest.warns(UserWarning, match=r"the layout is PCA, because 50,001 texts are more than 50,000.*choose tsne"):
        found = project(vectors)
    np.testing.assert_array_equal(found, project(vectors, method="pca"))
    assert choose(50_000) == ("tsne", None)
    assert choose(50_001, "pca") == ("pca", None)


def test_21_a_corpus_map_writes_the_medoid_of_each_cluster() -> None:
    """Of a cluster that lies in two parts, the text nearest the middle of the plane is another topic's."""
    random = np.random.default_rng(0)
    one, two, other = np.eye(3, 8)
    # Most of the first cluster points along one, a part of it along two; row 31 stands alone between them.
    first = np.concatenate([np.tile(one, (20, 1)), np.tile(two, (11, 1)), [0.35 * one + 0.35 * two + other]])
    vectors = np.concatenate([first, np.tile(other, (20, 1))]) + random.normal(size=(52, 8)) * 0.02
    vectors *= random.uniform(0.1, 10, (52, 1))  # The length of a vector says nothing of its direction.
    labels = np.repeat([0, 1], [32, 20])
    axis = corpus_map(vectors, labels=labels, texts=[f"text {i}" for i in range(52)]).axes[0]
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = []
    for label in (0, 1):
        rows = np.flatnonzero(labels == label)
        expected.append(f"text {rows[(directions[rows] @ directions[rows].T).mean(1).argmax()]}")
    assert [text.get_text() for text in axis.texts] == expected
    assert axis.get_xlabel() == "t-SNE"


# ----------------------------------------------------------------------------------------------------- the bar


def test_21_the_training_bar_shows_the_last_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = iter((0.125, 0.5, 0.25))

    def evaluator(model: Any) -> dict[str, float]:
        return {"accuracy": 0.75, "spearman": next(figures)}

    def loss(anchor: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
        return (anchor - positive).square().mean()

    model = SentenceEncoder(small.bert(tmp_path / "bert"), device="cpu")
    rows = [("a small boat", "the lake"), ("the red fox", "a hill")] * 3
    config = TrainingConfig(
        output=tmp_path / "out", batch_size=2, steps=3, evaluate_every=1, log_every=1, metric="spearman"
    )
    Trainer(model, rows, loss, config, evaluator=evaluator).fit(show_progress_bar=True)
    said = capsys.readouterr().err.replace("\n", "\r").split("\r")
    for step, figure in ((1, "0.1250"), (2, "0.5000"), (3, "0.2500")):
        assert any(f"spearman {figure} at step {step}" in line for line in said)
    last = [line for line in said if line.strip()][-1]
    assert "| 3/3 [" in last
    assert "spearman 0.2500 at step 3" in last
    assert re.search(r"[\d.]+ steps/s, loss \d", last)


def test_21_a_slow_bar_counts_units_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    for unit, options in ((" steps", {"total": 10}), (" sentences", {"total": None})):
        bar = progress_bar(True, unit=unit, desc="Training", **options)
        line = bar.format_meter(**{**bar.format_dict, "n": 3, "elapsed": 3.36, "rate": 1 / 1.12})
        bar.close()
        assert f" 0.89{unit}/s" in line
        assert "s/ " not in line
    assert "s/ " not in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- the paper


@pytest.fixture(scope="module")
def examples() -> Any:
    """The modules of the paper's reproduction."""
    names = ("published", "report", "claims", "cells")
    return SimpleNamespace(**{name: importlib.import_module(f"examples.paper.{name}") for name in names})


def claims(examples: Any, number: int, figures: dict[str, dict[str, list[float]]], kind: str = "SBERT") -> list[str]:
    """What is said of a table whose figures (a list over seeds, by row and column) are these, in percent."""
    results = [
        {"table": number, "system": row, "seed": seed, "figures": {column: value / 100}}
        for row, columns in figures.items()
        for column, values in columns.items()
        for seed, value in enumerate(values)
    ]
    rows = [(row, examples.published.paper(number, row, kind)) for row in figures]
    table = examples.report.collect(results, number, rows)
    found = examples.claims.claims(table)
    return [line.removeprefix("- ") for line in found[1].splitlines()] if found else []


def test_22_a_comparison_is_decided_by_deviations_over_seeds(examples: Any) -> None:
    one, several = [27.09], [27.09, 27.3, 26.9]
    said = claims(examples, 2, {"SBERT-NLI": {"STSb": one}, "SBERT-STSb": {"STSb": [26.52]}})
    assert said == ["STSb: SBERT-NLI 27.09 ? SBERT-STSb 26.52: one seed; not decided (paper: 77.03 < 84.67 ± 0.19)"]
    close = claims(examples, 2, {"SBERT-NLI": {"STSb": several}, "SBERT-STSb": {"STSb": [26.52, 27.2, 26.4]}})
    assert close[0].endswith(": within the deviations; not decided (paper: 77.03 < 84.67 ± 0.19)")
    for figures, verdict in (([20.0, 20.3, 20.1], "contradicts"), ([30.0, 30.2, 29.9], "agrees")):
        (found,) = claims(examples, 2, {"SBERT-NLI": {"STSb": several}, "SBERT-STSb": {"STSb": figures}})
        assert found.endswith(f": {verdict} (paper: 77.03 < 84.67 ± 0.19)")
        assert ("<" in found.partition(":")[2].partition("paper")[0]) == (verdict == "agrees")
    # One seed of one of the two is too few; what nothing is random in is measured once.
    mixed = {"Avg. BERT embeddings": {"SICK-R": [40.0]}, "SBERT-NLI": {"SICK-R": several}}
    assert claims(examples, 1, mixed)[0].endswith(": contradicts (paper: 58.40 < 72.91)")
    mixed["SBERT-NLI"]["SICK-R"] = one
    assert claims(examples, 1, mixed)[0].endswith(": one seed; not decided (paper: 58.40 < 72.91)")
    fixed = {"BERT CLS-vector": {"SICK-R": one}, "Avg. BERT embeddings": {"SICK-R": [26.52]}}
    assert "nothing is trained, one figure each; not decided" in claims(examples, 1, fixed)[0]


def test_22_what_the_paper_does_not_have_is_said(examples: Any) -> None:
    three = [50.0, 50.1, 50.2], [60.0, 60.1, 60.2]
    said = claims(examples, 1, {"SBERT-NLI": {"SICK-R": three[0]}, "SBERT-NLI-STSb": {"SICK-R": three[1]}})
    assert said == ["SICK-R: SBERT-NLI 50.10 ± 0.10 < SBERT-NLI-STSb 60.10 ± 0.10: not in the paper"]
    # A RoBERTa that reads both sentences is in no table of the paper, and so is an averaging network.
    said = claims(examples, 2, {"BERT-STSb": {"STSb": three[0]}, "BERT-NLI-STSb": {"STSb": three[1]}}, "SRoBERTa")
    assert said[0].endswith(": not in the paper")
    for table, row in ((1, "Averaging network, NLI"), (5, "Averaging network, NLI"), (7, "Averaging network")):
        assert examples.published.paper(table, row) == {}
    # 84.30 ± 0.76 and 84.67 ± 0.19: the paper itself leaves this open.
    said = claims(examples, 2, {"SBERT-STSb": {"STSb": three[1]}, "BERT-STSb": {"STSb": three[0]}})
    assert said[0].endswith(": the paper does not decide it (paper: 84.67 ± 0.19 ≈ 84.30 ± 0.76)")


def test_22_table_1_does_not_say_that_nothing_was_trained_on_scores(examples: Any) -> None:
    rows = [(row, examples.published.paper(1, row)) for row in examples.cells.ROWS[1]]
    results = [
        {"table": 1, "system": row, "seed": seed, "figures": {"SICK-R": 0.5}} for row, _ in rows for seed in range(2)
    ]
    said = examples.report.markdown(examples.report.collect(results, 1, rows))
    assert "no scores were seen" not in said
    assert "SBERT-NLI-STSb was trained on the scores of STSb; the others saw no scores." in said
    # In the paper, the table has no such row.
    assert dict(rows)["SBERT-NLI-STSb"] == {}


def test_22_every_pair_is_of_rows_that_a_table_has(examples: Any) -> None:
    for number, pairs_of_rows in examples.claims.PAIRS.items():
        columns = {*examples.published.COLUMNS[number], examples.report.AVERAGE}
        for one, two, where in pairs_of_rows:
            assert {one, two} <= set(examples.cells.ROWS[number])
            assert set(where) <= columns


README, PAPER = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "examples/paper/README.md"))


def test_22_the_page_says_of_the_paper_what_its_figures_say(examples: Any) -> None:
    """Each comparison that the page names, by its own tables."""
    section = PAPER
    # The page's table, its column, two rows of it, and what the bullets below say of them.
    rows: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line.startswith("| "):
            name, *cells = [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            rows.setdefault(name, cells)  # Table 5 has some of the names again.
    bullets = dict(re.findall(r"^- ([A-Z][^:]*): (.*?)(?=\n- |\n\n|\Z)", section, re.MULTILINE | re.DOTALL))
    said = {name: " ".join(text.split()) for name, text in bullets.items()}

    def figure(row: str, column: int) -> tuple[float, ...]:
        here = rows[row][column].partition("(")[0]
        return tuple(float(part) for part in here.split("±"))

    cases = [
        ("Agrees", "average BERT < NLI, on both sets", ("average BERT", "SBERT, NLI"), (0, 1), "<"),
        ("Agrees", "NLI < NLI then STSb, and NLI < STSb, on STSb", ("SBERT, NLI", "SBERT, NLI then STSb"), (0,), "<"),
        ("Agrees", "NLI < NLI then STSb, and NLI < STSb, on STSb", ("SBERT, NLI", "SBERT, STSb"), (0,), "<"),
        ("Agrees", "BiLSTM < SBERT on SICK-R", ("BiLSTM-max, NLI", "SBERT, NLI"), (1,), "<"),
        ("Agrees", "MAX < MEAN trained on STSb", ("MAX", "MEAN"), (1,), "<"),
        ("Agrees", "CLS < MEAN trained on either", ("CLS", "MEAN"), (0, 1), "<"),
        ("Agrees", "(u, v), (u, v, u*v) < (u, v, |u−v|)", ("(u, v)", "(u, v, |u−v|)"), (0,), "<"),
        ("Agrees", "(u, v), (u, v, u*v) < (u, v, |u−v|)", ("(u, v, u*v)", "(u, v, |u−v|)"), (0,), "<"),
        ("Agrees", "(u*v) < (|u−v|, u*v)", ("(u*v)", "(|u−v|, u*v)"), (0,), "<"),
        ("Contradicts", "STSb alone > NLI then STSb", ("SBERT, STSb", "SBERT, NLI then STSb"), (0,), ">"),
        (
            "Contradicts",
            "SBERT > the cross-encoder, both of NLI then STSb",
            ("SBERT, NLI then STSb", "BERT cross-encoder, NLI then STSb"),
            (0,),
            ">",
        ),
        ("Not decided", "BiLSTM and SBERT on STSb", ("BiLSTM-max, NLI", "SBERT, NLI"), (0,), "≈"),
        ("Not decided", "MAX and MEAN trained on NLI", ("MAX", "MEAN"), (0,), "≈"),
        ("Not decided", "(u, v) and (|u−v|)", ("(u, v)", "(|u−v|)"), (0,), "≈"),
        ("Not decided", "u*v beside (u, v, |u−v|)", ("(u, v, |u−v|)", "(u, v, |u−v|, u*v)"), (0,), "≈"),
        (
            "Not decided",
            "the cross-encoder with NLI before STSb",
            ("BERT cross-encoder, STSb", "BERT cross-encoder, NLI then STSb"),
            (0,),
            "≈",
        ),
        ("Not in the paper", "NLI < NLI then STSb on SICK-R", ("SBERT, NLI", "SBERT, NLI then STSb"), (1,), "<"),
    ]
    for heading, words, (one, two), columns, sign in cases:
        assert words in said[heading].replace("\\|", "|"), (heading, words)
        for column in columns:
            assert examples.claims.relation(figure(one, column), figure(two, column)) == sign, (one, two, column)
    assert "one seed" in said["Not decided"]
    assert "As in the paper" not in section
