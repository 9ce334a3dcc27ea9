"""Commands with a sparse encoder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.sparse import load_npz

from tests.cli.conftest import TEXTS, Run
from tests.modules.test_splade import model_of


def test_encode_search_and_info(texts: Path, run: Run, tmp_path: Path) -> None:
    model = model_of().float()
    model.save(tmp_path / "model")
    vectors = model.encode(["", *TEXTS])
    said = f"v.npz: {len(TEXTS) + 1} vectors of {vectors.shape[1]} float32\n"
    assert run("encode", tmp_path / "model", texts, "-o", "v.npz") == (0, said, "")
    assert abs(load_npz("v.npz") - vectors).max() == 0
    found = run("search", tmp_path / "model", texts, "a small boat", "--top-k", 3, "--json")[1]
    scores = model.similarity(model.encode_query("a small boat"), model.encode_document(TEXTS))[0]
    best = np.argsort(-scores, kind="stable")[:3]
    assert [json.loads(line)["text"] for line in found.splitlines()] == [TEXTS[row] for row in best]
    facts = json.loads(run("info", tmp_path / "model", "--json")[1])
    assert (facts["dim"], facts["similarity"], facts["verification"]["ok"]) == (vectors.shape[1], "dot", True)
    assert "splade" in facts["modules"][1]
