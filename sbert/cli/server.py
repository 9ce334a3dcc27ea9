"""The server of ``sbert serve``: vectors in the forms of OpenAI and TEI, ranks in those of Cohere, Jina and TEI.

Requests that come at the same time share the batches of a batcher. Wrong values are found where the library checks its
arguments: a TypeError or a ValueError is answered as a 400 with its message. What takes long runs in a thread, so that
others are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import warnings
from typing import Any

from sbert import CrossEncoder
from sbert.cli.options import load_by_options
from sbert.inputs.arguments import check_choice, check_positive
from sbert.inputs.extras import require
from sbert.inputs.prompts import ROLES, with_role_prompt
from sbert.inputs.texts import texts_of
from sbert.pipeline.batcher import Batcher, QueueFullError
from sbert.pipeline.model import choose_prompt

with require("sbert serve", "fastapi and uvicorn", "serve"):
    import uvicorn
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, PlainTextResponse

# Texts and bytes of a request, open connections, and seconds in which a request has to arrive.
MAX_TEXTS, MAX_BYTES, LINKS, SECONDS = 2048, 2_000_000, 2048, 20
POST = {"embed": "/v1/embeddings /embed", "rerank": "/v1/rerank /v2/rerank /rerank"}
GET = {"info": "/v1/models /info /health", "metrics": "/metrics"}
STATUSES = {QueueFullError: 429, TypeError: 400, ValueError: 400, OverflowError: 400, RequestValidationError: 400}


class Ranker(CrossEncoder):
    """A cross-encoder for the batcher, to which the documents are texts and their query is an option."""

    def encode(self, texts: list[str], query: str, **options: Any) -> Any:
        """The scores of documents with a query, which begins with its prompt."""
        return self.predict([(query, text) for text in texts], prompt="", **options)


class Service:
    """What the routes answer, by the options of ``sbert serve``."""

    def __init__(self, flags: Any) -> None:
        self.flags, self.name, self.late = flags, flags.model, set[Any]()
        self.key = (flags.api_key or os.environ.get("SBERT_API_KEY", "")).encode()
        self.roles = {self.name: "", **{f"{self.name}:{role}": role for role in ROLES}}
        self.models: dict[str, Any] = {"embed": load_by_options(flags)}
        if self.models["embed"].is_sparse or self.models["embed"].is_multi_vector:
            raise ValueError(f"{self.name} gives sparse vectors or vectors per token; serve one with dense vectors")
        if flags.rerank:
            self.models["rerank"] = Ranker(flags.rerank, device=flags.device)
            self.models["rerank"].rank("", [""])  # An error if it gives several scores.
        self.batchers = {task: Batcher(model, max_queue=flags.max_queue) for task, model in self.models.items()}

    async def embed(self, request: Request, body: dict[str, Any]) -> JSONResponse:
        """Vectors of `input`, in OpenAI's form, or of `inputs`, in TEI's: a text, or token ids, or a list of these.

        Also `dimensions`, `encoding_format`: "float" or "base64", `input_type` or TEI's `prompt_name`: "query",
        "document" or the name of a prompt, `truncate`, and TEI's `normalize`. The model's name may end in ":query" or
        ":document".
        """
        name, form, model = body.get("model") or self.name, body.get("encoding_format") or "float", self.models["embed"]
        check_choice("encoding_format", form, ("float", "base64"))
        if name not in self.roles:
            raise HTTPException(404, f"the model {name!r:.60} is not here; use {self.name!r}")
        role = str(body.get("input_type") or body.get("prompt_name") or self.roles[name]).removeprefix("search_")
        call = with_role_prompt(model.prompts, role, {"task": role}) if role in ROLES else {"prompt_name": role or None}
        encoder, prompt = model.route(call.get("task")), choose_prompt(model, call["prompt_name"])
        texts = await asyncio.to_thread(parse_input, encoder[0], body.get("inputs", body.get("input")))
        call |= {"normalize_embeddings": body.get("normalize") is not False, "truncate_dim": body.get("dimensions")}
        rows = [prompt + text for text in texts]
        vectors, usage = await self.ask(request, body, "embed", encoder, rows, texts, call)
        rows = vectors.tolist() if form == "float" else [base64.b64encode(vector).decode() for vector in vectors]
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        answer = rows if "inputs" in body else {"object": "list", "data": data, "model": name, "usage": usage}
        return await asyncio.to_thread(JSONResponse, answer)

    async def rerank(self, request: Request, body: dict[str, Any]) -> JSONResponse:
        """The order of `documents` for a `query`, in the form of Cohere and Jina, or of `texts`, in TEI's.

        Also `top_n`, `truncate`, TEI's `raw_scores`, and `return_documents` or `return_text` for the texts.
        """
        model, tei = self.models.get("rerank"), "texts" in body
        if model is None or body.get("model") not in (None, model.name_or_path):
            raise HTTPException(404, "the model is not here; name a reranker with sbert serve --rerank")
        parts = [body.get("query"), *(body.get("texts", body.get("documents")) or [])[: MAX_TEXTS + 1]]
        query, *texts = texts_of([x.get("text") if isinstance(x, dict) else x for x in parts], "query and documents")
        call = {"query": choose_prompt(model) + query, "activation": (lambda x: x) if body.get("raw_scores") else None}
        rows = [(call["query"], text) for text in texts]
        scores, usage = await self.ask(request, body, "rerank", model, rows, texts, call)
        order = (-scores).argsort(kind="stable")[: check_positive("top_n", body.get("top_n"))].tolist()
        ranks = [{"index": row, "score" if tei else "relevance_score": float(scores[row])} for row in order]
        for rank in ranks if body.get("return_text" if tei else "return_documents") is True else ():
            rank |= {"text": texts[rank["index"]]} if tei else {"document": {"text": texts[rank["index"]]}}
        return JSONResponse(ranks if tei else {"model": model.name_or_path, "results": ranks, "usage": usage})

    async def ask(self, http: Any, body: Any, task: str, model: Any, rows: Any, texts: list[str], call: Any) -> Any:
        """The results of texts from a batcher, and the usage; if the client leaves, they cost nothing more."""
        if not 0 < len(texts) <= MAX_TEXTS:
            raise ValueError(f"the request has {'too many' if texts else 'no'} texts; send 1 to {MAX_TEXTS} at a time")
        tokens = await asyncio.to_thread(model.tokens, rows)
        if tokens.truncated.any() and body.get("truncate", self.flags.truncate) is not True:
            row, read = int(tokens.truncated.argmax()), model._reader() if task == "rerank" else model[0].tokenize
            count = len((await asyncio.to_thread(read, [rows[row]]))[0])
            raise HTTPException(413, f"text {row} has {count} tokens, over {model.max_seq_length}; send truncate=true")
        result = asyncio.wrap_future(self.batchers[task].submit(texts, on_truncate="ignore", **call))
        leaving = asyncio.ensure_future(http.receive())  # Ends with the answer at the latest.
        await asyncio.wait((result, leaving), return_when=asyncio.FIRST_COMPLETED)
        if result.cancel():
            raise HTTPException(499, "the client has left")
        return result.result(), dict.fromkeys(("prompt_tokens", "total_tokens"), len(tokens.ids))

    async def info(self) -> dict[str, Any]:
        """The names of the model, as OpenAI lists them, and its limits, as TEI does."""
        models = {"object": "list", "data": [{"id": name, "object": "model"} for name in self.roles]}
        return {"model_id": self.name, "max_input_length": self.models["embed"].max_seq_length, **models}

    async def metrics(self) -> PlainTextResponse:
        """What the batchers have done, for Prometheus."""
        figures = {task: vars(batcher.metrics).items() for task, batcher in self.batchers.items()}
        return PlainTextResponse("".join(f"sbert_{task}_{name} {n}\n" for task in figures for name, n in figures[task]))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """A 401 if the key is wrong, before anything else is read; whether the server is alive, anyone may ask."""
        header, key = dict(scope["headers"]).get(b"authorization", b""), b"Bearer " + self.key
        known = not self.key or scope["path"] == "/health" or hmac.compare_digest(header, key)
        refusal = HTTPException(401, "the key is wrong; send the header Authorization: Bearer KEY")
        await (self.app if known else refuse(Request(scope), refusal))(scope, receive, send)

    async def drop_late(self) -> None:
        """Close connections on which a request has been arriving, or its answer leaving, since the last call."""
        open_now = [(link, getattr(link, "cycle", None)) for link in self.server.server_state.connections]
        late = {(link, at) for link, at in open_now if at is None or at.more_body or at.response_complete}
        for connection, _ in late & self.late:
            connection.transport.write(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
            connection.transport.abort()
        self.late = late

    def run(self) -> None:
        """Answer until SIGTERM or SIGINT."""
        if not self.key and self.flags.host not in ("127.0.0.1", "::1", "localhost"):
            warnings.warn(f"--host {self.flags.host} lets other machines in; set --api-key", stacklevel=2)
        self.app = FastAPI(title="sbert", exception_handlers=HANDLERS, max_body_size=MAX_BYTES)
        for name, paths in {**POST, **GET}.items():
            for path in paths.split():
                self.app.add_api_route(path, getattr(self, name), methods=["POST" if name in POST else "GET"])
        limits: Any = {"timeout_notify": SECONDS, "callback_notify": self.drop_late, "timeout_graceful_shutdown": 30}
        options: Any = {"http": "h11", "ws": "none", "lifespan": "off", "access_log": False, "limit_concurrency": LINKS}
        self.server = uvicorn.Server(uvicorn.Config(self, self.flags.host, self.flags.port, **limits, **options))
        self.server.run()


def parse_input(reader: Any, value: Any) -> list[str]:
    """The texts of a request. Token ids are taken if they are those that the tokenizer gives to their text."""
    rows = value[: MAX_TEXTS + 1] if isinstance(value, list) and not isinstance(next(iter(value), ""), int) else [value]
    ids = all(isinstance(row, list) for row in rows)
    texts = texts_of(reader.token_kinds.decode(rows) if ids else rows, "input")
    if "" in texts or (ids and (reader.tokenize(texts) != rows or not any(reader.special_tokens))):
        raise ValueError("an input is empty, or of another tokenizer; in LangChain: check_embedding_ctx_length=False")
    return texts


def refuse(request: Request, error: Any) -> JSONResponse:
    """An error, in the form of TEI, or in those of OpenAI, Cohere and Jina."""
    status = next((STATUSES[kind] for kind in STATUSES if isinstance(error, kind)), getattr(error, "status_code", 500))
    message = getattr(error, "detail", str(error) if status < 500 else "the server failed; its log says why")
    if isinstance(error, RequestValidationError):
        message = "the body must be a JSON object, sent as application/json"
    kind = "invalid_request_error" if status < 429 else "server_error"
    content = {"error": {"message": message, "type": kind, "code": status}, "message": message, "detail": message}
    if request.url.path in ("/embed", "/rerank"):
        content = {"error": message, "error_type": {429: "Overloaded", 500: "Backend"}.get(status, "Validation")}
    return JSONResponse(content, status, {"Retry-After": "1"} if status == 429 else None)


HANDLERS: Any = dict.fromkeys((Exception, HTTPException, 400, 404, 405, 413, *STATUSES), refuse)
