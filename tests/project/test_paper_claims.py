"""What the page of the paper says of the paper is what its figures say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PAPER = (ROOT / "examples/paper/README.md").read_text(encoding="utf-8")


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


def test_a_comparison_is_decided_by_deviations_over_seeds(examples: Any) -> None:
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


def test_what_the_paper_does_not_have_is_said(examples: Any) -> None:
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


def test_table_1_does_not_say_that_nothing_was_trained_on_scores(examples: Any) -> None:
    rows = [(row, examples.published.paper(1, row)) for row in examples.cells.ROWS[1]]
    results = [
        {"table": 1, "system": row, "seed": seed, "figures": {"SICK-R": 0.5}} for row, _ in rows for seed in range(2)
    ]
    said = examples.report.markdown(examples.report.collect(results, 1, rows))
    assert "no scores were seen" not in said
    assert "SBERT-NLI-STSb was trained on the scores of STSb; the others saw no scores." in said
    # In the paper, the table has no such row.
    assert dict(rows)["SBERT-NLI-STSb"] == {}


def test_every_pair_is_of_rows_that_a_table_has(examples: Any) -> None:
    for number, pairs_of_rows in examples.claims.PAIRS.items():
        columns = {*examples.published.COLUMNS[number], examples.report.AVERAGE}
        for one, two, where in pairs_of_rows:
            assert {one, two} <= set(examples.cells.ROWS[number])
            assert set(where) <= columns


def test_the_page_says_of_the_paper_what_its_figures_say(examples: Any) -> None:
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
