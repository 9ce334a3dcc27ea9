"""``sbert train``: several data sets, files of settings, evaluators, callbacks, adapters, plans, ``sbert resume``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch

from sbert import CrossEncoder
from sbert.cli.main import main
from sbert.cli.training.calls import parsed
from sbert.cli.training.losses import choice_of
from sbert.cli.training.settings import STORED, checked, gathered
from tests.cli.test_cli_train import COSINE, EVALUATE, PAIRS, SOFTMAX, Run, folder, load, run, same, write
from tests.data.test_datasets import hub

__all__ = ["folder", "run"]  # Fixtures.
pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
TWO = (
    "--model @bert --data nli=@nli.tsv --columns a,b --label y --loss softmax --batch-size 8 --weight 2"
    " --data @sts.tsv --columns b,c --label y --loss matryoshka(cosent(temperature=0.1),dims=[16,8])"
)


def train(line: str, root: Path) -> int:
    words = [re.sub("@", f"{root}/", word) for word in line.split()]
    return main(["train", "--device", "cpu", *words])


def log(output: Path) -> str:
    """The history, without what depends on time."""
    return re.sub('"sentences_per_second": [0-9.]+', "", (output / "history.jsonl").read_text("utf-8"))


# ------------------------------------------------------------------------------------------- flags and files


def test_several_data_sets_by_flags_and_by_files(folder: Path, tmp_path: Path) -> None:
    assert train(f"{TWO} --steps 6 --learning-rate 1e-3 --log-every 1 --output {tmp_path / 'flags'}", folder) == 0
    toml = f'''
        model = "{folder / "bert"}"
        steps = 6
        learning_rate = 1e-3
        log_every = 1
        label = "y"  # Of all data sets.
        [data.nli]
        file = "{folder / "nli.tsv"}"
        columns = ["a", "b"]
        loss = "softmax"
        batch_size = 8
        weight = 2
        [data.sts]
        file = "{folder / "sts.tsv"}"
        columns = ["b", "c"]
        loss = "MatryoshkaLoss(CoSENTLoss(temperature=0.1), dims=[16, 8])"
    '''
    (tmp_path / "run.toml").write_text(toml, encoding="utf-8")
    same_in_json = checked(_toml(toml), "run.toml")
    same_in_json["data"] = dict(same_in_json["data"])
    (tmp_path / "run.json").write_text(json.dumps(same_in_json), encoding="utf-8")
    for name in ("toml", "json"):
        if name == "toml" and sys.version_info < (3, 11):
            continue
        assert train(f"--config {tmp_path}/run.{name} --output {tmp_path / name}", folder) == 0
        assert log(tmp_path / name) == log(tmp_path / "flags")
        assert same(load(tmp_path / name / "final"), load(tmp_path / "flags" / "final"))
    stored = json.loads((tmp_path / "flags" / STORED).read_text("utf-8"))
    assert list(stored["data"]) == ["nli", "sts"]


def _toml(text: str) -> dict[str, Any]:
    try:
        from tomllib import loads
    except ImportError:
        loads = pytest.importorskip("tomli").loads
    return loads(text)


def test_flags_count_more_than_the_file(tmp_path: Path) -> None:
    table = {"file": "a.tsv", "loss": "cosent", "batch_size": 4, "label": "y"}
    made = {"model": "m", "output": "o", "steps": 1, "batch_size": 2, "data": {"x": table, "z": {**table, "file": "b"}}}
    (tmp_path / "a.json").write_text(json.dumps(made), encoding="utf-8")
    file = str(tmp_path / "a.json")
    assert [each["batch_size"] for each in gathered(None, file)["data"].values()] == [4, 4]
    over = gathered({"batch_size": 8, "steps": 3}, file)
    assert (over["steps"], [each["batch_size"] for each in over["data"].values()]) == (3, [8, 8])
    new = gathered({"data": [(None, {"file": "c.tsv", "loss": "ranking"})], "batch_size": 8}, file)["data"]
    assert new == {"data": {"file": "c.tsv", "loss": "ranking", "batch_size": 8}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 1}, "epoch is unknown; did you mean epochs?"),
        ({"data": {"a": {"colums": ["x"]}}}, r"\[data.a\]: colums is unknown; did you mean columns\?"),
        ({"evaluate": {"a": {"zzz": 1}}}, "the keys are file, with, columns, prompt"),
        ({"steps": "two"}, "steps is 'two'; write a whole number"),
        ({"steps": True}, "steps is True; write a whole number"),
        ({"compile": 1}, "compile is 1; write true or false"),
        ({"freeze": "a"}, "freeze is 'a'; write a list of texts"),
        ({"freeze": [1]}, "write a list of texts"),
        ({"betas": [0.9]}, "write a list of two numbers"),
        ({"data": {"a": {"scale": [0, 5, 7]}}}, "write a list of two numbers"),
        ({"data": {"a": "b.tsv"}}, r"\[data.a\] is 'b.tsv'; write a table"),
    ],
)
def test_errors_of_files_name_the_key(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked(settings, "run.toml")


def test_toml_before_python_3_11(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", None)
    (tmp_path / "a.toml").write_text("steps = 1", encoding="utf-8")
    code, _, errors = run("--config", tmp_path / "a.toml")
    assert code == 2
    assert "run: pip install tomli, or write it as .json" in errors


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{SOFTMAX} --config @none.toml", "none.toml"),
        ("--data @nli.tsv --loss ranking", "there is no --model; pass it"),
        (f"{PAIRS} --loss rankin", "loss='rankin' is unknown; did you mean 'ranking'?"),
        (f"{PAIRS} --loss ranking(temprature=1)", "takes no 'temprature'; did you mean 'temperature'?"),
        (f"{PAIRS} --loss matryoshka(ranking)", "missing a required argument: 'dims'"),
        (f"{PAIRS} --loss ranking(", "is not of the form NAME or NAME(parameter=value, ...)"),
        (f"{PAIRS} --loss matryoshka(dims=[8])", "needs a loss, such as matryoshka"),
        (f"{PAIRS} --loss __import__('os')", "is unknown"),
        (f"{PAIRS} --label y --loss softmax --cross-encoder", "--loss softmax is not for cross-encoders"),
        (f"{PAIRS} --label y --loss cross-entropy", "--loss cross-entropy needs --cross-encoder; pass it"),
        (f"{SOFTMAX} --callbacks early-stoping", "did you mean 'early_stopping'?".replace("_", "-")),
        (f"{SOFTMAX} --callbacks early-stopping(patient=1)", "did you mean 'patience'?"),
        (f"{SOFTMAX} --evaluate @sts.tsv --evaluate-with spearman", "evaluate_with='spearman' is unknown"),
        (f"{SOFTMAX} --lora lora(rank=1)", "lora takes no 'rank'"),
        (f"{SOFTMAX} --compile maybe", "'maybe' is neither true nor false"),
        (f"{SOFTMAX} --learning-rates 3", "'3' is not of the form PATTERN=X"),
        (f"{SOFTMAX} --learning-rates a=b", "'b' is not a number"),
        (f"{SOFTMAX} --prompt a=x --prompt y", "does not fit the others; pass COLUMN=VALUE"),
        (f"{SOFTMAX} --data @nli.tsv --columns a,b --label y --loss softmax", "two files of --data are called 'nli'"),
        (f"{TWO} --mix proportional", "--weight and --mix both say"),
    ],
)
def test_errors_of_flags_name_the_nearest_known(run: Run, tmp_path: Path, line: str, message: str) -> None:
    code, _, errors = run(f"{line.replace('nli=@nli', '@nli')} --steps 1 --output", tmp_path / "out")
    assert (code, errors.count("\n")) == (2, 1)
    assert message in errors
    assert not (tmp_path / "out").exists()


def test_what_a_loss_of_losses_needs() -> None:
    assert choice_of("sum((orthogonal, 0.1), (cosent, 1))").label == "number"
    assert choice_of("sum((ranking, 1), (orthogonal, 0.1))").sampler == "no_duplicates"
    call = parsed("a-b(x=[1, -2.5], y=(c, false), z='d e')", ["a-b", "c"])
    assert call.named["x"] == [1, -2.5]
    assert call.named["y"][1] is False
    assert [each.name for each in call.within()] == ["a-b", "c"]


def test_prompts_and_lengths_of_columns_and_data_sets(tmp_path: Path, run: Run, folder: Path) -> None:
    line = (
        "--model @bert --label y --loss cosent --data x=@sts.tsv --columns a,b --prompt a=red: --prompt b="
        " --max-length 9 --data z=@sts.tsv --columns b,c --max-length b=4 --max-length c=5 --steps 2 --output"
    ).replace("=@", f"={folder}/")
    code, _, errors = run(line, tmp_path / "out")
    assert code == 0
    assert "truncated to max_lengths" in errors
    (state,) = (tmp_path / "out" / "checkpoints").glob("*/training/state.json")
    stored = json.loads(state.read_text("utf-8"))
    assert stored["settings"]["max_lengths"] == {"x": 9, "z": {"b": 4, "c": 5}}
    assert stored["prompts"] == {"x": ["red:", ""], "z": ["", ""]}


def test_a_folder_of_parquet_is_streamed(tmp_path: Path, run: Run) -> None:
    table = pyarrow.table({"anchor": ["boat", "fox", "lake"], "positive": ["red", "hills", "one"]})
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "data" / "0.parquet")
    line = f"--model @bert --data {tmp_path}/data --loss ranking --batch-size 2 --log-every 1 --output {tmp_path}/out"
    code, said, errors = run(f"{line} --steps 4")
    assert (code, errors) == (0, "")
    assert said.startswith(f"{tmp_path}/out/final: 4 steps")
    assert "pass steps=" in run(f"{line}2")[2]
    assert "needs a file" in run(f"{line}2 --drop a --label y --loss cosent")[2]


# ------------------------------------------------------------------------------- evaluators, callbacks, models


def test_evaluators_of_all_kinds(folder: Path, tmp_path: Path, run: Run) -> None:
    write(tmp_path / "r.jsonl", [{"query": "boat", "positive": ["lake"], "negative": ["fox", "red"]}])
    beir = tmp_path / "beir"
    beir.mkdir()
    for name, text in {
        "corpus.tsv": "doc_id\ttext\nd1\tboat\nd2\tfox\n",
        "queries.tsv": "query_id\ttext\nq1\tlake\n",
        "qrels.tsv": "query_id\tdoc_id\tgrade\nq1\td1\t1\n",
    }.items():
        (beir / name).write_text(text, encoding="utf-8")
    hub(tmp_path / "nano", "NanoBoats")
    line = (
        f"{COSINE} --steps 2 --evaluate-first --metric held_loss --evaluate sts=@sts.tsv --evaluate-columns a,b,y"
        " --evaluate pairs=@binary.tsv --evaluate-with pairs --evaluate-columns a,b,y"
        " --evaluate triplets=@nli.tsv --evaluate-with triplet(margin=0.1) --evaluate-columns a,b,c"
        " --evaluate parallel=@nli.tsv --evaluate-with translation --evaluate-columns a,b"
        f" --evaluate ranks={tmp_path}/r.jsonl --evaluate-with reranking(k=3)"
        f" --evaluate found={beir} --evaluate-with retrieval(ndcg_at=[2])"
        f" --evaluate teacher=@sts.tsv --evaluate-with mse(teacher='{folder}/bert') --evaluate-columns a,b"
        f" --evaluate nano={tmp_path}/nano --evaluate-with nanobeir"
        " --evaluate held=@sts.tsv --evaluate-with loss --output"
    ).replace("=@", f"={folder}/")
    code, said, errors = run(line.replace("held_loss", "evaluation_loss"), tmp_path / "out")
    assert (code, errors) == (0, "")
    entries = [json.loads(text) for text in (tmp_path / "out" / "history.jsonl").read_text("utf-8").splitlines()]
    first = next(entry["evaluation"] for entry in entries if "evaluation" in entry)
    starts = {name.partition("_")[0] for name in first}
    assert starts == {"sts", "pairs", "triplets", "parallel", "ranks", "found", "teacher", "nano", "evaluation"}
    assert {"sts_spearman", "ranks_ndcg@3", "found_ndcg@2", "evaluation_loss"} <= set(first)
    assert "evaluation_loss" in said


def test_callbacks_optimizers_and_schedules(folder: Path, tmp_path: Path, run: Run) -> None:
    line = (
        f"{COSINE} {EVALUATE} --steps 50 --evaluate-every 1 --metric pearson --callbacks early-stopping(patience=1)"
        " --callbacks averaged-weights(decay=0.5) --optimizer muon --schedule cosine --warmup 2 --betas 0.8,0.9"
        " --learning-rates 0.*=1e-9 --freeze *word_embeddings* --learning-rate 1e-9"
    )
    assert run(f"{line} --output", tmp_path / "out")[0] == 0
    made, before = load(tmp_path / "out" / "final"), load(folder / "bert")
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(made[0].auto_model.state_dict()[words], before[0].auto_model.state_dict()[words])
    assert (tmp_path / "out" / "averaged").is_dir()
    steps = [json.loads(text)["step"] for text in (tmp_path / "out" / "history.jsonl").read_text("utf-8").splitlines()]
    assert max(steps) < 50


def test_hyphens_of_names_and_of_texts() -> None:
    """Only those of names are underscores."""
    call = parsed("push-to-hub(repo-id='me/my-model', when=every-step)", ["push-to-hub", "every-step"], "callbacks")
    assert call.named["repo_id"] == "me/my-model"
    assert call.named["when"].name == "every-step"
    with pytest.raises(ValueError, match="is not of the form"):
        parsed("wandb(project=my-project)", ["wandb"])


def test_new_weights_come_from_the_seed(tmp_path: Path, run: Run) -> None:
    line = f"{PAIRS} --label y --loss cross-entropy --cross-encoder --steps 1 --weight 1 --seed 3 --output"
    for name in ("one", "two"):
        assert run(line, tmp_path / name)[0] == 0
    one, two = (CrossEncoder(tmp_path / name / "final", device="cpu").state_dict() for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_adapter(folder: Path, tmp_path: Path, run: Run) -> None:
    pytest.importorskip("peft")
    line = f"{COSINE} --steps 2 --learning-rate 1e-2 --lora lora(r=2,target_modules=[query,value]) --output"
    assert run(line, tmp_path / "out")[0] == 0
    made, before = (load(each)[0].auto_model.state_dict() for each in (tmp_path / "out" / "final", folder / "bert"))
    assert {name for name in before if not torch.equal(before[name], made[name])} == {
        f"encoder.layer.{layer}.attention.self.{part}.weight"
        for layer in range(len({name.split(".")[2] for name in before if "encoder.layer" in name}))
        for part in ("query", "value")
    }


def test_a_cross_encoder_keeps_the_names_of_its_classes(tmp_path: Path, run: Run) -> None:
    line = f"{PAIRS} --label y --loss cross-entropy --cross-encoder --steps 1 --output"
    assert run(line, tmp_path / "out")[0] == 0
    config = CrossEncoder(tmp_path / "out" / "final", device="cpu").auto_model.config
    assert config.id2label == {0: "contradiction", 1: "entailment", 2: "neutral"}
    assert config.label2id["neutral"] == 2


# ---------------------------------------------------------------------------------------------- plan and resume


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path, run: Run) -> None:
    code, said, errors = run(
        f"{SOFTMAX} --steps 30 --evaluate-first --batch-size 4 --dry-run {EVALUATE} --output", tmp_path / "out"
    )
    assert (code, errors) == (0, "")
    lines = said.splitlines()
    assert lines[1].startswith("data: 24 rows of a, b; SoftmaxLoss(")
    assert lines[1].endswith("batches of 4, sampler random")
    assert re.fullmatch(r"model: [\d,]+ weights, [\d,]+ trained, on cpu", lines[2])
    assert re.fullmatch(r"30 steps of \S+ s \(median of 3\): \d+ s; 6 evaluations of \S+ s: \d+ s", lines[3])
    assert re.fullmatch(r"memory: \S+ GiB at most in these steps", lines[4])
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_resume_goes_on_from_the_folder(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{TWO.replace('=@', f'={folder}/')} --steps 6 --checkpoint-every 2 --output"
    assert run(line, tmp_path / "whole")[0] == 0
    code = (
        "import os, signal, sys\nfrom sbert.training.callbacks import Callbacks\nfrom sbert.cli.main import main\n"
        "real = Callbacks.call\nfrom sbert.training import checkpoint\nwrite = checkpoint.write\n"
        "def killed(*given, **more):\n    path = write(*given, **more)\n"
        "    if '4' in path.name: os.kill(os.getpid(), signal.SIGKILL)\n    return path\n"
        "checkpoint.write = killed\nmain(sys.argv[1:])"
    )
    words = [str(folder / word[1:]) if word.startswith("@") else word for word in line.split()]
    command = [sys.executable, "-c", code, "train", "--device", "cpu", *words, str(tmp_path / "cut")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    monkeypatch.chdir(tmp_path)  # From another folder.
    assert main(["resume", str(tmp_path / "cut"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert same(load(tmp_path / "cut" / "final"), load(tmp_path / "whole" / "final"))
    assert log(tmp_path / "cut") == log(tmp_path / "whole")


def test_resume_of_what_cannot_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error() -> str:
        assert main(["resume", str(tmp_path)]) == 2
        return capsys.readouterr().err

    assert "does not exist; pass the --output of a run of sbert train" in error()
    (tmp_path / STORED).write_text('{"data": {', encoding="utf-8")
    assert "is damaged" in error()
    stored = {"model": "m", "data": {"data": {"file": "-", "loss": "ranking"}}, "evaluate": {}}
    (tmp_path / STORED).write_text(json.dumps(stored), encoding="utf-8")
    assert "the run read standard input" in error()
