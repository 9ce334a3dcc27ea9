"""Serve vectors over HTTP as OpenAI does: POST /v1/embeddings, GET /v1/models, and GET /health and /metrics.

python examples/serve.py [--model MODEL] [--host HOST] [--port PORT]
curl localhost:8000/v1/embeddings -H "Content-Type: application/json" -d '{"model": "sbert-mini", "input": "A cat."}'

Needs FastAPI and uvicorn (pip install fastapi uvicorn). The client of OpenAI works with it: OpenAI(api_key="none",
base_url="http://localhost:8000/v1").embeddings.create(model="sbert-mini", input=["A cat.", "A dog."], dimensions=128).

Requests that come at the same time share a batch. Vectors have length 1. Too long texts are refused, not truncated. If
too many requests or bytes wait, the answer is 429, and clients try again; to who does not send a request within 30
seconds it is 408. SIGTERM and Ctrl+C end the program when what has been asked for is answered. It has neither
encryption nor keys: put nginx or the like in front of it.
"""

import argparse
import asyncio
import base64
import json
from contextlib import asynccontextmanager
from dataclasses import asdict

from sbert import SentenceEncoder
from sbert.pipeline.batcher import ClosedError, QueueFullError

try:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
except ImportError as error:
    raise SystemExit(f"{error.name} is missing; pip install fastapi uvicorn") from error

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="sbert-mini", help="folder, or name on the hub (default: %(default)s)")
parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s, this machine)")
parser.add_argument("--port", type=int, default=8000, help="0 for any free one (default: %(default)s)")
parser.add_argument("--max-queue", type=int, default=1024, help="requests that may wait (default: %(default)s)")
parser.add_argument("--max-texts", type=int, default=2048, help="texts per request (default: %(default)s)")
parser.add_argument("--max-seconds", type=float, default=30, help="for a request to arrive (default: %(default)s)")
options = parser.parse_args()

# Bytes of a request, which is read as a whole before its texts are counted; and of all that are not yet answered.
MAX_BYTES, MAX_WAITING = 8_000_000, 64_000_000
waiting = 0
model = SentenceEncoder(options.model)
DIM, PROMPT = model.get_sentence_embedding_dimension(), model.prompts.get(model.default_prompt_name, "")
batcher = model.batcher(max_queue=options.max_queue)


@asynccontextmanager
async def lifespan(_):
    """Answer what waits before the program ends."""
    yield
    await asyncio.to_thread(batcher.close)
    done = batcher.metrics
    print(f"{done.requests} requests, {done.texts_per_batch:.1f} texts per batch")


app = FastAPI(lifespan=lifespan)


@app.exception_handler(Exception)
@app.exception_handler(HTTPException)
async def refused(_, error):
    """Errors in OpenAI's form."""
    status, message = getattr(error, "status_code", 500), getattr(error, "detail", "the server failed; see its log")
    kind = "invalid_request_error" if status < 429 else "server_error"
    said = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": said}, status, getattr(error, "headers", None))


# An answer that no one reads; as an error of the program, a client that leaves would write a traceback.
app.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=499))


@asynccontextmanager
async def body_of(request):
    """The bytes of a request, which count among those that wait until it is answered."""
    global waiting
    body = bytearray()

    async def receive():
        global waiting
        async for part in request.stream():
            if len(body) + len(part) > MAX_BYTES:
                raise HTTPException(413, f"the request has more than {MAX_BYTES} bytes; send fewer texts per request")
            if waiting + len(part) > MAX_WAITING:
                raise HTTPException(429, "too many bytes wait; send this again later", {"Retry-After": "1"})
            body.extend(part)
            waiting += len(part)

    try:
        try:
            await asyncio.wait_for(receive(), options.max_seconds)
        except TimeoutError as error:
            raise HTTPException(408, f"the request was not complete after {options.max_seconds:g} seconds") from error
        yield body
    finally:
        waiting -= len(body)


def read(body):
    """The texts and the fields of a request."""
    try:
        fields = json.loads(body)
        texts = [fields["input"]] if isinstance(fields["input"], str) else fields["input"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HTTPException(400, "the body must be a JSON object with the fields model and input") from error
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise HTTPException(400, "input must be a text or a list of texts; token ids are not supported")
    if not 0 < len(texts) <= options.max_texts:
        raise HTTPException(400, f"input has {len(texts)} texts; send 1 to {options.max_texts}")
    if fields.get("model") != options.model:
        raise HTTPException(404, f"the model {fields.get('model')!r:.80} is not here; use {options.model!r}")
    if fields.get("encoding_format") not in (None, "float", "base64"):
        raise HTTPException(400, f"encoding_format is {fields['encoding_format']!r:.80}; use 'float' or 'base64'")
    return texts, fields


@app.post("/v1/embeddings")
async def embeddings(request: Request):
    """The vectors of one text, or of several."""
    async with body_of(request) as body:
        return await answer(*read(body))


async def answer(texts, fields):
    """The response to a request for the vectors of texts."""
    dim = fields.get("dimensions")
    if dim is not None and (type(dim) is not int or not 0 < dim <= DIM):
        raise HTTPException(400, f"dimensions is {dim!r:.80}; use 1 to {DIM}")
    tokens = await asyncio.to_thread(model.tokens, texts, PROMPT)
    if tokens.truncated.any():
        row = tokens.truncated.argmax()
        raise HTTPException(400, f"input[{row}] has more than {model.max_seq_length} tokens; split long texts")
    try:
        found = await batcher.aencode(texts, prompt=PROMPT, normalize_embeddings=True, truncate_dim=dim)
    except (QueueFullError, ClosedError) as error:
        full = isinstance(error, QueueFullError)
        raise HTTPException(429 if full else 503, str(error), {"Retry-After": "1"}) from error
    encoded = fields.get("encoding_format") == "base64"
    vectors = [base64.b64encode(vector.astype("<f4")).decode() for vector in found] if encoded else found.tolist()
    data = [{"object": "embedding", "index": row, "embedding": vector} for row, vector in enumerate(vectors)]
    usage = dict.fromkeys(("prompt_tokens", "total_tokens"), int(tokens.lengths.sum()))
    # In a thread, so that the event loop serves others meanwhile.
    return await asyncio.to_thread(
        JSONResponse, {"object": "list", "data": data, "model": options.model, "usage": usage}
    )


card = {"id": options.model, "object": "model", "created": 0, "owned_by": "sbert"}
app.add_api_route("/v1/models", lambda: {"object": "list", "data": [card]})
app.add_api_route("/health", lambda: {"status": "ok"})
app.add_api_route("/metrics", lambda: asdict(batcher.metrics))
uvicorn.run(app, host=options.host, port=options.port, timeout_graceful_shutdown=30)
