"""Tables of the results beside the paper's, as Markdown and as bar charts."""

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.paper.published import ABSENT, COLUMNS, TITLES, group

AVERAGE = "Avg."
# The only row of Table 1 that is trained on scores.
SCORED = "SBERT-NLI-STSb"


@dataclass
class Row:
    """The figures of a system by column: ours, one per seed, and the paper's, with or without a deviation."""

    name: str
    here: dict[str, list[float]]
    paper: dict[str, tuple[float, ...]] = field(default_factory=dict)
    plain: str = ""  # The name without that of the backbone.

    def __post_init__(self) -> None:
        self.plain = self.plain or self.name.partition(" [")[0]


@dataclass
class Table:
    """Rows of figures, and notes about them."""

    number: int
    title: str
    columns: list[str]
    rows: list[Row]
    digits: int = 2
    notes: list[str] = field(default_factory=list)


def collect(results: list[dict[str, Any]], number: int, rows: list[tuple[str, dict[str, Any]]]) -> Table:
    """Collect the results of a table.

    Args:
        results: Dicts with ``table``, ``system``, ``seed`` and ``figures`` (fractions, except for speeds).
        number: The number of the table.
        rows: Names, with that of the backbone in brackets if there are several, and the paper's figures by column.
    """
    of_table = sorted((result for result in results if result["table"] == number), key=lambda result: result["seed"])
    here: dict[str, dict[str, list[float]]] = {name: {} for name, _ in rows}
    for result in of_table:
        for column, value in result["figures"].items():
            here[result["system"]].setdefault(column, []).append(value * (1 if number == 7 else 100))
    # The paper's speeds on a GPU stand beside ours on a CPU, and the other way round.
    known = [*here.values(), *(paper for name, paper in rows if number == 7 and here[name])]
    columns = [column for column in COLUMNS[number] if any(column in figures for figures in known)]
    measured = [Row(name, here[name], paper) for name, paper in rows if here[name]]
    table = Table(number, TITLES[number], columns, measured, 0 if number == 7 else 2)
    missing = [column for column in COLUMNS[number] if column not in columns]
    if number in (1, 5) and table.rows:
        table.rows = [with_average(row, columns) for row in table.rows]
        table.columns = [*columns, AVERAGE]
        if missing:
            table.notes.append(f"Not there: {', '.join(missing)}. {AVERAGE} is over what is there, in the paper's too.")
    if number == 1 and any(row.name == SCORED for row in table.rows):
        table.notes.append(
            f"{SCORED} was trained on the scores of STSb; the others saw no scores. The paper's Table 1 lacks it."
        )
    if number in ABSENT:
        table.notes.append(f"Rows of the paper's table that are not measured here: {', '.join(ABSENT[number])}")
    return table


def with_average(row: Row, columns: list[str]) -> Row:
    """Add the mean over the columns, for each seed; none if a column is missing."""
    here, paper = dict(row.here), dict(row.paper)
    if all(here.get(column) for column in columns):
        here[AVERAGE] = [statistics.fmean(seed) for seed in zip(*(here[column] for column in columns), strict=True)]
    if all(column in paper for column in columns):
        paper[AVERAGE] = (statistics.fmean(paper[column][0] for column in columns),)
    return Row(row.name, here, paper)


def shown(figures: list[float] | tuple[float, ...], digits: int) -> str:
    """Format a mean, and the deviation if there is one."""
    return " ± ".join(f"{figure:,.{digits}f}" for figure in figures)


def mean_and_deviation(figures: list[float]) -> tuple[float, ...]:
    """Mean and standard deviation over seeds; of one seed, only its value."""
    mean = (statistics.fmean(figures),)
    return (*mean, statistics.stdev(figures)) if len(figures) > 1 else mean


def markdown(table: Table) -> str:
    """The table as Markdown, with the paper's figures in brackets, and ours bold where none is higher."""
    means = {(row.name, column): statistics.fmean(x) for row in table.rows for column, x in row.here.items() if x}
    best = {
        column: max((x for (_, where), x in means.items() if where == column), default=0) for column in table.columns
    }

    def cell(row: Row, column: str) -> str:
        here, paper = row.here.get(column), row.paper.get(column)
        first = shown(mean_and_deviation(here), table.digits) if here else "–"
        if len(table.rows) > 1 and means.get((row.name, column)) == best[column]:
            first = f"**{first}**"
        return f"{first} ({shown(paper, table.digits)})" if paper else first

    lines = [["", *table.columns], ["---", *["---:"] * len(table.columns)]]
    before = ""
    for row in table.rows:
        if (now := group(table.number, row.plain)) != before:
            lines.append([f"*{now}*", *[""] * len(table.columns)])
        lines.append([row.name, *(cell(row, column) for column in table.columns)])
        before = now
    # A vertical bar in a name would end its cell.
    body = "\n".join("| " + " | ".join(part.replace("|", "\\|") for part in line) + " |" for line in lines)
    return "\n\n".join([f"## Table {table.number}: {table.title}", body, *table.notes]) + "\n"


def bars(axis: Any, table: Table, column: str, name: str, shift: float, color: str) -> None:
    """Draw one bar per system: our mean or the paper's figure, with the deviation if there is one."""
    figures = [mean_and_deviation(row.here[column]) if row.here.get(column) else (0.0,) for row in table.rows]
    if name == "paper":
        figures = [row.paper.get(column, (0.0,)) for row in table.rows]
    drawn = axis.barh(
        [place + shift for place in range(len(figures))],
        [figure[0] for figure in figures],
        2 * abs(shift),
        xerr=[figure[1] if len(figure) > 1 else 0 for figure in figures],
        color=color,
        label=name,
        error_kw={"elinewidth": 1},
    )
    digits = min(table.digits, 1)
    axis.bar_label(
        drawn, [f"{figure[0]:,.{digits}f}" if figure[0] else "" for figure in figures], padding=4, fontsize=8
    )


def chart(table: Table, path: Path, columns: list[str]) -> None:
    """Save a bar chart of some columns, ours and the paper's; nothing if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(4.5 * len(columns) + 2.5, 0.55 * len(table.rows) + 1.4), layout="constrained")
    several = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(several, columns, strict=True):
        bars(axis, table, column, "here", -0.2, "tab:blue")
        bars(axis, table, column, "paper", 0.2, "0.7")
        axis.set_title(column, fontsize=10)
        axis.margins(x=0.2)
        if table.number == 7:
            axis.set_xscale("log")  # Word vectors are a hundred times as fast as a transformer.
            axis.set_xlim(left=1)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    several[0].set_yticks(range(len(table.rows)), [row.name for row in table.rows])
    several[0].invert_yaxis()
    several[-1].legend(frameon=False, fontsize=8)
    figure.suptitle(f"Table {table.number}: {table.title}", fontsize=11)
    figure.savefig(path, dpi=150)
