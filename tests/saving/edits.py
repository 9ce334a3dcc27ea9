"""What can be done to a folder: other values, other files, code, and sizes that hang a program or fill its memory."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import socket
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Edit = Callable[[Path], Any]


def values(name: str, **changed: Any) -> Edit:
    """Other values in a JSON file; ... takes one away."""

    def edit(folder: Path) -> None:
        path = folder / name
        given = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({key: x for key, x in {**given, **changed}.items() if x is not ...}))

    return edit


def text(name: str, content: str) -> Edit:
    return lambda folder: (folder / name).write_text(content)


def replaced(name: str, make: Callable[[Path], Any]) -> Edit:
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


def bound(path: Path) -> None:
    """A socket, by a short name: those of sockets may have 108 characters."""
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def weights(change: Callable[[dict[str, torch.Tensor]], Any], where: str = "") -> Edit:
    """Other tensors in a model.safetensors."""

    def edit(folder: Path) -> None:
        path = folder / where / "model.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        save_file(change(tensors) or tensors, path, {"format": "pt"})

    return edit


def cast(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()}


def one_cast(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor]], Any]:
    """The first matrix alone."""
    return lambda tensors: tensors.update({n: t.to(dtype) for n, t in list(tensors.items())[:1]})


def header(size: int, content: bytes = b"") -> Callable[[Path], Any]:
    """A safetensors file that announces a header of some size."""
    return lambda path: path.write_bytes(size.to_bytes(8, "little") + content)


def declared(shape: list[int]) -> Callable[[Path], Any]:
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


def kind_of_module(kind: str) -> Edit:
    """Another class in modules.json, and a module of that name, which would leave a mark."""

    def edit(folder: Path) -> None:
        (folder / "trap.py").write_text(f"import os\nos.mkdir({str(folder.parent / 'marker')!r})\n")
        listed = json.loads((folder / "modules.json").read_text())
        listed[1]["type"] = kind
        (folder / "modules.json").write_text(json.dumps(listed))

    return edit


def path_of_module(path: str) -> Edit:
    def edit(folder: Path) -> None:
        listed = json.loads((folder / "modules.json").read_text())
        listed[1]["path"] = path
        (folder / "modules.json").write_text(json.dumps(listed))

    return edit


def moved(name: str) -> Edit:
    """A link in the place of a module's folder, to where that is now."""

    def edit(folder: Path) -> None:
        (folder / name).rename(folder.with_name(f"{folder.name}-base"))
        (folder / name).symlink_to(folder.with_name(f"{folder.name}-base"), target_is_directory=True)

    return edit


def pickled_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.pkl").write_bytes(pickle.dumps(Call(os.mkdir, str(folder.parent / "marker"))))


def pickled(value: Any, where: str = "") -> Edit:
    """A pytorch_model.bin in the place of model.safetensors."""

    def edit(folder: Path) -> None:
        (folder / where / "model.safetensors").unlink()
        torch.save(value, folder / where / "pytorch_model.bin")

    return edit


def compressed(folder: Path) -> None:
    """A zip file of some kilobytes with a pickle of a gigabyte."""
    (folder / "model.safetensors").unlink()
    content = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, content)
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(content) as given, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in given.namelist():
            if name.endswith("data.pkl"):
                with made.open(name, "w", force_zip64=True) as file:
                    for _ in range(100):
                        file.write(bytes(10**7))
            else:
                made.writestr(name, given.read(name))


def legacy(folder: Path) -> None:
    """As torch wrote before version 1.6, with a storage of a terabyte that is not there."""
    (folder / "model.safetensors").unlink()
    content = io.BytesIO()
    torch.save(OrderedDict(weight=torch.zeros(123)), content, _use_new_zipfile_serialization=False)
    changed = content.getvalue().replace(b"K{", b"J\xff\xff\xff\x7f")
    assert changed != content.getvalue()
    (folder / "pytorch_model.bin").write_bytes(changed)


def bytearrays(folder: Path) -> None:
    """An instruction that makes 32 gigabytes of zeros before it reads them."""
    (folder / "model.safetensors").unlink()
    wrong = b"\x80\x05\x96" + (32 * 10**9).to_bytes(8, "little") + b"."
    content = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, content)
    with zipfile.ZipFile(content) as given, zipfile.ZipFile(folder / "pytorch_model.bin", "w") as made:
        for name in given.namelist():
            made.writestr(name, wrong if name.endswith("data.pkl") else given.read(name))


def empty_dicts(folder: Path) -> None:
    """A small file whose every byte makes a dict: ten million of them."""
    (folder / "model.safetensors").unlink()
    content = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, content)
    with zipfile.ZipFile(content) as given, zipfile.ZipFile(folder / "pytorch_model.bin", "w") as made:
        for name in given.namelist():
            made.writestr(name, b"\x80\x02" + b"}" * 10**7 + b"." if name.endswith("data.pkl") else given.read(name))


def padded_vocabulary(folder: Path) -> None:
    """A tokenizer.json of 48 MB, almost all of it spaces, with an id that no table has room for."""
    vocabulary(2**31)(folder)
    path = folder / "tokenizer.json"
    path.write_text(" " * 48 * 10**6 + path.read_text(encoding="utf-8"), encoding="utf-8")


def module(where: str, weight: dict[str, torch.Tensor] | None = None, kind: str = "Dense", **config: Any) -> Edit:
    """One more module, with a configuration and weights."""

    def edit(folder: Path) -> None:
        listed = json.loads((folder / "modules.json").read_text())
        listed.append({"idx": 9, "name": "9", "path": where, "type": f"sentence_transformers.models.{kind}"})
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / where).mkdir()
        name = "lstm_config.json" if kind == "LSTM" else "config.json"
        (folder / where / name).write_text(json.dumps(config))
        save_file(weight or {"linear.weight": torch.zeros(4, 16)}, folder / where / "model.safetensors")

    return edit


def entries(*listed: dict[str, Any], times: int = 1) -> Edit:
    """Entries at the end of modules.json."""

    def edit(folder: Path) -> None:
        given = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(given + list(listed) * times))

    return edit


def sharded(*names: str) -> Edit:
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
        for each in edits:
            each(folder)

    return edit


def adapter(**config: Any) -> Edit:
    """An adapter of peft for a model beside it."""

    def edit(folder: Path) -> None:
        base = folder.with_name(folder.name + "-base")
        shutil.copytree(folder, base)
        (folder / "config.json").unlink()
        (folder / "model.safetensors").unlink()
        common = {"peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", "target_modules": ["query"]}
        given = {"base_model_name_or_path": str(base), "r": 2, "lora_alpha": 4, **common, **config}
        (folder / "adapter_config.json").write_text(json.dumps(given))
        name = "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"
        save_file({name: torch.zeros(2, 16)}, folder / "adapter_model.safetensors", {"format": "pt"})

    return edit
