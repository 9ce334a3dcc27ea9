"""Encoding by a pool: windows of texts go to its workers, vectors and counts come back in the order of the texts."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

import torch
from torch import Tensor

from sbert.inputs.arguments import check_positive, warn
from sbert.pipeline.encode import Encoding, SavedRows
from sbert.pipeline.pool.processes import Processes
from sbert.pipeline.pool.workers import Order
from sbert.pipeline.progress import Counts, Report

Item = TypeVar("Item")
# Texts of a window: many batches, and little beside the time that they take. An accelerator is faster.
_TEXTS, _TEXTS_ACCELERATOR = 1024, 8192
_CHARACTERS = 1 << 22  # Of a window, unless its first text has more.


def text_windows(items: Iterable[Item], size: int, characters: int = _CHARACTERS) -> Iterator[list[Item]]:
    """Texts or pairs in windows of ``size``, fewer if they have more characters; at least one window, maybe empty.

    Example:
        >>> list(text_windows(["One.", "Two.", "A long sentence.", "Four."], size=3, characters=20))
        [['One.', 'Two.'], ['A long sentence.'], ['Four.']]
    """
    window: list[Item] = []
    room, made = characters, False
    for item in items:
        length = len(item) if isinstance(item, str) else sum(map(len, item))  # type: ignore[call-overload]
        if window and (len(window) == size or length > room):
            yield window
            window, room, made = [], characters, True
        window.append(item)
        room -= length
    if window or not made:
        yield window


def _plain(item: Any) -> Any:
    """A text or a pair, as ``str``: a class of the caller's own may be unknown to a worker."""
    return str.__str__(item) if isinstance(item, str) else tuple(map(str.__str__, item))


def encode_window(
    model: Any,
    method: str,
    settings: tuple[tuple[Any, ...], dict[str, Any]],
    items: list[Any],
    reporting: tuple[int, str, int | None, str],
) -> tuple[Any, Counts, list[str]]:
    """What a worker does: the result of a method of an ``Encoding``, what its report has counted, and warnings.

    Args:
        model: The worker's model.
        method: Name of the method of ``Encoding``.
        settings: Arguments of the class behind the model.
        items: Texts or pairs of the window.
        reporting: Number of rows before the window, ``on_truncate``, the limit in tokens, and the name of the rows.
    """
    before, on_truncate, limit, what = reporting
    if model.max_seq_length != limit:
        model.max_seq_length = limit
    report = Report(None, False, on_truncate, limit, what, rows=before)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = getattr(Encoding(model, *settings[0], **settings[1]), method)(items, report)
    # Tensors as arrays, which are written to the pipe as they are.
    found = [part.cpu().numpy() for part in found] if isinstance(found, list) else found.numpy()
    return found, report.counts(), [str(warning.message) for warning in caught]


class PooledEncoding(Encoding):
    """An encoding whose windows are computed by a pool.

    Args:
        pool: The pool; its model is that of this call.
        size: Number of texts per window. Default: from the devices and the number of texts alone.
        model: As in the class that is computed in the workers; with all other arguments.
    """

    def __init__(self, pool: Processes, size: int | None, model: Any, *args: Any, **settings: Any) -> None:
        pool.check(model)
        self._pool, self._size = pool, check_positive("chunk_size", size)
        super().__init__(model, *args, **settings)
        self.to = model.device if settings.get("on_device") else torch.device("cpu")
        self._settings = args, {**settings, "on_device": False}

    @property
    def device(self) -> torch.device:
        """Device that decides about batches and arithmetic: of the workers, not of the caller's model."""
        return self._pool.devices[0]

    @device.setter
    def device(self, device: torch.device) -> None:
        pass

    def _window_size(self, texts: int | None) -> int:
        most = _TEXTS if all(device.type == "cpu" for device in self._pool.devices) else _TEXTS_ACCELERATOR
        share = most if texts is None else -(-texts // (2 * len(self._pool.devices)))
        return self._size or max(1, min(most, share))

    def _parts(self, method: str, windows: Iterable[list[Any]], report: Report) -> Iterator[tuple[list[Any], Any]]:
        """Each window with the result of a method of the workers' encoding for it."""
        sent: deque[list[Any]] = deque()

        def orders() -> Iterator[Order]:
            for window in windows:
                before = report.rows + sum(map(len, sent))
                sent.append(window)
                rows = f"{report.what}[{before}:{before + len(window)}]"
                reporting = before, report.on_truncate, report.limit, report.what
                yield Order(encode_window, (method, self._settings, list(map(_plain, window)), reporting), rows)

        told: set[str] = set()
        for found, counts, messages in self._pool.map(orders()):
            window = sent.popleft()
            report.add(counts)
            report.rows += len(window)
            report.done(len(window))
            for message in messages:
                if message not in told:
                    warn(message)
            told.update(messages)
            yield window, found

    def each(self, runs: Iterable[list[Any]], report: Report, saved: SavedRows | None = None) -> Iterator[Tensor]:  # noqa: ARG002
        """The vectors of each list of texts, in order; the workers are at work on later lists meanwhile."""
        sizes: deque[int] = deque()
        failed: list[Exception] = []

        def windows() -> Iterator[list[Any]]:
            try:
                for run in runs:
                    sizes.append(len(run))
                    yield from text_windows(run, self._window_size(len(run)))
            except Exception as error:
                failed.append(error)  # What was read before is encoded.

        parts = self._parts("vectors", windows(), report)
        for window, first in parts:
            found = torch.empty((sizes.popleft(), first.shape[1]), dtype=torch.from_numpy(first).dtype)
            found[: len(window)] = torch.from_numpy(first)
            done = len(window)
            while done < len(found):
                window, part = next(parts)
                found[done : done + len(window)] = torch.from_numpy(part)
                done += len(window)
            yield found.to(self.to)
        if failed:
            raise failed[0]

    def vectors(self, texts: Iterable[Any], report: Report, saved: SavedRows | None = None) -> Tensor:  # noqa: ARG002
        """The vectors of texts, which are read only as far ahead as the workers need. Shape: (texts, dim)."""
        runs = [texts] if isinstance(texts, list) else text_windows(texts, self._window_size(None))
        found = list(self.each(runs, report))
        return found[0] if len(found) == 1 else torch.cat(found)

    def token_embeddings(self, texts: Iterable[str], report: Report) -> list[Tensor]:
        """One float32 tensor (tokens, dim) per text, on the device of the model."""
        size = self._window_size(len(texts) if isinstance(texts, Sized) else None)
        parts = self._parts("token_embeddings", text_windows(texts, size), report)
        return [torch.from_numpy(row).to(self.model.device) for _, found in parts for row in found]
