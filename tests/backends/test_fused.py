"""The fused forward: taken by encode, and dropped as soon as it might not give the vectors of the plain one."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert import Normalize, Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.backends import fused, linear, network, state
from sbert.backends.architectures import ACTIVATIONS
from sbert.backends.fused import Fused
from sbert.backends.linear import Products, choose_weight_layout, matrix_product
from sbert.backends.network import Samples
from sbert.pipeline.run import evaluating
from tests import small
from tests.backends.test_families import FAMILIES, SHAPE, build

TEXTS = [text[:60] for text in small.TEXTS]
ROWS = [[3, 9, 4, 7], [5, 1, 1, 6, 8, 20, 11], [2], [], list(range(3, 40)), [8, 9, 4], [1, 1, 5]]


@pytest.fixture
def model(tmp_path: Path) -> SentenceEncoder:
    return SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling(), Normalize(), device="cpu")


def cached(model: SentenceEncoder, dtype: torch.dtype = torch.float32) -> state.CachedBackend:
    return state.cached_backend(model[0].network, state.CallSettings(dtype))


def is_fused(model: SentenceEncoder) -> bool:
    return isinstance(cached(model, model.dtype).backend, Fused)


def by_modules(model: SentenceEncoder) -> np.ndarray:
    with evaluating(model):
        return model(model.tokenize(TEXTS)).numpy()


def of_bert(**changes: Any) -> Any:
    from transformers import BertConfig, BertModel

    return small.randomized(BertModel(BertConfig(vocab_size=300, **{**SHAPE, **changes})))


@pytest.mark.parametrize("family", ["bert", "mpnet", "t5-encoder", "deberta-v3"])
def test_encode_takes_it(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SentenceEncoder(build(family, tmp_path, limit=62), device="cpu")
    calls, select = [], state.select
    monkeypatch.setattr(state, "select", lambda *args: (calls.append(1), select(*args))[1])
    vectors = model.encode(TEXTS)
    assert bool(calls) == (family == "deberta-v3") != is_fused(model)
    assert (cached(model).reason == "deberta-v2 is not a known architecture") == (family == "deberta-v3")
    monkeypatch.setattr(Fused, "supports", lambda *args: "switched off")
    network._states.clear()
    assert np.abs(vectors - model.encode(TEXTS)).max() <= 1e-6
    assert cached(model).reason == "switched off"


@pytest.mark.parametrize("activation", sorted(set(ACTIVATIONS) - {"gelu"}))
def test_other_activations(activation: str) -> None:
    model = of_bert(hidden_act=activation)
    with torch.no_grad():
        expected = torch.cat([model(torch.tensor([row])).last_hidden_state[0] for row in ROWS if row])
        vectors = Fused(model, torch.float32).forward(TokenBatch.from_rows(ROWS))
    assert (vectors - expected).abs().max() <= 1e-5 * expected.abs().max()


LINES = {" ".join(kind): line for kind, line in linear._PRODUCTS.items()} | {"another CPU": Products(0, False)}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_products_of_each_processor(line: Products, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and many tokens, by oneDNN or F.linear as its line of the table says, give the vectors of the module."""
    monkeypatch.setattr(linear, "products", lambda: line)
    monkeypatch.setattr(fused, "choose_weight_layout", choose_weight_layout.__wrapped__)
    model, calls, plain = of_bert(), [], F.linear
    monkeypatch.setattr(F, "linear", lambda *args, **options: (calls.append(1), plain(*args, **options))[1])
    backend = Fused(model, torch.float32)
    for rows in (ROWS, 3 * ROWS):
        batch = TokenBatch.from_rows(rows)
        with torch.no_grad():
            expected = torch.cat([model(torch.tensor([row])).last_hidden_state[0] for row in rows if row])
            calls.clear()
            vectors = backend.forward(batch)
        assert (vectors - expected).abs().max() <= 1e-5 * expected.abs().max()
        assert bool(calls) == (len(batch.values) >= line.reordered_below)
    x, weight, bias = torch.randn(5, 7), torch.randn(7, 3), torch.randn(3)
    torch.testing.assert_close(matrix_product(torch.float32)(x, weight.t(), bias), x @ weight + bias)


# ------------------------------------------------------------------------------------------------ weights that change


def output(model: SentenceEncoder) -> Any:
    return model[0].auto_model.encoder.layer[1].output


def dense(model: SentenceEncoder) -> Any:
    return output(model).dense


def change_in_place(model: SentenceEncoder) -> None:
    with torch.no_grad():
        dense(model).weight.mul_(1.5)


def change_data(model: SentenceEncoder) -> None:
    """As merged adapters and moving averages write."""
    dense(model).weight.data.mul_(1.5)


def step(model: SentenceEncoder) -> None:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(model.tokenize(["a small boat", "lake"])).sum().backward()
    optimizer.step()


CHANGES: dict[str, Callable[[SentenceEncoder], Any]] = {
    "in place": change_in_place,
    "data": change_data,
    "a parameter": lambda model: setattr(dense(model), "weight", nn.Parameter(dense(model).weight * 1.5)),
    "a module": lambda model: setattr(output(model), "dense", nn.Linear(32, 16)),
    "a module added": lambda model: model[0].auto_model.encoder.layer.insert(0, model[0].auto_model.encoder.layer[1]),
    "a table of weights": lambda model: dense(model)._parameters.update(weight=nn.Parameter(dense(model).weight * 1.5)),
    "layers": lambda model: setattr(model[0].auto_model.encoder, "layer", model[0].auto_model.encoder.layer[:1]),
    "a state": lambda model: model.load_state_dict({name: x * 1.1 for name, x in model.state_dict().items()}),
    "a step": step,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_weights_that_change(change: Callable[[SentenceEncoder], Any], model: SentenceEncoder) -> None:
    """The copies follow, however the weights were changed."""
    before = model.encode(TEXTS)
    change(model)
    after = model.encode(TEXTS)
    assert is_fused(model)
    assert np.abs(after - by_modules(model)).max() <= 1e-6
    assert np.abs(after - before).max() > 1e-4


def test_a_change_of_some_rows_or_of_a_transposed_weight_is_seen() -> None:
    layer = nn.Linear(640, 256)
    layer.weight.data = layer.weight.data.T.contiguous().T  # Read from a file that keeps it the other way round.
    table = nn.Embedding(2, 64)
    for weight, rows in ((layer.weight, slice(1, 60)), (table.weight, slice(1, 2)), (layer.bias, slice(0, 32))):
        samples = Samples(nn.ModuleList([layer, table]))
        assert samples.is_current()
        weight.data[rows] *= -3
        assert not samples.is_current()


def test_nothing_is_kept_of_a_model_that_is_gone(model: SentenceEncoder) -> None:
    """Neither of one that runs fused nor of one that does not."""
    models = [copy.deepcopy(model), copy.deepcopy(model)]
    handle = models[1][0].auto_model.register_forward_hook(lambda *arguments: None)
    gone: list[Any] = []
    for other in models:
        other.encode("lake")
        gone += [weakref.ref(other[0]), weakref.ref(other[0].network.embeddings.word_embeddings.weight)]
    handle.remove()
    del other
    models.clear()
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4


# ------------------------------------------------------------------------------------------------------------- hooks

PLACES: dict[str, Callable[[SentenceEncoder], nn.Module]] = {
    "the model": lambda model: model,
    "its transformer": lambda model: model[0],
    "its pooling": lambda model: model[1],
    "an inner layer": lambda model: model[0].auto_model.encoder.layer[0].output.dense,
}


@pytest.mark.parametrize("compiled", [False, True])
def test_forward_hooks_fire_in_encode(compiled: bool, model: SentenceEncoder) -> None:
    """Once a batch, before and after, with what goes in and comes out; and no longer once they are removed."""
    expected = model.encode(TEXTS)
    if compiled:
        model.compile(backend="eager")
    for place, choose in PLACES.items():
        seen: list[str] = []
        handles = [
            choose(model).register_forward_pre_hook(lambda module, inputs, to=seen: to.append("before")),
            choose(model).register_forward_hook(lambda module, inputs, output, to=seen: to.append("after")),
        ]
        assert np.abs(model.encode(TEXTS, batch_size=4) - expected).max() <= 1e-6
        assert seen == ["before", "after"] * -(-len(set(TEXTS)) // 4)
        assert ("hooks" in str(cached(model).reason)) == (place == "an inner layer")
        for handle in handles:
            handle.remove()
    seen.clear()
    assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    assert seen == []


def test_modules_of_the_users_own_run(model: SentenceEncoder) -> None:
    class Louder(nn.Linear):
        def forward(self, x: Any) -> Any:
            return 2 * super().forward(x)

    model[0].auto_model.encoder.layer[1].output.dense = Louder(32, 16)
    assert np.abs(model.encode(TEXTS) - by_modules(model)).max() <= 1e-6
    assert "Louder" in str(cached(model).reason)


def test_a_forward_of_the_callers_own_runs(model: SentenceEncoder) -> None:
    """Also one that was put there after the first use, and no longer once it is gone; training goes by it, too."""
    expected = model.encode(TEXTS)
    layer = model[0].auto_model.encoder.layer[0]
    layer.forward = lambda *args, original=layer.forward, **options: original(*args, **options) * 1.5
    changed = model.encode(TEXTS)
    assert np.abs(changed - by_modules(model)).max() <= 1e-6
    assert np.abs(changed - expected).max() > 1e-3
    assert cached(model).reason == "parts of it were replaced (forward)"
    del layer.forward
    assert np.array_equal(model.encode(TEXTS), expected)


# --------------------------------------------------------------------------------------------------- where it is left


def test_a_forward_that_differs_is_not_used(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.encode(TEXTS)
    network._states.clear()
    right = Fused.forward
    monkeypatch.setattr(Fused, "forward", lambda self, batch: right(self, batch) + 1e-2)
    with pytest.warns(UserWarning, match="BertModel runs by a slower way: in the fused forward its vec"):
        assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    assert model.encode(TEXTS).shape  # It is said once.


def test_a_forward_that_fails_is_not_used(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain one gives the vectors, there is one warning, and other weights are tried again."""
    expected, right = model.encode(TEXTS), Fused.forward

    def broken(self: Fused, batch: TokenBatch) -> Tensor:
        raise RuntimeError("no kernel image is available")

    network._states.clear()
    monkeypatch.setattr(Fused, "forward", broken)
    with pytest.warns(UserWarning, match="by a slower way: it fails in the fused forward.*no kernel image"):
        assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6  # There is no second warning.
    assert state.explain(model[0].network, torch.float32)[0].startswith("plain: it fails in the fused forward (Runt")
    monkeypatch.setattr(Fused, "forward", right)
    change_data(model)
    model.encode(TEXTS)
    assert is_fused(model)


def test_memory_that_runs_out_is_no_reason(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is halved, and the forward stays."""
    expected, right = model.encode(TEXTS), Fused.forward

    def scarce(self: Fused, batch: TokenBatch) -> Tensor:
        if batch.rows > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, batch)

    monkeypatch.setattr(Fused, "forward", scarce)
    assert np.abs(model.encode(TEXTS) - expected).max() <= 1e-6
    monkeypatch.undo()
    model.encode("lake")
    assert is_fused(model)


# The plain forward, too: torch.compile takes seconds for a Hugging Face module, and no cheaper test compiles one.
@pytest.mark.parametrize("family", ["bert", pytest.param("albert", marks=pytest.mark.slow)])
def test_compiled(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Really applied, to either forward: the graphs are counted."""
    from torch._dynamo.utils import counters

    monkeypatch.setitem(FAMILIES[family][2], "num_hidden_layers", 1)
    torch._dynamo.reset()
    model = SentenceEncoder(build(family, tmp_path), device="cpu")
    expected = model.encode(TEXTS, on_truncate="ignore")
    counters.clear()
    model.compile(backend="eager")
    vectors = model.encode(TEXTS, on_truncate="ignore")
    assert counters["stats"]["unique_graphs"] >= 1
    assert np.abs(vectors - expected).max() <= 1e-6


# --------------------------------------------------------------------------------------------------------- its parts


def test_a_processor_may_describe_itself_in_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual machines name models as they like."""
    (tmp_path / "cpuinfo").write_bytes(b"vendor_id : AuthenticAMD\nmodel name : \xff")
    monkeypatch.setattr(linear, "Path", lambda _: tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert linear.products.__wrapped__() == linear._PRODUCTS["AuthenticAMD", "AVX2"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_plain_layout_where_the_other_does_not_work(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Operations of torch that are not public may be gone tomorrow."""

    choose_weight_layout.cache_clear()
    monkeypatch.setattr("torch.ops.mkldnn", SimpleNamespace())
    reason = "oneDNN's reordered weights do not work here ('types.SimpleNamespace' object has no attribute"
    works, why = choose_weight_layout(dtype)
    assert not works
    assert why.startswith(reason)
    choose_weight_layout.cache_clear()
