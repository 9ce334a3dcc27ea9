"""Hard negatives are those of sentence-transformers, or of the definition; labels are a teacher's scores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from sbert import CrossEncoder, Pooling, SentenceEncoder, Transformer
from sbert.search import mine_hard_negatives, score_lists, training_rows
from tests import small
from tests.training.helpers import tiny

# Some anchors have no negatives.
pytestmark = pytest.mark.filterwarnings("ignore:.* rows have fewer than:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("negatives")
    SentenceEncoder(Transformer(small.bert(path / "bert")), Pooling(), device="cpu").save(path / "model")
    return path / "model"


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


def sentences(count: int, seed: int) -> list[str]:
    rng, words = random.Random(seed), [word for word in small.words() if len(word) > 1 and word.isascii()]
    return list(dict.fromkeys(" ".join(rng.choices(words, k=rng.randint(2, 5))) for _ in range(count)))


ANCHORS, CORPUS = sentences(12, 0), sentences(40, 2)
POSITIVES = [f"{anchor} lake" for anchor in ANCHORS]
PAIRS = list(zip(ANCHORS, POSITIVES, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"range_min": 3, "range_max": 9, "corpus": None},
        {"margin": 0.03, "corpus": None},
        {"relative_margin": 0.04},
        {"margin": 0.0, "max_score": 0.96, "range_max": 12},
    ],
    ids=str,
)
def test_those_of_sentence_transformers(folder: Path, encoder: SentenceEncoder, options: dict[str, Any]) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives as theirs

    model = SentenceTransformer(str(folder), device="cpu")
    dataset = Dataset.from_dict({"anchor": ANCHORS, "positive": POSITIVES})
    options = {"corpus": CORPUS, "range_max": 100, **options}
    renamed = {"absolute_margin" if name == "margin" else name: value for name, value in options.items()}
    expected = theirs(dataset, model, num_negatives=3, output_format="triplet", verbose=False, **renamed)
    found = mine_hard_negatives(encoder, PAIRS, negatives=3, as_triplets=True, **options)
    assert found == list(expected)
    assert found


def by_definition(
    encoder: SentenceEncoder, pairs: list[tuple[str, str]], low: int, high: int, margin: float
) -> dict[str, list[str]]:
    """With a table of all scores."""
    texts = list(dict.fromkeys([*CORPUS, *(positive for _, positive in pairs)]))
    unit = {
        text: vector / np.linalg.norm(vector)
        for text, vector in zip([*texts, *ANCHORS], encoder.encode([*texts, *ANCHORS]).astype(np.float64), strict=True)
    }
    found = {}
    for anchor, _ in pairs:
        answers = {positive for other, positive in pairs if other == anchor}
        ranked = sorted(
            (text for text in texts if text not in answers | {anchor}), key=lambda t: -(unit[t] @ unit[anchor])
        )
        least = min(unit[text] @ unit[anchor] for text in answers)
        found[anchor] = [text for text in ranked[low:high] if unit[text] @ unit[anchor] <= least - margin]
    return found


def test_an_anchor_with_several_positives(encoder: SentenceEncoder) -> None:
    """None of them is its negative, whichever row it stands in, nor is the anchor."""
    pairs = [*PAIRS, *((ANCHORS[0], text) for text in CORPUS[:9]), (ANCHORS[1], ANCHORS[2]), (ANCHORS[3], ANCHORS[1])]
    for low, high, margin in ((0, 5, -2.0), (2, 30, 0.0), (2, 30, 0.03)):
        expected = by_definition(encoder, pairs, low, high, margin)
        options: dict[str, Any] = {"range_min": low, "range_max": high, "margin": margin if margin >= 0 else None}
        found = mine_hard_negatives(encoder, pairs, CORPUS, negatives=3, as_triplets=True, **options)
        assert found == [
            {"anchor": anchor, "positive": positive, "negative": text}
            for anchor, positive in pairs
            for text in expected[anchor][:3]
        ]


def test_at_random(encoder: SentenceEncoder) -> None:
    """The same with the same seed, all different, and of the window."""
    window = by_definition(encoder, PAIRS, 5, 15, -2.0)
    options: dict[str, Any] = {"negatives": 4, "range_min": 5, "range_max": 15}
    found = [mine_hard_negatives(encoder, PAIRS, CORPUS, seed=seed, **options) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    for row in found[2]:
        chosen = [row[f"negative_{number}"] for number in range(1, 5)]
        places = [window[row["anchor"]].index(text) for text in chosen]
        assert len(set(chosen)) == 4
        assert min(places) >= 0


def test_rows_without_negatives_are_counted(encoder: SentenceEncoder) -> None:
    with pytest.warns(UserWarning, match="12 of 12 rows have fewer than 1 negatives and are left out"):
        assert mine_hard_negatives(encoder, PAIRS, CORPUS, max_score=-1) == []
    with pytest.warns(UserWarning, match="1 of 1 rows"):
        assert mine_hard_negatives(encoder, PAIRS[:1]) == []


def test_lists_hold_all_positives_of_an_anchor(encoder: SentenceEncoder) -> None:
    pairs = [*PAIRS[:3], (PAIRS[0][0], CORPUS[0])]
    triplets = mine_hard_negatives(encoder, pairs, CORPUS, negatives=2, as_triplets=True)
    found = mine_hard_negatives(encoder, pairs, CORPUS, negatives=2, as_lists=True)
    assert [row["query"] for row in found] == [anchor for anchor, _ in pairs[:3]]
    for row in found:
        positives = {positive for anchor, positive in pairs if anchor == row["query"]}
        count = len(positives)
        assert row["labels"] == [1] * count + [0] * 2
        assert set(row["documents"][:count]) == positives
        negatives = [one["negative"] for one in triplets if one["anchor"] == row["query"]]
        assert row["documents"][count:] == negatives[:2]
    assert len(found[0]["documents"]) == 4
    with pytest.raises(ValueError, match="as_triplets and as_lists both set the form of the rows"):
        mine_hard_negatives(encoder, pairs, as_triplets=True, as_lists=True)


QUERY, *TEXTS = "a small boat", "the red fox runs", "nobody rows it home", "seven green hills", "ten"
MANY: list[dict[str, Any]] = [{"anchor": QUERY, "positive": text, "negatives": TEXTS[2:], "id": text} for text in TEXTS]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    return CrossEncoder(small.bert(tmp_path_factory.mktemp("teacher") / "bert"), classes=1, device="cpu")


def raw(scorer: CrossEncoder, *texts: str) -> list[float]:
    return [float(scorer.predict((QUERY, text), activation=nn.Identity())) for text in texts]


def test_a_cross_encoder_scores_the_candidates(encoder: SentenceEncoder, scorer: CrossEncoder) -> None:
    """The negatives have its highest scores among those below that of the positive."""
    window = by_definition(encoder, PAIRS, 1, 20, -2.0)
    options: dict[str, Any] = {"range_min": 1, "range_max": 20, "margin": 0.0, "cross_encoder": scorer}
    found = mine_hard_negatives(encoder, PAIRS, CORPUS, negatives=2, as_triplets=True, **options)
    for anchor, positive in PAIRS:
        texts = [positive, *window[anchor]]
        bound, *scores = scorer.predict([(anchor, text) for text in texts]).tolist()
        expected = sorted([(-score, text) for score, text in zip(scores, texts[1:], strict=True) if score <= bound])
        assert [row["negative"] for row in found if row["anchor"] == anchor] == [text for _, text in expected[:2]]
    assert 0 < len(found) < 2 * len(PAIRS)
    with pytest.raises(ValueError, match=r"(?s)^cross_encoder is .*; pass a CrossEncoder with one score per pair"):
        mine_hard_negatives(encoder, PAIRS, cross_encoder=encoder)


@pytest.mark.parametrize(
    "row",
    [
        {"negative": TEXTS[1], "anchor": QUERY, "positive": TEXTS[0]},
        {"anchor": QUERY, "positive": TEXTS[0], "negative_1": TEXTS[1], "negative_2": TEXTS[2]},
        {"query": QUERY, "positive": TEXTS[0], "negatives": TEXTS[1:3], "id": 7},
        {"query": QUERY, "documents": TEXTS[:3], "labels": [1, 0, 0], "negatives": TEXTS[3:]},
        {"anchor": QUERY, "positive": TEXTS[0], "negatives": TEXTS[1:3], "negative_source": "bm25"},
    ],
    ids=lambda row: ",".join(row),
)
def test_a_teacher_scores_rows_of_each_form(scorer: CrossEncoder, row: dict[str, Any]) -> None:
    """Labels are the raw scores of the documents; margins those of the positive minus those of each negative."""
    (scored,) = score_lists(scorer, iter([row]))
    labels = scored.pop("labels")
    assert scored == {name: value for name, value in row.items() if name != "labels"}
    np.testing.assert_allclose(labels, raw(scorer, *TEXTS[: len(labels)]), atol=1e-6)
    assert len(labels) == (2 if "negative" in row else 3)
    if "documents" in row:
        with pytest.raises(TypeError, match="pass dicts of anchor, positive and negatives, as strings"):
            list(score_lists(scorer, [row], as_margins=True))
    else:
        (margins,) = score_lists(scorer, [row], as_margins=True)
        np.testing.assert_allclose(margins["labels"], labels[0] - np.array(labels[1:]), atol=1e-6)


def test_a_teacher_reads_rows_when_they_are_needed(scorer: CrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_rows, "_ROWS", 2)
    taken: list[int] = []

    def endless() -> Iterator[Any]:
        while True:
            taken.append(1)
            yield MANY[0]

    scored = score_lists(scorer, endless())
    assert [len(next(scored)["labels"]) for _ in range(3)] == [3, 3, 3]
    assert len(taken) == 4


def test_rows_without_texts_to_score_are_shown(scorer: CrossEncoder) -> None:
    for row in ("text", {"anchor": QUERY}, {"query": QUERY, "documents": []}):
        with pytest.raises(TypeError, match=r"a row is .*; pass dicts of anchor, positive and negatives, or query and"):
            list(score_lists(scorer, [MANY[0], row]))
    with pytest.raises(TypeError, match=r"a row is .*; pass dicts of anchor, positive and negatives, as strings"):
        list(score_lists(scorer, [{"anchor": QUERY, "positive": "ten"}], as_margins=True))
    with pytest.raises(ValueError, match=r"(?s)teacher is SentenceEncoder.*; pass a CrossEncoder"):
        score_lists(tiny(), MANY)
