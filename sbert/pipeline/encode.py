"""Encoding: deduplicate texts, tokenize them, form batches, run the modules, collect the vectors in order."""

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

# Texts that are tokenized and sorted together: enough for batches of equal length, and little beside the vectors.
_WINDOW = 8192
# Sentences between two writes to a file.
_FILE_WINDOW = 65536


def outputs(model: nn.Sequential, device: torch.device) -> list[Any]:
    """Output of each module for one text: the only way to know it for modules of the caller's own."""
    reader: Any = model[0]
    made = [tokenize(reader, ["a"]).batch(np.arange(1)).to(device)]
    with evaluating(model):
        for module in model:
            made.append(module(made[-1]))
    return made[1:]


def output_dims(model: nn.Sequential, device: torch.device) -> list[int]:
    """Dimension of the output of each module."""
    return [(made.values if isinstance(made, Ragged) else made).shape[-1] for made in outputs(model, device)]


def chained(modules: Iterable[nn.Module], value: Any) -> Any:
    """Apply modules to a batch, in order."""
    for module in modules:
        value = module(value)
    return value


@dataclass(frozen=True)
class Encoding:
    """One call of ``encode``: a model and validated settings.

    Args:
        model: The modules.
        prompt: Text prepended to each text.
        batch_tokens: Maximum number of tokens per batch.
        batch_size: Number of texts per batch, instead of a maximum of tokens.
        dtype: Dtype in which the transformer computes.
        truncate_dim: Dimension to which vectors are truncated.
        normalize: Whether vectors are scaled to length 1.
        precision: Precision of the vectors.
        device: Device of the model.
        to: Device of the vectors.
        ranges: Ranges of the precision int8.
        compiling: Options of ``torch.compile``; None if the transformer is not compiled.
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
        """The context in which transformers run for inference."""
        return Inference(self.dtype, self.compiling)

    def vectors(self, texts: list[str], report: Report) -> Tensor:
        """Vectors of texts. Shape: (texts, dim), or (texts, bytes) for bit precisions."""
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
            nothing = torch.zeros(0, output_dims(self.model, self.device)[-1], device=self.to)
            return quantize(self.finish(nothing), self.precision, self.ranges)
        complete = result.complete()
        again = np.flatnonzero(first[inverse] != np.arange(len(texts)))
        if len(again):
            source = torch.from_numpy(first[inverse[again]]).to(self.to)
            complete[torch.from_numpy(again).to(self.to)] = complete[source]
        check_finite(complete, before)
        return quantize(complete, self.precision, self.ranges)

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """One float32 tensor (tokens, dim) per text, on the device of the model."""
        result: dict[int, Tensor] = {}
        each, once = np.arange(len(texts)), np.ones(len(texts), int)
        for rows, output in self._run(texts, each, once, report, self._token_modules()):
            parts = output.values.float().split(output.lengths.tolist())
            result.update(zip(rows.tolist(), (part.clone() for part in parts), strict=True))
            report.done(len(rows))
        report.rows += len(texts)
        return [result[row] for row in range(len(texts))]

    def to_file(self, texts: Iterator[str], path: str | os.PathLike[str], report: Report) -> np.ndarray:
        """Write the vectors of texts to a .npy file, window by window; return a memory map of it."""
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
        """Run the modules on batches of texts; yield the indices of each batch and its output.

        The next window of texts is tokenized while the model runs. ``first`` and ``counts`` give the first index of
        each text and its number of occurrences, for the report.
        """
        reader: Any = self.model[0]
        starts = range(0, len(texts), _WINDOW)
        windows = (tokenize(reader, texts[start : start + _WINDOW], self.prompt) for start in starts)
        with evaluating(self.model), closing(ahead(windows) if len(starts) > 1 else windows) as tokenized:
            # If all modules run, the model itself is called, so that its hooks run.
            whole = len(modules) == len(self.model)
            forward = self.inference.running(self.model if whole else partial(chained, modules))
            for start, tokens in zip(starts, tokenized, strict=True):
                truncated = start + np.flatnonzero(tokens.truncated)
                report.truncated_rows(first[truncated], int(counts[truncated].sum()))
                report.unknown += tokens.unknown
                batches = plan(tokens.lengths, self.batch_tokens, self.batch_size)
                for rows, output in run(forward, tokens, batches, self.device):
                    yield start + rows, output

    def finish(self, vectors: Tensor) -> Tensor:
        vectors = truncate(vectors.float(), self.truncate_dim)  # (rows, dim)
        return directions(vectors) if self.normalize else vectors

    def _token_modules(self) -> list[nn.Module]:
        """The modules up to the last one that gives one vector per token."""
        made = outputs(self.model, self.device)
        tokens = [number for number, value in enumerate(made, start=1) if isinstance(value, TokenEmbeddings)]
        if not tokens:
            raise ValueError(
                f"{type(self.model[0]).__name__} gives no vectors per token; use output_value='sentence_embedding'"
            )
        return list(self.model)[: tokens[-1]]
