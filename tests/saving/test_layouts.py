"""Folders as well-known models have them: read, written, and refused where they must be."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sbert import SentenceEncoder
from tests import small
from tests.backends.test_families import build, difference, ours, theirs
from tests.small import modules, pooling, write

pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
OLD = "sentence_transformers.models."
MIDDLE = "sentence_transformers.sentence_transformer.modules.{name}."
NEW = "sentence_transformers.base.modules.{name}."


def dense(folder: Path, width: int, out: int, **config: Any) -> None:
    """A Dense module's folder."""
    torch.manual_seed(width + out)
    weights = {"linear.weight": torch.randn(out, width) * 0.3}
    if config.get("bias", True):
        weights["linear.bias"] = torch.randn(out) * 0.1
    write(folder, {"config.json": {"in_features": width, "out_features": out, "bias": True, **config}})
    save_file(weights, folder / "model.safetensors")


def limits(length: int | None, lower: bool = False, **more: Any) -> dict[str, Any]:
    return {"max_seq_length": length, "do_lower_case": lower, **more}


def bert_layout(folder: Path, names: tuple[str, ...], pool: dict[str, Any], length: int = 24, **files: Any) -> Path:
    small.bert(folder)
    write(
        folder,
        {
            "modules.json": modules("Transformer", *names),
            "sentence_bert_config.json": limits(length),
            "1_Pooling/config.json": pool,
            **files,
        },
    )
    if "Normalize" in names:
        (folder / f"{names.index('Normalize') + 1}_Normalize").mkdir()
    return folder


def short_pooling(**flags: bool) -> dict[str, Any]:
    """Four keys, as models of 2020 have them."""
    keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {"word_embedding_dimension": 16, **{f"pooling_mode_{key}": flags.get(key, False) for key in keys}}


def nli_mean(folder: Path) -> Path:
    return bert_layout(folder, ("Pooling",), short_pooling(mean_tokens=True))


def minilm(folder: Path) -> Path:
    return bert_layout(folder, ("Pooling", "Normalize"), short_pooling(mean_tokens=True))


def mpnet(folder: Path) -> Path:
    return build("mpnet", folder)


def roberta(folder: Path) -> Path:
    return build("roberta", folder)


def multilingual(folder: Path) -> Path:
    build("xlm-roberta", folder)
    return write(folder, {"modules.json": modules("Transformer", "Pooling")})


def labse(folder: Path) -> Path:
    bert_layout(folder, ("Pooling", "Dense", "Normalize"), short_pooling(cls_token=True))
    dense(folder / "2_Dense", 16, 16, activation_function="torch.nn.modules.activation.Tanh")
    return folder


def labse_pickled(folder: Path) -> Path:
    """Its weights in the old format, tensors only."""
    labse(folder)
    from safetensors.torch import load_file

    torch.save(load_file(folder / "2_Dense/model.safetensors"), folder / "2_Dense/pytorch_model.bin")
    (folder / "2_Dense/model.safetensors").unlink()
    return folder


def bge(folder: Path) -> Path:
    return bert_layout(folder, ("Pooling", "Normalize"), pooling("cls_token"))


def e5(folder: Path) -> Path:
    """Its Normalize has no folder."""
    minilm(folder)
    (folder / "2_Normalize").rmdir()
    return folder


def gte_modernbert(folder: Path) -> Path:
    build("modernbert", folder)
    return write(folder, {"1_Pooling/config.json": pooling("cls_token")})


def embeddinggemma(folder: Path) -> Path:
    """Two Dense layers without bias or activation."""
    bert_layout(folder, ("Pooling", "Dense", "Dense", "Normalize"), pooling("mean_tokens"))
    plain = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    dense(folder / "2_Dense", 16, 48, **plain)
    dense(folder / "3_Dense", 48, 16, **plain)
    return folder


def qwen3(folder: Path) -> Path:
    build("qwen3", folder)
    prompts = {"query": "one two: ", "document": ""}
    settings = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    return write(folder, {"config_sentence_transformers.json": settings})


def default_prompt(folder: Path) -> Path:
    minilm(folder)
    settings = {"prompts": {"fox": "red fox "}, "default_prompt_name": "fox", "similarity_fn_name": "dot"}
    return write(folder, {"config_sentence_transformers.json": {**settings, "truncate_dim": 7}})


def middle_namespace(folder: Path) -> Path:
    minilm(folder)
    listed = modules("Transformer", namespace=NEW) + modules("Transformer", "Pooling", namespace=MIDDLE)[1:]
    return write(folder, {"modules.json": listed})


def new_namespace(folder: Path) -> Path:
    """The dialect of sentence-transformers 6."""
    minilm(folder)
    listed = modules("Transformer", "Pooling", "Normalize", namespace=NEW)
    listed[1]["type"] = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    task = {"transformer_task": "feature-extraction", "modality_config": text, "module_output_name": "token_embeddings"}
    pool = {"embedding_dimension": 16, "pooling_mode": ["mean", "max"], "include_prompt": True}
    return write(folder, {"modules.json": listed, "sentence_bert_config.json": task, "1_Pooling/config.json": pool})


def pooling_mode_wins(folder: Path) -> Path:
    """A string, beside a boolean that says otherwise."""
    minilm(folder)
    return write(folder, {"1_Pooling/config.json": {**pooling("mean_tokens"), "pooling_mode": "cls"}})


def odd_order(folder: Path) -> Path:
    """An order that the old keys cannot say."""
    minilm(folder)
    config = {"embedding_dimension": 16, "pooling_mode": ["mean_sqrt_len_tokens", "lasttoken", "cls"]}
    return write(folder, {"1_Pooling/config.json": config})


def no_pooling_key(folder: Path) -> Path:
    minilm(folder)
    return write(folder, {"1_Pooling/config.json": {"word_embedding_dimension": 16}})


def layer_norm(folder: Path) -> Path:
    bert_layout(folder, ("Pooling", "LayerNorm", "Dropout"), pooling("mean_tokens"))
    write(folder, {"2_LayerNorm/config.json": {"dimension": 16}, "3_Dropout/config.json": {"dropout": 0.4}})
    save_file({"norm.weight": torch.rand(16), "norm.bias": torch.rand(16)}, folder / "2_LayerNorm/model.safetensors")
    return folder


def lower_case(folder: Path) -> Path:
    build("roberta", folder)
    return write(folder, {"sentence_bert_config.json": limits(24, lower=True)})


def baked(folder: Path) -> Path:
    """A tokenizer whose file truncates at 5 and pads to 9, as all-MiniLM-L6-v2's does at 128."""
    minilm(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    pad = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    tokenizer["padding"] = {"strategy": {"Fixed": 9}, **pad}
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def plain(folder: Path) -> Path:
    """A Hugging Face model and no more."""
    return small.bert(folder)


def arguments(folder: Path) -> Path:
    """Arguments for transformers, under the old names."""
    minilm(folder)
    more = {"model_args": {"attn_implementation": "eager"}, "tokenizer_args": {"trust_remote_code": True}}
    more["config_args"] = {"trust_remote_code": True}
    return write(folder, {"sentence_bert_config.json": limits(24, **more)})


def static_table() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(small.wordpiece().get_vocab_size(), 12)


def static(folder: Path, path: str = "") -> Path:
    where = folder / path
    where.mkdir(parents=True, exist_ok=True)
    small.wordpiece().save(str(where / "tokenizer.json"))
    save_file({"embedding.weight": static_table()}, where / "model.safetensors")
    entry = {"idx": 0, "name": "0", "path": path, "type": OLD + "StaticEmbedding"}
    return write(folder, {"modules.json": [entry]})


def static_in_folder(folder: Path) -> Path:
    return static(folder, "0_StaticEmbedding")


def model2vec(folder: Path) -> Path:
    """Few vectors, a mapping from tokens to them, and a weight a token."""
    static(folder)
    table = static_table()
    mapping = torch.arange(len(table)) % 40
    weights = torch.linspace(0.5, 1.5, len(table), dtype=torch.float64)
    save_file({"embeddings": table[:40].half(), "mapping": mapping, "weights": weights}, folder / "model.safetensors")
    return folder


def word_vectors(folder: Path, *more: str) -> Path:
    words = sorted({word for text in small.CORPUS for word in text.lower().split()})
    torch.manual_seed(0)
    tokenizer = "sentence_transformers.models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer"
    write(
        folder,
        {
            "modules.json": [
                {"idx": i, "name": str(i), "path": f"{i}_{name}", "type": OLD + name}
                for i, name in enumerate(["WordEmbeddings", *more, "Pooling"])
            ],
            "0_WordEmbeddings/wordembedding_config.json": {
                "tokenizer_class": tokenizer,
                "update_embeddings": False,
                "max_seq_length": 1000,
            },
            "0_WordEmbeddings/whitespacetokenizer_config.json": {
                "vocab": ["PADDING_TOKEN", *words],
                "stop_words": ["the", "a"],
                "do_lower_case": False,
            },
            f"{len(more) + 1}_Pooling/config.json": pooling("mean_tokens", dim=8 if more else 6),
        },
    )
    save_file({"emb_layer.weight": torch.randn(len(words) + 1, 6)}, folder / "0_WordEmbeddings/model.safetensors")
    return folder


def bilstm(folder: Path) -> Path:
    word_vectors(folder, "LSTM")
    config = {"word_embedding_dimension": 6, "hidden_dim": 4, "num_layers": 1, "dropout": 0, "bidirectional": True}
    write(folder, {"1_LSTM/lstm_config.json": config})
    torch.manual_seed(1)
    layers = torch.nn.LSTM(6, 4, bidirectional=True)
    save_file({f"encoder.{name}": p.data for name, p in layers.named_parameters()}, folder / "1_LSTM/model.safetensors")
    return folder


LAYOUTS = [
    nli_mean,
    minilm,
    mpnet,
    roberta,
    multilingual,
    labse,
    labse_pickled,
    bge,
    e5,
    gte_modernbert,
    embeddinggemma,
    qwen3,
    default_prompt,
    middle_namespace,
    new_namespace,
    pooling_mode_wins,
    odd_order,
    no_pooling_key,
    layer_norm,
    lower_case,
    baked,
    plain,
    arguments,
    static,
    static_in_folder,
    model2vec,
    word_vectors,
    bilstm,
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_both_directions(layout: Any, tmp_path: Path) -> None:
    folder = layout(tmp_path / "given")
    model, peer = ours(folder), theirs(folder)
    read = difference(model, peer)
    model.save(tmp_path / "saved")
    written = difference(model, theirs(tmp_path / "saved"))
    again = difference(model, ours(tmp_path / "saved"))
    peer.save(str(tmp_path / "theirs"))
    newest = difference(ours(tmp_path / "theirs"), peer)
    print(f"\n{layout.__name__}: read {read:.1e}, written {written:.1e}, newest dialect {newest:.1e}")
    assert max(read, written, newest) <= 1e-5
    # How attention is computed is not written.
    assert again <= (1e-6 if layout is arguments else 0)


@pytest.mark.parametrize(
    "mode", ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
)
@pytest.mark.parametrize("include_prompt", [True, False])
def test_pooling_with_a_prompt(mode: str, include_prompt: bool, tmp_path: Path) -> None:
    config = pooling(mode, include_prompt=include_prompt)
    folder = bert_layout(tmp_path / "given", ("Pooling",), config)
    texts = ["a small boat", "the red fox runs over seven green hills", "lake"]
    model, peer = ours(folder), theirs(folder)
    vectors = model.encode(texts, prompt="one: ")
    assert np.abs(vectors - peer.encode(texts, prompt="one: ")).max() <= 1e-5
    assert np.abs(vectors - model.encode(texts)).max() > 1e-3
    model.save(tmp_path / "saved")
    assert np.abs(vectors - theirs(tmp_path / "saved").encode(texts, prompt="one: ")).max() <= 1e-5


def test_old_keys_are_concatenated_in_their_order(tmp_path: Path) -> None:
    config = pooling("lasttoken", "mean_tokens", "max_tokens", "cls_token", "weightedmean_tokens")
    folder = bert_layout(tmp_path / "given", ("Pooling",), config)
    model = ours(folder)
    assert difference(model, theirs(folder)) <= 1e-5
    assert model.get_sentence_embedding_dimension() == 80
    model.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/1_Pooling/config.json").read_text()) == {**config, "include_prompt": True}


def test_settings_are_kept(tmp_path: Path) -> None:
    model = ours(default_prompt(tmp_path / "given"))
    model.save(tmp_path / "saved")
    peer = theirs(tmp_path / "saved")
    for other in (ours(tmp_path / "saved"), peer):
        assert other.prompts["fox"] == "red fox "
        assert other.default_prompt_name == "fox"
        assert other.similarity_fn_name == "dot"
        assert other.truncate_dim == 7
        assert other.max_seq_length == 24


def test_plain_decoder_pools_its_last_token(tmp_path: Path) -> None:
    folder = build("qwen3", tmp_path / "given")
    for name in ("modules.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    config = json.loads((folder / "config.json").read_text())
    for architecture, causal, mode in (
        ("Qwen3ForCausalLM", None, "lasttoken"),
        ("Qwen3ForCausalLM", False, "mean"),
        ("Qwen3Model", None, "mean"),
    ):
        write(folder, {"config.json": {**config, "architectures": [architecture], "is_causal": causal}})
        model = ours(folder)
        assert len(model) == 2
        assert model[1].modes == (mode,)


def test_plain_model2vec(tmp_path: Path) -> None:
    folder = model2vec(tmp_path / "given")
    (folder / "modules.json").unlink()
    write(folder, {"config.json": {"model_type": "model2vec", "normalize": True}})
    vectors = ours(folder).encode(["a small boat"])
    np.testing.assert_allclose(np.linalg.norm(vectors), 1, atol=1e-6)


def test_the_dialect_that_is_written(tmp_path: Path) -> None:
    model = ours(qwen3(tmp_path / "given"))
    model.save(tmp_path / "saved")

    def read(name: str) -> Any:
        return json.loads((tmp_path / "saved" / name).read_text(encoding="utf-8"))

    assert [entry["type"] for entry in read("modules.json")] == [
        f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
    ]
    assert [entry["path"] for entry in read("modules.json")] == ["", "1_Pooling", "2_Normalize"]
    assert read("1_Pooling/config.json") == pooling("lasttoken", include_prompt=True)
    assert read("sentence_bert_config.json") == limits(24)
    assert (tmp_path / "saved/2_Normalize").is_dir()
    settings = read("config_sentence_transformers.json")
    assert settings["model_type"] == "SentenceTransformer"
    assert settings["__version__"] == {"sentence_transformers": "2.3.0"}
    tokenizer = read("tokenizer_config.json")
    assert tokenizer["model_max_length"] == 24
    assert tokenizer["padding_side"] == "left"
    assert model.tokenizer.model_max_length == 64
    assert not list((tmp_path / "saved").rglob("*.bin"))


# ------------------------------------------------------------------------------------------------- refusals


def refused(folder: Path, match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        ours(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/etc", "../elsewhere", "1_Pooling/../../elsewhere", "..\\elsewhere"])
def test_paths_that_leave_the_folder(path: str, tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    write(tmp_path / "elsewhere", {"config.json": pooling("mean_tokens")})
    listed = modules("Transformer", "Pooling")
    listed[1]["path"] = path
    refused(write(folder, {"modules.json": listed}), r"modules.json names the path .* which leaves the folder")


def test_links_that_leave_the_folder(tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    (folder / "1_Pooling").rename(tmp_path / "elsewhere")
    (folder / "1_Pooling").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    refused(folder, r"modules.json names the path '1_Pooling', which leaves the folder")


@pytest.mark.parametrize(
    "kind",
    [
        "os.system",
        "evil.Pooling",
        "sentence_transformersx.Pooling",
        OLD + "Router",
        OLD + "CLIPModel",
        OLD + "CNN",
        OLD + "BoW",
        "sentence_transformers.os.system",
    ],
)
def test_unknown_modules(kind: str, tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    listed = modules("Transformer", "Pooling")
    listed[1]["type"] = kind
    refused(write(folder, {"modules.json": listed}), rf"names the module type '{kind}', which is not one of")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "describes a CrossEncoder"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "angle"}, "similarity_fn_name='angle'"),
        ("config_sentence_transformers.json", {"prompts": {"query": 1}}, "prompts that are not strings"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "not among its prompts"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim=0"),
        ("sentence_bert_config.json", limits(2), "max_seq_length=2 where at least 3"),
        ("sentence_bert_config.json", limits(None, transformer_task="any-to-any"), "transformer_task='any-to-any'"),
        ("sentence_bert_config.json", limits(None, modality_config={"image": {}}), "use a text model"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling mode 'median'"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": "yes"}, "pooling_mode_cls_token='yes' where bool"),
        ("2_Dense/config.json", {"in_features": 16, "out_features": 16, "module_input_name": "x"}, "not supported"),
        ("2_Dense/config.json", {"in_features": 16, "out_features": "16"}, "out_features='16' where int"),
        ("2_Dense/config.json", {"in_features": 16}, "lacks 'out_features'"),
        ("2_Dense/config.json", {"in_features": 16, "out_features": 8}, "weights of Dense"),
        (
            "2_Dense/config.json",
            {"in_features": 16, "out_features": 16, "activation_function": "os.system"},
            "names the activation 'os.system'",
        ),
    ],
)
def test_settings_that_make_no_sense(name: str, content: dict[str, Any], match: str, tmp_path: Path) -> None:
    folder = write(labse(tmp_path / "given"), {name: content})
    refused(folder, match)
    with pytest.raises(ValueError, match=Path(name).parent.name if "weights" in match else name):
        ours(folder)


def test_unknown_keys_are_named(tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    write(folder, {"sentence_bert_config.json": limits(24, fancy=1)})
    with pytest.warns(UserWarning, match="sentence_bert_config.json: unknown keys fancy ignored"):
        ours(folder)
    write(folder, {"sentence_bert_config.json": limits(24, query_length=8)})
    with pytest.warns(UserWarning, match="sentence_bert_config.json: query_length=8 ignored"):
        ours(folder)
    write(folder, {"sentence_bert_config.json": limits(24, model_args={"attn_implementation": "me/kernel"})})
    with pytest.warns(UserWarning, match="model_kwargs attn_implementation='me/kernel' ignored"):
        ours(folder)


class Marks:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("where", ["", "2_Dense"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_no_code_of_a_folder_runs(where: str, name: str, form: str, tmp_path: Path) -> None:
    folder = labse(tmp_path / "given")
    (folder / where / "model.safetensors").unlink()
    evil = Marks(tmp_path / "marker")
    path = folder / where / name
    if form == "pickle":
        path.write_bytes(pickle.dumps(evil))
    else:
        torch.save({"linear.weight": evil}, path)
    refused(folder, name)
    assert not (tmp_path / "marker").exists()


def test_remote_code_is_refused(tmp_path: Path) -> None:
    folder = minilm(tmp_path / "given")
    code = f"import os\nos.mkdir({str(tmp_path / 'marker')!r})\n"
    (folder / "modeling_own.py").write_text(code, encoding="utf-8")
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "modeling_own.C", "AutoModel": "modeling_own.M"}}
    refused(write(folder, {"config.json": {**config, **own}}), "config.json needs code from its folder")
    assert not (tmp_path / "marker").exists()


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = minilm(tmp_path / "given")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    refused(folder, r"model.safetensors lacks 1 of the weights .* such as encoder.layer.1.output.dense.weight")


def test_half_precision_weights_are_read_as_float32(tmp_path: Path) -> None:
    """As they would be slow, or worse, where transformers takes the dtype of the file."""
    model = ours(minilm(tmp_path / "given"))
    SentenceEncoder(*model, device="cpu").half().save(tmp_path / "half")
    assert {p.dtype for p in ours(tmp_path / "half").parameters()} == {torch.float32}
    assert {p.dtype for p in SentenceEncoder(tmp_path / "half", dtype="bfloat16").parameters()} == {torch.bfloat16}
