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
# Outputs of some texts of a window that are known before it is computed, by their indices among its different texts.
Restored = tuple[Indices, Tensor]
# Elements collected on a GPU before they are copied to the host: one large copy is cheaper than many waits.
_GATHERED = 1 << 22
# Rows that are copied to those of equal texts at a time.
_COPIED = 1 << 16


def encode(
    job: Encoding,
    windows: Iterable[list[Any] | tuple[list[Any], Restored | None]],
    report: Report,
    execute: Execute = run_here,
    ahead: int = 0,
    store: Callable[[Indices, Tensor], object] | None = None,
) -> Generator[Any, None, None]:
    """The outputs of each window: (texts, dim or bytes), or a list of the vectors of the tokens of each text.

    Args:
        job: The model and the settings.
        windows: Texts or pairs; or these and the outputs that are known of them.
        report: Records what happens.
        execute: What computes a window.
        ahead: Number of windows that are given to ``execute`` while one is computed.
        store: Is given the indices and the outputs of each batch.

    Raises:
        InvalidTextError: If an output is not finite, or a text is too long and ``on_truncate="error"``.
        OutOfMemoryError: If the outputs do not fit in memory, or one text alone does not.
    """

    def begin() -> Iterator[tuple[Window, Indices, Restored | None, Results]]:
        start = report.rows
        for item in windows:
            texts, restored = item if isinstance(item, tuple) else (item, None)
            different, first, inverse = unique(texts)
            if not different:  # The output of one text tells the dimension.
                different, first = [("a", "a") if job.model.is_cross_encoder else "a"], np.zeros(1, np.int64)
            counts = np.bincount(inverse, minlength=len(different))
            done = None if restored is None else np.isin(np.arange(len(different)), restored[0])
            window = Window(different, start + first, counts, done)
            yield window, inverse, restored, execute(job, window, report)
            start += len(texts)

    running = begin()
    for window, inverse, restored, results in prefetch(running, ahead) if ahead else running:
        watched = _watch(results, window, restored, report, store)
        try:
            outputs = compute(job, window, watched, report, execute, len(inverse))
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, torch.AcceleratorError):  # Noticed when the host waited.
                explain_device_error(error)
            if isinstance(error, TextTooLargeError) or not is_out_of_memory(error):
                raise
            raise torch.OutOfMemoryError(
                f"{report.what}[{report.rows}:{report.rows + len(inverse)}] do not fit in memory ({one_line(error)});"
                " encode fewer at a time, or write to a file with out="
            ) from error
        report.rows += len(inverse)
        if len(inverse) != len(window.texts):
            outputs = _repeat(outputs, inverse)
        if job.settings.precision != "float32":
            outputs = quantize(outputs, job.settings.precision, job.settings.ranges)
        yield outputs


def encode_texts(
    job: Encoding, texts: list[Any], show: bool | None = False, execute: Execute = run_here, quiet: bool = False
) -> Any:
    """``encode`` of a single window, with a report of its own.

    Args:
        job: The model and the settings.
        texts: The texts or pairs.
        show: Whether to show a progress bar; None for the default.
        execute: What computes them.
        quiet: Whether nothing is reported.
    """
    with Report.silent() if quiet else job.report(len(texts), show) as report:
        (outputs,) = encode(job, [texts], report, execute)
    return outputs


def _watch(
    results: Results,
    window: Window,
    restored: Restored | None,
    report: Report,
    store: Callable[[Indices, Tensor], object] | None,
) -> Results:
    """The outputs that are known, and those that are computed, which are reported and stored."""
    if restored is not None:
        report.advance(int(window.counts[restored[0]].sum()))
        yield restored
    for indices, outputs in results:
        yield indices, outputs
        report.advance(int(window.counts[indices].sum()))
        if store is not None:
            store(indices, outputs)


def compute(job: Encoding, window: Window, results: Results, report: Report, execute: Execute, size: int) -> Any:
    """The outputs of the different texts of a window, all finite; of a tensor, the first of ``size`` rows.

    What leaves the range of half precision is computed again.
    """
    outputs = in_order(results, max(size, len(window.texts)), job.to)
    rows = _not_finite(outputs[: min(size, len(window.texts))])
    if len(rows) and job.inference.settings.dtype != job.dtype:
        half, full = (str(dtype).removeprefix("torch.") for dtype in (job.inference.settings.dtype, job.dtype))
        report.left_range(int(window.counts[rows].sum()), half, full)
        exact, part = job.in_full_precision(), window.select(rows)
        again = in_order(execute(exact, part, Report.silent()), len(rows), job.to)
        if isinstance(outputs, list):
            for row, output in zip(rows.tolist(), again, strict=True):
                outputs[row] = output
        else:
            outputs[torch.from_numpy(rows).to(job.to)] = again
        rows = rows[_not_finite(again)]
    if len(rows):
        kind = "a token's vector" if job.settings.token_embeddings else "the vector"
        what = f"{'the score' if job.model.is_cross_encoder else kind} of {report.what}"
        remedy = " is not finite; check the weights, or use dtype='float32' if they are half"
        raise InvalidTextError(what, int(window.rows[rows[0]]), remedy)
    return outputs


def in_order(results: Results, rows: int, device: torch.device) -> Any:
    """The outputs of batches in the order of the texts: a tensor of ``rows`` rows, or a list.

    If the tensor is on the host, outputs on a GPU are collected there and copied while the next ones are computed.
    """
    result: Any = None
    gathered: list[tuple[Indices, Tensor]] = []
    copying: tuple[Indices, Tensor, Callable[[], object]] | None = None

    def copy() -> None:
        """Start to copy the collected outputs; store those of the copy before."""
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
        if result is None:
            result = torch.empty(rows, *outputs.shape[1:], device=device)
        if outputs.device.type != "cpu" and device.type == "cpu":
            gathered.append((indices, outputs))
            if sum(part.numel() for _, part in gathered) >= _GATHERED:
                copy()
        else:
            result[move(torch.from_numpy(indices), device)] = outputs.to(device)
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
