"""What encodes beside this library: the models, what is exported for other runtimes, and their thinnest code."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import local
from typing import Any, NamedTuple

import numpy as np
import torch

from sbert.storage.files import one_line
from tests.benchmarks.turns import MODEL, OTHER, make_loads

Encode = Callable[[list[str]], Any]
OWN, BATCH = "sbert-mini", 32
EXPORTS = {"float32": "onnx", "int8": "onnx int8"}  # Folders of what ONNX Runtime runs.
_BERT = {"pad_token_id": 0, "eos_token_id": 102}
# Name of the classes in transformers, pooling, and sizes where they are not the defaults.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base": ("Bert", "mean", {"position_embedding_type": "absolute"}),  # CTranslate2 looks for it.
    "modernbert-base": ("ModernBert", "mean", {**_BERT, "bos_token_id": 101, "cls_token_id": 101, "sep_token_id": 102}),
    "nomic-bert": ("NomicBert", "mean", {}),
    "qwen3-0.6b": ("Qwen3", "lasttoken", {**_BERT, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}),
}  # fmt: skip


class Plan(NamedTuple):
    """What a contender needs: the model, the folder of exports, what is measured, and figures of the ceiling."""

    model: str
    folder: Path
    texts: list[str]
    sample: int
    rounds: int
    work: Sequence[str]
    busy: bool
    threads: int
    ceilings: dict[str, float]  # By the dtype.
    limit: int | None = None  # Tokens of a text.
    operations: Sequence[dict[str, float]] = ()  # Of each round, for each kind of texts.


def write_model(name: str, folder: Path) -> None:
    """A model of this size with random weights."""
    import transformers

    from sbert import SentenceEncoder
    from sbert.modules import Normalize, Pooling, Transformer

    torch.manual_seed(0)
    kind, pooling, options = MODELS[name]
    side = "left" if pooling == "lasttoken" else "right"
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL, model_max_length=512, padding_side=side)
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokenizer), **options)
    network = getattr(transformers, f"{kind}Model")(config).eval()
    chain = (Transformer(network, tokenizer, 512), Pooling(pooling), Normalize())
    SentenceEncoder(*chain, device="cpu").save(folder, create_model_card=False)


def prepare(plan: Plan, kinds: set[str]) -> tuple[Plan, dict[str, str]]:
    """Write the model and what runtimes read: the plan of the contenders, and why some cannot take part."""
    from sbert import SentenceEncoder
    from sbert.cli.diagnosis import diagnose
    from sbert.saving.export import export

    failures = {}
    if plan.model in MODELS:
        write_model(plan.model, plan.folder / plan.model)
        plan = plan._replace(model=str(plan.folder / plan.model))
    encoder: Any = SentenceEncoder(plan.model, device="cpu", dtype="float32")
    simple = [type(module).__name__ for module in encoder] == ["Transformer", "Pooling", "Normalize"]
    if not simple or encoder[1].modes != ("mean",):
        failures |= dict.fromkeys(("padded", "ctranslate2"), "only for models of mean pooling and normalization")

    def convert(folder: Path) -> None:
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(plan.model).convert(folder)
        tokenizer = copy.deepcopy(encoder.tokenizer.backend_tokenizer)
        tokenizer.enable_truncation(encoder.max_seq_length)
        tokenizer.save(str(folder / "tokenizer.json"))

    in_int8 = partial(export, encoder, format="onnx", dtype="int8")
    exports = {"onnx": partial(export, encoder, format="onnx"), "onnx int8": in_int8, "ctranslate2": convert}
    for kind, write in exports.items():
        if kind.partition(" ")[0] in kinds - set(failures):
            try:
                write(plan.folder / kind)
            except Exception as error:  # The other contenders go on.
                failures[kind] = one_line(error)
    print(f"\nHere, sbert float32 runs {diagnose(encoder)['forward']}", flush=True)
    rounds = [make_loads(plan.texts, plan.sample, number) for number in range(plan.rounds + 1)]
    operations = [{load: count_operations(encoder, some) for load, some in loads.items()} for loads in rounds]
    return plan._replace(limit=encoder.max_seq_length, operations=operations), failures


def count_operations(encoder: Any, texts: list[str]) -> float:
    """2 weights + 4 layers dim length operations for each token."""
    network, lengths = encoder[0].auto_model, encoder.tokenize(texts).lengths.double()
    config, heads = network.config, network.config.num_attention_heads
    dim = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    attention = 4 * config.num_hidden_layers * dim * lengths.square().sum()
    sizes = {name: weight.numel() for name, weight in network.named_parameters() if weight.ndim == 2}
    weights = sum(size for name, size in sizes.items() if "embed" not in name and "pooler" not in name)
    return float(2 * weights * lengths.sum() + attention)


# -------------------------------------------------------------------------------- the contenders, in their processes


def in_input_order(encode: Encode) -> Encode:
    return lambda texts: np.concatenate([encode(texts[row : row + BATCH]) for row in range(0, len(texts), BATCH)])


def theirs(dtype: str, plan: Plan) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(plan.model, device="cpu", model_kwargs={"dtype": dtype}, local_files_only=True)
    return partial(model.encode, show_progress_bar=False)


def ours(what: str, plan: Plan) -> Encode:
    from sbert import SentenceEncoder

    dtype = next((name for name in ("bfloat16", "int8") if name in what), "float32")
    backend = what.partition(" ")[0] if what.startswith(("onnx", "openvino")) else "auto"
    model = SentenceEncoder(plan.model, device="cpu", dtype=dtype, backend=backend)
    encode = partial(model.encode, on_truncate="ignore", show_progress_bar=False)
    return in_input_order(encode) if "input order" in what else encode


def padded(_: str, plan: Plan) -> Encode:
    """The loop of a tutorial."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(plan.model), AutoModel.from_pretrained(plan.model).eval()

    @torch.no_grad()
    def encode(texts: list[str]) -> Any:
        batch = tokenizer(texts, padding=True, truncation=True, max_length=plan.limit, return_tensors="pt")
        hidden, mask = network(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()

    return in_input_order(encode)


def sorted_batches(tokenizer: Any, run: Callable[[list[list[int]]], Any]) -> Encode:
    """The thinnest code around a runtime that takes token ids; one text is one direct call."""
    tokenizer.no_padding()

    def encode(texts: list[str]) -> Any:
        if len(texts) == 1:
            return run([tokenizer.encode(texts[0]).ids])
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]), reverse=True)
        batches = [order[row : row + BATCH] for row in range(0, len(order), BATCH)]
        vectors = np.concatenate([run([ids[row] for row in batch]) for batch in batches])
        return vectors[np.argsort(order)]

    return encode


def exported(folder: Path, names: Sequence[str], call: Callable[[dict[str, Any]], Any]) -> Encode:
    """A file of ``sbert export``, as a function of named arrays: (texts, longest) int64."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    padding = tokenizer.padding["pad_id"]

    def run(ids: list[list[int]]) -> Any:
        longest = max(map(len, ids))
        padded = np.array([row + [padding] * (longest - len(row)) for row in ids])
        mask = (np.arange(longest) < np.array([[len(row)] for row in ids])).astype(np.int64)
        values = {"input_ids": padded, "attention_mask": mask, "token_type_ids": np.zeros_like(padded)}
        return call({name: values[name] for name in names})

    return sorted_batches(tokenizer, run)


def openvino(what: str, plan: Plan) -> Encode:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "f32"} if what == "float32" else {}
    path = plan.folder / "onnx" / "model.onnx"
    model = openvino.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": plan.threads, **options})
    requests = local()  # A request serves one thread at a time.

    def run(inputs: Any) -> Any:
        if not hasattr(requests, "own"):
            requests.own = model.create_infer_request()
        return requests.own.infer(inputs, share_inputs=True)[0]

    return exported(path.parent, [port.get_any_name() for port in model.inputs], run)


def onnxruntime(what: str, plan: Plan) -> Encode:
    import onnxruntime

    options, path = onnxruntime.SessionOptions(), plan.folder / EXPORTS[what] / "model.onnx"
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = plan.threads
    session = onnxruntime.InferenceSession(path, options)
    names = [port.name for port in session.get_inputs()]
    return exported(path.parent, names, lambda inputs: session.run(None, inputs)[0])


def ctranslate2(what: str, plan: Plan) -> Encode:
    import ctranslate2
    from tokenizers import Tokenizer

    folder = plan.folder / "ctranslate2"
    model = ctranslate2.Encoder(str(folder), device="cpu", compute_type=what, intra_threads=plan.threads)

    def run(ids: list[list[int]]) -> Any:
        hidden = np.array(model.forward_batch(ids).last_hidden_state)  # (texts, longest, dim)
        mask = np.arange(hidden.shape[1]) < np.array([[len(row)] for row in ids])
        sums = np.einsum("tld,tl->td", hidden, mask.astype(np.float32))
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    return sorted_batches(Tokenizer.from_file(str(folder / "tokenizer.json")), run)


class Contender(NamedTuple):
    """How to make its ``encode`` from the rest of its name, the packages that it needs, the export that it reads."""

    encoder: Callable[[str, Plan], Encode]
    packages: tuple[str, ...] = ()
    kind: str = ""


# By the first word of their names.
LIBRARIES = {
    OTHER: Contender(theirs, ("sentence_transformers",)),
    "sbert": Contender(ours),
    "padded": Contender(padded, kind="padded"),
    "openvino": Contender(openvino, ("openvino", "onnx", "onnxscript"), "onnx"),
    "onnxruntime": Contender(onnxruntime, ("onnx", "onnxscript", "onnxruntime"), "onnx"),
    "ctranslate2": Contender(ctranslate2, ("ctranslate2",), "ctranslate2"),
    OWN: Contender(lambda _, plan: ours("float32", plan._replace(model=OWN))),
}
