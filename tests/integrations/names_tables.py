"""The tables of names in the page about migrating: python -m tests.integrations.names_tables writes them there."""

from __future__ import annotations

from pathlib import Path

from sbert.integrations.switching import COUNTERPARTS, PARAMETERS

PAGE = Path(__file__).parent.parent.parent / "sbert" / "integrations" / "migrating.md"
SECTION = "\n### "
HEAD = "\n\n| sentence-transformers | how | here |\n|---|---|---|\n"
# The parameters that are listed in a section, by their names here.
KINDS = {"Arguments that change no result": "no effect", "Arguments at their default": "only"}


def rows_of(section: str) -> list[tuple[str, str, str]]:
    """The rows of a section's table."""
    joined = "``, ``".join
    rows = [(f"``{joined(row.names)}``", row.how, row.here) for row in COUNTERPARTS if row.section == section]
    by_reason: dict[tuple[str, str], dict[str, None]] = {}
    for parameter in (parameter for parameter in PARAMETERS if parameter.how == KINDS.get(section)):
        only, name = parameter.how == "only", parameter.names[0]
        shown = f"{parameter.section.rpartition('.')[2]}.{name}" if only else name
        by_reason.setdefault((parameter.default if only else parameter.how, parameter.here), {})[shown] = None
    return rows + [(f"``{joined(names)}``", how, why) for (how, why), names in by_reason.items()]


def with_tables(page: str) -> str:
    """The page with the tables of today at the end of its sections."""
    parts = []
    for part in page.rstrip().split(SECTION):
        text, rows = part.partition(HEAD)[0].rstrip(), rows_of(part.partition("\n")[0])
        lines = "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)
        parts.append(text + (HEAD + lines).replace("``", "`") if rows else text)
    return f"\n{SECTION}".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
