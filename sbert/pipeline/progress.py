"""What the caller is told while sentences are encoded: progress, truncated texts, vectors that are not finite."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from torch import Tensor

from sbert.inputs.arguments import warn
from sbert.pipeline.batching import Rows
from sbert.pipeline.tokenize import Tokens
from sbert.storage.processes import Lock

_lock = Lock()
# For fewer texts, a bar would disappear before it can be read.
_BAR_FROM = 2000
# The rate in units per second, even below one.
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
_COUNT = "{desc}: {n_fmt}{unit} [{elapsed}, {rate_noinv_fmt}{postfix}]"
_UNKNOWN = "unknown tokens"


def progress_bar(show: bool | None, **options: Any) -> Any:
    """A tqdm bar; if ``show`` is None, it appears on a terminal or in a notebook only. Without a total it counts."""
    with _lock, warnings.catch_warnings():  # Threads that interleave these would disable warnings for good.
        warnings.simplefilter("ignore")  # A notebook without widgets gets a bar of text.
        tqdm = import_module("tqdm.auto").tqdm
    form = _COUNT if options.get("total") is None else _BAR
    return tqdm(disable=False if show else None, bar_format=form, dynamic_ncols=True, **options)


def warn_of_unreadable(unreadable: int, rows: int, warned: set[str], what: str) -> None:
    """Warn once per model if it cannot read some texts.

    Args:
        unreadable: Number of texts that cannot be read.
        rows: Number of texts.
        warned: Warnings that have been given about the model; updated.
        what: Name of the texts in the warning.
    """
    if unreadable and _UNKNOWN not in warned:
        warned.add(_UNKNOWN)
        warn(
            f"{_UNKNOWN}: the model cannot read {unreadable} of {rows} {what}: at least half of their tokens are not in"
            " its vocabulary, or single letters of an alphabet that it has no words of; it cannot tell them apart;"
            " use a model for that language"
        )


@dataclass
class Report:
    """A progress bar, and one warning each for truncated sentences and for those that cannot be read.

    Args:
        total: Number of sentences, if known.
        show: Whether to show the bar. If None: from 2,000 sentences on, on a terminal or in a notebook.
        on_truncate: ``"warn"``, ``"ignore"`` or ``"error"``.
        limit: Longest input in tokens.
        what: Name of the rows in messages.
        warned: Warnings that have been given about the model; None for no warning about what it cannot read.
        rows: Number of sentences that are finished.
        truncated: Number of truncated sentences.
        unreadable: Number of sentences that cannot be read.
        beyond: Number of rows that left the range of a dtype, its name, and that of the dtype used for them.
    """

    total: int | None
    show: bool | None
    on_truncate: str
    limit: int | None
    what: str = "sentences"
    warned: set[str] | None = None
    rows: int = 0
    truncated: int = 0
    unreadable: int = 0
    beyond: tuple[int, str, str] | None = None

    def __post_init__(self) -> None:
        few = self.total is not None and self.total < _BAR_FROM
        self._bar = None
        if self.show or (self.show is None and not few):
            self._bar = progress_bar(self.show, total=self.total, unit=f" {self.what}", desc="Encoding")

    @classmethod
    def silent(cls) -> Report:
        """A report that shows and warns of nothing."""
        return cls(None, False, "ignore", None)

    def add(self, other: Report) -> None:
        """Add what another report has counted, of other rows of the same call."""
        self.truncated += other.truncated
        self.unreadable += other.unreadable
        if other.beyond:
            self.left_range(*other.beyond)

    def record(self, tokens: Tokens, first: Rows, counts: Rows) -> None:
        """Count truncated texts, and those that cannot be read.

        Args:
            tokens: The tokens of some different texts.
            first: Index of the first occurrence of each, behind ``rows``.
            counts: Number of occurrences of each.

        Raises:
            ValueError: If a text is truncated and ``on_truncate="error"``.
        """
        self.unreadable += int(counts[tokens.unreadable].sum())
        if tokens.truncated.any():
            if self.on_truncate == "error":
                raise ValueError(
                    f"{self.what}[{self.rows + int(first[tokens.truncated][0])}] has more than"
                    f" max_seq_length={self.limit} tokens; split long texts, or pass on_truncate='warn'"
                )
            self.truncated += int(counts[tokens.truncated].sum())

    def left_range(self, rows: int, half: str, full: str) -> None:
        """Record rows that have left the range of the dtype ``half`` and are computed again in the dtype ``full``."""
        if rows:
            self.beyond = (self.beyond or (0,))[0] + rows, half, full

    def advance(self, sentences: int) -> None:
        """Advance the bar by a number of sentences."""
        if self._bar is not None:
            self._bar.update(sentences)

    def skip(self, sentences: int, truncated: int = 0) -> None:
        """Count sentences that an earlier call has encoded: the bar goes on from there, with the rate of this call."""
        self.rows += sentences
        self.truncated += truncated
        if self._bar is not None and not self._bar.disable:
            done, now = self._bar.n + sentences, time.time()
            vars(self._bar).update(n=done, initial=done, last_print_n=done, start_t=now, last_print_t=now)
            self._bar.refresh()

    def __enter__(self) -> Report:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is None and self.truncated and self.on_truncate == "warn":
            warn(
                f"{self.truncated} of {self.rows} {self.what} were truncated to max_seq_length={self.limit} tokens;"
                " pass on_truncate='ignore' to silence or 'error' to refuse"
            )
        if self.beyond:
            count, half, full = self.beyond
            warn(
                f"{count} of {max(self.rows, self.total or 0)} {self.what} left the range of {half} and were computed"
                f" again in {full}; dtype={full!r} does so from the start"
            )
        if kind is None and self.warned is not None:
            warn_of_unreadable(self.unreadable, max(self.rows, self.total or 0), self.warned, self.what)


def not_finite(vectors: Tensor) -> Rows:
    """The rows that hold a NaN or an infinity. Shape: (rows,)."""
    least, greatest = vectors.aminmax(dim=1)  # Both are NaN if a value is.
    return np.flatnonzero(~(least.isfinite() & greatest.isfinite()).cpu().numpy())


def check_finite(vectors: Tensor, before: int, what: str) -> None:
    """Raise a ValueError that names the first row with a NaN or an infinity; ``before`` rows precede these."""
    rows = not_finite(vectors)
    if len(rows):
        row = before + int(rows[0])
        raise ValueError(f"{what}[{row}] is not finite; check the weights, or use dtype='float32' if they are half")
