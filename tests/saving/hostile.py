"""Hostile folders that hang a program or fill its memory, and what it costs to load them."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import signal
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Edit = Callable[[Path], Any]
ST = "sentence_transformers.models."
HUGE = 10**9
# A folder that takes longer than this ends the program; on a busy machine the time of the clock says little.
ALARM = 60

# ----------------------------------------------------------------------------------------- what is done to a folder


def values(name: str, **changed: Any) -> Edit:
    """Other values in a JSON file; ... takes one away."""

    def edit(folder: Path) -> None:
        path = folder / name
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({key: x for key, x in {**before, **changed}.items() if x is not ...}))

    return edit


def text(name: str, content: str) -> Edit:
    return lambda folder: (folder / name).write_text(content)


def replace(name: str, make: Callable[[Path], Any]) -> Edit:
    """Something else in the place of a file."""

    def edit(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return edit


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """Two gigabytes that take no room on the disk."""
    with path.open("wb") as file:
        file.truncate(2 * 10**9)


def weights(change: Callable[[dict[str, torch.Tensor]], Any], where: str = "") -> Edit:
    """Other tensors in a model.safetensors."""

    def edit(folder: Path) -> None:
        path = folder / where / "model.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        save_file(change(tensors) or tensors, path, {"format": "pt"})

    return edit


def cast(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()}


def header(size: int, content: bytes = b"") -> Callable[[Path], Any]:
    """A safetensors file that announces a header of some size."""
    return lambda path: path.write_bytes(size.to_bytes(8, "little") + content)


def declare(shape: list[int]) -> Callable[[Path], Any]:
    """A safetensors file whose header declares more than there is."""
    content = json.dumps({"linear.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, 16]}}).encode()
    return header(len(content), content + bytes(16))


def vocabulary(number: int) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        tokenizer["model"]["vocab"]["zzyzx"] = number
        path.write_text(json.dumps(tokenizer), encoding="utf-8")

    return edit


class Call:
    """A pickle that calls something."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.called = function, arguments

    def __reduce__(self) -> Any:
        return self.called


def with_code(where: str, name: str, write: Callable[[Any, Path], Any]) -> Edit:
    """A pickle in the place of weights, which makes the folder "marker" when it is loaded."""

    def edit(folder: Path) -> None:
        (folder / where / "model.safetensors").unlink()
        write(Call(os.mkdir, str(folder.parent / "marker")), folder / where / name)

    return edit


def modules(change: Callable[[list[Any]], Any]) -> Edit:
    """Other entries in modules.json."""

    def edit(folder: Path) -> None:
        listed = json.loads((folder / "modules.json").read_text())
        change(listed)
        (folder / "modules.json").write_text(json.dumps(listed))

    return edit


def entries(*more: dict[str, Any], times: int = 1) -> Edit:
    return modules(lambda listed: listed.extend(list(more) * times))


def path_of_module(path: str) -> Edit:
    return modules(lambda listed: listed[1].update(path=path))


def kind_of_module(kind: str) -> Edit:
    """Another class in modules.json, and a module of that name, which would leave a mark."""

    def edit(folder: Path) -> None:
        (folder / "trap.py").write_text(f"import os\nos.mkdir({str(folder.parent / 'marker')!r})\n")
        modules(lambda listed: listed[1].update(type=kind))(folder)

    return edit


def move(name: str) -> Edit:
    """A link in the place of a module's folder, to where that is now."""

    def edit(folder: Path) -> None:
        (folder / name).rename(folder.with_name(f"{folder.name}-base"))
        (folder / name).symlink_to(folder.with_name(f"{folder.name}-base"), target_is_directory=True)

    return edit


def pickled_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.pkl").write_bytes(pickle.dumps(Call(os.mkdir, str(folder.parent / "marker"))))


def put_pickle(value: Any, where: str = "") -> Edit:
    """A pytorch_model.bin in the place of model.safetensors."""

    def edit(folder: Path) -> None:
        (folder / where / "model.safetensors").unlink()
        torch.save(value, folder / where / "pytorch_model.bin")

    return edit


def repack(content: Callable[[], Iterable[bytes]], **options: int) -> Edit:
    """A file of torch.save whose pickle is other bytes."""

    def edit(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save({"weight": torch.zeros(2)}, buffer := io.BytesIO())
        path = folder / "pytorch_model.bin"
        with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w", **options) as target:  # type: ignore[call-overload]
            for name in source.namelist():
                blocks = content() if name.endswith("data.pkl") else [source.read(name)]
                with target.open(name, "w", force_zip64=True) as file:
                    file.writelines(blocks)

    return edit


# A gigabyte in less than five megabytes; an instruction that makes 32 gigabytes of zeros before it reads them; and a
# small file of which every byte makes a dict: ten million of them.
compressed = repack(lambda: [bytes(10**7)] * 100, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
bytearrays = repack(lambda: [b"\x80\x05\x96" + (32 * 10**9).to_bytes(8, "little") + b"."])
empty_dicts = repack(lambda: [b"\x80\x02" + b"}" * 10**7 + b"."])


def module(where: str, weight: dict[str, torch.Tensor] | None = None, kind: str = "Dense", **config: Any) -> Edit:
    """One more module, with a configuration and weights."""

    def edit(folder: Path) -> None:
        entry = {"idx": 9, "name": "9", "path": where, "type": f"{ST}{kind}"}
        modules(lambda listed: listed.append(entry))(folder)
        (folder / where).mkdir()
        name = "lstm_config.json" if kind == "LSTM" else "config.json"
        (folder / where / name).write_text(json.dumps(config))
        save_file(weight or {"linear.weight": torch.zeros(4, 16)}, folder / where / "model.safetensors")

    return edit


def shard(*names: str) -> Edit:
    """Weights that are listed as parts."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        listed = {name: names[i % len(names)] for i, name in enumerate(tensors)}
        index = {"metadata": {}, "weight_map": listed}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return edit


def both(*edits: Edit) -> Edit:
    def edit(folder: Path) -> None:
        for change in edits:
            change(folder)

    return edit


def adapter(**config: Any) -> Edit:
    """An adapter of peft for a model beside it."""

    def edit(folder: Path) -> None:
        base = folder.with_name(folder.name + "-base")
        shutil.copytree(folder, base)
        (folder / "config.json").unlink()
        (folder / "model.safetensors").unlink()
        common = {"peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", "target_modules": ["query"]}
        settings = {"base_model_name_or_path": str(base), "r": 2, "lora_alpha": 4, **common, **config}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        name = "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"
        save_file({name: torch.zeros(2, 16)}, folder / "adapter_model.safetensors", {"format": "pt"})

    return edit


# --------------------------------------------------------------------------------------------------------- the folders

DENSE = {"linear.weight": torch.zeros(16, 16), "linear.bias": torch.zeros(16)}
DENSE_ENTRY = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
NORMALIZE = {"idx": 3, "name": "3", "path": "", "type": "sentence_transformers.models.Normalize"}
LSTM = {"in": 16, "hidden_dim": 4, "num_layers": 1, "word_embedding_dimension": 16}
LSTM_WEIGHTS = {
    f"encoder.{name}_l0{side}": torch.zeros(*shape)
    for side in ("", "_reverse")
    for name, shape in (("weight_ih", (16, 16)), ("weight_hh", (16, 4)), ("bias_ih", (16,)), ("bias_hh", (16,)))
}
SIZES = {
    "num_hidden_layers": (10**6, HUGE, 2**63, -1, 0),
    "hidden_size": (10**6, HUGE, -1, 0),
    "vocab_size": (2**31, 2**40, -1, 0),
    "intermediate_size": (HUGE, -1),
    "max_position_embeddings": (HUGE,),
    "type_vocab_size": (HUGE,),
    "num_attention_heads": (-1, 0),
    "num_labels": (HUGE,),
}
FILES = ("modules.json", "config.json", "tokenizer.json", "model.safetensors", "config_sentence_transformers.json")
NO_FILES: dict[str, Callable[[Path], Any]] = {"pipe": os.mkfifo, "device": zero}
DTYPES = (torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.int32)


SETTINGS, BERT, DENSE_CONFIG = "config_sentence_transformers.json", "sentence_bert_config.json", "2_Dense/config.json"
# Settings that make no sense, or that are not supported: the file, other values, and what the error says.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (SETTINGS, {"model_type": "ImageEncoder"}, "describes a ImageEncoder, not a sentence encoder"),
    (SETTINGS, {"similarity_fn_name": "angle"}, "gives similarity_fn_name='angle', not one of"),
    (SETTINGS, {"prompts": {"query": 1}}, "gives prompts that are not strings"),
    (SETTINGS, {"default_prompt_name": "query"}, "default_prompt_name='query', which is not among its prompts"),
    (SETTINGS, {"truncate_dim": 0}, "gives truncate_dim=0 where at least 1"),
    (BERT, {"max_seq_length": 2}, "gives max_seq_length=2 where at least 3"),
    (BERT, {"transformer_task": "any-to-any"}, "gives transformer_task='any-to-any'"),
    (BERT, {"modality_config": {"message": {}}}, "not supported; use a text model"),
    ("1_Pooling/config.json", {"pooling_mode": "median"}, "gives the pooling mode 'median'"),
    ("1_Pooling/config.json", {"pooling_mode_cls_token": "yes"}, "pooling_mode_cls_token='yes' where bool"),
    ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "modules that work together (RuntimeError: mat1"),
    (DENSE_CONFIG, {"module_input_name": "x"}, "which is not supported"),
    (DENSE_CONFIG, {"out_features": "16"}, "out_features='16' where int"),
    (DENSE_CONFIG, {"in_features": ...}, "lacks 'in_features'"),
    (DENSE_CONFIG, {"out_features": 8}, "size mismatch for linear.weight"),
    (DENSE_CONFIG, {"activation_function": "os.system"}, "names the activation 'os.system'"),
    ("config.json", {"intermediate_size": 48}, "gives encoder.layer.0.intermediate.dense.bias the shape (32,), where"),
    ("config.json", {"model_type": "own", "auto_map": {"AutoConfig": "trap.C"}}, "needs code from its folder"),
    ("adapter_config.json", {"base_model_name_or_path": "../elsewhere"}, "depends on the working directory"),
    ("adapter_config.json", {"base_model_name_or_path": "/gone"}, "an adapter of an available model"),
    ("adapter_config.json", {"base_model_name_or_path": 7}, "base_model_name_or_path=7 where str is expected"),
]
KINDS = ("os.system", "trap.Pooling", "trap", "sentence_transformersx.Pooling", f"{ST}CLIPModel", f"{ST}trap")
PATHS = ("/etc", "../elsewhere", "1_Pooling/../../elsewhere", "..\\elsewhere")


def cases() -> Iterator[tuple[str, str, Edit, str]]:
    """A name, the folder that it begins with, what is done to it, and what the error says: a file at least."""
    for name, changed, said in REFUSED:
        yield f"{name} {changed}", "bert", values(name, **changed), said
    for kind in KINDS:
        yield f"module {kind}", "bert", kind_of_module(kind), f"modules.json names the module type '{kind}'"
    for path in PATHS:
        yield (f"path {path}", "bert", path_of_module(path), f"modules.json names the path {path!r}, which leaves")
    for family, names in product(("bert", "pairs"), (None, "token_type_ids", {})):
        listed = values("tokenizer_config.json", model_input_names=names)
        yield f"{family} inputs {names}", family, listed, "tokenizer_config.json gives model_input_names="
    scorer = values("adapter_config.json", base_model_name_or_path="/models/bert")
    yield "pairs with an adapter", "pairs", scorer, "adapter_config.json describes an adapter"
    versions = values("config.json", configuration_files=["../other/config.4.0.0.json"])
    yield "other configurations", "bert", versions, "under configuration_files"
    tokenizers = values("tokenizer_config.json", fast_tokenizer_files=["../other/tokenizer.4.0.0.json"])
    yield "other tokenizers", "bert", tokenizers, "tokenizer_config.json names other files under fast_tokenizer_files"
    yield "a link", "bert", move("1_Pooling"), "modules.json names the path '1_Pooling', which leaves the folder"
    phrases = values("0_WordEmbeddings/wordembedding_config.json", tokenizer_class=f"{ST}tokenizer.PhraseTokenizer")
    yield "phrases", "words", phrases, "wordembedding_config.json names the tokenizer"
    writers = {"pickle": lambda value, path: path.write_bytes(pickle.dumps(value)), "torch": torch.save}
    writers["weights"] = lambda value, path: torch.save({"linear.weight": value}, path)
    for form, write in writers.items():
        for name in ("pytorch_model.bin", "model.safetensors"):
            for where in ("", "2_Dense"):
                yield f"code: {form} {where}/{name}", "bert", with_code(where, name, write), name
        yield f"code: static {form}", "static", with_code("", "pytorch_model.bin", write), "pytorch_model.bin"
        yield f"code: pairs {form}", "pairs", with_code("", "pytorch_model.bin", write), "pytorch_model.bin"
    yield "code: a vocabulary", "bert", pickled_vocabulary, "vocab.pkl is a pickled vocabulary"
    for key, sizes in SIZES.items():
        for size in sizes:
            yield f"{key} {size}", "bert", values("config.json", **{key: size}), "config.json"
    for key, size in (("num_hidden_layers", HUGE), ("num_labels", HUGE), ("vocab_size", 2**31)):
        yield f"pairs {key}", "pairs", values("config.json", **{key: size}), "config.json"
    settings = values("sentence_bert_config.json", config_args={"num_hidden_layers": HUGE})
    yield "layers by arguments", "bert", settings, "config.json"

    for name in FILES:
        for kind, make in NO_FILES.items():
            yield f"{name} a {kind}", "bert", replace(name, make), name
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"):
        yield f"{name} a pipe", "bert", replace(name, os.mkfifo), name
    yield "reference a pipe", "bert", replace("sbert_reference.json", os.mkfifo), "sbert_reference.json"
    yield "dense a pipe", "bert", replace("2_Dense/model.safetensors", os.mkfifo), "2_Dense/model.safetensors"
    yield "dense config a device", "bert", replace("2_Dense/config.json", zero), "2_Dense/config.json"
    for kind, make in NO_FILES.items():
        yield f"pairs weights a {kind}", "pairs", replace("model.safetensors", make), "model.safetensors"
        yield f"pairs tokenizer a {kind}", "pairs", replace("tokenizer.json", make), "tokenizer.json"
        yield f"static tokenizer a {kind}", "static", replace("tokenizer.json", make), "tokenizer.json"
    for name in ("modules.json", "tokenizer.json", "config.json", "2_Dense/config.json"):
        yield f"{name} of 2 GB", "bert", replace(name, sparse), name

    yield ("a million modules", "bert", entries({"type": NORMALIZE["type"]}, times=10**6), "modules.json")
    yield "ten thousand modules", "bert", entries(NORMALIZE, times=10**4), "modules.json"
    yield "a module fifty times", "bert", entries(DENSE_ENTRY, times=50), "modules.json"
    yield ("a long path", "bert", entries({**DENSE_ENTRY, "path": "x" * 10**5}), "modules.json")
    yield "deep JSON", "bert", text("modules.json", "[" * 10**5), "modules.json"

    for size in (30_000, 2**20, HUGE, -1, 0):
        sizes = {"in_features": size, "out_features": size, "bias": True}
        yield f"Dense {size}", "bert", module("3_Dense", DENSE, **sizes), "3_Dense/config.json"
    yield "LayerNorm", "bert", module("3_LayerNorm", kind="LayerNorm", dimension=HUGE), "3_LayerNorm/config.json"
    for key, size in (("num_layers", HUGE), ("num_layers", -1), ("num_layers", 0), ("hidden_dim", 2**20)):
        sizes = {**LSTM, key: size}
        yield f"LSTM {key} {size}", "bert", module("3_LSTM", LSTM_WEIGHTS, "LSTM", **sizes), "3_LSTM/lstm_config.json"

    for dtype in DTYPES:
        yield f"{dtype}", "bert", weights(cast(dtype)), "model.safetensors"
        yield f"dense {dtype}", "bert", weights(cast(dtype), "2_Dense"), "2_Dense/model.safetensors"
    yield "static of int8", "static", weights(cast(torch.int8)), "model.safetensors"
    yield "pairs of int8", "pairs", weights(cast(torch.int8)), "model.safetensors"
    lost = weights(
        lambda tensors: {name: x for name, x in tensors.items() if name != "encoder.layer.1.output.dense.weight"}
    )
    yield "a weight is missing", "roberta", lost, "lacks 1 of the weights"
    for size in (HUGE, 2**62, 2**63 + 1):
        yield f"a header of {size}", "bert", replace("model.safetensors", header(size)), "model.safetensors"
    for shape in ([HUGE, HUGE], [2**62, 4], [HUGE], [-1, 4]):
        name = "2_Dense/model.safetensors"
        yield f"declared {shape}", "bert", replace(name, declare(shape)), name
    yield "parts on a device", "bert", both(shard("a.safetensors"), replace("a.safetensors", zero)), "a.safetensors"
    yield "parts elsewhere", "bert", shard("../../etc/passwd"), "model.safetensors.index.json"

    expanded = torch.zeros(1).expand(10**5, 10**6)
    yield "an expanded tensor", "bert", put_pickle({"weight": expanded}), "pytorch_model.bin"
    yield ("an expanded Dense", "bert", put_pickle({"linear.weight": expanded}, "2_Dense"), "2_Dense/pytorch_model.bin")
    shared = torch.zeros(10**5)
    yield "a shared tensor", "bert", put_pickle({f"w{i}": shared for i in range(5000)}), "pytorch_model.bin"
    yield "a call for memory", "bert", put_pickle(Call(bytearray, 10**10)), "pytorch_model.bin"
    yield ("another call for memory", "bert", put_pickle({"w": Call(torch.Tensor, 10**5, 10**6)}), "pytorch_model.bin")
    yield "an instruction", "bert", bytearrays, "pytorch_model.bin"
    yield "ten million dicts", "bert", empty_dicts, "pytorch_model.bin"
    yield "a compressed pickle", "bert", compressed, "pytorch_model.bin"
    yield "no torch", "bert", both(put_pickle({}), text("pytorch_model.bin", "{}")), "pytorch_model.bin"

    for number in (2**31, 2**32 - 1, 10**8):
        for family in ("bert", "static", "pairs"):
            yield f"{family} id {number}", family, vocabulary(number), "tokenizer.json"
    yield "id by transformers", "bert", both(vocabulary(2**31), text("added_tokens.json", "{}")), "tokenizer.json"
    mapping = weights(lambda tensors: tensors.update(mapping=torch.zeros(10**6, dtype=torch.int64)))
    yield "a mapping", "static", mapping, "model.safetensors"
    yield "an adapter", "bert", adapter(r=10**7), "adapter_config.json"
    yield "an adapter in a pipe", "bert", both(adapter(), replace("adapter_model.safetensors", os.mkfifo)), "adapter_"


# ------------------------------------------------------------------------------------------------- what it costs


def status(name: str) -> int:
    """A figure of the process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measure(folder: Path, load: Callable[[Path], Any]) -> dict[str, Any]:
    """The error, the seconds of the processor and the growth of memory at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    before, start, said = status("VmRSS"), time.process_time(), ""
    signal.alarm(ALARM)
    try:
        load(folder)
    except ValueError as error:
        said = str(error)
    signal.alarm(0)
    return {"said": said, "seconds": time.process_time() - start, "bytes": status("VmHWM") - before}


def main(root: Path, out: Path) -> None:
    """Write the name of each hostile folder before it is loaded, and then what that cost; in a forked process."""
    from sbert import CrossEncoder, SentenceEncoder

    def load(folder: Path) -> Any:
        kind = CrossEncoder if folder.name.startswith("pairs") else SentenceEncoder
        return kind(folder, device="cpu")

    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # Its threads are not forked.
    warnings.simplefilter("ignore")
    for folder in sorted(root.glob("good/*")):  # What is imported at the first time is no folder's doing.
        load(folder)
    import_module("peft")  # By adapters.
    with out.open("w") as file:
        for folder in sorted(root.glob("hostile/*")):
            if not folder.name.endswith("-base"):
                print(folder.name, file=file, flush=True)
                print(json.dumps(measure(folder, load)), file=file, flush=True)
