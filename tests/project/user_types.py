"""The types that users get: mypy checks this file with the package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_type

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sbert import CrossEncoder, SentenceEncoder
from sbert.functional import cos_sim, pairwise_similarity
from sbert.pipeline.batcher import Batcher
from sbert.pipeline.results import Encoded, Ranked
from sbert.search import calibrate, dequantize, quantize

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.float32 | np.float16 | np.int8 | np.uint8]
Scores = npt.NDArray[np.float32 | np.float64]


def encoding(model: SentenceEncoder, text: str, texts: Iterable[str], flag: bool, precision: str) -> None:
    assert_type(model.encode(text), Floats)
    assert_type(model.encode(texts, batch_size=8, prompt_name="query", normalize_embeddings=True), Floats)
    assert_type(model.encode_query(texts, truncate_dim=64), Floats)
    assert_type(model.encode_document(texts, out="vectors.npy"), Floats)
    assert_type(model.encode(texts, precision="float16"), Codes)
    assert_type(model.encode(texts, precision="ubinary"), Codes)
    assert_type(model.encode(texts, precision="int8", ranges=calibrate(model.encode(texts))), Codes)
    assert_type(model.encode(texts, precision=precision), Codes)
    assert_type(model.encode(text, convert_to_tensor=True), Tensor)
    assert_type(model.encode_query(texts, convert_to_tensor=True, precision="ubinary"), Tensor)
    assert_type(model.encode(text, convert_to_numpy=False), Encoded)
    assert_type(model.encode(texts, convert_to_numpy=False), Encoded)
    assert_type(model.encode(text, output_value="token_embeddings"), Tensor)
    assert_type(model.encode(texts, output_value="token_embeddings"), list[Tensor])
    assert_type(model.encode(texts, convert_to_tensor=flag), Encoded)
    model.encode(texts, batchsize=8)  # type: ignore[call-overload]
    model.encode(3)  # type: ignore[call-overload]


def batching(batcher: Batcher, text: str, texts: Iterable[str]) -> None:
    assert_type(batcher.encode(text), Floats)
    assert_type(batcher.encode(texts, precision="ubinary", prompt_name="query"), Codes)


def scoring(model: CrossEncoder, pair: tuple[str, str], pairs: Iterable[tuple[str, str]]) -> None:
    assert_type(model.predict(pairs, batch_tokens=100), Floats)
    assert_type(model.predict(pair), np.float32 | Floats)
    assert_type(model.predict(pair, convert_to_tensor=True), Tensor)
    assert_type(model.predict(pairs, convert_to_tensor=True), Tensor)
    assert_type(model.rank("query", ["document"]), list[Ranked])
    model.rank("query", ["document"], k=3)  # type: ignore[call-arg]


def comparing(model: SentenceEncoder, vectors: Floats, doubles: npt.NDArray[np.float64], tensor: Tensor) -> None:
    assert_type(model.similarity(vectors, tensor), Tensor)
    assert_type(model.similarity_pairwise(tensor, tensor), Tensor)
    assert_type(cos_sim(tensor, [[1.0]]), Tensor)
    assert_type(pairwise_similarity(tensor, tensor, "dot"), Tensor)
    assert_type(quantize(tensor, "ubinary"), Tensor)
    assert_type(model.similarity(vectors, vectors), Floats)
    assert_type(model.similarity_pairwise(vectors, vectors), Floats)
    assert_type(cos_sim(vectors, vectors), Floats)
    assert_type(cos_sim(vectors, doubles), Scores)
    assert_type(pairwise_similarity(vectors, vectors, "dot"), Floats)
    assert_type(quantize(vectors, "ubinary"), Codes)
    assert_type(dequantize(vectors, "float32"), Floats)
