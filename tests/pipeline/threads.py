"""Threads that share a model, in a process of its own: should they wait for each other for good, it is ended.

python -m tests.pipeline.threads sbert|sentence_transformers [CALLS] [FOLDER]

Prints how many of the calls gave other vectors than alone, how many raised, and whether the model is still in training
mode. FOLDER is of a model; by default, a small one is made: the smaller it is, the more often threads meet. Calls of
sentence-transformers share the state of the tokenizer: of 100, some twenty give wrong vectors.
"""

from __future__ import annotations

import faulthandler
import importlib
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests import small

THREADS, SECONDS = 16, 120
PROMPTS = ["", "query: ", "passage: ", "Represent this sentence for searching: "]
WORDS = "red fox boat lake under seven green hills where nobody rows before the long winter".split()

Job = tuple[str, int, list[str]]


def jobs(count: int) -> list[Job]:
    """As many different calls as there are to be: a prompt, a length, and one to three texts of 1 to 12 words."""
    rng = random.Random(0)
    made = []
    for _ in range(count):
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

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(call, range(len(calls))))
    return results.count("wrong"), results.count("raised")


def main(library: str, count: str = "100", folder: str = "") -> None:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    sys.setswitchinterval(1e-4)  # Threads take turns 50 times as often as they would.
    torch.set_num_threads(1)  # Sixteen callers with threads of their own each wait for each other for minutes.
    kind = "SentenceEncoder" if library == "sbert" else "SentenceTransformer"
    model = getattr(importlib.import_module(library), kind)(
        folder or str(small.bert(Path(tempfile.mkdtemp()))), device="cpu"
    )
    model.train()
    calls = jobs(int(count))
    expected = [model.encode(texts, prompt=prompt) for prompt, _, texts in calls]
    print(*wrong(model, calls, expected), all(module.training for module in model.modules()))


if __name__ == "__main__":
    main(*sys.argv[1:])
