"""``sbert pairs`` and ``sbert cluster``, and how all commands that answer with texts show them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from sbert.cli.output import one_line
from sbert.visualization.text import count_columns, shorten
from tests import small

TEXTS = [f"{text} {number}" for number in ("one", "two", "three") for text in small.CORPUS]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups") / "model"
    reader = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    SentenceEncoder(reader, Pooling("mean"), device="cpu").save(folder)
    return folder


@pytest.fixture(scope="module")
def cosines(saved: Path) -> np.ndarray:
    """Of each text with each other, by plain arithmetic."""
    vectors = SentenceEncoder(saved, device="cpu").encode(TEXTS).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """In rows 1 to 13, but for an empty row 1."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(["", *TEXTS]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on a CPU; gives its exit code and what it wrote to stdout and stderr."""

    def call(name: str, *words: object) -> tuple[int, str, str]:
        code = main([name, *map(str, words), "--device", "cpu"])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# ------------------------------------------------------------------------------------------------------------- pairs


def test_pairs_are_the_best_of_all(saved: Path, texts: Path, cosines: np.ndarray, run: Run) -> None:
    first, second = np.triu_indices(len(TEXTS), 1)
    order = np.argsort(-cosines[first, second])
    code, out, err = run("pairs", saved, texts, "--json")
    assert (code, err) == (0, "")
    found = records(out)
    assert len(found) == 20
    assert [each["rows"] for each in found] == [[first[i] + 2, second[i] + 2] for i in order[:20]]
    assert [each["texts"] for each in found] == [[TEXTS[first[i]], TEXTS[second[i]]] for i in order[:20]]
    np.testing.assert_allclose([each["score"] for each in found], cosines[first, second][order[:20]], atol=1e-6)
    least = found[4]["score"]
    assert records(run("pairs", saved, texts, "--json", "--threshold", least)[1]) == found[:5]
    # A threshold names all pairs above it; without, there are a few.
    assert len(records(run("pairs", saved, texts, "--json", "--threshold", "-1")[1])) == len(first)
    assert records(run("pairs", saved, texts, "--json", "--max-pairs", "2")[1]) == found[:2]
    nearest = (cosines - 9 * np.eye(len(TEXTS))).argmax(1)
    expected = {tuple(sorted((row + 2, int(best) + 2))) for row, best in enumerate(nearest)}
    assert {
        tuple(each["rows"]) for each in records(run("pairs", saved, texts, "--json", "--top-k", "1")[1])
    } == expected


def test_pairs_for_people(saved: Path, texts: Path, run: Run) -> None:
    [pair] = records(run("pairs", saved, texts, "--json", "--max-pairs", "1")[1])
    rows = [f"{row:>{max(len(str(row)) for row in pair['rows'])}}" for row in pair["rows"]]
    expected = f"{pair['score']:8.4f}  {rows[0]}  {pair['texts'][0]}\n          {rows[1]}  {pair['texts'][1]}\n"
    assert run("pairs", saved, texts, "--max-pairs", "1") == (0, expected, "")
    assert run("pairs", saved, "--max-pairs", "1", texts) == (0, expected, "")
    texts.write_text("lake\nlake\n", encoding="utf-8")
    assert run("pairs", saved, texts) == (0, "  1.0000  1  lake\n          2  lake\n", "")
    texts.write_text("lake\n", encoding="utf-8")
    assert run("pairs", saved, texts) == (0, "no pairs\n", "")
    assert run("pairs", saved, texts, "--json") == (0, "", "")


# ----------------------------------------------------------------------------------------------------------- cluster


def test_communities(saved: Path, texts: Path, cosines: np.ndarray, run: Run) -> None:
    """Each text but those that stand alone is once in a cluster, with a member as near as the threshold."""
    code, out, err = run("cluster", saved, texts, "--threshold", "0.997", "--min-size", "2", "--json")
    assert (code, err) == (0, "")
    found = records(out)
    assert sorted(row for each in found for row in each["rows"]) == list(range(2, 14))
    clusters = [each for each in found if each["cluster"] is not None]
    assert [each["cluster"] for each in clusters] == list(range(1, len(clusters) + 1))
    assert 1 < len(clusters) < len(found)
    sizes = [each["size"] for each in clusters]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) >= 2
    for each in found:
        assert each["size"] == len(each["rows"]) == len(each["texts"])
        assert [TEXTS[row - 2] for row in each["rows"]] == each["texts"]
    for each in clusters:
        rows = np.array(each["rows"]) - 2
        among = cosines[np.ix_(rows, rows)]
        assert (among.min(1)).max() > 0.997 - 1e-6  # Some member, the centre, is so near to all.
        # The mean cosine with all members orders them by their nearness to the middle.
        assert (np.diff(among.mean(1)) <= 1e-6).all()
        words = {word for text in each["texts"] for word in text.lower().replace(",", " ").split()}
        assert len(each["words"]) == 5
        assert set(each["words"]) & words
    nothing = "no cluster: 12 texts; try a lower --threshold or --min-size\n"
    assert run("cluster", saved, texts, "--threshold", "1", "--min-size", "2") == (0, nothing, "")


@pytest.mark.parametrize("options", [("kmeans", "-k", "3"), ("agglomerative", "-k", "3")])
def test_so_many_clusters(saved: Path, texts: Path, run: Run, options: tuple[str, ...]) -> None:
    """The clusters are those of scikit-learn on the same directions."""
    from sklearn.cluster import AgglomerativeClustering, KMeans
    from sklearn.metrics import adjusted_rand_score

    vectors = SentenceEncoder(saved, device="cpu").encode(TEXTS, normalize_embeddings=True)
    method: Any = AgglomerativeClustering(3, metric="cosine", linkage="average")
    if options[0] == "kmeans":
        method = KMeans(3, n_init=4, random_state=0)
    expected = method.fit_predict(vectors)
    found = records(run("cluster", saved, texts, "--method", *options, "--json")[1])
    assert [each["cluster"] for each in found] == [1, 2, 3]
    labels = np.zeros(len(TEXTS), int)
    for each in found:
        labels[np.array(each["rows"]) - 2] = each["cluster"]
    assert adjusted_rand_score(labels, expected) == 1


def test_one_text_and_texts_that_repeat(saved: Path, texts: Path, run: Run) -> None:
    texts.write_text("lake\n" * 3, encoding="utf-8")
    expected = [{"cluster": 1, "size": 3, "words": ["lake"], "rows": [1, 2, 3], "texts": ["lake"] * 3}]
    assert records(run("cluster", saved, texts, "--min-size", "3", "--json")[1]) == expected
    assert records(run("cluster", saved, texts, "--method", "kmeans", "-k", "1", "--json")[1]) == expected
    texts.write_text("lake\n", encoding="utf-8")
    for words in (["--min-size", "1"], ["--method", "kmeans", "-k", "1"], ["--method", "agglomerative", "-k", "1"]):
        assert run("cluster", saved, texts, *words) == (0, "cluster 1: 1 text  lake\n  1  lake\n", "")
    alone = "no cluster: 1 text; try a lower --threshold or --min-size\n"
    assert run("cluster", saved, texts) == (0, alone, "")


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pairs MODEL none.txt", "none.txt does not exist"),
        ("pairs MODEL texts.txt --max-pairs 0", "--max-pairs: '0' is not possible; pass a whole number of at least 1"),
        ("pairs MODEL texts.txt --threshold inf", "'inf' is not a finite number"),
        ("cluster MODEL empty.txt", "empty.txt contains no text"),
        ("cluster MODEL texts.txt -k 3", "--method community takes --threshold and --min-size, and no -k"),
        ("cluster MODEL texts.txt --threshold 2", "--threshold 2.0 is not a cosine; pass -1 to 1"),
        ("cluster MODEL texts.txt --method kmeans", "takes the number of clusters, -k, and no --threshold"),
        ("cluster MODEL texts.txt --method kmeans -k 13", "clusters=13 exceeds the 12 vectors; pass at most 12"),
        ("cluster MODEL texts.txt --method kmeans -k 3 --min-size 2", "no --threshold or --min-size"),
        ("cluster MODEL texts.txt --method agglomerative", "takes either the number of clusters, -k, or --threshold"),
        ("cluster ./none texts.txt", "none does not exist; pass a model's folder"),
    ],
)
def test_errors_are_one_line(
    saved: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(texts.parent)
    (texts.parent / "empty.txt").write_text("\n  \n", encoding="utf-8")
    before = sorted(texts.parent.iterdir())
    code, out, err = run(*(saved if word == "MODEL" else word for word in words.split()))
    assert (code, out) == (2, "")
    assert err.startswith("sbert: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(texts.parent.iterdir()) == before


def test_words_may_stand_behind_options(saved: Path, texts: Path, tmp_path: Path, run: Run) -> None:
    for words in ((saved, texts, "-o"), (saved, "-o"), ("-o",)):
        out = tmp_path / f"{len(words)}.npy"
        behind = [word for word in (saved, texts) if word not in words]
        assert run("encode", *words, out, *behind, "--quiet") == (0, "", "")
        assert np.load(out).shape == (13, 16)
    expected = run("similarity", saved, *TEXTS[:2])
    assert run("similarity", saved, "--dtype", "auto", *TEXTS[:2]) == expected
    assert run("similarity", saved, TEXTS[0], "--dtype", "auto", TEXTS[1]) == expected
    code, _, errors = run("encode", saved, texts, "-o", tmp_path / "v.npy", "more")
    assert (code, errors) == (2, "sbert: error: more does not exist; name a file, or - for standard input\n")


def test_without_scikit_learn(saved: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    code, out, err = run("cluster", saved, texts, "--method", "kmeans", "-k", "2")
    assert (code, out) == (2, "")
    assert 'pip install "sbert[cluster]"' in err
    assert run("cluster", saved, texts, "--threshold", "0.5")[0] == 0


# ------------------------------------------------------------------------------------------------ how texts are shown


def test_texts_are_cut_to_the_terminal(
    saved: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts.write_text(f"{'the quiet lake ' * 9}\n{'문장 ' * 30}\n", encoding="utf-8")
    whole = run("pairs", saved, texts)[1]
    assert ("the quiet lake " * 9).strip() in whole
    assert max(map(len, whole.splitlines())) > 100
    monkeypatch.setenv("COLUMNS", "40")
    assert run("pairs", saved, texts)[1] == whole
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    narrow = run("pairs", saved, texts)[1].splitlines()
    # A character of two columns may have no room in the last one, and no space stands before the dots.
    assert [38 <= count_columns(line) <= 40 for line in narrow] == [True, True]
    assert all(line.endswith("…") for line in narrow)
    out = texts.parent / "out.txt"
    assert run("pairs", saved, texts, "-o", out)[1] == f"{out}: 2 lines\n"
    assert out.read_text(encoding="utf-8") == whole


def test_no_text_controls_the_terminal(saved: Path, tmp_path: Path, run: Run) -> None:
    path, out = tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    odd = ["a\ud800b \x1b[31m red\nlake", "the\tlake"]
    path.write_text("".join(json.dumps(text) + "\n" for text in odd), encoding="utf-8")
    shown = run("pairs", saved, path)[1]
    assert "\x1b" not in shown
    assert shown.count("\n") == 2
    assert "a\\ud800b \ufffd[31m red lake\n" in shown
    assert "the lake\n" in shown
    assert records(run("pairs", saved, path, "--json")[1])[0]["texts"] == odd
    assert run("pairs", saved, path, "--json", "--quiet", "-o", out) == (0, "", "")
    assert records(out.read_text(encoding="utf-8"))[0]["texts"] == odd


@pytest.mark.parametrize("width", range(12))
def test_cut(width: int) -> None:
    for text in ("plain words", "문장 文 mixed", "cafe\u0301 cafe\u0301", "", "a"):
        made = shorten(text, width)
        assert count_columns(made) <= width
        assert made == text or made.rstrip("…") in text
        assert made == text or count_columns(text) > width
    assert one_line(" a\r\n b\u2028c\x00 ") == "a b c\ufffd"


def test_what_turns_the_order_of_letters_is_not_shown() -> None:
    """Overrides and isolates, marks, and what nobody sees; but not what joins letters."""
    for code in (0xAD, 0x61C, 0x200B, 0x200E, 0x202A, 0x202E, 0x2060, 0x2066, 0x2069, 0xFEFF, 0xE0041):
        assert one_line(f"a{chr(code)}b") == "ab"
    persian, family = "\u0645\u06cc\u200c\u062e", "\U0001f468\u200d\U0001f469"
    assert one_line(f"{persian} {family}") == f"{persian} {family}"


def test_a_reader_that_has_seen_enough(saved: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(["pairs", str(saved), str(texts), "--device", "cpu"]) == 0
        monkeypatch.undo()


def test_interrupted(saved: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SentenceEncoder, "encode", interrupt)
    for name in ("pairs", "cluster"):
        assert run(name, saved, texts) == (130, "", "sbert: interrupted\n")
