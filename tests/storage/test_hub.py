"""Downloads from, and uploads to, a stand-in for the hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock, create_autospec
from urllib.parse import unquote, urlsplit

import huggingface_hub
import numpy as np
import pytest
import torch

from sbert import CrossEncoder, Dense, Pooling, SentenceEncoder, Transformer
from sbert.storage import hub
from tests import pairs, small

pytestmark = pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
SENTENCES = ["a small boat", "lake", ""]
SECRET = "hf_secret"
# The client reads HF_ENDPOINT once, when it is imported: so it lives in a process of its own and is sent one model
# after the other.
CLIENT = """
import json, sys
from sbert import SentenceEncoder
for line in sys.stdin:
    name, options = json.loads(line)
    try:
        model = SentenceEncoder(name, device="cpu", **options)
        answer = {"vectors": model.encode(["a small boat", "lake", ""]).tolist()}
    except Exception as error:
        answer = {"error": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    print(json.dumps(answer), flush=True)
"""


class Hub:
    """Repositories of files, served as the hub does, and a list of what was asked for."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.log: list[tuple[str, str, str | None]] = []
        self.fault = ""
        self.port = 0
        self.start()

    def start(self) -> None:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        self.thread = Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def add(self, repository: str, folder: Path, revision: str = "main", **more: bytes) -> None:
        """A folder's files as a revision, and further ones under names in which "/" is "__"."""
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        files |= {name.replace("__", "/"): content for name, content in more.items()}
        self.files[repository, revision] = files

    def commit(self, repository: str, revision: str) -> str:
        return hashlib.sha1(f"{repository}@{revision}".encode()).hexdigest()

    def fetched(self) -> set[str]:
        """The names of the files that were sent."""
        return {
            path.split("/resolve/")[1].partition("/")[2]
            for way, path, _ in self.log
            if way == "GET" and "/resolve/" in path
        }

    def asked(self) -> list[str]:
        """The repositories that were looked up, in order."""
        return [
            path.split("/revision/")[0].removeprefix("/api/models/") for _, path, _ in self.log if "/revision/" in path
        ]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        token = request.headers.get("Authorization")
        self.log.append((request.command, path, token))
        if self.fault == "silence":
            request.close_connection = True
            return
        if self.fault == "busy":
            send(request, 503, b"down", {})
            return
        if path.startswith("/api/models/"):
            repository, _, rest = (
                path.removeprefix("/api/models/").replace("/tree/", "/revision/").partition("/revision/")
            )
            revision, name = rest, ""
        else:
            repository, _, rest = path[1:].partition("/resolve/")
            revision, _, name = rest.partition("/")
        known = [r for owner, r in self.files if owner == repository]
        if not known or (repository in self.private and token != f"Bearer {SECRET}"):
            # The hub does not say whether there is no such repository or whether it is private.
            send(request, 401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return
        revision = next((r for r in known if revision in (r, self.commit(repository, r))), "")
        if not revision:
            send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return
        files, commit = self.files[repository, revision], self.commit(repository, revision)
        headers = {"X-Repo-Commit": commit}
        if self.fault == "html":
            send(request, 200, b"<html>Log in to this network</html>", {"Content-Type": "text/html"})
        elif path.startswith("/api/") and "/tree/" in path:
            tree = [{"type": "file", "path": n, "size": len(c), "oid": etag(c)} for n, c in files.items()]
            send(request, 200, json.dumps(tree).encode(), headers)
        elif path.startswith("/api/"):
            info = {"id": repository, "sha": commit, "siblings": [{"rfilename": n} for n in files]}
            send(request, 200, json.dumps(info).encode(), headers)
        elif name not in files:
            send(request, 404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
        else:
            cut = self.fault == "cut" and name.endswith(".safetensors")
            send(request, 200, files[name], {**headers, "ETag": f'"{etag(files[name])}"'}, cut)


def etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def send(
    request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str], cut: bool = False
) -> None:
    request.send_response(status)
    for key, value in {"Content-Length": str(len(content)), **headers}.items():
        request.send_header(key, value)
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(content[: len(content) // 2] if cut else content)
    if cut:
        request.close_connection = True


class Client:
    """A process that loads models from the stand-in."""

    def __init__(self, port: int, home: Path) -> None:
        self.home = home
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("HF_", "HUGGING")) and not key.lower().endswith("_proxy")
        }
        options = {
            "HF_ENDPOINT": f"http://127.0.0.1:{port}",
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env={**kept, **options},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str, **options: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([name, options]), file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def vectors(self, name: str, **options: Any) -> np.ndarray:
        answer = self.ask(name, **options)
        assert "vectors" in answer, answer
        return np.array(answer["vectors"], np.float32)

    def refused(self, name: str, kind: str = "FileNotFoundError", **options: Any) -> str:
        """The message of the error, which is one line."""
        answer = self.ask(name, **options)
        assert kind in answer.get("error", []), answer
        assert "\n" not in answer["message"]
        return str(answer["message"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two folders, a and b, with different vectors, and one whose weights are pickles."""
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        transformer = Transformer(small.bert(root / "bert", seed))
        SentenceEncoder(transformer, Pooling(), Dense(16, 8), device="cpu").save(root / name)
    shutil.copytree(root / "a", root / "pickled")
    from safetensors.torch import load_file

    for path in sorted((root / "pickled").rglob("*.safetensors")):
        torch.save(load_file(path), path.with_name("pytorch_model.bin"))
        path.unlink()
    return {name: root / name for name in ("a", "b", "pickled")}


@pytest.fixture(scope="module")
def expected(models: dict[str, Path]) -> dict[str, np.ndarray]:
    return {name: SentenceEncoder(folder, device="cpu").encode(SENTENCES) for name, folder in models.items()}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, Client]]:
    server = Hub()
    client = Client(server.port, tmp_path_factory.mktemp("home"))
    yield server, client
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.process.wait(60) == 0
    assert client.process.stdout is not None
    client.process.stdout.close()
    server.stop()


@pytest.fixture
def server(process: tuple[Hub, Client]) -> Hub:
    """Without repositories, requests and faults."""
    server = process[0]
    server.files, server.private, server.log, server.fault = {}, set(), [], ""
    return server


@pytest.fixture
def client(process: tuple[Hub, Client]) -> Client:
    return process[1]


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


Models = dict[str, Path]
Vectors = dict[str, np.ndarray]


def test_a_bare_name(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    """First among sentence-transformers' own, as people are used to, and then by itself."""
    server.add("sentence-transformers/tiny", models["a"])
    server.add("tiny", models["b"])
    server.add("old", models["b"])
    np.testing.assert_array_equal(client.vectors("tiny", cache_folder=cache), expected["a"])
    assert set(server.asked()) == {"sentence-transformers/tiny"}
    server.log.clear()
    np.testing.assert_array_equal(client.vectors("old", cache_folder=cache), expected["b"])
    assert server.asked()[0] == "sentence-transformers/old"
    assert server.asked()[-1] == "old"


def test_a_full_name(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    server.add("me/tiny", models["b"])
    server.add("sentence-transformers/tiny", models["a"])
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["b"])
    assert set(server.asked()) == {"me/tiny"}
    # Nothing but that repository is asked about, by no library on the way.
    assert all("me/tiny" in path for _, path, _ in server.log)


def test_an_unknown_name(server: Hub, client: Client, cache: str) -> None:
    message = client.refused("no-such-model", cache_folder=cache)
    assert message.startswith("check the name and, for a private model, the token: 'no-such-model' is neither a folder")
    assert server.asked() == ["sentence-transformers/no-such-model", "no-such-model"]
    assert "'me/no-such-model' is neither a folder" in client.refused("me/no-such-model", cache_folder=cache)


@pytest.mark.parametrize("name", ["./tiny", "/no/such/folder", "a/b/c", "tiny/", "~/no-such-folder", "a\\b"])
def test_a_path_is_not_looked_up(server: Hub, client: Client, name: str) -> None:
    message = client.refused(name)
    assert message.endswith("does not exist; pass a model's folder or its name on the hub")
    assert server.log == []


@pytest.mark.parametrize("name", ["a b", "x--y", "é", "me/.hidden.", "n" * 120])
def test_no_name_of_a_repository(server: Hub, client: Client, name: str, cache: str) -> None:
    shown = name if len(name) <= 60 else f"{name[:60]}…"
    assert f"{shown!r} is neither a folder nor a model" in client.refused(name, cache_folder=cache)


def test_revisions(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    server.add("me/tiny", models["a"])
    server.add("me/tiny", models["b"], "v1")
    np.testing.assert_array_equal(client.vectors("me/tiny", revision="v1", cache_folder=cache), expected["b"])
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["a"])
    commit = server.commit("me/tiny", "v1")
    np.testing.assert_array_equal(client.vectors("me/tiny", revision=commit, cache_folder=cache), expected["b"])
    message = client.refused("me/tiny", revision="v2", cache_folder=cache)
    assert "v2" in message
    assert "me/tiny" in message


def test_tokens(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    server.add("me/tiny", models["a"])
    server.private.add("me/tiny")
    assert "for a private model, the token" in client.refused("me/tiny", cache_folder=cache)
    assert {token for _, _, token in server.log} == {None}
    client.refused("me/tiny", cache_folder=cache, token="hf_other")
    server.log.clear()
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache, token=SECRET), expected["a"])
    assert {token for _, _, token in server.log} == {f"Bearer {SECRET}"}


def test_the_token_of_a_login(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    server.add("me/tiny", models["a"])
    server.private.add("me/tiny")
    (client.home / "token").write_text(SECRET)
    try:
        np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["a"])
        server.log.clear()
        client.refused("me/tiny", cache_folder=cache + "2", token=False)
        assert {token for _, _, token in server.log} == {None}
    finally:
        (client.home / "token").unlink()


OTHERS = {
    "onnx__model.onnx": b"onnx",
    "onnx__config.json": b"{}",
    "openvino__openvino_model.bin": b"openvino",
    "openvino__openvino_model.xml": b"openvino",
    "model.onnx": b"onnx",
    "pytorch_model.bin": b"pickle",
    "2_Dense__pytorch_model.bin": b"pickle",
    "tf_model.h5": b"tensorflow",
    "flax_model.msgpack": b"flax",
    "rust_model.ot": b"rust",
    "optimizer.pt": b"state",
    "train_script.py": b"code",
    "picture.png": b"png",
}


def test_only_what_is_needed(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    server.add("me/tiny", models["a"], **OTHERS)
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["a"])
    needed = {path.relative_to(models["a"]).as_posix() for path in models["a"].rglob("*") if path.is_file()}
    assert server.fetched() == needed - {"README.md"}


def test_pickled_weights(server: Hub, client: Client, models: Models, expected: Vectors, cache: str) -> None:
    """Taken where there are no others."""
    server.add("me/tiny", models["pickled"], **{k: v for k, v in OTHERS.items() if not k.endswith("pytorch_model.bin")})
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["a"])
    fetched = {name for name in server.fetched() if not name.endswith((".json", ".txt"))}
    assert fetched == {"pytorch_model.bin", "2_Dense/pytorch_model.bin"}


def test_pickled_weights_of_one_module(
    server: Hub, client: Client, models: Models, expected: Vectors, cache: str
) -> None:
    pickled = (models["pickled"] / "2_Dense/pytorch_model.bin").read_bytes()
    server.add("me/tiny", models["a"], **{"pytorch_model.bin": b"pickle", "2_Dense__pytorch_model.bin": pickled})
    del server.files["me/tiny", "main"]["2_Dense/model.safetensors"]
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["a"])
    fetched = {name for name in server.fetched() if not name.endswith((".json", ".txt"))}
    assert fetched == {"model.safetensors", "2_Dense/pytorch_model.bin"}


def test_a_plain_transformer(server: Hub, client: Client, models: Models, cache: str) -> None:
    """No modules.json; weights as a pickle."""
    plain = ("config.json", "tokenizer.json", "tokenizer_config.json", "pytorch_model.bin")
    server.files["me/plain", "main"] = {name: (models["pickled"] / name).read_bytes() for name in plain}
    assert client.vectors("me/plain", cache_folder=cache).shape == (3, 16)
    assert server.fetched() == set(plain)


@pytest.mark.parametrize("source", ["a", "pickled"])
def test_without_a_connection(
    server: Hub, client: Client, models: Models, expected: Vectors, cache: str, source: str
) -> None:
    """What was fetched once is found again, under a bare name, too."""
    server.add("sentence-transformers/tiny", models[source])
    server.add("old", models["b"])
    client.vectors("tiny", cache_folder=cache)
    client.vectors("old", cache_folder=cache)
    sent = len(server.fetched())
    server.log.clear()
    np.testing.assert_array_equal(client.vectors("tiny", cache_folder=cache), expected["a"])
    assert sent > 5
    assert server.fetched() == set()
    server.stop()
    try:
        for local in (True, False):
            options: dict[str, Any] = {"cache_folder": cache, "local_files_only": local}
            np.testing.assert_array_equal(client.vectors("tiny", **options), expected["a"])
            np.testing.assert_array_equal(client.vectors("old", **options), expected["b"])
            for name in ("never-fetched", "me/never-fetched"):
                message = client.refused(name, **options)
                assert f"'{name}' is " in message
                # A connection that was open when the server stopped still answers.
                assert message.startswith(
                    "unset local_files_only" if local else ("check the connection", "check the name")
                )
                assert len(message) < 200
    finally:
        server.start()


def test_local_files_only_makes_no_request(server: Hub, client: Client, models: Models, cache: str) -> None:
    server.add("me/tiny", models["a"])
    client.refused("me/tiny", cache_folder=cache, local_files_only=True)
    assert server.log == []


def test_where_downloads_are_kept(server: Hub, client: Client, models: Models, cache: str) -> None:
    server.add("me/tiny", models["a"])
    client.vectors("me/tiny", cache_folder=cache)
    assert (Path(cache) / "models--me--tiny").is_dir()
    assert not (client.home / "hub" / "models--me--tiny").exists()
    client.vectors("me/tiny")
    assert (client.home / "hub" / "models--me--tiny").is_dir()


@pytest.mark.parametrize("fault", ["silence", "busy", "html", "cut"])
def test_a_broken_hub(server: Hub, client: Client, models: Models, expected: Vectors, cache: str, fault: str) -> None:
    """One line says so; and what was broken off is fetched again when the hub is well."""
    server.add("me/tiny", models["a"])
    server.fault = fault
    assert "me/tiny" in client.refused("me/tiny", cache_folder=cache)
    server.fault = ""
    np.testing.assert_array_equal(client.vectors("me/tiny", cache_folder=cache), expected["a"])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1, 2]", b"null", b'[{"path": 3, "type": null}]', b"<html>", b"\xff"]
)
def test_a_broken_list_of_modules(server: Hub, client: Client, models: Models, cache: str, content: bytes) -> None:
    server.add("me/tiny", models["a"], **{"modules.json": content})
    assert "modules.json" in client.refused("me/tiny", "ValueError", cache_folder=cache)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A stand-in for the client, which takes the arguments of the real one and keeps what is uploaded."""
    kind = create_autospec(huggingface_hub.HfApi)

    def upload(**options: Any) -> Any:
        shutil.copytree(options["folder_path"], tmp_path / "uploaded")
        return huggingface_hub.CommitInfo(
            commit_url="https://huggingface.co/me/tiny/commit/12ab",
            commit_message="",
            commit_description="",
            oid="12ab",
        )

    kind.return_value.upload_folder.side_effect = upload
    monkeypatch.setattr(huggingface_hub, "HfApi", kind)
    return kind


def test_push(api: Any, models: Models, expected: Vectors, tmp_path: Path) -> None:
    model = SentenceEncoder(models["a"], device="cpu", prompts={"query": "Find: "})
    assert model.push_to_hub("me/tiny", token=SECRET, private=True) == "https://huggingface.co/me/tiny/commit/12ab"
    api.assert_called_once_with(token=SECRET)
    api.return_value.create_repo.assert_called_once_with("me/tiny", private=True, exist_ok=True)
    api.return_value.create_branch.assert_not_called()
    options = api.return_value.upload_folder.call_args.kwargs
    assert options["repo_id"] == "me/tiny"
    assert options["commit_message"] == "Add model"
    assert not Path(options["folder_path"]).exists()  # A folder for the time of the upload.

    again = SentenceEncoder(tmp_path / "uploaded", device="cpu")
    np.testing.assert_array_equal(again.encode(SENTENCES), expected["a"])
    assert again.prompts == {"query": "Find: "}
    assert again.verify(tolerance=0)


def test_the_card_tells_the_truth(api: Any, models: Models, tmp_path: Path) -> None:
    model = SentenceEncoder(models["a"], device="cpu", similarity_fn_name="dot", prompts={"query": "Find: "})
    model.max_seq_length = 33
    model.push_to_hub("me/tiny")
    lines = (tmp_path / "uploaded" / "README.md").read_text(encoding="utf-8").splitlines()
    facts = [
        "# tiny",
        "| Longest input | 33 tokens |",
        "| Dimensions | 8 |",
        "| Similarity | dot |",
        "| Prompts | `query`: `'Find: '` |",
        'model = SentenceEncoder("me/tiny")',
    ]
    assert [fact for fact in facts if fact not in lines] == []
    # What the hub makes of it: a card with its head in YAML.
    card = huggingface_hub.ModelCard.load(tmp_path / "uploaded" / "README.md")
    assert card.data.pipeline_tag == "sentence-similarity"


def test_the_card_of_a_truncated_model(api: Any, models: Models, tmp_path: Path) -> None:
    """The vectors that people get are the short ones."""
    SentenceEncoder(models["a"], device="cpu", truncate_dim=4).push_to_hub("me/tiny")
    assert "| Dimensions | 4 |" in (tmp_path / "uploaded" / "README.md").read_text(encoding="utf-8")


def test_push_of_a_cross_encoder(api: Any, tmp_path: Path) -> None:
    model = CrossEncoder(pairs.folder(tmp_path / "reranker"), device="cpu")
    expected = model.predict(pairs.PAIRS)
    assert model.push_to_hub("me/tiny", token=SECRET, private=True, revision="v1") == (
        "https://huggingface.co/me/tiny/commit/12ab"
    )
    api.assert_called_once_with(token=SECRET)
    api.return_value.create_repo.assert_called_once_with("me/tiny", private=True, exist_ok=True)
    api.return_value.create_branch.assert_called_once_with("me/tiny", branch="v1", exist_ok=True)
    options = api.return_value.upload_folder.call_args.kwargs
    assert not Path(options["folder_path"]).exists()
    again = CrossEncoder(tmp_path / "uploaded", device="cpu")
    np.testing.assert_array_equal(again.predict(pairs.PAIRS), expected)
    card = huggingface_hub.ModelCard.load(tmp_path / "uploaded" / "README.md")
    assert card.data.pipeline_tag == "text-ranking"
    assert 'model = CrossEncoder("me/tiny")' in card.text
    model.activation = torch.sigmoid
    with pytest.raises(ValueError, match="cannot be saved by name"):
        model.save_to_hub("me/tiny")


def test_push_to_a_branch(api: Any, models: Models) -> None:
    SentenceEncoder(models["a"], device="cpu").push_to_hub("me/tiny", revision="v1", commit_message="Better")
    api.return_value.create_branch.assert_called_once_with("me/tiny", branch="v1", exist_ok=True)
    options = api.return_value.upload_folder.call_args.kwargs
    assert (options["revision"], options["commit_message"]) == ("v1", "Better")


def test_a_failed_push(api: Any, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own error, and nothing left in the temporary folder."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    api.return_value.upload_folder.side_effect = PermissionError("no write access")
    with pytest.raises(PermissionError, match="no write access"):
        SentenceEncoder(models["a"], device="cpu").push_to_hub("me/tiny")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_errors_without_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that says nothing is named all the same."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=OSError()))
    with pytest.raises(FileNotFoundError, match=r"'me/tiny' is not in the cache, no hub reached \(OSError\)"):
        hub.resolve("me/tiny")
