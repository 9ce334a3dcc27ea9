"""predict and rank give one type for each conversion, and float32 whatever the activation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sbert import CrossEncoder
from tests import pairs

DOCUMENTS = ["a small boat", "the quiet lake", "a red fox", "a small boat"]
CONVERSIONS = list(itertools.product((True, False), repeat=2))


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, CrossEncoder]:
    """Cross-encoders by the number of scores that they give a pair."""
    root = tmp_path_factory.mktemp("scorers")
    return {n: CrossEncoder(pairs.folder(root / str(n), classes=n), device="cpu") for n in (1, 3)}


@pytest.fixture(params=[1, 3])
def scorer(request: pytest.FixtureRequest, scorers: dict[int, CrossEncoder]) -> CrossEncoder:
    return scorers[request.param]


def test_rank_gives_tensors_or_numbers(scorers: dict[int, CrossEncoder]) -> None:
    scorer = scorers[1]
    expected = scorer.predict([("a fox", text) for text in DOCUMENTS])
    order = np.argsort(-expected, kind="stable").tolist()
    for (numpy, tensor), top_k in itertools.product(CONVERSIONS, (None, 2)):
        options = {"convert_to_numpy": numpy, "convert_to_tensor": tensor, "top_k": top_k}
        found = scorer.rank("a fox", iter(DOCUMENTS), return_documents=True, **options)
        assert [entry["corpus_id"] for entry in found] == order[:top_k]
        assert [entry["text"] for entry in found] == [DOCUMENTS[row] for row in order[:top_k]]
        assert [float(entry["score"]) for entry in found] == expected[order[:top_k]].tolist()
        for entry in found:
            if numpy and not tensor:
                assert type(entry["score"]) is float
            else:
                assert (entry["score"].shape, entry["score"].dtype) == ((), torch.float32)
        assert scorer.rank("a fox", [], **options) == []


def test_predict_gives_one_type_for_each_conversion(scorer: CrossEncoder) -> None:
    several = [("a fox", text) for text in DOCUMENTS]
    expected = scorer.predict(several)
    row = () if scorer.classes == 1 else (scorer.classes,)
    for numpy, tensor in CONVERSIONS:
        options: dict[str, Any] = {"convert_to_numpy": numpy, "convert_to_tensor": tensor}
        kind = torch.Tensor if tensor else np.ndarray if numpy else list
        for given in (several, tuple(several), iter(several), np.array(several), zip(*zip(*several))):  # noqa: B905
            found = scorer.predict(given, **options)
            assert isinstance(found, kind)
            np.testing.assert_allclose(torch.stack(found) if kind is list else found, expected, atol=1e-6)
        for one in (several[0], list(several[0]), np.array(several[0])):
            found = scorer.predict(one, **options)
            assert isinstance(found, (np.ndarray, np.generic) if kind is np.ndarray else torch.Tensor)
            assert found.shape == row
            np.testing.assert_allclose(found, expected[0], atol=1e-6)
        for nothing in ([], iter(()), np.zeros((0, 2), "<U1")):
            found = scorer.predict(nothing, **options)
            assert isinstance(found, kind)
            assert kind is list or tuple(found.shape) == (0, *row)


def test_an_activation_gives_float32_and_a_row_a_pair(scorer: CrossEncoder) -> None:
    several = [("a fox", text) for text in DOCUMENTS]
    plain = scorer.predict(several, activation=nn.Identity())
    found = scorer.predict(several, activation=lambda scores: scores.double().sigmoid())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-plain)), atol=1e-6)
    assert scorer.predict(several, activation=lambda scores: scores.argmax(1)).dtype == np.int64
    for softmax in (nn.Softmax(dim=-1), nn.LogSoftmax(dim=1)):
        if scorer.classes == 1:  # It would be 1, or 0, for every pair, and rank by nothing.
            with pytest.raises(ValueError, match=r"of one score gives every pair the same; pass nn\.Sigmoid"):
                scorer.rank("a fox", DOCUMENTS, activation=softmax)
        else:
            assert np.ptp(scorer.predict(several, activation=softmax)) > 0
    cases = [
        (lambda scores: scores * float("nan"), r"gives NaN for pairs\[0\]"),
        (lambda scores: scores[:1], r"makes shape \(1, \d\) of \(4, \d\) scores; return a row"),
        (lambda scores: scores.numpy(), "makes ndarray of"),
    ]
    for activation, message in cases:
        with pytest.raises(ValueError, match=message):
            scorer.predict(several, activation=activation)
