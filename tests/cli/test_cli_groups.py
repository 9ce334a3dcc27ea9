"""``sbert pairs`` and ``sbert cluster``, and how all commands that answer with texts show them."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.cli.output import Terminal
from sbert.search import cluster, topic_words
from sbert.visualization.text import count_columns, shorten
from tests.cli.conftest import TEXTS, Run, records


@pytest.fixture(scope="module")
def vectors(model: SentenceEncoder) -> np.ndarray:
    return model.encode(TEXTS, normalize_embeddings=True)


# ------------------------------------------------------------------------------------------------------------- pairs


def test_pairs_are_the_best_of_all(folder: Path, texts: Path, vectors: np.ndarray, run: Run) -> None:
    first, second = np.triu_indices(len(TEXTS), 1)
    scores = (vectors.astype(np.float64) @ vectors.T)[first, second]
    order = np.argsort(-scores)
    code, out, err = run("pairs", folder, texts, "--json")
    assert (code, err) == (0, "")
    found = records(out)
    assert [each["rows"] for each in found] == [[first[i] + 2, second[i] + 2] for i in order[:20]]
    assert [each["texts"] for each in found] == [[TEXTS[first[i]], TEXTS[second[i]]] for i in order[:20]]
    np.testing.assert_allclose([each["score"] for each in found], scores[order[:20]], atol=1e-6)
    # A threshold names all pairs above it; without, there are a few.
    for count, *options in (5, "--threshold", found[4]["score"]), (2, "--max-pairs", 2):
        more = records(run("pairs", folder, texts, "--json", *options)[1])
        assert (len(more), more[:5]) == (count, found[: min(count, 5)])


def test_pairs_for_people(folder: Path, texts: Path, run: Run) -> None:
    [pair] = records(run("pairs", folder, texts, "--json", "--max-pairs", "1")[1])
    rows = [f"{row:>{max(len(str(row)) for row in pair['rows'])}}" for row in pair["rows"]]
    expected = f"{pair['score']:8.4f}  {rows[0]}  {pair['texts'][0]}\n          {rows[1]}  {pair['texts'][1]}\n"
    assert run("pairs", folder, texts, "--max-pairs", "1") == (0, expected, "")
    assert run("pairs", folder, "--max-pairs", "1", texts) == (0, expected, "")
    texts.write_text("lake\n", encoding="utf-8")
    assert run("pairs", folder, texts) == (0, "no pairs\n", "")
    assert run("pairs", folder, texts, "--json") == (0, "", "")


# ----------------------------------------------------------------------------------------------------------- cluster


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--threshold 0.997 --min-size 2", {"method": "community", "threshold": 0.997, "min_community_size": 2}),
        ("-k 3", {"method": "kmeans", "clusters": 3}),
    ],
)
def test_clusters_are_those_of_the_library(
    folder: Path, texts: Path, vectors: np.ndarray, run: Run, line: str, options: dict[str, Any]
) -> None:
    """The largest first, with their words; in each, the nearest to its mean first; last, texts without one."""
    labels = cluster(vectors, **options)
    words = topic_words(TEXTS, labels)
    code, out, err = run("cluster", folder, texts, *line.split(), "--json")
    assert (code, err) == (0, "")
    found = records(out)
    names = [*range(labels.max() + 1), *([-1] if -1 in labels else [])]
    assert len(names) > 2
    for each, label in zip(found, names, strict=True):
        members = np.flatnonzero(labels == label)
        assert (each["cluster"], each["words"]) == ((None, []) if label < 0 else (label + 1, words[label]))
        assert sorted(each["rows"]) == (members + 2).tolist()
        assert [TEXTS[row - 2] for row in each["rows"]] == each["texts"]
        nearness = vectors[np.array(each["rows"]) - 2] @ vectors[members].mean(0)
        assert label < 0 or (np.diff(nearness) <= 1e-6).all()


def test_one_text_and_texts_that_repeat(folder: Path, texts: Path, run: Run) -> None:
    texts.write_text("lake\n" * 3, encoding="utf-8")
    expected = [{"cluster": 1, "size": 3, "words": ["lake"], "rows": [1, 2, 3], "texts": ["lake"] * 3}]
    assert records(run("cluster", folder, texts, "--min-size", "3", "--json")[1]) == expected
    texts.write_text("lake\n", encoding="utf-8")
    assert run("cluster", folder, texts, "-k", "1") == (0, "cluster 1: 1 text  lake\n  1  lake\n", "")
    alone = "no cluster: 1 text; try a lower --threshold or --min-size\n"
    assert run("cluster", folder, texts) == (0, alone, "")


# ------------------------------------------------------------------------------------------------ how texts are shown


def test_texts_are_cut_to_the_terminal(
    folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts.write_text(f"{'the quiet lake ' * 9}\n{'문장 ' * 30}\n", encoding="utf-8")
    whole = run("pairs", folder, texts)[1]
    assert ("the quiet lake " * 9).strip() in whole
    assert max(map(len, whole.splitlines())) > 100
    monkeypatch.setenv("COLUMNS", "40")
    assert run("pairs", folder, texts)[1] == whole
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    narrow = run("pairs", folder, texts)[1].splitlines()
    # A character of two columns may have no room in the last one, and no space stands before the dots.
    assert [38 <= count_columns(line) <= 40 for line in narrow] == [True, True]
    assert all(line.endswith("…") for line in narrow)
    out = texts.parent / "out.txt"
    assert run("pairs", folder, texts, "-o", out)[1] == f"{out}: 2 lines\n"
    assert out.read_text(encoding="utf-8") == whole


def test_no_text_controls_the_terminal(folder: Path, tmp_path: Path, run: Run) -> None:
    path, out = tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    odd = ["a\ud800b \x1b[31m red\nlake", "the\tlake"]
    path.write_text("".join(json.dumps(text) + "\n" for text in odd), encoding="utf-8")
    shown = run("pairs", folder, path)[1]
    assert "\x1b" not in shown
    assert shown.count("\n") == 2
    assert "a\\ud800b \\u001b[31m red lake\n" in shown
    assert "the lake\n" in shown
    assert records(run("pairs", folder, path, "--json")[1])[0]["texts"] == odd
    assert run("pairs", folder, path, "--json", "--quiet", "-o", out) == (0, "", "")
    assert records(out.read_text(encoding="utf-8"))[0]["texts"] == odd


ODD = "a\x1b[2J\x07\x7f\x9b31m\u202e\u2066\u2028\U000e0041b"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("encode MODEL none-{} -o v.npy", 2),  # an error
        ("search MODEL {} lake --json", 0),
        ("train --model {} --data {} --loss {} --output {}", 2),
        ("doctor --{}", 2),
    ],
)
def test_no_file_name_controls_the_terminal(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(ODD).write_text(f"the {ODD} lake\nthe boat\n", encoding="utf-8")
    ended, out, err = run(*(folder if word == "MODEL" else word.replace("{}", ODD) for word in words.split()))
    assert ended == code
    shown = out + err
    assert [each for each in shown if each != "\n" and unicodedata.category(each) in ("Cc", "Cf", "Zl")] == []
    assert "\\u202e" in shown


def test_bars_move_the_cursor_and_their_words_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Terminal(sys.stderr, has_bars=True)
    assert bar.write("\rEncoding \x1b[31m\x9b 3/4\n\x1b[A") == 34
    assert capsys.readouterr().err == "\rEncoding \\u001b[31m\\u009b 3/4\n\x1b[A"
    assert bar.isatty() == sys.stderr.isatty()
    Terminal(sys.stdout).write("a\rb\n\x1b[A")
    assert capsys.readouterr().out == "a\\rb\n\\u001b[A"


@pytest.mark.parametrize("width", range(12))
def test_cut(width: int) -> None:
    for text in ("plain words", "문장 文 mixed", "cafe\u0301 cafe\u0301", "", "a"):
        made = shorten(text, width)
        assert count_columns(made) <= width
        assert made == text or made.rstrip("…") in text
        assert made == text or count_columns(text) > width
