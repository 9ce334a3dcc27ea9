"""The road of a sentence: unique, tokenised, planned, run, and put where it belongs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.backends.select import Inference
from sbert.batch import Ragged, TokenEmbeddings
from sbert.functional import directions, truncate
from sbert.pipeline.batching import plan, unique
from sbert.pipeline.eval_mode import evaluating
from sbert.pipeline.outputs import RowsOfTensor, npy_file
from sbert.pipeline.progress import Report, check_finite
from sbert.pipeline.quantization import PRECISIONS, quantize
from sbert.pipeline.run import ahead, run
from sbert.pipeline.tokenize import tokenize

# Texts that are tokenised and sorted together: enough for batches of one length, and little beside the vectors.
_WINDOW = 8192
# Sentences between two writes to a file.
_FILE_WINDOW = 65536


def outputs(model: nn.Sequential, device: torch.device) -> list[Any]:
    """What each module makes of one text: the only way to know it of the user's own modules."""
    reader: Any = model[0]
    made = [tokenize(reader, ["a"]).batch(np.arange(1)).to(device)]
    with evaluating(model):
        for module in model:
            made.append(module(made[-1]))
    return made[1:]


def widths(model: nn.Sequential, device: torch.device) -> list[int]:
    """Width of each module's output."""
    return [(made.values if isinstance(made, Ragged) else made).shape[-1] for made in outputs(model, device)]


def chained(modules: Iterable[nn.Module], value: Any) -> Any:
    """What modules make of a batch, one behind the other."""
    for module in modules:
        value = module(value)
    return value


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
        ranges: Of the precision int8.
        compiling: Options of ``torch.compile`` for the transformer, if that is wanted.
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
    ranges: Any = None
    compiling: dict[str, Any] | None = None

    @property
    def inference(self) -> Inference:
        """How transformers run."""
        return Inference(self.dtype, self.compiling)

    def vectors(self, texts: list[str], report: Report) -> Tensor:
        """The texts' vectors. Shape: (texts, dim), or what the precision makes of it."""
        before = report.rows
        different, first, inverse = unique(texts)
        counts = np.bincount(inverse, minlength=len(different))
        result: RowsOfTensor | None = None
        for rows, output in self._run(different, first, counts, report, list(self.model)):
            vectors = self.finish(output)
            if result is None:
                result = RowsOfTensor((len(texts), vectors.shape[1]), self.to)
            result.put(first[rows], vectors)
            report.done(int(counts[rows].sum()))
        report.rows += len(texts)
        if result is None:
            nothing = torch.zeros(0, widths(self.model, self.device)[-1], device=self.to)
            return quantize(self.finish(nothing), self.precision, self.ranges)
        complete = result.complete()
        again = np.flatnonzero(first[inverse] != np.arange(len(texts)))
        if len(again):
            source = torch.from_numpy(first[inverse[again]]).to(self.to)
            complete[torch.from_numpy(again).to(self.to)] = complete[source]
        check_finite(complete, before)
        return quantize(complete, self.precision, self.ranges)

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """A float32 tensor (tokens, dim) a text, on the model's device, from the last module that gives tokens."""
        result: dict[int, Tensor] = {}
        each, once = np.arange(len(texts)), np.ones(len(texts), int)
        for rows, output in self._run(texts, each, once, report, self._token_modules()):
            pieces = output.values.float().split(output.lengths.tolist())
            result.update(zip(rows.tolist(), (piece.clone() for piece in pieces), strict=True))
            report.done(len(rows))
        report.rows += len(texts)
        return [result[row] for row in range(len(texts))]

    def to_file(self, texts: Iterator[str], path: str | os.PathLike[str], report: Report) -> np.ndarray:
        """Write the texts' vectors to a .npy file, reading and writing in windows; return a memory map of it."""
        width = self.vectors([], report).shape[1]
        with npy_file(path, width, np.dtype(PRECISIONS[self.precision])) as file:
            while window := list(islice(texts, _FILE_WINDOW)):
                file.append(self.vectors(window, report).numpy())
        # NumPy maps no file without rows.
        vectors: np.ndarray = np.load(path, mmap_mode="r" if file.rows else None)
        return vectors

    def _run(
        self, texts: list[str], first: np.ndarray, counts: np.ndarray, report: Report, modules: list[nn.Module]
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Batches of texts, as indices, with what the modules make of them.

        Windows of texts are tokenised one ahead of the model. ``first`` and ``counts`` say where each text stands
        first and how often, for the report.
        """
        reader: Any = self.model[0]
        starts = range(0, len(texts), _WINDOW)
        windows = (tokenize(reader, texts[start : start + _WINDOW], self.prompt) for start in starts)
        with evaluating(self.model), closing(ahead(windows) if len(starts) > 1 else windows) as tokenized:
            # The model is called where all of it runs, so that its own hooks see it.
            whole = len(modules) == len(self.model)
            forward = self.inference.running(self.model if whole else partial(chained, modules))
            for start, tokens in zip(starts, tokenized, strict=True):
                cut = start + np.flatnonzero(tokens.truncated)
                report.cut_rows(first[cut], int(counts[cut].sum()))
                report.unknown += tokens.unknown
                batches = plan(tokens.lengths, self.batch_tokens, self.batch_size)
                for rows, output in run(forward, tokens, batches, self.device):
                    yield start + rows, output

    def finish(self, vectors: Tensor) -> Tensor:
        vectors = truncate(vectors.float(), self.truncate_dim)  # (rows, dim)
        return directions(vectors) if self.normalize else vectors

    def _token_modules(self) -> list[nn.Module]:
        """The modules up to the last that gives a vector a token."""
        made = outputs(self.model, self.device)
        tokens = [number for number, value in enumerate(made, start=1) if isinstance(value, TokenEmbeddings)]
        if not tokens:
            raise ValueError(
                f"{type(self.model[0]).__name__} gives no vector a token; use output_value='sentence_embedding'"
            )
        return list(self.model)[: tokens[-1]]
