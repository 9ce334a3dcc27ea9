"""The kernels in Triton's language, run by its interpreter: alone, and in the fused forward on a simulated GPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertConfig, BertModel

from sbert import SentenceEncoder, TokenBatch
from sbert.backends import choice
from sbert.backends.attention import attend
from sbert.backends.fused import Fused
from sbert.backends.packed import positions
from sbert.backends.self_check import Check
from sbert.backends.triton import PARTS, launches, pooling
from sbert.batch import Ragged, TokenEmbeddings
from sbert.modules import Pooling
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.interpreted import interpreted, needs_triton
from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.simulated_cuda, needs_triton]

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# One rounding of a correct result, and that of sums whose terms were rounded before.
NEAR = {torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}
# In float32, the bound for sums of 128 terms: their order, and so their last bits, depends on the processor.
SUMS = {torch.float32: 128 * 2**-24, torch.bfloat16: 2**-7, torch.float16: 2**-10}
LENGTHS = [(1, 17, 0, 63, 64), (16, 3, 0), (0, 32, 17), (1,)]


@pytest.fixture(autouse=True)
def _all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Are used without the self-check, which has tests of its own."""
    monkeypatch.setattr(pooling, "_failures", {})
    monkeypatch.setattr(choice, "check", lambda *_: Check(parts=frozenset(PARTS)))


@pytest.fixture
def triton() -> Iterator[None]:
    with interpreted():
        yield


def numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def rows_of(lengths: tuple[int, ...], padding: int = 1) -> TokenBatch:
    """Every fifth token is the padding token, in the text of a user."""
    return TokenBatch.from_rows([[padding if i % 5 == 3 else i + 5 for i in range(n)] for n in lengths])


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=tolerance)


def normalized(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x.double(), x.shape[1:], weight.double(), bias.double(), 1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [26, 312, 384, 768, 1024])
def test_layer_norm_of_a_sum(width: int, dtype: torch.dtype, triton: None) -> None:
    x, residual = numbers(5, width, dtype=dtype), numbers(6, width, dtype=dtype)[1:]
    bias, weight, shift = numbers(3, width, dtype=dtype).unbind()
    found = launches.add_norm(x, bias, residual, weight, shift, 1e-12)
    assert found.dtype == dtype
    close(found, normalized(x.double() + bias.double() + residual.double(), weight, shift), NEAR[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("padding", [None, 1, 0])
@pytest.mark.parametrize("lengths", LENGTHS[:2])
def test_embeddings(
    lengths: tuple[int, ...], padding: int | None, typed: bool, dtype: torch.dtype, triton: None
) -> None:
    """Positions are those of the plain forward, also where padding tokens stand in a text."""
    batch = rows_of(lengths, 2 if padding is None else padding)
    if typed:
        batch = replace(batch, types=torch.arange(len(batch.ids)) % 2)
    words, table = numbers(70, 312, dtype=torch.float32), numbers(2 * 66, 312, dtype=torch.float32)
    weight, bias = numbers(2, 312, dtype=torch.float32).unbind()
    found = launches.embed_norm(batch, words, table, 66, padding, weight, bias, 1e-12, dtype)
    places = positions(batch, padding) + (66 * batch.types if batch.types is not None else 0)
    close(found, normalized(words[batch.ids] + table[places], weight, bias), NEAR[dtype])


@pytest.mark.parametrize("token", [-1, 70])
def test_what_is_in_no_table_is_not_a_number(token: int, triton: None) -> None:
    words, table, ones = torch.ones(70, 8), torch.ones(3, 8), torch.ones(8)
    batch = TokenBatch.from_rows([[5, token], [6, 7, 8, 9]])
    found = launches.embed_norm(batch, words, table, 3, None, ones, ones, 1e-12, torch.float32)
    assert found.isnan().all(1).tolist() == [False, True, False, False, False, True]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [26, 64, 128])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("biased", [False, True])
def test_attention_of_short_rows(
    lengths: tuple[int, ...], dim: int, biased: bool, dtype: torch.dtype, triton: None
) -> None:
    """Several heads of a program, the last of which has fewer; empty rows; tiles that are not full."""
    rows = rows_of(lengths)
    query, key, value = numbers(len(rows.ids), 3, 3, dim, dtype=dtype).unbind(1)
    bias = numbers(3, 70, 70, dtype=dtype) if biased else None
    found = launches.short_attention(query, key, value, rows, bias)
    wide = attend(query.double(), key.double(), value.double(), rows, bias=None if bias is None else bias.double())
    close(found, wide.flatten(1), SUMS[dtype])


def test_filler_does_not_change_a_row(triton: None) -> None:
    """As in a graph, whose last rows are empty or filler, in tiles of another size."""
    rows, filled = TokenBatch.from_rows([[1] * 5, [2] * 3]), TokenBatch.from_rows([[1] * 5, [2] * 3, [], [0] * 24])
    filled = replace(filled, longest=32)
    query, key, value = numbers(32, 3, 4, 32, dtype=torch.bfloat16).unbind(1)
    alone = launches.short_attention(query[:8], key[:8], value[:8], rows)
    close(launches.short_attention(query, key, value, filled)[:8], alone, 2**-8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [26, 312, 768])
@pytest.mark.parametrize("lengths", [*LENGTHS, (70, 1)])
def test_means_of_rows(lengths: tuple[int, ...], width: int, dtype: torch.dtype, triton: None) -> None:
    rows = rows_of(lengths)
    values = numbers(len(rows.ids), width, dtype=dtype)
    found = launches.mean_rows(Ragged(values, rows.offsets, rows.longest))
    assert found.dtype == torch.float32
    expected = [x.double().mean(0) if len(x) else torch.zeros(width) for x in values.split(list(lengths))]
    close(found, torch.stack([x.double() for x in expected]), 1e-6)


# ------------------------------------------------------------------------------------------------- whole models


@pytest.fixture(scope="module")
def base() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=100)).eval()


@pytest.mark.parametrize("lengths", [(17, 1, 3), (2, 66)], ids=str)
def test_a_forward_of_bert_base_is_at_most_90_kernels(lengths: tuple[int, ...], base: BertModel) -> None:
    """With attention of short rows, and of longer ones."""
    batch = rows_of(lengths)
    with torch.no_grad(), simulated((9, 0)) as gpu, interpreted():
        expected = Fused(base, torch.float32).forward(batch)
        network = copy.deepcopy(base).cuda()
        fused, plain = (Fused(network, torch.bfloat16, parts=parts) for parts in (None, frozenset[str]()))
        assert fused.parts == {"activation", "add_norm", "embed_norm", "short_attention"}
        assert plain.parts == set()
        plain.forward(batch.to("cuda"))  # The first call tries flash attention out.
        kernels = []
        for backend in (plain, fused):
            moved = batch.to("cuda")
            gpu.forget()
            found = backend.forward(moved)
            kernels.append(gpu.count("kernels"))
            assert gpu.count("synchronizations") == 0
            assert torch.cosine_similarity(found.float().cpu(), expected).min() >= 0.9998
    print(f"rows of {lengths}: {kernels[0]} kernels, {kernels[1]} with all parts")
    assert kernels[1] <= 90 < kernels[0]


FAMILIES = ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "electra"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {family: build(family, root / family) for family in FAMILIES}


def encoded(model: SentenceEncoder) -> np.ndarray:
    return model.encode(small.TEXTS, on_truncate="ignore")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_the_cpu(family: str, dtype: str, folders: dict[str, Path]) -> None:
    expected = encoded(SentenceEncoder(folders[family], device="cpu"))
    with simulated((9, 0)) as gpu, interpreted():
        model = SentenceEncoder(folders[family], device="cuda", dtype=dtype)
        gpu.forget()
        vectors = encoded(model)
        counts = gpu.counts()
    if dtype == "float32":
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert (vectors * expected).sum(1).min() >= 0.9998
    assert counts["kernel add_norm"] >= 4
    assert counts["kernel embed_norm"] >= 1
    assert ("kernel short_attention" in counts) == (dtype != "float32")


def test_pairs(folders: dict[str, Path]) -> None:
    """Whose tokens have types."""
    network = SentenceEncoder(folders["bert"], device="cpu")[0].materialize()
    batch = replace(rows_of((5, 9)), types=torch.arange(14) % 2)
    with torch.no_grad():
        expected = Fused(network, torch.float32).forward(batch)
        with simulated((8, 0)), interpreted():
            found = Fused(network.to("cuda:1"), torch.float32).forward(batch.to("cuda:1")).cpu()
    close(found, expected, 1e-5)


def test_graphs_replay_the_kernels(folders: dict[str, Path]) -> None:
    expected = encoded(SentenceEncoder(folders["bert"], device="cpu"))
    with simulated((9, 0)) as gpu, interpreted():
        model = SentenceEncoder(folders["bert"], device="cuda")
        for _ in range(4):
            singles = [model.encode(text, on_truncate="ignore") for text in small.TEXTS[:4]]
        assert gpu.count("graph replays") > 0
    assert (np.stack(singles) * expected[:4]).sum(1).min() >= 0.9998


def test_mean_pooling_is_one_kernel() -> None:
    """Where it fails, the plain way goes on."""
    rows = rows_of((3, 0, 2))
    values, other = numbers(5, 8, dtype=torch.float32), numbers(5, 8, dtype=torch.bfloat16)
    expected = [Pooling("mean")(TokenEmbeddings(x, rows.offsets, 3)) for x in (values, other)]
    with simulated((9, 0)) as gpu:
        moved = [TokenEmbeddings(x, rows.offsets, 3).to("cuda") for x in (values, other)]
        with interpreted():
            Pooling("mean")(moved[0])  # The first call tries it out.
            gpu.forget()
            found = Pooling("mean")(moved[0])
            assert gpu.counts()["kernels"] == 1
            trained = replace(moved[0], values=moved[0].values.clone().requires_grad_())
            assert Pooling("mean")(trained).requires_grad
        with interpreted(fails), pytest.warns(UserWarning, match="mean pooling .* kernel fails .*image is invalid"):
            close(Pooling("mean")(moved[1]).cpu(), expected[1], 1e-6)
        close(found.cpu(), expected[0], 1e-6)


def fails(*arguments: object, **constants: object) -> None:
    raise RuntimeError("Triton Error [CUDA]: device kernel image is invalid")


def test_a_launch_that_fails_leaves_the_module(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded(SentenceEncoder(folders["bert"], device="cpu"))

    monkeypatch.setattr(pooling, "_failure", lambda *kind: "not here")
    with simulated((9, 0)), interpreted(fails):
        model = SentenceEncoder(folders["bert"], device="cuda")
        with pytest.warns(UserWarning, match="device kernel image is invalid"):
            vectors = encoded(model)
    assert (vectors * expected).sum(1).min() >= 0.9998
