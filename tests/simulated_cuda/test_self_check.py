"""The first use of a model on a GPU: what is wrong, fails or dies there leads to the plain way, with one warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sbert import CrossEncoder, Pooling, SentenceEncoder, Transformer
from sbert.backends import attention, fused
from sbert.pipeline import self_check
from sbert.pipeline.run import Encoding
from sbert.storage.processes import has_died, mark_running
from tests import pairs
from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
TEXTS = ["one boat", "red fox", "two quiet lakes"] * 12
REMEDY = "SBERT_BACKEND=plain"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sbert" / "gpu"


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return SentenceEncoder(folder, device="cpu").encode(TEXTS)


def verdicts(cache: Path) -> list[Any]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in cache.iterdir()]


def is_plain(model: SentenceEncoder) -> bool:
    return model[0].plain_devices == {torch.device("cuda:0")}


def check_plain_with_one_warning(folder: Path, words: str, expected: np.ndarray) -> None:
    """Of a model that is loaded anew, as by the next process."""
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        with pytest.warns(UserWarning, match=f"{words}.*{REMEDY}") as warned:
            np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert len(warned) == 1
        assert is_plain(model)


def test_a_healthy_gpu(folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches are compared, once; another model of this kind needs no check, also in another process."""
    monkeypatch.setattr(self_check, "_COUNTS", (1, 2, 32, 2000))
    compare, calls = self_check.compare, []
    monkeypatch.setattr(self_check, "compare", lambda job: calls.append(job.inference.settings.dtype) or compare(job))
    with simulated():
        for _ in range(2):
            model = SentenceEncoder(folder, device="cuda")
            np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
            assert not is_plain(model)
    assert calls == [torch.bfloat16]
    assert verdicts(cache) == [{"verdict": None}]


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_wrong_vectors(
    dtype: str, folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a backend that is right for the three rows on which it is compared first."""
    attend = fused.attend
    monkeypatch.setattr(self_check, "_COUNTS", (1, 32))
    monkeypatch.setattr(fused, "attend", lambda q, k, v, rows, **o: attend(q, k, v, rows, **o) * (1 + (rows.rows > 9)))
    with simulated():
        model = SentenceEncoder(folder, device="cuda", dtype=dtype)
        with pytest.warns(UserWarning, match=f"vectors differ by .* of their norm from float32.*{REMEDY}"):
            vectors = model.encode(TEXTS, batch_size=32)
        np.testing.assert_allclose(vectors, expected, atol=0.02 if dtype == "auto" else 1e-5)
        assert is_plain(model)
        np.testing.assert_allclose(model.encode(TEXTS, batch_size=32), vectors, atol=1e-5)  # Without a second warning.
        with pytest.warns(UserWarning, match="vectors differ by"):
            SentenceEncoder(folder, device="cuda", dtype=dtype).encode(TEXTS)
    assert "vectors differ" in verdicts(cache)[0]["verdict"]


def test_a_context_that_dies(folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is sticky, so that this process cannot go on; the next one takes the plain way from the start."""
    dead = []

    def dying(function: Any) -> Any:
        def call(query: Any, *others: Any, **options: Any) -> Any:
            if query.is_cuda and (dead or ("rows" not in options and getattr(others[-1], "rows", 0) == 2)):
                dead.append(True)
                raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
            return function(query, *others, **options)

        return call

    with monkeypatch.context() as patches, simulated():
        patches.setattr(fused, "attend", dying(fused.attend))
        patches.setattr(F, "scaled_dot_product_attention", dying(F.scaled_dot_product_attention))
        model = SentenceEncoder(folder, device="cuda")
        with (
            pytest.warns(UserWarning, match=f"illegal memory access.*{REMEDY}"),
            pytest.raises(torch.AcceleratorError, match="illegal memory access"),
        ):
            model.encode(TEXTS)
    check_plain_with_one_warning(folder, "illegal memory access", expected)


def test_a_process_that_dies(folder: Path, cache: Path, expected: np.ndarray) -> None:
    program = f"""
import os, torch
from sbert import SentenceEncoder
from sbert.pipeline import self_check
from sbert.pipeline.run import Encoding
from sbert.storage.processes import has_died, mark_running
from tests.simulated_cuda.simulator import simulated
self_check.compare = lambda job: os._exit(9)
with simulated():
    SentenceEncoder({str(folder)!r}, device="cuda").encode("one")
"""
    died = subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert died.returncode == 9, died.stderr
    assert isinstance(verdicts(cache)[0], int)  # The number of the process.
    check_plain_with_one_warning(folder, "a process died when it used this model", expected)
    assert "a process died" in verdicts(cache)[0]["verdict"]


def test_a_process_with_the_number_of_one_that_died(folder: Path, cache: Path, expected: np.ndarray) -> None:
    """As in a container that starts again: only a marker of this very process is no sign of a death."""
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        path = self_check._path(Encoding(model))
    path.parent.mkdir(parents=True)
    path.write_text(str(os.getpid()), encoding="utf-8")
    assert has_died(path)
    with mark_running(path):
        assert not has_died(path)
    path.parent.mkdir(parents=True)
    path.write_text(str(os.getpid()), encoding="utf-8")
    check_plain_with_one_warning(folder, "a process died when it used this model", expected)


def test_threads_wait_for_the_first_check(folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither returns what the check finds to be wrong; one that was interrupted is repeated."""
    monkeypatch.setattr(fused, "attend", lambda *args, **options: 2 * attention.attend(*args, **options))
    compare, calls = self_check.compare, []

    def slow(job: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        time.sleep(0.2)
        return compare(job)

    monkeypatch.setattr(self_check, "compare", slow)
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        with pytest.raises(KeyboardInterrupt):
            model.encode(TEXTS)
        with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
            warnings.simplefilter("ignore")
            for vectors in pool.map(model.encode, [TEXTS] * 2):
                np.testing.assert_allclose(vectors, expected, atol=0.02)


def test_a_process_that_dies_in_the_kernel_of_training(cache: Path) -> None:
    """The next process trains without it."""
    program = """
import os, torch
from sbert.backends import attention
from tests.simulated_cuda.simulator import simulated
attention._works = lambda *_: os._exit(9)
with simulated():
    attention.has_kernel(torch.bfloat16, torch.device("cuda", 0), 64, training=True)
"""
    died = subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert died.returncode == 9, died.stderr
    words = f"has ended a process; to try it again, remove {cache}.*{REMEDY}"
    with simulated():
        with pytest.warns(UserWarning, match=words):
            assert not attention.has_kernel(torch.bfloat16, torch.device("cuda", 0), 64, training=True)
        assert attention.has_kernel(torch.bfloat16, torch.device("cuda", 0), 64)


def test_where_no_way_is_nearer_the_dtype_is_named(
    folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model for which half precision is too coarse, the plain way would be slower and no better."""
    monkeypatch.setattr(self_check, "_HALF", 1e-6)
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        with pytest.warns(UserWarning, match="in bfloat16 on cuda:0, vectors differ by .*pass dtype='float32'"):
            np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert not is_plain(model)
        SentenceEncoder(folder, device="cuda", dtype="float32").encode(TEXTS)
    assert verdicts(cache) == [{"verdict": None}] * 2


@pytest.mark.parametrize(("setting", "value"), [("fp32_precision", "tf32"), ("allow_tf32", True)])
def test_products_in_tf32_are_allowed_their_error(
    setting: str, value: object, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of torch's two settings allows it: after the newer one, the older cannot be read."""
    monkeypatch.setattr(self_check, "_EXACT", 0.0)
    setattr(torch.backends.cuda.matmul, setting, value)
    try:
        with simulated():
            model = SentenceEncoder(folder, device="cuda", dtype="float32")
            model.encode(TEXTS)
            assert not is_plain(model)
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.backends.cuda.matmul.allow_tf32 = False
    assert verdicts(cache) == [{"verdict": None}]


def test_a_cross_encoder(tmp_path: Path, cache: Path) -> None:
    path, rows = pairs.folder(tmp_path / "cross"), [(text, "a boat") for text in TEXTS]
    scores = CrossEncoder(path, device="cpu").predict(rows)
    with simulated():
        np.testing.assert_allclose(CrossEncoder(path, device="cuda").predict(rows), scores, atol=1e-5)
    assert verdicts(cache) == [{"verdict": None}]


def test_what_cannot_be_copied_is_not_judged(folder: Path, cache: Path, expected: np.ndarray) -> None:
    class Locked(nn.Identity):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot copy a lock")

    with simulated():
        model = SentenceEncoder(Transformer(folder), Pooling(), Locked(), device="cuda")
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert not is_plain(model)


def test_where_memory_is_short_nothing_is_judged(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(job: Any) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(self_check, "compare", full)
    with simulated(), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SentenceEncoder(folder, device="cuda")
        model.encode(TEXTS)
        assert not is_plain(model)
    assert verdicts(cache) == []
