"""``sbert evaluate``: which suites it runs, what it says, and what it refuses."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sbert import CrossEncoder, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.data import read_retrieval
from sbert.evaluation import NanoBEIRSuite, RetrievalEvaluator, SequentialEvaluator, STSSuite
from tests import small
from tests.cli.conftest import Run, check_refused
from tests.data.test_datasets import beir, hub, lines, objects, put
from tests.evaluation.test_sts_suite import WORDS
from tests.evaluation.test_sts_suite import folder as similarities


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 4)) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, a cross-encoder, and data for all suites."""
    root = tmp_path_factory.mktemp("evaluate")
    base = small.bert(root / "bert")
    SentenceEncoder(Transformer(base), Pooling("mean"), Normalize(), device="cpu").save(root / "encoder")
    CrossEncoder(base, classes=1, device="cpu").save(root / "ranker")
    data = similarities(root / "data")
    for split in ("NanoPets", "NanoBoats"):
        texts = {name: sentences(20, len(split) + i) for i, name in enumerate(("corpus", "queries"))}
        rows = {name: [{"_id": f"{i}", "text": text} for i, text in enumerate(own)] for name, own in texts.items()}
        judged = [{"query-id": f"{i}", "corpus-id": f"{2 * i}"} for i in range(10)]
        found = [{"query-id": f"{i}", "corpus-ids": [f"{i}", f"{2 * i}", "19"]} for i in range(10)]
        hub(data / "nanobeir", split, **rows, qrels=judged, bm25=found)
    documents = [{"_id": str(i), "title": "", "text": text} for i, text in enumerate(sentences(20, 4))]
    put(beir(data / "animals") / "corpus.jsonl", objects(*documents))
    judged = [[f"q{i}", 5 * i, 1] for i in range(4)]
    put(data / "animals" / "qrels" / "test.tsv", lines(["query-id", "corpus-id", "score"], *judged))
    return root


@pytest.fixture(name="run")
def run_evaluate(folder: Path, run: Run) -> Run:
    """Runs ``sbert evaluate`` on a CPU."""

    def call(line: str, *more: object) -> tuple[int, str, str]:
        words = [str(folder / word[1:]) if word.startswith("@") else word for word in line.split()]
        return run("evaluate", *words, *more, "--device", "cpu", "--dtype", "float32")

    return call


def read_metrics(out: str) -> dict[str, float]:
    metrics: dict[str, float] = json.loads(out)["metrics"]
    return metrics


def test_several_suites_at_once(folder: Path, run: Run, tmp_path: Path) -> None:
    """Each figure is what the suite gives that is called from Python; the table is in percent; a run is a line."""
    words = "@encoder --suite sts,retrieval,nanobeir --data @data --output"
    code, out, _ = run(f"{words} {tmp_path}/a.csv --json")
    assert code == 0
    figures = read_metrics(out)
    model = SentenceEncoder(folder / "encoder", device="cpu", dtype="float32")
    suites = {"sts": STSSuite(folder / "data"), "nanobeir": NanoBEIRSuite(folder / "data" / "nanobeir")}
    suites |= {"retrieval_animals": RetrievalEvaluator(*read_retrieval(folder / "data" / "animals"))}
    assert figures == pytest.approx(SequentialEvaluator(suites)(model))
    missing = json.loads(out)["missing"]
    assert (missing["sts"], missing["retrieval"]) == (["STS13", "STS14", "STS15", "STS16"], [])
    out = run(f"{words} {tmp_path}/a.csv")[1]
    written = [line.split() for line in out.splitlines()]
    assert ["STSb", f"{100 * figures['sts_STSb']:.2f}"] in written
    assert ["nanobeir", "ndcg@10", "mrr@10", "map@100", "recall@10", "accuracy@1"] in written
    assert ["mean", f"{100 * figures['nanobeir_mean_ndcg@10']:.2f}"] in [row[:2] for row in written]
    assert f"not in {folder / 'data'}: STS13, STS14, STS15, STS16" in out
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == [str(folder / "encoder")] * 2
    assert float(rows[1]["sts_STSb"]) == pytest.approx(figures["sts_STSb"])
    assert list(rows[0])[:4] == ["time", "model", "evaluator", "sts_average"]
    code, out, err = run("@encoder --suite sts --data @data --output", put(tmp_path / "b.csv", 'a,b\n1\n"'))
    assert (code, "STSb" in out, "b.csv" in err) == (2, True, True)  # The figures are not lost.


def test_nanobeir_of_a_cross_encoder_reranks(run: Run, tmp_path: Path) -> None:
    """What BM25 found: of three documents, the second is relevant; of one, only that of the first query."""
    words = "@ranker --suite nanobeir --data @data --cross-encoder"
    metrics = read_metrics(run(f"{words} --json")[1])
    assert metrics["nanobeir_mean_recall@10"] == metrics["nanobeir_mean_base_recall@10"] == 1
    assert read_metrics(run(f"{words} --rerank 1 --json")[1])["nanobeir_mean_recall@10"] == 0.1
    assert run(words)[1].splitlines()[0].split()[-1] == "base_ndcg@10"
    hub(tmp_path, "NanoPets", bm25=[])
    refused = "there are no candidates of NanoPets for a reranker"
    check_refused(run("@ranker --suite nanobeir --cross-encoder --data", tmp_path), refused)


@pytest.mark.slow  # No cheaper test shows that torchrun's processes share the work; each imports torch.
def test_two_processes_share_the_work(folder: Path, run: Run, tmp_path: Path) -> None:
    """They find what one does, and the first alone speaks and writes."""
    words = ["--suite", "sts,retrieval", "--data", str(folder / "data"), "--json"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "sbert"]
    more = ["--output", str(tmp_path / "a.jsonl"), "--device", "cpu", "--dtype", "float32"]
    command = [*launch, "evaluate", str(folder / "encoder"), *words, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_metrics(done.stdout) == pytest.approx(read_metrics(run("@encoder", *words)[1]), abs=1e-6)
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("@nothing --suite sts --data @nowhere", "nowhere does not exist"),  # Said before the model is loaded.
        ("@encoder --suite sts --data @bert", "has no STS12, STS13, STS14"),
        ("@encoder --suite retrieval --data @bert", "has a corpus with qrels; pass another folder"),
        ("@encoder --suite sts,senteval --data @data", "'senteval' is unknown; pass one or more of sts, retrieval"),
        ("@ranker --suite retrieval --data @data --cross-encoder", "a cross-encoder cannot search"),
        ("@ranker --suite sts --data @data --cross-encoder --prompt x", "--prompt is for encoders"),
        ("@encoder --suite sts --data @data --query-prompt x", "--query-prompt is for encoders and --suite"),
    ],
)
def test_refuses(run: Run, line: str, message: str) -> None:
    check_refused(run(line), message)
