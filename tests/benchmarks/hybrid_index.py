"""An index of documents by words and meaning: time, memory and size on disk of each operation.

python -m tests.benchmarks.hybrid_index [--documents 1000000] [--words 60] [--folder FOLDER] [--encode]

Documents are random words, as frequent as Zipf's law says, with the metadata {"group": 0 to 9}; vectors are random and
of length 1, or with --encode those of the library's model. They are added by another process, 20,000 per transaction.
Times are of one call. Memory is what is resident after it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sbert import SentenceEncoder
from sbert.search import HybridIndex

GROUPS, BATCH, VOCABULARY = 10, 20_000, 50_000


class RandomVectors(SentenceEncoder):
    """The library's model, with random vectors."""

    def encode_document(self, sentences: Iterable[str], **options: Any) -> Any:
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        rng = np.random.default_rng([len(texts), *texts[0].encode()[:16]])
        vectors = rng.standard_normal((len(texts), 256), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    encode_query = encode_document


def model(encode: bool) -> SentenceEncoder:
    return (SentenceEncoder if encode else RandomVectors)(device="cpu")


def texts(count: int, words: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    ranks = np.minimum(np.exp(rng.random((count, words)) * np.log(VOCABULARY)).astype(int), VOCABULARY)  # p ~ 1 / rank
    return [" ".join(f"w{rank}" for rank in row) for row in ranks.tolist()]


def resident(name: str = "VmRSS") -> int:
    """Bytes in memory now or, as VmHWM, at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def row(what: str, *cells: str) -> None:
    print(f"| {' | '.join([what, *cells])} |", flush=True)


def timed(what: str, call: Callable[[], Any]) -> Any:
    begin, processor = time.perf_counter(), time.process_time()
    result = call()
    seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    row(what, f"{seconds:.3f} s", f"{processor:.3f} s", f"{resident() / 1e6:,.0f} MB")
    return result


def fill(options: argparse.Namespace) -> None:
    index = HybridIndex(model(options.encode), options.folder, language="english")
    spent = [0.0, 0.0]
    for low in range(0, options.documents, BATCH):
        given = texts(min(BATCH, options.documents - low), options.words, low)
        metadata = [{"group": number % GROUPS} for number in range(len(given))]
        begin, processor = time.perf_counter(), time.process_time()
        index.add(given, metadata=metadata)
        spent[0] += time.perf_counter() - begin
        spent[1] += time.process_time() - processor
    row(
        f"add all, {BATCH:,} per call",
        f"{spent[0]:.1f} s",
        f"{spent[1]:.1f} s",
        f"{resident('VmHWM') / 1e6:,.0f} MB at most",
    )


def measure(options: argparse.Namespace) -> None:
    index = timed("open", lambda: HybridIndex(model(options.encode), options.folder))
    assert timed("read all vectors, ids and metadata", lambda: len(index)) == options.documents
    queries = texts(100, 5, options.documents + 1)
    timed("first search by meaning", lambda: index.search(queries[0], by="dense"))
    timed("first search by words", lambda: index.search(queries[0], by="lexical"))
    filters = {"": None, ", one group": {"group": 3}, ", a function": lambda metadata: metadata["group"] == 3}
    for by in ("lexical", "dense", "hybrid"):
        for name, where in filters.items():
            timed(f"1 query by {by}{name}", lambda by=by, where=where: index.search(queries[1], by=by, where=where))
            timed(f"100 queries by {by}{name}", lambda by=by, where=where: index.search(queries, by=by, where=where))
    number = options.documents // 2
    timed("update a document", lambda: index.update(["a new text"], [number]))
    timed("search by meaning after it", lambda: index.search(queries[2], by="dense"))
    timed("search by words after it", lambda: index.search(queries[2], by="lexical"))
    timed("remove a document", lambda: index.remove([number]))
    timed("search by both after it", lambda: index.search(queries[2]))
    timed("add a document", lambda: index.add(["another text"]))
    timed("search by both after it", lambda: index.search(queries[2]))
    size = sum(path.stat().st_size for path in Path(options.folder).iterdir())
    row("on disk; memory at most", f"{size / 1e6:,.0f} MB", "", f"{resident('VmHWM') / 1e6:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=60, help="words per document (60)")
    parser.add_argument("--folder", help="of the index (default: a temporary one)")
    parser.add_argument("--encode", action="store_true", help="encode the documents with the library's model")
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        fill(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = options.folder or f"{folder}/index"
        row(f"{options.documents:,} documents of {options.words} words", "time", "processor time", "memory")
        row(*["---"] * 4)
        command = [sys.executable, "-m", "tests.benchmarks.hybrid_index", *sys.argv[1:], "--fill", "--folder"]
        subprocess.run([*command, options.folder], check=True)
        measure(options)


if __name__ == "__main__":
    main()
