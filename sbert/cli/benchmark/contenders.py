"""The contenders: this library with several settings, and other libraries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.cli.benchmark.workloads import synthetic
from sbert.encoder import SentenceEncoder
from sbert.modules.transformer import Transformer
from sbert.storage import hub

Encode = Callable[..., npt.NDArray[np.float32]]
# Encodes texts with the model on the device, and the encoder itself.
Contender = Callable[[str, str | None], tuple[Encode, Any]]


def _sbert(model: str, device: str | None, dtype: str = "auto") -> tuple[Encode, SentenceEncoder]:
    encoder = SentenceEncoder(model, device=device, dtype=dtype)
    return partial(encoder.encode, on_truncate="ignore", show_progress_bar=False), encoder


def _in_order(model: str, device: str | None) -> tuple[Encode, SentenceEncoder]:
    """Batches of 32 in input order, to show the gain from sorting by length."""
    whole, encoder = _sbert(model, device)
    return lambda texts: np.concatenate([whole(texts[i : i + 32]) for i in range(0, len(texts), 32)]), encoder


def _padded(model: str, device: str | None) -> tuple[Encode, SentenceEncoder]:
    """Batches of 32 in input order, padded to the longest text, as in most tutorials."""
    encoder = SentenceEncoder(model, device=device, dtype="float32")
    first = encoder[0]
    if not isinstance(first, Transformer):
        raise ValueError("the model has no transformer, so it needs no padding")

    @torch.no_grad()
    def encode(texts: list[str]) -> npt.NDArray[np.float32]:
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
    return partial(encoder.encode, show_progress_bar=False), encoder


_peer_bfloat16 = partial(_peer, model_kwargs={"dtype": torch.bfloat16})


def _peer_at_its_best(model: str, device: str | None) -> tuple[Encode, Any]:
    """In bfloat16, with the batch size that is fastest on synthetic texts."""
    encode, encoder = _peer_bfloat16(model, device)
    encode(synthetic(256, seed=1), batch_size=128)
    seconds = {}
    for size in (32, 64, 128, 256, 512):
        texts, start = synthetic(2000, seed=size), time.perf_counter()
        encode(texts, batch_size=size)
        seconds[size] = time.perf_counter() - start
    return partial(encode, batch_size=min(seconds, key=seconds.__getitem__)), encoder


# PEERS are the values of --against; OWN are this library's settings, of which sbert-float32 is for GPUs only.
PEERS: dict[str, Contender] = {
    "sentence-transformers": _peer,
    "sentence-transformers-bfloat16": _peer_bfloat16,
    "sentence-transformers-best": _peer_at_its_best,
}
OWN: dict[str, Contender] = {
    "sbert": _sbert,
    "sbert-float32": partial(_sbert, dtype="float32"),
    "sbert-bfloat16": partial(_sbert, dtype="bfloat16"),
    "sbert-in-order": _in_order,
    "padded-in-order": _padded,
}
