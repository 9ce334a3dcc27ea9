"""``sbert benchmark``, end to end on a tiny model; no test looks at a time."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sbert import SentenceEncoder
from sbert.benchmark import plot, table
from sbert.benchmark.ceiling import ceilings
from sbert.benchmark.contenders import OWN, PEERS, facts, useful
from sbert.benchmark.measure import Contender, _linearity, benchmark, chosen
from sbert.benchmark.workloads import made_up, mixed, short
from sbert.cli import main
from tests.test_families import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("bert", tmp_path_factory.mktemp("model") / "bert")


@pytest.mark.slow
def test_from_command_to_table(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"a small boat number {i}" for i in range(30)) + "\n")
    options = ["--data", str(texts), "--rounds", "2", "--sample", "20", "--json", str(tmp_path / "all.json")]
    assert main(["benchmark", str(folder), "--device", "cpu", *options]) == 0
    said = capsys.readouterr().out
    for part in ("ceiling", "short: 20 texts", "mixed: 5 texts", "single sentences", "smart batching", "best"):
        assert part in said
    result = json.loads((tmp_path / "all.json").read_text())
    names = set(chosen(None, torch.device("cpu")))
    assert names == {*OWN, *PEERS} - {"sbert-float32", "sentence-transformers-best"}
    assert result["skipped"] == {}
    for load in result["loads"].values():
        assert set(load["contenders"]) == names
        assert load["contenders"]["sbert"]["difference"] <= 1e-5  # The same vectors as sentence-transformers'.
        assert load["contenders"]["padded-in-order"]["difference"] <= 1e-5
        assert load["contenders"]["sentence-transformers"]["ratio"] == 1
    assert set(result["single"]) == set(result["memory"]) == names
    assert table(result) == said.rstrip("\n")
    if find_spec("matplotlib"):
        plot(result, str(tmp_path / "all.png"))
        assert (tmp_path / "all.png").stat().st_size > 1000
    else:
        with pytest.raises(ValueError, match="pip install matplotlib"):
            plot(result, str(tmp_path / "all.png"))


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
    lengths = [len(text.split()) for text in made_up(2000, seed=0)]
    assert 12 < sum(lengths) / 2000 < 17


def test_useful_arithmetic_is_counted_right(folder: Path) -> None:
    """Two layers of width 16: four matrices of 16 x 16 and two of 16 x 32 each; the pooler gives no token anything."""
    model = SentenceEncoder(folder, device="cpu")
    weights = 2 * (4 * 16 * 16 + 2 * 16 * 32)
    assert facts(model)["weights"] == weights
    counted = useful(model, ["a small boat", "lake"])  # 5 and 3 tokens with their special ones
    assert counted["tokens"] == 8
    assert counted["operations"] == 2 * weights * 8 + 4 * 2 * 16 * (25 + 9)


def test_ceilings() -> None:
    found = ceilings(torch.device("cpu"), torch.get_num_threads())
    assert set(found) == {"float32", "bfloat16"}
    assert min(found.values()) > 0


def test_more_and_more_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbert.benchmark.measure._LINEAR", (5, 20, 40))
    with Contender("sbert", str(folder), "cpu", 1) as contender:
        rows = _linearity(contender, rounds=2)
        with pytest.raises(RuntimeError, match="sbert: TypeError: "):
            contender.ask("encode", [None])
        assert contender.ask("encode", ["it goes on"])[1].shape == (1, 16)
    assert [row["texts"] for row in rows] == [5, 20, 40]
    assert [row["vectors"] for row in rows] == [4 * 16 * count for count in (5, 20, 40)]
    assert all(row["sentences"] > 0 and row["grown"] >= 0 for row in rows)


def test_who_cannot_run_is_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Contender("sentence-transformers", str(folder / "nowhere"), "cpu", 1) as contender:
        assert contender.failure is not None
    with pytest.raises(ValueError, match="cannot be measured: FileNotFoundError"):
        benchmark(str(folder / "nowhere"), device="cpu", against=[])


def test_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", str(folder), "--against", "word2vec"]) == 2
    said = capsys.readouterr().err
    assert "'word2vec' is unknown; name some of sentence-transformers" in said
    assert main(["benchmark", str(folder), "--rounds", "0"]) == 2
    assert "at least 1 round" in capsys.readouterr().err
    assert main(["benchmark", str(folder), "--dtype", "bfloat16"]) == 2
    assert "--dtype" in capsys.readouterr().err
