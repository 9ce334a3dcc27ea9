"""LoRA and QLoRA on decoders: a frozen base model in few bits, adapters in float32, saved alone or merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Dense, Normalize, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.losses import MultipleNegativesRankingLoss
from sbert.training.weights import create_optimizer, prepare_model, read_optimizer
from tests import small
from tests.training.helpers import pairs, weights

pytest.importorskip("peft")
pytestmark = [
    pytest.mark.slow,  # The import of peft takes seconds.
    pytest.mark.filterwarnings("ignore:this CPU has no bfloat16:UserWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # peft asks transformers for it.
    pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning"),
]
Evaluate = Callable[[Any], float]
ROWS = pairs(32, labelled=False)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen3 with the form of Qwen3-Embedding: a prompt for queries, the last token, padding on the left."""
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    tokenizer = small.wrapped(small.wordpiece(), 64, padding_side="left")
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}  # bitsandbytes needs 64 inputs.
    config = Qwen3Config(vocab_size=len(tokenizer), tie_word_embeddings=True, **sizes, **heads)
    modules = Transformer(Qwen3Model(config), tokenizer), Pooling("lasttoken"), Normalize()
    folder = tmp_path_factory.mktemp("base") / "model"
    SentenceEncoder(*modules, device="cpu", prompts={"query": "Find the same: "}).save(folder)
    return folder


def load(folder: Path, dtype: str = "bfloat16", **options: Any) -> SentenceEncoder:
    return SentenceEncoder(folder, dtype=dtype, device="cpu", **options)


def adapted(folder: Path, dtype: str = "bfloat16", alpha: int = 8, **options: Any) -> SentenceEncoder:
    """The base model with a new adapter, whose weights are the same in all dtypes."""
    from peft import LoraConfig

    model = load(folder, dtype, **options)
    torch.manual_seed(0)
    lora = LoraConfig(r=4, lora_alpha=alpha, target_modules="all-linear", lora_dropout=0.1)
    model[0].auto_model.add_adapter(lora)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(parameter.bfloat16())
    return model


def fit(model: SentenceEncoder, resume: bool = False, evaluator: Evaluate | None = None, **settings: Any) -> list[Any]:
    given: dict[str, Any] = {"prompts": {"anchor": "query", "positive": ""}, "learning_rate": 1e-3, "log_every": 1}
    config = TrainingConfig(**{**given, **settings})
    trainer = Trainer(model, ROWS, MultipleNegativesRankingLoss(), config, evaluator=evaluator)
    return trainer.fit(resume=resume, show_progress_bar=False)


@pytest.mark.parametrize(
    "settings",
    [{}, {"chunk_tokens": 128, "gradient_checkpointing": True}, {"dtype": "bfloat16", "optimizer": "Adafactor"}],
    ids=["plain", "cached and checkpointed", "Adafactor"],
)
def test_adapters_resume_bit_by_bit_and_load_over_their_base(
    base: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    output, settings = tmp_path / "out", {**settings, "steps": 4, "checkpoint_every": 2, "merge_adapters": False}
    model, other = adapted(base), adapted(base)
    before = load(base).state_dict()
    fit(model, output=output, **settings)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert all("lora_" in name and value.dtype == torch.float32 for name, value in trained.items())
    for name, value in model.state_dict().items():
        if "lora_" not in name:
            assert torch.equal(value, before[name.replace(".base_layer.", ".")]), name
    checkpoint = output / "checkpoints" / "step-00000004"
    for folder in (output / "final", checkpoint):
        assert not (folder / "model.safetensors").exists()
        assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == base.as_posix()
        assert (folder / "adapter_model.safetensors").stat().st_size < 50_000
        np.testing.assert_allclose(load(folder).encode(small.TEXTS), model.encode(small.TEXTS), atol=0.02)
    checkpoint.rename(tmp_path / "gone")
    fit(other, resume=True, output=output, **settings)
    assert torch.equal(weights(other), weights(model))


def test_adapters_are_merged_on_request(base: Path, tmp_path: Path) -> None:
    model = adapted(base, "float32")
    fit(model, steps=3, learning_rate=1e-2, output=tmp_path / "out")
    model.save(tmp_path / "alone", merge_adapters=False)
    load(tmp_path / "alone", "float32").save(tmp_path / "merged")
    for name in ("merged", "alone", "out/final"):
        assert (tmp_path / name / "model.safetensors").exists() == (name != "alone")
        loaded = load(tmp_path / name, "float32")
        assert loaded.prompts == {"query": "Find the same: "}
        np.testing.assert_allclose(loaded.encode(small.TEXTS), model.encode(small.TEXTS), atol=2e-6)
    assert np.abs(load(base, "float32").encode(small.TEXTS) - model.encode(small.TEXTS)).max() > 1e-3


@pytest.mark.parametrize("merged", [True, False])
def test_load_best_gives_the_best_adapter_also_after_a_resume(base: Path, merged: bool, tmp_path: Path) -> None:
    chosen, scores = list[torch.Tensor](), [1.0, 2.0, 0.0, 0.5]

    def evaluate(model: SentenceEncoder) -> float:
        chosen.append(weights(model))
        return scores[len(chosen) - 1]

    settings = {"steps": 4, "evaluate_every": 1, "checkpoint_every": 2, "load_best": True, "merge_adapters": merged}
    model, other, without = adapted(base), adapted(base), adapted(base)
    fit(model, output=tmp_path / "out", evaluator=evaluate, **settings)
    assert torch.equal(weights(model), chosen[1])
    (tmp_path / "out" / "checkpoints" / "step-00000004").rename(tmp_path / "gone")
    del chosen[2:]
    fit(other, True, output=tmp_path / "out", evaluator=evaluate, **settings)
    assert torch.equal(weights(other), chosen[1])
    chosen.clear()
    fit(without, evaluator=evaluate, **settings)
    assert torch.equal(weights(without), chosen[1])


def test_only_what_is_trained_has_a_state_and_dense_layers_train_in_float32_too(base: Path) -> None:
    torch.manual_seed(1)
    model = adapted(base)
    model.insert(2, Dense(64, 8, activation="Identity").bfloat16())  # As in EmbeddingGemma.
    config = TrainingConfig(freeze=["0.auto_model.layers.0.*"])
    with prepare_model(model, {}, config) as prepared:
        optimizer = create_optimizer(config, prepared)
        for parameter in prepared.trained.values():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        state, _ = read_optimizer(optimizer, prepared)
        names = {name.removeprefix("optimizer.").rpartition(".")[0] for name in state}
    assert names == {name for name, _ in model.named_parameters() if "layers.1" in name and "lora_" in name} | {
        "2.linear.weight",
        "2.linear.bias",
    }
    before = weights(model[2])
    assert before.dtype == torch.float32
    fit(model, steps=2, freeze=config.freeze)
    assert not torch.equal(weights(model[2]), before)
    assert model.encode("a small boat").shape == (8,)


def test_a_quantized_base(base: Path, tmp_path: Path) -> None:
    """4 bits of bitsandbytes, on a CPU."""
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    options = {"model_kwargs": {"quantization_config": BitsAndBytesConfig(load_in_4bit=True)}}
    model, other = (adapted(base, "float32", **options) for _ in range(2))
    assert {value.dtype for value in model.parameters() if not value.requires_grad} == {torch.uint8, torch.float32}
    with pytest.raises(ValueError, match="pass TrainingConfig\\(merge_adapters=False\\)"):
        fit(model, output=tmp_path / "out", steps=4)
    settings = {"output": tmp_path / "out", "steps": 4, "checkpoint_every": 2, "merge_adapters": False}
    fit(model, **settings)
    with pytest.raises(ValueError, match=r"cannot be merged into the quantized weights of '.*'; save with merge_"):
        model.save(tmp_path / "merged")
    (tmp_path / "out" / "checkpoints" / "step-00000004").rename(tmp_path / "gone")
    fit(other, resume=True, **settings)
    # encode changes the layout of the frozen weights where a CPU has AVX512-BF16.
    adapters = [[value for value in each.parameters() if value.requires_grad] for each in (other, model)]
    assert all(map(torch.equal, *adapters))
    again = load(tmp_path / "out" / "final", "float32", **options)
    np.testing.assert_allclose(again.encode(small.TEXTS), model.encode(small.TEXTS), atol=0.02)
    load(tmp_path / "out" / "final", "float32").save(tmp_path / "merged")


def test_another_base_or_adapter_is_no_resume(base: Path, tmp_path: Path) -> None:
    fit(adapted(base), output=tmp_path / "out", steps=1)
    with pytest.raises(ValueError, match="different training: frozen weights was"):
        fit(adapted(base, "float32"), resume=True, output=tmp_path / "out", steps=1)
    with pytest.raises(ValueError, match="different training: scaling of adapters was"):
        fit(adapted(base, alpha=16), resume=True, output=tmp_path / "out", steps=1)


def test_what_is_refused(base: Path, tmp_path: Path) -> None:
    model = adapted(base)
    model[0].auto_model.norm.requires_grad_(True)
    with pytest.raises(ValueError, match=r"too imprecise .* only the frozen base model of adapters"):
        fit(model, steps=1)
    with pytest.raises(ValueError, match=r"float16, whose gradients need TrainingConfig\(dtype='float16'\)"):
        fit(adapted(base).half(), steps=1)
    small.bert(tmp_path / "bert")
    scorer = CrossEncoder(tmp_path / "bert", classes=1, device="cpu")
    with pytest.raises(ValueError, match="merge_adapters=False is for encoders"):
        Trainer(scorer, [("a", "b", 1.0)], config=TrainingConfig(merge_adapters=False), loss=lambda scores, labels: 0)
