"""Wrong calls of searches and pictures say what was given, what was expected, and the remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sbert.visualization as plotting
from sbert.functional import cos_sim, dot_score, euclidean, pairwise_similarity
from sbert.inputs.arguments import nearest_argument
from sbert.pipeline.quantization import dequantize, quantize
from sbert.search import (
    Index,
    cluster,
    community_detection,
    mine_hard_negatives,
    paraphrase_mining,
    semantic_search,
    topic_words,
)

TEXTS = ["a b", "c d", "e f"]


class Model:
    """Encodes each text as a vector of its own."""

    similarity_fn_name, is_cross_encoder, default_prompt_name = "cosine", False, None

    def encode(self, texts: list[str], **options: Any) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)[[TEXTS.index(text) for text in texts]]

    encode_query = encode_document = encode

    def similarity(self, a: Any, b: Any) -> Any:
        return cos_sim(a, b)


V = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
W, CUBE = V[:, :3], np.zeros((2, 3, 4), np.float32)
CODES = np.zeros((3, 1), np.uint8)
M = Model()
ENCODE = r"pass the result of model\.encode\(texts\)"
NUMBERS = rf"must hold numbers, not text \(.*\); {ENCODE}"
HISTORY: Any = [{"step": 1, "loss": 0.5, "learning_rate": 1e-5}]

# Wrong calls by what they must say: what was given, what was expected, and the remedy.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "two strings": (lambda: cos_sim("a", "b"), rf"a {NUMBERS}"),
    "texts": (lambda: euclidean(TEXTS, TEXTS), rf"a must hold numbers, not text \(\['a b', .*\); {ENCODE}"),
    "none": (
        lambda: cos_sim(V, None),
        f"b must be an array, a tensor or a list of vectors, not of type NoneType; {ENCODE}",
    ),
    "a model": (lambda: cos_sim(M, V), "a must be an array, .* not of type Model"),
    "ragged": (lambda: cos_sim([[1, 2], [3]], V), f"a must hold vectors of the same dim, and they differ; {ENCODE}"),
    "three dims": (
        lambda: cos_sim(CUBE, V),
        rf"a must have the shape \(rows, dim\) or \(dim,\), not \(2, 3, 4\); {ENCODE}",
    ),
    "dims": (
        lambda: cos_sim(V, W),
        "dim 4 and 3 cannot be compared; encode both with the same model and the same truncate_dim",
    ),
    "complex": (lambda: cos_sim(np.ones((2, 3), complex), V), "a must hold real numbers, not complex128"),
    "sparse": (lambda: cos_sim(torch.eye(3).to_sparse(), torch.eye(3)), "a must be a dense tensor"),
    "codes": (lambda: cos_sim(CODES, CODES), r"a must hold floats, not codes of torch.uint8; .*dequantize"),
    "similarity function": (
        lambda: semantic_search(V, V, similarity=dot_score),
        "'dot_score' is unknown; pass one of cosine, .* by its name",
    ),
    "search text": (lambda: semantic_search("a b", V), rf"queries {NUMBERS}"),
    "corpus of texts": (lambda: semantic_search(V, TEXTS), rf"corpus {NUMBERS}"),
    "corpus of one text": (
        lambda: semantic_search(V, "a b"),
        r"corpus='a b' is not a file; pass the path of a \.npy file, or",
    ),
    "list of matrices": (lambda: semantic_search(V, [V, V]), r"corpus must have the shape .* not \(2, 6, 4\)"),
    "search dims": (
        lambda: semantic_search(V, W),
        r"corpus has shape \(\d+, 3\), and the queries are of dim 4; encode both",
    ),
    "rescore dims": (
        lambda: semantic_search(V, V, rescore=W),
        r"rescore has shape \(\d+, 3\), and the queries are of dim 4",
    ),
    "floats for codes": (lambda: semantic_search(V, V, precision="int8"), "codes of torch.float32 are not 'int8'"),
    "ranges": (lambda: semantic_search(V, CODES, ranges="a"), "ranges are 'a'; pass those that calibrate"),
    "top_k": (lambda: semantic_search(V, V, top_k=5.0), r"top_k is 5\.0; pass a whole number"),
    "by place": (
        lambda: semantic_search(V, V, 5, "dot"),
        "takes queries, corpus, top_k by position, and 4 .*similarity=",
    ),
    "mining swapped": (
        lambda: paraphrase_mining(TEXTS, M),
        "must be a SentenceEncoder, not of type list; pass the model first, then",
    ),
    "mining texts": (lambda: paraphrase_mining(TEXTS), rf"vectors {NUMBERS}"),
    "mining a model": (
        lambda: paraphrase_mining(M),
        r"no sentences to encode; pass paraphrase_mining\(model, sentences\)",
    ),
    "mining one text": (lambda: paraphrase_mining(M, "a b c"), "sentences='a b c' is one sentence; pass a list"),
    "mining by a name": (lambda: paraphrase_mining("minilm", TEXTS), "must be a SentenceEncoder, not of type str"),
    "mining both": (
        lambda: paraphrase_mining(V, TEXTS),
        "vectors and sentences were both given; pass the vectors alone",
    ),
    "mining threshold": (lambda: paraphrase_mining(V, threshold="0.5"), "threshold is '0.5'; pass a number"),
    "communities of texts": (lambda: community_detection(TEXTS), rf"vectors {NUMBERS}"),
    "community threshold": (lambda: community_detection(V, "0.5"), "threshold is '0.5'; pass a number"),
    "clusters by place": (lambda: cluster(V, 3), "method=3 is a number; to get 3 clusters, pass clusters=3"),
    "cluster threshold": (lambda: cluster(V, "agglomerative", threshold=5), "threshold=5 is not a cosine; pass -1"),
    "cluster nan": (lambda: cluster(V, "agglomerative", threshold=np.nan), "threshold=nan is no"),
    "cluster seed": (lambda: cluster(V, clusters=2, seed=1.5), "seed is 1.5; pass a whole number"),
    "labels as text": (lambda: topic_words(TEXTS, "abc"), "labels are 'abc'; pass one label per text"),
    "labels between": (lambda: topic_words(TEXTS, [0.5, 1, 1]), r"labels\[0\] is 0\.5; pass integers"),
    "negatives swapped": (
        lambda: mine_hard_negatives([("a b", "c d")], M),
        "not of type list; pass the model first, then pairs",
    ),
    "negatives of one text": (
        lambda: mine_hard_negatives(M, [("a b", "c d")], "e f"),
        "corpus='e f' is one text; pass a list",
    ),
    "no pairs": (lambda: mine_hard_negatives(M, None), r"pairs is None; pass a list of \(anchor, positive\)"),
    "index of ranges": (lambda: Index(precision="int8", ranges=5), "ranges of shape .* do not fit"),
    "index of vectors": (lambda: Index(V), r"dim is array\(.{0,60}; pass a whole number"),
    "add texts": (lambda: Index().add(TEXTS), rf"vectors {NUMBERS}"),
    "add an id": (lambda: Index().add(V, 5), "ids=5 is of type int; pass a list of ids"),
    "code texts": (lambda: quantize(TEXTS, "ubinary"), rf"vectors {NUMBERS}"),
    "decode floats": (lambda: dequantize(V, "ubinary"), "codes of torch.float32 are not 'ubinary'"),
    "decode more": (lambda: dequantize(CODES, "ubinary", dim=100), "dim=100 exceeds the 8 bits of each row"),
    "picture of vectors": (
        lambda: plotting.similarity_heatmap(V, M),
        r"sentences is an array of shape \(6, 4\); pass",
    ),
    "picture swapped": (
        lambda: plotting.similarity_heatmap(M, TEXTS),
        "sentences is of type Model; pass a str, or a list",
    ),
    "map of texts": (lambda: plotting.corpus_map(TEXTS), rf"vectors {NUMBERS}"),
    "map with texts": (
        lambda: plotting.corpus_map(V, TEXTS),
        "path is of type list; pass a file name, and all else by name",
    ),
    "map of letters": (lambda: plotting.corpus_map(V, texts="abcdef"), "texts is of type str; pass a list of str"),
    "curves of numbers": (lambda: plotting.training_curves([0.5]), r"history\[0\] is 0\.5, not an entry of a history"),
    # Names of arguments.
    "n_clusters": (
        lambda: cluster(V, n_clusters=2),
        r"cluster\(\) takes no argument 'n_clusters'; did you mean 'clusters'\?",
    ),
    "corpus_embeddings": (lambda: semantic_search(V, corpus_embeddings=V), "did you mean 'corpus'"),
    "score_function": (lambda: semantic_search(V, V, score_function=dot_score), "did you mean 'similarity'"),
    "query_chunk_size": (
        lambda: semantic_search(V, V, query_chunk_size=10),
        "'query_chunk_size', only queries, corpus, top_k",
    ),
    "k": (lambda: Index().search(V, k=3), r"Index\.search\(\) takes no argument 'k'; did you mean 'top_k'"),
    "name": (lambda: pairwise_similarity(V, V, similarity="dot"), "did you mean 'name'"),
    "dimension": (lambda: cos_sim(V, V, dim=1), r"cos_sim\(\) takes no argument 'dim', only a, b"),
    "curve": (lambda: plotting.training_curves(histori=HISTORY), "did you mean 'history'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_says_what_was_given_and_what_to_pass(name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message) as caught:
        call()
    assert len(str(caught.value)) < 260
    assert " object at 0x" not in str(caught.value)


def test_the_nearest_argument_is_one_that_is_like_it() -> None:
    known = ["queries", "corpus", "top_k", "similarity"]
    assert [nearest_argument(name, known) for name in ("similarty", "topk", "querys", "batch_size")] == [
        "similarity",
        "top_k",
        "queries",
        None,
    ]


def test_a_checked_function_is_still_itself() -> None:
    assert semantic_search.__name__ == "semantic_search"
    assert "top_k" in inspect.signature(semantic_search).parameters
    assert list(inspect.signature(Index).parameters)[:2] == ["dim", "backend"]
