"""What the caller is told while texts are encoded: progress, truncated texts, errors that name a row."""

from __future__ import annotations

import time
import warnings
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch

from sbert.inputs.arguments import warn
from sbert.pipeline.batching import Indices
from sbert.pipeline.tokenize import Tokens

# tqdm warns when it is imported, by transformers, too: a notebook without widgets gets bars of text.
warnings.filterwarnings("ignore", "IProgress not found")
# For fewer texts, a bar would disappear before it can be read.
_BAR_FROM = 2000
# The rate in units per second, even below one.
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
_COUNT = "{desc}: {n_fmt}{unit} [{elapsed}, {rate_noinv_fmt}{postfix}]"
_UNKNOWN = "unknown tokens"


class RowError(Exception):
    """An error of one text.

    Args:
        what: What the texts are called, such as ``"sentences"``.
        row: Its row in the caller's input.
        problem: What is wrong with it and how to correct it, as it follows the row in the message.
    """

    def __init__(self, what: str, row: int, problem: str) -> None:
        super().__init__(what, row, problem)

    def __str__(self) -> str:
        what, row, problem = self.args
        return f"{what}[{row}]{problem}"

    def shift(self, rows: int) -> None:
        """Count the row from ``rows`` rows earlier."""
        what, row, problem = self.args
        self.args = (what, row + rows, problem)


class InvalidTextError(RowError, ValueError):
    """A text is too long, or its output is not finite."""


class TextTooLargeError(RowError, torch.OutOfMemoryError):
    """One text alone does not fit in memory."""


def progress_bar(show: bool | None, **options: Any) -> Any:
    """A tqdm bar; if ``show`` is None, it appears on a terminal or in a notebook only. Without a total it counts."""
    tqdm = import_module("tqdm.auto").tqdm
    form = _COUNT if options.get("total") is None else _BAR
    return tqdm(disable=False if show else None, bar_format=form, dynamic_ncols=True, **options)


def warn_of_unreadable(unreadable: int, rows: int, warned: set[str], what: str) -> None:
    """Warn once per model if some texts consist mostly of unknown tokens.

    Args:
        unreadable: Number of such texts.
        rows: Number of texts.
        warned: Warnings that have been given about the model; updated.
        what: Name of the texts in the warning.
    """
    if unreadable and _UNKNOWN not in warned:
        warned.add(_UNKNOWN)
        warn(
            f"{_UNKNOWN}: {unreadable} of {rows} {what} consist mostly of tokens that are not in the vocabulary of the"
            " model, or of single letters of an alphabet that it has no words of; it cannot tell them apart; use a"
            " model for that language"
        )


class Report(AbstractContextManager["Report"]):
    """A progress bar, and one warning each for truncated texts and for those that consist mostly of unknown tokens.

    Args:
        job: The model and the settings of the call.
        total: Number of texts, if known.
        show: Whether to show the bar. If None: from 2,000 texts on, on a terminal or in a notebook.
        what: Name of the texts in messages. Default: "sentences" or "pairs".
        quiet: Whether nothing is shown, and no warning given.

    ``rows`` is the number of texts that are finished.
    """

    def __init__(
        self, job: Any, total: int | None = None, show: bool | None = False, what: str = "", quiet: bool = False
    ) -> None:
        self.total, self.model, self.quiet = total, job.model, quiet
        self.on_truncate: str = "ignore" if quiet else job.settings.on_truncate
        self.what = what or ("pairs" if job.model.is_cross_encoder else "sentences")
        self.rows = self.truncated = self.unreadable = 0
        self.beyond: tuple[int, Any, Any] | None = None  # Rows that left the range of a dtype, and the dtype for them.
        self._bar: Any = None
        if not quiet and (show or (show is None and not (total is not None and total < _BAR_FROM))):
            self._bar = progress_bar(show, total=total, unit=f" {what}", desc="Encoding")

    def add(self, truncated: int, unreadable: int, beyond: tuple[int, Any, Any] | None) -> None:
        """Add what another report has counted, of other rows of the same call."""
        self.truncated += truncated
        self.unreadable += unreadable
        if beyond:
            self.left_range(*beyond)

    def record(self, tokens: Tokens, rows: Indices, counts: Indices) -> None:
        """Count truncated texts, and those that consist mostly of unknown tokens.

        Args:
            tokens: The tokens of some different texts.
            rows: Row of the first occurrence of each.
            counts: Number of occurrences of each.

        Raises:
            InvalidTextError: If a text is truncated and ``on_truncate="error"``.
        """
        self.unreadable += int(counts[tokens.unreadable].sum())
        if tokens.truncated.any():
            if self.on_truncate == "error":
                remedy = "split long texts, or pass on_truncate='warn'"
                problem = f" has more than max_seq_length={self.model.max_seq_length} tokens; {remedy}"
                raise InvalidTextError(self.what, int(rows[tokens.truncated][0]), problem)
            self.truncated += int(counts[tokens.truncated].sum())

    def left_range(self, rows: int, half: torch.dtype, full: torch.dtype) -> None:
        """Record rows that have left the range of the dtype ``half`` and are computed again in the dtype ``full``."""
        self.beyond = (self.beyond or (0,))[0] + rows, half, full

    def advance(self, counts: Indices, indices: Indices) -> None:
        """Advance the bar by the occurrences of some of the different texts."""
        if self._bar is not None:
            self._bar.update(int(counts[indices].sum()))

    def skip(self, texts: int, truncated: int = 0) -> None:
        """Count texts that an earlier call has encoded: the bar goes on from there, with the rate of this call."""
        self.rows += texts
        self.truncated += truncated
        if self._bar is not None and not self._bar.disable:
            done, now = self._bar.n + texts, time.time()
            vars(self._bar).update(n=done, initial=done, last_print_n=done, start_t=now, last_print_t=now)
            self._bar.refresh()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        rows = max(self.rows, self.total or 0)
        if kind is None and self.truncated and self.on_truncate == "warn":
            warn(
                f"{self.truncated} of {self.rows} {self.what} were truncated to max_seq_length="
                f"{self.model.max_seq_length} tokens; pass on_truncate='ignore' to silence, or split them (chunk= of an"
                " index)"
            )
        if self.beyond and not self.quiet:
            half, full = (str(dtype).removeprefix("torch.") for dtype in self.beyond[1:])
            warn(
                f"{self.beyond[0]} of {rows} {self.what} left the range of {half} and were computed again in {full};"
                f" dtype={full!r} does so from the start"
            )
        if kind is None and self.unreadable and not self.quiet:
            warn_of_unreadable(self.unreadable, rows, self.model._warned, self.what)
