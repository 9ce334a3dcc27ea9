"""Late chunking: the transformer reads the document, and each passage is pooled from its own tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.backends.select import forwards
from sbert.batch import TokenEmbeddings, move
from sbert.modules.pooling import Pooling
from sbert.modules.tokenizer import LocatesTokens
from sbert.pipeline.batching import plan
from sbert.pipeline.encode import Encoding, outputs
from sbert.pipeline.eval_mode import evaluating
from sbert.pipeline.progress import Report, Unknown
from sbert.pipeline.run import run
from sbert.pipeline.tokenize import Tokens, tokenize

# What a window shows of a long document on either side of its passages: a quarter of the window, 256 tokens at most.
_PART, _CONTEXT = 4, 256
# Modes that look at one token of the text, which a passage in its middle does not hold.
_ONE_TOKEN = ("cls", "lasttoken")

# A row of the result, and where its passage starts and ends: in characters of a document, or in tokens.
Passage = tuple[int, int, int]


@dataclass(frozen=True)
class Window:
    """What the transformer reads at once: a document, or as much of it as fits.

    Args:
        ids: Of its tokens, special tokens and prompt among them.
        passages: Those that are pooled from it, in tokens of the window.
    """

    ids: list[int]
    passages: list[Passage]


def late_vectors(
    job: Encoding,
    reader: LocatesTokens,
    documents: Sequence[str],
    passages: Sequence[Sequence[Passage]],
    report: Report,
) -> Iterator[tuple[list[int], Tensor]]:
    """The passages' vectors, batch by batch, as rows of the result and (rows, dim).

    Args:
        job: The model, and the settings.
        reader: The model's first module.
        documents: The documents.
        passages: Of each document, in characters.
        report: Is told of unknown tokens.

    Raises:
        ValueError: If the model cannot pool passages, or a passage holds no token, or more than a window.
    """
    before, behind = _parts(job.model, job.device)
    located = reader.locate([job.prompt + document for document in documents])
    read = [
        window
        for document, (ids, places), own in zip(documents, located, passages, strict=True)
        for window in _windows(reader, document, ids, places, own, job.prompt)
    ]
    offsets = np.cumsum([0, *(len(window.ids) for window in read)])
    flat = np.fromiter((token for window in read for token in window.ids), np.int32, int(offsets[-1]))
    report.unknown += Unknown.of(reader, [], [ids for ids, _ in located])
    prompt_tokens = tokenize(reader, [], job.prompt).prompt_tokens
    tokens = Tokens(flat, offsets, np.zeros(len(read), bool), prompt_tokens)
    with evaluating(job.model):
        model: Any = job.model
        forward = partial(model.forward, steps=forwards(before, job.dtype, job.compiling))
        for rows, output in run(forward, tokens, plan(tokens.lengths, job.batch_tokens), job.device):
            vectors: Any = _own_tokens(output, [read[row] for row in rows], prompt_tokens)
            for module in behind:
                vectors = module(vectors)
            yield [row for window in rows for row, _, _ in read[window].passages], job.finish(vectors)


def _parts(model: nn.Sequential, device: torch.device) -> tuple[list[nn.Module], list[nn.Module]]:
    """The modules that give a vector a token, and those behind them."""
    made = outputs(model, device)
    count = max((number for number, x in enumerate(made, start=1) if isinstance(x, TokenEmbeddings)), default=0)
    if not count:
        raise ValueError(f"late=True pools vectors of tokens, and {type(model[0]).__name__} gives none; leave it out")
    modules = list(model)
    for module in modules[count:]:
        for mode in module.modes if isinstance(module, Pooling) else ():
            if mode in _ONE_TOKEN:
                raise ValueError(
                    f"the model's pooling is {mode!r}, which takes one token of the whole text, so its passages have"
                    " no vectors of their own; leave late=True out, or use a model with mean pooling"
                )
    return modules[:count], modules[count:]


def _windows(
    reader: LocatesTokens,
    document: str,
    ids: list[int],
    places: list[tuple[int, int]],
    passages: Sequence[Passage],
    prompt: str,
) -> Iterator[Window]:
    """What the transformer reads of a document: each passage in one window, with what stands around it.

    The first passage takes the leading special tokens and the prompt with it, and the last one the trailing ones,
    so that a passage that is the whole document has the document's vector.
    """
    leading, trailing = reader.special_tokens
    last = len(ids) - trailing
    body = np.array(places[leading:last], np.int64).reshape(-1, 2) - len(prompt)  # (tokens, 2)
    starts, ends = np.maximum.accumulate(body).T
    # The prompt's tokens stand before every window. One over the edge to the text is the prompt's.
    lead = leading + (int(np.searchsorted(starts, len(prompt.rstrip()) - len(prompt))) if prompt else 0)
    starts, ends, count = starts[lead - leading :], ends[lead - leading :], last - lead
    room = count if reader.max_seq_length is None else max(0, reader.max_seq_length - lead - trailing)
    # White space belongs to whatever stands beside it.
    visible = len(document) - len(document.lstrip()), len(document.rstrip())
    found: list[Passage] = []
    for row, start, end in passages:
        first = 0 if start <= visible[0] else int(np.searchsorted(ends, start, side="right"))
        behind = count if end >= visible[1] else int(np.searchsorted(starts, end))
        if behind <= first:
            raise ValueError(f"chunks[{row}] holds no token of its document; leave it out")
        if behind - first > room:
            raise ValueError(
                f"chunks[{row}] holds {behind - first} tokens, and the model reads {room} of a document at once;"
                " pass shorter ones"
            )
        found.append((row, first, behind))
    found.sort(key=lambda passage: passage[1:])
    while found:
        start, end, fitting = _window(found, count, room)
        own = [
            (row, lead + a - start if a else 0, lead + b - start + (trailing if b == count else 0))
            for row, a, b in found[:fitting]
        ]
        yield Window(ids[:lead] + ids[lead + start : lead + end] + ids[last:], own)
        del found[:fitting]


def _window(found: list[Passage], count: int, room: int) -> tuple[int, int, int]:
    """Where in the document's tokens the window of the first passages starts and ends, and how many of them it has."""
    _, first, behind = found[0]
    context = min(room // _PART, _CONTEXT)
    start = max(0, min(first - min(context, (room - (behind - first)) // 2), count - room))
    end = min(count, start + room)
    fitting = 1
    while fitting < len(found) and (end == count or found[fitting][2] <= end - context):
        fitting += 1
    return start, end, fitting


def _own_tokens(tokens: TokenEmbeddings, read: Sequence[Window], prompt_tokens: int | None) -> TokenEmbeddings:
    """The tokens of the passages of windows, a row a passage; tokens that two passages share stand there twice."""
    ends = np.cumsum([len(window.ids) for window in read])
    spans = np.array(
        [
            (end - len(window.ids) + first, behind - first, first)
            for end, window in zip(ends, read, strict=True)
            for _, first, behind in window.passages
        ]
    )  # (passages, 3)
    starts, lengths, firsts = spans.T
    offsets = np.concatenate([[0], np.cumsum(lengths)])  # (passages + 1,)
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    device = tokens.values.device
    prompt = None
    if prompt_tokens is not None:  # It stands in the passage that begins with its window.
        prompt = move(torch.from_numpy(np.where(firsts == 0, np.minimum(lengths, prompt_tokens), 0)), device)
    values = tokens.values[move(torch.from_numpy(places), device)]  # (tokens of the passages, dim)
    return TokenEmbeddings(values, move(torch.from_numpy(offsets), device), int(lengths.max()), prompt)
