"""CrossEncoder: the scores of sentence-transformers, whatever the batch, the thread and the folder."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder as Theirs
from torch import nn

from sbert import CrossEncoder, SentenceEncoder
from sbert.losses import ListNetLoss
from sbert.modules.tokenizer import PairTokenizer
from sbert.training import TrainingConfig
from tests import small
from tests.backends import test_families
from tests.pairs import FAMILIES, LONG, PAIRS, folder

EACH = pytest.mark.parametrize(("family", "classes"), [*zip(FAMILIES, (3, 1, 3, 1), strict=True), ("bert", 1)])


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module", params=[1, 3])
def scorer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """Cross-encoders of one score and of three scores per pair."""
    return CrossEncoder(folder(tmp_path_factory.mktemp("scorer") / "bert", classes=request.param), device="cpu")


@pytest.fixture
def model(bert: Path) -> CrossEncoder:
    return CrossEncoder(bert, device="cpu")


def theirs(path: Path, **options: Any) -> Any:
    return Theirs(str(path), device="cpu", **options)


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **values}))


# ---------------------------------------------------------------------------------------- as sentence-transformers


@EACH
def test_scores_of_sentence_transformers(tmp_path: Path, family: str, classes: int) -> None:
    path = folder(tmp_path / "model", family, classes)
    ours = CrossEncoder(path, device="cpu")
    expected = theirs(path).predict(PAIRS)
    found = ours.predict(PAIRS)
    assert found.dtype == np.float32
    assert found.shape == expected.shape == ((len(PAIRS),) if classes == 1 else (len(PAIRS), classes))
    assert np.ptp(expected, axis=0).max() > 1e-3  # Else any scores would do.
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "side"), [("bert", "left"), ("roberta", "right")])
@pytest.mark.parametrize("limit", [None, 7, 10, 11, 24, 63])
def test_long_pairs_are_truncated_as_hugging_face_does(
    tmp_path: Path, family: str, side: str, limit: int | None
) -> None:
    pairs = [*LONG, *(("fox " * a, "lake " * b) for a in range(10) for b in range(10))]
    path = folder(tmp_path / "model", family)
    edit(path / "tokenizer_config.json", truncation_side=side)
    ours = CrossEncoder(path, device="cpu", max_seq_length=limit)
    peer = theirs(path, **({} if limit is None else {"max_length": limit}))
    assert ours.tokenizer.truncation_side == peer.tokenizer.truncation_side == side
    tokens, texts = ours.tokens(pairs), [list(column) for column in zip(*pairs, strict=True)]
    expected = peer.tokenizer(*texts, truncation="longest_first")
    batches = [tokens.batch(np.array([row])) for row in range(len(pairs))]
    assert [batch.ids.tolist() for batch in batches] == expected["input_ids"]
    if family == "bert":
        assert [batch.types.tolist() for batch in batches] == expected["token_type_ids"]
    lengths = [len(ids) for ids in peer.tokenizer(*texts, truncation=False)["input_ids"]]
    assert tokens.truncated.tolist() == [length > ours.max_seq_length for length in lengths]
    assert tokens.truncated.any()
    np.testing.assert_allclose(ours.predict(LONG, on_truncate="ignore"), peer.predict(LONG), atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_of_long_texts_and_prompts_no_more_is_read_than_may_matter(bert: Path, side: str) -> None:
    scorer = CrossEncoder(bert, device="cpu", max_seq_length=20)
    scorer.tokenizer.truncation_side = side
    long = [("fox-" * 500_000, "a lake"), ("x" * 2_000_000, "x" * 2_000_000), ("fox", "a lake")]
    tokens = scorer.tokens(long, "red: ")
    assert tokens.truncated.tolist() == [True, True, False]
    short = scorer.tokens([("fox-" * 5000, "a lake")], "red: ")
    assert tokens.ids[: tokens.offsets[1]].tolist() == short.ids.tolist()
    assert scorer.tokens(long[2:], "x" * 2_000_000).truncated.all()


def test_a_tokenizer_without_rust() -> None:
    with pytest.raises(ValueError, match=r"is written in Python; load the model with a tokenizer\.json"):
        PairTokenizer(SimpleNamespace(is_fast=False), typed=True)


@EACH
def test_saved_both_ways(tmp_path: Path, family: str, classes: int) -> None:
    path = folder(tmp_path / "model", family, classes)
    ours = CrossEncoder(path, device="cpu", activation=nn.Tanh(), max_seq_length=20)
    expected = ours.predict(PAIRS + LONG, on_truncate="ignore")
    ours.save(tmp_path / "ours")
    assert not list(tmp_path.glob(".*"))
    peer = theirs(tmp_path / "ours")
    assert isinstance(peer.activation_fn, nn.Tanh)
    np.testing.assert_allclose(peer.predict(PAIRS + LONG), expected, atol=1e-5)
    again = CrossEncoder(tmp_path / "ours", device="cpu")
    assert again.max_seq_length == 20
    # Rounding depends on the number of threads, which depends on what else runs.
    np.testing.assert_allclose(again.predict(PAIRS + LONG, on_truncate="ignore"), expected, atol=1e-6)

    peer.save_pretrained(str(tmp_path / "theirs"))
    back = CrossEncoder(tmp_path / "theirs", device="cpu")
    assert isinstance(back.activation, nn.Tanh)
    assert back.classes == classes
    np.testing.assert_allclose(back.predict(PAIRS + LONG, on_truncate="ignore"), expected, atol=1e-6)


def test_rank_of_sentence_transformers(bert: Path, model: CrossEncoder) -> None:
    documents = [second for _, second in PAIRS]
    expected = theirs(bert).rank("a fox", documents, return_documents=True)
    found = model.rank("a fox", iter(documents), return_documents=True)
    for name in ("corpus_id", "text"):
        assert [entry[name] for entry in found] == [entry[name] for entry in expected]  # type: ignore[literal-required]
    assert [entry["score"] for entry in found] == pytest.approx([entry["score"] for entry in expected], abs=1e-5)
    assert json.loads(json.dumps(found)) == found  # Plain numbers, not NumPy's.


def test_rank_ties_and_errors(model: CrossEncoder, tmp_path: Path) -> None:
    found = model.rank("a", ["lake", "boat", "lake", "boat", "lake"])
    assert [entry["corpus_id"] for entry in found] in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])
    several = CrossEncoder(folder(tmp_path / "several", classes=3), device="cpu")
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: model.rank("a", ["b", 3]), TypeError, r"documents\[1\] is of type int"),
        (lambda: model.rank(["a"], ["b"]), TypeError, "query is of type list"),
        (lambda: model.rank("a", "b"), TypeError, "documents is of type str"),
        (lambda: model.rank("a", ["b"], top_k=0), ValueError, "top_k=0 is too small"),
        (lambda: model.rank("a", ["b"], number=2), TypeError, r"rank\(\) takes no argument 'number'"),
        (lambda: several.rank("a", ["b"]), ValueError, r"3 scores per pair.*predict\(\)"),
    ]
    for call, error, message in wrong:
        with pytest.raises(error, match=message):
            call()


# ----------------------------------------------------------------------------------------------------- predict


def test_a_pair_alone_as_among_others_in_any_order(model: CrossEncoder) -> None:
    plain: dict[str, Any] = {"activation": nn.Identity()}
    among = model.predict(PAIRS, **plain)
    for pair, score in zip(PAIRS, among, strict=True):
        alone = model.predict(pair, **plain)
        assert alone.shape == ()
        assert alone == pytest.approx(score, abs=1e-6)
    for size in ({"batch_size": 1}, {"batch_size": 2}, {"batch_size": 7}, {"batch_tokens": 30}):
        np.testing.assert_allclose(model.predict(PAIRS, **plain, **size), among, atol=1e-6)
    np.testing.assert_allclose(model.predict(PAIRS[::-1], **plain)[::-1], among, atol=1e-6)
    twice = model.predict(PAIRS * 2, **plain)
    np.testing.assert_array_equal(twice[: len(PAIRS)], twice[len(PAIRS) :])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["a", "b", "c"], r"pairs\[0\] is .*, of type str"),
        ([("a", "b"), ("a", "b", "c")], r"pairs\[1\] is \('a', 'b', 'c'\), of type tuple"),
        ([("a", "b"), ("a", None)], r"pairs\[1\] is \('a', None\), of type tuple"),
        ([("a", "b"), {"a", "b"}], r"pairs\[1\] is .*, of type set"),
        ("ab", "pairs is of type str"),
        ({"a": "b"}, "pairs is of type dict"),
    ],
)
def test_what_is_no_pair_is_named(model: CrossEncoder, pairs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        model.predict(pairs)


def test_truncation_is_counted_or_refused(model: CrossEncoder) -> None:
    pairs = [PAIRS[0], LONG[0], PAIRS[1], LONG[0], LONG[2]]
    with pytest.warns(UserWarning, match=r"3 of 5 pairs were truncated to max_seq_length=64 tokens"):
        model.predict(pairs)
    with pytest.raises(ValueError, match=r"pairs\[1\] has more than max_seq_length=64 tokens"):
        model.predict(pairs, on_truncate="error")
    model.predict(PAIRS, on_truncate="error")


def test_max_seq_length(bert: Path, model: CrossEncoder, tmp_path: Path) -> None:
    assert model.max_seq_length == 64
    for length, message in ((4, "pass at least 5"), (65, "exceeds the 64 positions")):
        with pytest.raises(ValueError, match=message):
            CrossEncoder(bert, device="cpu", max_seq_length=length)
    edit(folder(tmp_path / "model") / "tokenizer_config.json", model_max_length=3)
    with pytest.raises(ValueError, match="max_seq_length=3 leaves no room for text"):
        CrossEncoder(tmp_path / "model", device="cpu")
    with pytest.raises(TypeError, match="max_seq_length is '8'"):
        model.max_seq_length = "8"  # type: ignore[assignment]


def test_copies_and_pickles(model: CrossEncoder) -> None:
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(PAIRS), model.predict(PAIRS))


def test_scores_that_are_no_numbers_are_named(model: CrossEncoder) -> None:
    with torch.no_grad():
        model.auto_model.get_input_embeddings().weight[model.tokenizer.convert_tokens_to_ids("fox")] = torch.nan
    with pytest.raises(ValueError, match=r"the score of pairs\[2\] is not finite"):
        model.predict([("a", "b"), ("a", "b"), ("a fox", "b"), ("c", "d")])


# --------------------------------------------------------------------------------------- folders and activations


NN, THEIR_CONFIG = "torch.nn.modules", "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("file", "values", "expected"),
    [
        ("config.json", {}, nn.Sigmoid),
        ("config.json", {"sentence_transformers": {"activation_fn": f"{NN}.linear.Identity"}}, nn.Identity),
        ("config.json", {"sbert_ce_default_activation_function": f"{NN}.activation.Tanh"}, nn.Tanh),
        (THEIR_CONFIG, {"activation_fn": f"{NN}.activation.ReLU", "model_type": "CrossEncoder"}, nn.ReLU),
    ],
)
def test_activation_of_the_folder(tmp_path: Path, file: str, values: dict[str, Any], expected: type) -> None:
    path = folder(tmp_path / "model")
    edit(path / file, **values)
    model = CrossEncoder(path, device="cpu")
    assert type(model.activation) is expected
    raw = model.predict(PAIRS, activation=nn.Identity(), convert_to_tensor=True)
    np.testing.assert_allclose(model.predict(PAIRS), expected()(raw).numpy(), atol=1e-6)
    if file == "config.json":
        np.testing.assert_allclose(theirs(path).predict(PAIRS), model.predict(PAIRS), atol=1e-5)
    assert type(CrossEncoder(path, device="cpu", activation=nn.Softplus()).activation) is nn.Softplus
    model.save(tmp_path / "saved")
    assert type(CrossEncoder(tmp_path / "saved", device="cpu").activation) is expected


def test_activations_that_no_folder_keeps(model: CrossEncoder, tmp_path: Path) -> None:
    path = folder(tmp_path / "model")
    for name in ("os.system", "torch.hub.load", "torch.nn.modules.linear.Linear"):
        edit(path / "config.json", sentence_transformers={"activation_fn": name})
        with pytest.raises(ValueError, match=f"config.json names the activation '{name}'.*pass activation="):
            CrossEncoder(path, device="cpu")
    names = list(model.state_dict())
    for activation in (torch.sigmoid, nn.LeakyReLU(0.3), nn.PReLU()):
        model.activation = activation
        assert list(model.state_dict()) == names
        with pytest.raises(ValueError, match="cannot be saved by name"):
            model.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_backbone_gets_a_new_head(tmp_path: Path) -> None:
    path = small.bert(tmp_path / "backbone")
    torch.manual_seed(3)
    model = CrossEncoder(path, 4, device="cpu")
    assert model.predict(PAIRS).shape == (len(PAIRS), 4)
    torch.manual_seed(3)
    np.testing.assert_array_equal(CrossEncoder(path, 4, device="cpu").predict(PAIRS), model.predict(PAIRS))
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(CrossEncoder(tmp_path / "saved", device="cpu").predict(PAIRS), model.predict(PAIRS))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_a_new_head_that_nobody_asked_for_is_named_once(tmp_path: Path, family: str) -> None:
    test_families.build(family, tmp_path / "plain")
    SentenceEncoder(tmp_path / "plain", device="cpu").save(tmp_path / "encoder")
    for path in (tmp_path / "plain", tmp_path / "encoder"):
        message = f"{path} has no head that scores pairs: classifier.* are new, .*classes=1"
        with pytest.warns(UserWarning, match=message) as warned:
            model = CrossEncoder(path, device="cpu")
        assert len(warned) == 1
        stored = {name.removeprefix(f"{family}.") for name in load_file(path / "model.safetensors")}
        weights = {name for name, _ in model.auto_model.named_parameters()}
        assert set(model.new_weights) == {name for name in weights if name.removeprefix(f"{family}.") not in stored}
        assert CrossEncoder(path, 1, device="cpu").new_weights == model.new_weights
    model.save(tmp_path / "scorer")
    assert CrossEncoder(tmp_path / "scorer", device="cpu").new_weights == []
    model.prompts = {"q": "query: "}
    model.save(tmp_path / "scorer")
    with pytest.raises(ValueError, match="describes a CrossEncoder, not a sentence encoder; load it with CrossEncoder"):
        SentenceEncoder(tmp_path / "scorer", device="cpu")


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    path = folder(tmp_path / "model", classes=3)
    with pytest.raises(ValueError, match="describes a head of 3 scores, not 2"):
        CrossEncoder(path, 2, device="cpu")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        CrossEncoder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="classes=0 is too small"):
        CrossEncoder(path, 0)
    weights = load_file(path / "model.safetensors")
    head = weights.pop("classifier.weight")
    for given, message in (
        (weights, "model.safetensors lacks 1 of the weights .*classifier.weight"),
        ({**weights, "classifier.weight": head[:2].clone()}, r"gives classifier.weight the shape \(2, 16\)"),
    ):
        save_file(given, path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            CrossEncoder(path, device="cpu")


def test_heads_of_another_kind_and_chains_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "model")
    for kind, message in (
        ("BertForTokenClassification", "names BertForTokenClassification, .* head made for something else"),
        ("BertForCausalLM", "pass classes= for a new head"),
    ):
        edit(path / "config.json", architectures=[kind])
        with pytest.raises(ValueError, match=message):
            CrossEncoder(path, device="cpu")
    edit(path / THEIR_CONFIG, model_type="CrossEncoder")
    types = ["sentence_transformers.base.modules.Transformer", "sentence_transformers.cross_encoder.modules.LogitScore"]
    (path / "modules.json").write_text(json.dumps([{"idx": i, "type": kind} for i, kind in enumerate(types)]))
    with pytest.raises(ValueError, match=r"modules.json lists Transformer, LogitScore"):
        CrossEncoder(path, device="cpu")


def test_prompts_are_put_before_the_first_text_and_are_theirs(tmp_path: Path, bert: Path) -> None:
    prompts = {"q": "the red ", "none": ""}
    model = CrossEncoder(bert, device="cpu", prompts=prompts, default_prompt_name="q")
    plain, expected = (model.predict([(p + a, b) for a, b in PAIRS], prompt="") for p in ("", "the red "))
    assert np.abs(plain - expected).max() > 1e-4
    model.save(tmp_path / "ours")
    again, other = CrossEncoder(tmp_path / "ours", device="cpu"), theirs(tmp_path / "ours")
    other.save(str(tmp_path / "theirs"))
    for each in (model, again, CrossEncoder(tmp_path / "theirs", device="cpu"), other):
        assert (each.prompts, each.default_prompt_name) == (prompts, "q")
        np.testing.assert_allclose(each.predict(PAIRS), expected, atol=1e-5)
        np.testing.assert_allclose(each.predict(PAIRS, prompt_name="none"), plain, atol=1e-5)
    query, documents = "small boat", [second for _, second in PAIRS]
    assert model.rank(query, documents, prompt="lake ") == model.rank("lake " + query, documents, prompt="")
    with pytest.raises(ValueError, match="prompt_name='x' is unknown; the model has 'q', 'none'"):
        model.predict(PAIRS, prompt_name="x")
    with pytest.raises(ValueError, match=r"prompt_name='x' is unknown; the model has 'q'"):
        CrossEncoder(bert, device="cpu", prompts={"q": ""}, default_prompt_name="x")


LISTED = [("the boat", ["a small boat", "the red fox"], [1, 0]), ("the lake", ["the lake", "seven"], [0, 1])]


@pytest.mark.parametrize("prompt", [None, "q", "lake "])
@pytest.mark.parametrize("rows", [[(a, b, i % 2) for i, (a, b) in enumerate(PAIRS[:4])], LISTED])
def test_a_step_with_a_prompt_is_one_on_texts_behind_it(bert: Path, rows: list[Any], prompt: str | None) -> None:
    text = prompt if prompt == "lake " else "the red "
    weights = []
    for given, setting in ((rows, prompt), ([(text + first, *more) for first, *more in rows], "")):
        model = CrossEncoder(bert, device="cpu", prompts={"q": "the red "}, default_prompt_name="q")
        config = TrainingConfig(steps=1, batch_size=4, prompts=setting, learning_rate=1e-2, warmup=0)
        model.fit(given, ListNetLoss() if rows is LISTED else None, config, show_progress_bar=False)
        weights.append(torch.cat([part.detach().flatten() for part in model.parameters()]))
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    path, words = folder(tmp_path / "model"), small.wordpiece()
    words.add_tokens(["lake-boat"])
    small.wrapped(words, 64).save_pretrained(path)
    with pytest.raises(ValueError, match=r"a token of 'the lake-boat / ' has the id 119, .* vectors for 119"):
        CrossEncoder(path, device="cpu").predict([*PAIRS, ("the lake-boat", "")])


# ------------------------------------------------------------------------------------------------ types of results

DOCUMENTS = ["a small boat", "the quiet lake", "a red fox", "a small boat"]
CONVERSIONS = list(itertools.product((True, False), repeat=2))


def test_predict_and_rank_give_one_type_for_each_conversion(scorer: CrossEncoder) -> None:
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
        if scorer.classes == 1:
            ranked = scorer.rank("a fox", iter(DOCUMENTS), top_k=2, **options)
            assert [entry["corpus_id"] for entry in ranked] == np.argsort(-expected, kind="stable")[:2].tolist()
            assert {type(entry["score"]) for entry in ranked} == {float if numpy and not tensor else torch.Tensor}


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
    if scorer.classes == 3:
        assert type(scorer.activation) is nn.Identity
        np.testing.assert_allclose(scorer.predict(several, activation=nn.Softmax(dim=-1)).sum(1), 1, atol=1e-6)
    cases = [
        (lambda scores: scores * float("nan"), r"gives NaN for pairs\[0\]"),
        (lambda scores: scores[:1], r"makes shape \(1, \d\) of \(4, \d\) scores; return a row"),
        (lambda scores: scores.numpy(), "makes ndarray of"),
    ]
    for activation, message in cases:
        with pytest.raises(ValueError, match=message):
            scorer.predict(several, activation=activation)
