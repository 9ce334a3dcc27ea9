"""The server of ``sbert serve``: vectors in the forms of OpenAI and TEI, ranks in those of Cohere, Jina and TEI.

Requests that come at the same time share the batches of a batcher. Wrong values are found where the library checks its
arguments: a TypeError or a ValueError is answered as a 400 with its message.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
from typing import Any

from sbert import CrossEncoder
from sbert.cli.options import load_by_options
from sbert.inputs.arguments import check_positive
from sbert.inputs.extras import require
from sbert.inputs.prompts import ROLES, with_role_prompt
from sbert.inputs.texts import texts_of
from sbert.pipeline.batcher import Batcher, QueueFullError
from sbert.pipeline.model import choose_prompt

with require("sbert serve", "FastAPI and uvicorn", "serve"):
    import uvicorn
    from fastapi import Depends, FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, PlainTextResponse

# Texts and bytes of a request, and seconds in which it has to arrive.
MAX_TEXTS, MAX_BYTES, SECONDS = 2048, 4_000_000, 20
POST = {"embed": "/v1/embeddings /embed", "rerank": "/v1/rerank /v2/rerank /rerank"}
GET = {"info": "/v1/models /info /health", "metrics": "/metrics"}
STATUSES = {QueueFullError: 429, TypeError: 400, ValueError: 400, OverflowError: 400, RequestValidationError: 400}


class PairEncoder(CrossEncoder):
    """A cross-encoder for the batcher, to which a pair is a text in JSON."""

    def encode(self, texts: list[str], **options: Any) -> Any:
        """The scores of pairs, whose first texts begin with their prompt."""
        return self.predict([json.loads(text) for text in texts], prompt="", **options)


class Service:
    """What the routes answer, by the options of ``sbert serve``."""

    def __init__(self, arguments: Any) -> None:
        self.flags, self.name, self.late = arguments, arguments.model, set[Any]()
        self.roles = {self.name: "", **{f"{self.name}:{role}": role for role in ROLES}}
        self.models: dict[str, Any] = {"embed": load_by_options(arguments)}
        if arguments.rerank:
            self.models["rerank"] = PairEncoder(arguments.rerank, device=arguments.device)
        self.batchers = {task: Batcher(model, max_queue=arguments.max_queue) for task, model in self.models.items()}

    async def embed(self, request: Request, body: dict[str, Any]) -> JSONResponse:
        """Vectors of `input`, in OpenAI's form, or of `inputs`, in TEI's: a text, or token ids, or a list of these.

        Also `dimensions`, `encoding_format`: "float" or "base64", `input_type`: "query", "document" or the name of a
        prompt, `truncate`, and TEI's `normalize`. The model's name may end in ":query" or ":document".
        """
        name, form, model = body.get("model") or self.name, body.get("encoding_format") or "float", self.models["embed"]
        if name not in self.roles or form not in ("float", "base64"):
            raise HTTPException(404, f"{name!r:.60} as {form!r:.9} is not here; use {self.name!r}, 'float' or 'base64'")
        role = str(body.get("input_type") or self.roles[name]).removeprefix("search_")
        call = with_role_prompt(model.prompts, role, {"task": role}) if role in ROLES else {"prompt_name": role or None}
        reader, prompt = model.route(call.get("task"))[0], choose_prompt(model, call["prompt_name"])
        texts, rows = parse_input(reader, prompt, body.get("inputs", body.get("input")))
        call |= {"normalize_embeddings": body.get("normalize", True), "truncate_dim": body.get("dimensions")}
        vectors, usage = await self.ask(request, body, "embed", reader.tokenize, rows, texts, call)
        rows = vectors.tolist() if form == "float" else [base64.b64encode(vector).decode() for vector in vectors]
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        answer = rows if "inputs" in body else {"object": "list", "data": data, "model": name, "usage": usage}
        return await asyncio.to_thread(JSONResponse, answer)

    async def rerank(self, request: Request, body: dict[str, Any]) -> JSONResponse:
        """The order of `documents` for a `query`, in the form of Cohere and Jina, or of `texts`, in TEI's."""
        model, tei = self.models.get("rerank"), "texts" in body
        if model is None or body.get("model") not in (None, model.name_or_path):
            raise HTTPException(404, "the model is not here; name a reranker with sbert serve --rerank")
        parts = [body.get("query"), *(body.get("texts", body.get("documents")) or [])]
        query, *texts = texts_of([x.get("text") if isinstance(x, dict) else x for x in parts], "query and documents")
        rows = [(choose_prompt(model) + query, text) for text in texts]
        options = {"activation": lambda scores: scores} if body.get("raw_scores") else {}
        pairs = [json.dumps(row) for row in rows]
        scores, usage = await self.ask(request, body, "rerank", model._reader(), rows, pairs, options)
        order = (-scores).argsort(kind="stable")[: check_positive("top_n", body.get("top_n"))].tolist()
        score, text = ("score", "text") if tei else ("relevance_score", "document")
        contents = texts if tei else [{"text": text} for text in texts]
        ranks = [{"index": row, score: float(scores[row]), text: contents[row]} for row in order]
        return JSONResponse(ranks if tei else {"model": model.name_or_path, "results": ranks, "usage": usage})

    async def ask(self, request: Any, body: Any, task: str, tokenize: Any, rows: Any, texts: Any, options: Any) -> Any:
        """The results of texts from a batcher, and the usage; if the client leaves, they cost nothing more."""
        counts = list(map(len, await asyncio.to_thread(tokenize, rows)))
        if not 0 < len(counts) <= MAX_TEXTS:
            raise ValueError(f"the request has {len(counts)} texts; send 1 to {MAX_TEXTS}")
        limit, most = self.models[task].max_seq_length or MAX_BYTES, max(counts)
        if most > limit and not body.get("truncate", self.flags.truncate):
            raise HTTPException(413, f"text {counts.index(most)} has {most} tokens, over {limit}; send truncate=true")
        result = asyncio.wrap_future(self.batchers[task].submit(texts, on_truncate="ignore", **options))
        leaving = asyncio.ensure_future(request.receive())
        await asyncio.wait((result, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if result.cancel():
            raise HTTPException(499, "the client has left")
        return result.result(), dict.fromkeys(("prompt_tokens", "total_tokens"), sum(min(limit, n) for n in counts))

    def info(self) -> dict[str, Any]:
        """The names of the model, as OpenAI lists them, and its limits, as TEI does."""
        models = {"object": "list", "data": [{"id": name, "object": "model"} for name in self.roles]}
        return {"model_id": self.name, "max_input_length": self.models["embed"].max_seq_length, **models}

    def metrics(self) -> PlainTextResponse:
        """What the batchers have done, for Prometheus."""
        figures = {task: vars(batcher.metrics).items() for task, batcher in self.batchers.items()}
        return PlainTextResponse("".join(f"sbert_{task}_{name} {n}\n" for task in figures for name, n in figures[task]))

    def check_key(self, request: Request) -> None:
        """A 401 if the key is wrong; whether the server is alive, anyone may ask."""
        header, key = request.headers.get("Authorization", ""), self.flags.api_key or os.environ.get("SBERT_API_KEY")
        if key and not hmac.compare_digest(header.encode(), f"Bearer {key}".encode()) and request.url.path != "/health":
            raise HTTPException(401, "the key is wrong; send the header Authorization: Bearer KEY")

    async def drop_late(self) -> None:
        """Close connections on which a request has been arriving since the last call."""
        open_now = [(link, getattr(link, "cycle", None)) for link in self.server.server_state.connections]
        late = {(link, at) for link, at in open_now if at is None or at.more_body or at.response_complete}
        for connection, _ in late & self.late:
            connection.transport.abort()
        self.late = late

    def run(self) -> None:
        """Answer until SIGTERM or SIGINT."""
        keys = [Depends(self.check_key)]
        app = FastAPI(title="sbert", dependencies=keys, exception_handlers=HANDLERS, max_body_size=MAX_BYTES)
        for name, paths in {**POST, **GET}.items():
            for path in paths.split():
                app.add_api_route(path, getattr(self, name), methods=["POST" if name in POST else "GET"])
        limits: Any = {"timeout_notify": SECONDS, "callback_notify": self.drop_late, "timeout_graceful_shutdown": 30}
        options = {"host": self.flags.host, "port": self.flags.port, "http": "h11", "access_log": False, **limits}
        self.server = uvicorn.Server(uvicorn.Config(app, **options))
        self.server.run()


def parse_input(reader: Any, prompt: str, value: Any) -> tuple[list[str], list[str]]:
    """The texts of a request. Token ids are taken if they are those that the tokenizer gives to their text."""
    rows = value if isinstance(value, list) and not isinstance(next(iter(value), ""), int) else [value]
    ids = all(isinstance(row, list) for row in rows)
    texts = texts_of(reader.token_kinds.decode(rows) if ids else rows, "input")
    if "" in texts or (ids and (reader.tokenize(texts) != rows or not any(reader.special_tokens))):
        raise ValueError("an input is empty, or of another tokenizer; in LangChain: check_embedding_ctx_length=False")
    return texts, [prompt + text for text in texts]


def refuse(_: Any, error: Any) -> JSONResponse:
    """An error in OpenAI's form."""
    status = next((STATUSES[kind] for kind in STATUSES if isinstance(error, kind)), getattr(error, "status_code", 500))
    message = getattr(error, "detail", str(error) if status < 500 else "the server failed; its log says why")
    if isinstance(error, RequestValidationError):
        message = "the body must be a JSON object, sent as application/json"
    content = {"message": message, "type": "invalid_request_error" if status < 429 else "server_error", "code": status}
    return JSONResponse({"error": content}, status, {"Retry-After": "1"} if status == 429 else None)


HANDLERS: Any = dict.fromkeys((Exception, HTTPException, 400, 404, 405, *STATUSES), refuse)
