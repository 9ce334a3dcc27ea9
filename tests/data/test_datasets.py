"""Readers of the field's data sets: every layout that their publishers use, and errors that name file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbert.data import (
    read_hub_retrieval,
    read_nli,
    read_retrieval,
    read_sick,
    read_sts,
    read_sts_year,
    read_triplets,
)
from tests.data.test_texts import put, write

PAIRS = [('A 5" nail.', 'He said: "A nail.', 2.5), ("A cat.", '"A pet.', 5.0)]
STS = [{"first": first, "second": second, "label": score / 5} for first, second, score in PAIRS]


def lines(*rows: object) -> str:
    return "".join("\t".join(map(str, row)) + "\n" if isinstance(row, (list, tuple)) else f"{row}\n" for row in rows)


def objects(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# ---------------------------------------------------------------------------------------------- pairs and triplets

RELEASE = lines(
    ["main-news", "MSRpar", "2012test", "0001", "2.500", *PAIRS[0][:2]],
    ["main-captions", "MSRvid", "2012test", "0002", "5.000", *PAIRS[1][:2], "CC BY", "http://x"],
)
NAMED = ["s1", "s2", "score"]
OFFICIAL = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
SICK_ROWS = [[1, "A", "B", "4.5", "NEUTRAL"], [2, "C", "D", 1, "ENTAILMENT"]]
RELATED = [{"first": "A", "second": "B", "label": 0.875}, {"first": "C", "second": "D", "label": 0.0}]
LABELLED = [("A cat.", 'A "cat.', "entailment"), ("A cat.", "?", "-"), ("A cat.", "A dog.", "contradiction")]
SNLI = ["sentence1", "sentence2", "gold_label"]
MULTI = ["gold_label", "sentence1_parse", "sentence1", "sentence2", "label1"]
NLI = [{"first": "A cat.", "second": 'A "cat.', "label": 1}, {"first": "A cat.", "second": "A dog.", "label": 0}]
TRIPLETS = [{"anchor": "a", "positive": 'p"', "negative": "n"}]


@pytest.mark.parametrize(
    ("read", "name", "content", "expected"),
    [
        (read_sts, "sts-dev.csv", RELEASE, STS),
        (read_sts, "sts-dev.tsv", "\N{ZERO WIDTH NO-BREAK SPACE}" + RELEASE.replace("\n", "\r\n"), STS),
        (read_sts, "kor.tsv", lines(["x", "score", "sentence1", "sentence2"], *(["", s, *t] for *t, s in PAIRS)), STS),
        (read_sts, "a.csv", 's1,label,s2\n"A 5"" nail.",2.5,"He said: ""A nail."\nA cat.,5,"""A pet."\n', STS),
        # Case, separators and spaces of names do not matter.
        (read_sts, "a.tsv", lines(["Sentence 1", "SENTENCE 2", "similarity-score"], *PAIRS), STS),
        (read_sick, "SICK_train.txt", lines(OFFICIAL, *SICK_ROWS), RELATED),
        (read_nli, "snli.jsonl", objects(*(dict(zip(SNLI, row, strict=True)) for row in LABELLED)), NLI),
        (read_nli, "multinli_1.0_dev.txt", lines(MULTI, *([c, "(ROOT", a, b, c] for a, b, c in LABELLED)), NLI),
        (read_triplets, "a.tsv", lines(["anchor", "positive", "negative"], ["a", 'p"', "n"]), TRIPLETS),
        (read_triplets, "nli_for_simcse.csv", 'sent0,sent1,hard_neg\na,"p""",n\n', TRIPLETS),
        (read_triplets, "AllNLI.jsonl", '["a", "p\\"", "n"]\n', TRIPLETS),
    ],
)
def test_published_forms(tmp_path: Path, read: Callable[[Path], Any], name: str, content: str, expected: Any) -> None:
    rows = read(put(tmp_path / name, content))
    assert rows == expected
    assert [*map(list, rows)] == [*map(list, expected)]


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_sts, RELEASE + "one\ttwo\n", r"a.txt, line 3: \['one', 'two'\] where 7 or more cells are expected"),
        (read_sts, lines(["s1", "s2", "gold"], *PAIRS), "no column score or .* or label; .* s1, s2, gold"),
        (read_sts, lines(["s1", "s2", "Score", "SCORE"]), "'Score' and 'SCORE' may both be 'score'; rename"),
        (read_sts, lines(NAMED, ["a", "b", 1]), r"has no score above 1; pass scale=\(0, 1\) .* or else scale=\(0, 5\)"),
        (read_nli, lines(["premise", "hypothesis", "label"], *LABELLED, ["a", "b", "?"]), "line 5: the label"),
        (read_triplets, '["a", "p", "n"]\n["a", "p"]\n', r"line 2: \['a', 'p'\] where 3 or more"),
    ],
)  # fmt: skip
def test_refuses(tmp_path: Path, read: Callable[[Path], Any], content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(put(tmp_path / "a.txt", content))
    with pytest.raises(FileNotFoundError, match=r"nowhere.tsv does not exist"):
        read(tmp_path / "nowhere.tsv")


def test_scales_classes_and_splits(tmp_path: Path) -> None:
    def read_labels(rows: list[dict[str, Any]]) -> list[float]:
        return [row["label"] for row in rows]

    release, sick = put(tmp_path / "a.csv", RELEASE), put(tmp_path / "sick.txt", lines(OFFICIAL, *SICK_ROWS))
    assert read_labels(read_sts(release, None)) == [2.5, 5.0]
    assert read_labels(read_sts(release, (0, 10))) == [0.25, 0.5]
    assert read_labels(read_sick(sick, scale=None)) == [4.5, 1.0]
    assert read_labels(read_nli(sick, ("NEUTRAL", "ENTAILMENT"))) == [0, 1]
    nli = put(tmp_path / "nli.tsv", lines(["premise", "hypothesis", "label"], *LABELLED))
    assert read_labels(read_nli(nli, ("entailment", "neutral", "contradiction"))) == [0, 2]
    rows = [[split, score, a, b] for split, (a, b, score) in zip(("train", "test"), PAIRS, strict=True)]
    splits = put(tmp_path / "a.tsv.gz", lines(["split", "score", "sentence1", "sentence2"], *rows))
    assert (read_sts(splits, split="train"), read_sts(splits)) == (STS[:1], STS)
    both = put(tmp_path / "SICK.txt", lines([*OFFICIAL, "SemEval_set"], [1, "A", "B", 2, "NEUTRAL", "TRIAL"]))
    assert read_sick(both, split="trial")[0]["label"] == 0.25
    with pytest.raises(ValueError, match=r"a.tsv.gz has no rows of the split 'dev'; it has test, train"):
        read_sts(splits, split="dev")


def test_a_year_is_the_same_in_both_layouts(tmp_path: Path) -> None:
    senteval, flat = tmp_path / "STS12-en-test", tmp_path / "STS12"
    for name, pairs, gold in (
        ("MSRpar", lines([*PAIRS[0][:2]], ["Not", "scored"], [*PAIRS[1][:2], "extra"]), "2.5\n\n5\n"),
        ("surprise.OnWN", lines(["[Update] a", "b"]), "2\n"),  # A sentence may begin with a bracket.
        ("SMT", lines(["a", "b"]), "1\n"),
    ):
        put(senteval / f"STS.input.{name}.txt", pairs)
        put(senteval / f"STS.gs.{name}.txt", gold)
    header = ["score", "sentence1", "sentence2"]
    put(flat / "MSRpar.tsv", lines(header, [2.5, *PAIRS[0][:2]], ["", "Not", "scored"], [5, *PAIRS[1][:2]]))
    put(flat / "OnWN.tsv.gz", lines(header, [2, "[Update] a", "b"]))
    put(flat / "SMT.tsv", lines(header, [1, "a", "b"]))
    expected = {"MSRpar": STS, "OnWN": [{"first": "[Update] a", "second": "b", "label": 0.4}]}
    assert read_sts_year(senteval) == read_sts_year(flat) == expected
    assert read_sts_year(flat, scale=None)["MSRpar"][0]["label"] == 2.5


# ------------------------------------------------------------------------------------------------------ retrieval


def beir(folder: Path) -> Path:
    documents = [("d1", "Cats", 'They "sleep.'), ("d2", "", "Dogs run."), ("3", "Taxes", "")]
    put(folder / "corpus.jsonl", objects(*({"_id": i, "title": t, "text": text} for i, t, text in documents)))
    put(folder / "queries.jsonl", objects(*({"_id": f"q{i}", "text": f"What is {i}?"} for i in range(4))))
    judgments = [["q1", "d1", 2], ["q1", "d2", 0], ["q0", 3, 1], ["q2", "d1", 0], ["q3", "d2", -1]]
    put(folder / "qrels" / "test.tsv", lines(["query-id", "corpus-id", "score"], *judgments))
    put(folder / "qrels" / "dev.tsv", lines(["query-id", "corpus-id", "score"], ["q2", "d2", 1]))
    return folder


def test_retrieval(tmp_path: Path) -> None:
    queries, corpus, relevant = read_retrieval(beir(tmp_path))
    assert corpus == {"d1": 'Cats They "sleep.', "d2": "Dogs run.", "3": "Taxes"}
    assert queries == {"q1": "What is 1?", "q0": "What is 0?"}
    assert relevant == {"q1": {"d1": 2}, "q0": {"3": 1}}
    assert read_retrieval(tmp_path, "dev").relevant == {"q2": {"d2": 1}}
    with pytest.raises(FileNotFoundError, match=r"has no qrels of 'train'; put the files there"):
        read_retrieval(tmp_path, "train")


def test_retrieval_of_tables_and_titles(tmp_path: Path) -> None:
    put(tmp_path / "corpus.tsv.gz", lines(["doc_id", "title", "author", "text"], [1, "Cats", "x", 'They "sleep.']))
    put(tmp_path / "queries.tsv", lines(["Query ID", "Text"], [7, "Who?"]))
    put(tmp_path / "qrels.tsv", lines(["query_id", "doc_id", "code", "grade"], [7, 1, 2, 3]))
    assert read_retrieval(tmp_path) == ({"7": "Who?"}, {"1": 'Cats They "sleep.'}, {"7": {"1": 3}})
    titles: list[dict[str, Any]] = [{}, {"title": "Cats"}, {"title": None}]
    put(tmp_path / "corpus.jsonl", objects(*({"_id": str(i), **t, "text": "x"} for i, t in enumerate(titles))))
    assert read_retrieval(tmp_path).corpus == {"0": "x", "1": "Cats x", "2": "x"}
    put(tmp_path / "corpus.jsonl", objects({"_id": "d1", "text": "x"}, {"_id": "d2", "title": "Cats"}))
    with pytest.raises(ValueError, match=r"corpus.jsonl, line 2: no key 'text'"):
        read_retrieval(tmp_path)


HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", 2 * objects({"_id": "d1", "text": "a"}), "line 2: the id 'd1' occurs twice"),
        ("corpus.jsonl", objects({"_id": None, "text": "a"}), "corpus.jsonl, line 1: the id None is not valid"),
        ("queries.jsonl", objects({"_id": "q1", "text": " "}), "queries.jsonl, line 1: the query is empty"),
        ("qrels/test.tsv", f"{HEADER}q1\td9\t1\n", "test.tsv, line 2: the id 'd9' is not in .*/corpus.js"),
        ("qrels/test.tsv", f"{HEADER}q1\td1\t0\n", "test.tsv has no relevant document"),
    ],
)
def test_retrieval_refuses(tmp_path: Path, name: str, content: str, message: str) -> None:
    put(beir(tmp_path) / name, content)
    with pytest.raises(ValueError, match=message):
        read_retrieval(tmp_path)


# ------------------------------------------------------------------------------------------ retrieval from the hub

HUB = {
    "corpus": [{"_id": f"d{i}", "text": f"text {i}"} for i in range(6)],
    "queries": [{"_id": "q1", "text": "one?"}, {"_id": "q2", "text": "two?"}, {"_id": "q3", "text": "none?"}],
    "qrels": [{"query-id": "q1", "corpus-id": "d1"}, {"query-id": "q2", "corpus-id": "d2"}],
    "bm25": [{"query-id": q, "corpus-ids": ["d3", "d1", "d2"]} for q in ("q1", "q2")],
}
RELEVANT = {"q1": {"d1": 1}, "q2": {"d2": 1}}


def hub(root: Path, split: str, ending: str = "parquet", **other: list[dict[str, Any]]) -> Path:
    """A repository as the hub has it; the corpus in two parts."""
    for part, rows in ({**HUB, **other}).items():
        count = 2 if part == "corpus" else 1
        for i in range(count if rows else 0):
            part_rows = rows[i * len(rows) // count : (i + 1) * len(rows) // count]
            write(root / part / f"{split}-0000{i}-of-0000{count}.{ending}", part_rows)
    return root


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "jsonl.gz"])
def test_a_repository_of_several_data_sets(tmp_path: Path, ending: str) -> None:
    hub(hub(tmp_path, "NanoPets", ending), "NanoBoats", ending, qrels=[{"query-id": "q3", "corpus-id": ["d0", "d5"]}])
    put(tmp_path / "README.md", "# Pets")
    found = read_hub_retrieval(tmp_path)
    assert list(found) == ["NanoBoats", "NanoPets"]
    pets = found["NanoPets"]
    assert pets.queries == {"q1": "one?", "q2": "two?"}
    assert list(pets.corpus) == [f"d{i}" for i in range(6)]
    assert pets.relevant == RELEVANT
    assert pets.candidates == {"q1": ["d3", "d1", "d2"], "q2": ["d3", "d1", "d2"]}
    assert found["NanoBoats"].relevant == {"q3": {"d0": 1, "d5": 1}}
    assert list(read_hub_retrieval(tmp_path, ["NanoPets"])) == ["NanoPets"]
    with pytest.raises(FileNotFoundError, match="has no NanoCars; it has NanoBoats, NanoPets"):
        read_hub_retrieval(tmp_path, ["NanoPets", "NanoCars"])


def test_repositories_of_one_data_set_each(tmp_path: Path) -> None:
    """As published at first, with BM25's ranking and lists of ids, and in BEIR's layout."""
    hub(tmp_path / "NanoPets", "train", bm25=[])
    ranked = [{"query-id": "q1", "positive-corpus-ids": ["d1", "d4"], "bm25-ranked-ids": ["d4", "d1"]}]
    hub(tmp_path / "NanoBoats-bm25", "train", bm25=[], qrels=[], relevance=ranked)
    beir(tmp_path / "other")
    hub(tmp_path / "graded", "test", bm25=[], qrels=[{**row, "score": i} for i, row in enumerate(HUB["qrels"])])
    found = read_hub_retrieval(tmp_path)
    assert list(found) == ["NanoBoats-bm25", "NanoPets", "graded", "other"]
    assert (found["NanoPets"].relevant, found["NanoPets"].candidates) == (RELEVANT, {})
    assert found["NanoBoats-bm25"].relevant == {"q1": {"d1": 1, "d4": 1}}
    assert found["NanoBoats-bm25"].candidates == {"q1": ["d4", "d1"]}
    assert found["graded"].relevant == {"q2": {"d2": 1}}
    assert found["other"][:3] == read_retrieval(tmp_path / "other")


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        ({"qrels": []}, FileNotFoundError, "has no qrels of 'NanoPets'"),
        ({"qrels": [{"query-id": "q1", "corpus-id": "d9"}]}, ValueError, "row 1: the id 'd9' is not in corpus/Nano"),
        ({"bm25": [{"query-id": "q1", "corpus-ids": ["d9"]}]}, ValueError, "row 1: the id 'd9' is not in corpus/Nano"),
    ],
)
def test_a_repository_that_is_not_whole(tmp_path: Path, other: Any, error: type[Exception], message: str) -> None:
    hub(tmp_path, "NanoPets", **other)
    with pytest.raises(error, match=message):
        read_hub_retrieval(tmp_path)
