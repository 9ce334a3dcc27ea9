"""What the caller is told while sentences are encoded: progress, truncated texts, vectors that are not finite."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.inputs.arguments import check_choice, warn
from sbert.storage.processes import Lock

_lock = Lock()
# For fewer texts, a bar would disappear before it can be read.
_BAR_FROM = 2000
_FINITE_ROWS = 8192
# The rate in units per second, even below one.
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
# Unknown tokens are reported above this share and from this number on: a rare symbol in a known language is normal.
_UNKNOWN_SHARE, _UNKNOWN_LEAST = 0.05, 3
_UNKNOWN = "unknown tokens"


def progress_bar(show: bool | None, **options: Any) -> Any:
    """A tqdm bar, or None if ``show`` is false. If ``show`` is None, it appears on a terminal or in a notebook."""
    if show is False:
        return None
    return _bars().tqdm(disable=False if show else None, bar_format=_BAR, **options)


def _bars() -> Any:
    """tqdm, imported under a lock: threads that interleave ``catch_warnings`` would disable warnings for good."""
    with _lock:
        if "tqdm.auto" not in sys.modules:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # A notebook without widgets gets a bar of text.
                import_module("tqdm.auto")
    return import_module("tqdm.auto")


@dataclass(frozen=True)
class Unknown:
    """Number of unknown tokens and of all tokens, without special tokens and prompts."""

    count: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, reader: Any, texts: list[str], rows: list[list[int]], prompt_tokens: int | None = None) -> Unknown:
        """Count the unknown tokens of tokenized texts.

        Args:
            reader: First module of an encoder.
            texts: The texts, including the prompt.
            rows: Their token ids.
            prompt_tokens: Number of leading tokens of each row that belong to the prompt or are special.
        """
        leading, trailing = reader.special_tokens
        around = trailing + (leading if prompt_tokens is None else prompt_tokens)
        tokens = sum(map(len, rows)) - around * len(rows)
        if hasattr(reader, "left_out"):
            count = reader.left_out(texts, rows)
            return cls(count, tokens + count)
        number = getattr(reader, "unknown_id", None)
        return cls(0 if number is None else sum(row.count(number) for row in rows), tokens)

    def __add__(self, other: Unknown) -> Unknown:
        return Unknown(self.count + other.count, self.tokens + other.tokens)

    def tell(self, told: set[str], what: str = "sentences") -> None:
        """Warn once per model if the share of unknown tokens is high.

        Args:
            told: Warnings that have been given about the model; updated.
            what: Name of the texts in the warning.
        """
        if self.count < _UNKNOWN_LEAST or self.count <= _UNKNOWN_SHARE * self.tokens or _UNKNOWN in told:
            return
        told.add(_UNKNOWN)
        warn(
            f"{_UNKNOWN}: {self.count / max(self.count, self.tokens):.0%} of the tokens of these {what} are not in the"
            " model's vocabulary, so the model cannot tell them apart; use a model for that language"
        )


# Truncated sentences, unknown tokens, and rows that left the range of a dtype.
Counts = tuple[int, Unknown, tuple[int, str, str] | None]


@dataclass
class Report:
    """A progress bar, and one warning each for truncated sentences and for unknown tokens.

    Args:
        total: Number of sentences, if known.
        show: Whether to show the bar. If None: from 2,000 sentences on, on a terminal or in a notebook.
        on_truncate: ``"warn"``, ``"ignore"`` or ``"error"``.
        limit: Longest input in tokens.
        what: Name of the rows in messages.
        told: Warnings that have been given about the model; None for no warning about unknown tokens.
        rows: Number of sentences that are finished.
        truncated: Number of truncated sentences.
        unknown: Unknown tokens.
        beyond: Number of rows that left the range of a dtype, its name, and that of the dtype used for them.
    """

    total: int | None
    show: bool | None
    on_truncate: str
    limit: int | None
    what: str = "sentences"
    told: set[str] | None = None
    rows: int = 0
    truncated: int = 0
    unknown: Unknown = field(default_factory=Unknown)
    beyond: tuple[int, str, str] | None = None

    def __post_init__(self) -> None:
        check_choice("on_truncate", self.on_truncate, ("warn", "ignore", "error"))
        few = self.total is not None and self.total < _BAR_FROM
        show = False if self.show is None and few else self.show
        self._bar = progress_bar(show, total=self.total, unit=f" {self.what}", desc="Encoding")

    def counts(self) -> Counts:
        """What ``add`` of another report takes."""
        return self.truncated, self.unknown, self.beyond

    def add(self, counts: Counts) -> None:
        """Add what another report has counted, of other rows of the same call."""
        truncated, unknown, beyond = counts
        self.truncated += truncated
        self.unknown += unknown
        if beyond:
            self.left_range(*beyond)

    def truncated_rows(self, rows: npt.NDArray[np.int64], sentences: int) -> None:
        """Record the truncated rows of a window, and their number including duplicates.

        Raises:
            ValueError: If there are any and ``on_truncate="error"``.
        """
        if len(rows) and self.on_truncate == "error":
            raise ValueError(
                f"{self.what}[{self.rows + int(rows[0])}] has more than max_seq_length={self.limit} tokens;"
                " split long texts, or pass on_truncate='warn'"
            )
        self.truncated += sentences

    def left_range(self, rows: int, half: str, full: str) -> None:
        """Record rows that have left the range of the dtype ``half`` and are computed again in the dtype ``full``."""
        if rows:
            count, *_ = self.beyond or (0,)
            self.beyond = count + rows, half, full

    def done(self, sentences: int) -> None:
        """Advance the bar by a number of sentences."""
        if self._bar is not None:
            self._bar.update(sentences)

    def resumed(self, sentences: int, truncated: int = 0) -> None:
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
        if kind is None and self.told is not None:
            self.unknown.tell(self.told, self.what)


def not_finite(vectors: Tensor) -> npt.NDArray[np.int64]:
    """The rows that hold a NaN or an infinity. Shape: (rows,)."""
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(vectors), _FINITE_ROWS):  # The check takes several times the memory of what it checks.
        finite = torch.isfinite(vectors[start : start + _FINITE_ROWS]).all(1)
        if not finite.all():
            found.append(start + np.flatnonzero(~finite.cpu().numpy()))
    return np.concatenate(found)


def check_finite(vectors: Tensor, before: int, what: str) -> None:
    """Raise a ValueError that names the first row with a NaN or an infinity; ``before`` rows precede these."""
    rows = not_finite(vectors)
    if len(rows):
        row = before + int(rows[0])
        raise ValueError(f"{what}[{row}] is not finite; check the weights, or use dtype='float32' if they are half")
