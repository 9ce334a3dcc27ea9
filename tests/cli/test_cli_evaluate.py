"""``sbert evaluate``: which suites it runs, what it says, and what it refuses."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import CrossEncoder, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from sbert.data import read_retrieval, read_transfer
from sbert.evaluation import NanoBEIRSuite, RetrievalEvaluator, STSSuite, TransferSuite
from tests import small
from tests.data.test_datasets import beir, hub, lines, objects, put
from tests.evaluation.test_sts_suite import WORDS
from tests.evaluation.test_sts_suite import folder as similarities

Run = Callable[..., tuple[int, str, str]]


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 4)) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, a cross-encoder of three classes, and data for all four suites."""
    root = tmp_path_factory.mktemp("evaluate")
    base = small.bert(root / "bert")
    SentenceEncoder(Transformer(base), Pooling("mean"), Normalize(), device="cpu").save(root / "encoder")
    CrossEncoder(base, classes=3, device="cpu").save(root / "scorer")
    CrossEncoder(base, classes=1, device="cpu").save(root / "ranker")
    data = similarities(root / "data")
    rows = [[i % 2, text] for i, text in enumerate(sentences(60, 1))]
    put(data / "senteval" / "MR.tsv", lines(["label", "text"], *rows))
    for split in ("train", "dev", "test"):
        pairs = zip(sentences(30, 2), sentences(30, 3), ["entailment", "neutral", "contradiction"] * 10, strict=True)
        put(data / "nli" / f"snli_{split}.tsv", lines(["premise", "hypothesis", "label"], *pairs))
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


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``sbert evaluate`` on a CPU; gives its exit code and what it wrote to stdout and stderr."""

    def call(line: str, *more: object) -> tuple[int, str, str]:
        words = [str(folder / word[1:]) if word.startswith("@") else word for word in line.split()]
        code = main(["evaluate", *words, *map(str, more), "--device", "cpu", "--dtype", "float32"])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def figures(out: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(out)["figures"]
    return found


def test_several_suites_at_once(folder: Path, run: Run) -> None:
    """Each figure is what the suite gives that is called from Python."""
    code, out, err = run("@encoder --suite sts,transfer,retrieval --data @data --json")
    assert (code, err.count("\n")) == (0, 1)
    assert "unknown tokens: " in err  # The vocabulary is that of a few sentences.
    model = SentenceEncoder(folder / "encoder", device="cpu", dtype="float32")
    expected = {f"sts_{name}": value for name, value in STSSuite(folder / "data")(model).items()}
    expected |= {f"transfer_{name}": value for name, value in TransferSuite(folder / "data")(model).items()}
    animals = RetrievalEvaluator(*read_retrieval(folder / "data" / "animals"))(model)
    expected |= {f"retrieval_animals_{name}": value for name, value in animals.items()}
    assert figures(out) == pytest.approx(expected)
    assert json.loads(out)["missing"] == {
        "sts": ["STS13", "STS14", "STS15", "STS16"],
        "transfer": ["CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"],
        "retrieval": [],
    }


def test_the_table_is_in_percent(folder: Path, run: Run) -> None:
    code, out, _ = run("@encoder --suite sts,retrieval --data @data")
    assert code == 0
    found = figures(run("@encoder --suite sts,retrieval --data @data --json")[1])
    written = [line.split() for line in out.splitlines()]
    assert ["STSb", f"{100 * found['sts_STSb']:.2f}"] in written
    assert ["animals_ndcg@10", f"{100 * found['retrieval_animals_ndcg@10']:.2f}"] in written
    assert f"not in {folder / 'data'}: STS13, STS14, STS15, STS16" in out
    assert ["sts"] in written
    assert written[written.index(["retrieval"]) + 1][0] == "animals_ndcg@10"
    values = [line for line in out.splitlines() if len(line.split()) == 2]
    assert len(values) == len(found)
    assert len({len(line) for line in values}) == 1  # In columns.


def test_nanobeir_of_an_encoder_is_a_search(folder: Path, run: Run) -> None:
    """All figures are those of the suite; the table has a line per data set, and the mean of them."""
    found = figures(run("@encoder --suite nanobeir --data @data --json")[1])
    model = SentenceEncoder(folder / "encoder", device="cpu", dtype="float32")
    expected = NanoBEIRSuite(folder / "data" / "nanobeir")(model)
    assert found == pytest.approx({f"nanobeir_{name}": value for name, value in expected.items()})
    one, two = (expected[f"{name}_ndcg@10"] for name in ("NanoBoats", "NanoPets"))
    assert expected["mean_ndcg@10"] == pytest.approx((one + two) / 2)
    written = [line.split() for line in run("@encoder --suite nanobeir --data @data")[1].splitlines()]
    assert written[1] == ["ndcg@10", "mrr@10", "map@100", "recall@10", "accuracy@1"]
    assert [row[:2] for row in written[2:]] == [
        ["NanoBoats", f"{100 * one:.2f}"],
        ["NanoPets", f"{100 * two:.2f}"],
        ["mean", f"{50 * (one + two):.2f}"],
    ]


def test_nanobeir_of_a_cross_encoder_reranks(folder: Path, run: Run, tmp_path: Path) -> None:
    """What BM25 found, or a retriever; a deeper reranking finds no less."""
    found = figures(run("@ranker --suite nanobeir --data @data --cross-encoder --json")[1])
    assert found["nanobeir_mean_recall@10"] == found["nanobeir_mean_base_recall@10"] == 1
    assert found["nanobeir_mean_base_ndcg@10"] != found["nanobeir_mean_ndcg@10"]
    words = "@ranker --suite nanobeir --data @data --cross-encoder --retriever @encoder --rerank"
    few, all_of_them = (figures(run(f"{words} {count} --json")[1]) for count in (3, 20))
    encoder = figures(run("@encoder --suite nanobeir --data @data --json")[1])
    assert few["nanobeir_mean_base_recall@3"] == encoder["nanobeir_mean_recall@3"]
    assert few["nanobeir_mean_recall@10"] == encoder["nanobeir_mean_recall@3"]
    assert all_of_them["nanobeir_mean_base_ndcg@10"] == pytest.approx(encoder["nanobeir_mean_ndcg@10"])
    written = run(f"{words} 3")[1].splitlines()
    assert written[1].split()[-1] == "base_ndcg@10"
    hub(tmp_path, "NanoPets", bm25=[])
    code, _, err = run("@ranker --suite nanobeir --cross-encoder --data", tmp_path)
    assert code == 2
    assert "there are no candidates of NanoPets for a reranker; pass retriever=" in err


def test_output_is_a_line_a_run(folder: Path, run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        code, out, _ = run("@encoder --suite sts --data @data --json --output", tmp_path / "a.csv")
        assert code == 0
        assert run("@encoder --suite sts --data @data --output", tmp_path / "a.jsonl")[0] == 0
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    values = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(values) == 2
    for row in (*rows, *values):
        assert row["model"] == str(folder / "encoder")
        assert float(row["sts_STSb"]) == pytest.approx(figures(out)["sts_STSb"])
    assert list(rows[0])[:4] == ["time", "model", "evaluator", "sts_average"]


@pytest.mark.slow
def test_two_processes_share_the_work(folder: Path, run: Run, tmp_path: Path) -> None:
    """They find what one does, folds of the transfer tasks included, and the first alone speaks and writes."""
    words = ["--suite", "sts,transfer,nli,retrieval", "--data", str(folder / "data"), "--json"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "sbert"]
    more = ["--output", str(tmp_path / "a.jsonl"), "--device", "cpu", "--dtype", "float32"]
    command = [*launch, "evaluate", str(folder / "encoder"), *words, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert figures(done.stdout) == pytest.approx(figures(run("@encoder", *words)[1]), abs=1e-6)
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1
    # Neither goes on alone when the work fails.
    command[command.index(str(folder / "encoder"))] = str(folder / "nothing")
    assert subprocess.run(command, capture_output=True, text=True, timeout=300).returncode != 0


def test_inference_of_an_encoder_is_a_regression(folder: Path, run: Run) -> None:
    model = SentenceEncoder(folder / "encoder", device="cpu", dtype="float32")
    expected = TransferSuite(folder / "data", ["SNLI"])(model)["SNLI"]
    assert figures(run("@encoder --suite nli --data @data --json")[1])["nli_SNLI"] == pytest.approx(expected)


def test_inference_of_a_cross_encoder_is_its_own(folder: Path, run: Run) -> None:
    scorer = CrossEncoder(folder / "scorer", device="cpu")
    rows = read_transfer(folder / "data", "SNLI").splits["test"]
    classes = scorer.predict([(row["first"], row["second"]) for row in rows]).argmax(1)
    expected = float(np.mean(classes == [row["label"] for row in rows]))
    code, out, err = run("@scorer --suite nli --data @data --cross-encoder --json")
    assert (code, err) == (0, "")
    assert figures(out)["nli_SNLI_accuracy"] == pytest.approx(expected)
    assert run("@ranker --suite sts --data @data --cross-encoder")[0] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("@encoder --suite sts --data @nowhere", "nowhere does not exist"),
        ("@encoder --suite sts --data @bert", "has no STS12, STS13, STS14"),
        ("@encoder --suite transfer --data @bert", "has no MR or CR"),
        ("@encoder --suite nli --data @bert", "has no SICK-E or SNLI or MNLI"),
        ("@encoder --suite retrieval --data @bert", "has a corpus with qrels; pass another folder"),
        ("@encoder --suite retrieval --data @nowhere", "nowhere does not exist"),
        ("@encoder --suite sts,senteval --data @data", "'senteval' is unknown; pass one or more of sts, transfer, nli"),
        ("@encoder --suite sts", "--data"),
        ("@encoder --data @data", "--suite"),
        ("@scorer --suite transfer --data @data --cross-encoder", "a cross-encoder has no vectors of single texts"),
        ("@scorer --suite retrieval --data @data --cross-encoder", "a cross-encoder cannot search"),
        ("@scorer --suite sts --data @data --cross-encoder", "3 scores per pair"),
        ("@ranker --suite nli --data @data --cross-encoder", "classes"),
        ("@nothing --suite sts --data @data", "nothing"),
        ("@encoder --suite nanobeir --data @bert", "has no data sets; download a repository"),
        ("@encoder --suite nanobeir --data @nowhere", "nowhere does not exist"),
        ("@encoder --suite nanobeir --data @data --retriever @encoder", "pass --suite nanobeir --cross-encoder, too"),
        ("@ranker --suite sts --data @data --cross-encoder --retriever @encoder", "pass --suite nanobeir"),
        ("@ranker --suite nanobeir --data @data --cross-encoder --rerank 0", "rerank=0 is too small"),
    ],
)
def test_refuses(run: Run, line: str, message: str) -> None:
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("sbert: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_wrong_data_is_said_before_the_model_is_loaded(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "stsb" / "test.tsv", "score\tsentence1\tsentence2\n1\ta\tb\nx\ta\tb\n")
    code, _, err = run("@nothing --suite sts --data", tmp_path)
    assert code == 2
    assert "test.tsv, line 3: the label 'x' is not a number" in err


def test_an_output_that_cannot_be_written_costs_no_figures(run: Run, tmp_path: Path) -> None:
    other = put(tmp_path / "a.csv", 'a,b\n1\n"')
    code, out, err = run("@encoder --suite sts --data @data --output", other)
    assert code == 2
    assert "STSb" in out
    assert "a.csv" in err


def test_without_scikit_learn_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    real: Any = __import__("sbert.evaluation.transfer", fromlist=["find_spec"])
    monkeypatch.setattr(real, "find_spec", lambda name: None)
    code, _, err = run("@encoder --suite transfer --data @data")
    assert code == 2
    assert 'pip install "sbert[evaluation]"' in err


def test_help_imports_no_torch_and_names_every_suite() -> None:
    code = "import sys; from sbert.cli.main import main; main(['evaluate', '--help'])"
    check = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); {code}"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
    for suite in ("sts", "transfer", "nli", "retrieval", "nanobeir"):
        assert f"\n  {suite} " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
