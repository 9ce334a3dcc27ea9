"""From windows of texts or pairs to their outputs, in order: each text once, in range, finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.batch import move, start_to_host
from sbert.inputs.devices import explain_device_error
from sbert.pipeline.batching import Indices, prefetch, unique
from sbert.pipeline.progress import InvalidTextError, Report, TextTooLargeError
from sbert.pipeline.quantization import quantize
from sbert.pipeline.run import Encoding, Results, Window, run_here
from sbert.storage.files import is_out_of_memory, one_line

# Computes the texts of a window: in this process, or in those of a pool.
Execute = Callable[[Encoding, Window, Report], Results]
# Elements collected on a GPU before they are copied to the host: one large copy is cheaper than many waits.
_GATHERED = 1 << 22
# Rows that are copied to those of equal texts at a time.
_COPIED = 1 << 16


def encode_texts(
    job: Encoding, texts: list[Any], show: bool | None = False, execute: Execute = run_here, quiet: bool = False
) -> Any:
    """The outputs of texts or pairs: (texts, dim or bytes), or a list of the vectors of the tokens of each text.

    Args:
        job: The model and the settings.
        texts: The texts or pairs.
        show: Whether to show a progress bar; None for the default.
        execute: What computes them.
        quiet: Whether nothing is reported.

    Raises:
        InvalidTextError: If an output is not finite, or a text is too long and ``on_truncate="error"``.
        OutOfMemoryError: If the outputs do not fit in memory, or one text alone does not.
    """
    with Report(job, len(texts), show, quiet=quiet) as report:
        window = open_window(job, texts, 0)
        return compute(job, window, execute(job, window, report), report, execute)


def encode_windows(
    job: Encoding, windows: Iterable[list[Any]], report: Report, execute: Execute, ahead: int
) -> Generator[Any, None, None]:
    """The outputs of each window of texts, as in ``encode_texts``.

    Args:
        job: The model and the settings.
        windows: Texts or pairs.
        report: Records what happens.
        execute: What computes a window.
        ahead: Number of windows that are given to ``execute`` while one is computed.
    """

    def begin() -> Iterator[tuple[Window, Results]]:
        start = report.rows
        for texts in windows:
            window = open_window(job, texts, start)
            yield window, execute(job, window, report)
            start += len(texts)

    running = begin()
    for window, results in prefetch(running, ahead) if ahead else running:
        yield compute(job, window, results, report, execute)


def open_window(job: Encoding, texts: list[Any], start: int) -> Window:
    """The different texts of some rows of the caller's input, of which ``start`` precede them."""
    different, first, inverse = unique(texts)
    if not different:  # The output of one text tells the dimension.
        different, first = [("a", "a") if job.model.is_cross_encoder else "a"], np.zeros(1, np.int64)
    counts = np.bincount(inverse, minlength=len(different))
    return Window(different, start + first if start else first, counts, inverse)


def compute(job: Encoding, window: Window, results: Results, report: Report, execute: Execute) -> Any:
    """The outputs of all rows of a window. What leaves the range of half precision is computed again."""
    rows, inverse, texts = len(window.inverse), window.inverse, len(window.texts)
    try:
        outputs = collect_outputs(results, max(rows, texts), job.to)
        wrong = _not_finite(outputs if rows == texts else outputs[: min(rows, texts)])
        dtype = job.inference.settings.dtype
        if len(wrong) and dtype != job.dtype:
            report.left_range(int(window.counts[wrong].sum()), dtype, job.dtype)
            part = window.select(wrong)
            again = collect_outputs(execute(job.in_full_precision(), part, Report(job, quiet=True)), len(wrong), job.to)
            if isinstance(outputs, list):
                for row, output in zip(wrong.tolist(), again, strict=True):
                    outputs[row] = output
            else:
                outputs[torch.from_numpy(wrong).to(job.to)] = again
            wrong = wrong[_not_finite(again)]
        if rows != texts:
            outputs = _repeat(outputs, inverse)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, torch.AcceleratorError):  # Noticed when the host waited.
            explain_device_error(error)
        if isinstance(error, TextTooLargeError) or not is_out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(
            f"{report.what}[{report.rows}:{report.rows + rows}] do not fit in memory ({one_line(error)}); encode fewer"
            " at a time, or write to a file with out="
        ) from error
    if len(wrong):
        kind = "a token's vector" if job.settings.token_embeddings else "the vector"
        what = f"{'the score' if job.model.is_cross_encoder else kind} of {report.what}"
        remedy = " is not finite; check the weights, or use dtype='float32' if they are half"
        raise InvalidTextError(what, int(window.rows[wrong[0]]), remedy)
    report.rows += rows
    settings = job.settings
    return outputs if settings.precision == "float32" else quantize(outputs, settings.precision, settings.ranges)


def collect_outputs(results: Iterable[tuple[Indices, Any]], rows: int, device: torch.device) -> Any:
    """The outputs of batches in the order of the texts: a tensor of ``rows`` rows, or a list.

    If the tensor is on the host, outputs on a GPU are collected there and copied while the next ones are computed.
    """
    result: Any = None
    gathered: list[tuple[Indices, Tensor]] = []
    copying: tuple[Indices, Tensor, Callable[[], object]] | None = None

    def copy() -> None:
        """Start to copy the collected outputs; put those of the copy before in their places."""
        nonlocal gathered, copying
        before, copying = copying, None
        if gathered:
            numbers, parts = zip(*gathered, strict=True)
            copying, gathered = (np.concatenate(numbers), *start_to_host(torch.cat(parts))), []
        if before:
            number, host, wait = before
            wait()
            result[torch.from_numpy(number)] = host

    for indices, outputs in results:
        if isinstance(outputs, list):
            result = [None] * rows if result is None else result
            for index, output in zip(indices.tolist(), outputs, strict=True):
                result[index] = output
            continue
        if rows == 1 and outputs.device == device:  # Faster than the same below.
            result = outputs.clone()
            continue
        if result is None:
            result = torch.empty(rows, *outputs.shape[1:], device=device)
        if outputs.device == device:
            result[move(torch.from_numpy(indices), device)] = outputs
        else:
            gathered.append((indices, outputs))
            if sum(part.numel() for _, part in gathered) >= _GATHERED:
                copy()
    while gathered or copying:
        copy()
    return result


def _not_finite(outputs: Any) -> Indices:
    """The rows with a NaN or an infinity. Shape: (rows,)."""
    if isinstance(outputs, Tensor):
        if math.isfinite(outputs.sum().item()):  # The sum of large values may be infinite, too.
            return np.zeros(0, np.int64)
        finite = outputs.isfinite().all(1)
    else:
        finite = torch.tensor([bool(output.isfinite().all()) for output in outputs], dtype=torch.bool)
    return np.flatnonzero(~finite.cpu().numpy())


def _repeat(outputs: Any, inverse: Indices) -> Any:
    """The output of each row from those of the different texts, which come in the order of their first occurrence."""
    if isinstance(outputs, list):
        return [outputs[index].clone() for index in inverse]
    # From the end on, no row is read after it was written.
    for stop in range(len(inverse), 0, -_COPIED):
        part = slice(max(0, stop - _COPIED), stop)
        outputs[part] = outputs[move(torch.from_numpy(inverse[part]), outputs.device)]
    return outputs[: len(inverse)]
