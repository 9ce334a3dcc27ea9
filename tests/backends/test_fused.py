"""The fused forward: the vectors of the plain one, and dropped as soon as it might not be."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sbert import Pooling, SentenceEncoder, TokenBatch, Transformer
from sbert.backends import inference
from sbert.backends.activations import GELU, GELU_TANH, RELU, Activation
from sbert.backends.attention import attend, one_row
from sbert.backends.choice import Choice
from sbert.backends.fused import Fused
from sbert.backends.inference import choose
from sbert.backends.linear import Linear, packing
from sbert.pipeline.eval_mode import evaluating
from tests import small
from tests.backends.test_families import FAMILIES, build

FUSED = ["bert", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert", "electra"]
SHORT = [text[:60] for text in small.TEXTS]
ROWS = [[3, 9, 4, 7], [5, 1, 1, 6, 8, 20, 11], [2], [], list(range(3, 40)), [8, 9, 4], [1, 1, 5]]


def chosen(model: SentenceEncoder, dtype: torch.dtype = torch.float32) -> Choice:
    return choose(model[0].network, dtype)


def fused(model: SentenceEncoder, dtype: torch.dtype = torch.float32) -> Fused:
    choice = chosen(model, dtype)
    assert isinstance(choice, Fused), choice
    return choice


def loaded(family: str, folder: Path) -> SentenceEncoder:
    if family == "camembert":
        import json

        build("roberta", folder, limit=62)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps({**config, "model_type": "camembert", "architectures": ["CamembertModel"]})
        )
    else:
        build(family, folder, limit=62)
    return SentenceEncoder(folder, device="cpu")


@pytest.fixture
def bert(tmp_path: Path) -> SentenceEncoder:
    return loaded("bert", tmp_path / "bert")


def padded(model: SentenceEncoder, rows: list[list[int]]) -> torch.Tensor:
    """Token embeddings from the Hugging Face module, a row at a time."""
    with evaluating(model):
        return torch.cat([model[0].auto_model(torch.tensor([row])).last_hidden_state[0] for row in rows if row])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("family", FUSED)
def test_as_the_hugging_face_module(family: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of all lengths, out of order, with an empty one, and with the padding token (1) among the others."""
    model = loaded(family, tmp_path / family)
    expected = padded(model, ROWS)
    monkeypatch.setattr("sbert.backends.fused.packing", lambda dtype, threads: (packed, "as the test says"))
    with evaluating(model):
        backend = Fused(model[0].auto_model, torch.float32)
        found = backend.forward(TokenBatch.from_rows(ROWS))
        again = backend.forward(TokenBatch.from_rows(ROWS[:2]))  # Position biases of the longer rows are at hand.
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (again - expected[:11]).abs().max() <= 1e-5 * expected.abs().max()


def test_a_position_bias_is_part_of_the_attention_kernel() -> None:
    """It is as the formula, without the slow kernel that torch on a CPU has for a bias of three dimensions."""
    torch.manual_seed(0)
    rows, bias = TokenBatch.from_rows([[3, 4], [5, 6, 7], [8, 9, 2]]), torch.randn(2, 4, 4)
    query, key, value = torch.randn(3, len(rows.ids), 2, 4)
    with torch.inference_mode(), torch.profiler.profile() as profile:
        found = attend(query, key, value, rows, bias=bias)
    for start, end in ((0, 2), (2, 5), (5, 8)):
        q, k, v = (x[start:end].transpose(0, 1) for x in (query, key, value))  # (heads, length, dim)
        weights = (q @ k.mT / 2 + bias[:, : end - start, : end - start]).softmax(-1)
        assert (found[start:end] - (weights @ v).transpose(0, 1)).abs().max() <= 1e-5
    names = {event.name for event in profile.events() or ()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert "aten::_scaled_dot_product_attention_math" not in names


@pytest.mark.parametrize("family", FUSED)
def test_encode_takes_it(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(family, tmp_path / family)
    calls = []
    plain = inference.select
    monkeypatch.setattr(inference, "select", lambda *given: (calls.append(1), plain(*given))[1])
    vectors = model.encode(SHORT)
    assert fused(model)
    assert not calls
    monkeypatch.setattr(Fused, "supports", lambda *given: "switched off")
    inference._kept.clear()
    assert np.abs(vectors - model.encode(SHORT)).max() <= 1e-6
    assert chosen(model) == "switched off"
    assert calls


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(FUSED)))
def test_others_say_why_not(family: str, tmp_path: Path) -> None:
    model = SentenceEncoder(build(family, tmp_path / family), device="cpu")
    assert "is not a BERT-family model" in str(chosen(model))


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "relu"])
def test_other_activations(activation: str, bert: SentenceEncoder, tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(**{**bert[0].auto_model.config.to_dict(), "hidden_act": activation})
    model = SentenceEncoder(Transformer(small.randomized(BertModel(config)), bert.tokenizer), Pooling(), device="cpu")
    with evaluating(model):
        found = fused(model).forward(TokenBatch.from_rows(ROWS))
    assert (found - padded(model, ROWS)).abs().max() <= 1e-5 * found.abs().max()


def test_unknown_activations_and_decoders_are_left_alone(bert: SentenceEncoder) -> None:
    from transformers import BertConfig, BertModel

    for change, reason in (({"hidden_act": "mish"}, "mish"), ({"is_decoder": True}, "decoder")):
        config = BertConfig(**{**bert[0].auto_model.config.to_dict(), **change})
        model = SentenceEncoder(
            Transformer(small.randomized(BertModel(config)), bert.tokenizer), Pooling(), device="cpu"
        )
        assert reason in str(chosen(model))


def test_double_precision_stays_double(bert: SentenceEncoder) -> None:
    model = bert.double()
    with evaluating(model):
        found = fused(model, torch.float64).forward(TokenBatch.from_rows(ROWS))
    assert found.dtype == torch.float64
    assert (found - padded(model, ROWS)).abs().max() <= 1e-12


def test_bfloat16(bert: SentenceEncoder) -> None:
    expected = bert.encode(SHORT)
    model = copy.deepcopy(bert).bfloat16()
    vectors = model.encode(SHORT)
    assert fused(model, torch.bfloat16)
    assert (vectors * expected).sum(1).min() > 0.99
    assert np.abs(vectors - expected).max() > 1e-5  # It was computed in bfloat16.


def change_in_place(model: SentenceEncoder) -> None:
    with torch.no_grad():
        model[0].auto_model.encoder.layer[1].output.dense.weight.mul_(1.5)


def change_data(model: SentenceEncoder) -> None:
    model[0].auto_model.encoder.layer[1].output.dense.weight.data.mul_(1.5)


def change_parameter(model: SentenceEncoder) -> None:
    dense = model[0].auto_model.encoder.layer[1].output.dense
    dense.weight = nn.Parameter(dense.weight * 1.5)


def change_module(model: SentenceEncoder) -> None:
    model[0].auto_model.encoder.layer[1].output.dense = nn.Linear(32, 16)


def change_layers(model: SentenceEncoder) -> None:
    model[0].auto_model.encoder.layer = model[0].auto_model.encoder.layer[:1]


def change_state(model: SentenceEncoder) -> None:
    model.load_state_dict({name: value * 1.1 for name, value in model.state_dict().items()})


def step(model: SentenceEncoder) -> None:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(model.tokenize(["a small boat", "lake"])).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "change", [change_in_place, change_data, change_parameter, change_module, change_layers, change_state, step]
)
def test_weights_that_change(change: Callable[[SentenceEncoder], None], bert: SentenceEncoder) -> None:
    """The copies follow, however the weights were changed."""
    before = bert.encode(SHORT)
    assert fused(bert)
    change(bert)
    after = bert.encode(SHORT)
    assert fused(bert)
    with evaluating(bert):
        expected = bert(bert.tokenize(SHORT)).numpy()
    assert np.abs(after - expected).max() <= 1e-6
    assert np.abs(after - before).max() > 1e-4


def test_nothing_is_kept_of_a_model_that_is_gone(bert: SentenceEncoder) -> None:
    """Neither of one that runs fused nor of one that does not."""
    models = [copy.deepcopy(bert), copy.deepcopy(bert)]
    handle = models[1][0].auto_model.register_forward_hook(lambda *arguments: None)
    gc.collect()
    known = len(inference._kept)
    gone: list[Any] = []
    for model in models:
        model.encode("lake")
        gone += [weakref.ref(model[0]), weakref.ref(model[0].network.embeddings.word_embeddings.weight)]
    assert len(inference._kept) == known + 2
    handle.remove()
    del model
    models.clear()
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4
    assert len(inference._kept) == known


def test_hooks_run(bert: SentenceEncoder) -> None:
    """Who watches the modules sees them run."""
    expected = bert.encode(SHORT)
    seen = []
    dense = bert[0].auto_model.encoder.layer[0].output.dense
    handle = dense.register_forward_hook(lambda *arguments: seen.append(1))
    assert np.abs(bert.encode(SHORT) - expected).max() <= 1e-6
    assert seen == [1]  # The one batch, and nothing that we try out.
    assert "hooks" in str(chosen(bert))
    handle.remove()
    assert np.abs(bert.encode(SHORT) - expected).max() <= 1e-6
    assert fused(bert)


def test_modules_of_the_users_own_run(bert: SentenceEncoder) -> None:
    class Louder(nn.Linear):
        def forward(self, x: Any) -> Any:
            return 2 * super().forward(x)

    louder = Louder(32, 16)
    bert[0].auto_model.encoder.layer[1].output.dense = louder
    assert "Louder" in str(chosen(bert))
    with evaluating(bert):
        expected = bert(bert.tokenize(SHORT)).numpy()
    assert np.abs(bert.encode(SHORT) - expected).max() <= 1e-6


def test_a_forward_that_differs_is_not_used(bert: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bert.encode(SHORT)
    inference._kept.clear()
    right = Fused.forward
    monkeypatch.setattr(Fused, "forward", lambda self, batch: right(self, batch) + 1e-2)
    with pytest.warns(UserWarning, match="BertModel runs by its plain, slower forward: in the fused forward its vec"):
        vectors = bert.encode(SHORT)
    assert np.abs(vectors - expected).max() <= 1e-6
    assert bert.encode(SHORT).shape  # It is said once.


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_compiled(family: str, tmp_path: Path) -> None:
    """Really applied, to either forward: the graphs are counted."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    model = SentenceEncoder(build(family, tmp_path / family), device="cpu")
    expected = model.encode(SHORT, on_truncate="ignore")
    counters.clear()
    model.compile(backend="eager")
    vectors = model.encode(SHORT, on_truncate="ignore")
    assert counters["stats"]["unique_graphs"] >= 1
    assert np.abs(vectors - expected).max() <= 1e-6


@pytest.mark.parametrize("activation", [None, GELU, GELU_TANH, RELU])
def test_linear_layers_agree(activation: Activation | None) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(24, 40), nn.Linear(24, 8, bias=False)]
    x = torch.randn(7, 24)
    expected = torch.cat([layer(x) for layer in layers], dim=1)
    expected = activation.apply(expected) if activation else expected
    for packed in (False, True):
        with torch.no_grad():
            assert (Linear(layers, torch.float32, packed)(x, activation) - expected).abs().max() <= 1e-6
            with_residual = Linear(layers, torch.float32, packed)(x, residual=torch.ones(7, 48))
            assert (with_residual - torch.cat([layer(x) for layer in layers], 1) - 1).abs().max() <= 1e-6


def test_a_slow_first_run_does_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a process that takes the CPU for a moment."""
    clock = {False: cycle([0.3, 0.01, 0.04]), True: cycle([0.9, 0.05, 0.007])}
    monkeypatch.setattr("sbert.backends.linear._seconds", lambda linear, x: next(clock[linear.packed]))
    monkeypatch.setattr(
        "sbert.backends.linear.Linear.__init__", lambda self, layers, dtype, packed: setattr(self, "packed", packed)
    )
    packing.cache_clear()
    assert packing(torch.float32, 1)[0]
    packing.cache_clear()


def test_packing_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of torch that are not public may be gone tomorrow."""

    def gone() -> Any:
        raise AttributeError("no such operation")

    packing.cache_clear()
    monkeypatch.setattr("sbert.backends.linear._ops", gone)
    assert packing(torch.float32, 1) == (False, "oneDNN's reordered weights do not work here (no such operation)")
    packing.cache_clear()


@pytest.mark.parametrize("tokens", [1, 2, 11, 31, 32, 33, 40])
def test_one_row_is_computed_as_among_others(tokens: int, bert: SentenceEncoder) -> None:
    """In fewer operations."""
    network: Any = bert[0].network
    row, other = [3 + i % 7 for i in range(tokens)], [5, 6, 7]
    with torch.no_grad():
        for reordered in (False, True):
            fused = Fused(network, torch.float32, reordered=reordered)
            alone = fused.forward(TokenBatch.from_rows([row]))
            among = fused.forward(TokenBatch.from_rows([row, other, [4]]))[:tokens]
            assert (alone - among).abs().max() <= 1e-6
            assert alone.shape == among.shape


def test_attention_of_one_row_is_that_of_all() -> None:
    mixed = torch.randn(9, 3 * 8, generator=torch.Generator().manual_seed(0))
    query, key, value = mixed.view(9, 3, 2, 4).unbind(1)
    expected = attend(query, key, value, TokenBatch.from_rows([[1] * 9])).flatten(1)
    assert (one_row(mixed, 2) - expected).abs().max() <= 1e-6


@pytest.mark.parametrize("heads", [1, 2])
def test_a_token_alone_sees_itself(heads: int) -> None:
    query, key, value = torch.randn(3, 4, 2, 8, generator=torch.Generator().manual_seed(0)).unbind()
    key, value = key[:, :heads], value[:, :heads]
    found = attend(query, key, value, TokenBatch.from_rows([[1], [2], [3, 4]]))
    assert torch.equal(found[:2], value[:2].expand(-1, 2, -1))
