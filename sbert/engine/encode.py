"""The road of a sentence: unique, tokenised, planned, run, and put where it belongs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.batch import Ragged, TokenEmbeddings
from sbert.engine.inference import forwards
from sbert.engine.mode import evaluating
from sbert.engine.plan import plan
from sbert.engine.report import Report, check_finite
from sbert.engine.run import run
from sbert.engine.sinks import NpyFile
from sbert.engine.texts import unique
from sbert.engine.tokenize import Tokens, tokenize
from sbert.functional import truncate
from sbert.quantization import PRECISIONS, quantize

# Sentences between two writes to a file.
_WINDOW = 65536


def widths(model: nn.Sequential, device: torch.device) -> list[int]:
    """Width of each module's output, seen by running one text: true for the user's own modules, too."""
    reader: Any = model[0]
    seen = []
    with evaluating(model):
        value: Any = tokenize(reader, ["a"]).batch(np.arange(1)).to(device)
        for module in model:
            value = module(value)
            seen.append((value.values if isinstance(value, Ragged) else value).shape[-1])
    return seen


@dataclass(frozen=True)
class Encoding:
    """One call of ``encode``: a model, and checked settings.

    Args:
        model: The modules.
        prompt: Stands before each text.
        batch_tokens: Tokens in a batch at most.
        batch_size: Texts in a batch, in place of the budget.
        dtype: Of the transformer's arithmetic.
        truncate_dim: Numbers of each vector to keep.
        normalize: Whether vectors are scaled to length 1.
        precision: Of the vectors.
        device: Where the model is.
        to: Where the vectors go.
    """

    model: nn.Sequential
    prompt: str
    batch_tokens: int
    batch_size: int | None
    dtype: torch.dtype
    truncate_dim: int | None
    normalize: bool
    precision: str
    device: torch.device
    to: torch.device

    def vectors(self, texts: list[str], report: Report) -> Tensor:
        """The texts' vectors. Shape: (texts, dim), or what the precision makes of it."""
        before = report.rows
        different, inverse = unique(texts)
        tokens = self._tokenize(different)
        report.cut_rows(tokens.truncated[inverse])
        # Where each different text stands first, and how often it stands there.
        first = np.full(len(different), len(texts))
        np.minimum.at(first, inverse, np.arange(len(texts)))
        counts = np.bincount(inverse, minlength=len(different))

        result: Tensor | None = None
        for rows, output in self._run(tokens, list(self.model)):
            vectors = self._finish(output)
            if result is None:
                result = torch.empty(len(texts), vectors.shape[1], device=self.to)
            result[self._index(first[rows])] = vectors
            report.done(int(counts[rows].sum()))
        if result is None:
            result = self._finish(torch.zeros(0, widths(self.model, self.device)[-1]))
        again = np.flatnonzero(first[inverse] != np.arange(len(texts)))
        if len(again):
            result[self._index(again)] = result[self._index(first[inverse[again]])]
        check_finite(result, before)
        return quantize(result, self.precision)

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """A float32 tensor (tokens, dim) a text, on the model's device, from the last module that gives tokens."""
        tokens = self._tokenize(texts)
        report.cut_rows(tokens.truncated)
        result: dict[int, Tensor] = {}
        for rows, output in self._run(tokens, self._token_modules()):
            pieces = output.values.float().split(output.lengths.tolist())
            result.update(zip(rows.tolist(), (piece.clone() for piece in pieces), strict=True))
            report.done(len(rows))
        return [result[row] for row in range(len(texts))]

    def to_file(self, texts: Iterator[str], path: str | os.PathLike[str], report: Report) -> np.ndarray:
        """Write the texts' vectors to a .npy file, reading and writing in windows; return a memory map of it."""
        width = self.vectors([], report).shape[1]
        with NpyFile(path, width, np.dtype(PRECISIONS[self.precision])) as file:
            while window := list(islice(texts, _WINDOW)):
                file.append(self.vectors(window, report).numpy())
        # NumPy maps no file without rows.
        vectors: np.ndarray = np.load(path, mmap_mode="r" if file.rows else None)
        return vectors

    def _tokenize(self, texts: list[str]) -> Tokens:
        reader: Any = self.model[0]
        return tokenize(reader, texts, self.prompt)

    def _run(self, tokens: Tokens, modules: Iterable[nn.Module]) -> Iterator[tuple[np.ndarray, Any]]:
        """Batches of rows, with what the modules make of them."""
        batches = plan(tokens.lengths, self.batch_tokens, self.batch_size)
        with evaluating(self.model):
            steps = forwards(modules, self.dtype)

            def forward(value: Any) -> Any:
                for step in steps:
                    value = step(value)
                return value

            yield from run(forward, tokens, batches, self.device)

    def _finish(self, vectors: Tensor) -> Tensor:
        vectors = truncate(vectors.float(), self.truncate_dim)  # (rows, dim)
        return (F.normalize(vectors, dim=1) if self.normalize else vectors).to(self.to)

    def _index(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.to)

    def _token_modules(self) -> list[nn.Module]:
        """The modules up to the last that gives a vector a token."""
        last = 0
        with evaluating(self.model):
            value: Any = self._tokenize(["a"]).batch(np.arange(1)).to(self.device)
            for number, module in enumerate(self.model, start=1):
                value = module(value)
                last = number if isinstance(value, TokenEmbeddings) else last
        if last == 0:
            raise ValueError(
                f"{type(self.model[0]).__name__} gives no vector a token; use output_value='sentence_embedding'"
            )
        return list(self.model)[:last]
