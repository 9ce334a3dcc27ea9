"""Writing vectors while texts are read: part by part, so that memory stays flat and a killed call goes on.

A part is a window of texts, whose borders depend on the texts alone, so that its bytes do not depend on interruptions.
While one window is computed, a thread stores the one before. Of a model that takes seconds for a window, batches of it
are stored meanwhile.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sbert.inputs.texts import length_of
from sbert.inputs.vectors import Array
from sbert.pipeline.batching import Indices
from sbert.pipeline.compute import Execute, KnownOutputs, encode_texts, encode_windows
from sbert.pipeline.progress import Report
from sbert.pipeline.quantization import PRECISIONS, Codes
from sbert.pipeline.run import Encoding, run_here
from sbert.saving import verification
from sbert.storage.files import UnreadableError, checksum
from sbert.vector_files import reader as stripes
from sbert.vector_files.fingerprint import digest_of_model
from sbert.vector_files.formats import FORMATS, Format, VectorFiles
from sbert.vector_files.manifest import (
    FORMAT,
    REMEDY,
    Ending,
    Header,
    Manifest,
    PartEntry,
    file_of,
    files_of,
    open_manifest,
    output_of,
    shard_of,
)
from sbert.vector_files.reader import InputWindow, Reader, Shard, check_shard, rows_of_shard

# Texts of a window: many, as the model waits while the first of them are tokenized.
_WINDOW, _WINDOW_ACCELERATOR = 1 << 15, 1 << 16
# Rows of a file of a folder, a multiple of a stripe.
_FILE_ROWS = 1 << 20
# Seconds after which rows of a part in work are stored.
_SECONDS = 5.0
# Settings of a call that the vectors depend on.
_SETTINGS = ("prompt", "truncate_dim", "normalize", "precision", "batch_size")
# Number of rows and dimension of what follows in a file of a window, and its checksum.
_SAVED = struct.Struct("<III")


def write_vectors(
    job: Encoding,
    execute: Execute,
    sentences: Any,
    out: str | os.PathLike[str],
    overwrite: bool = False,
    shard: Shard | None = None,
    show: bool | None = None,
) -> Codes | VectorFiles:
    """Write the vectors of sentences to a file or a folder.

    Args:
        job: The model and the settings of the call.
        execute: What computes the windows.
        sentences: As in ``encode``; with columns to keep, a ``Texts``.
        out: A .npy or .parquet file; or a folder: one that exists, or a path that ends in a separator.
        overwrite: Whether to start from scratch in any case; else a call that was interrupted goes on, files that are
            finished are kept, and other files are an error.
        shard: Which part of the sentences is encoded, (i, n).
        show: Whether to show a progress bar.

    Raises:
        FileNotFoundError: If the folder of the file does not exist.
        OSError: If the disk is full; the message says how to go on.
        RuntimeError: If another process is writing this output.
        ValueError: If an argument is invalid; if the output is of another model, other settings or another input, or
            no manifest says of what; or if what the call before left is damaged.
    """
    part = check_shard(shard)
    path, in_files = _target(out, shard)
    keep = tuple(getattr(sentences, "keep", ()))
    kind = FORMATS[path.suffix]
    if keep and not kind.has_columns:
        raise ValueError(f"out={os.fspath(out)!r} has no room for the columns {', '.join(keep)}; name a .parquet file")
    dim = encode_texts(job, [], quiet=True, execute=execute).shape[1]
    dtype = np.dtype(PRECISIONS[job.settings.precision])
    form = kind(dim, dtype, keep)
    size = _WINDOW if job.device.type == "cpu" else _WINDOW_ACCELERATOR
    header = {**_header(job), "dim": dim, "columns": [*keep], "window": size}
    header |= {"stripe": stripes.STRIPE, "shard": [*part]}
    total, reader = length_of(sentences), Reader(sentences, size, part)
    with job.report(total if total is None else rows_of_shard(total, part), show) as report:
        if shard is not None:
            report.what = f"{report.what} of shard {part[0]}/{part[1]}"
        if in_files:
            return _write_files(partial(_File, job, execute, form), path, reader, header, report, overwrite)
        _File(job, execute, form, path, report).write(reader, None, header, overwrite)
    files = VectorFiles([path])
    return files if kind.has_columns else cast("Codes", next(files.parts()))


def _write_files(make: Any, path: Path, reader: Reader, header: Header, report: Report, overwrite: bool) -> VectorFiles:
    """Write files of ``_FILE_ROWS`` rows to the folder of ``path``; with ``overwrite``, delete older ones first."""
    for old in reversed(files_of(path)) if overwrite else []:  # The last one first: a killed call leaves no hole.
        with open_manifest(old, overwrite=True):
            old.unlink(missing_ok=True)
    for number in count():
        make(file_of(path, number), report).write(reader, _FILE_ROWS, {**header, "file": number}, overwrite)
        if reader.ended:
            break
    files = [file_of(path, index) for index in range(number + 1)]
    for later in set(files_of(path)) - set(files):
        raise ValueError(f"{later} is of an input with more rows than this one; delete it, or {REMEDY}")
    return VectorFiles(files)


def _target(out: str | os.PathLike[str], shard: Shard | None) -> tuple[Path, bool]:
    """The file to write, and whether it stands for several files in its folder."""
    path, folder = output_of(out)
    if path.suffix not in FORMATS:
        name = f"out={os.fspath(out)!r}" + (", a link," if os.path.islink(out) else "")
        raise ValueError(f"{name} does not end in {' or '.join(FORMATS)}; name such a file, or a folder that ends in /")
    above = path.parent.parent if folder else path.parent
    if not above.is_dir():
        raise FileNotFoundError(f"out={os.fspath(out)!r}: the folder {Path(out).parent} does not exist; create it")
    path.parent.mkdir(exist_ok=True)
    return (path, folder) if shard is None else (shard_of(path, shard), False)


def _header(job: Encoding) -> Header:
    """What the bytes of the output depend on, beside the input."""
    settings = job.settings
    ranges = np.asarray(() if settings.ranges is None else settings.ranges, np.float32)
    return {
        "format": FORMAT,
        "model": digest_of_model(job.model),
        **{name: getattr(settings, name) for name in _SETTINGS},
        "batch_tokens": job.batch_tokens,
        "ranges": sha256(ranges.tobytes()).hexdigest(),
        "max_seq_length": job.model.max_seq_length,
        "dtype": str(job.inference.settings.dtype),
        "device": job.device.type,
        **{f"version of {name}": version for name, version in verification.versions().items()},
    }


class _File:
    """One file that is being written.

    Args:
        job: The model and the settings.
        execute: What computes the windows.
        form: Format of the file.
        path: The file.
        report: Records progress.
    """

    def __init__(self, job: Encoding, execute: Execute, form: Format, path: Path, report: Report) -> None:
        self.job, self.execute, self.form, self.path, self.report = job, execute, form, path, report

    def write(self, reader: Reader, most: int | None, header: Header, overwrite: bool) -> None:
        """Encode the windows of a reader, up to ``most`` rows, and write the file."""
        with open_manifest(self.path, overwrite) as manifest:
            manifest.begin(header)
            if manifest.is_finished():
                self._skip(manifest, reader, most)
            else:
                self._encode(manifest, reader, most)
                manifest.verify_parts(len(self.form.head))
                with self.form.complete(manifest) as file:
                    size = file.stat().st_size
                    manifest.finish(Ending(reader.read, reader.input, size, checksum(file), reader.ended))
            manifest.clean()

    def _skip(self, manifest: Manifest, reader: Reader, most: int | None) -> None:
        """Check that a finished file is that of these texts."""
        for window in reader.windows(most):
            self.report.skip(len(window.texts))
        end = manifest.ending
        if end and (end.read, end.input, end.last) != (reader.read, reader.input, reader.ended):
            raise ValueError(f"{self.path} was written from other texts; write elsewhere, or {REMEDY}")

    def _encode(self, manifest: Manifest, reader: Reader, most: int | None) -> None:
        """Store the windows that are not yet on the disk, behind those that are."""
        if manifest.parts or manifest.ending:
            manifest.verify_parts(len(self.form.head))
        end = manifest.parts[-1].end if manifest.parts else len(self.form.head)
        waiting: deque[InputWindow] = deque()
        saved = SavedWindow(manifest)
        texts = self._new_texts(reader.windows(most), manifest, waiting, saved)
        ahead = int(self.execute is not run_here)  # Workers of a pool have something to do meanwhile.
        store = lambda indices, outputs: saved.add(waiting[0], indices, outputs)  # noqa: E731
        coming = encode_windows(self.job, texts, self.report, self.execute, ahead, store)
        truncated, began = self.report.truncated, time.perf_counter()
        with manifest.partial.open("r+b" if manifest.parts else "w+b") as file:
            file.write(self.form.head)
            file.truncate(end)
            file.seek(end)
            with ThreadPoolExecutor(1) as thread, closing(coming) as results:
                storing: Future[Any] = thread.submit(int)
                for vectors in results:
                    window, now = waiting.popleft(), time.perf_counter()
                    counts = self.report.truncated - truncated, now - began
                    truncated, began = self.report.truncated, now
                    storing.result()
                    storing = thread.submit(self._store, file, manifest, window, vectors.numpy(), counts)
                storing.result()

    def _new_texts(
        self, windows: Iterator[InputWindow], manifest: Manifest, waiting: deque[InputWindow], saved: SavedWindow
    ) -> Iterator[tuple[list[str], KnownOutputs | None]]:
        """The texts of windows that are not among the parts on the disk, after a comparison of these."""
        before = 0
        for part in list(manifest.parts):
            window = next(windows, InputWindow())
            if (window.read, window.input) != (part.read, part.input):
                reason = f"from sentences[{before}] on, these are not the texts that {self.path.name} was begun with"
                raise ValueError(f"{reason}; pass the same texts, or {REMEDY}")
            self.report.skip(len(window.texts), part.truncated)
            before = part.read
        for window in windows:
            waiting.append(window)
            yield window.texts, saved.restore(window)

    def _store(
        self, file: Any, manifest: Manifest, window: InputWindow, vectors: Array, counts: tuple[int, float]
    ) -> None:
        block, end = self.form.block(vectors, window.columns), file.tell()
        if os.fstat(file.fileno()).st_size != end:
            raise UnreadableError(manifest.partial, "was changed by another program while it was written", REMEDY)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        rows = manifest.rows + len(window.texts)
        manifest.add(PartEntry(rows, file.tell(), zlib.crc32(block), window.read, window.input, *counts))


class SavedWindow:
    """Outputs of the window in work, which are stored every few seconds: of a slow model, no more than that is lost.

    What is damaged, or of other texts, is left out: it is computed again.

    Args:
        manifest: The manifest of the file.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._path, self._settings = manifest.window, json.dumps(manifest.header)
        self._waiting: list[tuple[Indices, Tensor]] = []
        self._key, self._end, self._time = b"", 0, time.monotonic()

    def _key_of(self, window: InputWindow) -> bytes:
        return sha256((self._settings + window.input).encode()).digest()

    def restore(self, window: InputWindow) -> KnownOutputs | None:
        """The outputs that were stored of a window, by their indices among its different texts: (n,), (n, dim)."""
        key, data = self._key_of(window), self._path.read_bytes() if self._path.exists() else b""
        if not data.startswith(key):
            return None
        indices, outputs, end = [], [], len(key)
        while len(data) >= (start := end + _SAVED.size):
            count, dim, check = _SAVED.unpack_from(data, end)
            body = data[start : start + count * (8 + 4 * dim)]
            if not count or zlib.crc32(body, dim) != check:
                break
            indices.append(np.frombuffer(body, np.int64, count))
            outputs.append(np.frombuffer(body, np.float32, offset=8 * count).reshape(count, dim))
            end = start + len(body)
        self._key, self._end = key, end
        return (np.concatenate(indices), torch.from_numpy(np.concatenate(outputs))) if indices else None

    def add(self, window: InputWindow, indices: Indices, outputs: Tensor) -> None:
        """Store these outputs of a window, now or some seconds later."""
        if (key := self._key_of(window)) != self._key:
            self._waiting, self._key, self._end, self._time = [], key, 0, time.monotonic()
        self._waiting.append((indices, outputs))
        if time.monotonic() - self._time < _SECONDS:
            return
        rows = np.concatenate([waiting for waiting, _ in self._waiting])
        values = torch.cat([waiting for _, waiting in self._waiting]).float().cpu().numpy()
        body = rows.astype(np.int64).tobytes() + values.tobytes()
        with self._path.open("r+b" if self._end else "w+b") as file:
            file.truncate(self._end)
            file.seek(self._end)
            file.write(b"" if self._end else self._key)
            file.write(_SAVED.pack(*values.shape, zlib.crc32(body, values.shape[1])) + body)
            self._end = file.tell()
        self._waiting, self._time = [], time.monotonic()
