"""What people do with a ``SentenceTransformer`` object: each line gives here what it gives in sentence-transformers.

The value of a line is its last expression. It sees ``SentenceTransformer``, ``models`` and ``util`` of one library, the
``folder`` of a small model, that ``model`` loaded, ``texts``, and ``new``, a path where nothing is yet.
"""

from __future__ import annotations

import copy
import importlib
import io
import json
import os
import pickle
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from tests import small

peer = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # Old names warn there.

TEXTS = ["a small boat lies on the quiet lake", "the red fox", "one two three", "nobody rows it home"]
CONSTRUCTOR = """
SentenceTransformer(folder).encode(texts)
SentenceTransformer(model_name_or_path=folder, device="cpu").encode(texts)
SentenceTransformer(modules=[model[0], model[1]]).encode(texts)
SentenceTransformer(modules=[models.Transformer(folder), models.Pooling(16, "cls")]).encode(texts)
t = models.Transformer(folder); models.Pooling(t.get_word_embedding_dimension()).get_sentence_embedding_dimension()
SentenceTransformer(folder, device=torch.device("cpu")).device
SentenceTransformer(folder, prompts={"a": "the "}, default_prompt_name="a").encode(texts)
SentenceTransformer(folder, prompts={"a": "the "}).prompts
SentenceTransformer(folder, similarity_fn_name="dot").similarity_fn_name
SentenceTransformer(folder, truncate_dim=5).encode(texts)
SentenceTransformer(folder, model_kwargs={"torch_dtype": "bfloat16"}).dtype
SentenceTransformer(folder, model_kwargs={"attn_implementation": "eager"}).encode(texts)
SentenceTransformer(folder, tokenizer_kwargs={"padding_side": "left"}).tokenizer.padding_side
SentenceTransformer(folder, trust_remote_code=True, local_files_only=True, token=False).encode(texts)
SentenceTransformer(folder, backend="torch", cache_folder=new, revision=None, model_card_data=None).encode(texts)
"""
PROPERTIES = """
str(model.device)
str(model._target_device)
model.dtype
model.max_seq_length
model.max_seq_length = 5; model.encode(texts)
model.get_max_seq_length()
model.tokenizer(texts)["input_ids"]
model.tokenizer.vocab_size, len(model.tokenizer), model.tokenizer.pad_token
model.similarity_fn_name
model.similarity_fn_name = "euclidean"; model.similarity(model.encode(texts), model.encode(texts))
model.prompts
model.prompts["a"] = "the "; model.encode(texts, prompt_name="a")
model.default_prompt_name = "query"; model.encode(texts)
model.truncate_dim = 5; model.get_sentence_embedding_dimension()
model.get_sentence_embedding_dimension(), model.get_embedding_dimension()
model.transformers_model.config.hidden_size, model.config.hidden_size
"""
STATE = """
sum(weight.numel() for weight in model.parameters())
[(name.split(".")[-2:], weight.shape) for name, weight in model.named_parameters()]
len(model.state_dict())
model.load_state_dict(model.state_dict()); model.encode(texts)
torch.save(model.state_dict(), new); model.load_state_dict(torch.load(new)); model.encode(texts)
all(weight.requires_grad for weight in model.parameters())
model.requires_grad_(False); any(weight.requires_grad for weight in model.parameters())
model[0].auto_model.embeddings.requires_grad_(False); sum(weight.requires_grad for weight in model.parameters())
model.zero_grad(); next(model.parameters()).grad
model.training, model.train().training, model.eval().training
model.half().dtype
model.bfloat16().dtype
model.bfloat16().encode(texts).dtype
model.bfloat16().encode(texts, convert_to_tensor=True).dtype
model.double().encode(texts, convert_to_tensor=True).dtype
model.half().float().encode(texts, convert_to_tensor=True).dtype
model.cpu().to("cpu").eval().encode(texts)
model.apply(lambda module: None) is model
"""
COPIES = """
copy.deepcopy(model).encode(texts)
copy.copy(model).encode(texts)
pickle.loads(pickle.dumps(model)).encode(texts)
b = io.BytesIO(); torch.save(model, b); b.seek(0); torch.load(b, weights_only=False).encode(texts)
SentenceTransformer(modules=copy.deepcopy(list(model))).encode(texts)
model.compile(backend="eager"); model.encode(texts)
torch.compile(model, backend="eager").encode(texts)
model[0].auto_model = torch.compile(model[0].auto_model, backend="eager"); model.encode(texts)
"""
MODULES = """
len(model)
type(model[0]).__name__, type(model[1]).__name__, type(model[-1]).__name__
[type(module).__name__ for module in model]
[type(module).__name__ for module in model.children()]
[name for name, _ in model.named_children()]
type(model._first_module()).__name__, type(model._last_module()).__name__
isinstance(model, torch.nn.Sequential)
isinstance(model[1], models.Pooling)
repr(model).startswith("SentenceTransformer(")
model.append(models.Normalize()); model.encode(texts)
model.add_module("2", models.Dense(16, 4, bias=False)); model.encode(texts).shape
model.pop(1); len(model)
type(model[0].auto_model).__name__, model[0].auto_model.config.hidden_size
model[0].get_word_embedding_dimension(), model[0].get_embedding_dimension()
model[1].pooling_mode
model[1].embedding_dimension
model[1].get_sentence_embedding_dimension(), model[1].get_embedding_dimension()
model.set_pooling_include_prompt(False); model.encode(texts, prompt="the ")
"""
SAVING = """
model.save(new); SentenceTransformer(new).encode(texts)
model.save(new); sorted({"modules.json", "1_Pooling", "README.md", "model.safetensors"} & {*os.listdir(new)})
model.save(new); sorted({"config.json", "tokenizer.json", "sentence_bert_config.json"} & {*os.listdir(new)})
model.save(new); [module["path"] for module in json.load(open(f"{new}/modules.json"))]
model.save(new); json.load(open(f"{new}/config_sentence_transformers.json"))["prompts"]
model.save(Path(new)); SentenceTransformer(new).prompts
model.save_pretrained(new, safe_serialization=True); os.path.exists(f"{new}/model.safetensors")
model.save(new, "a name", create_model_card=False); os.path.exists(f"{new}/README.md")
model.save(new, "a name", train_datasets=["a"]); os.path.exists(f"{new}/README.md")
model.push_to_hub("me/model", private=True)
"""
CALLS = """
model.tokenize(texts)["input_ids"]
model.tokenize(texts)["attention_mask"]
model(model.tokenize(texts))["sentence_embedding"]
model.forward(model.tokenize(texts))["token_embeddings"].shape
model(model.tokenize(texts))["sentence_embedding"].sum().backward(); next(model.parameters()).grad.abs().sum()
util.batch_to_device(model.tokenize(texts), model.device)["input_ids"]
model.encode(texts[0])
model.encode(tuple(texts))
model.encode(np.array(texts))
len(model.encode([]))
model.encode(texts, "query")
model.encode(texts, batch_size=2, show_progress_bar=False)
model.encode(texts, output_value="token_embeddings")
[row["sentence_embedding"] for row in model.encode(texts, output_value=None)]
model.encode(texts, convert_to_numpy=False)
model.encode(texts, convert_to_tensor=True)
model.encode(texts, normalize_embeddings=True, device="cpu", truncate_dim=5)
model.encode(texts, prompt="the ")
model.encode(texts, precision="binary")
model.encode_query(texts), model.encode_document(texts)
model.similarity_pairwise(model.encode(texts), model.encode(texts[::-1]))
model.evaluate(lambda model, output_path=None, **more: float(model.encode(texts).sum()))
p = model.start_multi_process_pool(["cpu"]); v = model.encode(texts, pool=p); model.stop_multi_process_pool(p); v
"""
GROUPS = (CONSTRUCTOR, PROPERTIES, STATE, COPIES, MODULES, SAVING, CALLS)
HABITS = [line for group in GROUPS for line in group.strip().splitlines()]
# Those that raise here, with what to do instead.
REFUSED = {
    "model.get_backend()": "models run in torch",
    "model.similarity_fn_name = None; model.similarity_fn_name": "pass one of cosine, dot, euclidean, manhattan",
}
# Those that give something else here, with the reason.
DIFFERENT = {
    "model.model_card_data.language": "facts of a card that were not given are None",
    "sorted(model.state_dict())": "weights have the names of versions before 6, with auto_model",
    'SentenceTransformer(folder, model_kwargs={"dtype": "float16"}).dtype': "float32 on a CPU; a warning says so",
    "model.half().encode(texts, convert_to_tensor=True).dtype": "they become float32 on a CPU, with a warning",
    "model.half(); model.encode(texts); model.encode(texts[0], convert_to_tensor=True).dtype": "float32, too",
    "model.encode([]).shape": "(0, dim), so that it can be concatenated",
    "model.train(); model.encode(texts); model.training": "encode() leaves the mode of the model as it was",
    "model.encode(texts, output_value=None)[0].keys()": "without the features of the text",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with a prompt and without dropout, which both libraries read."""
    root = tmp_path_factory.mktemp("models")
    path = small.bert(root / "bert") / "config.json"
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), **still}))
    SentenceEncoder(root / "bert", device="cpu", prompts={"query": "the red "}).save(root / "encoder")
    return str(root / "encoder")


@cache
def load(library: str, folder: str) -> Any:
    return importlib.import_module(library).SentenceTransformer(folder, device="cpu")


def run(line: str, library: str, folder: str, new: Path) -> Any:
    """The value of a line with a library."""
    names: dict[str, Any] = {module.__name__: module for module in (copy, io, json, os, pickle, torch)}
    names |= {name: importlib.import_module(f"{library}.{name}") for name in ("models", "util")}
    names |= {"SentenceTransformer": importlib.import_module(library).SentenceTransformer, "np": np, "Path": Path}
    names |= {"model": copy.deepcopy(load(library, folder)), "folder": folder, "texts": TEXTS, "new": str(new)}
    *before, value = line.split("; ")
    exec("; ".join(before), names)
    return eval(value, names)


def check_equal(value: Any, expected: Any) -> None:
    """Raise unless two values have the same types and dtypes, and the same numbers to five digits."""
    if isinstance(expected, (list, tuple)):
        assert len(value) == len(expected)
        for one, other in zip(value, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, (np.ndarray, torch.Tensor)):
        assert (type(value), value.dtype) == (type(expected), expected.dtype)
        torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(expected), atol=1e-5, rtol=1e-4)
    elif isinstance(expected, float):
        assert value == pytest.approx(expected, abs=1e-3)
    else:
        assert value == expected


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbert.storage.hub.upload", lambda path, repo_id, *_: repo_id)
    monkeypatch.setattr(peer.SentenceTransformer, "push_to_hub", lambda self, repo_id, **_: repo_id)


OURS = "sbert.integrations.sentence_transformers"


# Those that start processes or trace a graph take seconds.
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=line, marks=[pytest.mark.slow] if re.search("compile|_pool", line) else [])
        for line in HABITS
    ],
)
def test_a_habit_gives_what_it_gives_in_sentence_transformers(line: str, folder: str, tmp_path: Path) -> None:
    expected = run(line, "sentence_transformers", folder, tmp_path / "theirs")
    check_equal(run(line, OURS, folder, tmp_path / "ours"), expected)


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_here_is_an_error_that_says_what_to_do(line: str, folder: str, tmp_path: Path) -> None:
    run(line, "sentence_transformers", folder, tmp_path / "theirs")
    with pytest.raises((AttributeError, TypeError, ValueError), match=REFUSED[line]):
        run(line, OURS, folder, tmp_path / "ours")


@pytest.mark.parametrize("line", DIFFERENT)
def test_what_is_different_here_is_so_on_purpose(line: str, folder: str, tmp_path: Path) -> None:
    expected = run(line, "sentence_transformers", folder, tmp_path / "theirs")
    assert run(line, OURS, folder, tmp_path / "ours") != expected


def test_the_table_has_118_habits() -> None:
    assert len({*HABITS, *REFUSED, *DIFFERENT}) == len(HABITS) + len(REFUSED) + len(DIFFERENT) == 118
