"""The contenders: this library with several settings, and other libraries. Each runs in a separate process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from sbert.batch import TokenBatch
from sbert.cli.benchmark.workloads import synthetic
from sbert.encoder import SentenceEncoder
from sbert.modules.transformer import Transformer
from sbert.storage import hub

Encode = Callable[..., np.ndarray]


def _sbert(model: str, device: str | None, dtype: str) -> tuple[Encode, Any]:
    encoder = SentenceEncoder(model, device=device, dtype=dtype)

    def encode(texts: list[str], **options: Any) -> np.ndarray:
        vectors: np.ndarray = encoder.encode(texts, on_truncate="ignore", show_progress_bar=False, **options)
        return vectors

    return encode, encoder


def _in_order(model: str, device: str | None) -> tuple[Encode, Any]:
    """Batches of 32 in input order, to show the gain from sorting by length."""
    whole, encoder = _sbert(model, device, "auto")
    return lambda texts: np.concatenate([whole(texts[i : i + 32]) for i in range(0, len(texts), 32)]), encoder


def _padded(model: str, device: str | None) -> tuple[Encode, Any]:
    """Batches of 32 in input order, padded to the longest text, as in most tutorials."""
    encoder = SentenceEncoder(model, device=device, dtype="float32")
    first = encoder[0]
    if not isinstance(first, Transformer):
        raise ValueError("the model has no transformer, so it needs no padding")

    @torch.no_grad()
    def encode(texts: list[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), 32):
            batch = encoder.tokenize(texts[start : start + 32]).to(encoder.device)
            ids, mask = batch.padded(fill=first.tokenizer.pad_token_id or 0)
            hidden = first.auto_model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            value: Any = batch.embeddings(hidden.flatten(0, 1)[batch.slot_of_token])
            for module in list(encoder)[1:]:
                value = module(value)
            parts.append(value.float().cpu().numpy())
        return np.concatenate(parts)

    return encode, encoder.eval()


def _peer(model: str, device: str | None, **options: Any) -> tuple[Encode, Any]:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()
    known = os.fspath(hub.resolve(model)) if model == hub.OWN else model  # Other libraries do not know its name.
    encoder = SentenceTransformer(known, device=device, **options)

    def encode(texts: list[str], batch_size: int = 32) -> np.ndarray:
        vectors: np.ndarray = encoder.encode(texts, show_progress_bar=False, batch_size=batch_size)
        return vectors

    return encode, encoder


def _peer_at_its_best(model: str, device: str | None) -> tuple[Encode, Any]:
    """In bfloat16, with the batch size that is fastest on synthetic texts."""
    encode, encoder = _peer(model, device, model_kwargs={"dtype": torch.bfloat16})
    seconds = {}
    encode(synthetic(256, seed=1), batch_size=128)
    for size in (32, 64, 128, 256, 512):
        texts, start = synthetic(2000, seed=size), time.perf_counter()
        encode(texts, batch_size=size)
        seconds[size] = time.perf_counter() - start
    best = min(seconds, key=lambda size: seconds[size])
    return lambda texts: encode(texts, batch_size=best), encoder


# PEERS are the values of --against; OWN are this library's settings, of which sbert-float32 is for GPUs only.
PEERS: dict[str, Callable[[str, str | None], tuple[Encode, Any]]] = {
    "sentence-transformers": _peer,
    "sentence-transformers-bfloat16": lambda m, d: _peer(m, d, model_kwargs={"dtype": torch.bfloat16}),
    "sentence-transformers-best": _peer_at_its_best,
}
OWN: dict[str, Callable[[str, str | None], tuple[Encode, Any]]] = {
    "sbert": lambda m, d: _sbert(m, d, "auto"),
    "sbert-float32": lambda m, d: _sbert(m, d, "float32"),
    "sbert-bfloat16": lambda m, d: _sbert(m, d, "bfloat16"),
    "sbert-in-order": _in_order,
    "padded-in-order": _padded,
}


def peak_memory() -> int:
    """Peak memory of this process in bytes.

    On Linux a process inherits ``ru_maxrss`` from its parent, so it may be too large; the process's own peak is in
    /proc. macOS counts ``ru_maxrss`` in bytes, other systems in units of 1,024.
    """
    import resource

    with suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def grow(encode: Encode, count: int, seed: int) -> dict[str, float]:
    """Encode synthetic texts: seconds, growth of the peak memory in bytes, and size of the vectors in bytes."""
    texts = synthetic(count, seed)
    before, start = peak_memory(), time.perf_counter()
    vectors = encode(texts)
    return {"seconds": time.perf_counter() - start, "grown": peak_memory() - before, "vectors": vectors.nbytes}


def facts(encoder: Any) -> dict[str, Any]:
    """The number of operations per token, and the backend that was selected."""
    from sbert.cli.doctor import diagnose

    weights = layers = width = 0
    for module in encoder:
        if isinstance(module, Transformer):
            config = module.auto_model.config
            width, layers = int(config.hidden_size), int(config.num_hidden_layers)
            weights = _weights_per_token(module.auto_model, encoder.tokenize(["one text"]).to(encoder.device))
    return {"diagnosis": diagnose(encoder), "weights": weights, "layers": layers, "dim": width}


@torch.no_grad()
def _weights_per_token(model: torch.nn.Module, batch: TokenBatch) -> int:
    """Weights of the linear layers per token; those of a layer that is used repeatedly (ALBERT) count each time."""
    used: list[int] = []
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
    hooks = [
        layer.register_forward_hook(lambda layer, *_: used.append(layer.weight.numel()))
        for name, layer in linear.items()
        if name.split(".")[0] != "pooler"
    ]
    try:
        ids, mask = batch.padded()
        model(input_ids=ids, attention_mask=mask.long())
    finally:
        for hook in hooks:
            hook.remove()
    return sum(used)


def useful(encoder: SentenceEncoder, texts: list[str]) -> dict[str, float]:
    """Number of tokens of the truncated texts, and of the operations that they need without padding.

    The model's default prompt is included, because every contender inserts it before each text.

        operations per token = 2 weights + 4 length dim layers

    Each weight of a linear layer is used once per token; attention compares a token with all tokens of its text, once
    for the scores and once for the values.
    """
    default = encoder.default_prompt_name
    prompt = "" if default is None else encoder.prompts[default]
    lengths = encoder.tokenize(texts, prompt).lengths.double()
    known = facts(encoder)
    operations = 2 * known["weights"] * lengths.sum() + 4 * known["layers"] * known["dim"] * lengths.square().sum()
    return {"tokens": float(lengths.sum()), "operations": float(operations)}


def serve(name: str, model: str, device: str | None, threads: int, connection: Connection) -> None:
    """Load a contender, then answer requests, each the name of an action and its arguments, with a result."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Exit normally: otherwise semaphores leak.
    try:
        with suppress(EOFError, ConnectionError):  # After Ctrl-C the parent process is gone.
            _serve(name, model, device, connection)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # It exits already.


def _serve(name: str, model: str, device: str | None, connection: Connection) -> None:
    try:
        start = time.perf_counter()
        encode, encoder = {**OWN, **PEERS}[name](model, device)
        loaded = time.perf_counter() - start
        encode(["one text"])
        connection.send({"load": loaded, "first": time.perf_counter() - start - loaded})
    except Exception as error:
        connection.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}")
        return
    while (asked := connection.recv()) is not None:
        what, arguments, options = asked
        try:
            connection.send(_answer(what, encode, encoder, arguments, options))
        except Exception as error:
            connection.send(f"{name}: {type(error).__name__}: {error}")


def _answer(what: str, encode: Encode, encoder: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if what == "encode":
        start = time.perf_counter()
        vectors = encode(*arguments, **options)
        return time.perf_counter() - start, vectors
    if what == "latency":
        times = []
        for text in arguments[0]:
            start = time.perf_counter()
            encode([text])
            times.append(time.perf_counter() - start)
        return times
    if what == "memory":
        gpu = torch.cuda.max_memory_allocated(encoder.device) if encoder.device.type == "cuda" else 0
        return {"host": peak_memory(), "gpu": gpu}
    if what == "grow":
        return grow(encode, *arguments)
    return facts(encoder) if what == "facts" else useful(encoder, *arguments)
