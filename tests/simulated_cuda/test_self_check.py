"""The first use of a model on an accelerator: what is wrong there, fails or dies harms no later process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable
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
from sbert.inputs import devices
from sbert.pipeline import self_check
from sbert.storage.files import is_failure, is_out_of_memory
from tests import pairs
from tests.children import in_child
from tests.simulated_cuda.simulator import simulated
from tests.simulated_cuda.test_pipeline_simulated import overflowing

pytestmark = pytest.mark.simulated_cuda
TEXTS = ["one boat", "red fox", "two quiet lakes"] * 12
REMEDY = "SBERT_BACKEND=plain"
ILLEGAL = "CUDA error: an illegal memory access was encountered"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return SentenceEncoder(folder, device="cpu").encode(TEXTS)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.device, torch.dtype]]:
    """The device and dtype of each comparison."""
    compare, seen = self_check.compare, list[tuple[torch.device, torch.dtype]]()
    monkeypatch.setattr(self_check, "compare", lambda *given: seen.append(given[1:3]) or compare(*given))
    return seen


def stored(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def raises(error: Exception) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


def on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The attention of the library on the CPU, and this function in its place elsewhere."""
    return lambda q, *given, **options: (function if q.is_cuda else attention.attend)(q, *given, **options)


def is_plain(model: SentenceEncoder) -> bool:
    return model[0].plain_devices == {model.device}


def check_next_process(folder: Path, expected: np.ndarray, passed: int, cache: Path, **options: Any) -> SentenceEncoder:
    """A model that is loaded again, as by another process, runs as it should, without a word; passes are stored."""
    with simulated(**options), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SentenceEncoder(folder, device=options.get("kind", "cuda"))
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert not is_plain(model)
    files = stored(cache)
    assert [path.suffix for path in files] == [".passed"] * passed
    return model


def end_in_processes(*functions: Callable[[], object]) -> list[int]:
    """The exit codes of forked processes, one per function, or the negative numbers of the signals that ended them."""

    def start(function: Callable[[], object]) -> int:
        def work() -> None:
            with simulated(), warnings.catch_warnings():
                warnings.simplefilter("error")
                function()

        return in_child(work)

    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in list(map(start, functions))]


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_what_works_is_compared_once(
    kind: str, folder: Path, cache: Path, expected: np.ndarray, checks: list[Any]
) -> None:
    """By the first of all processes; other weights, dtypes and capabilities are compared as well."""
    device, dtype = torch.device(kind, 0), torch.bfloat16 if kind == "cuda" else torch.float32
    check_next_process(folder, expected, 1, cache, kind=kind)
    check_next_process(folder, expected, 1, cache, kind=kind)
    assert checks == [(device, dtype)]
    with simulated(kind=kind):
        model = SentenceEncoder(folder, device=kind)
        with torch.no_grad():
            model[0].auto_model.encoder.layer[0].output.dense.weight += 0.01
        model.encode(TEXTS)
        model.encode(TEXTS)
    assert len(checks) == 2
    if kind == "cuda":
        with simulated([(9, 0), (8, 0)]):
            SentenceEncoder(folder, device="cuda:1").encode(TEXTS)
            SentenceEncoder(folder, device="cuda:1", dtype="float32").encode(TEXTS)
        assert checks[2:] == [(torch.device("cuda:1"), torch.bfloat16), (torch.device("cuda:1"), torch.float32)]


@pytest.mark.parametrize("dtype", ["auto", "float32"])
@pytest.mark.parametrize("wrong", ["rows", "tokens"])
def test_wrong_vectors(
    wrong: str, dtype: str, folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than nine rows, or of one that is long: the plain way with one warning, and nothing is stored."""

    def attend(q: Any, k: Any, v: Any, rows: Any, **options: Any) -> Any:
        there = rows.rows > 9 if wrong == "rows" else rows.longest > 20
        return attention.attend(q, k, v, rows, **options) * (1 + (q.is_cuda and there))

    monkeypatch.setattr(fused, "attend", attend)
    for _ in range(2):
        with simulated():
            model = SentenceEncoder(folder, device="cuda", dtype=dtype)
            with pytest.warns(UserWarning, match=f"differ by .* of their norm from float32.*{REMEDY}") as warned:
                vectors, again = (model.encode(TEXTS, batch_size=32) for _ in range(2))
            np.testing.assert_allclose(again, vectors, atol=1e-5)
            assert len(warned) == 1
            np.testing.assert_allclose(vectors, expected, atol=0.02 if dtype == "auto" else 1e-5)
            assert is_plain(model)
    assert stored(cache) == []


def test_another_gpu_has_a_check(folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose kernels are wrong, where those of the first one are not."""
    monkeypatch.setattr(fused, "attend", on_gpu(lambda q, *x, **o: attention.attend(q, *x, **o) * (1 + q.device.index)))
    with simulated([(9, 0), (8, 0)]):
        model = SentenceEncoder(folder, device="cuda:0")
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        with pytest.warns(UserWarning, match="on cuda:1, vectors in torch.bfloat16 differ"):
            np.testing.assert_allclose(model.to("cuda:1").encode(TEXTS), expected, atol=0.02)


def test_a_first_use_that_fails(
    folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "attend", on_gpu(raises(RuntimeError("a kernel is missing"))))
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        with pytest.warns(UserWarning, match=rf"the first use .* fails \(RuntimeError: a kernel.*{REMEDY}") as warned:
            np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert len(warned) == 1
        assert is_plain(model)
    assert stored(cache) == []


# --------------------------------------------------------------------------------- sequences that have ended badly


@pytest.mark.parametrize("status", ["CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"])
def test_cublas_has_no_memory_at_its_first_use(
    status: str, folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside other programs: no verdict, so that the next call checks; this one goes on with smaller batches."""
    linear, calls = F.linear, list[int]()

    def refused(x: Any, *others: Any, **options: Any) -> Any:
        calls.append(x.is_cuda)
        if x.is_cuda and sum(calls) == 1:
            raise RuntimeError(f"CUDA error: {status} when calling `cublasCreate(handle)`")
        return linear(x, *others, **options)

    with simulated(), warnings.catch_warnings(), monkeypatch.context() as patches:
        warnings.simplefilter("error")
        patches.setattr(F, "linear", refused)
        model = SentenceEncoder(folder, device="cuda")
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert sum(calls) > 1
        assert stored(cache) == []
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert not is_plain(model)
    assert len(stored(cache)) == 1
    check_next_process(folder, expected, 1, cache)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_process_is_ended_during_the_check(
    number: int, folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(self_check, "compare", lambda *_: os.kill(os.getpid(), number))
        assert end_in_processes(lambda: SentenceEncoder(folder, device="cuda").encode(TEXTS)) == [-number]
    assert stored(cache) == []
    check_next_process(folder, expected, 1, cache)


def test_two_processes_at_the_same_time(
    folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each checks, and both store the same."""
    compare = self_check.compare
    barrier = multiprocessing.get_context("fork").Barrier(2)

    def wait_for_both(*given: Any) -> Any:
        barrier.wait(60)
        return compare(*given)

    def encode() -> None:
        np.testing.assert_allclose(SentenceEncoder(folder, device="cuda").encode(TEXTS), expected, atol=0.02)

    monkeypatch.setattr(self_check, "compare", wait_for_both)
    assert end_in_processes(encode, encode) == [0, 0]
    check_next_process(folder, expected, 1, cache)


def test_an_illegal_access_in_the_third_call(
    folder: Path, cache: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised as it is, with the remedy; nothing else is tried in a context that is dead."""
    dead = list[str]()

    def access(name: str, function: Any) -> Any:
        def call(x: Any, *others: Any, **options: Any) -> Any:
            if x.is_cuda and dead:
                dead.append(name)
                raise torch.AcceleratorError(ILLEGAL)
            return function(x, *others, **options)

        return call

    with simulated(), monkeypatch.context() as patches:
        patches.setattr(fused, "attend", access("fused", attention.attend))
        patches.setattr(F, "scaled_dot_product_attention", access("plain", F.scaled_dot_product_attention))
        model = SentenceEncoder(folder, device="cuda")
        for _ in range(2):
            np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        dead.append("the third call")
        for texts in (TEXTS, TEXTS[0]):
            with pytest.raises(torch.AcceleratorError, match=f"^{ILLEGAL}\n.*start it again, with {REMEDY}$"):
                model.encode(texts)
        assert dead == ["the third call", "fused", "fused"]
    check_next_process(folder, expected, 1, cache)


def test_an_illegal_access_in_the_check(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "attend", on_gpu(raises(torch.AcceleratorError(ILLEGAL))))
    with simulated(), pytest.raises(torch.AcceleratorError, match=f"{ILLEGAL}\n.*{REMEDY}"):
        SentenceEncoder(folder, device="cuda").encode(TEXTS)
    assert stored(cache) == []


def test_an_illegal_access_that_the_host_notices_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        model.encode(TEXTS)
        monkeypatch.setattr("sbert.pipeline.compute.start_to_host", raises(torch.AcceleratorError(ILLEGAL)))
        with pytest.raises(torch.AcceleratorError, match=f"{ILLEGAL}\n.*{REMEDY}"):
            model.encode(TEXTS)


KERNELS = {  # What torch is built for, the capability of a GPU, and words of the error.
    "CUDA 13 on a V100": ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (7, 0), "torch 2.10 for CUDA 12.6 .*whl/cu126"),
    "CUDA 12 on a B200": ("sm_70 sm_80 sm_90", (10, 0), "a later version of torch"),
    "exact": ("sm_80 sm_90a", (9, 0), None),
    "a later minor version": ("sm_75 sm_80", (8, 9), None),
    "an earlier minor version": ("sm_75 sm_86", (8, 0), "torch 2.10"),
    "compiled at the first use": ("sm_80 compute_90", (12, 0), None),
    "not compiled for an earlier one": ("sm_80 compute_90", (7, 5), "torch 2.10"),
    "bound to an architecture": ("sm_80 compute_90a", (12, 0), "a later version"),
    "a family": ("sm_100f", (10, 3), None),
    "ROCm": ("gfx90a gfx942", (9, 4), None),
    "unknown": ("", (9, 0), None),
}


@pytest.mark.parametrize("name", KERNELS)
def test_torch_has_no_kernels_for_the_card(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, capability, words = KERNELS[name]
    with simulated(capability):
        monkeypatch.setattr(torch.cuda, "get_arch_list", kinds.split)
        if words is None:
            assert devices.check_device("cuda").type == "cuda"
            return
        given = {"device": "cuda"} if capability == (7, 0) else {}  # The default device is that one.
        number = ".".join(map(str, capability))
        with pytest.raises(ValueError, match=rf"none for .*{number}\); install {words}.*or pass device='cpu'"):
            SentenceEncoder(folder, **given)
        SentenceEncoder(folder, device="cpu").encode("one")


def test_torch_without_cuda_beside_an_nvidia_card(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    if torch.version.cuda is None:
        with pytest.raises(ValueError, match="has an NVIDIA GPU, but this torch is built without CUDA"):
            SentenceEncoder(folder, device="cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert devices.build_hint() is None


def test_a_home_that_cannot_be_written(
    folder: Path, tmp_path: Path, expected: np.ndarray, checks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process checks, without a word."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # Root may write everywhere else.
    for count in (1, 2):
        check_next_process(folder, expected, 0, tmp_path / "cache")
        assert len(checks) == count


# ------------------------------------------------------------------------------------------------ what is compared


def test_float16_that_overflows(folder: Path, cache: Path, checks: list[Any]) -> None:
    """Float32 from then on, with one warning; nothing is computed twice."""
    reference = overflowing(folder, "cpu").encode(TEXTS)
    with simulated((7, 5)):
        model = overflowing(folder, "cuda")
        with pytest.warns(UserWarning, match="exceeds the range of float16, and runs in float32 from now on") as warned:
            vectors = [model.encode(texts) for texts in (TEXTS, TEXTS, TEXTS[0])]
        for part in vectors:
            np.testing.assert_allclose(part, reference if part.ndim == 2 else reference[0], atol=1e-5)
        assert len(warned) == 1
        assert checks == [(model.device, torch.float16), (model.device, torch.float32)]
        assert len(stored(cache)) == 1
    with simulated((9, 0)):  # bfloat16 has the range of float32.
        assert (overflowing(folder, "cuda").encode(TEXTS) * reference).sum(1).min() > 0.999


def test_threads_wait_for_the_first_check(folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither returns what the check finds to be wrong; one that was interrupted is repeated."""
    monkeypatch.setattr(fused, "attend", on_gpu(lambda *given, **options: 2 * attention.attend(*given, **options)))
    compare, calls = self_check.compare, list[int]()

    def slow(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        time.sleep(0.2)
        return compare(*given)

    monkeypatch.setattr(self_check, "compare", slow)
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        with pytest.raises(KeyboardInterrupt):
            model.encode(TEXTS)
        with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
            warnings.simplefilter("ignore")
            for vectors in pool.map(model.encode, [TEXTS] * 2):
                np.testing.assert_allclose(vectors, expected, atol=0.02)
    assert len(calls) == 2


@pytest.mark.parametrize(("setting", "value"), [("fp32_precision", "tf32"), ("allow_tf32", True)])
def test_products_in_tf32_are_allowed_their_error(setting: str, value: object) -> None:
    """Whichever of torch's two settings allows it: after the newer one, the older cannot be read."""
    setattr(torch.backends.cuda.matmul, setting, value)
    try:
        assert self_check.vector_tolerance(torch.float32) == self_check.vector_tolerance(torch.bfloat16)
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.backends.cuda.matmul.allow_tf32 = False
    assert self_check.vector_tolerance(torch.float32) <= 1e-4


@pytest.mark.parametrize(("dtype", "large"), [("float32", False), ("auto", False), ("float32", True)])
def test_a_cross_encoder(
    dtype: str, large: bool, tmp_path: Path, cache: Path, checks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a large one, beside the plain way on its device: no copy is made on the host."""
    path, rows = pairs.folder(tmp_path / "cross"), [(text, "a boat") for text in TEXTS]
    scores = CrossEncoder(path, device="cpu").predict(rows)
    if large:
        monkeypatch.setattr(self_check, "_LARGE", 0)
    with simulated():
        model = CrossEncoder(path, device="cuda", dtype=dtype)
        np.testing.assert_allclose(model.predict(rows), scores, atol=1e-5 if dtype == "float32" else 2e-2)
        assert not model.plain_devices
    assert len(checks) == len(stored(cache)) == 1


def test_what_cannot_be_copied_is_not_judged(folder: Path, cache: Path, expected: np.ndarray) -> None:
    class Locked(nn.Identity):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot copy a lock")

    with simulated():
        model = SentenceEncoder(Transformer(folder), Pooling(), Locked(), device="cuda")
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=0.02)
        assert not is_plain(model)
    assert stored(cache) == []


@pytest.mark.parametrize(("error", "full"), [
    (torch.OutOfMemoryError("HIP out of memory"), True), (RuntimeError("MPS backend out of memory"), True),
    (RuntimeError("CUDA error: out of memory"), True), (RuntimeError("Invalid buffer size: 40 GB"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False), (ValueError("out of memory"), False),
], ids=str)  # fmt: skip
def test_words_for_full_memory(error: Exception, full: bool) -> None:
    assert is_out_of_memory(error) is full
    assert is_failure(error) is not full
