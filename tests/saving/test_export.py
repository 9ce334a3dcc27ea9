"""Exported folders give the vectors of ``encode``, by the lines of their own README."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import LSTM, Dense, LayerNorm, Normalize, Pooling, SentenceEncoder, Transformer, WordEmbeddings
from sbert.cli import export as command
from sbert.cli.main import main
from sbert.modules.pooling import POOLINGS
from sbert.saving.export import export, folder
from sbert.saving.format import POOLING_KEYS
from tests import small
from tests.backends.test_families import build

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Of torch, about itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
FAMILIES = ["roberta", "mpnet", "modernbert", "deberta-v3", "t5-encoder", "qwen3"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("bert", tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch-export that keeps the encoder instead of tracing it."""
    kept: list[Any] = []

    def write(encoder: Any, names: Any, limit: Any, path: Path, *_: Any) -> None:
        kept.append(encoder)
        path.write_bytes(bytes(10**5))

    def run(inputs: dict[str, Any]) -> Any:
        with torch.no_grad():
            return kept[-1](**{name: torch.from_numpy(values) for name, values in inputs.items()}).numpy()

    made = folder.EXPORT_FORMATS["torch-export"]._replace(write=write, load=lambda _: run)
    monkeypatch.setitem(folder.EXPORT_FORMATS, "torch-export", made)


def require_packages(kind: str) -> None:
    """Skip the test where a package of the format is missing."""
    for package in folder.EXPORT_FORMATS[kind].packages:
        pytest.importorskip(package, reason=f"{package} is not installed", exc_type=ImportError)


def run_readme(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The vectors that the code of the README computes of its two texts."""
    code = re.search(r"```python\n(.*?)```", (path / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    with monkeypatch.context() as changed:
        changed.chdir(path)
        exec(code[1], names)
    return names["vectors"]


def check(model: SentenceEncoder, path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["A cat sleeps.", "Taxes go up."]
    expected = model.encode(texts, on_truncate="ignore")
    difference = export(model, path, kind)
    np.testing.assert_array_equal(model.encode(texts, on_truncate="ignore"), expected)  # It stays as it is.
    vectors = run_readme(path, monkeypatch)
    assert difference is not None
    assert difference <= 1e-5
    assert np.abs(vectors - expected).max() <= 1e-5
    assert np.abs(expected[0] - expected[1]).max() > 1e-3


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, tmp_path: Path) -> None:
    """The padded form of each has the vectors of ``encode``; tracing it takes seconds, and changes nothing of it."""
    model = SentenceEncoder(build(family, tmp_path / "model"), device="cpu")
    assert export(model, tmp_path / "exported", "torch-export") <= 1e-5


@pytest.mark.slow  # torch traces the model; no cheaper test runs what was traced.
@pytest.mark.parametrize("kind", folder.EXPORT_FORMATS)
def test_every_module_and_setting(kind: str, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_packages(kind)
    modes = [mode for mode in POOLINGS if mode in POOLING_KEYS.values()]
    assert len(modes) == 6
    torch.manual_seed(0)
    dim = 16 * len(modes)
    model = SentenceEncoder(
        Transformer(bert, max_seq_length=9, lower_case=True),
        Pooling(modes),
        Dense(dim, 12, residual=True),
        LayerNorm(12),
        Normalize(),
        device="cpu",
        prompts={"query": "small boat: ", "none": ""},
        default_prompt_name="query",
        truncate_dim=10,
    )
    model[0].tokenizer.truncation_side = "left"
    check(model, tmp_path / "exported", kind, monkeypatch)
    text = (tmp_path / "exported" / "README.md").read_text()
    for part in ("| query | 'small boat: ' |", "By default", "10 dimensions.", "at most 9 tokens", "token_type_ids"):
        assert part in text
    assert "| none |" not in text


@pytest.mark.slow  # As above.
def test_int8(bert: Path, tmp_path: Path) -> None:
    require_packages("onnx")
    assert main(["export", "onnx", str(bert), str(tmp_path / "exported"), "--dtype", "int8"]) == 0
    assert "the rank correlation of their similarities is" in (tmp_path / "exported" / "README.md").read_text()


# ------------------------------------------------------------------------------------------------ what is refused


def check_refused(model: SentenceEncoder, tmp_path: Path, message: str, kind: str = "torch-export") -> None:
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "exported", kind)
    assert not list(tmp_path.iterdir())


def test_what_has_no_padded_form(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformer = Transformer(bert)
    monkeypatch.setitem(POOLINGS, "sum", POOLINGS["mean"])
    words = WordEmbeddings(["red", "fox"], torch.eye(2))
    cases: list[tuple[list[Any], str]] = [
        ([transformer, Pooling("sum")], "the pooling mode 'sum' has no padded form"),
        ([words, Pooling()], "WordEmbeddings has a tokenization of its own"),
        ([transformer], "expected after the Transformer, not the end"),
        ([transformer, LSTM(16, 4), Pooling()], "not LSTM"),
        ([transformer, Pooling(), torch.nn.Identity()], "Identity has no padded form"),
    ]
    for modules, message in cases:
        check_refused(SentenceEncoder(*modules, device="cpu"), tmp_path, message)
    prompted = SentenceEncoder(transformer, Pooling(include_prompt=False), prompts={"q": "query: "}, device="cpu")
    check_refused(prompted, tmp_path, "leaves the prompt out")
    with pytest.raises(TypeError, match="Transformer cannot be exported; pass a SentenceEncoder"):
        export(transformer, tmp_path / "exported", "onnx")  # type: ignore[arg-type]
    model = SentenceEncoder(transformer, Pooling("max"), device="cpu")
    check_refused(model, tmp_path, "format='tflite' is unknown", "tflite")


@pytest.mark.usefixtures("untraced")
def test_other_vectors_leave_no_folder(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = SentenceEncoder(bert, device="cpu"), tmp_path / "exported"
    monkeypatch.setattr(folder, "_TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match=r"differ by up to .* nothing was written"):
        export(model, path, "torch-export")
    assert not list(tmp_path.iterdir())
    fails = {"torch-export": folder.EXPORT_FORMATS["torch-export"]._replace(write=lambda *_: 1 / 0)}
    monkeypatch.setattr(folder, "EXPORT_FORMATS", fails)
    with pytest.raises(RuntimeError, match=r"does not take this model \(ZeroDivisionError"):
        export(model, path, "torch-export")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("untraced")
def test_only_exports_are_replaced_and_the_model_stays_as_it_is(bert: Path, tmp_path: Path) -> None:
    model, path = SentenceEncoder(bert, device="cpu", dtype="bfloat16"), tmp_path / "exported"
    network, before = type(model[0].network), model.encode(small.TEXTS, on_truncate="ignore")
    path.mkdir()
    (path / "README.md").write_text("mine")
    with pytest.raises(ValueError, match=r"'README.md', which is not part of an exported model"):
        export(model, path, "torch-export")
    (path / "model.onnx").write_bytes(b"")
    export(model, path, "torch-export")
    assert sorted(file.name for file in path.iterdir()) == ["README.md", "model.pt2", "tokenizer.json"]
    assert (type(model[0].network), model.dtype) == (network, torch.bfloat16)
    assert (model.encode(small.TEXTS, on_truncate="ignore") == before).all()


def test_missing_packages(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'export to onnx needs onnx; run: pip install "sbert\[onnx\]"'):
        export(SentenceEncoder(bert, device="cpu"), tmp_path / "exported", "onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("untraced")
def test_command(bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(folder.EXPORT_FORMATS) == command._FORMATS
    assert main(["export", "torch-export", str(bert), str(tmp_path / "exported")]) == 0
    assert re.search(r": \d\.\d MB, largest difference from encode \d\.\de-\d\d; ", capsys.readouterr().out)
    assert main(["export", "torch-export", str(bert), str(bert)]) == 2
    assert "saving would delete it" in capsys.readouterr().err
