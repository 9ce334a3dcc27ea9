"""``sbert train``: its settings, what it trains, what it says, and how it ends and goes on."""

from __future__ import annotations

import json
import re
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer, losses
from sbert.cli.main import main
from sbert.cli.train_build import make_trainer, read_data
from sbert.cli.train_parts import make_loss, needs
from sbert.cli.train_settings import STORED, gather
from sbert.data import read_rows
from sbert.evaluation import LabelEvaluator, SimilarityEvaluator
from sbert.losses.signature import Signature
from tests import small
from tests.cli.conftest import Run, check_refused
from tests.data.test_datasets import hub

pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
WORDS = "boat lake fox hills winter small quiet red seven green one two three four five six".split()


def texts(count: int, shift: int = 0) -> list[str]:
    return [f"{WORDS[i % 16]} {WORDS[(i * 7 + shift) % 16]} {WORDS[(i // 16 + shift) % 16]}" for i in range(count)]


def write(path: Path, count: int, labels: list[Any]) -> None:
    """Rows of three texts, a list of two of them, and a label."""
    columns = [texts(count, shift) for shift in (1, 5, 8)]
    values = zip(*columns, islice(cycle(labels), count), strict=True)
    rows = [{"a": a, "b": b, "c": c, "y": y} for a, b, c, y in values]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps({**row, "documents": [row["b"], row["c"]]}) + "\n" for row in rows)
    else:
        text = "a\tb\tc\ty\n" + "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain transformer, ``bert``; the same with max pooling as an encoder, ``encoder``; and data."""
    root = tmp_path_factory.mktemp("train")
    small.bert(root / "bert")
    SentenceEncoder(Transformer(root / "bert"), Pooling("max"), device="cpu").save(root / "encoder")
    write(root / "nli.tsv", 24, ["neutral", "entailment", "contradiction"])
    write(root / "sts.tsv", 24, [0, 5.0, 2.5, 1])
    write(root / "many.tsv", 44, [*range(21), "-"])
    write(root / "vectors.jsonl", 8, [[0.5] * 16, [0.25] * 16])
    write(root / "lists.jsonl", 8, [[0.5, 1], [2, 0]])
    return root


@pytest.fixture(name="run")
def run_train(folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``sbert train`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line, *more: run("train", "--device", "cpu", *line.replace("@", f"{folder}/").split(), *more)


PAIRS = "--model @bert --data @nli.tsv --columns a,b"
SOFTMAX = f"{PAIRS} --label y --loss softmax"
COSINE = "--model @bert --data @sts.tsv --columns a,b --label y --loss cosine --set data.scale=[0,5]"
EVALUATE = "--evaluate @sts.tsv --set evaluate.columns=a,b --set evaluate.label=y"


def same(first: Any, second: Any) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def load(folder: Path | str) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


def log(output: Path | str) -> list[dict[str, Any]]:
    """The history, without what depends on time."""
    lines = (Path(output) / "history.jsonl").read_text("utf-8").splitlines()
    return [
        {name: value for name, value in json.loads(line).items() if name != "sentences_per_second"} for line in lines
    ]


def state(output: Path | str) -> dict[str, Any]:
    """What the only checkpoint says about the run."""
    (path,) = (Path(output) / "checkpoints").glob("*/training/state.json")
    return dict(json.loads(path.read_text("utf-8")))


TOML = """
    [model]
    name = "{0}/bert"
    [training]
    log_every = 1
    [data]
    label = "y"
    file = "{0}/sts.tsv"
    columns = ["a", "b"]
    loss = {{name = "MatryoshkaLoss", dims = [16, 8], loss = {{name = "cosent", temperature = 0.1}}}}
"""


# ------------------------------------------------------------------------------------------------------- losses

WRAPPERS = {"MatryoshkaLoss", "SpladeLoss", "WeightedSum"}


@pytest.mark.parametrize("name", sorted({*losses.__all__} - WRAPPERS))
def test_every_loss_is_made_by_its_name(folder: Path, name: str) -> None:
    model = CrossEncoder(folder / "bert", 1, device="cpu") if needs(name).scores else load(folder / "encoder")
    loss = make_loss(name, model, 3)
    assert type(loss).__name__ == name
    signature = Signature.of(loss).of_pairs() if needs(name).scores else Signature.of(loss)
    assert (needs(name).columns, needs(name).label) == (signature.columns, signature.needs_labels)
    assert needs(name).classes == signature.labels_are_classes


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("softmax", "nli.tsv a,b"),
        ("ranking", "nli.tsv a,b"),
        ("mse", "vectors.jsonl a,b"),
        ("cross-entropy", "nli.tsv a,b"),
        ("lambda", "lists.jsonl a,documents"),
    ],
)
def test_encoders_and_cross_encoders_train(folder: Path, run: Run, name: str, data: str) -> None:
    file, columns = data.split()
    need = needs(name)
    label = "--label y" if need.label else ""
    line = f"--model @bert --data @{file} --columns {columns} --loss {name} {label} --steps 1 --batch-size 24"
    code, said, errors = run(f"{line} --output out")
    assert (code, errors.count("\n")) == (0, 1)  # The summary, and no warning.
    assert said.endswith(f"model of the last step: {Path('out/final')}\n")
    assert state("out")["settings"]["sampler"] == need.sampler
    if need.scores:
        scorer = CrossEncoder("out/final", device="cpu")
        assert scorer.predict(("boat", "lake")).shape == ((3,) if need.classes else ())
        assert not need.classes or scorer.auto_model.config.label2id["neutral"] == 2
    else:
        assert not same(load("out/final"), load(folder / "bert"))


def test_a_sum_needs_what_its_loss_with_a_label_needs() -> None:
    both = {"name": "sum", "pairs": [["global-orthogonal-regularization", 0.1], ["cosent", 1]]}
    assert (needs(both).label, needs(both).columns) == (True, ("first", "second"))


# ----------------------------------------------------------------------------------------------------- settings


def test_it_does_what_the_trainer_does(folder: Path, run: Run) -> None:
    settings = "--epochs 2 --batch-size 5 --learning-rate 1e-3 --seed 3"
    more = "chunk_tokens=40 warmup=0.5 weight_decay=0.1 accumulation=2 max_gradient_norm=0.5 checkpoint_every=2 keep=3"
    more += " log_every=3 evaluate_every=5"
    sets = [word for each in [*more.split(), "sampler=in_order"] for word in ("--set", f"training.{each}")]
    assert run(f"{COSINE} {EVALUATE} {settings} --quiet --output out", *sets) == (0, "", "")
    numbers: dict[str, Any] = {name: json.loads(value) for name, value in (each.split("=") for each in more.split())}
    config = TrainingConfig(
        output="own", epochs=2, batch_size=5, learning_rate=1e-3, seed=3, sampler="in_order", **numbers
    )
    rows = list(read_rows(folder / "sts.tsv", ["a", "b"], "y", scale=(0, 5)))
    scored = list(read_rows(folder / "sts.tsv", ["a", "b"], "y"))
    evaluator = SimilarityEvaluator(*([row[name] for row in scored] for name in ("a", "b", "label")))
    model = load(folder / "bert")
    trainer = Trainer(
        model, rows, losses.CosineSimilarityLoss(), config, evaluator=evaluator, columns=["a", "b"], label="label"
    )
    trainer.fit(show_progress_bar=False)
    assert same(load("out/final"), model)
    names = [sorted(path.name for path in Path(made, "checkpoints").iterdir()) for made in ("out", "own")]
    assert names == [[f"step-{step:08}" for step in (2, 4, 5)]] * 2
    assert log("out") == log("own")
    assert sum("evaluation" in entry for entry in log("out")) == 1


def test_a_config_file_and_what_counts_more_than_it(folder: Path, run: Run, tmp_path: Path) -> None:
    """The same run by flags, by a file, and by a file with flags over it."""
    loss = "--set data.loss=matryoshka --set data.loss.dims=[16,8] --set data.loss.loss=cosent"
    more = f"{loss} --set data.loss.loss.temperature=0.1 --set training.log_every=1 --steps 4"
    assert run(f"--model @bert --data @sts.tsv --columns a,b --label y {more} --output flags")[0] == 0
    text = Path("flags", STORED).read_text("utf-8")
    Path("run.json").write_text(text.replace('"steps": 4', '"steps": 9'), encoding="utf-8")
    assert run("--config run.json --steps 4 --output file")[0] == 0
    Path("run.toml").write_text(TOML.format(folder), encoding="utf-8")
    assert run("--config run.toml --steps 4 --output toml")[0] == 0
    assert log("toml") == log("flags")
    assert log("file") == log("flags")
    assert same(load("file/final"), load("flags/final"))


# What follows SOFTMAX.
SETTINGS = [
    ("--set training.per_device_train_batch_size=8", "_batch_size is unknown; did you mean batch_size?"),
    ("--set evaluate.zzz=1", "evaluate: zzz is unknown; the known ones are file, with, columns, label"),
    ("--set data.sts.file=@sts.tsv", "data: sts is unknown; the known ones are file, columns, label, loss"),
    ("--set training.drop_last=1", "drop_last is 1; pass True or False (true or false in"),
    ("--set callbacks=[] --set callbacks.wandb=1", "callbacks is [], not a table; set it as a whole"),
    ("--set data.loss.name=matryoshka --set data.loss.loss=softmax", "missing a required argument: 'dims'; set it"),
    ('--set callbacks=[{"name":"early-stopping","patient":1}]', "did you mean patience?"),
    ("--evaluate @sts.tsv --set evaluate.with=spearman", "evaluate.with: spearman is unknown"),
]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((f"{SOFTMAX} {line}", message) for line, message in SETTINGS),
        ("--resume none", "train.json does not exist; pass the --output of a run of sbert train"),
        (f"{PAIRS} --loss softmax", "--loss softmax takes labels; name their column with --label"),
        (f"{PAIRS} --loss ranking --label y", "--loss ranking takes no labels; leave --label out"),
        (f"{COSINE} --set data.scale=5,0", "the scale ['5', '0'] is none; pass the lowest label, then the highest"),
        ("--data @nli.tsv --loss ranking", "model: name is missing; name it by its flag, --set, or in a file"),
        (f"{SOFTMAX} {EVALUATE} --set evaluate.with=translation", "takes source, target, no label; it has"),
        (f"{SOFTMAX} --set evaluate.columns=a,b", "evaluate: file is missing"),
        (f"{SOFTMAX.replace('@bert', '@none')} --evaluate @none.tsv", "none.tsv does not exist"),
        (f"{COSINE.replace('@bert', '@encoder')} --set model.pooling=mean", "has its own pooling; leave model.pooling"),
        (f"{PAIRS} --label y --loss cross-entropy --set model.pooling=cls", "model.pooling is for encoders"),
        (f"{SOFTMAX.replace('@nli.tsv', '-')} --set data.format=tsv", "standard input cannot be read twice"),
        (f"{COSINE} --learning-rate 1e38 --steps 9", "weights are those of the previous step"),
    ],
)
def test_errors_are_one_line_and_name_the_nearest_known(run: Run, line: str, message: str) -> None:
    check_refused(run(f"{line} --output out --quiet"), message)
    assert "1e38" in line or not Path("out").exists()  # What can be said before training leaves nothing behind.


def test_classes(run: Run) -> None:
    line = "--model @bert --data @many.tsv --columns a --label y --loss batch-all-triplet --steps 1 --set data.drop=-"
    said = run(f"{line} --output one")[1]
    assert said.startswith("classes: 0 0, 1 1, 2 2, ")
    assert " 19 19 and 1 more\n" in said
    given = "neutral,entailment,contradiction"
    assert run(f"{SOFTMAX} --set data.classes={given} --steps 1 --output two")[1].startswith("model of ")
    assert json.loads(Path("two", STORED).read_text("utf-8"))["data"]["classes"] == given.split(",")


def test_the_model_is_an_encoder_or_a_plain_transformer(run: Run) -> None:
    line = "--data @sts.tsv --columns a,b --label y --loss cosent --steps 1 --set model.max_seq_length=12 --output"
    prompts = '--set training.prompts={"a":"red:","b":""} --set training.max_lengths={"b":4}'
    for model, pooling in {"@bert": "mean", "@encoder": "max", "@bert --set model.pooling=cls": "cls"}.items():
        code, _, errors = run(f"--model {model} {prompts} {line} {pooling}")
        assert code == 0
        assert "truncated to max_lengths" in errors
        assert state(pooling)["prompts"] == {"data": ["red:", ""]}
        model = load(f"{pooling}/final")
        assert f"Pooling({pooling}" in repr(model[1])
        assert model.max_seq_length == 12


def test_a_folder_of_parquet_is_streamed(run: Run) -> None:
    table = pyarrow.table({"anchor": ["boat", "fox", "lake"], "positive": ["red", "hills", "one"]})
    Path("data").mkdir()
    pyarrow.parquet.write_table(table, "data/0.parquet")
    line = "--model @bert --data data --loss ranking --batch-size 2 --set training.log_every=1"
    code, _, errors = run(f"{line} --steps 4 --output out")
    assert (code, errors[:8], errors.count("\n")) == (0, "4 steps ", 1)
    assert "pass --steps" in run(f"{line} --output two")[2]
    assert "taken as they stand; leave drop out" in run(f"{line} --output two --set data.drop=a")[2]


def test_an_adapter(folder: Path, run: Run) -> None:
    pytest.importorskip("peft")
    lora = 'model.lora={"r":2,"target_modules":["query","value"]}'
    assert run(f"{COSINE} --steps 2 --learning-rate 1e-2 --set {lora} --output out")[0] == 0
    before, after = (load(each)[0].auto_model.state_dict() for each in (folder / "bert", "out/final"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(re.search(r"attention\.self\.(query|value)\.weight$", name) for name in changed)


# ------------------------------------------------------------------------------------------ evaluators and callbacks


def test_evaluators_of_all_kinds(folder: Path, run: Run) -> None:
    Path("r.jsonl").write_text('{"query": "boat", "positive": ["lake"], "negative": ["fox"]}\n', encoding="utf-8")
    hub(Path("nano").absolute(), "NanoBoats", queries=[{"_id": "q1", "text": "one"}, {"_id": "q2", "text": "two"}])
    evaluate = "--set evaluate.with.name="
    for line, metric in {
        "--evaluate @nli.tsv --set evaluate.columns=a,b,c --set evaluate.with=triplet": "accuracy",
        f"--evaluate r.jsonl {evaluate}reranking --set evaluate.with.k=3": "ndcg@3",
        f"--evaluate nano {evaluate}NanoBEIRSuite --set evaluate.with.ndcg_at=[2]": "mean_ndcg@2",
        "--evaluate @sts.tsv --set evaluate.with=loss": "loss",
    }.items():
        output = metric.replace("@", "-")
        code, _, errors = run(f"{COSINE} --steps 1 {line} --quiet --output {output}")
        assert (code, errors) == (0, "")
        assert any(metric in name for name in log(output)[-1]["evaluation"])


@pytest.mark.parametrize("loss", ["softmax", "cross-entropy"])
def test_classes_are_evaluated_by_the_classifier_that_is_trained(folder: Path, loss: str) -> None:
    file = f"{folder}/nli.tsv"
    table = {"file": file, "columns": "a,b", "label": "y"}
    tables = {"data": {**table, "loss": loss}, "evaluate": {**table, "with": "label"}}
    settings = gather(None, [("model", f"{folder}/bert"), ("output", "out"), *tables.items()])
    rows = read_data(settings, verbose=False)
    trainer = make_trainer(settings, rows, TrainingConfig())
    evaluator: Any = trainer.evaluator
    assert evaluator.loss is (trainer.batches.datasets["data"].rows.loss if loss == "softmax" else None)
    same_rows = LabelEvaluator(*([row[name] for row in rows] for name in ("a", "b", "label")), evaluator.loss)
    assert evaluator(trainer.model) == same_rows(trainer.model)


# ------------------------------------------------------------------------------------------ the end, and going on


def test_a_run_that_was_cut_off_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = "--set training.evaluate_every=1 --set training.checkpoint_every=2"
    line = f"{SOFTMAX} {EVALUATE} --steps 6 --batch-size 8 {every} --output"
    said = f"model of the last step: {Path('whole/final')}; of the best score: {Path('whole/best')}\n"
    assert run(f"{line} whole")[1].endswith(said)
    real, calls = SimilarityEvaluator.__call__, []

    def interrupt(self: SimilarityEvaluator, model: Any, **options: Any) -> dict[str, float]:
        calls.append(model)
        if len(calls) in (1, 6, 8):
            raise KeyboardInterrupt
        return real(self, model, **options)

    monkeypatch.setattr(SimilarityEvaluator, "__call__", interrupt)
    early = "sbert: interrupted; there is no checkpoint yet; set a lower training.checkpoint_every"
    assert run(f"{line} early")[2].splitlines()[-1] == early
    code, _, errors = run(f"{line} cut")
    last = Path("cut/checkpoints/step-00000004")
    assert code == 130
    assert errors.splitlines()[4:] == [f"sbert: interrupted; to continue from {last}, run: sbert train --resume cut"]
    assert not Path("cut/final").exists()
    check_refused(run(f"{line} cut"), f"{last} exists already; to continue, run sbert train --resume cut, or name")
    assert run("--resume cut")[0] == 130  # Again, before the end.
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["train", "--resume", str(tmp_path / "cut"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert same(load(tmp_path / "cut" / "final"), load(tmp_path / "whole" / "final"))
    assert log(tmp_path / "cut") == log(tmp_path / "whole")
