"""ONNX Runtime and OpenVINO in place of the fused forward: the same vectors, from a file of these weights alone."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from sbert.backends import engines, state_of
from sbert.backends.state import ModelState
from sbert.cli.diagnosis import diagnose
from sbert.saving import verification
from sbert.vector_files.fingerprint import digest_of_model
from tests import small
from tests.backends.test_families import build

pytestmark = pytest.mark.slow  # torch traces the models; no cheaper test runs what was traced.
for package in ("onnx", "onnxscript", "onnxruntime", "openvino"):
    pytest.importorskip(package, reason=f"{package} is not installed", exc_type=ImportError)
TEXTS = [text[:90] for text in small.TEXTS]


@pytest.fixture(autouse=True)
def opened(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of threads of each file that an engine opens, in a cache of the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    calls, original = list[int](), engines._open
    monkeypatch.setattr(engines, "_open", lambda choice, threads: (calls.append(threads), original(choice, threads))[1])
    return calls


def distance(vectors: Any, folder: Path, texts: Any = TEXTS) -> float:
    """Largest difference from the vectors of torch."""
    return float(np.abs(vectors - SentenceEncoder(folder, device="cpu").encode(texts)).max())


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "modernbert", "qwen3", "t5-encoder"])
@pytest.mark.parametrize("backend", engines.ENGINES)
def test_vectors_are_those_of_torch(backend: str, family: str, tmp_path: Path, opened: list[int]) -> None:
    """Texts together, and one by one."""
    model = SentenceEncoder(build(family, tmp_path, limit=62), backend=backend)
    assert distance(model.encode(TEXTS), tmp_path) <= 2e-6
    assert distance([model.encode(text) for text in TEXTS], tmp_path) <= 2e-6
    assert opened == [1]


def test_what_is_kept_serves_all(folder: Path, opened: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next load, threads, other numbers of threads, forked children; large batches stay in torch."""
    SentenceEncoder(folder, backend="onnx")
    monkeypatch.setattr(engines, "write_onnx", None)
    model = SentenceEncoder(folder, backend="onnx")
    torch.set_num_threads(2)
    model.encode("lake")
    with monkeypatch.context() as patch:
        patch.setattr(engines, "running", {1, 2})  # Beside another call, a text takes one thread.
        assert distance(model.encode("lake"), folder, "lake") <= 1e-6
    torch.set_num_threads(1)
    with ThreadPoolExecutor(8) as threads:
        assert distance(list(threads.map(model.encode, TEXTS)), folder) <= 1e-6
    assert opened == [2, 1]
    child = os.fork()
    if not child:
        os._exit(int(distance(model.encode("lake"), folder, "lake") > 1e-6))
    assert os.waitpid(child, 0)[1] == 0
    monkeypatch.setattr(engines.Engine, "_run", None)
    assert distance(model.encode(TEXTS), folder) <= 1e-6


def test_other_weights_run_in_torch(folder: Path, tmp_path: Path) -> None:
    model, changed = SentenceEncoder(folder, backend="onnx"), tmp_path / "changed"
    with torch.no_grad():
        model[0].auto_model.encoder.layer[1].output.dense.weight.mul_(1.5)
    with pytest.warns(UserWarning, match="torch runs the model, not onnx: weights changed"):
        model.save(changed)
    (changed / "onnx").mkdir()
    shutil.copy(model[0].engine.file, changed / "onnx" / "model.onnx")
    file = changed / "onnx" / "model.onnx"
    with pytest.warns(UserWarning, match=f"in the engine its vectors differ by .*; torch runs it; delete .*{file}"):
        assert distance(SentenceEncoder(changed, backend="onnx").encode(TEXTS), changed) <= 1e-6
    file.with_name("model_int8.onnx").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=r"it fails in the engine .*; torch runs it; delete .*model_int8\.onnx"):
        damaged = SentenceEncoder(changed, backend="onnx", model_kwargs={"file_name": "model_int8.onnx"})
    assert diagnose(damaged)["dtype"].startswith("float32")


@pytest.mark.parametrize("backend", engines.ENGINES)
def test_int8(backend: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared, named, and for each text the same vector whatever stands beside it; also from a file of the folder."""
    model = SentenceEncoder(folder, backend=backend, dtype="int8")
    vectors = model.encode(TEXTS)
    np.testing.assert_array_equal(vectors[[1, 5]], model.encode([TEXTS[1], TEXTS[5]]))
    assert distance(vectors, folder) > 1e-4
    assert f"int8, whose similarities have a rank correlation of {model.check_int8():.3f}" == diagnose(model)["dtype"]
    assert digest_of_model(model) != digest_of_model(SentenceEncoder(folder, backend=backend))
    assert not hasattr(state_of(model[0].network, ModelState).cached.backend, "_layers")  # No copies in float32.
    given = shutil.copytree(folder, tmp_path / "given") / "model_qint8_avx512.onnx"
    shutil.copy(model[0].engine.file, given)
    read = SentenceEncoder(given.parent, backend=backend, model_kwargs={"file_name": given.name})
    np.testing.assert_array_equal(read.encode(TEXTS), vectors)
    monkeypatch.setattr(verification, "_LEAST", 1.0)
    with pytest.raises(ValueError, match=r"int8 changes similarities too much: rank correlation [01]\.\d+; use"):
        SentenceEncoder(folder, backend=backend, dtype="int8")


def test_what_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no other\.onnx; leave file_name= out"):
        SentenceEncoder(folder, backend="onnx", model_kwargs={"file_name": "other.onnx"})
    with pytest.raises(
        ValueError, match=r"backend='onnx' computes in float32 or int8, not torch\.bfloat16; leave dtype="
    ):
        SentenceEncoder(folder, backend="onnx", dtype="bfloat16")
    (tmp_path / "full").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "full"))
    with pytest.raises(
        OSError, match=r"full/sbert/engines/\w+ cannot be written \(.*\); set XDG_CACHE_HOME to another"
    ):
        SentenceEncoder(folder, backend="onnx")
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(ImportError, match=r'backend=.openvino. needs onnxscript; run: pip install "sbert\[openvino\]"'):
        SentenceEncoder(folder, backend="openvino")
