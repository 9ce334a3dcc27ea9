"""``sbert train``: what it trains, what it says, and how it ends and goes on."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert import CrossEncoder, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer, losses
from sbert.cli.main import main
from sbert.cli.train import _summary
from sbert.cli.training.keys import KEYS, SETTINGS
from sbert.cli.training.losses import LOSSES, WRAPPERS
from sbert.data import read_rows
from sbert.evaluation import SimilarityEvaluator
from sbert.training import Signature
from tests import small

pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
WORDS = "boat lake fox hills winter small quiet red seven green one two three four five six".split()
Run = Callable[..., tuple[int, str, str]]


def texts(count: int, shift: int = 0) -> list[str]:
    return [f"{WORDS[i % 16]} {WORDS[(i * 7 + shift) % 16]} {WORDS[(i // 16 + shift) % 16]}" for i in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def labelled(count: int, labels: list[Any]) -> list[dict[str, Any]]:
    """Rows of three texts and a label."""
    columns = [texts(count, shift) for shift in (1, 5, 8)]
    return [{"a": a, "b": b, "c": c, "y": y} for a, b, c, y in zip(*columns, islice(cycle(labels), count), strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain transformer, ``bert``; the same with max pooling as an encoder, ``encoder``; and data."""
    root = tmp_path_factory.mktemp("train")
    small.bert(root / "bert")
    SentenceEncoder(Transformer(root / "bert"), Pooling("max"), device="cpu").save(root / "encoder")
    write(root / "nli.tsv", labelled(24, ["neutral", "entailment", "contradiction"]))
    write(root / "sts.tsv", labelled(24, [0, 5.0, 2.5, 1]))
    write(root / "constant.tsv", labelled(4, [3]))
    write(root / "binary.tsv", labelled(24, [0, 1]))
    write(root / "vectors.jsonl", labelled(8, [[0.5] * 16, [0.25] * 16]))
    write(root / "scores.jsonl", labelled(8, [[0.5, 1], [2, 0]]))
    lists = labelled(8, [[0.5, 1], [2, 0]])
    write(root / "lists.jsonl", [{**row, "documents": [row["b"], row["c"]]} for row in lists])
    return root


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``sbert train``; gives its exit code and what it wrote to stdout and stderr."""

    def call(line: str, *more: object) -> tuple[int, str, str]:
        words = [str(folder / word[1:]) if word.startswith("@") else word for word in line.split()]
        code = main(["train", "--device", "cpu", *words, *map(str, more)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


SOFTMAX = "--model @bert --data @nli.tsv --columns a,b --label y --loss softmax"
COSINE = "--model @bert --data @sts.tsv --columns a,b --label y --loss cosine --scale 0,5"
EVALUATE = "--evaluate @sts.tsv --evaluate-columns a,b,y"


def same(first: Any, second: Any) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def load(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


# ------------------------------------------------------------------------------------------------------- losses


def test_the_table_holds_every_loss_with_its_columns() -> None:
    found = {}
    for name in set(losses.__all__) - set(WRAPPERS.values()):
        arguments = {"SoftmaxLoss": {"dim": 4, "classes": 2}, "CrossEntropyLoss": {"classes": 2}}.get(name, {})
        made = getattr(losses, name)(**arguments)
        of_scores = "scores" in inspect.signature(made.forward).parameters
        found[name] = Signature.of(made).of_pairs() if of_scores else Signature.of(made)
    assert {choice.loss for choice in LOSSES.values()} == set(found)
    for choice in LOSSES.values():
        assert ", ".join(choice.columns) == str(found[choice.loss])
        assert (choice.label != "none") == found[choice.loss].needs_labels


CASES = {
    "softmax": "nli.tsv a,b",
    "cosine": "sts.tsv a,b --scale 0,5",
    "cosent": "sts.tsv a,b",
    "angle": "sts.tsv a,b",
    "contrastive": "binary.tsv a,b",
    "online-contrastive": "binary.tsv a,b",
    "triplet": "nli.tsv a,b,c",
    "ranking": "nli.tsv a,b",
    "batch-all": "nli.tsv a",
    "batch-hard": "nli.tsv a",
    "batch-semi-hard": "nli.tsv a",
    "mse": "vectors.jsonl a,b",
    "margin-mse": "sts.tsv a,b,c",
    "kl": "scores.jsonl a,b,c",
    "mega-batch": "nli.tsv a,b",
    "embedding-distillation": "vectors.jsonl a,b",
    "contrastive-tension": "nli.tsv a",
    "orthogonal": "nli.tsv a,b",
    "bce": "binary.tsv a,b",
    "cross-entropy": "nli.tsv a,b",
    "squared-error": "binary.tsv a,b",
    **dict.fromkeys(["lambda-loss", "ranknet", "listnet", "listmle", "score-margin-mse"], "lists.jsonl a,documents"),
    "localized-contrastive": "lists.jsonl a,documents",
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains(folder: Path, tmp_path: Path, run: Run, name: str) -> None:
    data, columns, *more = CASES[name].split()
    label = [] if LOSSES[name].label == "none" else ["--label", "y"]
    is_scorer = LOSSES[name].reads != "texts"
    more += ["--cross-encoder"] * is_scorer
    line = f"--model @bert --data @{data} --columns {columns} --loss {name} --steps 2 --batch-size 24"
    code, said, errors = run(line, *label, *more, "--output", tmp_path / "out")
    assert (code, errors) == (0, "")
    assert f"{tmp_path / 'out' / 'final'}: 2 steps, last loss " in said
    made = tmp_path / "out" / "final"
    if is_scorer:
        assert CrossEncoder(made, device="cpu").predict(("boat", "lake")).shape == ((3,) if "nli" in data else ())
    else:
        assert not same(load(made), load(folder / "bert"))


# ------------------------------------------------------------------------------------- the same as in Python


def test_it_does_what_the_trainer_does(folder: Path, tmp_path: Path, run: Run) -> None:
    settings = "--epochs 4 --batch-size 5 --chunk-tokens 40 --learning-rate 1e-3 --warmup 0.5 --weight-decay 0.1"
    more = "--accumulation 2 --max-gradient-norm 0.5 --seed 3 --sampler length"
    more += " --checkpoint-every 2 --keep 3 --log-every 3 --evaluate-every 5"
    assert run(f"{COSINE} {EVALUATE} {settings} {more} --quiet --output", tmp_path / "out") == (0, "", "")
    config = TrainingConfig(
        output=tmp_path / "own",
        epochs=4,
        batch_size=5,
        chunk_tokens=40,
        accumulation=2,
        max_gradient_norm=0.5,
        learning_rate=1e-3,
        warmup=0.5,
        weight_decay=0.1,
        seed=3,
        sampler="length",
        checkpoint_every=2,
        keep=3,
        log_every=3,
        evaluate_every=5,
    )
    rows = list(read_rows(folder / "sts.tsv", ["a", "b"], "y", scale=(0, 5)))
    scored = list(read_rows(folder / "sts.tsv", ["a", "b"], "y"))
    evaluator = SimilarityEvaluator(*([row[name] for row in scored] for name in ("a", "b", "label")))
    model = load(folder / "bert")
    trainer = Trainer(
        model, rows, losses.CosineSimilarityLoss(), config, evaluator=evaluator, columns=["a", "b"], label="label"
    )
    trainer.fit(show_progress_bar=False)
    assert same(load(tmp_path / "out" / "final"), model)
    names = [sorted(path.name for path in (tmp_path / made / "checkpoints").iterdir()) for made in ("out", "own")]
    assert names == [[f"step-{step:08}" for step in (6, 8, 10)]] * 2
    histories = [(tmp_path / made / "history.jsonl").read_text(encoding="utf-8") for made in ("out", "own")]
    one, two = (re.sub('"sentences_per_second": [0-9.]+', "", history) for history in histories)
    assert one == two
    assert one.count("evaluation") == 2


def test_every_setting_is_in_the_table_with_the_default_that_the_help_says() -> None:
    defaults = TrainingConfig()
    fields = set(TrainingConfig.__dataclass_fields__)
    others = {"output", "prompts", "max_lengths", "batch_size", "sampler"}  # Keys of data sets.
    assert set(SETTINGS) == fields - others
    for name in set(SETTINGS) & fields:
        said = re.search(r"\(([0-9a-z_.-]+)\)$", KEYS[name].about)
        if said and name != "epochs":  # 1 where neither epochs nor steps are given.
            assert said[1] == str(getattr(defaults, name)).lower()


@pytest.mark.parametrize(
    ("line", "sampler"),
    [
        (SOFTMAX, "random"),
        ("--model @bert --data @nli.tsv --columns a,b --loss ranking", "no_duplicates"),
        ("--model @bert --data @nli.tsv --columns a,b --loss ranking --sampler random", "random"),
    ],
)
def test_each_loss_has_a_sampler_that_suits_it(tmp_path: Path, run: Run, line: str, sampler: str) -> None:
    assert run(f"{line} --steps 1 --output", tmp_path / "out")[0] == 0
    (state,) = (tmp_path / "out" / "checkpoints").glob("*/training/state.json")
    assert json.loads(state.read_text(encoding="utf-8"))["settings"]["sampler"] == sampler


@pytest.mark.parametrize(
    ("given", "order"),
    [("", "0 contradiction, 1 entailment, 2 neutral"), ("--classes neutral,entailment,contradiction", None)],
)
def test_classes(tmp_path: Path, run: Run, given: str, order: str | None) -> None:
    code, said, _ = run(f"{SOFTMAX} {given} --steps 1 --output", tmp_path / "out")
    assert code == 0
    assert said.startswith(f"classes: {order}\n" if order else str(tmp_path))


def test_the_same_seed_gives_the_same_weights(tmp_path: Path, run: Run) -> None:
    """The classifier's first weights, too, come from the seed."""
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(time.time_ns() % 1000)
        assert run(f"{SOFTMAX} --steps 2 --batch-size 24 --seed {seed} --output", tmp_path / name)[0] == 0
    a, b, c = (load(tmp_path / name / "final") for name in "abc")
    assert same(a, b)
    assert not same(a, c)


def test_many_classes_are_not_all_listed(folder: Path, tmp_path: Path, run: Run) -> None:
    data = write(tmp_path / "many.tsv", labelled(44, list(range(22))))
    said = run(f"--model @bert --data {data} --columns a --label y --loss batch-all --steps 1 --output", tmp_path / "o")
    assert said[1].startswith("classes: 0 0, 1 1, 2 2, ")
    assert " 19 19 and 2 more\n" in said[1]


def test_dropped_labels(tmp_path: Path, run: Run) -> None:
    data = write(tmp_path / "a.tsv", labelled(12, ["-", "yes", "no"]))
    line = f"--model @bert --data {data} --columns a,b --label y --loss softmax --steps 1 --output"
    assert run(f"--drop - {line}", tmp_path / "one")[1].startswith("classes: 0 no, 1 yes\n")
    assert run(line, tmp_path / "two")[1].startswith("classes: 0 -, 1 no, 2 yes\n")


def test_the_model_is_an_encoder_or_a_plain_transformer(folder: Path, tmp_path: Path, run: Run) -> None:
    line = "--data @sts.tsv --columns a,b --label y --loss cosent --steps 1 --max-seq-length 12 --output"
    for number, (model, pooling) in enumerate(
        {"@bert": "mean", "@encoder": "max", "@bert --pooling cls": "cls", "@bert --pooling max": "max"}.items()
    ):
        code, _, errors = run(f"--model {model} {line}", tmp_path / str(number))
        assert code == 0
        assert ("not by max" in errors) if pooling == "max" else errors == ""  # Few servers pool by it.
        made = load(tmp_path / str(number) / "final")
        assert f"Pooling({pooling}" in repr(made[1])
        assert made.max_seq_length == 12


# ---------------------------------------------------------------------------------------------- the end and the line


def test_the_line_at_the_end_says_where_the_best_model_is(folder: Path, tmp_path: Path, run: Run) -> None:
    line = f"{COSINE} {EVALUATE} --steps 6 --evaluate-every 2 --learning-rate 1e-3 --log-every 2 --output"
    code, said, errors = run(line, tmp_path / "out")
    assert (code, errors) == (0, "")
    entries = [json.loads(text) for text in (tmp_path / "out" / "history.jsonl").read_text("utf-8").splitlines()]
    scores = {entry["step"]: entry["evaluation"]["spearman"] for entry in entries if "evaluation" in entry}
    assert list(scores) == [2, 4, 6]
    step = max(scores, key=scores.__getitem__)
    loss = next(entry["loss"] for entry in entries[::-1] if "loss" in entry)
    final, best = tmp_path / "out" / "final", tmp_path / "out" / "best"
    assert said == f"{final}: 6 steps, last loss {loss:.4f}; {best}: spearman {scores[step]:.4f} at step {step}\n"
    rows = list(read_rows(folder / "sts.tsv", ["a", "b"], "y"))
    evaluator = SimilarityEvaluator(*([row[name] for row in rows] for name in ("a", "b", "label")))
    assert evaluator(load(best))["spearman"] == scores[step]


def test_the_best_score_is_the_greatest_number() -> None:
    scores = [float("nan"), 0.25, 0.75, 0.5]
    history: list[dict[str, Any]] = [{"step": 10 * i, "evaluation": {"spearman": s}} for i, s in enumerate(scores)]
    steps = [{"step": 30, "loss": 1.0}, {"step": 40, "loss": 0.5}]
    final, best = Path("out") / "final", Path("out") / "best"
    expected = f"{final}: 40 steps, last loss 0.5000"
    assert (
        _summary([*history, *steps], Path("out"), TrainingConfig()) == f"{expected}; {best}: spearman 0.7500 at step 20"
    )
    assert _summary([history[0], *steps], Path("out"), TrainingConfig()) == expected
    assert _summary(steps, Path("out"), TrainingConfig()) == expected
    losses = [{"step": step, "evaluation": {"loss": step}} for step in (1, 3)]
    assert "loss 3.0000 at step 3" in _summary([*losses, *steps], Path("out"), TrainingConfig(minimize=False))


def test_only_the_first_of_several_processes_speaks(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    line = f"{SOFTMAX} --steps 1 --output"
    assert run(line, tmp_path / "out", "--plot", tmp_path / "a.png") == (0, "", "")
    assert not (tmp_path / "a.png").exists()


def test_the_curves_are_drawn(tmp_path: Path, run: Run) -> None:
    assert run(f"{COSINE} {EVALUATE} --steps 2 --output", tmp_path / "out", "--plot", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{SOFTMAX} {EVALUATE} --steps 6 --batch-size 8 --evaluate-every 1 --checkpoint-every 2 --output"
    assert run(line, tmp_path / "whole")[0] == 0

    real, calls = SimilarityEvaluator.__call__, []

    def interrupted(self: SimilarityEvaluator, model: Any, **options: Any) -> dict[str, float]:
        calls.append(model)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(self, model, **options)

    monkeypatch.setattr(SimilarityEvaluator, "__call__", interrupted)
    code, _, errors = run(line, tmp_path / "cut")
    last = tmp_path / "cut" / "checkpoints" / "step-00000004"
    assert code == 130
    assert errors == f"sbert: interrupted; to continue from {last}, run: sbert resume {tmp_path / 'cut'}\n"
    assert not (tmp_path / "cut" / "final").exists()

    code, _, errors = run(line, tmp_path / "cut")
    assert (code, errors) == (
        2,
        f"sbert: error: {last} exists already; pass --resume to continue, or another --output\n",
    )
    code, said, errors = run(line, tmp_path / "cut", "--resume")
    assert (code, errors) == (0, "")
    assert "6 steps" in said
    assert same(load(tmp_path / "cut" / "final"), load(tmp_path / "whole" / "final"))
    # A run that is whole has nothing to do, and says the same.
    assert run(line, tmp_path / "cut", "--resume") == (0, said, "")


def test_interrupted_before_the_first_checkpoint(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: SimilarityEvaluator, model: Any, **options: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimilarityEvaluator, "__call__", interrupted)
    code, _, errors = run(f"{COSINE} {EVALUATE} --steps 6 --evaluate-every 1 --output", tmp_path / "out")
    assert code == 130
    assert errors == "sbert: interrupted; there is no checkpoint yet; pass a lower --checkpoint-every\n"


@pytest.mark.slow
def test_ctrl_c_in_a_process_of_its_own(folder: Path, tmp_path: Path) -> None:
    line = f"{COSINE} --steps 100000 --checkpoint-every 5 --device cpu --output {tmp_path / 'out'}"
    words = [str(folder / word[1:]) if word.startswith("@") else word for word in line.split()]
    with subprocess.Popen(
        [sys.executable, "-m", "sbert", "train", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:
        try:
            deadline = time.monotonic() + 90
            while not list((tmp_path / "out" / "checkpoints").glob("step-*")):
                assert child.poll() is None
                assert time.monotonic() < deadline, "no checkpoint"
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            said, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    last = max((tmp_path / "out" / "checkpoints").glob("step-*"))
    assert (child.returncode, said) == (130, "")
    assert errors == f"sbert: interrupted; to continue from {last}, run: sbert resume {tmp_path / 'out'}\n"
    assert load(last).encode("boat").shape == (16,)


def test_help_does_without_torch() -> None:
    code = (
        "import sys; from sbert.cli.main import main\n"
        "try: main(['train', '-h'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "MultipleNegatives" not in done.stdout
    assert re.search(r"ranking +anchor, positive, \*negatives +none", done.stdout)


# ------------------------------------------------------------------------------------------------------- errors

PAIRS = "--model @bert --data @nli.tsv --columns a,b"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PAIRS} --label y --loss dance", "loss='dance' is unknown"),
        (f"{PAIRS} --loss softmax", "--loss softmax takes a class as label; name its column with --label"),
        (f"{PAIRS} --loss kl", "--loss kl takes a list as label; name its column with --label"),
        (f"{PAIRS} --loss ranking --label y", "ranking takes no labels; leave --label, --classes, --scale and"),
        (f"{PAIRS} --loss ranking --drop -", "leave --label, --classes, --scale and --drop out"),
        (f"{PAIRS} --loss triplet", "--loss triplet takes anchor, positive, negative; --columns names a, b"),
        (f"{PAIRS},c --label y --loss softmax", "--loss softmax takes first, second; --columns names a, b, c"),
        ("--model @bert --data @nli.tsv --columns a --loss ranking", "takes anchor, positive, *negatives"),
        (f"{PAIRS} --label y --loss softmax --scale 0,5", "--loss softmax takes classes, and --scale makes fractions"),
        (f"{PAIRS} --label y --loss cosine", "nli.tsv, line 2: the label 'neutral' is not a number"),
        (f"{PAIRS} --label y --loss contrastive --classes a,b", "the label 'neutral' is not one of the classes a, b"),
        (f"{PAIRS} --label gold --loss softmax", "no columns 'gold'; name one that occurs once, of a, b, c, y"),
        ("--model @bert --data @sts.tsv --columns a,b --label y --loss cosine", "divide scores of 0 to 5 by 5"),
        ("--model @bert --data @sts.tsv --columns a,b --label y --loss cosine --scale 0,4", "line 3: the label 5.0"),
        (f"{COSINE} --scale 0", "argument --scale: '0' is not a range; pass two numbers such as 0,5"),
        (f"{COSINE} --scale 5,0", "scale=(5.0, 0.0)"),
        ("--model @bert --data @nli.tsv --columns a,,b --loss ranking", "'a,,b' has an empty name"),
        ("--model @bert --data @none.tsv --columns a,b --loss ranking", "none.tsv does not exist"),
        ("--model @none --data @nli.tsv --columns a,b --loss ranking", "none does not exist"),
        (f"{SOFTMAX} --epochs 1 --steps 2", "epochs and steps both say how long to train"),
        (f"{SOFTMAX} --batch-size 0", "batch_size=0 is too small; pass at least 1"),
        (f"{SOFTMAX} --dtype float16", "dtype='float16' is unknown; pass one of 'float32'"),
        (f"{SOFTMAX} --sampler best", "sampler='best' is unknown"),
        (f"{SOFTMAX} --evaluate-every 5", "--evaluate-every needs data; pass a file with --evaluate"),
        (f"{SOFTMAX} --evaluate @sts.tsv", "no columns 'sentence1'"),
        (f"{SOFTMAX} --evaluate @sts.tsv --evaluate-columns a,b", "--evaluate-columns takes three names"),
        (f"{SOFTMAX} --evaluate @nli.tsv --evaluate-columns a,b,y", "line 2: the label 'neutral' is not a number"),
        (f"{SOFTMAX} --evaluate @constant.tsv --evaluate-columns a,b,y", "constant.tsv: every score is 3"),
        ("--model @none --data @sts.tsv --columns a,d --loss ranking", "no columns 'd'"),
        (f"{SOFTMAX.replace('@bert', '@none')} --evaluate @none.tsv", "none.tsv does not exist"),
        (f"{SOFTMAX} --pooling median", "median"),
        (f"{COSINE.replace('@bert', '@encoder')} --pooling mean", "has its own pooling; leave --pooling out"),
        (f"{SOFTMAX} --max-seq-length 1000", "1000"),
        (f"{SOFTMAX} --device abacus", "abacus"),
        (f"{SOFTMAX} --plot curves.doc", "'curves.doc' has no file extension that matplotlib supports"),
        (f"{SOFTMAX} --plot none/curves.png", "none/curves.png: the folder none does not exist; create it"),
        (f"{SOFTMAX.replace('@nli.tsv', '-')} --format tsv", "standard input cannot be read twice"),
        (f"{COSINE} --learning-rate 1e38 --steps 9", "weights are those of the previous step"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = run(f"{line} --output out")
    assert code == 2
    assert errors.startswith("sbert: error: ")
    assert errors.count("\n") == 1
    assert message in errors
    # What can be said before training leaves nothing behind.
    assert "1e38" in line or list(tmp_path.iterdir()) == []


def test_without_matplotlib_a_plot_is_refused_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, errors = run(f"{SOFTMAX} --plot a.png --output", tmp_path / "out")
    assert (code, errors) == (
        2,
        'sbert: error: a plot needs matplotlib; run: pip install "sbert[plot]"\n',
    )
    assert not (tmp_path / "out").exists()
