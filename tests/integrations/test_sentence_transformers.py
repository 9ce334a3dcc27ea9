"""Scripts for sentence-transformers run with our package in its place, and give the same."""

from __future__ import annotations

import importlib
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers as theirs
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import sbert
import sbert.integrations.sentence_transformers as ours
from sbert.integrations.sentence_transformers import losses
from sbert.training.training_run import rate_factor
from tests import pairs
from tests.data.test_datasets import hub
from tests.integrations.test_snippets import check_equal

BOTH = [theirs, ours]
NAMES = ["sentence_transformers", "sbert.integrations.sentence_transformers"]
CORPUS = [
    "a small boat lies on the quiet lake",
    "the red fox runs over seven green hills",
    "zero one two three four",
    "nobody rows it home before the long winter",
    "the fox runs home",
    "one two three four five six",
]
QUERIES = ["a boat on the lake", "the fox", "one two"]


@pytest.fixture
def models(folder: Path) -> list[Any]:
    return [package.SentenceTransformer(str(folder), device="cpu") for package in BOTH]


def module(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}")


def test_modules_by_older_arguments() -> None:
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    assert ours.models.Pooling(16, **flags).modes == ("cls",)
    assert ours.models.LSTM(8, 4).get_word_embedding_dimension() == 8
    older = module(NAMES[1], "cross_encoder.evaluation")
    assert older.CEF1Evaluator is older.CESoftmaxAccuracyEvaluator is older.CrossEncoderClassificationEvaluator


def measure_both(models: list[Any], make: Any, **options: Any) -> list[tuple[dict[str, float], str]]:
    """The metrics and the primary one of an evaluator that ``make`` makes of their module and of ours."""
    kinds = [module(NAMES[0], "sentence_transformer.evaluation"), module(NAMES[1], "evaluation")]
    evaluators = [make(kind) for kind in kinds]
    return [(one(model, **options), one.primary_metric) for one, model in zip(evaluators, models, strict=True)]


def nanobeir(root: Path, *more: str) -> Path:
    """A repository of two data sets, as on the hub."""
    parts = {"corpus": CORPUS, "queries": QUERIES}
    rows = {part: [{"_id": str(i), "text": text} for i, text in enumerate(own)] for part, own in parts.items()}
    candidates = [{"query-id": str(i), "corpus-ids": ["5", "4", "3", "1"]} for i in range(3)]
    for split, step in (("NanoNQ", 1), ("NanoSciFact", 2)):
        judged = [{"query-id": str(i), "corpus-id": str(step * i)} for i in range(3)]
        hub(root, split, **rows, qrels=judged, bm25=candidates if more else [])
    configs = [
        f"- config_name: {part}\n  data_files:\n"
        + "".join(f"  - split: {name}\n    path: {part}/{name}-*\n" for name in ("NanoNQ", "NanoSciFact"))
        for part in ("corpus", "queries", "qrels", *more)
    ]
    (root / "README.md").write_text("---\nconfigs:\n" + "".join(configs) + "---\n")
    return root


@pytest.mark.parametrize("options", [{}, {"dataset_names": ["nq"], "ndcg_at_k": [1, 3], "query_prompts": "zero "}])
def test_nanobeir(models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """The same names and figures, of all or of some."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    options = {"dataset_names": ["nq", "scifact"], **options, "dataset_id": str(nanobeir(tmp_path / "hub"))}
    (expected, primary), (metrics, named) = measure_both(models, lambda kinds: kinds.NanoBEIREvaluator(**options))
    assert (primary, set(expected)) == (named, set(metrics))
    check_equal(metrics, expected)


@pytest.mark.parametrize(("name", "classes"), [("NanoBEIR", 1), ("Classification", 3)])
def test_evaluators_of_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, classes: int) -> None:
    """Rerankers also rerank the positives that BM25 missed."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    options: dict[str, Any] = {"sentence_pairs": list(zip(CORPUS, CORPUS[::-1], strict=True)), "labels": [0, 1, 2] * 2}
    if name == "NanoBEIR":
        options = {"dataset_id": str(nanobeir(tmp_path / "hub", "bm25")), "rerank_k": 4}
        options["dataset_names"] = ["nq", "scifact"]
    folder, results = str(pairs.folder(tmp_path / "scorer", classes=classes)), []
    for package in NAMES:
        evaluator = getattr(module(package, "cross_encoder.evaluation"), f"CrossEncoder{name}Evaluator")(**options)
        scores = evaluator(module(package, "cross_encoder").CrossEncoder(folder, device="cpu"))
        results.append((scores, evaluator.primary_metric))
    results[0][0].pop("f1_weighted", None)  # It is not here.
    check_equal(*results[::-1])


class Fixed(nn.Module):
    """A model of theirs, for losses: its vectors are those in the features."""

    def __init__(self) -> None:
        super().__init__()
        self.anchor = nn.Linear(1, 1)
        self.max_seq_length = 16

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return features

    def get_embedding_dimension(self) -> int:
        return 8

    get_sentence_embedding_dimension = get_embedding_dimension


SCORES, BINARY, LISTS = [0.1, 0.9, 0.5, 0.3], [1, 0, 1, 0], [[1.0, 2.0], [0.3, 0.1], [2.0, 5.0], [0.0, 1.0]]
BOTH_WAYS = ("query_to_doc", "doc_to_query")
# Each loss with its number of columns, its labels, and its arguments; those of distances are called alike in both.
LOSSES: list[tuple[str, int, Any, dict[str, Any]]] = [
    ("CosineSimilarityLoss", 2, SCORES, {}),
    ("CoSENTLoss", 2, SCORES, {"scale": 10.0}),
    ("AnglELoss", 2, SCORES, {"scale": 10.0}),
    ("MultipleNegativesRankingLoss", 3, None, {"scale": 10.0}),
    ("MultipleNegativesRankingLoss", 3, None, {"directions": ("query_to_doc", "doc_to_doc", "query_to_query")}),
    ("MultipleNegativesRankingLoss", 2, None, {"directions": BOTH_WAYS}),
    ("MultipleNegativesRankingLoss", 2, None, {"directions": BOTH_WAYS, "partition_mode": "per_direction"}),
    ("MultipleNegativesRankingLoss", 3, None, {"hardness_mode": "hard_negatives", "hardness_strength": 5.0}),
    ("MultipleNegativesSymmetricRankingLoss", 2, None, {"scale": 10.0}),
    ("EmbedDistillLoss", 1, torch.arange(32.0).view(4, 8) / 32, {"distance_metric": "l2"}),
    ("MegaBatchMarginLoss", 2, None, {"use_mini_batched_version": False}),
    ("GlobalOrthogonalRegularizationLoss", 2, None, {}),
    ("TripletLoss", 3, None, {"triplet_margin": 2}),
    ("TripletLoss", 3, None, {"distance_metric": "TripletDistanceMetric.COSINE", "triplet_margin": 0.5}),
    ("ContrastiveLoss", 2, BINARY, {"margin": 0.7}),
    ("ContrastiveLoss", 2, BINARY, {"distance_metric": "SiameseDistanceMetric.EUCLIDEAN"}),
    ("OnlineContrastiveLoss", 2, BINARY, {"margin": 0.7}),
    ("BatchAllTripletLoss", 1, BINARY, {"margin": 2}),
    ("BatchHardTripletLoss", 1, BINARY, {"margin": 2}),
    ("BatchSemiHardTripletLoss", 1, BINARY, {}),
    ("BatchHardSoftMarginTripletLoss", 1, BINARY, {}),
    ("MSELoss", 1, torch.arange(32.0).view(4, 8) / 32, {}),
    ("MarginMSELoss", 3, SCORES, {}),
    ("DistillKLDivLoss", 3, LISTS, {"temperature": 2.0}),
    ("DistillKLDivLoss", 3, LISTS, {"student_temperature": 0.5, "teacher_temperature": 2.0}),
]


@pytest.mark.filterwarnings("ignore:The Multiple:DeprecationWarning")
@pytest.mark.parametrize(("name", "columns", "labels", "arguments"), LOSSES)
def test_losses(name: str, columns: int, labels: Any, arguments: dict[str, Any]) -> None:
    torch.manual_seed(3)
    vectors = list(torch.randn(columns, 4, 8))
    given = None if labels is None else torch.as_tensor(labels)

    def make(kinds: Any) -> Any:
        named = {key: attrgetter(value)(kinds) for key, value in arguments.items() if "Metric." in str(value)}
        return getattr(kinds, name)(model=Fixed(), **{**arguments, **named})

    expected = make(module(NAMES[0], "sentence_transformer.losses"))(
        [{"sentence_embedding": column} for column in vectors], given
    )
    expected = sum(expected.values()) if isinstance(expected, dict) else expected
    own = make(losses)
    value = own(*vectors) if given is None else own(*vectors, labels=given)
    torch.testing.assert_close(value, expected.to(value.dtype), atol=1e-5, rtol=1e-5)


def test_settings_of_losses() -> None:
    model = Fixed()
    cached = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4)
    assert losses.trainer_settings(losses.MatryoshkaLoss(model, cached, [8, 4]))["chunk_tokens"] == 64
    softmax = losses.SoftmaxLoss(model, sentence_embedding_dimension=8, num_labels=3)  # An older name.
    assert (softmax.classes, softmax.concatenation) == (3, ("u", "v", "|u-v|"))
    guided = losses.CachedGISTEmbedLoss(model, guide=model, margin_strategy="relative", contrast_positives=False)
    assert losses.trainer_settings(guided)["guide"] is model
    assert (guided.temperature, guided.contrast, guided.relative_margin) == (0.01, ("anchor-anchor",), True)
    assert losses.MultipleNegativesRankingLoss(model, similarity_fct=ours.util.dot_score).similarity == "dot"
    with pytest.raises(ValueError, match="only 'cosine' is supported; write a loss of your own"):
        losses.CoSENTLoss(model, similarity_fct=ours.util.pairwise_dot_score)
    with pytest.raises(ValueError, match=r"directions=\('doc_to_doc',\), partition_mode='joint': pass 'joint', with"):
        losses.MultipleNegativesRankingLoss(model, directions=("doc_to_doc",))


ROWS = {
    "anchor": ["a boat", "the fox", "one two", "the lake", "green hills", "three four", "home", "winter"],
    "positive": ["a small boat", "red fox", "zero one", "quiet lake", "hills", "four five", "rows home", "long winter"],
}


def same_weights(first: Any, second: Any) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.filterwarnings("ignore")  # They warn of few vectors.
def test_encode_takes_their_arguments(models: list[Any]) -> None:
    original, mine = models
    for model in models:
        model.prompts = {"query": "find: "}
    check_equal(mine.encode(CORPUS, "query"), original.encode(CORPUS, "query"))
    check_equal(mine.encode(CORPUS, None, "a ", 2), original.encode(CORPUS, None, "a ", 2))
    for precision in ("int8", "uint8"):
        quantized, expected = (model.encode(CORPUS, precision=precision) for model in (mine, original))
        assert quantized.dtype == expected.dtype
        assert np.abs(quantized.astype(int) - expected.astype(int)).max() <= 1  # Of 255 steps: vectors differ by 1e-7.
    with pytest.raises(ValueError, match="pass at least two vectors"):  # Theirs divides by 0.
        mine.encode(CORPUS[0], precision="uint8")


def test_scripts_run_unchanged_after_install(folder: Path, tmp_path: Path) -> None:
    script = f"""
from sbert.integrations.sentence_transformers import install
install(), install()
import sentence_transformers
from sentence_transformers import SentenceTransformer, losses, util
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CoSENTLoss
from sentence_transformers.training_args import BatchSamplers
assert CoSENTLoss is losses.CoSENTLoss
from sentence_transformers import SparseEncoderTrainer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardCallback
assert sentence_transformers.__version__ and not hasattr(sentence_transformers, "NoSuchName")
class Mine(SparseEncoderTrainer): pass
model = SentenceTransformer({str(folder)!r}, device="cpu")
assert not isinstance(model, (Mine, SparseEncoderTrainer, SentenceTransformerModelCardCallback))
print(type(model).__module__, util.cos_sim(model.encode("a cat"), model.encode("a cat")).shape)
try:
    Mine("a name")
except NotImplementedError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    lines = result.stdout.splitlines()
    assert lines[0] == "sbert.integrations.sentence_transformers.encoders torch.Size([1, 1])", result.stderr
    assert "has no attribute 'SparseEncoderTrainer': Sparse encoders are" in lines[1]
    with pytest.raises(RuntimeError, match="sentence-transformers is imported already"):
        ours.install()


class Scale(nn.Module):
    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return {**features, "sentence_embedding": features["sentence_embedding"] * 2}


def test_models_among_files_of_programs(models: list[Any], tmp_path: Path) -> None:
    """Other files stay, and so does a card; a module that is no module of theirs cannot be saved, as there."""
    (tmp_path / "README.md").write_text("A card.")
    (tmp_path / "head.json").write_text("{}")
    tmp_path.chmod(0o755)
    mode = tmp_path.stat().st_mode
    models[1].save(tmp_path, create_model_card=False)
    assert same_weights(ours.SentenceTransformer(str(tmp_path)), models[1])
    assert (tmp_path / "README.md").read_text() == "A card."
    assert (tmp_path / "head.json").is_file()
    assert not [*tmp_path.glob("tmp*")]
    assert tmp_path.stat().st_mode == mode
    scaled = ours.SentenceTransformer(modules=[*models[1], Scale()], device="cpu")
    np.testing.assert_allclose(scaled.encode(QUERIES), 2 * models[1].encode(QUERIES), rtol=1e-6)
    with pytest.raises((TypeError, ValueError), match="Scale"):
        scaled.save(tmp_path / "scaled")


def rows() -> list[tuple[str, str]]:
    return list(zip(*ROWS.values(), strict=True))


def test_old_fit_keeps_the_best_model(folder: Path, tmp_path: Path) -> None:
    model, output = ours.SentenceTransformer(folder, device="cpu"), str(tmp_path / "fitted")
    labels = [i / 8 for i in range(8)]
    pairs = zip(rows(), labels, strict=True)
    loader = DataLoader([ours.InputExample(texts=row, label=label) for row, label in pairs], batch_size=4)
    evaluator = ours.evaluation.EmbeddingSimilarityEvaluator(*ROWS.values(), labels, name="dev")
    before = evaluator(model)["dev_spearman_cosine"]
    objectives = [(loader, losses.CosineSimilarityLoss(model))]
    model.fit(objectives, evaluator, epochs=6, warmup_steps=2, optimizer_params={"lr": 1e-2}, output_path=output)
    assert evaluator(model)["dev_spearman_cosine"] > before
    check_equal(ours.SentenceTransformer(output, device="cpu").encode(CORPUS), model.encode(CORPUS))


def test_old_fit_of_a_cross_encoder(tmp_path: Path) -> None:
    folder = str(pairs.folder(tmp_path / "scorer"))
    first, second = (ours.CrossEncoder(folder, device="cpu") for _ in range(2))
    examples = [ours.InputExample(texts=list(row), label=float(i % 2)) for i, row in enumerate(rows())]
    first.fit(DataLoader(examples, batch_size=2), epochs=1, warmup_steps=0, output_path=str(tmp_path / "fitted"))
    assert not same_weights(first, second)
    first.save(str(tmp_path / "saved"), safe_serialization=True)
    for name in ("fitted", "saved"):
        assert same_weights(first, ours.CrossEncoder(str(tmp_path / name), device="cpu"))


def make_trainer(folder: Path, *, optimizer: Any = None, data: Any = None, **options: Any) -> Any:
    """A trainer of their names, and its settings under ours."""
    args = ours.SentenceTransformerTrainingArguments(**{"max_steps": 2, "per_device_train_batch_size": 4, **options})
    model = ours.SentenceTransformer(folder, device="cpu")
    own = {"loss": losses.MultipleNegativesRankingLoss(model), "optimizer_cls_and_kwargs": optimizer}
    return ours.SentenceTransformerTrainer(model, args, data or rows(), **own)


def test_optimizers_of_the_trainer(folder: Path) -> None:
    for options, kind, rate in (
        ({}, "AdamW", 5e-5),
        ({"optim": "sgd", "learning_rate": 0.1}, torch.optim.SGD, 0.1),
        ({"optimizer": (torch.optim.SGD, {})}, torch.optim.SGD, torch.optim.SGD([torch.zeros(1)]).defaults["lr"]),
        ({"optimizer": (torch.optim.AdamW, {"lr": 0.1})}, "AdamW", 0.1),
        ({"optimizer": (torch.optim.AdamW, {})}, torch.optim.AdamW, 1e-3),
    ):
        config = make_trainer(folder, **options).trainer().config
        found = config.optimizer if isinstance(config.optimizer, str) else config.optimizer.func
        assert (found, config.learning_rate) == (kind, rate)
    with pytest.raises(TypeError, match="did you mean 'learning_rate'"):
        make_trainer(folder, learning_rat=1)
    with pytest.raises(TypeError, match="momentums"):
        make_trainer(folder, optimizer=(torch.optim.SGD, {"momentums": 0.9})).trainer()


def test_settings_that_have_the_meaning_of_theirs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(
        folder, output_dir=str(tmp_path), max_steps=6, save_steps=1, logging_strategy="epoch", warmup_steps=9,
        max_grad_norm=0, eval_on_start=True, greater_is_better=False, eval_strategy="epoch",
    )  # fmt: skip
    figures = iter([0.1, 0.3, 0.2, 0.4])
    trainer.evaluator = lambda model: next(figures)
    trainer.train()
    assert len(list((tmp_path / "checkpoints").iterdir())) == 6  # All of them.
    history = trainer.state.log_history
    assert [line["step"] for line in history if "loss" in line] == [2, 4, 6]
    assert len([line for line in history if "eval_evaluator" in line]) == 4
    config = trainer.trainer().config
    assert (config.max_gradient_norm, config.minimize) == (None, True)
    assert config.learning_rate * rate_factor(config, 1, 6) == pytest.approx(5e-5 / 9)
    with pytest.raises(ValueError, match=r"step-00000001': the newest is .*step-00000006; pass True"):
        trainer.train(str(tmp_path / "checkpoints" / "step-00000001"))
    assert trainer.train(True).global_step == 6
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sbert.training.trainer.Ranks, "join", lambda *_: sbert.distributed.ranks.Ranks())
    assert make_trainer(folder, num_train_epochs=2).trainer().config.batch_size == 8
    with pytest.raises(ValueError, match="a loss sees the rows of all processes here; pass True"):
        losses.MultipleNegativesRankingLoss(trainer.model, gather_across_devices=False)


def test_a_loss_of_other_batches_is_named(folder: Path) -> None:
    trainer = make_trainer(folder)
    trainer.eval_dataset = rows()
    with pytest.warns(UserWarning, match="eval_loss is that of batches of per_device_train_batch_size, not of 8"):
        trainer.trainer()
    trainer.args.per_device_eval_batch_size = 4
    assert trainer.trainer()


def test_values_that_were_not_used_are_errors(models: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"activation_function=LeakyReLU\(negative_slope=0.3\): only LeakyReLU\(neg"):
        ours.models.Dense(16, 8, activation_function=nn.LeakyReLU(0.3))
    assert ours.models.Dense(16, 8, activation_function=nn.LeakyReLU()).get_embedding_dimension() == 8
    with pytest.raises(ValueError, match="samples_per_label=3: only 2 is supported"):
        ours.datasets.SentenceLabelDataset([], samples_per_label=3)
    with pytest.raises(ValueError, match="sampling_strategy='best' is unknown; pass one of 'top', 'random'"):
        ours.util.mine_hard_negatives(None, None, sampling_strategy="best")
    assert losses.MultipleNegativesRankingLoss(models[1], directions=("query_to_doc",)).temperature == 0.05
    with pytest.raises(ValueError, match="weight=50: each text is drawn once in an epoch; load a file several times"):
        ours.ParallelSentencesDataset(models[1], models[1]).load_data("pairs.tsv", weight=50)
    assert (ours.util.is_datasets_available(), ours.util.is_training_available()) == (True, True)


def test_files_of_evaluators_have_what_theirs_have(models: list[Any], tmp_path: Path) -> None:
    for write in (True, False):
        heads = []
        for kind, model, name in zip((NAMES[0] + ".sentence_transformer", NAMES[1]), models, "ab", strict=True):
            evaluator = module(kind, "evaluation").TripletEvaluator(QUERIES, CORPUS[:3], CORPUS[3:], write_csv=write)
            (tmp_path / name).mkdir(exist_ok=True)
            evaluator(model, str(tmp_path / name), 3, 50)
            heads += [
                [line.split(",")[:2] for line in path.read_text().splitlines()] for path in (tmp_path / name).iterdir()
            ]
        assert heads == [[["epoch", "steps"], ["3", "50"]]] * 2  # The second evaluation adds no line.


PATHS = """losses models evaluation readers util datasets trainer training_args similarity_functions quantization
cross_encoder cross_encoder.losses cross_encoder.evaluation cross_encoder.trainer cross_encoder.training_args
sentence_transformer.losses sentence_transformer.evaluation sentence_transformer.modules sentence_transformer.trainer
sentence_transformer.training_args sentence_transformer.readers base.training_args util.similarity
losses.CoSENTLoss sentence_transformer.losses.mse base.data_collator sparse_encoder.losses SentenceTransformer"""


@pytest.mark.parametrize("path", PATHS.split())
def test_paths(path: str) -> None:
    assert module(NAMES[1], path)
