"""``sbert benchmark``, end to end on a tiny model; no test looks at a time."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder, StaticEmbedding
from sbert.cli.benchmark.ceiling import ceilings
from sbert.cli.benchmark.contenders import OWN, PEERS
from sbert.cli.benchmark.measure import _latency, _linearity, _throughput, benchmark, chosen
from sbert.cli.benchmark.precision import recall_by_precision
from sbert.cli.benchmark.processes import started
from sbert.cli.benchmark.show import plot, report
from sbert.cli.benchmark.tasks import Tasks, peak_memory
from sbert.cli.benchmark.workloads import mixed, short, synthetic
from sbert.cli.main import main
from tests import small
from tests.backends.test_families import build
from tests.benchmarks.__main__ import listing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("bert", tmp_path_factory.mktemp("model") / "bert")


def tasks(model: SentenceEncoder) -> Tasks:
    """The tasks of a contender that has loaded this model."""
    made = Tasks("sbert", "model", "cpu")
    made.encoder = model
    return made


@pytest.mark.slow
def test_from_command_to_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each contender imports torch anew; these show what the others would.
    own, peers = ["sbert", "padded-in-order"], ["sentence-transformers"]
    monkeypatch.setattr("sbert.cli.benchmark.measure.OWN", {name: OWN[name] for name in own})
    names = {*own, *peers}
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"a small boat number {i}" for i in range(30)) + "\n")
    options = ["--data", str(texts), "--rounds", "2", "--sample", "20", "--json", str(tmp_path / "all.json")]
    options += ["--device", "cpu", "--against", ",".join(peers)]
    assert main(["benchmark", str(folder), *options]) == 0
    said = capsys.readouterr().out
    parts = ["ceiling", "short: 20 texts", "mixed: 5 texts", "single sentences", "smart batching", "best: "]
    for part in [*parts, "best 10 of 18 texts, 2 queries"]:
        assert part in said
    result = json.loads((tmp_path / "all.json").read_text())
    assert result["skipped"] == {}
    assert (result["sample"], result["rounds"]) == (20, 2)
    assert result["processor"]
    for load in result["loads"].values():
        assert set(load["contenders"]) == names
        assert load["contenders"]["sbert"]["difference"] <= 1e-5  # The same vectors as sentence-transformers'.
        assert load["contenders"]["padded-in-order"]["difference"] <= 1e-5
        assert load["contenders"]["sentence-transformers"]["ratio"] == 1
        assert all(len(row["seconds"]) == 2 for row in load["contenders"].values())
    assert set(result["single"]) == set(result["memory"]) == names
    recall = {way: row["recall"] for way, row in result["recall"]["ways"].items()}
    assert 0.5 <= recall["binary"] <= recall["binary, rescored by float32"] == 1  # Four times 10 are all of 18.
    assert report(result) == said.rstrip("\n")
    if find_spec("matplotlib"):
        plot(result, str(tmp_path / "all.png"))
        assert (tmp_path / "all.png").stat().st_size > 1000
    else:
        with pytest.raises(ImportError, match=r'pip install "sbert\[plot\]"'):
            plot(result, str(tmp_path / "all.png"))


def test_who_is_measured() -> None:
    assert set(chosen(None, torch.device("cpu"))) == {*OWN, *PEERS} - {"sbert-float32", "sentence-transformers-best"}
    assert set(chosen(None, torch.device("cuda"))) == {*OWN, *PEERS}
    assert set(chosen([], torch.device("cpu"))) == {*OWN} - {"sbert-float32"}


def test_texts_are_new_in_every_round() -> None:
    given = [f"text {i}" for i in range(25)]
    for make in (short, mixed):
        for texts in (None, given):
            rounds = [make(10, number, texts) for number in range(5)]
            everything = [text for texts in rounds for text in texts]
            assert len(everything) == 50
            assert len(set(everything)) > 48
            assert make(10, 3, texts) == rounds[3]
    assert short(10, 0, given) == given[:10]  # In their order.
    assert len({text for number in range(5) for text in short(10, number, given)}) == 50
    lengths = [len(text.split()) for text in synthetic(2000, seed=0)]
    assert 12 < sum(lengths) / 2000 < 17


def test_useful_arithmetic_is_counted_right(folder: Path) -> None:
    """Two layers of width 16: four matrices of 16 x 16 and two of 16 x 32 each; the pooler gives no token anything."""
    model = SentenceEncoder(folder, device="cpu")
    weights = 2 * (4 * 16 * 16 + 2 * 16 * 32)
    assert tasks(model).facts()["weights"] == weights
    counted = tasks(model).useful(["a small boat", "lake"])  # 5 and 3 tokens with their special ones
    assert counted["tokens"] == 8
    assert counted["operations"] == 2 * weights * 8 + 4 * 2 * 16 * (25 + 9)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_layer_that_is_used_again_counts_again(tmp_path: Path) -> None:
    """ALBERT has one layer, here used twice, behind a matrix that widens 8 numbers to 16."""
    model = SentenceEncoder(build("albert", tmp_path / "albert"), device="cpu")
    assert tasks(model).facts()["weights"] == 8 * 16 + 2 * (4 * 16 * 16 + 2 * 16 * 32)


def test_the_default_prompt_is_work_too(folder: Path) -> None:
    prompts = {"query": "seven green hills "}
    model = SentenceEncoder(folder, device="cpu", prompts=prompts, default_prompt_name="query")
    assert tasks(model).useful(["a small boat", "lake"])["tokens"] == 8 + 2 * 3


def test_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ceilings(torch.device("cpu"), torch.get_num_threads())
    assert set(found) == {"float32", "bfloat16"}
    assert min(found.values()) > 0

    def missing(*_: object) -> None:
        raise AttributeError("no such operation")

    monkeypatch.setattr("sbert.backends.linear._ops", missing)
    found = ceilings(torch.device("cpu"), torch.get_num_threads())
    assert 0 < min(found.values()) <= max(found.values()) < float("inf")


def _peak(connection: Connection) -> None:
    connection.send(peak_memory())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere no process inherits a peak")
def test_the_peak_is_that_of_the_process_alone() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    held = torch.ones(1 << 28)  # 1 GiB, more than a process takes that only imports torch.
    process = context.Process(target=_peak, args=(there,))
    process.start()
    assert 0 < here.recv() < held.nbytes < peak_memory()
    process.join()


def test_more_and_more_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbert.cli.benchmark.measure._LINEAR", (5, 20, 40))
    with started(["sbert"], str(folder), "cpu", 1) as field:
        rows = _linearity(field, rounds=2)
        with pytest.raises(RuntimeError, match="TypeError: "):
            field.ask("sbert", "timed", [None])
        assert field.ask("sbert", "timed", ["it goes on"])[1].shape == (1, 16)
    assert [row["texts"] for row in rows] == [5, 20, 40]
    assert [row["vectors"] for row in rows] == [4 * 16 * count for count in (5, 20, 40)]
    assert all(row["sentences"] > 0 and row["grown"] >= 0 for row in rows)


@pytest.mark.slow
def test_who_cannot_run_is_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(["sentence-transformers"], str(folder / "nowhere"), "cpu", 1) as field:
        assert list(field.skipped) == ["sentence-transformers"]
        assert not field.running
    with pytest.raises(RuntimeError, match="FileNotFoundError: "):
        benchmark(str(folder / "nowhere"), device="cpu", against=[])


@pytest.mark.slow
def test_who_fails_on_the_way_is_skipped(folder: Path) -> None:
    """As when memory is short: the system kills a process while others have their turn."""
    texts = [["a small boat", "lake"], ["a red fox", "hills"]]
    with started(["sbert", "sentence-transformers"], str(folder), "cpu", 1) as field:
        field.running["sentence-transformers"]._process.kill()
        measured = _throughput(field, texts)
        assert set(measured["contenders"]) == {"sbert"}
        assert measured["reference"] == "sbert"
        assert len(measured["contenders"]["sbert"]["seconds"]) == 2
        assert field.skipped == {"sentence-transformers": "its process has ended, perhaps for lack of memory"}
        assert set(_latency(field, texts)) == {"sbert"}
        field.running["sbert"]._process.kill()
        with pytest.raises(RuntimeError, match="its process has ended"):
            _throughput(field, texts)


def test_recall_in_fewer_bits() -> None:
    """By loops over vectors that are rounded one number at a time; 12 numbers are no whole bytes."""
    rng = np.random.default_rng(0)
    queries, corpus = (rng.normal(size=(rows, 12)).astype(np.float32) for rows in (7, 90))
    least, greatest = corpus.min(0).astype(np.float64), corpus.max(0).astype(np.float64)
    step = (greatest - least) / 255
    int8 = (np.minimum(np.floor((corpus - least) / step), 255) + 0.5) * step + least
    bits = np.where(corpus > 0, 1.0, -1.0)

    def best(vectors: np.ndarray, query: np.ndarray, among: Iterable[int], k: int) -> list[int]:
        cosine = {row: vectors[row] @ query / np.linalg.norm(vectors[row]) for row in among}
        return sorted(cosine, key=lambda row: (-cosine[row], row))[:k]

    expected = dict.fromkeys(["int8", "binary", "binary, rescored by int8", "binary, rescored by float32"], 0.0)
    for query in queries.astype(np.float64):
        right = set(best(corpus.astype(np.float64), query, range(90), 10))
        coarse = best(bits, query, range(90), 20)
        found = [
            best(int8, query, range(90), 10),
            coarse[:10],
            best(int8, query, coarse, 10),
            best(corpus.astype(np.float64), query, coarse, 10),
        ]
        for way, rows in zip(expected, found, strict=True):
            expected[way] += len(right.intersection(rows)) / 70
    rows = recall_by_precision(queries, corpus, top_k=10, oversample=2)
    assert {way: row["recall"] for way, row in rows.items()} == pytest.approx(expected)
    assert [row["bytes"] for row in rows.values()] == [12, 2, 14, 50]
    assert len(set(expected.values())) > 2  # They do differ here.


def test_recall_of_few_and_of_none() -> None:
    few = np.eye(3, 8, dtype=np.float32)
    assert all(row["recall"] == 1 for row in recall_by_precision(few, few, top_k=10).values())  # All of three.
    with pytest.raises(ValueError, match="no queries; pass at least one"):
        recall_by_precision(few[:0], few)
    with pytest.raises(ValueError, match="pass at least two vectors"):
        recall_by_precision(few, few[:1])
    with pytest.raises(ValueError, match=r"corpus has shape \(3, 8\), and the queries are of dim 5"):
        recall_by_precision(few[:, :5], few)
    with pytest.raises(ValueError, match=r"corpus\[1\] has a NaN"):
        recall_by_precision(few, np.where(np.arange(3)[:, None] == 1, np.nan, few))


def test_a_model_of_word_vectors_has_no_ceiling(tmp_path: Path) -> None:
    tokenizer = small.wordpiece()
    model = SentenceEncoder(StaticEmbedding(tokenizer, torch.randn(tokenizer.get_vocab_size(), 16)), device="cpu")
    model.save(tmp_path / "static")
    found = tasks(model).useful(["a small boat"])
    assert found == {"tokens": 3, "operations": 0}
    row = {"sentences": 9.0, **found, "ratio": 1.0, "difference": 0.0, "cosine": 1.0}
    said = report(result_of({"sbert": row}))
    assert "at its ceiling" not in said
    assert "smart batching" not in said


def test_dtypes_are_compared_with_their_like() -> None:
    """On a GPU sbert computes in bfloat16, the loop of a tutorial in float32."""
    speeds = {"sbert": 80.0, "sbert-float32": 20.0, "sbert-in-order": 40.0, "padded-in-order": 10.0}
    rows = {
        name: {"sentences": speed, "tokens": 1.0, "operations": 50.0, "ratio": 1.0, "difference": 0.0, "cosine": 1.0}
        for name, speed in speeds.items()
    }
    said = report(result_of(rows, dtype="bfloat16: chosen"))
    assert "smart batching: 2.00 over ours, batches of 32 in input order, 2.00 over padded" in said
    parts = [line.split()[-3] for line in said.splitlines() if line.endswith("0.0e+00    1.000000")]
    assert parts == 2 * ["25%", "50%", "25%", "50%"]


def result_of(rows: dict[str, dict[str, float]], dtype: str = "float32: chosen") -> dict[str, Any]:
    """What a benchmark of these contenders returns, but for what differs."""
    load = {"reference": "sbert", "texts": 1, "tokens": 3.0, "contenders": rows}
    return {
        "model": "model",
        "processor": "processor",
        "facts": {"diagnosis": {"device": "cpu", "dtype": dtype}},
        "versions": {},
        "ceilings": {"float32": 100.0, "bfloat16": 200.0},
        "skipped": {},
        "loads": {"short": load, "mixed": load},
        "single": {name: {"p50": 1.0, "p95": 1.0, "p99": 1.0} for name in rows},
        "memory": {name: {"host": 1, "gpu": 0} for name in rows},
        "start": {name: {"load": 1.0, "first": 1.0} for name in rows},
        "batch_tokens": {"short": {"512": 1.0}, "mixed": {"512": 1.0}, "best": 512},
    }


def test_what_cannot_be_written_is_said_before_the_measuring(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object, **__: object) -> None:
        pytest.fail("measured first")

    monkeypatch.setattr("sbert.cli.benchmark.measure.benchmark", measured)
    for option in ("--json", "--plot"):
        assert main(["benchmark", str(folder), option, str(tmp_path / "none" / "file.png")]) == 2
        assert "none does not exist; create it" in capsys.readouterr().err
    assert main(["benchmark", str(folder), "--plot", str(tmp_path / "all.doc")]) == 2
    expected = "use one of" if find_spec("matplotlib") else 'pip install "sbert[plot]"'
    assert expected in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
@pytest.mark.slow
def test_ctrl_c_ends_all_processes_quietly(folder: Path) -> None:
    """A terminal sends the signal to every process of the command."""
    command = [sys.executable, "-m", "sbert", "benchmark", str(folder), "--device", "cpu", "--sample", "200000"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(10)  # By then some contenders wait, and others still start.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.rstrip().endswith("sbert: interrupted")
    for _ in range(100):  # What keeps count of semaphores ends last, when it notices that the others have.
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("processes are left")


def test_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", str(folder), "--against", "word2vec"]) == 2
    said = capsys.readouterr().err
    assert "'word2vec' is unknown; pass one or more of sentence-transformers" in said
    assert main(["benchmark", str(folder), "--rounds", "0"]) == 2
    assert "argument --rounds: '0' is not possible; pass a whole number of at least 1" in capsys.readouterr().err
    assert main(["benchmark", str(folder), "--dtype", "bfloat16"]) == 2
    assert "--dtype" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- the measuring programs


def test_every_measuring_program_is_listed_with_one_line() -> None:
    programs = listing()
    assert {"batches", "search", "training"} <= programs.keys()
    assert all(line.endswith((".", ")")) and len(line) < 125 for line in programs.values())


@pytest.mark.parametrize("name", listing())
def test_every_measuring_program_can_be_imported_and_has_a_main(name: str) -> None:
    assert callable(importlib.import_module(f"tests.benchmarks.{name}").main)
