"""With ``deterministic=True``, a text has the same vector to the last bit, whatever it is encoded with."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Dense, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.pipeline.batching import fixed_plan
from tests import pairs, small

WORDS = small.CORPUS[0].split() + small.CORPUS[3].split()
random = np.random.default_rng(0)
TEXTS = [" ".join(random.choice(WORDS, length)) for length in [*random.integers(0, 25, 60), 3, 3, 60, 100]]
PROGRAM = """
import sys, torch, numpy as np
torch.set_num_threads(2)
from sbert import SentenceEncoder
texts = np.load("texts.npy").tolist()[::-1]
for dtype in ("float32", "bfloat16"):
    vectors = SentenceEncoder(device="cpu", dtype=dtype).encode(texts, deterministic=True, batch_size=7)
    np.save(dtype, vectors[::-1])
"""


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest) -> SentenceEncoder:
    return SentenceEncoder(device="cpu", dtype=request.param)


@pytest.fixture(scope="module")
def expected(model: SentenceEncoder) -> np.ndarray:
    return model.encode(TEXTS, deterministic=True)


def test_neighbours_and_order_do_not_matter(model: SentenceEncoder, expected: np.ndarray) -> None:
    half = model.dtype == torch.bfloat16
    np.testing.assert_allclose(expected, model.encode(TEXTS), atol=0.03 if half else 1e-6)
    order = random.permutation(len(TEXTS))
    shuffled = model.encode([TEXTS[row] for row in order], deterministic=True, batch_tokens=50)
    np.testing.assert_array_equal(shuffled, expected[order])
    np.testing.assert_array_equal(model.encode(TEXTS[5:20] * 3, deterministic=True), np.tile(expected[5:20], (3, 1)))
    for row in (0, 7, 60, 62, 63):
        np.testing.assert_array_equal(model.encode(TEXTS[row], deterministic=True), expected[row])


@pytest.mark.slow  # Many calls with each number of threads.
def test_threads_and_their_number_do_not_matter(model: SentenceEncoder, expected: np.ndarray) -> None:
    threads, failed = torch.get_num_threads(), []
    try:
        for number in (2, 3, 1):
            torch.set_num_threads(number)
            with ThreadPoolExecutor(4) as callers:
                found = list(callers.map(lambda start: model.encode(TEXTS[start::8], deterministic=True), range(8)))
            failed += [start for start, vectors in enumerate(found) if (vectors != expected[start::8]).any()]
            assert torch.get_num_threads() == number
            with ThreadPoolExecutor(1) as later:
                assert later.submit(torch.get_num_threads).result() == number
    finally:
        torch.set_num_threads(threads)
    assert not failed


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vectors of every fourth text from another process."""
    folder = tmp_path_factory.mktemp("elsewhere")
    np.save(folder / "texts.npy", TEXTS[3::4])
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, check=True)
    return folder


@pytest.mark.slow  # Only another process starts its threads and lays out its weights anew.
def test_processes_do_not_matter(model: SentenceEncoder, expected: np.ndarray, elsewhere: Path) -> None:
    dtype = str(model.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(np.load(elsewhere / f"{dtype}.npy"), expected[3::4])


def test_every_result(tmp_path: Path) -> None:
    """Truncated, normalized, quantized, after a dense layer, by a module that is watched, and tokens."""
    transformer = Transformer(small.bert(tmp_path / "bert"))
    encoder = SentenceEncoder(transformer, Pooling("mean"), Dense(16, 12, activation="GELU"), Normalize(), device="cpu")
    for watch in (False, True):
        if watch:  # With hooks, there are no copies of the weights.
            transformer.auto_model.register_forward_hook(lambda *_: None)
        for more in (
            {"truncate_dim": 7, "normalize_embeddings": True},
            {"precision": "ubinary"},
            {"prompt": "red "},
            {"output_value": "token_embeddings"},
        ):
            options: dict[str, Any] = {"deterministic": True, "on_truncate": "ignore", **more}
            together = encoder.encode(TEXTS, **options)
            for row in (1, 8, 62):
                np.testing.assert_array_equal(encoder.encode([TEXTS[row]], **options)[0], together[row])


def test_scores_of_pairs(tmp_path: Path) -> None:
    scorer = CrossEncoder(pairs.folder(tmp_path / "scorer"), device="cpu")
    given = list(zip(TEXTS, reversed(TEXTS), strict=True))
    scores = scorer.predict(given, deterministic=True, on_truncate="ignore")
    for row in (0, 9, 30):
        assert scorer.predict(given[row], deterministic=True, on_truncate="ignore") == scores[row]


def test_shapes_depend_on_the_length_alone() -> None:
    """What holds on every device, also where the bits cannot be looked at."""
    shapes: dict[int, set[int]] = {}
    for texts in (1, 3, 100, 1000):
        lengths = random.integers(0, 90, texts)
        plan = fixed_plan(lengths, 64)
        assert sorted(row for rows, _ in plan for row in rows.tolist()) == list(range(texts))
        for rows, batch in plan:
            assert set(rows) == set(batch)
            assert len({*lengths[batch]}) == 1
            shapes.setdefault(int(lengths[rows[0]]), set()).add(len(batch))
    assert all(sizes == {max(1, 64 // max(1, length))} for length, sizes in shapes.items())
