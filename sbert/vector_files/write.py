"""Writing vectors while texts are read: part by part, so that memory stays flat and a killed call goes on.

A part is a window of texts, whose borders depend on the texts alone, so that its bytes do not depend on interruptions.
While one window is computed, a thread stores the one before.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from operator import length_hint
from pathlib import Path
from typing import Any, cast

import numpy as np

from sbert.inputs.vectors import Array
from sbert.pipeline.compute import Execute, encode_texts, encode_windows
from sbert.pipeline.progress import Report
from sbert.pipeline.quantization import PRECISIONS, Codes
from sbert.pipeline.run import Encoding, run_here
from sbert.saving import verification
from sbert.storage.files import UnreadableError, checksum
from sbert.storage.folders import check_local
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
    open_manifest,
    output_of,
    shard_of,
)
from sbert.vector_files.reader import InputWindow, Reader, Shard, check_shard, rows_of_shard

# Texts of a window: many, as the model waits while the first of them are tokenized. A killed call loses what it has
# computed of one window, so on a CPU, larger models have fewer: all-MiniLM-L6-v2 2,048, BERT-base 1,024.
_WINDOW, _WINDOW_ACCELERATOR = 1 << 15, 1 << 16
_WEIGHTS_OF_WINDOW = 1 << 36
# Settings of a call that the vectors depend on.
_SETTINGS = ("prompt", "truncate_dim", "normalize", "precision", "batch_size")


def write_vectors(
    job: Encoding,
    execute: Execute,
    sentences: Any,
    out: str | os.PathLike[str],
    overwrite: bool = False,
    shard: Shard | None = None,
    show: bool | None = None,
) -> Codes | VectorFiles:
    """Write the vectors of sentences to a file.

    Args:
        job: The model and the settings of the call.
        execute: What computes the windows.
        sentences: As in ``encode``; with columns to keep, a ``Texts``.
        out: A .npy or .parquet file.
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
    path = _target(out, shard)
    keep = tuple(getattr(sentences, "keep", ()))
    kind = FORMATS[path.suffix]
    if keep and not kind.has_columns:
        raise ValueError(f"out={os.fspath(out)!r} has no room for the columns {', '.join(keep)}; name a .parquet file")
    dim = encode_texts(job, [], quiet=True, execute=execute).shape[1]
    dtype = np.dtype(PRECISIONS[job.settings.precision])
    form = kind(dim, dtype, keep)
    size = _WINDOW_ACCELERATOR
    if job.device.type == "cpu":
        weights = sum(part.numel() for part in job.model.parameters())
        size = max(1, min(_WINDOW, _WEIGHTS_OF_WINDOW // max(1, weights)) // stripes.STRIPE) * stripes.STRIPE
    header = {**_header(job), "dim": dim, "columns": [*keep], "window": size}
    header |= {"stripe": stripes.STRIPE, "shard": [*part]}
    reader = Reader(sentences, size, part)
    hint = length_hint(sentences, -1)
    total = None if hint < 0 else hint  # Of some texts, only reading tells.
    with Report(job, total if total is None else rows_of_shard(total, part), show) as report:
        if shard is not None:
            report.what = f"{report.what} of shard {part[0]}/{part[1]}"
        _File(job, execute, form, path, report).write(reader, header, overwrite)
    files = VectorFiles([path])
    return files if kind.has_columns else cast("Codes", next(files.parts()))


def _target(out: str | os.PathLike[str], shard: Shard | None) -> Path:
    """The file to write."""
    check_local("out", out)
    path = output_of(out)
    if path.suffix not in FORMATS or path.is_dir():
        name = f"out={os.fspath(out)!r}" + (", a link," if os.path.islink(out) else "")
        raise ValueError(f"{name} is not the name of a file that ends in {' or '.join(FORMATS)}; pass such a name")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out={os.fspath(out)!r}: the folder {Path(out).parent} does not exist; create it")
    return path if shard is None else shard_of(path, shard)


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

    def write(self, reader: Reader, header: Header, overwrite: bool) -> None:
        """Encode the windows of a reader, and write the file."""
        with open_manifest(self.path, overwrite) as manifest:
            manifest.begin(header)
            if manifest.is_finished():
                self._skip(manifest, reader)
            else:
                self._encode(manifest, reader)
                manifest.verify_parts(len(self.form.head))
                with self.form.complete(manifest) as file:
                    size = file.stat().st_size
                    manifest.finish(Ending(reader.read, reader.input, size, checksum(file)))
            manifest.clean()

    def _skip(self, manifest: Manifest, reader: Reader) -> None:
        """Check that a finished file is that of these texts."""
        for window in reader.windows():
            self.report.skip(len(window.texts))
        end = manifest.ending
        if end and (end.read, end.input) != (reader.read, reader.input):
            raise ValueError(f"{self.path} was written from other texts; write elsewhere, or {REMEDY}")

    def _encode(self, manifest: Manifest, reader: Reader) -> None:
        """Store the windows that are not yet on the disk, behind those that are."""
        if manifest.parts or manifest.ending:
            manifest.verify_parts(len(self.form.head))
        end = manifest.parts[-1].end if manifest.parts else len(self.form.head)
        waiting: deque[InputWindow] = deque()
        texts = self._new_texts(reader.windows(), manifest, waiting)
        ahead = int(self.execute is not run_here)  # Workers of a pool have something to do meanwhile.
        coming = encode_windows(self.job, texts, self.report, self.execute, ahead)
        truncated = self.report.truncated
        with manifest.partial.open("r+b" if manifest.parts else "w+b") as file:
            file.write(self.form.head)
            file.truncate(end)
            file.seek(end)
            with ThreadPoolExecutor(1) as thread, closing(coming) as results:
                storing: Future[Any] = thread.submit(int)
                for vectors in results:
                    window, count = waiting.popleft(), self.report.truncated - truncated
                    truncated += count
                    storing.result()
                    storing = thread.submit(self._store, file, manifest, window, vectors.numpy(), count)
                storing.result()

    def _new_texts(
        self, windows: Iterator[InputWindow], manifest: Manifest, waiting: deque[InputWindow]
    ) -> Iterator[list[str]]:
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
            yield window.texts

    def _store(self, file: Any, manifest: Manifest, window: InputWindow, vectors: Array, truncated: int) -> None:
        block, end = self.form.block(vectors, window.columns), file.tell()
        if os.fstat(file.fileno()).st_size != end:
            raise UnreadableError(manifest.partial, "was changed by another program while it was written", REMEDY)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        rows = manifest.rows + len(window.texts)
        manifest.add(PartEntry(rows, file.tell(), zlib.crc32(block), window.read, window.input, truncated))
