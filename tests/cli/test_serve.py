"""``sbert serve``: its forms, what it refuses, and clients that stall or leave. One server in a thread answers most."""

from __future__ import annotations

import argparse
import base64
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import CrossEncoder, Pooling, SentenceEncoder, Transformer
from sbert.cli import serve, server
from tests import small

TEXTS = [text for text in small.TEXTS if text]
QUEUE, SECONDS = 2, 1
PAIRS = [("lake", "a small boat"), ("lake", "the red fox runs"), ("lake", "café")]


def send(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """The status of an answer, its JSON or text, and its headers."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        connection.request(
            "GET" if body is None else "POST", path, text, {"Content-Type": "application/json"} | headers
        )
        answer = connection.getresponse()
        content = answer.read().decode()
        return answer.status, json.loads(content) if content[:1] in ("{", "[") else content, answer.headers


class Running(server.Service):
    """A server in a thread."""

    def __enter__(self) -> Running:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        while not (hasattr(self, "server") and self.server.started):
            assert self.thread.is_alive()
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        for batcher in self.batchers.values():
            batcher.close()

    def get(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return send(self.port, path, body, **headers)[:2]

    def vectors(self, given: Any, **fields: Any) -> np.ndarray:
        status, answer = self.get("/v1/embeddings", {"input": given, **fields})
        assert status == 200, answer
        return np.array([entry["embedding"] for entry in answer["data"]])

    def waiting(self) -> int:
        return self.batchers["embed"].metrics.waiting


@pytest.fixture(scope="module")
def ranker(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """Saved; its scores have a prompt."""
    model = CrossEncoder(
        folder.parent / "bert", classes=1, prompts={"q": "lake "}, default_prompt_name="q", device="cpu"
    )
    model.save(path := tmp_path_factory.mktemp("ranker") / "ranker")
    return CrossEncoder(path, device="cpu")


@pytest.fixture(scope="module")
def running(folder: Path, ranker: CrossEncoder) -> Iterator[Running]:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    words = [folder, "--rerank", ranker.name_or_path, "--port", 0, "--max-queue", QUEUE, "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "SECONDS", SECONDS)
        with Running(parser.parse_args(list(map(str, words)))) as made:
            yield made


class Gate:
    """Records the batches of a queue, and holds them until it is opened."""

    def __init__(self, encode: Any) -> None:
        self.encode, self.opened, self.batches = encode, threading.Event(), list[list[str]]()

    def __call__(self, texts: list[str], **options: Any) -> Any:
        self.batches.append(texts)
        assert self.opened.wait(60)
        return self.encode(texts, **options)


@pytest.fixture
def gate(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    queue = running.batchers["embed"]._queue
    monkeypatch.setattr(queue, "encode", made := Gate(queue.encode))
    yield made
    made.opened.set()


def test_vectors(running: Running, model: SentenceEncoder) -> None:
    """In both forms, as base64, and of token ids."""
    expected = model.encode(TEXTS, normalize_embeddings=True)
    status, answer = running.get("/v1/embeddings", {"model": running.name, "input": TEXTS, "user": "me"})
    assert (status, answer["object"], answer["model"]) == (200, "list", running.name)
    assert [(entry["object"], entry["index"]) for entry in answer["data"]] == [("embedding", n) for n in range(7)]
    np.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], expected, atol=1e-6)
    ids = [model.tokenize([text]).ids.tolist() for text in TEXTS]
    assert answer["usage"] == dict.fromkeys(("prompt_tokens", "total_tokens"), sum(map(len, ids)))
    encoded = running.get("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"})[1]["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(encoded), "<f4"), running.vectors(TEXTS[0])[0])
    known = [row for row, each in enumerate(ids) if 1 not in each and len(each) > 2]  # Others have no text.
    assert len(known) > 2
    for row in known:
        np.testing.assert_array_equal(running.vectors(ids[row]), running.vectors(TEXTS[row]))
    np.testing.assert_allclose(running.vectors([ids[row] for row in known]), expected[known], atol=1e-6)
    short = model.encode(TEXTS, normalize_embeddings=True, truncate_dim=4)
    np.testing.assert_allclose(running.vectors(TEXTS, dimensions=4), short, atol=1e-6)
    status, plain = running.get("/embed", {"inputs": TEXTS, "normalize": False})
    assert status == 200
    np.testing.assert_allclose(plain, model.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("role", ["query", "document"])
def test_prompts(running: Running, model: SentenceEncoder, role: str) -> None:
    prompted = getattr(model, f"encode_{role}")(TEXTS, normalize_embeddings=True)
    assert np.abs(prompted - model.encode(TEXTS, normalize_embeddings=True)).max() > 0.01
    named = [{"input_type": role}, {"input_type": f"search_{role}"}, {"prompt_name": role}]
    for fields in [*named, {"model": f"{running.name}:{role}"}]:
        np.testing.assert_allclose(running.vectors(TEXTS, **fields), prompted, atol=1e-6)
    usage = running.get("/v1/embeddings", {"input": "lake", "input_type": role})[1]["usage"]
    assert usage["total_tokens"] == len(model.tokenize(["lake"], model.prompts[role]).ids)


def test_ranks(running: Running, ranker: CrossEncoder) -> None:
    expected = ranker.rank("lake", [text for _, text in PAIRS])
    order = [rank["corpus_id"] for rank in expected]
    documents = [PAIRS[0][1], {"text": PAIRS[1][1]}, PAIRS[2][1]]
    body = {"query": "lake", "documents": documents, "model": ranker.name_or_path, "return_documents": True}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        status, answer = running.get(path, body)
        assert (status, [rank["index"] for rank in answer["results"]]) == (200, order)
        assert [rank["document"] for rank in answer["results"]] == [{"text": PAIRS[row][1]} for row in order]
        found = [rank["relevance_score"] for rank in answer["results"]]
        np.testing.assert_allclose(found, [rank["score"] for rank in expected], atol=1e-6)
    assert answer["usage"]["total_tokens"] == len(ranker.tokens(PAIRS, "lake ").ids)
    body = {"query": "lake", "texts": [text for _, text in PAIRS], "raw_scores": True, "return_text": True}
    found = running.get("/rerank", body)[1]
    raw = ranker.predict(PAIRS, activation=lambda scores: scores)
    assert [(rank["index"], rank["text"]) for rank in found] == [(row, PAIRS[row][1]) for row in order]
    np.testing.assert_allclose([rank["score"] for rank in found], raw[order], atol=1e-6)
    short = running.get("/rerank", {"query": "lake", "documents": documents, "top_n": 1})[1]["results"]
    assert [rank.keys() for rank in short] == [{"index", "relevance_score"}]


def test_what_else_it_answers(running: Running) -> None:
    assert [model["id"] for model in running.get("/v1/models")[1]["data"]] == [
        running.name, f"{running.name}:query", f"{running.name}:document",
    ]  # fmt: skip
    assert running.get("/info")[1]["max_input_length"] == 64
    assert running.get("/health")[0] == 200
    metrics = dict(line.split() for line in running.get("/metrics")[1].splitlines())
    assert set(metrics) >= {"sbert_embed_waiting", "sbert_rerank_batches"}
    assert float(metrics["sbert_embed_requests"]) == running.batchers["embed"].metrics.requests
    schema = running.get("/openapi.json")[1]
    assert {"/v1/embeddings", "/embed", "/rerank", "/v1/rerank", "/metrics"} <= set(schema["paths"])
    assert "token ids" in schema["paths"]["/embed"]["post"]["description"]
    assert "text/html" in send(running.port, "/docs")[2]["Content-Type"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": []}, 400, "no texts; send 1 to 2048"),
        ({"input": ["a"] * 2049}, 400, "too many texts"),
        ({}, 400, r"input\[0\] is of type NoneType"),
        ({"input": ["a", ""]}, 400, "an input is empty"),
        ({"input": ["a", 3]}, 400, r"input\[1\] is of type int"),
        ({"input": [32, 30, 31]}, 400, "of another tokenizer"),
        ({"input": [[2, -1, 3]]}, 400, "."),
        ({"input": "a", "dimensions": 17}, 400, "pass 1 to 16"),
        ({"input": "a", "dimensions": float("nan")}, 400, "whole number"),
        ({"input": "a", "model": "other"}, 404, "the model 'other' is not here; use"),
        ({"input": "a", "encoding_format": "hex"}, 400, "pass one of 'float', 'base64'"),
        ({"input": "a", "input_type": "clustering"}, 400, "'clustering' is unknown"),
        ({"input": ["a", "lake " * 100]}, 413, "text 1 has 102 tokens, over 64"),
        ({"input": "a" * 5_000_000}, 413, "Too Large"),
        ("{", 400, "must be a JSON object"),
        ("[1]", 400, "must be a JSON object"),
        ("[" * 100_000, 400, "parsing the body"),
    ],
)
def test_what_is_refused(running: Running, body: Any, status: int, message: str) -> None:
    found, answer = running.get("/v1/embeddings", body)
    assert found == status
    assert re.search(message, answer if isinstance(answer, str) else answer["error"]["message"])
    assert isinstance(answer, str) or answer["message"] == answer["detail"] == answer["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"query": None}, 400),
        ({"documents": []}, 400),
        ({"documents": [{}]}, 400),
        ({"top_n": 0}, 400),
        ({"documents": ["lake " * 100]}, 413),
        ({"model": "other"}, 404),
    ],
)
def test_what_is_not_ranked(running: Running, fields: dict[str, Any], status: int) -> None:
    assert running.get("/rerank", {"query": "a", "documents": ["a"], **fields})[0] == status


def test_too_long_texts_are_truncated_on_request(
    running: Running, model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model.encode(["lake " * 100], normalize_embeddings=True, on_truncate="ignore")
    np.testing.assert_allclose(running.vectors("lake " * 100, truncate=True), expected, atol=1e-6)
    monkeypatch.setattr(running.flags, "truncate", True)
    assert running.get("/v1/embeddings", {"input": "lake " * 100})[1]["usage"]["total_tokens"] == 64
    assert running.get("/embed", {"inputs": "lake " * 100, "truncate": False})[0] == 413


def test_key(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has none is refused before the body is read."""
    monkeypatch.setattr(running, "key", "öpen".encode())
    sent = "öpen".encode().decode("latin-1")  # The client encodes headers in Latin-1.
    for given, status in ((f"Bearer {sent}", 200), (f"Bearer {sent}s", 401), ("Bearer öpen", 401), ("", 401)):
        for path in ("/embed", "/info", "/metrics", "/docs", "/openapi.json"):
            assert running.get(path, {"inputs": "a"} if path == "/embed" else None, Authorization=given)[0] == status
    assert running.get("/health")[0] == 200
    with held(running, "Content-Length: 99\r\n\r\n{") as connection:
        assert connection.recv(64).startswith(b"HTTP/1.1 401")


def test_what_is_said_at_the_start(
    running: Running, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A host that others reach has no key; a model gives several scores."""
    monkeypatch.setattr(server.uvicorn.Server, "run", lambda _: None)
    CrossEncoder(folder.parent / "bert", classes=3, device="cpu").save(tmp_path / "three")
    flags = argparse.Namespace(**{**vars(running.flags), "model": str(folder), "host": "0.0.0.0"})
    with pytest.warns(UserWarning, match=r"0\.0\.0\.0 lets other machines in; set --api-key"):
        server.Service(argparse.Namespace(**{**vars(flags), "rerank": None})).run()
    with pytest.raises(ValueError, match="3 scores per pair"):
        server.Service(argparse.Namespace(**{**vars(flags), "rerank": str(tmp_path / "three")}))


def test_an_error_of_the_model(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(running.batchers["embed"]._queue, "encode", fail)
    error = {"error": "the server failed; its log says why", "error_type": "Backend"}
    assert running.get("/embed", {"inputs": "a"}) == (500, error)


def held(running: Running, body: str) -> socket.socket:
    """A connection with a request that waits, or with a part of one."""
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=60)
    connection.sendall(f"POST /embed HTTP/1.1\r\nHost: x\r\n{body}".encode())
    return connection


WHOLE = 'Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{"inputs":"a"}'


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_full_queue_and_clients_that_leave(running: Running, gate: Gate) -> None:
    """Of a client that has left, nothing is computed, and others take its place."""
    with ExitStack() as stack:
        first = stack.enter_context(held(running, WHOLE))
        wait_for(lambda: len(gate.batches) == 1)
        waiting = [held(running, WHOLE) for _ in range(QUEUE)]
        wait_for(lambda: running.waiting() == QUEUE)
        status, answer, headers = send(running.port, "/embed", {"inputs": "a"})
        assert (status, headers["Retry-After"], answer["error_type"]) == (429, "1", "Overloaded")  # As TEI has it.
        for connection in waiting:
            connection.close()
        wait_for(lambda: running.waiting() == 0)
        gate.opened.set()
        assert first.recv(64).startswith(b"HTTP/1.1 200")
    assert running.get("/embed", {"inputs": "b"})[0] == 200
    assert gate.batches == [["a"], ["b"]]


@pytest.mark.parametrize("part", ["", "Content-Length: 99\r\n\r\n{"])
def test_requests_that_never_end(running: Running, part: str) -> None:
    """Neither in their headers nor in their bodies, though a byte arrives from time to time."""
    with ExitStack() as stack:
        start, connections = time.monotonic(), [stack.enter_context(held(running, part)) for _ in range(50)]
        with suppress(ConnectionError):
            while time.monotonic() < start + 30:
                connections[0].sendall(b"x")
                time.sleep(0.1)
                assert running.get("/health")[0] == 200
        assert time.monotonic() < start + 30
        for connection in connections:
            with suppress(ConnectionError):
                assert connection.recv(64).startswith(b"HTTP/1.1 408")
    assert len(running.server.server_state.connections) <= 1


def test_a_long_computation_is_not_late(running: Running, gate: Gate) -> None:
    with held(running, WHOLE) as connection:
        time.sleep(3.5 * SECONDS)
        gate.opened.set()
        assert connection.recv(64).startswith(b"HTTP/1.1 200")


@pytest.mark.slow  # A process that imports torch: signals come to the main thread alone.
def test_what_was_asked_for_is_answered_at_sigterm(folder: Path) -> None:
    words = ["-m", "sbert", "serve", str(folder), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    with process, ThreadPoolExecutor(1) as threads:
        said = []
        for line in process.stderr or ():
            said.append(line)
            if found := re.search(r"http://127.0.0.1:(\d+)", line):
                break
        port = int(found[1])  # type: ignore[index]
        texts = [" ".join([text] * 3) for text in TEXTS[:2]] * 1000
        waiting = threads.submit(send, port, "/embed", {"inputs": texts})
        while not (batches := re.search(r"batches (\d+)", send(port, "/metrics")[1])) or batches[1] == "0":
            assert not waiting.done()
        process.send_signal(signal.SIGTERM)
        status, vectors, _ = waiting.result(60)
        assert (status, len(vectors)) == (200, 2000)
        said += process.stderr or ()
    assert process.returncode == -signal.SIGTERM
    assert "Traceback" not in "".join(said)


def test_a_model_without_dense_vectors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = SentenceEncoder(Transformer("sbert-mini", head="new"), Pooling("splade"), device="cpu")
    monkeypatch.setattr(server, "load_by_options", lambda _: sparse)
    with pytest.raises(ValueError, match="mine gives sparse vectors or vectors per token; serve one with dense"):
        server.Service(argparse.Namespace(model="mine", api_key=None, rerank=None))
