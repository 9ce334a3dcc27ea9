"""What is asked of the hub's client, what an error says, and what is uploaded: with a stand-in for the client."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import constants, errors
from huggingface_hub.utils import filter_repo_objects, validate_repo_id
from safetensors.torch import load_file

from sbert import CrossEncoder, Dense, Pooling, SentenceEncoder, Transformer
from sbert.storage import hub
from tests import pairs, small

SECRET = "hf_secret"


class Hub:
    """Repositories of files, copied to a folder as the client does; every call is kept."""

    def __init__(self, cache: Path) -> None:
        self.cache, self.repositories, self.calls = cache, {}, []  # type: tuple[Path, dict[str, Path], list[Any]]

    def snapshot_download(
        self, name: str, *, allow_patterns: list[str], ignore_patterns: list[str], **options: Any
    ) -> str:
        self.calls.append((name, options))
        validate_repo_id(name)
        if name not in self.repositories:
            raise make_error(errors.RepositoryNotFoundError)
        source, target = self.repositories[name], self.cache / name
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        for file in filter_repo_objects(names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, target / file)
        return str(target)


def make_error(kind: type[Exception]) -> Exception:
    """An error of the client without the answer of a server."""
    error = kind.__new__(kind)
    error.args = ("said by the client",)
    return error


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    server = Hub(tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", server.snapshot_download)
    return server


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two folders, a and b, with different vectors; one of pickled weights, and one of which a part is pickled."""
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        transformer = Transformer(small.bert(root / "bert", seed))
        SentenceEncoder(transformer, Pooling(), Dense(16, 8), device="cpu").save(root / name)
    for name, pattern in (("pickled", "**/*.safetensors"), ("half", "2_Dense/*.safetensors")):
        shutil.copytree(root / "a", root / name)
        for path in sorted((root / name).glob(pattern)):
            torch.save(load_file(path), path.with_name("pytorch_model.bin"))
            path.unlink()
    return {path.name: path for path in root.iterdir()}


def load(name: str, **options: Any) -> np.ndarray:
    return SentenceEncoder(name, device="cpu", **options).encode("a small boat")


# ------------------------------------------------------------------------------------------------------- download


def test_a_bare_name_is_looked_up_among_their_models_first(server: Hub, models: dict[str, Path]) -> None:
    server.repositories = {"sentence-transformers/tiny": models["a"], "tiny": models["b"], "old": models["b"]}
    server.repositories["me/tiny"] = models["b"]
    for name, expected, asked in (
        ("tiny", "a", ["sentence-transformers/tiny"]),
        ("old", "b", ["sentence-transformers/old", "old"]),
        ("me/tiny", "b", ["me/tiny"]),
    ):
        server.calls.clear()
        options: dict[str, Any] = {"revision": "v1", "token": SECRET, "local_files_only": True}
        np.testing.assert_array_equal(load(name, **options, cache_folder="kept"), load(str(models[expected])))
        assert server.calls == [(repository, {**options, "cache_dir": "kept"}) for repository in asked]
    with pytest.raises(FileNotFoundError, match="'me/none at revision v2' is neither a folder"):
        load("me/none", revision="v2")


def test_what_is_neither_a_folder_nor_on_the_hub(server: Hub) -> None:
    for name in ("./tiny", "/no/such/folder", "a/b/c", "tiny/", "~/no-such-folder", "a\\b"):  # They are not looked up.
        with pytest.raises(FileNotFoundError, match=r"does not exist; pass a model's folder or its name on the hub$"):
            hub.resolve(name)
    assert server.calls == []
    for name, shown in (
        ("no-such-model", "no-such-model"),
        ("me/.hidden.", "me/.hidden."),
        ("n" * 120, "n" * 60 + "…"),
    ):
        message = f"^check the name and, for a private model, the token: '{shown}' is neither a folder nor a model"
        with pytest.raises(FileNotFoundError, match=message):
            hub.resolve(name, organisation="sentence-transformers")


OTHERS = ("onnx/model.onnx", "onnx/config.json", "model.onnx", "tf_model.h5", "optimizer.pt", "train_script.py")
PICKLED = ["2_Dense/pytorch_model.bin", "pytorch_model.bin"]


@pytest.mark.parametrize(("name", "pickled"), [("a", []), ("pickled", PICKLED), ("half", PICKLED[:1])])
def test_only_what_is_needed(server: Hub, models: dict[str, Path], tmp_path: Path, name: str, pickled: Any) -> None:
    """Pickled weights are taken for a part that has no others."""
    source = server.repositories["me/tiny"] = shutil.copytree(models[name], tmp_path / "source")
    needed = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    for file in (*OTHERS, *(PICKLED if name == "a" else ())):
        (source / file).parent.mkdir(exist_ok=True)
        (source / file).write_bytes(b"of another program")
    np.testing.assert_array_equal(load("me/tiny"), load(str(models["a"])))
    target = server.cache / "me/tiny"
    assert {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()} == needed
    assert pickled == sorted(file for file in needed if file.endswith(".bin"))
    assert len(server.calls) == 1 + bool(pickled)


FAILURES: list[tuple[Exception, dict[str, Any], bool, str]] = [
    (make_error(errors.GatedRepoError), {}, False, "accept the terms of"),
    (make_error(errors.RevisionNotFoundError), {}, False, "check the name and, for a private model, the token"),
    (make_error(errors.LocalEntryNotFoundError), {"local_files_only": True}, False, "unset local_files_only, or pass"),
    (make_error(errors.OfflineModeIsEnabled), {}, True, "unset HF_HUB_OFFLINE, or pass a model's folder"),
    (make_error(errors.LocalEntryNotFoundError), {}, False, "check the connection, or pass a model's folder"),
    (OSError(), {}, False, r"check the connection.* the hub cannot be reached \(OSError\)"),
]


def test_an_error_begins_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, options, offline, message in FAILURES:
        monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        with pytest.raises(FileNotFoundError, match=f"^{message}") as caught:
            hub.resolve("me/tiny", **options)
        assert "'me/tiny'" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200
        assert caught.value.__cause__ is (error if type(error) is OSError else None)
        assert caught.value.__context__ is None  # Tracebacks of the client would hide the remedy.


# --------------------------------------------------------------------------------------------------------- upload


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A stand-in for the client, which takes the arguments of the real one and keeps what is uploaded."""
    kind = create_autospec(huggingface_hub.HfApi)

    def upload(**options: Any) -> Any:
        shutil.copytree(options["folder_path"], tmp_path / "uploaded")
        return SimpleNamespace(commit_url="https://huggingface.co/me/tiny/commit/12ab")

    kind.return_value.upload_folder.side_effect = upload
    monkeypatch.setattr(huggingface_hub, "HfApi", kind)
    return kind


@pytest.mark.parametrize("kind", [SentenceEncoder, CrossEncoder])
def test_push(kind: Any, api: Any, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    if kind is SentenceEncoder:
        settings: dict[str, Any] = {"similarity_fn_name": "dot", "prompts": {"query": "Find: "}, "truncate_dim": 4}
        model = SentenceEncoder(models["a"], device="cpu", **settings)
        model.max_seq_length = 33
    else:
        model = CrossEncoder(pairs.folder(tmp_path / "reranker"), device="cpu")
    options = {"token": SECRET, "private": True, "revision": "v1", "commit_message": "Better"}
    assert model.push_to_hub("me/tiny", **options) == "https://huggingface.co/me/tiny/commit/12ab"
    api.assert_called_once_with(token=SECRET)
    api.return_value.create_repo.assert_called_once_with("me/tiny", private=True, exist_ok=True)
    api.return_value.create_branch.assert_called_once_with("me/tiny", branch="v1", exist_ok=True)
    options = api.return_value.upload_folder.call_args.kwargs
    assert (options["repo_id"], options["revision"], options["commit_message"]) == ("me/tiny", "v1", "Better")
    card, again = huggingface_hub.ModelCard.load(tmp_path / "uploaded" / "README.md"), kind(tmp_path / "uploaded")
    assert f'model = {kind.__name__}("me/tiny")' in card.text
    if kind is SentenceEncoder:
        assert again.prompts == {"query": "Find: "}
        assert again.verify(tolerance=0)
        assert "| Longest input | 33 tokens |" in card.text
    else:
        np.testing.assert_array_equal(again.predict(pairs.PAIRS), model.predict(pairs.PAIRS))
    api.return_value.upload_folder.side_effect = PermissionError("no write access")  # The hub's own error.
    with pytest.raises(PermissionError, match="no write access"):
        model.push_to_hub("me/tiny")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_an_engine_reads_is_fetched_as_a_whole(models: dict[str, Path], server: Hub, tmp_path: Path) -> None:
    """A file of OpenVINO has its weights beside it."""
    server.repositories["user/model"] = source = shutil.copytree(models["a"], tmp_path / "with")
    (source / "openvino").mkdir()
    for name in ("openvino_model.xml", "openvino_model.bin", "openvino_model_qint8.xml", "openvino_model_qint8.bin"):
        (source / "openvino" / name).touch()
    folder = hub.resolve("user/model", file="openvino_model_qint8.xml")
    names = sorted(path.name for path in (folder / "openvino").iterdir())
    assert names == ["openvino_model_qint8.bin", "openvino_model_qint8.xml"]
