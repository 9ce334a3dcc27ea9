"""Writing vectors to files while texts are read: window by window, so that memory stays flat and a killed call goes on.

The source of the vectors is ``job.each(runs, report)``: lists of texts in, their vectors out, in order. It may read
ahead. While it computes one window, a thread stores the one before.
"""

from __future__ import annotations

import io
import json
import os
import time
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from sbert.inputs.vectors import Array
from sbert.pipeline.progress import Report
from sbert.pipeline.quantization import PRECISIONS, Codes
from sbert.saving import verification
from sbert.vector_files import stream
from sbert.vector_files.files import VectorFiles
from sbert.vector_files.fingerprint import digest_of_model
from sbert.vector_files.formats import Format, Npy, Parquet
from sbert.vector_files.journal import (
    FORMAT,
    REMEDY,
    DamagedError,
    Header,
    Journal,
    Stored,
    check_header,
    open_journal,
    telling_a_full_disk,
)
from sbert.vector_files.manifests import (
    Manifest,
    file_of,
    files_of,
    manifest_of,
    place_of,
    read_manifest,
    shard_of,
    write_manifest,
)
from sbert.vector_files.stream import Reader, Shard, Window

# Texts of a window: many, as the model waits while the first of them are tokenized; a killed call does them again.
_WINDOW, _WINDOW_ACCELERATOR = 1 << 15, 1 << 16
# Rows of a file of a folder, a multiple of a stripe.
_FILE_ROWS = 1 << 20


def write(
    job: Any,
    sentences: Any,
    out: str | os.PathLike[str],
    report: Report,
    resume: bool = True,
    shard: Shard | None = None,
) -> Codes | VectorFiles:
    """Write the vectors of sentences to a file or a folder.

    Args:
        job: The ``Encoding`` of the call.
        sentences: As in ``encode``; with columns to keep, a ``Texts``.
        out: A .npy or .parquet file; or a folder: one that exists, or a path that ends in a separator.
        report: Records progress, truncated texts and unknown tokens.
        resume: Whether a call that was interrupted goes on, and files that are finished are kept.
        shard: Which part of the sentences is encoded, (i, n).

    Raises:
        FileNotFoundError: If the folder of the file does not exist.
        OSError: If the disk is full; the message says how to go on.
        RuntimeError: If another process is writing this output.
        ValueError: If an argument is invalid; if the call before had another model, other settings or another input;
            or if what it left is damaged.
    """
    part = stream.check_shard(shard)
    path, in_files = _target(out, shard)
    keep = tuple(getattr(sentences, "keep", ()))
    if keep and path.suffix != ".parquet":
        raise ValueError(f"out={os.fspath(out)!r} has no room for the columns {', '.join(keep)}; name a .parquet file")
    dim = job.vectors([], report).shape[1]
    dtype = np.dtype(PRECISIONS[job.precision])
    form: Format = Parquet(dim, dtype, keep) if path.suffix == ".parquet" else Npy(dim, dtype)
    size = _WINDOW if job.device.type == "cpu" else _WINDOW_ACCELERATOR
    header = {**_header(job), "dim": dim, "columns": keep, "window": size, "stripe": stream.STRIPE, "shard": part}
    header = json.loads(json.dumps(header))
    reader = Reader(stream.rows_with_columns(sentences), size, part)
    if shard is not None:
        report.what = f"{report.what} of shard {part[0]}/{part[1]}"
    if not in_files:
        _File(job, form, path, report).write(reader, None, header, resume, with_manifest=shard is not None)
        files = VectorFiles([path])
        # NumPy maps no file without rows.
        return files if path.suffix == ".parquet" else np.load(path, mmap_mode="r" if len(files) else None)
    return _write_files(partial(_File, job, form), path, reader, header, report, resume)


def _write_files(make: Any, path: Path, reader: Reader, header: Header, report: Report, resume: bool) -> VectorFiles:
    """Write files of ``_FILE_ROWS`` rows to the folder of ``path``; without ``resume``, delete older ones first."""
    for old in [] if resume else reversed(files_of(path)):  # The last one first: a killed call leaves no gap.
        with open_journal(old, resume=False):
            old.unlink(missing_ok=True)
            manifest_of(old).unlink(missing_ok=True)
    for number in count():
        file = make(file_of(path, number), report)
        file.write(reader, _FILE_ROWS, {**header, "file": number}, resume, with_manifest=True)
        if reader.ended:
            break
    files = [file_of(path, each) for each in range(number + 1)]
    for later in set(files_of(path)) - set(files):
        raise ValueError(f"{later} is of an input with more rows than this one; delete it, or pass resume=False")
    return VectorFiles(files)


def _target(out: str | os.PathLike[str], shard: Shard | None) -> tuple[Path, bool]:
    """The file to write, and whether it stands for several files in its folder."""
    path, folder = place_of(out)
    if path.suffix not in (".npy", ".parquet"):
        name = f"out={os.fspath(out)!r}" + (", a link," if os.path.islink(out) else "")
        raise ValueError(f"{name} does not end in .npy or .parquet; name such a file, or a folder that ends in /")
    above = path.parent.parent if folder else path.parent
    if not above.is_dir():
        raise FileNotFoundError(f"out={os.fspath(out)!r}: the folder {Path(out).parent} does not exist; create it")
    path.parent.mkdir(exist_ok=True)
    return (path, folder) if shard is None else (shard_of(path, shard), False)


def _header(job: Any) -> Header:
    """What the bytes of the output depend on, beside the input."""
    ranges = None if job.ranges is None else sha256(np.asarray(job.ranges, np.float32).tobytes()).hexdigest()
    return {
        "format": FORMAT,
        "model": digest_of_model(job.model),
        "prompt": job.prompt,
        "truncate_dim": job.truncate_dim,
        "normalize": job.normalize,
        "precision": job.precision,
        "ranges": ranges,
        "max_seq_length": job.model.max_seq_length,
        "deterministic": job.deterministic,
        "batch_tokens": job.batch_tokens,
        "batch_size": job.batch_size,
        "dtype": str(job.inference.dtype),
        "device": job.device.type,
        **{f"version of {name}": version for name, version in verification.versions().items()},
    }


class _File:
    """One file that is being written.

    Args:
        job: The encoding.
        form: Format of the file.
        path: The file.
        report: Records progress.
    """

    def __init__(self, job: Any, form: Format, path: Path, report: Report) -> None:
        self.job, self.form, self.path, self.report = job, form, path, report
        self.start: int = form.begin(io.BytesIO())  # Number of bytes before the first window.

    def write(self, reader: Reader, most: int | None, header: Header, resume: bool, with_manifest: bool) -> None:
        """Encode the windows of a reader, up to ``most`` rows, and write the file."""
        remedy = "what was encoded is kept: free some space and make the same call again, which goes on from there"
        with telling_a_full_disk(self.path, remedy), open_journal(self.path, resume) as journal:
            if with_manifest and resume and not journal.header and self.path.exists():
                self._skip(reader, most, header)
                return
            journal.begin(header)
            with self._opened(journal) as file:
                rows = self._encode(reader.windows(most), journal, file)
            self.form.finish(journal, self.start, self.path)
            if with_manifest:
                write_manifest(self.path, Manifest.of(self.path, header, rows, reader))
            journal.remove()

    def _skip(self, reader: Reader, most: int | None, header: Header) -> None:
        """Check that a finished file is that of these texts."""
        if not manifest_of(self.path).exists():
            raise ValueError(f"{self.path} has no manifest, and may be yours; move it, or pass resume=False")
        found = read_manifest(self.path)
        check_header(self.path, found.header, header)
        found.check(self.path)
        for window in reader.windows(most):
            self.report.resumed(len(window.texts))
        if (found.read, found.input, found.last) != (reader.read, reader.digest, reader.ended):
            raise ValueError(f"{self.path} was written from other texts; pass resume=False, or delete it")

    @contextmanager
    def _opened(self, journal: Journal) -> Iterator[Any]:
        """The partial file, after the windows that are on the disk."""
        end = journal.windows[-1].end if journal.windows else self.start
        if journal.windows:
            renamed = not journal.partial.exists() and self.path.suffix == ".npy" and self.path.exists()
            if not renamed and not journal.partial.exists():
                raise DamagedError(journal.partial, "is missing")
            journal.verify(self.path if renamed else journal.partial, self.start)
            if renamed:  # The call was killed in its last moment.
                os.replace(self.path, journal.partial)
        with journal.partial.open("r+b" if journal.windows else "w+b") as file:
            if not journal.windows:
                self.form.begin(file)
            file.truncate(end)
            file.seek(end)
            yield file

    def _encode(self, windows: Iterator[Window], journal: Journal, file: Any) -> int:
        """Store the windows that are not yet on the disk; return the number of rows of all."""
        waiting: deque[Window] = deque()

        def texts() -> Iterator[list[str]]:
            for window in self._new(windows, list(journal.windows)):
                waiting.append(window)
                yield window.texts

        rows, truncated, began = 0, self.report.truncated, time.perf_counter()
        with _behind() as store, closing(self.job.each(texts(), self.report)) as found:
            rows = journal.windows[-1].rows if journal.windows else 0
            for vectors in found:
                window, now = waiting.popleft(), time.perf_counter()
                rows += len(window.texts)
                about = Stored(rows, 0, 0, window.read, window.digest, self.report.truncated - truncated, now - began)
                truncated, began = self.report.truncated, now
                store(partial(self._store, file, journal, window, vectors.numpy(), about))
        return journal.windows[-1].rows if journal.windows else 0

    def _new(self, windows: Iterator[Window], done: list[Stored]) -> Iterator[Window]:
        """The windows that are not among those done, after a comparison of these."""
        seen = 0
        for window in windows:
            if seen < len(done):
                if (window.read, window.digest) != (done[seen].read, done[seen].input):
                    raise self._other(done[seen - 1].read if seen else 0)
                self.report.resumed(len(window.texts), done[seen].truncated)
            else:
                yield window
            seen += 1
        if seen < len(done):
            raise self._other(done[seen - 1].read if seen else 0)

    def _other(self, row: int) -> ValueError:
        return ValueError(
            f"from sentences[{row}] on, these are not the texts that {self.path.name} was begun with; pass the same"
            f" texts, or {REMEDY}"
        )

    def _store(self, file: Any, journal: Journal, window: Window, vectors: Array, about: Stored) -> None:
        block = self.form.block(vectors, window.columns)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        journal.add(replace(about, end=file.tell(), crc32=zlib.crc32(block)))


@contextmanager
def _behind() -> Iterator[Any]:
    """A function that runs others in a thread, one after another, each while the caller prepares the next."""
    running: list[Future[None]] = []

    def run(job: Any) -> None:
        if running:
            running.pop().result()
        running.append(pool.submit(job))

    with ThreadPoolExecutor(1, "sbert-write") as pool:
        yield run
        if running:
            running.pop().result()
