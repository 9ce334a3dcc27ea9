"""What a caller is told while sentences are encoded: progress, texts that were cut, vectors that are no numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

# A bar for fewer texts would be gone before it was read.
_BAR_FROM = 2000
_FINITE_ROWS = 8192
TRUNCATION = ("warn", "ignore", "error")


def progress_bar(show: bool | None, **options: Any) -> Any:
    """A bar of tqdm; None where there is to be none. Where ``show`` is None, it appears if somebody looks on."""
    if show is False:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A notebook without widgets gets a bar of text.
        from tqdm.auto import tqdm

        return tqdm(disable=False if show else None, **options)


class Report:
    """A bar that counts sentences, and one warning for all the sentences that were cut.

    Args:
        total: Number of sentences, if it is known.
        show: Whether there is a bar; where it is None, from 2,000 sentences on, on a terminal or in a notebook.
        on_truncate: ``"warn"``, ``"ignore"`` or ``"error"``.
        limit: Longest input in tokens.
        what: What the caller calls the rows.
    """

    def __init__(
        self, total: int | None, show: bool | None, on_truncate: str, limit: int | None, what: str = "sentences"
    ) -> None:
        self.on_truncate, self.limit, self.what = on_truncate, limit, what
        self.rows = self.cut = 0
        if show is None and total is not None and total < _BAR_FROM:
            show = False
        self._bar = progress_bar(show, total=total, unit=f" {what}", desc="Encoding")

    def cut_rows(self, rows: np.ndarray, sentences: int) -> None:
        """Take note of which rows of this window are too long, and of how many sentences that is with their repeats.

        Raises:
            ValueError: If there are any, and they count as an error.
        """
        if len(rows) and self.on_truncate == "error":
            raise ValueError(
                f"{self.what}[{self.rows + int(rows[0])}] has more than max_seq_length={self.limit} tokens;"
                " split what is too long, or pass on_truncate='warn'"
            )
        self.cut += sentences

    def done(self, sentences: int) -> None:
        """Count so many more sentences as encoded."""
        if self._bar is not None:
            self._bar.update(sentences)

    def __enter__(self) -> Report:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is None and self.cut and self.on_truncate == "warn":
            warnings.warn(
                f"{self.cut} of {self.rows} {self.what} were cut to max_seq_length={self.limit} tokens;"
                " pass on_truncate='ignore' to silence or 'error' to refuse",
                stacklevel=3,
            )


def check_finite(vectors: Tensor, before: int, what: str = "the vector of sentences") -> None:
    """Raise a ValueError that names the first row with a NaN or an infinity; ``before`` rows came earlier."""
    for start in range(0, len(vectors), _FINITE_ROWS):  # The check takes several times the memory of what it checks.
        finite = torch.isfinite(vectors[start : start + _FINITE_ROWS]).all(1)
        if not finite.all():
            row = before + start + int((~finite).nonzero()[0])
            raise ValueError(f"{what}[{row}] is not finite; check the weights, or use dtype='float32' if they are half")
