"""Wrong calls of searches and pictures say what was given, what was expected, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sbert.visualization as plotting
from sbert.functional import cos_sim, dot_score
from sbert.pipeline.quantization import dequantize
from sbert.search import (
    cluster,
    community_detection,
    paraphrase_mining,
    semantic_search,
)
from sbert.search import mine_hard_negatives as mine

TEXTS = ["a b", "c d", "e f"]


class Model:
    """What the wrong calls pass as a model; none of them encodes anything."""

    similarity_fn_name, is_cross_encoder, default_prompt_name = "cosine", False, None

    def encode(self, texts: list[str], **options: Any) -> np.ndarray:
        raise AssertionError("the call is wrong")

    encode_query = encode_document = similarity = encode


V = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
W, CUBE, ONE, EYE = V[:, :3], np.zeros((2, 3, 4), np.float32), np.ones((1, 2)), np.eye(2)
CODES, INT8, RANGES = np.zeros((3, 1), np.uint8), np.ones((2, 2), np.int8), np.ones((2, 2))
M, PAIRS = Model(), [("a b", "c d")]
ENCODE = r"pass the result of model\.encode\(texts\)"
NUMBERS = rf"must hold numbers, not text \(.*\); {ENCODE}"

# Wrong calls, and what they must say: what was given, what was expected, and the remedy.
TYPES: list[tuple[Callable[[], Any], str]] = [
    (lambda: cos_sim("a", "b"), rf"a {NUMBERS}"),
    (lambda: cos_sim(CODES, CODES), r"a must hold floats, not codes of torch.uint8; .*dequantize"),
    (lambda: semantic_search(INT8, INT8), r"queries must hold floats, not codes of torch.int8; .*dequantize"),
    (lambda: semantic_search("a b", V), rf"queries {NUMBERS}"),
    (lambda: paraphrase_mining(TEXTS, M), "must be a SentenceEncoder, not of type list; pass the model first, then"),
    (lambda: paraphrase_mining(M), r"no sentences to encode; pass paraphrase_mining\(model, sentences\)"),
    (lambda: paraphrase_mining(M, "a b c"), "sentences='a b c' is one sentence; pass a list"),
    (lambda: plotting.similarity_heatmap(V, M), r"sentences is an array of shape \(6, 4\); pass"),
    (lambda: plotting.corpus_map(V, TEXTS), "path is of type list; pass a file name, and all else by name"),
    (lambda: plotting.corpus_map(V, texts="abcdef"), "texts is of type str; pass a list of str"),
    (lambda: mine(M, PAIRS, "e f"), "corpus='e f' is one text; pass a list"),
    (lambda: mine(M, None), r"pairs is None; pass a list of \(anchor, positive\)"),
    (lambda: semantic_search(V, corpus_embeddings=V), "did you mean 'corpus'"),
]
VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: cos_sim(CUBE, V), rf"must have the shape \(rows, dim\) or \(dim,\), not \(2, 3, 4\); {ENCODE}"),
    (lambda: cos_sim(V, W), "dim 4 and 3 cannot be compared; encode both with one model and one trunc"),
    (lambda: semantic_search(V, V, similarity=dot_score), "dot_score at .* is unknown; pass one of"),
    (lambda: semantic_search(V, W), r"corpus has shape \(\d+, 3\), and the queries are of dim 4; encode both"),
    (lambda: semantic_search(V, V, oversample=8), "oversample=8 needs rescore"),
    (lambda: semantic_search(ONE, 1e200 * EYE, similarity="dot"), r"corpus\[0\] is longer than 1e\+150"),
    (lambda: semantic_search(ONE, EYE, ranges=RANGES), "ranges belong to int8, and the corpus is float32; remove"),
    (lambda: community_detection(V, 75), "threshold=75 is not a cosine"),
    (lambda: paraphrase_mining(V, threshold=80), "threshold=80 is not a cosine; pass -1 to 1"),
    (lambda: paraphrase_mining(V, threshold=80, similarity="euclidean"), "negative distances; pass -80 or lower"),
    (lambda: mine(M, PAIRS, min_score=80), "min_score=80 is not a cosine; pass -1 to 1"),
    (lambda: mine(M, PAIRS, max_score=0.5, similarity="manhattan"), "max_score=0.5 is above 0, but scores are neg"),
    (lambda: cluster(V, "kmeans"), "takes clusters"),
    (lambda: cluster(V, "kmeans", clusters=7), "clusters=7 exceeds the 6 vectors"),
    (lambda: mine(M, PAIRS, negatives=5, range_min=6, range_max=10), "leave no room for 5 negatives"),
    (lambda: dequantize(V, "ubinary"), "codes of torch.float32 are not 'ubinary'"),
]
WRONG = [*((TypeError, *call) for call in TYPES), *((ValueError, *call) for call in VALUES)]


@pytest.mark.parametrize(("error", "call", "message"), WRONG)
def test_a_wrong_call_says_what_was_given_and_what_to_pass(
    error: type[Exception], call: Callable[[], Any], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert len(str(caught.value)) < 260
    assert " object at 0x" not in str(caught.value)
