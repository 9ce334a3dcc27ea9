"""The example that serves vectors over HTTP as OpenAI does: a program of its own, asked over a socket."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from tests import small

SERVE = Path(__file__).parent.parent.parent / "examples" / "serve.py"

# One process serves all tests; its start imports torch.
pytestmark = pytest.mark.slow
for package in ("fastapi", "uvicorn"):
    pytest.importorskip(package, reason="the example needs FastAPI and uvicorn, which the library does not")


class Server:
    """The program, and its answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = ["--model", folder, "--port", "0", "--max-texts", "3000", "--max-queue", "4"]
        words += ["--max-seconds", "4"]
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(SERVE), *words],
            env={**os.environ, "PYTHONPATH": str(SERVE.parent.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line)
            if found := re.search(r"http://127.0.0.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            pytest.fail("".join(self.said))
        self.reading = threading.Thread(target=lambda: self.said.extend(self.process.stdout or ()))
        self.reading.start()

    def ask(self, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """The status, and what the JSON of the answer says."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET" if body is None else "POST", path, body, **more)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def begin(self, size: int, body: bytes) -> socket.socket:
        """A connection to which a part of a request is written, for as long as it is read."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        with suppress(OSError):  # It was refused.
            connection.sendall(
                f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body
            )
        return connection

    def embed(self, texts: Any, **fields: Any) -> tuple[int, Any]:
        body = {"model": str(self.folder), "input": texts, **fields}
        return self.ask("/v1/embeddings", json.dumps(body))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(small.bert(tmp_path_factory.mktemp("serve") / "bert"))
    yield made
    with made.process:  # Which closes its output.
        made.process.kill()
        made.reading.join()


@pytest.fixture(scope="module")
def expected(server: Server) -> np.ndarray:
    return SentenceEncoder(server.folder, device="cpu").encode(small.TEXTS, normalize_embeddings=True)


def test_vectors(server: Server, expected: np.ndarray) -> None:
    status, answer = server.embed(small.TEXTS)
    assert (status, answer["object"], answer["model"]) == (200, "list", str(server.folder))
    assert [(entry["object"], entry["index"]) for entry in answer["data"]] == [("embedding", row) for row in range(8)]
    np.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], expected, atol=1e-6)
    model = SentenceEncoder(server.folder, device="cpu")
    assert answer["usage"] == dict.fromkeys(
        ("prompt_tokens", "total_tokens"), int(model.tokens(small.TEXTS).offsets[-1])
    )
    one = server.embed(small.TEXTS[1], encoding_format="base64")[1]["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(one), "<f4"), expected[1], atol=1e-6)
    default = server.embed(small.TEXTS[1], encoding_format=None, dimensions=None)[1]["data"][0]["embedding"]
    np.testing.assert_allclose(default, expected[1], atol=1e-6)
    short = np.array(server.embed(small.TEXTS[1], dimensions=4, user="me")[1]["data"][0]["embedding"])
    np.testing.assert_allclose(short, expected[1, :4] / np.linalg.norm(expected[1, :4]), atol=1e-6)


def test_many_callers(server: Server, expected: np.ndarray) -> None:
    """A full queue is 429, which the callers try again."""

    def call(row: int) -> int:
        tries = 1
        while (answer := server.embed(small.TEXTS[row % 8]))[0] == 429:
            assert answer[1]["error"]["type"] == "server_error"
            tries += 1
        np.testing.assert_allclose(answer[1]["data"][0]["embedding"], expected[row % 8], atol=1e-6)
        return tries

    with ThreadPoolExecutor(16) as threads:
        tries = sum(threads.map(call, range(160)))
    metrics = server.ask("/metrics")[1]
    assert metrics["waiting"] == 0
    assert metrics["refused"] >= tries - 160
    assert metrics["requests"] >= 160


@pytest.mark.parametrize(
    ("texts", "fields", "status", "message"),
    [
        ([1, 2, 3], {}, 400, "token ids are not supported"),
        ([], {}, 400, "input has 0 texts; send 1 to 3000"),
        (["a"] * 3001, {}, 400, "input has 3001 texts"),
        (["a", "lake " * 100], {}, 400, r"input\[1\] has more than 64 tokens"),
        ("x" * 7_000_000, {}, 400, r"input\[0\] has more than 64 tokens"),  # One word, of which the start is read.
        ("a" * 9_000_000, {}, 413, "more than 8000000 bytes"),
        ("a", {"model": "other"}, 404, "the model 'other' is not here"),
        ("a", {"dimensions": 17}, 400, "dimensions is 17; use 1 to 16"),
        ("a", {"encoding_format": "hex"}, 400, "use 'float' or 'base64'"),
    ],
)
def test_what_is_refused(server: Server, texts: Any, fields: dict[str, Any], status: int, message: str) -> None:
    found, answer = server.embed(texts, **fields)
    assert found == status
    assert re.search(message, answer["error"]["message"])
    assert answer["error"]["type"] == "invalid_request_error"


def test_other_paths_and_bodies(server: Server) -> None:
    body = json.dumps({"model": str(server.folder), "input": "A cat."}).encode()
    parts = (body[at : at + 7] for at in range(0, len(body), 7))
    assert server.ask("/v1/embeddings", parts, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})[0] == 200
    for wrong in ("", "[]", "{", '{"model": "x"}', "[" * 100_000):
        assert server.ask("/v1/embeddings", wrong)[0] == 400
    assert server.ask("/nowhere")[0] == 404
    assert server.ask("/health") == (200, {"status": "ok"})
    assert [entry["id"] for entry in server.ask("/v1/models")[1]["data"]] == [str(server.folder)]


def test_clients_that_stall_or_leave(server: Server) -> None:
    """Requests that are not complete hold 64 MB in all and for some seconds; other clients are answered meanwhile."""

    def memory() -> int:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10  # type: ignore[index]

    before, part = memory(), b"x" * 7_500_000
    with ExitStack() as stack:
        clients = [stack.enter_context(server.begin(7_900_000, part)) for _ in range(24)]
        assert server.embed("a lake")[0] == 200
        assert memory() - before < 128 << 20
        answers = []
        for client in clients:
            with suppress(ConnectionError):  # While it was still writing what was refused.
                answers.append(client.recv(64).split()[1])
        assert answers.count(b"408") >= 8
        assert set(answers) == {b"408", b"429"}
    for size in (7_900_000, len(part)):  # Before and after they have sent all.
        server.begin(size, part).close()
    assert server.embed(["a lake"] * 9)[0] == 200


def test_it_answers_before_it_ends(server: Server) -> None:
    """The last test of this server. What has been asked for at SIGTERM is answered."""
    before = server.ask("/metrics")[1]["batches"]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(server.embed, [" ".join([text] * 3) for text in small.TEXTS[:2]] * 1500)
        while server.ask("/metrics")[1]["batches"] == before:
            assert not waiting.done()
        server.process.send_signal(signal.SIGTERM)
        status, answer = waiting.result(60)
    assert (status, len(answer["data"])) == (200, 3000)
    assert server.process.wait(30) in (0, -signal.SIGTERM)
    server.reading.join(30)
    assert re.search(r"\d+ requests, .* texts per batch", "".join(server.said))
    assert "Traceback" not in "".join(server.said)
