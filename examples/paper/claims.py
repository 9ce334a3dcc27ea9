"""Which comparisons of the paper hold here: decided by means and standard deviations over seeds."""

import math

from examples.paper.report import AVERAGE, Row, Table, mean_and_deviation, shown

# Systems without randomness, measured once.
FIXED = ("Avg. GloVe embeddings", "Avg. fastText embeddings", "Avg. BERT embeddings", "BERT CLS-vector")
# By table, pairs of rows to compare, and the columns.
PAIRS: dict[int, list[tuple[str, str, tuple[str, ...]]]] = {
    3: [
        ("SBERT-AFS, 10-fold", "BERT-AFS, 10-fold", ("Pearson", "Spearman")),
        ("SBERT-AFS, cross-topic", "BERT-AFS, cross-topic", ("Pearson", "Spearman")),
        ("BERT-AFS, cross-topic", "BERT-AFS, 10-fold", ("Pearson", "Spearman")),
        ("SBERT-AFS, cross-topic", "SBERT-AFS, 10-fold", ("Pearson", "Spearman")),
    ],
    4: [("Avg. GloVe embeddings", "SBERT-WikiSec", ("accuracy",))],
    1: [
        ("BERT CLS-vector", "Avg. BERT embeddings", ("STSb", "SICK-R", AVERAGE)),
        ("Avg. BERT embeddings", "Avg. GloVe embeddings", ("STSb", "SICK-R", AVERAGE)),
        ("Avg. BERT embeddings", "SBERT-NLI", ("STSb", "SICK-R", AVERAGE)),
        ("BiLSTM-max, NLI", "SBERT-NLI", ("STSb", "SICK-R", AVERAGE)),
        ("SBERT-NLI", "SBERT-NLI-STSb", ("SICK-R",)),
    ],
    2: [
        ("SBERT-NLI", "SBERT-STSb", ("STSb",)),
        ("SBERT-NLI", "SBERT-NLI-STSb", ("STSb",)),
        ("SBERT-STSb", "SBERT-NLI-STSb", ("STSb",)),
        ("BERT-STSb", "BERT-NLI-STSb", ("STSb",)),
        ("SBERT-STSb", "BERT-STSb", ("STSb",)),
        ("SBERT-NLI-STSb", "BERT-NLI-STSb", ("STSb",)),
    ],
    5: [
        ("Avg. GloVe embeddings", "Avg. BERT embeddings", (AVERAGE,)),
        ("Avg. BERT embeddings", "SBERT-NLI", (AVERAGE,)),
    ],
    6: [
        ("MAX", "MEAN", ("NLI", "STSb")),
        ("CLS", "MEAN", ("NLI", "STSb")),
        ("(u, v)", "(|u-v|)", ("NLI",)),
        ("(u, v)", "(u, v, |u-v|)", ("NLI",)),
        ("(u*v)", "(|u-v|, u*v)", ("NLI",)),
        ("(u, v, u*v)", "(u, v, |u-v|)", ("NLI",)),
        ("(u, v, |u-v|, u*v)", "(u, v, |u-v|)", ("NLI",)),
    ],
}
RULE = (
    "Two systems differ where their means do by more than twice the deviation of the difference,"
    " 2 (s² + t²)^½ with the deviations s and t over seeds; that of a system of which nothing is random is 0."
)


def claims(table: Table) -> list[str]:
    """The rule, and one line per comparison for which there are figures."""
    backbones = [name for name in dict.fromkeys(row.name.removeprefix(row.plain) for row in table.rows) if name]
    lines: list[str] = []
    for backbone in backbones or [""]:
        rows = {row.plain: row for row in table.rows if row.name in (row.plain, row.plain + backbone)}
        lines += [
            claim(rows[one], rows[two], column, table.digits)
            for one, two, columns in PAIRS.get(table.number, [])
            for column in columns
            if one in rows and two in rows and rows[one].here.get(column) and rows[two].here.get(column)
        ]
    lines = list(dict.fromkeys(lines))
    return [RULE, "\n".join(f"- {line}" for line in lines)] if lines else []


def claim(one: Row, two: Row, column: str, digits: int = 2) -> str:
    """Compare two systems in a column, and say whether the paper agrees."""
    figures = [mean_and_deviation(row.here[column]) for row in (one, two)]
    seeds = [len(row.here[column]) for row in (one, two)]
    trained = [count for row, count in zip((one, two), seeds, strict=True) if row.plain not in FIXED]
    if not trained or 1 in trained:
        sign, reason = "?", "one seed; not decided" if trained else "nothing is trained, one figure each; not decided"
    else:
        sign, reason = relation(*figures), ""
    said = f"{column}: {one.name} {shown(figures[0], digits)} {sign} {two.name} {shown(figures[1], digits)}"
    if column not in one.paper or column not in two.paper:
        return f"{said}: not in the paper{reason and '; ' + reason}"
    theirs = relation(one.paper[column], two.paper[column])
    paper = f"{shown(one.paper[column], digits)} {theirs} {shown(two.paper[column], digits)}"
    if not reason:
        reason = "agrees" if sign == theirs else "contradicts"
        if "≈" in (sign, theirs):
            reason = "within the deviations; not decided" if sign == "≈" else "the paper does not decide it"
    return f"{said}: {reason} (paper: {paper})"


def relation(one: tuple[float, ...], two: tuple[float, ...]) -> str:
    """``<``, ``>``, or ``≈`` if the deviations do not decide.

    Args:
        one: A mean, and its standard deviation if known.
        two: The same.
    """
    deviation = math.hypot(*one[1:], *two[1:])
    difference = two[0] - one[0]
    if difference == 0 or abs(difference) <= 2 * deviation:
        return "≈"
    return "<" if difference > 0 else ">"
