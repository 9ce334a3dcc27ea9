"""The site of guides and reference: docstrings as Markdown, and references that exist."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch

from tests.project import render_site as site

DOCSTRING = """One line.

    v = x / |x|

where x is a vector:

- a list;
- of two.

Args:
    first: A name
        on two lines.
    *others: More.

References:
    One, 2019.
    Two, 2020.

Example:
    >>> 1 + 1
    2

More text.
"""
MARKDOWN = """One line.

```text
v = x / |x|
```

where x is a vector:

- a list;
- of two.

**Args**

- **first**: A name
  on two lines.
- **\\*others**: More.

**References**

- One, 2019.
- Two, 2020.

**Example**

```pycon
>>> 1 + 1
2
```

More text."""


def without_empty_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_docstrings_become_markdown() -> None:
    assert without_empty_lines(site.markdown(DOCSTRING)) == without_empty_lines(MARKDOWN)


def test_fences_stay_as_they_are() -> None:
    text = "Before.\n\n```bash\nsbert --help\n\n    sbert\n```\n\nAfter."
    assert without_empty_lines(site.markdown(text)) == without_empty_lines(text)


def test_what_torch_says_of_its_modules_is_left_out() -> None:
    assert site.markdown(inspect.getdoc(torch.nn.Module.extra_repr) or "") == ""
    assert site.markdown("Set the module in training mode.") != ""


def test_every_name_that_docstrings_mention_exists() -> None:
    assert site.broken() == []


def test_a_name_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text('"""See ``sbert.search.Index``, ``sbert.search.Indes`` and ``sbert.nothing``."""')
    assert [line.split(": ", 2)[2] for line in site.broken(tmp_path)] == [
        "sbert.search.Indes does not exist",
        "sbert.nothing does not exist",
    ]
