"""Wrong arguments, devices and missing packages are errors that name the remedy."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Dense, Pooling, SentenceEncoder, Trainer, TrainingConfig, functional, losses
from sbert.backends.huggingface import load_adapter
from sbert.chunking import split
from sbert.data import read_texts
from sbert.evaluation import ModelVectors, RetrievalEvaluator
from sbert.functional import cos_sim
from sbert.integrations.sentence_transformers import SentenceTransformerTrainingArguments
from sbert.integrations.switching import SUGGESTIONS
from sbert.search import cluster
from sbert.visualization.drawing import new_figure
from sbert.visualization.projection import project_vectors


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("matplotlib", lambda: new_figure("a.png"), 'a plot needs matplotlib; run: pip install "sbert[plot]"'),
        ("sklearn", lambda: cluster(np.eye(9), "kmeans", clusters=2), "\"sbert[cluster]\", or pass 'community'"),
        ("openTSNE", lambda: project_vectors(np.eye(12), method="tsne"), "\"sbert[plot]\", or pass method='pca'"),
        ("peft", lambda: load_adapter(torch.nn.Linear(1, 1), Path("a")), 'peft; run: pip install "sbert[adapters]"'),
        ("pyarrow", lambda: list(read_texts(__file__, "a", "parquet")), 'pyarrow; run: pip install "sbert[parquet]"'),
    ],
)
def test_what_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, call: Callable[[], Any], message: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as error:
        call()
    assert message in str(error.value)


def test_every_extra_holds_what_it_is_named_for() -> None:
    root = Path(__file__).parent.parent.parent
    extras = dict(re.findall(r"^(\w+) = (\[.*\])$", (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE))
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "sbert").rglob("*.py"))
    named = re.findall(r'(?:missing|require)\([^,]+, "?([\w -]+)"?, "(\w+)"', sources)
    assert len(named) >= 8
    for packages, extra in named:
        assert packages == "package" or all(f'"{package}' in extras[extra] for package in packages.split(" and "))
    assert not re.search(r"pip install (?!\"sbert|sbert\b|tomli\b|torch==)", sources)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: SentenceEncoder(f, devise="cpu"), "SentenceEncoder() takes no argument 'devise'; did you mean 'dev"),
        (lambda f: SentenceEncoder(f).encode("a", normalise_embeddings=True), "did you mean 'normalize_embeddings'"),
        (lambda f: SentenceEncoder(f).encode_query("a", batchsize=1), "encode() takes no argument 'batchsize'; did"),
        (lambda f: SentenceEncoder(f).encode("a", 32), "encode() takes 32 by name, as one of prompt_name"),
        (lambda f: cos_sim(np.eye(2), np.eye(2), "dot"), "cos_sim() takes no more than a, b"),  # type: ignore[call-overload]
        (lambda f: SentenceEncoder(f).encode(SentenceEncoder(f)), "sentences is of type SentenceEncoder; pass a str"),
        (lambda f: losses.CoSENTLoss(scale=1), "CoSENTLoss() takes no argument 'scale', only temperature"),
        (lambda f: losses.SoftmaxLoss(num_labels=3), "no argument 'num_labels'; did you mean 'classes'?"),
        (lambda f: split(SentenceEncoder(f), "A cat.", chunk_overlap=1), "; did you mean 'overlap'?"),
        (lambda f: RetrievalEvaluator(["a"], ["b"], [{0}]), "queries is of type list; pass a dict by id"),
        (lambda f: ModelVectors("sbert-mini"), "the model is of type str; pass a SentenceEncoder"),
        (lambda f: Trainer(SentenceEncoder(f), [("a", "b")], cos_sim, evaluator=[]), "evaluator is of type list"),
        (lambda f: Trainer(SentenceEncoder(f), [], None, {"epochs": 3}), "config is of type dict; pass T"),
        (lambda f: SentenceEncoder(f).encode("a", wings=2), "no argument 'wings', only sentences, prompt_name"),
        (lambda f: CrossEncoder(f, klasses=1), "CrossEncoder() takes no argument 'klasses'; did you mean 'classes'"),
        (lambda f: CrossEncoder(f, 1).predict([], show_progress=True), "predict() takes no argument 'show_progress'"),
        (lambda f: Pooling(pooling_mode="mean"), "Pooling() takes no argument 'pooling_mode'; did you mean 'mode'?"),
        (lambda f: Dense(1, out_feature=1), "did you mean 'out_features'"),
        (
            lambda f: SentenceEncoder(model_name=f),
            "takes no argument 'model_name'; did you mean 'modules'? It takes m",
        ),
        (lambda f: CrossEncoder(model_name=f), "takes no argument 'model_name'; did you mean 'model'? It takes model"),
        (lambda f: TrainingConfig(per_device_train_batch_size=8), "did you mean 'batch_size'? It takes output"),
        (lambda f: TrainingConfig(num_train_epochs=8), "did you mean 'epochs'?"),
        (lambda f: TrainingConfig(fp16=True), "did you mean 'dtype'?"),
        (lambda f: TrainingConfig(wings=8), "no argument 'wings', only output, epochs"),
        (
            lambda f: Trainer(f, [], None, per_device_train_batch_size=8),
            "; pass config=TrainingConfig(batch_size=...)",
        ),
        (lambda f: Trainer(f, [], None, max_grad_norm=8), "; pass config=TrainingConfig(max_gradient_norm=...); it"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(folder: Path, call: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        call(folder)
    assert message in str(error.value)


def test_names_of_training_arguments_are_translated_to_names_that_exist() -> None:
    settings = inspect.signature(TrainingConfig).parameters
    translated = [name for name, meant in SUGGESTIONS.items() if meant and meant[0] in settings]
    assert len(translated) > 20
    assert set(translated) & set(settings) == set()
    assert set(translated) <= {*vars(SentenceTransformerTrainingArguments()), "random_state", "num_negatives"}


def test_modules_are_given_one_by_one_or_as_modules(folder: Path, model: SentenceEncoder) -> None:
    with pytest.raises(TypeError, match=r"was given list; pass .* one by one, .*; a list is passed as modules="):
        SentenceEncoder(list(model))
    with pytest.raises(TypeError, match=r"was given str, Pooling; pass the name or folder of a model, or modules"):
        SentenceEncoder(str(folder), Pooling("mean"))
    for modules in (list(model), str(folder), folder):
        np.testing.assert_array_equal(SentenceEncoder(modules=modules, device="cpu").encode("a"), model.encode("a"))


@pytest.mark.skipif(torch.version.cuda is not None, reason="a build with CUDA")
@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("cuda:1", ValueError, "device='cuda:1' cannot be used (Torch not compiled with CUDA enabled); pass 'cpu'"),
        ("gpu", ValueError, "device='gpu' cannot be used (Expected one of"),
        (["cpu", "cpu"], TypeError, "device=['cpu', 'cpu'] is of type list; pass one device, such as 'cpu'"),
        (True, TypeError, "device=True is of type bool; pass one device"),
    ],
)
def test_devices_that_are_none(
    model: SentenceEncoder, folder: Path, device: Any, error: type[Exception], message: str
) -> None:
    for call in (
        lambda: SentenceEncoder(folder, device=device),
        lambda: CrossEncoder(folder, 1, device=device),
        *([] if isinstance(device, list) else [lambda: model.encode("a", device=device)]),  # Several processes.
    ):
        with pytest.raises(error) as raised:
            call()
        assert message in str(raised.value)


def test_a_model_called_with_a_text(model: SentenceEncoder, scorer: CrossEncoder) -> None:
    for called, given, message in (
        (model, "hello", r"called with a str; pass texts to encode\(\), or, model.tokenize\(texts\)"),
        (scorer, [("a", "b")], r"called with a list; pass pairs of texts to predict\(\)"),
    ):
        with pytest.raises(TypeError, match=message):
            called(given)


def test_arguments_in_the_wrong_place(model: SentenceEncoder) -> None:
    with pytest.raises(AttributeError, match=r"is that of its weights; move them: model.to\('cuda'\)"):
        model.device = "cuda"  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"dims=CoSENTLoss\(.*; pass the loss, then one or more different"):
        losses.MatryoshkaLoss([64, 32], losses.CoSENTLoss())  # type: ignore[arg-type]

    class Own(losses.CoSENTLoss):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)

    assert repr(Own(temperature=2)) == "Own()"  # A loss of a user takes what it takes.
    with pytest.raises(TypeError, match=r"CoSENTLoss\(\) takes no argument 'scale'"):
        Own(scale=20)


def test_missing_names(model: SentenceEncoder, scorer: CrossEncoder) -> None:
    assert [name for name in dir(functional) if name[0] != "_"] == functional.__all__
    trainer = Trainer(model, [("a", "b", 0.5), ("c", "d", 1)], losses.CoSENTLoss())
    for owner, name, message in (
        (losses, "CachedMultipleNegativesRankingLoss", "; use sbert.losses.MultipleNegativesRankingLoss(), with "),
        (model, "fit", "SentenceEncoder has no attribute 'fit'; use sbert.Trainer(model, rows, loss, config).fit()"),
        (model, "get_backend", "SentenceEncoder has no attribute 'get_backend': sbert doctor says what"),
        (scorer, "encode", "CrossEncoder has no attribute 'encode'; did you mean 'predict'?"),
        (functional, "pytorch_cos_sim", "; use sbert.functional.cos_sim"),
        (trainer, "train", "Trainer has no attribute 'train'; did you mean 'fit'?"),
    ):
        with pytest.raises(AttributeError) as error:
            getattr(owner, name)
        assert message in str(error.value)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
