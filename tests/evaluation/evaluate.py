"""Every evaluator of the table, on one rank or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from sbert import CrossEncoder, SentenceEncoder
from sbert.distributed.ranks import Ranks
from sbert.evaluation import SimilarityEvaluator
from tests.contract.evaluators import EVALUATORS, FIRST, SECOND


def main(encoder: str, scorer: str, output: str) -> None:
    torch.set_num_threads(1)
    ranks, folder = Ranks.join(), Path(output)
    model, lines = SentenceEncoder(encoder, device="cpu"), folder / "results.jsonl"
    found: dict[str, Any] = {name: make()(model, ranks=ranks, output=lines) for name, (make, _) in EVALUATORS.items()}
    # Three pairs, two of which are the same, and one pair: fewer than there are ranks.
    for name, rows in (("scores", [0, 1, 0, 2]), ("few scores", [0, 0, 0])):
        evaluator = SimilarityEvaluator([FIRST[i] for i in rows], [SECOND[i] for i in rows], range(len(rows)))
        found[name] = evaluator(CrossEncoder(scorer, device="cpu"), ranks=ranks)
    try:
        EVALUATORS["similarity"][0]()(model, ranks=ranks, output=folder)
    except (OSError, RuntimeError) as error:
        found["failure"] = type(error).__name__
    (folder / f"{ranks.rank}-of-{ranks.world}.json").write_text(json.dumps(found))
