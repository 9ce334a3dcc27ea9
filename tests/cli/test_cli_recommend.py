"""``sbert recommend``: its figures are those of the library, and its advice follows from them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import CrossEncoder, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from sbert.cli.recommend import collection, comparison, models, show
from sbert.cli.recommend.systems import System, Trial
from sbert.data import read_retrieval
from sbert.evaluation import RetrievalEvaluator, ndcg_at
from sbert.search import Index, IndexHits, Lexical, fuse
from sbert.search.fusion import WEIGHTS
from tests import small
from tests.data.test_datasets import lines, put
from tests.evaluation.test_sts_suite import WORDS
from tests.project.test_readme import publish

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, a cross-encoder, one of three classes, and a collection of 40 documents and 12 queries."""
    root, rng = tmp_path_factory.mktemp("recommend"), np.random.default_rng(0)
    base = small.bert(root / "bert")
    SentenceEncoder(Transformer(base), Pooling("mean"), Normalize(), device="cpu").save(root / "encoder")
    CrossEncoder(base, classes=1, device="cpu").save(root / "ranker")
    CrossEncoder(base, classes=3, device="cpu").save(root / "scorer")
    documents = [[f"d{i}", "", " ".join(rng.choice(WORDS, 8))] for i in range(40)]
    queries = [[f"q{i}", " ".join(rng.choice(documents[3 * i][2].split(), 3))] for i in range(12)]
    put(root / "data" / "corpus.tsv", lines(["doc_id", "title", "text"], *documents))
    put(root / "data" / "queries.tsv", lines(["query_id", "text"], *queries))
    for name in ("corpus.tsv", "queries.tsv"):
        put(root / "unjudged" / name, (root / "data" / name).read_text(encoding="utf-8"))
    judged = [[f"q{i}", f"d{j}", grade] for i in range(12) for j, grade in ((3 * i, 2), (3 * i + 1, 1), (3 * i + 2, 0))]
    put(root / "data" / "qrels.tsv", lines(["query_id", "doc_id", "grade"], *judged))
    return root


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``sbert recommend`` on a CPU; gives its exit code and what it wrote to stdout and stderr."""

    def call(line: str) -> tuple[int, str, str]:
        code = main(["recommend", *line.replace("@", f"{folder}{os.sep}").split(), "--device", "cpu"])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def by_name(out: str) -> dict[str, dict[str, Any]]:
    return {system["name"]: system for system in json.loads(out)["systems"]}


# ------------------------------------------------------------------------------------------------------ the figures


def test_figures_are_those_of_the_library(folder: Path, run: Run) -> None:
    code, out, err = run("--data @data --models @encoder --rerankers @ranker --rerank 5 --json --quiet")
    assert code == 0
    assert "Error" not in err
    found, data = by_name(out), read_retrieval(folder / "data")
    assert {*found} >= {"encoder", "BM25", "BM25 english", "encoder + BM25"}
    encoder = SentenceEncoder(folder / "encoder", device="cpu")
    expected = RetrievalEvaluator(*data, precision_recall_at=(100,))(encoder)
    assert found["encoder"]["ndcg@10"] == pytest.approx(expected["ndcg@10"])
    assert found["encoder"]["recall@100"] == pytest.approx(expected["recall@100"])
    assert found["encoder"]["model_bytes"] == sum(p.nbytes for p in encoder.parameters())
    assert found["encoder"]["index_bytes_per_document"] == 4 * 16

    def ndcg(ranked: list[list[str]]) -> float:
        grades = [[own.get(name, 0.0) for name in ids] for own, ids in zip(data.relevant.values(), ranked, strict=True)]
        return float(ndcg_at(grades, 10, [[2, 1]] * 12).mean())

    words, names = Lexical(language="english"), list(data.corpus)
    words.add(data.corpus.values(), names)
    ranked = words.search([*data.queries.values()], 40)
    shown = np.where(ranked.scores == 0, "", ranked.ids)
    assert found["BM25 english"]["ndcg@10"] == pytest.approx(ndcg(shown.tolist()))
    vectors = Index()
    vectors.add(encoder.encode_document(list(data.corpus.values())), names)
    asked = [*data.queries.values()]
    best = max(("BM25", "BM25 english"), key=lambda name: found[name]["ndcg@10"])
    words = Lexical(language=found[best]["model"])
    words.add(data.corpus.values(), names)
    hits = words.search(asked, 40), vectors.search(encoder.encode_query(asked), 40)
    fused = fuse(*hits, top_k=40, method="weighted", weights=WEIGHTS)
    assert found["encoder + BM25"]["ndcg@10"] == pytest.approx(ndcg(fused.ids.tolist()))
    name = next(name for name in found if name.endswith(", ranker"))
    assert found[name]["recall@100"] == found[name.removesuffix(", ranker")]["recall@100"]
    ordered = [system["ndcg@10"] for system in json.loads(out)["systems"]]
    assert ordered == sorted(ordered, reverse=True)
    assert json.loads(out)["systems"][0]["to_best"] is None


def test_words_in_common_are_needed() -> None:
    """Documents that share no word with the query are not results, though BM25 lists them last."""
    documents, relevant = ["A cat.", "A dog.", "Rain."], [{1: 1.0}, {2: 1.0}]
    found = Trial(collection.Collection(["cat", "rain"], documents, relevant, ""), lambda _: None).words(None)
    assert found.hits.ids.tolist() == [[0, -1, -1], [2, -1, -1]]
    assert (found.ndcg.tolist(), found.recall) == ([0, 1], 0.5)


def test_reranking_orders_the_first_by_score() -> None:
    relevant: list[dict[int, float]] = [{2: 1.0}, {0: 1.0}, {0: 1.0}]
    trial = Trial(collection.Collection(["a", "b", "c"], ["0", "11", "222", "3333"], relevant, ""), lambda _: None)
    hits = IndexHits(np.zeros((3, 4), np.float32), np.array([[0, 1, 2, 3], [3, 2, 1, 0], [-1] * 4]))
    base = System("base", "words", hits, np.zeros(3), 0.5, 1.0, 2.0, 3, 4.0, None)

    class Longest:
        def predict(self, pairs: list[tuple[str, str]], **options: Any) -> np.ndarray:
            return np.array([len(document) for _, document in pairs], np.float32)

    found = trial.reranked(base, "longest", "x", Longest(), 3, 10)
    assert found.hits.ids.tolist() == [[2, 1, 0, 3], [3, 2, 1, 0], [-1] * 4]
    assert found.ndcg.tolist() == pytest.approx([1, 1 / np.log2(5), 0])
    assert (found.recall, found.model_bytes, found.index_bytes) == (pytest.approx(2 / 3), 13, 4.0)
    assert found.query_seconds > base.query_seconds


def test_late_interaction_of_the_best_encoder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shortest:
        def __init__(self, encoder: SentenceEncoder) -> None:
            assert encoder.get_sentence_embedding_dimension() == 16

        def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
            return np.array([-len(document) for _, document in pairs], np.float32)

    monkeypatch.setattr(comparison, "LateInteraction", Shortest)
    code, out, _ = run("--data @data --models @encoder --json --quiet")
    found = by_name(out)
    (name,) = (name for name in found if "late interaction" in name)
    size = found["encoder"]["model_bytes"]
    assert (code, found[name]["kind"], found[name]["model_bytes"]) == (0, "reranked", size)


# ------------------------------------------------------------------------------------------------------- the queries


def read(data: Path, **options: Any) -> collection.Collection:
    known = {"column": None, "format": None, "title": None, "queries": 200, "documents": 5000, "seed": 0}
    return collection.read(argparse.Namespace(data=str(data), **{**known, **options}))


def test_first_sentences_become_queries(tmp_path: Path) -> None:
    texts = [
        "Is a small cat asleep?   It sleeps on the sofa all day.",
        "One sentence alone.",
        "",
        "고양이가 소파에서 하루 종일 잔다。 강아지는 정원에서 놀고 있다, 아침부터 저녁까지.",
        "The same first sentence. Then come other words, many.",
        "The same first sentence. Then come still other words.",
    ]
    found = read(put(tmp_path / "texts.txt", "\n".join(texts)))
    assert found.queries == ["Is a small cat asleep?", "고양이가 소파에서 하루 종일 잔다。"]
    assert [found.documents[place] for own in found.relevant for place in own] == [
        "It sleeps on the sofa all day.",
        "강아지는 정원에서 놀고 있다, 아침부터 저녁까지.",
    ]
    assert len(found.documents) == 5
    assert "favours BM25" in found.about


def test_titles_become_queries(tmp_path: Path) -> None:
    rows = [["Cats", "Cats sleep all day."], ["", "No title."], ["Taxes", "They rise."]]
    found = read(put(tmp_path / "a.tsv", lines(["name", "body"], *rows)), column="body", title="name")
    assert found.queries == ["Cats", "Taxes"]
    assert found.documents == ["sleep all day.", "No title.", "They rise."]
    assert found.relevant == [{0: 1.0}, {2: 1.0}]


def test_samples_keep_what_is_relevant(folder: Path, tmp_path: Path) -> None:
    whole, part = read(folder / "data"), read(folder / "data", queries=4, documents=15)
    assert (len(whole.queries), len(whole.documents)) == (12, 40)
    assert (len(part.queries), len(part.documents)) == (4, 15)
    for query, own in zip(part.queries, part.relevant, strict=True):
        texts = {part.documents[place]: grade for place, grade in own.items()}
        every = whole.relevant[whole.queries.index(query)]
        assert texts == {whole.documents[place]: grade for place, grade in every.items()}
    assert "4 of 12 queries" in part.about
    assert "15 of 40 documents" in part.about
    assert part == read(folder / "data", queries=4, documents=15)
    assert part != read(folder / "data", queries=4, documents=15, seed=1)
    text = "".join(f"The first sentence {i} of many. And this is the rest {i} of it.\n" for i in range(500))
    some = read(put(tmp_path / "texts.txt", text), queries=7, documents=50)
    assert (len(some.queries), len(some.documents), len({*some.documents})) == (7, 50, 50)
    assert len({query.split()[3][0] for query in some.queries}) > 1  # Not from the beginning alone.


# -------------------------------------------------------------------------------------------------------- the models


def test_models_in_the_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("me/encoder", "encoder"), ("you/encoder", "encoder"), ("me/ranker", "ranker")):
        publish(tmp_path, name, folder / source)
    publish(tmp_path, "me/scorer", folder / "scorer")
    publish(tmp_path, "bert", folder / "bert")
    (tmp_path / "models--me--broken").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    encoders, rerankers = models.at_hand()
    assert [model.name for model in encoders][:3] == ["sbert-mini", "me/encoder", "you/encoder"]
    assert [model.name for model in encoders][3:] in ([], ["all-MiniLM-L6-v2"])
    assert rerankers == [models.Model("ranker", "me/ranker")]


def test_a_model_that_does_not_fit_in_memory(tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", "")
    os.truncate(tmp_path / "model.safetensors", 1 << 42)  # Without taking room on the disk.
    with pytest.raises(MemoryError, match=r"it needs about 8796.1 GB"):
        models.check_memory(tmp_path)


def test_what_fails_is_a_line(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("--data @data --models @nothing,@encoder --rerankers @scorer --quiet")
    assert code == 0
    said = " ".join(out.split())
    assert "nothing: not measured: FileNotFoundError: " in said
    assert "scorer: not measured: ValueError: it gives 3 scores per pair, and a reranker gives one" in said
    assert "encoder + BM25" in said
    monkeypatch.setattr(Trial, "encoding_seconds", lambda *_: 6000.0)
    code, out, _ = run("--data @data --models @encoder --quiet")
    assert code == 0
    assert "encoder: not measured: it would take 100 minutes; pass a greater --minutes" in " ".join(out.split())
    assert "Best: BM25" in out


def test_ctrl_c_ends_quietly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "words", interrupted)
    code, out, err = run("--data @data --models @encoder --quiet")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "sbert: interrupted"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--data @nowhere", "nowhere does not exist"),
        ("--data @unjudged", "qrels"),
        ("--data @data --queries 0", "--queries"),
        ("", "--data"),
    ],
)
def test_refuses(run: Run, line: str, message: str) -> None:
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("sbert: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_texts_without_queries(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "texts.txt", "One.\nTwo.\n")
    code, _, err = run(f"--data {tmp_path / 'texts.txt'}")
    assert code == 2
    assert "no document has a first sentence with more text behind it" in err


# -------------------------------------------------------------------------------------------------------- the advice


def system(name: str, kind: str, ndcg: float, seconds: float, *parts: System, spread: float = 0.01) -> System:
    noise = spread * np.random.default_rng(len(name)).standard_normal(100)
    hits = IndexHits(np.empty((0, 0), np.float32), np.empty((0, 0), np.int64))
    model = "english" if kind == "words" else name
    return System(name, kind, hits, ndcg + noise - noise.mean(), 0.9, seconds, seconds, 10, 100.0, model, parts)


def test_advice() -> None:
    vectors, words = system("vectors", "vectors", 0.4, 0.02), system("words", "words", 0.3, 0.001)
    both = system("both", "hybrid", 0.5, 0.021, vectors, words)
    ranked = system("ranked", "reranked", 0.52, 0.21, both)
    said = show.advice([words, ranked, vectors, both])
    assert said == [
        "Best: ranked, nDCG@10 52.0.",
        "Words and vectors together: +10.0 compared with vectors, +20.0 compared with words.",
        "Reranking: +2.0 compared with both, and takes 10 times as long per query.",
        "Run: " + show.code(ranked),
    ]
    close = system("nearly as good", "vectors", 0.519, 0.001, spread=0.1)
    said = show.advice([words, ranked, close, vectors, both])
    assert len(said) == 5
    assert said[0] == "Best: ranked, nDCG@10 52.0. With 100 queries, no difference from nearly as good is visible."
    assert said[1] == "Cheapest that is not visibly worse: nearly as good, 1.0 ms per query instead of 210.0."
    assert said[-1] == 'Run: sbert search nearly as good FILE "QUERY"'
    hardly_faster = system("hardly faster", "vectors", 0.517, 0.0009, spread=0.1)
    assert show.advice([words, ranked, close, hardly_faster, both])[1:] == said[1:]


def test_few_queries_show_nothing(run: Run) -> None:
    code, out, _ = run("--data @data --models @encoder --rerank 0 --queries 1 --quiet")
    assert code == 0
    assert "so few queries (1) cannot compare systems" in " ".join(out.split())


def test_the_report_fits_a_terminal(run: Run) -> None:
    code, out, err = run("--data @data --models @encoder --rerank 0")
    assert code == 0
    assert "12 queries, 40 documents, models: 1; about" in err
    assert max(len(line) for line in out.splitlines() if not line.startswith("Run: ")) <= 80
    rows = out.split("\n\n")[1].splitlines()
    assert sorted(row.split("  ")[0] for row in rows[1:]) == ["BM25", "BM25 english", "encoder", "encoder + BM25"]


def test_help_imports_no_torch() -> None:
    code = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))"
    code += "; from sbert.cli.main import main; main(['recommend', '--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_what_to_run() -> None:
    vectors, words = system("a/b", "vectors", 0.4, 0.02), system("words", "words", 0.3, 0.001)
    both = system("a/b", "hybrid", 0.5, 0.021, vectors, words)
    assert show.code(words) == 'sbert search --words --language english FILE "QUERY"'
    assert show.code(both) == 'sbert search --hybrid --language english a/b FILE "QUERY"'
    assert show.code(system("x", "reranked", 0.5, 0.1, vectors)) == 'sbert search a/b FILE "QUERY", and rerank with x'
    plain = dataclasses.replace(words, model=None)
    assert show.code(plain) == 'sbert search --words FILE "QUERY"'
