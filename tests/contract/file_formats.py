"""The files that the library writes and reads again, one row per format, for ``test_damage``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sbert import CrossEncoder, Dense, Normalize, Pooling, SentenceEncoder, Transformer, WordEmbeddings
from sbert.pipeline.quantization import calibrate
from sbert.search import Index, semantic_search
from tests import pairs, small

TEXTS = ["a small boat", "lake", "", "snow \u2603 \u6587 zzz", "[UNK] [MASK]"]
CORPUS = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)


class FileFormat(NamedTuple):
    """A format.

    Args:
        write: Writes its files to a folder that exists.
        read: What is in the files, as bytes that can be compared.
        has_checksum: Whether any change is noticed; otherwise a number may be another one.
    """

    write: Callable[[Path], Any]
    read: Callable[[Path], bytes]
    has_checksum: bool = False


def _write_encoder(folder: Path) -> None:
    torch.manual_seed(0)
    transformer = Transformer(small.bert(folder.parent / "bert"))
    SentenceEncoder(transformer, Pooling(), Dense(16, 8), Normalize(), device="cpu", prompts={"q": "q: "}).save(folder)


def _write_words(folder: Path) -> None:
    words = WordEmbeddings(["a", "small", "boat", "lake"], torch.eye(4))
    SentenceEncoder(words, Pooling(), Normalize(), device="cpu").save(folder)


def _read_encoder(folder: Path) -> bytes:
    vectors: np.ndarray = SentenceEncoder(folder, device="cpu").encode(TEXTS, on_truncate="ignore")
    assert len(vectors) == len(TEXTS)
    return vectors.tobytes()


def _write_cross_encoder(folder: Path) -> None:
    CrossEncoder(pairs.folder(folder.parent / "plain"), device="cpu").save(folder)


def _read_cross_encoder(folder: Path) -> bytes:
    return CrossEncoder(folder, device="cpu").predict(pairs.PAIRS[:2]).tobytes()


def _index(**options: Any) -> FileFormat:
    def write(folder: Path) -> None:
        index = Index(**options)
        index.add(CORPUS, [f"id {row}" for row in range(40)])
        index.save(folder)

    def read(folder: Path) -> bytes:
        hits = Index.load(folder).search(CORPUS[:3], 5)
        return repr((hits.scores, hits.ids)).encode()

    return FileFormat(write, read, True)


def _write_array(folder: Path) -> None:
    np.save(folder / "vectors.npy", CORPUS)


def _read_array(folder: Path) -> bytes:
    return semantic_search(CORPUS[:3], folder / "vectors.npy", top_k=1).scores.tobytes()


FORMATS: dict[str, FileFormat] = {
    "encoder": FileFormat(_write_encoder, _read_encoder),
    "word vectors": FileFormat(_write_words, _read_encoder),
    "cross-encoder": FileFormat(_write_cross_encoder, _read_cross_encoder),
    "index": _index(precision="int8", ranges=calibrate(CORPUS)),
    "npy": FileFormat(_write_array, _read_array),
}
